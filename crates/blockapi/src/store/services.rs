//! Which processes share the database, and what they understand.

use super::{Store, new_id, now, stamp_in};
use crate::sql::{DbError, Row, Tx};

/// What this build understands of volumes: two status fields.
pub(crate) const OBJECT_VERSION: &str = "1.40";
/// The first version whose services understand two status fields.
const TWO_FIELDS_MINOR: u64 = 40;
/// A service silent for longer is down.
pub(crate) const ALIVE_SECONDS: i64 = 60;

#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) host: String,
    pub(crate) binary: String,
    pub(crate) zone: Option<String>,
    pub(crate) disabled: bool,
    pub(crate) disabled_reason: Option<String>,
    pub(crate) updated_at: Option<String>,
    pub(crate) object_version: Option<String>,
}

impl Service {
    fn of(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            host: row.text("host")?,
            binary: row.text("binary")?,
            zone: row.opt("availability_zone")?,
            disabled: row.truth("disabled")?,
            disabled_reason: row.opt("disabled_reason")?,
            updated_at: row.opt("updated_at")?,
            object_version: row.opt("object_current_version")?,
        })
    }

    pub(crate) fn is_up(&self) -> bool {
        self.updated_at.as_deref().is_some_and(|it| *it >= *stamp_in(-ALIVE_SECONDS))
    }

    /// Whether it knows one status field only. One that does not say is as old as can be.
    pub(crate) fn is_old(&self) -> bool {
        let minor = self.object_version.as_deref().and_then(|it| it.strip_prefix("1."));
        minor.and_then(|it| it.parse::<u64>().ok()).is_none_or(|it| it < TWO_FIELDS_MINOR)
    }
}

/// What a project has on a host: how many, and their gibibytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) project: String,
    pub(crate) volumes: (i64, i64),
    pub(crate) snapshots: (i64, i64),
}

impl Store {
    /// What projects have on a host, in any of its pools.
    pub(crate) async fn held_by(&self, host: &str) -> Result<Vec<Held>, DbError> {
        let sql = "SELECT v.project_id AS project, COUNT(*) AS volumes, \
             CAST(SUM(v.size) AS BIGINT) AS gib, \
             CAST(SUM((SELECT COUNT(*) FROM snapshots s WHERE s.volume_id = v.id AND s.deleted = 0)) \
             AS BIGINT) AS snapshots, \
             CAST(SUM((SELECT COALESCE(SUM(s.volume_size), 0) FROM snapshots s \
             WHERE s.volume_id = v.id AND s.deleted = 0)) AS BIGINT) AS snapshot_gib \
             FROM volumes v WHERE v.deleted = 0 \
             AND (v.host = $1 OR substr(v.host, 1, length($1) + 1) = $1 || '#') \
             GROUP BY v.project_id ORDER BY v.project_id";
        let rows = self.db.fetch(sql, &[host.into()]).await?;
        let held = rows.iter().map(|row| {
            Ok(Held {
                project: row.text("project")?,
                volumes: (row.int("volumes")?, row.int("gib")?),
                snapshots: (row.int("snapshots")?, row.int("snapshot_gib")?),
            })
        });
        held.collect()
    }

    pub(crate) async fn services(&self) -> Result<Vec<Service>, DbError> {
        let sql = "SELECT host, \"binary\", availability_zone, disabled, disabled_reason, \
             updated_at, object_current_version FROM services WHERE deleted = 0 \
             ORDER BY \"binary\", host";
        self.db.fetch(sql, &[]).await?.iter().map(Service::of).collect()
    }

    /// Says that a service lives; its id.
    pub(crate) async fn report_service(
        &self,
        host: &str,
        binary: &str,
        zone: &str,
    ) -> Result<String, DbError> {
        let time = now();
        let sql = "UPDATE services SET updated_at = $3, report_count = report_count + 1, \
             object_current_version = $4, rpc_current_version = $4 \
             WHERE host = $1 AND \"binary\" = $2 AND deleted = 0";
        let values = [host.into(), binary.into(), time.as_str().into(), OBJECT_VERSION.into()];
        if self.db.execute(sql, &values).await? == 0 {
            let sql = "INSERT INTO services (uuid, host, \"binary\", topic, availability_zone, \
                 object_current_version, rpc_current_version, created_at, updated_at) \
                 VALUES ($1, $2, $3, $3, $4, $5, $5, $6, $6)";
            let values = [
                new_id().into(),
                host.into(),
                binary.into(),
                zone.into(),
                OBJECT_VERSION.into(),
                time.into(),
            ];
            match self.db.execute(sql, &values).await {
                Err(error) if error.is_duplicate() => {}
                other => drop(other?),
            }
        }
        let sql = "SELECT uuid FROM services WHERE host = $1 AND \"binary\" = $2 AND deleted = 0";
        let row = self.db.fetch_one(sql, &[host.into(), binary.into()]).await?;
        row.map(|row| row.text("uuid")).transpose().map(Option::unwrap_or_default)
    }

    /// Looks whether there are services of the release before, and remembers it. One that is silent may
    /// stand still, and go on with what it saw; who is gone for good is removed by an operator.
    pub(crate) async fn look_for_old_services(&self) -> Result<bool, DbError> {
        let old = self.services().await?.iter().any(Service::is_old);
        if old != self.is_pinned() {
            tracing::info!(old, "there are services of the release before beside this one");
        }
        self.set_pinned(old);
        Ok(old)
    }

    /// Whether somebody makes backups: none of them does once an operator took all out of use. Before
    /// the first has reported, nobody did.
    pub(crate) async fn makes_backups(&self, tx: &mut Tx) -> Result<bool, DbError> {
        let sql = "SELECT MIN(disabled) AS disabled FROM services \
             WHERE deleted = 0 AND \"binary\" = 'cinder-backup'";
        let row = tx.fetch_one(sql, &[]).await?;
        let disabled = row.map(|row| row.opt_int("disabled")).transpose()?.flatten();
        Ok(disabled.is_none_or(|it| it == 0))
    }

    /// Forgets a service; it comes back when it reports again.
    pub(crate) async fn remove_service(&self, host: &str, binary: &str) -> Result<bool, DbError> {
        let sql = "UPDATE services SET deleted = 1, deleted_at = $3 \
             WHERE host = $1 AND \"binary\" = $2 AND deleted = 0";
        let values = [host.into(), binary.into(), now().into()];
        Ok(self.db.execute(sql, &values).await? != 0)
    }

    pub(crate) async fn enable_service(
        &self,
        host: &str,
        binary: &str,
        disabled: bool,
        reason: Option<&str>,
    ) -> Result<bool, DbError> {
        let sql = "UPDATE services SET disabled = $3, disabled_reason = $4, modified_at = $5 \
             WHERE host = $1 AND \"binary\" = $2 AND deleted = 0";
        let values = [host.into(), binary.into(), disabled.into(), reason.into(), now().into()];
        Ok(self.db.execute(sql, &values).await? != 0)
    }
}
