//! kill -9 of engines and replicas under load, in a loop.
//!
//! After every kill an operator brings the volume back with the command line. Then: nothing is
//! lost that was acknowledged before an acknowledged flush (or at all, while an engine lived), no
//! block holds anything but a state it once had, all replicas are equal, and no snapshot has
//! changed. `CRASH_ROUNDS` says how often, `CRASH_SEED` replays the choices of an earlier run,
//! `CRASH_VERBOSE` names every round.

mod load;
mod model;
mod operator;
mod plan;
mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use e2e::engine::{MIB, Setup, TIMEOUT};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use testkit::process::poll_until;

use load::{Load, Shared};
use model::{BLOCK, Since};
use operator::{Background, Operator, pause};
use plan::{Kind, Meanwhile, Plan};
use snapshots::Snapshots;

const ROUNDS: u32 = 25;
const SIZE_BYTES: u64 = 16 * MIB;
const REPLICAS: usize = 3;
/// Snapshots of ours that are kept.
const KEPT: usize = 3;
const SAY_EVERY: u32 = 25;

/// Some purges fold the removed parent of the head into it, some leave it.
fn purge_of(plan: &Plan) -> &'static [&'static str] {
    if plan.seed.is_multiple_of(3) {
        &["snapshot", "purge"]
    } else {
        &["snapshot", "purge", "--fold-head-parent"]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_flushed_is_lost_when_engines_and_replicas_are_killed() {
    let rounds = from_environment("CRASH_ROUNDS").and_then(|it| it.try_into().ok());
    let rounds: u32 = rounds.unwrap_or(ROUNDS);
    let seed = from_environment("CRASH_SEED").unwrap_or_else(|| rand::rng().random());
    println!("crash engine: seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut volumes = [Subject::new(true), Subject::new(false)];
    let mut kills = BTreeMap::new();
    for round in 1..=rounds {
        let subject = &mut volumes[round as usize % 2];
        let plan = Plan::choose(&mut random, REPLICAS, subject.counters);
        *kills.entry(plan.kind).or_insert(0_u32) += 1;
        let start = std::time::Instant::now();
        subject.round(&plan).await;
        if std::env::var_os("CRASH_VERBOSE").is_some() {
            let (counters, took) = (subject.counters, start.elapsed());
            println!("round {round}: {took:.1?}, counters {counters}, {plan:?}");
        }
        let lost = subject.complaints();
        assert!(lost.is_empty(), "round {round} of seed {seed}, {plan:?}: {lost:#?}");
        if round % SAY_EVERY == 0 && round != rounds {
            println!("crash engine: {round} rounds of {rounds}, nothing lost");
        }
    }
    report(rounds, &kills, &volumes);
}

fn report(rounds: u32, kills: &BTreeMap<Kind, u32>, volumes: &[Subject]) {
    let total = |count: fn(&load::Counts) -> &std::sync::atomic::AtomicU64| -> u64 {
        volumes.iter().map(|it| count(&it.shared.counts).load(Ordering::Relaxed)).sum()
    };
    let writes = total(|counts| &counts.writes);
    let rebuilds: u64 = volumes.iter().map(|it| it.operator.rebuilds).sum();
    println!(
        "crash engine: {rounds} rounds, kills {kills:?}, {rebuilds} rebuilds, {writes} acknowledged writes, {} flushes, {} reads, {} refused, 0 lost",
        total(|counts| &counts.flushes),
        total(|counts| &counts.reads),
        total(|counts| &counts.refused),
    );
    assert!(writes > u64::from(rounds), "the clients hardly wrote");
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// A volume and all that is known of it.
struct Subject {
    counters: bool,
    operator: Operator,
    shared: Arc<Shared>,
    snapshots: Snapshots,
    complaints: Vec<String>,
}

impl Subject {
    fn new(counters: bool) -> Self {
        let setup = Setup {
            replicas: REPLICAS,
            size_bytes: SIZE_BYTES,
            revision_counter: counters,
            ..Setup::default()
        };
        let blocks = usize::try_from(SIZE_BYTES).unwrap() / BLOCK;
        Self {
            counters,
            operator: Operator::new(setup),
            shared: Arc::new(Shared::new(blocks)),
            snapshots: Snapshots::default(),
            complaints: Vec::new(),
        }
    }

    fn complaints(&mut self) -> Vec<String> {
        let mut all = std::mem::take(&mut self.complaints);
        all.append(&mut self.shared.complaints.lock().unwrap());
        all
    }

    async fn round(&mut self, plan: &Plan) {
        let endpoint = self.operator.volume.endpoint();
        let load = Load::start(&self.shared, &endpoint, plan.seed).await;
        let other = self.meanwhile(plan);
        pause(plan.before).await;
        self.operator.kill(plan);
        if plan.wipe {
            self.operator.volume.replicas[plan.victims[0]].wipe();
        }
        if !plan.kills_engine() {
            pause(plan.after).await;
        }
        load.stop().await;
        let succeeded = other.1.is_some_and(Background::wait);
        if let (Some(name), true) = (other.0, succeeded) {
            self.snapshots.acknowledged(&name);
        }
        self.operator.recover();
        let since = match plan.kind {
            Kind::Replicas => Since::Acknowledged,
            Kind::Engine | Kind::EngineAndReplicas | Kind::AllReplicas | Kind::Everything => {
                Since::Flushed
            }
        };
        self.check(since).await;
        self.tidy(plan).await;
    }

    /// Begins what else is to happen; the name of a snapshot that is taken.
    fn meanwhile(&mut self, plan: &Plan) -> (Option<String>, Option<Background>) {
        match plan.meanwhile {
            Meanwhile::Nothing => (None, None),
            Meanwhile::Snapshot => {
                let name = self.snapshots.next_name();
                let creating = self.operator.background(&["snapshot", "create", &name]);
                (Some(name), Some(creating))
            }
            Meanwhile::Purge => {
                self.snapshots.purged();
                (None, Some(self.operator.background(purge_of(plan))))
            }
            Meanwhile::Rebuild(index) => {
                self.operator.take_away(index);
                (None, Some(self.operator.begin_rebuild(index)))
            }
        }
    }

    async fn check(&mut self, since: Since) {
        let nbd = self.operator.volume.nbd().await;
        let found = nbd.read_all().await.unwrap();
        self.judge(&found, since);
        nbd.flush().await.unwrap();
        if nbd.read_all().await.unwrap() != found {
            self.complaints.push("two reads of an idle volume differ".to_owned());
        }
        for replica in &self.operator.volume.replicas {
            // After an unclean end an engine makes copies equal while it serves.
            let equal = || (replica.contents(SIZE_BYTES) == found).then_some(());
            if poll_until(TIMEOUT, equal).is_none() {
                self.complaints.push(format!("{} is not equal", replica.address()));
            }
        }
        self.complaints.extend(self.snapshots.check(&self.operator.volume, &found));
    }

    fn judge(&mut self, found: &[u8], since: Since) {
        let mut model = self.shared.model.lock().unwrap();
        self.complaints.extend(model.judge(0, found, since));
        model.settle(found);
    }

    /// Removes old snapshots. The purge that merges them away may run on into the next round.
    async fn tidy(&mut self, plan: &Plan) {
        let old = self.snapshots.beyond(KEPT);
        let system = self.operator.volume.replicas[0].layers().chain().len() > 3 * KEPT;
        if old.is_empty() && !system {
            return;
        }
        let cli = self.operator.volume.cli();
        for name in old {
            cli.run(&["snapshot", "rm", &name]);
            self.snapshots.removed(&name);
        }
        self.snapshots.purged();
        cli.run(purge_of(plan));
        if plan.seed.is_multiple_of(2) {
            self.operator.wait_for_purge();
            let nbd = self.operator.volume.nbd().await;
            let found = nbd.read_all().await.unwrap();
            self.complaints.extend(self.snapshots.check(&self.operator.volume, &found));
        }
        self.operator.forget_output();
    }
}
