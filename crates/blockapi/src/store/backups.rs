//! Backups of volumes and snapshots.

use super::list::{self, ListError, Page, Source};
use super::statement::Statement;
use super::work::Verb;
use super::{Metadata, Pairs, Store, now, rows};
use crate::sql::{DbError, Row, Tx, Value};

/// Where the message of a failure is cut.
const FAIL_REASON_CHARS: usize = 255;

#[derive(Debug, Clone)]
pub(crate) struct Backup {
    pub(crate) id: String,
    pub(crate) user_id: Option<String>,
    pub(crate) project_id: String,
    pub(crate) volume_id: String,
    pub(crate) availability_zone: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) container: Option<String>,
    pub(crate) parent_id: Option<String>,
    pub(crate) status: String,
    pub(crate) fail_reason: Option<String>,
    /// What the backend calls it.
    pub(crate) service_metadata: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) size: i64,
    pub(crate) object_count: i64,
    pub(crate) dependents: i64,
    pub(crate) snapshot_id: Option<String>,
    pub(crate) data_timestamp: Option<String>,
    pub(crate) restore_volume_id: Option<String>,
    pub(crate) created_at: String,
    pub(crate) updated_at: Option<String>,
    pub(crate) metadata: Metadata,
}

const COLUMNS: &str = "backups.id, backups.user_id, backups.project_id, backups.volume_id, \
    backups.availability_zone, backups.display_name, backups.display_description, backups.container, \
    backups.parent_id, backups.status, backups.fail_reason, backups.service_metadata, \
    backups.service, backups.size, backups.object_count, backups.snapshot_id, \
    backups.data_timestamp, backups.restore_volume_id, backups.created_at, backups.updated_at, \
    (SELECT COUNT(*) FROM backups child WHERE child.parent_id = backups.id AND child.deleted = 0) \
    AS dependents";

/// What pages are made of.
pub(crate) const SOURCE: Source<'static> = Source { table: "backups", joins: "", columns: COLUMNS };

impl Backup {
    fn of(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.text("id")?,
            user_id: row.opt("user_id")?,
            project_id: row.text("project_id")?,
            volume_id: row.text("volume_id")?,
            availability_zone: row.opt("availability_zone")?,
            name: row.opt("display_name")?,
            description: row.opt("display_description")?,
            container: row.opt("container")?,
            parent_id: row.opt("parent_id")?,
            status: row.text("status")?,
            fail_reason: row.opt("fail_reason")?,
            service_metadata: row.opt("service_metadata")?,
            service: row.opt("service")?,
            size: row.int("size")?,
            object_count: row.int("object_count")?,
            dependents: row.int("dependents")?,
            snapshot_id: row.opt("snapshot_id")?,
            data_timestamp: row.opt("data_timestamp")?,
            restore_volume_id: row.opt("restore_volume_id")?,
            created_at: row.text("created_at")?,
            updated_at: row.opt("updated_at")?,
            metadata: Metadata::new(),
        })
    }
}

/// What a new backup is.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewBackup {
    pub(crate) id: String,
    pub(crate) user_id: String,
    pub(crate) project_id: String,
    pub(crate) volume_id: String,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) container: Option<String>,
    pub(crate) availability_zone: Option<String>,
    pub(crate) parent_id: Option<String>,
    pub(crate) snapshot_id: Option<String>,
    pub(crate) size: i64,
    pub(crate) status: &'static str,
    pub(crate) fail_reason: Option<&'static str>,
    /// Of the snapshot; of a volume, set when its copy is taken.
    pub(crate) data_timestamp: Option<String>,
    pub(crate) object_count: i64,
    pub(crate) service: Option<String>,
    pub(crate) service_metadata: Option<String>,
    pub(crate) metadata: Metadata,
}

impl Store {
    pub(crate) async fn backup(
        &self,
        id: &str,
        project: Option<&str>,
    ) -> Result<Option<Backup>, DbError> {
        let row = rows::find(&self.db, ("backups", COLUMNS), id, project).await?;
        let Some(row) = row else { return Ok(None) };
        let mut backup = Backup::of(&row)?;
        backup.metadata = Pairs::Backup.get(self, id).await?;
        Ok(Some(backup))
    }

    /// A live one, as it is for a transaction that holds it. Without its metadata.
    pub(crate) async fn held_backup(
        &self,
        tx: &mut Tx,
        id: &str,
    ) -> Result<Option<Backup>, DbError> {
        let sql =
            format!("SELECT {COLUMNS} FROM backups WHERE backups.deleted = 0 AND backups.id = $1");
        let row = tx.fetch_one(&sql, &[id.into()]).await?;
        row.map(|row| Backup::of(&row)).transpose()
    }

    pub(crate) async fn backups(
        &self,
        page: &Page,
    ) -> Result<(Vec<Backup>, Option<i64>), ListError> {
        let found = list::fetch(&self.db, SOURCE, page).await?;
        let mut backups = found.rows.iter().map(Backup::of).collect::<Result<Vec<_>, _>>()?;
        let ids = backups.iter().map(|it| it.id.as_str());
        let mut metadata = Pairs::Backup.get_all(self, ids).await?;
        for one in &mut backups {
            one.metadata = metadata.remove(&one.id).unwrap_or_default();
        }
        Ok((backups, found.count))
    }

    /// What an incremental backup builds on: the newest usable one of the volume, and for a backup of
    /// a snapshot one that is older than the snapshot. It is held, so that nobody deletes it meanwhile.
    pub(crate) async fn incremental_parent(
        &self,
        tx: &mut Tx,
        volume: &str,
        project: &str,
        before: Option<&str>,
    ) -> Result<Option<String>, DbError> {
        let mut sql = Statement::new("SELECT id FROM backups WHERE deleted = 0 AND volume_id = ");
        sql.bind(volume).push(" AND project_id = ").bind(project);
        sql.push(" AND status = 'available'");
        if let Some(before) = before {
            sql.push(" AND data_timestamp < ").bind(before);
        }
        sql.push(" ORDER BY data_timestamp DESC, created_at DESC LIMIT 1");
        loop {
            let Some(row) = tx.fetch_one(&sql.text, &sql.values).await? else { return Ok(None) };
            let id = row.text("id")?;
            tx.lock("backups", &id).await?;
            // Once it is held it stays what it is; it may have changed before.
            let usable =
                "SELECT id FROM backups WHERE id = $1 AND deleted = 0 AND status = 'available'";
            if tx.fetch_one(usable, &[id.as_str().into()]).await?.is_some() {
                return Ok(Some(id));
            }
        }
    }

    pub(crate) async fn insert_backup(&self, tx: &mut Tx, new: &NewBackup) -> Result<(), DbError> {
        let time = now();
        let data_timestamp = new.data_timestamp.clone().unwrap_or_else(|| time.clone());
        tx.execute(
            "INSERT INTO backups (id, user_id, project_id, volume_id, display_name, \
             display_description, container, availability_zone, parent_id, snapshot_id, size, \
             data_timestamp, object_count, service, service_metadata, status, created_at, \
             fail_reason) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
             $16, $17, $18)",
            &[
                (&new.id).into(),
                (&new.user_id).into(),
                (&new.project_id).into(),
                (&new.volume_id).into(),
                new.name.clone().into(),
                new.description.clone().into(),
                new.container.clone().into(),
                new.availability_zone.clone().into(),
                new.parent_id.clone().into(),
                new.snapshot_id.clone().into(),
                new.size.into(),
                data_timestamp.into(),
                new.object_count.into(),
                new.service.clone().into(),
                new.service_metadata.clone().into(),
                new.status.into(),
                time.into(),
                new.fail_reason.into(),
            ],
        )
        .await?;
        Pairs::Backup.put(tx, &new.id, &new.metadata).await
    }

    /// Moves a backup on if its status is one of those given; all if none is.
    pub(crate) async fn move_backup(
        &self,
        tx: &mut Tx,
        id: &str,
        from: &[&str],
        to: &str,
        also: &[(&'static str, Value)],
    ) -> Result<bool, DbError> {
        rows::move_on(tx, "backups", id, (from, to), also).await
    }

    /// Whether another record is of the same stored backup, and stays. None comes until the
    /// transaction ends.
    pub(crate) async fn has_twin(&self, tx: &mut Tx, backup: &Backup) -> Result<bool, DbError> {
        let Some(handle) = &backup.service_metadata else { return Ok(false) };
        tx.lock_name(handle).await?;
        let sql = "SELECT id FROM backups WHERE service_metadata = $1 AND id <> $2 AND deleted = 0 \
             AND status <> 'deleting' LIMIT 1";
        let row = tx.fetch_one(sql, &[handle.into(), (&backup.id).into()]).await?;
        Ok(row.is_some())
    }

    /// Whether another record of the same stored backup is on its way out, perhaps with the data.
    pub(crate) async fn has_leaving_twin(&self, backup: &Backup) -> Result<bool, DbError> {
        let Some(handle) = &backup.service_metadata else { return Ok(false) };
        let sql = "SELECT id FROM backups WHERE service_metadata = $1 AND id <> $2 AND deleted = 0 \
             AND status = 'deleting' LIMIT 1";
        let row = self.db.fetch_one(sql, &[handle.into(), (&backup.id).into()]).await?;
        Ok(row.is_some())
    }

    pub(crate) async fn forget_backup(&self, tx: &mut Tx, id: &str) -> Result<(), DbError> {
        rows::forget(tx, "backups", id).await
    }
}

/// As a condition on a volume: no backup or restore of it was asked for after the one that began
/// then. After an administrator's reset the mark belongs to that one.
pub(crate) fn is_last(verb: Verb, begun: &str) -> Statement {
    let (kind, word) = verb.words();
    let mut sql = Statement::new(
        "NOT EXISTS (SELECT 1 FROM workers w JOIN backups b ON b.id = w.resource_id \
         WHERE b.deleted = 0 AND w.resource_type = ",
    );
    sql.bind(kind).push(" AND w.status = ").bind(word).push(" AND w.created_at > ").bind(begun);
    sql.push(match verb {
        Verb::BackupRestore => " AND b.restore_volume_id = volumes.id)",
        _ => " AND b.volume_id = volumes.id AND b.snapshot_id IS NULL)",
    });
    sql
}

/// A reason of a failure, short enough for its column.
pub(crate) fn reason(text: &str) -> String {
    text.chars().take(FAIL_REASON_CHARS).collect()
}
