//! Ownership after a create, an update or a patch.

use serde_json::{Map, Value};

use super::Writer;
use super::change::diff;
use super::entry::{self, Entry, Operation};
use super::shape::{At, Containers, collect};
use super::stored::updated;
use crate::node::Node;

/// Sets `metadata.managedFields` of `new`, the object as it will be stored: what the write changed
/// belongs to the writer from now on and to nobody else.
///
/// A client may replace the list by sending another one, and clear it by sending `[{}]`. An absent or
/// empty list changes nothing, so that clients that do not know the field cannot drop it. An object
/// without any entries is not tracked until somebody applies it.
pub fn track_update(node: &Node, old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let sent = take(new);
    let managed = match old {
        None => {
            let mut fields = collect(At::root(node), new, Containers::All);
            fields.owned = false;
            Some(entry::encode(vec![Entry::new(writer, Operation::Update, fields)]))
        }
        Some(old) => {
            let list = match base(old, sent, writer) {
                Base::Cleared => None,
                Base::Kept(list) => Some(list),
                Base::Sent(entries) => Some(List::Owned(entry::encode(entries))),
            };
            list.map(|list| {
                let change = diff(At::root(node), old, new);
                let list = list.into_value();
                if change.is_empty() { list } else { updated(list, change, writer) }
            })
        }
    };
    put(new, managed);
}

/// The entries a write starts from.
enum Base<'a> {
    Kept(List<'a>),
    Sent(Vec<Entry>),
    Cleared,
}

/// A list of entries that may not need copying.
enum List<'a> {
    Stored(&'a Value),
    Owned(Value),
}

impl List<'_> {
    fn into_value(self) -> Value {
        match self {
            Self::Stored(value) => value.clone(),
            Self::Owned(value) => value,
        }
    }
}

fn base<'a>(old: &'a Value, sent: Option<Value>, writer: &Writer<'_>) -> Base<'a> {
    let stored = stored(old);
    if let Some(sent) = sent
        // A subresource has no say about the object's metadata.
        && writer.subresource.is_none()
        && let Some(entries) = sent.as_array()
        && !entries.is_empty()
    {
        if is_reset(entries) {
            return Base::Cleared;
        }
        if stored == Some(&sent) {
            return Base::Kept(List::Owned(sent));
        }
        if let Some(entries) = entry::decode(&sent) {
            return Base::Sent(entries);
        }
    }
    stored.map_or(Base::Cleared, |stored| Base::Kept(List::Stored(stored)))
}

fn is_reset(entries: &[Value]) -> bool {
    matches!(entries, [Value::Object(only)] if only.is_empty())
}

/// The entries of an object, if it has any.
pub(super) fn stored(object: &Value) -> Option<&Value> {
    let list = object.get("metadata")?.get("managedFields")?;
    list.as_array().filter(|entries| !entries.is_empty()).map(|_| list)
}

pub(super) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

pub(super) fn put(object: &mut Value, managed: Option<Value>) {
    let Some(managed) = managed.filter(|list| list.as_array().is_some_and(|list| !list.is_empty()))
    else {
        return;
    };
    let Value::Object(members) = object else { return };
    let metadata = members.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert("managedFields".to_owned(), managed);
    }
}
