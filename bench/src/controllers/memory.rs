//! An API server that is a map: what controllers ask of one, and nothing that costs. For sizes that no
//! machine of ours would hold otherwise.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{self, Sender};

/// Events that a watch may be behind.
const MAX_BEHIND: usize = 100_000;

type Answer = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    kinds: Arc<Mutex<Kinds>>,
    requests: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Kinds {
    version: u64,
    of: HashMap<String, Kind>,
}

#[derive(Debug, Default)]
struct Kind {
    /// As text: values would take several times the room.
    objects: BTreeMap<String, Bytes>,
    /// What happened since the beginning, for watches that begin later.
    log: Vec<(u64, Bytes)>,
    watchers: Vec<Sender<Bytes>>,
}

impl Kind {
    fn tell(&mut self, version: u64, what: &str, object: &Value) {
        let mut line = json!({"type": what, "object": object}).to_string().into_bytes();
        line.push(b'\n');
        let line = Bytes::from(line);
        // Whoever is too slow begins anew, as with a real server.
        self.watchers.retain(|watcher| watcher.try_send(line.clone()).is_ok());
        self.log.push((version, line));
    }
}

/// `/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME/SUB` and its shorter forms.
#[derive(Debug)]
struct Target {
    version: String,
    plural: String,
    name: Option<String>,
}

impl Target {
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let version = match parts.next()? {
            "api" => parts.next()?.to_owned(),
            _ => format!("{}/{}", parts.next()?, parts.next()?),
        };
        let rest: Vec<&str> = parts.collect();
        let (plural, name) = match rest.as_slice() {
            ["namespaces", _, plural, name, ..] => (plural, Some(name)),
            ["namespaces", _, plural] => (plural, None),
            [plural, name, ..] => (plural, Some(name)),
            [plural] => (plural, None),
            [] => return None,
        };
        let name = name.map(|name| (*name).to_owned());
        Some(Self { version, plural: (*plural).to_owned(), name })
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Kinds> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn client(&self) -> kube::Client {
        let own = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let own = own.clone();
            async move { Ok::<_, Infallible>(own.serve(request).await) }
        });
        kube::Client::new(service, "default")
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Everything there is, by plural.
    pub(super) fn all(&self) -> Vec<(String, Value)> {
        let kinds = self.lock();
        let of = kinds.of.iter();
        let all = of.flat_map(|(plural, kind)| kind.objects.values().map(move |it| (plural, it)));
        all.map(|(plural, text)| (plural.clone(), value(text))).collect()
    }

    /// Puts an object in before anybody watches.
    pub(super) fn load(&self, plural: &str, mut object: Value) {
        let mut kinds = self.lock();
        kinds.version += 1;
        object["metadata"]["resourceVersion"] = kinds.version.to_string().into();
        let name = name_of(&object);
        kinds.of.entry(plural.to_owned()).or_default().objects.insert(name, text(&object));
    }

    pub(super) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        self.lock().of.get(plural)?.objects.get(name).map(|text| value(text))
    }

    /// What a node does for processes that do not run: those of this volume that are to go may.
    pub(super) fn release(&self, volume: &str, finalizer: &str) {
        let prefix = format!("{volume}-");
        for plural in ["engines", "replicas"] {
            let leaving: Vec<Value> = {
                let kinds = self.lock();
                let Some(kind) = kinds.of.get(plural) else { continue };
                let own = kind.objects.range(prefix.clone()..);
                let own = own.take_while(|(name, _)| name.starts_with(&prefix));
                let own = own.map(|(_, text)| value(text));
                own.filter(|it| !it["metadata"]["deletionTimestamp"].is_null()).collect()
            };
            for object in leaving {
                let all = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
                let left: Vec<&Value> = all.iter().filter(|it| **it != finalizer).collect();
                if left.len() < all.len() {
                    let target = Target::of(&format!("{}/{plural}", super::LONGHORN));
                    if let Some(target) = target {
                        let patch = json!({"metadata": {"finalizers": left}});
                        drop(self.patch(&target, &name_of(&object), patch));
                    }
                }
            }
        }
    }

    async fn serve(&self, request: Request<Body>) -> Response<Answer> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes);
        let body = body.ok().and_then(|it| serde_json::from_slice(&it).ok()).unwrap_or_default();
        let Some(target) = Target::of(head.uri.path()) else {
            return failure(StatusCode::NOT_FOUND, "no such path");
        };
        let query = head.uri.query().unwrap_or_default();
        match (&head.method, &target.name) {
            (&Method::GET, None) if query.contains("watch=") => self.watch(&target, query),
            (&Method::GET, None) => self.list(&target),
            (&Method::GET, Some(name)) => match self.get(&target.plural, name) {
                Some(object) => answer(StatusCode::OK, text(&object)),
                None => failure(StatusCode::NOT_FOUND, "not found"),
            },
            // Nobody asks what was told of the simulation.
            (&Method::POST, _) if target.plural == "events" => {
                answer(StatusCode::CREATED, text(&body))
            }
            (&Method::POST, _) => self.create(&target, body),
            (&Method::PATCH, Some(name)) => self.patch(&target, name, body),
            (&Method::DELETE, Some(name)) => self.delete(&target, name),
            _ => failure(StatusCode::METHOD_NOT_ALLOWED, "not here"),
        }
    }

    fn list(&self, target: &Target) -> Response<Answer> {
        let kinds = self.lock();
        let mut out = Vec::new();
        let head = format!(
            "{{\"apiVersion\":\"{}\",\"kind\":\"List\",\"metadata\":{{\"resourceVersion\":\"{}\"}},\"items\":[",
            target.version, kinds.version
        );
        out.extend(head.into_bytes());
        let objects = kinds.of.get(&target.plural).into_iter().flat_map(|it| it.objects.values());
        for (number, object) in objects.enumerate() {
            if number > 0 {
                out.push(b',');
            }
            out.extend_from_slice(object);
        }
        out.extend(b"]}");
        answer(StatusCode::OK, out.into())
    }

    fn watch(&self, target: &Target, query: &str) -> Response<Answer> {
        let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let from: u64 = from.and_then(|it| it.parse().ok()).unwrap_or(0);
        let (sender, receiver) = mpsc::channel(MAX_BEHIND);
        let mut kinds = self.lock();
        let kind = kinds.of.entry(target.plural.clone()).or_default();
        for (_, line) in kind.log.iter().filter(|(version, _)| *version > from) {
            if sender.try_send(line.clone()).is_err() {
                return failure(StatusCode::GONE, "too much has happened since");
            }
        }
        kind.watchers.push(sender);
        let lines: BoxStream<'static, Bytes> =
            futures::stream::unfold(receiver, |mut receiver| async {
                receiver.recv().await.map(|line| (line, receiver))
            })
            .boxed();
        let frames = lines.map(|line| Ok(http_body::Frame::data(line)));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn create(&self, target: &Target, mut object: Value) -> Response<Answer> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if target.plural == "namespaces" {
            return failure(StatusCode::CONFLICT, "it is there");
        }
        let mut kinds = self.lock();
        kinds.version += 1;
        let version = kinds.version;
        let metadata = &mut object["metadata"];
        if let Some(prefix) = metadata["generateName"].as_str() {
            metadata["name"] = format!("{prefix}{version}").into();
        }
        metadata["uid"] = format!("uid-{version}").into();
        metadata["resourceVersion"] = version.to_string().into();
        metadata["generation"] = 1.into();
        metadata["creationTimestamp"] = "2026-11-15T06:37:10Z".into();
        let name = name_of(&object);
        let kind = kinds.of.entry(target.plural.clone()).or_default();
        if kind.objects.contains_key(&name) {
            return failure(StatusCode::CONFLICT, "it is there");
        }
        kind.objects.insert(name, text(&object));
        kind.tell(version, "ADDED", &object);
        answer(StatusCode::CREATED, text(&object))
    }

    fn patch(&self, target: &Target, name: &str, patch: Value) -> Response<Answer> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let mut kinds = self.lock();
        let version = kinds.version + 1;
        let Some(kind) = kinds.of.get_mut(&target.plural) else {
            return failure(StatusCode::NOT_FOUND, "not found");
        };
        let Some(before) = kind.objects.get(name).map(|text| value(text)) else {
            return failure(StatusCode::NOT_FOUND, "not found");
        };
        let expected = patch.pointer("/metadata/resourceVersion");
        if expected.is_some_and(|it| *it != before["metadata"]["resourceVersion"]) {
            return failure(StatusCode::CONFLICT, "it was changed");
        }
        let mut object = before.clone();
        merge(&mut object, patch);
        if object == before {
            return answer(StatusCode::OK, text(&object));
        }
        object["metadata"]["resourceVersion"] = version.to_string().into();
        if object["spec"] != before["spec"] {
            let generation = before["metadata"]["generation"].as_u64().unwrap_or(0) + 1;
            object["metadata"]["generation"] = generation.into();
        }
        let finalizers = object["metadata"]["finalizers"].as_array();
        let goes = !object["metadata"]["deletionTimestamp"].is_null()
            && finalizers.is_none_or(Vec::is_empty);
        if goes {
            kind.objects.remove(name);
            kind.tell(version, "DELETED", &object);
        } else {
            kind.objects.insert(name.to_owned(), text(&object));
            kind.tell(version, "MODIFIED", &object);
        }
        kinds.version = version;
        answer(StatusCode::OK, text(&object))
    }

    fn delete(&self, target: &Target, name: &str) -> Response<Answer> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let mut kinds = self.lock();
        let version = kinds.version + 1;
        let kind = kinds.of.get_mut(&target.plural);
        let Some((kind, mut object)) =
            kind.and_then(|kind| kind.objects.get(name).map(|it| value(it)).map(|it| (kind, it)))
        else {
            return failure(StatusCode::NOT_FOUND, "not found");
        };
        object["metadata"]["resourceVersion"] = version.to_string().into();
        if object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
            kind.objects.remove(name);
            kind.tell(version, "DELETED", &object);
        } else if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = "2026-11-15T06:37:10Z".into();
            kind.objects.insert(name.to_owned(), text(&object));
            kind.tell(version, "MODIFIED", &object);
        }
        kinds.version = version;
        answer(StatusCode::OK, text(&object))
    }
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(fields) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(object) = target {
        for (name, value) in fields {
            if value.is_null() {
                object.remove(&name);
            } else {
                merge(object.entry(name).or_insert(Value::Null), value);
            }
        }
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn text(object: &Value) -> Bytes {
    object.to_string().into()
}

fn value(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_default()
}

fn answer(status: StatusCode, body: Bytes) -> Response<Answer> {
    let mut response = Response::new(http_body_util::Full::new(body).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn failure(status: StatusCode, message: &str) -> Response<Answer> {
    let reason = match status {
        StatusCode::CONFLICT => "Conflict",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::GONE => "Expired",
        _ => "MethodNotAllowed",
    };
    let body = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "reason": reason, "message": message, "code": status.as_u16()});
    answer(status, text(&body))
}
