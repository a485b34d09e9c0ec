//! The walk over a value and its schema, in which unchanged values are forgiven.

use serde_json::{Map, Value};

use super::lists::{self, item_key};
use super::scalars::{self, has_type, shown, type_name};
use super::{Found, LOOK_STEPS, MAX_CAUSES, MAX_DEPTH};
use crate::cause::{Cause, Reason};
use crate::node::{JsonType, ListType, Node};
use crate::path::Path;

/// Checks `value` and everything below it.
pub(super) fn check(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    depth: usize,
    found: &mut Found<'_>,
) {
    if found.causes.len() >= MAX_CAUSES || !found.spend(LOOK_STEPS) {
        return;
    }
    let before = found.causes.len();
    if depth >= MAX_DEPTH {
        found.causes.push(Cause::invalid(path.to_string(), &shown(value), "is nested too deeply"));
        return;
    }
    check_here(node, value, old, path, depth, found);
    // Ratcheting: compared only after a failure, so that valid objects do not pay for it.
    if found.causes.len() > before && old == Some(value) {
        found.causes.truncate(before);
    }
}

fn check_here(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    depth: usize,
    found: &mut Found<'_>,
) {
    if value.is_null() && (node.nullable || (node.kind.is_none() && !node.int_or_string)) {
        return;
    }
    if let Some(wanted) = wrong_type(node, value) {
        let text = format!("Invalid value: {:?}: must be of type {wanted}", type_name(value));
        found.causes.push(Cause::new(Reason::TypeInvalid, path.to_string(), text));
        return;
    }
    scalars::check(&node.checks, value, path, found);
    match value {
        Value::Object(members) => object(node, members, value, old, path, depth, found),
        Value::Array(items) => array(node, items, value, old, path, depth, found),
        _ => {}
    }
    combined(node, value, path, depth, found);
}

/// The type `node` asks for, if `value` does not have it.
fn wrong_type(node: &Node, value: &Value) -> Option<&'static str> {
    if node.int_or_string {
        let fits = value.is_string() || has_type(value, JsonType::Integer);
        return (!fits).then_some("integer or string");
    }
    node.kind.filter(|kind| !has_type(value, *kind)).map(JsonType::as_str)
}

fn object(
    node: &Node,
    members: &Map<String, Value>,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    depth: usize,
    found: &mut Found<'_>,
) {
    let checks = &node.checks;
    let count = members.len() as u64;
    if let Some(most) = checks.max_properties.filter(|most| count > *most) {
        let text = format!("Too many: {count}: must have at most {most} members");
        found.causes.push(Cause::new(Reason::TooMany, path.to_string(), text));
    }
    if let Some(least) = checks.min_properties.filter(|least| count < *least) {
        let detail = format!("must have at least {least} members");
        found.causes.push(Cause::invalid(path.to_string(), &shown(value), &detail));
    }
    for name in &checks.required {
        if !members.contains_key(name) {
            found.causes.push(Cause::required(path.field(name).to_string(), ""));
        }
    }
    if node.embedded_resource {
        embedded(members, path, found);
    }
    let old = old.and_then(Value::as_object);
    for (name, value) in members {
        let (child, path) = if let Some(child) = node.properties.get(name) {
            (child, path.field(name))
        } else if let Some(child) = &node.additional {
            (child, path.key(name))
        } else {
            continue;
        };
        check(child, value, old.and_then(|old| old.get(name)), &path, depth + 1, found);
    }
}

/// An embedded resource says what it is, whatever its schema lists.
fn embedded(members: &Map<String, Value>, path: &Path<'_>, found: &mut Found<'_>) {
    for name in ["apiVersion", "kind"] {
        match members.get(name) {
            Some(Value::String(text)) if !text.is_empty() => {}
            Some(Value::String(_)) | None => {
                found
                    .causes
                    .push(Cause::required(path.field(name).to_string(), "must not be empty"));
            }
            Some(_) => type_cause(&path.field(name), members.get(name), "string", found),
        }
    }
    if let Some(metadata) = members.get("metadata")
        && !metadata.is_object()
    {
        type_cause(&path.field("metadata"), Some(metadata), "object", found);
    }
}

fn type_cause(path: &Path<'_>, value: Option<&Value>, wanted: &str, found: &mut Found<'_>) {
    let shown = value.map_or("null", type_name);
    let text = format!("Invalid value: {shown:?}: must be of type {wanted}");
    found.causes.push(Cause::new(Reason::TypeInvalid, path.to_string(), text));
}

fn array(
    node: &Node,
    items: &[Value],
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    depth: usize,
    found: &mut Found<'_>,
) {
    let checks = &node.checks;
    let count = items.len() as u64;
    if let Some(most) = checks.max_items.filter(|most| count > *most) {
        let text = format!("Too many: {count}: must have at most {most} items");
        found.causes.push(Cause::new(Reason::TooMany, path.to_string(), text));
        return;
    }
    if let Some(least) = checks.min_items.filter(|least| count < *least) {
        let detail = format!("must have at least {least} items");
        found.causes.push(Cause::invalid(path.to_string(), &shown(value), &detail));
    }
    lists::unique(&node.list_type, items, path, &mut found.causes);
    let Some(child) = &node.items else { return };
    let old = old.and_then(Value::as_array);
    let mut by_key = None;
    for (index, item) in items.iter().enumerate() {
        let path = path.index(index);
        let before = found.causes.len();
        check(child, item, None, &path, depth + 1, found);
        // The past matters to items that fail, and to those only when they can be found in it.
        if found.causes.len() > before
            && let (ListType::Map { keys }, Some(old)) = (&node.list_type, old)
        {
            let past = by_key.get_or_insert_with(|| lists::by_key(keys, old));
            if let Some(old) = past.get(&item_key(keys, item)) {
                found.causes.truncate(before);
                check(child, item, Some(old), &path, depth + 1, found);
            }
        }
    }
}

/// allOf, anyOf, oneOf and not. Branches are judged whole: an unchanged part does not forgive them.
fn combined(node: &Node, value: &Value, path: &Path<'_>, depth: usize, found: &mut Found<'_>) {
    let checks = &node.checks;
    for branch in &checks.all_of {
        check(branch, value, None, path, depth + 1, found);
    }
    let left = found.left;
    let fits = |branch: &Node| {
        let mut found = Found::within(left);
        check(branch, value, None, path, depth + 1, &mut found);
        found.causes.is_empty()
    };
    let mut refuse = |detail: &str| {
        found.causes.push(Cause::invalid(path.to_string(), &shown(value), detail));
    };
    if !checks.any_of.is_empty() && !checks.any_of.iter().any(fits) {
        refuse("must match at least one schema of anyOf");
    }
    if !checks.one_of.is_empty() {
        let count = checks.one_of.iter().filter(|branch| fits(branch)).count();
        if count != 1 {
            refuse(&format!("must match exactly one schema of oneOf, but matches {count}"));
        }
    }
    if checks.not.as_deref().is_some_and(fits) {
        refuse("must not match the schema of not");
    }
}
