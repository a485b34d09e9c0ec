//! What the sidecar answers over HTTP.
//!
//! Methods are not looked at, bodies are not read, and everything that is answered in plain is
//! text. Never: decides what is done; it asks the controllers and the initializer.

#[cfg(test)]
mod causes;
pub mod client;
pub mod forward;
mod snapshots;
pub mod transport;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::any;
use http::{HeaderValue, Response, StatusCode, Uri, header};
use tasks::Tasks;
use tokio::sync::watch;

use self::forward::Forwarder;
use super::initialize::{Initializer, Mode, StatusCell};
use super::member::ThisMember;
use super::metrics::{self, Metrics};
use crate::control::{Health, Site, SnapshotterHandle, Troubles};
use crate::etcd::{Etcd, EtcdMonitor};
use crate::store::SnapStore;

pub(crate) const HEALTHY: &str = "{\"health\":true}";
const UNHEALTHY: &str = "{\"health\":false}";
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Everything requests are answered from.
#[derive(Debug)]
pub struct Api {
    pub monitor: EtcdMonitor,
    /// What the controllers say about it.
    pub health: watch::Receiver<Health>,
    pub status: Arc<StatusCell>,
    pub initializer: Arc<Initializer>,
    /// Nothing where there is no store.
    pub snapshots: Option<Snapshots>,
    pub member: ThisMember,
    /// The cluster as a whole.
    pub cluster: Etcd,
    pub forwarder: Forwarder,
    pub metrics: Arc<Metrics>,
    pub troubles: Troubles,
    /// Where a copy of the configuration of etcd is left.
    pub home: PathBuf,
    pub tasks: Tasks,
}

/// The store, and who writes to it.
#[derive(Debug, Clone)]
pub struct Snapshots {
    pub store: SnapStore,
    pub snapshotter: SnapshotterHandle,
}

pub fn router(api: Arc<Api>, profiling: bool) -> Router {
    let mut router = Router::new()
        .route("/healthz", any(health))
        .route("/initialization/start", any(start))
        .route("/initialization/status", any(status))
        .route("/snapshot/full", any(snapshots::full))
        .route("/snapshot/delta", any(snapshots::delta))
        .route("/snapshot/latest", any(snapshots::latest))
        .route("/config", any(config))
        .route("/metrics", any(metrics));
    if profiling {
        router = router.route("/debug/pprof/", any(running));
    }
    router.with_state(api)
}

/// A plain answer.
fn text(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    answer
}

impl Api {
    /// Leading, and not about to change the data directory.
    fn is_healthy(&self) -> bool {
        let serves = *self.health.borrow() == Health::Serving;
        serves && self.monitor.latest().is_leading() && !self.status.is_in_progress()
    }
}

async fn health(State(api): State<Arc<Api>>) -> Response<Body> {
    if api.is_healthy() {
        text(StatusCode::OK, HEALTHY)
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, UNHEALTHY)
    }
}

async fn start(State(api): State<Arc<Api>>, uri: Uri) -> Response<Body> {
    if let Some(running) = api.status.begin() {
        let mode = Mode::of(&parameter(&uri, "mode").unwrap_or_default());
        let (initializer, troubles) = (Arc::clone(&api.initializer), api.troubles.clone());
        // Most of it is reading and writing files: it has a thread of its own.
        let runtime = tokio::runtime::Handle::current();
        api.tasks.spawn_blocking("initialization", move |stop| {
            let done = runtime.block_on(stop.or_stop(initializer.initialize(mode)));
            if let Some(Err(error)) = &done {
                let why = telemetry::Chain(error).to_string();
                tracing::error!("initialization failed: {why}");
                troubles.tell(Site::Initialization, why);
            }
            running.end(matches!(done, Some(Ok(()))));
        });
    }
    text(StatusCode::OK, Body::empty())
}

async fn status(State(api): State<Arc<Api>>) -> Response<Body> {
    text(StatusCode::OK, api.status.tell().text())
}

async fn config(State(api): State<Arc<Api>>) -> Response<Body> {
    let written = match api.member.etcd_config(&api.cluster).await {
        Ok(written) => written,
        Err(error) => {
            tracing::error!("cannot answer with a configuration: {}", telemetry::Chain(&error));
            let why = format!("the configuration cannot be made: {}\n", telemetry::Chain(&error));
            return text(StatusCode::INTERNAL_SERVER_ERROR, why);
        }
    };
    let path = api.home.join("etcd.conf.yaml");
    let copy = written.clone();
    let saved = api.tasks.blocking("save the configuration", move || {
        durable::replace_private(path, copy.as_bytes())
    });
    match saved.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("no copy was left: {}", telemetry::Chain(&error)),
        Err(error) => tracing::warn!("no copy was left: {}", telemetry::Chain(&error)),
    }
    text(StatusCode::OK, written)
}

async fn metrics(State(api): State<Arc<Api>>) -> Response<Body> {
    let mut answer = text(StatusCode::OK, api.metrics.scraped());
    let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// What runs in this process, a task a line.
async fn running(State(api): State<Arc<Api>>) -> Response<Body> {
    let mut lines = String::new();
    for task in api.tasks.list() {
        lines.push_str(&task.name);
        lines.push('\n');
    }
    text(StatusCode::OK, lines)
}

/// The first value of a parameter of the query.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let query = uri.query()?.as_bytes();
    let mut pairs = url::form_urlencoded::parse(query);
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}
