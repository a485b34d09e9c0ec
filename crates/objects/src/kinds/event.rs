//! Rules of Events, in both of their forms.
//!
//! Owns: what an event must say. Never: converts; that is [`crate::event`].

use serde_json::Value;

use super::Kind;
use crate::access::{at, text};
use crate::cause::{Cause, Reason};
use crate::names;

/// Bytes of `reason`, `action`, `reportingInstance` and of the name.
const WORD_MAX: usize = 128;
/// Bytes of `note`.
const NOTE_MAX: usize = 1024;

/// For every write: an event lives where its object lives, and events of cluster-scoped objects live
/// in `default`, or in `kube-system` if they are of the newer form.
pub(super) fn check(kind: &Kind, obj: &Value, causes: &mut Vec<Cause>) {
    let member = if kind.group.is_empty() { "involvedObject" } else { "regarding" };
    let field = format!("{member}.namespace");
    let object = text(obj, &field);
    let own = text(obj, "metadata.namespace");
    let newer = at(obj, "eventTime").is_some();
    let fits = match object {
        "" => own.is_empty() || own == "default" || (newer && own == "kube-system"),
        object => own == object,
    };
    if !fits {
        let detail = "must be the namespace of the event";
        causes.push(Cause::invalid(field, &object.into(), detail));
    }
}

/// What `events.k8s.io` asks of an event. One that came through `v1` may say less; its old members
/// show where it came from.
pub(super) fn check_new(obj: &Value, causes: &mut Vec<Cause>) {
    let old = ["Source", "FirstTimestamp", "LastTimestamp", "Count"];
    let empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
    let says = |member: &&str| at(obj, &format!("deprecated{member}")).is_some_and(|v| !empty(v));
    if old.iter().any(says) {
        return;
    }
    if at(obj, "eventTime").is_none() {
        causes.push(Cause::required("eventTime", ""));
    }
    let controller = text(obj, "reportingController");
    if controller.is_empty() {
        causes.push(Cause::required("reportingController", ""));
    } else if let Err(detail) = names::qualified_name(controller) {
        causes.push(Cause::invalid("reportingController", &controller.into(), &detail));
    }
    for member in ["reportingInstance", "action", "reason"] {
        match text(obj, member) {
            "" => causes.push(Cause::required(member, "")),
            given => check_length(given, member, WORD_MAX, causes),
        }
    }
    check_length(text(obj, "metadata.name"), "metadata.name", WORD_MAX, causes);
    check_length(text(obj, "note"), "note", NOTE_MAX, causes);
    let kind = text(obj, "type");
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(Cause::not_supported("type", &kind.into(), &["Normal", "Warning"]));
    }
}

/// Through `events.k8s.io` only the series and the metadata of an event change.
pub(super) fn check_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    const FIXED: &[&str] = &[
        "regarding",
        "related",
        "reason",
        "action",
        "reportingController",
        "reportingInstance",
        "note",
        "type",
        "eventTime",
        "deprecatedSource",
        "deprecatedFirstTimestamp",
        "deprecatedLastTimestamp",
        "deprecatedCount",
    ];
    for member in FIXED {
        super::check_immutable(old, new, member, causes);
    }
}

fn check_length(given: &str, field: &str, max: usize, causes: &mut Vec<Cause>) {
    if given.len() > max {
        let message = format!("Too long: may not be more than {max} bytes");
        causes.push(Cause::new(Reason::TooLong, field, message));
    }
}
