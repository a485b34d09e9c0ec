//! Many tenants that ask for many backups, on a server whose executor is off: what is measured are the
//! controllers of tenants and the API beneath them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{Connection, Endpoint, Server};
use serde_json::json;
use tokio::task::JoinSet;

use super::seen::Seen;
use super::{ADMIN, CLIENTS, OADP, Options, VELERO, mebibytes, ms};
use crate::measure::percentile;
use crate::usage;

/// For what was asked for to be written, before idleness is watched.
const SETTLE: Duration = Duration::from_secs(5);

pub(super) async fn measure(options: &Options) -> Result<()> {
    let server = Server::start_with(&["--no-velero"]);
    let endpoint = server.endpoint();
    let count = options.namespaces * options.backups;
    println!("\n## {} namespaces, {} backups each\n", options.namespaces, options.backups);
    prepare(&endpoint, options.namespaces).await?;
    let seen = Seen::start(&endpoint);
    alone(&endpoint, &seen, options.alone).await?;
    let before = Before::now(&server, &endpoint).await?;
    let asked = ask_all(&endpoint, options).await?;
    let mut times = Vec::new();
    for (key, at) in &asked {
        times.push(seen.created(key).await?.saturating_duration_since(*at));
    }
    let whole = before.at.elapsed();
    times.sort_unstable();
    let passes = passes(&endpoint).await? - before.passes;
    let cpu = usage::processor_seconds(server.process_id()) - before.cpu_s;
    let (p50, p99) = (percentile(&times, 50), percentile(&times, 99));
    let seconds = whole.as_secs_f64();
    println!("| {count} at once, create to Created | {:.0} ms | {:.0} ms |", ms(p50), ms(p99));
    println!();
    println!(
        "- all Created after {seconds:.2} s: {:.0} backups a second",
        f64::from(count) / seconds
    );
    println!("- {:.0} reconciles a second, {cpu:.1} s of the processor", passes / seconds);
    let order = settle(&endpoint, &seen).await?;
    println!("- all places in the queue told after {:.2} s", before.at.elapsed().as_secs_f64());
    println!("- memory {:.0} MiB", mebibytes(server.resident_bytes()));
    idle(&server, options.idle).await;
    queue(&endpoint, &seen, order).await
}

/// What the figures are counted from.
struct Before {
    at: Instant,
    passes: f64,
    cpu_s: f64,
}

impl Before {
    async fn now(server: &Server, endpoint: &Endpoint) -> Result<Self> {
        let passes = passes(endpoint).await?;
        let cpu_s = usage::processor_seconds(server.process_id());
        Ok(Self { at: Instant::now(), passes, cpu_s })
    }
}

async fn prepare(endpoint: &Endpoint, namespaces: u32) -> Result<()> {
    let make = async |connection: &mut Connection, number: u32| {
        let body = json!({"metadata": {"name": format!("team-{number}")}});
        let answer = connection.post("/api/v1/namespaces", &body).await?;
        ensure!(answer.code() == 201, "{}", answer.json());
        Ok(())
    };
    let mut connection = endpoint.connect().await?;
    for number in 0..namespaces {
        make(&mut connection, number).await?;
    }
    // Controllers begin a moment after the server.
    let path = format!("/api/v1/namespaces/{ADMIN}");
    while connection.get(&path).await?.code() != 200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn ask(connection: &mut Connection, namespace: u32, name: &str) -> Result<String> {
    let path = format!("{OADP}/namespaces/team-{namespace}/nonadminbackups");
    let body = json!({"apiVersion": "oadp.openshift.io/v1alpha1", "kind": "NonAdminBackup",
        "metadata": {"name": name}, "spec": {"backupSpec": {}}});
    let answer = connection.post(&path, &body).await?;
    ensure!(answer.code() == 201, "{}", answer.json());
    Ok(format!("team-{namespace}/{name}"))
}

async fn alone(endpoint: &Endpoint, seen: &Seen, count: u32) -> Result<()> {
    let mut connection = endpoint.connect().await?;
    let mut times = Vec::new();
    for number in 0..count {
        let began = Instant::now();
        let key = ask(&mut connection, 0, &format!("alone-{number}")).await?;
        times.push(seen.created(&key).await?.saturating_duration_since(began));
    }
    times.sort_unstable();
    let (p50, p99) = (percentile(&times, 50), percentile(&times, 99));
    println!("| what | p50 | p99 |\n|---|---|---|");
    println!("| one at a time, create to Created | {:.1} ms | {:.1} ms |", ms(p50), ms(p99));
    Ok(())
}

/// All of them, by a few clients; when each was asked for.
async fn ask_all(endpoint: &Endpoint, options: &Options) -> Result<Vec<(String, Instant)>> {
    let clients = u32::try_from(CLIENTS)?;
    let mut tasks: JoinSet<Result<Vec<(String, Instant)>>> = JoinSet::new();
    for client in 0..clients {
        let mut connection = endpoint.connect().await?;
        let (namespaces, backups) = (options.namespaces, options.backups);
        tasks.spawn(async move {
            let mut asked = Vec::new();
            for backup in 0..backups {
                for namespace in (client..namespaces).step_by(CLIENTS) {
                    let at = Instant::now();
                    let key = ask(&mut connection, namespace, &format!("b-{backup}")).await?;
                    asked.push((key, at));
                }
            }
            Ok(asked)
        });
    }
    let all: Result<Vec<_>> = tasks.join_all().await.into_iter().collect();
    Ok(all?.concat())
}

/// Passes of the controllers of tenants so far.
async fn passes(endpoint: &Endpoint) -> Result<f64> {
    let text = endpoint.connect().await?.get("/metrics").await?;
    let text = String::from_utf8_lossy(&text.body).into_owned();
    let ours = text.lines().filter(|line| {
        line.starts_with("holdfast_reconciles_total{") && line.contains("\"nonadmin")
    });
    Ok(ours.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// The queue as the executor has it: names of Velero backups that wait, in their order.
async fn order(endpoint: &Endpoint) -> Result<Vec<String>> {
    let list = endpoint.connect().await?.get(&format!("{VELERO}/backups")).await?.json();
    let items = list["items"].as_array().context("no list of backups")?;
    let mut waiting: Vec<(String, String)> = items
        .iter()
        .filter(|it| it.pointer("/status/phase").is_none())
        .map(|it| {
            let text = |name: &str| it["metadata"][name].as_str().unwrap_or_default().to_owned();
            (text("creationTimestamp"), text("name"))
        })
        .collect();
    waiting.sort();
    Ok(waiting.into_iter().map(|(_, name)| name).collect())
}

/// Until everybody who waits was told its place.
async fn told(seen: &Seen, order: &[String]) -> Result<()> {
    let wanted: HashMap<&str, i64> = order.iter().map(String::as_str).zip(1..).collect();
    seen.until("every place to be told", || {
        let entries = seen.lock();
        let right = |name: &str, position: Option<i64>| match wanted.get(name) {
            Some(wanted) => position == Some(*wanted),
            None => position == Some(0),
        };
        entries.values().all(|it| right(&it.velero, it.position)).then_some(())
    })
    .await
}

async fn settle(endpoint: &Endpoint, seen: &Seen) -> Result<Vec<String>> {
    let order = order(endpoint).await?;
    ensure!(order.len() == seen.lock().len(), "{} wait", order.len());
    told(seen, &order).await?;
    Ok(order)
}

async fn idle(server: &Server, seconds: u64) {
    tokio::time::sleep(SETTLE).await;
    let before = usage::processor_seconds(server.process_id());
    let period = Duration::from_secs(seconds.max(1));
    tokio::time::sleep(period).await;
    let used = usage::processor_seconds(server.process_id()) - before;
    println!("- idle: {:.2} % of one core", used / period.as_secs_f64() * 100.0);
}

/// One end at the front, one in the middle, one at the back.
async fn queue(endpoint: &Endpoint, seen: &Seen, mut order: Vec<String>) -> Result<()> {
    println!(
        "\n| a backup ends | places that move | all told after | of each |\n|---|---|---|---|"
    );
    let mut connection = endpoint.connect().await?;
    for (what, part) in [("at the back", 1.0), ("in the middle", 0.5), ("at the front", 0.0)] {
        let last = order.len().saturating_sub(1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
        #[expect(clippy::cast_precision_loss, reason = "not many")]
        let at = (last as f64 * part) as usize;
        let name = order.remove(at);
        let moves = order.len() - at;
        let done = json!({"status": {"phase": "Completed",
            "completionTimestamp": "2030-01-01T00:00:00Z"}});
        let began = Instant::now();
        let answer = connection.merge(&format!("{VELERO}/backups/{name}"), &done).await?;
        ensure!(answer.code() == 200, "{}", answer.json());
        told(seen, &order).await?;
        let took = began.elapsed();
        let each = ms(took) / f64::from(u32::try_from(moves.max(1))?);
        println!("| {what} | {moves} | {:.0} ms | {each:.2} ms |", ms(took));
    }
    Ok(())
}
