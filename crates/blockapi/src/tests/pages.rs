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

/// Snapshots, backups and messages of both projects beside the volumes: of a thousand one is rare. Half
/// of the volumes have an attachment.
async fn fill_beside(rig: &Rig, count: u32) {
    let db = &rig.store.db;
    let numbers = format!(
        "WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {count})"
    );
    let id = "'00000000-0000-4000-8000-' || substr(CAST(1000000000000 + i AS TEXT), 2)";
    let project = format!("CASE i % 2 WHEN 0 THEN '{OTHER}' ELSE '{PROJECT}' END");
    let time = format!("'{TIMES}' || substr(CAST(1000000 + i AS TEXT), 2)");
    let status = "CASE WHEN i % 1000 = 7 THEN 'error' ELSE 'available' END";
    let name = "'it ' || CAST(i AS TEXT)";
    for sql in [
        format!(
            "INSERT INTO snapshots (id, project_id, volume_id, status, volume_size, display_name, \
             created_at) SELECT {id}, {project}, {id}, {status}, 1, {name}, {time} FROM numbers"
        ),
        format!(
            "INSERT INTO backups (id, project_id, volume_id, status, size, display_name, created_at) \
             SELECT {id}, {project}, {id}, {status}, 1, {name}, {time} FROM numbers"
        ),
        format!(
            "INSERT INTO messages (id, project_id, message_level, resource_uuid, event_id, action_id, \
             detail_id, expires_at, created_at) SELECT {id}, {project}, 'ERROR', {id}, 'e', '1', '1', \
             {time}, {time} FROM numbers"
        ),
        format!(
            "INSERT INTO volume_attachment (id, volume_id, instance_uuid, attach_status, created_at) \
             SELECT {id}, {id}, {id}, 'attached', {time} FROM numbers WHERE i % 4 < 2"
        ),
    ] {
        db.execute(&format!("{numbers} {sql}"), &[]).await.unwrap();
    }
    for table in ["snapshots", "backups", "messages", "volume_attachment"] {
        db.execute(&format!("ANALYZE {table}"), &[]).await.unwrap();
    }
}

/// Whether a plan reads all of a table that grows, or puts all of it in order.
fn walks(plan: &str) -> bool {
    let tables =
        ["volumes", "volume_metadata", "snapshots", "backups", "messages", "volume_attachment"];
    plan.lines().any(|line| {
        let line = line.trim_start_matches([' ', '-', '>']);
        let of = line
            .strip_prefix("Seq Scan on ")
            .or_else(|| line.strip_prefix("SCAN ").filter(|it| !it.contains(" USING ")));
        let of = of.and_then(|it| it.split_whitespace().next());
        of.is_some_and(|it| tables.contains(&it))
    })
}

/// Every filter and every order that has an index is found by it, in each list: neither all rows nor all
/// pairs are read, whoever's they are.
#[tokio::test]
async fn a_page_is_found_by_an_index() {
    let member = format!("member:{PROJECT}:member");
    let admin = format!("admin:{PROJECT}");
    for rig in Rig::everywhere().await {
        fill(&rig, 4_000).await;
        fill_beside(&rig, 4_000).await;
        let (middle, one) = (numbered(1_001), numbered(1_203));
        let own: &[(&str, &str, &str, &str)] = &[
            ("volumes", "status", "error", "volumes_by_status"),
            ("volumes", "status", "in-use", "volumes_by_status"),
            ("volumes", "status", "available", ""),
            ("volumes", "backup_status", "backing-up", "volumes_by_shown_backup"),
            ("volumes", "name", "volume 77", "volumes_by_name"),
            ("volumes", "size", "7", "volumes_by_size"),
            ("volumes", "bootable", "true", "volumes_by_bootable"),
            ("volumes", "availability_zone", "mars", "volumes_by_zone"),
            ("volumes", "migration_status", "starting", "volumes_by_migration"),
            ("volumes", "group_id", &one, "volumes_by_group"),
            ("volumes", "consumes_quota", "false", "volumes_without_quota"),
            ("volumes", "created_at", "gt:2026-01-01T00:00:00.003", "volumes_by_project"),
            ("volumes", "marker", &middle, ""),
            ("volumes", "sort", "size:asc", "volumes_by_size"),
            ("volumes", "sort", "name", "volumes_by_shown_name"),
            ("volumes", "sort", "created_at:asc", "volumes_by_project"),
            ("volumes", "metadata", "{'tier': 'iron'}", "_metadata"),
            ("snapshots", "status", "error", "snapshots_by_status"),
            ("snapshots", "name", "it 77", "snapshots_by_name"),
            ("snapshots", "volume_id", &one, "snapshots_of_volume"),
            ("snapshots", "consumes_quota", "false", "snapshots_without_quota"),
            ("snapshots", "marker", &middle, "snapshots_by_project"),
            ("backups", "status", "error", "backups_by_status"),
            ("backups", "name", "it 77", "backups_by_name"),
            ("backups", "volume_id", &one, "backups_of_volume"),
            ("backups", "marker", &middle, "backups_by_project"),
            ("messages", "resource_uuid", &one, "messages_by_resource"),
            ("messages", "marker", &middle, "messages_by_project"),
            ("attachments", "volume_id", &one, "volume_attachment_"),
            ("attachments", "instance_id", &one, "volume_attachment_by_server"),
        ];
        let of_all: &[(&str, &str, &str, &str)] = &[
            ("volumes", "status", "error", "volumes_of_all_by_status"),
            ("volumes", "status", "in-use", "volumes_of_all_by_status"),
            ("volumes", "limit", "10", "volumes_by_time"),
            ("snapshots", "limit", "10", "snapshots_by_time"),
            ("backups", "limit", "10", "backups_by_time"),
            ("messages", "limit", "10", "messages_by_time"),
            ("attachments", "limit", "10", "volume_attachment_by_time"),
        ];
        let all = [(own, "false", &member), (of_all, "true", &admin)];
        for (cases, everybody, token) in all {
            for (list, key, value, index) in cases {
                let query = [(*key, *value), ("limit", "10"), ("all_tenants", everybody)];
                let plan = plan_of_page(&rig.service, list, &query, token).await;
                assert!(!walks(&plan), "{list}?{key}={value}: {plan}");
                assert!(plan.contains(index), "{list}?{key}={value}: {plan}");
                let others = ["volumes_by_project", "volumes_by_time"];
                let is_walk = others.iter().any(|it| it != index && plan.contains(it));
                let is_by_value = index.starts_with("volumes_by") && !others.contains(index);
                assert!(!is_by_value || !is_walk, "{list}?{key}={value}: {plan}");
            }
        }
        // Few have it: they are read, and nobody else.
        let query = [("metadata", "{'tier': 'gold'}"), ("limit", "10")];
        let plan = plan_of_page(&rig.service, "volumes", &query, &member).await;
        assert!(!plan.contains("volumes_by"), "{plan}");
        // A page far back begins where it begins, not at the newest.
        let query = [("marker", middle.as_str()), ("limit", "10")];
        let plan = plan_of_page(&rig.service, "volumes", &query, &member).await;
        let begins = ["created_at <=", "created_at<"].iter().any(|it| plan.contains(it));
        assert!(begins, "{plan}");
    }
}

/// What is looked up beside a change, while the row is held, is found by an index as well.
#[tokio::test]
async fn what_changes_look_up_is_found_by_an_index() {
    for rig in Rig::everywhere().await {
        fill(&rig, 4_000).await;
        fill_beside(&rig, 4_000).await;
        let word = if rig.is_postgres() { "EXPLAIN" } else { "EXPLAIN QUERY PLAN" };
        let column = if rig.is_postgres() { "QUERY PLAN" } else { "detail" };
        for sql in [
            // A volume or a snapshot that others are being made from.
            "SELECT 1 FROM volumes c WHERE c.source_volid = $1 AND c.deleted = 0 AND c.status = 'creating'",
            "SELECT id FROM volumes WHERE snapshot_id = $1 AND deleted = 0 AND status = 'creating'",
            "SELECT 1 FROM volumes c JOIN snapshots s ON s.id = c.snapshot_id WHERE s.volume_id = $1 \
             AND c.deleted = 0 AND c.status = 'creating'",
            // Snapshots that live in what a restore took the place of, and records of one backup.
            "SELECT id FROM snapshots WHERE provider_id = $1 AND deleted = 0 LIMIT 1",
            "SELECT id FROM backups WHERE service_metadata = $1 AND id <> $1 AND deleted = 0 \
             AND status <> 'deleting' LIMIT 1",
            "SELECT id FROM backups WHERE parent_id = $1 AND deleted = 0",
            "UPDATE messages SET deleted = 1 WHERE deleted = 0 AND expires_at < $1",
        ] {
            let long_ago = numbered(1);
            let (sql, values) = (format!("{word} {sql}"), [long_ago.as_str().into()]);
            let rows = rig.store.db.fetch(&sql, &values).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.text(column).unwrap()).collect();
            assert!(!walks(&plan.join("\n")), "{sql}: {plan:?}");
        }
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

/// A volume and what belongs to it are of one moment, shown alone or in a list, whoever writes meanwhile.
#[tokio::test]
async fn a_volume_is_seen_as_it_was_at_one_moment() {
    for rig in Rig::everywhere().await {
        let volume = rig.volume().await;
        let write = async {
            for number in 0..200 {
                let mut tx = rig.store.db.begin().await.unwrap();
                tx.execute("UPDATE volume_attachment SET deleted = 1", &[]).await.unwrap();
                let is_attached = number % 2 == 0;
                if is_attached {
                    let sql = "INSERT INTO volume_attachment (id, volume_id, attach_status, created_at) \
                         VALUES ($1, $2, 'attached', '2026')";
                    let values = [numbered(number).into(), volume.as_str().into()];
                    tx.execute(sql, &values).await.unwrap();
                }
                let status = if is_attached { "in-use" } else { "available" };
                tx.execute("UPDATE volumes SET status = $1", &[status.into()]).await.unwrap();
                tx.commit().await.unwrap();
            }
        };
        let read = async {
            for _ in 0..200 {
                let all = rig.get("/volumes/detail", NEW).await;
                let one = rig.get(&format!("/volumes/{volume}"), NEW).await;
                for seen in [&all.body["volumes"][0], &one.body["volume"]] {
                    let count = seen["attachments"].as_array().unwrap().len();
                    let status = ["available", "in-use"][count];
                    assert_eq!(seen["status"], status, "{seen}");
                }
            }
        };
        tokio::join!(write, read);
    }
}
