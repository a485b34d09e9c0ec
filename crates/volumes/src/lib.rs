//! Replicated volumes and their backups as `longhorn.io/v1beta2` resources: the control plane.
//!
//! Each kind has a module of its own: what is to be done is decided by a pure function of what was
//! seen (`decide`), and the rest of the module reads caches and writes what differs. Processes are
//! known through resources only: the controllers say what is to run where (`spec`), a node says what
//! runs (`status`), and neither writes what is the other's.
//!
//! | module | resources |
//! |---|---|
//! | [`volume`], [`attachment`] | `Volume`, `VolumeAttachment`: where a volume is, how whole it is |
//! | [`engine`], [`replica`], [`snapshot`] | the engine as it reports itself; copies; snapshots |
//! | [`setting`], [`image`] | `Setting`, `EngineImage`: what is there from the start |
//! | [`instances`], [`node`], [`schedule`] | processes of a node; `Node`, `InstanceManager`; where copies go |
//! | [`figures`] | what is told of single objects for `/metrics` |
//! | [`backup`], [`target`], [`job`], [`system`] | `Backup`, `BackupVolume`, `BackupTarget`, `RecurringJob`, `SystemBackup` |
#![forbid(unsafe_code)]

pub mod attachment;
pub mod backup;
pub mod claim;
pub(crate) mod cron;
pub mod engine;
pub mod figures;
pub mod image;
pub mod instances;
pub mod job;
pub mod node;
pub mod replica;
pub mod schedule;
pub mod setting;
pub mod snapshot;
pub mod system;
pub mod target;
pub mod volume;
pub(crate) mod work;

use reconcile::Controller;

/// Where everything of this dialect lives.
pub const NAMESPACE: &str = "longhorn-system";
/// The finalizer of every object that has something behind it.
pub const FINALIZER: &str = "longhorn.io";
/// The finalizer of a copy whose data may be the last there is. It goes when its volume says so.
pub const DATA: &str = "holdfast.io/data";

/// Labels that carry meaning.
pub mod label {
    /// The volume an engine, replica, snapshot or attachment belongs to.
    pub const VOLUME: &str = "longhornvolume";
    /// The node of an engine or replica.
    pub const NODE: &str = "longhornnode";
    /// The disk of a replica.
    pub const DISK: &str = "longhorndiskuuid";
    /// The volume a backup was made of; on a volume, the one it is restored from.
    pub const BACKUP_VOLUME: &str = "backup-volume";
    pub const BACKUP_TARGET: &str = "backup-target";
    /// In the store: who might use the volume at one time.
    pub const ACCESS_MODE: &str = "longhorn.io/volume-access-mode";
    /// Deletes the object and leaves the data in the store.
    pub const OBJECT_ONLY: &str = "longhorn.io/delete-custom-resource-only";
}

/// The controllers of this crate. Each module has its own.
pub fn controllers() -> Vec<Controller> {
    [
        volume::CONTROLLERS,
        &[node::watch::CONTROLLER],
        backup::CONTROLLERS,
        target::CONTROLLERS,
        job::CONTROLLERS,
        system::CONTROLLERS,
    ]
    .concat()
}
