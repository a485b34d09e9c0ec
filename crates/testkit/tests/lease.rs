//! The simulator at work: a keeper lends one lease to several holders. A correct keeper never has
//! two holders at a time, whatever crashes; two broken ones are caught.

use std::path::Path;
use std::time::Duration;

use durable::{Disk as _, Mode, Open, on};
use testkit::sim::{Chaos, Context, Disk, Link, Node, Violation, World, for_seeds};

const TERM: Duration = Duration::from_millis(400);
const ASK_EVERY: Duration = Duration::from_millis(70);
const FILE: &str = "/lease";

/// What the keeper does before it answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Care {
    Durable,
    /// Writes the lease in place and does not sync it.
    Unsynced,
    /// Keeps the lease in memory.
    Forgetful,
}

#[derive(Clone)]
enum Role {
    Keeper(Care),
    Holder,
}

#[derive(Debug, Clone)]
enum Message {
    Ask,
    Granted { until: Duration },
}

enum Party {
    Keeper { care: Care, holder: String, until: Duration },
    Holder { until: Duration },
}

impl Party {
    fn holds(&self, now: Duration) -> bool {
        matches!(self, Self::Holder { until } if now < *until)
    }
}

fn save(disk: &Disk, care: Care, holder: &str, until: Duration) -> bool {
    let text = format!("{} {holder}", until.as_nanos());
    match care {
        Care::Durable => on::replace(disk, Path::new(FILE), text.as_bytes(), Mode::PUBLIC).is_ok(),
        Care::Unsynced => disk
            .open(Path::new(FILE), Open::Create(Mode::PUBLIC))
            .and_then(|file| file.write_at(text.as_bytes(), 0))
            .is_ok(),
        Care::Forgetful => true,
    }
}

fn load(disk: &Disk) -> Option<(String, Duration)> {
    let bytes = on::read_limited(disk, Path::new(FILE), 1024).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (nanos, holder) = text.split_once(' ')?;
    Some((holder.to_owned(), Duration::from_nanos(nanos.parse().ok()?)))
}

impl Node for Party {
    type Config = Role;
    type Message = Message;
    type Timer = ();

    fn start(role: &Role, context: &mut Context<'_, Self>) -> Self {
        match role {
            Role::Keeper(care) => {
                let (holder, until) = load(context.disk()).unwrap_or_default();
                Self::Keeper { care: *care, holder, until }
            }
            Role::Holder => {
                context.set_timer(ASK_EVERY, ());
                Self::Holder { until: Duration::ZERO }
            }
        }
    }

    fn on_message(&mut self, from: &str, message: Message, context: &mut Context<'_, Self>) {
        match (self, message) {
            (Self::Keeper { care, holder, until }, Message::Ask) => {
                let now = context.now();
                if (holder == from || now >= *until)
                    && save(context.disk(), *care, from, now + TERM)
                {
                    from.clone_into(holder);
                    *until = now + TERM;
                    context.send(from, Message::Granted { until: *until });
                }
            }
            (Self::Holder { until }, Message::Granted { until: granted }) => {
                *until = granted.max(*until);
            }
            (Self::Keeper { .. }, Message::Granted { .. })
            | (Self::Holder { .. }, Message::Ask) => {}
        }
    }

    fn on_timer(&mut self, (): (), context: &mut Context<'_, Self>) {
        context.send("keeper", Message::Ask);
        context.set_timer(ASK_EVERY, ());
    }
}

fn one_holder(world: &World<Party>) -> Result<(), String> {
    let now = world.clock().now();
    let holders: Vec<&str> =
        world.nodes().filter(|(_, party)| party.holds(now)).map(|(name, _)| name).collect();
    if holders.len() > 1 { Err(format!("{holders:?} hold the lease at once")) } else { Ok(()) }
}

fn play(seed: u64, care: Care) -> Result<World<Party>, Violation> {
    let mut world = World::new(seed, Link::bad());
    world.add("keeper", Role::Keeper(care));
    for name in ["ann", "ben", "eve"] {
        world.add(name, Role::Holder);
    }
    world.always(one_holder);
    world.unleash(&Chaos {
        until: Duration::from_secs(20),
        every: Duration::from_millis(50)..=Duration::from_millis(800),
        lasts: Duration::from_millis(10)..=Duration::from_millis(300),
    });
    world.run(Duration::from_secs(25))?;
    Ok(world)
}

#[test]
fn a_durable_keeper_never_has_two_holders() {
    for_seeds(60, |seed| {
        let mut world = play(seed, Care::Durable).unwrap_or_else(|violation| panic!("{violation}"));
        // And it is of use: once the faults have ended, somebody comes to hold the lease.
        let held = (0..40).any(|_| {
            let next = world.clock().now() + ASK_EVERY;
            world.run(next).unwrap();
            world.nodes().any(|(_, party)| party.holds(next))
        });
        assert!(held, "nobody gets the lease");
    });
}

#[test]
fn a_keeper_that_does_not_sync_is_caught() {
    assert!((0..60).any(|seed| play(seed, Care::Unsynced).is_err()));
}

#[test]
fn a_keeper_that_forgets_is_caught() {
    let violation = (0..60).find_map(|seed| play(seed, Care::Forgetful).err()).unwrap();
    let again = play(violation.seed, Care::Forgetful).unwrap_err();
    assert_eq!(violation, again, "and its seed plays the same again");
}
