//! A data directory made from a full snapshot and deltas, to any revision or time, without an etcd.
//!
//! Owns: which snapshots to take ([`plan()`]), folding them into one database ([`restore()`]), and
//! dropping the history of one ([`compact()`]). Never: when any of this is called for.
//!
//! Everything happens in `<data dir>.part` and is verified there. Only then does the old directory
//! get another name (`<data dir>.old`) and the new one its place. A restore that was cut off goes on
//! where it was: the database says how far it got.

mod aside;
mod base;
mod compact;
mod cut;
mod dry_run;
mod error;
mod fold;
mod lineage;
mod part;
mod plan;
mod progress;
mod run;
mod spool;
mod succession;

use std::path::PathBuf;

use jiff::Timestamp;

use crate::datadir::{self, Identity};
use crate::store::Snapshot;

pub(crate) use aside::{remove, remove_aside, set_aside, sync_parent};
pub use compact::{Compacted, Compaction, compact};
pub use dry_run::{DryRun, dry_run};
pub use error::RestoreError;
pub use lineage::mixture;
pub use part::forget;
pub(crate) use part::{INSIDE_DAMAGED, INSIDE_OLD, is_mount_point, resolved};
pub use plan::{Gap, Plan, PlanError, plan};
pub use progress::{Progress, Seen, Stage};
pub use run::restore;

/// Up to where to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Newest,
    /// Exactly this revision.
    Revision(i64),
    /// The last revision that was seen at this time or before.
    Time(Timestamp),
}

/// What to do when there is a data directory already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave it, and fail. An empty one is none.
    Refuse,
    /// Rename it to `<data dir>.old` when the new one is ready; one that was set aside before goes.
    SetAside,
    /// The same where the new one goes on from it, as the same etcd would; else leave it, and fail.
    SetAsideIfPast,
}

/// How to restore.
#[derive(Debug, Clone)]
pub struct Restoration {
    pub data_dir: PathBuf,
    pub identity: Identity,
    /// Deltas wait here for their turn.
    pub temp_dir: PathBuf,
    /// How many deltas are fetched and read at the same time.
    pub max_fetchers: usize,
    /// Accept a full snapshot without a checksum, or with a wrong one.
    pub skip_hash_check: bool,
    pub existing: Existing,
}

/// What was restored.
#[derive(Debug, Clone)]
pub struct Restored {
    pub revision: i64,
    pub base: Option<Snapshot>,
    pub deltas: usize,
    /// Events of the deltas that were folded in, by this call.
    pub events: u64,
    /// Size of the database.
    pub bytes: u64,
    /// The directory that was there before.
    pub old: Option<PathBuf>,
    /// Where it is not the newest state of the store: what the directory says of itself.
    pub origin: Option<datadir::Origin>,
}

#[cfg(test)]
mod tests;
