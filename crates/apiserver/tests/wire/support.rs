//! A server on a directory of its own, asked without a socket.

use std::time::Duration;

use apiserver::auth::User;
use apiserver::{ApiServer, ClientService, Options};
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
pub(crate) const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
pub(crate) const PARTIAL_LIST: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
/// A config map collection every test may use.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
/// Nothing here takes this long.
const TIMEOUT: Duration = Duration::from_mins(2);

pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) tasks: tasks::Tasks,
    client: ClientService,
    directory: tempfile::TempDir,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The JSON body of an answer with this code.
    #[track_caller]
    pub(crate) fn is(&self, code: u16) -> Value {
        assert_eq!(self.code.as_u16(), code, "{}", self.text());
        self.json()
    }

    /// A failure with this code and reason; returns its message.
    #[track_caller]
    pub(crate) fn fails(&self, code: u16, reason: &str) -> String {
        let status = self.is(code);
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["reason"], reason, "{status}");
        assert_eq!(status["code"], code, "{status}");
        status["message"].as_str().unwrap().to_owned()
    }
}

async fn send(client: ClientService, request: http::request::Builder, body: Body) -> Answer {
    let response = client.oneshot(request.body(body).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(TIMEOUT, body.collect()).await.unwrap().unwrap();
    Answer { code: head.status, headers: head.headers, body: body.to_bytes() }
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(apiserver::ConnectionLimits::default()).await
    }

    pub(crate) async fn start_with(limits: impl Into<apiserver::ServerLimits>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tasks = tasks::Tasks::new();
        let options = Options {
            data_dir: directory.path().to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            tls_sans: Vec::new(),
            tokens: apiserver::auth::tokens::StaticTokens::parse(
                "secret,admin,1,\"system:masters\"\n\
                 tenant-0,tenant-0,10\ntenant-1,tenant-1,11\ntenant-2,tenant-2,12\n\
                 tenant-3,tenant-3,13\n",
            )
            .unwrap(),
            audit: true,
            definitions: Vec::new(),
            services: apiserver::ServiceRanges::default(),
            controllers: Vec::new(),
            near: Vec::new(),
        };
        let mut metrics = telemetry::Registry::new("test");
        let server =
            ApiServer::start_with(options, limits, tasks.clone(), &mut metrics).await.unwrap();
        server.publish_metrics(metrics);
        let client = server.client_service(User::internal("test"));
        Self { server, tasks, client, directory }
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    pub(crate) fn kube(&self) -> kube::Client {
        kube::Client::new(self.client.clone(), "default")
    }

    pub(crate) async fn send(&self, request: http::request::Builder, body: Body) -> Answer {
        send(self.client.clone(), request, body).await
    }

    pub(crate) async fn get_by(&self, user: User, path: &str) -> Answer {
        send(self.server.client_service(user), Request::get(path), Body::empty()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path), Body::empty()).await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(Request::get(path).header("accept", accept), Body::empty()).await
    }

    pub(crate) async fn method(&self, method: &str, path: &str, body: &Value) -> Answer {
        let request = Request::builder().method(method).uri(path);
        self.send(request, Body::from(body.to_string())).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.method("POST", path, body).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Answer {
        let request = Request::patch(path).header("content-type", MERGE);
        self.send(request, Body::from(body.to_string())).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Request::delete(path), Body::empty()).await
    }

    /// A config map; returns its resourceVersion.
    pub(crate) async fn map(&self, name: &str, labels: &Value) -> String {
        let body = json!({"metadata": {"name": name, "labels": labels}, "data": {"k": "v"}});
        let made = self.post(MAPS, &body).await.is(201);
        revision(&made)
    }

    pub(crate) async fn maps(&self, names: &[&str]) {
        for name in names {
            self.map(name, &json!({})).await;
        }
    }

    /// The resourceVersion of the list now.
    pub(crate) async fn now(&self, path: &str) -> String {
        revision(&self.get(path).await.is(200))
    }

    pub(crate) async fn widgets(&self) {
        self.post(DEFINITIONS, &widget_definition()).await.is(201);
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
        let response = self.client.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        assert_eq!(head.status, 200);
        assert_eq!(head.headers["content-type"], "application/json");
        assert!(!head.headers.contains_key("content-length"));
        assert!(!head.headers.contains_key("content-encoding"));
        Watch { body, rest: Vec::new() }
    }
}

pub(crate) struct Watch {
    body: Body,
    rest: Vec<u8>,
}

impl Watch {
    /// The next event; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await.unwrap();
            match frame {
                None => {
                    assert!(self.rest.is_empty(), "half a line at the end");
                    return None;
                }
                Some(frame) => self.rest.extend_from_slice(&frame.unwrap().into_data().unwrap()),
            }
        }
    }

    /// The next events as `TYPE name`.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<String> {
        let mut seen = Vec::new();
        for _ in 0..count {
            let event = self.next().await.unwrap();
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
            seen.push(format!("{} {name}", event["type"].as_str().unwrap()));
        }
        seen
    }
}

pub(crate) fn revision(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

pub(crate) fn widget_definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "description": "What is wanted.", "properties": {
            "size": {"type": "string"}, "replicas": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget",
                "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema,
                    "subresources": {"status": {}, "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas"}},
                    "selectableFields": [{"jsonPath": ".spec.size"}],
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "string", "jsonPath": ".spec.size"},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]},
                {"name": "v1alpha1", "served": true, "storage": false, "schema": schema},
                {"name": "v1beta1", "served": false, "storage": false, "schema": schema},
            ],
        },
    })
}

pub(crate) fn widget(name: &str, size: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name}, "spec": {"size": size}})
}

impl Answer {
    #[track_caller]
    pub(crate) fn fails_as_yaml(&self, code: u16) {
        assert_eq!(self.code.as_u16(), code, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/yaml");
        assert!(self.text().contains("kind: Status"), "{}", self.text());
    }
}
