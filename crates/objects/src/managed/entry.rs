//! The entries of `metadata.managedFields`.

use serde_json::{Map, Value};

use super::Writer;
use super::set::FieldSet;

/// Update entries an object keeps; older ones are folded together.
pub(super) const MAX_UPDATE_ENTRIES: usize = 10;
/// Owner of what the folded entries owned.
const ANCIENT: &str = "ancient-changes";

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

/// The fields one manager owns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: Option<String>,
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

impl Entry {
    pub(super) fn new(writer: &Writer<'_>, operation: Operation, fields: FieldSet) -> Self {
        Self {
            manager: writer.manager.to_owned(),
            operation,
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.map(str::to_owned),
            time: Some(writer.now.to_owned()),
            fields,
        }
    }

    /// Whether this is the entry a write by `writer` belongs to. An applier has one entry whatever
    /// version it applies; updates of different versions are kept apart.
    pub(super) fn is_of(&self, writer: &Writer<'_>, operation: Operation) -> bool {
        self.operation == operation
            && self.manager == writer.manager
            && self.subresource.as_deref() == writer.subresource
            && (operation == Operation::Apply || self.api_version == writer.api_version)
    }

    fn decode(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let operation = match text("operation")? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if text("fieldsType").is_some_and(|kind| kind != "FieldsV1") {
            return None;
        }
        let fields = match value.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::default(),
            Some(fields) => FieldSet::parse(fields).ok()?,
        };
        Some(Self {
            manager: text("manager").unwrap_or_default().to_owned(),
            operation,
            api_version: text("apiVersion").unwrap_or_default().to_owned(),
            subresource: text("subresource").filter(|name| !name.is_empty()).map(str::to_owned),
            time: text("time").map(str::to_owned),
            fields,
        })
    }

    pub(super) fn encode(self) -> Value {
        let Self { manager, operation, api_version, subresource, time, fields } = self;
        let operation = match operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        // Put in one by one: `json!` copies the values that it is given.
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
        put("manager", manager.into());
        put("operation", operation.into());
        put("apiVersion", api_version.into());
        put("fieldsType", "FieldsV1".into());
        put("fieldsV1", fields.to_value());
        if let Some(time) = time {
            put("time", time.into());
        }
        if let Some(subresource) = subresource {
            put("subresource", subresource.into());
        }
        Value::Object(members)
    }
}

/// Reads `metadata.managedFields`; `None` if any entry is malformed.
pub(super) fn decode(value: &Value) -> Option<Vec<Entry>> {
    value.as_array()?.iter().map(Entry::decode).collect()
}

/// Writes `metadata.managedFields`: without empty entries, at most ten updates, appliers first.
pub(super) fn encode(mut entries: Vec<Entry>) -> Value {
    entries.retain(|entry| !entry.fields.is_empty());
    fold(&mut entries);
    entries.sort_by(|a, b| order(a).cmp(&order(b)));
    Value::Array(entries.into_iter().map(Entry::encode).collect())
}

fn order(entry: &Entry) -> (Operation, Option<&str>, &str, &str, Option<&str>) {
    let Entry { manager, operation, api_version, subresource, time, .. } = entry;
    (*operation, time.as_deref(), manager, api_version, subresource.as_deref())
}

/// Folds the oldest updates of the same version together until few enough are left.
fn fold(entries: &mut Vec<Entry>) {
    let updates = entries.iter().filter(|entry| entry.operation == Operation::Update).count();
    let mut surplus = updates.saturating_sub(MAX_UPDATE_ENTRIES);
    if surplus == 0 {
        return;
    }
    entries.sort_by(|a, b| order(a).cmp(&order(b)));
    let mut folded: Vec<Entry> = Vec::with_capacity(entries.len());
    // For each version, where its oldest update stands.
    let mut oldest: Vec<(String, usize)> = Vec::new();
    for entry in entries.drain(..) {
        if entry.operation == Operation::Apply || surplus == 0 {
            folded.push(entry);
            continue;
        }
        let first = oldest.iter().find(|(version, _)| *version == entry.api_version);
        if let Some(bucket) = first.and_then(|(_, position)| folded.get_mut(*position)) {
            ANCIENT.clone_into(&mut bucket.manager);
            bucket.subresource = None;
            bucket.time = entry.time;
            bucket.fields.absorb(entry.fields);
            surplus -= 1;
        } else {
            oldest.push((entry.api_version.clone(), folded.len()));
            folded.push(entry);
        }
    }
    *entries = folded;
}
