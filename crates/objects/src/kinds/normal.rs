//! The normal form of a built-in kind's values: timestamps, quantities, and nulls in maps.
//!
//! Owns: the walk; where such values are, the type says. Never: fails; what cannot be read stays for
//! [`unreadable`].

use serde_json::{Map, Value};

use crate::node::{JsonType, Node};
use crate::quantity::Quantity;
use crate::time::{self, Precision};

/// Deeper values are refused before they come here.
const MAX_DEPTH: usize = 256;

/// A value that has more than one spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaf {
    Time(Precision),
    Quantity,
    /// An amount of a resource: nobody can have less than a thousandth.
    Amount,
}

fn leaf(node: &Node) -> Option<Leaf> {
    match node.checks.format.as_deref()? {
        "date-time" if node.title == "MicroTime" => Some(Leaf::Time(Precision::Micros)),
        "date-time" => Some(Leaf::Time(Precision::Seconds)),
        "quantity" => Some(Leaf::Quantity),
        _ => None,
    }
}

/// The leaf below a member; amounts of resources are the values of maps.
fn leaf_below(node: &Node, name: &str) -> Option<Leaf> {
    match (leaf(child(node, name)?)?, node.properties.contains_key(name)) {
        (Leaf::Quantity, false) => Some(Leaf::Amount),
        (leaf, _) => Some(leaf),
    }
}

fn child<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    node.properties.get(name).or(node.additional.as_ref()).map(AsRef::as_ref)
}

/// Rewrites every timestamp and quantity that can be read; drops timestamps that are null.
pub(super) fn values(node: &Node, value: &mut Value) {
    rewrite(node, value, 0);
}

fn rewrite(node: &Node, value: &mut Value, depth: usize) {
    match value {
        _ if depth >= MAX_DEPTH => {}
        Value::Object(members) => {
            members.retain(|name, value| !value.is_null() || leaf_below(node, name).is_none());
            for (name, value) in members {
                match leaf_below(node, name) {
                    Some(leaf) => spell(leaf, value),
                    None => {
                        if let Some(child) = child(node, name) {
                            rewrite(child, value, depth + 1);
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            let Some(item) = &node.items else { return };
            for value in items {
                match leaf(item) {
                    Some(leaf) => spell(leaf, value),
                    None => rewrite(item, value, depth + 1),
                }
            }
        }
        _ => {}
    }
}

fn spell(leaf: Leaf, value: &mut Value) {
    let Some(normal) = normal(leaf, value) else { return };
    if value.as_str() != Some(normal.as_str()) {
        *value = normal.into();
    }
}

fn normal(leaf: Leaf, value: &Value) -> Option<String> {
    let number;
    let text = match value {
        Value::String(text) => text.trim(),
        Value::Number(given) if !matches!(leaf, Leaf::Time(_)) => {
            number = given.to_string();
            &number
        }
        _ => return None,
    };
    match leaf {
        Leaf::Time(precision) => time::normal(text, precision),
        Leaf::Quantity => Quantity::normal(text),
        Leaf::Amount => Quantity::rounded_up_to_thousandths(text),
    }
}

/// Says which value is no timestamp or quantity though its type is one.
pub(super) fn unreadable(node: &Node, value: &Value) -> Option<String> {
    find_unreadable(node, value, 0)
}

fn find_unreadable(node: &Node, value: &Value, depth: usize) -> Option<String> {
    match value {
        _ if depth >= MAX_DEPTH => None,
        Value::Null => None,
        Value::Object(members) => members
            .iter()
            .find_map(|(name, value)| find_unreadable(child(node, name)?, value, depth + 1)),
        Value::Array(items) => {
            let item = node.items.as_deref()?;
            items.iter().find_map(|value| find_unreadable(item, value, depth + 1))
        }
        scalar => {
            let leaf = leaf(node)?;
            normal(leaf, scalar).is_none().then(|| match leaf {
                Leaf::Time(precision) => {
                    format!(
                        "parsing time {scalar} as {:?}: it has another form",
                        precision.layout()
                    )
                }
                Leaf::Quantity | Leaf::Amount => format!(
                    "quantities must match the regular expression \
                     '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$', which {scalar} does not"
                ),
            })
        }
    }
}

/// A null as a value of a map (a label, a key of a `ConfigMap`, an amount) is a key with nothing in
/// it, not the absence of the key: built-in maps hold plain values, and null decodes to an empty one.
pub(super) fn fill_map_nulls(node: &Node, value: &mut Value) {
    fill(node, value, 0);
}

fn fill(node: &Node, value: &mut Value, depth: usize) {
    match value {
        _ if depth >= MAX_DEPTH => {}
        Value::Object(members) => {
            let empty = node.additional.as_deref().and_then(empty_value);
            for (name, value) in members {
                match (&empty, child(node, name)) {
                    (Some(empty), _) if value.is_null() => *value = empty.clone(),
                    (_, Some(child)) => fill(child, value, depth + 1),
                    (_, None) => {}
                }
            }
        }
        Value::Array(items) => {
            let Some(item) = &node.items else { return };
            for value in items {
                fill(item, value, depth + 1);
            }
        }
        _ => {}
    }
}

fn empty_value(node: &Node) -> Option<Value> {
    match (leaf(node), node.kind) {
        (Some(Leaf::Quantity | Leaf::Amount), _) => Some("0".into()),
        (Some(Leaf::Time(_)), _) => None,
        (None, Some(JsonType::String)) => Some("".into()),
        (None, Some(JsonType::Integer)) => Some(0.into()),
        (None, Some(JsonType::Boolean)) => Some(false.into()),
        (None, Some(JsonType::Object)) => Some(Value::Object(Map::new())),
        (None, _) => None,
    }
}
