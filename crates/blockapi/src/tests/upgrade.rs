//! From the release before to this one, with both at work.

use serde_json::json;

use super::rig::{NEW, OLD, PROJECT, Rig, databases, id_of};
use crate::cli::{self, DbCommand};
use crate::model::status::BackupStatus;
use crate::model::translate;
use crate::sql::{BASE_REVISION, HEAD_REVISION, SchemaState};
use crate::store::Store;
use crate::upgrade;

/// A volume as the release before writes it.
async fn plant(store: &Store, id: &str, status: &str, previous: Option<&str>, attached: &[&str]) {
    // By statements of its own: this release asks for columns that were not there.
    let known = "INSERT INTO volume_types (id, name, created_at) SELECT $1, '__DEFAULT__', '' \
         WHERE NOT EXISTS (SELECT 1 FROM volume_types WHERE name = '__DEFAULT__')";
    let id_of_type = "11111111-0000-4000-8000-000000000000";
    store.db.execute(known, &[id_of_type.into()]).await.unwrap();
    let found = "SELECT id FROM volume_types WHERE name = '__DEFAULT__'";
    let kind = store.db.fetch_one(found, &[]).await.unwrap().unwrap().text("id").unwrap();
    let sql = "INSERT INTO volumes (id, project_id, size, status, previous_status, attach_status, \
         volume_type_id, created_at, updated_at) \
         VALUES ($1, $2, 1, $3, $4, $5, $6, '2026-01-01T00:00:00.000000', '2026-01-02T00:00:00.000000')";
    let attach = if attached.contains(&"attached") { "attached" } else { "detached" };
    let values =
        [id.into(), PROJECT.into(), status.into(), previous.into(), attach.into(), kind.into()];
    store.db.execute(sql, &values).await.unwrap();
    for (at, state) in attached.iter().enumerate() {
        let sql = "INSERT INTO volume_attachment (id, volume_id, attach_status, created_at) \
             VALUES ($1, $2, $3, '2026-01-01T00:00:00.000000')";
        let attachment = format!("{id}-{at}");
        store.db.execute(sql, &[attachment.into(), id.into(), (*state).into()]).await.unwrap();
    }
}

type Planted = (&'static str, &'static str, Option<&'static str>, &'static [&'static str]);

const ROWS: &[Planted] = &[
    ("00000000-0000-4000-8000-000000000001", "backing-up", Some("available"), &[]),
    ("00000000-0000-4000-8000-000000000002", "backing-up", Some("in-use"), &["attached"]),
    ("00000000-0000-4000-8000-000000000003", "backing-up", Some("in-use"), &[]),
    ("00000000-0000-4000-8000-000000000004", "backing-up", Some("available"), &["attached"]),
    ("00000000-0000-4000-8000-000000000005", "backing-up", None, &["reserved"]),
    ("00000000-0000-4000-8000-000000000006", "error_backing-up", None, &["error_attaching"]),
    ("00000000-0000-4000-8000-000000000007", "restoring-backup", None, &[]),
    ("00000000-0000-4000-8000-000000000008", "error_restoring", Some("backing-up"), &[]),
    ("00000000-0000-4000-8000-000000000009", "available", Some("backing-up"), &[]),
    ("00000000-0000-4000-8000-00000000000a", "extending", Some("in-use"), &["attached"]),
];

/// Rows are served alike before and after their migration, and as the pure functions say.
#[tokio::test]
async fn rows_of_the_release_before_are_served_and_then_split() {
    for (db, place) in databases().await {
        assert_eq!(db.sync(Some(BASE_REVISION)).await.unwrap(), [BASE_REVISION]);
        let before = Store::new(db.clone());
        for (id, status, previous, attached) in ROWS {
            plant(&before, id, status, *previous, attached).await;
        }
        assert!(matches!(db.schema_state().await.unwrap(), SchemaState::Behind(_)));
        assert!(db.require_schema().await.is_err());
        let rig = Rig::on(db, place).await;
        let expected = |status: &'static str, attached: &'static [&str]| {
            let (status, backup) = translate::split(status, attached.iter().copied());
            (status.to_owned(), backup.map(|it| it.as_str().to_owned()))
        };
        for (id, status, _, attached) in ROWS {
            assert_eq!(rig.both(id).await, expected(status, attached), "{id} before");
        }
        let found = rig.get("/volumes?backup_status=backing-up", NEW).await;
        assert_eq!(found.body["volumes"].as_array().unwrap().len(), 5);
        let found = rig.get("/volumes?status=backing-up", OLD).await;
        assert_eq!(found.body["volumes"].as_array().unwrap().len(), 4, "one is reserved");
        // Every condition understands them: an extension is fine, a deletion is not.
        let (first, second) = (ROWS[0].0, ROWS[1].0);
        assert_eq!(
            rig.call("DELETE", &format!("/volumes/{first}"), json!(null), NEW).await.code,
            400
        );
        assert_eq!(rig.backup(first, false).await.code, 400);
        assert_eq!(rig.action(second, "os-extend", json!({"new_size": 2}), OLD).await.code, 202);
        rig.expect(second, "extending", Some("backing-up")).await;

        let (total, done) = upgrade::split(&rig.store, 3).await.unwrap();
        assert_eq!((total, done), (7, 3), "the extension left one in the new form");
        let (_, rest) = upgrade::split(&rig.store, i64::MAX).await.unwrap();
        assert_eq!(rest, 4);
        assert_eq!(upgrade::split(&rig.store, i64::MAX).await.unwrap(), (0, 0));
        for (id, status, _, attached) in ROWS.iter().filter(|it| it.0 != second) {
            assert_eq!(rig.both(id).await, expected(status, attached), "{id} after");
            let sql = "SELECT updated_at, previous_status FROM volumes WHERE id = $1";
            let row = rig.store.db.fetch_one(sql, &[(*id).into()]).await.unwrap().unwrap();
            assert_eq!(row.text("updated_at").unwrap(), "2026-01-02T00:00:00.000000");
            let remembered = row.text("previous_status").unwrap();
            assert!(*status == "available" || BackupStatus::parse(&remembered).is_none(), "{id}");
        }
        // And back, for those who must return to the release before.
        upgrade::join(&rig.store).await.unwrap();
        let sql = "SELECT status FROM volumes WHERE id = $1";
        let row = rig.store.db.fetch_one(sql, &[first.into()]).await.unwrap().unwrap();
        assert_eq!(row.text("status").unwrap(), "backing-up");
    }
}

/// While services of the release before run, what is written is what they understand, and nothing
/// happens beside a backup.
#[tokio::test]
async fn beside_old_services_one_field_is_written() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let sql = "INSERT INTO services (uuid, host, \"binary\", object_current_version, created_at, \
         updated_at) VALUES ('old', 'elsewhere', 'cinder-backup', '1.39', $1, $1)";
    rig.store.db.execute(sql, &[crate::store::now().into()]).await.unwrap();
    rig.worker.report().await.unwrap();
    assert!(rig.store.is_pinned());
    rig.backend.mood(|moods| moods.hold_backups = true);
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    let sql = "SELECT status, previous_status, backup_status FROM volumes WHERE id = $1";
    let row = rig.store.db.fetch_one(sql, &[volume.as_str().into()]).await.unwrap().unwrap();
    assert_eq!(row.text("status").unwrap(), "backing-up");
    assert_eq!(row.text("previous_status").unwrap(), "available");
    assert_eq!(row.opt("backup_status").unwrap(), None);
    // Clients of this release still see both, and are refused as before.
    rig.expect(&volume, "available", Some("backing-up")).await;
    assert_eq!(rig.action(&volume, "os-extend", json!({"new_size": 2}), NEW).await.code, 400);
    assert!(upgrade::split(&rig.store, 10).await.is_err(), "an old service is known");
    rig.backend.mood(|moods| moods.hold_backups = false);
    rig.settle().await;
    assert_eq!(rig.backup_status(&backup).await, "available");
    rig.expect(&volume, "available", None).await;
    rig.store.db.execute("DELETE FROM services WHERE uuid = 'old'", &[]).await.unwrap();
    rig.worker.report().await.unwrap();
    assert!(!rig.store.is_pinned());
}

async fn pinned() -> Rig {
    let rig = Rig::new().await;
    let sql = "INSERT INTO services (uuid, host, \"binary\", object_current_version, created_at, \
         updated_at) VALUES ('old', 'elsewhere', 'cinder-backup', '1.39', $1, $1)";
    rig.store.db.execute(sql, &[crate::store::now().into()]).await.unwrap();
    rig.worker.report().await.unwrap();
    assert!(rig.store.is_pinned());
    rig
}

/// Beside old services too nobody uses a volume before all of a backup is in it, and it is free then.
#[tokio::test]
async fn beside_old_services_a_new_volume_is_restored_to_its_end() {
    let rig = pinned().await;
    let volume = rig.volume().await;
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.settle().await;
    rig.backend.mood(|moods| moods.hold_restores = true);
    let path = format!("/backups/{backup}/restore");
    let made = rig.ok("POST", &path, json!({"restore": {}}), NEW).await;
    let restored = made["restore"]["volume_id"].as_str().unwrap().to_owned();
    rig.passes(3).await;
    rig.expect(&restored, "available", Some("restoring-backup")).await;
    assert_eq!(rig.action(&restored, "os-reserve", json!({}), NEW).await.code, 400);
    rig.backend.mood(|moods| moods.hold_restores = false);
    rig.settle().await;
    rig.expect(&restored, "available", None).await;
    let body = json!({"volume": {"backup_id": backup, "size": 1}});
    let made = id_of(&rig.call("POST", "/volumes", body.clone(), NEW).await, "volume");
    rig.expect(&made, "creating", Some("restoring-backup")).await;
    rig.settle().await;
    rig.expect(&made, "available", None).await;
    rig.backend.mood(|moods| moods.fail_restores = Some("blocks are missing".to_owned()));
    let made = id_of(&rig.call("POST", "/volumes", body, NEW).await, "volume");
    rig.settle().await;
    rig.expect(&made, "error", Some("error_restoring")).await;
}

#[tokio::test]
async fn beside_old_services_a_detach_does_not_hide_a_backup() {
    let rig = pinned().await;
    let volume = rig.volume().await;
    let attachment = rig.attach(&volume, &uuid::Uuid::new_v4().to_string()).await;
    rig.backend.mood(|moods| moods.hold_backups = true);
    rig.backup(&volume, true).await;
    rig.passes(4).await;
    let seen = rig.action(&volume, "os-begin_detaching", json!({}), NEW).await;
    assert_eq!(seen.code, 202, "{seen:?}");
    rig.expect(&volume, "detaching", Some("backing-up")).await;
    rig.ok("DELETE", &format!("/attachments/{attachment}"), json!(null), NEW).await;
    rig.expect(&volume, "available", Some("backing-up")).await;
    assert_eq!(rig.backup(&volume, false).await.code, 400);
    rig.backend.mood(|moods| moods.hold_backups = false);
    rig.settle().await;
    rig.expect(&volume, "available", None).await;
    // What an old service writes afterwards counts, whatever the new column still says.
    let stale = "UPDATE volumes SET status = 'backing-up', backup_status = 'error_backing-up' WHERE id = $1";
    rig.store.db.execute(stale, &[volume.as_str().into()]).await.unwrap();
    rig.expect(&volume, "available", Some("backing-up")).await;
    rig.store.db.execute("DELETE FROM services WHERE uuid = 'old'", &[]).await.unwrap();
    upgrade::split(&rig.store, 10).await.unwrap();
    rig.expect(&volume, "available", Some("backing-up")).await;
}

/// One that stands still is as old as before when it goes on, and would not see a backup's own field.
#[tokio::test]
async fn an_old_service_that_is_silent_is_still_written_for() {
    let rig = pinned().await;
    let volume = rig.volume().await;
    let silent = "UPDATE services SET updated_at = '2026-01-01T00:00:00.000000' WHERE uuid = 'old'";
    rig.store.db.execute(silent, &[]).await.unwrap();
    rig.worker.report().await.unwrap();
    rig.backend.mood(|moods| moods.hold_backups = true);
    assert_eq!(rig.backup(&volume, false).await.code, 202);
    rig.passes(4).await;
    // What it does when it goes on: it deletes what its one field says is available.
    let deletes = "UPDATE volumes SET status = 'deleting' WHERE id = $1 AND status = 'available'";
    let done = rig.store.db.execute(deletes, &[volume.as_str().into()]).await.unwrap();
    assert_eq!(done, 0, "a volume under its backup");
    // Who is gone for good is forgotten by those who know it.
    assert!(rig.store.remove_service("elsewhere", "cinder-backup").await.unwrap());
    rig.worker.report().await.unwrap();
    assert!(!rig.store.is_pinned());
}

/// A failed backup kept nobody from anything in the release before, and its services go on so.
#[tokio::test]
async fn beside_old_services_a_failed_backup_is_in_nobodys_way() {
    let rig = pinned().await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.fail_backups = Some("full".to_owned()));
    rig.backup(&volume, false).await;
    rig.settle().await;
    rig.expect(&volume, "available", Some("error_backing-up")).await;
    let row = async || {
        let sql = "SELECT status FROM volumes WHERE id = $1";
        let row = rig.store.db.fetch_one(sql, &[volume.as_str().into()]).await.unwrap().unwrap();
        row.text("status").unwrap()
    };
    assert_eq!(row().await, "available", "as old services see it");
    rig.backend.mood(|moods| moods.fail_backups = None);
    assert_eq!(rig.action(&volume, "os-extend", json!({"new_size": 2}), NEW).await.code, 202);
    rig.settle().await;
    rig.expect(&volume, "available", Some("error_backing-up")).await;
    rig.backup(&volume, false).await;
    rig.settle().await;
    rig.expect(&volume, "available", None).await;
    // Nor after the way back.
    let failed = json!({"backup_status": "error_backing-up"});
    assert_eq!(rig.action(&volume, "os-reset_status", failed, NEW).await.code, 202);
    upgrade::join(&rig.store).await.unwrap();
    assert_eq!(row().await, "available");
    let sql = "SELECT previous_status, backup_status FROM volumes WHERE id = $1";
    let kept = rig.store.db.fetch_one(sql, &[volume.as_str().into()]).await.unwrap().unwrap();
    assert_eq!(kept.opt("previous_status").unwrap().as_deref(), Some("error_backing-up"));
    assert_eq!(kept.opt("backup_status").unwrap(), None);
}

/// A writer of each release at work while rows are migrated: nothing is lost, nothing is done twice.
#[tokio::test]
async fn a_migration_under_load_loses_nothing() {
    for rig in Rig::everywhere().await {
        let ids: Vec<String> = (0..30).map(|_| uuid::Uuid::new_v4().to_string()).collect();
        for id in &ids {
            plant(&rig.store, id, "available", None, &[]).await;
        }
        let store = &rig.store;
        // The old writer: check, then write one field; and back at the end of its backup.
        let old = async {
            for id in &ids {
                let begin = "UPDATE volumes SET status = 'backing-up', previous_status = 'available' \
                     WHERE id = $1 AND status = 'available' AND backup_status IS NULL";
                store.db.execute(begin, &[id.as_str().into()]).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let new = async {
            for id in ids.iter().rev() {
                let seen = rig.action(id, "os-extend", json!({"new_size": 2}), NEW).await;
                assert_eq!(seen.code, 202, "{seen:?}");
                rig.worker.pass().await.unwrap();
            }
        };
        let migration = async {
            for _ in 0..40 {
                upgrade::split(store, 2).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(old, new, migration);
        while upgrade::split(store, i64::MAX).await.unwrap().1 > 0 {}
        // What the extensions need is not there; only the two fields are of interest.
        for id in &ids {
            let (status, backup) = rig.both(id).await;
            assert!(
                ["extending", "error_extending", "available"].contains(&status.as_str()),
                "{status}"
            );
            assert!([None, Some("backing-up")].contains(&backup.as_deref()), "{backup:?}");
        }
        assert_eq!(upgrade::old_rows(store).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn operators_see_the_codes_of_the_dialects_tools() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("block.db").display());
    let run = |command: DbCommand| {
        let address = address.clone();
        async move {
            let mut out = Vec::new();
            let code = cli::db(&address, &command, &mut out).await.unwrap();
            (code, String::from_utf8(out).unwrap())
        }
    };
    let migrate = |max_count| DbCommand::OnlineDataMigrations { max_count, revert: false };
    let mut out = Vec::new();
    assert_eq!(cli::check(&address, &mut out).await.unwrap(), 2);
    assert_eq!(run(migrate(None)).await.0, 2, "no schema yet");
    assert_eq!(run(DbCommand::Sync { version: None }).await.0, 0);
    assert_eq!(run(DbCommand::Version).await, (0, format!("{HEAD_REVISION}\n")));
    assert_eq!(run(DbCommand::Sync { version: None }).await.1, "nothing to do\n");
    let store = Store::new(crate::sql::Db::open(&address).await.unwrap());
    for (id, status, previous, attached) in ROWS {
        plant(&store, id, status, *previous, attached).await;
    }
    assert_eq!(cli::check(&address, &mut out).await.unwrap(), 2);
    assert_eq!(run(migrate(Some(0))).await.0, 127);
    assert_eq!(run(migrate(Some(-5))).await.0, 127);
    let (code, said) = run(migrate(Some(6))).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.starts_with(
        "8 rows matched query volume_backup_status_online_data_migration, 6 migrated"
    ));
    assert_eq!(run(migrate(Some(6))).await.0, 1);
    assert_eq!(run(migrate(Some(6))).await.0, 0);
    assert_eq!(run(migrate(None)).await.0, 0);
    assert_eq!(cli::check(&address, &mut out).await.unwrap(), 0);
    let sql =
        "UPDATE volumes SET deleted = 1, deleted_at = '2026-01-01T00:00:00.000000' WHERE id = $1";
    store.db.execute(sql, &[ROWS[0].0.into()]).await.unwrap();
    let old =
        "INSERT INTO services (uuid, host, \"binary\", created_at) VALUES ('u', 'h', 'b', '')";
    store.db.execute(old, &[]).await.unwrap();
    assert_eq!(run(migrate(None)).await.0, 2);
    let remove = DbCommand::RemoveService { host: "h".to_owned(), binary: "b".to_owned() };
    assert_eq!(run(remove.clone()).await.0, 0);
    assert_eq!(run(remove).await.0, 1, "it is gone");
    assert_eq!(run(migrate(None)).await.0, 0);
    // A database that is not there is no "call again" and no mere warning.
    let nowhere = format!("sqlite:{}", folder.path().join("no/such/folder/block.db").display());
    for address in [nowhere.as_str(), "postgress://nobody"] {
        for revert in [false, true] {
            let command = DbCommand::OnlineDataMigrations { max_count: Some(5), revert };
            assert_eq!(
                cli::db(address, &command, &mut out).await.unwrap(),
                2,
                "{address} {revert}"
            );
        }
        assert_eq!(cli::check(address, &mut out).await.unwrap(), 2, "{address}");
        assert!(cli::db(address, &DbCommand::Version, &mut out).await.is_err());
    }
    assert_eq!(run(DbCommand::Purge { age_in_days: 10_000_000 }).await.1, "0 rows removed\n");
    assert_eq!(run(DbCommand::Purge { age_in_days: i64::MAX }).await.1, "0 rows removed\n");
    assert_eq!(run(DbCommand::Purge { age_in_days: 1 }).await, (0, "1 rows removed\n".to_owned()));
}
