//! Rules of `PersistentVolumeClaim`, `PersistentVolume` and `StorageClass`.
//!
//! Owns: what a claim and a volume must say, and what stays once said. Never: binds one to the other.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{check_immutable, check_one_of, check_quantity, quantity};
use crate::access::{at, keep, list, members, set, set_default, text};
use crate::cause::Cause;

const ACCESS_MODES: &[&str] =
    &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const RECLAIM_POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];
const BINDING_MODES: &[&str] = &["Immediate", "WaitForFirstConsumer"];

/// Members of a volume's spec that say where the bytes are; exactly one is given.
const SOURCES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

pub(super) fn claim_defaults(obj: &mut Value) {
    set_default(obj, "spec.volumeMode", "Filesystem");
    set_default(obj, "status.phase", "Pending");
}

pub(super) fn volume_defaults(obj: &mut Value) {
    set_default(obj, "spec.persistentVolumeReclaimPolicy", "Retain");
    set_default(obj, "spec.volumeMode", "Filesystem");
    set_default(obj, "status.phase", "Pending");
}

pub(super) fn class_defaults(obj: &mut Value) {
    set_default(obj, "reclaimPolicy", "Delete");
    set_default(obj, "volumeBindingMode", "Immediate");
}

pub(super) fn check_claim(obj: &Value, causes: &mut Vec<Cause>) {
    let nothing = Value::Null;
    let spec = obj.get("spec").unwrap_or(&nothing);
    check_access_modes(spec, causes);
    check_one_of(spec, "volumeMode", "spec.volumeMode", VOLUME_MODES, causes);
    let field = "spec.resources[storage]";
    match at(spec, "resources.requests.storage") {
        None => causes.push(Cause::required(field, "")),
        Some(amount) => check_positive(amount, field, causes),
    }
}

/// A claim is settled when made; only its size grows, and the volume is named once.
pub(super) fn check_claim_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let mut settled = new.clone();
    keep(old, &mut settled, "spec.resources.requests.storage");
    for path in ["spec.volumeName", "spec.storageClassName"] {
        if text(old, path).is_empty() {
            keep(old, &mut settled, path);
        }
    }
    keep(old, &mut settled, "spec.volumeAttributesClassName");
    if at(&settled, "spec") != at(old, "spec") {
        let detail = "a claim cannot change, except that resources.requests may grow";
        causes.push(Cause::forbidden("spec", detail));
    }
    let storage = |obj| at(obj, "spec.resources.requests.storage").and_then(quantity);
    if let (Some(before), Some(after)) = (storage(old), storage(new))
        && after < before
    {
        let field = "spec.resources.requests.storage";
        causes.push(Cause::forbidden(field, "may not be less than the previous value"));
    }
}

pub(super) fn check_volume(obj: &Value, causes: &mut Vec<Cause>) {
    let nothing = Value::Null;
    let spec = obj.get("spec").unwrap_or(&nothing);
    check_access_modes(spec, causes);
    match at(spec, "capacity.storage") {
        None => causes.push(Cause::required("spec.capacity", "storage is required")),
        Some(amount) => check_positive(amount, "spec.capacity[storage]", causes),
    }
    for (resource, amount) in members(spec, "capacity").filter(|(name, _)| *name != "storage") {
        check_quantity(amount, &format!("spec.capacity[{resource}]"), causes);
    }
    let policy = "persistentVolumeReclaimPolicy";
    check_one_of(spec, policy, "spec.persistentVolumeReclaimPolicy", RECLAIM_POLICIES, causes);
    check_one_of(spec, "volumeMode", "spec.volumeMode", VOLUME_MODES, causes);
    let sources: Vec<&str> =
        SOURCES.iter().copied().filter(|name| at(spec, name).is_some()).collect();
    match sources.as_slice() {
        [] => causes.push(Cause::required("spec", "one volume source is required")),
        [_] => {}
        [_, rest @ ..] => causes.extend(rest.iter().map(|name| {
            Cause::forbidden(format!("spec.{name}"), "only one volume source is possible")
        })),
    }
    if let Some(csi) = at(spec, "csi") {
        for member in ["driver", "volumeHandle"] {
            if text(csi, member).is_empty() {
                causes.push(Cause::required(format!("spec.csi.{member}"), ""));
            }
        }
    }
}

pub(super) fn check_volume_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let moved = SOURCES
        .iter()
        .map(|name| format!("spec.{name}"))
        .any(|path| at(old, &path) != at(new, &path));
    if moved {
        causes.push(Cause::forbidden(
            "spec.persistentvolumesource",
            "the source of a volume cannot change",
        ));
    }
    check_immutable(old, new, "spec.volumeMode", causes);
    if at(old, "spec.nodeAffinity").is_some() {
        check_immutable(old, new, "spec.nodeAffinity", causes);
    }
}

pub(super) fn check_class(obj: &Value, causes: &mut Vec<Cause>) {
    if text(obj, "provisioner").is_empty() {
        causes.push(Cause::required("provisioner", ""));
    }
    check_one_of(obj, "reclaimPolicy", "reclaimPolicy", &["Delete", "Retain"], causes);
    check_one_of(obj, "volumeBindingMode", "volumeBindingMode", BINDING_MODES, causes);
}

pub(super) fn check_class_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    for path in ["provisioner", "reclaimPolicy", "volumeBindingMode"] {
        check_immutable(old, new, path, causes);
    }
    // No parameters and an empty map of them say the same.
    let parameters = |obj: &Value| -> BTreeMap<String, Value> {
        members(obj, "parameters").map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    if parameters(old) != parameters(new) {
        causes.push(Cause::forbidden("parameters", "the parameters of a class cannot change"));
    }
}

fn check_access_modes(spec: &Value, causes: &mut Vec<Cause>) {
    let field = "spec.accessModes";
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        causes.push(Cause::required(field, "one access mode or more"));
    }
    for mode in modes {
        if !mode.as_str().is_some_and(|mode| ACCESS_MODES.contains(&mode)) {
            causes.push(Cause::not_supported(field, mode, ACCESS_MODES));
        }
    }
    let alone = modes.iter().any(|mode| mode == "ReadWriteOncePod") && modes.len() > 1;
    if alone {
        causes
            .push(Cause::forbidden(field, "ReadWriteOncePod cannot be combined with other modes"));
    }
}

fn check_positive(amount: &Value, field: &str, causes: &mut Vec<Cause>) {
    match quantity(amount) {
        Some(parsed) if parsed > crate::quantity::Quantity::ZERO => {}
        Some(_) => causes.push(Cause::invalid(field, amount, "must be greater than zero")),
        None => check_quantity(amount, field, causes),
    }
}

/// Defaults of the claim templates of a `StatefulSet`.
pub(super) fn claim_template_defaults(template: &mut Value) {
    claim_defaults(template);
    set(template, "kind", "PersistentVolumeClaim");
    set(template, "apiVersion", "v1");
}
