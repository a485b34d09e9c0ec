//! Field selectors: which fields can be selected on, and what their values are.
//!
//! Owns: the list of supported fields and their text. Never: parses a selector.

use std::borrow::Cow;

use serde_json::Value;

use crate::access::{is_true, list, text};

const OBJECT_REFERENCE: [&str; 7] =
    ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];

/// Whether a built-in resource can be selected by `path`. `metadata.name` and `metadata.namespace`
/// are selectable everywhere, also on custom resources.
pub fn selectable(group: &str, resource: &str, path: &str) -> bool {
    if matches!(path, "metadata.name" | "metadata.namespace") {
        return true;
    }
    match (group, resource) {
        ("", "namespaces") => path == "status.phase",
        ("", "secrets") => path == "type",
        ("", "nodes") => path == "spec.unschedulable",
        ("apps", "replicasets") => path == "status.replicas",
        ("batch", "jobs") => path == "status.successful",
        ("", "pods") => matches!(
            path,
            "spec.nodeName"
                | "spec.restartPolicy"
                | "spec.schedulerName"
                | "spec.serviceAccountName"
                | "spec.hostNetwork"
                | "status.phase"
                | "status.podIP"
                | "status.podIPs"
                | "status.nominatedNodeName"
        ),
        ("", "events") => {
            matches!(path, "reason" | "reportingComponent" | "source" | "type")
                || is_reference(path, "involvedObject.")
        }
        ("events.k8s.io", "events") => {
            matches!(path, "reason" | "reportingController" | "type")
                || is_reference(path, "regarding.")
        }
        _ => false,
    }
}

fn is_reference(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|member| OBJECT_REFERENCE.contains(&member))
}

/// The text a selector compares; "" when absent. `path` may start with a dot, as selectable fields of
/// custom resources do. Events can be asked in either form by the names of either form.
pub fn value<'a>(obj: &'a Value, path: &str) -> Cow<'a, str> {
    let path = path.strip_prefix('.').unwrap_or(path);
    match (text(obj, "apiVersion"), text(obj, "kind"), path) {
        ("v1" | "events.k8s.io/v1", "Event", _) => event_value(obj, path),
        ("v1", "Pod", "spec.hostNetwork") | ("v1", "Node", "spec.unschedulable") => {
            is_true(obj, path).to_string().into()
        }
        ("v1", "Pod", "status.podIPs") => {
            let addresses: Vec<&str> =
                list(obj, path).iter().map(|address| text(address, "ip")).collect();
            addresses.join(",").into()
        }
        ("batch/v1", "Job", "status.successful") => number(obj, "status.succeeded"),
        ("apps/v1", "ReplicaSet", "status.replicas") => number(obj, path),
        _ => plain(obj, path),
    }
}

fn event_value<'a>(obj: &'a Value, path: &str) -> Cow<'a, str> {
    let first = |paths: &[&str]| {
        paths.iter().map(|path| text(obj, path)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let controller = ["reportingComponent", "reportingController"];
    match path {
        "source" => {
            let component = first(&["source.component", "deprecatedSource.component"]);
            if component.is_empty() { first(&controller).into() } else { component.into() }
        }
        "reportingComponent" | "reportingController" => first(&controller).into(),
        _ => {
            let member =
                path.strip_prefix("involvedObject.").or_else(|| path.strip_prefix("regarding."));
            match member {
                Some(member) => {
                    let old = format!("involvedObject.{member}");
                    first(&[&old, &format!("regarding.{member}")]).into()
                }
                None => plain(obj, path),
            }
        }
    }
}

/// Numbers that read as 0 when absent.
fn number<'a>(obj: &'a Value, path: &str) -> Cow<'a, str> {
    let text = plain(obj, path);
    if text.is_empty() { "0".into() } else { text }
}

fn plain<'a>(obj: &'a Value, path: &str) -> Cow<'a, str> {
    match path.split('.').try_fold(obj, |value, member| value.get(member)) {
        Some(Value::String(text)) => text.into(),
        Some(Value::Bool(is)) => is.to_string().into(),
        Some(Value::Number(number)) => number.to_string().into(),
        _ => "".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn only_known_fields_are_selectable() {
        for (group, resource, path) in [
            ("", "configmaps", "metadata.name"),
            ("example.com", "widgets", "metadata.namespace"),
            ("", "secrets", "type"),
            ("", "namespaces", "status.phase"),
            ("", "pods", "spec.nodeName"),
            ("", "events", "involvedObject.uid"),
            ("", "events", "source"),
            ("events.k8s.io", "events", "regarding.name"),
            ("events.k8s.io", "events", "reportingController"),
        ] {
            assert!(selectable(group, resource, path), "{group} {resource} {path}");
        }
        for (group, resource, path) in [
            ("", "configmaps", "data.a"),
            ("", "configmaps", "type"),
            ("example.com", "widgets", "spec.size"),
            ("", "events", "regarding.name"),
            ("", "events", "involvedObject.nope"),
            ("events.k8s.io", "events", "involvedObject.name"),
            ("", "pods", "metadata.labels"),
        ] {
            assert!(!selectable(group, resource, path), "{group} {resource} {path}");
        }
    }

    #[test]
    fn values_are_read_as_text() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "status": {"phase": "Running", "podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}]}});
        assert_eq!(value(&pod, "metadata.name"), "p");
        assert_eq!(value(&pod, "spec.nodeName"), "");
        assert_eq!(value(&pod, "spec.hostNetwork"), "false");
        assert_eq!(value(&pod, "status.podIPs"), "1.2.3.4,::1");
        let widget = json!({"kind": "Widget", "spec": {"size": "small", "n": 3, "on": true}});
        assert_eq!(value(&widget, ".spec.size"), "small");
        assert_eq!(value(&widget, ".spec.n"), "3");
        assert_eq!(value(&widget, ".spec.on"), "true");
        assert_eq!(value(&widget, ".spec"), "");
    }

    #[test]
    fn events_answer_to_the_names_of_both_forms() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "reportingComponent": "r",
            "reason": "R", "involvedObject": {"name": "w"}});
        for event in [core.clone(), crate::event::to_events_v1(&core)] {
            for (path, want) in [
                ("source", "r"),
                ("regarding.name", "w"),
                ("reason", "R"),
                ("involvedObject.name", "w"),
                ("reportingController", "r"),
            ] {
                assert_eq!(value(&event, path), want, "{path}");
            }
        }
        let event = json!({"apiVersion": "v1", "kind": "Event", "source": {"component": "c"},
            "reportingComponent": "r"});
        assert_eq!(value(&event, "source"), "c");
    }

    proptest! {
        #[test]
        fn noise_never_panics(obj in crate::noise::object(), path in "[a-z.]{0,20}") {
            let _ = value(&obj, &path);
        }
    }
}
