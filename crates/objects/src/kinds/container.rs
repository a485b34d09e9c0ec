//! Rules of one container: ports, variables, mounts, probes, resources.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{check_one_of, pod, quantity};
use crate::access::{at, integer, list, members, text};
use crate::cause::Cause;
use crate::names;

const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: &[&str] = &["FallbackToLogsOnError", "File"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const HANDLERS: [&str; 4] = ["exec", "grpc", "httpGet", "tcpSocket"];
const VALUE_SOURCES: [&str; 5] =
    ["configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"];
/// Bytes of the name of a port.
const PORT_NAME_MAX: usize = 15;

/// `volumes` are the names the pod has.
pub(super) fn check(
    container: &Value,
    field: &str,
    volumes: &BTreeSet<&str>,
    causes: &mut Vec<Cause>,
) {
    pod::check_label(text(container, "name"), &format!("{field}.name"), causes);
    let image = text(container, "image");
    if image.trim().is_empty() {
        causes.push(Cause::required(format!("{field}.image"), ""));
    } else if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        causes.push(Cause::invalid(format!("{field}.image"), &image.into(), detail));
    }
    let policy = format!("{field}.imagePullPolicy");
    check_one_of(container, "imagePullPolicy", &policy, PULL_POLICIES, causes);
    let policy = format!("{field}.terminationMessagePolicy");
    check_one_of(container, "terminationMessagePolicy", &policy, MESSAGE_POLICIES, causes);
    check_ports(container, field, causes);
    check_variables(container, field, causes);
    check_mounts(container, field, volumes, causes);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(given) = at(container, probe) {
            check_probe(given, probe, &format!("{field}.{probe}"), causes);
        }
    }
    check_resources(container, field, causes);
}

fn check_ports(container: &Value, field: &str, causes: &mut Vec<Cause>) {
    let (mut seen_names, mut seen_hosts) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in list(container, "ports").iter().enumerate() {
        let field = format!("{field}.ports[{index}]");
        super::service::check_number(port, "containerPort", &field, causes);
        check_one_of(port, "protocol", &format!("{field}.protocol"), PROTOCOLS, causes);
        let name = text(port, "name");
        if !name.is_empty() {
            if let Err(detail) = port_name(name) {
                causes.push(Cause::invalid(format!("{field}.name"), &name.into(), &detail));
            } else if !seen_names.insert(name) {
                causes.push(Cause::duplicate(format!("{field}.name"), &name.into()));
            }
        }
        if let Some(host) = integer(port, "hostPort").filter(|host| *host != 0) {
            super::service::check_number(port, "hostPort", &field, causes);
            if !seen_hosts.insert((text(port, "protocol"), text(port, "hostIP"), host)) {
                causes.push(Cause::duplicate(format!("{field}.hostPort"), &host.into()));
            }
        }
    }
}

/// The name of a port: a short label with a letter in it.
pub(super) fn port_name(name: &str) -> Result<(), String> {
    if name.len() > PORT_NAME_MAX {
        return Err(format!("must be no more than {PORT_NAME_MAX} characters"));
    }
    if !name.contains(|c: char| c.is_ascii_lowercase()) {
        return Err("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        return Err("must not contain consecutive hyphens".to_owned());
    }
    names::dns_label(name)
}

fn check_variables(container: &Value, field: &str, causes: &mut Vec<Cause>) {
    for (index, variable) in list(container, "env").iter().enumerate() {
        let field = format!("{field}.env[{index}]");
        let name = text(variable, "name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        } else if !name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=') {
            let detail = "must be printable ASCII without '='";
            causes.push(Cause::invalid(format!("{field}.name"), &name.into(), detail));
        }
        let Some(source) = at(variable, "valueFrom") else { continue };
        let field = format!("{field}.valueFrom");
        if !text(variable, "value").is_empty() {
            let detail = "may not be specified when `value` is not empty";
            causes.push(Cause::invalid(field, &"".into(), detail));
            continue;
        }
        let given = VALUE_SOURCES.iter().filter(|name| at(source, name).is_some()).count();
        if given != 1 {
            let detail = format!("must specify exactly one of: {}", VALUE_SOURCES.join(", "));
            causes.push(Cause::invalid(field, &"".into(), &detail));
        }
    }
}

fn check_mounts(container: &Value, field: &str, volumes: &BTreeSet<&str>, causes: &mut Vec<Cause>) {
    let mut paths = BTreeSet::new();
    for (member, place) in [("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")] {
        for (index, mount) in list(container, member).iter().enumerate() {
            let field = format!("{field}.{member}[{index}]");
            let name = text(mount, "name");
            if name.is_empty() {
                causes.push(Cause::required(format!("{field}.name"), ""));
            } else if !volumes.contains(name) {
                causes.push(Cause::not_found(format!("{field}.name"), &name.into()));
            }
            let path = text(mount, place);
            if path.is_empty() {
                causes.push(Cause::required(format!("{field}.{place}"), ""));
            } else if !paths.insert(path) {
                let detail = "must be unique";
                causes.push(Cause::invalid(format!("{field}.{place}"), &path.into(), detail));
            }
        }
    }
}

fn check_probe(probe: &Value, name: &str, field: &str, causes: &mut Vec<Cause>) {
    let given: Vec<&str> =
        HANDLERS.into_iter().filter(|handler| at(probe, handler).is_some()).collect();
    match given.as_slice() {
        [] => causes.push(Cause::required(field, "must specify a handler type")),
        [_] => {}
        [_, rest @ ..] => causes.extend(rest.iter().map(|handler| {
            let field = format!("{field}.{handler}");
            Cause::forbidden(field, "may not specify more than 1 handler type")
        })),
    }
    for member in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"] {
        if let Some(number) = integer(probe, member).filter(|number| *number < 0) {
            let detail = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("{field}.{member}"), &number.into(), detail));
        }
    }
    let successes = integer(probe, "successThreshold").unwrap_or(1);
    if name != "readinessProbe" && successes != 1 {
        let field = format!("{field}.successThreshold");
        causes.push(Cause::invalid(field, &successes.into(), "must be 1"));
    }
}

fn check_resources(container: &Value, field: &str, causes: &mut Vec<Cause>) {
    for member in ["requests", "limits"] {
        for (resource, amount) in members(container, &format!("resources.{member}")) {
            let field = format!("{field}.resources.{member}[{resource}]");
            super::check_quantity(amount, &field, causes);
        }
    }
    for (resource, request) in members(container, "resources.requests") {
        let limit = at(container, "resources.limits").and_then(|limits| limits.get(resource));
        if let (Some(asked), Some(limit)) = (quantity(request), limit.and_then(quantity))
            && asked > limit
        {
            let field = format!("{field}.resources.requests");
            let detail =
                format!("must be less than or equal to {resource} limit of {}", limit.shown());
            causes.push(Cause::invalid(field, request, &detail));
        }
    }
}
