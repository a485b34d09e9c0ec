//! kill -9 of those who make, restore and remove backups, in a loop.
//!
//! After every round each complete backup verifies and holds what its snapshot held, and what was
//! cut short can be done again: a backup without uploading what is there, a restore from where it
//! was, a removal to its end. At the end no block is left that no backup needs.
//!
//! `BACKUP_CRASH_ROUNDS` says how often, `BACKUP_CRASH_SEED` replays the choices of an earlier run,
//! `BACKUP_CRASH_VERBOSE` names every round. Locks are taken at the pace of the dialect, two seconds
//! each, so several stores are used side by side. The locks of the dead end after 150 seconds; here
//! their objects are made to look as old as that.

mod lane;
mod plan;
mod restores;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use lane::Lane;
use plan::{Kind, Plan};

const ROUNDS: u32 = 20;
/// Stores in use at a time.
const LANES: u32 = 4;
/// Then it is emptied, and another begun with new volumes: chains of snapshots do not grow for ever.
const ROUNDS_OF_A_STORE: u32 = 25;
const SAY_EVERY: u32 = 25;

/// What was seen, of all lanes.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// By what was killed, and whether the kill came in time.
    pub(crate) kills: BTreeMap<Kind, (u32, u32)>,
    pub(crate) backups: u64,
    pub(crate) bytes: u64,
    pub(crate) restores: u64,
    pub(crate) resumed: u64,
    pub(crate) refused: u64,
}

#[test]
fn no_complete_backup_is_lost_when_those_who_work_on_it_are_killed() {
    let rounds = from_environment("BACKUP_CRASH_ROUNDS").and_then(|it| it.try_into().ok());
    let rounds: u32 = rounds.unwrap_or(ROUNDS);
    let seed = from_environment("BACKUP_CRASH_SEED").unwrap_or_else(|| rand::rng().random());
    println!("crash backup: seed {seed}");
    let (done, counts) = (AtomicU32::new(0), Mutex::new(Counts::default()));
    let lanes = LANES.min(rounds);
    std::thread::scope(|scope| {
        for number in 0..lanes {
            let (done, counts) = (&done, &counts);
            let own = rounds / lanes + u32::from(number < rounds % lanes);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed.wrapping_add(u64::from(number)));
                let mut lane = Lane::start(number);
                for round in 0..own {
                    let plan = Plan::choose(&mut random, number, round);
                    if round > 0 && round.is_multiple_of(ROUNDS_OF_A_STORE) {
                        std::mem::replace(&mut lane, Lane::start(number)).finish(counts);
                    }
                    lane.round(&plan, counts);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if done.is_multiple_of(SAY_EVERY) && done != rounds {
                        println!("crash backup: {done} rounds of {rounds}, nothing lost");
                    }
                }
                lane.finish(counts);
            });
        }
    });
    report(rounds, &counts.into_inner().unwrap());
}

fn report(rounds: u32, counts: &Counts) {
    let kills: Vec<String> =
        counts.kills.iter().map(|(kind, (all, early))| format!("{kind:?} {early}/{all}")).collect();
    println!(
        "crash backup: {rounds} rounds, kills that cut something short {}, {} refused by locks, {} resumed, {} backups checked ({} MiB), {} restored to volumes, 0 lost, 0 blocks left behind",
        kills.join(", "),
        counts.refused,
        counts.resumed,
        counts.backups,
        counts.bytes >> 20,
        counts.restores,
    );
    // Of a loop whose kills all come too late nothing is learned.
    let early: u32 = counts.kills.values().map(|(_, early)| early).sum();
    assert!(early > 0 || rounds < ROUNDS, "not one kill came in time: {}", kills.join(", "));
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}
