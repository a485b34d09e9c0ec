//! `x-kubernetes-list-type`: how items are told apart, and what their schema must guarantee for it.

use serde_json::{Map, Value};

use super::Parser;
use crate::cause::Cause;
use crate::node::{JsonType, ListType, Node};
use crate::path::Path;

const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_KEYS: &str = "x-kubernetes-list-map-keys";

impl Parser {
    pub(super) fn list_type(
        &mut self,
        schema: &Map<String, Value>,
        node: &mut Node,
        path: &Path<'_>,
    ) {
        let keys = self.texts(schema, MAP_KEYS, path);
        let name = self.text(schema, LIST_TYPE, path);
        let here = path.field(LIST_TYPE);
        if name.is_some() && node.kind != Some(JsonType::Array) {
            self.forbidden(&here, "needs the type array");
        }
        if !keys.is_empty() && name.as_deref() != Some("map") {
            self.forbidden(&path.field(MAP_KEYS), "needs the list type map");
        }
        match name.as_deref() {
            None | Some("atomic") => {}
            Some("set") => node.list_type = ListType::Set,
            Some("map") => {
                if keys.is_empty() {
                    self.required(&path.field(MAP_KEYS), "the list type map needs keys");
                }
                self.check_distinct(&keys, path);
                node.list_type = ListType::Map { keys };
            }
            Some(other) => {
                let all = ["atomic", "map", "set"];
                self.refuse(Cause::not_supported(here.to_string(), &Value::from(other), &all));
            }
        }
    }

    fn check_distinct(&mut self, keys: &[String], path: &Path<'_>) {
        let here = path.field(MAP_KEYS);
        for (index, key) in keys.iter().enumerate() {
            if keys.iter().take(index).any(|other| other == key) {
                let field = here.index(index).to_string();
                self.refuse(Cause::duplicate(field, &Value::from(key.as_str())));
            }
        }
    }

    /// Runs when the items are known.
    pub(super) fn check_list_items(&mut self, node: &Node, path: &Path<'_>) {
        let Some(items) = node.items.as_deref() else { return };
        let here = path.field("items");
        match &node.list_type {
            ListType::Atomic => {}
            ListType::Set => {
                let atomic = match items.kind {
                    Some(JsonType::Object) => items.map_atomic,
                    Some(JsonType::Array) => items.list_type == ListType::Atomic,
                    _ => true,
                };
                if !atomic {
                    self.forbidden(&here, "items of a set must be scalars or atomic");
                }
                if items.nullable {
                    self.forbidden(&here.field("nullable"), "items of a set must not be null");
                }
            }
            ListType::Map { keys } => self.check_keys(keys, items, &here),
        }
    }

    fn check_keys(&mut self, keys: &[String], items: &Node, path: &Path<'_>) {
        if items.kind != Some(JsonType::Object) {
            self.invalid(&path.field("type"), &Value::Null, "items of a map list must be objects");
            return;
        }
        if items.nullable {
            self.forbidden(&path.field("nullable"), "items of a map list must not be null");
        }
        let properties = path.field("properties");
        for key in keys {
            let here = properties.key(key);
            let Some(child) = items.properties.get(key) else {
                self.required(&here, "a key of a map list must be a property of its items");
                continue;
            };
            if matches!(child.kind, Some(JsonType::Object | JsonType::Array)) {
                self.invalid(
                    &here.field("type"),
                    &Value::Null,
                    "a key of a map list must be a scalar",
                );
            }
            if child.nullable {
                self.forbidden(&here.field("nullable"), "a key of a map list must not be null");
            }
            if !items.checks.required.contains(key) && child.default.is_none() {
                let detail = "a key of a map list must be required or have a default";
                self.required(&here.field("default"), detail);
            }
        }
    }
}
