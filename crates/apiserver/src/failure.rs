//! Every rejection of the server as one value, drawn as the `Status` object clients parse.
//!
//! Owns: codes, reasons, texts and `details` of errors. Never: decides whether something is wrong.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use objects::cause::Cause;
use serde_json::{Map, Value, json};

use crate::set_member;

/// Who an error is about: `widgets.example.com "a"` in texts, `details` in the body.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    pub group: String,
    /// Plural resource, or the Kind for `Invalid` errors.
    pub resource: String,
    pub name: String,
}

impl Subject {
    pub fn new(group: &str, resource: &str, name: &str) -> Self {
        Self { group: group.to_owned(), resource: resource.to_owned(), name: name.to_owned() }
    }

    /// `plural` or `plural.group`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

/// A refused request. Boxed, because every function of the server may return one.
#[derive(Debug, Clone)]
pub struct Failure(Box<Rejection>);

#[derive(Debug, Clone)]
struct Rejection {
    code: StatusCode,
    reason: &'static str,
    message: String,
    subject: Option<Subject>,
    causes: Vec<Value>,
    retry_after_seconds: Option<u32>,
    /// `metadata.continue` of an expired list.
    continue_token: Option<String>,
}

impl Failure {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Rejection {
            code,
            reason,
            message: message.into(),
            subject: None,
            causes: Vec::new(),
            retry_after_seconds: None,
            continue_token: None,
        }))
    }

    pub fn code(&self) -> StatusCode {
        self.0.code
    }

    pub fn is_already_exists(&self) -> bool {
        self.0.reason == "AlreadyExists"
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    #[must_use]
    pub fn about(mut self, subject: Subject) -> Self {
        self.0.subject = Some(subject);
        self
    }

    fn cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = json!({"reason": reason, "message": message});
        if !field.is_empty() {
            set_member(&mut cause, "field", field.into());
        }
        self.0.causes.push(cause);
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    pub fn namespace_terminating(subject: Subject, namespace: &str) -> Self {
        let text = format!(
            "{} {:?} is forbidden: unable to create new content in namespace {namespace} because \
             it is being terminated",
            subject.qualified(),
            subject.name
        );
        let cause = format!("namespace {namespace} is being terminated");
        Self::forbidden(text).about(subject).cause(
            "NamespaceTerminating",
            &cause,
            "metadata.namespace",
        )
    }

    pub fn not_found(subject: Subject) -> Self {
        let text = format!("{} {:?} not found", subject.qualified(), subject.name);
        Self::new(StatusCode::NOT_FOUND, "NotFound", text).about(subject)
    }

    pub fn no_such_path() -> Self {
        let text = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", text)
    }

    pub fn method_not_allowed(verb: &str, group: &str, resource: &str) -> Self {
        let subject = Subject::new(group, resource, "");
        let text =
            format!("{verb} is not supported on resources of kind {:?}", subject.qualified());
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", text).about(subject)
    }

    pub fn not_acceptable(offered: &str) -> Self {
        let text =
            format!("only the following media types are accepted as an answer here: {offered}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", text)
    }

    pub fn unsupported_media_type(accepted: &str) -> Self {
        let text = format!(
            "the body of the request was in an unknown format - accepted media types include: \
             {accepted}"
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", text)
    }

    pub fn already_exists(subject: Subject, being_deleted: bool) -> Self {
        let text = if being_deleted {
            format!(
                "object is being deleted: {} {:?} already exists",
                subject.qualified(),
                subject.name
            )
        } else {
            format!("{} {:?} already exists", subject.qualified(), subject.name)
        };
        Self::new(StatusCode::CONFLICT, "AlreadyExists", text).about(subject)
    }

    pub fn conflict(subject: Subject, why: &str) -> Self {
        let text = format!(
            "Operation cannot be fulfilled on {} {:?}: {why}",
            subject.qualified(),
            subject.name
        );
        Self::new(StatusCode::CONFLICT, "Conflict", text).about(subject)
    }

    pub fn stale(subject: Subject) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and \
             try again",
        )
    }

    /// Server-side apply found fields owned by others: (field, message) each.
    pub fn apply_conflict(message: String, conflicts: &[(String, String)]) -> Self {
        let mut failure = Self::new(StatusCode::CONFLICT, "Conflict", message);
        for (field, text) in conflicts {
            failure = failure.cause("FieldManagerConflict", text, field);
        }
        failure
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    #[must_use]
    pub fn with_continue(mut self, token: String) -> Self {
        self.0.continue_token = Some(token);
        self
    }

    pub fn too_large(limit_bytes: usize) -> Self {
        let text = format!("the request body is larger than the limit of {limit_bytes} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", text)
    }

    /// The object breaks rules; `subject.resource` is the Kind here.
    pub fn invalid(subject: Subject, causes: &[Cause]) -> Self {
        let texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let text = format!("{} {:?} is invalid: {list}", subject.qualified(), subject.name);
        let mut failure =
            Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text).about(subject);
        for one in causes {
            failure = failure.cause(one.reason.as_str(), &one.message, &one.field);
        }
        failure
    }

    /// A 422 that is not about a field: a patch that does not fit, options that contradict.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut failure =
            Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message.into());
        failure.0.retry_after_seconds = Some(retry_after_seconds);
        failure
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        let mut failure = Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message);
        failure.0.retry_after_seconds = Some(1);
        failure
    }

    /// The disk is full. Without a time to come again: clients would wait for it, again and again
    /// and in silence, where somebody has to free space.
    pub fn storage_full() -> Self {
        Self::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "InsufficientStorage",
            "the disk under the data directory is full: nothing was written; delete objects or \
             free some space, and try again",
        )
    }

    /// There is space on the disk, but no more of it is for objects.
    pub fn quota_used_up(limit: &str) -> Self {
        let text = format!("{limit}: nothing was written; delete objects, and try again");
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", text)
    }

    pub fn is_storage_full(&self) -> bool {
        self.0.code == StatusCode::INSUFFICIENT_STORAGE
    }

    pub fn revision_in_the_future(asked: u64, current: u64) -> Self {
        let text = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut failure = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", text).cause(
            "ResourceVersionTooLarge",
            "Too large resource version",
            "",
        );
        failure.0.retry_after_seconds = Some(1);
        failure
    }

    /// The `Status` object.
    pub fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.0.continue_token {
            metadata.insert("continue".into(), token.clone().into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.0.message,
            "reason": self.0.reason,
            "code": self.0.code.as_u16(),
        });
        if let Some(details) = self.details() {
            set_member(&mut status, "details", details);
        }
        status
    }

    fn details(&self) -> Option<Value> {
        let mut details = Map::new();
        if let Some(subject) = &self.0.subject {
            let members =
                [("name", &subject.name), ("group", &subject.group), ("kind", &subject.resource)];
            for (member, value) in members {
                if !value.is_empty() {
                    details.insert(member.into(), value.clone().into());
                }
            }
        }
        if !self.0.causes.is_empty() {
            details.insert("causes".into(), self.0.causes.clone().into());
        }
        if let Some(seconds) = self.0.retry_after_seconds {
            details.insert("retryAfterSeconds".into(), seconds.into());
        }
        (!details.is_empty()).then(|| details.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (
            self.0.code,
            [
                (header::CONTENT_TYPE, "application/json"),
                (header::CACHE_CONTROL, "no-cache, private"),
            ],
            self.to_value().to_string(),
        )
            .into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.0.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.code == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"holdfast\""),
            );
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_name_the_group_only_when_there_is_one() {
        let core = Failure::not_found(Subject::new("", "configmaps", "a")).to_value();
        assert_eq!(core["message"], "configmaps \"a\" not found");
        assert_eq!(core["details"], json!({"name": "a", "kind": "configmaps"}));
        let custom = Failure::not_found(Subject::new("x.io", "widgets", "a")).to_value();
        assert_eq!(custom["message"], "widgets.x.io \"a\" not found");
        assert_eq!(custom["details"]["group"], "x.io");
    }

    #[test]
    fn several_causes_are_listed_in_brackets() {
        let causes = [Cause::required("spec", ""), Cause::required("kind", "")];
        let failure = Failure::invalid(Subject::new("x.io", "Widget", "a"), &causes);
        assert_eq!(
            failure.message(),
            "Widget.x.io \"a\" is invalid: [spec: Required value, kind: Required value]"
        );
    }
}
