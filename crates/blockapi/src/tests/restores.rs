//! What is restored is as large as its row says, and what is not there is not waited for without end.

use serde_json::{Value, json};

use super::rig::{NEW, PROJECT, Rig, id_of};

async fn saved(rig: &Rig, volume: &str) -> String {
    let backup = id_of(&rig.backup(volume, false).await, "backup");
    rig.settle().await;
    assert_eq!(rig.backup_status(&backup).await, "available");
    backup
}

async fn size(rig: &Rig, volume: &str) -> i64 {
    rig.get(&format!("/volumes/{volume}"), NEW).await.body["volume"]["size"].as_i64().unwrap()
}

/// A new volume of a backup that is being restored.
async fn restored(rig: &Rig, backup: &str) -> String {
    let path = format!("/backups/{backup}/restore");
    let asked = rig.ok("POST", &path, json!({"restore": {}}), NEW).await;
    asked["restore"]["volume_id"].as_str().unwrap().to_owned()
}

/// A backup of a volume of 1 GiB, which is gone, and of which a later backup of 40 GiB is kept.
async fn outgrown(rig: &Rig) -> String {
    let volume = rig.volume().await;
    let first = saved(rig, &volume).await;
    assert_eq!(rig.action(&volume, "os-extend", json!({"new_size": 40}), NEW).await.code, 202);
    rig.settle().await;
    saved(rig, &volume).await;
    rig.ok("DELETE", &format!("/volumes/{volume}"), Value::Null, NEW).await;
    rig.settle().await;
    first
}

/// The store keeps one size of a volume, that of its newest backup, and restores each of its backups to that.
#[tokio::test]
async fn a_backup_of_what_grew_is_restored_to_a_row_of_the_size_of_the_volume() {
    for rig in Rig::everywhere().await {
        let backup = outgrown(&rig).await;
        let limits = json!({"quota_set": {"gigabytes": 45}});
        rig.ok("PUT", &format!("/os-quota-sets/{PROJECT}"), limits, NEW).await;
        let volume = restored(&rig, &backup).await;
        assert_eq!(size(&rig, &volume).await, 40);
        rig.settle().await;
        rig.expect(&volume, "available", None).await;
        assert_eq!((rig.backend.gib(&volume), size(&rig, &volume).await), (Some(40), 40));
        let path = format!("/backups/{backup}/restore");
        let more = rig.call("POST", &path, json!({"restore": {}}), NEW).await;
        assert_eq!(more.code, 413, "{more:?}");
        let used = rig.get(&format!("/os-quota-sets/{PROJECT}?usage=true"), NEW).await;
        assert_eq!(used.body["quota_set"]["gigabytes"]["in_use"], 40, "{used:?}");
    }
}

#[tokio::test]
async fn a_backup_of_what_grew_is_not_restored_into_less() {
    for rig in Rig::everywhere().await {
        let backup = outgrown(&rig).await;
        let (small, made) = (rig.volume().await, json!({"volume": {"size": 40}}));
        let large = id_of(&rig.call("POST", "/volumes", made, NEW).await, "volume");
        rig.settle().await;
        let path = format!("/backups/{backup}/restore");
        let refused = rig.call("POST", &path, json!({"restore": {"volume_id": small}}), NEW).await;
        assert_eq!(refused.code, 400, "{refused:?}");
        assert!(refused.body.to_string().contains("the source has 40 GiB now"), "{refused:?}");
        let body = json!({"volume": {"backup_id": backup, "size": 39}});
        let refused = rig.call("POST", "/volumes", body, NEW).await;
        assert_eq!(refused.code, 400, "{refused:?}");
        assert!(refused.body.to_string().contains("the source has 40 GiB now"), "{refused:?}");
        // Without a size it has that of the source.
        let body = json!({"volume": {"backup_id": backup}});
        let made = id_of(&rig.call("POST", "/volumes", body, NEW).await, "volume");
        rig.settle().await;
        rig.expect(&made, "available", None).await;
        assert_eq!((rig.backend.gib(&made), size(&rig, &made).await), (Some(40), 40));
        rig.ok("POST", &path, json!({"restore": {"volume_id": large}}), NEW).await;
        rig.settle().await;
        rig.expect(&large, "available", None).await;
    }
}

/// A source whose newer backup is stored between the request and its work, or during that.
#[tokio::test]
async fn a_source_that_grows_meanwhile_fails_the_restore() {
    for (passes, rig) in [(0, Rig::new().await), (3, Rig::new().await)] {
        let source = rig.volume().await;
        let backup = saved(&rig, &source).await;
        rig.backend.mood(|moods| moods.hold_restores = true);
        let volume = restored(&rig, &backup).await;
        rig.passes(passes).await;
        rig.backend.grow_source(&source, 40);
        rig.backend.mood(|moods| moods.hold_restores = false);
        rig.settle().await;
        rig.expect(&volume, "available", Some("error_restoring")).await;
        let seen = rig.get(&format!("/backups/{backup}"), NEW).await;
        let said = "the source has 40 GiB now; restore into a volume of 40 GiB";
        assert_eq!(seen.body["backup"]["status"], "available");
        assert_eq!(seen.body["backup"]["fail_reason"], said);
        // What was made is larger than its row, and does not stay.
        assert_eq!((rig.backend.gib(&volume), size(&rig, &volume).await), (None, 1));
        rig.ok("DELETE", &format!("/volumes/{volume}"), Value::Null, NEW).await;
        rig.settle().await;
        assert_eq!(rig.backend.volumes(), [source]);
    }
}

#[tokio::test]
async fn a_restore_of_what_is_not_there_fails() {
    for mut rig in Rig::everywhere().await {
        let target = rig.volume().await;
        let (one, two) = (saved(&rig, &target).await, saved(&rig, &target).await);
        rig.backend.forget_stored();
        let made = restored(&rig, &one).await;
        let path = format!("/backups/{two}/restore");
        rig.ok("POST", &path, json!({"restore": {"volume_id": target}}), NEW).await;
        rig.age().await;
        rig.passes(4).await;
        // Only time in which somebody was there counts.
        for volume in [&made, &target] {
            rig.expect(volume, "available", Some("restoring-backup")).await;
        }
        rig.worker.started = jiff::Timestamp::UNIX_EPOCH;
        rig.settle().await;
        for (volume, backup) in [(&made, &one), (&target, &two)] {
            rig.expect(volume, "available", Some("error_restoring")).await;
            let seen = rig.get(&format!("/backups/{backup}"), NEW).await;
            assert_eq!(seen.body["backup"]["status"], "available");
            assert_eq!(seen.body["backup"]["fail_reason"], "the stored backup is not there");
            rig.ok("DELETE", &format!("/volumes/{volume}"), Value::Null, NEW).await;
        }
        rig.settle().await;
        assert_eq!(rig.backend.volumes(), Vec::<String>::new());
        let messages = rig.get("/messages", NEW).await;
        assert_eq!(messages.body["messages"][0]["event_id"], "VOLUME_VOLUME_BACKUP_015_026");
    }
}
