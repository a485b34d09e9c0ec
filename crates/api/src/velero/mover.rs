//! Movers of snapshot data: from a volume snapshot to a backup store and back.

use std::collections::BTreeMap;

use super::V2ALPHA1;
use super::podvolume::{ByteProgress, MoverPhase};
use crate::duration::GoDuration;
use crate::resource::{AGE, column, date, resource, text};
use crate::scalar::Time;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

words! {
    /// Kind of snapshot data is taken from.
    open SnapshotType {
        Csi = "CSI",
    }
}

words! {
    /// Operating system of the node that moves data.
    open NodeOs {
        Auto = "auto",
        Linux = "linux",
        Windows = "windows",
    }
}

resource! {
    /// The move of one volume snapshot's data into a backup store.
    DataUpload in V2ALPHA1 {
        plural: "datauploads",
        short: [],
        spec: DataUploadSpec,
        status: DataUploadStatus,
        columns: [
            text("Status", ".status.phase"),
            date("Started", ".status.startTimestamp"),
            column("Bytes Done", "integer", ".status.progress.bytesDone"),
            column("Total Bytes", "integer", ".status.progress.totalBytes"),
            column("Incremental Bytes", "integer", ".status.incrementalBytes"),
            text("Storage Location", ".spec.backupStorageLocation"),
            AGE,
            text("Node", ".status.node"),
        ],
    }
}

/// Which snapshot is moved, and where to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataUploadSpec {
    /// Kind of the snapshot.
    #[schemars(required)]
    pub snapshot_type: Option<SnapshotType>,
    /// The snapshot, when it is a CSI one.
    pub csi_snapshot: Option<CsiSnapshot>,
    /// Claim the snapshot was taken of.
    #[serde(rename = "sourcePVC")]
    #[schemars(required)]
    pub source_pvc: Option<String>,
    /// Mover to use. Empty or `velero`: the built-in one.
    pub datamover: Option<String>,
    /// Backup storage location that receives the data.
    #[schemars(required)]
    pub backup_storage_location: Option<String>,
    /// Namespace of the claim.
    #[schemars(required)]
    pub source_namespace: Option<String>,
    /// Settings of the mover.
    pub data_mover_config: Option<BTreeMap<String, String>>,
    /// Asks to stop moving.
    pub cancel: Option<bool>,
    /// How long the preparation may take.
    #[schemars(required)]
    pub operation_timeout: Option<GoDuration>,
}

/// A CSI snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsiSnapshot {
    /// Name of the `VolumeSnapshot`.
    pub volume_snapshot: String,
    /// Storage class of the claim.
    pub storage_class: String,
    /// Snapshot class of the snapshot.
    pub snapshot_class: Option<String>,
    /// Driver that took the snapshot.
    pub driver: Option<String>,
}

/// What has become of the move.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataUploadStatus {
    /// How far the move is.
    pub phase: Option<MoverPhase>,
    /// Path of the volume on its node.
    pub path: Option<String>,
    /// Name of the data in the repository.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: Option<String>,
    /// What the mover has to say of its own.
    pub data_mover_result: Option<BTreeMap<String, String>>,
    /// Why it is as it is.
    pub message: Option<String>,
    /// When moving began.
    pub start_timestamp: Option<Time>,
    /// When it ended, well or badly.
    pub completion_timestamp: Option<Time>,
    /// When a node took the work.
    pub accepted_timestamp: Option<Time>,
    /// How many bytes are done.
    pub progress: Option<ByteProgress>,
    /// Bytes that earlier moves did not hold.
    pub incremental_bytes: Option<i64>,
    /// Node that does the work.
    pub node: Option<String>,
    /// Operating system of that node.
    #[serde(rename = "nodeOS")]
    pub node_os: Option<NodeOs>,
    /// Node that took the work first and prepared it.
    pub accepted_by_node: Option<String>,
}

resource! {
    /// The move of one volume's data from a backup store into a new volume.
    DataDownload in V2ALPHA1 {
        plural: "datadownloads",
        short: [],
        spec: DataDownloadSpec,
        status: DataDownloadStatus,
        columns: [
            text("Status", ".status.phase"),
            date("Started", ".status.startTimestamp"),
            column("Bytes Done", "integer", ".status.progress.bytesDone"),
            column("Total Bytes", "integer", ".status.progress.totalBytes"),
            text("Storage Location", ".spec.backupStorageLocation"),
            AGE,
            text("Node", ".status.node"),
        ],
    }
}

/// Which data is moved, and into which volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataDownloadSpec {
    /// The volume.
    #[schemars(required)]
    pub target_volume: Option<TargetVolume>,
    /// Backup storage location that holds the data.
    #[schemars(required)]
    pub backup_storage_location: Option<String>,
    /// Mover to use. Empty or `velero`: the built-in one.
    pub datamover: Option<String>,
    /// Name of the data in the repository.
    #[serde(rename = "snapshotID")]
    #[schemars(required)]
    pub snapshot_id: Option<String>,
    /// Namespace of the claim the data was taken from.
    #[schemars(required)]
    pub source_namespace: Option<String>,
    /// Settings of the mover.
    pub data_mover_config: Option<BTreeMap<String, String>>,
    /// Asks to stop moving.
    pub cancel: Option<bool>,
    /// How long the preparation may take.
    #[schemars(required)]
    pub operation_timeout: Option<GoDuration>,
    /// Operating system the data is for.
    #[serde(rename = "nodeOS")]
    pub node_os: Option<NodeOs>,
    /// Bytes of data.
    pub snapshot_size: Option<i64>,
}

/// A volume that receives data.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetVolume {
    /// Claim of the volume.
    pub pvc: String,
    /// The volume.
    pub pv: String,
    /// Namespace of the claim.
    pub namespace: String,
}

/// What has become of the move.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataDownloadStatus {
    /// How far the move is.
    pub phase: Option<MoverPhase>,
    /// Why it is as it is.
    pub message: Option<String>,
    /// When moving began.
    pub start_timestamp: Option<Time>,
    /// When it ended, well or badly.
    pub completion_timestamp: Option<Time>,
    /// When a node took the work.
    pub accepted_timestamp: Option<Time>,
    /// How many bytes are done.
    pub progress: Option<ByteProgress>,
    /// Node that does the work.
    pub node: Option<String>,
    /// Node that took the work first and prepared it.
    pub accepted_by_node: Option<String>,
}
