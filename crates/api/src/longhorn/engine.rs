//! Engines: the process that writes to all copies of a volume, and what it says of each.

use std::collections::BTreeMap;

use super::V1BETA2;
use super::instance::{InstanceSpec, InstanceStatus};
use super::rules;
use super::volume::Frontend;
use crate::resource::{AGE, resource, text};
use crate::scalar::{Stamp, TextInt};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// The engine that serves a volume and writes to its copies.
    Engine in V1BETA2 {
        plural: "engines",
        short: ["lhe"],
        spec: EngineSpec,
        status: EngineStatus,
        columns: [
            text("Data Engine", ".spec.dataEngine"),
            text("State", ".status.currentState"),
            text("Node", ".spec.nodeID"),
            text("InstanceManager", ".status.instanceManagerName"),
            text("Image", ".status.currentImage"),
            AGE,
        ],
    }
}

/// What an engine is to be.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules::one_volume)]
pub struct EngineSpec {
    /// What it is to be as a process.
    #[serde(flatten)]
    pub instance: InstanceSpec,
    /// How the volume appears on the node.
    pub frontend: Option<Frontend>,
    /// Serve without the frontend.
    pub disable_frontend: Option<bool>,
    /// Whether this engine, of all that the volume has, is the one in use.
    pub active: Option<bool>,
    /// Copies to write to: name of the replica to `ip:port`.
    pub replica_address_map: Option<BTreeMap<String, String>>,
    /// Copies to go on with after a live upgrade.
    pub upgraded_replica_address_map: Option<BTreeMap<String, String>>,
    /// The right to the volume that this engine is given: copies refuse one with a lower.
    pub claim_generation: Option<i64>,
    /// Backup volume to restore from.
    pub backup_volume: Option<String>,
    /// Name of the backup that is to be restored now.
    pub requested_backup_restore: Option<String>,
    /// Volume or snapshot to clone.
    pub requested_data_source: Option<String>,
    /// How many snapshots there may be.
    pub snapshot_max_count: Option<i32>,
    /// Bytes all snapshots may take together.
    pub snapshot_max_size: Option<TextInt>,
    /// Files copied at once in one rebuild.
    pub rebuild_concurrent_sync_limit: Option<i32>,
    /// Whether trimming marks the snapshots below as removed.
    pub unmap_mark_snap_chain_removed_enabled: Option<bool>,
}

words! {
    /// What an engine does with a copy.
    loose ReplicaMode {
        /// Reads from it and writes to it.
        ReadWrite = "RW",
        /// Only writes to it: it is being rebuilt.
        WriteOnly = "WO",
        /// Nothing: it failed.
        Error = "ERR",
    }
}

words! {
    /// How far a piece of work on a copy is.
    loose ProgressState {
        Unset = "",
        InProgress = "in_progress",
        Complete = "complete",
        Error = "error",
        Canceled = "canceled",
    }
}

/// What an engine is. The maps of work are keyed by the address of the copy, `tcp://ip:port`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineStatus {
    /// What it is as a process.
    #[serde(flatten)]
    pub instance: InstanceStatus,
    /// Size it serves, in bytes.
    pub current_size: Option<TextInt>,
    /// Copies it was started with or given: name of the replica to `ip:port`.
    pub current_replica_address_map: Option<BTreeMap<String, String>>,
    /// What it does with each copy, by the name of the replica. Absent: it has not said yet.
    pub replica_mode_map: Option<BTreeMap<String, ReplicaMode>>,
    /// When the mode of each copy last changed.
    pub replica_transition_time_map: Option<BTreeMap<String, Stamp>>,
    /// Where the volume appears.
    pub endpoint: Option<String>,
    /// The backup all copies have restored; empty while they differ.
    pub last_restored_backup: Option<String>,
    /// Restores, for each copy.
    pub restore_status: Option<BTreeMap<String, EngineRestoreStatus>>,
    /// Removals of snapshots, for each copy.
    pub purge_status: Option<BTreeMap<String, EnginePurgeStatus>>,
    /// Rebuilds, for each copy.
    pub rebuild_status: Option<BTreeMap<String, EngineRebuildStatus>>,
    /// Clones, for each copy.
    pub clone_status: Option<BTreeMap<String, EngineCloneStatus>>,
    /// Backups that run, by name.
    pub backup_status: Option<BTreeMap<String, EngineBackupStatus>>,
    /// Snapshots by name; `volume-head` is where writes go.
    pub snapshots: Option<BTreeMap<String, EngineSnapshot>>,
    /// Why snapshots could not be listed.
    pub snapshots_error: Option<String>,
    /// Whether it is growing.
    pub is_expanding: Option<bool>,
    /// Why it last failed to grow.
    pub last_expansion_error: Option<String>,
    /// When it last failed to grow.
    pub last_expansion_failed_at: Option<Stamp>,
}

/// A restore into one copy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineRestoreStatus {
    /// Whether it runs.
    pub is_restoring: Option<bool>,
    /// Backup the copy holds.
    pub last_restored: Option<String>,
    /// Backup that is being restored.
    pub current_restoring_backup: Option<String>,
    /// How far it is, 0 to 100.
    pub progress: Option<i32>,
    /// Why it failed.
    pub error: Option<String>,
    /// File of the copy that receives the data.
    pub filename: Option<String>,
    /// How far it is, as a word.
    pub state: Option<ProgressState>,
    /// URL of the backup.
    #[serde(rename = "backupURL")]
    pub backup_url: Option<String>,
}

/// A removal of snapshots from one copy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnginePurgeStatus {
    /// Whether it runs.
    pub is_purging: Option<bool>,
    /// How far it is, 0 to 100.
    pub progress: Option<i32>,
    /// How far it is, as a word.
    pub state: Option<ProgressState>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A rebuild of one copy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineRebuildStatus {
    /// Whether it runs.
    pub is_rebuilding: Option<bool>,
    /// How far it is, 0 to 100.
    pub progress: Option<i32>,
    /// How far it is, as a word.
    pub state: Option<ProgressState>,
    /// Why it failed.
    pub error: Option<String>,
    /// Addresses of the copies it reads from.
    pub from_replica_address_list: Option<Vec<String>>,
    /// Megabytes per second it may take.
    #[serde(rename = "appliedRebuildingMBps")]
    pub applied_rebuilding_mbps: Option<i64>,
}

/// A clone into one copy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineCloneStatus {
    /// Whether it runs.
    pub is_cloning: Option<bool>,
    /// How far it is, 0 to 100.
    pub progress: Option<i32>,
    /// How far it is, as a word.
    pub state: Option<ProgressState>,
    /// Why it failed.
    pub error: Option<String>,
    /// Address of the copy it reads from.
    pub from_replica_address: Option<String>,
    /// Snapshot it reads.
    pub snapshot_name: Option<String>,
}

/// A backup that runs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineBackupStatus {
    /// How far it is, 0 to 100.
    pub progress: Option<i32>,
    /// URL of the backup.
    #[serde(rename = "backupURL")]
    pub backup_url: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Snapshot it reads.
    pub snapshot_name: Option<String>,
    /// How far it is, as a word.
    pub state: Option<ProgressState>,
    /// Copy it reads from.
    pub replica_address: Option<String>,
}

/// A snapshot, as the engine knows it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineSnapshot {
    /// Its name.
    pub name: Option<String>,
    /// Snapshot below it.
    pub parent: Option<String>,
    /// Snapshots above it.
    pub children: Option<BTreeMap<String, bool>>,
    /// Whether it is to go as soon as it can be merged.
    pub removed: Option<bool>,
    /// Whether a user asked for it, rather than the system.
    pub usercreated: Option<bool>,
    /// When it was taken.
    pub created: Option<Stamp>,
    /// Bytes its own data takes, as text.
    pub size: Option<String>,
    /// Labels it was given.
    pub labels: Option<BTreeMap<String, String>>,
}
