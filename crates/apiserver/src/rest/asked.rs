//! Requests that somebody else carries out with the rights of whoever asked: who that is, is written
//! down by the server, over whatever the body claims, and again by everybody who changes what is asked
//! for.

use serde_json::{Value, json};

use super::admit::{self, Endpoint};
use crate::auth::User;
use crate::registry::Resource;

/// The annotation that says it: `{"username": …, "groups": […]}`.
const ASKED_BY: &str = "holdfast.io/asked-by";

/// The label of what a restore made, by which it is known not to be a request.
const BROUGHT_BACK: &str = "velero.io/restore-name";

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
        let asks_anew = endpoint == Endpoint::Main && is_another(old, new);
        let known = || old.pointer("/metadata/annotations")?.get(ASKED_BY).cloned();
        write(new, if asks_anew { Some(by(user)) } else { known() });
    }
}

/// Something else is asked for. What a restore brought back asks for nothing; who takes that word away,
/// asks for it.
fn is_another(old: &Value, new: &Value) -> bool {
    let mark = |object: &Value| object.pointer("/metadata/labels")?.get(BROUGHT_BACK).cloned();
    old.get("spec") != new.get("spec") || mark(old) != mark(new)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_the_mark_of_a_restore_away_asks_for_what_it_says() {
        let object = |labels: Value, backup: &str| json!({"metadata": {"labels": labels}, "spec": {"backup": backup}});
        let brought = object(json!({BROUGHT_BACK: "r1"}), "b");
        assert!(is_another(&brought, &object(json!({}), "b")));
        assert!(is_another(&brought, &object(json!({BROUGHT_BACK: "r2"}), "b")));
        assert!(is_another(&brought, &object(json!({BROUGHT_BACK: "r1"}), "c")));
        assert!(!is_another(&brought, &object(json!({BROUGHT_BACK: "r1", "app": "web"}), "b")));
    }
}
