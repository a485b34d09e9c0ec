//! Why the store refused: one type an operation.

use std::path::PathBuf;
use std::sync::Arc;

use super::object::Stored;
use super::quota::Exceeded;

/// Why a store was not opened. Nothing on disk was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the object store {} is in use by another process", path.display())]
    InUse { path: PathBuf },
    #[error(
        "the object store {} is damaged: {detail}; restore a copy of it, or move the whole data \
         directory away to start empty",
        path.display()
    )]
    Damaged { path: PathBuf, detail: String },
    #[error(
        "{} is a database, but not an object store of Holdfast; name another file, or move it \
         away to start empty",
        path.display()
    )]
    Foreign { path: PathBuf },
    #[error(
        "the object store {} has format {found}; this build reads up to {newest}; start the \
         newer build, or restore a copy made by this one",
        path.display()
    )]
    TooNew { path: PathBuf, found: i64, newest: i64 },
    #[error("cannot open the object store {}", path.display())]
    Sql { path: PathBuf, source: rusqlite::Error },
    #[error("cannot start the writer of the object store {}", path.display())]
    Thread { path: PathBuf, source: std::io::Error },
}

/// Why a write was not acknowledged.
///
/// After `Stopped` and `Storage` the write may nevertheless have happened; after every other
/// error it has not.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    #[error("the object exists already")]
    Exists,
    #[error("the object is not at the revision the write expected")]
    Conflict { current: Option<Arc<Stored>> },
    #[error("another object that the write relies on has changed")]
    RequirementChanged,
    #[error("no space is left for the object store")]
    Full,
    #[error("more would be stored than may be: {0}")]
    Quota(Exceeded),
    #[error("the object store is closed")]
    Stopped,
    #[error("the object takes {size_bytes} bytes; the limit is {limit_bytes}")]
    TooLarge { size_bytes: usize, limit_bytes: usize },
    #[error("the object cannot be stored: {0}")]
    Invalid(&'static str),
    #[error("cannot write to the object store")]
    Storage(#[source] Arc<StorageError>),
}

/// What the file underneath answered.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("the database refused")]
    Sql(#[from] rusqlite::Error),
    #[error("cannot reach {}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{} was changed by someone else: revision {found}, not {expected}", path.display())]
    Replaced { path: PathBuf, found: u64, expected: u64 },
    #[error("a number is too large for the database")]
    Range(#[from] std::num::TryFromIntError),
}

/// The asked-for revision is older than the history the store keeps: list again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested} ({oldest})")]
pub struct TooOld {
    pub requested: u64,
    /// The oldest revision that would be answered.
    pub oldest: u64,
}
