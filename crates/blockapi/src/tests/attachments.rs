//! Who is connected to a volume, and what that keeps from happening.

use serde_json::{Value, json};

use super::rig::{NEW, OLD, Rig, id_of};
use crate::store::work::IMAGE_COPY;

fn connector() -> Value {
    json!({"connector": {"host": "h1"}})
}

#[tokio::test]
async fn an_attachment_that_is_gone_is_not_completed() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let body = json!({"attachment": {"volume_uuid": volume}});
        let made = id_of(&rig.call("POST", "/attachments", body, NEW).await, "attachment");
        let held = rig.store.on_volume(&volume).await.unwrap();
        let path = format!("/attachments/{made}/action");
        let gone = async {
            // Time for the other to find it. It waits for the volume then.
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            let mut held = held;
            let sql = "UPDATE volumes SET status = 'available' WHERE id = $1";
            held.execute(sql, &[volume.as_str().into()]).await.unwrap();
            rig.store.end_attachment(&mut held, &made).await.unwrap();
            held.commit().await.unwrap();
        };
        let complete = rig.call("POST", &path, json!({"os-complete": {}}), NEW);
        let (seen, ()) = tokio::join!(complete, gone);
        assert_eq!(seen.code, 404, "{seen:?}");
        rig.expect(&volume, "available", None).await;
    }
}

#[tokio::test]
async fn a_connection_that_fails_reserves_nothing() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.fail_connections = Some("no node".to_owned()));
    let body = json!({"attachment": {"volume_uuid": volume, "connector": {"host": "h1"}}});
    assert_eq!(rig.call("POST", "/attachments", body, NEW).await.code, 400);
    rig.expect(&volume, "available", None).await;
    assert_eq!(rig.get("/attachments", NEW).await.body["attachments"], json!([]));
    assert_eq!(rig.backend.connected(&volume), Vec::<String>::new());
}

/// Data is not replaced under a client that reads and writes it.
#[tokio::test]
async fn a_connected_volume_is_neither_restored_nor_reverted() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.settle().await;
    let body = json!({"snapshot": {"volume_id": volume}});
    let snapshot = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
    rig.settle().await;
    let seen = rig.action(&volume, "os-initialize_connection", connector(), OLD).await;
    assert_eq!(seen.code, 200, "{seen:?}");
    let restore = json!({"restore": {"volume_id": volume}});
    let path = format!("/backups/{backup}/restore");
    assert_eq!(rig.call("POST", &path, restore.clone(), OLD).await.code, 400);
    let revert = json!({"snapshot_id": snapshot});
    assert_eq!(rig.action(&volume, "revert", revert.clone(), OLD).await.code, 409);
    let seen = rig.action(&volume, "os-terminate_connection", connector(), OLD).await;
    assert_eq!(seen.code, 202);
    assert_eq!(rig.action(&volume, "revert", revert, OLD).await.code, 202);
    // Nor does anybody come while it is replaced.
    for (name, args) in [
        ("os-initialize_connection", connector()),
        ("os-attach", json!({"mountpoint": "/dev/vdb", "host_name": "h1"})),
    ] {
        assert_eq!(rig.action(&volume, name, args, OLD).await.code, 400, "{name}");
    }
    rig.settle().await;
    rig.expect(&volume, "available", None).await;
    assert_eq!(rig.call("POST", &path, restore, OLD).await.code, 202);
}

#[tokio::test]
async fn a_forced_detach_takes_the_connection_down() {
    let rig = Rig::new().await;
    let attach = json!({"mountpoint": "/dev/vdb", "host_name": "h1"});
    for (name, args) in [
        ("os-force_detach", connector()),
        ("os-force_detach", json!({})),
        ("os-reset_status", json!({"status": "available", "attach_status": "detached"})),
    ] {
        let volume = rig.volume().await;
        let seen = rig.action(&volume, "os-initialize_connection", connector(), OLD).await;
        assert_eq!(seen.code, 200, "{seen:?}");
        assert_eq!(rig.action(&volume, "os-attach", attach.clone(), OLD).await.code, 202);
        assert_eq!(rig.backend.connected(&volume), ["host-h1"]);
        assert_eq!(rig.action(&volume, name, args, OLD).await.code, 202);
        rig.settle().await;
        rig.expect(&volume, "available", None).await;
        assert_eq!(rig.backend.connected(&volume), Vec::<String>::new(), "{name}");
    }
}

/// What nobody tells of any more (a worker that was lost, an attachment that ended meanwhile) goes with a
/// reset; the copy of an image that is under way stays.
#[tokio::test]
async fn a_reset_takes_every_connection_down() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let backend: &dyn crate::Backend = rig.backend.as_ref();
        for stray in [IMAGE_COPY, "11111111-1111-4111-8111-111111111111", "host-h"] {
            backend.connect(&volume, stray, &json!({})).await.unwrap();
        }
        let attachment = rig.attach(&volume, &uuid::Uuid::new_v4().to_string()).await;
        backend.connect(&volume, &attachment, &json!({})).await.unwrap();
        let detached = json!({"status": "available", "attach_status": "detached"});
        assert_eq!(rig.action(&volume, "os-reset_status", detached, NEW).await.code, 202);
        assert_eq!(rig.backend.connected(&volume), Vec::<String>::new());
        backend.connect(&volume, "late", &json!({})).await.unwrap();
        let filling = "UPDATE volumes SET status = 'downloading' WHERE id = $1";
        rig.store.db.execute(filling, &[volume.as_str().into()]).await.unwrap();
        backend.connect(&volume, IMAGE_COPY, &json!({})).await.unwrap();
        let only = json!({"attach_status": "detached"});
        assert_eq!(rig.action(&volume, "os-reset_status", only, NEW).await.code, 202);
        assert_eq!(rig.backend.connected(&volume), [IMAGE_COPY]);
    }
}
