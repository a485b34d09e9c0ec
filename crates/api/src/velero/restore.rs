//! Restores: what to bring back from a backup, and how far that is.

use std::collections::BTreeMap;

use super::V1;
use super::backup::HookCount;
use super::hooks::RestoreHooks;
use crate::duration::GoDuration;
use crate::resource::{AGE, resource, text};
use crate::scalar::Time;
use crate::selector::{LabelSelector, LocalReference};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A request to create again, from a backup, what that backup holds.
    Restore in V1 {
        plural: "restores",
        short: [],
        spec: RestoreSpec,
        status: RestoreStatus,
        columns: [text("Status", ".status.phase"), AGE],
    }
}

/// What a restore brings back.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSpec {
    /// Name of the backup to restore from. Either this or scheduleName.
    pub backup_name: Option<String>,
    /// Name of a schedule, whose newest completed backup is restored.
    pub schedule_name: Option<String>,
    /// Namespaces to restore, as they were named in the backup. Empty: all.
    pub included_namespaces: Option<Vec<String>>,
    /// Namespaces to leave out.
    pub excluded_namespaces: Option<Vec<String>>,
    /// Resource types to restore. Empty: all.
    pub included_resources: Option<Vec<String>>,
    /// Resource types to leave out.
    pub excluded_resources: Option<Vec<String>>,
    /// New names for namespaces: old name to new name.
    pub namespace_mapping: Option<BTreeMap<String, String>>,
    /// Restores only objects with matching labels. Not together with orLabelSelectors.
    pub label_selector: Option<LabelSelector>,
    /// Restores objects that match at least one of these. Not together with labelSelector.
    pub or_label_selectors: Option<Vec<LabelSelector>>,
    /// Whether volumes are restored from their snapshots.
    #[serde(rename = "restorePVs")]
    pub restore_pvs: Option<bool>,
    /// Resource types whose status is restored too. Absent: none.
    pub restore_status: Option<RestoreStatusFilter>,
    /// Whether services keep the node ports they had.
    pub preserve_node_ports: Option<bool>,
    /// Whether objects without a namespace are restored. Absent: only those that are needed.
    pub include_cluster_resources: Option<bool>,
    /// Commands and containers to run in restored pods.
    pub hooks: Option<RestoreHooks>,
    /// What happens to an object that exists already: `none` leaves it, `update` patches it.
    pub existing_resource_policy: Option<String>,
    /// How long work that goes on in the background may take for one item.
    pub item_operation_timeout: Option<GoDuration>,
    /// `ConfigMap` in the server's namespace with changes to make to restored objects.
    pub resource_modifier: Option<LocalReference>,
    /// How files are downloaded.
    pub uploader_config: Option<RestoreUploader>,
}

/// Resource types whose status is restored.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreStatusFilter {
    /// Types to restore the status of. Empty: all.
    pub included_resources: Option<Vec<String>>,
    /// Types to leave out.
    pub excluded_resources: Option<Vec<String>>,
}

/// How files of a restore are downloaded.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreUploader {
    /// Whether blocks of zeroes become holes.
    pub write_sparse_files: Option<bool>,
    /// How many files are downloaded at once.
    pub parallel_files_download: Option<i64>,
}

words! {
    /// How far a restore is.
    open RestorePhase {
        New = "New",
        FailedValidation = "FailedValidation",
        InProgress = "InProgress",
        WaitingForPluginOperations = "WaitingForPluginOperations",
        WaitingForPluginOperationsPartiallyFailed = "WaitingForPluginOperationsPartiallyFailed",
        Finalizing = "Finalizing",
        FinalizingPartiallyFailed = "FinalizingPartiallyFailed",
        Completed = "Completed",
        PartiallyFailed = "PartiallyFailed",
        Failed = "Failed",
    }
}

/// What has become of a restore.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreStatus {
    /// How far the restore is.
    pub phase: Option<RestorePhase>,
    /// What is wrong with the spec.
    pub validation_errors: Option<Vec<String>>,
    /// Warnings of the restore.
    pub warnings: Option<i64>,
    /// Errors of the restore.
    pub errors: Option<i64>,
    /// Why the restore as a whole failed.
    pub failure_reason: Option<String>,
    /// When work on the restore began.
    pub start_timestamp: Option<Time>,
    /// When it ended, well or badly.
    pub completion_timestamp: Option<Time>,
    /// How many objects are done.
    pub progress: Option<RestoreProgress>,
    /// Background operations that were started.
    pub restore_item_operations_attempted: Option<i64>,
    /// Background operations that ended well.
    pub restore_item_operations_completed: Option<i64>,
    /// Background operations that failed.
    pub restore_item_operations_failed: Option<i64>,
    /// How many hooks ran.
    pub hook_status: Option<HookCount>,
}

/// How many objects of a restore are done.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreProgress {
    /// Objects known so far; it may grow while the restore runs.
    pub total_items: Option<i64>,
    /// Objects handled so far.
    pub items_restored: Option<i64>,
}
