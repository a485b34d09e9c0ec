//! One namespace with many objects through one S3 service: backed up and restored by the executor, and
//! by a real Velero on the same objects.

use anyhow::{Context as _, Result, ensure};
use e2e::backup::Bucket;
use e2e::velero::World;
use e2e::velero::peer::Peer;
use e2e::{Endpoint, Server};
use serde_json::{Value, json};
use testkit::process::Process;
use tokio::runtime::Runtime;

use super::{Options, VELERO, mebibytes, objects};
use crate::measure::Cost;
use crate::usage;

const NAMESPACE: &str = "much";
const LOCATION: &str = "bench";
/// What Velero asks of the API server in a second, at most. Its default is 100, and it waits for most of
/// its time then: what it can do is measured, not how it is held back.
const UNBOUNDED: [&str; 4] = ["--client-qps", "10000", "--client-burst", "10000"];

/// Both operations of one subject.
struct Figures {
    backup: Cost,
    restore: Cost,
    /// Before the first of them.
    idle_bytes: u64,
}

pub(super) fn measure(options: &Options, runtime: &Runtime) -> Result<()> {
    println!("\n## A namespace of {} objects\n", options.objects);
    let Some(bucket) = Bucket::make() else { return Ok(()) };
    let theirs = match Peer::find_server() {
        Ok(peer) => Some(theirs(options, runtime, &bucket, &peer).context("Velero")?),
        Err(why) => {
            println!("skipped: no Velero beside it: {why}\n");
            None
        }
    };
    let ours = ours(options, runtime, &bucket).context("holdfast")?;
    println!(
        "| operation | wall s | CPU s | peak MiB | Velero: wall s | CPU s | peak MiB | faster | of its memory |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (what, of) in [
        ("backup", (|it| it.backup) as fn(&Figures) -> Cost),
        ("restore", |it: &Figures| it.restore),
    ] {
        println!("{}", row(what, &of(&ours), theirs.as_ref().map(of).as_ref()));
    }
    let idle = |it: &Figures| format!("{:.0} MiB", mebibytes(it.idle_bytes));
    println!(
        "\nResident before: Holdfast, which is the API server too, {}; Velero {}.",
        idle(&ours),
        theirs.as_ref().map_or("-".to_owned(), idle)
    );
    Ok(())
}

fn row(what: &str, ours: &Cost, theirs: Option<&Cost>) -> String {
    let cost =
        |it: &Cost| format!("{:.2} | {:.2} | {:.0}", it.wall_s, it.cpu_s, mebibytes(it.peak_bytes));
    let beside = theirs.map_or("- | - | - | - | -".to_owned(), |it| {
        let (faster, part) = (
            it.wall_s / ours.wall_s,
            mebibytes(ours.peak_bytes) / mebibytes(it.peak_bytes).max(f64::MIN_POSITIVE),
        );
        format!("{} | {faster:.1} (aim 5) | {part:.2} (aim 0.1)", cost(it))
    });
    format!("| {what} | {} | {beside} |", cost(ours))
}

fn ours(options: &Options, runtime: &Runtime, bucket: &Bucket) -> Result<Figures> {
    let world = World::start();
    world.locate(LOCATION, &bucket.at.to_string(), &bucket.name);
    let pid = world.server.process_id();
    runtime.block_on(both(&world.server.endpoint(), options, "ours", pid))
}

fn theirs(options: &Options, runtime: &Runtime, bucket: &Bucket, peer: &Peer) -> Result<Figures> {
    let world = World { server: Server::start_with(&["--no-velero"]) };
    let there = || world.get("namespace", "", e2e::velero::NAMESPACE).is_some();
    world.wait("the administrators' namespace", there);
    let velero: Process = peer.serve(&world, &UNBOUNDED);
    world.locate(LOCATION, &bucket.at.to_string(), &bucket.name);
    runtime.block_on(both(&world.server.endpoint(), options, "theirs", velero.id()))
}

async fn both(endpoint: &Endpoint, options: &Options, whose: &str, pid: u32) -> Result<Figures> {
    objects::make(endpoint, NAMESPACE, options.objects).await?;
    let idle_bytes = e2e::server::resident_bytes(pid).unwrap_or(0);
    let (mut backups, mut restores) = (Vec::new(), Vec::new());
    for run in 0..options.runs.max(1) {
        let name = format!("{whose}-{run}");
        let spec = json!({"includedNamespaces": [NAMESPACE], "storageLocation": LOCATION});
        backups.push(one(endpoint, "Backup", &name, spec, pid).await?);
        objects::delete_namespace(endpoint, NAMESPACE).await?;
        restores.push(one(endpoint, "Restore", &name, json!({"backupName": name}), pid).await?);
        let found = objects::count(endpoint, NAMESPACE).await?;
        ensure!(found == usize::try_from(options.objects)?, "{found} objects came back");
    }
    let median = |costs| Cost::median(costs).context("nothing was measured");
    Ok(Figures { backup: median(backups)?, restore: median(restores)?, idle_bytes })
}

async fn one(endpoint: &Endpoint, kind: &str, name: &str, spec: Value, pid: u32) -> Result<Cost> {
    let object = json!({"apiVersion": "velero.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": super::ADMIN}, "spec": spec});
    let path = format!("{VELERO}/{}s", kind.to_lowercase());
    ensure!(usage::peak_bytes(pid).is_some(), "the process has ended");
    objects::timed(endpoint, &path, &object, "/status/phase", &[pid]).await
}
