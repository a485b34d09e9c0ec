//! What can go wrong with a backup store. Tools look for some of these texts; they are part of the
//! dialect and stand in the tests.

use std::io;
use std::time::Duration;

use blobs::{KeyError, Retry};
use jiff::Timestamp;

use crate::block::{BlockRef, Damage};
use crate::lock::LockKind;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "invalid name {name:?}: use 2 or more letters, digits, '_', '.' and '-', the first a letter or digit"
    )]
    Name { name: String },
    #[error("a name does not fit the store")]
    Key {
        #[source]
        source: KeyError,
    },
    #[error("cannot find {path} in backupstore")]
    NotFound { path: String },
    #[error("cannot find volume in backupstore: cannot find {path} in backupstore")]
    VolumeNotFound { path: String },
    #[error("Source volume doesn't exist in backupstore: cannot find {path} in backupstore")]
    SourceVolumeNotFound { path: String },
    #[error("backup {backup} is still in progress")]
    InProgress { backup: String },
    #[error("{path} cannot be read: {why}")]
    Unreadable { path: String, why: String },
    #[error("{what} already exists")]
    Exists { what: String },
    #[error(
        "backup {backup} already exists, of another snapshot that was named {snapshot}: delete that backup, or give this one another name"
    )]
    ExistsOfAnother { backup: String, snapshot: String },
    #[error(transparent)]
    Locked(Box<Locked>),
    #[error("lost the lock {path}: it was removed, or could not be renewed in time")]
    LockLost { path: String },
    #[error("backup block size is changed from {from} to {to}")]
    BlockSizeChanged { from: u64, to: u64 },
    #[error("volume size {size_bytes} is not a positive multiple of the block size {block_bytes}")]
    VolumeSize { size_bytes: u64, block_bytes: u64 },
    #[error(
        "the backup {backup} names a block at {offset}, past the end of the volume at {size_bytes}"
    )]
    PastEnd { backup: String, offset: u64, size_bytes: u64 },
    #[error(
        "the backup {backup} is one file of a kind that is no longer written, and cannot be restored"
    )]
    SingleFile { backup: String },
    #[error("cannot use the block size {bytes}: it must be a multiple of 4096, and at most 64 MiB")]
    BlockSize { bytes: u64 },
    #[error("{0}")]
    Compression(String),
    #[error("{path} was changed by another again and again")]
    Contended { path: String },
    #[error(
        "the backup was taken for abandoned and removed while it was made: {path} is gone or another's"
    )]
    Fenced { path: String },
    #[error(
        "{path} was removed while the backup was made, by a deletion that had lost its lock: try again"
    )]
    BlockVanished { path: String },
    #[error("the store cannot be used")]
    Store(#[from] blobs::Error),
    #[error("the snapshot cannot be read")]
    Source(#[source] io::Error),
    #[error("the changed parts of the snapshot are not in order at {offset}")]
    SourceOrder { offset: u64 },
    #[error("the restored data cannot be written")]
    Sink(#[source] io::Error),
    #[error("blocks cannot be fetched: {why}")]
    Fetch { why: String },
    #[error(transparent)]
    Damaged(Box<DamagedBlocks>),
    #[error("the operation was cancelled")]
    Cancelled,
    #[error("driver {scheme} is not supported")]
    Scheme { scheme: String },
    #[error("{url:?} cannot be used as a backup target: {why}")]
    Url { url: String, why: String },
    #[error("the backup target cannot be opened")]
    Open(#[source] blobs::OpenError),
    #[error("credential validation error(s): {why}")]
    Credentials { why: String },
    #[error("the credentials in {path} cannot be read")]
    CredentialFile {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot mount {what}: {why}")]
    Mount { what: String, why: String },
    #[error(
        "{path} is not the archive that its record describes: SHA-256 {found}, recorded {expected}"
    )]
    Archive { path: String, found: String, expected: String },
    #[error("the backing image {image} is another: SHA-512 {found}, expected {expected}")]
    ImageChecksum { image: String, found: String, expected: String },
    #[error("a thread ended before its work was done")]
    Thread(#[source] tokio::task::JoinError),
    #[error("a record cannot be written")]
    Record(#[source] serde_json::Error),
}

impl Error {
    /// Whether there was no space for what was to be written.
    pub(crate) fn is_of_a_full_disk(&self) -> bool {
        let Self::Store(blobs::Error::Disk(error)) = self else { return false };
        matches!(error.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// Whether the same call may go better later.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Store(error) => error.retry(),
            Self::Locked(_)
            | Self::LockLost { .. }
            | Self::Contended { .. }
            | Self::BlockVanished { .. }
            | Self::Fenced { .. } => Retry::Later,
            _ => Retry::Never,
        }
    }

    /// Whether what was asked for is not in the store.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self,
            Self::NotFound { .. } | Self::VolumeNotFound { .. } | Self::SourceVolumeNotFound { .. }
        )
    }

    pub(crate) fn found(path: &impl ToString, error: blobs::Error) -> Self {
        if error.is_not_found() {
            Self::NotFound { path: path.to_string() }
        } else {
            Self::Store(error)
        }
    }
}

/// Somebody else has the lock. Begins as older tools expect a lock conflict to begin, and goes on as
/// newer ones do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed lock {path} type {} acquisition: failed to acquire lock {path} when performing backup {}, please try again later (held by {holder} type {}, renewed {renewed}, until {until}; waited {} s)",
    kind.number(), kind.operation(), holder_kind.number(), waited.as_secs()
)]
pub struct Locked {
    /// Of our own lock object.
    pub path: String,
    pub kind: LockKind,
    /// The name of the other lock.
    pub holder: String,
    pub holder_kind: LockKind,
    /// When it was last renewed, by the clock of the store.
    pub renewed: Timestamp,
    /// When it ends unless it is renewed again.
    pub until: Timestamp,
    /// How long we have waited for it.
    pub waited: Duration,
}

/// A block that could not be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedBlock {
    /// Its key in the store.
    pub path: String,
    pub block: BlockRef,
    pub damage: BlockDamage,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockDamage {
    /// Tools look for these words.
    #[error("no such file or directory")]
    Missing,
    #[error(transparent)]
    Wrong(#[from] Damage),
    #[error("its object has {len_bytes} bytes, which no block has")]
    Length { len_bytes: u64 },
    /// The store did not give it, however often it was asked.
    #[error("the store did not give it: {why}")]
    Unread { why: String },
}

/// How many damaged places are kept in a report; all are counted.
pub(crate) const DAMAGE_KEPT: usize = 1000;

/// All blocks that could not be restored; the others were.
#[derive(Debug, Clone, PartialEq, Eq, Default, thiserror::Error)]
#[error("{}", self.summary())]
pub struct DamagedBlocks {
    /// The first places, by offset as they were met.
    pub blocks: Vec<DamagedBlock>,
    /// Of all places.
    pub count: u64,
}

impl DamagedBlocks {
    pub(crate) fn add(&mut self, block: DamagedBlock) {
        self.count += 1;
        if self.blocks.len() < DAMAGE_KEPT {
            self.blocks.push(block);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn summary(&self) -> String {
        const SHOWN: usize = 3;
        let shown: Vec<String> = self
            .blocks
            .iter()
            .take(SHOWN)
            .map(|it| format!("{} at offset {}: {}", it.path, it.block.offset, it.damage))
            .collect();
        let more = self.count.saturating_sub(u64::try_from(shown.len()).unwrap_or(u64::MAX));
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        format!("{} blocks could not be restored: {}{more}", self.count, shown.join("; "))
    }
}
