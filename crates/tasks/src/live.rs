//! What runs now: the register of one tree, and the mark a running task holds in it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::TaskStatus;
use crate::panics::{Caught, catch};

#[derive(Default)]
pub(crate) struct Live {
    running: Mutex<BTreeMap<u64, Running>>,
    last_id: AtomicU64,
    panics: AtomicU64,
}

struct Running {
    status: TaskStatus,
    scopes: Vec<u64>,
}

impl Live {
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// The tasks of one scope and those below it, in the order they started.
    pub(crate) fn below(&self, scope: u64) -> Vec<TaskStatus> {
        let running = self.lock();
        let here = running.values().filter(|task| task.scopes.contains(&scope));
        here.map(|task| task.status.clone()).collect()
    }

    pub(crate) fn enter(
        live: &Arc<Self>,
        path: String,
        scopes: Vec<u64>,
        counted: Vec<TaskTrackerToken>,
    ) -> Entered {
        let id = live.next_id();
        let status = TaskStatus { name: path.clone(), started: SystemTime::now() };
        live.lock().insert(id, Running { status, scopes });
        Entered { live: Arc::clone(live), id, path, _counted: counted }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Running>> {
        // Nothing panics while it is held, and a list of names cannot be half changed.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that runs; dropped when it has ended, however it ended.
pub(crate) struct Entered {
    live: Arc<Live>,
    id: u64,
    path: String,
    /// Dropped after the entry above is gone, so that a scope that has drained lists nothing.
    _counted: Vec<TaskTrackerToken>,
}

impl Entered {
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> Result<T, String> {
        let outcome = catch(work);
        self.report(&outcome);
        outcome
    }

    pub(crate) async fn run_future<F: Future<Output = ()>>(self, work: F) {
        let outcome = Caught::new(work).await;
        self.report(&outcome);
    }

    fn report<T>(&self, outcome: &Result<T, String>) {
        if let Err(message) = outcome {
            self.live.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(task = self.path, "task {} panicked: {message}", self.path);
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.live.lock().remove(&self.id);
    }
}
