//! Backups beside everything else that is done to a volume.

use serde_json::{Value, json};

use super::rig::{NEW, OLD, Rig, id_of};

#[tokio::test]
async fn a_backup_of_an_available_volume_in_both_views() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.expect(&volume, "available", None).await;
        rig.backend.mood(|moods| moods.hold_backups = true);
        let backup = id_of(&rig.backup(&volume, false).await, "backup");
        rig.passes(4).await;
        rig.expect(&volume, "available", Some("backing-up")).await;
        assert_eq!(rig.legacy(&volume).await, "backing-up");
        rig.backend.mood(|moods| moods.hold_backups = false);
        rig.settle().await;
        rig.expect(&volume, "available", None).await;
        assert_eq!(rig.legacy(&volume).await, "available");
        assert_eq!(rig.backup_status(&backup).await, "available");
    }
}

#[tokio::test]
async fn a_volume_made_from_a_backup_is_described_as_the_one_backed_up() {
    for rig in Rig::everywhere().await {
        let source = json!({"volume": {"size": 1, "metadata": {"tier": "gold", "owner": "web"}}});
        let source = id_of(&rig.call("POST", "/volumes", source, NEW).await, "volume");
        rig.settle().await;
        let backup = id_of(&rig.backup(&source, false).await, "backup");
        rig.settle().await;
        let path = format!("/backups/{backup}/restore");
        let restored = rig.ok("POST", &path, json!({"restore": {}}), NEW).await;
        let restored = restored["restore"]["volume_id"].as_str().unwrap().to_owned();
        rig.settle().await;
        let seen = rig.get(&format!("/volumes/{restored}"), NEW).await;
        let wanted = json!({"tier": "gold", "owner": "web", "src_backup_id": backup});
        assert_eq!(seen.body["volume"]["metadata"], wanted);
        // Who says otherwise is heard.
        let made = json!({"volume": {"backup_id": backup, "metadata": {"tier": "iron"}}});
        let made = id_of(&rig.call("POST", "/volumes", made, NEW).await, "volume");
        let seen = rig.get(&format!("/volumes/{made}"), NEW).await;
        assert_eq!(seen.body["volume"]["metadata"], json!({"tier": "iron", "owner": "web"}));
    }
}

/// The two use cases: a live migration and a resize while a backup runs; and the backup is of the
/// moment it was asked for.
#[tokio::test]
async fn attaching_extending_and_cloning_go_on_beside_a_backup() {
    for rig in Rig::everywhere().await {
        // A client may be older for one step than for another.
        for (reserving, version) in [("3.54", OLD), (NEW, NEW)] {
            move_and_grow(&rig, reserving, version).await;
        }
    }
}

async fn move_and_grow(rig: &Rig, reserving: &str, version: &str) {
    let volume = rig.volume().await;
    rig.backend.write(&volume, 7);
    let server = uuid::Uuid::new_v4().to_string();
    let first = rig.attach(&volume, &server).await;
    assert_eq!(rig.backup(&volume, false).await.code, 400);
    rig.backend.mood(|moods| moods.hold_backups = true);
    let backup = id_of(&rig.backup(&volume, true).await, "backup");
    rig.passes(4).await;
    rig.expect(&volume, "in-use", Some("backing-up")).await;
    // What is written from here on is not in the backup.
    rig.backend.write(&volume, 8);
    let second = json!({"attachment": {"volume_uuid": volume, "instance_uuid": server}});
    let second = rig.ok("POST", "/attachments", second, reserving).await;
    let second = second["attachment"]["id"].as_str().unwrap().to_owned();
    rig.expect(&volume, "reserved", Some("backing-up")).await;
    let complete = json!({"os-complete": {}});
    rig.ok("POST", &format!("/attachments/{second}/action"), complete, version).await;
    rig.ok("DELETE", &format!("/attachments/{first}"), Value::Null, version).await;
    rig.expect(&volume, "in-use", Some("backing-up")).await;
    assert_eq!(rig.action(&volume, "os-extend", json!({"new_size": 2}), version).await.code, 202);
    assert_eq!(rig.legacy(&volume).await, "extending");
    rig.passes(4).await;
    rig.expect(&volume, "in-use", Some("backing-up")).await;
    let snapshot = json!({"snapshot": {"volume_id": volume, "force": true}});
    assert_eq!(rig.call("POST", "/snapshots", snapshot, version).await.code, 202);
    let clone = json!({"volume": {"source_volid": volume, "size": 2}});
    assert_eq!(rig.call("POST", "/volumes", clone, version).await.code, 202);
    rig.backend.mood(|moods| moods.hold_backups = false);
    rig.settle().await;
    rig.expect(&volume, "in-use", None).await;
    let kept = rig.get(&format!("/backups/{backup}"), NEW).await;
    assert_eq!(kept.body["backup"]["size"], 1, "the size at the moment of the copy: {kept:?}");
    let restored =
        rig.call("POST", &format!("/backups/{backup}/restore"), json!({"restore": {}}), NEW).await;
    let restored = restored.body["restore"]["volume_id"].as_str().unwrap().to_owned();
    rig.settle().await;
    rig.expect(&restored, "available", None).await;
    assert_eq!(rig.backend.content(&restored), Some(7));
}

#[tokio::test]
async fn a_failed_backup_is_told_and_blocks_nothing() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.fail_backups = Some("the store is full".to_owned()));
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.settle().await;
    rig.expect(&volume, "available", Some("error_backing-up")).await;
    assert_eq!(rig.legacy(&volume).await, "error_backing-up");
    let seen = rig.get(&format!("/backups/{backup}"), NEW).await;
    assert_eq!(seen.body["backup"]["status"], "error");
    assert_eq!(seen.body["backup"]["fail_reason"], "the store is full");
    let messages = rig.get("/messages", NEW).await;
    assert_eq!(messages.body["messages"][0]["event_id"], "VOLUME_VOLUME_BACKUP_013_020");
    // Usable, and the next backup clears it.
    assert_eq!(rig.action(&volume, "os-extend", json!({"new_size": 2}), NEW).await.code, 202);
    rig.settle().await;
    rig.backend.mood(|moods| moods.fail_backups = None);
    rig.backup(&volume, false).await;
    rig.expect(&volume, "available", Some("backing-up")).await;
    rig.settle().await;
    rig.expect(&volume, "available", None).await;
}

#[tokio::test]
async fn a_restore_blocks_until_it_is_done_and_its_failure_until_it_is_unset() {
    for rig in Rig::everywhere().await {
        let (source, target) = (rig.volume().await, rig.volume().await);
        rig.backend.write(&source, 5);
        let backup = id_of(&rig.backup(&source, false).await, "backup");
        rig.settle().await;
        rig.backend.mood(|moods| moods.hold_restores = true);
        let body = json!({"restore": {"volume_id": target}});
        let path = format!("/backups/{backup}/restore");
        assert_eq!(rig.call("POST", &path, body.clone(), OLD).await.code, 202);
        rig.passes(4).await;
        rig.expect(&target, "available", Some("restoring-backup")).await;
        for (name, args) in [
            ("os-extend", json!({"new_size": 2})),
            ("os-reserve", Value::Null),
            ("os-force_delete", Value::Null),
            ("os-attach", json!({"mountpoint": "/dev/vdb", "host_name": "h"})),
        ] {
            assert_eq!(rig.action(&target, name, args, OLD).await.code, 400, "{name}");
        }
        assert_eq!(
            rig.call("DELETE", &format!("/volumes/{target}"), Value::Null, OLD).await.code,
            400
        );
        assert_eq!(rig.backup(&target, false).await.code, 400);
        rig.backend.mood(|moods| moods.hold_restores = false);
        rig.settle().await;
        rig.expect(&target, "available", None).await;
        let behind = rig.store.volume(&target, None).await.unwrap().unwrap();
        assert_eq!(rig.backend.content(behind.backend_name()), Some(5));
        assert_eq!(behind.metadata.get("src_backup_id"), Some(&backup));
        // What was there before is gone for good.
        assert_eq!(rig.backend.content(&target), None);
        rig.backend.mood(|moods| moods.fail_restores = Some("blocks are missing".to_owned()));
        assert_eq!(rig.call("POST", &path, body.clone(), NEW).await.code, 202);
        rig.settle().await;
        rig.expect(&target, "available", Some("error_restoring")).await;
        assert_eq!(rig.backup_status(&backup).await, "available");
        assert_eq!(rig.call("POST", &path, body, NEW).await.code, 400);
        assert_eq!(
            rig.call("DELETE", &format!("/volumes/{target}"), Value::Null, NEW).await.code,
            202
        );
        rig.settle().await;
        assert_eq!(rig.get(&format!("/volumes/{target}"), NEW).await.code, 404);
    }
}

#[tokio::test]
async fn a_hundred_clients_race_for_one_backup_and_one_wins() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let asked = (0..100).map(|_| rig.backup(&volume, false));
        let answers = futures::future::join_all(asked).await;
        let won = answers.iter().filter(|it| it.code == 202).count();
        let lost = answers.iter().filter(|it| it.code == 400).count();
        assert_eq!((won, lost), (1, 99), "on PostgreSQL: {}", rig.is_postgres());
        rig.settle().await;
        rig.expect(&volume, "available", None).await;
    }
}

/// Of two that exclude each other never both are accepted.
#[tokio::test]
async fn a_backup_and_what_it_excludes_are_never_both_accepted() {
    for rig in Rig::everywhere().await {
        for round in 0..12 {
            let volume = rig.volume().await;
            let path = format!("/volumes/{volume}");
            let other = async {
                match round % 3 {
                    0 => rig.call("DELETE", &path, Value::Null, NEW).await,
                    1 => {
                        let body = json!({"transfer": {"volume_id": volume}});
                        rig.call("POST", "/volume-transfers", body, NEW).await
                    }
                    _ => rig.backup(&volume, true).await,
                }
            };
            let (one, two) = tokio::join!(rig.backup(&volume, false), other);
            let accepted = [&one, &two].iter().filter(|it| it.code == 202).count();
            assert_eq!(accepted, 1, "{one:?} and {two:?}");
            rig.settle().await;
        }
    }
}

/// A worker dies at any point; another goes on, or the backup is told to be lost.
#[tokio::test]
async fn another_worker_goes_on_where_one_was_lost() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.hold_backups = true);
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.passes(3).await;
    let mut other = rig.worker.clone();
    other.name = "worker-2".to_owned();
    // While the first may live, the second has nothing to do.
    assert!(!other.pass().await.unwrap());
    let late = "UPDATE workers SET lease_until = '2000-01-01T00:00:00.000000', not_before = NULL";
    rig.store.db.execute(late, &[]).await.unwrap();
    rig.backend.mood(|moods| moods.hold_backups = false);
    while other.pass().await.unwrap() {
        rig.hurry().await;
    }
    assert_eq!(rig.backup_status(&backup).await, "available");
    rig.expect(&volume, "available", None).await;

    // What the backend lost with the worker is not made again: it would be of another moment.
    rig.backend.mood(|moods| moods.hold_backups = true);
    let lost = id_of(&rig.backup(&volume, false).await, "backup");
    rig.passes(4).await;
    rig.backend.forget_backups();
    rig.settle().await;
    let seen = rig.get(&format!("/backups/{lost}"), NEW).await;
    assert_eq!(seen.body["backup"]["status"], "error");
    assert_eq!(seen.body["backup"]["fail_reason"], "incomplete backup reset on manager restart");
    rig.expect(&volume, "available", None).await;
}

/// A backup that ends after an administrator set things right does not undo it.
#[tokio::test]
async fn a_stale_end_changes_nothing() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.hold_backups = true);
    rig.backup(&volume, false).await;
    rig.passes(4).await;
    let unset = json!({"backup_status": null});
    assert_eq!(rig.action(&volume, "os-reset_status", unset, NEW).await.code, 202);
    let second = id_of(&rig.backup(&volume, false).await, "backup");
    rig.expect(&volume, "available", Some("backing-up")).await;
    // The first ends; the mark is the second's.
    let only =
        "UPDATE workers SET not_before = '2999-01-01T00:00:00.000000' WHERE resource_id = $1";
    rig.store.db.execute(only, &[second.as_str().into()]).await.unwrap();
    rig.backend.mood(|moods| moods.hold_backups = false);
    for _ in 0..5 {
        rig.worker.pass().await.unwrap();
    }
    rig.expect(&volume, "available", Some("backing-up")).await;
    rig.settle().await;
    rig.expect(&volume, "available", None).await;
    assert_eq!(rig.backup_status(&second).await, "available");
}

#[tokio::test]
async fn deleting_a_running_backup_cancels_it() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.hold_backups = true);
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.passes(4).await;
    let path = format!("/backups/{backup}");
    assert_eq!(rig.call("DELETE", &path, Value::Null, NEW).await.code, 400);
    let force = json!({"os-force_delete": {}});
    assert_eq!(rig.call("POST", &format!("{path}/action"), force, NEW).await.code, 202);
    rig.expect(&volume, "available", None).await;
    rig.settle().await;
    assert_eq!(rig.get(&path, NEW).await.code, 404);
}

/// A failed backup is in nobody's way, so no refusal tells of it; and statuses are told as they are shown.
#[tokio::test]
async fn refusals_tell_of_what_is_in_the_way() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.attach(&volume, &uuid::Uuid::new_v4().to_string()).await;
        let body = json!({"backup": {"volume_id": volume}});
        let said = async |version| {
            let refused = rig.call("POST", "/backups", body.clone(), version).await;
            assert_eq!(refused.code, 400, "{refused:?}");
            refused.body["badRequest"]["message"].as_str().unwrap().to_owned()
        };
        let failed = json!({"backup_status": "error_backing-up"});
        assert_eq!(rig.action(&volume, "os-reset_status", failed, NEW).await.code, 202);
        for version in [OLD, NEW] {
            let flag = "Invalid volume: Backing up an in-use volume must use the force flag.";
            assert_eq!(said(version).await, flag, "at {version}");
        }
        let taken_over = json!({"status": "managing"});
        assert_eq!(rig.action(&volume, "os-reset_status", taken_over, NEW).await.code, 202);
        for version in [OLD, NEW] {
            let said = said(version).await;
            assert!(said.contains("creating") && !said.contains("managing"), "{version}: {said}");
        }
    }
}
