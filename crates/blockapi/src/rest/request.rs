//! A request as handlers see it, and their replies.

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::Serialize;
use serde_json::Value;

use super::fault::Fault;
use super::version::Version;
use crate::auth::Caller;

/// A request under `/v3`, its caller known.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Path after `/v3` and the project.
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Bytes,
    pub(crate) headers: HeaderMap,
    pub(crate) version: Version,
    pub(crate) caller: Caller,
    /// `req-…`
    pub(crate) id: String,
    pub(crate) links: Links,
    /// An operator chose not to show failed backups to clients of this version.
    pub(crate) hides_backup_error: bool,
}

/// How links in bodies begin.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    /// Scheme, host and prefix, without a slash at the end.
    pub(crate) base: String,
    /// The project, if the request's own address had it.
    pub(crate) project: Option<String>,
}

/// One of a resource's addresses.
#[derive(Debug, Serialize)]
pub(crate) struct Link {
    rel: &'static str,
    href: String,
}

impl Links {
    fn join(&self, version: &str, collection: &str, id: &str) -> String {
        let (slash, project) = self.project.as_ref().map_or(("", ""), |it| ("/", it));
        format!("{}{version}{slash}{project}/{collection}/{id}", self.base)
    }

    pub(crate) fn pair(&self, collection: &str, id: &str) -> [Link; 2] {
        [("self", "/v3"), ("bookmark", "")]
            .map(|(rel, version)| Link { rel, href: self.join(version, collection, id) })
    }

    pub(crate) fn of(&self, collection: &str, id: &str) -> Value {
        serde_json::json!(self.pair(collection, id))
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        let project = self.project.as_ref().map(|it| format!("/{it}")).unwrap_or_default();
        format!("{}/v3{project}/{rest}", self.base)
    }
}

impl Request {
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn param_truth(&self, name: &str) -> Result<bool, Fault> {
        match self.param(name) {
            None => Ok(false),
            Some(text) => truth(text).ok_or_else(|| {
                Fault::bad(format!("Invalid value for query parameter {name}: {text}"))
            }),
        }
    }

    /// The body as a JSON object.
    pub(crate) fn json(&self) -> Result<serde_json::Map<String, Value>, Fault> {
        let kind = self.headers.get(http::header::CONTENT_TYPE);
        let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or("application/json");
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.is_empty() && !kind.eq_ignore_ascii_case("application/json") {
            return Err(Fault::new(415, "Unsupported Content-Type"));
        }
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(body)) => Ok(body),
            Ok(_) | Err(_) => Err(Fault::malformed()),
        }
    }

    /// Refused below a microversion as if it did not exist.
    pub(crate) fn since(&self, minor: u32) -> Result<(), Fault> {
        if self.version.has(minor) { Ok(()) } else { Err(Fault::not_yet()) }
    }

    /// The rows the caller sees.
    pub(crate) fn scope(&self) -> Option<&str> {
        self.caller.scope()
    }
}

/// Truths and untruths as text.
pub(crate) fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "t" | "yes" | "y" | "on" => Some(true),
        "false" | "0" | "f" | "no" | "n" | "off" => Some(false),
        _ => None,
    }
}

/// What a request ends in.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    /// As JSON.
    pub(crate) body: Option<String>,
    pub(crate) etag: Option<String>,
}

impl Reply {
    pub(crate) fn new(code: u16, body: &Value) -> Self {
        Self { code, body: Some(body.to_string()), etag: None }
    }

    /// What is shown often is written as it is, without a value in between.
    pub(crate) fn written(code: u16, body: &impl Serialize) -> Answer {
        let body = serde_json::to_string(body).map_err(|_| Fault::internal())?;
        Ok(Self { code, body: Some(body), etag: None })
    }

    #[expect(clippy::needless_pass_by_value, reason = "bodies are made for it")]
    pub(crate) fn ok(body: Value) -> Self {
        Self::new(200, &body)
    }

    #[expect(clippy::needless_pass_by_value, reason = "bodies are made for it")]
    pub(crate) fn accepted(body: Value) -> Self {
        Self::new(202, &body)
    }

    pub(crate) const fn empty(code: u16) -> Self {
        Self { code, body: None, etag: None }
    }
}

pub(crate) type Answer = Result<Reply, Fault>;
