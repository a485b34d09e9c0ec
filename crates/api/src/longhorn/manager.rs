//! Instance managers: what runs the processes of a node.

use std::collections::BTreeMap;

use super::V1BETA2;
use super::condition::Condition;
use super::instance::InstanceState;
use super::volume::DataEngine;
use crate::resource::{AGE, resource, text};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

resource! {
    /// What runs engines and replicas on one node.
    InstanceManager in V1BETA2 {
        plural: "instancemanagers",
        short: ["lhim"],
        spec: InstanceManagerSpec,
        status: InstanceManagerStatus,
        columns: [
            text("Data Engine", ".spec.dataEngine"),
            text("State", ".status.currentState"),
            text("Type", ".spec.type"),
            text("Node", ".spec.nodeID"),
            AGE,
        ],
    }
}

words! {
    /// What an instance manager runs.
    open InstanceManagerType {
        /// Engines and replicas alike.
        AllInOne = "aio",
        Engine = "engine",
        Replica = "replica",
    }
}

words! {
    /// How an instance manager is.
    loose InstanceManagerState {
        Error = "error",
        Running = "running",
        Stopped = "stopped",
        Starting = "starting",
        Unknown = "unknown",
        Unset = "",
    }
}

/// What an instance manager is to be.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceManagerSpec {
    /// Image it runs.
    pub image: Option<String>,
    /// Node it runs on.
    #[serde(rename = "nodeID")]
    pub node_id: Option<String>,
    /// What it runs.
    #[serde(rename = "type")]
    pub kind: Option<InstanceManagerType>,
    /// Kind of engine it runs.
    pub data_engine: Option<DataEngine>,
}

/// How an instance manager is, and what it runs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceManagerStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Its state.
    pub current_state: Option<InstanceManagerState>,
    /// Why it is as it is.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Its address.
    pub ip: Option<String>,
    /// Newest version of its API.
    pub api_version: Option<i32>,
    /// Oldest version of its API.
    pub api_min_version: Option<i32>,
    /// Newest version of its proxy's API.
    pub proxy_api_version: Option<i32>,
    /// Oldest version of its proxy's API.
    pub proxy_api_min_version: Option<i32>,
    /// Engines it runs, by name.
    pub instance_engines: Option<BTreeMap<String, InstanceProcess>>,
    /// Replicas it runs, by name.
    pub instance_replicas: Option<BTreeMap<String, InstanceProcess>>,
}

/// A process.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceProcess {
    /// What it is to be.
    pub spec: Option<ProcessSpec>,
    /// What it is.
    pub status: Option<ProcessStatus>,
}

/// What a process is to be.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessSpec {
    /// Its name.
    pub name: Option<String>,
    /// Kind of engine it belongs to.
    pub data_engine: Option<DataEngine>,
}

/// What a process is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessStatus {
    /// Its state.
    pub state: Option<InstanceState>,
    /// First of its ports.
    pub port_start: Option<i32>,
    /// Last of its ports.
    pub port_end: Option<i32>,
    /// First port of an engine's target, where that is a process of its own.
    pub target_port_start: Option<i32>,
    /// Last port of that target.
    pub target_port_end: Option<i32>,
    /// Why it failed.
    pub error_msg: Option<String>,
    /// What it says of its devices: name to whether it holds.
    pub conditions: Option<BTreeMap<String, bool>>,
    /// Identity of this run of it.
    pub uuid: Option<String>,
    /// Where it serves, if it does.
    pub endpoint: Option<String>,
    /// Address it listens on.
    pub listen: Option<String>,
    /// Grows with every change the instance manager tells of.
    pub resource_version: Option<i64>,
    /// What kind of process it is.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}
