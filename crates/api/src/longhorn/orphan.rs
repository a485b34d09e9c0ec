//! Orphans: data and processes that belong to nothing.

use std::collections::BTreeMap;

use super::V1BETA2;
use super::condition::Condition;
use super::volume::DataEngine;
use crate::resource::{resource, text};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// Data or a process on a node that no resource accounts for. Deleting it removes what it tells
    /// of.
    Orphan in V1BETA2 {
        plural: "orphans",
        short: ["lho"],
        spec: OrphanSpec,
        status: OrphanStatus,
        columns: [text("Type", ".spec.orphanType"), text("Node", ".spec.nodeID")],
    }
}

words! {
    /// What was found.
    loose OrphanType {
        /// The directory of a copy.
        ReplicaData = "replica",
        EngineInstance = "engine-instance",
        ReplicaInstance = "replica-instance",
    }
}

/// What was found, and where.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanSpec {
    /// Node it was found on.
    #[serde(rename = "nodeID")]
    pub node_id: Option<String>,
    /// What was found.
    pub orphan_type: Option<OrphanType>,
    /// Kind of engine it is of.
    pub data_engine: Option<DataEngine>,
    /// Where it is: disk, directory, instance.
    pub parameters: Option<BTreeMap<String, String>>,
}

/// How an orphan is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Whether it can be removed.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
