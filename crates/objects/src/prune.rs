//! Pruning: members that a type does not know leave the object before it is stored.
//!
//! Owns: which members count as known.
//! Never: looks at values, or drops a member of a map whose keys are data.

use serde_json::Value;

use crate::node::Node;
use crate::path::Path;

/// Deeper values are kept as they are: the walk must not exhaust the stack, and no schema that can
/// be installed reaches this deep.
const MAX_DEPTH: usize = 256;

/// Fields every embedded resource has, whether its schema lists them or not.
const RESOURCE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes the members `node` does not know; returns their paths in document order.
pub fn prune(node: &Node, value: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    walk(node, value, &Path::Root(""), 0, &mut dropped);
    dropped
}

fn walk(node: &Node, value: &mut Value, path: &Path<'_>, depth: usize, dropped: &mut Vec<String>) {
    if depth >= MAX_DEPTH || node.int_or_string {
        return;
    }
    match value {
        Value::Object(members) => members_of(node, members, path, depth, dropped),
        Value::Array(items) => {
            let Some(item) = &node.items else { return };
            for (index, value) in items.iter_mut().enumerate() {
                walk(item, value, &path.index(index), depth + 1, dropped);
            }
        }
        _ => {}
    }
}

fn members_of(
    node: &Node,
    members: &mut serde_json::Map<String, Value>,
    path: &Path<'_>,
    depth: usize,
    dropped: &mut Vec<String>,
) {
    let mut unknown = Vec::new();
    for (name, value) in &mut *members {
        if let Some(child) = node.properties.get(name) {
            walk(child, value, &path.field(name), depth + 1, dropped);
        } else if let Some(child) = &node.additional {
            walk(child, value, &path.key(name), depth + 1, dropped);
        } else if !(node.preserve_unknown || is_resource_field(node, name)) {
            dropped.push(path.field(name).to_string());
            unknown.push(name.clone());
        }
    }
    for name in unknown {
        members.remove(&name);
    }
}

fn is_resource_field(node: &Node, name: &str) -> bool {
    node.embedded_resource && RESOURCE_FIELDS.contains(&name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::parse;

    fn schema() -> Node {
        parse(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "port": {"x-kubernetes-int-or-string": true},
                "blob": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
                "attrs": {"type": "object", "additionalProperties": {"type": "object",
                    "properties": {"a": {"type": "string"}}}},
                "ports": {"type": "array", "items": {"type": "object",
                    "properties": {"name": {"type": "string"}}}},
                "res": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "properties": {"spec": {"type": "object"}}}
            }}}}),
            "schema",
        )
        .unwrap()
    }

    #[test]
    fn unknown_members_leave_at_every_depth_and_are_named() {
        let mut value = json!({"top": 1, "spec": {
            "bogus": 1, "port": "http",
            "blob": {"x": {"y": 1}, "known": {"a": "1", "zz": 2}},
            "attrs": {"k": {"a": "v", "b": 1}},
            "ports": [{"name": "a", "zz": 1}, {"name": "b"}],
            "res": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "other": 1, "spec": {}}
        }});
        let mut dropped = prune(&schema(), &mut value);
        dropped.sort();
        assert_eq!(
            dropped,
            [
                "spec.attrs[k].b",
                "spec.blob.known.zz",
                "spec.bogus",
                "spec.ports[0].zz",
                "spec.res.other",
                "top"
            ]
        );
        assert_eq!(
            value,
            json!({"spec": {
                "port": "http",
                "blob": {"x": {"y": 1}, "known": {"a": "1"}},
                "attrs": {"k": {"a": "v"}},
                "ports": [{"name": "a"}, {"name": "b"}],
                "res": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "spec": {}}
            }})
        );
        assert!(prune(&schema(), &mut value).is_empty(), "pruning is idempotent");
    }
}
