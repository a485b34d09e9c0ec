//! Keeps the main endpoint and the status endpoint apart.
//!
//! Owns: which half of an object a write through an endpoint may touch. Never: looks inside a half.

use serde_json::Value;

use crate::access::keep;

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
