//! Every order of a few things that go wrong, for every kind of volume: whatever comes, nothing that
//! must always hold is broken (see `World::check`), and once nothing more goes wrong the volume gets
//! where it is wanted.

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
const DEPTH: u32 = 3;

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
    }
    world.pass();
    world.obey();
    world.now += SignedDuration::from_millis(200);
}

/// Long enough for every pause: what is left then is left for ever.
fn settle(world: &mut World) {
    for _ in 0..6 {
        world.run(12);
        world.now += SignedDuration::from_mins(11);
    }
    world.run(20);
}

fn walk(name: &str, begin: impl Fn() -> World, ends: impl Fn(&World, bool) -> bool) {
    let count = EVENTS.len().pow(DEPTH);
    for number in 0..count {
        let mut world = begin();
        let (mut wants, mut rest, mut order) = (false, number, Vec::new());
        for _ in 0..DEPTH {
            let event = EVENTS[rest % EVENTS.len()];
            rest /= EVENTS.len();
            order.push(event);
            happen(&mut world, event, &mut wants);
        }
        settle(&mut world);
        assert!(
            ends(&world, wants),
            "{name}: after {order:?}, wanted {wants}: {:#?} {:#?}",
            world.status(),
            world.engine.as_ref().map(|it| &it.spec)
        );
    }
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
