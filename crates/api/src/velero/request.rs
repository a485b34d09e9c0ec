//! Requests: to delete a backup, to download a file of one, to hear from the server.

use super::V1;
use crate::resource::{AGE, resource, text};
use crate::scalar::Time;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A request to delete a backup together with its data.
    DeleteBackupRequest in V1 {
        plural: "deletebackuprequests",
        short: [],
        spec: DeleteBackupRequestSpec,
        status: DeleteBackupRequestStatus,
        columns: [text("BackupName", ".spec.backupName"), text("Status", ".status.phase"), AGE],
    }
}

/// Which backup to delete.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteBackupRequestSpec {
    /// Name of the backup.
    #[schemars(required)]
    pub backup_name: Option<String>,
}

words! {
    /// How far a deletion is.
    open DeletePhase {
        New = "New",
        InProgress = "InProgress",
        Processed = "Processed",
    }
}

/// What has become of a deletion.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteBackupRequestStatus {
    /// How far the deletion is. Processed says that it ended, not that it ended well.
    pub phase: Option<DeletePhase>,
    /// What went wrong. Empty and Processed: the backup is gone.
    pub errors: Option<Vec<String>>,
}

resource! {
    /// A request for an address from which one file of a backup or a restore can be fetched.
    DownloadRequest in V1 {
        plural: "downloadrequests",
        short: [],
        spec: DownloadRequestSpec,
        status: DownloadRequestStatus,
        columns: [text("Status", ".status.phase"), AGE],
    }
}

/// Which file is wanted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DownloadRequestSpec {
    /// The file.
    #[schemars(required)]
    pub target: Option<DownloadTarget>,
}

/// A file of a backup or a restore.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DownloadTarget {
    /// Which of its files.
    pub kind: DownloadKind,
    /// Name of the backup or the restore.
    pub name: String,
}

words! {
    /// The files that can be asked for.
    open DownloadKind {
        BackupLog = "BackupLog",
        BackupContents = "BackupContents",
        BackupVolumeSnapshots = "BackupVolumeSnapshots",
        BackupItemOperations = "BackupItemOperations",
        BackupResourceList = "BackupResourceList",
        BackupResults = "BackupResults",
        RestoreLog = "RestoreLog",
        RestoreResults = "RestoreResults",
        RestoreResourceList = "RestoreResourceList",
        RestoreItemOperations = "RestoreItemOperations",
        CsiBackupVolumeSnapshots = "CSIBackupVolumeSnapshots",
        CsiBackupVolumeSnapshotContents = "CSIBackupVolumeSnapshotContents",
        BackupVolumeInfos = "BackupVolumeInfos",
        RestoreVolumeInfo = "RestoreVolumeInfo",
    }
}

words! {
    /// Whether an address has been made.
    open DownloadPhase {
        New = "New",
        Processed = "Processed",
    }
}

/// The address of a file.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DownloadRequestStatus {
    /// Whether the address has been made.
    pub phase: Option<DownloadPhase>,
    /// Address to fetch the file from, with the right to do so in it.
    #[serde(rename = "downloadURL")]
    pub download_url: Option<String>,
    /// When the address stops working and this request is deleted.
    pub expiration: Option<Time>,
}

resource! {
    /// A question to the server: which version it is and what it can do.
    ServerStatusRequest in V1 {
        plural: "serverstatusrequests",
        short: ["ssr"],
        spec: ServerStatusRequestSpec,
        status: ServerStatusRequestStatus,
        columns: [text("Status", ".status.phase"), AGE],
    }
}

/// There is nothing to say in the question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerStatusRequestSpec {}

words! {
    /// Whether the server has answered.
    open ServerStatusPhase {
        New = "New",
        Processed = "Processed",
    }
}

/// The server's answer.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatusRequestStatus {
    /// Whether the server has answered.
    pub phase: Option<ServerStatusPhase>,
    /// When it answered; the request is deleted soon afterwards.
    pub processed_timestamp: Option<Time>,
    /// Version of the server.
    pub server_version: Option<String>,
    /// What the server can do.
    pub plugins: Option<Vec<Plugin>>,
}

/// One ability of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plugin {
    /// Name of the plugin.
    pub name: String,
    /// What kind of work it does.
    pub kind: String,
}
