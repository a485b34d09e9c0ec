//! Rules of `LimitRange`.

use serde_json::Value;

use super::{check_quantity, quantity};
use crate::access::{at, list, list_mut, members, object_mut, text};
use crate::cause::Cause;

const BOUNDS: [&str; 5] = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"];

/// A limit that is not given is the maximum, a request is the limit, or else the minimum.
pub(super) fn defaults(obj: &mut Value) {
    for item in list_mut(obj, "spec.limits") {
        if text(item, "type") != "Container" {
            continue;
        }
        for (from, to) in
            [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")]
        {
            let given: Vec<(String, Value)> =
                members(item, from).map(|(name, amount)| (name.clone(), amount.clone())).collect();
            if given.is_empty() {
                continue;
            }
            if let Some(filled) = object_mut(item, to) {
                for (name, amount) in given {
                    filled.entry(name).or_insert(amount);
                }
            }
        }
    }
}

pub(super) fn check(obj: &Value, causes: &mut Vec<Cause>) {
    let mut seen = std::collections::BTreeSet::new();
    for (index, item) in list(obj, "spec.limits").iter().enumerate() {
        let field = format!("spec.limits[{index}]");
        let kind = text(item, "type");
        if kind.is_empty() {
            causes.push(Cause::required(format!("{field}.type"), ""));
        } else if !seen.insert(kind) {
            causes.push(Cause::duplicate(format!("{field}.type"), &kind.into()));
        }
        for member in BOUNDS {
            for (resource, amount) in members(item, member) {
                check_quantity(amount, &format!("{field}.{member}[{resource}]"), causes);
            }
        }
        check_order(item, &field, causes);
        if kind == "Pod" {
            for member in ["default", "defaultRequest"] {
                if members(item, member).next().is_some() {
                    let detail = "may not be specified when `type` is 'Pod'";
                    causes.push(Cause::forbidden(format!("{field}.{member}"), detail));
                }
            }
        }
    }
}

/// Nothing may be below the minimum or above the maximum.
fn check_order(item: &Value, field: &str, causes: &mut Vec<Cause>) {
    let order = [
        ("min", "max"),
        ("min", "defaultRequest"),
        ("min", "default"),
        ("defaultRequest", "max"),
        ("defaultRequest", "default"),
        ("default", "max"),
    ];
    for (low, high) in order {
        for (resource, amount) in members(item, low) {
            let above = at(item, high).and_then(|all| all.get(resource));
            if let (Some(least), Some(most)) = (quantity(amount), above.and_then(quantity))
                && least > most
            {
                let field = format!("{field}.{low}[{resource}]");
                let above = above.and_then(Value::as_str).unwrap_or_default();
                let detail = format!(
                    "{low} value {} is greater than {high} value {above}",
                    amount.as_str().unwrap_or_default()
                );
                causes.push(Cause::invalid(field, amount, &detail));
            }
        }
    }
}
