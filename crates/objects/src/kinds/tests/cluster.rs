//! What a cluster does to objects and refuses of them, as tables.

use Reason::{Duplicate, Forbidden, Invalid, NotFound, NotSupported, Required};

use super::*;

/// A pod whose spec has these members beside one container with `more`.
fn pod(more: &Value, spec: &Value) -> Value {
    let mut container = json!({"name": "c", "image": "i:1"});
    merge(&mut container, more);
    let mut pod = json!({"spec": {"containers": [container]}});
    merge(&mut pod["spec"], spec);
    pod
}

fn merge(target: &mut Value, more: &Value) {
    if let (Some(target), Some(more)) = (target.as_object_mut(), more.as_object()) {
        target.extend(more.clone());
    }
}

fn workload(spec: &Value) -> Value {
    let mut object = json!({"metadata": {"name": "w"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    merge(&mut object["spec"], spec);
    object
}

fn cron_job(spec: &Value) -> Value {
    let mut object = json!({"metadata": {"name": "j"}, "spec": {"schedule": "0 * * * *",
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i:1"}]}}}}}});
    merge(&mut object["spec"], spec);
    object
}

#[test]
fn a_pod_that_could_never_run_is_refused() {
    let none = json!({});
    let volume = json!({"volumes": [{"name": "v"}]});
    accepts(
        "v1",
        "Pod",
        &pod(&json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}), &volume),
    );
    let mount = |mounts: Value| pod(&json!({ "volumeMounts": mounts }), &volume);
    let port = |ports: Value| pod(&json!({ "ports": ports }), &none);
    let env = |env: Value| pod(&json!({ "env": [env] }), &none);
    let probe = |name: &str, probe: Value| pod(&json!({ name: probe }), &none);
    let tolerate = |toleration: Value| pod(&none, &json!({ "tolerations": [toleration] }));
    let c = |rest: &str| format!("spec.containers[0].{rest}");
    let table = [
        (mount(json!([{"name": "w", "mountPath": "/v"}])), c("volumeMounts[0].name"), NotFound),
        (
            mount(json!([{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}])),
            c("volumeMounts[1].mountPath"),
            Invalid,
        ),
        (port(json!([{"containerPort": 0}])), c("ports[0].containerPort"), Invalid),
        (port(json!([{"containerPort": 70000}])), c("ports[0].containerPort"), Invalid),
        (
            port(json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}])),
            c("ports[1].name"),
            Duplicate,
        ),
        (
            port(json!([{"containerPort": 1, "name": "much-too-long-a-name"}])),
            c("ports[0].name"),
            Invalid,
        ),
        (port(json!([{"containerPort": 1, "hostPort": 65536}])), c("ports[0].hostPort"), Invalid),
        (env(json!({"name": "a=b"})), c("env[0].name"), Invalid),
        (
            env(json!({"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "y"}}})),
            c("env[0].valueFrom"),
            Invalid,
        ),
        (env(json!({"name": "A", "valueFrom": {}})), c("env[0].valueFrom"), Invalid),
        (probe("livenessProbe", json!({})), c("livenessProbe"), Required),
        (
            probe("livenessProbe", json!({"exec": {}, "successThreshold": 2})),
            c("livenessProbe.successThreshold"),
            Invalid,
        ),
        (
            probe("readinessProbe", json!({"exec": {}, "tcpSocket": {"port": 1}})),
            c("readinessProbe.tcpSocket"),
            Forbidden,
        ),
        (pod(&json!({"image": " i:1"}), &none), c("image"), Invalid),
        (
            pod(&json!({"terminationMessagePolicy": "Shout"}), &none),
            c("terminationMessagePolicy"),
            NotSupported,
        ),
        (
            pod(&json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}), &none),
            c("resources.requests"),
            Invalid,
        ),
        (
            pod(&none, &json!({"volumes": [{"name": "v"}, {"name": "v"}]})),
            "spec.volumes[1].name".to_owned(),
            Duplicate,
        ),
        (
            pod(&none, &json!({"volumes": [{"name": "v", "emptyDir": {}, "secret": {}}]})),
            "spec.volumes[0].secret".to_owned(),
            Forbidden,
        ),
        (
            tolerate(json!({"operator": "Equal", "value": "x"})),
            "spec.tolerations[0].operator".to_owned(),
            Invalid,
        ),
        (
            tolerate(json!({"key": "a", "operator": "Exists", "value": "x"})),
            "spec.tolerations[0].operator".to_owned(),
            Invalid,
        ),
        (
            tolerate(json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1})),
            "spec.tolerations[0].effect".to_owned(),
            Invalid,
        ),
        (
            pod(&none, &json!({"nodeSelector": {"a b": "c"}})),
            "spec.nodeSelector".to_owned(),
            Invalid,
        ),
        (pod(&none, &json!({"hostname": "A.b"})), "spec.hostname".to_owned(), Invalid),
    ];
    for (object, field, reason) in table {
        refuses("v1", "Pod", &object, &field, reason);
        // The pod in a template is held to the same.
        let template = workload(&json!({"template": {"metadata": {"labels": {"a": "b"}},
            "spec": object["spec"]}}));
        refuses("apps/v1", "Deployment", &template, &format!("spec.template.{field}"), reason);
    }
}

#[test]
fn a_volume_without_a_source_is_an_empty_directory() {
    let object = made(kind("v1", "Pod"), pod(&json!({}), &json!({"volumes": [{"name": "v"}]})));
    assert_eq!(object["spec"]["volumes"], json!([{"name": "v", "emptyDir": {}}]));
}

#[test]
fn a_workload_that_could_never_roll_out_is_refused() {
    let rolling = |surge: Value, unavailable: Value| json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    let unavailable = "spec.strategy.rollingUpdate.maxUnavailable";
    for (strategy, field) in [
        (rolling(json!(0), json!(0)), unavailable),
        (rolling(json!("0%"), json!(0)), unavailable),
        (rolling(json!(1), json!("101%")), unavailable),
        (rolling(json!(1), json!("x")), unavailable),
        (rolling(json!(-1), json!(1)), "spec.strategy.rollingUpdate.maxSurge"),
    ] {
        refuses("apps/v1", "Deployment", &workload(&json!({"strategy": strategy})), field, Invalid);
    }
    accepts(
        "apps/v1",
        "Deployment",
        &workload(&json!({"strategy": rolling(json!("150%"), json!(0))})),
    );
    let rolling = |surge: Value, unavailable: Value| {
        workload(&json!({"updateStrategy": rolling(surge, unavailable)}))
    };
    let at = |member: &str| format!("spec.updateStrategy.rollingUpdate.{member}");
    refuses("apps/v1", "DaemonSet", &rolling(json!(0), json!(0)), &at("maxUnavailable"), Required);
    refuses("apps/v1", "DaemonSet", &rolling(json!(1), json!(1)), &at("maxSurge"), Invalid);
    accepts("apps/v1", "DaemonSet", &rolling(json!(1), json!(0)));
    let early = workload(&json!({"minReadySeconds": 600}));
    refuses("apps/v1", "Deployment", &early, "spec.progressDeadlineSeconds", Invalid);
    for (spec, field, reason) in [
        (json!({"schedule": "61 * * * *"}), "spec.schedule", Invalid),
        (json!({"schedule": "* * * *"}), "spec.schedule", Invalid),
        (json!({"timeZone": "Mars/Olympus"}), "spec.timeZone", Invalid),
        (json!({"timeZone": ""}), "spec.timeZone", Invalid),
        (json!({"successfulJobsHistoryLimit": -1}), "spec.successfulJobsHistoryLimit", Invalid),
    ] {
        refuses("batch/v1", "CronJob", &cron_job(&spec), field, reason);
    }
    accepts("batch/v1", "CronJob", &cron_job(&json!({"timeZone": "Europe/Berlin"})));
    let mut long = cron_job(&json!({}));
    long["metadata"]["name"] = json!("j".repeat(53));
    refuses("batch/v1", "CronJob", &long, "metadata.name", Invalid);
    let mut job = workload(&json!({"completionMode": "Indexed", "parallelism": 1}));
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    refuses("batch/v1", "Job", &job, "spec.completions", Required);
}

#[test]
fn the_phase_of_a_namespace_follows_its_deletion() {
    let ns = kind("v1", "Namespace");
    let phase = |phase: &str, deleted: Value| {
        let object = json!({"metadata": {"name": "a", "deletionTimestamp": deleted},
            "status": {"phase": phase}});
        validate(ns, &object)
    };
    let time = json!("2026-01-01T00:00:00Z");
    assert_eq!(phase("Active", Value::Null), vec![]);
    assert_eq!(phase("Terminating", time.clone()), vec![]);
    for causes in
        [phase("Paused", Value::Null), phase("Terminating", Value::Null), phase("Active", time)]
    {
        assert_eq!(fields(&causes), [("status.Phase", Reason::Invalid)]);
    }
}

#[test]
fn services_that_contradict_themselves_are_refused() {
    let service = |spec: Value| {
        let mut object = json!({"spec": {"ports": [{"port": 80}]}});
        merge(&mut object["spec"], &spec);
        object
    };
    for (spec, field, reason) in [
        (json!({"ports": [{"port": 80, "nodePort": 30000}]}), "spec.ports[0].nodePort", Forbidden),
        (json!({"type": "NodePort", "clusterIP": "None"}), "spec.clusterIPs[0]", Invalid),
        (
            json!({"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.0.0.1"}),
            "spec.clusterIPs",
            Forbidden,
        ),
        (json!({"clusterIP": "nonsense"}), "spec.clusterIPs[0]", Invalid),
        (
            json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]}),
            "spec.clusterIPs[0]",
            Invalid,
        ),
        (json!({"externalIPs": ["x"]}), "spec.externalIPs[0]", Invalid),
    ] {
        refuses("v1", "Service", &service(spec), field, reason);
    }
}

#[test]
fn a_service_keeps_what_it_was_given_and_gives_back_what_its_type_cannot_have() {
    let svc = kind("v1", "Service");
    let old = made(
        svc,
        json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.9",
        "clusterIPs": ["10.96.0.9"], "ports": [{"port": 80, "nodePort": 30080}]}}),
    );
    let mut same = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    default(svc, &mut same, Some(&old));
    assert_eq!(same["spec"]["clusterIP"], "10.96.0.9");
    assert_eq!(same["spec"]["ports"][0]["nodePort"], 30080);
    let mut inner = old.clone();
    inner["spec"]["type"] = json!("ClusterIP");
    default(svc, &mut inner, Some(&old));
    assert_eq!(inner["spec"]["ports"][0].get("nodePort"), None);
    assert_eq!(inner["spec"].get("externalTrafficPolicy"), None);
    assert_eq!(validate(svc, &inner), vec![]);
    let mut name = old.clone();
    name["spec"]["type"] = json!("ExternalName");
    name["spec"]["externalName"] = json!("a.example");
    default(svc, &mut name, Some(&old));
    for gone in ["clusterIP", "clusterIPs", "internalTrafficPolicy"] {
        assert_eq!(name["spec"].get(gone), None, "{gone}");
    }
    assert_eq!(validate(svc, &name), vec![]);
}

#[test]
fn quantities_and_times_are_stored_in_one_form() {
    let object = made(
        kind("v1", "Pod"),
        pod(
            &json!({"resources": {"limits": {"memory": "0.5Gi", "cpu": "1000m"},
                "requests": {"memory": 1024, "cpu": 0.5}}}),
            &json!({"overhead": {"memory": "1024Mi"},
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "2048Ki"}}]}),
        ),
    );
    assert_eq!(
        object["spec"]["containers"][0]["resources"],
        json!({"limits": {"memory": "512Mi", "cpu": "1"}, "requests": {"memory": "1024", "cpu": "500m"}})
    );
    assert_eq!(object["spec"]["overhead"]["memory"], "1Gi");
    assert_eq!(object["spec"]["volumes"][0]["emptyDir"]["sizeLimit"], "2Mi");
    for (version, name, path, given, wanted) in [
        ("v1", "PersistentVolumeClaim", "spec.resources.requests.storage", "1024Gi", "1Ti"),
        ("v1", "PersistentVolume", "spec.capacity.storage", "0.5Ti", "512Gi"),
        ("v1", "ResourceQuota", "spec.hard.pods", "1000", "1k"),
        ("v1", "Node", "status.allocatable.cpu", "4000m", "4"),
        (
            "v1",
            "Namespace",
            "metadata.creationTimestamp",
            "2026-01-01T01:00:00+01:00",
            "2026-01-01T00:00:00Z",
        ),
    ] {
        let mut object = json!({});
        set(&mut object, path, given);
        let object = made(kind(version, name), object);
        assert_eq!(at(&object, path).unwrap(), wanted, "{name} {path}");
    }
}

#[test]
fn what_has_another_form_cannot_be_decoded() {
    for (version, name, path, bad) in [
        ("v1", "Pod", "spec.overhead.memory", json!("much")),
        ("v1", "PersistentVolumeClaim", "spec.resources.requests.storage", json!("1gi")),
        ("v1", "ResourceQuota", "spec.hard.pods", json!("1 0")),
        ("coordination.k8s.io/v1", "Lease", "spec.renewTime", json!("2026-01-01T00:00:00Z")),
        ("coordination.k8s.io/v1", "Lease", "spec.acquireTime", json!("2026-01-01T00:00:00.1Z")),
        ("v1", "Event", "eventTime", json!("2026-01-01T00:00:00.123456789Z")),
        ("v1", "Event", "firstTimestamp", json!("yesterday")),
        ("apps/v1", "Deployment", "metadata.creationTimestamp", json!("")),
    ] {
        let mut object = json!({});
        set(&mut object, path, bad.clone());
        let text = decode_errors(kind(version, name), &object);
        let text = text.unwrap_or_else(|| panic!("{name} {path} {bad} was taken"));
        assert!(text.contains(&format!("cannot be handled as a {name}")), "{text}");
        assert!(text.contains(&bad.to_string()), "{text}");
    }
    let lease = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000001Z", "acquireTime": null}});
    assert_eq!(decode_errors(kind("coordination.k8s.io/v1", "Lease"), &lease), None);
}

#[test]
fn a_null_in_a_map_is_a_key_without_a_value() {
    for (version, name, given, wanted) in [
        ("v1", "ConfigMap", json!({"data": {"k": null}}), json!({"data": {"k": ""}})),
        ("v1", "Secret", json!({"data": {"k": null}}), json!({"data": {"k": ""}})),
        (
            "v1",
            "Pod",
            json!({"metadata": {"labels": {"k": null}}, "spec": {"nodeName": null}}),
            json!({"metadata": {"labels": {"k": ""}}, "spec": {"nodeName": null}}),
        ),
        (
            "v1",
            "ResourceQuota",
            json!({"spec": {"hard": {"pods": null}}}),
            json!({"spec": {"hard": {"pods": "0"}}}),
        ),
    ] {
        let mut object = given;
        fill_map_nulls(kind(version, name), &mut object);
        assert_eq!(object, wanted, "{name}");
    }
}

#[test]
fn counters_are_shown_also_when_they_are_zero() {
    for (version, name, status) in [
        ("apps/v1", "Deployment", json!({})),
        ("apps/v1", "ReplicaSet", json!({"replicas": 0})),
        ("apps/v1", "StatefulSet", json!({"replicas": 0, "availableReplicas": 0})),
        (
            "apps/v1",
            "DaemonSet",
            json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
                "numberMisscheduled": 0, "numberReady": 0}),
        ),
        ("batch/v1", "Job", json!({})),
        ("batch/v1", "CronJob", json!({})),
    ] {
        assert_eq!(made(kind(version, name), workload(&json!({})))["status"], status, "{name}");
    }
    let event = made(kind("v1", "Event"), json!({"metadata": {"name": "e"}}));
    assert_eq!(
        event,
        json!({"metadata": {"name": "e"}, "eventTime": null, "firstTimestamp": null,
            "lastTimestamp": null, "source": {}, "reportingComponent": "", "reportingInstance": ""})
    );
    let view = crate::event::to_events_v1(&event);
    assert_eq!(view["deprecatedSource"], json!({}));
    assert!(view["eventTime"].is_null());
}

#[test]
fn a_status_carries_annotations_of_built_in_kinds() {
    let old = json!({"metadata": {"name": "a", "labels": {"a": "1"}, "annotations": {"a": "1"}},
        "spec": {"n": 1}, "status": {}});
    let body = json!({"metadata": {"name": "b", "labels": {"a": "2"}, "annotations": {"a": "2"},
        "ownerReferences": [{}]}, "spec": {"n": 2}, "status": {"m": 1}});
    let after = |kind: Option<&Kind>| {
        let mut new = body.clone();
        reset_for_status(kind, &mut new, &old);
        assert_eq!((&new["spec"], &new["metadata"]["name"]), (&old["spec"], &json!("a")));
        assert_eq!(new["metadata"].get("ownerReferences"), None);
        let member = |name: &str| new["metadata"][name]["a"].as_str().unwrap().to_owned();
        (member("annotations"), member("labels"))
    };
    let both = |annotations: &str, labels: &str| (annotations.to_owned(), labels.to_owned());
    assert_eq!(after(None), both("1", "1"));
    assert_eq!(after(Some(kind("v1", "Pod"))), both("2", "2"));
    assert_eq!(after(Some(kind("apps/v1", "Deployment"))), both("2", "1"));
    assert_eq!(after(Some(kind("v1", "PersistentVolumeClaim"))), both("2", "2"));
}

#[test]
fn limit_ranges_fill_and_order_their_bounds() {
    let range = |item: Value| json!({"metadata": {"name": "r"}, "spec": {"limits": [item]}});
    let object = made(
        kind("v1", "LimitRange"),
        range(json!({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}})),
    );
    let item = &object["spec"]["limits"][0];
    assert_eq!(item["default"], json!({"cpu": "2"}));
    assert_eq!(item["defaultRequest"], json!({"cpu": "2", "memory": "1Mi"}));
    for (item, field, reason) in [
        (
            json!({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}),
            "spec.limits[0].min[cpu]",
            Reason::Invalid,
        ),
        (
            json!({"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "1"}}),
            "spec.limits[0].default[cpu]",
            Reason::Invalid,
        ),
        (
            json!({"type": "Pod", "default": {"cpu": "2"}}),
            "spec.limits[0].default",
            Reason::Forbidden,
        ),
    ] {
        refuses("v1", "LimitRange", &range(item), field, reason);
    }
}

#[test]
fn what_was_settled_stays() {
    let job = {
        let mut job = workload(&json!({}));
        job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
        job
    };
    for (version, name, old, path, value, field) in [
        ("batch/v1", "Job", &job, "spec.completions", json!(3), "spec.completions"),
        ("batch/v1", "Job", &job, "spec.template.spec.hostname", json!("h"), "spec.template"),
        ("apps/v1", "StatefulSet", &workload(&json!({})), "spec.serviceName", json!("s"), "spec"),
        (
            "apps/v1",
            "ReplicaSet",
            &workload(&json!({})),
            "spec.selector.matchLabels",
            json!({"a": "b", "c": "d"}),
            "spec.selector",
        ),
    ] {
        let causes = changed(version, name, old, path, value);
        assert!(causes.iter().any(|cause| cause.field == field), "{name} {path}: {causes:?}");
    }
    let replicas =
        changed("apps/v1", "StatefulSet", &workload(&json!({})), "spec.replicas", json!(5));
    assert_eq!(replicas, vec![]);
}
