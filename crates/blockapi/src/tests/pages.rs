//! What a page costs: what there is of others, or beyond the page, is not looked at.

use serde_json::json;

use super::rig::{NEW, OLD, PROJECT, Rig};
use crate::rest::plan_of_page;

const OTHER: &str = "bbbb1111bbbb1111bbbb1111bbbb1111";
const TIMES: &str = "2026-01-01T00:00:00.";

fn numbered(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// Volumes of two projects, as rows: of a thousand one failed and one is backed up, and has a pair that
/// few have.
async fn fill(rig: &Rig, count: u32) {
    let db = &rig.store.db;
    let id = "'00000000-0000-4000-8000-' || substr(CAST(1000000000000 + i AS TEXT), 2)";
    let sql = format!(
        "WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {count}) \
         INSERT INTO volumes (id, project_id, size, display_name, volume_type_id, status, backup_status, \
         attach_status, created_at) SELECT {id}, CASE i % 2 WHEN 0 THEN '{OTHER}' ELSE '{PROJECT}' END, 1, \
         'volume ' || CAST(i AS TEXT), (SELECT MIN(id) FROM volume_types WHERE deleted = 0), \
         CASE WHEN i % 1000 = 7 THEN 'error' WHEN i % 1000 = 11 THEN 'in-use' ELSE 'available' END, \
         CASE WHEN i % 1000 = 9 THEN 'backing-up' END, 'detached', \
         '{TIMES}' || substr(CAST(1000000 + i AS TEXT), 2) FROM numbers"
    );
    db.execute(&sql, &[]).await.unwrap();
    let sql = "INSERT INTO volume_metadata (volume_id, key, value) SELECT id, 'tier', \
         CASE WHEN status = 'error' THEN 'gold' ELSE 'iron' END FROM volumes";
    db.execute(sql, &[]).await.unwrap();
    for table in ["volumes", "volume_metadata"] {
        db.execute(&format!("ANALYZE {table}"), &[]).await.unwrap();
    }
}

/// Neither all volumes nor all pairs, whoever's they are.
#[tokio::test]
async fn a_page_is_found_by_an_index() {
    for rig in Rig::everywhere().await {
        fill(&rig, 4_000).await;
        let middle = numbered(1_001);
        for (key, value, index) in [
            ("status", "error", "volumes_by_status"),
            ("status", "in-use", "volumes_by_status"),
            ("status", "available", ""),
            ("backup_status", "backing-up", "volumes_by_shown_backup"),
            ("name", "volume 77", "volumes_by_name"),
            ("marker", &middle, ""),
            ("metadata", "{'tier': 'iron'}", "_metadata"),
        ] {
            let query = [(key, value), ("limit", "10")];
            let plan = plan_of_page(&rig.service, &query, PROJECT).await;
            let walks = plan.lines().filter(|line| {
                let line = line.trim_start_matches([' ', '-', '>']);
                let is_walk =
                    line.starts_with("Seq Scan on volume") || line.starts_with("SCAN volume");
                is_walk && !line.contains("volume_types")
            });
            assert_eq!(walks.count(), 0, "{key}={value}: {plan}");
            assert!(plan.contains(index), "{key}={value}: {plan}");
            let walks =
                ["volumes_by_project", "volumes_by_time"].iter().any(|it| plan.contains(it));
            assert!(!index.starts_with("volumes_by") || !walks, "{key}={value}: {plan}");
        }
        // Few have it: they are read, and nobody else.
        let query = [("metadata", "{'tier': 'gold'}"), ("limit", "10")];
        let plan = plan_of_page(&rig.service, &query, PROJECT).await;
        assert!(!plan.contains("volumes_by"), "{plan}");
        // A page far back begins where it begins, not at the newest.
        let query = [("marker", middle.as_str()), ("limit", "10")];
        let plan = plan_of_page(&rig.service, &query, PROJECT).await;
        let begins = ["created_at <=", "created_at<"].iter().any(|it| plan.contains(it));
        assert!(begins, "{plan}");
    }
}

/// The ways to a page are many, what is on it is one.
#[tokio::test]
async fn pages_are_whole_and_in_order_whichever_way_they_are_found() {
    for rig in Rig::everywhere().await {
        fill(&rig, 2_400).await;
        // The release before writes one field: these are available, and in use.
        for (number, attached) in [(1_201, false), (1_203, true)] {
            let id = numbered(number);
            let sql =
                "UPDATE volumes SET status = 'backing-up', backup_status = NULL WHERE id = $1";
            rig.store.db.execute(sql, &[id.as_str().into()]).await.unwrap();
            if attached {
                let sql = "INSERT INTO volume_attachment (id, volume_id, attach_status, created_at) \
                     VALUES ($1, $1, 'attached', '2026')";
                rig.store.db.execute(sql, &[id.as_str().into()]).await.unwrap();
            }
        }
        for (query, version, wanted) in [
            ("status=in-use", NEW, vec![2_011, 1_203, 1_011, 11]),
            ("status=in-use", OLD, vec![2_011, 1_011, 11]),
            ("status=in-use&sort=name:asc", NEW, vec![1_011, 11, 1_203, 2_011]),
            ("status=in-use&status=available", NEW, vec![]),
            ("status=backing-up", OLD, vec![2_009, 1_203, 1_201, 1_009, 9]),
            ("status=in-use&metadata={'tier': 'iron'}", NEW, vec![2_011, 1_203, 1_011, 11]),
            ("metadata={'tier': 'gold'}", NEW, vec![2_007, 1_007, 7]),
            ("metadata={'tier': 'gold'}&status=available", NEW, vec![]),
            ("metadata={'tier': 'gold'}&metadata={'tier': 'iron'}", NEW, vec![]),
            ("metadata={'tier': 'lead'}", NEW, vec![]),
            ("metadata={'tier': 'iron', 'no': 'x'}", NEW, vec![]),
        ] {
            // One at a time, by their markers.
            let (mut seen, mut marker) = (Vec::new(), String::new());
            loop {
                let path = format!("/volumes?limit=1&with_count=true&{query}{marker}");
                let path = path.replace(' ', "%20").replace('{', "%7B").replace('}', "%7D");
                let found = rig.ok("GET", &path, json!(null), version).await;
                assert_eq!(found["count"], json!(wanted.len()), "{query}");
                let Some(volume) = found["volumes"].get(0) else { break };
                let id = volume["id"].as_str().unwrap().to_owned();
                marker = format!("&marker={id}");
                seen.push(id);
            }
            let wanted: Vec<String> = wanted.into_iter().map(numbered).collect();
            assert_eq!(seen, wanted, "{query} at {version}");
        }
        let offset = "/volumes?status=in-use&limit=2&offset=1";
        let found = rig.ok("GET", offset, json!(null), NEW).await;
        let seen: Vec<&str> = found["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["id"].as_str().unwrap())
            .collect();
        assert_eq!(seen, [numbered(1_203), numbered(1_011)]);
    }
}
