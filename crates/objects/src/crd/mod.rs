//! `CustomResourceDefinition`s: their defaults, their validation, and a typed view of them.
//!
//! Owns: which definitions may be installed and what may change afterwards.
//! Never: decides about conflicts between definitions, or writes their conditions.

mod definition;
mod names;
mod paths;
mod versions;

use serde_json::{Map, Value, json};

use crate::cause::Cause;
use crate::path::Path;

pub use definition::{Column, Definition, Scale, Scope, Version};

/// Approval that definitions in the groups of Kubernetes itself must carry.
pub const APPROVAL: &str = "api-approved.kubernetes.io";

/// Fills in what the author may leave out. Idempotent.
pub fn default(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut)
        && let Some(kind) = names.get("kind").and_then(Value::as_str).map(str::to_owned)
        && !kind.is_empty()
    {
        fill(names, "singular", || kind.to_lowercase());
        fill(names, "listKind", || format!("{kind}List"));
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({ "strategy": "None" }));
    }
    let stored: Vec<Value> = spec
        .get("versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .filter_map(|version| version.get("name").cloned())
        .collect();
    if let Some(members) = crd.as_object_mut()
        && members.get("status").is_none_or(Value::is_null)
    {
        let status = json!({
            "conditions": null,
            "acceptedNames": { "plural": "", "kind": "" },
            "storedVersions": stored,
        });
        members.insert("status".to_owned(), status);
    }
}

fn fill(members: &mut Map<String, Value>, name: &str, value: impl FnOnce() -> String) {
    if members.get(name).is_none_or(|old| old.is_null() || old == "") {
        members.insert(name.to_owned(), Value::from(value()));
    }
}

/// Everything wrong with a definition (after [`default`]). `old` is the stored one on update.
pub fn validate(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(Value::Object(spec)) = crd.get("spec") else {
        return vec![Cause::required("spec", "")];
    };
    let spec_path = Path::Root("spec");
    names::check(crd, spec, &mut causes);
    approval(crd, spec, &mut causes);
    scope(spec, &mut causes);
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let field = spec_path.field("preserveUnknownFields").to_string();
        let detail = "must be false: say x-kubernetes-preserve-unknown-fields in the schema";
        causes.push(Cause::invalid(field, &Value::Bool(true), detail));
    }
    conversion(spec, &mut causes);
    versions::check(spec, &mut causes);
    if let Some(old) = old {
        unchanged(spec, old, &mut causes);
        stored_versions(spec, old, &mut causes);
    }
    causes
}

/// The text at `name`, empty if absent or of another type.
fn text<'a>(members: &'a Map<String, Value>, name: &str) -> &'a str {
    members.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a group belongs to Kubernetes itself.
pub fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn approval(crd: &Value, spec: &Map<String, Value>, causes: &mut Vec<Cause>) {
    let group = text(spec, "group");
    if !is_protected(group) {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    let found = crd.pointer("/metadata/annotations").and_then(|all| all.get(APPROVAL));
    match found.and_then(Value::as_str) {
        Some(value) if value.starts_with("unapproved") || value.contains("://") => {}
        Some(value) => {
            let detail = "must be the address of the approval or start with unapproved";
            causes.push(Cause::invalid(field, &Value::from(value), detail));
        }
        None => {
            causes.push(Cause::required(field, "groups of Kubernetes itself need an approval"));
        }
    }
}

fn scope(spec: &Map<String, Value>, causes: &mut Vec<Cause>) {
    match spec.get("scope") {
        None | Some(Value::Null) => causes.push(Cause::required("spec.scope", "")),
        Some(value) if value == "Cluster" || value == "Namespaced" => {}
        Some(value) => {
            let all = ["Cluster", "Namespaced"];
            causes.push(Cause::not_supported("spec.scope", value, &all));
        }
    }
}

/// Only `None`: a webhook would be a call to another server in the path of every read.
fn conversion(spec: &Map<String, Value>, causes: &mut Vec<Cause>) {
    let Some(conversion) = spec.get("conversion").filter(|value| !value.is_null()) else { return };
    let field = "spec.conversion.strategy";
    match conversion.get("strategy") {
        Some(Value::String(strategy)) if strategy == "None" => {}
        Some(Value::Null) | None => causes.push(Cause::required(field, "")),
        Some(other) => causes.push(Cause::not_supported(field, other, &["None"])),
    }
    if conversion.get("webhook").is_some_and(|webhook| !webhook.is_null()) {
        causes.push(Cause::forbidden("spec.conversion.webhook", "needs the strategy Webhook"));
    }
}

fn unchanged(spec: &Map<String, Value>, old: &Value, causes: &mut Vec<Cause>) {
    for (field, pointer) in [
        ("spec.group", "/group"),
        ("spec.scope", "/scope"),
        ("spec.names.plural", "/names/plural"),
        ("spec.names.kind", "/names/kind"),
    ] {
        let find = |spec: &Map<String, Value>| {
            let mut steps = pointer.split('/').skip(1);
            let first = steps.next().and_then(|step| spec.get(step));
            steps.fold(first, |value, step| value.and_then(|value| value.get(step))).cloned()
        };
        let new = find(spec).unwrap_or_default();
        let before = old.get("spec").and_then(Value::as_object).and_then(find).unwrap_or_default();
        if new != before {
            causes.push(Cause::invalid(field, &new, "field is immutable"));
        }
    }
}

/// Objects may still be stored in the listed versions, so their schemas must stay.
fn stored_versions(spec: &Map<String, Value>, old: &Value, causes: &mut Vec<Cause>) {
    let stored = old.pointer("/status/storedVersions").and_then(Value::as_array);
    let versions = spec.get("versions").and_then(Value::as_array);
    for (index, name) in stored.into_iter().flatten().enumerate() {
        let kept = versions.into_iter().flatten().any(|version| version.get("name") == Some(name));
        if !kept {
            let field = format!("status.storedVersions[{index}]");
            causes.push(Cause::invalid(field, name, "must appear in spec.versions"));
        }
    }
}

#[cfg(test)]
mod tests;
