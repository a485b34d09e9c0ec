//! Support bundles: logs and objects collected into one file.

use super::V1BETA2;
use super::condition::Condition;
use crate::resource::{AGE, resource, text};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A request to collect logs and objects into one file.
    SupportBundle in V1BETA2 {
        plural: "supportbundles",
        short: ["lhbundle"],
        spec: SupportBundleSpec,
        status: SupportBundleStatus,
        columns: [
            text("State", ".status.state"),
            text("Issue", ".spec.issueURL"),
            text("Description", ".spec.description"),
            AGE,
        ],
    }
}

/// What the file is for.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportBundleSpec {
    /// Address of the issue it belongs to.
    #[serde(rename = "issueURL")]
    pub issue_url: Option<String>,
    /// What it is about.
    pub description: Option<String>,
    /// Node to collect from. Empty: all.
    #[serde(rename = "nodeID")]
    pub node_id: Option<String>,
}

words! {
    /// How far the collecting is.
    loose SupportBundleState {
        Unset = "",
        Started = "Started",
        Generating = "Generating",
        ReadyForDownload = "ReadyForDownload",
        Purging = "Purging",
        Deleting = "Deleting",
        Error = "Error",
        Replaced = "Replaced",
        Unknown = "Unknown",
    }
}

/// What has become of the request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportBundleStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// How far it is.
    pub state: Option<SupportBundleState>,
    /// How much is collected, 0 to 100.
    pub progress: Option<i32>,
    /// Name of the file.
    pub filename: Option<String>,
    /// Bytes of the file.
    pub filesize: Option<i64>,
    /// Why it is as it is.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
