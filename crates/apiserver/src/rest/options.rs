//! Query options of writes and deletes, checked before anything is done.

use http::{HeaderMap, header};
use objects::cause::{Cause, Reason};
use serde_json::Value;

use crate::failure::{Failure, Subject};
use crate::request::Query;

/// What to do with members a type does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Strict,
    Warn,
    Ignore,
}

/// Options of create, update and patch.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub validation: FieldValidation,
    /// Who owns the fields this write sets.
    pub manager: String,
    /// The `fieldManager` parameter was given; apply insists on it.
    pub manager_given: bool,
    pub force: Option<bool>,
}

const MAX_MANAGER_BYTES: usize = 128;

impl WriteOptions {
    /// `kind` is what these options are called in a rejection.
    pub(crate) fn parse(kind: &str, query: &Query, headers: &HeaderMap) -> Result<Self, Failure> {
        let validation = match query.get("fieldValidation") {
            Some("Strict") => FieldValidation::Strict,
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some(other) => {
                let all = ["Ignore", "Strict", "Warn"];
                let cause = Cause::not_supported("fieldValidation", &other.into(), &all);
                return Err(invalid_options(kind, &[cause]));
            }
        };
        let force = query.choice("force");
        let given = query.get("fieldManager").filter(|manager| !manager.is_empty());
        if let Some(manager) = given {
            check_manager(kind, manager)?;
        }
        Ok(Self {
            dry_run: dry_run(kind, query.all("dryRun"))?,
            validation,
            manager: given.map_or_else(|| manager_of_agent(headers), str::to_owned),
            manager_given: given.is_some(),
            force,
        })
    }
}

fn check_manager(kind: &str, manager: &str) -> Result<(), Failure> {
    let detail = if manager.len() > MAX_MANAGER_BYTES {
        "may not be more than 128 bytes"
    } else if manager.chars().any(char::is_control) {
        "must be printable"
    } else {
        return Ok(());
    };
    let cause = Cause::invalid("fieldManager", &manager.into(), detail);
    Err(invalid_options(kind, &[cause]))
}

/// Writers that do not name themselves are known by their User-Agent up to the first slash.
fn manager_of_agent(headers: &HeaderMap) -> String {
    let agent = headers
        .get(header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .and_then(|agent| agent.split('/').next())
        .filter(|name| !name.is_empty())
        .unwrap_or("unknown");
    agent.chars().take(MAX_MANAGER_BYTES).collect()
}

fn dry_run<'a>(kind: &str, values: impl Iterator<Item = &'a str>) -> Result<bool, Failure> {
    let mut dry = false;
    for value in values {
        if value != "All" {
            let cause = Cause::not_supported("dryRun", &value.into(), &["All"]);
            return Err(invalid_options(kind, &[cause]));
        }
        dry = true;
    }
    Ok(dry)
}

pub(crate) fn invalid_options(kind: &str, causes: &[Cause]) -> Failure {
    Failure::invalid(Subject::new("meta.k8s.io", kind, ""), causes)
}

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Orphan,
    Background,
    Foreground,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub dry_run: bool,
    pub propagation: Option<Propagation>,
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// The body, which is of that type, wins over the query where both speak.
    pub(crate) fn parse(query: &Query, body: &Value) -> Result<Self, Failure> {
        let text = |member: &str| body.get(member).and_then(Value::as_str).map(str::to_owned);
        let in_body = body.get("dryRun").and_then(Value::as_array).into_iter().flatten();
        let values = in_body.filter_map(Value::as_str).chain(query.all("dryRun"));
        let dry = dry_run("DeleteOptions", values)?;
        let orphan = body.get("orphanDependents").and_then(Value::as_bool);
        let grace = query.integer("gracePeriodSeconds")?;
        let policy =
            text("propagationPolicy").or_else(|| query.get("propagationPolicy").map(str::to_owned));
        let precondition = |member: &str| {
            body.pointer(&format!("/preconditions/{member}"))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        Ok(Self {
            dry_run: dry,
            propagation: propagation(
                policy.as_deref(),
                orphan.or_else(|| query.choice("orphanDependents")),
            )?,
            grace_period_seconds: body.get("gracePeriodSeconds").and_then(Value::as_i64).or(grace),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
        })
    }
}

fn propagation(policy: Option<&str>, orphan: Option<bool>) -> Result<Option<Propagation>, Failure> {
    let refuse = |cause: Cause| Err(invalid_options("DeleteOptions", &[cause]));
    match (policy.filter(|policy| !policy.is_empty()), orphan) {
        (Some(policy), Some(_)) => refuse(Cause::new(
            Reason::Invalid,
            "propagationPolicy",
            format!("Invalid value: {policy:?}: give either orphanDependents or this, not both"),
        )),
        (Some("Orphan"), None) | (None, Some(true)) => Ok(Some(Propagation::Orphan)),
        (Some("Background"), None) | (None, Some(false)) => Ok(Some(Propagation::Background)),
        (Some("Foreground"), None) => Ok(Some(Propagation::Foreground)),
        (Some(other), None) => refuse(Cause::not_supported(
            "propagationPolicy",
            &other.into(),
            &["Foreground", "Background", "Orphan"],
        )),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_policy_beside_orphan_dependents_is_refused() {
        let body = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
        assert!(DeleteOptions::parse(&Query::default(), &body).is_err());
        let body = json!({"propagationPolicy": "Sideways"});
        assert!(DeleteOptions::parse(&Query::default(), &body).is_err());
    }

    #[test]
    fn options_come_from_the_query_too() {
        let query = Query::parse("propagationPolicy=Foreground&dryRun=All&gracePeriodSeconds=0");
        let options = DeleteOptions::parse(&query, &Value::Null).unwrap();
        assert_eq!(options.propagation, Some(Propagation::Foreground));
        assert!(options.dry_run);
        assert_eq!(options.grace_period_seconds, Some(0));
    }

    #[test]
    fn the_manager_is_the_agent_when_none_is_named() {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, "kubectl/v1.32 (linux)".parse().unwrap());
        let parse = |query: &Query| WriteOptions::parse("UpdateOptions", query, &headers);
        assert_eq!(parse(&Query::default()).unwrap().manager, "kubectl");
        assert_eq!(parse(&Query::parse("fieldManager=")).unwrap().manager, "kubectl");
        assert!(parse(&Query::parse("dryRun=Some")).is_err());
    }
}
