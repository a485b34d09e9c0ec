//! The dialect on the wire: versions, faults, pages, filters, who may do what.

use axum::body::Body;
use serde_json::{Value, json};

use super::rig::{NEW, OLD, PROJECT, Rig, id_of};
use crate::rest::openapi_paths;

#[tokio::test]
async fn versions_are_negotiated_and_told() {
    let rig = Rig::new().await;
    let seen = rig.get("/volumes", NEW).await;
    assert_eq!(seen.headers["openstack-api-version"], "volume 3.72");
    assert_eq!(seen.headers["vary"], "OpenStack-API-Version");
    assert!(seen.headers["x-openstack-request-id"].to_str().unwrap().starts_with("req-"));
    assert_eq!(seen.headers["x-compute-request-id"], seen.headers["x-openstack-request-id"]);
    assert_eq!(rig.get("/volumes", "").await.headers["openstack-api-version"], "volume 3.0");
    assert_eq!(rig.get("/volumes", "latest").await.headers["openstack-api-version"], "volume 3.72");
    let newer = rig.get("/volumes", "3.73").await;
    assert_eq!(newer.code, 406);
    let said = "Version 3.73 is not supported by the API. Minimum is 3.0 and maximum is 3.72.";
    assert_eq!(newer.body["computeFault"]["message"], said);
    // What came later does not exist earlier.
    assert_eq!(rig.get("/messages", "3.2").await.code, 404);
    assert_eq!(rig.get("/attachments", "3.26").await.code, 404);
}

#[tokio::test]
async fn discovery_needs_no_token() {
    let rig = Rig::new().await;
    for (path, code) in [("/", 300), ("/v3", 200), ("/v3/", 200), ("/v3/abc0", 200)] {
        let request = http::Request::builder().uri(format!("http://localhost{path}"));
        let seen = rig.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(seen.code, code, "{path}");
        assert_eq!(seen.body["versions"][0]["version"], "3.72");
        assert_eq!(seen.body["versions"][0]["links"][1]["href"], "http://localhost/v3/");
    }
    let request = http::Request::builder().uri("http://localhost/v3/volumes");
    let offered = rig.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(
        (offered.code, &offered.headers["x-auth-token"]),
        (204, &"admin:admin".parse().unwrap())
    );
}

#[tokio::test]
async fn bad_requests_are_faults_and_change_nothing() {
    let rig = Rig::new().await;
    let long = "x".repeat(256);
    for (body, version) in [
        (json!({}), NEW),
        (json!({"volume": []}), NEW),
        (json!({"volume": {"size": "x"}}), NEW),
        (json!({"volume": {"size": 0}}), NEW),
        (json!({"volume": {"size": 1.5}}), NEW),
        (json!({"volume": {"size": 2_147_483_648_i64}}), NEW),
        (json!({"volume": {"size": 1, "name": long}}), NEW),
        (json!({"volume": {"size": 1, "name": 7}}), NEW),
        (json!({"volume": {"size": 1, "metadata": {"k": 1}}}), NEW),
        (json!({"volume": {"size": 1, "metadata": {"": "v"}}}), NEW),
        (json!({"volume": {"size": 1, "snapshot_id": "no"}}), NEW),
        (json!({"volume": {"size": 1, "backup_status": "backing-up"}}), NEW),
        (json!({"volume": {"size": 1, "bogus": 1}}), "3.53"),
        (json!({"volume": {"size": 1, "availability_zone": "mars"}}), NEW),
        (json!({"volume": {"size": 1, "imageRef": "x"}}), NEW),
        (json!({"volume": {"size": 1}, "extra": 1}), NEW),
    ] {
        let seen = rig.call("POST", "/volumes", body.clone(), version).await;
        assert_eq!(seen.code, 400, "{body}: {seen:?}");
        assert_eq!(seen.body["badRequest"]["code"], 400);
    }
    // Below 3.53 what is unknown is passed over.
    let body = json!({"volume": {"size": 1, "status": "error", "backup_status": "x"}});
    assert_eq!(rig.call("POST", "/volumes", body, "3.0").await.code, 202);
    for (path, code) in [
        ("/volumes/not-an-id", 404),
        ("/nothing-here", 404),
        ("/volumes/", 404),
        ("/volumes/detail/", 404),
        ("/volumes?limit=-1", 400),
        ("/volumes?limit=x", 400),
        ("/volumes?limit=-99999999999999999999", 400),
        ("/volumes?limit=99999999999999999999", 200),
        ("/volumes?offset=-99999999999999999999", 400),
        ("/volumes?offset=99999999999999999999", 400),
        ("/volumes?size=99999999999999999999", 200),
        ("/volumes?size=-9223372036854775808", 200),
        ("/volumes?offset=-1", 400),
        ("/volumes?marker=nobody", 404),
        ("/volumes?sort=nothing", 400),
        ("/volumes?sort=name:sideways", 400),
        ("/volumes?sort=name&sort_key=name", 400),
        ("/volumes?all_tenants=perhaps", 400),
        ("/volumes?bootable=perhaps", 400),
        ("/volumes?created_at=near:2026-01-01", 400),
        ("/volumes?name=%00", 400),
        ("/volumes?name=';DROP TABLE volumes;--", 200),
        ("/volumes?status='%20OR%201=1", 200),
        ("/admin/volumes", 404),
        ("/00aa/volumes", 400),
    ] {
        let path = path.replace(' ', "%20");
        assert_eq!(rig.get(&path, NEW).await.code, code, "{path}");
    }
    assert_eq!(rig.call("PUT", "/volumes", json!({}), NEW).await.code, 404);
    let big = json!({"volume": {"size": 1, "description": "x".repeat(200_000)}});
    assert_eq!(rig.call("POST", "/volumes", big, NEW).await.code, 413);
    let request = http::Request::builder()
        .method("POST")
        .uri("http://localhost/v3/volumes")
        .header("x-auth-token", &rig.token)
        .header("content-type", "text/plain");
    assert_eq!(rig.send(request.body(Body::from("{}")).unwrap()).await.code, 415);
    let all = rig.get("/volumes", NEW).await;
    assert_eq!(all.body["volumes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn roles_and_projects_are_kept_apart() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let reader = format!("ann:{PROJECT}:reader");
    let member = format!("bob:{PROJECT}:member");
    let stranger = "eve:bbbb:member";
    let path = format!("/volumes/{volume}");
    let of = |token: &str, method: &'static str, path: &str, body: Value| {
        let (token, path) = (token.to_owned(), path.to_owned());
        let rig = &rig;
        async move { rig.call_as(&token, (method, &path), body, NEW).await }
    };
    assert_eq!(of(&reader, "GET", &path, Value::Null).await.code, 200);
    let refused = of(&reader, "POST", "/volumes", json!({"volume": {"size": 1}})).await;
    assert_eq!(refused.code, 403);
    let said = "Policy doesn't allow volume:create to be performed.";
    assert_eq!(refused.body["forbidden"]["message"], said);
    let reset = json!({"os-reset_status": {"backup_status": null}});
    let action = format!("{path}/action");
    assert_eq!(of(&member, "POST", &action, reset.clone()).await.code, 403);
    assert_eq!(of(&rig.token, "POST", &action, reset).await.code, 202);
    // Another project's is not there.
    for method in ["GET", "DELETE"] {
        assert_eq!(of(stranger, method, &path, Value::Null).await.code, 404, "{method}");
    }
    let backup = json!({"backup": {"volume_id": volume}});
    assert_eq!(of(stranger, "POST", "/backups", backup).await.code, 404);
    let attach = json!({"attachment": {"volume_uuid": volume}});
    assert_eq!(of(stranger, "POST", "/attachments", attach).await.code, 404);
    let seen = of(stranger, "GET", "/volumes?all_tenants=1", Value::Null).await;
    assert_eq!(seen.body["volumes"], json!([]));
    let seen = of("root:cccc", "GET", "/volumes?all_tenants=1", Value::Null).await;
    assert_eq!(seen.body["volumes"].as_array().unwrap().len(), 1);
    // Filters that are not offered are refused or passed over.
    let path = "/volumes?previous_status=available";
    assert_eq!(rig.call_as(&member, ("GET", path), Value::Null, "3.31").await.code, 400);
    assert_eq!(rig.call_as(&member, ("GET", path), Value::Null, "3.30").await.code, 200);
}

#[tokio::test]
async fn pages_follow_each_other_by_either_status() {
    for rig in Rig::everywhere().await {
        let mut all = Vec::new();
        for backup in [None, Some("backing-up"), Some("error_restoring"), None, Some("backing-up")]
        {
            let id = rig.volume().await;
            if let Some(backup) = backup {
                let body = json!({"backup_status": backup});
                assert_eq!(rig.action(&id, "os-reset_status", body, NEW).await.code, 202);
            }
            all.push(id);
        }
        for (version, sort) in [
            (NEW, "created_at:asc"),
            (NEW, "backup_status:asc"),
            (NEW, "backup_status:desc,size:asc"),
            (OLD, "status:asc"),
            (OLD, "status:desc"),
            (NEW, "name"),
        ] {
            let mut seen: Vec<String> = Vec::new();
            let mut query = format!("/volumes?limit=2&sort={sort}");
            loop {
                let page = rig.get(&query, version).await;
                let items = page.body["volumes"].as_array().unwrap_or_else(|| panic!("{page:?}"));
                seen.extend(items.iter().map(|it| it["id"].as_str().unwrap().to_owned()));
                let Some(next) = page.body["volumes_links"][0]["href"].as_str() else { break };
                query = next.split_once("/v3").unwrap().1.to_owned();
            }
            let (mut seen_all, mut wanted) = (seen.clone(), all.clone());
            seen_all.sort();
            wanted.sort();
            assert_eq!(seen_all, wanted, "{version} {sort}");
        }
        let count = rig.get("/volumes?with_count=true&limit=1&status=backing-up", OLD).await;
        assert_eq!(count.body["count"], 2);
        let list = rig.get("/volumes?status=['available','backing-up']", OLD).await;
        assert_eq!(list.body["volumes"].as_array().unwrap().len(), 4);
        let like = rig.get("/volumes?status~=backing", OLD).await;
        assert_eq!(like.body["volumes"].as_array().unwrap().len(), 2);
        let null = rig.get("/volumes?backup_status=null", NEW).await;
        assert_eq!(null.body["volumes"].as_array().unwrap().len(), 2);
        let many = rig.get("/volumes?backup_status=['error_restoring','backing-up']", NEW).await;
        assert_eq!(many.body["volumes"].as_array().unwrap().len(), 3);
        // Older versions do not know the key.
        let old = rig.get("/volumes?backup_status=backing-up", OLD).await;
        assert_eq!((old.code, &old.body["volumes"]), (200, &json!([])));
        assert_eq!(rig.get("/volumes?sort=backup_status", OLD).await.code, 400);
    }
}

#[tokio::test]
async fn limits_are_kept_however_many_ask() {
    for rig in Rig::everywhere().await {
        let limits = json!({"quota_set": {"volumes": 3, "gigabytes": 100}});
        rig.ok("PUT", &format!("/os-quota-sets/{PROJECT}"), limits, NEW).await;
        let body = json!({"volume": {"size": 1}});
        let asked = (0..12).map(|_| rig.call("POST", "/volumes", body.clone(), NEW));
        let answers = futures::future::join_all(asked).await;
        assert_eq!(answers.iter().filter(|it| it.code == 202).count(), 3);
        let refused = answers.iter().find(|it| it.code != 202).unwrap();
        assert_eq!((refused.code, refused.headers["retry-after"].as_bytes()), (413, &b"0"[..]));
        let said = "VolumeLimitExceeded: Maximum number of volumes allowed (3) exceeded for quota 'volumes'.";
        assert_eq!(refused.body["overLimit"]["message"], said);
        rig.settle().await;
        let volume =
            rig.get("/volumes", NEW).await.body["volumes"][0]["id"].as_str().unwrap().to_owned();
        let seen = rig.action(&volume, "os-extend", json!({"new_size": 99}), NEW).await;
        assert_eq!(seen.code, 413, "{seen:?}");
        rig.expect(&volume, "available", None).await;
    }
}

/// What is promised to an extension is taken from the limit, though the volume is not larger yet.
#[tokio::test]
async fn extensions_under_way_count() {
    for rig in Rig::everywhere().await {
        let (one, two) = (rig.volume().await, rig.volume().await);
        let limits = json!({"quota_set": {"gigabytes": 3}});
        rig.ok("PUT", &format!("/os-quota-sets/{PROJECT}"), limits, NEW).await;
        let larger = json!({"new_size": 2});
        assert_eq!(rig.action(&one, "os-extend", larger.clone(), NEW).await.code, 202);
        assert_eq!(rig.action(&two, "os-extend", larger.clone(), NEW).await.code, 413);
        let body = json!({"volume": {"size": 1}});
        assert_eq!(rig.call("POST", "/volumes", body, NEW).await.code, 413);
        let used = rig.get(&format!("/os-quota-sets/{PROJECT}?usage=true"), NEW).await;
        assert_eq!(used.body["quota_set"]["gigabytes"]["in_use"], 3, "{used:?}");
        // One that fails gives back what it was promised.
        rig.backend.mood(|moods| moods.fail_extends = Some("no room".to_owned()));
        rig.settle().await;
        rig.backend.mood(|moods| moods.fail_extends = None);
        assert_eq!(rig.action(&two, "os-extend", larger, NEW).await.code, 202);
    }
}

/// Limits of a type are kept by whichever way a volume comes to it.
#[tokio::test]
async fn a_retype_keeps_the_limits_of_the_type() {
    for rig in Rig::everywhere().await {
        let gold = json!({"volume_type": {"name": "gold"}});
        rig.ok("POST", "/types", gold, NEW).await;
        let limits = json!({"quota_set": {"volumes_gold": 1, "volumes": 2}});
        rig.ok("PUT", &format!("/os-quota-sets/{PROJECT}"), limits, NEW).await;
        let (one, two) = (rig.volume().await, rig.volume().await);
        let retype = json!({"new_type": "gold", "migration_policy": "never"});
        assert_eq!(rig.action(&one, "os-retype", retype.clone(), NEW).await.code, 202);
        // Attached meanwhile, it is found in use at the end.
        let attach = json!({"mountpoint": "/dev/vdb", "host_name": "h"});
        assert_eq!(rig.action(&one, "os-attach", attach, NEW).await.code, 202);
        assert_eq!(rig.action(&two, "os-retype", retype, NEW).await.code, 413);
        rig.settle().await;
        rig.expect(&one, "in-use", None).await;
        rig.expect(&two, "available", None).await;
    }
}

/// Of two that change what they both read, one is told.
#[tokio::test]
async fn metadata_that_changed_meanwhile_is_not_overwritten() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let path = format!("/volumes/{volume}/metadata");
        let read = rig.get(&path, NEW).await;
        let put = |value: &str| {
            let body = json!({"metadata": {"k": value}}).to_string();
            let request = http::Request::builder()
                .method("PUT")
                .uri(format!("http://localhost/v3{path}"))
                .header("x-auth-token", &rig.token)
                .header("content-type", "application/json")
                .header("openstack-api-version", "volume 3.72")
                .header("if-match", &read.headers["etag"]);
            rig.send(request.body(Body::from(body)).unwrap())
        };
        let seen = futures::future::join_all(["a", "b", "c", "d"].map(put)).await;
        let mut codes: Vec<u16> = seen.iter().map(|it| it.code).collect();
        codes.sort_unstable();
        assert_eq!(codes, [200, 412, 412, 412]);
    }
}

/// An offset is of the first page; the marker says where the others begin.
#[tokio::test]
async fn an_offset_skips_once() {
    let rig = Rig::new().await;
    for _ in 0..7 {
        rig.volume().await;
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut query = "/volumes?limit=2&offset=1".to_owned();
    loop {
        let page = rig.get(&query, NEW).await;
        let items = page.body["volumes"].as_array().unwrap();
        seen.extend(items.iter().map(|it| it["id"].as_str().unwrap().to_owned()));
        let Some(next) = page.body["volumes_links"][0]["href"].as_str() else { break };
        query = next.split_once("/v3").unwrap().1.to_owned();
    }
    assert_eq!(seen.len(), 6);
}

/// Names that no index takes are refused wherever they come from, and are no failure of the service.
#[tokio::test]
async fn names_that_are_too_long_are_nobodys() {
    for rig in Rig::everywhere().await {
        // Random, so that nothing packs it.
        let long: String = (0..200).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
        let kind = json!({"default_type": {"volume_type": "__DEFAULT__"}});
        for (method, path, body) in [
            ("PUT", format!("/os-quota-sets/{long}"), json!({"quota_set": {"volumes": 1}})),
            ("PUT", format!("/default-types/{long}"), kind),
            ("GET", format!("/volumes/{long}"), Value::Null),
            ("DELETE", format!("/messages/{long}"), Value::Null),
        ] {
            let seen = rig.call(method, &path, body, NEW).await;
            assert_eq!(seen.code, 404, "{method} {seen:?}");
        }
        let body = json!({"volume": {"size": 1}});
        let token = format!("u:{long}");
        let seen = rig.call_as(&token, ("POST", "/volumes"), body, NEW).await;
        assert_eq!(seen.code, 401, "{seen:?}");
        let record = json!({"id": uuid::Uuid::new_v4(), "size": 1, "service_metadata": long});
        let url = {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(record.to_string())
        };
        let body = json!({"backup-record": {
            "backup_service": "cinder.backup.drivers.holdfast", "backup_url": url}});
        let seen = rig.call("POST", "/backups/import_record", body, NEW).await;
        assert_eq!(seen.code, 400, "{seen:?}");
    }
}

/// A character that `PostgreSQL` does not keep is refused wherever it comes from.
#[tokio::test]
async fn null_characters_are_refused_everywhere() {
    use base64::Engine as _;

    for rig in Rig::everywhere().await {
        for path in ["/volumes/%00", "/backups/a%00b", "/volumes/%00/metadata/%00"] {
            assert_eq!(rig.get(path, NEW).await.code, 400, "{path}");
        }
        let volume = rig.volume().await;
        let body = json!({"attachment": {"volume_uuid": volume, "connector": {"host": "h\0"}}});
        assert_eq!(rig.call("POST", "/attachments", body, NEW).await.code, 400);
        rig.expect(&volume, "available", None).await;
        for (key, value) in [
            ("display_name", json!("a\0b")),
            ("display_description", json!("x".repeat(256))),
            ("service_metadata", json!("a\0")),
            ("backup_metadata", json!({"k": "\0"})),
        ] {
            let mut record = json!({"id": uuid::Uuid::new_v4().to_string(), "size": 1,
                "service_metadata": "sim://x"});
            record[key] = value;
            let url = base64::engine::general_purpose::STANDARD.encode(record.to_string());
            let body = json!({"backup-record": {"backup_service": "holdfast", "backup_url": url}});
            let seen = rig.call("POST", "/backups/import_record", body, NEW).await;
            assert_eq!(seen.code, 400, "{key}: {seen:?}");
        }
    }
}

#[tokio::test]
async fn metadata_has_a_limit() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let body = json!({"snapshot": {"volume_id": volume}});
    let snapshot = rig.ok("POST", "/snapshots", body, NEW).await;
    let snapshot = snapshot["snapshot"]["id"].as_str().unwrap().to_owned();
    let pairs = |range: std::ops::Range<usize>| {
        let pairs: std::collections::BTreeMap<String, String> =
            range.map(|at| (format!("k{at}"), "v".to_owned())).collect();
        json!({ "metadata": pairs })
    };
    for path in [format!("/volumes/{volume}/metadata"), format!("/snapshots/{snapshot}/metadata")] {
        assert_eq!(rig.call("POST", &path, pairs(0..128), NEW).await.code, 200, "{path}");
        assert_eq!(rig.call("POST", &path, pairs(100..129), NEW).await.code, 413, "{path}");
        assert_eq!(rig.call("POST", &path, pairs(100..120), NEW).await.code, 200, "{path}");
    }
    let mut body = json!({"volume": {"size": 1}});
    body["volume"]["metadata"] = pairs(0..129)["metadata"].clone();
    assert_eq!(rig.call("POST", "/volumes", body, NEW).await.code, 413);
}

/// Only who takes a snapshot says that it is there.
#[tokio::test]
async fn a_member_does_not_declare_a_snapshot_taken() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.hold_snapshots = true);
    let body = json!({"snapshot": {"volume_id": volume}});
    let made = rig.ok("POST", "/snapshots", body, NEW).await;
    let path = format!("/snapshots/{}/action", made["snapshot"]["id"].as_str().unwrap());
    let member = format!("bob:{PROJECT}:member");
    let say = |word: &str| json!({"os-update_snapshot_status": {"status": word}});
    let seen = rig.call_as(&member, ("POST", &path), say("available"), NEW).await;
    assert_eq!(seen.code, 403, "{seen:?}");
    let seen = rig.call_as(&member, ("POST", &path), say("error"), NEW).await;
    assert_eq!(seen.code, 202, "{seen:?}");
}

/// How far something is that is over by now is not written any more.
#[tokio::test]
async fn progress_is_kept_of_a_snapshot_that_is_still_being_made() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.backend.mood(|moods| moods.hold_snapshots = true);
        let body = json!({"snapshot": {"volume_id": volume}});
        let id = id_of(&rig.call("POST", "/snapshots", body, NEW).await, "snapshot");
        let mut held = rig.store.db.begin().await.unwrap();
        held.lock("snapshots", &id).await.unwrap();
        let taken = async {
            // Time for the other to look how it is. It waits for the row then.
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            let sql = "UPDATE snapshots SET status = 'available', progress = '100%' WHERE id = $1";
            held.execute(sql, &[id.as_str().into()]).await.unwrap();
            held.commit().await.unwrap();
        };
        let body = json!({"os-update_snapshot_status": {"status": "creating", "progress": "20%"}});
        let path = format!("/snapshots/{id}/action");
        let (seen, ()) = tokio::join!(rig.call("POST", &path, body, NEW), taken);
        assert_eq!(seen.code, 400, "{seen:?}");
        let sql = "SELECT status, progress FROM snapshots WHERE id = $1";
        let row = rig.store.db.fetch_one(sql, &[id.as_str().into()]).await.unwrap().unwrap();
        let kept = (row.text("status").unwrap(), row.text("progress").unwrap());
        assert_eq!(kept, ("available".to_owned(), "100%".to_owned()));
    }
}

/// What is not shown to older clients is not found by them either.
#[tokio::test]
async fn a_hidden_failure_is_hidden_from_filters_too() {
    for mut rig in Rig::everywhere().await {
        let behaviour =
            crate::Behaviour { legacy_hide_backup_error: true, ..crate::Behaviour::default() };
        rig.service.behaviour = std::sync::Arc::new(behaviour);
        let volume = rig.volume().await;
        let failed = json!({"backup_status": "error_backing-up"});
        assert_eq!(rig.action(&volume, "os-reset_status", failed, NEW).await.code, 202);
        assert_eq!(rig.legacy(&volume).await, "available");
        for (filter, count) in [
            ("status=available", 1),
            ("status=['available','error']", 1),
            ("status~=avail", 1),
            ("status=error_backing-up", 0),
            ("status~=backing", 0),
            ("status=['error_backing-up']", 0),
        ] {
            let seen = rig.get(&format!("/volumes?{filter}"), OLD).await;
            assert_eq!(seen.body["volumes"].as_array().unwrap().len(), count, "{filter}");
        }
        let seen = rig.get("/volumes?backup_status=error_backing-up", NEW).await;
        assert_eq!(seen.body["volumes"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn lists_are_alike_on_every_database() {
    for rig in Rig::everywhere().await {
        let body = json!({"volume": {"size": 1, "name": "Web_1"}});
        let volume = rig.ok("POST", "/volumes", body, NEW).await;
        rig.settle().await;
        let id = volume["volume"]["id"].as_str().unwrap();
        let snapshot = json!({"snapshot": {"volume_id": id}});
        rig.ok("POST", "/snapshots", snapshot, NEW).await;
        for (path, count) in [
            ("/volumes?name~=Web_", 1),
            ("/volumes?name~=web_", 0),
            ("/volumes?name~=Web%25", 0),
            ("/volumes?backup_status=['backing-up','none']", 1),
            ("/volumes?backup_status=['backing-up']", 0),
            ("/snapshots?availability_zone=nova", 1),
            ("/snapshots?availability_zone=mars", 0),
        ] {
            let seen = rig
                .call_as(&format!("bob:{PROJECT}:member"), ("GET", path), Value::Null, NEW)
                .await;
            let key = path.get(1..).unwrap().split('?').next().unwrap();
            let items = seen.body[key].as_array().unwrap_or_else(|| panic!("{path}: {seen:?}"));
            assert_eq!(items.len(), count, "{path}");
        }
    }
}

#[tokio::test]
async fn a_version_may_come_in_a_second_header() {
    let rig = Rig::new().await;
    let ask = |versions: &[&str]| {
        let mut request = http::Request::builder()
            .uri("http://localhost/v3/volumes")
            .header("x-auth-token", &rig.token);
        for version in versions {
            request = request.header("openstack-api-version", *version);
        }
        rig.send(request.body(Body::empty()).unwrap())
    };
    let seen = ask(&["compute 2.1", "volume 3.72"]).await;
    assert_eq!(seen.headers["openstack-api-version"], "volume 3.72", "{seen:?}");
    for wrong in ["volume 3.999", "volume 3"] {
        assert_eq!(ask(&[wrong]).await.headers.get("vary").unwrap(), "OpenStack-API-Version");
    }
}

/// The way to the data is for those who may change it.
#[tokio::test]
async fn a_reader_does_not_see_how_to_reach_the_data() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let body = json!({"attachment": {"volume_uuid": volume, "connector": {"host": "h1"}}});
    let made = rig.ok("POST", "/attachments", body, NEW).await;
    let path = format!("/attachments/{}", made["attachment"]["id"].as_str().unwrap());
    for (role, sees) in [("member", true), ("reader", false)] {
        let token = format!("ann:{PROJECT}:{role}");
        let one = rig.call_as(&token, ("GET", &path), Value::Null, NEW).await;
        let all = rig.call_as(&token, ("GET", "/attachments/detail"), Value::Null, NEW).await;
        for seen in [&one.body["attachment"], &all.body["attachments"][0]] {
            assert_eq!(seen["connection_info"]["uri"].is_string(), sees, "{role}: {seen}");
        }
    }
}

/// A rejection names what is in the way.
#[tokio::test]
async fn rejections_say_what_is_in_the_way() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let body = json!({"snapshot": {"volume_id": volume}});
    rig.ok("POST", "/snapshots", body, NEW).await;
    rig.settle().await;
    let seen = rig.call("DELETE", &format!("/volumes/{volume}"), Value::Null, NEW).await;
    let said = seen.body["badRequest"]["message"].as_str().unwrap();
    assert!(said.contains("have snapshots"), "{said}");
    let host = json!({"host": "localhost@holdfast#holdfast"});
    let seen = rig.action(&volume, "os-migrate_volume", host, NEW).await;
    let said = seen.body["badRequest"]["message"].as_str().unwrap();
    assert!(said.contains("on that host already") && said.contains("snapshots"), "{said}");
    let attach = json!({"mountpoint": "/dev/vdb", "host_name": "h"});
    assert_eq!(rig.action(&volume, "os-attach", attach.clone(), NEW).await.code, 202);
    let seen = rig.action(&volume, "os-attach", attach, NEW).await;
    let said = seen.body["badRequest"]["message"].as_str().unwrap();
    assert!(said.contains("already attached"), "{said}");
}

/// Neither the order nor the values of a filter make a statement of any length.
#[tokio::test]
async fn what_a_list_is_asked_for_has_a_limit() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let repeat = |word: &str, count: usize| vec![word; count].join(",");
        for (path, code) in [
            (format!("/volumes?marker={volume}&sort={}", repeat("status", 200)), 200),
            (format!("/volumes?sort={}", repeat("name:asc", 9)), 200),
            (
                "/volumes?sort=name,size,status,host,user_id,id,bootable,updated_at,description"
                    .to_owned(),
                400,
            ),
            (format!("/volumes?status=[{}]", repeat("'error'", 100)), 200),
            (format!("/volumes?status=[{}]", repeat("'error'", 1001)), 400),
            (format!("/volumes?size=[{}]", repeat("1", 1001)), 400),
            (format!("/volumes?metadata={{{}}}", repeat("'k':'v'", 1001)), 400),
            (format!("/volumes?created_at={}", repeat("gt:2026-01-01T00:00:00", 1001)), 400),
            (format!("/volumes?{}", vec!["name=x"; 1001].join("&")), 400),
        ] {
            for version in [NEW, OLD] {
                let seen = rig.get(&path, version).await;
                assert_eq!(
                    seen.code,
                    code,
                    "{} at {version}: {seen:?}",
                    path.get(..60).unwrap_or(&path)
                );
            }
        }
    }
}

/// Every path of the document is one the router knows.
#[tokio::test]
async fn the_document_tells_what_is_served() {
    let rig = Rig::new().await;
    let request = http::Request::builder().uri("http://localhost/v3/openapi.json");
    let document = rig.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(document.body["info"]["version"], "3.72");
    let values = &document.body["components"]["schemas"]["Volume"]["properties"]["backup_status"];
    assert_eq!(values["enum"].as_array().unwrap().len(), 5);
    for (method, path) in openapi_paths() {
        assert!(document.body["paths"][format!("/v3{path}")][method].is_object(), "{path}");
        let path = path.replace("{id}", "x").replace("{key}", "k").replace("{project}", PROJECT);
        let seen = rig.call(&method.to_uppercase(), &path, json!({}), NEW).await;
        assert!(seen.body.get("title").is_none(), "{method} {path} is no route: {seen:?}");
        assert_ne!(seen.code, 500, "{method} {path}: {seen:?}");
    }
}

#[tokio::test]
async fn a_database_that_is_gone_is_503_and_nothing_is_lost() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.store.db.close().await;
    let seen = rig.get(&format!("/volumes/{volume}"), NEW).await;
    assert_eq!((seen.code, seen.headers.contains_key("retry-after")), (503, true), "{seen:?}");
    assert_eq!(seen.body["serviceUnavailable"]["code"], 503);
}

#[tokio::test]
async fn a_volume_changes_hands_with_its_key_only() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let body = json!({"transfer": {"volume_id": volume}});
    let offered = rig.ok("POST", "/volume-transfers", body, NEW).await;
    let (id, key) = (&offered["transfer"]["id"], &offered["transfer"]["auth_key"]);
    rig.expect(&volume, "awaiting-transfer", None).await;
    let path = format!("/volume-transfers/{}/accept", id.as_str().unwrap());
    let taker = "eve:dddd:member";
    let wrong = json!({"accept": {"auth_key": "0000000000000000"}});
    assert_eq!(rig.call_as(taker, ("POST", &path), wrong, NEW).await.code, 400);
    let right = json!({"accept": {"auth_key": key}});
    assert_eq!(rig.call_as(taker, ("POST", &path), right, NEW).await.code, 202);
    let mine = rig.call_as(taker, ("GET", &format!("/volumes/{volume}")), Value::Null, NEW).await;
    assert_eq!((mine.code, &mine.body["volume"]["status"]), (200, &json!("available")));
}
