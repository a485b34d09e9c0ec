//! Three hundred backups: their places fall to 0 in order, also when the executor restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{ADMIN, TIMEOUT, World, nacuuid, position};

const BACKUPS: usize = 300;
const TENANTS: usize = 10;

fn places(all: &[Value]) -> BTreeMap<String, i64> {
    all.iter().filter_map(|it| Some((nacuuid(it), position(it)?))).collect()
}

async fn all(world: &World) -> Vec<Value> {
    let mut all = Vec::new();
    for tenant in 0..TENANTS {
        all.append(&mut world.list("NonAdminBackup", &format!("team-{tenant}")).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_fall_to_zero_in_order_also_when_the_executor_restarts() {
    let mut world = World::start().await;
    for tenant in 0..TENANTS {
        world.namespace(&format!("team-{tenant}")).await;
    }
    for number in 0..BACKUPS {
        let object =
            json!({"metadata": {"name": format!("q{number:03}")}, "spec": {"backupSpec": {}}});
        world.create("NonAdminBackup", &format!("team-{}", number % TENANTS), &object).await;
    }
    // All wait: each has a place of its own, by creation.
    world
        .until("every place to be right", async || {
            let mut order: Vec<Value> = world.list("Backup", ADMIN).await;
            order.sort_by_key(|it| {
                (
                    it["metadata"]["creationTimestamp"].to_string(),
                    it["metadata"]["name"].to_string(),
                )
            });
            let wanted: BTreeMap<String, i64> = (1..)
                .zip(&order)
                .map(|(place, it)| (it["metadata"]["name"].as_str().unwrap().to_owned(), place))
                .collect();
            order.len() == BACKUPS && places(&all(&world).await) == wanted
        })
        .await;
    let mut last = places(&all(&world).await);
    world.play_until(5, BACKUPS / 3);
    let began = std::time::Instant::now();
    let mut restarted = false;
    loop {
        assert!(
            began.elapsed() < TIMEOUT * 2,
            "not done: {:?}",
            last.values().filter(|it| **it > 0).count()
        );
        let now = places(&all(&world).await);
        for (name, place) in &now {
            assert!(*place <= last[name], "{name} rose from {} to {place}", last[name]);
        }
        last = now;
        let done = last.values().filter(|place| **place == 0).count();
        if done == BACKUPS {
            break;
        }
        if !restarted && done >= BACKUPS / 3 {
            restarted = true;
            let client = world.client.clone();
            world.velero.as_mut().unwrap().restart(client);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(restarted, "it did not hang in the middle");
}
