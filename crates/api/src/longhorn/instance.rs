//! What engines and replicas have in common: both are processes on a node.

use super::condition::Condition;
use super::volume::DataEngine;
use crate::scalar::TextInt;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

words! {
    /// State of a process, and the state it should have.
    loose InstanceState {
        Running = "running",
        Suspended = "suspended",
        Stopped = "stopped",
        Error = "error",
        Starting = "starting",
        Stopping = "stopping",
        Unknown = "unknown",
        Terminated = "terminated",
        Unset = "",
    }
}

/// What a process is to be.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSpec {
    /// Volume it works for.
    pub volume_name: Option<String>,
    /// Size of that volume in bytes.
    pub volume_size: Option<TextInt>,
    /// Node it is to run on.
    #[serde(rename = "nodeID")]
    pub node_id: Option<String>,
    /// Engine image it is to run.
    pub image: Option<String>,
    /// Whether it is to run: `running` or `stopped`.
    pub desire_state: Option<InstanceState>,
    /// Asks to copy its log.
    pub log_requested: Option<bool>,
    /// Asks to bring failed copies back.
    pub salvage_requested: Option<bool>,
    /// Kind of engine.
    pub data_engine: Option<DataEngine>,
}

/// What a process is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// Node whose manager is responsible for it.
    #[serde(rename = "ownerID")]
    pub owner_id: Option<String>,
    /// Instance manager it runs under.
    pub instance_manager_name: Option<String>,
    /// Its state.
    pub current_state: Option<InstanceState>,
    /// Engine image it runs.
    pub current_image: Option<String>,
    /// Address of the instance manager.
    pub ip: Option<String>,
    /// Address for data, if that has a network of its own.
    #[serde(rename = "storageIP")]
    pub storage_ip: Option<String>,
    /// Its first port.
    pub port: Option<i32>,
    /// Whether it was told to start.
    pub starting: Option<bool>,
    /// Whether it did start.
    pub started: Option<bool>,
    /// Whether its log was copied.
    pub log_fetched: Option<bool>,
    /// Whether failed copies were brought back.
    pub salvage_executed: Option<bool>,
    /// Why it is as it is.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
