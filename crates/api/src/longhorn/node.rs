//! Nodes and their disks.

use std::collections::BTreeMap;

use super::V1BETA2;
use super::condition::Condition;
use crate::resource::{AGE, column, resource, text};
use crate::scalar::{Raw, Stamp};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A machine that can hold copies of volumes.
    Node in V1BETA2 {
        plural: "nodes",
        short: ["lhn"],
        spec: NodeSpec,
        status: NodeStatus,
        columns: [
            text("Ready", ".status.conditions[?(@.type=='Ready')].status"),
            column("AllowScheduling", "boolean", ".spec.allowScheduling"),
            text("Schedulable", ".status.conditions[?(@.type=='Schedulable')].status"),
            AGE,
        ],
    }
}

words! {
    /// What a disk is.
    open DiskType {
        Filesystem = "filesystem",
        Block = "block",
        Unset = "",
    }
}

/// What a machine may be used for.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    /// Name of the machine.
    pub name: Option<String>,
    /// Its disks, by name.
    pub disks: Option<BTreeMap<String, Disk>>,
    /// Whether new copies may be put on it.
    pub allow_scheduling: Option<bool>,
    /// Asks to move all copies off it.
    pub eviction_requested: Option<bool>,
    /// Tags by which volumes choose nodes.
    pub tags: Option<Vec<String>>,
    /// Thousandths of a processor reserved for the instance manager.
    #[serde(rename = "instanceManagerCPURequest")]
    pub instance_manager_cpu_request: Option<i32>,
}

/// A disk.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// What it is.
    pub disk_type: Option<DiskType>,
    /// Where it is.
    pub path: Option<String>,
    /// Driver of a block disk.
    pub disk_driver: Option<String>,
    /// Whether new copies may be put on it.
    pub allow_scheduling: Option<bool>,
    /// Asks to move all copies off it.
    pub eviction_requested: Option<bool>,
    /// Bytes that are not for copies.
    pub storage_reserved: Option<i64>,
    /// Tags by which volumes choose disks.
    pub tags: Option<Vec<String>>,
}

/// How a machine is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Whether and why it can be used.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// How its disks are, by name.
    pub disk_status: Option<BTreeMap<String, DiskStatus>>,
    /// Region it is in.
    pub region: Option<String>,
    /// Zone it is in.
    pub zone: Option<String>,
    /// Whether copies are moved off it because it is being drained.
    pub auto_evicting: Option<bool>,
    /// When snapshots on it were last checked.
    pub snapshot_check_status: Option<SnapshotCheck>,
}

/// When snapshots were last checked.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotCheck {
    /// The newest check of all.
    pub last_periodic_checked_at: Option<Stamp>,
}

/// How a disk is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskStatus {
    /// Whether and why it can be used.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Bytes free.
    pub storage_available: Option<i64>,
    /// Bytes promised to copies.
    pub storage_scheduled: Option<i64>,
    /// Bytes in all.
    pub storage_maximum: Option<i64>,
    /// Copies on it, with the bytes promised to each.
    pub scheduled_replica: Option<BTreeMap<String, i64>>,
    /// Backing images on it, with the bytes promised to each.
    pub scheduled_backing_image: Option<BTreeMap<String, i64>>,
    /// Its identity, written on it.
    #[serde(rename = "diskUUID")]
    pub disk_uuid: Option<String>,
    /// Its name.
    pub disk_name: Option<String>,
    /// Where it is.
    pub disk_path: Option<String>,
    /// What it is.
    #[serde(rename = "diskType")]
    pub kind: Option<DiskType>,
    /// Driver of a block disk.
    pub disk_driver: Option<String>,
    /// Kind of file system on it.
    pub filesystem_type: Option<String>,
    /// Instance manager that serves it.
    pub instance_manager_name: Option<String>,
    /// What the hardware says of itself, by device.
    pub health_data: Option<BTreeMap<String, Raw>>,
    /// When the hardware was last asked.
    pub health_data_last_collected_at: Option<Stamp>,
}
