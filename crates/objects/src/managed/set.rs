//! Sets of field paths, as a tree that mirrors the object.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Value};

use crate::json::MAX_DEPTH;

pub(super) const FIELD: &str = "f:";
const KEY: &str = "k:";
const VALUE: &str = "v:";
const INDEX: &str = "i:";
pub(super) const SELF: &str = ".";

/// A set of paths into an object. Each node says whether its own path is a member and which paths
/// below it are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSet {
    pub(super) owned: bool,
    /// Members of an object, by name.
    pub(super) fields: BTreeMap<String, FieldSet>,
    /// Items of a list, by `k:{"name":"a"}`, `v:"text"` or `i:0`.
    pub(super) items: BTreeMap<String, FieldSet>,
}

/// Why a JSON value is not a field set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldSetError {
    #[error("a field set must be made of objects")]
    NotAnObject,
    #[error("a list item in a field set has a malformed key or value")]
    Element,
    #[error("a field set is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl FieldSet {
    /// Reads the `FieldsV1` form. Elements of kinds unknown to us are skipped, as the format asks.
    pub fn parse(value: &Value) -> Result<Self, FieldSetError> {
        Self::parse_node(value, 0)
    }

    fn parse_node(value: &Value, depth: usize) -> Result<Self, FieldSetError> {
        let Value::Object(members) = value else { return Err(FieldSetError::NotAnObject) };
        if depth > MAX_DEPTH {
            return Err(FieldSetError::TooDeep);
        }
        let mut set = Self::default();
        for (text, below) in members {
            if text == SELF {
                // The root is never a member: there is nothing to own about having an object.
                set.owned = depth > 0;
                continue;
            }
            let mut child = Self::parse_node(below, depth + 1)?;
            child.owned |= below.as_object().is_some_and(Map::is_empty);
            if child.is_empty() {
                continue;
            }
            if let Some(name) = text.strip_prefix(FIELD) {
                set.fields.insert(name.to_owned(), child);
            } else if let Some(text) = canonical(text)? {
                set.items.entry(text).or_default().absorb(child);
            }
        }
        Ok(set)
    }

    /// Writes the `FieldsV1` form.
    pub fn to_value(&self) -> Value {
        let mut members = Map::new();
        for (name, child) in &self.fields {
            members.insert([FIELD, name].concat(), child.to_value());
        }
        for (text, child) in &self.items {
            members.insert(text.clone(), child.to_value());
        }
        // A member without anything below it is written as an empty object.
        if self.owned && !members.is_empty() {
            members.insert(SELF.to_owned(), Value::Object(Map::new()));
        }
        Value::Object(members)
    }

    pub fn is_empty(&self) -> bool {
        !self.owned && self.fields.is_empty() && self.items.is_empty()
    }

    /// The paths that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.absorb(other.clone());
        result
    }

    /// Adds the paths of `other`.
    pub fn absorb(&mut self, other: Self) {
        self.owned |= other.owned;
        absorb(&mut self.fields, other.fields);
        absorb(&mut self.items, other.items);
    }

    /// The paths of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let below = |mine: &BTreeMap<String, Self>, theirs: &BTreeMap<String, Self>| {
            mine.iter()
                .map(|(name, child)| {
                    let rest = theirs.get(name).map(|other| child.difference(other));
                    (name.clone(), rest.unwrap_or_else(|| child.clone()))
                })
                .filter(|(_, child)| !child.is_empty())
                .collect()
        };
        Self {
            owned: self.owned && !other.owned,
            fields: below(&self.fields, &other.fields),
            items: below(&self.items, &other.items),
        }
    }

    /// The paths that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let below = |mine: &BTreeMap<String, Self>, theirs: &BTreeMap<String, Self>| {
            mine.iter()
                .filter_map(|(name, child)| {
                    Some((name.clone(), child.intersection(theirs.get(name)?)))
                })
                .filter(|(_, child)| !child.is_empty())
                .collect()
        };
        Self {
            owned: self.owned && other.owned,
            fields: below(&self.fields, &other.fields),
            items: below(&self.items, &other.items),
        }
    }

    /// Removes and returns what `changed` makes stale: a member of `changed` is a value that was
    /// replaced as a whole, so it takes everything below it along.
    pub(super) fn take(&mut self, changed: &Self) -> Self {
        let mut taken = Self::default();
        take(&mut self.fields, &changed.fields, &mut taken.fields);
        take(&mut self.items, &changed.items, &mut taken.items);
        taken
    }

    /// The member paths as text, such as `.spec.size` or `.spec.ports[name="a"].port`.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths(&mut String::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, at: &mut String, paths: &mut Vec<String>) {
        let len = at.len();
        for (name, child) in &self.fields {
            at.push('.');
            at.push_str(name);
            child.collect_own(at, paths);
            at.truncate(len);
        }
        for (text, child) in &self.items {
            push_item(text, at);
            child.collect_own(at, paths);
            at.truncate(len);
        }
    }

    fn collect_own(&self, at: &mut String, paths: &mut Vec<String>) {
        if self.owned {
            paths.push(at.clone());
        }
        self.collect_paths(at, paths);
    }
}

fn absorb(mine: &mut BTreeMap<String, FieldSet>, theirs: BTreeMap<String, FieldSet>) {
    if mine.is_empty() {
        *mine = theirs;
        return;
    }
    for (name, child) in theirs {
        match mine.entry(name) {
            Entry::Vacant(place) => {
                place.insert(child);
            }
            Entry::Occupied(mut place) => place.get_mut().absorb(child),
        }
    }
}

fn take(
    mine: &mut BTreeMap<String, FieldSet>,
    changed: &BTreeMap<String, FieldSet>,
    taken: &mut BTreeMap<String, FieldSet>,
) {
    for (name, change) in changed {
        let Some(child) = mine.get_mut(name) else { continue };
        let part = if change.owned { std::mem::take(child) } else { child.take(change) };
        if child.is_empty() {
            mine.remove(name);
        }
        if !part.is_empty() {
            taken.insert(name.clone(), part);
        }
    }
}

/// One text for each item, however the sender ordered the members of its key.
fn canonical(text: &str) -> Result<Option<String>, FieldSetError> {
    let json = |text: &str| serde_json::from_str::<Value>(text).map_err(|_| FieldSetError::Element);
    if let Some(key) = text.strip_prefix(KEY) {
        let Value::Object(members) = json(key)? else { return Err(FieldSetError::Element) };
        let members: Vec<_> = members.iter().map(|(name, value)| (name.as_str(), value)).collect();
        return Ok(Some(key_element(members)));
    }
    if let Some(value) = text.strip_prefix(VALUE) {
        return Ok(Some(value_element(&json(value)?)));
    }
    if let Some(index) = text.strip_prefix(INDEX) {
        let index: u32 = index.parse().map_err(|_| FieldSetError::Element)?;
        return Ok(Some(format!("{INDEX}{index}")));
    }
    Ok(None)
}

/// The element of a keyed list's item.
pub(super) fn key_element(mut members: Vec<(&str, &Value)>) -> String {
    members.sort_unstable_by_key(|(name, _)| *name);
    let mut text = format!("{KEY}{{");
    for (position, (name, value)) in members.into_iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        // Text always has a JSON form.
        text.push_str(&serde_json::to_string(name).unwrap_or_default());
        text.push(':');
        text.push_str(&value.to_string());
    }
    text.push('}');
    text
}

/// The element of a set's item.
pub(super) fn value_element(value: &Value) -> String {
    [VALUE, &value.to_string()].concat()
}

/// Shows an element as people write it: `[name="a"]`, `[="text"]`, `[0]`.
pub(super) fn push_item(text: &str, out: &mut String) {
    out.push('[');
    if let Some(key) = text.strip_prefix(KEY) {
        let members: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
        let shown: Vec<String> =
            members.iter().map(|(name, value)| format!("{name}={value}")).collect();
        out.push_str(&shown.join(","));
    } else if let Some(value) = text.strip_prefix(VALUE) {
        out.push('=');
        out.push_str(value);
    } else if let Some(index) = text.strip_prefix(INDEX) {
        out.push_str(index);
    }
    out.push(']');
}
