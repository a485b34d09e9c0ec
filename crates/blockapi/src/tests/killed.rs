//! A worker that dies at any point: the next one brings every row to an end, and nothing is done twice.

use std::future::poll_fn;
use std::task::Poll;

use serde_json::{Value, json};

use super::rig::{NEW, Rig, id_of};
use crate::worker::Worker;

/// Works until it has waited so often for others, and is then gone. False: it came to its end before.
async fn die_after(worker: &Worker, waits: usize) -> bool {
    let mut pass = Box::pin(worker.pass());
    let mut left = waits;
    poll_fn(|context| match pass.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(false),
        Poll::Pending if left == 0 => Poll::Ready(true),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// The leases of whoever died run out.
async fn forget_the_dead(rig: &Rig) {
    let late = "UPDATE workers SET lease_until = '2000-01-01T00:00:00.000000', not_before = NULL";
    rig.store.db.execute(late, &[]).await.unwrap();
}

/// Everything that a worker does, asked for at once: the volumes it is done to.
async fn ask(rig: &Rig, backup: &str) -> Vec<String> {
    let (larger, saved, target, gone, taken) = (
        rig.volume().await,
        rig.volume().await,
        rig.volume().await,
        rig.volume().await,
        rig.volume().await,
    );
    rig.backend.write(&target, 1);
    assert_eq!(rig.action(&larger, "os-extend", json!({"new_size": 2}), NEW).await.code, 202);
    assert_eq!(rig.backup(&saved, false).await.code, 202);
    let path = format!("/backups/{backup}/restore");
    rig.ok("POST", &path, json!({"restore": {"volume_id": target}}), NEW).await;
    rig.ok("DELETE", &format!("/volumes/{gone}"), Value::Null, NEW).await;
    rig.ok("POST", "/snapshots", json!({"snapshot": {"volume_id": taken}}), NEW).await;
    let made = rig.call("POST", "/volumes", json!({"volume": {"size": 1}}), NEW).await;
    vec![id_of(&made, "volume"), larger, saved, target, taken, gone]
}

#[tokio::test]
async fn whatever_a_dead_worker_left_comes_to_its_end() {
    let rig = Rig::new().await;
    let source = rig.volume().await;
    rig.backend.write(&source, 5);
    let backup = id_of(&rig.backup(&source, false).await, "backup");
    rig.settle().await;
    let mut cut_short = 0;
    for waits in 0..40 {
        let volumes = ask(&rig, &backup).await;
        // The dead and the living take turns, so that each step is the last of somebody.
        for name in ["one", "two", "three"] {
            let dead = Worker { name: format!("{name}-{waits}"), ..rig.worker.clone() };
            cut_short += usize::from(die_after(&dead, waits).await);
            forget_the_dead(&rig).await;
        }
        rig.settle().await;
        let (gone, kept) = volumes.split_last().unwrap();
        for id in kept {
            rig.expect(id, "available", None).await;
        }
        assert_eq!(rig.get(&format!("/volumes/{gone}"), NEW).await.code, 404);
        let target = rig.store.volume(&volumes[3], None).await.unwrap().unwrap();
        assert_eq!(rig.backend.content(target.backend_name()), Some(5), "after {waits}");
        let larger = rig.store.volume(&volumes[1], None).await.unwrap().unwrap();
        assert_eq!(larger.size, 2);
        let left = "SELECT status, COUNT(*) AS n FROM backups WHERE deleted = 0 GROUP BY status";
        for row in rig.store.db.fetch(left, &[]).await.unwrap() {
            assert_eq!(row.text("status").unwrap(), "available", "after {waits}");
        }
        // What a restore took the place of, and what was deleted, is gone from the backend as well.
        let wanted = "SELECT COUNT(*) AS n FROM volumes WHERE deleted = 0";
        let wanted = rig.store.db.fetch_one(wanted, &[]).await.unwrap().unwrap().int("n").unwrap();
        assert_eq!(i64::try_from(rig.backend.volumes().len()).unwrap(), wanted, "after {waits}");
    }
    assert!(cut_short > 40, "only {cut_short} were cut short");
}

/// A restore whose worker died goes on where it was; what came of it beside the volume is not made twice.
#[tokio::test]
async fn another_worker_goes_on_with_a_restore() {
    for rig in Rig::everywhere().await {
        let (source, target) = (rig.volume().await, rig.volume().await);
        rig.backend.write(&source, 5);
        let backup = id_of(&rig.backup(&source, false).await, "backup");
        rig.settle().await;
        rig.backend.mood(|moods| moods.hold_restores = true);
        let path = format!("/backups/{backup}/restore");
        rig.ok("POST", &path, json!({"restore": {"volume_id": target}}), NEW).await;
        rig.passes(4).await;
        let beside = rig.backend.volumes().len();
        forget_the_dead(&rig).await;
        let other = Worker { name: "other".to_owned(), ..rig.worker.clone() };
        for _ in 0..3 {
            other.pass().await.unwrap();
            rig.hurry().await;
        }
        assert_eq!(rig.backend.volumes().len(), beside);
        rig.expect(&target, "available", Some("restoring-backup")).await;
        rig.backend.mood(|moods| moods.hold_restores = false);
        // The first one was only slow: what it does now changes nothing.
        rig.settle().await;
        while other.pass().await.unwrap() {
            rig.hurry().await;
        }
        rig.expect(&target, "available", None).await;
        assert_eq!(rig.backup_status(&backup).await, "available");
        let behind = rig.store.volume(&target, None).await.unwrap().unwrap();
        assert_eq!(rig.backend.content(behind.backend_name()), Some(5));
    }
}
