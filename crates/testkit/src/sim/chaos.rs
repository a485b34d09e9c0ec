//! Faults by chance: a plan of crashes and parted networks that ends in a healed world.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::rng::Rng;
use super::world::{Node, World};

/// The most disk calls after which a planned crash strikes.
const CALLS_AHEAD_MAX: usize = 12;

/// Faults strike at random times before `until`; then every node is up and the network whole.
#[derive(Debug, Clone)]
pub struct Chaos {
    pub until: Duration,
    /// Between one fault and the next.
    pub every: RangeInclusive<Duration>,
    /// How long a node stays down, and a network parted.
    pub lasts: RangeInclusive<Duration>,
}

impl Chaos {
    pub(crate) fn plan<N: Node>(&self, world: &mut World<N>, mut rng: Rng) {
        let names = world.names();
        let mut time = world.clock().now();
        loop {
            // Never zero, or the plan would not end.
            time += rng.duration(&self.every).max(Duration::from_micros(1));
            if time >= self.until {
                break;
            }
            let Some(victim) = rng.choose(&names).cloned() else { return };
            let back = (time + rng.duration(&self.lasts)).min(self.until);
            match rng.below(4) {
                0 => world.at(time, "power fails", {
                    let victim = victim.clone();
                    move |world| world.crash(&victim)
                }),
                1 => world.at(time, "a process is killed", {
                    let victim = victim.clone();
                    move |world| world.kill(&victim)
                }),
                2 => {
                    let nth = 1 + rng.below(CALLS_AHEAD_MAX) as u64;
                    let victim = victim.clone();
                    world.at(time, "power will fail in a disk call", move |world| {
                        world.crash_at_disk_call(&victim, nth);
                    });
                }
                _ => {
                    let side: Vec<String> =
                        names.iter().filter(|_| rng.permille(500)).cloned().collect();
                    world.at(time, "the network parts", move |world| part(world, &side));
                }
            }
            world.at(back, "one fault ends", move |world| {
                world.network().heal();
                world.start(&victim);
            });
        }
        world.at(self.until, "all faults end", |world| {
            world.network().heal();
            for name in world.names() {
                // A crash that was planned for a call not yet made is called off.
                if world.node(&name).is_some() {
                    world.kill(&name);
                }
                world.start(&name);
            }
        });
    }
}

fn part<N: Node>(world: &mut World<N>, side: &[String]) {
    let names = world.names();
    let (side, other): (Vec<&str>, Vec<&str>) =
        names.iter().map(String::as_str).partition(|name| side.iter().any(|one| one == name));
    world.network().part(&side, &other);
}
