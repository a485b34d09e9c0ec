//! kill -9 of the etcd guard and of its commands, in a loop, beside a real etcd.
//!
//! After every kill the store restores without a gap to the newest revision that an answer of the
//! guard told of, with the hash that the etcd itself has there; a data directory is absent, the old
//! one or whole, never something in between; and what was cut short succeeds when it is done again.
//! At the end every object of the store is whole, and nothing is left that is not documented.
//!
//! `ETCD_CRASH_ROUNDS` says how often, `ETCD_CRASH_SEED` replays the choices of an earlier run,
//! `ETCD_CRASH_VERBOSE` names every round.

mod commands;
mod guards;
mod plan;
mod source;
mod world;

use std::collections::BTreeMap;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use plan::{Kind, Plan};
use world::World;

const ROUNDS: u32 = 12;
const SAY_EVERY: u32 = 25;

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// By what was killed: how often, and how often that cut something short.
    pub(crate) kills: BTreeMap<Kind, (u32, u32)>,
    /// Restored directories whose hash was compared.
    pub(crate) compared: u32,
    /// Those that an etcd was started on.
    pub(crate) booted: u32,
    /// Commands that took up what a killed one had begun.
    pub(crate) resumed: u32,
    /// Answers that promised that something is in the store.
    pub(crate) promises: u32,
    /// Kills between two names of a directory.
    pub(crate) between: u32,
}

impl Counts {
    pub(crate) fn kill(&mut self, kind: Kind, in_time: bool) {
        let (all, early) = self.kills.entry(kind).or_default();
        (*all, *early) = (*all + 1, *early + u32::from(in_time));
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_guard_is_killed() {
    let rounds = from_environment("ETCD_CRASH_ROUNDS").and_then(|it| it.try_into().ok());
    let rounds: u32 = rounds.unwrap_or(ROUNDS);
    let seed = from_environment("ETCD_CRASH_SEED").unwrap_or_else(|| rand::rng().random());
    let mut random = StdRng::seed_from_u64(seed);
    let Some(mut world) = World::start(&mut random) else { return };
    println!("crash etcd: seed {seed}");
    for round in 0..rounds {
        let plan = Plan::choose(&mut random, round);
        let begun = Instant::now();
        match plan.kind {
            Kind::Guard => world.kill_guard(&plan),
            Kind::Restore => world.kill_restore(&plan),
            Kind::Initialize => world.kill_initialize(&plan),
            Kind::Compact => world.kill_compact(&plan),
        }
        if std::env::var_os("ETCD_CRASH_VERBOSE").is_some() {
            println!("round {round} took {:.1?}: {plan:?}", begun.elapsed());
        }
        let done = round + 1;
        if done.is_multiple_of(SAY_EVERY) && done != rounds {
            println!("crash etcd: {done} rounds of {rounds}, nothing lost");
        }
    }
    let (objects, counts) = world.finish();
    report(rounds, objects, &counts);
}

fn report(rounds: u32, objects: usize, counts: &Counts) {
    let kills: Vec<String> =
        counts.kills.iter().map(|(kind, (all, early))| format!("{kind:?} {early}/{all}")).collect();
    println!(
        "crash etcd: {rounds} rounds, kills that cut something short {}, {} between two names, {} resumed, {} promises kept, {} restores compared ({} with a real etcd), {objects} objects whole, 0 lost, 0 left behind",
        kills.join(", "),
        counts.between,
        counts.resumed,
        counts.promises,
        counts.compared,
        counts.booted,
    );
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}
