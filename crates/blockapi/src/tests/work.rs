//! Work, whatever there is of it, comes to an end.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::rig::{NEW, Place, Rig, id_of};
use crate::sql::{Db, Server};

/// What never ends does not keep the rest from being looked at.
#[tokio::test]
async fn work_that_never_ends_keeps_nobody_waiting() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.looks = u32::MAX);
    for _ in 0..201 {
        rig.ok("POST", "/volumes", json!({"volume": {"size": 1}}), NEW).await;
    }
    rig.ok("DELETE", &format!("/volumes/{volume}"), Value::Null, NEW).await;
    for _ in 0..6 {
        rig.worker.pass().await.unwrap();
    }
    assert_eq!(rig.get(&format!("/volumes/{volume}"), NEW).await.code, 404);
}

/// Whoever holds a connection never waits for a second one: with one alone everything is done.
#[tokio::test]
async fn one_connection_is_enough() {
    let Some(address) = super::rig::postgres_schema().await else { return };
    let options: PgConnectOptions = address.parse().unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(std::time::Duration::from_mins(1))
        .connect_lazy_with(options);
    let rig = Rig::on(Db::Postgres(Server::new(pool, 1)), Place::Schema).await;
    rig.store.report_service("elsewhere@holdfast", "cinder-volume", "nova").await.unwrap();
    let volume = rig.volume().await;
    let body = json!({"snapshot": {"volume_id": volume}});
    let snapshot = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
    rig.settle().await;
    let body = json!({"backup": {"volume_id": volume, "snapshot_id": snapshot}});
    let made = rig.call("POST", "/backups", body.clone(), NEW).await;
    assert_eq!(made.code, 202, "{made:?}");
    assert_eq!(rig.call("POST", "/backups", body, NEW).await.code, 400, "one at a time");
    rig.settle().await;
    let backup = format!("/backups/{}", id_of(&made, "backup"));
    let body = json!({"restore": {"volume_id": volume}});
    rig.ok("POST", &format!("{backup}/restore"), body, NEW).await;
    rig.settle().await;
    rig.ok("DELETE", &backup, Value::Null, NEW).await;
    rig.settle().await;
    assert_eq!(rig.get(&backup, NEW).await.code, 404);
    rig.ok("DELETE", &format!("/snapshots/{snapshot}"), Value::Null, NEW).await;
    rig.settle().await;
    let host = json!({"host": "elsewhere@holdfast#holdfast"});
    assert_eq!(rig.action(&volume, "os-migrate_volume", host, NEW).await.code, 202);
    rig.settle().await;
    rig.attach(&volume, &uuid::Uuid::new_v4().to_string()).await;
}

/// A snapshot that is taken late is of the volume it was asked of, and keeps that.
#[tokio::test]
async fn a_snapshot_keeps_the_volume_it_is_of() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.write(&volume, 1);
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.settle().await;
    rig.backend.write(&volume, 2);
    rig.backend.mood(|moods| moods.hold_snapshots = true);
    let body = json!({"snapshot": {"volume_id": volume}});
    let snapshot = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
    let body = json!({"restore": {"volume_id": volume}});
    rig.ok("POST", &format!("/backups/{backup}/restore"), body, NEW).await;
    rig.passes(8).await;
    rig.expect(&volume, "available", None).await;
    rig.backend.mood(|moods| moods.hold_snapshots = false);
    rig.passes(8).await;
    let seen = rig.get(&format!("/snapshots/{snapshot}"), NEW).await;
    assert_eq!(seen.body["snapshot"]["status"], "available");
    let body = json!({"volume": {"snapshot_id": snapshot}});
    let made = id_of(&rig.call("POST", "/volumes", body, NEW).await, "volume");
    rig.passes(8).await;
    assert_eq!(rig.backend.content(&made), Some(2));
}

/// A volume that grows before it is copied: what is made of the copy is as large as the copy.
#[tokio::test]
async fn a_copy_is_as_large_as_the_volume_was() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.backend.mood(|moods| moods.hold_snapshots = true);
        let body = json!({"snapshot": {"volume_id": volume}});
        let snapshot = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
        assert_eq!(rig.action(&volume, "os-extend", json!({"new_size": 3}), NEW).await.code, 202);
        rig.passes(4).await;
        rig.expect(&volume, "available", None).await;
        rig.backend.mood(|moods| moods.hold_snapshots = false);
        rig.settle().await;
        let seen = rig.get(&format!("/snapshots/{snapshot}"), NEW).await;
        assert_eq!(seen.body["snapshot"]["size"], 3, "{seen:?}");
        let small = json!({"volume": {"snapshot_id": snapshot, "size": 1}});
        assert_eq!(rig.call("POST", "/volumes", small, NEW).await.code, 400);
        // The extension is done, and its end is not written yet.
        let backup = id_of(&rig.backup(&volume, false).await, "backup");
        assert_eq!(rig.action(&volume, "os-extend", json!({"new_size": 5}), NEW).await.code, 202);
        let late = "UPDATE workers SET owner = 'late', lease_until = '2999-01-01T00:00:00.000000' \
             WHERE resource_id = $1";
        rig.store.db.execute(late, &[volume.as_str().into()]).await.unwrap();
        let backend: &dyn crate::Backend = rig.backend.as_ref();
        backend.extend_volume(&volume, 5).await.unwrap();
        rig.settle().await;
        let seen = rig.get(&format!("/backups/{backup}"), NEW).await;
        assert_eq!(
            (&seen.body["backup"]["status"], &seen.body["backup"]["size"]),
            (&json!("available"), &json!(5))
        );
    }
}

/// What is being made from a volume is made of what it holds now.
#[tokio::test]
async fn what_a_volume_is_made_from_stays_until_it_is_made() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let backup = id_of(&rig.backup(&volume, false).await, "backup");
        rig.settle().await;
        let body = json!({"snapshot": {"volume_id": volume}});
        let snapshot = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
        rig.settle().await;
        let body = json!({"volume": {"source_volid": volume, "size": 1}});
        rig.ok("POST", "/volumes", body, NEW).await;
        let restore = json!({"restore": {"volume_id": volume}});
        let path = format!("/backups/{backup}/restore");
        assert_eq!(rig.call("POST", &path, restore, NEW).await.code, 400);
        let revert = json!({"snapshot_id": snapshot});
        assert_eq!(rig.action(&volume, "revert", revert, NEW).await.code, 409);
        rig.settle().await;
        let body = json!({"volume": {"snapshot_id": snapshot}});
        let made = id_of(&rig.call("POST", "/volumes", body, NEW).await, "volume");
        let path = format!("/volumes/{volume}?cascade=true");
        assert_eq!(rig.call("DELETE", &path, Value::Null, NEW).await.code, 400);
        rig.settle().await;
        rig.expect(&made, "available", None).await;
        rig.ok("DELETE", &path, Value::Null, NEW).await;
    }
}

/// What cannot be done is told after a while, and the volume is free.
#[tokio::test]
async fn a_snapshot_that_is_never_taken_fails() {
    let mut rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.hold_snapshots = true);
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    let body = json!({"snapshot": {"volume_id": volume}});
    let snapshot = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
    rig.passes(3).await;
    rig.expect(&volume, "available", Some("backing-up")).await;
    rig.age().await;
    rig.passes(3).await;
    rig.expect(&volume, "available", Some("backing-up")).await;
    // Only time in which somebody was there counts.
    rig.worker.started = jiff::Timestamp::UNIX_EPOCH;
    rig.settle().await;
    rig.expect(&volume, "available", Some("error_backing-up")).await;
    assert_eq!(rig.backup_status(&backup).await, "error");
    let seen = rig.get(&format!("/snapshots/{snapshot}"), NEW).await;
    assert_eq!(seen.body["snapshot"]["status"], "error");
    rig.ok("DELETE", &format!("/snapshots/{snapshot}"), Value::Null, NEW).await;
    rig.settle().await;
    rig.ok("DELETE", &format!("/volumes/{volume}"), Value::Null, NEW).await;
}

/// A page of few among many costs what it shows: its condition is the beginning of an index that is in
/// the order of the page.
#[tokio::test]
async fn pages_by_name_status_and_backup_are_found_by_an_index() {
    let rig = Rig::new().await;
    for (condition, index) in [
        ("volumes.display_name = 'web'".to_owned(), "volumes_by_name"),
        ("volumes.status = 'error'".to_owned(), "volumes_by_status"),
        (
            format!("{} = 'backing-up'", crate::store::guard::backup_sql()),
            "volumes_by_shown_backup",
        ),
    ] {
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT * FROM volumes WHERE volumes.deleted = 0 AND \
             (volumes.project_id = 'p') AND ({condition}) ORDER BY volumes.created_at DESC, \
             volumes.id DESC LIMIT 100"
        );
        let plan = rig.service.store.db.fetch(&sql, &[]).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.text("detail").unwrap()).collect();
        assert_eq!(plan.len(), 1, "it is sorted after all, or more: {plan:?}");
        assert!(plan[0].contains(index) && plan[0].matches("=?").count() == 3, "{plan:?}");
    }
}
