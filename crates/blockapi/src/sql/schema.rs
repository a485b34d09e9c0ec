//! The schema, step by step. A step only adds; what moves data is an online migration of its own
//! ([`crate::upgrade`]), so that a release before and one after can both use the result.

use super::{Db, DbError, Tx};

/// The schema of the release before `backup_status`.
pub const BASE_REVISION: &str = "0001_base";
/// The schema this build needs.
pub const HEAD_REVISION: &str = "0006_filters";

const STEPS: &[(&str, &str)] = &[
    (BASE_REVISION, include_str!("migrations/0001_base.sql")),
    ("0002_backup_status", include_str!("migrations/0002_backup_status.sql")),
    ("0003_qos_and_encryption", include_str!("migrations/0003_qos_and_encryption.sql")),
    ("0004_pages", include_str!("migrations/0004_pages.sql")),
    ("0005_metadata", include_str!("migrations/0005_metadata.sql")),
    (HEAD_REVISION, include_str!("migrations/0006_filters.sql")),
];

const REVISION_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS schema_revision (version_num TEXT NOT NULL PRIMARY KEY)";

/// What a database's schema is to this build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaState {
    Empty,
    /// Known, and older than this build needs.
    Behind(String),
    Head,
    /// Made by a build that this one does not know. Steps only add, so it can be used.
    Ahead(String),
}

impl Db {
    /// The revision of the schema, if there is one.
    pub async fn revision(&self) -> Result<Option<String>, DbError> {
        let sql = "SELECT version_num FROM schema_revision";
        match self.fetch_one(sql, &[]).await {
            Ok(row) => row.map(|row| row.text("version_num")).transpose(),
            Err(DbError::Statement(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    pub async fn schema_state(&self) -> Result<SchemaState, DbError> {
        Ok(match self.revision().await? {
            None => SchemaState::Empty,
            Some(found) if found == HEAD_REVISION => SchemaState::Head,
            Some(found) if STEPS.iter().any(|(name, _)| *name == found) => {
                SchemaState::Behind(found)
            }
            Some(found) => SchemaState::Ahead(found),
        })
    }

    /// Refuses a schema this build cannot work on.
    pub async fn require_schema(&self) -> Result<(), DbError> {
        match self.schema_state().await? {
            SchemaState::Head | SchemaState::Ahead(_) => Ok(()),
            SchemaState::Empty => {
                Err(DbError::Schema { found: "missing".to_owned(), needed: HEAD_REVISION })
            }
            SchemaState::Behind(found) => Err(DbError::Schema { found, needed: HEAD_REVISION }),
        }
    }

    /// Takes the steps that are missing, up to `target` or the newest; those taken.
    pub async fn sync(&self, target: Option<&str>) -> Result<Vec<&'static str>, DbError> {
        let target = target.unwrap_or(HEAD_REVISION);
        let Some(last) = STEPS.iter().position(|(name, _)| *name == target) else {
            return Err(DbError::Schema { found: target.to_owned(), needed: HEAD_REVISION });
        };
        let mut tx = self.begin().await?;
        if self.is_postgres() {
            // Two that start together take turns.
            tx.execute("SELECT pg_advisory_xact_lock(87760001)", &[]).await?;
        }
        tx.execute(REVISION_TABLE, &[]).await?;
        let found = tx.fetch_one("SELECT version_num FROM schema_revision", &[]).await?;
        let found = found.map(|row| row.text("version_num")).transpose()?;
        let done = match &found {
            None => 0,
            Some(found) => match STEPS.iter().position(|(name, _)| name == found) {
                Some(at) => at + 1,
                // Newer than this build: nothing to add.
                None => return Ok(Vec::new()),
            },
        };
        let mut taken = Vec::new();
        for (name, script) in STEPS.iter().take(last + 1).skip(done) {
            step(&mut tx, script).await?;
            taken.push(*name);
        }
        if let Some(newest) = taken.last() {
            tx.execute("DELETE FROM schema_revision", &[]).await?;
            let sql = "INSERT INTO schema_revision (version_num) VALUES ($1)";
            tx.execute(sql, &[(*newest).into()]).await?;
        }
        tx.commit().await?;
        Ok(taken)
    }
}

async fn step(tx: &mut Tx, script: &str) -> Result<(), DbError> {
    for statement in script.split(";\n").map(str::trim).filter(|it| !it.is_empty()) {
        tx.execute(statement.trim_end_matches(';'), &[]).await?;
    }
    Ok(())
}
