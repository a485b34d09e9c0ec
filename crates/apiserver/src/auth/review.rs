//! The review APIs: questions about identity and rights, answered and never stored.
//!
//! Each function takes the request body and gives the `status` to put into it, or the causes of a
//! 422. Reading the body is lenient about missing parts and strict about wrong types.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use objects::cause::{Cause, Reason};
use serde_json::{Map, Value, json};

use super::authenticator::Authenticator;
use super::rbac::{Attributes, Decision, RbacIndex};
use super::service_account::{BoundKind, MAX_LIFETIME_S, ObjectRef};
use super::user::User;

const ONE_OF: &str = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
const DEFAULT_LIFETIME_S: i64 = 3600;
const MIN_LIFETIME_S: i64 = 600;
/// Longest token a `TokenReview` may ask about.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// Most groups that an access review may ask about.
const MAX_GROUPS: usize = 10_000;

type Causes = Vec<Cause>;

/// `SelfSubjectAccessReview`: may I?
pub fn self_subject_access(body: &Value, user: &User, index: &RbacIndex) -> Result<Value, Causes> {
    let spec = spec(body)?;
    let question = Question::parse(spec)?;
    Ok(access_status(&index.authorize(&question.attributes(user))))
}

/// `SubjectAccessReview`: may they?
pub fn subject_access(body: &Value, index: &RbacIndex) -> Result<Value, Causes> {
    let spec = spec(body)?;
    let question = Question::parse(spec);
    let user = subject(spec);
    let (question, user) = both(question, user)?;
    Ok(access_status(&index.authorize(&question.attributes(&user))))
}

/// `LocalSubjectAccessReview`: may they, in this namespace?
pub fn local_subject_access(
    body: &Value,
    namespace: &str,
    index: &RbacIndex,
) -> Result<Value, Causes> {
    let spec = spec(body)?;
    if spec.get("nonResourceAttributes").is_some_and(|it| !it.is_null()) {
        let text = "disallowed on this kind of request";
        return Err(vec![Cause::invalid(
            "spec.nonResourceAttributes",
            spec.get("nonResourceAttributes").unwrap_or(&Value::Null),
            text,
        )]);
    }
    let (question, user) = both(Question::parse(spec), subject(spec))?;
    let asked = question.text("namespace");
    if asked != namespace {
        return Err(vec![Cause::invalid(
            "spec.resourceAttributes.namespace",
            &json!(asked),
            "must match metadata.namespace",
        )]);
    }
    Ok(access_status(&index.authorize(&question.attributes(&user))))
}

/// `SelfSubjectRulesReview`: what may I do in this namespace?
pub fn self_subject_rules(body: &Value, user: &User, index: &RbacIndex) -> Result<Value, Causes> {
    let namespace = text(spec(body)?, "spec", "namespace")?;
    if namespace.is_empty() {
        return Err(vec![Cause::required("spec.namespace", "a namespace must be given")]);
    }
    let rules = index.rules_for(user, &namespace);
    Ok(json!({
        "resourceRules": rules.resource,
        "nonResourceRules": rules.non_resource,
        "incomplete": !rules.is_whole,
    }))
}

/// `SelfSubjectReview`: who am I?
pub fn self_subject(user: &User) -> Value {
    json!({ "userInfo": user.to_json() })
}

/// `TokenReview`: whose token is this?
pub fn token(body: &Value, authenticator: &Authenticator, now: Timestamp) -> Result<Value, Causes> {
    let spec = spec(body)?;
    let token = text(spec, "spec", "token")?;
    if token.is_empty() {
        return Err(vec![Cause::required("spec.token", "a token must be given")]);
    }
    if token.len() > MAX_TOKEN_BYTES {
        return Err(vec![Cause::new(Reason::TooLong, "spec.token", "Too long")]);
    }
    let audiences = texts(spec, "spec", "audiences")?;
    Ok(match authenticator.authenticate_token(&token, &audiences, now) {
        Ok(accepted) => json!({
            "authenticated": true,
            "user": accepted.user.to_json(),
            "audiences": accepted.audiences,
        }),
        Err(refused) => json!({
            "authenticated": false,
            "user": {},
            "error": refused.cause.to_string(),
        }),
    })
}

/// What a `TokenRequest` asks for, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRequest {
    pub audiences: Vec<String>,
    pub lifetime_s: i64,
    /// The uid may be empty: then it is that of the object as it is now.
    pub bound: Option<(BoundKind, ObjectRef)>,
}

impl TokenRequest {
    /// Reads the body of `POST …/serviceaccounts/NAME/token`.
    pub fn parse(body: &Value) -> Result<Self, Causes> {
        let spec = spec(body)?;
        let audiences = texts(spec, "spec", "audiences")?;
        let lifetime_s = match spec.get("expirationSeconds").filter(|it| !it.is_null()) {
            None => DEFAULT_LIFETIME_S,
            Some(value) => lifetime(value)?,
        };
        let bound = match spec.get("boundObjectRef").filter(|it| !it.is_null()) {
            None => None,
            Some(reference) => Some(bound(reference)?),
        };
        Ok(Self { audiences, lifetime_s, bound })
    }
}

fn lifetime(value: &Value) -> Result<i64, Causes> {
    const FIELD: &str = "spec.expirationSeconds";
    let seconds = value.as_i64().ok_or_else(|| vec![wrong_type(FIELD, "an integer")])?;
    if seconds < MIN_LIFETIME_S {
        let text = "may not specify a duration less than 10 minutes";
        return Err(vec![Cause::invalid(FIELD, value, text)]);
    }
    if seconds > 1 << 32 {
        let text = "may not specify a duration larger than 2^32 seconds";
        return Err(vec![Cause::invalid(FIELD, value, text)]);
    }
    Ok(seconds.min(MAX_LIFETIME_S))
}

fn bound(reference: &Value) -> Result<(BoundKind, ObjectRef), Causes> {
    const FIELD: &str = "spec.boundObjectRef";
    let kind = text(reference, FIELD, "kind")?;
    let name = text(reference, FIELD, "name")?;
    let uid = text(reference, FIELD, "uid")?;
    if name.is_empty() {
        return Err(vec![Cause::required(format!("{FIELD}.name"), "")]);
    }
    let kind = BoundKind::parse(&kind).ok_or_else(|| {
        vec![Cause::not_supported(
            format!("{FIELD}.kind"),
            &json!(kind),
            &["Pod", "Secret", "Node"],
        )]
    })?;
    Ok((kind, ObjectRef { name, uid }))
}

/// The resource or the path an access review asks about.
struct Question {
    is_path: bool,
    texts: BTreeMap<&'static str, String>,
}

impl Question {
    fn parse(spec: &Value) -> Result<Self, Causes> {
        let part = |key| spec.get(key).filter(|it| !it.is_null());
        let (is_path, field, keys, value): (_, _, &[&'static str], _) =
            match (part("resourceAttributes"), part("nonResourceAttributes")) {
                (Some(value), None) => (
                    false,
                    "spec.resourceAttributes",
                    &["namespace", "verb", "group", "resource", "subresource", "name"],
                    value,
                ),
                (None, Some(value)) => {
                    (true, "spec.nonResourceAttributes", &["path", "verb"], value)
                }
                _ => {
                    let value = part("resourceAttributes").unwrap_or(&Value::Null);
                    return Err(vec![Cause::invalid("spec.resourceAttributes", value, ONE_OF)]);
                }
            };
        let mut found = BTreeMap::new();
        for key in keys {
            found.insert(*key, text(value, field, key)?);
        }
        Ok(Self { is_path, texts: found })
    }

    fn text(&self, key: &str) -> &str {
        self.texts.get(key).map(String::as_str).unwrap_or_default()
    }

    fn attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        Attributes {
            user,
            verb: self.text("verb"),
            group: self.text("group"),
            resource: self.text("resource"),
            subresource: self.text("subresource"),
            namespace: self.text("namespace"),
            name: self.text("name"),
            path: self.is_path.then(|| self.text("path")),
        }
    }
}

/// The user an access review asks about: exactly as given, no group is added.
fn subject(spec: &Value) -> Result<User, Causes> {
    let name = text(spec, "spec", "user")?;
    let groups = groups(spec)?;
    if name.is_empty() && groups.is_empty() {
        let text = "at least one of user or group must be specified";
        return Err(vec![Cause::invalid("spec.user", &json!(""), text)]);
    }
    let uid = text(spec, "spec", "uid")?;
    let mut extra = BTreeMap::new();
    match spec.get("extra") {
        None | Some(Value::Null) => {}
        Some(values @ Value::Object(keys)) => {
            for key in keys.keys() {
                extra.insert(key.clone(), texts(values, "spec.extra", key)?);
            }
        }
        Some(_) => return Err(vec![wrong_type("spec.extra", "an object")]),
    }
    Ok(User { name, uid, groups, extra })
}

/// Each once: every one of them is looked up among the bindings, for as long as no right can change.
fn groups(spec: &Value) -> Result<Vec<String>, Causes> {
    let mut groups = texts(spec, "spec", "groups")?;
    let mut seen = HashSet::new();
    groups.retain(|group| seen.insert(group.clone()));
    if groups.len() > MAX_GROUPS {
        let text = format!("must have at most {MAX_GROUPS} items");
        return Err(vec![Cause::new(Reason::TooMany, "spec.groups", text)]);
    }
    Ok(groups)
}

fn access_status(decision: &Decision) -> Value {
    let mut status = Map::new();
    status.insert("allowed".to_owned(), json!(decision.allowed));
    if !decision.reason.is_empty() {
        status.insert("reason".to_owned(), json!(decision.reason));
    }
    Value::Object(status)
}

fn both<A, B>(a: Result<A, Causes>, b: Result<B, Causes>) -> Result<(A, B), Causes> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(mut a), Err(b)) => {
            a.extend(b);
            Err(a)
        }
        (Err(causes), Ok(_)) | (Ok(_), Err(causes)) => Err(causes),
    }
}

/// `spec`, where a missing one is an empty one.
fn spec(body: &Value) -> Result<&Value, Causes> {
    match body.get("spec") {
        None | Some(Value::Null) => Ok(&Value::Null),
        Some(spec @ Value::Object(_)) => Ok(spec),
        Some(_) => Err(vec![wrong_type("spec", "an object")]),
    }
}

fn text(parent: &Value, field: &str, key: &str) -> Result<String, Causes> {
    match parent.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(vec![wrong_type(&format!("{field}.{key}"), "a string")]),
    }
}

fn texts(parent: &Value, field: &str, key: &str) -> Result<Vec<String>, Causes> {
    let wrong = || vec![wrong_type(&format!("{field}.{key}"), "a list of strings")];
    let list = match parent.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(list) => list.as_array().ok_or_else(wrong)?,
    };
    list.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn wrong_type(field: &str, wanted: &str) -> Cause {
    Cause::new(Reason::TypeInvalid, field, format!("Invalid value: must be {wanted}"))
}

#[cfg(test)]
mod tests;
