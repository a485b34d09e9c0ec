//! What operators look at.

use serde_json::{Value, json};

use super::rig::{NEW, PROJECT, Rig, id_of};

#[tokio::test]
async fn a_host_and_what_it_holds() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.volume().await;
        let body = json!({"snapshot": {"volume_id": volume}});
        rig.call("POST", "/snapshots", body, NEW).await;
        let listed = rig.get("/os-services?host=localhost&binary=cinder-volume", NEW).await;
        assert_eq!(listed.body["services"][0]["host"], "localhost@holdfast", "{listed:?}");
        let seen = rig.get("/os-hosts/localhost@holdfast", NEW).await;
        let expected = |project: &str| {
            json!({"resource": {"host": "localhost@holdfast", "project": project,
                "volume_count": "2", "total_volume_gb": "2", "snapshot_count": "1",
                "total_snapshot_gb": "1"}})
        };
        assert_eq!(seen.body["host"], json!([expected("(total)"), expected(PROJECT)]), "{seen:?}");
        assert_eq!(rig.get("/os-hosts/nowhere", NEW).await.code, 404);
        for (verb, host) in [("freeze", "nowhere"), ("thaw", "localhost@holdfast")] {
            let path = format!("/os-services/{verb}");
            assert_eq!(rig.call("PUT", &path, json!({"host": host}), NEW).await.code, 400);
        }
    }
}

#[tokio::test]
async fn a_new_type_and_the_progress_of_a_snapshot() {
    let rig = Rig::new().await;
    let made = rig.ok("POST", "/types", json!({"volume_type": {"name": "gold"}}), NEW).await;
    assert!(made["volume_type"].get("qos_specs_id").is_none(), "{made}");
    let nothing = json!({"snapshot": {"volume_id": null}});
    assert_eq!(rig.call("POST", "/snapshots", nothing, NEW).await.code, 404);
    let path = format!("/types/{}", made["volume_type"]["id"].as_str().unwrap());
    let changed = rig.ok("PUT", &path, json!({"volume_type": {"name": "silver"}}), NEW).await;
    let keys: Vec<&String> = changed["volume_type"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["description", "extra_specs", "id", "is_public", "name"]);
    let limits = json!({"quota_class_set": {"volumes": 11}});
    let set = rig.ok("PUT", "/os-quota-class-sets/default", limits, NEW).await;
    let set = set["quota_class_set"].as_object().unwrap();
    assert!(set["volumes"] == 11 && set.values().all(Value::is_i64), "{set:?}");
    let volume = rig.volume().await;
    let body = json!({"snapshot": {"volume_id": volume}});
    let snapshot = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
    let path = format!("/snapshots/{snapshot}/action");
    let tell = |progress: Value| {
        let body =
            json!({"os-update_snapshot_status": {"status": "creating", "progress": progress}});
        rig.call("POST", &path, body, NEW)
    };
    assert_eq!(tell(json!("80%")).await.code, 202);
    let seen = rig.get(&format!("/snapshots/{snapshot}"), NEW).await.body;
    assert_eq!(seen["snapshot"]["os-extended-snapshot-attributes:progress"], "80%");
    for wrong in [json!("101%"), json!("80"), json!(80), json!("-1%")] {
        assert_eq!(tell(wrong).await.code, 400);
    }
}

/// A type that asks for what is not here: its volumes fail, and are not made anyhow.
#[tokio::test]
async fn a_type_that_asks_for_something_else_gets_no_volumes() {
    let rig = Rig::new().await;
    let specs = json!({"volume_backend_name": "elsewhere"});
    let body = json!({"volume_type": {"name": "other", "extra_specs": specs}});
    rig.ok("POST", "/types", body, NEW).await;
    let body = json!({"volume": {"size": 1, "volume_type": "other"}});
    let volume = id_of(&rig.call("POST", "/volumes", body, NEW).await, "volume");
    rig.settle().await;
    rig.expect(&volume, "error", None).await;
    assert!(rig.backend.content(&volume).is_none());
    let told = rig.get(&format!("/messages?resource_uuid={volume}"), NEW).await.body;
    assert_eq!(told["messages"].as_array().unwrap().len(), 1, "{told}");
    let said = told["messages"][0]["user_message"].as_str().unwrap();
    assert!(said.contains("extra specs of the volume type"), "{said}");
}

/// Backups are not made by a service that an operator took out of use, and it is said so.
#[tokio::test]
async fn a_disabled_backup_service_makes_no_backups() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let kept = id_of(&rig.backup(&volume, false).await, "backup");
        rig.settle().await;
        let service = json!({"host": "localhost", "binary": "cinder-backup"});
        rig.ok("PUT", "/os-services/disable", service.clone(), NEW).await;
        let failed = id_of(&rig.backup(&volume, false).await, "backup");
        let seen = rig.get(&format!("/backups/{failed}"), NEW).await;
        assert_eq!(
            (&seen.body["backup"]["status"], &seen.body["backup"]["fail_reason"]),
            (&json!("error"), &json!("Service not found for creating backup."))
        );
        rig.expect(&volume, "available", Some("error_backing-up")).await;
        let told = rig.get(&format!("/messages?resource_uuid={failed}"), NEW).await.body;
        assert_eq!(told["messages"][0]["event_id"], "VOLUME_VOLUME_BACKUP_013_024", "{told}");
        let body = json!({"snapshot": {"volume_id": volume}});
        let snapshot = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
        rig.settle().await;
        let body = json!({"backup": {"volume_id": volume, "snapshot_id": snapshot}});
        let of_snapshot = id_of(&rig.call("POST", "/backups", body, NEW).await, "backup");
        assert_eq!(rig.backup_status(&of_snapshot).await, "error");
        let seen = rig.get(&format!("/snapshots/{snapshot}"), NEW).await;
        assert_eq!(seen.body["snapshot"]["status"], "available");
        let path = format!("/backups/{kept}");
        for (method, path, body) in [
            ("POST", format!("{path}/restore"), json!({"restore": {}})),
            ("POST", format!("{path}/restore"), json!({"restore": {"volume_id": volume}})),
            ("GET", format!("{path}/export_record"), Value::Null),
            ("DELETE", path.clone(), Value::Null),
        ] {
            let seen = rig.call(method, &path, body, NEW).await;
            let said = &seen.body["itemNotFound"]["message"];
            assert_eq!(
                (seen.code, said),
                (404, &json!("Service cinder-backup could not be found."))
            );
        }
        let record = json!({"backup-record": {"backup_service": "holdfast", "backup_url": "e30="}});
        assert_eq!(rig.call("POST", "/backups/import_record", record, NEW).await.code, 503);
        assert_eq!(rig.backup_status(&kept).await, "available");
        rig.ok("PUT", "/os-services/enable", service, NEW).await;
        rig.ok("DELETE", &path, Value::Null, NEW).await;
        assert_eq!(rig.backup(&volume, false).await.code, 202);
        rig.settle().await;
        rig.expect(&volume, "available", None).await;
    }
}

/// Limits of a type go with its name, and there is a default type whatever it is called.
#[tokio::test]
async fn a_type_that_is_renamed_keeps_its_limits() {
    for rig in Rig::everywhere().await {
        let gold = rig.ok("POST", "/types", json!({"volume_type": {"name": "gold"}}), NEW).await;
        let path = format!("/types/{}", gold["volume_type"]["id"].as_str().unwrap());
        let limits = json!({"quota_set": {"volumes_gold": 0}});
        rig.ok("PUT", &format!("/os-quota-sets/{PROJECT}"), limits, NEW).await;
        let class = json!({"quota_class_set": {"gigabytes_gold": 7}});
        rig.ok("PUT", "/os-quota-class-sets/default", class, NEW).await;
        rig.ok("PUT", &path, json!({"volume_type": {"name": "silver"}}), NEW).await;
        let body = json!({"volume": {"size": 1, "volume_type": "silver"}});
        let seen = rig.call("POST", "/volumes", body, NEW).await;
        assert_eq!(seen.code, 413, "{seen:?}");
        let set = rig.get(&format!("/os-quota-sets/{PROJECT}"), NEW).await.body;
        assert_eq!(
            (&set["quota_set"]["volumes_silver"], &set["quota_set"]["gigabytes_silver"]),
            (&json!(0), &json!(7)),
            "{set}"
        );
        assert!(set["quota_set"].get("volumes_gold").is_none(), "{set}");
        let default = rig.get("/types/default", NEW).await.body;
        let path = format!("/types/{}", default["volume_type"]["id"].as_str().unwrap());
        let renamed = json!({"volume_type": {"name": "other"}});
        assert_eq!(rig.call("PUT", &path, renamed, NEW).await.code, 400);
        let described = json!({"volume_type": {"name": "__DEFAULT__", "description": "d"}});
        assert_eq!(rig.call("PUT", &path, described, NEW).await.code, 200);
        rig.volume().await;
    }
}

#[tokio::test]
async fn requests_work_and_backups_are_counted() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        assert_eq!(rig.get("/volumes/no-such-one", NEW).await.code, 404);
        assert_eq!(rig.backup(&volume, false).await.code, 202);
        rig.worker.report().await.unwrap();
        let told = rig.metrics.encode();
        assert!(told.contains("test_block_work{of=\"backup\",doing=\"creating\"} 1"), "{told}");
        rig.settle().await;
        rig.backend.mood(|it| it.fail_backups = Some("full".to_owned()));
        assert_eq!(rig.backup(&volume, false).await.code, 202);
        rig.settle().await;
        rig.worker.report().await.unwrap();
        let told = rig.metrics.encode();
        for line in [
            "test_block_requests_total{method=\"GET\",code=\"404\"} 1",
            "test_block_requests_total{method=\"POST\",code=\"202\"} 3",
            "test_block_request_seconds_count{method=\"POST\"} 3",
            "test_block_work{of=\"backup\",doing=\"creating\"} 0",
            "test_block_backup_seconds_count{outcome=\"available\"} 1",
            "test_block_backup_seconds_count{outcome=\"error\"} 1",
        ] {
            assert!(told.contains(line), "{line} is not in {told}");
        }
    }
}
