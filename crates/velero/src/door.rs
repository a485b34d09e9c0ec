//! Any object of the cluster, as a plain document: read, listed page by page, made and changed, with
//! our own rights or with those of somebody else.

use http::{Method, Request};
use kube::Client;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;

use crate::catalog::Kind;

/// Objects of one page of a list, at most and at first.
const PAGE_MAX: usize = 500;
const PAGE_FIRST: usize = 50;
/// About as much as one page should be, as it is sent: it is in memory more than once.
const PAGE_BYTES: usize = 4 << 20;

/// Whose rights a request is made with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    pub(crate) user: String,
    #[serde(default)]
    pub(crate) groups: Vec<String>,
}

impl Identity {
    /// One that cannot be read is nobody's: nothing may be done in its place.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let read: Result<Self, _> = serde_json::from_str(text);
        match read {
            Ok(identity) if !identity.user.is_empty() => Ok(identity),
            Ok(_) => Err("the annotation holdfast.io/run-as names no user".to_owned()),
            Err(error) => Err(format!("the annotation holdfast.io/run-as cannot be read: {error}")),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Door {
    client: Client,
    identity: Option<Identity>,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Door").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// One page, and how to go on.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    pub(crate) next: Option<Next>,
}

/// Where a list goes on, and with how many objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Next {
    token: String,
    limit: usize,
}

/// How many objects to ask for after a page of so many and so long: objects may have a kilobyte or three
/// megabytes, and only the list itself says which.
fn next_limit(items: usize, bytes: usize) -> usize {
    let each = (bytes / items.max(1)).max(1);
    (PAGE_BYTES / each).clamp(1, PAGE_MAX)
}

impl Door {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, identity: None }
    }

    #[must_use]
    pub(crate) fn acting_as(&self, identity: Identity) -> Self {
        Self { client: self.client.clone(), identity: Some(identity) }
    }

    /// `None` where there is no such object.
    pub(crate) async fn get(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, kube::Error> {
        let path = object_path(kind, namespace, name);
        match self.send(Method::GET, &path, None, None).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if code(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        next: Option<&Next>,
    ) -> Result<Page, kube::Error> {
        let limit = next.map_or(PAGE_FIRST, |next| next.limit);
        let mut path = format!("{}?limit={limit}", kind.path(namespace));
        if let Some(next) = next {
            path.push_str("&continue=");
            path.push_str(&encode(&next.token));
        }
        let text = self.client.request_text(self.request(Method::GET, &path, None, None)?).await?;
        let mut list: Value = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        let bytes = text.len();
        drop(text);
        let token = list
            .pointer("/metadata/continue")
            .and_then(Value::as_str)
            .filter(|it| !it.is_empty())
            .map(str::to_owned);
        let mut items = match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        // Items of a list of a built-in kind do not say what they are.
        for item in &mut items {
            if let Some(fields) = item.as_object_mut() {
                fields.insert("apiVersion".to_owned(), Value::String(kind.api_version()));
                fields.insert("kind".to_owned(), Value::String(kind.kind.clone()));
            }
        }
        let limit = next_limit(items.len(), bytes);
        Ok(Page { items, next: token.map(|token| Next { token, limit }) })
    }

    pub(crate) async fn create(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        object: &Value,
    ) -> Result<Value, kube::Error> {
        self.send(Method::POST, &kind.path(namespace), Some(object), None).await
    }

    /// Whether it could be made.
    pub(crate) async fn try_create(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        object: &Value,
    ) -> Result<(), kube::Error> {
        let path = format!("{}?dryRun=All", kind.path(namespace));
        self.send(Method::POST, &path, Some(object), None).await.map(drop)
    }

    /// A merge patch; of the status with `part`.
    pub(crate) async fn merge(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
        part: Option<&str>,
    ) -> Result<Value, kube::Error> {
        let mut place = object_path(kind, namespace, name);
        if let Some(part) = part {
            place.push('/');
            place.push_str(part);
        }
        self.send(Method::PATCH, &place, Some(patch), Some("application/merge-patch+json")).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        content: Option<&str>,
    ) -> Result<Value, kube::Error> {
        self.client.request(self.request(method, path, body, content)?).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        content: Option<&str>,
    ) -> Result<Request<Vec<u8>>, kube::Error> {
        let bytes = match body {
            Some(body) => serde_json::to_vec(body).map_err(kube::Error::SerdeError)?,
            None => Vec::new(),
        };
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("accept", "application/json");
        if body.is_some() {
            request = request.header("content-type", content.unwrap_or("application/json"));
        }
        if let Some(identity) = &self.identity {
            request = request.header("impersonate-user", &identity.user);
            for group in &identity.groups {
                request = request.header("impersonate-group", group);
            }
        }
        request.body(bytes).map_err(kube::Error::HttpError)
    }
}

fn object_path(kind: &Kind, namespace: Option<&str>, name: &str) -> String {
    format!("{}/{}", kind.path(namespace), encode(name))
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The status code of an answer.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// What the server said, or what happened on the way to it.
pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => telemetry::Chain(other).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_large_objects_has_few_of_them() {
        assert_eq!(next_limit(50, 50 << 10), PAGE_MAX);
        assert_eq!(next_limit(50, 50 << 20), 4);
        assert_eq!(next_limit(3, 9 << 20), 1);
        assert_eq!(next_limit(0, 200), PAGE_MAX, "an empty page that has more behind it");
    }

    #[test]
    fn an_identity_is_whole_or_an_error() {
        let groups = vec!["a,system:masters".to_owned()];
        let wanted = Identity { user: "u".to_owned(), groups };
        assert_eq!(Identity::parse(r#"{"user":"u","groups":["a,system:masters"]}"#), Ok(wanted));
        for text in ["", "u", "{}", r#"{"user":""}"#, r#"{"user":"u","group":"g"}"#] {
            assert!(Identity::parse(text).is_err(), "{text}");
        }
    }
}
