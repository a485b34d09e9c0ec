//! Tables of the rules of each kind.

mod cluster;

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cause::Reason;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn kind(api_version: &str, name: &str) -> &'static Kind {
    named(api_version, name).unwrap()
}

/// The object as a create leaves it.
fn made(kind: &Kind, mut obj: Value) -> Value {
    reset_for_main(kind, &mut obj, None);
    default(kind, &mut obj, None);
    obj
}

fn fields(causes: &[Cause]) -> Vec<(&str, Reason)> {
    causes.iter().map(|cause| (cause.field.as_str(), cause.reason)).collect()
}

fn created(version: &str, name: &str, obj: &Value) -> Vec<Cause> {
    let kind = kind(version, name);
    validate(kind, &made(kind, obj.clone()))
}

fn accepts(version: &str, name: &str, obj: &Value) {
    assert_eq!(created(version, name, obj), vec![], "{name} {obj}");
}

fn refuses(version: &str, name: &str, obj: &Value, field: &str, reason: Reason) {
    let causes = created(version, name, obj);
    assert!(fields(&causes).contains(&(field, reason)), "{name} {obj}: {causes:?}");
}

/// Causes of changing `old` by setting `path` to `value`.
fn changed(version: &str, name: &str, old: &Value, path: &str, value: Value) -> Vec<Cause> {
    let kind = kind(version, name);
    let old = made(kind, old.clone());
    let mut new = old.clone();
    if value.is_null() {
        crate::access::remove(&mut new, path);
    } else {
        set(&mut new, path, value);
    }
    reset_for_main(kind, &mut new, Some(&old));
    default(kind, &mut new, Some(&old));
    let mut causes = validate(kind, &new);
    causes.extend(validate_update(kind, &old, &new));
    causes
}

#[test]
fn the_registry_is_sound() {
    let mut paths = BTreeSet::new();
    for kind in all() {
        assert!(paths.insert((kind.group, kind.version, kind.plural)), "{}", kind.plural);
        assert_eq!(find(kind.group, kind.version, kind.plural), Some(kind));
        assert_eq!(named(&kind.api_version(), kind.kind), Some(kind));
        assert_eq!(kind.singular, kind.kind.to_lowercase());
        assert!(kind.description.ends_with('.'), "{}", kind.kind);
        assert_eq!(kind.status, kind.subresource("status").is_some(), "{}", kind.kind);
        if kind.is_stored() {
            assert_eq!(kind.list_kind, format!("{}List", kind.kind));
        } else {
            assert_eq!((kind.verbs, kind.list_kind), (&["create"][..], ""));
        }
    }
    assert_eq!(all().len(), 63);
}

#[test]
fn short_names_and_traits_are_the_known_ones() {
    for (version, name, short) in [
        ("v1", "Namespace", "ns"),
        ("v1", "ConfigMap", "cm"),
        ("v1", "Event", "ev"),
        ("v1", "ServiceAccount", "sa"),
        ("v1", "PersistentVolumeClaim", "pvc"),
        ("v1", "PersistentVolume", "pv"),
        ("v1", "Service", "svc"),
        ("v1", "Pod", "po"),
        ("v1", "Node", "no"),
        ("v1", "ResourceQuota", "quota"),
        ("v1", "LimitRange", "limits"),
        ("apps/v1", "Deployment", "deploy"),
        ("apps/v1", "ReplicaSet", "rs"),
        ("apps/v1", "StatefulSet", "sts"),
        ("apps/v1", "DaemonSet", "ds"),
        ("batch/v1", "CronJob", "cj"),
        ("storage.k8s.io/v1", "StorageClass", "sc"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "crd"),
    ] {
        assert_eq!(kind(version, name).short_names[0], short);
    }
    assert!(!kind("v1", "Namespace").verbs.contains(&"deletecollection"));
    assert!(kind("coordination.k8s.io/v1", "Lease").put.requires_rv);
    assert!(kind(RBAC, "Role").put.creates);
    assert!(!kind("v1", "ConfigMap").put.creates);
    let token = kind("v1", "ServiceAccount").subresource("token").unwrap();
    assert_eq!((token.kind, token.group), ("TokenRequest", "authentication.k8s.io"));
}

#[test]
fn a_namespace_gets_label_finalizer_and_phase() {
    let ns = kind("v1", "Namespace");
    let obj = made(ns, json!({"metadata": {"name": "a"}, "status": {"phase": "Terminating"}}));
    assert_eq!(
        obj,
        json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    );
    // Only the finalize endpoint takes finalizers off.
    let mut new = json!({"metadata": {"name": "a", "labels": {}}, "spec": {"finalizers": []}});
    reset_for_main(ns, &mut new, Some(&obj));
    default(ns, &mut new, Some(&obj));
    assert_eq!(new, obj);
    // And what it has taken off stays off.
    let mut finalized = json!({"metadata": {"name": "a"}, "spec": {"finalizers": []}});
    default(ns, &mut finalized, Some(&obj));
    assert_eq!(finalized["spec"]["finalizers"], json!([]));
    refuses(
        "v1",
        "Namespace",
        &json!({"spec": {"finalizers": ["x"]}}),
        "spec.finalizers",
        Reason::Invalid,
    );
}

#[test]
fn string_data_is_folded_into_data() {
    let secret = kind("v1", "Secret");
    let obj = made(
        secret,
        json!({"stringData": {"a": "b", "c": "d"}, "data": {"a": "eA==", "e": "Zg\n==", "n": null}}),
    );
    assert_eq!(
        obj,
        json!({"type": "Opaque", "data": {"a": "Yg==", "c": "ZA==", "e": "Zg==", "n": ""}})
    );
    assert_eq!(decode_errors(secret, &obj), None);
    for bad in ["Yg", "Y", "!!", "Yg=="] {
        let error = decode_errors(secret, &json!({"data": {"k": bad}}));
        assert_eq!(error.is_some(), bad != "Yg==", "{bad}: {error:?}");
    }
    assert!(decode_errors(kind("v1", "ConfigMap"), &json!({"binaryData": {"k": "?"}})).is_some());
}

#[test]
fn secrets_keep_the_promise_of_their_type() {
    let typed =
        |kind: &str, data: Value| json!({"type": format!("kubernetes.io/{kind}"), "data": data});
    let need = Reason::Required;
    let refuse = |obj: Value, field: &str, reason| refuses("v1", "Secret", &obj, field, reason);
    refuse(typed("tls", json!({"tls.crt": ""})), "data[tls.key]", need);
    refuse(typed("dockerconfigjson", json!({})), "data[.dockerconfigjson]", need);
    refuse(
        typed("dockerconfigjson", json!({".dockerconfigjson": "eA=="})),
        "data[.dockerconfigjson]",
        Reason::Invalid,
    );
    refuse(typed("basic-auth", json!({})), "data[username]", need);
    refuse(typed("ssh-auth", json!({})), "data[ssh-privatekey]", need);
    refuse(
        typed("service-account-token", json!({})),
        "metadata.annotations[kubernetes.io/service-account.name]",
        need,
    );
    refuse(json!({"data": {"a/b": ""}}), "data[a/b]", Reason::Invalid);
    accepts("v1", "Secret", &typed("tls", json!({"tls.crt": "", "tls.key": ""})));
    accepts("v1", "Secret", &typed("dockerconfigjson", json!({".dockerconfigjson": "e30="})));
    accepts("v1", "Secret", &typed("basic-auth", json!({"username": ""})));
    let causes = changed("v1", "Secret", &json!({"data": {}}), "type", json!("x"));
    assert_eq!(fields(&causes), [("type", Reason::Invalid)]);
}

#[test]
fn config_maps_check_keys_and_size() {
    let refuse = |obj: Value, field: &str, reason| refuses("v1", "ConfigMap", &obj, field, reason);
    refuse(json!({"data": {"a b": ""}}), "data[a b]", Reason::Invalid);
    refuse(json!({"data": {"a": ""}, "binaryData": {"a": ""}}), "data[a]", Reason::Invalid);
    refuse(json!({"data": {"a": "x".repeat(1_048_577)}}), "", Reason::TooLong);
    accepts("v1", "ConfigMap", &json!({"data": {"a": "x".repeat(1_048_576)}}));
    accepts("v1", "ConfigMap", &json!({}));
}

#[test]
fn immutable_means_immutable() {
    for name in ["ConfigMap", "Secret"] {
        let old = json!({"immutable": true, "data": {"a": "YQ=="}});
        let causes = changed("v1", name, &old, "data.a", json!("Yg=="));
        assert_eq!(fields(&causes), [("data", Reason::Forbidden)]);
        let causes = changed("v1", name, &old, "immutable", Value::Null);
        assert_eq!(fields(&causes), [("immutable", Reason::Forbidden)]);
        assert_eq!(changed("v1", name, &old, "metadata.labels", json!({"a": "b"})), vec![]);
        assert_eq!(changed("v1", name, &json!({"data": {}}), "data.a", json!("Yg==")), vec![]);
    }
}

fn claim() -> Value {
    json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

#[test]
fn a_claim_says_how_much_and_how() {
    let pvc = "PersistentVolumeClaim";
    let obj = made(kind("v1", pvc), claim());
    assert_eq!(
        (&obj["spec"]["volumeMode"], &obj["status"]["phase"]),
        (&json!("Filesystem"), &json!("Pending"))
    );
    accepts("v1", pvc, &claim());
    refuses("v1", pvc, &json!({"spec": {}}), "spec.accessModes", Reason::Required);
    refuses("v1", pvc, &json!({"spec": {}}), "spec.resources[storage]", Reason::Required);
    let mut bad = claim();
    bad["spec"]["accessModes"] = json!(["Sometimes"]);
    bad["spec"]["resources"]["requests"]["storage"] = json!("0");
    refuses("v1", pvc, &bad, "spec.accessModes", Reason::NotSupported);
    refuses("v1", pvc, &bad, "spec.resources[storage]", Reason::Invalid);
}

#[test]
fn a_claim_only_grows() {
    let change =
        |path: &str, value: Value| changed("v1", "PersistentVolumeClaim", &claim(), path, value);
    let storage = "spec.resources.requests.storage";
    assert_eq!(change(storage, json!("2Gi")), vec![]);
    assert_eq!(change(storage, json!("1024Mi")), vec![]);
    assert_eq!(fields(&change(storage, json!("1G"))), [(storage, Reason::Forbidden)]);
    assert_eq!(change("spec.volumeName", json!("pv1")), vec![]);
    assert_eq!(
        fields(&change("spec.accessModes", json!(["ReadWriteMany"]))),
        [("spec", Reason::Forbidden)]
    );
}

#[test]
fn volumes_and_classes_follow_their_rules() {
    let pv = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "d", "volumeHandle": "h"}}});
    accepts("v1", "PersistentVolume", &pv);
    let obj = made(kind("v1", "PersistentVolume"), pv.clone());
    assert_eq!(obj["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    refuses("v1", "PersistentVolume", &json!({}), "spec", Reason::Required);
    refuses("v1", "PersistentVolume", &json!({}), "spec.capacity", Reason::Required);
    let causes = changed("v1", "PersistentVolume", &pv, "spec.csi.volumeHandle", json!("x"));
    assert_eq!(fields(&causes), [("spec.persistentvolumesource", Reason::Forbidden)]);
    let (sc, class) = ("storage.k8s.io/v1", "StorageClass");
    let obj = made(kind(sc, class), json!({"provisioner": "x"}));
    assert_eq!(
        obj,
        json!({"provisioner": "x", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})
    );
    refuses(sc, class, &json!({}), "provisioner", Reason::Required);
    let causes = changed(sc, class, &json!({"provisioner": "x"}), "provisioner", json!("y"));
    assert_eq!(fields(&causes), [("provisioner", Reason::Invalid)]);
    let causes = changed(sc, class, &json!({"provisioner": "x"}), "parameters", json!({"a": "b"}));
    assert_eq!(fields(&causes), [("parameters", Reason::Forbidden)]);
}

fn pod() -> Value {
    json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y:1"}]}})
}

#[test]
fn pods_get_their_defaults() {
    let obj = made(kind("v1", "Pod"), pod());
    for (path, want) in [
        ("spec.restartPolicy", json!("Always")),
        ("spec.dnsPolicy", json!("ClusterFirst")),
        ("spec.terminationGracePeriodSeconds", json!(30)),
        ("spec.schedulerName", json!("default-scheduler")),
        ("spec.securityContext", json!({})),
        ("status.phase", json!("Pending")),
        ("status.qosClass", json!("BestEffort")),
    ] {
        assert_eq!(at(&obj, path), Some(&want), "{path}");
    }
    assert_eq!(
        obj["spec"]["containers"][0],
        json!({"name": "a", "image": "x", "imagePullPolicy": "Always", "resources": {},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
    );
    for (image, want) in [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("x:1", "IfNotPresent"),
        ("host:5000/x", "Always"),
        ("host:5000/x:1", "IfNotPresent"),
        ("x@sha256:0", "IfNotPresent"),
    ] {
        let obj = made(
            kind("v1", "Pod"),
            json!({"spec": {"containers": [{"name": "a", "image": image}]}}),
        );
        assert_eq!(obj["spec"]["containers"][0]["imagePullPolicy"], want, "{image}");
    }
}

#[test]
fn quality_of_service_follows_requests_and_limits() {
    for (resources, want) in [
        (json!({}), "BestEffort"),
        (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
        (
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}),
            "Guaranteed",
        ),
        (json!({"requests": {"cpu": "1"}}), "Burstable"),
    ] {
        let obj =
            json!({"spec": {"containers": [{"name": "a", "image": "x", "resources": resources}]}});
        assert_eq!(made(kind("v1", "Pod"), obj)["status"]["qosClass"], want);
    }
}

#[test]
fn pods_are_checked() {
    accepts("v1", "Pod", &pod());
    let refuse = |spec: Value, field: &str, reason| {
        refuses("v1", "Pod", &json!({"spec": spec}), field, reason);
    };
    refuse(json!({}), "spec.containers", Reason::Required);
    refuse(json!({"containers": [{"image": "x"}]}), "spec.containers[0].name", Reason::Required);
    refuse(
        json!({"containers": [{"name": "A", "image": "x"}]}),
        "spec.containers[0].name",
        Reason::Invalid,
    );
    refuse(json!({"containers": [{"name": "a"}]}), "spec.containers[0].image", Reason::Required);
    let twice = json!([{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]);
    refuse(json!({"containers": twice}), "spec.containers[1].name", Reason::Duplicate);
    refuse(
        json!({"containers": [], "restartPolicy": "Maybe"}),
        "spec.restartPolicy",
        Reason::NotSupported,
    );
    let port = json!([{"name": "a", "image": "x", "ports": [{"containerPort": 70000}]}]);
    refuse(
        json!({"containers": port}),
        "spec.containers[0].ports[0].containerPort",
        Reason::Invalid,
    );
    let greedy = json!([{"name": "a", "image": "x", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]);
    refuse(json!({"containers": greedy}), "spec.containers[0].resources.requests", Reason::Invalid);
}

#[test]
fn few_things_of_a_pod_change() {
    let change = |path: &str, value: Value| changed("v1", "Pod", &pod(), path, value);
    let with_image = json!([{"name": "a", "image": "z"}, {"name": "b", "image": "y:1"}]);
    let pull = |mut containers: Value| {
        containers[0]["imagePullPolicy"] = json!("Always");
        containers
    };
    assert_eq!(change("spec.containers", pull(with_image)), vec![]);
    assert_eq!(change("spec.activeDeadlineSeconds", json!(5)), vec![]);
    assert_eq!(change("spec.tolerations", json!([{"key": "a"}])), vec![]);
    assert_eq!(change("metadata.labels", json!({"a": "b"})), vec![]);
    assert_eq!(fields(&change("spec.nodeName", json!("n"))), [("spec", Reason::Forbidden)]);
    assert_eq!(
        fields(&change("spec.schedulingGates", json!([{"name": "x"}]))),
        [("spec.schedulingGates", Reason::Forbidden)]
    );
    let causes = change("spec.containers", json!([{"name": "a", "image": "x"}]));
    assert_eq!(fields(&causes), [("spec.containers", Reason::Forbidden)]);
}

#[test]
fn services_get_and_keep_their_ports() {
    let obj = made(kind("v1", "Service"), json!({"spec": {"ports": [{"port": 80}]}}));
    assert_eq!(
        obj,
        json!({"spec": {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
            "status": {"loadBalancer": {}}})
    );
    let refuse = |spec: Value, field: &str, reason| {
        refuses("v1", "Service", &json!({"spec": spec}), field, reason);
    };
    refuse(json!({}), "spec.ports", Reason::Required);
    refuse(json!({"ports": [{"port": 0}]}), "spec.ports[0].port", Reason::Invalid);
    refuse(json!({"ports": [{"port": 1}, {"port": 2}]}), "spec.ports[0].name", Reason::Required);
    let twice = json!([{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]);
    refuse(json!({"ports": twice}), "spec.ports[1]", Reason::Duplicate);
    refuse(json!({"type": "ExternalName"}), "spec.externalName", Reason::Required);
    refuse(json!({"type": "Odd", "ports": [{"port": 1}]}), "spec.type", Reason::NotSupported);
    accepts("v1", "Service", &json!({"spec": {"clusterIP": "None"}}));
    accepts("v1", "Service", &json!({"spec": {"type": "ExternalName", "externalName": "x.io"}}));
}

fn deployment() -> Value {
    json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {
        "metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "a", "image": "x"}]}}}})
}

#[test]
fn deployments_get_their_defaults() {
    let obj = made(kind("apps/v1", "Deployment"), deployment());
    for (path, want) in [
        ("spec.replicas", json!(1)),
        ("spec.revisionHistoryLimit", json!(10)),
        ("spec.progressDeadlineSeconds", json!(600)),
        (
            "spec.strategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
        ),
        ("spec.template.spec.restartPolicy", json!("Always")),
    ] {
        assert_eq!(at(&obj, path), Some(&want), "{path}");
    }
}

#[test]
fn pods_of_a_stateful_set_mount_the_claims_of_its_templates() {
    let mut set = deployment();
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}]);
    let field = "spec.template.spec.containers[0].volumeMounts[0].name";
    refuses("apps/v1", "StatefulSet", &set, field, Reason::NotFound);
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    accepts("apps/v1", "StatefulSet", &set);
    refuses("apps/v1", "Deployment", &set, field, Reason::NotFound);
}

#[test]
fn selectors_match_templates_and_stay() {
    for name in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
        accepts("apps/v1", name, &deployment());
        let mut other = deployment();
        other["spec"]["template"]["metadata"]["labels"] = json!({"app": "y"});
        refuses("apps/v1", name, &other, "spec.template.metadata.labels", Reason::Invalid);
        other["spec"]["selector"] = Value::Null;
        refuses("apps/v1", name, &other, "spec.selector", Reason::Required);
        let mut moved = deployment();
        moved["spec"]["template"]["metadata"]["labels"] = json!({"app": "x", "b": "c"});
        let causes =
            changed("apps/v1", name, &moved, "spec.selector.matchLabels", json!({"b": "c"}));
        let wanted = match name {
            "StatefulSet" => ("spec", Reason::Forbidden),
            _ => ("spec.selector", Reason::Invalid),
        };
        assert_eq!(fields(&causes), [wanted]);
        assert_eq!(changed("apps/v1", name, &deployment(), "spec.replicas", json!(3)), vec![]);
        refuses(
            "apps/v1",
            name,
            &json!({"spec": {"replicas": -1}}),
            "spec.replicas",
            Reason::Invalid,
        );
    }
}

#[test]
fn jobs_end() {
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}});
    accepts("batch/v1", "Job", &json!({"spec": {"template": template}}));
    let cron =
        json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}});
    accepts("batch/v1", "CronJob", &cron);
    let forever = json!({"spec": {"containers": [{"name": "a", "image": "x"}]}});
    let field = "spec.template.spec.restartPolicy";
    refuses("batch/v1", "Job", &json!({"spec": {"template": forever}}), field, Reason::Required);
    refuses("batch/v1", "CronJob", &json!({}), "spec.schedule", Reason::Required);
}

#[test]
fn roles_and_bindings_are_checked() {
    let rule = |rule: Value| json!({"rules": [rule]});
    let need = Reason::Required;
    refuses(
        RBAC,
        "Role",
        &rule(json!({"resources": ["x"], "verbs": ["get"]})),
        "rules[0].apiGroups",
        need,
    );
    refuses(
        RBAC,
        "Role",
        &rule(json!({"apiGroups": [""], "resources": ["x"]})),
        "rules[0].verbs",
        need,
    );
    refuses(
        RBAC,
        "Role",
        &rule(json!({"apiGroups": [""], "verbs": ["x"]})),
        "rules[0].resources",
        need,
    );
    let paths = rule(json!({"nonResourceURLs": ["/x"], "verbs": ["get"]}));
    refuses(RBAC, "Role", &paths, "rules[0].nonResourceURLs", Reason::Invalid);
    accepts(RBAC, "ClusterRole", &paths);
    accepts(RBAC, "Role", &json!({}));
    let reference = json!({"kind": "ClusterRole", "name": "r"});
    let subject = |subject: Value| json!({"roleRef": reference, "subjects": [subject]});
    let obj = made(kind(RBAC, "RoleBinding"), subject(json!({"kind": "User", "name": "u"})));
    assert_eq!(obj["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(obj["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    let account = subject(json!({"kind": "ServiceAccount", "name": "s"}));
    accepts(RBAC, "RoleBinding", &account);
    refuses(RBAC, "ClusterRoleBinding", &account, "subjects[0].namespace", need);
    let odd = subject(json!({"kind": "Robot", "name": "s"}));
    refuses(RBAC, "RoleBinding", &odd, "subjects[0].kind", Reason::NotSupported);
    let local = json!({"roleRef": {"kind": "Role", "name": "r"}});
    refuses(RBAC, "ClusterRoleBinding", &local, "roleRef.kind", Reason::NotSupported);
    let causes = changed(RBAC, "RoleBinding", &account, "roleRef.name", json!("other"));
    assert_eq!(fields(&causes), [("roleRef", Reason::Invalid)]);
    assert_eq!(changed(RBAC, "RoleBinding", &account, "subjects", json!([])), vec![]);
}

#[test]
fn leases_count_forward() {
    let lease = "coordination.k8s.io/v1";
    let obj = |duration: i64, transitions: i64| json!({"spec": {"leaseDurationSeconds": duration, "leaseTransitions": transitions}});
    refuses(lease, "Lease", &obj(0, 0), "spec.leaseDurationSeconds", Reason::Invalid);
    refuses(lease, "Lease", &obj(1, -1), "spec.leaseTransitions", Reason::Invalid);
    accepts(lease, "Lease", &obj(1, 0));
    accepts(lease, "Lease", &json!({}));
    let obj = made(
        kind(lease, "Lease"),
        json!({"spec": {"renewTime": "2026-01-01T01:00:00.000000+01:00", "acquireTime": null}}),
    );
    assert_eq!(obj, json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}));
    assert!(decode_errors(kind(lease, "Lease"), &json!({"spec": {"renewTime": "soon"}})).is_some());
    assert!(
        decode_errors(
            kind("v1", "Pod"),
            &json!({"status": {"conditions": [{"lastTransitionTime": 7}]}})
        )
        .is_some()
    );
}

fn event() -> Value {
    json!({"metadata": {"name": "e", "namespace": "n"}, "regarding": {"namespace": "n"}, "reason": "R",
        "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "x.io/p",
        "reportingInstance": "p-1", "action": "A", "note": "hello"})
}

#[test]
fn new_events_say_who_and_why() {
    let v1 = "events.k8s.io/v1";
    accepts(v1, "Event", &event());
    for member in ["eventTime", "reportingController", "reportingInstance", "action", "reason"] {
        let mut obj = event();
        obj.as_object_mut().unwrap().remove(member);
        refuses(v1, "Event", &obj, member, Reason::Required);
    }
    let with = |member: &str, value: String| {
        let mut obj = event();
        obj[member] = value.into();
        obj
    };
    refuses(v1, "Event", &with("type", "Odd".to_owned()), "type", Reason::NotSupported);
    refuses(v1, "Event", &with("note", "x".repeat(1025)), "note", Reason::TooLong);
    refuses(v1, "Event", &with("reason", "x".repeat(129)), "reason", Reason::TooLong);
    refuses(
        v1,
        "Event",
        &with("reportingController", "a b".to_owned()),
        "reportingController",
        Reason::Invalid,
    );
    let causes = changed(v1, "Event", &event(), "note", json!("bye"));
    assert_eq!(fields(&causes), [("note", Reason::Invalid)]);
    assert_eq!(changed(v1, "Event", &event(), "series", json!({"count": 2})), vec![]);
}

#[test]
fn events_of_the_old_form_may_be_changed_through_the_new_one() {
    let old = json!({"metadata": {"namespace": "n"}, "regarding": {"namespace": "n"},
        "deprecatedCount": 1, "reason": "R"});
    let labels = json!({"a": "b"});
    assert_eq!(changed("events.k8s.io/v1", "Event", &old, "metadata.labels", labels), vec![]);
}

#[test]
fn a_new_object_begins_with_its_status_in_either_order() {
    for name in ["Namespace", "PersistentVolumeClaim", "Pod"] {
        let (kind, body) =
            (kind("v1", name), json!({"spec": {}, "status": {"phase": "Odd", "x": 1}}));
        let right = made(kind, body.clone());
        let mut wrong = body;
        default(kind, &mut wrong, None);
        reset_for_main(kind, &mut wrong, None);
        assert_eq!(wrong, right);
        assert_ne!(right["status"]["phase"], "Odd");
    }
}

#[test]
fn core_events_live_with_their_object() {
    let obj = |own: &str, object: &str| json!({"metadata": {"namespace": own}, "involvedObject": {"namespace": object}});
    accepts("v1", "Event", &obj("n", "n"));
    accepts("v1", "Event", &obj("default", ""));
    refuses("v1", "Event", &obj("n", "m"), "involvedObject.namespace", Reason::Invalid);
    refuses("v1", "Event", &obj("n", ""), "involvedObject.namespace", Reason::Invalid);
    assert_eq!(changed("v1", "Event", &obj("n", "n"), "message", json!("m")), vec![]);
}

#[test]
fn endpoints_touch_their_half_only() {
    let old = json!({"metadata": {"name": "a", "labels": {"x": "y"}, "resourceVersion": "5"},
        "spec": {"n": 1}, "status": {"m": 1}});
    let body = json!({"metadata": {"name": "a", "finalizers": ["x.io/f"], "managedFields": [{}],
        "resourceVersion": "4"}, "spec": {"n": 2}, "status": {"m": 2}});
    let mut main = body.clone();
    reset_custom(&mut main, Some(&old));
    assert_eq!((&main["spec"]["n"], &main["status"]["m"]), (&json!(2), &json!(1)));
    let mut status = body.clone();
    reset_for_status(None, &mut status, &old);
    assert_eq!(
        status,
        json!({"metadata": {"name": "a", "labels": {"x": "y"}, "resourceVersion": "4", "managedFields": [{}]},
            "spec": {"n": 1}, "status": {"m": 2}})
    );
    let mut new = body;
    reset_custom(&mut new, None);
    assert!(new.get("status").is_none());
    let mut node = json!({"status": {"m": 1}});
    reset_for_main(kind("v1", "Node"), &mut node, None);
    assert_eq!(node, json!({"status": {"m": 1}}));
}

#[test]
fn generation_follows_content() {
    use StatusEndpoint::{Absent, Present};
    let old = json!({"metadata": {"a": 1}, "spec": {"n": 1}, "status": {"m": 1}});
    for (new, with, without) in [
        (json!({"metadata": {"a": 2}, "spec": {"n": 1}, "status": {"m": 1}}), false, false),
        (json!({"metadata": {}, "spec": {"n": 1}, "status": {"m": 2}}), false, true),
        (json!({"spec": {"n": 2}, "status": {"m": 1}}), true, true),
        (json!({"spec": {"n": 1}, "data": {}, "status": {"m": 1}}), true, true),
        (json!({"spec": {"n": 1}, "data": null, "status": {"m": 1}}), false, false),
    ] {
        assert_eq!(content_changed(&old, &new, Present), with, "{new}");
        assert_eq!(content_changed(&old, &new, Absent), without, "{new}");
    }
}

#[test]
fn an_address_is_kept_and_empty_strings_are_nothing() {
    let old = json!({"spec": {"clusterIP": "None", "ports": [{"port": 1}]}});
    assert_eq!(changed("v1", "Service", &old, "spec.clusterIP", Value::Null), vec![]);
    let causes = changed("v1", "Service", &old, "spec.clusterIP", json!("10.0.0.1"));
    assert_eq!(fields(&causes), [("spec.clusterIP", Reason::Invalid)]);
    assert_eq!(made(kind("v1", "Secret"), json!({"type": ""})), json!({"type": "Opaque"}));
}

proptest! {
    #[test]
    fn noise_never_panics_and_defaults_settle(old in crate::noise::object(), new in crate::noise::object()) {
        for kind in all() {
            let (old, mut new) = (made(kind, old.clone()), new.clone());
            let mut again = old.clone();
            default(kind, &mut again, None);
            prop_assert_eq!(&again, &old, "{} changes its own defaults", kind.kind);
            reset_for_main(kind, &mut new, Some(&old));
            default(kind, &mut new, Some(&old));
            let _ = (decode_errors(kind, &new), validate(kind, &new), validate_update(kind, &old, &new));
            let mut status = new.clone();
            reset_for_status(Some(kind), &mut status, &old);
            let scale = crate::scale::ScalePaths::builtin().unwrap();
            scale.write(&scale.read(&new), &mut new);
        }
    }
}

#[test]
fn a_new_job_selects_its_own_pods() {
    let kind = find("batch", "v1", "jobs").unwrap();
    let spec = json!({"template": {"spec": {"restartPolicy": "Never"}}});
    let new = json!({"metadata": {"name": "pi", "uid": "u-1"}, "spec": spec});
    let mut job = new.clone();
    default(kind, &mut job, None);
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    let want = json!({"controller-uid": "u-1", "batch.kubernetes.io/controller-uid": "u-1",
        "job-name": "pi", "batch.kubernetes.io/job-name": "pi"});
    assert_eq!((labels, &job["metadata"]["labels"]), (&want, &want));
    let selector = &job["spec"]["selector"];
    assert_eq!(*selector, json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}));
    // By hand, and for an object that exists, nothing is added.
    let mut manual = new.clone();
    manual["spec"]["manualSelector"] = true.into();
    default(kind, &mut manual, None);
    assert_eq!(manual["spec"].get("selector"), None);
    let mut kept = new;
    default(kind, &mut kept, Some(&job));
    assert_eq!(kept["spec"].get("selector"), None);
    // Labels of another job's pods are refused.
    job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = "u-2".into();
    assert!(validate(kind, &job).iter().any(|cause| cause.field == "spec.selector.matchLabels"));
}
