//! A server on a temporary directory and a client that speaks to it without a socket.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use apiserver::auth::User;
use apiserver::auth::tokens::StaticTokens;
use apiserver::{ApiServer, ClientService, Options};
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// How long something that happens by itself may take.
const TIMEOUT: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) server: ApiServer,
    tasks: tasks::Tasks,
    /// The folder lives as long as the world that made it.
    folder: Option<tempfile::TempDir>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut world = Self::on(folder.path()).await;
        world.folder = Some(folder);
        world.client.make_widgets().await;
        world
    }

    pub(crate) async fn on(folder: &Path) -> Self {
        Self::open(folder, false).await
    }

    /// With an audit log in the folder.
    pub(crate) async fn audited(folder: &Path) -> Self {
        Self::open(folder, true).await
    }

    async fn open(folder: &Path, audit: bool) -> Self {
        let options = Options {
            data_dir: folder.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls_sans: Vec::new(),
            tokens: StaticTokens::default(),
            audit,
            definitions: Vec::new(),
            services: apiserver::ServiceRanges::default(),
            controllers: Vec::new(),
            near: Vec::new(),
        };
        let tasks = tasks::Tasks::new();
        let mut metrics = telemetry::Registry::new("test");
        let server = ApiServer::start(options, tasks.clone(), &mut metrics).await.unwrap();
        let client = Client(server.client_service(User::internal("test")));
        Self { client, server, tasks, folder: None }
    }

    /// Stops everything; the folder stays.
    pub(crate) async fn stop(self) {
        let _ = self.tasks.stop(TIMEOUT).await;
        self.server.close(TIMEOUT).await;
    }
}

impl std::ops::Deref for World {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

#[derive(Clone)]
pub(crate) struct Client(ClientService);

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

    /// The message of a rejection with this code.
    #[track_caller]
    pub(crate) fn refused(self, code: u16) -> String {
        let body = self.is(code);
        assert_eq!(body["kind"], "Status", "{body}");
        body["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Client {
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        form: &str,
        body: Vec<u8>,
    ) -> Reply {
        self.send_as("tester/1.0", method, path, form, body).await
    }

    pub(crate) async fn send_as(
        &self,
        agent: &str,
        method: Method,
        path: &str,
        form: &str,
        body: Vec<u8>,
    ) -> Reply {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", form)
            .header("user-agent", agent)
            .body(Body::from(body))
            .unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let warnings = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|one| one.to_str().unwrap().to_owned())
            .collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
        Reply { code, body, warnings }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, "application/json", Vec::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::POST, path, "application/json", body.to_string().into()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::PUT, path, "application/json", body.to_string().into()).await
    }

    pub(crate) async fn patch(&self, form: &str, path: &str, body: &Value) -> Reply {
        self.send(Method::PATCH, path, form, body.to_string().into()).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Reply {
        self.patch(MERGE, path, body).await
    }

    /// Applies as `manager`; more query parameters may follow the name.
    pub(crate) async fn apply(&self, path: &str, manager: &str, body: &Value) -> Reply {
        self.patch(APPLY, &format!("{path}?fieldManager={manager}"), body).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Reply {
        let body = if options.is_null() { Vec::new() } else { options.to_string().into() };
        self.send(Method::DELETE, path, "application/json", body).await
    }

    /// Looks again and again until `done` is content with the answer.
    #[track_caller]
    pub(crate) fn until<'a>(
        &'a self,
        path: &'a str,
        done: impl Fn(&Reply) -> bool + 'a,
    ) -> impl Future<Output = Reply> + 'a {
        let place = std::panic::Location::caller();
        async move {
            let deadline = tokio::time::Instant::now() + TIMEOUT;
            loop {
                let reply = self.get(path).await;
                if done(&reply) {
                    return reply;
                }
                assert!(
                    tokio::time::Instant::now() < deadline,
                    "{place}: {path} never became as wanted: {}",
                    reply.body
                );
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }

    pub(crate) async fn until_gone(&self, path: &str) {
        self.until(path, |reply| reply.code == 404).await;
    }

    /// Waits until upkeep has seen everything written so far: a dependent of nobody, written now, is
    /// gone.
    pub(crate) async fn settle(&self) {
        let body = json!({"metadata": {"generateName": "canary-", "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "never-was"}]}});
        let made = self.post(&maps("default"), &body).await.is(201);
        self.until_gone(&map("default", made["metadata"]["name"].as_str().unwrap())).await;
    }

    pub(crate) async fn namespace(&self, name: &str) {
        self.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await.is(201);
    }

    /// Two custom types: widgets with a status endpoint, and gadgets without one; and cluster-scoped
    /// towers.
    pub(crate) async fn make_widgets(&self) {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "default": 1},
                "color": {"type": "string"},
                "tags": {"type": "array", "x-kubernetes-list-type": "set",
                    "items": {"type": "string"}},
                "flat": {"type": "array", "items": {"type": "string"}},
                "ports": {"type": "array", "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port", "protocol"],
                    "items": {"type": "object", "required": ["port"], "properties": {
                        "port": {"type": "integer"},
                        "protocol": {"type": "string", "default": "TCP"},
                        "name": {"type": "string"}}}},
                "options": {"type": "object", "additionalProperties": {"type": "string"}},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            "status": {"type": "object", "properties": {
                "phase": {"type": "string"},
                "conditions": {"type": "array", "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {"type": "object", "required": ["type"], "properties": {
                        "type": {"type": "string"}, "status": {"type": "string"}}}}}}}});
        self.define("widgets", "Widget", "Namespaced", &json!({"status": {}}), &schema).await;
        self.define("gadgets", "Gadget", "Namespaced", &json!({}), &schema).await;
        self.define("towers", "Tower", "Cluster", &json!({"status": {}}), &schema).await;
    }

    pub(crate) async fn define(
        &self,
        plural: &str,
        kind: &str,
        scope: &str,
        subresources: &Value,
        schema: &Value,
    ) {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let definition = json!({"metadata": {"name": format!("{plural}.test.io")}, "spec": {
            "group": "test.io", "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": subresources, "schema": {"openAPIV3Schema": schema}}]}});
        self.post(path, &definition).await.is(201);
    }
}

pub(crate) fn maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

pub(crate) fn map(namespace: &str, name: &str) -> String {
    format!("{}/{name}", maps(namespace))
}

pub(crate) fn widgets(namespace: &str) -> String {
    format!("/apis/test.io/v1/namespaces/{namespace}/widgets")
}

pub(crate) fn widget(namespace: &str, name: &str) -> String {
    format!("{}/{name}", widgets(namespace))
}

/// A body for a widget.
pub(crate) fn new_widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "test.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

pub(crate) fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap()
}

/// The entry of a manager in `managedFields`.
pub(crate) fn entry<'a>(object: &'a Value, manager: &str, operation: &str, sub: &str) -> &'a Value {
    object["metadata"]["managedFields"]
        .as_array()
        .and_then(|all| {
            all.iter().find(|one| {
                one["manager"] == manager
                    && one["operation"] == operation
                    && one["subresource"].as_str().unwrap_or_default() == sub
            })
        })
        .unwrap_or(&Value::Null)
}

/// An owner reference to an object.
pub(crate) fn owner(object: &Value, block: bool) -> Value {
    json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"],
        "blockOwnerDeletion": block,
    })
}
