//! `longhorn.io`: replicated volumes, their engines and replicas, and their backups.
//!
//! Owns the shape of these resources. Two machines never share a field: a replica's mode is on its
//! engine, its health on itself; a backup's creation error and its deletion messages are apart.

mod attachment;
mod backup;
mod condition;
mod engine;
mod image;
mod instance;
mod job;
mod manager;
mod node;
mod orphan;
mod replica;
mod rules;
mod setting;
mod share;
mod snapshot;
mod support;
mod system;
mod target;
mod volume;

pub use attachment::{
    AttacherType, AttachmentTicket, AttachmentTicketStatus, VolumeAttachment, VolumeAttachmentSpec,
    VolumeAttachmentStatus,
};
pub use backup::{
    Backup, BackupDeletion, BackupMode, BackupSpec, BackupState, BackupStatus, BackupUpload,
    BackupVerification, BackupVolume, BackupVolumeSpec, BackupVolumeStatus, BlockSize, Compression,
};
pub use condition::Condition;
pub use engine::{
    Engine, EngineBackupStatus, EngineCloneStatus, EnginePurgeStatus, EngineRebuildStatus,
    EngineRestoreStatus, EngineSnapshot, EngineSpec, EngineStatus, ProgressState, ReplicaMode,
};
pub use image::{EngineImage, EngineImageSpec, EngineImageState, EngineImageStatus};
pub use instance::{InstanceSpec, InstanceState, InstanceStatus};
pub use job::{RecurringJob, RecurringJobSpec, RecurringJobStatus, RecurringTask, RetentionPolicy};
pub use manager::{
    InstanceManager, InstanceManagerSpec, InstanceManagerState, InstanceManagerStatus,
    InstanceManagerType, InstanceProcess, ProcessSpec, ProcessStatus,
};
pub use node::{Disk, DiskStatus, DiskType, Node, NodeSpec, NodeStatus, SnapshotCheck};
pub use orphan::{Orphan, OrphanSpec, OrphanStatus, OrphanType};
pub use replica::{Replica, ReplicaSpec, ReplicaStatus};
pub use rules::{CHOICES, RANGES, SWITCHES, allowed};
use serde_json::Value;
pub use setting::{Setting, SettingStatus};
pub use share::{ShareManager, ShareManagerSpec, ShareManagerState, ShareManagerStatus};
pub use snapshot::{Snapshot, SnapshotSpec, SnapshotStatus};
pub use support::{SupportBundle, SupportBundleSpec, SupportBundleState, SupportBundleStatus};
pub use system::{
    SystemBackup, SystemBackupSpec, SystemBackupStatus, SystemRestore, SystemRestoreSpec,
    SystemRestoreStatus, SystemState, VolumeBackupPolicy,
};
pub use target::{
    BackupTarget, BackupTargetSpec, BackupTargetStatus, TargetVerification, TargetVerified,
    VerificationDepth,
};
pub use volume::{
    AccessMode, AutoBalance, CloneMode, CloneState, DataEngine, DataIntegrity, DataLocality,
    Frontend, KubernetesStatus, Override, Robustness, Volume, VolumeCloneStatus, VolumeSpec,
    VolumeState, VolumeStatus, Workload,
};

use crate::resource::{Dialect, Kind, SpecRule, StatusDoor};

pub const V1BETA2: Dialect = Dialect {
    group: "longhorn.io",
    version: "v1beta2",
    category: "longhorn",
    status: StatusDoor::Subresource,
    spec: SpecRule::Optional,
};

pub(crate) fn crds() -> Vec<Value> {
    vec![
        Volume::crd(),
        Engine::crd(),
        Replica::crd(),
        Snapshot::crd(),
        Backup::crd(),
        BackupVolume::crd(),
        BackupTarget::crd(),
        RecurringJob::crd(),
        Node::crd(),
        InstanceManager::crd(),
        Setting::crd(),
        EngineImage::crd(),
        VolumeAttachment::crd(),
        Orphan::crd(),
        SystemBackup::crd(),
        SystemRestore::crd(),
        ShareManager::crd(),
        SupportBundle::crd(),
    ]
}
