//! The dialect on the wire: versions, faults, pages, filters, who may do what.

use axum::body::Body;
use serde_json::{Value, json};

use super::rig::{NEW, OLD, PROJECT, Rig};
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
        let request = http::Request::builder().uri(format!("http://block.test{path}"));
        let seen = rig.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(seen.code, code, "{path}");
        assert_eq!(seen.body["versions"][0]["version"], "3.72");
        assert_eq!(seen.body["versions"][0]["links"][1]["href"], "http://block.test/v3/");
    }
    let request = http::Request::builder().uri("http://block.test/v3/volumes");
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
        ("/volumes?limit=-1", 400),
        ("/volumes?limit=x", 400),
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
        .uri("http://block.test/v3/volumes")
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

/// Every path of the document is one the router knows.
#[tokio::test]
async fn the_document_tells_what_is_served() {
    let rig = Rig::new().await;
    let request = http::Request::builder().uri("http://block.test/v3/openapi.json");
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
