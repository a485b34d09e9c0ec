//! Rows of the release before and rows of this one: the same to every operation. And resets, by
//! clients of either release.

use serde_json::{Value, json};

use super::rig::{NEW, OLD, PROJECT, Rig, id_of};
use crate::model::status::BackupStatus;

/// What requests need beside the volume they are about.
struct Beside {
    backup: String,
    kind: String,
    server: String,
}

/// Everything that is done to a volume under a condition: method, path and body.
fn operations(id: &str, beside: &Beside) -> Vec<(&'static str, String, Value)> {
    let at = |rest: &str| format!("/volumes/{id}{rest}");
    let act = |name: &str, args: Value| ("POST", at("/action"), json!({ name: args }));
    let server = &beside.server;
    vec![
        ("DELETE", at(""), Value::Null),
        ("DELETE", at("?cascade=true"), Value::Null),
        act("os-force_delete", json!({})),
        act("os-extend", json!({"new_size": 2})),
        act("os-reserve", json!({})),
        act("os-unreserve", json!({})),
        act("os-attach", json!({"mountpoint": "/dev/vdb", "host_name": "h"})),
        act("os-initialize_connection", json!({"connector": {"host": "h"}})),
        act("os-begin_detaching", json!({})),
        act("os-roll_detaching", json!({})),
        act("os-detach", json!({})),
        act("os-migrate_volume", json!({"host": "elsewhere@holdfast#holdfast"})),
        act("os-retype", json!({"new_type": beside.kind, "migration_policy": "never"})),
        act("os-update_readonly_flag", json!({"readonly": true})),
        act("os-set_bootable", json!({"bootable": true})),
        ("POST", "/snapshots".to_owned(), json!({"snapshot": {"volume_id": id}})),
        ("POST", "/volumes".to_owned(), json!({"volume": {"source_volid": id}})),
        ("POST", "/backups".to_owned(), json!({"backup": {"volume_id": id, "force": true}})),
        (
            "POST",
            format!("/backups/{}/restore", beside.backup),
            json!({"restore": {"volume_id": id}}),
        ),
        (
            "POST",
            "/attachments".to_owned(),
            json!({"attachment": {"volume_uuid": id, "instance_uuid": server}}),
        ),
        ("POST", "/volume-transfers".to_owned(), json!({"transfer": {"volume_id": id}})),
        ("PUT", at(""), json!({"volume": {"name": "x"}})),
        ("POST", at("/metadata"), json!({"metadata": {"k": "v"}})),
    ]
}

/// A volume with a backup's state, in the form of one release or the other.
async fn volume(rig: &Rig, beside: &Beside, in_use: bool, backup: &str, old: bool) -> String {
    let id = rig.volume().await;
    if in_use {
        rig.attach(&id, &beside.server).await;
    }
    let was = if in_use { "in-use" } else { "available" };
    let sql = if old {
        "UPDATE volumes SET status = $2, previous_status = $3, backup_status = NULL WHERE id = $1"
    } else {
        "UPDATE volumes SET status = $3, previous_status = NULL, backup_status = $2 WHERE id = $1"
    };
    rig.store.db.execute(sql, &[id.as_str().into(), backup.into(), was.into()]).await.unwrap();
    id
}

/// Whatever is asked of a row, its answer and what it leaves do not depend on which release wrote it.
#[tokio::test]
async fn every_operation_takes_rows_of_either_release() {
    for rig in Rig::everywhere().await {
        rig.store.report_service("elsewhere@holdfast", "cinder-volume", "nova").await.unwrap();
        let other = rig.volume().await;
        let backup = id_of(&rig.backup(&other, false).await, "backup");
        let made = rig.ok("POST", "/types", json!({"volume_type": {"name": "t"}}), NEW).await;
        let beside = Beside {
            backup,
            kind: made["volume_type"]["id"].as_str().unwrap().to_owned(),
            server: uuid::Uuid::new_v4().to_string(),
        };
        rig.settle().await;
        let count = operations("", &beside).len();
        let (mut accepted, mut refused) = (0, 0);
        for status in BackupStatus::ALL {
            for (number, in_use) in (0..count).flat_map(|it| [(it, false), (it, true)]) {
                let mut seen = Vec::new();
                for old in [true, false] {
                    let id = volume(&rig, &beside, in_use, status.as_str(), old).await;
                    let (method, path, body) = operations(&id, &beside).swap_remove(number);
                    let version = if number % 2 == 0 { NEW } else { OLD };
                    let answer = rig.call(method, &path, body, version).await;
                    let after = rig.both(&id).await;
                    let text = answer.body.to_string().replace(&id, "ID");
                    let said = if answer.code < 300 { String::new() } else { text };
                    seen.push((
                        format!("{method} {path}").replace(&id, "ID"),
                        answer.code,
                        said,
                        after,
                    ));
                    rig.settle().await;
                }
                let which = format!("{} in_use={in_use}", status.as_str());
                assert_eq!(seen[0], seen[1], "{which}: the row of the release before is first");
                if seen[0].1 < 300 { accepted += 1 } else { refused += 1 }
            }
        }
        assert!(accepted > 50 && refused > 50, "{accepted} accepted, {refused} refused");
    }
}

/// What an administrator sets is what both kinds of clients then see.
#[tokio::test]
async fn resets_of_either_release() {
    let rig = Rig::new().await;
    let id = rig.volume().await;
    let reset = async |args: Value, version: &str| {
        let answer = rig.action(&id, "os-reset_status", args, version).await;
        (answer.code, answer.body.to_string())
    };
    // The one field of older clients: a backup's value goes to its own, all others clear it.
    for status in BackupStatus::ALL {
        assert_eq!(reset(json!({"status": status.as_str()}), OLD).await.0, 202);
        rig.expect(&id, "available", Some(status.as_str())).await;
        assert_eq!(rig.legacy(&id).await, status.as_str());
    }
    assert_eq!(reset(json!({"attach_status": "detached"}), OLD).await.0, 202);
    rig.expect(&id, "available", Some("error_restoring")).await;
    assert_eq!(reset(json!({"status": "error"}), OLD).await.0, 202);
    rig.expect(&id, "error", None).await;
    // A backup's value on a volume at rest only: else it comes to rest by its attachments.
    assert_eq!(reset(json!({"status": "backing-up"}), OLD).await.0, 202);
    rig.expect(&id, "available", Some("backing-up")).await;
    // Two fields: neither touches the other.
    assert_eq!(reset(json!({"status": "error"}), NEW).await.0, 202);
    rig.expect(&id, "error", Some("backing-up")).await;
    assert_eq!(rig.legacy(&id).await, "error");
    assert_eq!(reset(json!({"backup_status": null}), NEW).await.0, 202);
    rig.expect(&id, "error", None).await;
    assert_eq!(
        reset(json!({"backup_status": "error_restoring", "status": "available"}), NEW).await.0,
        202
    );
    rig.expect(&id, "available", Some("error_restoring")).await;
    assert_eq!(reset(json!({"backup_status": null}), NEW).await.0, 202);
    for (args, version, said) in [
        (json!({}), NEW, "Must specify"),
        (json!({"status": "backing-up"}), NEW, "Volume status: backing-up is invalid"),
        (json!({"backup_status": "x"}), NEW, "Volume backup status: x is invalid"),
        (json!({"backup_status": null}), OLD, "Additional properties are not allowed"),
        (json!({"status": "nonsense"}), OLD, "is invalid"),
        (json!({"status": "in-use"}), NEW, "does not have any attachments"),
        (json!({"status": "available", "more": 1}), NEW, "Additional properties are not allowed"),
    ] {
        let (code, text) = reset(args.clone(), version).await;
        assert!(code == 400 && text.contains(said), "{args}: {code} {text}");
    }
    rig.expect(&id, "available", None).await;
    let path = format!("/volumes/{id}/action");
    for role in ["member", "reader"] {
        let token = format!("u:{PROJECT}:{role}");
        for args in [json!({"status": "error"}), json!({"backup_status": "backing-up"})] {
            let body = json!({ "os-reset_status": args });
            assert_eq!(rig.call_as(&token, ("POST", &path), body, NEW).await.code, 403);
        }
    }
    rig.expect(&id, "available", None).await;
}
