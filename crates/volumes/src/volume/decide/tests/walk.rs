//! Every order of a few things that go wrong, for every kind of volume: whatever comes, nothing that
//! must always hold is broken (see `World::check`), and once nothing more goes wrong the volume gets
//! where it is wanted.

use super::faults::FaultKind;
use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// Nothing goes wrong for a while.
    Calm,
    KillFirst,
    KillLast,
    KillEngine,
    /// Somebody wants it attached, or no longer.
    Ticket,
    /// One more copy is wanted, or one fewer.
    Copies,
    /// It is to be larger.
    Grow,
    /// It is to be put back to its snapshot.
    Revert,
    /// Its engine is to be another.
    Image,
}

const EVENTS: [Event; 7] = [
    Event::Calm,
    Event::KillFirst,
    Event::KillLast,
    Event::KillEngine,
    Event::Ticket,
    Event::Copies,
    Event::Grow,
];
/// More of them, for walks that are shorter, or chosen.
const MORE: [Event; 9] = [
    Event::Ticket,
    Event::KillFirst,
    Event::KillLast,
    Event::KillEngine,
    Event::Calm,
    Event::Copies,
    Event::Grow,
    Event::Revert,
    Event::Image,
];
const DEPTH: usize = 3;

fn happen(world: &mut World, event: Event, wants: &mut bool) {
    match event {
        Event::Calm => world.run(3),
        Event::KillFirst | Event::KillLast => {
            let running: Vec<usize> = (0..world.replicas.len())
                .filter(|index| address_of(&world.replicas[*index]).is_some())
                .collect();
            let victim = if event == Event::KillFirst { running.first() } else { running.last() };
            if let Some(victim) = victim {
                world.kill(*victim);
            }
        }
        Event::KillEngine => {
            let status = world.engine.as_mut().and_then(|it| it.status.as_mut());
            if let Some(status) = status
                && status.instance.current_state == Some(InstanceState::Running)
            {
                status.instance.current_state = Some(InstanceState::Error);
            }
        }
        Event::Ticket if *wants => {
            world.drop_ticket();
            *wants = false;
        }
        Event::Ticket => {
            world.ticket(NODE);
            *wants = true;
        }
        Event::Copies => {
            let now = world.volume.spec.number_of_replicas.unwrap_or(2);
            world.volume.spec.number_of_replicas = Some(if now == 2 { 3 } else { 2 });
        }
        Event::Grow => {
            let size = world.volume.spec.size.map_or(0, |it| it.0);
            world.volume.spec.size = Some(TextInt(size.min(64 * MIB) + 32 * MIB));
        }
        Event::Revert => ask_revert(world, "x"),
        Event::Image => {
            let is_new = world.volume.spec.image.as_deref() == Some(NEW);
            let next = if is_new { crate::image::DEFAULT } else { NEW };
            world.volume.spec.image = Some(next.to_owned());
        }
    }
    world.pass();
    world.obey();
    world.now += SignedDuration::from_millis(200);
}

/// Long enough for every pause: what is left then is left for ever.
fn settle(world: &mut World) {
    for passes in [12, 12, 12, 12, 12, 12, 20] {
        for _ in 0..passes {
            let before = (world.engine.clone(), world.replicas.clone());
            world.run(1);
            let is_idle = world.counts.last() == Some(&0);
            if is_idle && before == (world.engine.clone(), world.replicas.clone()) {
                break;
            }
        }
        world.now += SignedDuration::from_mins(11);
    }
}

/// One walk: where it begins, and where it must end.
struct Walk<'w> {
    name: &'w str,
    begin: &'w dyn Fn() -> World,
    ends: &'w dyn Fn(&World, bool) -> bool,
}

impl Walk<'_> {
    /// Walks in this order, and says how many writes each pass had.
    fn go(&self, order: &[Event], fault: Option<Fault>) -> Vec<usize> {
        let mut world = (self.begin)();
        world.counts.clear();
        world.fault = fault;
        let mut wants = false;
        for event in order {
            happen(&mut world, *event, &mut wants);
        }
        settle(&mut world);
        assert!(
            (self.ends)(&world, wants),
            "{}: after {order:?} with {fault:?}, wanted {wants}: {:#?} {:#?}",
            self.name,
            world.status(),
            world.engine
        );
        world.counts
    }

    /// Every order of things that go wrong.
    fn everywhere(&self) {
        for order in orders(&EVENTS, DEPTH) {
            self.go(&order, None);
        }
    }

    /// Every order of fewer of them, and in each every pass ended at every place, or with an old view.
    fn with_faults(&self, events: &[Event]) {
        for order in orders(events, 2) {
            let counts = self.go(&order, None);
            for (pass, count) in counts.into_iter().enumerate() {
                for obeyed in [true, false] {
                    for after in 0..count {
                        let kind = FaultKind::Cut { after, obeyed };
                        self.go(&order, Some(Fault { pass, kind }));
                    }
                }
                for kind in [FaultKind::OldEngine, FaultKind::OldReplicas] {
                    self.go(&order, Some(Fault { pass, kind }));
                }
            }
        }
    }
}

fn orders(events: &[Event], depth: usize) -> Vec<Vec<Event>> {
    let mut all = vec![Vec::new()];
    for _ in 0..depth {
        let longer = |order: &Vec<Event>| {
            let order = order.clone();
            events.iter().map(move |event| [order.clone(), vec![*event]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

fn walk(name: &str, begin: impl Fn() -> World, ends: impl Fn(&World, bool) -> bool) {
    let walk = Walk { name, begin: &begin, ends: &ends };
    walk.everywhere();
    walk.with_faults(&[Event::Ticket, Event::KillEngine, Event::KillFirst]);
}

/// Attached and whole, or detached, as it is wanted.
fn rests(world: &World, wants: bool) -> bool {
    let status = world.status();
    if wants {
        (status.state, status.robustness)
            == (Some(VolumeState::Attached), Some(Robustness::Healthy))
    } else {
        status.state == Some(VolumeState::Detached)
    }
}

#[test]
fn a_plain_volume_gets_where_it_is_wanted_whatever_comes() {
    let begin = || {
        let mut world = World::new(VolumeSpec::default());
        world.run(6);
        world
    };
    walk("plain", begin, rests);
}

#[test]
fn a_volume_in_use_gets_where_it_is_wanted_whatever_comes() {
    // It is attached already: the first change of the ticket takes it away.
    let begin = || {
        let mut world = attached();
        world.drop_ticket();
        world.ticket(NODE);
        world
    };
    walk("in use", begin, |world, wants| {
        let still = world.attachment.spec.attachment_tickets.as_ref();
        rests(world, wants || still.is_some_and(|it| it.contains_key("api")))
    });
}

#[test]
fn a_copy_is_complete_or_tried_again_whatever_comes() {
    walk("copy", begun, |world, wants| {
        clone_state(world) == CloneState::Completed && rests(world, wants)
    });
}

#[test]
fn a_restore_ends_restored_or_faulted_whatever_comes() {
    let begin = || {
        let mut world = World::from_backup(false);
        world.run(6);
        world
    };
    walk("restore", begin, |world, wants| {
        let status = world.status();
        let faulted = status.robustness == Some(Robustness::Faulted)
            && status.state == Some(VolumeState::Detached);
        faulted || (status.restore_required == Some(false) && rests(world, wants))
    });
}

#[test]
fn a_standby_volume_follows_or_is_faulted_whatever_comes() {
    let begin = || {
        let mut world = World::from_backup(true);
        world.run(6);
        world
    };
    walk("standby", begin, |world, _| {
        let status = world.status();
        let held =
            world.engine.as_ref().and_then(|it| it.status.as_ref()?.last_restored_backup.clone());
        let follows = status.state == Some(VolumeState::Attached) && held.as_deref() == Some("b1");
        follows || status.robustness == Some(Robustness::Faulted)
    });
}

/// Attached, and asked for another engine at any moment: who serves it is one image, with as many copies
/// as there were, each on a directory of its own.
#[test]
fn a_volume_whose_engine_is_replaced_gets_where_it_is_wanted_whatever_comes() {
    let ends = |world: &World, wants: bool| {
        let still = world.attachment.spec.attachment_tickets.as_ref();
        let wants = wants || still.is_some_and(|it| it.contains_key("api"));
        let image = world.status().current_image;
        let copies: Vec<&Replica> = world.replicas.iter().filter(|it| is_usable(it)).collect();
        let places: BTreeSet<_> = copies.iter().map(|it| &it.spec.data_directory_name).collect();
        let engine = world.engine.as_ref().unwrap();
        rests(world, wants)
            && world.volume.spec.image == image
            && engine.spec.instance.image == image
            && copies.iter().all(|it| it.spec.instance.image == image)
            && places.len() == copies.len()
            && world.replicas.iter().all(is_active)
    };
    let events = [
        Event::Image,
        Event::Ticket,
        Event::KillEngine,
        Event::KillFirst,
        Event::KillLast,
        Event::Calm,
    ];
    let begin = || {
        let mut world = attached();
        world.volume.spec.image = Some(NEW.to_owned());
        world
    };
    let walk = Walk { name: "replaced", begin: &begin, ends: &ends };
    for order in orders(&events, DEPTH) {
        walk.go(&order, None);
    }
    walk.with_faults(&[Event::Calm, Event::Ticket, Event::KillEngine, Event::KillLast]);
}

/// A volume that nobody has made anything for yet.
#[test]
fn a_volume_is_made_whatever_comes() {
    let begin = || World::new(VolumeSpec::default());
    let walk = Walk { name: "new", begin: &begin, ends: &rests };
    walk.with_faults(&[Event::Calm, Event::Ticket, Event::Copies, Event::Grow]);
}

#[test]
fn a_volume_with_a_snapshot_is_reverted_before_anybody_gets_it_whatever_comes() {
    let begin = || {
        let mut world = with_snapshot();
        world.drop_ticket();
        world.run(6);
        world
    };
    let ends = |world: &World, wants: bool| {
        // What was asked for while somebody has it waits until they let go.
        let settled = wants || world.volume.annotations().is_empty();
        settled && rests(world, wants)
    };
    let walk = Walk { name: "revert", begin: &begin, ends: &ends };
    walk.with_faults(&[
        Event::Revert,
        Event::Ticket,
        Event::KillEngine,
        Event::KillFirst,
        Event::Image,
    ]);
}

/// Long walks by chance, with many faults in each: `HOLDFAST_WALKS` says how many.
#[test]
fn long_walks_with_many_faults_end_where_they_must() {
    let walks: u64 = std::env::var("HOLDFAST_WALKS").map_or(300, |it| it.parse().unwrap());
    for seed in 1..=walks {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % u64::try_from(below).unwrap()).unwrap()
        };
        let mut world = with_snapshot();
        world.drop_ticket();
        let (mut wants, mut story) = (false, Vec::new());
        for _ in 0..12 {
            let event = MORE[next(MORE.len())];
            let pass = world.counts.len();
            let kind = match next(6) {
                0 => Some(FaultKind::OldEngine),
                1 => Some(FaultKind::OldReplicas),
                2 | 3 => Some(FaultKind::Cut { after: next(5), obeyed: next(2) == 0 }),
                _ => None,
            };
            world.fault = kind.map(|kind| Fault { pass: pass + next(3), kind });
            story.push((event, world.fault.map(|it| (it.pass - pass, it.kind))));
            happen(&mut world, event, &mut wants);
            world.run(next(3));
        }
        settle(&mut world);
        assert!(
            rests(&world, wants),
            "seed {seed}, wanted {wants}: {story:#?} {:#?} {:#?}",
            world.status(),
            world.engine
        );
    }
}
