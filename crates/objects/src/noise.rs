//! Arbitrary JSON for properties: member names are drawn from those the code looks at, so that wrong
//! types appear where they hurt.

use proptest::prelude::*;
use serde_json::Value;

const MEMBERS: &[&str] = &[
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "kind",
    "apiVersion",
    "spec",
    "status",
    "data",
    "binaryData",
    "stringData",
    "type",
    "immutable",
    "containers",
    "initContainers",
    "containerStatuses",
    "initContainerStatuses",
    "state",
    "waiting",
    "terminated",
    "running",
    "reason",
    "exitCode",
    "signal",
    "ready",
    "restartCount",
    "lastState",
    "finishedAt",
    "startedAt",
    "phase",
    "image",
    "ports",
    "port",
    "protocol",
    "containerPort",
    "targetPort",
    "nodePort",
    "selector",
    "matchLabels",
    "matchExpressions",
    "template",
    "replicas",
    "strategy",
    "rollingUpdate",
    "resources",
    "requests",
    "limits",
    "storage",
    "accessModes",
    "capacity",
    "rules",
    "verbs",
    "apiGroups",
    "nonResourceURLs",
    "roleRef",
    "subjects",
    "series",
    "lastObservedTime",
    "eventTime",
    "lastTimestamp",
    "firstTimestamp",
    "count",
    "involvedObject",
    "regarding",
    "source",
    "component",
    "host",
    "message",
    "note",
    "conditions",
    "key",
    "operator",
    "values",
    "leaseDurationSeconds",
    "renewTime",
    "creationTimestamp",
    "deletionTimestamp",
    "names",
    "versions",
    "addresses",
    "nodeInfo",
    "taints",
    "hard",
    "jobTemplate",
    "loadBalancer",
    "ingress",
    "claimRef",
    "nodeName",
    "readinessGates",
    "conditionType",
    "tolerations",
    "schedulingGates",
    "volumes",
    "volumeMounts",
    "env",
    "hostNetwork",
    "provisioner",
    "csi",
    "resourceAttributes",
    "nonResourceAttributes",
    "managedFields",
    "time",
    "schedule",
    "completions",
    "spec.size",
];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ -~é]{0,12}".prop_map(Value::from),
        Just(Value::from("2026-01-01T00:00:00Z")),
        Just(Value::from("10Gi")),
    ]
}

pub(crate) fn json() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(MEMBERS), inner, 0..8).prop_map(
                |map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            ),
        ]
    })
}

/// An object with noise in the members that kinds look at first.
pub(crate) fn object() -> impl Strategy<Value = Value> {
    prop::collection::vec(json(), 4).prop_map(|mut parts| {
        let mut obj = json_object(parts.pop());
        for member in ["metadata", "spec", "status"] {
            if let (Some(part), Some(map)) = (parts.pop(), obj.as_object_mut()) {
                map.insert(member.to_owned(), part);
            }
        }
        obj
    })
}

fn json_object(value: Option<Value>) -> Value {
    value.filter(Value::is_object).unwrap_or_else(|| Value::Object(serde_json::Map::new()))
}
