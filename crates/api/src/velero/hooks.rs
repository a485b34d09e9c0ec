//! Commands that run in pods around a backup or a restore.

use crate::duration::GoDuration;
use crate::scalar::Raw;
use crate::selector::LabelSelector;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

words! {
    /// What a failing hook does to the item it belongs to.
    open HookError {
        Continue = "Continue",
        Fail = "Fail",
    }
}

/// Hooks of a backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupHooks {
    /// Hooks, each with the pods it is for.
    pub resources: Option<Vec<BackupHookResource>>,
}

/// Hooks of a backup for some pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupHookResource {
    /// Name of this entry, for logs.
    pub name: String,
    /// Namespaces the hooks are for. Empty: all.
    pub included_namespaces: Option<Vec<String>>,
    /// Namespaces the hooks are not for.
    pub excluded_namespaces: Option<Vec<String>>,
    /// Resource types the hooks are for.
    pub included_resources: Option<Vec<String>>,
    /// Resource types the hooks are not for.
    pub excluded_resources: Option<Vec<String>>,
    /// Labels of the pods the hooks are for.
    pub label_selector: Option<LabelSelector>,
    /// Run before the pod is taken, in this order.
    pub pre: Option<Vec<BackupHook>>,
    /// Run after the pod and what came with it are taken, in this order.
    pub post: Option<Vec<BackupHook>>,
}

/// One hook of a backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupHook {
    /// Command to run in the pod.
    pub exec: ExecHook,
}

/// A command in a container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecHook {
    /// Container to run in. Absent: the first one.
    pub container: Option<String>,
    /// Program and arguments.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// Whether a failure counts against the pod (Fail) or not (Continue).
    pub on_error: Option<HookError>,
    /// How long the command may run.
    pub timeout: Option<GoDuration>,
}

/// Hooks of a restore.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreHooks {
    /// Hooks, each with the pods it is for.
    pub resources: Option<Vec<RestoreHookResource>>,
}

/// Hooks of a restore for some pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreHookResource {
    /// Name of this entry, for logs.
    pub name: String,
    /// Namespaces the hooks are for. Empty: all.
    pub included_namespaces: Option<Vec<String>>,
    /// Namespaces the hooks are not for.
    pub excluded_namespaces: Option<Vec<String>>,
    /// Resource types the hooks are for.
    pub included_resources: Option<Vec<String>>,
    /// Resource types the hooks are not for.
    pub excluded_resources: Option<Vec<String>>,
    /// Labels of the pods the hooks are for.
    pub label_selector: Option<LabelSelector>,
    /// Run for each restored pod, in this order.
    pub post_hooks: Option<Vec<RestoreHook>>,
}

/// One hook of a restore: a command, or containers that run first.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreHook {
    /// Command to run in a container of the restored pod.
    pub exec: Option<ExecRestoreHook>,
    /// Containers to run before those of the restored pod.
    pub init: Option<InitRestoreHook>,
}

/// A command in a container of a restored pod.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecRestoreHook {
    /// Container to run in. Absent: the first one.
    pub container: Option<String>,
    /// Program and arguments.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// Whether a failure makes the restore partially failed (Fail) or not (Continue).
    pub on_error: Option<HookError>,
    /// How long the command may run.
    pub exec_timeout: Option<GoDuration>,
    /// How long to wait for the container to run.
    pub wait_timeout: Option<GoDuration>,
    /// Whether to wait until the container is ready, rather than only running.
    pub wait_for_ready: Option<bool>,
}

/// Containers put in front of a restored pod's own.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitRestoreHook {
    /// Containers, as in a pod.
    pub init_containers: Option<Vec<Raw>>,
    /// How long they may take.
    pub timeout: Option<GoDuration>,
}
