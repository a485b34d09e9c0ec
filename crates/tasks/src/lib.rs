//! The task tree: nothing runs outside it.
//!
//! Owns: starting work under a name, stopping it, waiting for its end, telling what runs, and
//! making sure that no panic passes in silence. Never: what the work does, retries, schedules.
//!
//! [`Tasks`] is one scope of the tree. Stopping a scope stops the scopes below it, and waits for
//! them. Three ways to start work, by what stopping means to it: [`Tasks::spawn`] is dropped at an
//! await point, [`Tasks::spawn_draining`] is told and ends by itself, [`Tasks::spawn_blocking`]
//! has a thread and must look at its token.

#![forbid(unsafe_code)]

mod live;
mod panics;
mod write_timeout;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use live::Live;
pub use tokio_util::sync::CancellationToken;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
pub use write_timeout::WriteTimeout;

/// One scope of the tree. Clones are the same scope; dropping one stops nothing.
#[derive(Clone)]
pub struct Tasks {
    /// This scope and those above it, the root first.
    scopes: Arc<[Scope]>,
    stop: CancellationToken,
    live: Arc<Live>,
}

#[derive(Clone)]
struct Scope {
    id: u64,
    name: Arc<str>,
    tracker: TaskTracker,
}

/// Tells work that it is to end. A receiver only: work cannot stop its siblings with it.
#[derive(Debug, Clone)]
pub struct Stop(CancellationToken);

impl Stop {
    pub fn is_stopping(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Ends when the work is to end.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: nothing is lost by dropping it.
    pub async fn stopping(&self) {
        self.0.cancelled().await;
    }

    /// [`Stop::stopping`] as a value that borrows nothing, for APIs that want a shutdown future.
    pub fn stopping_owned(&self) -> WaitForCancellationFutureOwned {
        self.0.clone().cancelled_owned()
    }

    /// The output of `work`, or nothing if the end came first; `work` is then dropped.
    pub async fn or_stop<F: Future>(&self, work: F) -> Option<F::Output> {
        self.0.run_until_cancelled(work).await
    }
}

/// One task that runs now, for a status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// The names of its scopes and its own, as in `volumes/engine/flush`.
    pub name: String,
    pub started: SystemTime,
}

/// Some tasks did not end in time. They still run: only the end of the process stops them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} of the background tasks did not end within {} ms: {}",
    still_running.len(), timeout.as_millis(), still_running.join(", ")
)]
pub struct DrainTimeout {
    pub timeout: Duration,
    pub still_running: Vec<String>,
}

/// Work on a blocking thread gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockingError {
    #[error("{name} broke down: {message}")]
    Panicked { name: String, message: String },
    #[error("{name} was not started: the program is ending")]
    Ending { name: String },
}

impl Tasks {
    /// A new tree. Its root scope is not part of the names of its tasks.
    pub fn new() -> Self {
        let live = Arc::new(Live::default());
        let root = Scope { id: live.next_id(), name: "".into(), tracker: TaskTracker::new() };
        Self { scopes: [root].into(), stop: CancellationToken::new(), live }
    }

    /// A scope below this one, which can be stopped alone and stops with this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let below =
            Scope { id: self.live.next_id(), name: name.into(), tracker: TaskTracker::new() };
        Self {
            scopes: self.scopes.iter().cloned().chain([below]).collect(),
            stop: self.stop.child_token(),
            live: Arc::clone(&self.live),
        }
    }

    /// Runs `work` until it ends or the scope stops: then it is dropped at an await point, so it
    /// must hold nothing that is only whole after its next await.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, as do the other ways to start work.
    pub fn spawn<F>(&self, name: &str, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        self.start(name, async move {
            if stop.run_until_cancelled_owned(work).await.is_none() {
                tracing::debug!("stopped");
            }
        });
    }

    /// Runs work that is told of the stop and ends by itself, after it has finished what it began.
    pub fn spawn_draining<W, F>(&self, name: &str, work: W)
    where
        W: FnOnce(Stop) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        self.start(name, work(self.stop_signal()));
    }

    /// Runs work that blocks on a thread of its own. It cannot be dropped: if it is long, it looks
    /// at its [`Stop`] between steps. Nothing is started in a scope that has stopped.
    pub fn spawn_blocking<W>(&self, name: &str, work: W)
    where
        W: FnOnce(&Stop) + Send + 'static,
    {
        let stop = self.stop_signal();
        if stop.is_stopping() {
            tracing::debug!(task = self.path(name), "not started: stopping");
            return;
        }
        let entered = self.enter(name);
        let span = tracing::info_span!("task", name = entered.path());
        tokio::task::spawn_blocking(move || {
            let _span = span.entered();
            // The message is logged where it is caught, and there is nobody to give it to.
            let _ = entered.run(|| work(&stop));
        });
    }

    /// Runs a short piece of blocking work, such as a transaction, and waits for what it gives.
    /// Also while the scope stops: work that drains may need it.
    ///
    /// # Cancel safety
    ///
    /// The work runs to its end even if the waiting is dropped.
    pub async fn blocking<T, W>(&self, name: &str, work: W) -> Result<T, BlockingError>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        let entered = self.enter(name);
        let path = entered.path().to_owned();
        let span = tracing::Span::current();
        let joined = tokio::task::spawn_blocking(move || span.in_scope(|| entered.run(work))).await;
        match joined {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(message)) => Err(BlockingError::Panicked { name: path, message }),
            Err(_) => Err(BlockingError::Ending { name: path }),
        }
    }

    /// Tells of the stop of this scope.
    pub fn stop_signal(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// The token of this scope, for libraries that want one. Cancelling it stops the scope.
    pub fn token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Begins the stop and does not wait: for the one who hears the signal.
    pub fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Stops this scope and those below it, and waits for their tasks to end, but not longer than
    /// `timeout`. May be called again, to wait more.
    ///
    /// # Cancel safety
    ///
    /// The stop has begun even if the waiting is dropped.
    pub async fn stop(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        self.stop.cancel();
        let Some(scope) = self.scopes.last() else { return Ok(()) };
        scope.tracker.close();
        if tokio::time::timeout(timeout, scope.tracker.wait()).await.is_ok() {
            return Ok(());
        }
        let still_running = self.list().into_iter().map(|task| task.name).collect();
        Err(DrainTimeout { timeout, still_running })
    }

    /// What runs in this scope and below, the oldest first.
    pub fn list(&self) -> Vec<TaskStatus> {
        self.scopes.last().map_or_else(Vec::new, |scope| self.live.below(scope.id))
    }

    /// How many tasks of the whole tree have panicked since it was made.
    pub fn panics(&self) -> u64 {
        self.live.panics()
    }

    fn start<F>(&self, name: &str, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let entered = self.enter(name);
        let span = tracing::info_span!("task", name = entered.path());
        let run = async move { entered.run_future(work).await };
        #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
        tokio::spawn(run.instrument(span));
    }

    /// From here to the drop of the result the task counts as running, in every scope above it.
    fn enter(&self, name: &str) -> live::Entered {
        let ids = self.scopes.iter().map(|scope| scope.id).collect();
        let counted = self.scopes.iter().map(|scope| scope.tracker.token()).collect();
        Live::enter(&self.live, self.path(name), ids, counted)
    }

    fn path(&self, name: &str) -> String {
        let above = self.scopes.iter().map(|scope| scope.name.as_ref());
        above.filter(|part| !part.is_empty()).chain([name]).collect::<Vec<_>>().join("/")
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tasks")
            .field("scope", &self.path(""))
            .field("stopping", &self.stop.is_cancelled())
            .field("running", &self.list().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
