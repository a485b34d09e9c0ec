//! `/snapshot/…`: asked of the snapshotter here, or passed on to the sidecar that leads.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::{Method, Response, StatusCode, Uri, header};
use serde::Serialize;

use super::{Api, Snapshots, parameter, text};
use crate::store::Snapshot;

/// Who is to answer.
enum Duty<'a> {
    Here(&'a Snapshots),
    Elsewhere,
    /// There is no store, so nobody does.
    Nobody,
}

impl Api {
    fn duty(&self) -> Duty<'_> {
        match &self.snapshots {
            None => Duty::Nobody,
            Some(snapshots) if self.monitor.latest().is_leading() => Duty::Here(snapshots),
            Some(_) => Duty::Elsewhere,
        }
    }

    async fn pass_on(&self, method: Method, uri: Uri) -> Response<Body> {
        match self.forwarder.forward(method, &uri).await {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                let mut passed = text(head.status, body);
                if let Some(kind) = head.headers.get(header::CONTENT_TYPE) {
                    passed.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
                }
                passed
            }
            Err(error) => {
                tracing::warn!("a request was not passed on: {}", telemetry::Chain(&error));
                not_allowed()
            }
        }
    }
}

fn not_allowed() -> Response<Body> {
    text(StatusCode::METHOD_NOT_ALLOWED, Body::empty())
}

fn failed(what: &str, why: &dyn std::error::Error) -> Response<Body> {
    tracing::warn!("{what}: {}", telemetry::Chain(why));
    text(StatusCode::INTERNAL_SERVER_ERROR, format!("{what}: {}\n", telemetry::Chain(why)))
}

fn json<T: Serialize>(value: &T) -> Response<Body> {
    match serde_json::to_string(value) {
        Ok(body) => text(StatusCode::OK, body),
        Err(error) => failed("the answer cannot be written", &error),
    }
}

pub(super) async fn full(State(api): State<Arc<Api>>, method: Method, uri: Uri) -> Response<Body> {
    let snapshots = match api.duty() {
        Duty::Here(snapshots) => snapshots,
        Duty::Elsewhere => return api.pass_on(method, uri).await,
        Duty::Nobody => return not_allowed(),
    };
    let asked = parameter(&uri, "final").unwrap_or_default();
    let is_final = match asked.as_str() {
        "" => Some(false),
        asked => crate::cli::boolean(asked),
    };
    let Some(is_final) = is_final else {
        return text(StatusCode::BAD_REQUEST, "final is neither true nor false\n");
    };
    match snapshots.snapshotter.full(is_final).await {
        Ok(snapshot) => json(&snapshot),
        Err(error) => failed("no full snapshot was taken", &error),
    }
}

pub(super) async fn delta(State(api): State<Arc<Api>>, method: Method, uri: Uri) -> Response<Body> {
    let snapshots = match api.duty() {
        Duty::Here(snapshots) => snapshots,
        Duty::Elsewhere => return api.pass_on(method, uri).await,
        Duty::Nobody => return not_allowed(),
    };
    match snapshots.snapshotter.delta().await {
        Ok(snapshot) => json(&snapshot),
        Err(error) => failed("no delta was taken", &error),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Latest {
    full_snapshot: Option<Snapshot>,
    delta_snapshots: Option<Vec<Snapshot>>,
}

pub(super) async fn latest(
    State(api): State<Arc<Api>>,
    method: Method,
    uri: Uri,
) -> Response<Body> {
    let snapshots = match api.duty() {
        Duty::Here(snapshots) => snapshots,
        Duty::Elsewhere => return api.pass_on(method, uri).await,
        Duty::Nobody => return not_allowed(),
    };
    match snapshots.store.latest().await {
        Ok(latest) => json(&Latest {
            full_snapshot: latest.full,
            delta_snapshots: (!latest.deltas.is_empty()).then_some(latest.deltas),
        }),
        Err(error) => failed("the store was not listed", &error),
    }
}
