//! A server on a temporary directory and a client that speaks to it without a socket.

use std::net::SocketAddr;
use std::time::Duration;

use apiserver::auth::User;
use apiserver::auth::tokens::StaticTokens;
use apiserver::{ApiServer, ClientService, Options};
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// How long something that happens by itself may take.
const TIMEOUT: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(crate) struct World {
    server: ApiServer,
    client: ClientService,
    /// The namespace to work in, and the first part of the API group.
    pub(crate) name: String,
    folder: tempfile::TempDir,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Reply {
    /// The body, if the answer has this code.
    #[track_caller]
    pub(crate) fn is(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        self.body
    }

    /// The message of a rejection.
    #[track_caller]
    pub(crate) fn refused(self, code: u16) -> String {
        let body = self.is(code);
        assert_eq!(body["kind"], "Status", "{body}");
        body["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Reason, field and message of the first cause of a 422.
    #[track_caller]
    pub(crate) fn cause(self) -> (String, String, String) {
        let body = self.is(422);
        let cause = &body["details"]["causes"][0];
        let text = |name: &str| cause[name].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("field"), text("message"))
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            data_dir: folder.path().to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls_sans: Vec::new(),
            tokens: StaticTokens::default(),
            audit: true,
            definitions: Vec::new(),
            services: apiserver::ServiceRanges::default(),
            controllers: Vec::new(),
            near: Vec::new(),
        };
        let mut metrics = telemetry::Registry::new("test");
        let server = ApiServer::start(options, tasks::Tasks::new(), &mut metrics).await.unwrap();
        let client = server.client_service(User::internal("test"));
        let world = Self { server, client, name: "home".to_owned(), folder };
        world.post("/api/v1/namespaces", &json!({"metadata": {"name": world.name}})).await.is(201);
        world
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// The same server as another user.
    pub(crate) fn as_user(&self, name: &str, groups: &[&str]) -> Other {
        let groups = groups.iter().map(|&one| one.to_owned());
        Other(self.server.client_service(User::authenticated(name, "", groups)))
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        send(&self.client, Method::GET, path, &[], None).await
    }

    pub(crate) async fn get_as(&self, accept: &str, path: &str) -> Reply {
        send(&self.client, Method::GET, path, &[("accept", accept)], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        send(&self.client, Method::POST, path, &[], Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Reply {
        send(&self.client, Method::PUT, path, &[], Some(body)).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Reply {
        let form = [("content-type", "application/merge-patch+json")];
        send(&self.client, Method::PATCH, path, &form, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        send(&self.client, Method::DELETE, path, &[], None).await
    }

    pub(crate) async fn impersonate(&self, headers: &[(&str, &str)], path: &str) -> Reply {
        send(&self.client, Method::POST, path, headers, Some(&json!({}))).await
    }

    /// Starts a watch; lines are read one by one.
    pub(crate) async fn watch(&self, path: &str) -> Lines {
        watch(&self.client, path, None).await
    }

    /// By whoever has the token: nothing else says who asks.
    pub(crate) async fn watch_by_token(&self, path: &str, token: &str) -> Lines {
        watch(&self.server.caller_service(), path, Some(token)).await
    }

    pub(crate) async fn get_by_token(&self, path: &str, token: &str) -> Reply {
        let header = format!("Bearer {token}");
        let client = self.server.caller_service();
        send(&client, Method::GET, path, &[("authorization", &header)], None).await
    }

    /// Looks again and again until `done` is content with the answer.
    pub(crate) async fn until(&self, path: &str, done: impl Fn(&Reply) -> bool) -> Value {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let reply = self.get(path).await;
            if done(&reply) {
                return reply.body;
            }
            assert!(tokio::time::Instant::now() < deadline, "{path}: {}", reply.body);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(crate) fn group(&self) -> String {
        format!("{}.test.io", self.name)
    }

    pub(crate) fn objects(&self, version: &str, plural: &str) -> String {
        format!("/apis/{}/{version}/namespaces/{}/{plural}", self.group(), self.name)
    }

    pub(crate) fn core(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.name)
    }

    /// A definition of this world's group with one version and this schema of `spec`.
    pub(crate) fn definition(&self, plural: &str, kind: &str, spec: &Value) -> Value {
        let version = version("v1", true, spec);
        json!({"metadata": {"name": format!("{plural}.{}", self.group())}, "spec": {
            "group": self.group(), "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind}, "versions": [version]}})
    }

    pub(crate) async fn define(&self, plural: &str, kind: &str, spec: &Value) -> Value {
        self.post(DEFINITIONS, &self.definition(plural, kind, spec)).await.is(201)
    }

    pub(crate) fn body(&self, version: &str, kind: &str, name: &str, spec: &Value) -> Value {
        json!({"apiVersion": format!("{}/{version}", self.group()), "kind": kind,
            "metadata": {"name": name}, "spec": spec})
    }
}

/// The world as somebody else sees it.
pub(crate) struct Other(ClientService);

impl Other {
    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Reply {
        send(&self.0, method, path, &[], body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn impersonate(&self, headers: &[(&str, &str)], path: &str) -> Reply {
        send(&self.0, Method::POST, path, headers, Some(&json!({}))).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Lines {
        watch(&self.0, path, None).await
    }

    /// Watches in the name of somebody else.
    pub(crate) async fn watch_acting_as(&self, path: &str, user: &str) -> Lines {
        let request = Request::builder().uri(path).header("impersonate-user", user);
        lines(&self.0, request).await
    }

    /// A write whose body is not there yet: `meanwhile` goes on once the server waits for it.
    pub(crate) async fn post_slowly(
        &self,
        path: &str,
        body: &Value,
        meanwhile: impl Future<Output = ()>,
    ) -> u16 {
        let request = Request::post(path).header("content-type", "application/json");
        self.send_slowly(request, body, meanwhile).await
    }

    pub(crate) async fn apply_slowly(
        &self,
        path: &str,
        body: &Value,
        meanwhile: impl Future<Output = ()>,
    ) -> u16 {
        let request = Request::patch(path).header("content-type", "application/apply-patch+yaml");
        self.send_slowly(request, body, meanwhile).await
    }

    async fn send_slowly(
        &self,
        request: http::request::Builder,
        body: &Value,
        meanwhile: impl Future<Output = ()>,
    ) -> u16 {
        let (tell, told) = tokio::sync::oneshot::channel();
        let (release, released) = tokio::sync::oneshot::channel();
        let body = body.to_string();
        let body = Body::from_stream(futures::stream::once(async move {
            tell.send(()).unwrap();
            released.await.unwrap();
            Ok::<_, std::io::Error>(body)
        }));
        let answer = self.0.clone().oneshot(request.body(body).unwrap());
        let meanwhile = async {
            told.await.unwrap();
            meanwhile.await;
            release.send(()).unwrap();
        };
        let (answer, ()) = tokio::join!(answer, meanwhile);
        answer.unwrap().status().as_u16()
    }

    pub(crate) async fn apply(&self, path: &str, body: &Value) -> Reply {
        let form = [("content-type", "application/apply-patch+yaml")];
        send(&self.0, Method::PATCH, path, &form, Some(body)).await
    }
}

pub(crate) struct Lines {
    body: Body,
    text: String,
}

impl Lines {
    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let event = serde_json::from_str(line).unwrap();
                let rest = rest.to_owned();
                self.text = rest;
                return Some(event);
            }
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        }
    }
}

async fn watch(client: &ClientService, path: &str, token: Option<&str>) -> Lines {
    let mut request = Request::builder().uri(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    lines(client, request).await
}

async fn lines(client: &ClientService, request: http::request::Builder) -> Lines {
    let response = client.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    Lines { body: response.into_body(), text: String::new() }
}

async fn send(
    client: &ClientService,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    let body = body.map(ToString::to_string).unwrap_or_default();
    let request = request.body(Body::from(body)).unwrap();
    let response = client.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|one| one.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
    Reply { code, body, warnings }
}

pub(crate) fn version(name: &str, storage: bool, spec: &Value) -> Value {
    let status = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": spec, "status": status}}}})
}

/// Status and reason of a condition.
pub(crate) fn condition(object: &Value, kind: &str) -> (String, String) {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = all.into_iter().find(|one| one["type"] == kind).cloned().unwrap_or_default();
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

/// Condition `kind` has this status and reason.
pub(crate) fn is(object: &Value, kind: &str, status: &str, reason: &str) -> bool {
    condition(object, kind) == (status.to_owned(), reason.to_owned())
}
