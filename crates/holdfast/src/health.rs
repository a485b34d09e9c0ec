//! The port of a role that serves no API of its own: `/livez` and `/readyz` for who starts it again,
//! `/metrics` for who collects. What is told there is no secret of anybody's: names of objects and
//! numbers.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dashboard::Door;
use telemetry::{OPENMETRICS_CONTENT_TYPE, Registry};
use tokio::net::TcpListener;

use ::cli::output::Hint;

#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Address and port of /metrics, /livez and /readyz, without TLS; port 0 picks a free one. Nowhere
    /// without it.
    #[arg(long, value_name = "ADDR:PORT", env = "HOLDFAST_METRICS_LISTEN")]
    metrics_listen: Option<SocketAddr>,
}

/// What the port knows: nothing until the process is ready, then its metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health(Arc<OnceLock<Registry>>);

impl Health {
    /// Serves from the start, so that a slow start is told from a dead process.
    pub(crate) async fn start(args: &Args, tasks: &tasks::Tasks) -> anyhow::Result<Self> {
        let health = Self::default();
        let Some(listen) = args.metrics_listen else { return Ok(health) };
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            anyhow::Error::new(error).context(format!("cannot listen on {listen} for metrics"))
        });
        let listener = listener.hint("choose another port with --metrics-listen")?;
        tracing::info!(address = %listener.local_addr()?, "metrics are served");
        tasks.spawn("metrics", Door::new(listener, None).serve(health.router(), tasks.clone()));
        Ok(health)
    }

    /// Ready from now on, with these metrics.
    pub(crate) fn ready(&self, registry: Registry) {
        // A second registry would hide the first: keep the first.
        let _ = self.0.set(registry);
    }

    fn router(&self) -> Router {
        Router::new()
            .route("/livez", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self.clone())
    }
}

async fn readyz(State(health): State<Health>) -> Response {
    match health.0.get() {
        Some(_) => "ok\n".into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "still starting\n").into_response(),
    }
}

async fn metrics(State(health): State<Health>) -> Response {
    match health.0.get() {
        Some(registry) => {
            ([(header::CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE)], registry.encode()).into_response()
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "still starting\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(health: &Health, path: &str) -> (StatusCode, String) {
        let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let answer = health.router().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_process_lives_before_it_is_ready_and_shows_metrics_then() {
        let health = Health::default();
        assert_eq!(ask(&health, "/livez").await.0, StatusCode::OK);
        assert_eq!(ask(&health, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
        let mut registry = Registry::new("holdfast");
        registry.gauge("leader", "Whether this process leads").set(1);
        health.ready(registry);
        assert_eq!(ask(&health, "/readyz").await.0, StatusCode::OK);
        let (status, text) = ask(&health, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("holdfast_leader 1\n"), "{text}");
        assert_eq!(ask(&health, "/other").await.0, StatusCode::NOT_FOUND);
    }
}
