//! Snapshots of volumes.

use super::list::{self, ListError, Page, Source};
use super::{Metadata, Pairs, Store, now, rows};
use crate::sql::{DbError, Row, Tx};

#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) id: String,
    pub(crate) user_id: Option<String>,
    pub(crate) project_id: String,
    pub(crate) volume_id: String,
    pub(crate) group_snapshot_id: Option<String>,
    pub(crate) status: String,
    pub(crate) progress: Option<String>,
    pub(crate) size: i64,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) volume_type_id: Option<String>,
    pub(crate) provider_id: Option<String>,
    pub(crate) consumes_quota: bool,
    pub(crate) created_at: String,
    pub(crate) updated_at: Option<String>,
    pub(crate) metadata: Metadata,
}

const COLUMNS: &str = "snapshots.id, snapshots.user_id, snapshots.project_id, snapshots.volume_id, \
    snapshots.group_snapshot_id, snapshots.status, snapshots.progress, snapshots.volume_size, \
    snapshots.display_name, snapshots.display_description, snapshots.volume_type_id, \
    snapshots.provider_id, snapshots.use_quota, snapshots.created_at, snapshots.updated_at";

/// The progress of one that was taken.
pub(crate) const WHOLE: &str = "100%";

/// What pages are made of.
pub(crate) const SOURCE: Source<'static> =
    Source { table: "snapshots", joins: "", columns: COLUMNS };

impl Snapshot {
    fn of(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.text("id")?,
            user_id: row.opt("user_id")?,
            project_id: row.text("project_id")?,
            volume_id: row.text("volume_id")?,
            group_snapshot_id: row.opt("group_snapshot_id")?,
            status: row.text("status")?,
            progress: row.opt("progress")?,
            size: row.int("volume_size")?,
            name: row.opt("display_name")?,
            description: row.opt("display_description")?,
            volume_type_id: row.opt("volume_type_id")?,
            provider_id: row.opt("provider_id")?,
            consumes_quota: row.truth("use_quota")?,
            created_at: row.text("created_at")?,
            updated_at: row.opt("updated_at")?,
            metadata: Metadata::new(),
        })
    }
}

/// What a new snapshot is.
#[derive(Debug, Clone)]
pub(crate) struct NewSnapshot {
    pub(crate) id: String,
    pub(crate) user_id: String,
    pub(crate) project_id: String,
    pub(crate) volume_id: String,
    pub(crate) volume_type_id: String,
    pub(crate) size: i64,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) metadata: Metadata,
    /// The name of the volume behind the row now, which another may take the place of.
    pub(crate) provider_id: String,
}

impl Store {
    pub(crate) async fn snapshot(
        &self,
        id: &str,
        project: Option<&str>,
    ) -> Result<Option<Snapshot>, DbError> {
        let row = rows::find(&self.db, ("snapshots", COLUMNS), id, project).await?;
        let Some(row) = row else { return Ok(None) };
        let mut snapshot = Snapshot::of(&row)?;
        snapshot.metadata = Pairs::Snapshot.get(self, id).await?;
        Ok(Some(snapshot))
    }

    pub(crate) async fn snapshots(
        &self,
        page: &Page,
    ) -> Result<(Vec<Snapshot>, Option<i64>), ListError> {
        let found = list::fetch(&self.db, SOURCE, page).await?;
        let mut snapshots = found.rows.iter().map(Snapshot::of).collect::<Result<Vec<_>, _>>()?;
        let ids = snapshots.iter().map(|it| it.id.as_str());
        let mut metadata = Pairs::Snapshot.get_all(self, ids).await?;
        for one in &mut snapshots {
            one.metadata = metadata.remove(&one.id).unwrap_or_default();
        }
        Ok((snapshots, found.count))
    }

    /// Whose a live snapshot is.
    pub(crate) async fn snapshot_project(
        &self,
        tx: &mut Tx,
        id: &str,
    ) -> Result<Option<String>, DbError> {
        let sql = "SELECT project_id FROM snapshots WHERE id = $1 AND deleted = 0";
        let row = tx.fetch_one(sql, &[id.into()]).await?;
        row.map(|row| row.text("project_id")).transpose()
    }

    /// The newest one of a volume.
    pub(crate) async fn latest_snapshot(&self, volume: &str) -> Result<Option<Snapshot>, DbError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM snapshots WHERE deleted = 0 AND volume_id = $1 \
             ORDER BY created_at DESC, id DESC LIMIT 1"
        );
        let row = self.db.fetch_one(&sql, &[volume.into()]).await?;
        row.map(|row| Snapshot::of(&row)).transpose()
    }

    pub(crate) async fn insert_snapshot(
        &self,
        tx: &mut Tx,
        new: &NewSnapshot,
    ) -> Result<(), DbError> {
        tx.execute(
            "INSERT INTO snapshots (id, user_id, project_id, volume_id, volume_type_id, volume_size, \
             display_name, display_description, provider_id, status, progress, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'creating', '0%', $10)",
            &[
                (&new.id).into(),
                (&new.user_id).into(),
                (&new.project_id).into(),
                (&new.volume_id).into(),
                (&new.volume_type_id).into(),
                new.size.into(),
                new.name.clone().into(),
                new.description.clone().into(),
                (&new.provider_id).into(),
                now().into(),
            ],
        )
        .await?;
        Pairs::Snapshot.put(tx, &new.id, &new.metadata).await
    }

    /// Moves a snapshot on if its status is one of those given.
    pub(crate) async fn move_snapshot(
        &self,
        tx: &mut Tx,
        id: &str,
        from: &[&str],
        to: &str,
    ) -> Result<bool, DbError> {
        let whole = [("progress", WHOLE.into())];
        let also: &[_] = if to == "available" { &whole } else { &[] };
        rows::move_on(tx, "snapshots", id, (from, to), also).await
    }

    pub(crate) async fn forget_snapshot(&self, tx: &mut Tx, id: &str) -> Result<(), DbError> {
        rows::forget(tx, "snapshots", id).await
    }

    /// Which live snapshots a volume has, for a deletion of all of them.
    pub(crate) async fn snapshots_of(
        &self,
        tx: &mut Tx,
        volume: &str,
    ) -> Result<Vec<Snapshot>, DbError> {
        let sql = format!("SELECT {COLUMNS} FROM snapshots WHERE deleted = 0 AND volume_id = $1");
        let rows = tx.fetch(&sql, &[volume.into()]).await?;
        rows.iter().map(Snapshot::of).collect()
    }
}
