//! kill -9 at any moment of each path; the end is the same as without.
//! `TENANTS_CRASH_ROUNDS` says how often, `TENANTS_CRASH_SEED` replays the choices of an earlier run.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use super::{ADMIN, World, conditions, is_created, nacuuid};

const ROUNDS: u64 = 12;
const NAB: &str = "NonAdminBackup";

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_the_end_is_the_same() {
    let rounds = from_environment("TENANTS_CRASH_ROUNDS").unwrap_or(ROUNDS);
    let seed = from_environment("TENANTS_CRASH_SEED").unwrap_or_else(|| rand::rng().random());
    println!("tenants crash: seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World::start().await;
    world.play(seed % 1000);
    world.namespace("team-a").await;
    for round in 0..rounds {
        let name = format!("n{round}");
        let fresh = json!({"metadata": {"name": name}, "spec": {"backupSpec": {}}});
        let path = round % 3;
        if path == 0 {
            world.create(NAB, "team-a", &fresh).await;
        } else {
            world.ready("team-a", &name).await;
            let flag = if path == 1 { "deleteBackup" } else { "forceDeleteBackup" };
            world.patch(NAB, "team-a", &name, &json!({"spec": {flag: true}})).await;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
        world.kill_and_start().await;
        let own = async |world: &World| -> Vec<String> {
            let all = world.list("Backup", ADMIN).await;
            let made_for = "openshift.io/oadp-nab-origin-name";
            let own =
                all.iter().filter(|it| it["metadata"]["annotations"][made_for] == json!(name));
            own.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        if path == 0 {
            let it = world.see(NAB, ("team-a", &name), "Created", is_created).await;
            assert_eq!(conditions(&it).len(), 2, "{it}");
            assert_eq!(own(&world).await, [nacuuid(&it)], "seed {seed}, round {round}");
        } else {
            world.gone(NAB, "team-a", &name).await;
            world
                .until("its Velero backup to be gone", async || own(&world).await.is_empty())
                .await;
        }
    }
    world
        .until("no request to be left", async || {
            world.list("DeleteBackupRequest", ADMIN).await.is_empty()
        })
        .await;
    println!("tenants crash: {rounds} rounds, all ends as without");
}
