//! Volumes as rows, many at a time: what is measured is reading them, not making them.

use anyhow::{Result, bail};
use sqlx::{PgPool, SqlitePool};

use super::PROJECT;

pub(super) enum Database {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// The id of a row by its number, as [`Database::grow`] makes it.
pub(super) fn id(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

impl Database {
    pub(super) async fn open(address: &str) -> Result<Self> {
        if let Some(path) = address.strip_prefix("sqlite:") {
            return Ok(Self::Sqlite(
                SqlitePool::connect(&format!("sqlite:{path}?mode=rwc")).await?,
            ));
        }
        if address.starts_with("postgres") {
            return Ok(Self::Postgres(PgPool::connect(address).await?));
        }
        bail!("{address} is neither a file nor a PostgreSQL")
    }

    async fn execute(&self, sql: String) -> Result<()> {
        let sql = sqlx::AssertSqlSafe(sql);
        match self {
            Self::Sqlite(pool) => sqlx::query(sql).execute(pool).await.map(drop)?,
            Self::Postgres(pool) => sqlx::query(sql).execute(pool).await.map(drop)?,
        }
        Ok(())
    }

    /// Adds rows until there are so many: one in a thousand failed, as many are backed up, as many are in
    /// use and of another tier, larger, or bootable; each has two pairs of metadata. The statements are the same on both.
    pub(super) async fn grow(&self, to: u32) -> Result<()> {
        let numbers = format!(
            "WITH RECURSIVE have (n) AS (SELECT COUNT(*) FROM volumes WHERE user_id = 'bench'), \
             numbers (i) AS (SELECT n + 1 FROM have WHERE n < {to} UNION ALL SELECT i + 1 FROM numbers \
             WHERE i < {to})"
        );
        let id = "'00000000-0000-4000-8000-' || substr(CAST(1000000000000 + i AS TEXT), 2)";
        // Metadata first has no volume to belong to, volumes first are counted: so both at once.
        self.execute(format!(
            "{numbers} INSERT INTO volumes (id, user_id, project_id, size, availability_zone, host, \
             display_name, volume_type_id, status, backup_status, attach_status, shared_targets, \
             bootable, created_at) SELECT {id}, 'bench', '{PROJECT}', \
             CASE WHEN i % 1000 = 5 THEN 2 ELSE 1 END, 'nova', 'bench@holdfast#holdfast', \
             'volume ' || CAST(i AS TEXT), (SELECT MIN(id) FROM volume_types WHERE deleted = 0), \
             CASE i % 1000 WHEN 7 THEN 'error' WHEN 9 THEN 'in-use' ELSE 'available' END, \
             CASE WHEN i % 1000 = 8 THEN 'backing-up' END, 'detached', 0, \
             CASE WHEN i % 1000 = 6 THEN 1 ELSE 0 END, \
             '2026-01-01T00:00:00.' || substr(CAST(1000000 + i AS TEXT), 2) FROM numbers"
        ))
        .await?;
        for key in ["tier", "owner"] {
            self.execute(format!(
                "INSERT INTO volume_metadata (volume_id, key, value) SELECT id, '{key}', \
                 CASE WHEN status = 'in-use' AND '{key}' = 'tier' THEN 'gold' ELSE 'v' END FROM volumes \
                 WHERE user_id = 'bench' AND NOT EXISTS (SELECT 1 FROM volume_metadata m \
                 WHERE m.volume_id = volumes.id AND m.key = '{key}')"
            ))
            .await?;
        }
        // As a database that is in use has them.
        self.execute("ANALYZE".to_owned()).await
    }
}
