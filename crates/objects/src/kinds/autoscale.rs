//! The `scale` view of the built-in workloads.
//!
//! Owns: the mapping between a workload and its Scale. Never: the one of custom resources, whose
//! paths their definition gives.

use serde_json::{Map, Value, json};

use crate::access::{at, integer, members, set, text};

/// The Scale of a Deployment, `ReplicaSet` or `StatefulSet`.
pub fn read_scale(obj: &Value) -> Value {
    let mut metadata = Map::new();
    for member in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = at(obj, "metadata").and_then(|metadata| metadata.get(member)) {
            metadata.insert(member.to_owned(), value.clone());
        }
    }
    let selector: Vec<String> = members(obj, "spec.selector.matchLabels")
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": integer(obj, "spec.replicas").unwrap_or(0)},
        "status": {
            "replicas": integer(obj, "status.replicas").unwrap_or(0),
            "selector": selector.join(","),
        },
    })
}

/// Writes the replicas a Scale asks for, and its resourceVersion if it has one, into the workload.
pub fn write_scale(scale: &Value, obj: &mut Value) {
    set(obj, "spec.replicas", integer(scale, "spec.replicas").unwrap_or(0));
    let version = text(scale, "metadata.resourceVersion");
    if !version.is_empty() {
        set(obj, "metadata.resourceVersion", version);
    }
}
