//! `velero.io`: cluster backups and restores, their stores and the movers of volume data.
//!
//! Owns the shape of these resources. Their status is written with the object itself: peers create
//! objects together with their status when they read a store, so there is no `/status` door.

mod backup;
mod hooks;
mod location;
mod mover;
mod podvolume;
mod repository;
mod request;
mod restore;
mod schedule;

pub use backup::{
    Backup, BackupPhase, BackupProgress, BackupSpec, BackupStatus, BackupUploader, HookCount,
    TemplateMetadata,
};
pub use hooks::{
    BackupHook, BackupHookResource, BackupHooks, ExecHook, ExecRestoreHook, HookError,
    InitRestoreHook, RestoreHook, RestoreHookResource, RestoreHooks,
};
pub use location::{
    AccessMode, BackupStorageLocation, BackupStorageLocationSpec, BackupStorageLocationStatus,
    LocationPhase, ObjectStorage, VolumeSnapshotLocation, VolumeSnapshotLocationSpec,
    VolumeSnapshotLocationStatus,
};
pub use mover::{
    CsiSnapshot, DataDownload, DataDownloadSpec, DataDownloadStatus, DataUpload, DataUploadSpec,
    DataUploadStatus, NodeOs, SnapshotType, TargetVolume,
};
pub use podvolume::{
    ByteProgress, MoverPhase, PodVolumeBackup, PodVolumeBackupSpec, PodVolumeBackupStatus,
    PodVolumeRestore, PodVolumeRestoreSpec, PodVolumeRestoreStatus, UploaderKind,
};
pub use repository::{
    BackupRepository, BackupRepositorySpec, BackupRepositoryStatus, Maintenance, MaintenanceResult,
    RepositoryKind, RepositoryPhase,
};
pub use request::{
    DeleteBackupRequest, DeleteBackupRequestSpec, DeleteBackupRequestStatus, DeletePhase,
    DownloadKind, DownloadPhase, DownloadRequest, DownloadRequestSpec, DownloadRequestStatus,
    DownloadTarget, Plugin, ServerStatusPhase, ServerStatusRequest, ServerStatusRequestSpec,
    ServerStatusRequestStatus,
};
pub use restore::{
    Restore, RestorePhase, RestoreProgress, RestoreSpec, RestoreStatus, RestoreStatusFilter,
    RestoreUploader,
};
pub use schedule::{Schedule, SchedulePhase, ScheduleSpec, ScheduleStatus};
use serde_json::Value;

use crate::resource::{Dialect, Kind, SpecRule, StatusDoor};

/// The kinds people write.
pub const V1: Dialect = Dialect {
    group: "velero.io",
    version: "v1",
    category: "velero",
    status: StatusDoor::Main,
    spec: SpecRule::Optional,
};

/// The movers of snapshot data.
pub const V2ALPHA1: Dialect = Dialect { version: "v2alpha1", ..V1 };

pub(crate) fn crds() -> Vec<Value> {
    vec![
        Backup::crd(),
        Restore::crd(),
        Schedule::crd(),
        BackupStorageLocation::crd(),
        VolumeSnapshotLocation::crd(),
        DeleteBackupRequest::crd(),
        DownloadRequest::crd(),
        ServerStatusRequest::crd(),
        BackupRepository::crd(),
        PodVolumeBackup::crd(),
        PodVolumeRestore::crd(),
        DataUpload::crd(),
        DataDownload::crd(),
    ]
}
