mod apply;
mod laws;
mod set;
mod track;

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::node::{JsonType, ListType, Node};

fn object(members: Vec<(&str, Node)>) -> Node {
    let properties =
        members.into_iter().map(|(name, node)| (name.to_owned(), Arc::new(node))).collect();
    Node { kind: Some(JsonType::Object), properties, ..Node::default() }
}

fn list(list_type: ListType, item: Node) -> Node {
    Node { kind: Some(JsonType::Array), list_type, items: Some(Arc::new(item)), ..Node::default() }
}

fn keyed(keys: &[&str], item: Node) -> Node {
    list(ListType::Map { keys: keys.iter().map(|key| (*key).to_owned()).collect() }, item)
}

fn map() -> Node {
    Node {
        kind: Some(JsonType::Object),
        additional: Some(Arc::new(Node::default())),
        ..Node::default()
    }
}

fn defaulting(value: Value) -> Node {
    Node { default: Some(value), ..Node::default() }
}

/// A custom resource with every kind of field.
fn widget() -> Node {
    let port = object(vec![("name", Node::default()), ("port", defaulting(json!(80)))]);
    let socket = object(vec![
        ("port", Node::default()),
        ("protocol", defaulting(json!("TCP"))),
        ("note", Node::default()),
    ]);
    let spec = object(vec![
        ("size", Node::default()),
        ("replicas", defaulting(json!(1))),
        ("nick", Node::default()),
        ("tags", list(ListType::Set, Node::default())),
        ("ports", keyed(&["name"], port)),
        ("sockets", keyed(&["protocol", "port"], socket)),
        ("args", list(ListType::Atomic, Node::default())),
        ("attrs", map()),
        ("selector", Node { map_atomic: true, ..map() }),
        ("blob", Node { preserve_unknown: true, ..object(vec![]) }),
    ]);
    let status = object(vec![
        ("replicas", Node::default()),
        ("conditions", keyed(&["type"], object(vec![("type", Node::default())]))),
    ]);
    object(vec![("spec", spec), ("status", status)])
}

fn writer<'a>(manager: &'a str, now: &'a str) -> Writer<'a> {
    Writer { manager, api_version: "x.io/v1", subresource: None, now }
}

fn full(spec: &Value) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

/// Owners as `manager/operation[/subresource]: paths`, in stored order.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .map(|entry| {
            let paths = FieldSet::parse(&entry["fieldsV1"]).unwrap().paths().join(" ");
            let subresource = entry["subresource"].as_str().map(|name| format!("/{name}"));
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            format!(
                "{}/{}{}: {paths}",
                text("manager"),
                text("operation"),
                subresource.unwrap_or_default()
            )
        })
        .collect()
}

fn times(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.iter().map(|entry| entry["time"].as_str().unwrap_or_default().to_owned()).collect()
}
