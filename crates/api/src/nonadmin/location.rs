//! A tenant's own stores, and the administrator's word on them.

use super::{Phase, V1ALPHA1};
use crate::condition::Condition;
use crate::mirror::Mirror;
use crate::resource::{AGE, resource, text};
use crate::velero;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A tenant's own place in an object store, for its backups alone.
    NonAdminBackupStorageLocation in V1ALPHA1 {
        plural: "nonadminbackupstoragelocations",
        short: ["nabsl"],
        spec: NonAdminBackupStorageLocationSpec,
        status: NonAdminBackupStorageLocationStatus,
        columns: [
            text(
                "Request-Approved",
                ".status.conditions[?(@.type=='ClusterAdminApproved')].status",
            ),
            text("Request-Phase", ".status.phase"),
            text("Velero-Phase", ".status.veleroBackupStorageLocation.status.phase"),
            AGE,
        ],
    }
}

/// How the tenant's store is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminBackupStorageLocationSpec {
    /// Spec of the Velero location. Its credential names a Secret in this namespace.
    #[schemars(required)]
    pub backup_storage_location_spec: Option<velero::BackupStorageLocationSpec>,
}

/// What has become of the request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminBackupStorageLocationStatus {
    /// Where the request is in its life; not whether the store can be reached.
    pub phase: Option<Phase>,
    /// What the request has or has not passed, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// The Velero location made for this request.
    pub velero_backup_storage_location: Option<VeleroBackupStorageLocation>,
}

/// The Velero location made for a request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VeleroBackupStorageLocation {
    /// Identity shared by the request and the Velero location.
    pub nacuuid: Option<String>,
    /// Name of the Velero location.
    pub name: Option<String>,
    /// Namespace of the Velero location.
    pub namespace: Option<String>,
    /// Its status, as Velero has it.
    pub status: Option<Mirror<velero::BackupStorageLocationStatus>>,
}

words! {
    /// An administrator's word on a tenant's store.
    closed Approval {
        Approve = "approve",
        Reject = "reject",
        Pending = "pending",
    }
}

words! {
    /// What an administrator's word has led to.
    closed RequestPhase {
        Pending = "Pending",
        Approved = "Approved",
        Rejected = "Rejected",
    }
}

resource! {
    /// A question to administrators: may this tenant use this store?
    NonAdminBackupStorageLocationRequest in V1ALPHA1 {
        plural: "nonadminbackupstoragelocationrequests",
        short: ["nabslrequest"],
        spec: NonAdminBackupStorageLocationRequestSpec,
        status: NonAdminBackupStorageLocationRequestStatus,
        columns: [
            text("Request-Phase", ".status.phase"),
            text("Request-Namespace", ".status.nonAdminBackupStorageLocation.namespace"),
            text("Request-Name", ".status.nonAdminBackupStorageLocation.name"),
            AGE,
        ],
    }
}

/// The administrator's answer.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminBackupStorageLocationRequestSpec {
    /// `approve`, `reject` or `pending`; absent is pending. Taking an approval back closes the
    /// store to the tenant.
    pub approval_decision: Option<Approval>,
}

/// What is asked, and how it stands.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminBackupStorageLocationRequestStatus {
    /// How the request stands.
    pub phase: Option<RequestPhase>,
    /// The tenant's location, as it was when the question was put.
    pub non_admin_backup_storage_location: Option<RequestedLocation>,
}

/// A tenant's location as it was asked for.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedLocation {
    /// Identity shared by the tenant's location and the Velero one.
    pub nacuuid: Option<String>,
    /// Name of the tenant's location.
    pub name: Option<String>,
    /// Namespace of the tenant's location.
    pub namespace: Option<String>,
    /// Its spec, word for word.
    #[schemars(required)]
    pub requested_spec: Option<Mirror<velero::BackupStorageLocationSpec>>,
}
