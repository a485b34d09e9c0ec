//! Keeps the main endpoint and the status endpoint apart.
//!
//! Owns: which half of an object a write through an endpoint may touch. Never: looks inside a half.

use serde_json::Value;

use super::Kind;
use crate::access::keep;

/// Whether a kind has a status endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusEndpoint {
    Present,
    Absent,
}

/// For the main endpoint of an object with a status endpoint: the status stays as it was stored, and
/// a new object has none.
pub fn reset_custom(new: &mut Value, old: Option<&Value>) {
    match old {
        Some(old) => keep(old, new, "status"),
        None => {
            if let Some(map) = new.as_object_mut() {
                map.remove("status");
            }
        }
    }
}

/// For the status endpoint: everything but the status stays as it was stored, and of the metadata
/// what [`status_writes_metadata`] says. `resourceVersion` of the body survives, so that the caller
/// can still compare it. `kind` is `None` for a custom resource.
pub fn reset_for_status(kind: Option<&Kind>, new: &mut Value, old: &Value) {
    let mut result = old.clone();
    keep(new, &mut result, "status");
    for member in ["managedFields", "resourceVersion", "annotations", "finalizers", "labels"] {
        let own = matches!(member, "managedFields" | "resourceVersion");
        if own || status_writes_metadata(kind, member) {
            keep(new, &mut result, &format!("metadata.{member}"));
        }
    }
    *new = result;
}

/// Whether the status endpoint writes this member of the metadata: of built-in kinds it does, so
/// that a controller can leave a mark together with a status. The labels of a Deployment select its
/// history and stay.
pub fn status_writes_metadata(kind: Option<&Kind>, member: &str) -> bool {
    match (kind.map(|kind| kind.kind), member) {
        (None | Some("CustomResourceDefinition"), _) | (Some("Deployment"), "labels") => false,
        (Some(_), "annotations" | "finalizers" | "labels") => true,
        (Some(_), _) => false,
    }
}

/// Whether `metadata.generation` moves: something outside metadata changed, where the status counts
/// only if no endpoint of its own keeps it apart. Absent and null are the same.
pub fn content_changed(old: &Value, new: &Value, status: StatusEndpoint) -> bool {
    let counts = |(name, value): &(&String, &Value)| match name.as_str() {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => status == StatusEndpoint::Absent && !value.is_null(),
        _ => !value.is_null(),
    };
    let covers = |these: &Value, those: &Value| {
        let mut these = these.as_object().into_iter().flatten().filter(counts);
        these.all(|(name, value)| those.get(name) == Some(value))
    };
    !(covers(old, new) && covers(new, old))
}
