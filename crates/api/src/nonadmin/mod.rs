//! `oadp.openshift.io`: backups and restores that tenants ask for in their own namespaces.
//!
//! Owns the shape of these resources and the words of their phases and conditions. What Velero says
//! of its part is copied into them untouched, whatever version of Velero says it.

mod backup;
mod download;
mod location;
mod restore;
mod schedule;

pub use backup::{
    DataMoverCounts, FileSystemCounts, NonAdminBackup, NonAdminBackupSpec, NonAdminBackupStatus,
    QueueInfo, VeleroBackup, VeleroDeleteBackupRequest,
};
pub use download::{
    NonAdminDownloadRequest, NonAdminDownloadRequestSpec, NonAdminDownloadRequestStatus,
    VeleroDownloadRequest,
};
pub use location::{
    Approval, NonAdminBackupStorageLocation, NonAdminBackupStorageLocationRequest,
    NonAdminBackupStorageLocationRequestSpec, NonAdminBackupStorageLocationRequestStatus,
    NonAdminBackupStorageLocationSpec, NonAdminBackupStorageLocationStatus, RequestPhase,
    RequestedLocation, VeleroBackupStorageLocation,
};
pub use restore::{NonAdminRestore, NonAdminRestoreSpec, NonAdminRestoreStatus, VeleroRestore};
pub use schedule::{NonAdminSchedule, NonAdminScheduleSpec, NonAdminScheduleStatus};
use serde_json::Value;

use crate::resource::{Dialect, Kind, SpecRule, StatusDoor};
use crate::words::words;

pub const V1ALPHA1: Dialect = Dialect {
    group: "oadp.openshift.io",
    version: "v1alpha1",
    category: "oadp",
    status: StatusDoor::Subresource,
    spec: SpecRule::Required,
};

words! {
    /// Where a tenant's request is in its life. It only moves forward, in this order.
    closed Phase {
        /// Seen, not yet validated.
        New = "New",
        /// The spec is not valid; nothing happens until it is edited.
        BackingOff = "BackingOff",
        /// Valid, and handed to Velero. Says nothing of how that goes.
        Created = "Created",
        /// Marked for deletion.
        Deleting = "Deleting",
    }
}

/// Types of conditions on these resources.
pub mod condition {
    /// The request was validated, or refused with the reason.
    pub const ACCEPTED: &str = "Accepted";
    /// The Velero object was created.
    pub const QUEUED: &str = "Queued";
    /// Deletion is wanted and not yet done.
    pub const DELETING: &str = "Deleting";
    /// An administrator allowed the storage location.
    pub const CLUSTER_ADMIN_APPROVED: &str = "ClusterAdminApproved";
    /// An edit of an approved storage location was allowed, or refused.
    pub const SPEC_UPDATE_APPROVED: &str = "SpecUpdateApproved";
    /// The tenant's credentials were copied to where Velero reads them.
    pub const SECRET_SYNCED: &str = "SecretSynced";
    /// The Velero storage location was created or updated.
    pub const LOCATION_SYNCED: &str = "BackupStorageLocationSynced";
    /// The download address was made.
    pub const PROCESSED: &str = "Processed";
}

pub(crate) fn crds() -> Vec<Value> {
    vec![
        NonAdminBackup::crd(),
        NonAdminRestore::crd(),
        NonAdminBackupStorageLocation::crd(),
        NonAdminBackupStorageLocationRequest::crd(),
        NonAdminDownloadRequest::crd(),
        NonAdminSchedule::crd(),
    ]
}
