//! Volumes: what a volume is to be, and what it is.

use std::collections::BTreeMap;

use super::V1BETA2;
use super::backup::{BlockSize, Compression, known_block_size};
use super::condition::Condition;
use super::rules;
use super::share::ShareManagerState;
use crate::resource::{AGE, resource, text, wide};
use crate::scalar::{Stamp, TextInt};
use crate::schema::{immutable, settled};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A block device kept in several copies.
    Volume in V1BETA2 {
        plural: "volumes",
        short: ["lhv"],
        spec: VolumeSpec,
        status: VolumeStatus,
        columns: [
            text("Data Engine", ".spec.dataEngine"),
            text("State", ".status.state"),
            text("Robustness", ".status.robustness"),
            text("Scheduled", ".status.conditions[?(@.type=='Scheduled')].status"),
            text("Size", ".spec.size"),
            text("Node", ".status.currentNodeID"),
            wide("Switchover", ".status.switchoverState"),
            AGE,
        ],
        rules: [rules::NEVER_SHRINKS, rules::NAME, rules::NO_FRONTEND, rules::STAYS_ACTIVE],
    }
}

words! {
    /// How a volume appears on the node it is attached to.
    open Frontend {
        BlockDevice = "blockdev",
        Iscsi = "iscsi",
        Nvmf = "nvmf",
        Ublk = "ublk",
        /// Not at all, as a volume that only follows backups.
        None = "",
    }
}

words! {
    /// A volume's own answer to a question that a setting answers for all.
    open Override {
        /// As the setting says.
        Ignored = "ignored",
        Enabled = "enabled",
        Disabled = "disabled",
    }
}

words! {
    /// Whether a copy is kept where the volume is attached.
    open DataLocality {
        Disabled = "disabled",
        BestEffort = "best-effort",
        /// The only copy is there, and the volume does not move.
        StrictLocal = "strict-local",
    }
}

words! {
    /// Whether copies are moved to even out nodes and zones.
    open AutoBalance {
        Ignored = "ignored",
        Disabled = "disabled",
        LeastEffort = "least-effort",
        BestEffort = "best-effort",
    }
}

words! {
    /// Who may use a volume at one time.
    open AccessMode {
        ReadWriteOnce = "rwo",
        ReadWriteOncePod = "rwop",
        ReadWriteMany = "rwx",
        /// Taken from the backup a volume is restored from, or from the claim.
        Unset = "",
    }
}

words! {
    /// Whether snapshots are checked for silent damage.
    open DataIntegrity {
        Ignored = "ignored",
        Disabled = "disabled",
        Enabled = "enabled",
        FastCheck = "fast-check",
    }
}

words! {
    /// The kind of engine that serves a volume.
    open DataEngine {
        V1 = "v1",
        V2 = "v2",
    }
}

words! {
    /// How a clone gets its data.
    open CloneMode {
        FullCopy = "full-copy",
        LinkedClone = "linked-clone",
        Unset = "",
    }
}

/// What a volume is to be.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules::volume)]
pub struct VolumeSpec {
    /// Size in bytes, a multiple of 2 MiB. A restored volume takes the size of its backup.
    pub size: Option<TextInt>,
    /// How the volume appears on its node. Empty for a standby volume.
    pub frontend: Option<Frontend>,
    /// URL of the backup to restore from. Cannot be changed.
    #[schemars(transform = settled)]
    pub from_backup: Option<String>,
    /// Keep following the newest backup of the source. Setting it to false asks for activation.
    #[serde(rename = "Standby")]
    pub standby: Option<bool>,
    /// Whether recurring jobs recorded in the backup come back with it.
    pub restore_volume_recurring_job: Option<Override>,
    /// Volume or snapshot to clone: `vol://<volume>` or `snap://<volume>/<snapshot>`. Cannot be
    /// changed.
    #[schemars(transform = rules::data_source)]
    pub data_source: Option<String>,
    /// How a clone gets its data.
    pub clone_mode: Option<CloneMode>,
    /// How many copies are kept, 1 to 20.
    #[schemars(range(min = 0, max = 20))]
    pub number_of_replicas: Option<i32>,
    /// Minutes after which a failed copy may be deleted. 0: never.
    #[schemars(range(min = 0))]
    pub stale_replica_timeout: Option<i32>,
    /// Node to attach to. Written by the attachment controller alone.
    #[serde(rename = "nodeID")]
    pub node_id: Option<String>,
    /// Node to migrate to.
    #[serde(rename = "migrationNodeID")]
    pub migration_node_id: Option<String>,
    /// Engine image that serves the volume.
    pub image: Option<String>,
    /// Image that is the bottom layer of the volume. Not served here.
    #[schemars(transform = rules::no_backing_image)]
    pub backing_image: Option<String>,
    /// Tags of disks that may hold copies.
    #[schemars(transform = rules::tags)]
    pub disk_selector: Option<Vec<String>>,
    /// Tags of nodes that may hold copies.
    #[schemars(transform = rules::tags)]
    pub node_selector: Option<Vec<String>>,
    /// Regions and zones that may hold copies.
    pub topology_requirement: Option<Vec<BTreeMap<String, String>>>,
    /// Attach without the frontend.
    pub disable_frontend: Option<bool>,
    /// Who last asked to attach the volume.
    pub last_attached_by: Option<String>,
    /// Whether a copy is kept where the volume is attached.
    pub data_locality: Option<DataLocality>,
    /// Whether copies may share a node.
    pub replica_soft_anti_affinity: Option<Override>,
    /// Whether copies may share a zone.
    pub replica_zone_soft_anti_affinity: Option<Override>,
    /// Whether copies may share a disk.
    pub replica_disk_soft_anti_affinity: Option<Override>,
    /// Whether copies are moved to even out nodes and zones.
    pub replica_auto_balance: Option<AutoBalance>,
    /// Who may use the volume at one time.
    pub access_mode: Option<AccessMode>,
    /// How many snapshots there may be, 2 to 250. 0: as the setting says.
    #[schemars(transform = rules::snapshot_count)]
    pub snapshot_max_count: Option<i32>,
    /// Bytes all snapshots may take together. 0: no limit; otherwise at least twice the size.
    pub snapshot_max_size: Option<TextInt>,
    /// How backups are compressed. Cannot be changed.
    #[schemars(transform = immutable)]
    pub backup_compression_method: Option<Compression>,
    /// Size of the blocks of backups. Cannot be changed, unless it was unknown.
    #[schemars(transform = known_block_size)]
    pub backup_block_size: Option<BlockSize>,
    /// Backup target that receives backups.
    pub backup_target_name: Option<String>,
    /// Whether missing copies are made while the volume is detached.
    pub offline_rebuilding: Option<Override>,
    /// Megabytes per second a rebuild may take; v2 only. 0: as the setting says.
    pub replica_rebuilding_bandwidth_limit: Option<i64>,
    /// Files copied at once in one rebuild, 1 to 5. 0: as the setting says.
    #[schemars(range(min = 0, max = 5))]
    pub rebuild_concurrent_sync_limit: Option<i32>,
    /// Whether file systems are frozen while a snapshot is taken.
    pub freeze_filesystem_for_snapshot: Option<Override>,
    /// Whether snapshots are checked for silent damage.
    pub snapshot_data_integrity: Option<DataIntegrity>,
    /// Whether trimming marks the snapshots below as removed.
    pub unmap_mark_snap_chain_removed: Option<Override>,
    /// Whether the data is encrypted. Cannot be changed.
    #[schemars(transform = immutable)]
    pub encrypted: Option<bool>,
    /// Whether the volume can be attached to two nodes while it migrates.
    pub migratable: Option<bool>,
    /// Whether writes are not counted, which is faster.
    pub revision_counter_disabled: Option<bool>,
    /// Kind of engine that serves the volume. Cannot be changed.
    #[schemars(transform = rules::data_engine)]
    pub data_engine: Option<DataEngine>,
}

words! {
    /// Where a volume is between detached and attached.
    loose VolumeState {
        Creating = "creating",
        Attached = "attached",
        Detached = "detached",
        Attaching = "attaching",
        Detaching = "detaching",
        Deleting = "deleting",
        /// Not yet seen by a controller.
        Unset = "",
    }
}

words! {
    /// How many of its copies a volume has.
    loose Robustness {
        Healthy = "healthy",
        Degraded = "degraded",
        Faulted = "faulted",
        Unknown = "unknown",
        Unset = "",
    }
}

words! {
    /// How far a clone is.
    loose CloneState {
        Unset = "",
        Initiated = "initiated",
        CopyCompletedAwaitingHealthy = "copy-completed-awaiting-healthy",
        Completed = "completed",
        Failed = "failed",
    }
}

/// What a volume is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// Node whose manager is responsible for the volume.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Where the volume is between detached and attached.
    pub state: Option<VolumeState>,
    /// Whether it has all its copies.
    pub robustness: Option<Robustness>,
    /// Node it is attached to.
    #[serde(rename = "currentNodeID")]
    pub current_node_id: Option<String>,
    /// Node it is migrating to.
    #[serde(rename = "currentMigrationNodeID")]
    pub current_migration_node_id: Option<String>,
    /// Engine image that serves it now.
    pub current_image: Option<String>,
    /// The right to the volume that was given last; each attachment gets a higher one.
    pub claim_generation: Option<i64>,
    /// Why the volume is as it is.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Newest backup: of this volume, or of the source while it restores.
    pub last_backup: Option<String>,
    /// When that backup was made.
    pub last_backup_at: Option<Stamp>,
    /// Whether a restore was ever set up. Never goes back to false.
    pub restore_initiated: Option<bool>,
    /// Whether the volume still has to restore before it can be used.
    pub restore_required: Option<bool>,
    /// Whether it is a standby volume. Stays true until activation is done.
    pub is_standby: Option<bool>,
    /// Whether it is growing to its new size.
    pub expansion_required: Option<bool>,
    /// Bytes its data takes.
    pub actual_size: Option<i64>,
    /// Whether it is attached without its frontend.
    pub frontend_disabled: Option<bool>,
    /// When users of the volume were last to mount it anew.
    pub remount_requested_at: Option<Stamp>,
    /// When it last lost a copy.
    pub last_degraded_at: Option<Stamp>,
    /// When it last came back from failed copies by itself.
    pub last_auto_salvaged_at: Option<Stamp>,
    /// Claim and workloads that use it.
    pub kubernetes_status: Option<KubernetesStatus>,
    /// How far it is as a clone.
    pub clone_status: Option<VolumeCloneStatus>,
    /// Address from which many nodes can mount it.
    pub share_endpoint: Option<String>,
    /// State of the service behind that address.
    pub share_state: Option<ShareManagerState>,
    /// How far a change of its engine is; v2 only.
    pub switchover_state: Option<String>,
}

/// Claim and workloads that use a volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesStatus {
    /// Persistent volume that stands for it.
    pub pv_name: Option<String>,
    /// Phase of that persistent volume.
    pub pv_status: Option<String>,
    /// Namespace of the claim.
    pub namespace: Option<String>,
    /// Name of the claim.
    pub pvc_name: Option<String>,
    /// When the claim was last seen, if it is gone.
    #[serde(rename = "lastPVCRefAt")]
    pub last_pvc_ref_at: Option<Stamp>,
    /// When a pod was last seen, if all are gone.
    pub last_pod_ref_at: Option<Stamp>,
    /// Pods that use it, or did.
    pub workloads_status: Option<Vec<Workload>>,
}

/// A pod that uses a volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Name of the pod.
    pub pod_name: Option<String>,
    /// Phase of the pod.
    pub pod_status: Option<String>,
    /// What the pod belongs to.
    pub workload_name: Option<String>,
    /// Kind of what the pod belongs to.
    pub workload_type: Option<String>,
}

/// How far a clone is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeCloneStatus {
    /// Volume it is a clone of.
    pub source_volume: Option<String>,
    /// Snapshot it is a clone of.
    pub snapshot: Option<String>,
    /// How far it is.
    pub state: Option<CloneState>,
    /// Times it was tried.
    pub attempt_count: Option<i32>,
    /// When it may be tried again.
    pub next_allowed_attempt_at: Option<Stamp>,
}
