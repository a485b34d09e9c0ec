//! What is cancelled, or overtaken, leaves nothing behind and nobody waiting.

use serde_json::{Value, json};

use super::rig::{NEW, Rig, id_of};

async fn saved(rig: &Rig, volume: &str) -> String {
    let backup = id_of(&rig.backup(volume, false).await, "backup");
    rig.settle().await;
    assert_eq!(rig.backup_status(&backup).await, "available");
    backup
}

async fn snapshot(rig: &Rig, volume: &str) -> String {
    let body = json!({"snapshot": {"volume_id": volume}});
    let made = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
    rig.settle().await;
    made
}

/// What a volume was being restored to is removed, however the restore is cancelled.
#[tokio::test]
async fn a_cancelled_restore_leaves_no_volume_behind() {
    for action in
        [json!({"os-reset_status": {"status": "available"}}), json!({"os-force_delete": {}})]
    {
        for rig in Rig::everywhere().await {
            let volume = rig.volume().await;
            let backup = saved(&rig, &volume).await;
            rig.backend.mood(|moods| moods.hold_restores = true);
            let path = format!("/backups/{backup}");
            let body = json!({"restore": {"volume_id": volume}});
            rig.ok("POST", &format!("{path}/restore"), body, NEW).await;
            rig.passes(3).await;
            assert_eq!(rig.backend.volumes().len(), 2, "the volume, and what takes its place");
            rig.ok("POST", &format!("{path}/action"), action.clone(), NEW).await;
            rig.settle().await;
            assert_eq!(rig.backend.volumes(), std::slice::from_ref(&volume));
            rig.expect(&volume, "available", Some("error_restoring")).await;
        }
    }
}

#[tokio::test]
async fn a_volume_whose_restore_was_cancelled_can_be_deleted() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let backup = saved(&rig, &volume).await;
    rig.backend.mood(|moods| moods.hold_restores = true);
    let body = json!({"volume": {"backup_id": backup, "size": 1}});
    let made = id_of(&rig.call("POST", "/volumes", body, NEW).await, "volume");
    rig.passes(2).await;
    rig.expect(&made, "creating", Some("restoring-backup")).await;
    let reset = json!({"os-reset_status": {"status": "available"}});
    rig.ok("POST", &format!("/backups/{backup}/action"), reset, NEW).await;
    rig.expect(&made, "error", Some("error_restoring")).await;
    rig.ok("DELETE", &format!("/volumes/{made}"), Value::Null, NEW).await;
    rig.settle().await;
    assert_eq!(rig.backend.volumes(), [volume]);
}

/// A volume whose newest snapshot lives in what a restore has put another in the place of.
async fn restored(rig: &Rig) -> (String, String) {
    let volume = rig.volume().await;
    rig.backend.write(&volume, 1);
    let snapshot = snapshot(rig, &volume).await;
    rig.backend.write(&volume, 2);
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.settle().await;
    let body = json!({"restore": {"volume_id": volume}});
    rig.ok("POST", &format!("/backups/{backup}/restore"), body, NEW).await;
    rig.settle().await;
    (volume, snapshot)
}

#[tokio::test]
async fn a_cancelled_revert_frees_its_snapshot_and_leaves_no_volume_behind() {
    let rig = Rig::new().await;
    let (volume, snapshot) = restored(&rig).await;
    let before = rig.backend.volumes();
    rig.backend.mood(|moods| moods.looks = u32::MAX);
    let revert = json!({"snapshot_id": snapshot});
    assert_eq!(rig.action(&volume, "revert", revert, NEW).await.code, 202);
    rig.passes(3).await;
    assert_eq!(rig.backend.volumes().len(), before.len() + 1);
    let reset = json!({"status": "available"});
    assert_eq!(rig.action(&volume, "os-reset_status", reset, NEW).await.code, 202);
    rig.settle().await;
    assert_eq!(rig.backend.volumes(), before);
    rig.ok("DELETE", &format!("/snapshots/{snapshot}"), Value::Null, NEW).await;
    rig.settle().await;
    rig.ok("DELETE", &format!("/volumes/{volume}"), Value::Null, NEW).await;
}

/// What a snapshot of the volume itself holds needs no copy.
#[tokio::test]
async fn a_revert_is_done_where_the_snapshot_is() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.write(&volume, 1);
    let snapshot = snapshot(&rig, &volume).await;
    let revert = json!({"snapshot_id": snapshot});
    for content in [2, 3] {
        rig.backend.write(&volume, content);
        assert_eq!(rig.action(&volume, "revert", revert.clone(), NEW).await.code, 202);
        for _ in 0..10 {
            rig.passes(1).await;
            assert_eq!(rig.backend.volumes(), std::slice::from_ref(&volume), "nothing is copied");
        }
        rig.expect(&volume, "available", None).await;
        assert_eq!(rig.backend.content(&volume), Some(1), "also the second time");
    }
    // Where the snapshot is elsewhere, it is copied.
    let (volume, snapshot) = restored(&rig).await;
    let revert = json!({"snapshot_id": snapshot});
    assert_eq!(rig.action(&volume, "revert", revert, NEW).await.code, 202);
    rig.settle().await;
    let seen = rig.get(&format!("/volumes/{volume}"), NEW).await;
    let name = seen.body["volume"]["os-vol-mig-status-attr:name_id"].as_str().unwrap();
    assert_eq!(rig.backend.content(name), Some(1));
}

/// A revert that was called off does not come later and take what was written since.
#[tokio::test]
async fn a_revert_that_was_called_off_does_not_happen() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.write(&volume, 1);
    let snapshot = snapshot(&rig, &volume).await;
    rig.backend.write(&volume, 2);
    rig.backend.mood(|moods| moods.hold_reverts = true);
    let revert = json!({"snapshot_id": snapshot});
    assert_eq!(rig.action(&volume, "revert", revert.clone(), NEW).await.code, 202);
    rig.passes(3).await;
    assert!(rig.backend.is_to_revert(&volume));
    let reset = json!({"status": "available"});
    assert_eq!(rig.action(&volume, "os-reset_status", reset, NEW).await.code, 202);
    rig.passes(1).await;
    assert!(!rig.backend.is_to_revert(&volume));
    let seen = rig.get(&format!("/snapshots/{snapshot}"), NEW).await;
    assert_eq!(seen.body["snapshot"]["status"], "available");
    // Another one is not taken for the one that was called off.
    rig.backend.mood(|moods| moods.hold_reverts = false);
    assert_eq!(rig.action(&volume, "revert", revert, NEW).await.code, 202);
    rig.passes(5).await;
    assert_eq!(rig.backend.content(&volume), Some(2), "the one before is still being called off");
    rig.age().await;
    rig.settle().await;
    rig.expect(&volume, "available", None).await;
    assert_eq!(rig.backend.content(&volume), Some(1));
}

/// A second request does not throw the first one's work away.
#[tokio::test]
async fn nothing_overtakes_a_migration() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.store.report_service("elsewhere@holdfast", "cinder-volume", "nova").await.unwrap();
        let host = json!({"host": "elsewhere@holdfast#holdfast"});
        assert_eq!(rig.action(&volume, "os-migrate_volume", host.clone(), NEW).await.code, 202);
        let extend = json!({"new_size": 2});
        assert_eq!(rig.action(&volume, "os-extend", extend.clone(), NEW).await.code, 400);
        let transfer = json!({"transfer": {"volume_id": volume}});
        assert_eq!(rig.call("POST", "/volume-transfers", transfer, NEW).await.code, 400);
        rig.settle().await;
        let seen = rig.get(&format!("/volumes/{volume}"), NEW).await;
        assert_eq!(seen.body["volume"]["migration_status"], "success");
        assert_eq!(rig.action(&volume, "os-extend", extend, NEW).await.code, 202);
        rig.settle().await;
        // Nor does a reset leave one that nobody carries on with.
        let back = json!({"host": "localhost@holdfast#holdfast"});
        assert_eq!(rig.action(&volume, "os-migrate_volume", back, NEW).await.code, 202);
        let reset = json!({"status": "available"});
        assert_eq!(rig.action(&volume, "os-reset_status", reset, NEW).await.code, 202);
        let seen = rig.get(&format!("/volumes/{volume}"), NEW).await;
        assert_eq!(seen.body["volume"]["migration_status"], "error");
    }
}

/// A restore that an administrator took the mark from does not end the one after it.
#[tokio::test]
async fn the_last_restore_is_the_one_that_counts() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.backend.write(&volume, 1);
        let stale = saved(&rig, &volume).await;
        rig.backend.write(&volume, 2);
        let wanted = saved(&rig, &volume).await;
        rig.backend.mood(|moods| moods.hold_restores = true);
        let body = json!({"restore": {"volume_id": volume}});
        rig.ok("POST", &format!("/backups/{stale}/restore"), body.clone(), NEW).await;
        rig.passes(3).await;
        let unset = json!({"backup_status": null});
        assert_eq!(rig.action(&volume, "os-reset_status", unset, NEW).await.code, 202);
        rig.ok("POST", &format!("/backups/{wanted}/restore"), body, NEW).await;
        rig.passes(3).await;
        // The stale one ends alone.
        let only = "UPDATE workers SET lease_until = '2999-01-01', owner = 'nobody' WHERE resource_id = $1";
        rig.store.db.execute(only, &[wanted.as_str().into()]).await.unwrap();
        rig.backend.mood(|moods| moods.hold_restores = false);
        rig.settle().await;
        rig.expect(&volume, "available", Some("restoring-backup")).await;
        let messages = rig.get("/messages", NEW).await;
        assert_eq!(messages.body["messages"][0]["resource_uuid"], stale.as_str());
        let free = "UPDATE workers SET lease_until = NULL, owner = NULL WHERE resource_id = $1";
        rig.store.db.execute(free, &[wanted.as_str().into()]).await.unwrap();
        rig.settle().await;
        rig.expect(&volume, "available", None).await;
        let behind = rig.store.volume(&volume, None).await.unwrap().unwrap();
        assert_eq!(rig.backend.content(behind.backend_name()), Some(2));
        assert_eq!(rig.backend.volumes(), [behind.backend_name().to_owned()]);
    }
}

/// Nor does the end of a backup, however it ends, take the mark from the one after it.
#[tokio::test]
async fn deleting_a_stale_backup_frees_nothing() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.hold_backups = true);
    let stale = id_of(&rig.backup(&volume, false).await, "backup");
    rig.passes(3).await;
    let unset = json!({"backup_status": null});
    assert_eq!(rig.action(&volume, "os-reset_status", unset, NEW).await.code, 202);
    assert_eq!(rig.backup(&volume, false).await.code, 202);
    rig.passes(3).await;
    let force = json!({"os-force_delete": {}});
    rig.ok("POST", &format!("/backups/{stale}/action"), force, NEW).await;
    rig.expect(&volume, "available", Some("backing-up")).await;
    rig.backend.mood(|moods| moods.hold_backups = false);
    rig.settle().await;
    rig.expect(&volume, "available", None).await;
}

#[tokio::test]
async fn a_cascade_that_failed_can_be_asked_for_again() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let snapshot = snapshot(&rig, &volume).await;
    rig.backend.mood(|moods| moods.fail_removals = Some("busy".to_owned()));
    let path = format!("/volumes/{volume}");
    rig.ok("DELETE", &format!("{path}?cascade=true"), Value::Null, NEW).await;
    rig.settle().await;
    rig.expect(&volume, "error_deleting", None).await;
    let kept = rig.get(&format!("/snapshots/{snapshot}"), NEW).await;
    assert_eq!(kept.body["snapshot"]["status"], "error", "{kept:?}");
    rig.backend.mood(|moods| moods.fail_removals = None);
    rig.ok("DELETE", &format!("{path}?cascade=true&force=true"), Value::Null, NEW).await;
    rig.settle().await;
    assert_eq!(rig.get(&path, NEW).await.code, 404);
}

/// A volume that is deleted while it is restored is not made again.
#[tokio::test]
async fn a_deleted_volume_is_not_restored() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let backup = saved(&rig, &volume).await;
    rig.backend.mood(|moods| moods.hold_restores = true);
    let path = format!("/backups/{backup}/restore");
    let made = rig.ok("POST", &path, json!({"restore": {}}), NEW).await;
    let made = made["restore"]["volume_id"].as_str().unwrap().to_owned();
    rig.passes(2).await;
    let unset = json!({"status": "available", "backup_status": null});
    assert_eq!(rig.action(&made, "os-reset_status", unset, NEW).await.code, 202);
    rig.ok("DELETE", &format!("/volumes/{made}"), Value::Null, NEW).await;
    // The deletion is done before the restore is looked at again.
    let only =
        "UPDATE workers SET lease_until = '2999-01-01', owner = 'nobody' WHERE resource_id = $1";
    rig.store.db.execute(only, &[backup.as_str().into()]).await.unwrap();
    rig.passes(1).await;
    let free = "UPDATE workers SET lease_until = NULL, owner = NULL";
    rig.store.db.execute(free, &[]).await.unwrap();
    rig.passes(1).await;
    rig.settle().await;
    assert_eq!(rig.backend.volumes(), [volume]);
    assert_eq!(rig.backup_status(&backup).await, "available");
}
