//! What can stop a restore.

use std::io;
use std::path::PathBuf;

use crate::bolt;
use crate::datadir::{self, Damage, HashError, IdentityError};
use crate::store::delta::DeltaError;
use crate::store::{Snapshot, StoreError};

use super::plan::{self, Gap, Plan, PlanError};

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("the store cannot be read")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(
        "another history began while {name} was written: it was taken back, and what it was made \
         of is still there"
    )]
    Overtaken { name: String },
    #[error("the members cannot be described")]
    Identity(#[from] IdentityError),
    #[error("snapshot {name} cannot be fetched")]
    Fetch { name: String, source: io::Error },
    #[error("snapshot {name} cannot be used: {what}")]
    Base { name: String, what: &'static str },
    #[error(
        "the newest full snapshot is no backup, or cannot be read; what is without it can be \
         restored with --to-revision {before}"
    )]
    BadBase { before: i64, source: Box<RestoreError> },
    #[error("delta {name} cannot be used{}", remedy(*before))]
    Delta { name: String, before: Option<i64>, source: DeltaError },
    #[error(
        "mismatched event revision: revision {revision} in delta {name} is of another history than \
         what it follows: {what}. Two etcds have been backed up under one prefix. What is before \
         that delta is of one piece: restore with --to-revision {before}; or move the snapshots of \
         one of them to another prefix, and try again"
    )]
    Mixed { name: String, revision: i64, what: String, before: i64 },
    #[error(transparent)]
    Gap(#[from] Gap),
    #[error("revision {asked} is not in the backups any more: history up to {oldest} was dropped")]
    Compacted { asked: i64, oldest: i64 },
    #[error("the backups end at revision {found}, not at {expected} as their names say")]
    Short { found: i64, expected: i64 },
    #[error("data directory {} is not empty", .0.display())]
    NotEmpty(PathBuf),
    #[error("data directory {} is in use by an etcd", .0.display())]
    InUse(PathBuf),
    #[error(
        "data directory {} is whole, at revision {revision}, and of another etcd than the backups, \
         which end at revision {newest}: {what}. Nothing was changed. To go on with the directory, \
         give its guard a prefix of its own (--store-prefix); to have the backups instead, move the \
         directory away", dir.display()
    )]
    Another { dir: PathBuf, revision: i64, newest: i64, what: String },
    #[error("{} was not made by a restore, which would work there; move it away", .0.display())]
    Foreign(PathBuf),
    #[error("another restore is at work in {}; try again when it has ended", .0.display())]
    Busy(PathBuf),
    #[error("cannot {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    State { path: PathBuf, source: durable::Error },
    #[error("the new database cannot be written")]
    Database(#[from] bolt::WriteError),
    #[error("the new data directory cannot be written")]
    Directory(#[from] datadir::WriteError),
    #[error("the restored data is damaged")]
    Damaged(#[from] Damage),
    #[error("the restored rows cannot be read")]
    Rows(#[from] HashError),
    #[error("the restore was stopped")]
    Stopped,
}

/// What can be had without a delta that cannot be.
fn remedy(before: Option<i64>) -> String {
    before.map_or_else(String::new, |before| {
        format!("; what is before it can be restored with --to-revision {before}")
    })
}

impl RestoreError {
    /// Says what can be had without the base of `plan`, where it is that which is in the way.
    pub(super) fn without_base(self, snapshots: &[Snapshot], plan: &Plan) -> Self {
        let Some(base) = &plan.base else { return self };
        let is_base = match &self {
            Self::Fetch { name, .. } | Self::Base { name, .. } => *name == base.snap_name,
            _ => false,
        };
        match plan::last_without(snapshots, base).filter(|_| is_base) {
            Some(before) => Self::BadBase { before, source: Box::new(self) },
            None => self,
        }
    }

    /// Whether it is for what all the backups hold together: tried again, it ends the same. One object
    /// that cannot be read may be put right, and what was prepared is of use then.
    pub(super) const fn is_for_good(&self) -> bool {
        matches!(
            self,
            Self::Mixed { .. }
                | Self::Base { .. }
                | Self::Gap(_)
                | Self::Compacted { .. }
                | Self::Short { .. }
        )
    }

    /// Whether the disk, or what may be used of it, is full.
    pub(super) fn is_for_want_of_room(&self) -> bool {
        let mut error: &(dyn std::error::Error + 'static) = self;
        loop {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if let Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) = kind {
                return true;
            }
            let Some(source) = error.source() else { return false };
            error = source;
        }
    }

    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    pub(super) fn bolt(error: bolt::BoltError) -> Self {
        Self::Damaged(Damage::Database(error))
    }
}
