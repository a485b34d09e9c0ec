//! What one change costs among more and more volumes: the real controllers against a map.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use reconcile::Metrics;
use serde_json::{Value, json};
use tasks::Tasks;

use super::memory::Memory;
use super::{NAMESPACE, Options, TIMEOUT, float, mebibytes};
use crate::usage;

/// The volume that all others are copies of.
const MODEL: &str = "vol-model";
const NODES: usize = 3;
/// Nothing was asked for so long, and less than this share of a core was used: everything has been
/// looked at.
const QUIET: Duration = Duration::from_secs(1);
const IDLE_SHARE: f64 = 0.5;
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) async fn measure(options: &Options) -> Result<()> {
    println!("\n## One change among many volumes, simulated\n");
    println!(
        "The controllers in this process, against an API server that is a map; detached volumes of three \
         copies. A change: a volume is made, and is deleted.\n"
    );
    println!(
        "| volumes | objects | all looked at after | memory | idle | change: time | processor | requests | writes |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let model = model().await?;
    for count in &options.curve {
        at(*count, &model, options).await?;
    }
    Ok(())
}

/// The objects of one volume, as the controllers make them.
async fn model() -> Result<Vec<(String, Value)>> {
    let memory = Memory::default();
    load_nodes(&memory);
    let tasks = start(&memory);
    memory.make(MODEL).await?;
    quiet(&memory).await;
    tasks.begin_stop();
    let _ = tasks.stop(TIMEOUT).await;
    let all = memory.all();
    Ok(all.into_iter().filter(|(_, it)| it.to_string().contains(MODEL)).collect())
}

fn load_nodes(memory: &Memory) {
    for number in 1..=NODES {
        let name = format!("node-{number}");
        let ready =
            json!([{"type": "Ready", "status": "True"}, {"type": "Schedulable", "status": "True"}]);
        memory.load(
            "nodes",
            json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Node",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
            "spec": {"name": name, "allowScheduling": true, "disks": {"disk": {"path": "/disk",
                "allowScheduling": true, "diskType": "filesystem", "storageReserved": 0}}},
            "status": {"conditions": ready, "diskStatus": {"disk": {"conditions": ready,
                "diskUUID": format!("disk-{number}"), "diskPath": "/disk", "diskType": "filesystem",
                "storageAvailable": 1_u64 << 60, "storageMaximum": 1_u64 << 60,
                "storageScheduled": 0, "scheduledReplica": {}}}}}),
        );
        // Nodes that are heard of.
        let far = "2099-01-01T00:00:00.000000Z";
        memory.load("leases", json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": format!("node-{name}"), "namespace": NAMESPACE, "uid": format!("l{name}")},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": far,
                "acquireTime": far}}));
    }
}

fn start(memory: &Memory) -> Tasks {
    let tasks = Tasks::new();
    let mut registry = telemetry::Registry::new("bench");
    let metrics = Metrics::new(&mut registry, volumes::figures::FACTS);
    for controller in volumes::controllers() {
        // Whether nodes are heard of is not what is measured.
        if controller.name != volumes::node::watch::CONTROLLER.name {
            controller.spawn(memory.client(), &tasks, metrics.clone());
        }
    }
    tasks
}

/// Waits until nobody asks for anything any more, and nobody thinks about it.
async fn quiet(memory: &Memory) -> Instant {
    let own = std::process::id();
    let (mut since, mut known) = (Instant::now(), (memory.requests(), 0.0));
    loop {
        tokio::time::sleep(QUIET).await;
        let now = (memory.requests(), usage::processor_seconds(own));
        if now.0 == known.0 && now.1 - known.1 < QUIET.as_secs_f64() * IDLE_SHARE {
            return since;
        }
        (since, known) = (Instant::now(), now);
    }
}

impl Memory {
    async fn make(&self, name: &str) -> Result<()> {
        let body = json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"size": "16777216", "frontend": "blockdev", "numberOfReplicas": 3}});
        let request = http::Request::post(format!("{}/volumes", super::LONGHORN));
        let request = request.body(body.to_string().into_bytes())?;
        let _: Value = self.client().request(request).await?;
        self.until(name, |it| it.is_some_and(|it| it["status"]["state"] == "detached")).await
    }

    async fn remove(&self, name: &str) -> Result<()> {
        let request = http::Request::delete(format!("{}/volumes/{name}", super::LONGHORN));
        let _: Value = self.client().request(request.body(Vec::new())?).await?;
        self.until(name, |it| {
            self.release(name, volumes::FINALIZER);
            it.is_none()
        })
        .await
    }

    async fn until(&self, name: &str, holds: impl Fn(Option<Value>) -> bool) -> Result<()> {
        let began = Instant::now();
        while !holds(self.get("volumes", name)) {
            if began.elapsed() > TIMEOUT {
                bail!("{name}: {:?}", self.get("volumes", name));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

async fn at(count: usize, model: &[(String, Value)], options: &Options) -> Result<()> {
    let own = std::process::id();
    let memory = Memory::default();
    load_nodes(&memory);
    for (plural, object) in model {
        let text = object.to_string();
        for number in 0..count {
            let text = text.replace(MODEL, &super::many::name(number));
            let mut copy: Value = serde_json::from_str(&text)?;
            let uid = format!("{}-{number}", copy["metadata"]["uid"].as_str().unwrap_or_default());
            copy["metadata"]["uid"] = uid.into();
            memory.load(plural, copy);
        }
    }
    let before = e2e::server::resident_bytes(own).unwrap_or(0);
    let began = Instant::now();
    let tasks = start(&memory);
    let looked = quiet(&memory).await.duration_since(began);
    let resident = e2e::server::resident_bytes(own).unwrap_or(0).saturating_sub(before);
    let idle = usage::processor_seconds(own);
    let period = Duration::from_secs(options.idle.max(1));
    tokio::time::sleep(period).await;
    let idle = (usage::processor_seconds(own) - idle) / period.as_secs_f64() * 100.0;

    let (requests, writes) = (memory.requests(), memory.writes());
    let (cpu, began) = (usage::processor_seconds(own), Instant::now());
    for number in 0..options.changes {
        let name = format!("changed-{number}");
        memory.make(&name).await?;
        memory.remove(&name).await?;
    }
    let changes = float(options.changes);
    let time = began.elapsed().as_secs_f64() / changes;
    // What the idle controllers would have used in that time anyway is not of the changes.
    let background = idle / 100.0 * began.elapsed().as_secs_f64();
    let cpu = (usage::processor_seconds(own) - cpu - background).max(0.0) / changes;
    #[expect(clippy::cast_precision_loss, reason = "not many")]
    let of = |now: u64, before: u64| (now - before) as f64 / changes;
    println!(
        "| {count} | {} | {:.1} s | {:.0} MiB | {idle:.2} % | {:.1} ms | {:.2} ms | {:.1} | {:.1} |",
        count * model.len(),
        looked.as_secs_f64(),
        mebibytes(resident),
        time * 1000.0,
        cpu * 1000.0,
        of(memory.requests(), requests),
        of(memory.writes(), writes)
    );
    tasks.begin_stop();
    let _ = tasks.stop(TIMEOUT).await;
    Ok(())
}
