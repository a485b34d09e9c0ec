//! What tells the items of a list apart.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::MAX_CAUSES;
use crate::cause::Cause;
use crate::node::ListType;
use crate::path::Path;

/// The key of an item of a map list, as text in which different keys never look alike.
pub(super) fn item_key(keys: &[String], item: &Value) -> String {
    let mut text = String::new();
    for key in keys {
        // JSON escapes line feeds inside strings, so the separator is unambiguous.
        let part = member(item, key);
        let written = writeln!(text, "{part}");
        debug_assert!(written.is_ok(), "writing to a string does not fail");
    }
    text
}

pub(super) fn by_key<'a>(keys: &[String], items: &'a [Value]) -> HashMap<String, &'a Value> {
    items.iter().map(|item| (item_key(keys, item), item)).collect()
}

/// Reports the second and later items that equal an earlier one.
pub(super) fn unique(kind: &ListType, items: &[Value], path: &Path<'_>, causes: &mut Vec<Cause>) {
    if *kind == ListType::Atomic || items.len() < 2 || is_small_and_unique(kind, items) {
        return;
    }
    let mut seen = HashSet::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let (key, value) = match kind {
            ListType::Atomic => return,
            ListType::Set => (item.to_string(), item.clone()),
            ListType::Map { keys } => (item_key(keys, item), key_members(keys, item)),
        };
        if !seen.insert(key) && causes.len() < MAX_CAUSES {
            causes.push(Cause::duplicate(path.index(index).to_string(), &value));
        }
    }
}

/// The usual case, decided without allocating.
fn is_small_and_unique(kind: &ListType, items: &[Value]) -> bool {
    const SMALL: usize = 32;
    let same = |a: &Value, b: &Value| match kind {
        ListType::Map { keys } => keys.iter().all(|key| member(a, key) == member(b, key)),
        ListType::Atomic | ListType::Set => a == b,
    };
    items.len() <= SMALL
        && items
            .iter()
            .enumerate()
            .all(|(index, item)| items.iter().take(index).all(|earlier| !same(earlier, item)))
}

/// An absent key counts as null, here and in [`item_key`].
fn member<'a>(item: &'a Value, key: &str) -> &'a Value {
    item.get(key).unwrap_or(&Value::Null)
}

fn key_members(keys: &[String], item: &Value) -> Value {
    let member = |key: &String| item.get(key).map(|value| (key.clone(), value.clone()));
    Value::Object(keys.iter().filter_map(member).collect())
}
