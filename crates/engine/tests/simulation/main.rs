//! The engine's core in a world of faults: every history must keep what was promised.
//!
//! One engine, three replicas, a client that reads and writes by chance, and a control side that
//! starts, mends, takes snapshots, rebuilds, restores
//! and purges. Replicas lose power, are killed, stall, lie, fill
//! up; the engine is killed; the network parts. An oracle that sees all requests knows what may be
//! read and what must be on disk.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod change;
mod engine;
mod filling;
mod jobs;
mod mending;
mod message;
mod oracle;
mod party;
mod plan;
mod purging;
mod replica;
mod restoring;
mod start;
mod store;

use std::rc::Rc;
use std::time::Duration;

use testkit::sim::{Link, Rng, Violation, World, for_seeds};

use crate::party::{ENGINES, NAMES, Party, Role, Shared, Style, Tally};

const FAULTS_UNTIL: Duration = Duration::from_secs(4);
const CALM_WITHIN: Duration = Duration::from_secs(30);

fn play(seed: u64) -> Result<Tally, Violation> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let shared = Shared::new(Style::draw(&mut rng, FAULTS_UNTIL + Duration::from_millis(300)));
    let link = Link {
        delay: Duration::from_micros(50)..=Duration::from_micros(900),
        loss_permille: 0,
        duplicate_permille: 0,
    };
    let mut world = World::new(seed, link);
    for (own, name) in NAMES.iter().enumerate() {
        world.add(name, Role::Replica(Rc::clone(&shared), own));
    }
    world.add(ENGINES[0], Role::Engine(Rc::clone(&shared), 0));
    world.add(ENGINES[1], Role::Engine(Rc::clone(&shared), 1));
    world.kill(ENGINES[1]);
    let watched = Rc::clone(&shared);
    world.always(move |_| match &watched.oracle.borrow().violation {
        Some(what) => Err(what.clone()),
        None => Ok(()),
    });
    plan::unleash(&mut world, &shared, &mut rng, FAULTS_UNTIL);
    world.run(FAULTS_UNTIL + Duration::from_millis(500))?;
    come_to_rest(&mut world, &shared)?;
    let (completed, failed) = {
        let oracle = shared.oracle.borrow();
        (oracle.completed, oracle.failed)
    };
    shared.count(|tally| (tally.requests, tally.faults) = (completed, failed));
    Ok(shared.tally.get())
}

/// Once the faults are over every request completes, every hold ends, and every replica is rebuilt.
fn come_to_rest(world: &mut World<Party>, shared: &Shared) -> Result<(), Violation> {
    let deadline = world.clock().now() + CALM_WITHIN;
    let is_calm = |world: &World<Party>| matches!(world.node("engine"), Some(Party::Engine(engine)) if engine.is_calm());
    while !is_calm(world) {
        let next = world.clock().now() + Duration::from_millis(5);
        world.run(next)?;
        if next > deadline {
            let what = match world.node("engine") {
                Some(Party::Engine(engine)) => format!(
                    "no rest: {:?}, {:?}, {:?}, {} requests, {:?}",
                    engine.phase,
                    engine.job,
                    engine.mending,
                    engine.core.in_flight(),
                    engine.core.members()
                ),
                Some(Party::Replica(_)) | None => "no engine".to_owned(),
            };
            shared.oracle.borrow_mut().complain(what);
            world.at(next, "the end", |_| {});
            world.run(next)?;
        }
    }
    look_at_the_end(shared);
    let now = world.clock().now();
    world.at(now, "the end", |_| {});
    world.run(now)
}

fn look_at_the_end(shared: &Shared) {
    let mut oracle = shared.oracle.borrow_mut();
    if oracle.open(0) > 0 {
        oracle.complain("requests were forgotten".to_owned());
    }
    let stores: Vec<_> = shared.stores.iter().map(|store| store.borrow()).collect();
    let heads: Vec<(&str, &[u8])> =
        NAMES.iter().zip(&stores).map(|(name, store)| (*name, store.head.as_slice())).collect();
    oracle.check_copies(&heads, false);
    for (name, store) in NAMES.iter().zip(&stores) {
        for (snapshot, layer) in &store.layers.all {
            oracle.check_snapshot(name, snapshot, &layer.content);
        }
    }
}

#[test]
fn what_was_promised_is_kept() {
    let mut total = Tally::default();
    let mut played = 0;
    for_seeds(500, |seed| {
        let tally = play(seed).unwrap_or_else(|violation| panic!("{violation}"));
        played += 1;
        total.requests += tally.requests;
        total.faults += tally.faults;
        total.starts += tally.starts;
        total.failures += tally.failures;
        total.rebuilds += tally.rebuilds;
        total.mends += tally.mends;
        total.snapshots += tally.snapshots;
        total.checks += tally.checks;
        total.cut_offs += tally.cut_offs;
        total.waits += tally.waits;
        total.reverts += tally.reverts;
        total.expansions += tally.expansions;
        total.busy += tally.busy;
        total.chains += tally.chains;
        total.purges += tally.purges;
        total.purged += tally.purged;
        total.restores += tally.restores;
        total.shown += tally.shown;
        total.passed_over += tally.passed_over;
    });
    println!("{played} seeds: {total:?}");
    if played >= 100 {
        // A world in which nothing happens proves nothing.
        assert!(total.requests > 50 * played, "{total:?}");
        assert!(total.faults > 0 && total.starts > 2 * played, "{total:?}");
        assert!(total.rebuilds > played && total.mends > played, "{total:?}");
        assert!(total.snapshots > played && 2 * total.checks > played, "{total:?}");
        assert!(total.cut_offs > 0 && total.waits > 0, "{total:?}");
        assert!(total.purges > played / 2 && total.purged > played / 2, "{total:?}");
        assert!(total.restores > played / 10 && total.shown > 0, "{total:?}");
        assert!(total.passed_over > 0, "{total:?}");
        assert!(total.reverts > 0 && total.expansions > 0 && total.chains > 0, "{total:?}");
    }
}

#[test]
fn a_seed_plays_the_same_again() {
    let told = |seed| play(seed).map(|tally| format!("{tally:?}")).map_err(|it| it.to_string());
    for seed in [3, 5] {
        assert_eq!(told(seed), told(seed));
    }
}
