//! Backups: what to take from the cluster, and how far that is.

use std::collections::BTreeMap;

use super::V1;
use super::hooks::BackupHooks;
use crate::duration::GoDuration;
use crate::resource::{AGE, resource, text};
use crate::scalar::Time;
use crate::selector::{LabelSelector, LocalReference};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A copy of cluster objects, and of the volumes they use, in a backup store.
    Backup in V1 {
        plural: "backups",
        short: [],
        spec: BackupSpec,
        status: BackupStatus,
        columns: [text("Status", ".status.phase"), AGE],
    }
}

/// What a backup takes and how long it is kept. Everything is optional; an empty spec takes all.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupSpec {
    /// Metadata of backups made from this spec by a schedule.
    pub metadata: Option<TemplateMetadata>,
    /// Namespaces to take objects from; `*` and glob patterns are allowed. Empty: all of them.
    pub included_namespaces: Option<Vec<String>>,
    /// Namespaces to leave out.
    pub excluded_namespaces: Option<Vec<String>>,
    /// Resource types to take, as `pods` or `deployments.apps`. Not together with the four lists
    /// of scoped resources.
    pub included_resources: Option<Vec<String>>,
    /// Resource types to leave out. Not together with the four lists of scoped resources.
    pub excluded_resources: Option<Vec<String>>,
    /// Resource types without a namespace to take.
    pub included_cluster_scoped_resources: Option<Vec<String>>,
    /// Resource types without a namespace to leave out; `*` leaves out all.
    pub excluded_cluster_scoped_resources: Option<Vec<String>>,
    /// Resource types inside namespaces to take.
    pub included_namespace_scoped_resources: Option<Vec<String>>,
    /// Resource types inside namespaces to leave out; `*` leaves out all.
    pub excluded_namespace_scoped_resources: Option<Vec<String>>,
    /// Takes only objects with matching labels. Not together with orLabelSelectors.
    pub label_selector: Option<LabelSelector>,
    /// Takes objects that match at least one of these. Not together with labelSelector.
    pub or_label_selectors: Option<Vec<LabelSelector>>,
    /// Whether volumes are snapshotted. Absent: if a snapshot location allows it.
    pub snapshot_volumes: Option<bool>,
    /// How long the backup is kept, as `720h`. It is deleted afterwards.
    pub ttl: Option<GoDuration>,
    /// Whether objects without a namespace are taken. Absent: only those that taken objects need.
    pub include_cluster_resources: Option<bool>,
    /// Commands to run in pods before and after they are taken.
    pub hooks: Option<BackupHooks>,
    /// Name of the backup storage location that receives the backup. Absent: the default one.
    pub storage_location: Option<String>,
    /// Names of volume snapshot locations, at most one for each provider.
    pub volume_snapshot_locations: Option<Vec<String>>,
    /// Former name of defaultVolumesToFsBackup.
    pub default_volumes_to_restic: Option<bool>,
    /// Whether pod volumes are copied file by file unless a pod says otherwise.
    pub default_volumes_to_fs_backup: Option<bool>,
    /// Objects to take first, for each resource type: `pods: ns1/a,ns1/b`.
    pub ordered_resources: Option<BTreeMap<String, String>>,
    /// How long to wait for a CSI snapshot to be ready.
    pub csi_snapshot_timeout: Option<GoDuration>,
    /// How long work that goes on in the background may take for one item.
    pub item_operation_timeout: Option<GoDuration>,
    /// `ConfigMap` in the server's namespace that says how volumes are treated.
    pub resource_policy: Option<LocalReference>,
    /// Whether data of volume snapshots is moved to the backup store.
    pub snapshot_move_data: Option<bool>,
    /// Which mover moves snapshot data. Empty or `velero`: the built-in one.
    pub datamover: Option<String>,
    /// How files are uploaded.
    pub uploader_config: Option<BackupUploader>,
    /// Label that puts volume claims into one group, to be snapshotted at one moment.
    pub volume_group_snapshot_label_key: Option<String>,
}

/// Metadata given to objects made from a template.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels to set.
    pub labels: Option<BTreeMap<String, String>>,
}

/// How files of a backup are uploaded.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupUploader {
    /// How many files are uploaded at once.
    pub parallel_files_upload: Option<i64>,
}

words! {
    /// How far a backup is.
    open BackupPhase {
        New = "New",
        Queued = "Queued",
        ReadyToStart = "ReadyToStart",
        FailedValidation = "FailedValidation",
        InProgress = "InProgress",
        WaitingForPluginOperations = "WaitingForPluginOperations",
        WaitingForPluginOperationsPartiallyFailed = "WaitingForPluginOperationsPartiallyFailed",
        Finalizing = "Finalizing",
        FinalizingPartiallyFailed = "FinalizingPartiallyFailed",
        Completed = "Completed",
        PartiallyFailed = "PartiallyFailed",
        Failed = "Failed",
        Deleting = "Deleting",
    }
}

/// What has become of a backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// Major version of the format the backup is written in.
    pub version: Option<i64>,
    /// Version of that format, with its minor parts.
    pub format_version: Option<String>,
    /// When the backup may be deleted.
    pub expiration: Option<Time>,
    /// How far the backup is.
    pub phase: Option<BackupPhase>,
    /// Place in the queue, from 1; only while the phase is Queued.
    pub queue_position: Option<i64>,
    /// What is wrong with the spec.
    pub validation_errors: Option<Vec<String>>,
    /// When work on the backup began.
    pub start_timestamp: Option<Time>,
    /// When it ended, well or badly.
    pub completion_timestamp: Option<Time>,
    /// Volume snapshots that were tried.
    pub volume_snapshots_attempted: Option<i64>,
    /// Volume snapshots that were taken.
    pub volume_snapshots_completed: Option<i64>,
    /// CSI snapshots that were tried.
    pub csi_volume_snapshots_attempted: Option<i64>,
    /// CSI snapshots that were taken.
    pub csi_volume_snapshots_completed: Option<i64>,
    /// Background operations that were started.
    pub backup_item_operations_attempted: Option<i64>,
    /// Background operations that ended well.
    pub backup_item_operations_completed: Option<i64>,
    /// Background operations that failed.
    pub backup_item_operations_failed: Option<i64>,
    /// Why the backup as a whole failed.
    pub failure_reason: Option<String>,
    /// Warnings in the log of the backup.
    pub warnings: Option<i64>,
    /// Errors in the log of the backup.
    pub errors: Option<i64>,
    /// How many objects are done.
    pub progress: Option<BackupProgress>,
    /// How many hooks ran.
    pub hook_status: Option<HookCount>,
}

/// How many objects of a backup are done.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupProgress {
    /// Objects known so far; it may grow while the backup runs.
    pub total_items: Option<i64>,
    /// Objects written so far.
    pub items_backed_up: Option<i64>,
}

/// How many hooks ran.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookCount {
    /// Hooks that were started.
    pub hooks_attempted: Option<i64>,
    /// Hooks that failed.
    pub hooks_failed: Option<i64>,
}
