//! Rules of `PriorityClass`.

use serde_json::Value;

use super::{check_immutable, check_one_of};
use crate::access::{integer, text};
use crate::admission::SYSTEM_CLASSES;
use crate::cause::Cause;

/// Higher values are kept for the classes of the system.
const USER_MAX: i64 = 1_000_000_000;

pub(super) fn check(obj: &Value, causes: &mut Vec<Cause>) {
    let name = text(obj, "metadata.name");
    let value = integer(obj, "value").unwrap_or_default();
    if name.starts_with("system-") {
        if !SYSTEM_CLASSES.contains(&(name, value)) {
            let detail = "names that begin with 'system-' belong to the classes of the system";
            causes.push(Cause::forbidden("metadata.name", detail));
        }
    } else if value > USER_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {USER_MAX}");
        causes.push(Cause::forbidden("value", &detail));
    }
    let policies = &["Never", "PreemptLowerPriority"];
    check_one_of(obj, "preemptionPolicy", "preemptionPolicy", policies, causes);
}

/// Pods have copied the value.
pub(super) fn check_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if integer(old, "value").unwrap_or_default() != integer(new, "value").unwrap_or_default() {
        causes.push(Cause::forbidden("value", "may not be changed in an update"));
    }
    check_immutable(old, new, "preemptionPolicy", causes);
}
