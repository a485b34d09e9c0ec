//! Edits of `metadata.managedFields` in its stored form.
//!
//! Every write of every object passes here, and most change one or two fields of long lists: editing
//! the JSON in place costs a fraction of reading and writing all entries.

use serde_json::{Map, Value};

use super::Writer;
use super::change::Change;
use super::entry::{self, Entry, MAX_UPDATE_ENTRIES, Operation};
use super::set::{FIELD, FieldSet, SELF};

/// The entries after a write that made `change`.
pub(super) fn updated(list: Value, change: Change, writer: &Writer<'_>) -> Value {
    let Value::Array(mut entries) = list else { return list };
    entries.retain_mut(|entry| {
        let Some(fields) = fields(entry) else { return false };
        subtract(fields, &change.gone);
        subtract(fields, &change.set);
        // The writer's own entry may be empty for a moment; dropping it then only loses its place.
        !fields.is_empty()
    });
    if !change.set.is_empty() {
        let own = entries.iter_mut().find(|entry| is_of(entry, writer));
        if let Some(Value::Object(own)) = own {
            own.insert("time".to_owned(), Value::from(writer.now));
            if let Some(Value::Object(fields)) = own.get_mut("fieldsV1") {
                add(fields, &change.set);
            }
        } else {
            entries.push(Entry::new(writer, Operation::Update, change.set).encode());
        }
    }
    let updates = entries.iter().filter(|entry| text(entry, "operation") == Some("Update")).count();
    if updates > MAX_UPDATE_ENTRIES {
        let list = Value::Array(entries);
        return entry::decode(&list).map_or(list, entry::encode);
    }
    entries.sort_by(|a, b| order(a).cmp(&order(b)));
    Value::Array(entries)
}

fn fields(entry: &mut Value) -> Option<&mut Map<String, Value>> {
    entry.get_mut("fieldsV1")?.as_object_mut()
}

fn text<'v>(entry: &'v Value, name: &str) -> Option<&'v str> {
    entry.get(name).and_then(Value::as_str)
}

fn is_of(entry: &Value, writer: &Writer<'_>) -> bool {
    text(entry, "operation") == Some("Update")
        && text(entry, "manager") == Some(writer.manager)
        && text(entry, "apiVersion") == Some(writer.api_version)
        && text(entry, "subresource") == writer.subresource
}

/// The order of [`entry::encode`].
fn order(entry: &Value) -> [Option<&str>; 5] {
    ["operation", "time", "manager", "apiVersion", "subresource"].map(|name| text(entry, name))
}

/// Removes the members of `changed` with all below them.
fn subtract(node: &mut Map<String, Value>, changed: &FieldSet) {
    // An empty object is a member without anything below it.
    if node.is_empty() {
        return;
    }
    let mut name = String::new();
    for (field, change) in &changed.fields {
        name.clear();
        name.push_str(FIELD);
        name.push_str(field);
        subtract_child(node, &name, change);
    }
    for (element, change) in &changed.items {
        subtract_child(node, element, change);
    }
    // A member that lost everything below it is written without the mark.
    if node.len() == 1 {
        node.remove(SELF);
    }
}

fn subtract_child(node: &mut Map<String, Value>, name: &str, change: &FieldSet) {
    let Some(Value::Object(child)) = node.get_mut(name) else { return };
    let was_member = child.is_empty() || child.contains_key(SELF);
    if !change.owned {
        subtract(child, change);
    }
    if change.owned || (child.is_empty() && !was_member) {
        node.remove(name);
    }
}

/// Adds the members of `set`.
fn add(node: &mut Map<String, Value>, set: &FieldSet) {
    let mut name = String::new();
    for (field, child) in &set.fields {
        name.clear();
        name.push_str(FIELD);
        name.push_str(field);
        add_child(node, &name, child);
    }
    for (element, child) in &set.items {
        add_child(node, element, child);
    }
}

fn add_child(node: &mut Map<String, Value>, name: &str, set: &FieldSet) {
    let Some(Value::Object(child)) = node.get_mut(name) else {
        node.insert(name.to_owned(), set.to_value());
        return;
    };
    let is_member = child.is_empty() || child.contains_key(SELF) || set.owned;
    add(child, set);
    if is_member && !child.is_empty() {
        child.entry(SELF).or_insert_with(|| Value::Object(Map::new()));
    }
}
