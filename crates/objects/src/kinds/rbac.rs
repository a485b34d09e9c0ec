//! Rules of roles and bindings.
//!
//! Owns: what a rule, a reference and a subject must say. Never: decides who may do what.

use serde_json::Value;

use crate::access::{at, list, list_mut, set, text};
use crate::cause::Cause;
use crate::names;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn binding_defaults(obj: &mut Value) {
    if at(obj, "roleRef").is_some_and(Value::is_object) && text(obj, "roleRef.apiGroup").is_empty()
    {
        set(obj, "roleRef.apiGroup", GROUP);
    }
    for subject in list_mut(obj, "subjects") {
        let named = matches!(text(subject, "kind"), "User" | "Group");
        if named && text(subject, "apiGroup").is_empty() {
            set(subject, "apiGroup", GROUP);
        }
    }
}

pub(super) fn check(kind: &str, obj: &Value, causes: &mut Vec<Cause>) {
    match kind {
        "Role" | "ClusterRole" => {
            for (index, rule) in list(obj, "rules").iter().enumerate() {
                check_rule(kind, rule, &format!("rules[{index}]"), causes);
            }
            if kind == "ClusterRole" {
                check_aggregation(obj, causes);
            }
        }
        _ => check_binding(kind, obj, causes),
    }
}

fn check_rule(kind: &str, rule: &Value, field: &str, causes: &mut Vec<Cause>) {
    if list(rule, "verbs").is_empty() {
        let detail = "a rule without verbs gives nothing";
        causes.push(Cause::required(format!("{field}.verbs"), detail));
    }
    let urls = list(rule, "nonResourceURLs");
    if !urls.is_empty() {
        let field = format!("{field}.nonResourceURLs");
        let given = Value::from(urls.to_vec());
        if kind == "Role" {
            let detail = "a namespaced role cannot give rights on non-resource URLs";
            causes.push(Cause::invalid(&*field, &given, detail));
        }
        let mixed = ["apiGroups", "resources", "resourceNames"];
        if mixed.iter().any(|member| !list(rule, member).is_empty()) {
            let detail = "one rule cannot cover both resources and non-resource URLs";
            causes.push(Cause::invalid(field, &given, detail));
        }
        return;
    }
    for (member, detail) in [
        ("apiGroups", "a rule for resources names their API groups"),
        ("resources", "a rule names resources or non-resource URLs"),
    ] {
        if list(rule, member).is_empty() {
            causes.push(Cause::required(format!("{field}.{member}"), detail));
        }
    }
}

fn check_aggregation(obj: &Value, causes: &mut Vec<Cause>) {
    if at(obj, "aggregationRule").is_some()
        && list(obj, "aggregationRule.clusterRoleSelectors").is_empty()
    {
        let detail = "at least one selector is required when aggregationRule is given";
        causes.push(Cause::required("aggregationRule.clusterRoleSelectors", detail));
    }
}

fn check_binding(kind: &str, obj: &Value, causes: &mut Vec<Cause>) {
    let group = text(obj, "roleRef.apiGroup");
    if group != GROUP {
        causes.push(Cause::not_supported("roleRef.apiGroup", &group.into(), &[GROUP]));
    }
    let kinds: &[&str] =
        if kind == "RoleBinding" { &["ClusterRole", "Role"] } else { &["ClusterRole"] };
    let role_kind = text(obj, "roleRef.kind");
    if !kinds.contains(&role_kind) {
        causes.push(Cause::not_supported("roleRef.kind", &role_kind.into(), kinds));
    }
    let name = text(obj, "roleRef.name");
    if name.is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    } else if let Err(detail) = names::path_segment(name) {
        causes.push(Cause::invalid("roleRef.name", &name.into(), &detail));
    }
    for (index, subject) in list(obj, "subjects").iter().enumerate() {
        check_subject(kind, subject, &format!("subjects[{index}]"), causes);
    }
}

fn check_subject(binding: &str, subject: &Value, field: &str, causes: &mut Vec<Cause>) {
    let name = text(subject, "name");
    if name.is_empty() {
        causes.push(Cause::required(format!("{field}.name"), ""));
    }
    let group = text(subject, "apiGroup");
    let group_field = format!("{field}.apiGroup");
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty()
                && let Err(detail) = names::dns_subdomain(name)
            {
                causes.push(Cause::invalid(format!("{field}.name"), &name.into(), &detail));
            }
            if !group.is_empty() {
                causes.push(Cause::not_supported(group_field, &group.into(), &[""]));
            }
            if binding == "ClusterRoleBinding" && text(subject, "namespace").is_empty() {
                causes.push(Cause::required(format!("{field}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                causes.push(Cause::not_supported(group_field, &group.into(), &[GROUP]));
            }
        }
        other => {
            let all = &["Group", "ServiceAccount", "User"];
            causes.push(Cause::not_supported(format!("{field}.kind"), &other.into(), all));
        }
    }
}

pub(super) fn check_binding_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if at(old, "roleRef") != at(new, "roleRef") {
        let value = at(new, "roleRef").unwrap_or(&Value::Null);
        causes.push(Cause::invalid("roleRef", value, "a binding cannot change its role"));
    }
}
