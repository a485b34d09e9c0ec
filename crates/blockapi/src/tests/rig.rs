//! A service without a socket, whose worker moves only when told to.

use std::sync::Arc;

use axum::body::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::auth::NoAuth;
use crate::figures::Figures;
use crate::images::Copies;
use crate::rest::{Behaviour, Service};
use crate::sql::Db;
use crate::store::Store;
use crate::worker::Worker;
use crate::worker::simulated::Simulated;

pub(super) const NEW: &str = "3.72";
pub(super) const OLD: &str = "3.71";
pub(super) const PROJECT: &str = "aaaa0000aaaa0000aaaa0000aaaa0000";

pub(super) struct Rig {
    pub(super) service: Service,
    pub(super) worker: Worker,
    pub(super) backend: Arc<Simulated>,
    pub(super) store: Store,
    pub(super) metrics: telemetry::Registry,
    /// As what requests are made.
    pub(super) token: String,
    place: Place,
}

/// What goes when the test ends.
pub(super) enum Place {
    Folder(#[expect(dead_code, reason = "it goes when it is dropped")] tempfile::TempDir),
    /// A `PostgreSQL` schema of its own, by the address of its server.
    Schema,
}

pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: Value,
    pub(super) headers: http::HeaderMap,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.body)
    }
}

/// Where a `PostgreSQL` for tests is, if there is one.
const POSTGRES: &str = "TEST_POSTGRES_URL";

/// The address of an empty schema in a `PostgreSQL`, if there is one.
pub(super) async fn postgres_schema() -> Option<String> {
    let Ok(address) = std::env::var(POSTGRES) else {
        println!("skipped: no {POSTGRES}, so nothing ran on PostgreSQL");
        return None;
    };
    let schema = format!("t{}", uuid::Uuid::new_v4().simple());
    let admin = Db::open(&address).await.unwrap();
    admin.execute(&format!("CREATE SCHEMA {schema}"), &[]).await.unwrap();
    admin.close().await;
    let joint = if address.contains('?') { '&' } else { '?' };
    Some(format!("{address}{joint}options=-c%20search_path%3D{schema}"))
}

/// Databases to run on, each empty.
pub(super) async fn databases() -> Vec<(Db, Place)> {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("block.db").display());
    let mut all = vec![(Db::open(&address).await.unwrap(), Place::Folder(folder))];
    if let Some(address) = postgres_schema().await {
        all.push((Db::open(&address).await.unwrap(), Place::Schema));
    }
    all
}

impl Rig {
    pub(super) async fn on(db: Db, place: Place) -> Self {
        db.sync(None).await.unwrap();
        let store = Store::new(db);
        store.ensure_default_type().await.unwrap();
        let backend = Arc::new(Simulated::default());
        let behaviour = Arc::new(Behaviour::default());
        let mut metrics = telemetry::Registry::new("test");
        let figures = Figures::new(&mut metrics);
        let service = Service {
            store: store.clone(),
            identity: Arc::new(NoAuth),
            backend: backend.clone(),
            behaviour: behaviour.clone(),
            images: None,
            figures: figures.clone(),
        };
        let worker = Worker {
            store: store.clone(),
            backend: backend.clone(),
            behaviour,
            name: "worker-1".to_owned(),
            started: jiff::Timestamp::now(),
            images: None,
            copies: Copies::new(tasks::Tasks::new()),
            figures,
        };
        worker.report().await.unwrap();
        let rig = Self {
            service,
            worker,
            backend,
            store,
            metrics,
            token: format!("admin:{PROJECT}"),
            place,
        };
        let limits = json!({"quota_set": {"volumes": -1, "gigabytes": -1, "snapshots": -1,
            "backups": -1, "backup_gigabytes": -1}});
        rig.ok("PUT", &format!("/os-quota-sets/{PROJECT}"), limits, NEW).await;
        rig
    }

    /// On SQLite.
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("sqlite:{}", folder.path().join("block.db").display());
        Self::on(Db::open(&address).await.unwrap(), Place::Folder(folder)).await
    }

    /// On every engine there is.
    pub(super) async fn everywhere() -> Vec<Self> {
        let mut all = Vec::new();
        for (db, place) in databases().await {
            all.push(Self::on(db, place).await);
        }
        all
    }

    /// The same service, asked by somebody else.
    pub(super) async fn call_as(
        &self,
        token: &str,
        (method, path): (&str, &str),
        body: Value,
        version: &str,
    ) -> Answer {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("http://localhost/v3{path}"))
            .header("host", "localhost")
            .header("x-auth-token", token)
            .header("content-type", "application/json");
        if !version.is_empty() {
            request = request.header("openstack-api-version", format!("volume {version}"));
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.send(request.body(body).unwrap()).await
    }

    pub(super) async fn send(&self, request: http::Request<Body>) -> Answer {
        let answer = self.service.serve(request).await;
        let (head, body) = answer.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            if bytes.is_empty() { Value::Null } else { json!(String::from_utf8_lossy(&bytes)) }
        });
        Answer { code: head.status.as_u16(), body, headers: head.headers }
    }

    pub(super) async fn call(
        &self,
        method: &str,
        path: &str,
        body: Value,
        version: &str,
    ) -> Answer {
        self.call_as(&self.token, (method, path), body, version).await
    }

    pub(super) async fn get(&self, path: &str, version: &str) -> Answer {
        self.call("GET", path, Value::Null, version).await
    }

    pub(super) async fn ok(&self, method: &str, path: &str, body: Value, version: &str) -> Value {
        let answer = self.call(method, path, body, version).await;
        assert!(answer.code < 300, "{method} {path}: {answer:?}");
        answer.body
    }

    pub(super) async fn action(&self, id: &str, name: &str, args: Value, version: &str) -> Answer {
        self.call("POST", &format!("/volumes/{id}/action"), json!({ name: args }), version).await
    }

    /// Lets the worker work until nothing is due, or for a number of passes.
    pub(super) async fn settle(&self) {
        for _ in 0..200 {
            self.hurry().await;
            if !self.worker.pass().await.unwrap() {
                return;
            }
        }
    }

    /// All that is under way was asked for long ago.
    pub(super) async fn age(&self) {
        let sql = "UPDATE workers SET created_at = '2026-01-01T00:00:00.000000'";
        self.store.db.execute(sql, &[]).await.unwrap();
    }

    /// Nothing waits for its time.
    pub(super) async fn hurry(&self) {
        self.store.db.execute("UPDATE workers SET not_before = NULL", &[]).await.unwrap();
    }

    pub(super) async fn passes(&self, count: usize) {
        for _ in 0..count {
            self.hurry().await;
            self.worker.pass().await.unwrap();
        }
    }

    pub(super) async fn volume(&self) -> String {
        let made = self.ok("POST", "/volumes", json!({"volume": {"size": 1}}), NEW).await;
        self.settle().await;
        made["volume"]["id"].as_str().unwrap().to_owned()
    }

    /// Both fields.
    pub(super) async fn both(&self, id: &str) -> (String, Option<String>) {
        let seen = self.get(&format!("/volumes/{id}"), NEW).await;
        assert_eq!(seen.code, 200, "{seen:?}");
        let text = |key: &str| seen.body["volume"][key].as_str().map(str::to_owned);
        (text("status").unwrap(), text("backup_status"))
    }

    pub(super) async fn expect(&self, id: &str, status: &str, backup: Option<&str>) {
        assert_eq!(self.both(id).await, (status.to_owned(), backup.map(str::to_owned)));
    }

    /// The one field of older clients.
    pub(super) async fn legacy(&self, id: &str) -> String {
        let seen = self.get(&format!("/volumes/{id}"), OLD).await;
        seen.body["volume"]["status"].as_str().unwrap().to_owned()
    }

    pub(super) async fn backup(&self, id: &str, force: bool) -> Answer {
        let body = json!({"backup": {"volume_id": id, "force": force}});
        self.call("POST", "/backups", body, NEW).await
    }

    pub(super) async fn backup_status(&self, id: &str) -> String {
        let seen = self.get(&format!("/backups/{id}"), NEW).await;
        seen.body["backup"]["status"].as_str().unwrap_or("gone").to_owned()
    }

    /// An attachment that is in use.
    pub(super) async fn attach(&self, volume: &str, server: &str) -> String {
        let body = json!({"attachment": {"volume_uuid": volume, "instance_uuid": server}});
        let made = self.ok("POST", "/attachments", body, NEW).await;
        let id = made["attachment"]["id"].as_str().unwrap().to_owned();
        let path = format!("/attachments/{id}/action");
        self.ok("POST", &path, json!({"os-complete": {}}), NEW).await;
        id
    }

    pub(super) const fn is_postgres(&self) -> bool {
        matches!(self.place, Place::Schema)
    }
}

pub(super) fn id_of(answer: &Answer, key: &str) -> String {
    answer.body[key]["id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}
