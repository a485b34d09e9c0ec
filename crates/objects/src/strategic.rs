//! Strategic merge patches: merge patches that know which lists merge and by which key.
//!
//! Owns: the directives (`$patch`, `$retainKeys`, `$deleteFromPrimitiveList/…`,
//! `$setElementOrder/…`) and list merging. Never: decides a list's strategy, which the [`Node`] says.

mod list;

use serde_json::{Map, Value};

use crate::node::{Node, PatchStrategy};
use crate::patch::PatchError;

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Applies `patch` to `target`. After an error `target` is in an unspecified state.
pub fn apply(node: &Node, target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Object(changes) = patch else {
        return Err(failed("a strategic merge patch must be an object"));
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(members) = target else { return Ok(()) };
    if merge_object(Some(node), members, changes)? == Outcome::Delete {
        members.clear();
    }
    Ok(())
}

/// What a patch for one object or list item asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Keep,
    /// `$patch: delete`: the object goes away.
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(patch: &Map<String, Value>) -> Result<Directive, PatchError> {
    match patch.get(PATCH) {
        None => Ok(Directive::Merge),
        Some(Value::String(text)) if text == "merge" => Ok(Directive::Merge),
        Some(Value::String(text)) if text == "replace" => Ok(Directive::Replace),
        Some(Value::String(text)) if text == "delete" => Ok(Directive::Delete),
        Some(other) => Err(failed(&format!("unknown {PATCH} directive {other}"))),
    }
}

fn merge_object(
    node: Option<&Node>,
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Outcome, PatchError> {
    match directive(patch)? {
        Directive::Delete => return Ok(Outcome::Delete),
        Directive::Replace => target.clear(),
        Directive::Merge => {}
    }
    retain(target, patch)?;
    // Orders refer to the list as it was before this patch, so they are read first.
    let mut orders = Vec::new();
    for (name, order) in patch {
        if let Some(field) = name.strip_prefix(ORDER) {
            let key = merge_key(child(node, field).map(|node| &node.patch));
            orders.push(list::Order::read(key, field, order, target, patch)?);
        }
    }
    for (name, change) in patch {
        if let Some(field) = name.strip_prefix(DELETE_PRIMITIVES) {
            list::delete_primitives(target, field, change)?;
        } else if !is_directive(name) {
            merge_member(child(node, name), target, name, change)?;
        }
    }
    for order in orders {
        order.arrange(target);
    }
    Ok(Outcome::Keep)
}

fn merge_member(
    node: Option<&Node>,
    target: &mut Map<String, Value>,
    name: &str,
    change: &Value,
) -> Result<(), PatchError> {
    match change {
        Value::Null => {
            target.remove(name);
        }
        Value::Object(changes) => {
            let mut member = match target.remove(name) {
                Some(Value::Object(member)) => member,
                // Merging into nothing drops the directives and nulls of the patch.
                _ => Map::new(),
            };
            if merge_object(node, &mut member, changes)? == Outcome::Keep {
                target.insert(name.to_owned(), Value::Object(member));
            }
        }
        Value::Array(changes) => {
            let mut items = match target.remove(name) {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
            list::merge(node, &mut items, changes)?;
            target.insert(name.to_owned(), Value::Array(items));
        }
        scalar => {
            target.insert(name.to_owned(), scalar.clone());
        }
    }
    Ok(())
}

/// `$retainKeys` lists the members that may stay: how a union changes its branch.
fn retain(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), PatchError> {
    let Some(keys) = patch.get(RETAIN) else { return Ok(()) };
    let keys: Option<Vec<&str>> =
        keys.as_array().and_then(|keys| keys.iter().map(Value::as_str).collect());
    let keys = keys.ok_or_else(|| failed(&format!("{RETAIN} must be a list of names")))?;
    let stray = patch.iter().find(|(name, change)| {
        !is_directive(name) && !change.is_null() && !keys.contains(&name.as_str())
    });
    if let Some((name, _)) = stray {
        return Err(failed(&format!("{name:?} is patched but not in {RETAIN}")));
    }
    target.retain(|name, _| keys.contains(&name.as_str()));
    Ok(())
}

fn is_directive(name: &str) -> bool {
    name == PATCH
        || name == RETAIN
        || name.starts_with(DELETE_PRIMITIVES)
        || name.starts_with(ORDER)
}

fn child<'n>(node: Option<&'n Node>, name: &str) -> Option<&'n Node> {
    let node = node?;
    node.properties.get(name).or(node.additional.as_ref()).map(AsRef::as_ref)
}

/// A copy without directives and without removed members, as it stands in an object.
fn plain(node: Option<&Node>, value: &Value) -> Result<Option<Value>, PatchError> {
    let Value::Object(members) = value else { return Ok(Some(value.clone())) };
    let mut result = Map::new();
    let outcome = merge_object(node, &mut result, members)?;
    Ok((outcome == Outcome::Keep).then_some(Value::Object(result)))
}

fn failed(text: &str) -> PatchError {
    PatchError::Failed(text.to_owned())
}

fn merge_key(strategy: Option<&PatchStrategy>) -> Option<&str> {
    match strategy {
        Some(PatchStrategy::MergeByKey { key, .. }) => Some(key),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
