//! Brings timestamps of built-in kinds to their normal form.
//!
//! Owns: where each kind has timestamps. Never: fails; what is no timestamp stays for [`bad_time`].

use serde_json::Value;

use super::Kind;
use crate::time::{Precision, normal, parse};

type Place = (&'static str, Precision);
use Precision::{Micros, Seconds};

/// `*` stands for every item of a list.
const METADATA: &[Place] = &[
    ("metadata.creationTimestamp", Seconds),
    ("metadata.deletionTimestamp", Seconds),
    ("metadata.managedFields.*.time", Seconds),
];
const LEASE: &[Place] = &[("spec.acquireTime", Micros), ("spec.renewTime", Micros)];
const CORE_EVENT: &[Place] = &[
    ("firstTimestamp", Seconds),
    ("lastTimestamp", Seconds),
    ("eventTime", Micros),
    ("series.lastObservedTime", Micros),
];
const EVENT: &[Place] = &[
    ("deprecatedFirstTimestamp", Seconds),
    ("deprecatedLastTimestamp", Seconds),
    ("eventTime", Micros),
    ("series.lastObservedTime", Micros),
];
const CONDITIONS: &[Place] = &[
    ("spec.template.metadata.creationTimestamp", Seconds),
    ("spec.jobTemplate.metadata.creationTimestamp", Seconds),
    ("spec.jobTemplate.spec.template.metadata.creationTimestamp", Seconds),
    ("status.conditions.*.lastTransitionTime", Seconds),
    ("status.conditions.*.lastUpdateTime", Seconds),
    ("status.conditions.*.lastProbeTime", Seconds),
    ("status.conditions.*.lastHeartbeatTime", Seconds),
    ("status.startTime", Seconds),
    ("status.completionTime", Seconds),
    ("status.lastScheduleTime", Seconds),
    ("status.lastSuccessfulTime", Seconds),
    ("status.lastPhaseTransitionTime", Seconds),
];

const POD: &[Place] = &[
    ("status.startTime", Seconds),
    ("status.conditions.*.lastTransitionTime", Seconds),
    ("status.conditions.*.lastProbeTime", Seconds),
    ("status.containerStatuses.*.state.running.startedAt", Seconds),
    ("status.containerStatuses.*.state.terminated.startedAt", Seconds),
    ("status.containerStatuses.*.state.terminated.finishedAt", Seconds),
    ("status.containerStatuses.*.lastState.terminated.startedAt", Seconds),
    ("status.containerStatuses.*.lastState.terminated.finishedAt", Seconds),
    ("status.initContainerStatuses.*.state.running.startedAt", Seconds),
    ("status.initContainerStatuses.*.state.terminated.startedAt", Seconds),
    ("status.initContainerStatuses.*.state.terminated.finishedAt", Seconds),
];

fn places(kind: &Kind) -> &'static [Place] {
    match (kind.group, kind.kind) {
        ("coordination.k8s.io", "Lease") => LEASE,
        ("", "Event") => CORE_EVENT,
        ("events.k8s.io", "Event") => EVENT,
        ("", "Pod") => POD,
        _ if kind.status => CONDITIONS,
        _ => &[],
    }
}

/// Rewrites every timestamp that can be read; drops those that are null.
pub(super) fn times(kind: &Kind, obj: &mut Value) {
    for (path, precision) in METADATA.iter().chain(places(kind)) {
        each(obj, path, &mut |slot| {
            if let Some(time) = slot.as_str().and_then(|text| normal(text, *precision)) {
                *slot = time.into();
            }
        });
    }
}

/// The first value in the place of a timestamp that is none.
pub(super) fn bad_time(kind: &Kind, obj: &Value) -> Option<String> {
    METADATA.iter().chain(places(kind)).find_map(|(path, _)| {
        let bad = first_bad(obj, path)?;
        Some(format!("{path}: {bad} is not an RFC 3339 time"))
    })
}

fn first_bad<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let Some((member, rest)) = path.split_once('.') else {
        let is_time = |slot: &Value| slot.as_str().is_some_and(|text| parse(text).is_some());
        return value.get(path).filter(|slot| !slot.is_null() && !is_time(slot));
    };
    match value {
        Value::Array(items) if member == "*" => items.iter().find_map(|item| first_bad(item, rest)),
        _ => value.get(member).and_then(|slot| first_bad(slot, rest)),
    }
}

/// Calls `visit` with every value at `path`. A null timestamp is the same as none and is removed.
fn each(value: &mut Value, path: &str, visit: &mut impl FnMut(&mut Value)) {
    let (member, rest) = match path.split_once('.') {
        Some((member, rest)) => (member, Some(rest)),
        None => (path, None),
    };
    match (value, member, rest) {
        (Value::Array(items), "*", Some(rest)) => {
            for item in items {
                each(item, rest, visit);
            }
        }
        (Value::Object(map), _, Some(rest)) => {
            if let Some(slot) = map.get_mut(member) {
                each(slot, rest, visit);
            }
        }
        (Value::Object(map), _, None) => match map.get_mut(member) {
            Some(Value::Null) => drop(map.remove(member)),
            Some(slot) => visit(slot),
            None => {}
        },
        _ => {}
    }
}
