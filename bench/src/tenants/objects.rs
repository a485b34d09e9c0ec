//! A namespace with many objects, and a backup or restore of it from its request to its end.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use e2e::{Connection, Endpoint};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{CLIENTS, TIMEOUT};
use crate::measure::Cost;
use crate::usage;

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Kinds of ten objects: path, `apiVersion`, kind, how many.
const MIXTURE: [(&str, &str, &str, u32); 4] = [
    ("/api/v1/namespaces", "v1", "ConfigMap", 6),
    ("/api/v1/namespaces", "v1", "Secret", 2),
    ("/api/v1/namespaces", "v1", "Service", 1),
    ("/apis/apps/v1/namespaces", "apps/v1", "Deployment", 1),
];

fn plural(kind: &str) -> String {
    format!("{}s", kind.to_lowercase())
}

/// What of the object with this number is to be made, and where.
fn object(namespace: &str, number: u32) -> (String, Value) {
    let mut within = number % 10;
    let mut chosen = ("", "", "");
    for (path, version, kind, many) in MIXTURE {
        chosen = (path, version, kind);
        if within < many {
            break;
        }
        within -= many;
    }
    let (path, version, kind) = chosen;
    let mut made = json!({"apiVersion": version, "kind": kind,
        "metadata": {"name": format!("o-{number}"), "labels": {"n": (number % 100).to_string()}}});
    let labels = json!({"app": format!("a-{number}")});
    match kind {
        "Service" => made["spec"] = json!({"selector": labels, "ports": [{"port": 80}]}),
        "Deployment" => {
            made["spec"] = json!({"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}}});
        }
        "Secret" => made["stringData"] = json!({"key": text(number)}),
        _ => made["data"] = json!({"key": text(number)}),
    }
    (format!("{path}/{namespace}/{}", plural(kind)), made)
}

/// A kilobyte that packs as settings do.
fn text(number: u32) -> String {
    let line = |at: u32| format!("setting.{at} = {}\n", number.wrapping_mul(2_654_435_761) ^ at);
    (0..40).map(line).collect()
}

pub(super) async fn make(endpoint: &Endpoint, namespace: &str, count: u32) -> Result<()> {
    let mut connection = endpoint.connect().await?;
    let body = json!({"metadata": {"name": namespace}});
    let answer = connection.post("/api/v1/namespaces", &body).await?;
    ensure!(answer.code() == 201, "{}", answer.json());
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for client in 0..u32::try_from(CLIENTS)? {
        let (mut connection, namespace) = (endpoint.connect().await?, namespace.to_owned());
        tasks.spawn(async move {
            for number in (client..count).step_by(CLIENTS) {
                let (path, object) = object(&namespace, number);
                let answer = connection.post(&path, &object).await?;
                ensure!(answer.code() == 201, "{path}: {}", answer.json());
            }
            Ok(())
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// How many of them are there.
pub(super) async fn count(endpoint: &Endpoint, namespace: &str) -> Result<usize> {
    let mut connection = endpoint.connect().await?;
    let mut found = 0;
    for (path, _, kind, _) in MIXTURE {
        let list = connection.get(&format!("{path}/{namespace}/{}", plural(kind))).await?.json();
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ours = |it: &&Value| {
            it.pointer("/metadata/name")
                .and_then(Value::as_str)
                .is_some_and(|it| it.starts_with("o-"))
        };
        found += items.iter().filter(ours).count();
    }
    Ok(found)
}

pub(super) async fn delete_namespace(endpoint: &Endpoint, namespace: &str) -> Result<()> {
    let mut connection = endpoint.connect().await?;
    let path = format!("/api/v1/namespaces/{namespace}");
    connection.delete(&path).await?;
    let began = Instant::now();
    while connection.get(&path).await?.code() != 404 {
        ensure!(began.elapsed() < TIMEOUT, "{namespace} does not go");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Asks for something and watches the processes that do it until its status says that it has ended.
/// `phase` is where that stands.
pub(super) async fn timed(
    endpoint: &Endpoint,
    path: &str,
    object: &Value,
    phase: &str,
    processes: &[u32],
) -> Result<Cost> {
    let mut connection = endpoint.connect().await?;
    for pid in processes {
        usage::forget_peak(*pid)?;
    }
    let cpu = || processes.iter().map(|pid| usage::family_seconds(*pid)).sum::<f64>();
    let (before, began) = (cpu(), Instant::now());
    let answer = connection.post(path, object).await?;
    ensure!(answer.code() == 201, "{}", answer.json());
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let path = format!("{path}/{name}");
    let mut helpers_bytes = 0;
    loop {
        // Helpers come and go.
        let all = processes.iter().flat_map(|pid| usage::children(*pid));
        let now = all.filter_map(e2e::server::resident_bytes).sum();
        helpers_bytes = std::cmp::max(helpers_bytes, now);
        if let Some(ended) = ended(&mut connection, &path, phase).await? {
            ensure!(ended == "Completed", "{path} ended as {ended}");
            break;
        }
        ensure!(began.elapsed() < TIMEOUT, "{path} does not end");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let wall_s = began.elapsed().as_secs_f64();
    let own: u64 = processes.iter().filter_map(|pid| usage::peak_bytes(*pid)).sum();
    Ok(Cost { wall_s, cpu_s: cpu() - before, peak_bytes: own + helpers_bytes, moved_bytes: 0 })
}

async fn ended(connection: &mut Connection, path: &str, phase: &str) -> Result<Option<String>> {
    let answer = connection.get(path).await?;
    if answer.code() != 200 {
        bail!("{path}: {}", answer.json());
    }
    let found = answer.json().pointer(phase).and_then(Value::as_str).map(str::to_owned);
    Ok(found.filter(|it| e2e::velero::ENDED.contains(&it.as_str())))
}
