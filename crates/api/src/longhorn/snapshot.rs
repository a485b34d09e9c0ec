//! Snapshots of volumes.

use std::collections::BTreeMap;

use super::V1BETA2;
use crate::resource::{AGE, column, resource, text};
use crate::scalar::Stamp;
use crate::schema::immutable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A volume as it was at one moment.
    Snapshot in V1BETA2 {
        plural: "snapshots",
        short: ["lhsnap"],
        spec: SnapshotSpec,
        status: SnapshotStatus,
        columns: [
            text("Volume", ".spec.volume"),
            text("CreationTime", ".status.creationTime"),
            column("ReadyToUse", "boolean", ".status.readyToUse"),
            column("RestoreSize", "integer", ".status.restoreSize"),
            column("Size", "integer", ".status.size"),
            AGE,
        ],
    }
}

/// Which snapshot is wanted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSpec {
    /// Volume it is of. Cannot be changed.
    #[schemars(required, transform = immutable)]
    pub volume: Option<String>,
    /// Whether this asks to take it, rather than telling of one that exists.
    pub create_snapshot: Option<bool>,
    /// Labels to keep with it.
    pub labels: Option<BTreeMap<String, String>>,
}

/// What has become of a snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Snapshot below it.
    pub parent: Option<String>,
    /// Snapshots above it.
    pub children: Option<BTreeMap<String, bool>>,
    /// Whether it is to go as soon as it can be merged.
    pub mark_removed: Option<bool>,
    /// Whether a user asked for it, rather than the system.
    pub user_created: Option<bool>,
    /// When the engine was asked to take it.
    pub requested_time: Option<Stamp>,
    /// When it was taken.
    pub creation_time: Option<Stamp>,
    /// Bytes its own data takes.
    pub size: Option<i64>,
    /// Labels it has.
    pub labels: Option<BTreeMap<String, String>>,
    /// Why it could not be taken, or was lost.
    pub error: Option<String>,
    /// Bytes a volume made from it needs.
    pub restore_size: Option<i64>,
    /// Whether it can be used.
    pub ready_to_use: Option<bool>,
    /// Checksum of its data.
    pub checksum: Option<String>,
    /// When that checksum was computed.
    pub checksum_calculated_at: Option<Stamp>,
}
