//! Rules of the kinds in `apps` and `batch`: all of them hold a pod template. They are data here:
//! nothing acts on them.
//!
//! Owns: defaults, selectors against templates, and what stays once made.

use serde_json::{Value, json};

use super::selector::selects;
use super::{check_immutable, check_one_of, cron, pod, storage};
use crate::access::{
    at, integer, is_true, keep, list, list_mut, members, object_mut, set, set_default, text,
};
use crate::cause::Cause;
use crate::meta::check_labels;

const NOT_NEGATIVE: &[&str] = &[
    "activeDeadlineSeconds",
    "backoffLimit",
    "completions",
    "failedJobsHistoryLimit",
    "minReadySeconds",
    "parallelism",
    "progressDeadlineSeconds",
    "replicas",
    "revisionHistoryLimit",
    "startingDeadlineSeconds",
    "successfulJobsHistoryLimit",
    "ttlSecondsAfterFinished",
];
/// Bytes of a `CronJob`'s name: its Jobs add a dash and eleven digits.
const CRON_NAME_MAX: usize = 52;
const OPERATORS: &[&str] = &["DoesNotExist", "Exists", "In", "NotIn"];

pub(super) fn defaults(kind: &str, obj: &mut Value) {
    match kind {
        "Deployment" => deployment_defaults(obj),
        "ReplicaSet" => set_default(obj, "spec.replicas", 1),
        "StatefulSet" => stateful_set_defaults(obj),
        "DaemonSet" => daemon_set_defaults(obj),
        "Job" => job_defaults(obj, "spec"),
        "CronJob" => cron_job_defaults(obj),
        _ => {}
    }
    pod::spec_defaults(obj, &format!("{}.spec", template_path(kind)));
}

fn template_path(kind: &str) -> &'static str {
    if kind == "CronJob" { "spec.jobTemplate.spec.template" } else { "spec.template" }
}

fn deployment_defaults(obj: &mut Value) {
    set_default(obj, "spec.replicas", 1);
    set_default(obj, "spec.revisionHistoryLimit", 10);
    set_default(obj, "spec.progressDeadlineSeconds", 600);
    set_default(obj, "spec.strategy.type", "RollingUpdate");
    if text(obj, "spec.strategy.type") == "RollingUpdate" {
        set_default(obj, "spec.strategy.rollingUpdate.maxUnavailable", "25%");
        set_default(obj, "spec.strategy.rollingUpdate.maxSurge", "25%");
    }
}

fn stateful_set_defaults(obj: &mut Value) {
    set_default(obj, "spec.replicas", 1);
    set_default(obj, "spec.revisionHistoryLimit", 10);
    set_default(obj, "spec.podManagementPolicy", "OrderedReady");
    set_default(obj, "spec.updateStrategy.type", "RollingUpdate");
    if text(obj, "spec.updateStrategy.type") == "RollingUpdate" {
        set_default(obj, "spec.updateStrategy.rollingUpdate.partition", 0);
    }
    for member in ["whenDeleted", "whenScaled"] {
        let path = format!("spec.persistentVolumeClaimRetentionPolicy.{member}");
        set_default(obj, &path, "Retain");
    }
    for template in list_mut(obj, "spec.volumeClaimTemplates") {
        storage::claim_template_defaults(template);
    }
}

fn daemon_set_defaults(obj: &mut Value) {
    set_default(obj, "spec.revisionHistoryLimit", 10);
    set_default(obj, "spec.updateStrategy.type", "RollingUpdate");
    if text(obj, "spec.updateStrategy.type") == "RollingUpdate" {
        set_default(obj, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
        set_default(obj, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
    }
}

fn job_defaults(obj: &mut Value, path: &str) {
    let below = |member: &str| format!("{path}.{member}");
    let has = |obj: &Value, member: &str| at(obj, &below(member)).is_some();
    // Parallelism without completions is a work queue, which has no count to reach.
    if !has(obj, "completions") && !has(obj, "parallelism") {
        set_default(obj, &below("completions"), 1);
    }
    set_default(obj, &below("parallelism"), 1);
    set_default(obj, &below("backoffLimit"), 6);
    set_default(obj, &below("completionMode"), "NonIndexed");
    set_default(obj, &below("suspend"), false);
    set_default(obj, &below("podReplacementPolicy"), "TerminatingOrFailed");
}

fn cron_job_defaults(obj: &mut Value) {
    set_default(obj, "spec.concurrencyPolicy", "Allow");
    set_default(obj, "spec.suspend", false);
    set_default(obj, "spec.successfulJobsHistoryLimit", 3);
    set_default(obj, "spec.failedJobsHistoryLimit", 1);
}

pub(super) fn check(kind: &str, obj: &Value, causes: &mut Vec<Cause>) {
    for member in NOT_NEGATIVE {
        check_not_negative(obj, &format!("spec.{member}"), causes);
    }
    let template = template_path(kind);
    check_labels(
        at(obj, &format!("{template}.metadata.labels")),
        &format!("{template}.metadata.labels"),
        causes,
    );
    let claims = match kind {
        "StatefulSet" => list(obj, "spec.volumeClaimTemplates"),
        _ => &[],
    };
    let path = format!("{template}.spec");
    pod::check_with_claims(at(obj, &path), &path, claims, causes);
    match kind {
        "Job" => {
            check_job(obj, "spec", template, causes);
            check_job_identity(obj, causes);
        }
        "CronJob" => check_cron_job(obj, template, causes),
        _ => check_selected(kind, obj, causes),
    }
}

/// The kinds that find their pods by a selector.
fn check_selected(kind: &str, obj: &Value, causes: &mut Vec<Cause>) {
    check_selector(obj, causes);
    let policy = text(obj, "spec.template.spec.restartPolicy");
    if !matches!(policy, "" | "Always") {
        let field = "spec.template.spec.restartPolicy";
        causes.push(Cause::not_supported(field, &policy.into(), &["Always"]));
    }
    let (field, types): (_, &[&str]) = match kind {
        "Deployment" => ("spec.strategy.type", &["Recreate", "RollingUpdate"]),
        _ => ("spec.updateStrategy.type", &["OnDelete", "RollingUpdate"]),
    };
    check_one_of(obj, field, field, types, causes);
    match kind {
        "Deployment" => check_deployment(obj, causes),
        "DaemonSet" => check_daemon_rollout(obj, causes),
        _ => {}
    }
    let recreate = text(obj, "spec.strategy.type") == "Recreate";
    if recreate && at(obj, "spec.strategy.rollingUpdate").is_some() {
        let detail = "has no meaning for a strategy of type Recreate";
        causes.push(Cause::forbidden("spec.strategy.rollingUpdate", detail));
    }
}

fn check_not_negative(obj: &Value, field: &str, causes: &mut Vec<Cause>) {
    if let Some(number) = integer(obj, field).filter(|number| *number < 0) {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid(field, &number.into(), detail));
    }
}

/// A number or a percentage at `field`; nothing if it is neither, which is a cause.
fn int_or_percent(obj: &Value, field: &str, causes: &mut Vec<Cause>) -> Option<i64> {
    let value = at(obj, field)?;
    let (number, percent) = match value {
        Value::String(text) => (text.strip_suffix('%').and_then(|n| n.parse().ok()), true),
        other => (other.as_i64(), false),
    };
    let detail = match number {
        None => "must be a number, or a percentage such as '25%'",
        Some(..0) => "must be greater than or equal to 0",
        Some(101..) if percent && field.ends_with("maxUnavailable") => {
            "must not be greater than 100%"
        }
        number => return number,
    };
    causes.push(Cause::invalid(field, value, detail));
    None
}

fn check_deployment(obj: &Value, causes: &mut Vec<Cause>) {
    let rolling = "spec.strategy.rollingUpdate";
    let surge = int_or_percent(obj, &format!("{rolling}.maxSurge"), causes);
    let field = format!("{rolling}.maxUnavailable");
    let unavailable = int_or_percent(obj, &field, causes);
    if (surge, unavailable) == (Some(0), Some(0)) {
        let detail = "may not be 0 when `maxSurge` is 0";
        causes.push(Cause::invalid(field, &0.into(), detail));
    }
    let ready = integer(obj, "spec.minReadySeconds").unwrap_or(0);
    let field = "spec.progressDeadlineSeconds";
    if let Some(deadline) = integer(obj, field).filter(|deadline| *deadline <= ready) {
        let detail = "must be greater than minReadySeconds";
        causes.push(Cause::invalid(field, &deadline.into(), detail));
    }
}

/// A `DaemonSet` either adds pods first or takes them away first.
fn check_daemon_rollout(obj: &Value, causes: &mut Vec<Cause>) {
    let rolling = "spec.updateStrategy.rollingUpdate";
    let field = format!("{rolling}.maxSurge");
    let surge = int_or_percent(obj, &field, causes);
    let unavailable = int_or_percent(obj, &format!("{rolling}.maxUnavailable"), causes);
    match (surge, unavailable) {
        (Some(0), Some(0)) => {
            let detail = "cannot be 0 when maxSurge is 0";
            causes.push(Cause::required(format!("{rolling}.maxUnavailable"), detail));
        }
        (Some(1..), Some(1..)) => {
            let value = at(obj, &field).unwrap_or(&Value::Null);
            let detail = "may not be set when maxUnavailable is non-zero";
            causes.push(Cause::invalid(field, value, detail));
        }
        _ => {}
    }
}

fn check_selector(obj: &Value, causes: &mut Vec<Cause>) {
    let Some(selector) = at(obj, "spec.selector") else {
        causes.push(Cause::required("spec.selector", ""));
        return;
    };
    check_labels(selector.get("matchLabels"), "spec.selector.matchLabels", causes);
    let expressions = list(selector, "matchExpressions");
    for (index, expression) in expressions.iter().enumerate() {
        let field = format!("spec.selector.matchExpressions[{index}].operator");
        let operator = text(expression, "operator");
        if !OPERATORS.contains(&operator) {
            causes.push(Cause::not_supported(field, &operator.into(), OPERATORS));
        }
    }
    if members(selector, "matchLabels").next().is_none() && expressions.is_empty() {
        let detail = "an empty selector would take every pod";
        causes.push(Cause::invalid("spec.selector", selector, detail));
        return;
    }
    let nothing = json!({});
    let labels = at(obj, "spec.template.metadata.labels").unwrap_or(&nothing);
    if !selects(selector, labels) {
        let detail = "`spec.selector` does not take these labels";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, detail));
    }
}

fn check_job_policy(obj: &Value, template: &str, causes: &mut Vec<Cause>) {
    let field = format!("{template}.spec.restartPolicy");
    let policy = text(obj, &field);
    if policy == "Always" {
        let detail = "Required value: a job ends, so it is \"OnFailure\" or \"Never\"";
        causes.push(Cause::new(crate::cause::Reason::Required, field, detail));
    }
}

fn check_cron_job(obj: &Value, template: &str, causes: &mut Vec<Cause>) {
    match text(obj, "spec.schedule") {
        "" => causes.push(Cause::required("spec.schedule", "")),
        schedule => {
            if let Err(detail) = cron::check_schedule(schedule) {
                causes.push(Cause::invalid("spec.schedule", &schedule.into(), &detail));
            }
        }
    }
    if let Some(Value::String(zone)) = at(obj, "spec.timeZone")
        && let Err(detail) = cron::check_time_zone(zone)
    {
        causes.push(Cause::invalid("spec.timeZone", &zone.as_str().into(), &detail));
    }
    let name = text(obj, "metadata.name");
    if name.len() > CRON_NAME_MAX {
        let detail = format!("must be no more than {CRON_NAME_MAX} characters");
        causes.push(Cause::invalid("metadata.name", &name.into(), &detail));
    }
    let policies = &["Allow", "Forbid", "Replace"];
    check_one_of(obj, "spec.concurrencyPolicy", "spec.concurrencyPolicy", policies, causes);
    check_job(obj, "spec.jobTemplate.spec", template, causes);
}

fn check_job(obj: &Value, spec: &str, template: &str, causes: &mut Vec<Cause>) {
    let mode = format!("{spec}.completionMode");
    check_one_of(obj, &mode, &mode, &["Indexed", "NonIndexed"], causes);
    let completions = format!("{spec}.completions");
    if text(obj, &mode) == "Indexed" && at(obj, &completions).is_none() {
        let detail = "a Job with completion mode Indexed counts its completions";
        causes.push(Cause::required(completions, detail));
    }
    check_job_policy(obj, template, causes);
}

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// A new job selects its own pods by its uid, unless its maker wants to select by hand; the labels
/// before the prefixed ones are for clients that know no others.
pub(super) fn job_identity(obj: &mut Value) {
    let uid = text(obj, "metadata.uid").to_owned();
    if uid.is_empty() || is_true(obj, "spec.manualSelector") {
        return;
    }
    let name = text(obj, "metadata.name").to_owned();
    let marks = [
        ("controller-uid", &uid),
        (CONTROLLER_UID, &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
    ];
    if let Some(labels) = object_mut(obj, "spec.template.metadata.labels") {
        for (key, value) in marks {
            labels.entry(key).or_insert_with(|| value.as_str().into());
        }
    }
    if let Some(selected) = object_mut(obj, "spec.selector.matchLabels") {
        selected.entry(CONTROLLER_UID).or_insert_with(|| uid.into());
    }
    if members(obj, "metadata.labels").next().is_none()
        && let Some(labels) = at(obj, "spec.template.metadata.labels").cloned()
    {
        set(obj, "metadata.labels", labels);
    }
}

/// Labels of another job's pods would make this one select them.
fn check_job_identity(obj: &Value, causes: &mut Vec<Cause>) {
    let uid = text(obj, "metadata.uid");
    if uid.is_empty() || is_true(obj, "spec.manualSelector") {
        return;
    }
    for path in ["spec.template.metadata.labels", "spec.selector.matchLabels"] {
        let label = at(obj, path).and_then(|labels| labels.get(CONTROLLER_UID));
        if label.is_some_and(|label| label != uid) {
            let value = label.unwrap_or(&Value::Null);
            causes.push(Cause::invalid(path, value, &format!("{CONTROLLER_UID} must be '{uid}'")));
        }
    }
}

pub(super) fn check_update(kind: &str, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    match kind {
        "CronJob" => {}
        "Job" => {
            for path in ["spec.selector", "spec.completionMode", "spec.backoffLimitPerIndex"] {
                check_immutable(old, new, path, causes);
            }
            // Before it has ever run, a suspended Job can still be fitted to its nodes.
            let unstarted = at(old, "spec.suspend") == Some(&json!(true))
                && at(old, "status.startTime").is_none();
            if !unstarted {
                check_immutable(old, new, "spec.template", causes);
            }
            // Completions follow parallelism where both count alike.
            let elastic = text(new, "spec.completionMode") == "Indexed"
                && at(new, "spec.completions") == at(new, "spec.parallelism");
            if !elastic {
                check_immutable(old, new, "spec.completions", causes);
            }
        }
        "StatefulSet" => {
            const MAY_CHANGE: [&str; 7] = [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
                "revisionHistoryLimit",
            ];
            let mut settled = new.clone();
            for member in MAY_CHANGE {
                keep(old, &mut settled, &format!("spec.{member}"));
            }
            if at(&settled, "spec") != at(old, "spec") {
                let all = MAY_CHANGE.map(|member| format!("'{member}'")).join(", ");
                let detail = format!("only {all} of a StatefulSet's spec may change");
                causes.push(Cause::forbidden("spec", &detail));
            }
        }
        _ => check_immutable(old, new, "spec.selector", causes),
    }
}
