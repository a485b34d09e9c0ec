//! What is changed in an object before it is made again. Pure: a document in, a document out.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::names;

/// Belongs to the object that was, not to the one that will be.
const STRIPPED: [&str; 9] = [
    "generateName",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
];

/// What binds a claim to a volume that is not there any more.
const BINDINGS: [&str; 6] = [
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    "velero.io/volume-snapshot-name",
];

/// How this restore changes objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) backup: String,
    pub(crate) restore: String,
    pub(crate) namespaces: BTreeMap<String, String>,
    pub(crate) keep_node_ports: bool,
}

impl Rules {
    pub(crate) fn target<'n>(&'n self, namespace: &'n str) -> &'n str {
        self.namespaces.get(namespace).map_or(namespace, String::as_str)
    }
}

/// Whether an object is not worth bringing back, and why.
pub(crate) fn skip(resource: &str, object: &Value) -> Option<&'static str> {
    let at = |path: &str| object.pointer(path);
    match resource {
        "jobs.batch" if at("/status/completionTime").is_some() => Some("the job is done"),
        "pods" if matches!(text(at("/status/phase")), Some("Succeeded" | "Failed")) => {
            Some("the pod has ended")
        }
        "pods" if annotation(object, "kubernetes.io/config.mirror").is_some() => {
            Some("a mirror pod is made by its node")
        }
        "secrets" if text(at("/type")) == Some("kubernetes.io/service-account-token") => {
            let account = annotation(object, "kubernetes.io/service-account.name")?;
            let name = text(at("/metadata/name"))?;
            name.starts_with(&format!("{account}-token-"))
                .then_some("the token is made again for its service account")
        }
        "apiservices.apiregistration.k8s.io"
            if object
                .pointer("/metadata/labels/kube-aggregator.kubernetes.io~1automanaged")
                .is_some() =>
        {
            Some("it is registered by the server itself")
        }
        _ => None,
    }
}

/// The object as it is to be made.
pub(crate) fn prepare(resource: &str, mut object: Value, rules: &Rules) -> Value {
    if let Some(metadata) = metadata(&mut object) {
        for name in STRIPPED {
            metadata.remove(name);
        }
        if let Some(namespace) = metadata.get("namespace").and_then(Value::as_str) {
            let target = rules.target(namespace).to_owned();
            metadata.insert("namespace".to_owned(), Value::String(target));
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    by_kind(resource, &mut object, rules);
    // They say who asked for a port.
    if let Some(metadata) = metadata(&mut object) {
        metadata.remove("managedFields");
    }
    mark(&mut object, rules);
    object
}

/// The labels that say where an object came from.
pub(crate) fn mark(object: &mut Value, rules: &Rules) {
    if let Some(labels) = metadata(object).and_then(|it| section(it, "labels")) {
        let value = |name: &str| Value::String(names::label_value(name));
        labels.insert(names::BACKUP_NAME.to_owned(), value(&rules.backup));
        labels.insert(names::RESTORE_NAME.to_owned(), value(&rules.restore));
    }
}

fn by_kind(resource: &str, object: &mut Value, rules: &Rules) {
    match resource {
        "pods" => pod(object),
        "services" => service(object, rules.keep_node_ports),
        "jobs.batch" => job(object),
        "serviceaccounts" => service_account(object),
        "secrets" => secret(object),
        "persistentvolumeclaims" => {
            for name in BINDINGS {
                remove_annotation(object, name);
            }
        }
        "persistentvolumes" => volume(object, rules),
        "rolebindings.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io" => binding(object, rules),
        "validatingwebhookconfigurations.admissionregistration.k8s.io"
        | "mutatingwebhookconfigurations.admissionregistration.k8s.io" => webhooks(object),
        "customresourcedefinitions.apiextensions.k8s.io" => definition(object),
        _ => {}
    }
}

fn pod(object: &mut Value) {
    let account = text(object.pointer("/spec/serviceAccountName")).unwrap_or("default").to_owned();
    let token = format!("{account}-token-");
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.remove("nodeName");
    spec.remove("priority");
    let named = |it: &Value| text(it.get("name")).is_some_and(|name| name.starts_with(&token));
    retain(spec.get_mut("volumes"), |it| !named(it));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            retain(container.get_mut("volumeMounts"), |it| !named(it));
        }
    }
}

fn service(object: &mut Value, keep_node_ports: bool) {
    let explicit = explicit_ports(object);
    let is_local = text(object.pointer("/spec/type")) == Some("LoadBalancer")
        && text(object.pointer("/spec/externalTrafficPolicy")) == Some("Local");
    let external = text(object.pointer("/spec/type")) == Some("ExternalName");
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if text(spec.get("clusterIP")) != Some("None") {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if keep_node_ports || external {
        return;
    }
    if is_local && !explicit.health_check {
        spec.remove("healthCheckNodePort");
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let is_kept = explicit.ports.holds(port);
        if let (false, Some(port)) = (is_kept, port.as_object_mut()) {
            port.remove("nodePort");
        }
    }
}

#[derive(Debug)]
struct Explicit {
    ports: Ports,
    health_check: bool,
}

/// Which ports somebody asked for a node port of by its number.
#[derive(Debug)]
enum Ports {
    /// As the last applied text says: of those with a name, the name, of others the node port.
    Applied { names: Vec<String>, numbers: Vec<i64> },
    /// Where there is no such text, as the notes say of who wrote which field.
    Managed(Vec<String>),
}

impl Ports {
    fn holds(&self, port: &Value) -> bool {
        let number = |name: &str| port.get(name).and_then(Value::as_i64).unwrap_or_default();
        match (self, text(port.get("name")).filter(|it| !it.is_empty())) {
            (Self::Applied { names, .. }, Some(name)) => names.iter().any(|it| it == name),
            (Self::Applied { numbers, .. }, None) => numbers.contains(&number("nodePort")),
            (Self::Managed(keys), _) => {
                let protocol = text(port.get("protocol")).unwrap_or("TCP");
                let key = format!(r#"k:{{"port":{},"protocol":"{protocol}"}}"#, number("port"));
                keys.contains(&key)
            }
        }
    }
}

fn explicit_ports(object: &Value) -> Explicit {
    let applied = annotation(object, "kubectl.kubernetes.io/last-applied-configuration");
    let applied = applied.and_then(|it| serde_json::from_str::<Value>(it).ok());
    let managed = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let fields: Vec<&Value> =
        managed.into_iter().flatten().filter_map(|it| it.pointer("/fieldsV1/f:spec")).collect();
    let is_applied = applied.as_ref().is_some_and(|it| {
        it.pointer("/spec/healthCheckNodePort").and_then(Value::as_i64).is_some_and(|it| it > 0)
    });
    let health_check =
        is_applied || fields.iter().any(|it| it.get("f:healthCheckNodePort").is_some());
    let Some(applied) = applied else {
        let ports = fields.iter().filter_map(|it| it.get("f:ports")?.as_object()).flatten();
        let asked = ports.filter(|(_, port)| port.get("f:nodePort").is_some());
        let keys = asked.map(|(key, _)| key.clone()).collect();
        return Explicit { ports: Ports::Managed(keys), health_check };
    };
    let (mut names, mut numbers) = (Vec::new(), Vec::new());
    for port in applied.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten() {
        let asked = port.get("nodePort").and_then(Value::as_i64).filter(|it| *it > 0);
        match (asked, text(port.get("name"))) {
            (Some(_), Some(name)) => names.push(name.to_owned()),
            (Some(number), None) => numbers.push(number),
            (None, _) => {}
        }
    }
    Explicit { ports: Ports::Applied { names, numbers }, health_check }
}

fn job(object: &mut Value) {
    for path in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        if let Some(labels) = object.pointer_mut(path).and_then(Value::as_object_mut) {
            labels.remove("controller-uid");
            labels.remove("batch.kubernetes.io/controller-uid");
        }
    }
}

fn service_account(object: &mut Value) {
    let token = text(object.pointer("/metadata/name")).map(|name| format!("{name}-token-"));
    let (Some(token), Some(secrets)) =
        (token, object.get_mut("secrets").and_then(Value::as_array_mut))
    else {
        return;
    };
    let named = |it: &Value| text(it.get("name")).is_some_and(|name| name.starts_with(&token));
    if let Some(at) = secrets.iter().position(named) {
        secrets.remove(at);
    }
}

fn secret(object: &mut Value) {
    if text(object.get("type")) != Some("kubernetes.io/service-account-token") {
        return;
    }
    if let Some(held) = object.get_mut("data").and_then(Value::as_object_mut) {
        held.remove("token");
        held.remove("ca.crt");
    }
    remove_annotation(object, "kubernetes.io/service-account.uid");
}

fn volume(object: &mut Value, rules: &Rules) {
    let Some(claim) = object.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut) else {
        return;
    };
    claim.remove("uid");
    claim.remove("resourceVersion");
    if let Some(namespace) = claim.get("namespace").and_then(Value::as_str) {
        let target = rules.target(namespace).to_owned();
        claim.insert("namespace".to_owned(), Value::String(target));
    }
}

fn binding(object: &mut Value, rules: &Rules) {
    let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(namespace) = subject.get("namespace").and_then(Value::as_str) {
            let target = rules.target(namespace).to_owned();
            subject.insert("namespace".to_owned(), Value::String(target));
        }
    }
}

fn webhooks(object: &mut Value) {
    let hooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
    for hook in hooks.into_iter().flatten().filter_map(Value::as_object_mut) {
        if !matches!(text(hook.get("sideEffects")), Some("None" | "NoneOnDryRun")) {
            hook.insert("sideEffects".to_owned(), Value::String("None".to_owned()));
        }
    }
}

/// What an older definition said of all of its versions, each says itself.
fn definition(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("preserveUnknownFields") != Some(&Value::Bool(true)) {
        return;
    }
    spec.remove("preserveUnknownFields");
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        let schema = version.pointer_mut("/schema/openAPIV3Schema");
        if let Some(schema) = schema.and_then(Value::as_object_mut) {
            let key = "x-kubernetes-preserve-unknown-fields".to_owned();
            schema.insert(key, Value::Bool(true));
        }
    }
}

/// A claim that gets a new volume.
pub(crate) fn unbind(claim: &mut Value) {
    if let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("volumeName");
    }
}

/// The two versions of an object without what always differs.
pub(crate) fn same_but_for_the_server(existing: &Value, wanted: &Value, rules: &Rules) -> bool {
    comparable(existing, rules) == comparable(wanted, rules)
}

/// What is compared, and what a patch is made from.
pub(crate) fn comparable(object: &Value, rules: &Rules) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = metadata(&mut object) {
        for name in STRIPPED {
            metadata.remove(name);
        }
        metadata.remove("managedFields");
        for name in ["annotations", "labels", "finalizers"] {
            let is_empty = match metadata.get(name) {
                Some(Value::Object(map)) => map.is_empty(),
                Some(Value::Array(list)) => list.is_empty(),
                Some(Value::Null) => true,
                _ => false,
            };
            if is_empty {
                metadata.remove(name);
            }
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    mark(&mut object, rules);
    object
}

fn text(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str)
}

pub(crate) fn annotation<'o>(object: &'o Value, name: &str) -> Option<&'o str> {
    text(object.get("metadata")?.get("annotations")?.get(name))
}

fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

fn section<'o>(
    parent: &'o mut Map<String, Value>,
    name: &str,
) -> Option<&'o mut Map<String, Value>> {
    let entry = parent.entry(name.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut()
}

fn remove_annotation(object: &mut Value, name: &str) {
    let annotations = metadata(object).and_then(|it| it.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(name);
    }
}

fn retain(list: Option<&mut Value>, keep: impl Fn(&Value) -> bool) {
    if let Some(list) = list.and_then(Value::as_array_mut) {
        list.retain(keep);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> Rules {
        Rules {
            backup: "b".to_owned(),
            restore: "r".to_owned(),
            namespaces: BTreeMap::from([("old".to_owned(), "new".to_owned())]),
            keep_node_ports: false,
        }
    }

    #[test]
    fn what_belonged_to_the_old_object_is_gone_and_the_origin_is_marked() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "old", "uid": "u", "resourceVersion": "7",
                "ownerReferences": [{}], "finalizers": ["f"], "labels": {"l": "m"},
                "managedFields": []},
            "data": {"a": "b"}, "status": {"x": 1}});
        assert_eq!(
            prepare("configmaps", object, &rules()),
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "c", "namespace": "new", "finalizers": ["f"],
                    "labels": {"l": "m", "velero.io/backup-name": "b",
                        "velero.io/restore-name": "r"}},
                "data": {"a": "b"}})
        );
    }

    #[test]
    fn services_get_new_addresses_unless_headless_and_keep_ports_that_were_asked_for() {
        let applied = json!({"spec": {"ports": [{"name": "a", "port": 80, "nodePort": 30001}]}});
        let object = json!({"metadata": {"name": "s", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": applied.to_string()}},
            "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [
                {"name": "a", "port": 80, "nodePort": 30001},
                {"name": "b", "port": 81, "nodePort": 30002}]}});
        let made = prepare("services", object.clone(), &rules());
        assert_eq!(made.pointer("/spec/clusterIP"), None);
        assert_eq!(made.pointer("/spec/ports/0/nodePort"), Some(&json!(30001)));
        assert_eq!(made.pointer("/spec/ports/1/nodePort"), None);
        let kept = prepare("services", object, &Rules { keep_node_ports: true, ..rules() });
        assert_eq!(kept.pointer("/spec/ports/1/nodePort"), Some(&json!(30002)));
        let headless = json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None"}});
        let headless = prepare("services", headless, &rules());
        assert_eq!(headless.pointer("/spec/clusterIP"), Some(&json!("None")));
    }

    #[test]
    fn ports_that_were_asked_for_without_a_text_are_known_by_who_wrote_them() {
        let object = json!({"metadata": {"name": "s", "managedFields": [
                {"manager": "m", "fieldsV1": {"f:spec": {"f:healthCheckNodePort": {}, "f:ports": {
                    "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:nodePort": {}},
                    "k:{\"port\":53,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}}}}}},
                {"manager": "other"}]},
            "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 30003, "ports": [
                    {"port": 80, "protocol": "TCP", "nodePort": 30001},
                    {"port": 53, "protocol": "UDP", "nodePort": 30002}]}});
        let made = prepare("services", object, &rules());
        assert_eq!(made.pointer("/spec/ports/0/nodePort"), Some(&json!(30001)));
        assert_eq!(made.pointer("/spec/ports/1/nodePort"), None);
        assert_eq!(made.pointer("/spec/healthCheckNodePort"), Some(&json!(30003)));
        assert_eq!(made.pointer("/metadata/managedFields"), None);
    }

    #[test]
    fn an_older_definition_keeps_what_its_schema_does_not_name() {
        let object = json!({"metadata": {"name": "d"}, "spec": {"preserveUnknownFields": true,
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        let made = prepare("customresourcedefinitions.apiextensions.k8s.io", object, &rules());
        assert_eq!(
            made["spec"],
            json!({"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]})
        );
    }

    #[test]
    fn pods_are_free_of_their_node_and_token() {
        let object = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n",
            "volumes": [{"name": "default-token-x"}, {"name": "d"}],
            "containers": [{"volumeMounts": [{"name": "default-token-x"}, {"name": "d"}]}]}});
        let made = prepare("pods", object, &rules());
        assert_eq!(made["spec"]["volumes"], json!([{"name": "d"}]));
        assert_eq!(made["spec"]["containers"][0]["volumeMounts"], json!([{"name": "d"}]));
        assert_eq!(made.pointer("/spec/nodeName"), None);
    }

    #[test]
    fn what_has_ended_is_not_begun_again() {
        assert!(skip("pods", &json!({"status": {"phase": "Succeeded"}})).is_some());
        assert!(skip("pods", &json!({"status": {"phase": "Running"}})).is_none());
        assert!(skip("jobs.batch", &json!({"status": {"completionTime": "x"}})).is_some());
        let token = json!({"type": "kubernetes.io/service-account-token", "metadata": {
            "name": "a-token-1", "annotations": {"kubernetes.io/service-account.name": "a"}}});
        assert!(skip("secrets", &token).is_some());
    }

    #[test]
    fn subjects_and_claims_follow_their_namespace() {
        let binding = json!({"metadata": {"name": "x"}, "subjects": [
            {"kind": "ServiceAccount", "namespace": "old", "name": "a"},
            {"kind": "User", "name": "u"}]});
        let made = prepare("rolebindings.rbac.authorization.k8s.io", binding, &rules());
        assert_eq!(made["subjects"][0]["namespace"], "new");
        let volume = json!({"metadata": {"name": "v"}, "spec": {"claimRef":
            {"namespace": "old", "name": "c", "uid": "u"}}});
        let made = prepare("persistentvolumes", volume, &rules());
        assert_eq!(made["spec"]["claimRef"], json!({"namespace": "new", "name": "c"}));
    }

    #[test]
    fn equal_but_for_the_server_is_equal() {
        let rules = rules();
        let wanted = prepare(
            "configmaps",
            json!({"metadata": {"name": "c", "namespace": "n"},
            "data": {"a": "1"}}),
            &rules,
        );
        let mut existing = json!({"metadata": {"name": "c", "namespace": "n", "uid": "x",
            "resourceVersion": "4"}, "data": {"a": "1"}});
        assert!(same_but_for_the_server(&existing, &wanted, &rules));
        existing["data"]["a"] = json!("2");
        assert!(!same_but_for_the_server(&existing, &wanted, &rules));
    }
}
