//! How the writer is: what a health check wants to know.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A commit that takes longer than this is not slow, it hangs.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// The state of the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Well,
    /// Only deletions are written until there is space.
    Full,
    /// The last commit failed, and the file could not be opened again.
    Failing,
    /// The disk has not answered for this long.
    Hanging(Duration),
    /// Nothing will be written any more.
    Ended,
}

#[derive(Debug)]
pub(super) struct Health {
    born: Instant,
    /// Milliseconds since `born`, and one more; 0 while nothing is being written.
    busy_since: AtomicU64,
    is_full: AtomicBool,
    is_failing: AtomicBool,
    has_ended: AtomicBool,
}

impl Health {
    pub(super) fn new() -> Self {
        Self {
            born: Instant::now(),
            busy_since: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    pub(super) fn begins(&self) {
        let now = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.busy_since.store(now.saturating_add(1), Ordering::Relaxed);
    }

    pub(super) fn rests(&self, is_failing: bool, is_full: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
        self.is_full.store(is_full, Ordering::Relaxed);
        self.busy_since.store(0, Ordering::Relaxed);
    }

    pub(super) fn ended(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn condition(&self) -> Condition {
        let busy_for = match self.busy_since.load(Ordering::Relaxed).checked_sub(1) {
            None => Duration::ZERO,
            Some(since) => self.born.elapsed().saturating_sub(Duration::from_millis(since)),
        };
        if self.has_ended.load(Ordering::Relaxed) {
            Condition::Ended
        } else if busy_for > HANGS_AFTER {
            Condition::Hanging(busy_for)
        } else if self.is_failing.load(Ordering::Relaxed) {
            Condition::Failing
        } else if self.is_full.load(Ordering::Relaxed) {
            Condition::Full
        } else {
            Condition::Well
        }
    }
}
