//! Rules of the reviews: questions that are answered and never stored.

use serde_json::Value;

use crate::access::{at, integer, list, text};
use crate::cause::Cause;

/// Shortest life of a requested token, in seconds.
pub const TOKEN_MIN_SECONDS: i64 = 600;
/// Longest life of a requested token, in seconds.
const TOKEN_MAX_SECONDS: i64 = 1 << 32;

pub(super) fn check(kind: &str, obj: &Value, causes: &mut Vec<Cause>) {
    match kind {
        "SelfSubjectAccessReview" => check_attributes(obj, causes),
        "SubjectAccessReview" => {
            check_attributes(obj, causes);
            check_subject(obj, causes);
        }
        "LocalSubjectAccessReview" => {
            check_attributes(obj, causes);
            check_subject(obj, causes);
            check_local(obj, causes);
        }
        "TokenReview" if text(obj, "spec.token").is_empty() => {
            causes.push(Cause::required("spec.token", "a token must be given"));
        }
        _ => {}
    }
}

/// Checks the body of `serviceaccounts/NAME/token`.
pub fn validate_token_request(obj: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let field = "spec.expirationSeconds";
    if let Some(seconds) = integer(obj, field) {
        if seconds < TOKEN_MIN_SECONDS {
            let detail = "must be 600 or more";
            causes.push(Cause::invalid(field, &seconds.into(), detail));
        }
        if seconds > TOKEN_MAX_SECONDS {
            let detail = "must be 4294967296 or less";
            causes.push(Cause::invalid(field, &seconds.into(), detail));
        }
    }
    causes
}

fn check_attributes(obj: &Value, causes: &mut Vec<Cause>) {
    let resource = at(obj, "spec.resourceAttributes");
    let path = at(obj, "spec.nonResourceAttributes");
    match (resource, path) {
        (Some(_), Some(given)) => {
            let detail = "excludes resourceAttributes";
            causes.push(Cause::invalid("spec.nonResourceAttributes", given, detail));
        }
        (None, None) => {
            let detail = "either this or nonResourceAttributes must be given";
            let nothing = Value::Null;
            causes.push(Cause::invalid("spec.resourceAttributes", &nothing, detail));
        }
        _ => {}
    }
}

fn check_subject(obj: &Value, causes: &mut Vec<Cause>) {
    if text(obj, "spec.user").is_empty() && list(obj, "spec.groups").is_empty() {
        let detail = "user or groups must be given";
        causes.push(Cause::invalid("spec.user", &"".into(), detail));
    }
}

/// A local review asks about its own namespace only.
fn check_local(obj: &Value, causes: &mut Vec<Cause>) {
    let namespace = text(obj, "metadata.namespace");
    let asked = text(obj, "spec.resourceAttributes.namespace");
    if asked != namespace {
        let field = "spec.resourceAttributes.namespace";
        let detail = format!("must match metadata.namespace {namespace:?}");
        causes.push(Cause::invalid(field, &asked.into(), &detail));
    }
    if at(obj, "spec.nonResourceAttributes").is_some() {
        let detail = "a local review asks about resources";
        causes.push(Cause::forbidden("spec.nonResourceAttributes", detail));
    }
}
