//! Rules of `Service`, stored as data: no addresses are handed out.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::check_one_of;
use crate::access::{at, integer, keep, list, list_mut, set_default, text};
use crate::cause::Cause;
use crate::meta::check_labels;
use crate::names;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

pub(super) fn defaults(obj: &mut Value, old: Option<&Value>) {
    // An address once given is kept by a body that does not name it.
    if let Some(old) = old
        && text(obj, "spec.clusterIP").is_empty()
        && text(obj, "spec.type") != "ExternalName"
    {
        for path in ["spec.clusterIP", "spec.clusterIPs"] {
            if at(old, path).is_some() {
                keep(old, obj, path);
            }
        }
    }
    set_default(obj, "spec.type", "ClusterIP");
    set_default(obj, "spec.sessionAffinity", "None");
    if text(obj, "spec.sessionAffinity") == "ClientIP" {
        set_default(obj, "spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10800);
    }
    let kind = text(obj, "spec.type").to_owned();
    if kind != "ExternalName" {
        set_default(obj, "spec.internalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        set_default(obj, "spec.externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_default(obj, "spec.allocateLoadBalancerNodePorts", true);
    }
    for port in list_mut(obj, "spec.ports") {
        set_default(port, "protocol", "TCP");
        let number = integer(port, "port");
        let unset = match at(port, "targetPort") {
            None => true,
            Some(target) => *target == json!(0) || *target == json!(""),
        };
        if let (true, Some(number)) = (unset, number) {
            crate::access::set(port, "targetPort", number);
        }
    }
    set_default(obj, "status.loadBalancer", json!({}));
}

pub(super) fn check(obj: &Value, causes: &mut Vec<Cause>) {
    check_one_of(obj, "spec.type", "spec.type", TYPES, causes);
    check_one_of(
        obj,
        "spec.sessionAffinity",
        "spec.sessionAffinity",
        &["ClientIP", "None"],
        causes,
    );
    check_labels(at(obj, "spec.selector"), "spec.selector", causes);
    let ports = list(obj, "spec.ports");
    let is_headless = text(obj, "spec.clusterIP") == "None";
    let external = text(obj, "spec.type") == "ExternalName";
    if external {
        let name = text(obj, "spec.externalName");
        if let Err(detail) = names::dns_subdomain(name.trim_end_matches('.')) {
            causes.push(match name {
                "" => Cause::required("spec.externalName", ""),
                _ => Cause::invalid("spec.externalName", &name.into(), &detail),
            });
        }
    } else if ports.is_empty() && !is_headless {
        causes.push(Cause::required("spec.ports", ""));
    }
    let mut seen = BTreeSet::new();
    let mut seen_names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        check_port(port, ports.len(), &field, causes);
        let key = (text(port, "protocol"), integer(port, "port").unwrap_or_default());
        if !seen.insert(key) {
            causes.push(Cause::duplicate(&*field, port));
        }
        let name = text(port, "name");
        if !name.is_empty() && !seen_names.insert(name) {
            causes.push(Cause::duplicate(format!("{field}.name"), &name.into()));
        }
    }
}

/// An address, once given, stays as long as the type keeps one.
pub(super) fn check_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let kept = text(old, "spec.type") != "ExternalName" && text(new, "spec.type") != "ExternalName";
    let before = text(old, "spec.clusterIP");
    if kept && !before.is_empty() {
        super::check_immutable(old, new, "spec.clusterIP", causes);
    }
}

fn check_port(port: &Value, count: usize, field: &str, causes: &mut Vec<Cause>) {
    let name = text(port, "name");
    if name.is_empty() {
        if count > 1 {
            causes.push(Cause::required(format!("{field}.name"), ""));
        }
    } else if let Err(detail) = names::dns_label(name) {
        causes.push(Cause::invalid(format!("{field}.name"), &name.into(), &detail));
    }
    check_number(port, "port", field, causes);
    if at(port, "nodePort").is_some_and(|number| *number != json!(0)) {
        check_number(port, "nodePort", field, causes);
    }
    check_one_of(port, "protocol", &format!("{field}.protocol"), PROTOCOLS, causes);
    match at(port, "targetPort") {
        Some(Value::String(target)) => check_target_name(target, field, causes),
        Some(Value::Number(_)) => check_number(port, "targetPort", field, causes),
        _ => {}
    }
}

fn check_target_name(target: &str, field: &str, causes: &mut Vec<Cause>) {
    let is_number = target.parse::<u16>().is_ok();
    if !is_number && (target.len() > 15 || names::dns_label(target).is_err()) {
        let detail = "must be a port number or a port name of at most 15 characters";
        causes.push(Cause::invalid(format!("{field}.targetPort"), &target.into(), detail));
    }
}

/// The member must be a port number.
pub(super) fn check_number(port: &Value, member: &str, field: &str, causes: &mut Vec<Cause>) {
    let number = integer(port, member).unwrap_or_default();
    if !(1..=65535).contains(&number) {
        let detail = "must be between 1 and 65535, inclusive";
        causes.push(Cause::invalid(format!("{field}.{member}"), &number.into(), detail));
    }
}
