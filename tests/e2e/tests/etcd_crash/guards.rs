//! Killing the guard itself, while keys change and snapshots are asked for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::guard::Sidecar;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::plan::{Kind, Plan};
use crate::source::Source;
use crate::world::World;

/// What somebody who asked for snapshots until the guard died can tell.
#[derive(Debug, Default)]
struct Asked {
    /// The newest revision of an answer.
    promised: i64,
    promises: u32,
    /// The last question got no answer.
    is_cut_short: bool,
}

impl World {
    pub(crate) fn kill_guard(&mut self, plan: &Plan) {
        if plan.from_start {
            // Another one, so that its start is what is killed.
            drop(self.sidecar.take());
        }
        let mut random = StdRng::seed_from_u64(plan.seed.wrapping_add(2));
        (0..plan.changes).for_each(|_| self.source.change(&mut random));
        self.start_guard();
        if !plan.from_start {
            self.sidecar.as_mut().unwrap().wait_until_healthy();
        }
        let mut sidecar = self.sidecar.take().unwrap();
        let asked = live_and_die(&mut sidecar, &self.source, plan);
        self.counts.kill(Kind::Guard, asked.is_cut_short);
        self.counts.promises += asked.promises;
        self.promised = self.promised.max(asked.promised);
        self.check_store();
        // The next one goes on where that one was.
        let known = self.promise();
        let dir = self.fresh();
        self.compare_and_remove(&dir, known);
    }
}

fn live_and_die(sidecar: &mut Sidecar, source: &Source, plan: &Plan) -> Asked {
    let (dying, dead) = (AtomicBool::new(false), AtomicBool::new(false));
    let process = sidecar.process.id();
    let asked = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(plan.seed);
            while !dead.load(Ordering::SeqCst) {
                source.change(&mut random);
            }
        });
        let asking = scope.spawn(|| ask(sidecar, source, plan, (&dying, &dead)));
        // Its length is part of the experiment.
        pause(plan.life);
        dying.store(true, Ordering::SeqCst);
        kill(process);
        dead.store(true, Ordering::SeqCst);
        writing.join().unwrap();
        asking.join().unwrap()
    });
    sidecar.process.kill().unwrap();
    asked
}

/// Asks for one snapshot after the other, until the guard is dead.
fn ask(
    sidecar: &Sidecar,
    source: &Source,
    plan: &Plan,
    (dying, dead): (&AtomicBool, &AtomicBool),
) -> Asked {
    let mut random = StdRng::seed_from_u64(plan.seed.wrapping_add(1));
    let mut asked = Asked::default();
    while !dead.load(Ordering::SeqCst) {
        let path = if random.random_ratio(1, 4) { "/snapshot/full" } else { "/snapshot/delta" };
        // All that was there before the question is in the store at a good answer.
        let revision = source.revision();
        let in_time = !dying.load(Ordering::SeqCst);
        match sidecar.try_ask("GET", path) {
            Some((200, body)) if serde_json::from_str::<serde_json::Value>(&body).is_ok() => {
                asked.promised = revision;
                asked.promises += 1;
            }
            Some(_) => {}
            None => asked.is_cut_short = in_time && dying.load(Ordering::SeqCst),
        }
    }
    asked
}

fn pause(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}

fn kill(process: u32) {
    let id = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
}
