//! What the store keeps: objects by key, the few fields of `metadata` it indexes, and events.
//!
//! Bodies may hold secrets, so nothing here prints one.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::WriteError;

/// Deeper objects are refused: what is stored must be readable by a parser that stops at 128
/// levels, also when wrapped into a list or a watch event.
const MAX_DEPTH: usize = 100;

/// Names an object. `namespace` is empty for cluster-scoped ones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    pub resource: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(
        resource: impl Into<Arc<str>>,
        namespace: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
    ) -> Self {
        Self { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }
}

/// The fields of `metadata` that are asked for without parsing the body.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Meta {
    pub uid: Box<str>,
    /// Sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The uids of `ownerReferences`.
    pub owners: Box<[Box<str>]>,
    pub generation: Option<i64>,
    /// `deletionTimestamp` is set.
    pub deleting: bool,
    /// At least one finalizer is left.
    pub finalizers: bool,
    /// One of them waits for dependents to go first.
    pub foreground: bool,
    /// The uids of those owners whose deletion waits for it.
    pub holds_back: Box<[Box<str>]>,
}

/// The same fields as they stand in a body; the rest of it is checked for syntax only.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Indexed {
    uid: Value,
    labels: Value,
    owner_references: Value,
    generation: Value,
    deletion_timestamp: Value,
    finalizers: Value,
}

#[derive(Deserialize)]
struct Head {
    metadata: Indexed,
}

impl Meta {
    /// Reads the fields out of a body; fails when the body is not an object with `metadata`.
    pub(super) fn of_body(body: &[u8]) -> Result<Self, serde_json::Error> {
        let Head { metadata: found } = serde_json::from_slice(body)?;
        Ok(Self::read(|field| match field {
            Field::Uid => Some(&found.uid),
            Field::Labels => Some(&found.labels),
            Field::Owners => Some(&found.owner_references),
            Field::Generation => Some(&found.generation),
            Field::Deletion => Some(&found.deletion_timestamp),
            Field::Finalizers => Some(&found.finalizers),
        }))
    }

    fn of_metadata(metadata: &Map<String, Value>) -> Self {
        Self::read(|field| {
            metadata.get(match field {
                Field::Uid => "uid",
                Field::Labels => "labels",
                Field::Owners => "ownerReferences",
                Field::Generation => "generation",
                Field::Deletion => "deletionTimestamp",
                Field::Finalizers => "finalizers",
            })
        })
    }

    fn read<'a>(get: impl Fn(Field) -> Option<&'a Value>) -> Self {
        let text = |value: &Value| value.as_str().map(Box::<str>::from);
        Self {
            uid: get(Field::Uid).and_then(text).unwrap_or_default(),
            labels: get(Field::Labels)
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.as_str().into(), text(value)?)))
                .collect(),
            owners: get(Field::Owners)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|owner| owner.get("uid").and_then(text))
                .collect(),
            generation: get(Field::Generation).and_then(Value::as_i64),
            deleting: get(Field::Deletion).is_some_and(|at| !at.is_null()),
            finalizers: get(Field::Finalizers)
                .and_then(Value::as_array)
                .is_some_and(|left| !left.is_empty()),
            foreground: get(Field::Finalizers)
                .and_then(Value::as_array)
                .is_some_and(|left| left.iter().any(|one| one == FOREGROUND)),
            holds_back: get(Field::Owners)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter(|owner| owner.get("blockOwnerDeletion") == Some(&Value::Bool(true)))
                .filter_map(|owner| owner.get("uid").and_then(text))
                .collect(),
        }
    }
}

/// The finalizer of an object that goes after its dependents.
pub const FOREGROUND: &str = "foregroundDeletion";

#[derive(Clone, Copy)]
enum Field {
    Uid,
    Labels,
    Owners,
    Generation,
    Deletion,
    Finalizers,
}

/// An object as it was at one revision.
pub struct Stored {
    pub key: Key,
    pub revision: u64,
    /// Compact JSON, `metadata.resourceVersion` included.
    pub body: Bytes,
    pub meta: Meta,
}

impl Stored {
    /// Parses the body.
    pub fn value(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.meta.labels.binary_search_by(|(one, _)| (**one).cmp(key)).ok()?;
        self.meta.labels.get(at).map(|(_, value)| &**value)
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    Put,
    Delete,
}

/// One committed change.
pub struct Event {
    pub revision: u64,
    pub kind: EventKind,
    /// The new state; of a deletion the last state, carrying the deletion's revision.
    pub object: Arc<Stored>,
    /// The state before; `None` for a creation.
    pub previous: Option<Arc<Stored>>,
    /// The line most watchers of this event are sent, made once for all of them: see
    /// [`Event::line`].
    pub encoded: OnceLock<Bytes>,
}

impl Event {
    pub(super) fn new(kind: EventKind, object: Arc<Stored>, previous: Option<Arc<Stored>>) -> Self {
        Self { revision: object.revision, kind, object, previous, encoded: OnceLock::new() }
    }

    pub fn resource(&self) -> &Arc<str> {
        &self.object.key.resource
    }

    pub fn is_creation(&self) -> bool {
        self.kind == EventKind::Put && self.previous.is_none()
    }

    /// The shared encoding, made by the first caller. Every caller must pass the same function.
    pub fn line(&self, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        self.encoded.get_or_init(|| encode(self)).clone()
    }

    /// What keeping this event in the history costs beyond the objects that exist anyway: the
    /// state it replaced, and an encoded line about as long as the new state.
    pub(super) fn cost_bytes(&self) -> usize {
        const OVERHEAD_BYTES: usize = 256;
        let before = self.previous.as_ref().map_or(0, |stored| stored.body.len());
        OVERHEAD_BYTES.saturating_add(before).saturating_add(self.object.body.len())
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("revision", &self.revision)
            .field("kind", &self.kind)
            .field("key", &self.object.key)
            .finish_non_exhaustive()
    }
}

/// An object encoded before its revision is known: the caller pays for the encoding, and the
/// writer only splices the digits in.
pub(super) struct Draft {
    bytes: Vec<u8>,
    /// Where in `bytes` the digits of the revision belong.
    revision_at: usize,
    meta: Meta,
}

impl Draft {
    pub(super) fn encode(object: &Value, limit_bytes: usize) -> Result<Self, WriteError> {
        if is_deeper(object, MAX_DEPTH) {
            return Err(WriteError::Invalid("it is nested too deeply"));
        }
        let Value::Object(object) = object else {
            return Err(WriteError::Invalid("it is not a JSON object"));
        };
        let none = Map::new();
        let metadata = match object.get(METADATA) {
            None => &none,
            Some(Value::Object(metadata)) => metadata,
            Some(_) => return Err(WriteError::Invalid("metadata is not a JSON object")),
        };
        let meta = Meta::of_metadata(metadata);
        let (bytes, revision_at) = splice_point(object, metadata)
            .map_err(|_unprintable| WriteError::Invalid("it has no JSON form"))?;
        let size_bytes = bytes.len();
        if size_bytes > limit_bytes {
            return Err(WriteError::TooLarge { size_bytes, limit_bytes });
        }
        Ok(Self { bytes, revision_at, meta })
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Is it being deleted?
    pub(super) fn is_marked(&self) -> bool {
        self.meta.deleting
    }

    pub(super) fn finish(self, key: Key, revision: u64) -> Stored {
        let digits = revision.to_string();
        let (before, after) = self.bytes.split_at(self.revision_at);
        let body = [before, digits.as_bytes(), after].concat();
        Stored { key, revision, body: Bytes::from(body), meta: self.meta }
    }
}

const METADATA: &str = "metadata";
const RESOURCE_VERSION: &str = "resourceVersion";

/// Encodes the object with an empty `metadata.resourceVersion`, and says where that is.
fn splice_point(
    object: &Map<String, Value>,
    metadata: &Map<String, Value>,
) -> Result<(Vec<u8>, usize), serde_json::Error> {
    let mut out = Vec::with_capacity(1024);
    let mut found = 0;
    members(&mut out, object, METADATA, |out| {
        members(out, metadata, RESOURCE_VERSION, |out| {
            out.push(b'"');
            found = out.len();
            out.push(b'"');
            Ok(())
        })
    })?;
    Ok((out, found))
}

/// Encodes the members in order, and among them one whose value is not the one that is there.
fn members(
    out: &mut Vec<u8>,
    map: &Map<String, Value>,
    replaced: &str,
    value: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) -> Result<(), serde_json::Error> {
    out.push(b'{');
    let mut count = 0;
    for (key, value) in map.iter().filter(|(key, _)| key.as_str() < replaced) {
        field(out, count, key)?;
        serde_json::to_writer(&mut *out, value)?;
        count += 1;
    }
    field(out, count, replaced)?;
    value(out)?;
    for (key, value) in map.iter().filter(|(key, _)| key.as_str() > replaced) {
        field(out, 1, key)?;
        serde_json::to_writer(&mut *out, value)?;
    }
    out.push(b'}');
    Ok(())
}

fn field(out: &mut Vec<u8>, index: usize, key: &str) -> Result<(), serde_json::Error> {
    if index > 0 {
        out.push(b',');
    }
    serde_json::to_writer(&mut *out, key)?;
    out.push(b':');
    Ok(())
}

/// Whether the value has more than `levels` levels. Recursion ends there too.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else {
        return matches!(value, Value::Array(_) | Value::Object(_));
    };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, left)),
        Value::Object(fields) => fields.values().any(|item| is_deeper(item, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn finished(object: &Value, revision: u64) -> Stored {
        Draft::encode(object, 1 << 20).unwrap().finish(Key::new("r", "n", "x"), revision)
    }

    #[test]
    fn the_revision_is_written_into_the_body_whatever_was_there() {
        for object in [
            json!({"metadata": {"name": "x", "resourceVersion": "5", "uid": "u"}}),
            json!({"metadata": {"name": "x", "resourceVersion": {"a": 1}, "uid": "u"}}),
            json!({"kind": "K", "metadata": {"uid": "u"}, "spec": {"resourceVersion": "7"}}),
            json!({"data": {"metadata": {"resourceVersion": "\"\""}}}),
            json!({}),
        ] {
            let mut expected = object.clone();
            expected["metadata"]["resourceVersion"] = json!("1234");
            assert_eq!(finished(&object, 1234).value().unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for object in [json!([]), json!(1), json!({"metadata": []}), json!({"metadata": "x"})] {
            assert!(matches!(Draft::encode(&object, 1000), Err(WriteError::Invalid(_))));
        }
    }

    #[test]
    fn size_and_depth_have_limits() {
        let long = json!({"a": "x".repeat(1000)});
        assert!(matches!(Draft::encode(&long, 1000), Err(WriteError::TooLarge { .. })));
        let deep = |levels| (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert!(Draft::encode(&deep(MAX_DEPTH), 10_000).is_ok());
        assert!(matches!(Draft::encode(&deep(MAX_DEPTH + 1), 10_000), Err(WriteError::Invalid(_))));
        assert!(finished(&deep(MAX_DEPTH), 9).value().is_ok());
    }

    #[test]
    fn bodies_are_not_printed() {
        let stored = Arc::new(finished(&json!({"data": {"password": "hunter2"}}), 3));
        let event = Event::new(EventKind::Put, Arc::clone(&stored), None);
        event.line(|event| event.object.body.clone());
        let conflict = WriteError::Conflict { current: Some(Arc::clone(&stored)) };
        let printed = format!("{stored:?} {event:?} {conflict:?} {conflict}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z\"\\\\\u{0}é]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(
                    prop_oneof![
                        Just("metadata".to_owned()),
                        Just("uid".to_owned()),
                        Just("resourceVersion".to_owned()),
                        "[a-z\"]{0,4}"
                    ],
                    inner,
                    0..4
                )
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn what_the_collector_asks_of_an_object_is_known_without_its_body() {
        let object = json!({"metadata": {
            "finalizers": ["x.io/a", FOREGROUND],
            "labels": {"b": "2", "a": "1", "c": ""},
            "ownerReferences": [
                {"uid": "u1", "blockOwnerDeletion": true}, {"uid": "u2"},
                {"uid": "u3", "blockOwnerDeletion": false},
            ],
        }});
        let stored = finished(&object, 1);
        assert!(stored.meta.foreground);
        assert_eq!(stored.meta.holds_back[..], [Box::from("u1")]);
        let label = |key| stored.label(key);
        assert_eq!(
            [label("a"), label("b"), label("c"), label("d"), label("")],
            [Some("1"), Some("2"), Some(""), None, None]
        );
        assert!(!finished(&json!({"metadata": {"finalizers": ["x.io/a"]}}), 1).meta.foreground);
    }

    proptest! {
        /// What is indexed when an object is written is what is indexed when it is read back.
        #[test]
        fn both_readings_of_the_metadata_agree(
            fields in prop::collection::btree_map(
                prop::sample::select(vec![
                    "uid", "labels", "ownerReferences", "generation", "deletionTimestamp",
                    "finalizers", "managedFields", "resourceVersion",
                ]),
                json_value(),
                0..6,
            ),
            rest in json_value(),
            revision in any::<u64>(),
        ) {
            let metadata: Map<String, Value> =
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            let object = json!({"metadata": metadata, "spec": rest});
            let mut expected = object.clone();
            expected["metadata"]["resourceVersion"] = json!(revision.to_string());
            let stored = finished(&object, revision);
            prop_assert_eq!(Meta::of_body(&stored.body).unwrap(), stored.meta.clone());
            prop_assert_eq!(stored.value().unwrap(), expected);
        }

        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Meta::of_body(&noise);
        }
    }
}
