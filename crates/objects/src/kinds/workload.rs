//! Rules of the kinds in `apps` and `batch`: all of them hold a pod template. They are data here:
//! nothing acts on them.
//!
//! Owns: defaults, selectors against templates, and what stays once made.

use serde_json::{Value, json};

use super::selector::selects;
use super::{check_immutable, check_one_of, pod, storage};
use crate::access::{at, integer, list, list_mut, members, set_default, text};
use crate::cause::Cause;
use crate::meta::check_labels;

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
    for member in ["replicas", "revisionHistoryLimit", "minReadySeconds"] {
        let field = format!("spec.{member}");
        if let Some(number) = integer(obj, &field).filter(|number| *number < 0) {
            causes.push(Cause::invalid(
                field,
                &number.into(),
                "must be greater than or equal to 0",
            ));
        }
    }
    let template = template_path(kind);
    check_labels(
        at(obj, &format!("{template}.metadata.labels")),
        &format!("{template}.metadata.labels"),
        causes,
    );
    pod::check(at(obj, &format!("{template}.spec")), &format!("{template}.spec"), causes);
    match kind {
        "Job" => check_job_policy(obj, template, causes),
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
    let recreate = text(obj, "spec.strategy.type") == "Recreate";
    if recreate && at(obj, "spec.strategy.rollingUpdate").is_some() {
        let detail = "has no meaning for a strategy of type Recreate";
        causes.push(Cause::forbidden("spec.strategy.rollingUpdate", detail));
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
    if text(obj, "spec.schedule").is_empty() {
        causes.push(Cause::required("spec.schedule", ""));
    }
    let policies = &["Allow", "Forbid", "Replace"];
    check_one_of(obj, "spec.concurrencyPolicy", "spec.concurrencyPolicy", policies, causes);
    check_job_policy(obj, template, causes);
}

pub(super) fn check_update(kind: &str, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    match kind {
        "CronJob" => {}
        "Job" => {
            for path in ["spec.selector", "spec.template", "spec.completionMode"] {
                check_immutable(old, new, path, causes);
            }
        }
        "StatefulSet" => {
            check_immutable(old, new, "spec.selector", causes);
            let fixed =
                ["spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates"];
            if fixed.iter().any(|path| at(old, path) != at(new, path)) {
                let detail = "serviceName, podManagementPolicy and volumeClaimTemplates of a \
                              StatefulSet cannot change";
                causes.push(Cause::forbidden("spec", detail));
            }
        }
        _ => check_immutable(old, new, "spec.selector", causes),
    }
}
