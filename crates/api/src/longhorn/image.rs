//! Engine images: versions of the program that serves volumes.

use std::collections::BTreeMap;

use super::V1BETA2;
use super::condition::Condition;
use crate::resource::{AGE, column, resource, text};
use crate::scalar::Stamp;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// A version of the program that serves volumes.
    EngineImage in V1BETA2 {
        plural: "engineimages",
        short: ["lhei"],
        spec: EngineImageSpec,
        status: EngineImageStatus,
        columns: [
            column("Incompatible", "boolean", ".status.incompatible"),
            text("State", ".status.state"),
            text("Image", ".spec.image"),
            column("RefCount", "integer", ".status.refCount"),
            text("BuildDate", ".status.buildDate"),
            AGE,
        ],
    }
}

/// Which version.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineImageSpec {
    /// Name of the image.
    #[schemars(required)]
    pub image: Option<String>,
}

words! {
    /// Whether a version is on the nodes.
    loose EngineImageState {
        Deploying = "deploying",
        Deployed = "deployed",
        Incompatible = "incompatible",
        Error = "error",
        Unset = "",
    }
}

/// How a version is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineImageStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Whether it is on the nodes.
    pub state: Option<EngineImageState>,
    /// Volumes that use it.
    pub ref_count: Option<i32>,
    /// Since when none does.
    pub no_ref_since: Option<Stamp>,
    /// Whether it cannot be used with this control plane.
    pub incompatible: Option<bool>,
    /// Nodes, with whether it is there.
    pub node_deployment_map: Option<BTreeMap<String, bool>>,
    /// Why it is as it is.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Its version.
    pub version: Option<String>,
    /// Commit it was built from.
    pub git_commit: Option<String>,
    /// When it was built.
    pub build_date: Option<String>,
    /// Newest version of its command line.
    #[serde(rename = "cliAPIVersion")]
    pub cli_api_version: Option<i32>,
    /// Oldest version of its command line.
    #[serde(rename = "cliAPIMinVersion")]
    pub cli_api_min_version: Option<i32>,
    /// Newest version of its controller's API.
    #[serde(rename = "controllerAPIVersion")]
    pub controller_api_version: Option<i32>,
    /// Oldest version of its controller's API.
    #[serde(rename = "controllerAPIMinVersion")]
    pub controller_api_min_version: Option<i32>,
    /// Newest format of data it writes.
    pub data_format_version: Option<i32>,
    /// Oldest format of data it reads.
    pub data_format_min_version: Option<i32>,
}
