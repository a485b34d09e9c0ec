//! An S3 service that is slow, throttles, loses requests and answers, cuts them short, or no longer
//! knows us. What may go better later is tried again; what may not ends in a clear error; and
//! afterwards every complete backup is whole.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use e2e::backup::{BLOCK, Call, Fault, Proxy, Restored, Source, Target};

use crate::in_bucket;

const LANES: usize = 6;

#[derive(Debug, Clone, Copy)]
enum When {
    Every(u64),
    From(u64),
    /// From that call on, for as long.
    During(u64, Duration),
}

#[derive(Debug, Clone, Copy)]
struct Scenario {
    fault: Fault,
    when: When,
}

/// What must come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    Success,
    /// An error will do if it holds one of these.
    SuccessOr(&'static [&'static str]),
}

impl Scenario {
    fn demand(self) -> Demand {
        match self.fault {
            Fault::None
            | Fault::SlowDown
            | Fault::CutRequest
            | Fault::LostAnswer
            | Fault::CutAnswer
            | Fault::ShortAnswer
            | Fault::Slow(_) => Demand::Success,
            // Who is shut out cannot give its lock back either, so the next may meet that.
            // Where an answer has no body, it does not say what is wrong with the key.
            Fault::Expired => Demand::SuccessOr(&[
                "has expired or is wrong",
                "check the rights of that key",
                "failed to acquire lock",
            ]),
        }
    }

    fn rule(self) -> impl FnMut(&Call) -> Fault + Send + 'static {
        let mut began = None;
        move |call| {
            let hits = match self.when {
                When::Every(nth) => call.number.is_multiple_of(nth),
                When::From(first) => call.number >= first,
                When::During(first, long) => {
                    call.number >= first && began.get_or_insert_with(Instant::now).elapsed() < long
                }
            };
            if hits { self.fault } else { Fault::None }
        }
    }
}

fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for fault in [Fault::SlowDown, Fault::CutRequest, Fault::LostAnswer, Fault::CutAnswer] {
        all.extend([3, 5].map(|nth| Scenario { fault, when: When::Every(nth) }));
    }
    for nth in [3, 7] {
        all.push(Scenario { fault: Fault::ShortAnswer, when: When::Every(nth) });
    }
    let slow = Fault::Slow(Duration::from_millis(200));
    all.push(Scenario { fault: slow, when: When::Every(1) });
    for first in [1, 4, 8, 12, 16] {
        all.push(Scenario { fault: Fault::Expired, when: When::From(first) });
    }
    for first in [3, 12] {
        let when = When::During(first, Duration::from_secs(1));
        all.push(Scenario { fault: Fault::SlowDown, when });
    }
    all
}

#[derive(Debug, Default)]
struct Counts {
    points: AtomicU64,
    calls: AtomicU64,
    succeeded: AtomicU64,
    refused: AtomicU64,
    checked: AtomicU64,
}

#[test]
fn every_complete_backup_outlives_a_faulty_service() {
    in_bucket(|_| {
        let scenarios = scenarios();
        let count = scenarios.len();
        let next = Mutex::new(scenarios.into_iter().enumerate());
        let counts = Counts::default();
        std::thread::scope(|scope| {
            for _ in 0..LANES {
                scope.spawn(|| {
                    // An agent remembers few backups, so nobody shares one.
                    let source = source();
                    loop {
                        let Some((index, scenario)) = next.lock().unwrap().next() else { break };
                        run(&source, index, scenario, &counts);
                    }
                });
            }
        });
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        println!(
            "S3 faults: {count} scenarios, {} points in {} calls, {} operations succeeded, {} ended in a clear error, {} complete backups whole afterwards",
            of(&counts.points),
            of(&counts.calls),
            of(&counts.succeeded),
            of(&counts.refused),
            of(&counts.checked),
        );
    });
}

fn source() -> Source {
    let mut source = Source::start(1, 16);
    for block in [0, 3, 5] {
        source.write(block * BLOCK, &[b'a'; 16 << 10]);
    }
    source.snapshot("one");
    source.write(5 * BLOCK, &[b'b'; 16 << 10]);
    source.write(6 * BLOCK, &[b'c'; 16 << 10]);
    source.snapshot("two");
    source
}

fn run(source: &Source, index: usize, scenario: Scenario, counts: &Counts) {
    let target = Target::bucket().unwrap();
    let Target::Bucket { bucket, .. } = &target else { return };
    let proxy = Proxy::to(bucket.at);
    let faulty = target.through(&proxy.endpoint());
    let volume = source.name();
    let (base, next) = (format!("base-{index}"), format!("next-{index}"));
    source.back_up(&target, "one", &base, &[]);
    let to = Restored::fresh(1, source.size_bytes());

    let judge = |what: &str, outcome: Result<(), String>| {
        counts.calls.fetch_add(proxy.calls(), Ordering::Relaxed);
        match (outcome, scenario.demand()) {
            (Ok(()), _) => {
                counts.succeeded.fetch_add(1, Ordering::Relaxed);
                true
            }
            (Err(error), Demand::SuccessOr(texts)) if texts.iter().any(|it| error.contains(it)) => {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                false
            }
            (Err(error), _) => panic!("{what}, {scenario:?}: {error}"),
        }
    };
    proxy.rule(scenario.rule());
    let created = source.try_back_up(&faulty, "two", &next, &[]).map(drop);
    let created = judge("create", created);
    proxy.rule(scenario.rule());
    let restored = to.try_restore(&faulty, volume, &base);
    if judge("restore", restored) {
        to.assert_holds(&source.snapshots["one"], "the restored volume");
    }
    proxy.rule(scenario.rule());
    let url = target.backup_url(volume, &base);
    let removed = faulty.cli().call(&["backup", "rm", &url]);
    let removed = if removed.code == Some(0) { Ok(()) } else { Err(removed.stderr) };
    judge("rm", removed);
    counts.points.fetch_add(proxy.faults(), Ordering::Relaxed);

    let complete = target.complete(volume);
    assert_eq!(complete.contains(&next), created, "{scenario:?}: {complete:?}");
    check(source, &target, &complete, scenario);
    counts.checked.fetch_add(complete.len() as u64, Ordering::Relaxed);
    // Those who could not give their locks back are long gone.
    for lock in target.keys().iter().filter(|key| key.contains("/locks/")) {
        target.remove(lock);
    }
    target.cli().run(&["backup", "gc", "--volume", volume, &target.url()]);
    target.assert_sound(volume);
    check(source, &target, &complete, scenario);
}

fn check(source: &Source, target: &Target, complete: &[String], scenario: Scenario) {
    for backup in complete {
        let image = target.image(source.name(), backup, source.size_bytes());
        let image = image.unwrap_or_else(|error| panic!("{backup}, {scenario:?}: {error}"));
        let snapshot = if backup.starts_with("base-") { "one" } else { "two" };
        assert!(image == source.snapshots[snapshot], "{backup} differs, {scenario:?}");
    }
}
