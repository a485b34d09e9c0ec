//! Server-side apply: one configuration merged into the live object.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::Writer;
use super::change::{add_field, add_item};
use super::conflict::{ApplyError, Conflict};
use super::entry::{self, Entry, Operation};
use super::set::{FieldSet, push_item};
use super::shape::{At, Containers, Items, Shape, collect};
use super::track::{put, stored, take};
use crate::node::Node;

/// Owner of what an object had before its ownership was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Merges `config` into `live` on behalf of `writer`, who owns exactly the fields of `config`
/// afterwards. Fields it owned before and no longer lists go away unless somebody else owns them.
///
/// `config` must hold only what this endpoint may change (no `status` for the object itself, nothing
/// but it for the status subresource). The caller prunes, defaults and validates the result. If
/// nothing changed, the result equals `live`, times included.
pub fn apply(
    node: &Node,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    if !config.is_object() {
        return Err(ApplyError::Invalid("an applied configuration must be an object".to_owned()));
    }
    let root = At::root(node);
    check(root, config, &mut String::new())?;
    let applied = FieldSet::of(node, config);
    let Some(live) = live else {
        let mut object = config.clone();
        take(&mut object);
        put(&mut object, Some(entry::encode(vec![Entry::new(writer, Operation::Apply, applied)])));
        return Ok(object);
    };

    let mut owners = owners(root, live, writer);
    let mut object = live.clone();
    let changed = merge(root, &mut object, config);
    take(&mut object);
    let previous = owners
        .entries
        .iter()
        .position(|entry| entry.is_of(writer, Operation::Apply))
        .map(|position| owners.entries.swap_remove(position));
    let conflicts = take_over(&mut owners.entries, &changed);
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    let dropped = match &previous {
        Some(previous) if previous.fields != applied => {
            let mut kept = applied.clone();
            for entry in &owners.entries {
                kept.absorb(entry.fields.clone());
            }
            remove(root, &mut object, &previous.fields, &kept)
        }
        _ => false,
    };

    let same_owner = previous.as_ref().is_some_and(|previous| {
        previous.fields == applied && previous.api_version == writer.api_version
    }) || (previous.is_none() && applied.is_empty());
    if same_owner && changed.is_empty() && !dropped && !owners.invented {
        put(&mut object, stored(live).cloned());
        return Ok(object);
    }
    owners.entries.push(Entry::new(writer, Operation::Apply, applied));
    put(&mut object, Some(entry::encode(owners.entries)));
    Ok(object)
}

struct Owners {
    entries: Vec<Entry>,
    /// The live object had no entries, so one was made up for all it has.
    invented: bool,
}

fn owners(root: At<'_>, live: &Value, writer: &Writer<'_>) -> Owners {
    if let Some(entries) = stored(live).and_then(entry::decode) {
        return Owners { entries, invented: false };
    }
    let mut fields = collect(root, live, Containers::All);
    fields.owned = false;
    let version = live.get("apiVersion").and_then(Value::as_str);
    let before = Writer {
        manager: BEFORE_FIRST_APPLY,
        api_version: version.unwrap_or(writer.api_version),
        subresource: None,
        now: writer.now,
    };
    Owners { entries: vec![Entry::new(&before, Operation::Update, fields)], invented: true }
}

/// Takes the changed fields away from everybody and tells from whom.
fn take_over(entries: &mut [Entry], changed: &FieldSet) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    if changed.is_empty() {
        return conflicts;
    }
    for entry in entries {
        let taken = entry.fields.take(changed);
        conflicts.extend(taken.paths().into_iter().map(|field| Conflict::new(entry, field)));
    }
    conflicts
}

/// Merges the configuration at a place into the live value; returns the fields whose value changed.
fn merge(at: At<'_>, live: &mut Value, config: &Value) -> FieldSet {
    match (at.shape(config), &mut *live) {
        (Shape::Object(config), Value::Object(live)) => merge_object(at, live, config),
        (Shape::Items(kind, config), Value::Array(live)) if is_divided(at, live) => {
            merge_items(at, kind, live, config)
        }
        (_, live) if live == config => FieldSet::default(),
        (_, live) => {
            live.clone_from(config);
            let mut changed = collect(at, config, Containers::All);
            changed.owned = true;
            changed
        }
    }
}

fn is_divided(at: At<'_>, items: &[Value]) -> bool {
    items.is_empty() || matches!(at.list(items), Shape::Items(..))
}

fn merge_object(
    at: At<'_>,
    live: &mut Map<String, Value>,
    config: &Map<String, Value>,
) -> FieldSet {
    let mut changed = FieldSet::default();
    for (name, value) in config {
        let below = at.field(name);
        match live.get_mut(name) {
            // Names and versions of the live object are not for a configuration to change.
            Some(_) if !at.tracks(name) => {}
            Some(member) => add_field(&mut changed, name, merge(below, member, value)),
            None => {
                // An explicit null is mostly a client's way to say nothing.
                if at.tracks(name) && !value.is_null() {
                    add_field(&mut changed, name, collect(below, value, Containers::All));
                }
                live.insert(name.clone(), value.clone());
            }
        }
    }
    changed
}

/// Known items keep their place, new ones are appended.
fn merge_items(at: At<'_>, kind: Items<'_>, live: &mut Vec<Value>, config: &[Value]) -> FieldSet {
    let mut changed = FieldSet::default();
    let known: HashMap<String, usize> = live
        .iter()
        .enumerate()
        .rev()
        .map(|(position, item)| (kind.element(item), position))
        .collect();
    for item in config {
        let element = kind.element(item);
        if let Some(place) = known.get(&element).and_then(|position| live.get_mut(*position)) {
            add_item(&mut changed, &element, merge(at.item(), place, item));
        } else {
            add_item(&mut changed, &element, collect(at.item(), item, Containers::All));
            live.push(item.clone());
        }
    }
    changed
}

/// Removes what is in `last` and has nothing in `kept`; tells whether there was anything.
fn remove(at: At<'_>, value: &mut Value, last: &FieldSet, kept: &FieldSet) -> bool {
    // What is one field now was perhaps several when it was applied: its owner keeps it whole.
    if matches!(at.shape(value), Shape::Leaf) {
        return false;
    }
    match value {
        Value::Object(members) => remove_members(at, members, last, kept),
        Value::Array(items) => remove_items(at, items, last, kept),
        _ => false,
    }
}

fn remove_members(
    at: At<'_>,
    members: &mut Map<String, Value>,
    last: &FieldSet,
    kept: &FieldSet,
) -> bool {
    let nothing = FieldSet::default();
    let mut removed = false;
    for (name, last) in last.fields.iter().filter(|(name, _)| at.tracks(name)) {
        let below = at.field(name);
        let kept = kept.fields.get(name).or(below.is_metadata().then_some(&nothing));
        match (members.get_mut(name), kept) {
            (None, _) => {}
            (Some(member), Some(kept)) => removed |= remove(below, member, last, kept),
            (Some(_), None) => {
                members.remove(name);
                removed = true;
            }
        }
    }
    removed
}

fn remove_items(at: At<'_>, items: &mut Vec<Value>, last: &FieldSet, kept: &FieldSet) -> bool {
    let Shape::Items(kind, _) = at.list(items) else { return false };
    let before = items.len();
    let mut removed = false;
    items.retain_mut(|item| {
        let element = kind.element(item);
        match (last.items.get(&element), kept.items.get(&element)) {
            (Some(_), None) => false,
            (Some(last), Some(kept)) => {
                removed |= remove(at.item(), item, last, kept);
                true
            }
            (None, _) => true,
        }
    });
    removed || items.len() != before
}

/// Refuses lists whose items cannot be told apart: their merge would be arbitrary.
fn check(at: At<'_>, value: &Value, path: &mut String) -> Result<(), ApplyError> {
    let len = path.len();
    match at.shape(value) {
        Shape::Leaf => {}
        Shape::Object(members) => {
            for (name, member) in members {
                path.push('.');
                path.push_str(name);
                check(at.field(name), member, path)?;
                path.truncate(len);
            }
        }
        Shape::Items(kind, items) => {
            let mut seen = HashSet::with_capacity(items.len());
            for item in items {
                check_keys(kind, item, path)?;
                let element = kind.element(item);
                push_item(&element, path);
                if !seen.insert(element) {
                    return Err(ApplyError::Invalid(format!("{path}: duplicate list item")));
                }
                check(at.item(), item, path)?;
                path.truncate(len);
            }
        }
    }
    Ok(())
}

fn check_keys(kind: Items<'_>, item: &Value, path: &str) -> Result<(), ApplyError> {
    let Items::Keyed { keys, .. } = kind else { return Ok(()) };
    match keys.iter().find(|key| kind.key_value(item, key).is_none_or(Value::is_null)) {
        None => Ok(()),
        Some(key) => {
            let text = format!("{path}: a list item lacks {key:?}, by which items are told apart");
            Err(ApplyError::Invalid(text))
        }
    }
}
