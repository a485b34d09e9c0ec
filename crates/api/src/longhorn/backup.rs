//! Backups, and the volumes in a store they belong to.

use std::collections::BTreeMap;

use super::V1BETA2;
use crate::resource::{resource, text};
use crate::scalar::{Stamp, Time};
use crate::schema::rule;
use crate::words::words;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

words! {
    /// How backups are compressed.
    open Compression {
        None = "none",
        Lz4 = "lz4",
        Gzip = "gzip",
    }
}

words! {
    /// Size of the blocks of a backup, in bytes.
    open BlockSize {
        /// The backup does not say, or says something impossible.
        Unknown = "-1",
        TwoMib = "2097152",
        SixteenMib = "16777216",
    }
}

/// A size that is known stays; one that was not may be corrected.
pub(super) fn known_block_size(schema: &mut Schema) {
    rule(
        schema,
        "self == oldSelf || oldSelf == '-1'",
        "block size can only be corrected while it is unknown",
    );
}

words! {
    /// Whether a backup writes only what changed.
    open BackupMode {
        Incremental = "incremental",
        Full = "full",
        /// Incremental.
        Unset = "",
    }
}

words! {
    /// How far a backup is.
    loose BackupState {
        New = "",
        Pending = "Pending",
        InProgress = "InProgress",
        Completed = "Completed",
        Error = "Error",
        Unknown = "Unknown",
        /// Its data is being removed; other backups of the volume wait.
        Deleting = "Deleting",
    }
}

impl BackupState {
    /// Whether no upload can still change it. A deletion starts from a final state, and is one.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Completed | Self::Error | Self::Unknown | Self::Deleting)
    }
}

resource! {
    /// A snapshot of a volume, kept in a backup store.
    Backup in V1BETA2 {
        plural: "backups",
        short: ["lhb"],
        spec: BackupSpec,
        status: BackupStatus,
        columns: [
            text("SnapshotName", ".status.snapshotName"),
            text("SnapshotSize", ".status.size"),
            text("SnapshotCreatedAt", ".status.snapshotCreatedAt"),
            text("BackupTarget", ".status.backupTargetName"),
            text("State", ".status.state"),
            text("LastSyncedAt", ".status.lastSyncedAt"),
        ],
    }
}

/// Which backup is wanted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupSpec {
    /// Asks to read it from the store again, if that was last done before this time.
    pub sync_requested_at: Option<Time>,
    /// Snapshot to back up. Empty: the backup was found in the store.
    pub snapshot_name: Option<String>,
    /// Labels to keep with it, also in the store.
    pub labels: Option<BTreeMap<String, String>>,
    /// Whether only what changed is written.
    pub backup_mode: Option<BackupMode>,
    /// Size of its blocks. Cannot be changed, unless it was unknown.
    #[schemars(transform = known_block_size)]
    pub backup_block_size: Option<BlockSize>,
}

/// What has become of a backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// How far it is.
    pub state: Option<BackupState>,
    /// How much is uploaded, 0 to 100.
    pub progress: Option<i32>,
    /// Copy of the volume it is read from.
    pub replica_address: Option<String>,
    /// Why it could not be made.
    pub error: Option<String>,
    /// Its URL, to restore from.
    pub url: Option<String>,
    /// Snapshot it is of.
    pub snapshot_name: Option<String>,
    /// When that snapshot was taken.
    pub snapshot_created_at: Option<Stamp>,
    /// When the backup was complete.
    pub backup_created_at: Option<Stamp>,
    /// Bytes the snapshot takes, as text.
    pub size: Option<String>,
    /// Labels kept with it.
    pub labels: Option<BTreeMap<String, String>>,
    /// What it waits for (`info`), and why it could not be deleted (`error`).
    pub messages: Option<BTreeMap<String, String>>,
    /// Volume it is of.
    pub volume_name: Option<String>,
    /// Size of that volume in bytes, as text.
    pub volume_size: Option<String>,
    /// When that volume was made.
    pub volume_created: Option<Stamp>,
    /// Image that is the bottom layer of that volume.
    pub volume_backing_image_name: Option<String>,
    /// When it was last read from the store.
    pub last_synced_at: Option<Time>,
    /// How it is compressed.
    pub compression_method: Option<String>,
    /// Bytes it added to the store, as text.
    pub newly_upload_data_size: Option<String>,
    /// Bytes it wrote again, as text.
    pub re_uploaded_data_size: Option<String>,
    /// Backup target it is in.
    pub backup_target_name: Option<String>,
    /// How its upload stands, while it is made.
    pub upload: Option<BackupUpload>,
    /// How its deletion stands, once that was asked for.
    pub deletion: Option<BackupDeletion>,
    /// What the last look at its data found.
    pub verification: Option<BackupVerification>,
}

/// What is known of an upload, kept so that a restart of the controllers goes on with it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupUpload {
    /// Since when it waits for what it needs, if that cannot be waited for without end.
    pub waiting_since: Option<Time>,
    /// When the upload that runs, or the last one, was started.
    pub started_at: Option<Time>,
    /// How often an upload was started.
    pub attempts: Option<i32>,
}

/// What is known of a deletion, kept so that a restart of the controllers goes on with it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupDeletion {
    /// Id of the attempt that runs, or of the last one.
    pub attempt: Option<String>,
    /// When that attempt was started.
    pub started_at: Option<Time>,
    /// How far it is, 0 to 100.
    pub progress: Option<i32>,
    /// Attempts that failed so far.
    pub failures: Option<i32>,
    /// When the next attempt is made; the annotation `holdfast.io/retry-now` makes it at once.
    pub retry_at: Option<Time>,
    /// What the deletion waits for before it begins.
    pub waits_for: Option<String>,
}

/// A look at the data of a backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupVerification {
    /// Whether it can be restored, as far as was looked: `Healthy`, `Damaged` or `Unknown`.
    pub result: Option<String>,
    /// How deep was looked: `quick`, `deep` or `drill`.
    pub depth: Option<String>,
    /// When it was looked at.
    pub verified_at: Option<Time>,
    /// What was found.
    pub message: Option<String>,
}

resource! {
    /// A volume as a backup store knows it: the backups of one source.
    BackupVolume in V1BETA2 {
        plural: "backupvolumes",
        short: ["lhbv"],
        spec: BackupVolumeSpec,
        status: BackupVolumeStatus,
        columns: [
            text("BackupTarget", ".spec.backupTargetName"),
            text("CreatedAt", ".status.createdAt"),
            text("LastBackupName", ".status.lastBackupName"),
            text("LastBackupAt", ".status.lastBackupAt"),
            text("LastSyncedAt", ".status.lastSyncedAt"),
            text("State", ".status.state"),
        ],
    }
}

/// Which volume of which store.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupVolumeSpec {
    /// Backup target it is in.
    #[schemars(required)]
    pub backup_target_name: Option<String>,
    /// Name of the source volume.
    #[schemars(required)]
    pub volume_name: Option<String>,
    /// Asks to read it from the store again, if that was last done before this time.
    pub sync_requested_at: Option<Time>,
}

/// What the store says of a volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupVolumeStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// When the store's record of it last changed.
    pub last_modification_time: Option<Time>,
    /// Size of the volume in bytes, as text.
    pub size: Option<String>,
    /// Labels kept with it.
    pub labels: Option<BTreeMap<String, String>>,
    /// When the volume was made.
    pub created_at: Option<Stamp>,
    /// Newest backup.
    pub last_backup_name: Option<String>,
    /// When that backup was made.
    pub last_backup_at: Option<Stamp>,
    /// Bytes all its backups take together, as text.
    pub data_stored: Option<String>,
    /// What went wrong while it was read.
    pub messages: Option<BTreeMap<String, String>>,
    /// Image that is the bottom layer of the volume.
    pub backing_image_name: Option<String>,
    /// Checksum of that image.
    pub backing_image_checksum: Option<String>,
    /// Storage class the volume was made from.
    pub storage_class_name: Option<String>,
    /// When it was last read from the store.
    pub last_synced_at: Option<Time>,
    /// `Deleting` while all its backups are removed, `Error` while that is to be tried again.
    pub state: Option<BackupState>,
    /// How its deletion stands, once that was asked for.
    pub deletion: Option<BackupDeletion>,
}
