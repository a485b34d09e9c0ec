//! Rules of `Service`. Addresses and node ports are handed out by whoever knows all services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::check_one_of;
use crate::access::{at, integer, keep, list, list_mut, set_default, text};
use crate::cause::Cause;
use crate::meta::check_labels;
use crate::names;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Which things services of a type are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Needs {
    address: bool,
    ports: bool,
}

fn needs(service: &Value) -> Needs {
    match text(service, "spec.type") {
        "ExternalName" => Needs { address: false, ports: false },
        "NodePort" | "LoadBalancer" => Needs { address: true, ports: true },
        _ => Needs { address: true, ports: false },
    }
}

pub(super) fn defaults(obj: &mut Value, old: Option<&Value>) {
    if let Some(old) = old {
        keep_given(obj, old);
        drop_impossible(obj, old);
    }
    // Two names of one thing: a body that changes the older one means both.
    let address = text(obj, "spec.clusterIP").to_owned();
    let unchanged = |old: &Value| {
        at(old, "spec.clusterIPs") == at(obj, "spec.clusterIPs")
            && text(old, "spec.clusterIP") != address
    };
    let follows = list(obj, "spec.clusterIPs").is_empty() || old.is_some_and(unchanged);
    if !address.is_empty() && follows {
        crate::access::set(obj, "spec.clusterIPs", vec![address]);
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

/// What a service was given stays with a body that does not name it.
fn keep_given(obj: &mut Value, old: &Value) {
    let (before, after) = (needs(old), needs(obj));
    if before.address && after.address && text(obj, "spec.clusterIP").is_empty() {
        for path in ["spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"]
        {
            if at(obj, path).is_none_or(|given| given == "") && at(old, path).is_some() {
                keep(old, obj, path);
            }
        }
    }
    if before.ports && after.ports {
        for port in list_mut(obj, "spec.ports") {
            let same = |other: &&Value| {
                let protocol = |port| Some(text(port, "protocol")).filter(|p| !p.is_empty());
                integer(other, "port") == integer(port, "port")
                    && protocol(other).unwrap_or("TCP") == protocol(port).unwrap_or("TCP")
            };
            let given = list(old, "spec.ports").iter().find(same);
            let number = given.and_then(|given| integer(given, "nodePort"));
            if let (0, Some(number)) = (integer(port, "nodePort").unwrap_or(0), number) {
                crate::access::set(port, "nodePort", number);
            }
        }
    }
}

/// A change of type gives back what the new type cannot have, where the body did not change it.
fn drop_impossible(obj: &mut Value, old: &Value) {
    let (before, after) = (needs(old), needs(obj));
    let mut gone: Vec<&str> = Vec::new();
    if before.address && !after.address {
        gone.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
        gone.push("internalTrafficPolicy");
    }
    if before.ports && !after.ports {
        gone.extend(["externalTrafficPolicy", "healthCheckNodePort"]);
        for (port, before) in list_mut(obj, "spec.ports").iter_mut().zip(list(old, "spec.ports")) {
            if at(port, "nodePort") == at(before, "nodePort") {
                crate::access::remove(port, "nodePort");
            }
        }
    }
    if text(old, "spec.type") == "LoadBalancer" && text(obj, "spec.type") != "LoadBalancer" {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    for member in gone {
        let path = format!("spec.{member}");
        if at(obj, &path) == at(old, &path) {
            crate::access::remove(obj, &path);
        }
    }
}

fn check_addresses(obj: &Value, causes: &mut Vec<Cause>) {
    let kind = text(obj, "spec.type");
    let addresses = list(obj, "spec.clusterIPs");
    let first = addresses.first().and_then(Value::as_str).unwrap_or_default();
    if kind == "ExternalName" && (!first.is_empty() || !text(obj, "spec.clusterIP").is_empty()) {
        let detail = "may not be set when `type` is 'ExternalName'";
        causes.push(Cause::forbidden("spec.clusterIPs", detail));
        return;
    }
    if first != text(obj, "spec.clusterIP") {
        let detail = "the first of clusterIPs must be clusterIP";
        causes.push(Cause::invalid("spec.clusterIPs[0]", &first.into(), detail));
    }
    if first == "None" && needs(obj).ports {
        let detail = format!("may not be set to 'None' for {kind} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &first.into(), &detail));
    }
    for (member, all) in [("clusterIPs", addresses), ("externalIPs", list(obj, "spec.externalIPs"))]
    {
        for (index, address) in all.iter().enumerate() {
            let text = address.as_str().unwrap_or_default();
            let headless = member == "clusterIPs" && matches!(text, "None" | "");
            if !headless && text.parse::<std::net::IpAddr>().is_err() {
                let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                let field = format!("spec.{member}[{index}]");
                causes.push(Cause::invalid(field, address, detail));
            }
        }
    }
}

pub(super) fn check(obj: &Value, causes: &mut Vec<Cause>) {
    check_one_of(obj, "spec.type", "spec.type", TYPES, causes);
    check_addresses(obj, causes);
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
        if !needs(obj).ports && integer(port, "nodePort").is_some_and(|number| number != 0) {
            let kind = text(obj, "spec.type");
            let detail = format!("may not be used when `type` is '{kind}'");
            causes.push(Cause::forbidden(format!("{field}.nodePort"), &detail));
        }
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
