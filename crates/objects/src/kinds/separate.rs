//! Keeps the main endpoint and the status endpoint apart.
//!
//! Owns: which half of an object a write through an endpoint may touch. Never: looks inside a half.

use serde_json::Value;

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

/// For the status endpoint: everything but `status` and `metadata.managedFields` stays as it was
/// stored. `resourceVersion` of the body survives, so that the caller can still compare it.
pub fn reset_for_status(new: &mut Value, old: &Value) {
    let mut result = old.clone();
    keep(new, &mut result, "status");
    for path in ["metadata.managedFields", "metadata.resourceVersion"] {
        keep(new, &mut result, path);
    }
    *new = result;
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
