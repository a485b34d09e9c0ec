//! kill -9 at any moment of each path; the end is the same as without. Once over a played Velero, once
//! with the executor of the server, which dies with it.
//! `TENANTS_CRASH_ROUNDS` says how often, `TENANTS_CRASH_SEED` replays the choices of an earlier run.

use std::time::Duration;

use e2e::Server;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::{ADMIN, World, conditions, is_created, nacuuid};

/// Each path twice.
const ROUNDS: u64 = 12;
const NAB: &str = "NonAdminBackup";
const NAR: &str = "NonAdminRestore";
const TEAM: &str = "team-a";

/// What is under way when the kill comes.
#[derive(Debug, Clone, Copy)]
enum Path {
    Create,
    Delete,
    ForceDelete,
    ApiDelete,
    Restore,
    DeleteRestore,
}

const PATHS: [Path; 6] = [
    Path::Create,
    Path::Delete,
    Path::ForceDelete,
    Path::ApiDelete,
    Path::Restore,
    Path::DeleteRestore,
];

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_the_end_is_the_same() {
    let seed = seed();
    let mut world = World::start().await;
    world.play(seed % 1000);
    run(world, seed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_with_its_executor_the_end_is_the_same() {
    let server = Server::start();
    let client = server.client().await;
    let world = World { server, client, velero: None };
    let available = |it: &Value| it["status"]["phase"] == "Available";
    world.see("BackupStorageLocation", (ADMIN, "default"), "to be available", available).await;
    run(world, seed()).await;
}

fn seed() -> u64 {
    from_environment("TENANTS_CRASH_SEED").unwrap_or_else(|| rand::rng().random())
}

async fn run(mut world: World, seed: u64) {
    let rounds = from_environment("TENANTS_CRASH_ROUNDS").unwrap_or(ROUNDS);
    println!("tenants crash: seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    world.namespace(TEAM).await;
    for (round, path) in (0..rounds).zip(PATHS.into_iter().cycle()) {
        let name = format!("n{round}");
        begin(&world, path, &name).await;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
        world.kill_and_start().await;
        end(&world, path, &name, &format!("seed {seed}, round {round}, {path:?}")).await;
    }
    world
        // One that came too late for its backup is kept for a day, as the dialect has it.
        .until("no request to be under way", async || {
            let left = world.list("DeleteBackupRequest", ADMIN).await;
            left.iter().all(|it| it["status"]["phase"] == "Processed")
        })
        .await;
    println!("tenants crash: {rounds} rounds, all ends as without");
}

async fn begin(world: &World, path: Path, name: &str) {
    let restore =
        json!({"metadata": {"name": name}, "spec": {"restoreSpec": {"backupName": name}}});
    match path {
        Path::Create => {
            let fresh = json!({"metadata": {"name": name}, "spec": {"backupSpec": {}}});
            world.create(NAB, TEAM, &fresh).await;
        }
        Path::Delete | Path::ForceDelete => {
            world.ready(TEAM, name).await;
            let is_forced = matches!(path, Path::ForceDelete);
            let flag = if is_forced { "forceDeleteBackup" } else { "deleteBackup" };
            world.patch(NAB, TEAM, name, &json!({"spec": {flag: true}})).await;
        }
        Path::ApiDelete => {
            world.ready(TEAM, name).await;
            world.delete(NAB, TEAM, name).await;
        }
        Path::Restore => {
            world.ready(TEAM, name).await;
            world.create(NAR, TEAM, &restore).await;
        }
        Path::DeleteRestore => {
            world.ready(TEAM, name).await;
            world.create(NAR, TEAM, &restore).await;
            world.see(NAR, (TEAM, name), "to be Created", is_created).await;
            world.delete(NAR, TEAM, name).await;
        }
    }
}

/// The Velero objects of a kind that were made for a tenant's object of this name.
async fn own(world: &World, kind: &str, short: &str, name: &str) -> Vec<String> {
    let made_for = format!("openshift.io/oadp-{short}-origin-name");
    let all = world.list(kind, ADMIN).await;
    let own = all.iter().filter(|it| it["metadata"]["annotations"][&made_for] == json!(name));
    own.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

async fn end(world: &World, path: Path, name: &str, which: &str) {
    match path {
        Path::Create => {
            let it = world.see(NAB, (TEAM, name), "Created", is_created).await;
            assert_eq!(conditions(&it).len(), 2, "{which}: {it}");
            assert_eq!(own(world, "Backup", "nab", name).await, [nacuuid(&it)], "{which}");
        }
        Path::Delete | Path::ForceDelete => {
            world.gone(NAB, TEAM, name).await;
            world
                .until("its Velero backup to be gone", async || {
                    own(world, "Backup", "nab", name).await.is_empty()
                })
                .await;
        }
        Path::ApiDelete => {
            let held = |it: &Value| {
                it["status"]["phase"] == "Deleting"
                    && conditions(it).iter().any(|it| it.starts_with("Deleting=True"))
            };
            let it = world.see(NAB, (TEAM, name), "to be held", held).await;
            assert_eq!(own(world, "Backup", "nab", name).await, [nacuuid(&it)], "{which}");
            world.patch(NAB, TEAM, name, &json!({"spec": {"forceDeleteBackup": true}})).await;
            world.gone(NAB, TEAM, name).await;
        }
        Path::Restore => {
            let it = world.see(NAR, (TEAM, name), "Created", is_created).await;
            assert_eq!(own(world, "Restore", "nar", name).await, [nacuuid(&it)], "{which}");
        }
        Path::DeleteRestore => {
            world.gone(NAR, TEAM, name).await;
            world
                .until("its Velero restore to be gone", async || {
                    own(world, "Restore", "nar", name).await.is_empty()
                })
                .await;
        }
    }
}
