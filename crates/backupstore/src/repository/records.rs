//! What records say, whichever bytes say it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::block::{BlockRef, Compression, Packing};
use crate::name::Name;
use crate::source::BackedUp;

type Labels = Option<BTreeMap<String, String>>;

/// A volume of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeRecord {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) labels: Labels,
    pub(crate) created: String,
    /// Empty where there is none.
    pub(crate) last_backup: String,
    pub(crate) last_backup_at: String,
    pub(crate) block_count: u64,
    pub(crate) backing_image: String,
    pub(crate) backing_image_checksum: String,
    /// Of all its backups.
    pub(crate) compression: Compression,
    pub(crate) storage_class: String,
    pub(crate) data_engine: String,
}

/// A backup of a volume. Times are as they are written down.
#[expect(clippy::struct_excessive_bools, reason = "each is a thing of its own that a record says")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackupRecord {
    pub(crate) name: String,
    pub(crate) volume: String,
    pub(crate) snapshot: String,
    /// When the snapshot was taken, as its chain has it; empty where the writer did not say.
    pub(crate) taken: String,
    pub(crate) started: String,
    /// Empty: in progress.
    pub(crate) completed: String,
    /// Of all blocks.
    pub(crate) size_bytes: u64,
    pub(crate) labels: Labels,
    pub(crate) parameters: Labels,
    pub(crate) is_incremental: bool,
    pub(crate) packing: Packing,
    /// Of objects that were not in the store, and of those that were written anew.
    pub(crate) new_bytes: u64,
    pub(crate) again_bytes: u64,
    /// Ascending by offset.
    pub(crate) blocks: Vec<BlockRef>,
    /// Whether its writer can be kept from finishing it: it replaces only the very record it began.
    pub(crate) is_fenceable: bool,
    /// Whether another began it, which may finish it still, also when it is complete.
    pub(crate) is_successor: bool,
    /// Of a kind without blocks that is no longer written.
    pub(crate) is_single_file: bool,
}

impl BackupRecord {
    pub(crate) fn is_in_progress(&self) -> bool {
        self.completed.is_empty()
    }

    /// The snapshot that it is of.
    pub(crate) fn backed_up(&self) -> BackedUp {
        BackedUp {
            snapshot: self.snapshot.clone(),
            taken: self.taken.clone(),
            started: self.started.clone(),
        }
    }

    /// One without blocks.
    #[cfg(test)]
    pub(crate) fn complete(name: &str, packing: Packing) -> Self {
        Self {
            name: name.to_owned(),
            volume: "volume".to_owned(),
            snapshot: "snapshot".to_owned(),
            taken: String::new(),
            started: "2026-11-15T06:37:10Z".to_owned(),
            completed: "2026-11-15T06:37:12Z".to_owned(),
            size_bytes: 0,
            labels: None,
            parameters: None,
            is_incremental: false,
            packing,
            new_bytes: 0,
            again_bytes: 0,
            blocks: Vec::new(),
            is_fenceable: false,
            is_successor: false,
            is_single_file: false,
        }
    }

    /// All but its blocks, of which there may be millions.
    pub(crate) fn outline(&self) -> Self {
        Self {
            name: self.name.clone(),
            volume: self.volume.clone(),
            snapshot: self.snapshot.clone(),
            taken: self.taken.clone(),
            started: self.started.clone(),
            completed: self.completed.clone(),
            labels: self.labels.clone(),
            parameters: self.parameters.clone(),
            blocks: Vec::new(),
            ..*self
        }
    }
}

/// A backing image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageRecord {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    /// SHA-512 of the whole image, in hex digits.
    pub(crate) checksum: String,
    pub(crate) labels: Labels,
    pub(crate) packing: Packing,
    pub(crate) started: String,
    /// Empty: in progress.
    pub(crate) completed: String,
    pub(crate) secret: String,
    pub(crate) secret_namespace: String,
    pub(crate) blocks: Vec<BlockRef>,
    pub(crate) is_fenceable: bool,
    pub(crate) is_successor: bool,
}

impl ImageRecord {
    pub(crate) fn is_in_progress(&self) -> bool {
        self.completed.is_empty()
    }
}

/// What matters of a record for those who check and clean.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) is_in_progress: bool,
    pub(crate) packing: Packing,
    pub(crate) blocks: Vec<BlockRef>,
    pub(crate) started: String,
    pub(crate) is_fenceable: bool,
    pub(crate) is_successor: bool,
    /// Where it ends, if it says so: no block lies there or behind.
    end: Option<u64>,
}

impl Record {
    /// Why it cannot be restored whatever blocks there are.
    pub(crate) fn flaw(&self) -> Option<(u64, String)> {
        let (last, end) = (self.blocks.last()?, self.end?);
        let text = || format!("the record names a block past its end at {end}");
        (last.offset >= end).then(|| (last.offset, text()))
    }
}

impl From<BackupRecord> for Record {
    fn from(record: BackupRecord) -> Self {
        Self {
            is_in_progress: record.is_in_progress(),
            is_fenceable: record.is_fenceable,
            is_successor: record.is_successor,
            packing: record.packing,
            blocks: record.blocks,
            started: record.started,
            // Its size is what it stores, not what the volume has.
            end: None,
        }
    }
}

impl From<ImageRecord> for Record {
    fn from(record: ImageRecord) -> Self {
        Self {
            is_in_progress: record.is_in_progress(),
            is_fenceable: record.is_fenceable,
            is_successor: record.is_successor,
            packing: record.packing,
            blocks: record.blocks,
            started: record.started,
            end: Some(record.size_bytes),
        }
    }
}

/// What a list shows of a record, where it does: when it was written, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outside(pub(super) Option<(Timestamp, u64)>);

impl Outside {
    /// At most, as a list has it; nothing is known of some.
    pub(crate) fn len_bytes(self) -> Option<u64> {
        self.0.map(|(_, len_bytes)| len_bytes)
    }
}

/// The records that a list shows.
#[derive(Debug)]
pub(crate) struct ListedRecords {
    pub(crate) named: BTreeMap<Name, Outside>,
    /// Places of those whose names another can give, and we cannot: longer ones than ours.
    pub(crate) unnamed: Vec<String>,
}

/// A record in progress that is ours alone.
#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) version: blobs::Version,
    /// Whether another began it, which may finish it still.
    pub(crate) is_successor: bool,
    /// Whether one of an earlier try, or of another, lay there.
    pub(crate) was_there: bool,
}

/// A record that was begun.
#[derive(Debug)]
pub(crate) enum Started<T> {
    Begun(Ours),
    /// An earlier try, or somebody else, has completed it.
    Complete(Box<T>),
}

/// A time as records have it: UTC, to the second.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
