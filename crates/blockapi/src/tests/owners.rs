//! What is one project's is not changed, removed or read by another's requests.

use serde_json::{Value, json};

use super::rig::{Answer, NEW, PROJECT, Rig, id_of};

const OTHER: &str = "eve:dddd:member";

/// A volume that changed hands while its snapshot stayed with the project before.
async fn parted(rig: &Rig) -> (String, String) {
    let volume = rig.volume().await;
    let body = json!({"snapshot": {"volume_id": volume}});
    let snapshot = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
    rig.settle().await;
    let body = json!({"transfer": {"volume_id": volume, "no_snapshots": true}});
    let offered = rig.ok("POST", "/volume-transfers", body, NEW).await;
    let (id, key) = (&offered["transfer"]["id"], &offered["transfer"]["auth_key"]);
    let path = format!("/volume-transfers/{}/accept", id.as_str().unwrap());
    let accept = json!({"accept": {"auth_key": key}});
    assert_eq!(rig.call_as(OTHER, ("POST", &path), accept, NEW).await.code, 202);
    (volume, snapshot)
}

#[tokio::test]
async fn a_cascade_does_not_take_snapshots_of_another_project() {
    for rig in Rig::everywhere().await {
        let (volume, snapshot) = parted(&rig).await;
        let path = format!("/volumes/{volume}?cascade=true");
        assert_eq!(rig.call_as(OTHER, ("DELETE", &path), Value::Null, NEW).await.code, 400);
        rig.settle().await;
        let kept = rig.get(&format!("/snapshots/{snapshot}"), NEW).await;
        assert_eq!(kept.body["snapshot"]["status"], "available", "{kept:?}");
        // An administrator answers for all projects.
        assert_eq!(rig.call("DELETE", &path, Value::Null, NEW).await.code, 202);
    }
}

/// Whoever has a volume may give it away, and not what others kept of it.
#[tokio::test]
async fn snapshots_that_stayed_behind_do_not_go_with_their_volume() {
    for rig in Rig::everywhere().await {
        let (volume, kept) = parted(&rig).await;
        let body = json!({"snapshot": {"volume_id": volume}});
        let own = rig.call_as(OTHER, ("POST", "/snapshots"), body, NEW).await;
        let own = id_of(&own, "snapshot");
        rig.settle().await;
        // To oneself, and to a third.
        for taker in [OTHER, "ann:eeee:member"] {
            let body = json!({"transfer": {"volume_id": volume}});
            let offered = rig.call_as(OTHER, ("POST", "/volume-transfers"), body, NEW).await;
            let path = format!("/volume-transfers/{}/accept", id_of(&offered, "transfer"));
            let accept = json!({"accept": {"auth_key": offered.body["transfer"]["auth_key"]}});
            let taken = rig.call_as(taker, ("POST", &path), accept, NEW).await;
            assert_eq!(taken.code, 202, "{taken:?}");
            let path = format!("/snapshots/{kept}");
            assert_eq!(rig.call_as(taker, ("GET", &path), Value::Null, NEW).await.code, 404);
            let path = format!("/snapshots/{own}");
            assert_eq!(rig.call_as(taker, ("GET", &path), Value::Null, NEW).await.code, 200);
        }
        let seen = rig.get(&format!("/snapshots/{kept}"), NEW).await;
        let owner = &seen.body["snapshot"]["os-extended-snapshot-attributes:project_id"];
        assert_eq!(owner.as_str(), Some(PROJECT));
    }
}

/// A transfer that was left when its volume was reset is over when the next one begins.
#[tokio::test]
async fn the_key_of_an_earlier_transfer_opens_nothing() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let body = json!({"transfer": {"volume_id": volume}});
        let first = rig.call("POST", "/volume-transfers", body.clone(), NEW).await;
        let back = json!({"status": "available"});
        assert_eq!(rig.action(&volume, "os-reset_status", back, NEW).await.code, 202);
        let second = rig.call("POST", "/volume-transfers", body, NEW).await;
        let accept = async |offered: &Answer| {
            let path = format!("/volume-transfers/{}/accept", id_of(offered, "transfer"));
            let body = json!({"accept": {"auth_key": offered.body["transfer"]["auth_key"]}});
            rig.call_as(OTHER, ("POST", &path), body, NEW).await.code
        };
        assert_eq!(accept(&first).await, 404);
        rig.expect(&volume, "awaiting-transfer", None).await;
        assert_eq!(accept(&second).await, 202);
    }
}

#[tokio::test]
async fn a_revert_does_not_read_a_snapshot_of_another_project() {
    let rig = Rig::new().await;
    let (volume, snapshot) = parted(&rig).await;
    let path = format!("/volumes/{volume}/action");
    let body = json!({"revert": {"snapshot_id": snapshot}});
    assert_eq!(rig.call_as(OTHER, ("POST", &path), body, NEW).await.code, 400);
    rig.expect(&volume, "available", None).await;
    let kept = rig.get(&format!("/snapshots/{snapshot}"), NEW).await;
    assert_eq!(kept.body["snapshot"]["status"], "available");
    let seen = kept.body["snapshot"]["os-extended-snapshot-attributes:project_id"].as_str();
    assert_eq!(seen, Some(PROJECT));
}

/// Who gives a volume away does not stay connected to it.
#[tokio::test]
async fn a_volume_does_not_change_hands_under_a_client() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let transfer = json!({"transfer": {"volume_id": volume}});
    let connector = json!({"connector": {"host": "giver"}});
    let connect = async |code: u16| {
        let seen = rig.action(&volume, "os-initialize_connection", connector.clone(), NEW).await;
        assert_eq!(seen.code, code, "{seen:?}");
    };
    connect(200).await;
    let refused = rig.call("POST", "/volume-transfers", transfer.clone(), NEW).await;
    assert_eq!(refused.code, 400);
    assert!(refused.body.to_string().contains("connected (host-giver)"), "{refused:?}");
    rig.action(&volume, "os-terminate_connection", connector.clone(), NEW).await;
    let made = rig.call("POST", "/volume-transfers", transfer, NEW).await;
    assert_eq!(made.code, 202, "{made:?}");
    // Nobody comes while it waits for its new owner.
    connect(400).await;
    // Nor is it taken over from one who came at the same moment.
    let backend: &dyn crate::Backend = rig.backend.as_ref();
    backend.connect(&volume, "host-giver", &json!({})).await.unwrap();
    let path = format!("/volume-transfers/{}/accept", id_of(&made, "transfer"));
    let body = json!({"accept": {"auth_key": made.body["transfer"]["auth_key"]}});
    let taker = "other:bbbb0000bbbb0000bbbb0000bbbb0000:member";
    let refused = rig.call_as(taker, ("POST", &path), body.clone(), NEW).await;
    assert_eq!(refused.code, 400, "{refused:?}");
    backend.disconnect(&volume, "host-giver").await.unwrap();
    assert_eq!(rig.call_as(taker, ("POST", &path), body, NEW).await.code, 202);
}

/// The record of a backup under another id.
async fn imported(rig: &Rig, backup: &str, change: impl FnOnce(&mut Value)) -> String {
    let record = exported(rig, backup, change).await;
    import(rig, record).await
}

async fn exported(rig: &Rig, backup: &str, change: impl FnOnce(&mut Value)) -> Value {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let exported = rig.get(&format!("/backups/{backup}/export_record"), NEW).await;
    let mut record = exported.body["backup-record"].clone();
    let service = record["backup_service"].as_str().unwrap();
    assert!(service.starts_with("cinder.backup.drivers"), "{service}");
    let bytes = STANDARD.decode(record["backup_url"].as_str().unwrap()).unwrap();
    let mut inner: Value = serde_json::from_slice(&bytes).unwrap();
    inner["id"] = json!(uuid::Uuid::new_v4().to_string());
    change(&mut inner);
    record["backup_url"] = json!(STANDARD.encode(inner.to_string()));
    record
}

async fn import(rig: &Rig, record: Value) -> String {
    let body = json!({ "backup-record": record });
    let path = "/backups/import_record";
    let made = rig.call_as("root:eeee", ("POST", path), body, NEW).await;
    assert_eq!(made.code, 201, "{made:?}");
    id_of(&made, "backup")
}

/// Two records of one stored backup: the data goes with the last of them.
#[tokio::test]
async fn a_stored_backup_stays_while_a_record_of_it_does() {
    for rig in Rig::everywhere().await {
        for is_first in [true, false] {
            let volume = rig.volume().await;
            let backup = id_of(&rig.backup(&volume, false).await, "backup");
            rig.settle().await;
            let twin = imported(&rig, &backup, |_| {}).await;
            rig.settle().await;
            let (gone, kept) = if is_first { (&backup, &twin) } else { (&twin, &backup) };
            rig.ok("DELETE", &format!("/backups/{gone}"), Value::Null, NEW).await;
            rig.settle().await;
            assert_eq!(rig.backup_status(gone).await, "gone");
            let body = json!({"restore": {"volume_id": volume}});
            rig.ok("POST", &format!("/backups/{kept}/restore"), body, NEW).await;
            rig.settle().await;
            rig.expect(&volume, "available", None).await;
            rig.ok("DELETE", &format!("/backups/{kept}"), Value::Null, NEW).await;
            rig.settle().await;
            assert_eq!(rig.backend.stored(), 0);
        }
    }
}

/// A record that comes while what it is of is on its way out waits for the end of that.
#[tokio::test]
async fn a_record_of_what_is_being_deleted_is_not_available() {
    for mut rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let backup = id_of(&rig.backup(&volume, false).await, "backup");
        rig.settle().await;
        let record = exported(&rig, &backup, |_| {}).await;
        rig.backend.mood(|moods| moods.hold_removals = true);
        rig.ok("DELETE", &format!("/backups/{backup}"), Value::Null, NEW).await;
        rig.passes(4).await;
        let twin = import(&rig, record).await;
        rig.passes(4).await;
        assert_eq!(rig.backup_status(&twin).await, "creating");
        assert_eq!(rig.backup_status(&backup).await, "deleting", "what began goes to its end");
        // Nor when its time is over, as long as the other one is there.
        rig.age().await;
        rig.worker.started = jiff::Timestamp::UNIX_EPOCH;
        rig.passes(4).await;
        assert_eq!(rig.backup_status(&twin).await, "creating");
        rig.backend.mood(|moods| moods.hold_removals = false);
        rig.settle().await;
        assert_eq!(rig.backup_status(&backup).await, "gone");
        assert_eq!((rig.backup_status(&twin).await.as_str(), rig.backend.stored()), ("error", 0));
    }
}

/// A record is available when what it is of is there, and its end touches no volume.
#[tokio::test]
async fn a_record_of_nothing_is_not_available() {
    let mut rig = Rig::new().await;
    let volume = rig.volume().await;
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.settle().await;
    let nothing = |record: &mut Value| record["service_metadata"] = json!("sim://nothing");
    let record = imported(&rig, &backup, nothing).await;
    rig.passes(3).await;
    assert_eq!(rig.backup_status(&record).await, "creating");
    rig.backend.mood(|moods| moods.hold_backups = true);
    assert_eq!(rig.backup(&volume, false).await.code, 202);
    let force = json!({"os-force_delete": {}});
    rig.ok("POST", &format!("/backups/{record}/action"), force, NEW).await;
    rig.expect(&volume, "available", Some("backing-up")).await;
    rig.backend.mood(|moods| moods.hold_backups = false);
    rig.settle().await;
    let record = imported(&rig, &backup, nothing).await;
    rig.age().await;
    rig.worker.started = jiff::Timestamp::UNIX_EPOCH;
    rig.settle().await;
    assert_eq!(rig.backup_status(&record).await, "error");
}

/// A backup that is being deleted is nobody's parent.
#[tokio::test]
async fn an_incremental_backup_has_a_parent_that_stays() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let parent = id_of(&rig.backup(&volume, false).await, "backup");
        rig.settle().await;
        let mut held = rig.store.db.begin().await.unwrap();
        held.lock("backups", &parent).await.unwrap();
        let body = json!({"backup": {"volume_id": volume, "incremental": true}});
        let gone = async {
            // Time for the other to find it. It waits for the row then.
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            let mut held = held;
            let from = &["available"];
            rig.store.move_backup(&mut held, &parent, from, "deleting", &[]).await.unwrap();
            held.commit().await.unwrap();
        };
        let (seen, ()) = tokio::join!(rig.call("POST", "/backups", body, NEW), gone);
        assert_eq!(seen.code, 400, "{seen:?}");
        rig.expect(&volume, "available", None).await;
    }
}

/// A request that was let in by its owner does not land on the volume of the next one.
#[tokio::test]
async fn a_volume_that_changes_hands_meanwhile_is_left_alone() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let held = rig.store.on_volume(&volume).await.unwrap();
        let path = format!("/volumes/{volume}");
        let (token, action) = (format!("bob:{PROJECT}:member"), format!("{path}/action"));
        let handed = async {
            // Time for the others to look whose it is. They wait for the row then.
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            let mut held = held;
            let sql = "UPDATE volumes SET project_id = 'dddd' WHERE id = $1";
            held.execute(sql, &[volume.as_str().into()]).await.unwrap();
            held.commit().await.unwrap();
        };
        let (deleted, extended, snapshot, ()) = tokio::join!(
            rig.call_as(&token, ("DELETE", &path), Value::Null, NEW),
            rig.call_as(&token, ("POST", &action), json!({"os-extend": {"new_size": 2}}), NEW),
            rig.call_as(
                &token,
                ("POST", "/snapshots"),
                json!({"snapshot": {"volume_id": volume}}),
                NEW
            ),
            handed
        );
        assert_eq!((deleted.code, extended.code, snapshot.code), (404, 404, 404), "{deleted:?}");
        rig.expect(&volume, "available", None).await;
    }
}

#[tokio::test]
async fn a_marker_of_another_project_is_not_there() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    for path in ["/volumes", "/volumes/detail"] {
        let path = format!("{path}?marker={volume}&sort=name");
        assert_eq!(rig.get(&path, NEW).await.code, 200);
        assert_eq!(rig.call_as(OTHER, ("GET", &path), Value::Null, NEW).await.code, 404);
    }
}
