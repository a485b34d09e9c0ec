//! A tenant's restores.

use super::{DataMoverCounts, FileSystemCounts, Phase, QueueInfo, V1ALPHA1};
use crate::condition::Condition;
use crate::mirror::Mirror;
use crate::resource::{AGE, resource, text};
use crate::velero;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A tenant's request to restore objects of its own namespace from one of its backups.
    NonAdminRestore in V1ALPHA1 {
        plural: "nonadminrestores",
        short: ["nar"],
        spec: NonAdminRestoreSpec,
        status: NonAdminRestoreStatus,
        columns: [
            text("Request-Phase", ".status.phase"),
            text("Velero-Phase", ".status.veleroRestore.status.phase"),
            AGE,
        ],
    }
}

/// What to restore.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminRestoreSpec {
    /// Spec of the Velero restore. Its backupName is the name of a `NonAdminBackup` in this
    /// namespace.
    #[schemars(required)]
    pub restore_spec: Option<velero::RestoreSpec>,
}

/// What has become of the request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminRestoreStatus {
    /// Where the request is in its life; not how the restore itself goes.
    pub phase: Option<Phase>,
    /// What the request has or has not passed, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// The Velero restore made for this request.
    pub velero_restore: Option<VeleroRestore>,
    /// Place in the queue.
    pub queue_info: Option<QueueInfo>,
    /// Moves of snapshot data that belong to the restore.
    pub data_mover_data_downloads: Option<DataMoverCounts>,
    /// Restores of pod volumes that belong to the restore.
    pub file_system_pod_volume_restores: Option<FileSystemCounts>,
}

/// The Velero restore made for a request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VeleroRestore {
    /// Identity shared by the request and the Velero restore.
    pub nacuuid: Option<String>,
    /// Name of the Velero restore.
    pub name: Option<String>,
    /// Namespace of the Velero restore.
    pub namespace: Option<String>,
    /// Its status, as Velero has it.
    pub status: Option<Mirror<velero::RestoreStatus>>,
}
