//! What the trees of built-in kinds must say, whatever the table looks like.

use std::collections::BTreeSet;

use super::*;
use crate::node::{JsonType, ListType, PatchStrategy};

fn tree(api_version: &str, kind: &str) -> Arc<Node> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    node(group, version, kind).unwrap_or_else(|| panic!("no tree of {api_version} {kind}"))
}

/// Walks a dotted path; `[]` steps into the items of a list.
fn at(root: &Arc<Node>, path: &str) -> Arc<Node> {
    path.split('.').fold(Arc::clone(root), |node, step| {
        let next = match step {
            "[]" => node.items.as_ref(),
            "*" => node.additional.as_ref(),
            member => node.properties.get(member),
        };
        Arc::clone(next.unwrap_or_else(|| panic!("no {step} in {path}")))
    })
}

fn map(keys: &[&str]) -> ListType {
    ListType::Map { keys: keys.iter().map(|&key| key.to_owned()).collect() }
}

fn by_key(key: &str, retain_keys: bool) -> PatchStrategy {
    PatchStrategy::MergeByKey { key: key.to_owned(), retain_keys }
}

#[test]
fn every_kind_of_the_table_has_a_tree_with_the_envelope_members() {
    let kinds: Vec<_> = kinds().collect();
    assert!(kinds.len() >= 40, "{}", kinds.len());
    for (api_version, kind) in kinds {
        let tree = tree(api_version, kind);
        assert_eq!(tree.kind, Some(JsonType::Object), "{kind}");
        assert_eq!(at(&tree, "apiVersion").kind, Some(JsonType::String), "{kind}");
        assert_eq!(at(&tree, "kind").kind, Some(JsonType::String), "{kind}");
    }
    assert!(node("", "v1", "Unicorn").is_none());
    assert!(node("apps", "v1", "Pod").is_none());
}

#[test]
fn metadata_is_one_shared_tree() {
    for (api_version, kind) in
        [("v1", "Pod"), ("v1", "Secret"), ("coordination.k8s.io/v1", "Lease")]
    {
        assert!(Arc::ptr_eq(&at(&tree(api_version, kind), "metadata"), &object_meta()), "{kind}");
    }
}

#[test]
fn strategic_merge_lists_are_those_of_the_protocol() {
    let pod = tree("v1", "Pod");
    let cases = [
        ("metadata.ownerReferences", by_key("uid", false)),
        ("metadata.finalizers", PatchStrategy::MergePrimitive),
        ("spec.containers", by_key("name", false)),
        ("spec.initContainers", by_key("name", false)),
        ("spec.ephemeralContainers", by_key("name", false)),
        ("spec.volumes", by_key("name", true)),
        ("spec.imagePullSecrets", by_key("name", false)),
        ("spec.schedulingGates", by_key("name", false)),
        ("spec.resourceClaims", by_key("name", true)),
        ("spec.hostAliases", by_key("ip", false)),
        ("spec.topologySpreadConstraints", by_key("topologyKey", false)),
        ("spec.containers.[].ports", by_key("containerPort", false)),
        ("spec.containers.[].env", by_key("name", false)),
        ("spec.containers.[].volumeMounts", by_key("mountPath", false)),
        ("spec.containers.[].volumeDevices", by_key("devicePath", false)),
        ("status.conditions", by_key("type", false)),
        ("status.podIPs", by_key("ip", false)),
        ("status.hostIPs", by_key("ip", false)),
        ("spec.tolerations", PatchStrategy::Replace),
        ("spec.containers.[].command", PatchStrategy::Replace),
    ];
    for (path, expected) in cases {
        assert_eq!(at(&pod, path).patch, expected, "{path}");
    }
    let account = tree("v1", "ServiceAccount");
    assert_eq!(at(&account, "secrets").patch, by_key("name", false));
    assert_eq!(at(&account, "imagePullSecrets").patch, PatchStrategy::Replace);
    let namespace = tree("v1", "Namespace");
    assert_eq!(at(&namespace, "status.conditions").patch, by_key("type", false));
    let claim = tree("v1", "PersistentVolumeClaim");
    assert_eq!(at(&claim, "status.conditions").patch, by_key("type", false));
    let deployment = tree("apps/v1", "Deployment");
    assert_eq!(at(&deployment, "spec.strategy").patch, PatchStrategy::RetainKeys);
    let rbac = "rbac.authorization.k8s.io/v1";
    assert_eq!(at(&tree(rbac, "Role"), "rules").patch, PatchStrategy::Replace);
    assert_eq!(at(&tree(rbac, "RoleBinding"), "subjects").patch, PatchStrategy::Replace);
}

#[test]
fn apply_lists_are_those_of_the_protocol() {
    let pod = tree("v1", "Pod");
    let cases = [
        ("metadata.finalizers", ListType::Set),
        ("metadata.ownerReferences", map(&["uid"])),
        ("metadata.managedFields", ListType::Atomic),
        ("spec.containers", map(&["name"])),
        ("spec.containers.[].ports", map(&["containerPort", "protocol"])),
        ("spec.containers.[].env", map(&["name"])),
        ("spec.containers.[].volumeMounts", map(&["mountPath"])),
        ("spec.volumes", map(&["name"])),
        ("spec.tolerations", ListType::Atomic),
        ("spec.topologySpreadConstraints", map(&["topologyKey", "whenUnsatisfiable"])),
        ("status.conditions", map(&["type"])),
    ];
    for (path, expected) in cases {
        assert_eq!(at(&pod, path).list_type, expected, "{path}");
    }
    assert_eq!(at(&tree("v1", "ServiceAccount"), "secrets").list_type, map(&["name"]));
    assert_eq!(at(&tree("v1", "Namespace"), "status.conditions").list_type, map(&["type"]));
    assert_eq!(at(&tree("v1", "Service"), "spec.ports").list_type, map(&["port", "protocol"]));
    let claim = tree("v1", "PersistentVolumeClaim");
    assert_eq!(at(&claim, "spec.accessModes").list_type, ListType::Atomic);
    let rbac = "rbac.authorization.k8s.io/v1";
    assert_eq!(at(&tree(rbac, "Role"), "rules").list_type, ListType::Atomic);
    assert_eq!(at(&tree(rbac, "RoleBinding"), "subjects").list_type, ListType::Atomic);
}

#[test]
fn maps_are_granular_and_references_are_one_value() {
    for (kind, path) in [
        ("ConfigMap", "data"),
        ("Secret", "data"),
        ("Pod", "metadata.labels"),
        ("Pod", "metadata.annotations"),
    ] {
        assert!(!at(&tree("v1", kind), path).map_atomic, "{kind} {path}");
    }
    assert!(at(&tree("v1", "Pod"), "spec.nodeSelector").map_atomic);
    assert!(at(&tree("v1", "Pod"), "spec.imagePullSecrets.[]").map_atomic);
    assert!(at(&tree("v1", "Event"), "involvedObject").map_atomic);
    assert!(at(&tree("apps/v1", "Deployment"), "spec.selector").map_atomic);
    assert!(at(&tree("rbac.authorization.k8s.io/v1", "RoleBinding"), "roleRef").map_atomic);
}

#[test]
fn a_key_that_may_be_left_out_has_its_default() {
    let protocol = at(&tree("v1", "Pod"), "spec.containers.[].ports.[].protocol");
    assert_eq!(protocol.default, Some("TCP".into()));
    let protocol = at(&tree("v1", "Service"), "spec.ports.[].protocol");
    assert_eq!(protocol.default, Some("TCP".into()));
}

#[test]
fn inlined_structs_show_their_members_only() {
    let pod = tree("v1", "Pod");
    for present in [
        "spec.volumes.[].persistentVolumeClaim.claimName",
        "spec.volumes.[].emptyDir.sizeLimit",
        "spec.volumes.[].downwardAPI.items.[].fieldRef.fieldPath",
        "spec.containers.[].livenessProbe.httpGet.port",
        "spec.containers.[].livenessProbe.exec.command",
        "spec.containers.[].env.[].valueFrom.secretKeyRef.name",
        "spec.containers.[].env.[].valueFrom.secretKeyRef.optional",
        "spec.containers.[].envFrom.[].configMapRef.name",
        "spec.ephemeralContainers.[].image",
        "spec.ephemeralContainers.[].targetContainerName",
    ] {
        at(&pod, present);
    }
    let volume = at(&pod, "spec.volumes.[]");
    assert!(!volume.properties.contains_key("volumeSource"));
    let probe = at(&pod, "spec.containers.[].livenessProbe");
    assert!(!probe.properties.contains_key("handler"));
    at(&tree("v1", "PersistentVolume"), "spec.csi.volumeHandle");
    at(&tree("networking.k8s.io/v1", "Ingress"), "spec.rules.[].http.paths.[].backend");
}

#[test]
fn names_follow_go_where_camel_case_would_not() {
    let pod = tree("v1", "Pod");
    for path in ["status.podIP", "status.hostIP", "spec.hostIPC", "spec.setHostnameAsFQDN"] {
        at(&pod, path);
    }
    for (api_version, kind, path) in [
        ("v1", "Service", "spec.clusterIP"),
        ("v1", "Service", "spec.externalIPs"),
        ("v1", "Node", "status.daemonEndpoints.kubeletEndpoint.Port"),
        ("v1", "Node", "spec.podCIDRs"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "rules.[].nonResourceURLs"),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "spec.conversion.webhook.clientConfig.caBundle",
        ),
        ("v1", "PersistentVolume", "spec.scaleIO.sslEnabled"),
        ("v1", "PersistentVolume", "spec.azureDisk.diskURI"),
    ] {
        at(&tree(api_version, kind), path);
    }
}

#[test]
fn leaves_carry_their_formats() {
    let pod = tree("v1", "Pod");
    let format = |root: &Arc<Node>, path: &str| at(root, path).checks.format.clone();
    let is = |text: &str| Some(text.to_owned());
    assert_eq!(format(&pod, "metadata.creationTimestamp"), is("date-time"));
    assert_eq!(format(&pod, "metadata.generation"), is("int64"));
    assert_eq!(format(&pod, "spec.priority"), is("int32"));
    assert_eq!(format(&tree("v1", "Secret"), "data.*"), is("byte"));
    assert!(at(&pod, "spec.containers.[].readinessProbe.httpGet.port").int_or_string);
    let quantity = at(&pod, "spec.containers.[].resources.limits.*");
    assert_eq!(quantity.kind, None);
    assert_eq!(quantity.checks.any_of.len(), 2);
    let lease = tree("coordination.k8s.io/v1", "Lease");
    assert_eq!(at(&lease, "spec.renewTime").title, "MicroTime");
    assert_eq!(at(&pod, "metadata.managedFields.[].time").title, "");
    assert!(at(&pod, "metadata.managedFields.[].fieldsV1").preserve_unknown);
}

#[test]
fn schemas_inside_definitions_are_left_to_the_schema_module() {
    let definition = tree("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let schema = at(&definition, "spec.versions.[].schema.openAPIV3Schema");
    assert_eq!(schema.kind, Some(JsonType::Object));
    assert!(schema.preserve_unknown && schema.properties.is_empty());
}

#[test]
fn keys_of_lists_are_members_of_their_items() {
    fn walk(node: &Arc<Node>, path: &str, seen: &mut BTreeSet<usize>) {
        if !seen.insert(Arc::as_ptr(node).addr()) {
            return;
        }
        let mut keys: Vec<&str> = Vec::new();
        if let ListType::Map { keys: map } = &node.list_type {
            keys.extend(map.iter().map(String::as_str));
        }
        if let PatchStrategy::MergeByKey { key, .. } = &node.patch {
            keys.push(key);
        }
        for key in keys {
            let items = node.items.as_ref().unwrap_or_else(|| panic!("{path} is no list"));
            assert!(items.properties.contains_key(key), "{path} has no {key}");
        }
        for (name, inner) in &node.properties {
            walk(inner, &format!("{path}.{name}"), seen);
        }
        for inner in node.items.iter().chain(&node.additional) {
            walk(inner, &format!("{path}[]"), seen);
        }
    }
    let mut seen = BTreeSet::new();
    for (api_version, kind) in kinds() {
        walk(&tree(api_version, kind), kind, &mut seen);
    }
    assert!(seen.len() > 500, "{}", seen.len());
}
