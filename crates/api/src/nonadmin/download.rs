//! A tenant's requests for files of its backups and restores.

use super::{Phase, V1ALPHA1};
use crate::condition::Condition;
use crate::mirror::Mirror;
use crate::resource::{AGE, resource, text};
use crate::velero;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A tenant's request for an address from which a file of its backup or restore can be fetched.
    NonAdminDownloadRequest in V1ALPHA1 {
        plural: "nonadmindownloadrequests",
        short: ["nadr"],
        spec: NonAdminDownloadRequestSpec,
        status: NonAdminDownloadRequestStatus,
        columns: [text("Request-Phase", ".status.phase"), AGE],
    }
}

/// Which file is wanted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminDownloadRequestSpec {
    /// The file; its name is that of a `NonAdminBackup` or a `NonAdminRestore` in this namespace.
    #[schemars(required)]
    pub target: Option<velero::DownloadTarget>,
}

/// What has become of the request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NonAdminDownloadRequestStatus {
    /// Where the request is in its life.
    pub phase: Option<Phase>,
    /// What the request has or has not passed, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// The Velero request made for this one.
    pub velero: Option<VeleroDownloadRequest>,
}

/// The Velero request made for a tenant's.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VeleroDownloadRequest {
    /// Its status, as Velero has it: the address and when it expires.
    pub status: Option<Mirror<velero::DownloadRequestStatus>>,
}
