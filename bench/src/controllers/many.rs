//! Many volumes: made, attached, and left alone.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::{Connection, Endpoint, server};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::{Cluster, Used};
use super::fleet::Fleet;
use super::seen::Seen;
use super::{CLIENTS, LONGHORN, Options, float, mebibytes};

const NODES: u8 = 3;
/// For what was asked for to be written, before idleness is watched.
const SETTLE: Duration = Duration::from_secs(10);

pub(super) async fn measure(options: &Options) -> Result<()> {
    let count = options.volumes;
    println!("\n## {count} volumes of three copies\n");
    println!("Simulated engines and replicas on {NODES} nodes; server and controllers are real.\n");
    println!("| what | time | a second | reconciles a second | controllers | server |");
    println!("|---|---|---|---|---|---|");
    let mut cluster = Cluster::start().await?;
    let config = server::config_of(&cluster.kubeconfig()).await;
    let fleet = Fleet::start(&config, NODES, cluster.path())?;
    let endpoint = cluster.endpoint()?;
    nodes_are_ready(&endpoint).await?;
    let seen = Seen::start(&endpoint, "volumes", state).await?;

    let begin = Begin::now(&cluster).await?;
    for_each(&endpoint, count, |number| {
        let body = json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
            "metadata": {"name": name(number)},
            "spec": {"size": "16777216", "frontend": "blockdev", "numberOfReplicas": 3}});
        (Verb::Post, "volumes".to_owned(), body)
    })
    .await?;
    seen.until("all volumes to be detached", |all| are(all, count, "detached")).await?;
    begin.tell("made: created to detached", count, &cluster).await?;

    let begin = Begin::now(&cluster).await?;
    for_each(&endpoint, count, |number| {
        let node = fleet.names.get(number % fleet.names.len()).cloned().unwrap_or_default();
        let ticket = json!({"id": "bench", "type": "longhorn-api", "nodeID": node,
            "parameters": {"disableFrontend": "false"}});
        let body = json!({"spec": {"attachmentTickets": {"bench": ticket}}});
        (Verb::Merge, format!("volumeattachments/{}", name(number)), body)
    })
    .await?;
    seen.until("all volumes to be attached", |all| are(all, count, "attached/healthy")).await?;
    begin.tell("attached: ticket to healthy", count, &cluster).await?;

    let idle = idle(&cluster, options.idle).await?;
    cluster.kill_controllers()?;
    let killed = Instant::now();
    cluster.start_controllers().await?;
    let mut connection = endpoint.connect().await?;
    let body = json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
        "metadata": {"name": "late"},
        "spec": {"size": "16777216", "frontend": "blockdev", "numberOfReplicas": 3}});
    let answer = connection.post(&format!("{LONGHORN}/volumes"), &body).await?;
    ensure!(answer.code() == 201, "{}", answer.json());
    seen.until("a new volume", |all| all.get("late").is_some_and(|it| it == "detached")).await?;
    let restarted = killed.elapsed();
    tokio::time::sleep(SETTLE).await;
    let used = cluster.used().await?;
    println!();
    println!(
        "- controllers killed and started among all of them: a new volume is made {:.2} s later, all of \
         them were looked at for {:.2} s of the processor",
        restarted.as_secs_f64(),
        used.controllers_s
    );
    println!("- idle, everything attached: {idle}");
    let (server, controllers) = cluster.resident_bytes()?;
    println!(
        "- memory: server {:.0} MiB, controllers {:.0} MiB",
        mebibytes(server),
        mebibytes(controllers)
    );
    Ok(())
}

pub(super) fn name(number: usize) -> String {
    format!("vol-{number:06}")
}

fn state(volume: &Value) -> Value {
    let text = |field: &str| volume["status"][field].as_str().unwrap_or_default();
    match text("state") {
        "attached" => format!("attached/{}", text("robustness")).into(),
        other => other.into(),
    }
}

fn are(all: &std::collections::BTreeMap<String, Value>, count: usize, state: &str) -> bool {
    all.len() >= count && all.values().all(|it| it == state)
}

async fn nodes_are_ready(endpoint: &Endpoint) -> Result<()> {
    let ready = |node: &Value| -> Value {
        let conditions = node["status"]["conditions"].as_array();
        let is_ready = |it: &&Value| it["type"] == "Ready" && it["status"] == "True";
        conditions.into_iter().flatten().any(|it| is_ready(&it)).into()
    };
    let seen = Seen::start(endpoint, "nodes", ready).await?;
    let wanted = usize::from(NODES);
    seen.until("the nodes", |all| all.values().filter(|it| **it == true).count() == wanted).await
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Post,
    Merge,
}

/// One request for each number, by a few clients.
pub(super) async fn for_each(
    endpoint: &Endpoint,
    count: usize,
    request: impl Fn(usize) -> (Verb, String, Value),
) -> Result<()> {
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for client in 0..CLIENTS {
        let mut connection: Connection = endpoint.connect().await?;
        let all: Vec<_> = (client..count).step_by(CLIENTS).map(&request).collect();
        tasks.spawn(async move {
            for (verb, path, body) in all {
                let path = format!("{LONGHORN}/{path}");
                let answer = match verb {
                    Verb::Post => connection.post(&path, &body).await?,
                    Verb::Merge => connection.merge(&path, &body).await?,
                };
                ensure!(matches!(answer.code(), 200 | 201), "{path}: {}", answer.json());
            }
            Ok(())
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// What a row is counted from.
struct Begin {
    at: Instant,
    used: Used,
}

impl Begin {
    async fn now(cluster: &Cluster) -> Result<Self> {
        Ok(Self { used: cluster.used().await?, at: Instant::now() })
    }

    async fn tell(self, what: &str, count: usize, cluster: &Cluster) -> Result<()> {
        let seconds = self.at.elapsed().as_secs_f64();
        let used = cluster.used().await?.since(self.used);
        println!(
            "| {what} | {seconds:.1} s | {:.0} | {:.0} | {:.1} s | {:.1} s |",
            float(count) / seconds,
            used.passes / seconds,
            used.controllers_s,
            used.server_s
        );
        Ok(())
    }
}

pub(super) async fn idle(cluster: &Cluster, seconds: u64) -> Result<String> {
    tokio::time::sleep(SETTLE).await;
    let before = cluster.used().await?;
    let period = Duration::from_secs(seconds.max(1));
    tokio::time::sleep(period).await;
    let used = cluster.used().await?.since(before);
    let share = |cpu: f64| cpu / period.as_secs_f64() * 100.0;
    Ok(format!(
        "controllers {:.2} % of a core, server {:.2} %, {:.1} reconciles a second",
        share(used.controllers_s),
        share(used.server_s),
        used.passes / period.as_secs_f64()
    ))
}
