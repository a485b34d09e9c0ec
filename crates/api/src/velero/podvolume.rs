//! Copies of pod volumes, file by file: one object for each volume, worked on by its node.

use std::collections::BTreeMap;

use super::V1;
use crate::resource::{AGE, column, date, resource, text};
use crate::scalar::Time;
use crate::selector::ObjectReference;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

words! {
    /// How far the copying of one volume is.
    open MoverPhase {
        New = "New",
        Accepted = "Accepted",
        Prepared = "Prepared",
        InProgress = "InProgress",
        Canceling = "Canceling",
        Canceled = "Canceled",
        Completed = "Completed",
        Failed = "Failed",
    }
}

words! {
    /// The program that copies files.
    open UploaderKind {
        Kopia = "kopia",
        Restic = "restic",
        Unset = "",
    }
}

/// How many bytes of a volume are done.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ByteProgress {
    /// Bytes to copy.
    pub total_bytes: Option<i64>,
    /// Bytes copied.
    pub bytes_done: Option<i64>,
}

resource! {
    /// The copy of one pod volume into a backup store.
    PodVolumeBackup in V1 {
        plural: "podvolumebackups",
        short: [],
        spec: PodVolumeBackupSpec,
        status: PodVolumeBackupStatus,
        columns: [
            text("Status", ".status.phase"),
            date("Started", ".status.startTimestamp"),
            column("Bytes Done", "integer", ".status.progress.bytesDone"),
            column("Total Bytes", "integer", ".status.progress.totalBytes"),
            column("Incremental Bytes", "integer", ".status.incrementalBytes"),
            text("Storage Location", ".spec.backupStorageLocation"),
            AGE,
            text("Node", ".spec.node"),
            text("Uploader", ".spec.uploaderType"),
        ],
    }
}

/// Which pod volume is copied, and where to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodVolumeBackupSpec {
    /// Node the pod runs on.
    #[schemars(required)]
    pub node: Option<String>,
    /// The pod.
    #[schemars(required)]
    pub pod: Option<ObjectReference>,
    /// Name of the volume in the pod.
    #[schemars(required)]
    pub volume: Option<String>,
    /// Backup storage location that receives the copy.
    #[schemars(required)]
    pub backup_storage_location: Option<String>,
    /// Repository in that location.
    #[schemars(required)]
    pub repo_identifier: Option<String>,
    /// Program that copies.
    pub uploader_type: Option<UploaderKind>,
    /// Marks kept with the copy.
    pub tags: Option<BTreeMap<String, String>>,
    /// Settings of the program.
    pub uploader_settings: Option<BTreeMap<String, String>>,
    /// Asks to stop copying.
    pub cancel: Option<bool>,
}

/// What has become of the copy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodVolumeBackupStatus {
    /// How far the copy is.
    pub phase: Option<MoverPhase>,
    /// Path of the volume on its node.
    pub path: Option<String>,
    /// Name of the copy in the repository.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: Option<String>,
    /// Why it is as it is.
    pub message: Option<String>,
    /// When copying began.
    pub start_timestamp: Option<Time>,
    /// When it ended, well or badly.
    pub completion_timestamp: Option<Time>,
    /// When a node took the work.
    pub accepted_timestamp: Option<Time>,
    /// How many bytes are done.
    pub progress: Option<ByteProgress>,
    /// Bytes that earlier copies did not hold.
    pub incremental_bytes: Option<i64>,
}

resource! {
    /// The restore of one pod volume from a backup store.
    PodVolumeRestore in V1 {
        plural: "podvolumerestores",
        short: [],
        spec: PodVolumeRestoreSpec,
        status: PodVolumeRestoreStatus,
        columns: [
            text("Status", ".status.phase"),
            date("Started", ".status.startTimestamp"),
            column("Bytes Done", "integer", ".status.progress.bytesDone"),
            column("Total Bytes", "integer", ".status.progress.totalBytes"),
            text("Storage Location", ".spec.backupStorageLocation"),
            AGE,
            text("Node", ".status.node"),
            text("Uploader Type", ".spec.uploaderType"),
        ],
    }
}

/// Which copy is restored, and into which pod volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodVolumeRestoreSpec {
    /// The pod.
    #[schemars(required)]
    pub pod: Option<ObjectReference>,
    /// Name of the volume in the pod.
    #[schemars(required)]
    pub volume: Option<String>,
    /// Backup storage location that holds the copy.
    #[schemars(required)]
    pub backup_storage_location: Option<String>,
    /// Repository in that location.
    #[schemars(required)]
    pub repo_identifier: Option<String>,
    /// Program that copies.
    pub uploader_type: Option<UploaderKind>,
    /// Name of the copy in the repository.
    #[serde(rename = "snapshotID")]
    #[schemars(required)]
    pub snapshot_id: Option<String>,
    /// Namespace the volume was copied from.
    #[schemars(required)]
    pub source_namespace: Option<String>,
    /// Settings of the program.
    pub uploader_settings: Option<BTreeMap<String, String>>,
    /// Asks to stop copying.
    pub cancel: Option<bool>,
    /// Bytes in the copy.
    pub snapshot_size: Option<i64>,
}

/// What has become of the restore of a volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodVolumeRestoreStatus {
    /// How far the restore is.
    pub phase: Option<MoverPhase>,
    /// Why it is as it is.
    pub message: Option<String>,
    /// When copying began.
    pub start_timestamp: Option<Time>,
    /// When it ended, well or badly.
    pub completion_timestamp: Option<Time>,
    /// When a node took the work.
    pub accepted_timestamp: Option<Time>,
    /// How many bytes are done.
    pub progress: Option<ByteProgress>,
    /// Node that does the work.
    pub node: Option<String>,
}
