//! Share managers: volumes that many nodes mount at once.

use super::V1BETA2;
use super::condition::Condition;
use crate::resource::{AGE, resource, text};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

words! {
    /// How a share manager is.
    loose ShareManagerState {
        Unknown = "unknown",
        Starting = "starting",
        Running = "running",
        Stopping = "stopping",
        Stopped = "stopped",
        Error = "error",
        Unset = "",
    }
}

resource! {
    /// The service through which many nodes mount one volume.
    ShareManager in V1BETA2 {
        plural: "sharemanagers",
        short: ["lhsm"],
        spec: ShareManagerSpec,
        status: ShareManagerStatus,
        columns: [
            text("State", ".status.state"),
            text("Node", ".status.ownerID"),
            text("Image", ".spec.image"),
            AGE,
        ],
    }
}

/// What a share manager is to be.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShareManagerSpec {
    /// Image it runs.
    pub image: Option<String>,
}

/// How a share manager is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShareManagerStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Its state.
    pub state: Option<ShareManagerState>,
    /// Address to mount from.
    pub endpoint: Option<String>,
    /// Why it is as it is.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
