//! Cells of the remaining built-in kinds.

use jiff::Timestamp;
use serde_json::Value;

use super::{created, joined, listed, name, or, or_none};
use crate::access::{at, integer, is_true, list, members, text};
use crate::kinds::{Kind, labels_text};

pub(super) fn cells(kind: &Kind, obj: &Value, now: Timestamp) -> Vec<Value> {
    match kind.kind {
        "Namespace" => vec![name(obj), text(obj, "status.phase").into(), created(obj, now)],
        "Secret" => {
            vec![name(obj), text(obj, "type").into(), count(obj, &["data"]), created(obj, now)]
        }
        "ConfigMap" => vec![name(obj), count(obj, &["data", "binaryData"]), created(obj, now)],
        "Lease" => vec![name(obj), text(obj, "spec.holderIdentity").into(), created(obj, now)],
        "ServiceAccount" => vec![name(obj), created(obj, now)],
        "Service" => service(obj, now),
        "Node" => node(obj, now),
        "ResourceQuota" => quota(obj, now),
        "RoleBinding" | "ClusterRoleBinding" => binding(obj, now),
        "CustomResourceDefinition" => definition(obj),
        _ => vec![name(obj), created_at(obj)],
    }
}

fn created_at(obj: &Value) -> Value {
    text(obj, "metadata.creationTimestamp").into()
}

fn count(obj: &Value, paths: &[&str]) -> Value {
    paths.iter().map(|path| members(obj, path).count()).sum::<usize>().into()
}

fn service(obj: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(obj, "spec.ports")
        .iter()
        .map(|port| {
            let number = integer(port, "port").unwrap_or_default();
            let protocol = text(port, "protocol");
            match integer(port, "nodePort") {
                Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
                _ => format!("{number}/{protocol}"),
            }
        })
        .collect();
    vec![
        name(obj),
        text(obj, "spec.type").into(),
        or_none(text(obj, "spec.clusterIP")),
        external_address(obj),
        or_none(&ports.join(",")),
        created(obj, now),
        or_none(&labels_text(obj, "spec.selector")),
    ]
}

fn external_address(obj: &Value) -> Value {
    let given = list(obj, "spec.externalIPs");
    match text(obj, "spec.type") {
        "ExternalName" => text(obj, "spec.externalName").into(),
        "LoadBalancer" => {
            let mut all: Vec<&str> = list(obj, "status.loadBalancer.ingress")
                .iter()
                .map(|ingress| match text(ingress, "ip") {
                    "" => text(ingress, "hostname"),
                    ip => ip,
                })
                .filter(|address| !address.is_empty())
                .collect();
            all.extend(given.iter().filter_map(Value::as_str));
            or(&all.join(","), "<pending>")
        }
        _ => or_none(&listed(given, ",")),
    }
}

fn node(obj: &Value, now: Timestamp) -> Vec<Value> {
    let address = |kind: &str| {
        let all = list(obj, "status.addresses").iter();
        let first = all.filter(|have| text(have, "type") == kind).map(|have| text(have, "address"));
        or_none(first.into_iter().next().unwrap_or_default())
    };
    let about = |member: &str| or(text(obj, &format!("status.nodeInfo.{member}")), "<unknown>");
    vec![
        name(obj),
        node_status(obj).into(),
        or_none(&node_roles(obj)),
        created(obj, now),
        text(obj, "status.nodeInfo.kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        about("osImage"),
        about("kernelVersion"),
        about("containerRuntimeVersion"),
    ]
}

fn node_status(obj: &Value) -> String {
    let ready = list(obj, "status.conditions").iter().find(|have| text(have, "type") == "Ready");
    let status = match ready.map(|ready| text(ready, "status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    };
    let closed = if is_true(obj, "spec.unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{status}{closed}")
}

fn node_roles(obj: &Value) -> String {
    let mut roles: Vec<&str> = members(obj, "metadata.labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    roles.join(",")
}

fn quota(obj: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in members(obj, "status.hard") {
        let used = at(obj, "status.used").and_then(|used| used.get(resource));
        let used = used.and_then(Value::as_str).unwrap_or("0");
        let text = format!("{resource}: {used}/{}", hard.as_str().unwrap_or_default());
        if resource.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
    }
    vec![name(obj), requests.join(", ").into(), limits.join(", ").into(), created(obj, now)]
}

fn binding(obj: &Value, now: Timestamp) -> Vec<Value> {
    let role = format!("{}/{}", text(obj, "roleRef.kind"), text(obj, "roleRef.name"));
    let subjects = |kind: &str| -> String {
        let of_kind = list(obj, "subjects").iter().filter(|subject| text(subject, "kind") == kind);
        let names = of_kind.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name").to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    vec![
        name(obj),
        role.into(),
        created(obj, now),
        subjects("User").into(),
        subjects("Group").into(),
        subjects("ServiceAccount").into(),
    ]
}

fn definition(obj: &Value) -> Vec<Value> {
    let served: Vec<Value> = list(obj, "spec.versions")
        .iter()
        .filter(|version| is_true(version, "served"))
        .cloned()
        .collect();
    let established = list(obj, "status.conditions")
        .iter()
        .find(|have| text(have, "type") == "Established")
        .map_or("Unknown", |have| text(have, "status"));
    vec![
        name(obj),
        text(obj, "spec.scope").into(),
        joined(&served, "name", ",").into(),
        created_at(obj),
        text(obj, "spec.group").into(),
        text(obj, "spec.names.kind").into(),
        listed(list(obj, "spec.names.shortNames"), ",").into(),
        established.into(),
    ]
}
