//! What projects may use and what they do use. Usage is counted from the rows themselves, so it
//! cannot drift; what is asked for is checked in the transaction that takes it.

use std::collections::BTreeMap;

use super::Store;
use crate::sql::{DbError, Row, Tx};

/// Resources with a limit, and what that is unless told otherwise. -1: none.
pub(crate) const DEFAULTS: [(&str, i64); 7] = [
    ("volumes", 10),
    ("snapshots", 10),
    ("gigabytes", 1000),
    ("backups", 10),
    ("backup_gigabytes", 1000),
    ("per_volume_gigabytes", -1),
    ("groups", 10),
];

pub(crate) const UNLIMITED: i64 = -1;

/// What is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Demand<'a> {
    pub(crate) volumes: i64,
    pub(crate) snapshots: i64,
    pub(crate) gigabytes: i64,
    pub(crate) backups: i64,
    pub(crate) backup_gigabytes: i64,
    /// Limits of the type apply too.
    pub(crate) type_name: Option<&'a str>,
    pub(crate) type_id: Option<&'a str>,
    /// Size of one volume.
    pub(crate) per_volume: Option<i64>,
    /// The project has it already; only the limits of the type count.
    pub(crate) is_of_project: bool,
}

/// A limit that does not allow what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) resource: String,
    pub(crate) limit: i64,
    pub(crate) used: i64,
    pub(crate) asked: i64,
}

pub(crate) type Counts = BTreeMap<String, i64>;

const USAGE: &str = "SELECT \
    (SELECT COUNT(*) FROM volumes WHERE project_id = $1 AND deleted = 0 AND use_quota = 1) AS volumes, \
    (SELECT COUNT(*) FROM snapshots WHERE project_id = $1 AND deleted = 0 AND use_quota = 1) AS snapshots, \
    (SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM volumes \
     WHERE project_id = $1 AND deleted = 0 AND use_quota = 1) AS volume_gigabytes, \
    (SELECT CAST(COALESCE(SUM(volume_size), 0) AS BIGINT) FROM snapshots \
     WHERE project_id = $1 AND deleted = 0 AND use_quota = 1) AS snapshot_gigabytes, \
    (SELECT COUNT(*) FROM backups WHERE project_id = $1 AND deleted = 0) AS backups, \
    (SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM backups \
     WHERE project_id = $1 AND deleted = 0) AS backup_gigabytes";

/// Volumes that are on their way to a size or a type they do not have yet.
const UNDER_WAY: &str = "SELECT v.volume_type_id, v.size, w.detail FROM workers w \
    JOIN volumes v ON v.id = w.resource_id WHERE w.resource_type = 'volume' \
    AND w.status IN ('extending', 'retyping') AND v.project_id = $1 AND v.deleted = 0 \
    AND v.use_quota = 1";

/// What was promised to them.
#[derive(Debug, Default)]
struct Promised {
    gigabytes: i64,
    /// By type: volumes and gibibytes.
    types: BTreeMap<String, (i64, i64)>,
}

impl Promised {
    fn of(rows: &[Row]) -> Result<Self, DbError> {
        let mut promised = Self::default();
        for row in rows {
            let detail = row.opt("detail")?.and_then(|it| serde_json::from_str(&it).ok());
            let detail: serde_json::Value = detail.unwrap_or_default();
            let size = row.int("size")?;
            if let Some(kind) = detail.get("type").and_then(serde_json::Value::as_str) {
                promised.add(kind.to_owned(), 1, size);
            } else if let Some(wanted) = detail.get("new_size").and_then(serde_json::Value::as_i64)
            {
                let more = (wanted - size).max(0);
                promised.gigabytes += more;
                promised.add(row.text("volume_type_id")?, 0, more);
            }
        }
        Ok(promised)
    }

    fn add(&mut self, kind: String, volumes: i64, gigabytes: i64) {
        let known = self.types.entry(kind).or_default();
        *known = (known.0 + volumes, known.1 + gigabytes);
    }

    fn of_type(&self, id: &str) -> (i64, i64) {
        self.types.get(id).copied().unwrap_or_default()
    }
}

const TYPE_USAGE: &str = "SELECT vt.id AS id, vt.name AS name, \
    (SELECT COUNT(*) FROM volumes v WHERE v.project_id = $1 AND v.deleted = 0 AND v.use_quota = 1 \
     AND v.volume_type_id = vt.id) AS volumes, \
    (SELECT COUNT(*) FROM snapshots s WHERE s.project_id = $1 AND s.deleted = 0 AND s.use_quota = 1 \
     AND s.volume_type_id = vt.id) AS snapshots, \
    (SELECT CAST(COALESCE(SUM(v.size), 0) AS BIGINT) FROM volumes v WHERE v.project_id = $1 \
     AND v.deleted = 0 AND v.use_quota = 1 AND v.volume_type_id = vt.id) AS volume_gigabytes, \
    (SELECT CAST(COALESCE(SUM(s.volume_size), 0) AS BIGINT) FROM snapshots s WHERE s.project_id = $1 \
     AND s.deleted = 0 AND s.use_quota = 1 AND s.volume_type_id = vt.id) AS snapshot_gigabytes \
    FROM volume_types vt WHERE vt.deleted = 0";

impl Store {
    /// Limits of a class, with those of every type.
    pub(crate) async fn default_limits(&self) -> Result<Counts, DbError> {
        let mut limits: Counts =
            DEFAULTS.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect();
        let sql = "SELECT name FROM volume_types WHERE deleted = 0";
        for row in self.db.fetch(sql, &[]).await? {
            let name = row.text("name")?;
            for kind in ["volumes", "gigabytes", "snapshots"] {
                limits.insert(format!("{kind}_{name}"), UNLIMITED);
            }
        }
        let sql = "SELECT resource, hard_limit FROM quota_classes WHERE class_name = 'default'";
        for row in self.db.fetch(sql, &[]).await? {
            limits.insert(row.text("resource")?, row.opt_int("hard_limit")?.unwrap_or(UNLIMITED));
        }
        Ok(limits)
    }

    pub(crate) async fn limits(&self, project: &str) -> Result<Counts, DbError> {
        let mut limits = self.default_limits().await?;
        let sql = "SELECT resource, hard_limit FROM quotas WHERE project_id = $1";
        for row in self.db.fetch(sql, &[project.into()]).await? {
            limits.insert(row.text("resource")?, row.opt_int("hard_limit")?.unwrap_or(UNLIMITED));
        }
        Ok(limits)
    }

    pub(crate) async fn usage(&self, project: &str) -> Result<Counts, DbError> {
        let mut counts = Counts::new();
        let promised = Promised::of(&self.db.fetch(UNDER_WAY, &[project.into()]).await?)?;
        if let Some(row) = self.db.fetch_one(USAGE, &[project.into()]).await? {
            for name in ["volumes", "snapshots", "backups", "backup_gigabytes"] {
                counts.insert(name.to_owned(), row.int(name)?);
            }
            let gigabytes = row.int("volume_gigabytes")? + row.int("snapshot_gigabytes")?;
            counts.insert("gigabytes".to_owned(), gigabytes + promised.gigabytes);
        }
        for row in self.db.fetch(TYPE_USAGE, &[project.into()]).await? {
            let name = row.text("name")?;
            let (volumes, more) = promised.of_type(&row.text("id")?);
            counts.insert(format!("volumes_{name}"), row.int("volumes")? + volumes);
            counts.insert(format!("snapshots_{name}"), row.int("snapshots")?);
            let gigabytes = row.int("volume_gigabytes")? + row.int("snapshot_gigabytes")?;
            counts.insert(format!("gigabytes_{name}"), gigabytes + more);
        }
        Ok(counts)
    }

    /// Whether a project may have that much more, evaluated where it is taken.
    pub(crate) async fn afford(
        &self,
        tx: &mut Tx,
        project: &str,
        demand: Demand<'_>,
    ) -> Result<Result<(), Exceeded>, DbError> {
        // So that two requests cannot both take the last of it.
        tx.lock_name(project).await?;
        let mut limits: Counts =
            DEFAULTS.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect();
        let sql = "SELECT resource, hard_limit, 0 AS own FROM quota_classes \
             WHERE class_name = 'default' UNION ALL \
             SELECT resource, hard_limit, 1 AS own FROM quotas WHERE project_id = $1 ORDER BY own";
        for row in tx.fetch(sql, &[project.into()]).await? {
            limits.insert(row.text("resource")?, row.opt_int("hard_limit")?.unwrap_or(UNLIMITED));
        }
        let promised = Promised::of(&tx.fetch(UNDER_WAY, &[project.into()]).await?)?;
        let Some(row) = tx.fetch_one(USAGE, &[project.into()]).await? else { return Ok(Ok(())) };
        let gigabytes = row.int("volume_gigabytes")? + row.int("snapshot_gigabytes")?;
        let gigabytes = gigabytes + promised.gigabytes;
        let mut checks = vec![
            ("volumes".to_owned(), row.int("volumes")?, demand.volumes),
            ("snapshots".to_owned(), row.int("snapshots")?, demand.snapshots),
            ("gigabytes".to_owned(), gigabytes, demand.gigabytes),
            ("backups".to_owned(), row.int("backups")?, demand.backups),
            ("backup_gigabytes".to_owned(), row.int("backup_gigabytes")?, demand.backup_gigabytes),
        ];
        if let Some(size) = demand.per_volume {
            checks.insert(0, ("per_volume_gigabytes".to_owned(), 0, size));
        }
        if demand.is_of_project {
            checks.clear();
        }
        let has_type_limit = |name: &str| {
            ["volumes", "gigabytes", "snapshots"]
                .iter()
                .any(|kind| limits.contains_key(&format!("{kind}_{name}")))
        };
        if let (Some(name), Some(id)) = (demand.type_name, demand.type_id)
            && has_type_limit(name)
        {
            let sql = format!("{TYPE_USAGE} AND vt.id = $2");
            if let Some(row) = tx.fetch_one(&sql, &[project.into(), id.into()]).await? {
                let (volumes, more) = promised.of_type(id);
                let gigabytes = row.int("volume_gigabytes")? + row.int("snapshot_gigabytes")?;
                let gigabytes = gigabytes + more;
                let volumes = row.int("volumes")? + volumes;
                checks.push((format!("volumes_{name}"), volumes, demand.volumes));
                checks.push((format!("snapshots_{name}"), row.int("snapshots")?, demand.snapshots));
                checks.push((format!("gigabytes_{name}"), gigabytes, demand.gigabytes));
            }
        }
        for (resource, used, asked) in checks {
            let limit = limits.get(&resource).copied().unwrap_or(UNLIMITED);
            if asked > 0 && limit != UNLIMITED && used.saturating_add(asked) > limit {
                return Ok(Err(Exceeded { resource, limit, used, asked }));
            }
        }
        Ok(Ok(()))
    }

    pub(crate) async fn set_limit(
        &self,
        project: &str,
        resource: &str,
        limit: i64,
    ) -> Result<(), DbError> {
        let sql = "INSERT INTO quotas (project_id, resource, hard_limit) VALUES ($1, $2, $3) \
             ON CONFLICT (project_id, resource) DO UPDATE SET hard_limit = excluded.hard_limit";
        self.db.execute(sql, &[project.into(), resource.into(), limit.into()]).await.map(drop)
    }

    pub(crate) async fn set_default_limit(
        &self,
        resource: &str,
        limit: i64,
    ) -> Result<(), DbError> {
        let sql = "INSERT INTO quota_classes (class_name, resource, hard_limit) \
             VALUES ('default', $1, $2) \
             ON CONFLICT (class_name, resource) DO UPDATE SET hard_limit = excluded.hard_limit";
        self.db.execute(sql, &[resource.into(), limit.into()]).await.map(drop)
    }

    pub(crate) async fn forget_limits(&self, project: &str) -> Result<(), DbError> {
        self.db
            .execute("DELETE FROM quotas WHERE project_id = $1", &[project.into()])
            .await
            .map(drop)
    }
}
