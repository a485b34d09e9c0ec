//! allOf, anyOf, oneOf and not: conditions on values, which may not shape the object.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Parser;
use crate::node::{Checks, JsonType, Node};
use crate::path::Path;

/// Keywords that shape or describe, and therefore belong outside of branches.
const STRUCTURAL: [&str; 15] = [
    "type",
    "title",
    "description",
    "default",
    "nullable",
    "additionalProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
    "example",
    "externalDocs",
];

impl Parser {
    /// Reads the branches of a structural schema into its checks.
    pub(super) fn branches(
        &mut self,
        schema: &Map<String, Value>,
        node: &mut Node,
        path: &Path<'_>,
        depth: usize,
    ) {
        let shape = Arc::new(Node {
            kind: node.kind,
            properties: node.properties.clone(),
            additional: node.additional.clone(),
            items: node.items.clone(),
            int_or_string: node.int_or_string,
            preserve_unknown: node.preserve_unknown,
            ..Node::default()
        });
        self.combine(schema, &mut node.checks, Some(&shape), path, depth);
    }

    fn combine(
        &mut self,
        schema: &Map<String, Value>,
        checks: &mut Checks,
        shape: Option<&Arc<Node>>,
        path: &Path<'_>,
        depth: usize,
    ) {
        checks.all_of = self.alternatives(schema, "allOf", shape, path, depth);
        checks.any_of = self.alternatives(schema, "anyOf", shape, path, depth);
        checks.one_of = self.alternatives(schema, "oneOf", shape, path, depth);
        if let Some(not) = schema.get("not").filter(|not| !not.is_null()) {
            let node = self.branch(not, shape, &path.field("not"), depth + 1);
            checks.not = Some(Box::new(node));
        }
    }

    fn alternatives(
        &mut self,
        schema: &Map<String, Value>,
        name: &str,
        shape: Option<&Arc<Node>>,
        path: &Path<'_>,
        depth: usize,
    ) -> Vec<Node> {
        let here = path.field(name);
        let branches = self.array(schema, name, path);
        let mut nodes = Vec::with_capacity(branches.len());
        for (index, branch) in branches.iter().enumerate() {
            nodes.push(self.branch(branch, shape, &here.index(index), depth + 1));
        }
        nodes
    }

    /// `shape` is the structural schema of the same value, if there is one.
    fn branch(
        &mut self,
        schema: &Value,
        shape: Option<&Arc<Node>>,
        path: &Path<'_>,
        depth: usize,
    ) -> Node {
        if !self.enter(path, depth) {
            return Node::default();
        }
        let Some(schema) = schema.as_object() else {
            self.invalid(path, schema, "must be a schema object");
            return Node::default();
        };
        self.forbid_keywords(schema, path);
        let mut node = Node { checks: self.checks(schema, path), ..Node::default() };
        for name in STRUCTURAL {
            if !schema.contains_key(name) {
                continue;
            }
            if name == "type" && Self::is_int_or_string(schema, shape) {
                node.kind = self.kind(schema, path);
                continue;
            }
            self.forbidden(&path.field(name), "must be set outside of allOf, anyOf, oneOf and not");
        }
        self.branch_children(schema, &mut node, shape, path, depth);
        self.combine(schema, &mut node.checks, shape, path, depth);
        node
    }

    /// The two types an int-or-string has may be written out.
    fn is_int_or_string(schema: &Map<String, Value>, shape: Option<&Arc<Node>>) -> bool {
        shape.is_some_and(|shape| shape.int_or_string)
            && matches!(schema.get("type").and_then(Value::as_str), Some("integer" | "string"))
    }

    fn branch_children(
        &mut self,
        schema: &Map<String, Value>,
        node: &mut Node,
        shape: Option<&Arc<Node>>,
        path: &Path<'_>,
        depth: usize,
    ) {
        if let Some(properties) = self.object(schema, "properties", path) {
            let properties_path = path.field("properties");
            for (name, schema) in properties {
                let here = properties_path.key(name);
                let child = shape.and_then(|shape| {
                    shape.properties.get(name).or(shape.additional.as_ref()).cloned()
                });
                let open = shape.is_none_or(|shape| shape.preserve_unknown);
                if child.is_none() && !open {
                    self.required(&here, "must also be described outside of the branch");
                }
                let child = self.branch(schema, child.as_ref(), &here, depth + 1);
                node.properties.insert(name.clone(), Arc::new(child));
            }
        }
        if let Some(items) = schema.get("items").filter(|items| !items.is_null()) {
            let here = path.field("items");
            let child = shape.and_then(|shape| shape.items.clone());
            if child.is_none() && shape.is_some_and(|shape| shape.kind != Some(JsonType::Array)) {
                self.required(&here, "must also be described outside of the branch");
            }
            node.items = Some(Arc::new(self.branch(items, child.as_ref(), &here, depth + 1)));
        }
    }
}
