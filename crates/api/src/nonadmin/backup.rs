//! A tenant's backups.

use super::{Phase, V1ALPHA1};
use crate::condition::Condition;
use crate::mirror::Mirror;
use crate::resource::{AGE, resource, text};
use crate::velero;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A tenant's request to back up objects of its own namespace.
    NonAdminBackup in V1ALPHA1 {
        plural: "nonadminbackups",
        short: ["nab"],
        spec: NonAdminBackupSpec,
        status: NonAdminBackupStatus,
        columns: [
            text("Request-Phase", ".status.phase"),
            text("Velero-Phase", ".status.veleroBackup.status.phase"),
            AGE,
        ],
    }
}

/// What to back up, and whether the backup is still wanted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminBackupSpec {
    /// Spec of the Velero backup. It may only speak of this namespace.
    #[schemars(required)]
    pub backup_spec: Option<velero::BackupSpec>,
    /// Asks to delete the backup with its data, and then this object.
    pub delete_backup: Option<bool>,
    /// Asks to delete this object and its Velero objects at once, whatever becomes of the data.
    pub force_delete_backup: Option<bool>,
}

/// What has become of the request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminBackupStatus {
    /// Where the request is in its life; not how the backup itself goes.
    pub phase: Option<Phase>,
    /// What the request has or has not passed, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// The Velero backup made for this request.
    pub velero_backup: Option<VeleroBackup>,
    /// The Velero request to delete that backup.
    pub velero_delete_backup_request: Option<VeleroDeleteBackupRequest>,
    /// Place in the queue.
    pub queue_info: Option<QueueInfo>,
    /// Moves of snapshot data that belong to the backup.
    pub data_mover_data_uploads: Option<DataMoverCounts>,
    /// Copies of pod volumes that belong to the backup.
    pub file_system_pod_volume_backups: Option<FileSystemCounts>,
}

/// The Velero backup made for a request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VeleroBackup {
    /// Identity shared by the request and the Velero backup.
    pub nacuuid: Option<String>,
    /// Name of the Velero backup.
    pub name: Option<String>,
    /// Namespace of the Velero backup.
    pub namespace: Option<String>,
    /// Its status, as Velero has it.
    pub status: Option<Mirror<velero::BackupStatus>>,
    /// Its spec, as Velero has it: the request, with what the administrator enforces.
    pub spec: Option<Mirror<velero::BackupSpec>>,
}

/// The Velero request to delete a backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VeleroDeleteBackupRequest {
    /// Identity shared by the request and the Velero backup.
    pub nacuuid: Option<String>,
    /// Name of the Velero request.
    pub name: Option<String>,
    /// Namespace of the Velero request.
    pub namespace: Option<String>,
    /// Its status, as Velero has it.
    pub status: Option<Mirror<velero::DeleteBackupRequestStatus>>,
}

/// Place of a request in the queue of all requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueInfo {
    /// 0: done. 1: running, or next. More: so many, less one, come before it.
    pub estimated_queue_position: i64,
}

/// Moves of snapshot data, counted by how far they are.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataMoverCounts {
    /// All of them.
    pub total: Option<i64>,
    /// Not yet taken by a node.
    pub new: Option<i64>,
    /// Taken by a node.
    pub accepted: Option<i64>,
    /// Ready to run.
    pub prepared: Option<i64>,
    /// Running.
    pub in_progress: Option<i64>,
    /// Being stopped.
    pub canceling: Option<i64>,
    /// Stopped.
    pub canceled: Option<i64>,
    /// Failed.
    pub failed: Option<i64>,
    /// Done.
    pub completed: Option<i64>,
}

/// Copies of pod volumes, counted by how far they are.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSystemCounts {
    /// All of them.
    pub total: Option<i64>,
    /// Not yet taken by a node.
    pub new: Option<i64>,
    /// Taken by a node.
    pub accepted: Option<i64>,
    /// Ready to run.
    pub prepared: Option<i64>,
    /// Running.
    pub in_progress: Option<i64>,
    /// Being stopped.
    pub canceling: Option<i64>,
    /// Stopped.
    pub canceled: Option<i64>,
    /// Failed.
    pub failed: Option<i64>,
    /// Done.
    pub completed: Option<i64>,
    /// Program that copies.
    pub uploader_type: Option<String>,
}
