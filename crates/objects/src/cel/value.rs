//! From JSON to the values rules compute with, by way of the schema.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::Value as Cel;
use kube_cel::cel::functions::{duration, timestamp};
use kube_cel::cel::objects::{Key, Map, Opaque, OptionalValue};
use serde_json::Value;

use super::shape::Type;
use crate::node::{JsonType, Node};

/// The value rules see. What the schema does not describe is left out. `resource`: the node is a
/// whole object, of whose metadata only the names are visible.
pub(crate) fn convert(node: &Node, value: &Value, resource: bool) -> Cel {
    match value {
        Value::Object(members) => match &node.additional {
            Some(child) => {
                map(members.iter().map(|(name, value)| (name, convert(child, value, false))))
            }
            None if node.kind.is_some() => fields(node, members, resource),
            None => plain(value),
        },
        Value::Array(items) => match &node.items {
            Some(child) => list(items.iter().map(|item| convert(child, item, false)).collect()),
            None => plain(value),
        },
        Value::String(text) if node.kind == Some(JsonType::String) => string(node, text),
        Value::Number(number) => match node.kind {
            Some(JsonType::Number) => number.as_f64().map_or(Cel::Null, Cel::Float),
            _ => integer(number),
        },
        scalar => plain(scalar),
    }
}

fn fields(node: &Node, members: &serde_json::Map<String, Value>, resource: bool) -> Cel {
    let resource = resource || node.embedded_resource;
    map(members.iter().filter_map(|(name, value)| {
        if resource {
            match name.as_str() {
                "apiVersion" | "kind" => return Some((name, plain(value))),
                "metadata" => return Some((name, metadata(value))),
                _ => {}
            }
        }
        let child = node.properties.get(name)?;
        // A null that the schema does not allow means "absent".
        if (value.is_null() && !child.nullable) || Type::of(child, false).is_none() {
            return None;
        }
        Some((name, convert(child, value, false)))
    }))
}

fn metadata(value: &Value) -> Cel {
    let names = value.as_object().into_iter().flatten();
    map(names
        .filter(|(name, _)| matches!(name.as_str(), "name" | "generateName"))
        .map(|(name, value)| (name, plain(value))))
}

fn string(node: &Node, text: &str) -> Cel {
    let shared = || Arc::new(text.to_owned());
    // Text that does not fit its format was refused by the schema, or is old and tolerated.
    let parsed = match node.checks.format.as_deref() {
        Some("date-time") => timestamp(shared()).ok(),
        Some("date") => timestamp(Arc::new(format!("{text}T00:00:00Z"))).ok(),
        Some("duration") => duration(shared()).ok(),
        Some("byte") => STANDARD.decode(text).ok().map(|bytes| Cel::Bytes(Arc::new(bytes))),
        _ => None,
    };
    parsed.unwrap_or_else(|| Cel::String(shared()))
}

#[expect(clippy::cast_possible_truncation, reason = "guarded by the range and the fraction")]
fn integer(number: &serde_json::Number) -> Cel {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if let Some(number) = number.as_i64() {
        return Cel::Int(number);
    }
    match number.as_f64() {
        Some(float) if float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float) => {
            Cel::Int(float as i64)
        }
        Some(float) => Cel::Float(float),
        None => Cel::Null,
    }
}

/// A value no schema describes.
fn plain(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => integer(number),
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => list(items.iter().map(plain).collect()),
        Value::Object(members) => map(members.iter().map(|(name, value)| (name, plain(value)))),
    }
}

fn list(items: Vec<Cel>) -> Cel {
    Cel::List(Arc::new(items))
}

fn map<'a>(members: impl Iterator<Item = (&'a String, Cel)>) -> Cel {
    let members: HashMap<Key, Cel> =
        members.map(|(name, value)| (Key::String(Arc::new(name.clone())), value)).collect();
    Cel::Map(Map { map: Arc::new(members) })
}

pub(super) fn optional(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

/// The optional a value is, if it is one.
pub(super) fn as_optional(value: &Cel) -> Option<&OptionalValue> {
    match value {
        Cel::Opaque(opaque) => opaque.downcast_ref::<OptionalValue>(),
        _ => None,
    }
}

/// What `type()` yields.
#[derive(PartialEq, Eq)]
struct TypeName(&'static str);

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Opaque for TypeName {
    fn runtime_type_name(&self) -> &'static str {
        "type"
    }
}

/// The value of a type's name in an expression.
pub(super) fn type_value(name: &str) -> Option<Cel> {
    const NAMES: [&str; 12] = [
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "optional_type",
        "dyn",
    ];
    let name = match name {
        "google.protobuf.Timestamp" | "timestamp" => "timestamp",
        "google.protobuf.Duration" | "duration" => "duration",
        name => NAMES.iter().find(|known| **known == name)?,
    };
    Some(Cel::Opaque(Arc::new(TypeName(name))))
}

pub(super) fn type_of(value: &Cel) -> Cel {
    let name = match value {
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::Bool(_) => "bool",
        Cel::Duration(_) => "duration",
        Cel::Timestamp(_) => "timestamp",
        Cel::Opaque(opaque) if opaque.downcast_ref::<OptionalValue>().is_some() => "optional_type",
        Cel::Opaque(_) | Cel::Function(..) => "type",
        Cel::Null => "null_type",
    };
    Cel::Opaque(Arc::new(TypeName(name)))
}
