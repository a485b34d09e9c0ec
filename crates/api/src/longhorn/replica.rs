//! Replicas: one copy of a volume, on one disk.

use super::V1BETA2;
use super::instance::{InstanceSpec, InstanceStatus};
use super::rules;
use crate::resource::{AGE, resource, text};
use crate::scalar::{Stamp, TextInt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// One copy of a volume.
    Replica in V1BETA2 {
        plural: "replicas",
        short: ["lhr"],
        spec: ReplicaSpec,
        status: ReplicaStatus,
        columns: [
            text("Data Engine", ".spec.dataEngine"),
            text("State", ".status.currentState"),
            text("Node", ".spec.nodeID"),
            text("Disk", ".spec.diskID"),
            text("InstanceManager", ".status.instanceManagerName"),
            text("Image", ".status.currentImage"),
            AGE,
        ],
    }
}

/// What a copy is to be, and what is remembered of it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules::replica)]
pub struct ReplicaSpec {
    /// What it is to be as a process.
    #[serde(flatten)]
    pub instance: InstanceSpec,
    /// Engine it belongs to.
    pub engine_name: Option<String>,
    /// Whether it is in use, rather than made ready for, or left over from, an upgrade.
    pub active: Option<bool>,
    /// When it first was complete after it was made or rebuilt; cleared before a rebuild.
    pub healthy_at: Option<Stamp>,
    /// When it last was complete. Never cleared.
    pub last_healthy_at: Option<Stamp>,
    /// When it failed; cleared before a rebuild or a salvage.
    pub failed_at: Option<Stamp>,
    /// When it last failed. Never cleared.
    pub last_failed_at: Option<Stamp>,
    /// Identity of its disk.
    #[serde(rename = "diskID")]
    pub disk_id: Option<String>,
    /// Path of its disk.
    pub disk_path: Option<String>,
    /// Its directory on the disk.
    pub data_directory_name: Option<String>,
    /// Node it must be on.
    pub hard_node_affinity: Option<String>,
    /// Rebuilds tried since it last was complete.
    pub rebuild_retry_count: Option<i32>,
    /// Asks to make a copy elsewhere and then drop this one.
    pub eviction_requested: Option<bool>,
    /// Image that is its bottom layer.
    pub backing_image: Option<String>,
    /// How many snapshots there may be.
    pub snapshot_max_count: Option<i32>,
    /// Bytes all snapshots may take together.
    pub snapshot_max_size: Option<TextInt>,
}

/// What a copy is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// What it is as a process.
    #[serde(flatten)]
    pub instance: InstanceStatus,
}
