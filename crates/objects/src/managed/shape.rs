//! How an object divides into fields: a cursor that walks a value and its description together.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::set::{FieldSet, key_element, value_element};
use crate::builtin;
use crate::node::{ListType, Node};

/// Levels that are told apart; below them a value is one field. Keeps `managedFields` of the deepest
/// object shallow enough to be sent back in a request.
const MAX_GRANULAR_DEPTH: usize = 40;
/// What the server itself writes, or what names the object rather than describes it.
const UNTRACKED_ROOT: [&str; 2] = ["apiVersion", "kind"];
const UNTRACKED_METADATA: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
    "generation",
    "managedFields",
    "selfLink",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Metadata,
    Inner,
}

/// A place in an object. Without a node, the value itself tells what can be told.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'n> {
    node: Option<&'n Node>,
    place: Place,
    depth: usize,
}

/// Metadata is alike in all objects; schemas of custom resources do not describe it.
fn metadata() -> &'static Node {
    static METADATA: OnceLock<Arc<Node>> = OnceLock::new();
    METADATA.get_or_init(builtin::object_meta)
}

/// How the value at a place divides.
#[derive(Debug)]
pub(super) enum Shape<'n, 'v> {
    /// One field.
    Leaf,
    /// A field for each member.
    Object(&'v Map<String, Value>),
    /// A field for each item.
    Items(Items<'n>, &'v [Value]),
}

/// How the items of a list are told apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Items<'n> {
    Values,
    Keyed { keys: &'n [String], item: Option<&'n Node> },
}

impl<'n> At<'n> {
    pub(super) fn root(node: &'n Node) -> Self {
        Self { node: Some(node), place: Place::Root, depth: 0 }
    }

    pub(super) fn field(self, name: &str) -> Self {
        if self.place == Place::Root && name == "metadata" {
            return Self { node: Some(metadata()), place: Place::Metadata, depth: 1 };
        }
        let node = self.node.and_then(|node| {
            node.properties.get(name).or(node.additional.as_ref()).map(AsRef::as_ref)
        });
        Self { node, place: Place::Inner, depth: self.depth + 1 }
    }

    pub(super) fn item(self) -> Self {
        let node = self.node.and_then(|node| node.items.as_deref());
        Self { node, place: Place::Inner, depth: self.depth + 1 }
    }

    /// Whether the member is a field somebody can own.
    pub(super) fn tracks(self, name: &str) -> bool {
        match self.place {
            Place::Root => !UNTRACKED_ROOT.contains(&name),
            Place::Metadata => !UNTRACKED_METADATA.contains(&name),
            Place::Inner => true,
        }
    }

    /// Whether this is the object's `metadata`, which always exists.
    pub(super) fn is_metadata(self) -> bool {
        self.place == Place::Metadata
    }

    /// Whether the member belongs to the type; others are entries somebody chose to have.
    fn declares(self, name: &str) -> bool {
        (self.place == Place::Root && name == "metadata")
            || self.node.is_some_and(|node| node.properties.contains_key(name))
    }

    pub(super) fn shape<'v>(self, value: &'v Value) -> Shape<'n, 'v> {
        if self.depth > MAX_GRANULAR_DEPTH {
            return Shape::Leaf;
        }
        match value {
            Value::Object(members) if !self.node.is_some_and(|node| node.map_atomic) => {
                Shape::Object(members)
            }
            Value::Array(items) => self.list(items),
            _ => Shape::Leaf,
        }
    }

    /// How a list at this place divides.
    pub(super) fn list<'v>(self, items: &'v [Value]) -> Shape<'n, 'v> {
        let Some(node) = self.node else { return Shape::Leaf };
        match &node.list_type {
            ListType::Atomic => Shape::Leaf,
            ListType::Set if items.iter().any(|item| item.is_object() || item.is_array()) => {
                Shape::Leaf
            }
            ListType::Set => Shape::Items(Items::Values, items),
            ListType::Map { .. } if !items.iter().all(Value::is_object) => Shape::Leaf,
            ListType::Map { keys } => {
                Shape::Items(Items::Keyed { keys, item: node.items.as_deref() }, items)
            }
        }
    }
}

impl<'n> Items<'n> {
    /// The element that names an item in a [`FieldSet`]. A missing key has its default.
    pub(super) fn element(self, item: &Value) -> String {
        match self {
            Self::Values => value_element(item),
            Self::Keyed { keys, .. } => {
                let value = |key: &'n String| self.key_value(item, key).unwrap_or(&Value::Null);
                key_element(keys.iter().map(|key| (key.as_str(), value(key))).collect())
            }
        }
    }

    /// The value of one key of an item.
    pub(super) fn key_value<'v>(self, item: &'v Value, key: &str) -> Option<&'v Value>
    where
        'n: 'v,
    {
        let Self::Keyed { item: node, .. } = self else { return None };
        let default = || node?.properties.get(key)?.default.as_ref();
        item.get(key).or_else(default)
    }

    /// Positions by element. `None` if two items are told apart by nothing.
    pub(super) fn index(self, items: &[Value]) -> Option<HashMap<String, usize>> {
        let mut index = HashMap::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            if index.insert(self.element(item), position).is_some() {
                return None;
            }
        }
        Some(index)
    }
}

/// Which containers are members of a set themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Containers {
    /// Those somebody chose to have: list items, map entries, empty objects.
    Chosen,
    /// All: the containers came into being with their contents.
    All,
}

impl FieldSet {
    /// The fields of a value, as an applied configuration owns them.
    pub fn of(node: &Node, value: &Value) -> Self {
        let mut set = collect(At::root(node), value, Containers::Chosen);
        set.owned = false;
        set
    }
}

/// The fields of the value at a place.
pub(super) fn collect(at: At<'_>, value: &Value, containers: Containers) -> FieldSet {
    let mut set = FieldSet::default();
    match at.shape(value) {
        Shape::Leaf => set.owned = true,
        Shape::Object(members) => {
            set.owned = members.is_empty() && at.place == Place::Inner;
            for (name, member) in members.iter().filter(|(name, _)| at.tracks(name)) {
                let mut child = collect(at.field(name), member, containers);
                child.owned |= !at.declares(name);
                if !child.is_empty() {
                    set.fields.insert(name.clone(), child);
                }
            }
        }
        Shape::Items(kind, items) => {
            set.owned = items.is_empty();
            for item in items {
                let mut child = collect(at.item(), item, containers);
                child.owned = true;
                set.items.insert(kind.element(item), child);
            }
        }
    }
    // Metadata exists without anybody's doing.
    set.owned |= containers == Containers::All && at.place == Place::Inner;
    set
}
