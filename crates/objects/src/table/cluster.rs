//! Columns and cells of the kinds that a cluster's own controllers work on: one row for each column,
//! which says what it is called and where its cells come from.

use jiff::Timestamp;
use serde_json::Value;

use super::{Column, created, joined, listed, name, or, or_none};
use crate::access::{at, integer, is_true, list, text};
use crate::kinds::{Kind, labels_text, selector_text};

/// Where a cell comes from.
#[derive(Clone, Copy)]
enum Cell {
    Age,
    /// The text at a path, or nothing.
    Text(&'static str),
    /// The text at a path, or `<none>`.
    OrNone(&'static str),
    Number(&'static str),
    Flag(&'static str),
    /// How many items are at a path.
    Count(&'static str),
    Made(fn(&Value) -> Value),
}
use Cell::{Age, Count, Flag, Made, Number, OrNone, Text};

/// Name, description, source; wide output only if the description begins with a `+`.
type Row = (&'static str, &'static str, Cell);

const AGE: Row = ("Age", "Time since the object was created.", Age);

const ENDPOINTS: &[Row] = &[("Endpoints", "Addresses and ports.", Made(endpoints)), AGE];
const POD_TEMPLATE: &[Row] = &[
    ("Containers", "Names of the containers.", Made(|obj| containers(obj, "template", "name"))),
    ("Images", "Images of the containers.", Made(|obj| containers(obj, "template", "image"))),
    ("Pod Labels", "Labels of the pods.", Made(pod_labels)),
];
const REPLICATION_CONTROLLER: &[Row] = &[
    ("Desired", "Pods wanted.", Number("spec.replicas")),
    ("Current", "Pods there are.", Number("status.replicas")),
    ("Ready", "Pods that are ready.", Number("status.readyReplicas")),
    AGE,
    ("Containers", "+Names of the containers.", Made(|o| containers(o, "spec.template", "name"))),
    ("Images", "+Images of the containers.", Made(|o| containers(o, "spec.template", "image"))),
    ("Selector", "+Which pods belong to it.", Made(|obj| labels(obj, "spec.selector"))),
];
const CONTROLLER_REVISION: &[Row] = &[
    ("Controller", "Whose former state it is.", Made(controller)),
    ("Revision", "Its number.", Number("revision")),
    AGE,
];
const WEBHOOKS: &[Row] = &[("Webhooks", "How many there are.", Count("webhooks")), AGE];
const POLICY: &[Row] = &[
    ("Validations", "How many rules it has.", Count("spec.validations")),
    ("ParamKind", "The kind of its parameters.", Made(param_kind)),
    AGE,
];
const POLICY_BINDING: &[Row] = &[
    ("PolicyName", "The policy put into force.", Text("spec.policyName")),
    ("ParamRef", "Its parameters.", Made(param_ref)),
    AGE,
];
const API_SERVICE: &[Row] = &[
    ("Service", "Who serves the group and version.", Made(service)),
    ("Available", "Whether it is served.", Made(available)),
    AGE,
];
const AUTOSCALER: &[Row] = &[
    ("Reference", "What is scaled.", Made(scaled)),
    ("Targets", "Measured values of those wanted.", Made(targets)),
    ("MinPods", "The lower bound.", Made(|obj| amount_or(obj, "spec.minReplicas", "<unset>"))),
    ("MaxPods", "The upper bound.", Number("spec.maxReplicas")),
    ("Replicas", "Pods there are.", Number("status.currentReplicas")),
    AGE,
];
const SIGNING_REQUEST: &[Row] = &[
    AGE,
    ("SignerName", "Who is asked to sign.", Text("spec.signerName")),
    ("Requestor", "Who asks.", Text("spec.username")),
    ("RequestedDuration", "How long it shall hold.", Made(requested_duration)),
    ("Condition", "What became of it.", Made(signing_state)),
];
const ENDPOINT_SLICE: &[Row] = &[
    ("AddressType", "Kind of the addresses.", Text("addressType")),
    ("Ports", "Ports of the endpoints.", Made(slice_ports)),
    ("Endpoints", "Their addresses.", Made(slice_addresses)),
    AGE,
];
const FLOW_SCHEMA: &[Row] = &[
    ("PriorityLevel", "Where its requests go.", Text("spec.priorityLevelConfiguration.name")),
    ("MatchingPrecedence", "Lower ones are tried first.", Number("spec.matchingPrecedence")),
    ("DistinguisherMethod", "How flows differ.", OrNone("spec.distinguisherMethod.type")),
    AGE,
    ("MissingPL", "Whether its level is missing.", Made(missing_level)),
];
const PRIORITY_LEVEL: &[Row] = &[
    ("Type", "Limited or Exempt.", Text("spec.type")),
    ("NominalConcurrencyShares", "Its share of seats.", Made(shares)),
    ("Queues", "Number of queues.", Made(|obj| queuing(obj, "queues"))),
    ("HandSize", "Queues for each flow.", Made(|obj| queuing(obj, "handSize"))),
    ("QueueLengthLimit", "Requests in a queue.", Made(|obj| queuing(obj, "queueLengthLimit"))),
    AGE,
];
const INGRESS: &[Row] = &[
    ("Class", "Class of the controller that looks after it.", OrNone("spec.ingressClassName")),
    ("Hosts", "Host names it answers to.", Made(hosts)),
    ("Address", "Where it can be reached.", Made(ingress_addresses)),
    ("Ports", "Ports that are open.", Made(ingress_ports)),
    AGE,
];
const INGRESS_CLASS: &[Row] = &[
    ("Controller", "Who looks after it.", Text("spec.controller")),
    ("Parameters", "Where more is said.", Made(class_parameters)),
    AGE,
];
const NETWORK_POLICY: &[Row] =
    &[("Pod-Selector", "Pods it is about.", Made(|obj| selected(obj, "spec.podSelector"))), AGE];
const IP_ADDRESS: &[Row] = &[("ParentRef", "Whose address it is.", Made(parent)), AGE];
const SERVICE_CIDR: &[Row] =
    &[("CIDRs", "Ranges.", Made(|obj| listed(list(obj, "spec.cidrs"), ",").into())), AGE];
const RUNTIME_CLASS: &[Row] = &[("Handler", "How containers are run.", Text("handler")), AGE];
const DISRUPTION_BUDGET: &[Row] = &[
    ("Min Available", "Pods that must stay.", Made(|o| amount_or(o, "spec.minAvailable", "N/A"))),
    (
        "Max Unavailable",
        "Pods that may be missing.",
        Made(|obj| amount_or(obj, "spec.maxUnavailable", "N/A")),
    ),
    ("Allowed Disruptions", "Pods that may go now.", Number("status.disruptionsAllowed")),
    AGE,
];
const RESOURCE_CLAIM: &[Row] = &[("State", "What became of it.", Made(claim_state)), AGE];
const RESOURCE_SLICE: &[Row] = &[
    ("Node", "Node of the devices.", OrNone("spec.nodeName")),
    ("Driver", "Driver of the devices.", Text("spec.driver")),
    ("Pool", "Pool they belong to.", Text("spec.pool.name")),
    AGE,
];
const PRIORITY_CLASS: &[Row] = &[
    ("Value", "The priority.", Number("value")),
    ("Global-Default", "Whether pods without a class get it.", Flag("globalDefault")),
    AGE,
    ("PreemptionPolicy", "Whether others make room.", Text("preemptionPolicy")),
];
const CSI_DRIVER: &[Row] = &[
    ("AttachRequired", "Volumes are attached first.", Flag("spec.attachRequired")),
    ("PodInfoOnMount", "It hears of the pod.", Flag("spec.podInfoOnMount")),
    ("StorageCapacity", "It publishes capacity.", Flag("spec.storageCapacity")),
    ("TokenRequests", "Audiences of tokens it gets.", Made(token_audiences)),
    ("RequiresRepublish", "Volumes are published again.", Flag("spec.requiresRepublish")),
    (
        "Modes",
        "Kinds of volumes.",
        Made(|o| listed(list(o, "spec.volumeLifecycleModes"), ",").into()),
    ),
    AGE,
];
const CSI_NODE: &[Row] = &[("Drivers", "How many drivers it has.", Count("spec.drivers")), AGE];
const CSI_CAPACITY: &[Row] = &[
    ("StorageClassName", "Of which class.", Text("storageClassName")),
    ("Capacity", "How much.", Made(|obj| amount_or(obj, "capacity", ""))),
];
const ATTACHMENT: &[Row] = &[
    ("Attacher", "Who attaches.", Text("spec.attacher")),
    ("PV", "What is attached.", Text("spec.source.persistentVolumeName")),
    ("Node", "To what.", Text("spec.nodeName")),
    ("Attached", "Whether it is.", Flag("status.attached")),
    AGE,
];
const ATTRIBUTES_CLASS: &[Row] = &[("DriverName", "Whose attributes.", Text("driverName")), AGE];

fn rows(kind: &Kind) -> Option<&'static [Row]> {
    Some(match kind.kind {
        "Endpoints" => ENDPOINTS,
        "PodTemplate" => POD_TEMPLATE,
        "ReplicationController" => REPLICATION_CONTROLLER,
        "ControllerRevision" => CONTROLLER_REVISION,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "ValidatingAdmissionPolicy" => POLICY,
        "ValidatingAdmissionPolicyBinding" => POLICY_BINDING,
        "APIService" => API_SERVICE,
        "HorizontalPodAutoscaler" => AUTOSCALER,
        "CertificateSigningRequest" => SIGNING_REQUEST,
        "EndpointSlice" => ENDPOINT_SLICE,
        "FlowSchema" => FLOW_SCHEMA,
        "PriorityLevelConfiguration" => PRIORITY_LEVEL,
        "Ingress" => INGRESS,
        "IngressClass" => INGRESS_CLASS,
        "NetworkPolicy" => NETWORK_POLICY,
        "IPAddress" => IP_ADDRESS,
        "ServiceCIDR" => SERVICE_CIDR,
        "RuntimeClass" => RUNTIME_CLASS,
        "PodDisruptionBudget" => DISRUPTION_BUDGET,
        "ResourceClaim" => RESOURCE_CLAIM,
        "ResourceSlice" => RESOURCE_SLICE,
        "DeviceClass" | "ResourceClaimTemplate" => &[AGE],
        "PriorityClass" => PRIORITY_CLASS,
        "CSIDriver" => CSI_DRIVER,
        "CSINode" => CSI_NODE,
        "CSIStorageCapacity" => CSI_CAPACITY,
        "VolumeAttachment" => ATTACHMENT,
        "VolumeAttributesClass" => ATTRIBUTES_CLASS,
        _ => return None,
    })
}

/// The columns of a kind that this file knows.
pub(super) fn columns(kind: &Kind) -> Option<Vec<Column>> {
    let rest = rows(kind)?.iter().map(|(name, description, cell)| Column {
        name: (*name).to_owned(),
        kind: match cell {
            Number(_) | Count(_) => "integer".to_owned(),
            Flag(_) => "boolean".to_owned(),
            Age | Text(_) | OrNone(_) | Made(_) => "string".to_owned(),
        },
        format: String::new(),
        description: description.trim_start_matches('+').to_owned(),
        priority: i32::from(description.starts_with('+')),
    });
    Some(std::iter::once(Column::name()).chain(rest).collect())
}

/// The cells of an object of such a kind.
pub(super) fn cells(kind: &Kind, obj: &Value, now: Timestamp) -> Option<Vec<Value>> {
    let rest = rows(kind)?.iter().map(|(_, _, cell)| match cell {
        Age => created(obj, now),
        Text(path) => text(obj, path).into(),
        OrNone(path) => or_none(text(obj, path)),
        Number(path) => integer(obj, path).unwrap_or_default().into(),
        Flag(path) => is_true(obj, path).into(),
        Count(path) => list(obj, path).len().into(),
        Made(make) => make(obj),
    });
    Some(std::iter::once(name(obj)).chain(rest).collect())
}

/// More than this many entries are counted, not shown.
const SHOWN: usize = 3;

/// The first few entries, and how many there are more.
fn few(all: &[String]) -> String {
    match all.get(..SHOWN) {
        Some(first) if all.len() > SHOWN => {
            format!("{} + {} more...", first.join(","), all.len() - SHOWN)
        }
        _ => all.join(","),
    }
}

fn amount_or(obj: &Value, path: &str, placeholder: &str) -> Value {
    match at(obj, path) {
        Some(Value::Number(number)) => number.to_string().into(),
        _ => or(text(obj, path), placeholder),
    }
}

fn labels(obj: &Value, path: &str) -> Value {
    or_none(&labels_text(obj, path))
}

fn selected(obj: &Value, path: &str) -> Value {
    or_none(&selector_text(obj, path))
}

fn containers(obj: &Value, template: &str, member: &str) -> Value {
    joined(list(obj, &format!("{template}.spec.containers")), member, ",").into()
}

fn pod_labels(obj: &Value) -> Value {
    labels(obj, "template.metadata.labels")
}

fn endpoints(obj: &Value) -> Value {
    let mut all = Vec::new();
    for subset in list(obj, "subsets") {
        let addresses = list(subset, "addresses").iter().map(|one| text(one, "ip"));
        let ports = list(subset, "ports");
        for ip in addresses {
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            for port in ports {
                all.push(format!("{ip}:{}", integer(port, "port").unwrap_or_default()));
            }
        }
    }
    or_none(&few(&all))
}

fn slice_ports(obj: &Value) -> Value {
    let number = |port: &Value| integer(port, "port").map_or("*".to_owned(), |it| it.to_string());
    let all: Vec<String> = list(obj, "ports").iter().map(number).collect();
    or(&few(&all), "<unset>")
}

fn slice_addresses(obj: &Value) -> Value {
    let of = |one: &Value| listed(list(one, "addresses"), ",");
    let all: Vec<String> = list(obj, "endpoints").iter().map(of).collect();
    or(&few(&all), "<unset>")
}

fn controller(obj: &Value) -> Value {
    let owner = list(obj, "metadata.ownerReferences").iter().find(|one| is_true(one, "controller"));
    let named = owner.map(|owner| {
        let (group, _) = text(owner, "apiVersion").rsplit_once('/').unwrap_or_default();
        let dot = if group.is_empty() { "" } else { "." };
        let kind = text(owner, "kind").to_ascii_lowercase();
        format!("{kind}{dot}{group}/{}", text(owner, "name"))
    });
    or_none(&named.unwrap_or_default())
}

fn param_kind(obj: &Value) -> Value {
    match text(obj, "spec.paramKind.kind") {
        "" => "<unset>".into(),
        kind => format!("{}/{kind}", text(obj, "spec.paramKind.apiVersion")).into(),
    }
}

fn param_ref(obj: &Value) -> Value {
    match text(obj, "spec.paramRef.name") {
        "" => "<unset>".into(),
        name => match text(obj, "spec.paramRef.namespace") {
            "" => name.into(),
            namespace => format!("{namespace}/{name}").into(),
        },
    }
}

fn service(obj: &Value) -> Value {
    match text(obj, "spec.service.name") {
        "" => "Local".into(),
        name => format!("{}/{name}", text(obj, "spec.service.namespace")).into(),
    }
}

fn available(obj: &Value) -> Value {
    let mut conditions = list(obj, "status.conditions").iter();
    let found = conditions.find(|have| text(have, "type") == "Available");
    match found.map(|have| (text(have, "status"), text(have, "reason"))) {
        None => "Unknown".into(),
        Some((status @ "True", _)) => status.into(),
        Some((status, reason)) => format!("{status} ({reason})").into(),
    }
}

fn scaled(obj: &Value) -> Value {
    let target = |member| text(obj, &format!("spec.scaleTargetRef.{member}")).to_owned();
    format!("{}/{}", target("kind"), target("name")).into()
}

/// Each metric as `name: current/wanted`, as far as it has been measured.
fn targets(obj: &Value) -> Value {
    let measured = list(obj, "status.currentMetrics");
    let one = |(index, spec): (usize, &Value)| {
        let kind = text(spec, "type");
        let mut member = kind.to_owned();
        if let Some(first) = member.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        let value = |of: Option<&Value>, part: &str| {
            let of = of.and_then(|of| at(of, &format!("{member}.{part}")));
            of.map_or("<unknown>".to_owned(), amount)
        };
        let wanted = value(Some(spec), "target");
        let current = value(measured.get(index), "current");
        let label = match kind {
            "Resource" => format!("{}: ", text(spec, "resource.name")),
            "ContainerResource" => format!("{}: ", text(spec, "containerResource.name")),
            _ => String::new(),
        };
        format!("{label}{current}/{wanted}")
    };
    let all: Vec<String> = list(obj, "spec.metrics").iter().enumerate().map(one).collect();
    or_none(&few(&all))
}

/// A metric value or its target, whichever of the three forms it has.
fn amount(of: &Value) -> String {
    if let Some(percent) = integer(of, "averageUtilization") {
        return format!("{percent}%");
    }
    let average = text(of, "averageValue");
    if average.is_empty() { text(of, "value").to_owned() } else { format!("{average} (avg)") }
}

fn requested_duration(obj: &Value) -> Value {
    let seconds = integer(obj, "spec.expirationSeconds");
    or_none(&seconds.map(super::age::duration).unwrap_or_default())
}

fn signing_state(obj: &Value) -> Value {
    let has = |kind: &str| {
        let mut conditions = list(obj, "status.conditions").iter();
        conditions.any(|have| text(have, "type") == kind)
    };
    let mut words = Vec::new();
    words.extend(if has("Denied") { Some("Denied") } else { None });
    words.extend(if has("Approved") && !has("Denied") { Some("Approved") } else { None });
    words.extend(if has("Failed") { Some("Failed") } else { None });
    if words.is_empty() {
        words.push("Pending");
    }
    words.extend((!text(obj, "status.certificate").is_empty()).then_some("Issued"));
    words.join(",").into()
}

fn missing_level(obj: &Value) -> Value {
    let mut conditions = list(obj, "status.conditions").iter();
    let found = conditions.find(|have| text(have, "type") == "Dangling");
    or(found.map(|have| text(have, "status")).unwrap_or_default(), "?")
}

fn shares(obj: &Value) -> Value {
    let limited = at(obj, "spec.limited.nominalConcurrencyShares");
    limited
        .or_else(|| at(obj, "spec.exempt.nominalConcurrencyShares"))
        .cloned()
        .unwrap_or_else(none)
}

fn queuing(obj: &Value, member: &str) -> Value {
    at(obj, &format!("spec.limited.limitResponse.queuing.{member}")).cloned().unwrap_or_else(none)
}

fn none() -> Value {
    "<none>".into()
}

fn hosts(obj: &Value) -> Value {
    let rules = list(obj, "spec.rules").iter().map(|rule| text(rule, "host").to_owned());
    let all: Vec<String> = rules.filter(|host| !host.is_empty()).collect();
    or(&few(&all), "*")
}

fn ingress_addresses(obj: &Value) -> Value {
    let all = list(obj, "status.loadBalancer.ingress").iter().map(|one| match text(one, "ip") {
        "" => text(one, "hostname"),
        ip => ip,
    });
    all.collect::<Vec<_>>().join(",").into()
}

fn ingress_ports(obj: &Value) -> Value {
    if list(obj, "spec.tls").is_empty() { "80".into() } else { "80, 443".into() }
}

fn class_parameters(obj: &Value) -> Value {
    let part = |member| text(obj, &format!("spec.parameters.{member}")).to_owned();
    match (part("kind").as_str(), part("apiGroup").as_str(), part("name")) {
        ("", _, _) => none(),
        (kind, "", name) => format!("{kind}/{name}").into(),
        (kind, group, name) => format!("{kind}.{group}/{name}").into(),
    }
}

fn parent(obj: &Value) -> Value {
    let part = |member| text(obj, &format!("spec.parentRef.{member}"));
    let parts = [part("group"), part("resource"), part("namespace"), part("name")];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("/").into()
}

fn token_audiences(obj: &Value) -> Value {
    or(&joined(list(obj, "spec.tokenRequests"), "audience", ","), "<unset>")
}

fn claim_state(obj: &Value) -> Value {
    let mut states = Vec::new();
    states.extend(at(obj, "metadata.deletionTimestamp").map(|_| "deleted"));
    match at(obj, "status.allocation") {
        None => states.push("pending"),
        Some(_) => states.push("allocated"),
    }
    states.extend((!list(obj, "status.reservedFor").is_empty()).then_some("reserved"));
    states.join(",").into()
}
