//! Cells of the kinds in `apps` and `batch`.

use jiff::Timestamp;
use serde_json::Value;

use super::age::{duration, seconds_between};
use super::{age, created, joined, name, or_none};
use crate::access::{at, integer, is_true, list, text};
use crate::kinds::{labels_text, selector_text};
use crate::time::parse;

pub(super) fn cells(kind: &str, obj: &Value, now: Timestamp) -> Vec<Value> {
    match kind {
        "Deployment" => deployment(obj, now),
        "ReplicaSet" => replica_set(obj, now),
        "StatefulSet" => stateful_set(obj, now),
        "DaemonSet" => daemon_set(obj, now),
        "Job" => job(obj, now),
        _ => cron_job(obj, now),
    }
}

fn number(obj: &Value, path: &str) -> Value {
    integer(obj, path).unwrap_or_default().into()
}

fn ready(obj: &Value) -> Value {
    let ready = integer(obj, "status.readyReplicas").unwrap_or_default();
    format!("{ready}/{}", integer(obj, "spec.replicas").unwrap_or_default()).into()
}

/// Names and images of the containers in the pod template at `path`.
fn containers(obj: &Value, path: &str) -> [Value; 2] {
    let containers = list(obj, &format!("{path}.spec.containers"));
    [joined(containers, "name", ",").into(), joined(containers, "image", ",").into()]
}

fn selected(obj: &Value) -> Value {
    or_none(&selector_text(obj, "spec.selector"))
}

fn deployment(obj: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(obj, "spec.template");
    vec![
        name(obj),
        ready(obj),
        number(obj, "status.updatedReplicas"),
        number(obj, "status.availableReplicas"),
        created(obj, now),
        names,
        images,
        selected(obj),
    ]
}

fn replica_set(obj: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(obj, "spec.template");
    vec![
        name(obj),
        number(obj, "spec.replicas"),
        number(obj, "status.replicas"),
        number(obj, "status.readyReplicas"),
        created(obj, now),
        names,
        images,
        selected(obj),
    ]
}

fn stateful_set(obj: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(obj, "spec.template");
    vec![name(obj), ready(obj), created(obj, now), names, images]
}

fn daemon_set(obj: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(obj, "spec.template");
    vec![
        name(obj),
        number(obj, "status.desiredNumberScheduled"),
        number(obj, "status.currentNumberScheduled"),
        number(obj, "status.numberReady"),
        number(obj, "status.updatedNumberScheduled"),
        number(obj, "status.numberAvailable"),
        or_none(&labels_text(obj, "spec.template.spec.nodeSelector")),
        created(obj, now),
        names,
        images,
        selected(obj),
    ]
}

fn job(obj: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(obj, "spec.template");
    let succeeded = integer(obj, "status.succeeded").unwrap_or_default();
    let parallelism = integer(obj, "spec.parallelism").unwrap_or_default();
    let completions = match integer(obj, "spec.completions") {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    vec![
        name(obj),
        job_status(obj).into(),
        completions.into(),
        job_duration(obj, now).into(),
        created(obj, now),
        names,
        images,
        selected(obj),
    ]
}

fn job_status(obj: &Value) -> &'static str {
    let holds = |condition: &str| {
        list(obj, "status.conditions")
            .iter()
            .any(|have| text(have, "type") == condition && text(have, "status") == "True")
    };
    match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if at(obj, "metadata.deletionTimestamp").is_some() => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn job_duration(obj: &Value, now: Timestamp) -> String {
    let Some(start) = parse(text(obj, "status.startTime")) else { return String::new() };
    let end = parse(text(obj, "status.completionTime")).unwrap_or(now);
    duration(seconds_between(start, end))
}

fn cron_job(obj: &Value, now: Timestamp) -> Vec<Value> {
    let template = "spec.jobTemplate.spec";
    let [names, images] = containers(obj, &format!("{template}.template"));
    let last = match text(obj, "status.lastScheduleTime") {
        "" => "<none>".to_owned(),
        last => age(last, now),
    };
    let suspended = if is_true(obj, "spec.suspend") { "True" } else { "False" };
    vec![
        name(obj),
        text(obj, "spec.schedule").into(),
        or_none(text(obj, "spec.timeZone")),
        suspended.into(),
        list(obj, "status.active").len().into(),
        last.into(),
        created(obj, now),
        names,
        images,
        or_none(&selector_text(obj, &format!("{template}.selector"))),
    ]
}
