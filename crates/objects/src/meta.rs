//! The rules of `metadata`, alike for every kind.
//!
//! Owns: which members the server alone writes, which survive an update, and what makes metadata
//! invalid. Never: sets uid, times or versions; that needs a clock, chance and a store.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::access::{at, is_true, keep, list, members, object_mut, text};
use crate::cause::{Cause, Reason};
use crate::names::{self, NameRule};

/// Bytes all keys and values of the annotations may have together.
pub const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// Causes reported at once: an answer must not outgrow the request it refuses.
pub const CAUSES_MAX: usize = 100;

/// Finalizers that need no prefix.
pub const STANDARD_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// Members a client may send at create and the server ignores.
const SERVER_SET: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
];

/// Members an update cannot change, whatever the body says.
const CARRIED: [&str; 4] = [
    "metadata.creationTimestamp",
    "metadata.generation",
    "metadata.deletionTimestamp",
    "metadata.deletionGracePeriodSeconds",
];

/// How finalizers are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalizerRule {
    /// With a prefix, or one of [`STANDARD_FINALIZERS`] (built-in kinds).
    Qualified,
    /// Also without a prefix, which earns a warning only (custom resources).
    Any,
}

/// Drops from a new object what only the server may say. `resourceVersion` stays: a caller must
/// refuse it, not lose it.
pub fn sanitize_create(obj: &mut Value) {
    if let Some(metadata) = object_mut(obj, "metadata") {
        for member in SERVER_SET {
            metadata.remove(member);
        }
    }
}

/// Gives `new` the members of `old` that an update keeps silently.
pub fn carry_over(old: &Value, new: &mut Value) {
    for path in CARRIED {
        keep(old, new, path);
    }
    for path in ["metadata.uid", "metadata.namespace"] {
        if text(new, path).is_empty() {
            keep(old, new, path);
        }
    }
    if let Some(metadata) = object_mut(new, "metadata") {
        metadata.remove("selfLink");
    }
}

/// Drops members that are empty: they say nothing, and clients test for their absence.
pub fn drop_empty(obj: &mut Value) {
    if let Some(metadata) = object_mut(obj, "metadata") {
        metadata.retain(|_, value| match value {
            Value::Object(members) => !members.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        });
    }
}

/// Everything that is wrong with the metadata of `obj`; `prefix` is `metadata` or the path of an
/// embedded object.
pub fn validate(
    obj: &Value,
    name: NameRule,
    finalizers: FinalizerRule,
    prefix: &str,
) -> Vec<Cause> {
    let nothing = Value::Null;
    let metadata = obj.get("metadata").unwrap_or(&nothing);
    let mut causes = Vec::new();
    check_name(metadata, name, prefix, &mut causes);
    check_labels(metadata.get("labels"), &format!("{prefix}.labels"), &mut causes);
    check_annotations(metadata, &format!("{prefix}.annotations"), &mut causes);
    check_finalizers(metadata, finalizers, &format!("{prefix}.finalizers"), &mut causes);
    check_owners(metadata, &format!("{prefix}.ownerReferences"), &mut causes);
    causes.truncate(CAUSES_MAX);
    causes
}

/// What an update of the metadata may not do. `new` has been through [`carry_over`].
pub fn validate_update(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for path in ["metadata.name", "metadata.namespace", "metadata.uid"] {
        if text(old, path) != text(new, path) {
            causes.push(Cause::invalid(path, &text(new, path).into(), "field is immutable"));
        }
    }
    if at(old, "metadata.deletionTimestamp").is_some() {
        let before: BTreeSet<&str> =
            list(old, "metadata.finalizers").iter().filter_map(Value::as_str).collect();
        let added: Vec<String> = list(new, "metadata.finalizers")
            .iter()
            .filter(|finalizer| !finalizer.as_str().is_some_and(|name| before.contains(name)))
            .map(Value::to_string)
            .take(CAUSES_MAX)
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "an object that is being deleted takes no new finalizers, found {}",
                added.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
    causes
}

/// Warnings about finalizers that [`FinalizerRule::Any`] lets pass and `old` did not have.
pub fn finalizer_warnings(obj: &Value, old: Option<&Value>) -> Vec<String> {
    let before = old.map_or(&[][..], |old| list(old, "metadata.finalizers"));
    list(obj, "metadata.finalizers")
        .iter()
        .filter(|finalizer| !before.contains(finalizer))
        .filter_map(Value::as_str)
        .filter(|finalizer| !is_known_finalizer(finalizer))
        .map(|finalizer| {
            format!(
                "metadata.finalizers: {finalizer:?} has no domain: a name such as \
                 \"example.com/{finalizer}\" cannot clash with those of others"
            )
        })
        .collect()
}

/// Checks a map of labels; also for templates and selectors.
pub(crate) fn check_labels(labels: Option<&Value>, field: &str, causes: &mut Vec<Cause>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        if let Err(detail) = names::qualified_name(key) {
            causes.push(Cause::invalid(field, &key.as_str().into(), &detail));
        }
        if let Err(detail) = names::label_value(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(field, value, &detail));
        }
    }
}

fn check_name(metadata: &Value, rule: NameRule, prefix: &str, causes: &mut Vec<Cause>) {
    let base = text(metadata, "generateName");
    if !base.is_empty()
        && let Err(detail) = rule.check_base(base)
    {
        causes.push(Cause::invalid(format!("{prefix}.generateName"), &base.into(), &detail));
    }
    let name = text(metadata, "name");
    if name.is_empty() {
        if base.is_empty() {
            let detail = "name or generateName is required";
            causes.push(Cause::required(format!("{prefix}.name"), detail));
        }
    } else if let Err(detail) = rule.check(name) {
        causes.push(Cause::invalid(format!("{prefix}.name"), &name.into(), &detail));
    }
}

fn check_annotations(metadata: &Value, field: &str, causes: &mut Vec<Cause>) {
    let mut bytes = 0_usize;
    for (key, value) in members(metadata, "annotations") {
        // Keys differ from label keys in one way: the case of the prefix does not matter.
        if let Err(detail) = names::qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid(field, &key.as_str().into(), &detail));
        }
        let value = value.as_str().unwrap_or_default();
        bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
    }
    if bytes > ANNOTATIONS_MAX_BYTES {
        let message = format!("Too long: may not be more than {ANNOTATIONS_MAX_BYTES} bytes");
        causes.push(Cause::new(Reason::TooLong, field, message));
    }
}

fn check_finalizers(metadata: &Value, rule: FinalizerRule, field: &str, causes: &mut Vec<Cause>) {
    for finalizer in list(metadata, "finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        if let Err(detail) = names::qualified_name(name) {
            causes.push(Cause::invalid(field, finalizer, &detail));
        } else if rule == FinalizerRule::Qualified && !is_known_finalizer(name) {
            let detail = "must be fully qualified (domain/name) or a standard finalizer";
            causes.push(Cause::invalid(field, finalizer, detail));
        }
    }
}

fn is_known_finalizer(name: &str) -> bool {
    name.contains('/') || STANDARD_FINALIZERS.contains(&name)
}

fn check_owners(metadata: &Value, field: &str, causes: &mut Vec<Cause>) {
    let owners = list(metadata, "ownerReferences");
    for (index, owner) in owners.iter().enumerate() {
        for member in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, member).is_empty() {
                let detail = "must not be empty";
                causes.push(Cause::required(format!("{field}[{index}].{member}"), detail));
            }
        }
        let group = text(owner, "apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
        if text(owner, "kind") == "Event" && matches!(group, "" | "events.k8s.io") {
            let detail = "an Event cannot own anything";
            causes.push(Cause::invalid(format!("{field}[{index}]"), owner, detail));
        }
    }
    if owners.iter().filter(|owner| is_true(owner, "controller")).count() > 1 {
        let owners = Value::from(owners.to_vec());
        causes.push(Cause::invalid(
            field,
            &owners,
            "only one owner may have controller set to true",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn fields(obj: &Value, rule: FinalizerRule) -> Vec<(String, Reason)> {
        let causes = validate(obj, NameRule::Subdomain, rule, "metadata");
        causes.into_iter().map(|cause| (cause.field, cause.reason)).collect()
    }

    fn refused(metadata: &Value, field: &str, reason: Reason) {
        let mut obj = json!({"metadata": {"name": "a"}});
        obj["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let want = vec![(format!("metadata.{field}"), reason)];
        assert_eq!(fields(&obj, FinalizerRule::Qualified), want, "{metadata}");
    }

    #[test]
    fn each_rule_names_its_field() {
        use Reason::{Invalid, Required, TooLong};
        refused(&json!({"name": ""}), "name", Required);
        refused(&json!({"name": "A"}), "name", Invalid);
        refused(&json!({"name": "", "generateName": "A-"}), "generateName", Invalid);
        refused(&json!({"labels": {"a b": "c"}}), "labels", Invalid);
        refused(&json!({"labels": {"a": "b c"}}), "labels", Invalid);
        refused(&json!({"annotations": {"a b": "c"}}), "annotations", Invalid);
        refused(&json!({"annotations": {"a": "x".repeat(262_144)}}), "annotations", TooLong);
        refused(&json!({"finalizers": ["mine"]}), "finalizers", Invalid);
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": ""});
        refused(&json!({"ownerReferences": [owner]}), "ownerReferences[0].uid", Required);
        let boss =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "controller": true});
        refused(&json!({"ownerReferences": [boss, boss]}), "ownerReferences", Invalid);
        let event = json!({"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "u"});
        refused(&json!({"ownerReferences": [event]}), "ownerReferences[0]", Invalid);
    }

    #[test]
    fn good_metadata_passes() {
        let obj = json!({"metadata": {
            "generateName": "a-", "labels": {"x.io/a": ""}, "annotations": {"X.io/A": "any thing"},
            "finalizers": ["orphan", "x.io/f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]}});
        assert_eq!(fields(&obj, FinalizerRule::Qualified), vec![]);
        let obj = json!({"metadata": {"name": "a", "finalizers": ["mine"]}});
        assert_eq!(fields(&obj, FinalizerRule::Any), vec![]);
        assert_eq!(finalizer_warnings(&obj, None).len(), 1);
        assert_eq!(finalizer_warnings(&obj, Some(&obj)).len(), 0);
    }

    #[test]
    fn an_update_keeps_what_the_server_set() {
        let old = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 3,
            "creationTimestamp": "t", "deletionTimestamp": "d", "deletionGracePeriodSeconds": 0}});
        let mut new = json!({"metadata": {"name": "a", "generation": 9, "creationTimestamp": "x",
            "selfLink": "/x", "deletionTimestamp": null}});
        carry_over(&old, &mut new);
        assert_eq!(new, old);
        let mut other = json!({"metadata": {"name": "a", "uid": "v"}});
        carry_over(&old, &mut other);
        let causes = validate_update(&old, &other);
        assert_eq!(causes.iter().map(|c| c.field.as_str()).collect::<Vec<_>>(), ["metadata.uid"]);
    }

    #[test]
    fn empty_members_go() {
        let mut obj = json!({"metadata": {"name": "a", "labels": {}, "finalizers": [],
            "generateName": "", "annotations": {"a": ""}, "generation": 0}, "spec": {}});
        drop_empty(&mut obj);
        let want = json!({"metadata": {"name": "a", "annotations": {"a": ""}, "generation": 0},
            "spec": {}});
        assert_eq!(obj, want);
    }

    #[test]
    fn no_finalizer_joins_a_deletion() {
        let old =
            json!({"metadata": {"deletionTimestamp": "d", "finalizers": ["x.io/a", "x.io/b"]}});
        let less = json!({"metadata": {"deletionTimestamp": "d", "finalizers": ["x.io/b"]}});
        let more =
            json!({"metadata": {"deletionTimestamp": "d", "finalizers": ["x.io/b", "x.io/c"]}});
        assert_eq!(validate_update(&old, &less), vec![]);
        let causes = validate_update(&old, &more);
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].reason, Reason::Forbidden);
        assert_eq!(causes[0].field, "metadata.finalizers");
    }

    #[test]
    fn a_create_loses_what_only_the_server_says() {
        let mut obj = json!({"metadata": {"name": "a", "uid": "u", "creationTimestamp": "t",
            "deletionTimestamp": "t", "deletionGracePeriodSeconds": 1, "generation": 4,
            "selfLink": "/", "resourceVersion": "5"}});
        sanitize_create(&mut obj);
        assert_eq!(obj, json!({"metadata": {"name": "a", "resourceVersion": "5"}}));
    }

    proptest! {
        #[test]
        fn noise_never_panics(obj in crate::noise::json(), other in crate::noise::json()) {
            let (mut obj, mut other) = (json!({"metadata": obj}), json!({"metadata": other}));
            let _ = validate(&obj, NameRule::Label, FinalizerRule::Qualified, "metadata");
            let _ = validate_update(&obj, &other);
            carry_over(&obj, &mut other);
            sanitize_create(&mut obj);
        }
    }
}
