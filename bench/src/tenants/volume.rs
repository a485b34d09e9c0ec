//! One namespace with many objects and a volume, backed up and restored as its tenant asks for it.

use anyhow::{Result, ensure};
use bytes::Bytes;
use e2e::engine::{Endpoint, Nbd};
use e2e::velero::World;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{OADP, Options, mebibytes, objects};

const NAMESPACE: &str = "whole";
const VOLUMES: &str = "longhorn-system";
const CLAIM: &str = "data";
const MIB: u64 = 1 << 20;
const MIB_REQUEST: u32 = 1 << 20;

pub(super) fn measure(options: &Options, runtime: &Runtime) -> Result<()> {
    println!("\n## A namespace of {} objects and {} MiB\n", options.objects, options.volume);
    let world = World::start();
    make_room(&world);
    let endpoint = world.server.endpoint();
    runtime.block_on(objects::make(&endpoint, NAMESPACE, options.objects))?;
    let volume = claim(&world, options.volume);
    runtime.block_on(fill(&attach(&world, &volume), options.volume))?;
    detach(&world, &volume);
    println!("| operation | wall s | CPU s | peak MiB, all processes |\n|---|---|---|---|");
    let asked = |kind: &str, spec: Value| {
        json!({"apiVersion": "oadp.openshift.io/v1alpha1", "kind": kind,
            "metadata": {"name": "whole"}, "spec": spec})
    };
    let pid = world.server.process_id();
    let ask = |kind: &str, spec: Value, phase: &str| {
        let path = format!("{OADP}/namespaces/{NAMESPACE}/{}s", kind.to_lowercase());
        runtime.block_on(objects::timed(&endpoint, &path, &asked(kind, spec), phase, &[pid]))
    };
    let phase = "/status/veleroBackup/status/phase";
    let backup = ask("NonAdminBackup", json!({"backupSpec": {}}), phase)?;
    let kinds = "configmap,secret,service,deployment,pvc";
    world.kubectl(&["delete", kinds, "--all", "-n", NAMESPACE, "--wait=true"]);
    world.wait("the volume to be gone", || world.get("lhv", VOLUMES, &volume).is_none());
    let phase = "/status/veleroRestore/status/phase";
    let restore = ask("NonAdminRestore", json!({"restoreSpec": {"backupName": "whole"}}), phase)?;
    for (what, cost) in [("backup", backup), ("restore", restore)] {
        let peak = mebibytes(cost.peak_bytes);
        println!("| {what} | {:.2} | {:.2} | {peak:.0} |", cost.wall_s, cost.cpu_s);
    }
    let found = runtime.block_on(objects::count(&endpoint, NAMESPACE))?;
    ensure!(found == usize::try_from(options.objects)?, "{found} objects came back");
    let volume = bound(&world);
    let checked = runtime.block_on(check(&attach(&world, &volume), options.volume));
    detach(&world, &volume);
    checked
}

/// The disk of the machine may be nearly full; the volume is small.
fn make_room(world: &World) {
    for (setting, value) in [
        ("storage-minimal-available-percentage", "1"),
        ("storage-over-provisioning-percentage", "500"),
    ] {
        world.wait("the settings", || world.get("lhs", VOLUMES, setting).is_some());
        let patch = json!({ "value": value }).to_string();
        world.kubectl(&["patch", "lhs", "-n", VOLUMES, setting, "--type=merge", "-p", &patch]);
    }
}

fn claim(world: &World, mebibytes: u64) -> String {
    world.apply(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {"storageClassName": "longhorn", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": format!("{mebibytes}Mi")}}}}));
    bound(world)
}

/// The volume of the claim.
fn bound(world: &World) -> String {
    let claim = || world.get("pvc", NAMESPACE, CLAIM).unwrap_or_default();
    world.wait("the claim to be bound", || claim()["status"]["phase"] == "Bound");
    claim()["spec"]["volumeName"].as_str().unwrap_or_default().to_owned()
}

fn state(world: &World, volume: &str) -> Value {
    world.get("lhv", VOLUMES, volume).unwrap_or_default()["status"]["state"].clone()
}

fn ticket(world: &World, volume: &str, ticket: &Value) {
    let patch = json!({"spec": {"attachmentTickets": {"bench": ticket}}}).to_string();
    world.kubectl(&["patch", "lhva", "-n", VOLUMES, volume, "--type=merge", "-p", &patch]);
}

/// Where the volume is served, until [`detach`].
fn attach(world: &World, volume: &str) -> Endpoint {
    world.wait("the volume to rest", || state(world, volume) == "detached");
    let nodes = world.kubectl(&["get", "lhn", "-n", VOLUMES, "-o", "json"]);
    let nodes: Value = serde_json::from_str(&nodes).unwrap_or_default();
    let asked = json!({"id": "bench", "type": "longhorn-api",
        "nodeID": nodes["items"][0]["metadata"]["name"],
        "parameters": {"disableFrontend": "false"}});
    ticket(world, volume, &asked);
    let engine = format!("{volume}-e-0");
    let endpoint = || {
        let found = world.get("lhe", VOLUMES, &engine).unwrap_or_default();
        found["status"]["endpoint"].as_str().unwrap_or_default().to_owned()
    };
    world.wait("the volume to be attached", || {
        state(world, volume) == "attached" && !endpoint().is_empty()
    });
    Endpoint::parse(&endpoint())
}

fn detach(world: &World, volume: &str) {
    ticket(world, volume, &Value::Null);
    world.wait("the volume to be detached", || state(world, volume) == "detached");
}

/// A mebibyte of its own, half of which packs well.
fn piece(at: u64) -> Bytes {
    let mut state = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(1 << 20);
    while bytes.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
        bytes.extend_from_slice(b"settings");
    }
    bytes.into()
}

async fn fill(endpoint: &Endpoint, mebibytes: u64) -> Result<()> {
    let nbd = Nbd::connect(endpoint).await?;
    for at in 0..mebibytes {
        nbd.write(at * MIB, piece(at)).await?;
    }
    Ok(nbd.flush().await?)
}

async fn check(endpoint: &Endpoint, mebibytes: u64) -> Result<()> {
    let nbd = Nbd::connect(endpoint).await?;
    for at in 0..mebibytes {
        let found = nbd.read(at * MIB, MIB_REQUEST).await?;
        ensure!(found == piece(at), "mebibyte {at} came back as another");
    }
    Ok(())
}
