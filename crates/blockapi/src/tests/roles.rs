//! Every way in, by who comes: nobody, those who look, those who change, another project.

use serde_json::{Value, json};

use super::rig::{NEW, PROJECT, Rig, id_of};

/// What is there of one project, for all the paths below.
struct There {
    volume: String,
    snapshot: String,
    backup: String,
    attachment: String,
    transfer: String,
    message: String,
    kind: String,
    qos: String,
}

async fn fill(rig: &Rig) -> There {
    let volume = rig.volume().await;
    let made =
        rig.call("POST", "/snapshots", json!({"snapshot": {"volume_id": volume}}), NEW).await;
    let snapshot = id_of(&made, "snapshot");
    rig.settle().await;
    let backup = id_of(&rig.backup(&volume, false).await, "backup");
    rig.settle().await;
    rig.backend.mood(|moods| moods.fail_backups = Some("full".to_owned()));
    rig.backup(&volume, false).await;
    rig.settle().await;
    rig.backend.mood(|moods| moods.fail_backups = None);
    let message = rig.get("/messages", NEW).await.body["messages"][0]["id"].clone();
    let attached = rig.volume().await;
    let attachment = rig.attach(&attached, &uuid::Uuid::new_v4().to_string()).await;
    let offered = rig.volume().await;
    let body = json!({"transfer": {"volume_id": offered}});
    let transfer = id_of(&rig.call("POST", "/volume-transfers", body, NEW).await, "transfer");
    let kind = rig.ok("POST", "/types", json!({"volume_type": {"name": "t"}}), NEW).await;
    let qos = rig.ok("POST", "/qos-specs", json!({"qos_specs": {"name": "q"}}), NEW).await;
    There {
        volume,
        snapshot,
        backup,
        attachment,
        transfer,
        message: message.as_str().unwrap().to_owned(),
        kind: kind["volume_type"]["id"].as_str().unwrap().to_owned(),
        qos: qos["qos_specs"]["id"].as_str().unwrap().to_owned(),
    }
}

type Way = (&'static str, String, Value);

/// Who may look, who may change, and what is for administrators only. Bodies are right as far as rights
/// are asked after them.
#[expect(clippy::too_many_lines, reason = "one line for each way in")]
fn ways(there: &There) -> [Vec<Way>; 3] {
    let There { volume, snapshot, backup, attachment, transfer, message, kind, qos } = there;
    let get = |path: String| ("GET", path, Value::Null);
    let action = |of: &str, id: &str, name: &str, args: Value| {
        ("POST", format!("/{of}/{id}/action"), json!({ name: args }))
    };
    let on_volume = |name: &str, args: Value| action("volumes", volume, name, args);
    let look = vec![
        get("/volumes".into()),
        get("/volumes/detail".into()),
        get("/volumes/summary".into()),
        get(format!("/volumes/{volume}")),
        get(format!("/volumes/{volume}/metadata")),
        get(format!("/volumes/{volume}/encryption")),
        on_volume("os-show_image_metadata", json!({})),
        get("/snapshots".into()),
        get("/snapshots/detail".into()),
        get(format!("/snapshots/{snapshot}")),
        get(format!("/snapshots/{snapshot}/metadata")),
        get("/backups".into()),
        get("/backups/detail".into()),
        get(format!("/backups/{backup}")),
        get("/attachments".into()),
        get("/attachments/detail".into()),
        get(format!("/attachments/{attachment}")),
        get("/volume-transfers".into()),
        get("/volume-transfers/detail".into()),
        get(format!("/os-volume-transfer/{transfer}")),
        get("/messages".into()),
        get(format!("/messages/{message}")),
        get("/types".into()),
        get(format!("/types/{kind}")),
        get("/types/default".into()),
        get(format!("/types/{kind}/extra_specs")),
        get("/limits".into()),
        get(format!("/os-quota-sets/{PROJECT}")),
        get(format!("/os-quota-sets/{PROJECT}/defaults")),
        get("/os-availability-zone".into()),
        get("/groups".into()),
    ];
    let change = vec![
        ("POST", "/volumes".into(), json!({"volume": {"size": 1}})),
        ("PUT", format!("/volumes/{volume}"), json!({"volume": {"name": "x"}})),
        ("POST", format!("/volumes/{volume}/metadata"), json!({"metadata": {"k": "v"}})),
        ("PUT", format!("/volumes/{volume}/metadata"), json!({"metadata": {"k": "v"}})),
        ("PUT", format!("/volumes/{volume}/metadata/k"), json!({"meta": {"k": "v"}})),
        ("DELETE", format!("/volumes/{volume}/metadata/k"), Value::Null),
        on_volume("os-extend", json!({"new_size": 2})),
        on_volume("os-reserve", json!({})),
        on_volume("os-unreserve", json!({})),
        on_volume("os-begin_detaching", json!({})),
        on_volume("os-roll_detaching", json!({})),
        on_volume("os-attach", json!({"mountpoint": "/dev/vdb", "host_name": "h"})),
        on_volume("os-detach", json!({})),
        on_volume("os-initialize_connection", json!({"connector": {"host": "h"}})),
        on_volume("os-terminate_connection", json!({"connector": {"host": "h"}})),
        on_volume("os-set_bootable", json!({"bootable": true})),
        on_volume("os-update_readonly_flag", json!({"readonly": true})),
        on_volume("os-retype", json!({"new_type": "t"})),
        on_volume("revert", json!({"snapshot_id": snapshot})),
        on_volume("os-volume_upload_image", json!({"image_name": "i"})),
        on_volume("os-reimage", json!({"image_id": snapshot})),
        on_volume("os-set_image_metadata", json!({"metadata": {"k": "v"}})),
        on_volume("os-unset_image_metadata", json!({"key": "k"})),
        ("POST", "/snapshots".into(), json!({"snapshot": {"volume_id": volume}})),
        ("PUT", format!("/snapshots/{snapshot}"), json!({"snapshot": {"name": "x"}})),
        ("POST", format!("/snapshots/{snapshot}/metadata"), json!({"metadata": {"k": "v"}})),
        ("PUT", format!("/snapshots/{snapshot}/metadata/k"), json!({"meta": {"k": "v"}})),
        ("DELETE", format!("/snapshots/{snapshot}/metadata/k"), Value::Null),
        action("snapshots", snapshot, "os-update_snapshot_status", json!({"status": "error"})),
        ("POST", "/backups".into(), json!({"backup": {"volume_id": volume}})),
        ("PUT", format!("/backups/{backup}"), json!({"backup": {"name": "x"}})),
        ("POST", format!("/backups/{backup}/restore"), json!({"restore": {}})),
        ("POST", "/attachments".into(), json!({"attachment": {"volume_uuid": volume}})),
        (
            "PUT",
            format!("/attachments/{attachment}"),
            json!({"attachment": {"connector": {"host": "h"}}}),
        ),
        action("attachments", attachment, "os-complete", json!({})),
        ("POST", "/volume-transfers".into(), json!({"transfer": {"volume_id": volume}})),
        ("DELETE", format!("/volume-transfers/{transfer}"), Value::Null),
        ("DELETE", format!("/attachments/{attachment}"), Value::Null),
        ("DELETE", format!("/messages/{message}"), Value::Null),
        ("DELETE", format!("/backups/{backup}"), Value::Null),
        ("DELETE", format!("/snapshots/{snapshot}"), Value::Null),
        ("DELETE", format!("/volumes/{volume}"), Value::Null),
    ];
    let administrate = vec![
        on_volume("os-reset_status", json!({"status": "error"})),
        on_volume("os-reset_status", json!({"backup_status": null})),
        on_volume("os-force_delete", json!({})),
        on_volume("os-force_detach", json!({})),
        on_volume("os-migrate_volume", json!({"host": "h"})),
        on_volume("os-migrate_volume_completion", json!({"new_volume": volume})),
        on_volume("os-extend_volume_completion", json!({"error": false})),
        on_volume("os-unmanage", json!({})),
        ("DELETE", format!("/volumes/{volume}?force=true"), Value::Null),
        action("snapshots", snapshot, "os-reset_status", json!({"status": "error"})),
        action("snapshots", snapshot, "os-force_delete", json!({})),
        action("snapshots", snapshot, "os-unmanage", json!({})),
        action("backups", backup, "os-reset_status", json!({"status": "error"})),
        action("backups", backup, "os-force_delete", json!({})),
        get(format!("/backups/{backup}/export_record")),
        ("POST", "/backups/import_record".into(), json!({"backup-record": {}})),
        ("PUT", format!("/os-quota-sets/{PROJECT}"), json!({"quota_set": {"volumes": 1}})),
        ("DELETE", format!("/os-quota-sets/{PROJECT}"), Value::Null),
        get("/os-quota-class-sets/default".into()),
        ("PUT", "/os-quota-class-sets/default".into(), json!({"quota_class_set": {"volumes": 1}})),
        ("POST", "/types".into(), json!({"volume_type": {"name": "u"}})),
        ("PUT", format!("/types/{kind}"), json!({"volume_type": {"name": "u"}})),
        ("DELETE", format!("/types/{kind}"), Value::Null),
        ("POST", format!("/types/{kind}/extra_specs"), json!({"extra_specs": {"k": "v"}})),
        ("PUT", format!("/types/{kind}/extra_specs/k"), json!({"k": "v"})),
        ("DELETE", format!("/types/{kind}/extra_specs/k"), Value::Null),
        get(format!("/types/{kind}/os-volume-type-access")),
        action("types", kind, "addProjectAccess", json!({"project": "p"})),
        get(format!("/types/{kind}/encryption")),
        ("POST", format!("/types/{kind}/encryption"), json!({"encryption": {"provider": "p"}})),
        ("PUT", format!("/types/{kind}/encryption/x"), json!({"encryption": {}})),
        ("DELETE", format!("/types/{kind}/encryption/x"), Value::Null),
        get("/qos-specs".into()),
        ("POST", "/qos-specs".into(), json!({"qos_specs": {"name": "r"}})),
        get(format!("/qos-specs/{qos}")),
        ("PUT", format!("/qos-specs/{qos}"), json!({"qos_specs": {"k": "v"}})),
        ("PUT", format!("/qos-specs/{qos}/delete_keys"), json!({"keys": []})),
        get(format!("/qos-specs/{qos}/associations")),
        get(format!("/qos-specs/{qos}/associate?vol_type_id={kind}")),
        get(format!("/qos-specs/{qos}/disassociate?vol_type_id={kind}")),
        get(format!("/qos-specs/{qos}/disassociate_all")),
        ("DELETE", format!("/qos-specs/{qos}"), Value::Null),
        get("/os-services".into()),
        ("PUT", "/os-services/disable".into(), json!({"host": "h", "binary": "b"})),
        ("PUT", "/os-services/freeze".into(), json!({"host": "h"})),
        get("/scheduler-stats/get_pools".into()),
        get("/os-hosts".into()),
        get("/os-hosts/h".into()),
        get("/capabilities/h".into()),
        get("/default-types".into()),
        get(format!("/default-types/{PROJECT}")),
        ("PUT", format!("/default-types/{PROJECT}"), json!({"default_type": {"volume_type": "t"}})),
        ("DELETE", format!("/default-types/{PROJECT}"), Value::Null),
    ];
    [look, change, administrate]
}

/// Nobody gets further than the role lets, on any way; and what was refused is as it was.
#[tokio::test]
async fn every_way_asks_for_its_role() {
    let rig = Rig::new().await;
    let there = fill(&rig).await;
    let [look, change, administrate] = ways(&there);
    let refused = async |token: &str, (method, path, body): &Way| {
        let seen = rig.call_as(token, (method, path), body.clone(), NEW).await;
        assert_eq!(seen.code, 403, "{method} {path} {body} by {token}: {seen:?}");
        let said = seen.body["forbidden"]["message"].as_str().unwrap();
        assert!(said.starts_with("Policy doesn't allow "), "{said}");
    };
    let nobody = format!("eve:{PROJECT}:other");
    for way in look.iter().chain(&change).chain(&administrate) {
        refused(&nobody, way).await;
    }
    let reader = format!("ann:{PROJECT}:reader");
    for way in change.iter().chain(&administrate) {
        refused(&reader, way).await;
    }
    let member = format!("bob:{PROJECT}:member");
    for way in &administrate {
        refused(&member, way).await;
    }
    rig.expect(&there.volume, "available", Some("error_backing-up")).await;
    for (method, path, body) in &look {
        let seen = rig.call_as(&reader, (method, path), body.clone(), NEW).await;
        assert_eq!(seen.code, 200, "{method} {path}: {seen:?}");
    }
    // Those who may: whatever else is wrong, it is not who they are.
    for (tokens, ways) in [(member, &change), (rig.token.clone(), &administrate)] {
        for (method, path, body) in ways {
            let seen = rig.call_as(&tokens, (method, path), body.clone(), NEW).await;
            assert!(![401, 403, 500].contains(&seen.code), "{method} {path} {body}: {seen:?}");
        }
    }
}

/// What is one project's is not there for another, on no way.
#[tokio::test]
async fn no_way_leads_to_another_project() {
    for rig in Rig::everywhere().await {
        let there = fill(&rig).await;
        let [look, change, _] = ways(&there);
        let stranger = "mallory:dddd0000dddd0000dddd0000dddd0000:member";
        let There { volume, snapshot, backup, attachment, transfer, message, .. } = &there;
        let ids = [volume, snapshot, backup, attachment, transfer, message];
        let mut tried = 0;
        for (method, path, body) in look.iter().chain(&change) {
            let text = format!("{path} {body}");
            if !ids.iter().any(|id| text.contains(id.as_str())) {
                continue;
            }
            // No image service is asked whose volume it is.
            if text.contains("os-volume_upload_image") {
                continue;
            }
            let seen = rig.call_as(stranger, (method, path), body.clone(), NEW).await;
            assert_eq!(seen.code, 404, "{method} {path} {body}: {seen:?}");
            tried += 1;
        }
        assert!(tried > 45, "only {tried} ways were tried");
        let volumes = rig.call_as(stranger, ("GET", "/volumes"), Value::Null, NEW).await;
        assert_eq!(volumes.body["volumes"], json!([]));
        for list in ["snapshots", "backups", "attachments", "messages"] {
            let path = format!("/{list}?all_tenants=1");
            let seen = rig.call_as(stranger, ("GET", &path), Value::Null, NEW).await;
            assert_eq!(seen.body[list], json!([]), "{list}");
        }
        rig.expect(volume, "available", Some("error_backing-up")).await;
        let quotas = format!("/os-quota-sets/{PROJECT}");
        assert_eq!(rig.call_as(stranger, ("GET", &quotas), Value::Null, NEW).await.code, 403);
    }
}
