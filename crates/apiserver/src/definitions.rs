//! Custom resource definitions: the conditions the server sets on them and the types they make.
//!
//! Everything is decided in the write itself, so a definition is established, discoverable and
//! usable at the moment its creator hears back.

use std::sync::Arc;

use jiff::Timestamp;
use objects::crd::Definition;
use serde_json::{Value, json};

use crate::clock;
use crate::registry::{CustomTypes, Registry, custom_resources};
use crate::rest::admit;
use crate::store::Stored;

/// Where the store keeps definitions.
pub(crate) const ID: &str = "apiextensions.k8s.io/customresourcedefinitions";

impl CustomTypes {
    /// Would a registry made of the one serve the same as one made of the other?
    pub fn same_as(&self, other: &Self) -> bool {
        self.revision == other.revision
    }
}

/// The types a stored definition serves; `None` while it is not established.
pub(crate) fn types(stored: &Stored, before: Option<&CustomTypes>) -> Option<CustomTypes> {
    let object = stored.value().ok()?;
    if !has_condition(&object, "Established", "True") {
        return None;
    }
    let definition = match Definition::parse(&object) {
        Ok(definition) => Arc::new(definition),
        Err(causes) => {
            let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
            tracing::error!(
                definition = %stored.key.name,
                causes = causes.join("; "),
                "a stored definition cannot be served"
            );
            return None;
        }
    };
    // A definition that was never changed has no objects older than its schema.
    let schema_since = match (stored.meta.generation, before) {
        (None | Some(..=1), _) => 0,
        (Some(_), Some(before)) if same_schemas(before, &definition) => schema_since(before),
        (Some(_), _) => stored.revision,
    };
    let resources = custom_resources(&definition, schema_since, stored.meta.deleting);
    Some(CustomTypes { revision: stored.revision, resources })
}

fn schema_since(types: &CustomTypes) -> u64 {
    let customs = types.resources.iter().filter_map(|resource| resource.custom());
    customs.map(|custom| custom.schema_since).max().unwrap_or(0)
}

fn same_schemas(before: &CustomTypes, now: &Definition) -> bool {
    let Some(custom) = before.resources.first().and_then(|resource| resource.custom()) else {
        return false;
    };
    let old = &custom.definition.versions;
    old.len() == now.versions.len()
        && old.iter().zip(&now.versions).all(|(old, new)| {
            (&old.name, old.storage, &old.raw_schema) == (&new.name, new.storage, &new.raw_schema)
        })
}

pub(crate) fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    conditions(object).any(|condition| condition["type"] == kind && condition["status"] == status)
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

/// Sets a condition; its time moves only when its status does.
fn set_condition(
    object: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let since = conditions(object)
        .find(|condition| condition["type"] == kind && condition["status"] == status)
        .and_then(|condition| condition["lastTransitionTime"].as_str())
        .map_or_else(|| clock::seconds(now), str::to_owned);
    let condition = json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    });
    let body = admit::object_mut(object).entry("status").or_insert_with(|| json!({}));
    let list = admit::object_mut(body).entry("conditions").or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        match list.iter_mut().find(|one| one["type"] == kind) {
            Some(one) => *one = condition,
            None => list.push(condition),
        }
    }
}

/// The status of a definition that was just written.
pub(crate) fn settle(object: &mut Value, registry: &Registry, now: Timestamp) {
    let deleting = !admit::metadata_text(object, "deletionTimestamp").is_empty();
    let names = object.pointer("/spec/names").cloned().unwrap_or_default();
    if let Some(storage) = storage_version(object) {
        let status = admit::object_mut(object).entry("status").or_insert_with(|| json!({}));
        let stored = admit::object_mut(status).entry("storedVersions").or_insert_with(|| json!([]));
        match stored.as_array_mut() {
            Some(all) if all.iter().any(|one| one == &storage) => {}
            Some(all) => all.push(storage.into()),
            None => *stored = json!([storage]),
        }
    }
    if let Some((reason, message)) = name_conflict(object, registry) {
        set_condition(object, "NamesAccepted", "False", reason, &message, now);
        let established = has_condition(object, "Established", "True");
        if !established {
            let text = "not all names are accepted";
            set_condition(object, "Established", "False", "NotAccepted", text, now);
        }
    } else {
        if let Some(status) = object.get_mut("status") {
            admit::object_mut(status).insert("acceptedNames".into(), names);
        }
        let text = "no conflicts found";
        set_condition(object, "NamesAccepted", "True", "NoConflicts", text, now);
        if !deleting {
            let text = "the initial names have been accepted";
            set_condition(object, "Established", "True", "InitialNamesAccepted", text, now);
        }
    }
    if let Some(status) = object.get_mut("status") {
        let accepted = json!({"plural": "", "kind": ""});
        admit::object_mut(status).entry("acceptedNames").or_insert(accepted);
    }
}

fn storage_version(object: &Value) -> Option<String> {
    let versions = object.pointer("/spec/versions").and_then(Value::as_array)?;
    let storage = versions.iter().find(|version| version["storage"] == true)?;
    storage["name"].as_str().map(str::to_owned)
}

/// Does another definition of the group use one of the names already?
fn name_conflict(object: &Value, registry: &Registry) -> Option<(&'static str, String)> {
    let group = object.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let name = |member: &str| {
        object.pointer(&format!("/spec/names/{member}")).and_then(Value::as_str).unwrap_or_default()
    };
    let plural = name("plural");
    let short: Vec<&str> = object
        .pointer("/spec/names/shortNames")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let others = registry.group(group)?.versions.iter().flat_map(|one| &one.resources);
    for other in others.filter(|other| other.plural != plural) {
        let taken = |wanted: &str| {
            wanted == other.plural
                || wanted == other.singular
                || other.short_names.iter().any(|one| one == wanted)
        };
        let text = |wanted: &str| format!("{wanted:?} is already in use");
        if other.kind == name("kind") || other.list_kind == name("kind") {
            return Some(("KindConflict", text(name("kind"))));
        }
        if other.list_kind == name("listKind") || other.kind == name("listKind") {
            return Some(("ListKindConflict", text(name("listKind"))));
        }
        if taken(plural) {
            return Some(("PluralConflict", text(plural)));
        }
        if taken(name("singular")) {
            return Some(("SingularConflict", text(name("singular"))));
        }
        if let Some(wanted) = short.iter().find(|wanted| taken(wanted)) {
            return Some(("ShortNamesConflict", text(wanted)));
        }
    }
    None
}

/// A definition whose deletion was asked for.
pub(crate) fn terminating(mut object: Value, now: Timestamp) -> Value {
    let text = "CustomResource deletion is in progress";
    set_condition(&mut object, "Terminating", "True", "InstanceDeletionInProgress", text, now);
    object
}
