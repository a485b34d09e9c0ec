//! `QoS` specs and encryption of types.

use serde_json::{Value, json};

use super::rig::{NEW, PROJECT, Rig};

async fn make(rig: &Rig, name: &str, consumer: &str) -> String {
    let body = json!({"qos_specs": {"name": name, "consumer": consumer, "read_iops_sec": "2000"}});
    let made = rig.ok("POST", "/qos-specs", body, NEW).await;
    assert_eq!(made["qos_specs"]["specs"], json!({"read_iops_sec": "2000"}), "{made}");
    assert!(made["links"].is_array());
    made["qos_specs"]["id"].as_str().unwrap().to_owned()
}

async fn new_type(rig: &Rig, name: &str) -> String {
    let made = rig.ok("POST", "/types", json!({"volume_type": {"name": name}}), NEW).await;
    made["volume_type"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn specs_are_kept_changed_and_given_to_types() {
    for rig in Rig::everywhere().await {
        let specs = make(&rig, "fast", "front-end").await;
        let path = format!("/qos-specs/{specs}");
        let again = json!({"qos_specs": {"name": "fast"}});
        assert_eq!(rig.call("POST", "/qos-specs", again, NEW).await.code, 409);
        for wrong in [
            json!({"qos_specs": {"name": ""}}),
            json!({"qos_specs": {"name": "x", "consumer": "nobody"}}),
            json!({"qos_specs": {"name": "x", "k": 1}}),
            json!({"qos_specs": []}),
        ] {
            assert_eq!(rig.call("POST", "/qos-specs", wrong, NEW).await.code, 400);
        }
        let change = json!({"qos_specs": {"iops_bytes": "500"}});
        assert_eq!(rig.ok("PUT", &path, change.clone(), NEW).await, change);
        let seen = rig.get(&path, NEW).await.body;
        let both = json!({"read_iops_sec": "2000", "iops_bytes": "500"});
        assert_eq!(seen["qos_specs"]["specs"], both);
        let keys = format!("{path}/delete_keys");
        // All of them, or none.
        let missing = json!({"keys": ["iops_bytes", "nothing"]});
        assert_eq!(rig.call("PUT", &keys, missing, NEW).await.code, 400);
        assert_eq!(rig.get(&path, NEW).await.body["qos_specs"]["specs"], both);
        rig.ok("PUT", &keys, json!({"keys": ["iops_bytes"]}), NEW).await;
        let listed = rig.get("/qos-specs", NEW).await.body;
        assert_eq!(listed["qos_specs"][0]["specs"], json!({"read_iops_sec": "2000"}));

        let (first, second) = (new_type(&rig, "t1").await, new_type(&rig, "t2").await);
        for kind in [&first, &second] {
            let place = format!("{path}/associate?vol_type_id={kind}");
            assert_eq!(rig.get(&place, NEW).await.code, 202);
        }
        let other = make(&rig, "slow", "back-end").await;
        let place = format!("/qos-specs/{other}/associate?vol_type_id={first}");
        assert_eq!(rig.get(&place, NEW).await.code, 400, "a type has one");
        let types = rig.get(&format!("{path}/associations"), NEW).await.body;
        assert_eq!(types["qos_associations"].as_array().unwrap().len(), 2);
        let seen = rig.get(&format!("/types/{first}"), NEW).await.body;
        assert_eq!(seen["volume_type"]["qos_specs_id"], json!(specs));
        assert_eq!(rig.call("DELETE", &path, Value::Null, NEW).await.code, 400, "types have it");
        let place = format!("{path}/disassociate?vol_type_id={first}");
        assert_eq!(rig.get(&place, NEW).await.code, 202);
        assert_eq!(rig.get(&format!("{path}/disassociate_all"), NEW).await.code, 202);
        let types = rig.get(&format!("{path}/associations"), NEW).await.body;
        assert_eq!(types["qos_associations"], json!([]));
        rig.ok("DELETE", &path, Value::Null, NEW).await;
        for (method, place) in [("GET", path.clone()), ("DELETE", path.clone())] {
            assert_eq!(rig.call(method, &place, Value::Null, NEW).await.code, 404);
        }
        // Forced, they are taken from those that have them.
        let place = format!("/qos-specs/{other}/associate?vol_type_id={first}");
        assert_eq!(rig.get(&place, NEW).await.code, 202);
        rig.ok("DELETE", &format!("/qos-specs/{other}?force=True"), Value::Null, NEW).await;
        let seen = rig.get(&format!("/types/{first}"), NEW).await.body;
        assert_eq!(seen["volume_type"]["qos_specs_id"], Value::Null);
        let member = format!("u:{PROJECT}:member");
        let refused = rig.call_as(&member, ("GET", "/qos-specs"), Value::Null, NEW).await;
        assert_eq!(refused.code, 403);
    }
}

/// Those who use a volume are told which limits to keep; those of the place it is stored at are not
/// theirs. While it is in use they do not change.
#[tokio::test]
async fn limits_of_the_front_end_go_with_the_address() {
    let rig = Rig::new().await;
    let (front, back) = (new_type(&rig, "front").await, new_type(&rig, "back").await);
    for (kind, consumer) in [(&front, "front-end"), (&back, "back-end")] {
        let specs = make(&rig, consumer, consumer).await;
        let place = format!("/qos-specs/{specs}/associate?vol_type_id={kind}");
        assert_eq!(rig.get(&place, NEW).await.code, 202);
    }
    let connector = json!({"connector": {"host": "h"}});
    let mut volumes = Vec::new();
    for (kind, told) in [(&front, json!({"read_iops_sec": "2000"})), (&back, Value::Null)] {
        let body = json!({"volume": {"size": 1, "volume_type": kind}});
        let made = rig.ok("POST", "/volumes", body, NEW).await;
        let id = made["volume"]["id"].as_str().unwrap().to_owned();
        rig.settle().await;
        let seen = rig.action(&id, "os-initialize_connection", connector.clone(), NEW).await;
        assert_eq!(seen.body["connection_info"]["data"]["qos_specs"], told, "{seen:?}");
        volumes.push(id);
    }
    let volume = &volumes[0];
    let retype = json!({"new_type": back, "migration_policy": "never"});
    rig.attach(volume, &uuid::Uuid::new_v4().to_string()).await;
    let refused = rig.action(volume, "os-retype", retype.clone(), NEW).await;
    assert_eq!(refused.code, 400);
    assert!(refused.body.to_string().contains("front-end qos specs cannot change"), "{refused:?}");
    assert_eq!(rig.action(volume, "os-detach", json!({}), NEW).await.code, 202);
    assert_eq!(rig.action(volume, "os-retype", retype, NEW).await.code, 202);
}

#[tokio::test]
async fn a_type_that_encrypts_makes_no_volumes_without_a_key_service() {
    for rig in Rig::everywhere().await {
        let kind = new_type(&rig, "luks").await;
        let path = format!("/types/{kind}/encryption");
        assert_eq!(rig.get(&path, NEW).await.body, json!({}));
        let wanted = json!({"provider": "luks", "key_size": 256, "cipher": "aes-xts-plain64",
            "control_location": "front-end"});
        for wrong in [
            json!({"key_size": 256}),
            json!({"provider": "luks", "control_location": "nowhere"}),
            json!({"provider": "luks", "key_size": -1}),
            json!({"provider": "luks", "more": 1}),
        ] {
            let refused = rig.call("POST", &path, json!({ "encryption": wrong }), NEW).await;
            assert_eq!(refused.code, 400, "{refused:?}");
        }
        let made = rig.ok("POST", &path, json!({ "encryption": wanted }), NEW).await;
        let one = made["encryption"]["encryption_id"].as_str().unwrap().to_owned();
        let again = json!({ "encryption": wanted });
        assert_eq!(rig.call("POST", &path, again, NEW).await.code, 400, "it has one");
        let seen = rig.get(&path, NEW).await.body;
        for key in ["provider", "key_size", "cipher", "control_location"] {
            assert_eq!(seen[key], wanted[key]);
        }
        let body = json!({"volume": {"size": 1, "volume_type": kind}});
        let refused = rig.call("POST", "/volumes", body.clone(), NEW).await;
        assert_eq!(refused.code, 400);
        assert!(refused.body.to_string().contains("no key service"), "{refused:?}");
        let volume = rig.volume().await;
        let retype = json!({"new_type": kind, "migration_policy": "never"});
        assert_eq!(rig.action(&volume, "os-retype", retype, NEW).await.code, 400);

        let place = format!("{path}/{one}");
        rig.ok("PUT", &place, json!({"encryption": {"key_size": 128}}), NEW).await;
        let item = rig.get(&format!("{path}/key_size"), NEW).await.body;
        assert_eq!(item, json!({"key_size": 128}));
        assert_eq!(rig.get(&format!("{path}/nothing"), NEW).await.code, 404);
        rig.ok("DELETE", &place, Value::Null, NEW).await;
        assert_eq!(rig.call("DELETE", &place, Value::Null, NEW).await.code, 404);
        rig.ok("POST", "/volumes", body, NEW).await;
        // What volumes were promised stays.
        let late = json!({ "encryption": wanted });
        assert_eq!(rig.call("POST", &path, late, NEW).await.code, 400);
        let member = format!("u:{PROJECT}:member");
        assert_eq!(rig.call_as(&member, ("GET", &path), Value::Null, NEW).await.code, 403);
    }
}
