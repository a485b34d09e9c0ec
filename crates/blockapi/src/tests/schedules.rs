//! Two at once, in the worst order: what a request looked at is changed before it holds the row.

use std::future::Future;

use serde_json::{Value, json};

use super::rig::{Answer, NEW, PROJECT, Rig, id_of};
use crate::sql::BEGUN;

/// The answer to a request whose rows are changed after it looked at them and before it holds them.
pub(super) async fn meanwhile(
    rig: &Rig,
    rows: &[(&'static str, &str)],
    asked: impl Future<Output = Answer>,
    changes: &[(&str, Vec<crate::sql::Value>)],
) -> Answer {
    let mut held = rig.store.db.begin().await.unwrap();
    for (table, id) in rows {
        held.lock(table, id).await.unwrap();
    }
    let before = BEGUN.get();
    let change = async {
        while BEGUN.get() == before {
            tokio::task::yield_now().await;
        }
        let mut held = held;
        for (sql, values) in changes {
            held.execute(sql, values).await.unwrap();
        }
        held.commit().await.unwrap();
    };
    tokio::join!(asked, change).0
}

async fn snapshot(rig: &Rig, volume: &str) -> String {
    let body = json!({"snapshot": {"volume_id": volume, "force": true}});
    let made = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
    rig.settle().await;
    made
}

/// A snapshot that is taken, or an extension that ends, between the look and the revert.
#[tokio::test]
async fn a_revert_is_to_the_newest_snapshot_and_its_size() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let first = snapshot(&rig, &volume).await;
        let revert = || rig.action(&volume, "revert", json!({"snapshot_id": first}), NEW);
        let newer = "INSERT INTO snapshots (id, project_id, volume_id, status, volume_size, created_at) \
             VALUES ('newer', $1, $2, 'creating', 1, '2999')";
        let values = vec![PROJECT.into(), volume.as_str().into()];
        let seen = meanwhile(&rig, &[("volumes", &volume)], revert(), &[(newer, values)]).await;
        assert_eq!(seen.code, 409, "{seen:?}");
        rig.expect(&volume, "available", None).await;
        rig.store.db.execute("DELETE FROM snapshots WHERE id = 'newer'", &[]).await.unwrap();
        let larger = "UPDATE volumes SET size = 2 WHERE id = $1";
        let values = vec![volume.as_str().into()];
        let seen = meanwhile(&rig, &[("volumes", &volume)], revert(), &[(larger, values)]).await;
        assert_eq!(seen.code, 409, "{seen:?}");
        rig.expect(&volume, "available", None).await;
        let seen = rig.get(&format!("/snapshots/{first}"), NEW).await;
        assert_eq!(seen.body["snapshot"]["status"], "available");
    }
}

/// A client that asks for its address while a restore ends must not be sent to what was there before:
/// that goes, and what is written to it with it.
#[tokio::test]
async fn nobody_is_connected_to_what_a_restore_took_the_place_of() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let replaced = "UPDATE volumes SET name_id = 'another' WHERE id = $1";
        let values = || vec![volume.as_str().into()];
        let connector = json!({"host": "h"});
        let body = json!({"attachment": {"volume_uuid": volume, "connector": connector}});
        let asked = rig.call("POST", "/attachments", body, NEW);
        let seen = meanwhile(&rig, &[("volumes", &volume)], asked, &[(replaced, values())]).await;
        // What is behind the row now is not there in this world: it is refused, and nothing is left.
        assert!(seen.code >= 400, "{seen:?}");
        assert_eq!(rig.backend.connected(&volume), Vec::<String>::new());
        rig.expect(&volume, "available", None).await;
        let back = "UPDATE volumes SET name_id = NULL WHERE id = $1";
        rig.store.db.execute(back, &values()).await.unwrap();
        let asked =
            rig.action(&volume, "os-initialize_connection", json!({"connector": connector}), NEW);
        let seen = meanwhile(&rig, &[("volumes", &volume)], asked, &[(replaced, values())]).await;
        assert_eq!(seen.code, 400, "{seen:?}");
        assert_eq!(rig.backend.connected(&volume), Vec::<String>::new());
    }
}

/// Two servers use a volume only while several may.
#[tokio::test]
async fn a_volume_is_shared_only_while_its_type_says_so() {
    for rig in Rig::everywhere().await {
        let kind = json!({"volume_type": {"name": "shared",
            "extra_specs": {"multiattach": "<is> True"}}});
        rig.ok("POST", "/types", kind, NEW).await;
        let body = json!({"volume": {"size": 1, "volume_type": "shared"}});
        let volume = id_of(&rig.call("POST", "/volumes", body, NEW).await, "volume");
        rig.settle().await;
        rig.attach(&volume, &uuid::Uuid::new_v4().to_string()).await;
        // Who uses it was told that others do.
        let plain = json!({"new_type": "__DEFAULT__", "migration_policy": "never"});
        let seen = rig.action(&volume, "os-retype", plain, NEW).await;
        assert_eq!(seen.code, 400, "{seen:?}");
        let alone = "UPDATE volumes SET multiattach = 0 WHERE id = $1";
        let values = || vec![volume.as_str().into()];
        let server = uuid::Uuid::new_v4().to_string();
        let body = json!({"attachment": {"volume_uuid": volume, "instance_uuid": server}});
        let asked = rig.call("POST", "/attachments", body, NEW);
        let seen = meanwhile(&rig, &[("volumes", &volume)], asked, &[(alone, values())]).await;
        assert_eq!(seen.code, 400, "{seen:?}");
        let shared = "UPDATE volumes SET multiattach = 1 WHERE id = $1";
        rig.store.db.execute(shared, &values()).await.unwrap();
        let asked = rig.action(&volume, "os-reserve", json!({}), NEW);
        let seen = meanwhile(&rig, &[("volumes", &volume)], asked, &[(alone, values())]).await;
        assert_eq!(seen.code, 400, "{seen:?}");
        rig.expect(&volume, "in-use", None).await;
    }
}

/// An administrator ends a backup at the moment a restore of it begins: the volume that is restored is
/// told so, and does not wait for ever for an end that nobody brings.
#[tokio::test]
async fn ending_a_backup_ends_the_restore_that_just_began() {
    for rig in Rig::everywhere().await {
        for action in ["os-force_delete", "os-reset_status"] {
            let (source, target) = (rig.volume().await, rig.volume().await);
            let backup = id_of(&rig.backup(&source, false).await, "backup");
            rig.settle().await;
            let args =
                if action == "os-reset_status" { json!({"status": "error"}) } else { json!({}) };
            let path = format!("/backups/{backup}/action");
            let ended = rig.call("POST", &path, json!({ action: args }), NEW);
            // As a restore into the other volume leaves them.
            let changes = [
                (
                    "UPDATE backups SET status = 'restoring', restore_volume_id = $1 WHERE id = $2",
                    vec![target.as_str().into(), backup.as_str().into()],
                ),
                (
                    "UPDATE volumes SET backup_status = 'restoring-backup' WHERE id = $1",
                    vec![target.as_str().into()],
                ),
                (
                    "INSERT INTO workers (id, resource_type, resource_id, status, detail, created_at) \
                     VALUES ($1, 'backup', $1, 'restoring', '{}', '2026-01-01T00:00:00.000000')",
                    vec![backup.as_str().into()],
                ),
            ];
            let rows = [("volumes", source.as_str()), ("backups", backup.as_str())];
            let seen = meanwhile(&rig, &rows, ended, &changes).await;
            assert_eq!(seen.code, 202, "{seen:?}");
            rig.expect(&target, "available", Some("error_restoring")).await;
            rig.settle().await;
            rig.expect(&source, "available", None).await;
        }
    }
}

/// A request that was let in by its owner does not land on a snapshot of the next one.
#[tokio::test]
async fn a_snapshot_that_changes_hands_meanwhile_is_left_alone() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let id = snapshot(&rig, &volume).await;
        let token = format!("bob:{PROJECT}:member");
        let path = format!("/snapshots/{id}");
        let meta = format!("{path}/metadata");
        let pair = json!({"metadata": {"k": "v"}});
        let requests = [
            ("DELETE", path.as_str(), Value::Null),
            ("PUT", path.as_str(), json!({"snapshot": {"name": "mine"}})),
            ("POST", meta.as_str(), pair.clone()),
            ("PUT", meta.as_str(), pair),
            ("POST", "/volumes", json!({"volume": {"snapshot_id": id}})),
        ];
        for (method, path, body) in requests {
            let asked = rig.call_as(&token, (method, path), body, NEW);
            let handed = "UPDATE snapshots SET project_id = 'dddd' WHERE id = $1";
            let values = vec![id.as_str().into()];
            let seen = meanwhile(&rig, &[("snapshots", &id)], asked, &[(handed, values)]).await;
            assert_eq!(seen.code, 404, "{method} {path}: {seen:?}");
            let back = "UPDATE snapshots SET project_id = $2 WHERE id = $1";
            rig.store.db.execute(back, &[id.as_str().into(), PROJECT.into()]).await.unwrap();
        }
        let seen = rig.get(&format!("/snapshots/{id}"), NEW).await;
        assert_eq!(seen.body["snapshot"]["status"], "available");
        assert_eq!(
            (&seen.body["snapshot"]["metadata"], &seen.body["snapshot"]["name"]),
            (&json!({}), &Value::Null)
        );
        // Nor on the metadata of images, nor on a reservation.
        let action = format!("/volumes/{volume}/action");
        for body in [
            json!({"os-set_image_metadata": {"metadata": {"k": "v"}}}),
            json!({"os-unreserve": {}}),
        ] {
            let attaching = "UPDATE volumes SET status = 'attaching' WHERE id = $1";
            rig.store.db.execute(attaching, &[volume.as_str().into()]).await.unwrap();
            let asked = rig.call_as(&token, ("POST", &action), body, NEW);
            let handed = "UPDATE volumes SET project_id = 'dddd' WHERE id = $1";
            meanwhile(
                &rig,
                &[("volumes", &volume)],
                asked,
                &[(handed, vec![volume.as_str().into()])],
            )
            .await;
            rig.expect(&volume, "attaching", None).await;
            let seen = rig.get(&format!("/volumes/{volume}"), NEW).await;
            assert_eq!(seen.body["volume"].get("volume_image_metadata"), None);
            let back = "UPDATE volumes SET project_id = $2 WHERE id = $1";
            rig.store.db.execute(back, &[volume.as_str().into(), PROJECT.into()]).await.unwrap();
        }
    }
}

/// The clock of one who lets backups in is behind: still the later backup is the one that holds the
/// volume, and the end of the earlier one does not free it.
#[tokio::test]
async fn a_clock_that_is_behind_frees_nothing() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.backend.mood(|moods| moods.hold_backups = true);
        let first = id_of(&rig.backup(&volume, false).await, "backup");
        rig.passes(4).await;
        let ahead = "UPDATE workers SET created_at = '2999-01-01T00:00:00.000000'";
        rig.store.db.execute(ahead, &[]).await.unwrap();
        let unset = json!({"backup_status": null});
        assert_eq!(rig.action(&volume, "os-reset_status", unset, NEW).await.code, 202);
        let second = id_of(&rig.backup(&volume, false).await, "backup");
        rig.passes(4).await;
        let force = json!({"os-force_delete": {}});
        rig.ok("POST", &format!("/backups/{first}/action"), force, NEW).await;
        rig.expect(&volume, "available", Some("backing-up")).await;
        rig.backend.mood(|moods| moods.hold_backups = false);
        rig.settle().await;
        assert_eq!(rig.backup_status(&second).await, "available");
        rig.expect(&volume, "available", None).await;
    }
}

/// Of two that exclude each other never both are accepted, whichever comes first to the row.
#[tokio::test]
async fn a_backup_excludes_migrations_and_restores() {
    for rig in Rig::everywhere().await {
        rig.store.report_service("elsewhere@holdfast", "cinder-volume", "nova").await.unwrap();
        let source = rig.volume().await;
        let backup = id_of(&rig.backup(&source, false).await, "backup");
        rig.settle().await;
        let restore = format!("/backups/{backup}/restore");
        for round in 0..12 {
            let volume = rig.volume().await;
            let other = async {
                let restored = json!({"restore": {"volume_id": volume}});
                if round % 2 == 0 {
                    return rig.call("POST", &restore, restored, NEW).await;
                }
                let host = json!({"host": "elsewhere@holdfast#holdfast"});
                rig.action(&volume, "os-migrate_volume", host, NEW).await
            };
            let backup = rig.backup(&volume, false);
            let (one, two) = if round % 4 < 2 {
                tokio::join!(backup, other)
            } else {
                let (two, one) = tokio::join!(other, backup);
                (one, two)
            };
            let accepted = [&one, &two].iter().filter(|it| it.code == 202).count();
            assert_eq!(accepted, 1, "{one:?} and {two:?}");
            rig.settle().await;
        }
    }
}

/// One of many who know the key gets the volume, and pays for it once.
#[tokio::test]
async fn a_transfer_is_accepted_once() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let body = json!({"transfer": {"volume_id": volume}});
        let offered = rig.ok("POST", "/volume-transfers", body, NEW).await;
        let path =
            format!("/volume-transfers/{}/accept", offered["transfer"]["id"].as_str().unwrap());
        let body = json!({"accept": {"auth_key": offered["transfer"]["auth_key"]}});
        let tokens: Vec<String> = (0..8).map(|it| format!("eve:dddd{it}:member")).collect();
        let asked = tokens.iter().map(|it| rig.call_as(it, ("POST", &path), body.clone(), NEW));
        let seen = futures::future::join_all(asked).await;
        assert_eq!(seen.iter().filter(|it| it.code == 202).count(), 1, "{seen:?}");
        assert!(seen.iter().all(|it| [202, 400, 404].contains(&it.code)), "{seen:?}");
        let see = tokens.iter().map(|it| rig.call_as(it, ("GET", "/volumes"), Value::Null, NEW));
        let seen = futures::future::join_all(see).await;
        let owners = seen.iter().filter(|it| it.body["volumes"] != json!([])).count();
        assert_eq!(owners, 1);
    }
}

/// A type that goes, or from now on asks for encryption, between the look and the new volume.
#[tokio::test]
async fn a_volume_is_of_a_type_that_is_still_as_it_was_looked_at() {
    for rig in Rig::everywhere().await {
        let spare = rig.volume().await;
        let before = rig.get("/volumes", NEW).await.body["volumes"].as_array().unwrap().len();
        for (name, change, code) in [
            ("gone", "UPDATE volume_types SET deleted = 1 WHERE id = $1", 404),
            (
                "secret",
                "INSERT INTO volume_type_encryption (volume_type_id, encryption_id, provider, \
                 control_location, created_at) VALUES ($1, $1, 'luks', 'front-end', '2026')",
                400,
            ),
        ] {
            let kind = json!({"volume_type": {"name": name}});
            let kind = id_of(&rig.call("POST", "/types", kind, NEW).await, "volume_type");
            let made = json!({"volume": {"size": 1, "volume_type": name}});
            let asked = rig.call("POST", "/volumes", made, NEW);
            let values = vec![kind.as_str().into()];
            let changes = [(change, values)];
            let seen = meanwhile(&rig, &[("volume_types", &kind)], asked, &changes).await;
            assert_eq!(seen.code, code, "{name}: {seen:?}");
            let left = rig.get("/volumes", NEW).await.body["volumes"].as_array().unwrap().len();
            assert_eq!(left, before);
        }
        let kind = json!({"volume_type": {"name": "other"}});
        let kind = id_of(&rig.call("POST", "/types", kind, NEW).await, "volume_type");
        let retype = json!({"new_type": "other", "migration_policy": "never"});
        let asked = rig.action(&spare, "os-retype", retype, NEW);
        let gone =
            [("UPDATE volume_types SET deleted = 1 WHERE id = $1", vec![kind.as_str().into()])];
        let rows = [("volumes", spare.as_str()), ("volume_types", kind.as_str())];
        let seen = meanwhile(&rig, &rows, asked, &gone).await;
        assert_eq!(seen.code, 404, "{seen:?}");
        rig.settle().await;
        rig.expect(&spare, "available", None).await;
        let seen = rig.get(&format!("/volumes/{spare}"), NEW).await;
        assert_eq!(seen.body["volume"]["volume_type"], "__DEFAULT__");
    }
}
