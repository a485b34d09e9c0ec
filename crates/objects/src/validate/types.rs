//! Wrong JSON types, as a decoder of a fixed type would find them.

use serde_json::Value;

use super::MAX_DEPTH;
use super::scalars::{has_type, type_name};
use crate::node::{JsonType, Node};
use crate::path::Path;

/// The first value whose JSON type does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode {found} into field {field} of type {wanted}")]
pub struct TypeMismatch {
    /// Path of the value; empty for the object itself.
    pub field: String,
    pub wanted: &'static str,
    pub found: &'static str,
}

/// Looks for wrong JSON types and for nothing else. Null fits everywhere: it means "absent".
pub fn types(node: &Node, value: &Value) -> Result<(), TypeMismatch> {
    walk(node, value, &Path::Root(""), 0)
}

fn walk(node: &Node, value: &Value, path: &Path<'_>, depth: usize) -> Result<(), TypeMismatch> {
    if value.is_null() {
        return Ok(());
    }
    let mismatch =
        |wanted| Err(TypeMismatch { field: path.to_string(), wanted, found: type_name(value) });
    if depth >= MAX_DEPTH {
        return mismatch("a value nested less deeply");
    }
    if node.int_or_string {
        let fits = value.is_string() || has_type(value, JsonType::Integer);
        return if fits { Ok(()) } else { mismatch("integer or string") };
    }
    if let Some(kind) = node.kind
        && !has_type(value, kind)
    {
        return mismatch(kind.as_str());
    }
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if let Some(child) = node.properties.get(name) {
                    walk(child, value, &path.field(name), depth + 1)?;
                } else if let Some(child) = &node.additional {
                    walk(child, value, &path.field(name), depth + 1)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(item) = &node.items {
                for (index, value) in items.iter().enumerate() {
                    walk(item, value, &path.index(index), depth + 1)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}
