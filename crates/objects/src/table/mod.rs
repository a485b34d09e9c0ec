//! Objects as rows of a table, the way `kubectl get` shows them.
//!
//! Owns: columns and cells of built-in kinds, and those a custom resource definition declares. Never:
//! reads a clock; ages are counted up to the `now` of the caller. A row always has one cell for each
//! column, whatever the object looks like.

mod age;
mod cluster;
mod columns;
mod custom;
mod event;
mod pod;
mod rows;
mod storage;
mod workload;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::access::text;
use crate::kinds::Kind;

pub use age::age;
pub use custom::{PrinterColumn, custom_cells, custom_columns};

/// One entry of `columnDefinitions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub format: String,
    pub description: String,
    /// 0 is always shown, anything else only in wide output.
    pub priority: i32,
}

impl Column {
    /// The first column of almost every table.
    pub fn name() -> Self {
        Self {
            name: "Name".to_owned(),
            kind: "string".to_owned(),
            format: "name".to_owned(),
            description: "Name of the object, unique in its namespace.".to_owned(),
            priority: 0,
        }
    }
}

/// The columns of a built-in kind.
pub fn columns(kind: &Kind) -> Vec<Column> {
    cluster::columns(kind).unwrap_or_else(|| columns::of(kind))
}

/// The cells of one object of a built-in kind, in the order of [`columns`].
pub fn cells(kind: &Kind, obj: &Value, now: Timestamp) -> Vec<Value> {
    if let Some(cells) = cluster::cells(kind, obj, now) {
        return cells;
    }
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::cells(obj, now),
        ("", "Event") => event::cells(obj, now),
        ("events.k8s.io", "Event") => event::cells(&crate::event::to_core(obj), now),
        ("apps" | "batch", _) => workload::cells(kind.kind, obj, now),
        ("", "PersistentVolume") => storage::volume(obj, now),
        ("", "PersistentVolumeClaim") => storage::claim(obj, now),
        ("storage.k8s.io", "StorageClass") => storage::class(obj, now),
        _ => rows::cells(kind, obj, now),
    }
}

fn name(obj: &Value) -> Value {
    text(obj, "metadata.name").into()
}

fn created(obj: &Value, now: Timestamp) -> Value {
    age(text(obj, "metadata.creationTimestamp"), now).into()
}

/// The text, or a placeholder where there is none.
fn or(text: &str, placeholder: &str) -> Value {
    if text.is_empty() { placeholder.into() } else { text.into() }
}

fn or_none(text: &str) -> Value {
    or(text, "<none>")
}

/// The strings under `member` of every item, joined.
fn joined(items: &[Value], member: &str, separator: &str) -> String {
    let all: Vec<&str> = items.iter().map(|item| text(item, member)).collect();
    all.join(separator)
}

/// The strings of a list, joined.
fn listed(items: &[Value], separator: &str) -> String {
    let all: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    all.join(separator)
}
