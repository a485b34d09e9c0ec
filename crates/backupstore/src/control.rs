//! How a running operation is watched and ended, and where its blocking work runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
pub use tokio_util::sync::CancellationToken;

use crate::error::{Error, Locked};

/// The part of the way after which only the records are left to be written.
const DATA_PERCENT: u64 = 95;

/// What keeps an operation waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// Another has a lock.
    Lock(Locked),
    /// What somebody has sent to the store may still be done.
    Calls { what: Awaited, left: Duration },
}

/// Whose calls are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// Those of a deletion that has lost its lock.
    Deletion,
    /// Those of others that wrote records, on a store that cannot keep them from taking the place of ours.
    Writers,
    /// Our own, which were not answered.
    Own,
}

impl fmt::Display for Wait {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(Locked { holder, until, .. }) => write!(
                out,
                "waiting for the lock {holder} of the backup store, which is held until {until} unless \
                 it is renewed"
            ),
            Self::Calls { what, left } => {
                let what = match what {
                    Awaited::Deletion => "what a deletion has sent that lost its lock",
                    Awaited::Writers => "what others have sent to a store that keeps no conditions",
                    Awaited::Own => "what the store has not answered",
                };
                write!(out, "waiting for {} s until {what} is done, or never", left.as_secs())
            }
        }
    }
}

/// Watches one operation and can end it. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Control {
    cancel: CancellationToken,
    percent: Arc<AtomicU32>,
    waits_for: Arc<watch::Sender<Option<Wait>>>,
}

impl Control {
    /// Ends with that token as well.
    pub fn under(cancel: &CancellationToken) -> Self {
        Self { cancel: cancel.child_token(), ..Self::default() }
    }

    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// 0 to 100; it never goes back, and is 100 only when all is done.
    pub fn percent(&self) -> u32 {
        self.percent.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Ends when the operation was told to.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// What it waits for, as that changes; nothing while it does not wait.
    pub fn waits_for(&self) -> watch::Receiver<Option<Wait>> {
        self.waits_for.subscribe()
    }

    /// Tells those who watch, if that is news.
    pub(crate) fn wait_for(&self, wait: Option<Wait>) {
        if let Some(calls @ Wait::Calls { .. }) = &wait {
            tracing::info!("{calls}");
        }
        let of = |wait: &Option<Wait>| {
            wait.as_ref().map(|it| match it {
                Wait::Lock(locked) => Ok(locked.holder.clone()),
                Wait::Calls { what, .. } => Err(*what),
            })
        };
        self.waits_for.send_if_modified(|now| {
            let is_news = of(now) != of(&wait);
            *now = wait;
            is_news
        });
    }

    /// The same operation with an end of its own below this one.
    pub(crate) fn below(&self) -> Self {
        Self { cancel: self.cancel.child_token(), ..self.clone() }
    }

    /// `done` of `all` parts of the data.
    pub(crate) fn report(&self, done: u64, all: u64) {
        let percent = done.saturating_mul(DATA_PERCENT).checked_div(all).unwrap_or(0);
        let percent = u32::try_from(percent.min(DATA_PERCENT)).unwrap_or(0);
        self.percent.fetch_max(percent, Ordering::Relaxed);
    }

    pub(crate) fn finished(&self) {
        self.percent.store(100, Ordering::Relaxed);
    }
}

/// Threads for hashing, packing and files: so many at a time, so that the async workers stay free.
#[derive(Debug, Clone)]
pub(crate) struct Workers {
    turns: Arc<Semaphore>,
    count: usize,
}

impl Default for Workers {
    fn default() -> Self {
        Self::new()
    }
}

impl Workers {
    /// One for each core.
    pub(crate) fn new() -> Self {
        Self::with(cores())
    }

    /// So many, for work that waits more than it computes.
    pub(crate) fn with(count: usize) -> Self {
        Self { turns: Arc::new(Semaphore::new(count)), count }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        // The semaphore is never closed.
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| Error::Cancelled)?;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.map_err(Error::Thread)
    }
}

/// Memory for blocks on their way, raw and packed, whatever the size of the volume.
const IN_FLIGHT_BYTES: u64 = 80 << 20;

/// Blocks that are hashed together.
pub(crate) const TOGETHER: usize = 8;
/// Calls to a store at a time, whatever is asked for.
pub(crate) const CALLS_MAX: usize = 1024;

/// How many blocks of this size are on their way where `limit` of them may be asked for at a time:
/// enough for each core to have a group of them to hash.
pub(crate) fn in_flight(limit: usize, block_bytes: u64) -> usize {
    window(limit.clamp(1, CALLS_MAX).saturating_add(cores() * TOGETHER), block_bytes)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many blocks of this size may be on their way.
pub(crate) fn window(wanted: usize, block_bytes: u64) -> usize {
    let fits = IN_FLIGHT_BYTES / block_bytes.saturating_mul(2).max(1);
    wanted.min(usize::try_from(fits).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_never_goes_back_and_ends_at_a_hundred() {
        let control = Control::default();
        control.report(1, 2);
        control.report(1, 4);
        assert_eq!(control.percent(), 47);
        control.report(9, 4);
        assert_eq!(control.percent(), 95);
        control.report(0, 0);
        control.finished();
        assert_eq!(control.percent(), 100);
    }

    #[test]
    fn blocks_on_their_way_fit_in_memory() {
        assert_eq!(window(8, 2 << 20), 8);
        assert_eq!(window(100, 2 << 20), 20);
        assert_eq!(window(100, 16 << 20), 2);
        assert_eq!(window(100, 64 << 20), 1);
    }
}
