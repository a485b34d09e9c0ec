//! What goes on beside a backup and what does not, at the microversion with two fields and at the one
//! before it, for rows of either release.

use serde_json::{Value, json};

use super::rig::{NEW, OLD, Rig, id_of};

/// What must be refused while a backup runs: name, method, path, body, code.
fn refused(id: &str, snapshot: &str, backup: &str) -> Vec<(&'static str, String, Value, u16)> {
    let at = |rest: &str| format!("/volumes/{id}{rest}");
    let act = |name: &str, args: Value, code| ("POST", at("/action"), json!({ name: args }), code);
    vec![
        ("DELETE", at(""), Value::Null, 400),
        ("DELETE", at("?cascade=true"), Value::Null, 400),
        ("DELETE", at("?cascade=true&force=true"), Value::Null, 400),
        act("os-force_delete", json!({}), 400),
        act("os-migrate_volume", json!({"host": "elsewhere@holdfast#holdfast"}), 400),
        act("os-retype", json!({"new_type": "other", "migration_policy": "never"}), 400),
        act("revert", json!({"snapshot_id": snapshot}), 409),
        ("POST", "/volume-transfers".to_owned(), json!({"transfer": {"volume_id": id}}), 400),
        ("POST", "/backups".to_owned(), json!({"backup": {"volume_id": id}}), 400),
        ("POST", "/backups".to_owned(), json!({"backup": {"volume_id": id, "force": true}}), 400),
        ("POST", format!("/backups/{backup}/restore"), json!({"restore": {"volume_id": id}}), 400),
    ]
}

/// The row as the release before would have it.
async fn in_old_form(rig: &Rig, id: &str) {
    let sql = "UPDATE volumes SET status = backup_status, previous_status = status, \
         backup_status = NULL WHERE id = $1 AND backup_status IS NOT NULL";
    rig.store.db.execute(sql, &[id.into()]).await.unwrap();
}

#[tokio::test]
async fn a_running_backup_keeps_out_what_it_must_and_nothing_else() {
    for rig in Rig::everywhere().await {
        rig.store.report_service("elsewhere@holdfast", "cinder-volume", "nova").await.unwrap();
        rig.ok("POST", "/types", json!({"volume_type": {"name": "other"}}), NEW).await;
        let other = rig.volume().await;
        let kept = id_of(&rig.backup(&other, false).await, "backup");
        rig.settle().await;
        rig.backend.mood(|moods| moods.hold_backups = true);
        for (version, old) in [(NEW, false), (OLD, false), (NEW, true), (OLD, true)] {
            let volume = rig.volume().await;
            let body = json!({"snapshot": {"volume_id": volume}});
            let snapshot = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
            rig.settle().await;
            let backup = id_of(&rig.backup(&volume, false).await, "backup");
            rig.passes(4).await;
            for (method, path, body, code) in refused(&volume, &snapshot, &kept) {
                if old {
                    in_old_form(&rig, &volume).await;
                }
                let seen = rig.call(method, &path, body.clone(), version).await;
                assert_eq!(seen.code, code, "{method} {path} {body} at {version}: {seen:?}");
                rig.expect(&volume, "available", Some("backing-up")).await;
            }
            // Reading, attaching and growing go on; the backup is shown to both kinds of clients.
            assert_eq!(rig.legacy(&volume).await, "backing-up");
            let server = uuid::Uuid::new_v4().to_string();
            let body = json!({"attachment": {"volume_uuid": volume, "instance_uuid": server}});
            let attachment =
                id_of(&rig.call("POST", "/attachments", body, version).await, "attachment");
            let path = format!("/attachments/{attachment}/action");
            rig.ok("POST", &path, json!({"os-complete": {}}), version).await;
            rig.expect(&volume, "in-use", Some("backing-up")).await;
            let shown = rig.get(&format!("/volumes/{volume}"), version).await;
            assert_eq!(shown.body["volume"]["attachments"][0]["attachment_id"], json!(attachment));
            let larger = json!({"new_size": 2});
            assert_eq!(rig.action(&volume, "os-extend", larger, version).await.code, 202);
            rig.passes(4).await;
            for (path, body) in [
                ("/snapshots", json!({"snapshot": {"volume_id": volume, "force": true}})),
                ("/volumes", json!({"volume": {"source_volid": volume}})),
            ] {
                assert_eq!(rig.call("POST", path, body, version).await.code, 202, "{path}");
            }
            rig.ok("DELETE", &format!("/attachments/{attachment}"), Value::Null, version).await;
            rig.expect(&volume, "available", Some("backing-up")).await;
            rig.backend.mood(|moods| moods.hold_backups = false);
            rig.settle().await;
            rig.backend.mood(|moods| moods.hold_backups = true);
            rig.expect(&volume, "available", None).await;
            assert_eq!(rig.legacy(&volume).await, "available");
            assert_eq!(rig.backup_status(&backup).await, "available");
        }
    }
}

/// Forced, of a volume in use: the attachments stay as they are, and so does what is left behind.
#[tokio::test]
async fn a_volume_in_use_stays_in_use_under_its_backup() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.attach(&volume, &uuid::Uuid::new_v4().to_string()).await;
        let attachments = async || {
            let seen = rig.get(&format!("/volumes/{volume}"), OLD).await;
            seen.body["volume"]["attachments"].clone()
        };
        let before = attachments().await;
        rig.backend.mood(|moods| moods.hold_backups = true);
        assert_eq!(rig.backup(&volume, true).await.code, 202);
        for _ in 0..5 {
            rig.passes(1).await;
            rig.expect(&volume, "in-use", Some("backing-up")).await;
            assert_eq!(rig.legacy(&volume).await, "backing-up");
            assert_eq!(attachments().await, before);
        }
        rig.backend.mood(|moods| moods.hold_backups = false);
        rig.settle().await;
        rig.expect(&volume, "in-use", None).await;
        assert_eq!((rig.legacy(&volume).await.as_str(), attachments().await), ("in-use", before));
        let sql = "SELECT previous_status FROM volumes WHERE id = $1";
        let row = rig.store.db.fetch_one(sql, &[volume.as_str().into()]).await.unwrap().unwrap();
        assert_eq!(row.opt("previous_status").unwrap(), None);
    }
}
