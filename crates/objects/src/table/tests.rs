//! Tables of what tables show.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::kinds;

fn now() -> Timestamp {
    "2026-01-01T00:00:45Z".parse().unwrap()
}

fn kind(api_version: &str, name: &str) -> &'static Kind {
    kinds::named(api_version, name).unwrap()
}

/// Cells of an object created 45 seconds ago and named `a`.
fn row(kind: &Kind, mut obj: Value) -> Vec<Value> {
    let metadata = crate::access::object_mut(&mut obj, "metadata").unwrap();
    metadata.insert("name".to_owned(), "a".into());
    metadata.insert("creationTimestamp".to_owned(), "2026-01-01T00:00:00Z".into());
    cells(kind, &obj, now())
}

fn shown(kind: &Kind) -> (Vec<String>, Vec<String>) {
    let (wide, narrow): (Vec<_>, Vec<_>) = columns(kind).into_iter().partition(|c| c.priority != 0);
    let names = |columns: Vec<Column>| columns.into_iter().map(|c| c.name).collect();
    (names(narrow), names(wide))
}

#[test]
fn columns_are_those_people_know() {
    let rbac = "rbac.authorization.k8s.io/v1";
    for (version, name, narrow, wide) in [
        ("v1", "Namespace", "Name,Status,Age", ""),
        ("v1", "ConfigMap", "Name,Data,Age", ""),
        ("v1", "Secret", "Name,Type,Data,Age", ""),
        ("v1", "ServiceAccount", "Name,Age", ""),
        (
            "v1",
            "Event",
            "Last Seen,Type,Reason,Object,Message",
            "Subobject,Source,First Seen,Count,Name",
        ),
        ("coordination.k8s.io/v1", "Lease", "Name,Holder,Age", ""),
        (
            "v1",
            "PersistentVolumeClaim",
            "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age",
            "VolumeMode",
        ),
        ("v1", "Pod", "Name,Ready,Status,Restarts,Age", "IP,Node,Nominated Node,Readiness Gates"),
        (rbac, "Role", "Name,Created At", ""),
        (rbac, "ClusterRole", "Name,Created At", ""),
        (rbac, "RoleBinding", "Name,Role,Age", "Users,Groups,ServiceAccounts"),
        (rbac, "ClusterRoleBinding", "Name,Role,Age", "Users,Groups,ServiceAccounts"),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "Name,Scope,Versions,Created At",
            "Group,Kind,ShortNames,Established",
        ),
        (
            "apps/v1",
            "Deployment",
            "Name,Ready,Up-to-date,Available,Age",
            "Containers,Images,Selector",
        ),
        ("v1", "Service", "Name,Type,Cluster-IP,External-IP,Port(s),Age", "Selector"),
    ] {
        let (have_narrow, have_wide) = shown(kind(version, name));
        assert_eq!((have_narrow.join(",").as_str(), have_wide.join(",").as_str()), (narrow, wide));
    }
}

#[test]
fn every_row_has_a_cell_for_each_column() {
    for kind in kinds::all() {
        assert_eq!(row(kind, json!({})).len(), columns(kind).len(), "{}", kind.kind);
        if kind.kind != "Event" {
            assert_eq!(columns(kind)[0], Column::name());
        }
    }
}

#[test]
fn simple_kinds_show_their_facts() {
    for (version, name, obj, want) in [
        ("v1", "Namespace", json!({"status": {"phase": "Active"}}), json!(["a", "Active", "45s"])),
        (
            "v1",
            "ConfigMap",
            json!({"data": {"a": "", "b": ""}, "binaryData": {"c": ""}}),
            json!(["a", 3, "45s"]),
        ),
        (
            "v1",
            "Secret",
            json!({"type": "Opaque", "data": {"a": ""}}),
            json!(["a", "Opaque", 1, "45s"]),
        ),
        (
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"holderIdentity": "me"}}),
            json!(["a", "me", "45s"]),
        ),
        ("rbac.authorization.k8s.io/v1", "Role", json!({}), json!(["a", "2026-01-01T00:00:00Z"])),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
                {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"},
                {"kind": "Group", "name": "g"},
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}),
            json!(["a", "Role/r", "45s", "u, v", "g", "n/s"]),
        ),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({"spec": {"scope": "Cluster", "group": "x.io", "names": {"kind": "W", "shortNames": ["w", "v"]},
                "versions": [{"name": "v2", "served": true}, {"name": "v1", "served": false}]},
                "status": {"conditions": [{"type": "Established", "status": "True"}]}}),
            json!(["a", "Cluster", "v2", "2026-01-01T00:00:00Z", "x.io", "W", "w,v", "True"]),
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"volumeName": "pv1", "storageClassName": "fast", "volumeMode": "Block"},
                "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}}),
            json!(["a", "Bound", "pv1", "1Gi", "RWO,RWX", "fast", "<unset>", "45s", "Block"]),
        ),
        (
            "v1",
            "PersistentVolume",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"],
                "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"}},
                "status": {"phase": "Bound"}}),
            json!([
                "a", "1Gi", "RWOP", "Retain", "Bound", "n/c", "", "<unset>", "", "45s", "<unset>"
            ]),
        ),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                "provisioner": "x.io"}),
            json!(["a (default)", "x.io", "Delete", "Immediate", false, "45s"]),
        ),
        (
            "v1",
            "ResourceQuota",
            json!({"status": {"hard": {"limits.cpu": "2", "pods": "4"}, "used": {"pods": "1"}}}),
            json!(["a", "pods: 1/4", "limits.cpu: 0/2", "45s"]),
        ),
    ] {
        assert_eq!(Value::from(row(kind(version, name), obj)), want, "{name}");
    }
}

#[test]
fn services_show_ports_and_addresses() {
    let service = kind("v1", "Service");
    let lb = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "selector": {"app": "x"},
        "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"}]}});
    assert_eq!(
        Value::from(row(service, lb)),
        json!([
            "a",
            "LoadBalancer",
            "10.0.0.1",
            "<pending>",
            "80/TCP,53:30053/UDP",
            "45s",
            "app=x"
        ])
    );
    let named = json!({"spec": {"type": "ExternalName", "externalName": "x.io"}});
    assert_eq!(
        Value::from(row(service, named)),
        json!(["a", "ExternalName", "<none>", "x.io", "<none>", "45s", "<none>"])
    );
}

#[test]
fn nodes_show_readiness_and_roles() {
    let obj = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
            "nodeInfo": {"kubeletVersion": "v1.33.0", "osImage": "Linux"}}});
    assert_eq!(
        Value::from(row(kind("v1", "Node"), obj)),
        json!([
            "a",
            "Ready,SchedulingDisabled",
            "control-plane,worker",
            "45s",
            "v1.33.0",
            "10.0.0.2",
            "<none>",
            "Linux",
            "<unknown>",
            "<unknown>"
        ])
    );
}

#[test]
fn events_look_alike_in_both_forms() {
    let core = json!({"apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "R",
        "involvedObject": {"kind": "Widget", "name": "w", "fieldPath": "spec"}, "message": "hi\n",
        "source": {"component": "c", "host": "h"}, "count": 2,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:40Z"});
    let want = json!(["5s", "Normal", "R", "widget/w", "spec", "c, h", "hi", "45s", 2, "a"]);
    assert_eq!(Value::from(row(kind("v1", "Event"), core.clone())), want);
    let events = crate::event::to_events_v1(&core);
    assert_eq!(Value::from(row(kind("events.k8s.io/v1", "Event"), events)), want);
    let series = json!({"eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "c",
        "reportingInstance": "i", "series": {"count": 7, "lastObservedTime": "2026-01-01T00:00:44.000000Z"}});
    let cells = row(kind("v1", "Event"), series);
    assert_eq!(json!([cells[0], cells[5], cells[7], cells[8]]), json!(["1s", "c, i", "45s", 7]));
}

#[test]
fn workloads_count_their_pods() {
    let template = json!({"spec": {"containers": [{"name": "x", "image": "i:1"}, {"name": "y", "image": "j:2"}]}});
    let selector = json!({"matchLabels": {"app": "x"}, "matchExpressions": [
        {"key": "t", "operator": "In", "values": ["a", "b"]}, {"key": "z", "operator": "DoesNotExist"}]});
    let spec = json!({"replicas": 3, "template": template, "selector": selector});
    let status =
        json!({"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1, "replicas": 3});
    let obj = json!({"spec": spec, "status": status});
    assert_eq!(
        Value::from(row(kind("apps/v1", "Deployment"), obj.clone())),
        json!(["a", "2/3", 3, 1, "45s", "x,y", "i:1,j:2", "app=x,t in (a,b),!z"])
    );
    assert_eq!(
        Value::from(row(kind("apps/v1", "StatefulSet"), obj.clone())),
        json!(["a", "2/3", "45s", "x,y", "i:1,j:2"])
    );
    let cells = row(kind("apps/v1", "ReplicaSet"), obj);
    assert_eq!(json!(cells[..5]), json!(["a", 3, 3, 2, "45s"]));
    let job = json!({"spec": {"completions": 1}, "status": {"succeeded": 1,
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:07Z",
        "conditions": [{"type": "Complete", "status": "True"}]}});
    let cells = row(kind("batch/v1", "Job"), job);
    assert_eq!(json!(cells[..5]), json!(["a", "Complete", "1/1", "7s", "45s"]));
    let cron =
        json!({"spec": {"schedule": "* * * * *", "suspend": false}, "status": {"active": [{}]}});
    let cells = row(kind("batch/v1", "CronJob"), cron);
    assert_eq!(json!(cells[..6]), json!(["a", "* * * * *", "<none>", "False", 1, "<none>"]));
}

#[test]
fn the_state_of_a_pod_is_one_word() {
    let running = json!({"ready": true, "restartCount": 0, "state": {"running": {}}});
    let done = json!({"state": {"terminated": {"reason": "Completed", "exitCode": 0}}});
    for (status, metadata, want) in [
        (json!({"phase": "Pending"}), json!({}), ("0/2", "Pending", "0")),
        (
            json!({"phase": "Running", "containerStatuses": [running, running]}),
            json!({}),
            ("2/2", "Running", "0"),
        ),
        (json!({"phase": "Failed", "reason": "Evicted"}), json!({}), ("0/2", "Evicted", "0")),
        (
            json!({"phase": "Running", "containerStatuses": [running,
                {"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                 "lastState": {"terminated": {"finishedAt": "2026-01-01T00:00:40Z"}}}]}),
            json!({}),
            ("1/2", "CrashLoopBackOff", "3 (5s ago)"),
        ),
        (
            json!({"phase": "Succeeded", "containerStatuses": [done, done]}),
            json!({}),
            ("0/2", "Completed", "0"),
        ),
        (
            json!({"phase": "Running", "containerStatuses": [done, running],
                "conditions": [{"type": "Ready", "status": "True"}]}),
            json!({}),
            ("1/2", "Running", "0"),
        ),
        (
            json!({"phase": "Running", "containerStatuses": [done, running]}),
            json!({}),
            ("1/2", "NotReady", "0"),
        ),
        (
            json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}),
            json!({}),
            ("0/2", "ExitCode:3", "0"),
        ),
        (
            json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
            json!({}),
            ("0/2", "Signal:9", "0"),
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}),
            json!({}),
            ("0/2", "Init:0/1", "0"),
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
            json!({}),
            ("0/2", "Init:Error", "0"),
        ),
        (
            json!({"phase": "Running"}),
            json!({"deletionTimestamp": "t"}),
            ("0/2", "Terminating", "0"),
        ),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            json!({}),
            ("0/2", "SchedulingGated", "0"),
        ),
    ] {
        let obj = json!({"metadata": metadata, "status": status,
            "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "x"}, {"name": "y"}]}});
        let cells = row(kind("v1", "Pod"), obj);
        assert_eq!(json!(cells[1..4]), json!([want.0, want.1, want.2]), "{status}");
    }
}

#[test]
fn sidecars_count_as_containers() {
    let obj = json!({"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "x"}],
        "nodeName": "n1", "readinessGates": [{"conditionType": "G"}]},
        "status": {"phase": "Running", "podIP": "1.2.3.4",
            "initContainerStatuses": [{"name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}}],
            "containerStatuses": [{"name": "x", "ready": true, "restartCount": 2, "state": {"running": {}}}]}});
    assert_eq!(
        Value::from(row(kind("v1", "Pod"), obj)),
        json!(["a", "2/2", "Running", "3", "45s", "1.2.3.4", "n1", "<none>", "0/1"])
    );
}

fn printer(kind: &str, path: &str) -> PrinterColumn {
    PrinterColumn::parse(&json!({"name": "X", "type": kind, "jsonPath": path, "priority": 1}))
        .unwrap()
}

#[test]
fn custom_columns_show_what_fits_their_type() {
    let obj = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"s": "text", "n": 3, "f": 2.5, "b": true, "o": {"k": [1]}, "l": ["x", "y"], "z": null}});
    for (kind, path, want) in [
        ("string", ".spec.s", json!("text")),
        ("string", ".spec.n", json!("3")),
        ("string", ".spec.b", json!("true")),
        ("string", ".spec.o", json!("{\"k\":[1]}")),
        ("string", ".spec.l[*]", json!("x")),
        ("string", ".spec.z", json!(null)),
        ("string", ".spec.nope", json!(null)),
        ("integer", ".spec.n", json!(3)),
        ("integer", ".spec.f", json!(2)),
        ("integer", ".spec.s", json!(null)),
        ("number", ".spec.f", json!(2.5)),
        ("number", ".spec.s", json!(null)),
        ("boolean", ".spec.b", json!(true)),
        ("boolean", ".spec.s", json!(null)),
        ("date", ".metadata.creationTimestamp", json!("45s")),
        ("date", ".spec.s", json!("<invalid>")),
        ("date", ".spec.n", json!(null)),
        ("date", ".spec.nope", json!(null)),
    ] {
        let cells = custom_cells(&[printer(kind, path)], &obj, now());
        assert_eq!(cells, vec![json!("a"), want], "{kind} {path}");
    }
    assert_eq!(
        custom_cells(&PrinterColumn::standard(), &obj, now()),
        vec![json!("a"), json!("45s")]
    );
    let columns = custom_columns(&PrinterColumn::standard());
    assert_eq!(columns[0].format, "name");
    assert_eq!((columns[1].name.as_str(), columns[1].kind.as_str()), ("Age", "date"));
    assert!(
        PrinterColumn::parse(&json!({"name": "A", "type": "strange", "jsonPath": ".a"})).is_err()
    );
    assert!(
        PrinterColumn::parse(&json!({"name": "A", "type": "string", "jsonPath": "a"})).is_err()
    );
}

proptest! {
    #[test]
    fn noise_never_panics_and_rows_stay_whole(obj in crate::noise::object()) {
        for kind in kinds::all() {
            prop_assert_eq!(cells(kind, &obj, now()).len(), columns(kind).len());
        }
        let columns = [printer("string", ".spec"), printer("integer", ".status"), printer("date", ".spec")];
        prop_assert_eq!(custom_cells(&columns, &obj, now()).len(), 4);
    }
}
