//! Requests that somebody else carries out with the rights of whoever asked: who that is, is written
//! down by the server, over whatever the body claims, and again by everybody who changes what is asked
//! for.

use serde_json::{Value, json};

use super::admit::{self, Endpoint};
use crate::auth::User;
use crate::registry::Resource;

/// The annotation that says it: `{"username": …, "groups": […]}`.
const ASKED_BY: &str = "holdfast.io/asked-by";

fn is_request(resource: &Resource) -> bool {
    resource.group == "oadp.openshift.io" && resource.plural == "nonadminrestores"
}

/// Of a new object.
pub(crate) fn stamp(resource: &Resource, user: &User, object: &mut Value) {
    if is_request(resource) {
        write(object, Some(by(user)));
    }
}

/// Of one that is changed.
pub(crate) fn keep(
    resource: &Resource,
    endpoint: Endpoint,
    user: &User,
    old: &Value,
    new: &mut Value,
) {
    if is_request(resource) {
        let asks_anew = endpoint == Endpoint::Main && old.get("spec") != new.get("spec");
        let known = || old.pointer("/metadata/annotations")?.get(ASKED_BY).cloned();
        write(new, if asks_anew { Some(by(user)) } else { known() });
    }
}

fn by(user: &User) -> Value {
    Value::String(json!({"username": user.name, "groups": user.groups}).to_string())
}

fn write(object: &mut Value, note: Option<Value>) {
    let metadata = admit::metadata_mut(object);
    if let Some(note) = note {
        let notes = metadata.entry("annotations").or_insert_with(|| json!({}));
        if notes.is_null() {
            *notes = json!({});
        }
        if let Some(notes) = notes.as_object_mut() {
            notes.insert(ASKED_BY.to_owned(), note);
        }
    } else if let Some(notes) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        notes.remove(ASKED_BY);
    }
}
