//! A volume that is declared read-only is written by nobody who was told how to reach it.

use serde_json::{Value, json};

use super::rig::{NEW, OLD, Rig, id_of};
use super::schedules::meanwhile;

/// Asks for a connection of a host and lets go of it again: what it was told.
async fn told(rig: &Rig, volume: &str) -> Value {
    let connector = json!({"connector": {"host": "h"}});
    let seen = rig.action(volume, "os-initialize_connection", connector.clone(), OLD).await;
    assert_eq!(seen.code, 200, "{seen:?}");
    let ended = rig.action(volume, "os-terminate_connection", connector, OLD).await;
    assert_eq!(ended.code, 202, "{ended:?}");
    seen.body["connection_info"]["data"]["access_mode"].clone()
}

async fn declare(rig: &Rig, volume: &str, readonly: bool) {
    let flag = json!({ "readonly": readonly });
    let seen = rig.action(volume, "os-update_readonly_flag", flag, OLD).await;
    assert_eq!(seen.code, 202, "{seen:?}");
}

#[tokio::test]
async fn a_read_only_volume_is_reached_for_reading_only() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        assert_eq!(told(&rig, &volume).await, "rw");
        declare(&rig, &volume, true).await;
        assert_eq!(told(&rig, &volume).await, "ro");
        let attach = |mode: &str| json!({"mountpoint": "/dev/vdb", "host_name": "h", "mode": mode});
        let refused = rig.action(&volume, "os-attach", attach("rw"), OLD).await;
        let said = format!("Invalid attaching mode 'rw' for volume {volume}.");
        assert_eq!((refused.code, &refused.body["badRequest"]["message"]), (400, &json!(said)));
        // By an attachment, whatever it asks for.
        for connector in [json!({"host": "h"}), json!({"host": "h", "mode": "rw"})] {
            let body = json!({"attachment": {"volume_uuid": volume, "connector": connector, "mode": "rw"}});
            let made = rig.call("POST", "/attachments", body, NEW).await;
            assert_eq!(made.code, 200, "{made:?}");
            let seen = &made.body["attachment"];
            let modes = (&seen["attach_mode"], &seen["connection_info"]["access_mode"]);
            assert_eq!(modes, (&json!("ro"), &json!("ro")));
            let path = format!("/attachments/{}", id_of(&made, "attachment"));
            rig.ok("POST", &format!("{path}/action"), json!({"os-complete": {}}), NEW).await;
            let seen = rig.get(&format!("/volumes/{volume}"), NEW).await;
            assert_eq!(seen.body["volume"]["metadata"]["attached_mode"], "ro");
            rig.ok("DELETE", &path, Value::Null, NEW).await;
        }
        // One that was reserved first, and one that is for reading by its own wish.
        let body = json!({"attachment": {"volume_uuid": volume}});
        let made = id_of(&rig.call("POST", "/attachments", body, NEW).await, "attachment");
        let path = format!("/attachments/{made}");
        let body = json!({"attachment": {"connector": {"host": "h"}}});
        let seen = rig.ok("PUT", &path, body.clone(), NEW).await;
        assert_eq!(seen["attachment"]["connection_info"]["access_mode"], "ro");
        rig.ok("DELETE", &path, Value::Null, NEW).await;
        declare(&rig, &volume, false).await;
        for (mode, wanted) in [(Value::Null, "rw"), (json!("ro"), "ro")] {
            let wish = json!({"attachment": {"volume_uuid": volume, "mode": mode}});
            let made = id_of(&rig.call("POST", "/attachments", wish, NEW).await, "attachment");
            let path = format!("/attachments/{made}");
            let seen = rig.ok("PUT", &path, body.clone(), NEW).await;
            assert_eq!(seen["attachment"]["connection_info"]["access_mode"], wanted);
            rig.ok("DELETE", &path, Value::Null, NEW).await;
        }
    }
}

/// It is declared read-only between the look of one who attaches it and his change.
#[tokio::test]
async fn whoever_attaches_does_not_overlook_that_it_became_read_only() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let declared = "INSERT INTO volume_admin_metadata (volume_id, key, value) \
             VALUES ($1, 'readonly', 'True')";
        let values = vec![volume.as_str().into()];
        let attach = json!({"mountpoint": "/dev/vdb", "host_name": "h"});
        let asked = rig.action(&volume, "os-attach", attach, NEW);
        let seen = meanwhile(&rig, &[("volumes", &volume)], asked, &[(declared, values)]).await;
        assert_eq!(seen.code, 400, "{seen:?}");
        rig.expect(&volume, "available", None).await;
    }
}
