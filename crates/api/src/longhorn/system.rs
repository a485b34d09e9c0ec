//! Backups of the system's own resources.

use super::V1BETA2;
use super::condition::Condition;
use crate::resource::{AGE, resource, text};
use crate::scalar::Time;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

words! {
    /// How far a system backup or restore is.
    loose SystemState {
        Unset = "",
        Syncing = "Syncing",
        VolumeBackup = "CreatingVolumeBackups",
        BackingImageBackup = "CreatingBackingImageBackups",
        Generating = "Generating",
        Uploading = "Uploading",
        Ready = "Ready",
        Pending = "Pending",
        Initializing = "Initializing",
        Downloading = "Downloading",
        Restoring = "Restoring",
        InProgress = "InProgress",
        Completed = "Completed",
        Error = "Error",
        Deleting = "Deleting",
        Unknown = "Unknown",
    }
}

words! {
    /// Whether volumes are backed up with the system.
    open VolumeBackupPolicy {
        IfNotPresent = "if-not-present",
        Always = "always",
        Disabled = "disabled",
        /// If not present.
        Unset = "",
    }
}

resource! {
    /// A copy of the system's own resources in a backup store.
    SystemBackup in V1BETA2 {
        plural: "systembackups",
        short: ["lhsb"],
        spec: SystemBackupSpec,
        status: SystemBackupStatus,
        columns: [
            text("Version", ".status.version"),
            text("State", ".status.state"),
            text("Created", ".status.createdAt"),
            text("LastSyncedAt", ".status.lastSyncedAt"),
        ],
    }
}

/// What is copied with the resources.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemBackupSpec {
    /// Whether volumes are backed up first.
    pub volume_backup_policy: Option<VolumeBackupPolicy>,
}

/// What has become of a system backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemBackupStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Version of the system that made it.
    pub version: Option<String>,
    /// Commit that version was built from.
    pub git_commit: Option<String>,
    /// Image of the manager that made it.
    pub manager_image: Option<String>,
    /// How far it is.
    pub state: Option<SystemState>,
    /// When it was made.
    pub created_at: Option<Time>,
    /// When it was last read from the store.
    pub last_synced_at: Option<Time>,
    /// Why it is as it is.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

resource! {
    /// A request to bring the system's own resources back.
    SystemRestore in V1BETA2 {
        plural: "systemrestores",
        short: ["lhsr"],
        spec: SystemRestoreSpec,
        status: SystemRestoreStatus,
        columns: [text("State", ".status.state"), AGE],
    }
}

/// Which copy is restored.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemRestoreSpec {
    /// Name of the system backup.
    #[schemars(required)]
    pub system_backup: Option<String>,
}

/// What has become of a system restore.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemRestoreStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Where the copy is.
    #[serde(rename = "sourceURL")]
    pub source_url: Option<String>,
    /// How far it is.
    pub state: Option<SystemState>,
    /// Why it is as it is.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
