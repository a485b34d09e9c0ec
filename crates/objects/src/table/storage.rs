//! Cells of volumes, claims and storage classes.

use jiff::Timestamp;
use serde_json::Value;

use super::{created, name, or};
use crate::access::{at, is_true, list, text};

pub(super) fn volume(obj: &Value, now: Timestamp) -> Vec<Value> {
    let claim = match text(obj, "spec.claimRef.name") {
        "" => String::new(),
        name => format!("{}/{name}", text(obj, "spec.claimRef.namespace")),
    };
    vec![
        name(obj),
        amount(obj, "spec.capacity.storage"),
        access_modes(obj, "spec.accessModes").into(),
        text(obj, "spec.persistentVolumeReclaimPolicy").into(),
        phase(obj).into(),
        claim.into(),
        class_of(obj).into(),
        or(text(obj, "spec.volumeAttributesClassName"), "<unset>"),
        text(obj, "status.reason").into(),
        created(obj, now),
        or(text(obj, "spec.volumeMode"), "<unset>"),
    ]
}

/// What a claim got is shown only once it is bound.
pub(super) fn claim(obj: &Value, now: Timestamp) -> Vec<Value> {
    let volume = text(obj, "spec.volumeName");
    let (capacity, modes) = match volume {
        "" => ("".into(), String::new()),
        _ => (amount(obj, "status.capacity.storage"), access_modes(obj, "status.accessModes")),
    };
    vec![
        name(obj),
        phase(obj).into(),
        volume.into(),
        capacity,
        modes.into(),
        class_of(obj).into(),
        or(text(obj, "spec.volumeAttributesClassName"), "<unset>"),
        created(obj, now),
        or(text(obj, "spec.volumeMode"), "<unset>"),
    ]
}

pub(super) fn class(obj: &Value, now: Timestamp) -> Vec<Value> {
    let key = "storageclass.kubernetes.io/is-default-class";
    let is_default = annotation(obj, key) == "true";
    let mark = if is_default { " (default)" } else { "" };
    vec![
        format!("{}{mark}", text(obj, "metadata.name")).into(),
        text(obj, "provisioner").into(),
        or(text(obj, "reclaimPolicy"), "Delete"),
        or(text(obj, "volumeBindingMode"), "Immediate"),
        is_true(obj, "allowVolumeExpansion").into(),
        created(obj, now),
    ]
}

fn annotation<'a>(obj: &'a Value, key: &str) -> &'a str {
    let value = at(obj, "metadata.annotations").and_then(|all| all.get(key));
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The class; old objects carry it in an annotation.
fn class_of(obj: &Value) -> &str {
    match annotation(obj, "volume.beta.kubernetes.io/storage-class") {
        "" => text(obj, "spec.storageClassName"),
        class => class,
    }
}

fn phase(obj: &Value) -> &str {
    match at(obj, "metadata.deletionTimestamp") {
        Some(_) => "Terminating",
        None => text(obj, "status.phase"),
    }
}

/// A quantity, which may be written as a number.
fn amount(obj: &Value, path: &str) -> Value {
    match at(obj, path) {
        Some(Value::Number(number)) => number.to_string().into(),
        _ => text(obj, path).into(),
    }
}

/// `RWO,ROX,RWX,RWOP`, each at most once.
fn access_modes(obj: &Value, path: &str) -> String {
    let has = |mode: &str| list(obj, path).iter().any(|have| have == mode);
    let all = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short: Vec<&str> =
        all.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect();
    short.join(",")
}
