//! Rules of the kinds that a cluster's own controllers work on: defaults that they rely on, and what
//! is refused. What would have to act on requests here and does not is refused rather than kept
//! without effect.

use serde_json::{Value, json};

use super::{Kind, check_immutable, check_one_of, pod};
use crate::access::{at, integer, list, list_mut, set, set_default, text};
use crate::builtin::table::{MessageId, Shape, Table, Type};
use crate::cause::Cause;

const PROTOCOL: &str = "TCP";
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

pub(super) fn defaults(kind: &Kind, obj: &mut Value) {
    match kind.kind {
        "Endpoints" => endpoints_defaults(obj),
        "EndpointSlice" => each(obj, "ports", |port| {
            set_default(port, "name", "");
            set_default(port, "protocol", PROTOCOL);
        }),
        "PodTemplate" => pod::spec_defaults(obj, "template.spec"),
        "ReplicationController" => replication_defaults(obj),
        "HorizontalPodAutoscaler" => autoscaler_defaults(obj),
        "NetworkPolicy" => policy_defaults(obj),
        "CSIDriver" => driver_defaults(obj),
        "FlowSchema" => set_default(obj, "spec.matchingPrecedence", 1000),
        "PriorityLevelConfiguration" => level_defaults(obj),
        _ => {}
    }
}

fn each(obj: &mut Value, path: &str, fill: impl Fn(&mut Value)) {
    list_mut(obj, path).iter_mut().for_each(fill);
}

fn endpoints_defaults(obj: &mut Value) {
    each(obj, "subsets", |subset| {
        each(subset, "ports", |port| set_default(port, "protocol", PROTOCOL));
    });
}

fn replication_defaults(obj: &mut Value) {
    set_default(obj, "spec.replicas", 1);
    if let Some(labels) = at(obj, "spec.template.metadata.labels").cloned() {
        set_default(obj, "spec.selector", labels.clone());
        set_default(obj, "metadata.labels", labels);
    }
    if at(obj, "spec.template").is_some() {
        pod::spec_defaults(obj, "spec.template.spec");
    }
}

fn autoscaler_defaults(obj: &mut Value) {
    set_default(obj, "spec.minReplicas", 1);
    if list(obj, "spec.metrics").is_empty() {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        set(obj, "spec.metrics", vec![cpu]);
    }
}

fn policy_defaults(obj: &mut Value) {
    set_default(obj, "spec.podSelector", json!({}));
    if list(obj, "spec.policyTypes").is_empty() {
        let mut types = vec!["Ingress"];
        types.extend((!list(obj, "spec.egress").is_empty()).then_some("Egress"));
        set(obj, "spec.policyTypes", types);
    }
    for direction in ["spec.ingress", "spec.egress"] {
        each(obj, direction, |rule| {
            each(rule, "ports", |port| set_default(port, "protocol", PROTOCOL));
        });
    }
}

fn driver_defaults(obj: &mut Value) {
    set_default(obj, "spec.attachRequired", true);
    for member in ["podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"] {
        set_default(obj, &format!("spec.{member}"), false);
    }
    set_default(obj, "spec.fsGroupPolicy", "ReadWriteOnceWithFSType");
    if list(obj, "spec.volumeLifecycleModes").is_empty() {
        set(obj, "spec.volumeLifecycleModes", vec!["Persistent"]);
    }
}

fn level_defaults(obj: &mut Value) {
    if at(obj, "spec.exempt").is_some() {
        set_default(obj, "spec.exempt.nominalConcurrencyShares", 0);
        set_default(obj, "spec.exempt.lendablePercent", 0);
    }
    if at(obj, "spec.limited").is_some() {
        set_default(obj, "spec.limited.nominalConcurrencyShares", 30);
        set_default(obj, "spec.limited.lendablePercent", 0);
    }
    if at(obj, "spec.limited.limitResponse.queuing").is_some() {
        for (member, value) in [("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)] {
            set_default(obj, &format!("spec.limited.limitResponse.queuing.{member}"), value);
        }
    }
}

pub(super) fn check(kind: &Kind, obj: &Value, causes: &mut Vec<Cause>) {
    refuse_without_effect(kind, obj, causes);
    let api_version = kind.api_version();
    if let Some(id) = Table::get().kind(&api_version, kind.kind) {
        check_required(Table::get(), id, obj, "", causes);
    }
    match kind.kind {
        "APIService" => check_api_service(obj, causes),
        "HorizontalPodAutoscaler" => check_autoscaler(obj, causes),
        "PodDisruptionBudget" => check_budget(obj, causes),
        "EndpointSlice" => {
            let types = ["FQDN", "IPv4", "IPv6"];
            check_one_of(obj, "addressType", "addressType", &types, causes);
        }
        "IPAddress" => check_address(obj, causes),
        // The signer that asks for nothing: controllers of a cluster sign for it with the authority
        // that the server believes, whatever the request says.
        "CertificateSigningRequest" if text(obj, "spec.signerName") == LEGACY_SIGNER => {
            let detail = "the legacy signerName is not allowed via this API version";
            causes.push(Cause::invalid("spec.signerName", &LEGACY_SIGNER.into(), detail));
        }
        _ => {}
    }
}

/// Objects of these kinds would change what requests do. Nothing here acts on them, so they are not
/// taken: a policy that is stored and not applied protects nobody.
fn refuse_without_effect(kind: &Kind, obj: &Value, causes: &mut Vec<Cause>) {
    match kind.kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration"
            if !list(obj, "webhooks").is_empty() =>
        {
            let detail = "this server calls no admission webhooks, so it takes none; rules of a \
                          custom resource belong in its x-kubernetes-validations";
            causes.push(Cause::forbidden("webhooks", detail));
        }
        "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" => {
            let detail = "this server applies no admission policies, so it takes none; rules of a \
                          custom resource belong in its x-kubernetes-validations";
            causes.push(Cause::forbidden("spec", detail));
        }
        "APIService" if at(obj, "spec.service").is_some_and(|service| !service.is_null()) => {
            let detail = "this server passes no requests on to other API servers; install the \
                          types as custom resource definitions";
            causes.push(Cause::forbidden("spec.service", detail));
        }
        _ => {}
    }
}

/// Strings that the published schema requires, outside metadata and status.
fn check_required(table: &Table, id: MessageId, obj: &Value, at: &str, causes: &mut Vec<Cause>) {
    for field in &table.message(id).fields {
        let Some(member) = field.member else {
            if let Type::Message(inner) = field.of {
                check_required(table, inner, obj, at, causes);
            }
            continue;
        };
        if at.is_empty() && (member == "metadata" || member == "status") {
            continue;
        }
        let path = if at.is_empty() { member.to_owned() } else { format!("{at}.{member}") };
        let value = obj.get(member).unwrap_or(&Value::Null);
        if let Type::Message(inner) = field.of {
            check_inside(table, inner, field.shape, value, &path, causes);
        } else if field.required
            && field.shape == Shape::One
            && matches!(field.of, Type::String | Type::Bytes)
            && value.as_str().unwrap_or_default().is_empty()
        {
            causes.push(Cause::required(path, ""));
        }
    }
}

fn check_inside(
    table: &Table,
    id: MessageId,
    shape: Shape,
    value: &Value,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    match (shape, value) {
        (Shape::One, Value::Object(_)) => check_required(table, id, value, path, causes),
        (Shape::List, Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                check_required(table, id, item, &format!("{path}[{index}]"), causes);
            }
        }
        (Shape::Map, Value::Object(members)) => {
            for (key, item) in members {
                check_required(table, id, item, &format!("{path}[{key}]"), causes);
            }
        }
        _ => {}
    }
}

fn check_api_service(obj: &Value, causes: &mut Vec<Cause>) {
    let wanted = format!("{}.{}", text(obj, "spec.version"), text(obj, "spec.group"));
    let name = text(obj, "metadata.name");
    if name != wanted {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        causes.push(Cause::invalid("metadata.name", &name.into(), &detail));
    }
}

fn check_autoscaler(obj: &Value, causes: &mut Vec<Cause>) {
    let most = integer(obj, "spec.maxReplicas").unwrap_or_default();
    let least = integer(obj, "spec.minReplicas").unwrap_or(1);
    if most < 1 {
        let detail = "must be greater than 0";
        causes.push(Cause::invalid("spec.maxReplicas", &most.into(), detail));
    } else if most < least {
        let detail = "must be greater than or equal to `minReplicas`";
        causes.push(Cause::invalid("spec.maxReplicas", &most.into(), detail));
    }
    if least < 1 {
        let detail = "must be greater than or equal to 1";
        causes.push(Cause::invalid("spec.minReplicas", &least.into(), detail));
    }
}

fn check_budget(obj: &Value, causes: &mut Vec<Cause>) {
    if at(obj, "spec.minAvailable").is_some() && at(obj, "spec.maxUnavailable").is_some() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        let spec = at(obj, "spec").unwrap_or(&Value::Null);
        causes.push(Cause::invalid("spec", spec, detail));
    }
}

fn check_address(obj: &Value, causes: &mut Vec<Cause>) {
    let name = text(obj, "metadata.name");
    let canonical = name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_string() == name);
    if !canonical {
        let detail = "must be an IP address in canonical form";
        causes.push(Cause::invalid("metadata.name", &name.into(), detail));
    }
}

/// What stays as it was made.
pub(super) fn check_update(kind: &Kind, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let fixed: &[&str] = match kind.kind {
        "ControllerRevision" => &["data"],
        "EndpointSlice" => &["addressType"],
        "RuntimeClass" => &["handler"],
        "VolumeAttachment" | "IPAddress" | "ResourceClaim" | "ResourceClaimTemplate" => &["spec"],
        "CSIStorageCapacity" => &["nodeTopology", "storageClassName"],
        "IngressClass" => &["spec.controller"],
        "VolumeAttributesClass" => &["driverName", "parameters"],
        _ => &[],
    };
    for path in fixed {
        check_immutable(old, new, path, causes);
    }
}

/// Conditions that only the approval endpoint writes.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];

fn is_decision(condition: &Value) -> bool {
    DECISIONS.contains(&text(condition, "type"))
}

/// The approval endpoint writes conditions; the certificate stays the signer's.
pub fn reset_for_approval(kind: Option<&Kind>, new: &mut Value, old: &Value) {
    let certificate = at(old, "status.certificate").cloned();
    super::reset_for_status(kind, new, old);
    match certificate {
        Some(certificate) => set(new, "status.certificate", certificate),
        None => drop(crate::access::remove(new, "status.certificate")),
    }
}

/// The status endpoint of a signing request leaves decisions as they are.
pub fn keep_decisions(new: &mut Value, old: &Value) {
    let mut conditions: Vec<Value> = list(new, "status.conditions").to_vec();
    conditions.retain(|condition| !is_decision(condition));
    let made = list(old, "status.conditions").iter().filter(|one| is_decision(one));
    let all: Vec<Value> = made.cloned().chain(conditions).collect();
    if !all.is_empty() {
        set(new, "status.conditions", all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{default, find, validate};

    fn causes(group: &str, version: &str, plural: &str, obj: &Value) -> Vec<String> {
        let kind = find(group, version, plural).unwrap();
        let mut obj = obj.clone();
        default(kind, &mut obj, None);
        validate(kind, &obj).into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn what_would_act_on_requests_is_not_taken_without_effect() {
        let group = "admissionregistration.k8s.io";
        for plural in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            let none = json!({"metadata": {"name": "a"}, "webhooks": []});
            assert!(causes(group, "v1", plural, &none).is_empty());
            let some = json!({"metadata": {"name": "a"}, "webhooks": [{"name": "w"}]});
            assert!(causes(group, "v1", plural, &some).contains(&"webhooks".to_owned()));
        }
        for plural in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
            let policy = json!({"metadata": {"name": "a"}, "spec": {"policyName": "p"}});
            assert!(causes(group, "v1", plural, &policy).contains(&"spec".to_owned()));
        }
    }

    #[test]
    fn only_this_server_serves_a_group() {
        let group = "apiregistration.k8s.io";
        let spec = json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 1,
            "versionPriority": 1});
        let mut local = json!({"metadata": {"name": "v1.apps"}, "spec": spec});
        assert!(causes(group, "v1", "apiservices", &local).is_empty());
        local["spec"]["service"] = json!({"name": "metrics", "namespace": "kube-system"});
        assert_eq!(causes(group, "v1", "apiservices", &local), ["spec.service"]);
    }

    #[test]
    fn required_strings_are_missed_wherever_they_are() {
        let ingress = json!({"metadata": {"name": "a"}, "spec": {"rules": [{"http": {"paths": [
            {"path": "/", "backend": {"service": {"port": {"number": 80}}}},
        ]}}]}});
        let found = causes("networking.k8s.io", "v1", "ingresses", &ingress);
        assert_eq!(
            found,
            [
                "spec.rules[0].http.paths[0].backend.service.name",
                "spec.rules[0].http.paths[0].pathType"
            ]
        );
        let attachment = json!({"metadata": {"name": "a"}, "spec": {"source": {}}});
        let found = causes("storage.k8s.io", "v1", "volumeattachments", &attachment);
        assert_eq!(found, ["spec.attacher", "spec.nodeName"]);
    }

    #[test]
    fn a_signing_request_names_its_signer() {
        let request = |signer: Value| {
            let spec = json!({"request": "YQ==", "usages": ["client auth"], "signerName": signer});
            let object = json!({"metadata": {"name": "a"}, "spec": spec});
            causes("certificates.k8s.io", "v1", "certificatesigningrequests", &object)
        };
        assert_eq!(request(Value::Null), ["spec.signerName"]);
        assert_eq!(request(LEGACY_SIGNER.into()), ["spec.signerName"]);
        assert!(request("example.com/own".into()).is_empty());
    }

    #[test]
    fn decisions_about_certificates_and_certificates_are_written_apart() {
        let old = json!({"spec": {"signerName": "s"}, "status": {"certificate": "old",
            "conditions": [{"type": "Approved", "reason": "ok"}]}});
        let mut approval = json!({"spec": {}, "status": {"certificate": "forged", "conditions":
            [{"type": "Denied"}]}});
        reset_for_approval(None, &mut approval, &old);
        assert_eq!(approval["status"]["certificate"], "old");
        assert_eq!(approval["status"]["conditions"], json!([{"type": "Denied"}]));
        let mut status = json!({"status": {"certificate": "new", "conditions":
            [{"type": "Denied"}, {"type": "Failed"}]}});
        keep_decisions(&mut status, &old);
        let kept = json!([{"type": "Approved", "reason": "ok"}, {"type": "Failed"}]);
        assert_eq!(status["status"]["conditions"], kept);
    }
}
