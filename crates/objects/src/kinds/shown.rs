//! Members that every object of a kind shows, also when there is nothing to say: clients with typed
//! objects write them always, and readers of counters expect a number.

use serde_json::{Value, json};

use super::Kind;
use crate::access::{at, object_mut, set};

/// A kind, and paths with what stands there when nothing else does.
type Shown = (&'static str, &'static str, &'static [(&'static str, Zero)]);

#[derive(Debug, Clone, Copy)]
enum Zero {
    Count,
    Null,
    Object,
    Text,
}

use Zero::{Count, Null, Object, Text};

const SHOWN: &[Shown] = &[
    ("apps", "Deployment", &[("status", Object)]),
    ("apps", "ReplicaSet", &[("status.replicas", Count)]),
    ("apps", "StatefulSet", &[("status.replicas", Count), ("status.availableReplicas", Count)]),
    (
        "apps",
        "DaemonSet",
        &[
            ("status.currentNumberScheduled", Count),
            ("status.desiredNumberScheduled", Count),
            ("status.numberMisscheduled", Count),
            ("status.numberReady", Count),
        ],
    ),
    ("batch", "Job", &[("status", Object)]),
    ("batch", "CronJob", &[("status", Object)]),
    ("", "ReplicationController", &[("status.replicas", Count)]),
    ("", "ResourceQuota", &[("status", Object)]),
    (
        "policy",
        "PodDisruptionBudget",
        &[
            ("status.currentHealthy", Count),
            ("status.desiredHealthy", Count),
            ("status.disruptionsAllowed", Count),
            ("status.expectedPods", Count),
        ],
    ),
    ("autoscaling", "HorizontalPodAutoscaler", &[("status.desiredReplicas", Count)]),
    (
        "",
        "Event",
        &[
            ("eventTime", Null),
            ("firstTimestamp", Null),
            ("lastTimestamp", Null),
            ("source", Object),
            ("reportingComponent", Text),
            ("reportingInstance", Text),
        ],
    ),
    (
        "events.k8s.io",
        "Event",
        &[
            ("eventTime", Null),
            ("deprecatedFirstTimestamp", Null),
            ("deprecatedLastTimestamp", Null),
            ("deprecatedSource", Object),
        ],
    ),
];

/// Puts them where they are missing.
pub(super) fn fill(kind: &Kind, obj: &mut Value) {
    let Some((.., paths)) =
        SHOWN.iter().find(|(group, name, _)| (*group, *name) == (kind.group, kind.kind))
    else {
        return;
    };
    for (path, zero) in *paths {
        match zero {
            Object => drop(object_mut(obj, path)),
            _ if at(obj, path).is_some() => {}
            Count => set(obj, path, 0),
            Text => set(obj, path, ""),
            Null => set(obj, path, json!(null)),
        }
    }
}
