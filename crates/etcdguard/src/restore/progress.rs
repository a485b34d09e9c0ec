//! How far a restore is, for those who watch it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

/// What a restore is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Planning,
    FetchingBase,
    ApplyingDeltas,
    Verifying,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub stage: Stage,
    /// Bytes of the base written so far.
    pub base_bytes: u64,
    pub events: u64,
    pub revision: i64,
}

/// Written by one restore, read by anybody. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    stage: AtomicU8,
    base_bytes: AtomicU64,
    events: AtomicU64,
    revision: AtomicI64,
}

impl Progress {
    pub fn seen(&self) -> Seen {
        let stage = match self.0.stage.load(Ordering::Relaxed) {
            0 => Stage::Planning,
            1 => Stage::FetchingBase,
            2 => Stage::ApplyingDeltas,
            3 => Stage::Verifying,
            _ => Stage::Done,
        };
        Seen {
            stage,
            base_bytes: self.0.base_bytes.load(Ordering::Relaxed),
            events: self.0.events.load(Ordering::Relaxed),
            revision: self.0.revision.load(Ordering::Relaxed),
        }
    }

    pub(super) fn enter(&self, stage: Stage) {
        let number = match stage {
            Stage::Planning => 0,
            Stage::FetchingBase => 1,
            Stage::ApplyingDeltas => 2,
            Stage::Verifying => 3,
            Stage::Done => 4,
        };
        self.0.stage.store(number, Ordering::Relaxed);
    }

    pub(super) fn add_base(&self, bytes: u64) {
        self.0.base_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn folded(&self, events: u64, revision: i64) {
        self.0.events.store(events, Ordering::Relaxed);
        self.0.revision.store(revision, Ordering::Relaxed);
    }
}
