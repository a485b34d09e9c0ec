//! What one write costs in this process, store and socket aside as far as possible: creations,
//! updates and no-ops of a small custom resource and of a pod, one at a time.
//!
//! `cargo run --release -p apiserver --example write_bench [FOLDER]`

#![expect(clippy::print_stdout, reason = "a program whose output is its purpose")]

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use apiserver::auth::User;
use apiserver::auth::tokens::StaticTokens;
use apiserver::{ApiServer, ClientService, Options};
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

const ROUNDS: usize = 2_000;

struct Bench {
    service: ClientService,
}

impl Bench {
    async fn send(
        &self,
        method: Method,
        path: &str,
        form: &str,
        body: &Value,
    ) -> Result<Value, Box<dyn Error>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", form)
            .body(Body::from(body.to_string()))?;
        let response = self.service.clone().oneshot(request).await?;
        let code = response.status();
        let bytes = response.into_body().collect().await?.to_bytes();
        if !code.is_success() {
            return Err(format!("{code}: {}", String::from_utf8_lossy(&bytes)).into());
        }
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Times `rounds` requests that are made by `request` from their number.
    async fn time(
        &self,
        name: &str,
        form: &str,
        request: impl Fn(usize) -> (Method, String, Value),
    ) -> Result<(), Box<dyn Error>> {
        let cpu = cpu_time();
        let started = Instant::now();
        for round in 0..ROUNDS {
            let (method, path, body) = request(round);
            self.send(method, &path, form, &body).await?;
        }
        let each = |took: Duration| took.as_secs_f64() * 1e6 / 2_000.0;
        println!(
            "{name:28} {:7.1} µs, {:7.1} µs of CPU",
            each(started.elapsed()),
            each(cpu_time().saturating_sub(cpu)),
        );
        Ok(())
    }
}

/// What this process has used so far.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_task = |text: &str| text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
    let total: u64 = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .map(|text| of_task(&text))
        .sum();
    Duration::from_nanos(total.max(of_task(&text)))
}

fn widget(round: usize, size: usize) -> Value {
    json!({"apiVersion": "bench.io/v1", "kind": "Widget",
        "metadata": {"name": format!("w{round:05}"), "labels": {"app": "bench"}},
        "spec": {"size": size, "text": "x".repeat(380)}})
}

fn pod(round: usize) -> Value {
    json!({"metadata": {"name": format!("p{round:05}"), "labels": {"app": "bench"}},
        "spec": {"containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}]}})
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let data_dir = folder.join(format!("write-bench-{}", std::process::id()));
    std::fs::create_dir_all(&data_dir)?;
    let options = Options {
        data_dir: data_dir.clone(),
        listen: ([127, 0, 0, 1], 0).into(),
        tls_sans: Vec::new(),
        tokens: StaticTokens::default(),
        audit: false,
        definitions: Vec::new(),
        services: apiserver::ServiceRanges::default(),
        controllers: Vec::new(),
        near: Vec::new(),
    };
    let mut metrics = telemetry::Registry::new("bench");
    let server = ApiServer::start(options, tasks::Tasks::new(), &mut metrics).await?;
    let bench = Bench { service: server.client_service(User::internal("bench")) };
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}, "text": {"type": "string"}}}}});
    let definition = json!({"metadata": {"name": "widgets.bench.io"}, "spec": {"group": "bench.io",
        "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let json = "application/json";
    let merge = "application/merge-patch+json";
    bench.send(Method::POST, path, json, &definition).await?;
    let widgets = "/apis/bench.io/v1/namespaces/default/widgets";
    let pods = "/api/v1/namespaces/default/pods";
    bench
        .time("create a widget", json, |n| (Method::POST, widgets.to_owned(), widget(n, 1)))
        .await?;
    bench
        .time("merge patch of a widget", merge, |n| {
            (Method::PATCH, format!("{widgets}/w{n:05}"), json!({"spec": {"size": 2}}))
        })
        .await?;
    bench
        .time("merge patch without a change", merge, |n| {
            (Method::PATCH, format!("{widgets}/w{n:05}"), json!({"spec": {"size": 2}}))
        })
        .await?;
    bench
        .time("apply to a widget", "application/apply-patch+yaml", |n| {
            (Method::PATCH, format!("{widgets}/w{n:05}?fieldManager=b&force=true"), widget(n, 3))
        })
        .await?;
    bench.time("create a pod", json, |n| (Method::POST, pods.to_owned(), pod(n))).await?;
    bench
        .time("merge patch of a pod", merge, |n| {
            let change = json!({"metadata": {"labels": {"round": "two"}}});
            (Method::PATCH, format!("{pods}/p{n:05}"), change)
        })
        .await?;
    std::fs::remove_dir_all(data_dir)?;
    Ok(())
}
