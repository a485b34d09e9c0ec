//! Nulls and defaults: what an object looks like once its schema has filled it in.
//!
//! Owns: dropping nulls that mean "absent", and adding default values.
//! Never: creates a parent only to put a default below it.

use serde_json::Value;

use crate::node::Node;

/// See [`crate::prune`]: deeper values are left alone.
const MAX_DEPTH: usize = 256;
/// How much text defaults may add to one object. More than an object may have at all, so whoever
/// sends one that would get more of them is refused for its size; before that they would fill the
/// memory, as one short list of empty items gets all the defaults of its items.
const MAX_ADDED_BYTES: usize = 4 << 20;

/// Drops members that are null although their schema does not allow null: such a null means
/// "absent" (clients serialise missing values so). Null list items stay; validation refuses them.
pub fn drop_nulls(node: &Node, value: &mut Value) {
    drop_below(node, value, 0);
}

fn drop_below(node: &Node, value: &mut Value, depth: usize) {
    if depth >= MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(members) => {
            members.retain(|name, value| match child(node, name) {
                Some(child) => !value.is_null() || child.nullable || is_anything(child),
                None => true,
            });
            for (name, value) in members {
                if let Some(child) = child(node, name) {
                    drop_below(child, value, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            let Some(item) = &node.items else { return };
            for value in items {
                drop_below(item, value, depth + 1);
            }
        }
        _ => {}
    }
}

/// Puts defaults where a member is absent, at every depth that exists, until they are too many.
pub fn apply(node: &Node, value: &mut Value) {
    apply_below(node, value, 0, &mut { MAX_ADDED_BYTES });
}

fn apply_below(node: &Node, value: &mut Value, depth: usize, room_bytes: &mut usize) {
    if depth >= MAX_DEPTH || *room_bytes == 0 {
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, child) in &node.properties {
                if let Some(default) = &child.default
                    && !members.contains_key(name)
                {
                    let added = name.len().saturating_add(text_bytes(default));
                    *room_bytes = room_bytes.saturating_sub(added);
                    members.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in members {
                if let Some(child) = child(node, name) {
                    apply_below(child, value, depth + 1, room_bytes);
                }
            }
        }
        Value::Array(items) => {
            let Some(item) = &node.items else { return };
            for value in items {
                apply_below(item, value, depth + 1, room_bytes);
            }
        }
        _ => {}
    }
}

/// No more than the value takes as text.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(text_bytes).sum::<usize>() + 2,
        Value::Object(members) => {
            members.iter().map(|(name, value)| name.len() + text_bytes(value)).sum::<usize>() + 2
        }
    }
}

fn child<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    node.properties.get(name).or(node.additional.as_ref()).map(AsRef::as_ref)
}

/// A value without a type, kept as it came: null is data there.
fn is_anything(node: &Node) -> bool {
    node.kind.is_none() && node.preserve_unknown && !node.int_or_string
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::parse;

    fn schema() -> Node {
        parse(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "replicas": {"type": "integer", "default": 1},
                "prio": {"type": "integer", "nullable": true, "default": 5},
                "deep": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}},
                "auto": {"type": "object", "default": {},
                    "properties": {"a": {"type": "string", "default": "x"}}},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
                "ports": {"type": "array", "items": {"type": "object",
                    "properties": {"port": {"type": "integer", "default": 80}}}},
                "attrs": {"type": "object", "additionalProperties": {"type": "string"}}
            }}}}),
            "schema",
        )
        .unwrap()
    }

    #[test]
    fn nulls_mean_absent_unless_the_schema_allows_null() {
        let mut value = json!({"spec": {"replicas": null, "prio": null, "deep": {"a": null},
            "any": null, "attrs": {"k": null, "l": "v"}, "ports": [null, {"port": null}]}});
        drop_nulls(&schema(), &mut value);
        assert_eq!(
            value,
            json!({"spec": {"prio": null, "deep": {}, "any": null, "attrs": {"l": "v"},
                "ports": [null, {}]}})
        );
    }

    #[test]
    fn many_small_items_do_not_become_more_than_an_object_may_have() {
        let long = "y".repeat(1000);
        let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items":
            {"type": "object", "properties": {"a": {"type": "string", "default": long}}}}}});
        let schema = parse(&schema, "schema").unwrap();
        let mut value = json!({"list": vec![json!({}); 20_000]});
        apply(&schema, &mut value);
        let bytes = value.to_string().len();
        assert!((4 << 20..5 << 20).contains(&bytes), "{bytes}");
    }

    #[test]
    fn defaults_fill_what_exists_and_never_create_parents() {
        let mut value = json!({"spec": {"prio": null, "ports": [{}, {"port": 1}]}});
        apply(&schema(), &mut value);
        assert_eq!(
            value,
            json!({"spec": {"replicas": 1, "prio": null, "auto": {"a": "x"},
                "ports": [{"port": 80}, {"port": 1}]}})
        );
        let mut value = json!({});
        apply(&schema(), &mut value);
        assert_eq!(value, json!({}));
    }
}
