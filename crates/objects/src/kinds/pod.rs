//! Rules of `Pod`, and of the pod inside every template. Pods are data here: nothing runs them.
//!
//! Owns: defaults, validation and what may change in a pod. Never: fills in a status that only a node
//! can know.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{check_one_of, container, quantity};
use crate::access::{at, keep, list, list_mut, members, object_mut, set, set_default, text};
use crate::cause::Cause;
use crate::names;

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
/// Members that the cluster fills in for a new pod.
const COMPUTED: [&str; 6] = [
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "serviceAccount",
    "serviceAccountName",
    "tolerations",
];
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
const VOLUME_SOURCES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
];

pub(super) fn defaults(obj: &mut Value, old: Option<&Value>) {
    spec_defaults(obj, "spec");
    // What the cluster has computed is not for a body to forget.
    if let Some(old) = old {
        for member in COMPUTED {
            let path = format!("spec.{member}");
            if at(obj, &path).is_none() {
                keep(old, obj, &path);
            }
        }
    }
    if at(obj, "spec").is_some() {
        set_default(obj, "spec.enableServiceLinks", true);
    }
    set_default(obj, "status.phase", "Pending");
    let class = qos_class(obj);
    set_default(obj, "status.qosClass", class);
}

/// Defaults of the pod spec at `path` of `obj`. Nothing is made where there is no spec.
pub(super) fn spec_defaults(obj: &mut Value, path: &str) {
    if !at(obj, path).is_some_and(Value::is_object) {
        return;
    }
    let below = |member: &str| format!("{path}.{member}");
    set_default(obj, &below("restartPolicy"), "Always");
    set_default(obj, &below("dnsPolicy"), "ClusterFirst");
    set_default(obj, &below("terminationGracePeriodSeconds"), 30);
    set_default(obj, &below("schedulerName"), "default-scheduler");
    set_default(obj, &below("securityContext"), json!({}));
    // Two names of one member; the old one is kept in step for old readers.
    let account = text(obj, &below("serviceAccountName")).to_owned();
    if !account.is_empty() {
        set(obj, &below("serviceAccount"), account);
    }
    for member in ["initContainers", "containers"] {
        list_mut(obj, &below(member)).iter_mut().for_each(container_defaults);
    }
    list_mut(obj, &below("volumes")).iter_mut().for_each(volume_defaults);
}

fn container_defaults(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    let policy = if is_latest(text(container, "image")) { "Always" } else { "IfNotPresent" };
    set_default(container, "imagePullPolicy", policy);
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    set_default(container, "resources", json!({}));
    for port in list_mut(container, "ports") {
        set_default(port, "protocol", "TCP");
    }
    for variable in list_mut(container, "env") {
        if at(variable, "valueFrom.fieldRef").is_some() {
            set_default(variable, "valueFrom.fieldRef.apiVersion", "v1");
        }
    }
    for probe in PROBES {
        if at(container, probe).is_some_and(Value::is_object) {
            probe_defaults(container, probe);
        }
    }
    // A limit without a request asks for that much.
    let limits: Vec<(String, Value)> = members(container, "resources.limits")
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    if limits.is_empty() {
        return;
    }
    if let Some(requests) = object_mut(container, "resources.requests") {
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

fn probe_defaults(container: &mut Value, probe: &str) {
    let numbers = [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ];
    for (member, number) in numbers {
        set_default(container, &format!("{probe}.{member}"), number);
    }
    if at(container, &format!("{probe}.httpGet")).is_some() {
        set_default(container, &format!("{probe}.httpGet.scheme"), "HTTP");
        set_default(container, &format!("{probe}.httpGet.path"), "/");
    }
}

fn volume_defaults(volume: &mut Value) {
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if at(volume, source).is_some_and(Value::is_object) {
            set_default(volume, &format!("{source}.defaultMode"), 420);
        }
    }
    if volume.is_object() && VOLUME_SOURCES.iter().all(|source| at(volume, source).is_none()) {
        set(volume, "emptyDir", json!({}));
    }
    if at(volume, "hostPath").is_some() {
        set_default(volume, "hostPath.type", "");
    }
}

/// No tag or the tag `latest`; a digest pins the image whatever the tag says.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    // A colon before the last slash belongs to the port of a registry.
    let name = image.rsplit_once('/').map_or(image, |(_, name)| name);
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    list(spec, "initContainers").iter().chain(list(spec, "containers"))
}

fn qos_class(obj: &Value) -> &'static str {
    let nothing = Value::Null;
    let spec = obj.get("spec").unwrap_or(&nothing);
    let amount = |container: &Value, path: &str| {
        at(container, path).and_then(quantity).filter(|a| *a > crate::quantity::Quantity::ZERO)
    };
    let mut any = false;
    let mut guaranteed = true;
    for container in containers(spec) {
        for resource in ["cpu", "memory"] {
            let limit = amount(container, &format!("resources.limits.{resource}"));
            let request = amount(container, &format!("resources.requests.{resource}"));
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Checks a pod spec; `path` says where it is.
pub(super) fn check(spec: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    check_with_claims(spec, path, &[], causes);
}

/// As [`check`], for pods that each get a claim of every template: those can be mounted, too.
pub(super) fn check_with_claims(
    spec: Option<&Value>,
    path: &str,
    claims: &[Value],
    causes: &mut Vec<Cause>,
) {
    let nothing = Value::Null;
    let spec = spec.unwrap_or(&nothing);
    if list(spec, "containers").is_empty() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let volumes: BTreeSet<&str> =
        list(spec, "volumes").iter().map(|volume| text(volume, "name")).collect();
    let claimed = claims.iter().map(|claim| text(claim, "metadata.name"));
    let volumes = volumes.into_iter().chain(claimed).collect();
    let mut seen = BTreeSet::new();
    for member in ["initContainers", "containers"] {
        for (index, container) in list(spec, member).iter().enumerate() {
            let field = format!("{path}.{member}[{index}]");
            container::check(container, &field, &volumes, causes);
            let name = text(container, "name");
            if !name.is_empty() && !seen.insert(name) {
                causes.push(Cause::duplicate(format!("{field}.name"), &name.into()));
            }
        }
    }
    check_volumes(spec, path, causes);
    check_tolerations(spec, path, causes);
    check_names(spec, path, causes);
    let policy = format!("{path}.restartPolicy");
    check_one_of(spec, "restartPolicy", &policy, RESTART_POLICIES, causes);
    check_one_of(spec, "dnsPolicy", &format!("{path}.dnsPolicy"), DNS_POLICIES, causes);
    let number = |member: &str| crate::access::integer(spec, member);
    if let Some(seconds) = number("activeDeadlineSeconds").filter(|seconds| *seconds < 1) {
        let field = format!("{path}.activeDeadlineSeconds");
        causes.push(Cause::invalid(field, &seconds.into(), "must be greater than 0"));
    }
    if let Some(seconds) = number("terminationGracePeriodSeconds").filter(|seconds| *seconds < 0) {
        let field = format!("{path}.terminationGracePeriodSeconds");
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid(field, &seconds.into(), detail));
    }
}

fn check_volumes(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let field = format!("{path}.volumes[{index}].name");
        let name = text(volume, "name");
        check_label(name, &field, causes);
        if !name.is_empty() && !seen.insert(name) {
            causes.push(Cause::duplicate(field, &name.into()));
        }
        let given = VOLUME_SOURCES.iter().filter(|source| at(volume, source).is_some());
        for source in given.skip(1) {
            let field = format!("{path}.volumes[{index}].{source}");
            causes.push(Cause::forbidden(field, "may not specify more than 1 volume type"));
        }
        let claim = at(volume, "persistentVolumeClaim");
        if claim.is_some_and(|claim| text(claim, "claimName").is_empty()) {
            let field = format!("{path}.volumes[{index}].persistentVolumeClaim.claimName");
            causes.push(Cause::required(field, ""));
        }
    }
}

fn check_tolerations(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "PreferNoSchedule"];
    for (index, toleration) in list(spec, "tolerations").iter().enumerate() {
        let field = format!("{path}.tolerations[{index}]");
        let key = text(toleration, "key");
        let operator = text(toleration, "operator");
        check_one_of(toleration, "effect", &format!("{field}.effect"), EFFECTS, causes);
        let all = &["Equal", "Exists"];
        check_one_of(toleration, "operator", &format!("{field}.operator"), all, causes);
        if key.is_empty() && operator != "Exists" {
            let detail = "must be Exists when `key` is empty, which matches everything";
            causes.push(Cause::invalid(format!("{field}.operator"), &operator.into(), detail));
        } else if !key.is_empty()
            && let Err(detail) = names::qualified_name(key)
        {
            causes.push(Cause::invalid(format!("{field}.key"), &key.into(), &detail));
        }
        let value = text(toleration, "value");
        if operator == "Exists" && !value.is_empty() {
            let detail = "must be empty when `operator` is 'Exists'";
            causes.push(Cause::invalid(format!("{field}.operator"), &value.into(), detail));
        }
        let effect = text(toleration, "effect");
        if at(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "must be 'NoExecute' when `tolerationSeconds` is set";
            causes.push(Cause::invalid(format!("{field}.effect"), &effect.into(), detail));
        }
    }
}

fn check_names(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    type NameCheck = fn(&str) -> Result<(), String>;
    let rules: [(&str, NameCheck); 5] = [
        ("hostname", names::dns_label),
        ("subdomain", names::dns_label),
        ("nodeName", names::dns_subdomain),
        ("priorityClassName", names::dns_subdomain),
        ("serviceAccountName", names::dns_subdomain),
    ];
    for (member, rule) in rules {
        let name = text(spec, member);
        if !name.is_empty()
            && let Err(detail) = rule(name)
        {
            causes.push(Cause::invalid(format!("{path}.{member}"), &name.into(), &detail));
        }
    }
    let selector = format!("{path}.nodeSelector");
    crate::meta::check_labels(at(spec, "nodeSelector"), &selector, causes);
}

pub(super) fn check_label(name: &str, field: &str, causes: &mut Vec<Cause>) {
    if name.is_empty() {
        causes.push(Cause::required(field, ""));
    } else if let Err(detail) = names::dns_label(name) {
        causes.push(Cause::invalid(field, &name.into(), &detail));
    }
}

/// A pod is settled when made: images may change, a deadline may be set or shortened, tolerations may
/// be added and scheduling gates removed.
pub(super) fn check_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let mut settled = new.clone();
    for member in ["spec.initContainers", "spec.containers"] {
        let before = list(old, member);
        if before.len() != list(new, member).len() {
            causes.push(Cause::forbidden(member, "containers can be neither added nor removed"));
            return;
        }
        for (container, before) in list_mut(&mut settled, member).iter_mut().zip(before) {
            keep(before, container, "image");
        }
    }
    check_deadline(old, new, causes);
    for (path, may_grow) in [("spec.tolerations", true), ("spec.schedulingGates", false)] {
        let (less, more) = if may_grow { (old, new) } else { (new, old) };
        let more: BTreeSet<String> = list(more, path).iter().map(Value::to_string).collect();
        if !list(less, path).iter().all(|item| more.contains(&item.to_string())) {
            let detail =
                if may_grow { "items can only be added" } else { "items can only be removed" };
            causes.push(Cause::forbidden(path, detail));
        }
        keep(old, &mut settled, path);
    }
    keep(old, &mut settled, "spec.activeDeadlineSeconds");
    if at(&settled, "spec") != at(old, "spec") {
        let detail = "only the images of containers, activeDeadlineSeconds, tolerations (added) and \
                      schedulingGates (removed) of a pod may change";
        causes.push(Cause::forbidden("spec", detail));
    }
}

fn check_deadline(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.activeDeadlineSeconds";
    let (before, after) = (at(old, path), at(new, path));
    let Some(limit) = before.and_then(Value::as_i64) else { return };
    if after.and_then(Value::as_i64).is_none_or(|seconds| seconds > limit) {
        let detail = "once set it can only become shorter";
        causes.push(Cause::invalid(path, after.unwrap_or(&Value::Null), detail));
    }
}
