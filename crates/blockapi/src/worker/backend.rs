//! What the rows are made real with. Every call is idempotent and short: it asks for something or
//! looks how far it is; nothing is remembered between calls.

use async_trait::async_trait;
use serde_json::Value;

/// How far something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<T> {
    Running,
    Done(T),
    /// It will not come to anything; why, for the user.
    Failed(String),
}

/// Where the content of a new volume comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Empty,
    Snapshot {
        volume: String,
        snapshot: String,
    },
    Volume {
        volume: String,
    },
    /// By what the backup was when it was made.
    Backup {
        handle: String,
    },
}

/// A volume that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeOrder {
    pub name: String,
    pub gib: i64,
    pub origin: Origin,
    /// Of the type's extra specs.
    pub specs: std::collections::BTreeMap<String, String>,
}

/// A backup that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupOrder {
    pub name: String,
    pub volume: String,
    pub snapshot: String,
    pub incremental: bool,
}

/// A snapshot that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub at: jiff::Timestamp,
    /// The size of the volume then, where it is known: it may have grown since it was asked for, and its
    /// row may not tell yet.
    pub gib: Option<i64>,
}

/// A backup that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// What is needed to restore it.
    pub handle: String,
    pub container: Option<String>,
    pub objects: i64,
}

/// A stored backup that is complete and stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// How large a volume is that it is restored to, once that is known. A store keeps one size of a
    /// volume, that of its newest backup, and every backup of it is restored to that.
    pub gib: Option<i64>,
}

/// What is said where a volume is smaller than what is to be restored to it.
pub(crate) fn too_small(gib: i64) -> String {
    format!("the source has {gib} GiB now; restore into a volume of {gib} GiB")
}

/// Why a call did nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BackendError {
    /// Trying again may help.
    #[error("the volume service does not answer: {0}")]
    Unreachable(String),
    /// Trying again will not help.
    #[error("{0}")]
    Refused(String),
}

/// Room for volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    pub total_gib: Option<i64>,
    pub free_gib: Option<i64>,
}

#[async_trait]
pub trait Backend: Send + Sync + std::fmt::Debug {
    /// Asks for a volume, or looks how far it is.
    async fn ensure_volume(&self, order: &VolumeOrder) -> Result<Progress<()>, BackendError>;

    /// Done when nothing of it is left.
    async fn remove_volume(&self, name: &str) -> Result<Progress<()>, BackendError>;

    /// Done when the volume has at least this size.
    async fn extend_volume(&self, name: &str, gib: i64) -> Result<Progress<()>, BackendError>;

    /// Done with what the snapshot is of.
    async fn ensure_snapshot(
        &self,
        volume: &str,
        name: &str,
    ) -> Result<Progress<Taken>, BackendError>;

    /// Asks for a volume that nobody uses to hold again what its snapshot holds. Asked again while
    /// nothing was written, it changes nothing.
    async fn ask_revert(&self, volume: &str, snapshot: &str) -> Result<(), BackendError>;

    /// How a revert goes that was asked for.
    async fn find_revert(&self, volume: &str, snapshot: &str)
    -> Result<Progress<()>, BackendError>;

    /// A revert that did not begin yet does not begin any more.
    async fn cancel_revert(&self, volume: &str) -> Result<(), BackendError>;

    async fn remove_snapshot(&self, volume: &str, name: &str)
    -> Result<Progress<()>, BackendError>;

    async fn start_backup(&self, order: &BackupOrder) -> Result<(), BackendError>;

    /// Nothing if there is no such backup.
    async fn find_backup(&self, name: &str) -> Result<Option<Progress<Saved>>, BackendError>;

    /// The stored backup of this handle. Nothing while it is being made or removed.
    async fn find_stored(&self, handle: &str) -> Result<Option<Stored>, BackendError>;

    /// Stops it if it runs, and removes it.
    async fn remove_backup(
        &self,
        name: &str,
        handle: Option<&str>,
    ) -> Result<Progress<()>, BackendError>;

    /// Makes a volume reachable for one attachment: what a client needs to use it.
    async fn connect(
        &self,
        volume: &str,
        attachment: &str,
        connector: &Value,
    ) -> Result<Progress<Value>, BackendError>;

    /// Takes a connection down. Done when nothing reaches the volume by it any more, except where others
    /// are connected: what they use stays up.
    async fn disconnect(
        &self,
        volume: &str,
        attachment: &str,
    ) -> Result<Progress<()>, BackendError>;

    /// Who is connected, by the names they were connected with.
    async fn connections(&self, volume: &str) -> Result<Vec<String>, BackendError>;

    async fn capacity(&self) -> Result<Capacity, BackendError>;
}
