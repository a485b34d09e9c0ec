//! What came with a microversion is not there below it: filters, orders, pages and collections.

use serde_json::{Value, json};

use super::rig::{NEW, PROJECT, Rig};

/// How many items a list shows.
async fn shown(rig: &Rig, token: &str, path: &str, version: &str) -> usize {
    let seen = rig.call_as(token, ("GET", path), Value::Null, version).await;
    let key = path.get(1..).unwrap().split(['?', '/']).next().unwrap();
    let key = if key == "volume-transfers" { "transfers" } else { key };
    seen.body[key].as_array().unwrap_or_else(|| panic!("{path} at {version}: {seen:?}")).len()
}

/// A filter that came later is passed over below its version, by whomever it is asked.
#[tokio::test]
async fn filters_count_from_their_versions_on() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        rig.ok("POST", "/snapshots", json!({"snapshot": {"volume_id": volume}}), NEW).await;
        rig.settle().await;
        let tokens = [rig.token.clone(), format!("bob:{PROJECT}:member")];
        for (path, before, since) in [
            ("/volumes?glance_metadata={'no':'such'}", "3.3", "3.4"),
            ("/volumes?group_id=11111111-1111-4111-8111-111111111111", "3.9", "3.10"),
            ("/volumes?created_at=gt:2999-01-01T00:00:00", "3.59", "3.60"),
            ("/volumes/detail?updated_at=lt:2001-01-01T00:00:00", "3.59", "3.60"),
            ("/volumes?consumes_quota=false", "3.64", "3.65"),
            ("/snapshots?metadata={'no':'such'}", "3.21", "3.22"),
            ("/snapshots?consumes_quota=false", "3.64", "3.65"),
        ] {
            let path = path.replace('{', "%7B").replace('}', "%7D").replace('\'', "%27");
            for token in &tokens {
                assert_eq!(shown(&rig, token, &path, before).await, 1, "{path} at {before}");
            }
            let admin = &tokens[0];
            assert_eq!(shown(&rig, admin, &path, since).await, 0, "{path} at {since}");
        }
        // Before there was a table of them, others were offered to those who are no administrators.
        let member = &tokens[1];
        for path in ["/volumes?size=7", "/volumes?migration_status=error"] {
            assert_eq!(shown(&rig, member, path, "3.30").await, 1, "{path}");
            assert_eq!(shown(&rig, member, path, "3.31").await, 0, "{path}");
        }
        for path in ["/volumes?status=error", "/volumes?bootable=true", "/volumes?name=x"] {
            assert_eq!(shown(&rig, member, path, "3.0").await, 0, "{path}");
        }
    }
}

#[tokio::test]
async fn orders_and_pages_count_from_their_versions_on() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    rig.ok("POST", "/snapshots", json!({"snapshot": {"volume_id": volume}}), NEW).await;
    for (path, before, since) in
        [("/snapshots?sort=name:asc", "3.29", "3.30"), ("/backups?sort_key=name", "3.36", "3.37")]
    {
        let refused = rig.get(path, before).await;
        assert_eq!(refused.code, 400, "{path} at {before}: {refused:?}");
        assert_eq!(
            refused.body["badRequest"]["message"],
            "Invalid input received: Invalid sort key"
        );
        assert_eq!(rig.get(path, since).await.code, 200, "{path} at {since}");
    }
    // By the name of the column they were in order all the time.
    for path in
        ["/volumes?sort=name", "/snapshots?sort_key=display_name", "/backups?sort=display_name"]
    {
        assert_eq!(rig.get(path, "3.0").await.code, 200, "{path}");
    }
    rig.backend.mood(|moods| moods.fail_backups = Some("full".to_owned()));
    for _ in 0..2 {
        rig.backup(&volume, false).await;
        rig.settle().await;
    }
    let token = rig.token.clone();
    for (path, version, count) in [
        ("/messages?limit=1", "3.4", 2),
        ("/messages?limit=1", "3.5", 1),
        ("/messages?resource_type=VOLUME", "3.4", 2),
        ("/messages?resource_type=VOLUME", "3.5", 0),
    ] {
        assert_eq!(shown(&rig, &token, path, version).await, count, "{path} at {version}");
    }
    for _ in 0..2 {
        let volume = rig.volume().await;
        rig.ok("POST", "/volume-transfers", json!({"transfer": {"volume_id": volume}}), NEW).await;
    }
    let path = "/volume-transfers?limit=1";
    assert_eq!(shown(&rig, &token, path, "3.58").await, 2);
    assert_eq!(shown(&rig, &token, path, "3.59").await, 1);
}

/// A collection that came later is not there, and a key of a body that came later means nothing.
#[tokio::test]
async fn collections_are_there_from_their_versions_on() {
    let rig = Rig::new().await;
    for (path, before, since) in [
        ("/clusters", "3.6", "3.7"),
        ("/group_types", "3.10", "3.11"),
        ("/groups", "3.12", "3.13"),
        ("/group_snapshots", "3.13", "3.14"),
        ("/resource_filters", "3.32", "3.33"),
        ("/default-types", "3.61", "3.62"),
        ("/volumes/summary", "3.11", "3.12"),
    ] {
        let early = rig.get(path, before).await;
        assert_eq!(early.code, 404, "{path} at {before}: {early:?}");
        assert_eq!(rig.get(path, since).await.code, 200, "{path} at {since}");
    }
    for (path, before, since) in [("/groups", "3.12", "3.13"), ("/workers/cleanup", "3.23", "3.24")]
    {
        assert_eq!(rig.call("POST", path, json!({}), before).await.code, 404, "{path}");
        assert_eq!(rig.call("POST", path, json!({}), since).await.code, 400, "{path}");
    }
    let group = json!({"volume": {"size": 1, "group_id": uuid::Uuid::new_v4()}});
    assert_eq!(rig.call("POST", "/volumes", group.clone(), "3.12").await.code, 202);
    assert_eq!(rig.call("POST", "/volumes", group, "3.13").await.code, 400);
}
