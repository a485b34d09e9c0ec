//! Attachments: who wants a volume where.

use std::collections::BTreeMap;

use super::V1BETA2;
use super::condition::Condition;
use crate::resource::{AGE, resource};
use crate::schema::settled;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// All wishes to have one volume attached. It has the name of the volume.
    VolumeAttachment in V1BETA2 {
        plural: "volumeattachments",
        short: ["lhva"],
        spec: VolumeAttachmentSpec,
        status: VolumeAttachmentStatus,
        columns: [AGE],
    }
}

words! {
    /// Who wants a volume attached.
    loose AttacherType {
        CsiAttacher = "csi-attacher",
        LonghornApi = "longhorn-api",
        SnapshotController = "snapshot-controller",
        BackupController = "backup-controller",
        VolumeCloneController = "volume-clone-controller",
        SalvageController = "salvage-controller",
        ShareManagerController = "share-manager-controller",
        VolumeRestoreController = "volume-restore-controller",
        VolumeEvictionController = "volume-eviction-controller",
        VolumeExpansionController = "volume-expansion-controller",
        VolumeRebuildingController = "volume-rebuilding-controller",
        BackingImageDataSourceController = "bim-ds-controller",
    }
}

/// The wishes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttachmentSpec {
    /// Name of the volume. Cannot be changed.
    #[schemars(required, transform = settled)]
    pub volume: Option<String>,
    /// Wishes by their id.
    pub attachment_tickets: Option<BTreeMap<String, AttachmentTicket>>,
}

/// One wish.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentTicket {
    /// Its id.
    pub id: Option<String>,
    /// Who wishes.
    #[serde(rename = "type")]
    pub kind: Option<AttacherType>,
    /// Node the volume is wanted on.
    #[serde(rename = "nodeID")]
    pub node_id: Option<String>,
    /// How it is wanted: `disableFrontend` (true, false or any) and `lastAttachedBy`.
    pub parameters: Option<BTreeMap<String, String>>,
    /// Grows with every change of the wish.
    pub generation: Option<i64>,
}

/// How the wishes stand.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttachmentStatus {
    /// Wishes by their id.
    pub attachment_ticket_statuses: Option<BTreeMap<String, AttachmentTicketStatus>>,
}

/// How one wish stands.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentTicketStatus {
    /// Its id.
    pub id: Option<String>,
    /// Whether the volume is attached as wished.
    pub satisfied: bool,
    /// Why it is not.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// The change of the wish this is about.
    pub generation: Option<i64>,
}
