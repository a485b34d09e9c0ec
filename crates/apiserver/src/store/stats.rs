//! Figures of a running store, for whoever exports metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters since the store was opened, and gauges of what it holds.
#[derive(Debug, Default)]
pub struct Stats {
    writes: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    batches: AtomicU64,
    largest_batch: AtomicU64,
    commit_nanos: AtomicU64,
    slowest_commit_nanos: AtomicU64,
    objects: AtomicU64,
    log_bytes: AtomicU64,
    log_events: AtomicU64,
}

/// The figures at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Writes made durable; each is one event.
    pub writes: u64,
    /// Writes refused because something had changed.
    pub rejected: u64,
    /// Writes lost to a failing disk.
    pub failed: u64,
    /// Commits; `writes / batches` is the mean batch.
    pub batches: u64,
    pub largest_batch: u64,
    /// Time spent in commits, in total.
    pub commit_time: Duration,
    pub slowest_commit: Duration,
    pub objects: u64,
    /// What the history costs.
    pub log_bytes: u64,
    pub log_events: u64,
}

impl Stats {
    pub fn figures(&self) -> Figures {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Figures {
            writes: read(&self.writes),
            rejected: read(&self.rejected),
            failed: read(&self.failed),
            batches: read(&self.batches),
            largest_batch: read(&self.largest_batch),
            commit_time: Duration::from_nanos(read(&self.commit_nanos)),
            slowest_commit: Duration::from_nanos(read(&self.slowest_commit_nanos)),
            objects: read(&self.objects),
            log_bytes: read(&self.log_bytes),
            log_events: read(&self.log_events),
        }
    }

    pub(super) fn committed(&self, writes: usize, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.writes.fetch_add(count(writes), Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.largest_batch.fetch_max(count(writes), Ordering::Relaxed);
        self.commit_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.slowest_commit_nanos.fetch_max(nanos, Ordering::Relaxed);
    }

    pub(super) fn rejected(&self, writes: usize) {
        self.rejected.fetch_add(count(writes), Ordering::Relaxed);
    }

    pub(super) fn failed(&self, writes: usize) {
        self.failed.fetch_add(count(writes), Ordering::Relaxed);
    }

    pub(super) fn holds(&self, objects: usize, log_events: usize, log_bytes: usize) {
        self.objects.store(count(objects), Ordering::Relaxed);
        self.log_events.store(count(log_events), Ordering::Relaxed);
        self.log_bytes.store(count(log_bytes), Ordering::Relaxed);
    }
}

fn count(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
