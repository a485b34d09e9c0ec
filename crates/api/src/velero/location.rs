//! Where backups and volume snapshots are kept.

use std::collections::BTreeMap;

use super::V1;
use crate::duration::GoDuration;
use crate::resource::{AGE, column, date, resource, text};
use crate::scalar::Time;
use crate::selector::SecretKey;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A place in an object store where backups are kept.
    BackupStorageLocation in V1 {
        plural: "backupstoragelocations",
        short: ["bsl"],
        spec: BackupStorageLocationSpec,
        status: BackupStorageLocationStatus,
        columns: [
            text("Phase", ".status.phase"),
            date("Last Validated", ".status.lastValidationTime"),
            AGE,
            column("Default", "boolean", ".spec.default"),
        ],
    }
}

/// How a place in an object store is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStorageLocationSpec {
    /// Kind of store; `aws` stands for every store that speaks S3.
    #[schemars(required)]
    pub provider: Option<String>,
    /// Bucket and place in it.
    #[schemars(required)]
    pub object_storage: Option<ObjectStorage>,
    /// Settings of the provider, such as `region`, `s3Url` and `s3ForcePathStyle`.
    pub config: Option<BTreeMap<String, String>>,
    /// Key of a Secret with the credentials, in the same namespace.
    pub credential: Option<SecretKey>,
    /// Whether backups that name no location go here.
    pub default: Option<bool>,
    /// Whether backups may be written here.
    pub access_mode: Option<AccessMode>,
    /// How often backups found in the store are brought into the cluster. 0: never.
    pub backup_sync_period: Option<GoDuration>,
    /// How often the store is checked. 0: once only.
    pub validation_frequency: Option<GoDuration>,
}

/// A bucket and a place in it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStorage {
    /// Name of the bucket.
    pub bucket: String,
    /// Path inside the bucket under which everything is kept.
    pub prefix: Option<String>,
    /// Certificate of the store's authority, as base64 of PEM. Use caCertRef instead.
    #[schemars(extend("format" = "byte"))]
    pub ca_cert: Option<String>,
    /// Key of a Secret with the certificate of the store's authority.
    pub ca_cert_ref: Option<SecretKey>,
}

words! {
    /// What may be done in a location.
    open AccessMode {
        ReadOnly = "ReadOnly",
        ReadWrite = "ReadWrite",
    }
}

words! {
    /// Whether a location can be reached.
    open LocationPhase {
        Available = "Available",
        Unavailable = "Unavailable",
    }
}

/// How a backup storage location is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStorageLocationStatus {
    /// Whether the store can be used.
    pub phase: Option<LocationPhase>,
    /// When backups in the store were last brought into the cluster.
    pub last_synced_time: Option<Time>,
    /// When the store was last checked.
    pub last_validation_time: Option<Time>,
    /// Why the store cannot be used.
    pub message: Option<String>,
    /// No longer written.
    pub last_synced_revision: Option<String>,
    /// No longer written.
    pub access_mode: Option<AccessMode>,
}

resource! {
    /// A place where a storage provider keeps volume snapshots.
    VolumeSnapshotLocation in V1 {
        plural: "volumesnapshotlocations",
        short: ["vsl"],
        spec: VolumeSnapshotLocationSpec,
        status: VolumeSnapshotLocationStatus,
        columns: [AGE],
    }
}

/// How a provider of volume snapshots is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotLocationSpec {
    /// Kind of provider.
    #[schemars(required)]
    pub provider: Option<String>,
    /// Settings of the provider.
    pub config: Option<BTreeMap<String, String>>,
    /// Key of a Secret with the credentials, in the same namespace.
    pub credential: Option<SecretKey>,
}

/// How a volume snapshot location is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotLocationStatus {
    /// Whether the provider can be used.
    pub phase: Option<LocationPhase>,
}
