//! The structural part of a schema: the tree of types, without which nothing could be pruned.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Parser;
use crate::cause::Cause;
use crate::node::{JsonType, ListType, Node};
use crate::path::Path;
use crate::{defaults, prune, validate};

/// Where a schema stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) depth: usize,
    /// The schema of a whole object.
    pub(super) root: bool,
    /// The value has a counterpart in the stored object, so that rules may compare with it.
    pub(super) correlatable: bool,
}

impl Place {
    const fn below(self) -> Self {
        Self { depth: self.depth + 1, root: false, correlatable: self.correlatable }
    }
}

impl Parser {
    pub(super) fn structure(&mut self, schema: &Value, path: &Path<'_>, place: Place) -> Node {
        if !self.enter(path, place.depth) {
            return Node::default();
        }
        let Some(schema) = schema.as_object() else {
            self.invalid(path, schema, "must be a schema object");
            return Node::default();
        };
        self.forbid_keywords(schema, path);
        let mut node = Node {
            kind: self.kind(schema, path),
            title: self.text(schema, "title", path).unwrap_or_default(),
            description: self.text(schema, "description", path).unwrap_or_default(),
            nullable: self.flag(schema, "nullable", path),
            int_or_string: self.flag(schema, "x-kubernetes-int-or-string", path),
            preserve_unknown: self.flag(schema, "x-kubernetes-preserve-unknown-fields", path),
            embedded_resource: self.flag(schema, "x-kubernetes-embedded-resource", path),
            checks: self.checks(schema, path),
            ..Node::default()
        };
        self.check_type(schema, &node, path, place);
        self.map_type(schema, &mut node, path);
        self.list_type(schema, &mut node, path);
        self.children(schema, &mut node, path, place);
        self.check_list_items(&node, path);
        self.branches(schema, &mut node, path, place.depth);
        self.default(schema, &mut node, path, place);
        self.validations(schema, &mut node, path, place);
        node.rules_below = !node.compiled.is_empty()
            || node.items.iter().chain(&node.additional).any(|child| child.rules_below)
            || node.properties.values().any(|child| child.rules_below);
        node
    }

    fn check_type(
        &mut self,
        schema: &Map<String, Value>,
        node: &Node,
        path: &Path<'_>,
        place: Place,
    ) {
        let here = path.field("type");
        let untyped = schema.get("type").is_none_or(|kind| kind.is_null() || kind == "");
        if place.root {
            if untyped {
                self.required(&here, "must be object at the root");
            } else if node.kind != Some(JsonType::Object) {
                let found = schema.get("type").unwrap_or(&Value::Null);
                self.invalid(&here, found, "must be object at the root");
            }
        } else if untyped && !node.int_or_string && !node.preserve_unknown {
            self.required(&here, "every value of a structural schema needs a type");
        }
        if node.int_or_string && !untyped {
            self.forbidden(&here, "must not be set together with x-kubernetes-int-or-string");
        }
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let here = path.field("x-kubernetes-preserve-unknown-fields");
            self.invalid(&here, &Value::Bool(false), "must be true or absent");
        }
        if node.embedded_resource {
            let here = path.field("x-kubernetes-embedded-resource");
            if node.kind != Some(JsonType::Object) {
                self.invalid(&here, &Value::Bool(true), "needs the type object");
            } else if !node.preserve_unknown && !schema.contains_key("properties") {
                let beside = "properties or x-kubernetes-preserve-unknown-fields must be set too";
                self.required(&path.field("properties"), beside);
            }
        }
    }

    fn map_type(&mut self, schema: &Map<String, Value>, node: &mut Node, path: &Path<'_>) {
        let name = "x-kubernetes-map-type";
        let Some(text) = self.text(schema, name, path) else { return };
        match text.as_str() {
            "atomic" => node.map_atomic = true,
            "granular" => {}
            _ => {
                let field = path.field(name).to_string();
                self.refuse(Cause::not_supported(
                    field,
                    &Value::from(text),
                    &["atomic", "granular"],
                ));
            }
        }
        if node.kind != Some(JsonType::Object) {
            self.forbidden(&path.field(name), "needs the type object");
        }
    }

    fn children(
        &mut self,
        schema: &Map<String, Value>,
        node: &mut Node,
        path: &Path<'_>,
        place: Place,
    ) {
        let resource = place.root || node.embedded_resource;
        if let Some(properties) = self.object(schema, "properties", path) {
            if node.kind.is_some_and(|kind| kind != JsonType::Object) {
                self.forbidden(&path.field("properties"), "needs the type object");
            }
            node.properties =
                self.properties(properties, &path.field("properties"), place, resource);
        }
        self.additional(schema, node, path, place);
        let here = path.field("items");
        match schema.get("items").filter(|items| !items.is_null()) {
            Some(Value::Array(_)) => self.forbidden(&here, "must be one schema, not a list"),
            Some(items) => {
                if node.kind.is_some_and(|kind| kind != JsonType::Array) {
                    self.forbidden(&here, "needs the type array");
                }
                let mut below = place.below();
                below.correlatable &= matches!(node.list_type, ListType::Map { .. });
                node.items = Some(Arc::new(self.structure(items, &here, below)));
            }
            None if node.kind == Some(JsonType::Array) => {
                self.required(&here, "a list needs a schema of its items");
            }
            None => {}
        }
    }

    fn properties(
        &mut self,
        properties: &Map<String, Value>,
        path: &Path<'_>,
        place: Place,
        resource: bool,
    ) -> BTreeMap<String, Arc<Node>> {
        let mut nodes = BTreeMap::new();
        for (name, schema) in properties {
            let here = path.key(name);
            let node = self.structure(schema, &here, place.below());
            if resource {
                self.check_resource_field(name, schema, &node, &here);
            }
            nodes.insert(name.clone(), Arc::new(node));
        }
        nodes
    }

    /// The fields every resource has are described by the server; a schema may only repeat them.
    fn check_resource_field(&mut self, name: &str, schema: &Value, node: &Node, path: &Path<'_>) {
        match name {
            "apiVersion" | "kind" if node.kind != Some(JsonType::String) => {
                self.invalid(&path.field("type"), &Value::Null, "must be string");
            }
            "metadata" => {
                if node.kind != Some(JsonType::Object) {
                    self.invalid(&path.field("type"), &Value::Null, "must be object");
                }
                let plain = schema.as_object().is_some_and(|schema| {
                    schema.keys().all(|key| METADATA_KEYWORDS.contains(&key.as_str()))
                });
                let names =
                    node.properties.keys().all(|key| key == "name" || key == "generateName");
                if !plain || !names {
                    self.forbidden(path, "may only restrict name and generateName");
                }
            }
            _ => {}
        }
    }

    fn additional(
        &mut self,
        schema: &Map<String, Value>,
        node: &mut Node,
        path: &Path<'_>,
        place: Place,
    ) {
        let here = path.field("additionalProperties");
        let Some(additional) = schema.get("additionalProperties").filter(|one| !one.is_null())
        else {
            return;
        };
        if place.root {
            return self.forbidden(&here, "must not be used at the root");
        }
        if additional == &Value::Bool(false) {
            return self.forbidden(&here, "must not be false: unknown members are pruned anyway");
        }
        if !node.properties.is_empty() {
            return self.forbidden(&here, "must not be set together with properties");
        }
        if node.kind.is_some_and(|kind| kind != JsonType::Object) {
            self.forbidden(&here, "needs the type object");
        }
        node.additional = Some(Arc::new(if additional == &Value::Bool(true) {
            Node { preserve_unknown: true, ..Node::default() }
        } else {
            self.structure(additional, &here, place.below())
        }));
    }

    fn default(
        &mut self,
        schema: &Map<String, Value>,
        node: &mut Node,
        path: &Path<'_>,
        place: Place,
    ) {
        let Some(default) = schema.get("default") else { return };
        let here = path.field("default");
        if place.root {
            return self.forbidden(&here, "must not be set at the root");
        }
        if default.is_null() && !node.nullable {
            // As everywhere: such a null means "absent".
            return;
        }
        let mut value = default.clone();
        let unknown = prune::prune(node, &mut value);
        if let Some(name) = unknown.first() {
            self.invalid(&here, default, &format!("has the unknown member {name}"));
        }
        defaults::drop_nulls(node, &mut value);
        defaults::apply(node, &mut value);
        for cause in validate::part(node, &value, &here) {
            self.refuse(cause);
        }
        node.default = Some(default.clone());
    }
}

/// Keywords allowed in the schema of `metadata`.
const METADATA_KEYWORDS: [&str; 5] = ["type", "description", "title", "properties", "nullable"];
