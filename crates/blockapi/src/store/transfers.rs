//! Volumes on their way from one project to another.

use super::list::{self, ListError, Page, Source};
use super::statement::Statement;
use super::{Store, now};
use crate::sql::{DbError, Row, Tx};

#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    pub(crate) id: String,
    pub(crate) volume_id: String,
    pub(crate) name: Option<String>,
    pub(crate) salt: String,
    pub(crate) hash: String,
    pub(crate) no_snapshots: bool,
    pub(crate) source_project_id: Option<String>,
    pub(crate) destination_project_id: Option<String>,
    pub(crate) accepted: bool,
    pub(crate) created_at: String,
}

const COLUMNS: &str = "transfers.id, transfers.volume_id, transfers.display_name, transfers.salt, \
    transfers.crypt_hash, transfers.no_snapshots, transfers.source_project_id, \
    transfers.destination_project_id, transfers.accepted, transfers.created_at";
const JOINS: &str = " JOIN volumes ON volumes.id = transfers.volume_id";

/// What pages are made of.
pub(crate) const SOURCE: Source<'static> =
    Source { table: "transfers", joins: JOINS, columns: COLUMNS };

impl Transfer {
    fn of(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.text("id")?,
            volume_id: row.text("volume_id")?,
            name: row.opt("display_name")?,
            salt: row.text("salt")?,
            hash: row.text("crypt_hash")?,
            no_snapshots: row.truth("no_snapshots")?,
            source_project_id: row.opt("source_project_id")?,
            destination_project_id: row.opt("destination_project_id")?,
            accepted: row.truth("accepted")?,
            created_at: row.text("created_at")?,
        })
    }
}

impl Store {
    /// Of any project: whoever knows the id and the key may accept.
    pub(crate) async fn transfer(
        &self,
        id: &str,
        project: Option<&str>,
    ) -> Result<Option<Transfer>, DbError> {
        let mut sql = Statement::new("SELECT ");
        sql.push(COLUMNS).push(" FROM transfers").push(JOINS);
        sql.push(" WHERE transfers.deleted = 0 AND transfers.id = ").bind(id);
        if let Some(project) = project {
            sql.push(" AND volumes.project_id = ").bind(project);
        }
        let row = self.db.fetch_one(&sql.text, &sql.values).await?;
        row.map(|row| Transfer::of(&row)).transpose()
    }

    pub(crate) async fn transfers(
        &self,
        page: &Page,
    ) -> Result<(Vec<Transfer>, Option<i64>), ListError> {
        let found = list::fetch(&self.db, SOURCE, page).await?;
        let rows = found.rows.iter().map(Transfer::of).collect::<Result<Vec<_>, _>>()?;
        Ok((rows, found.count))
    }

    pub(crate) async fn insert_transfer(&self, tx: &mut Tx, new: &Transfer) -> Result<(), DbError> {
        tx.execute(
            "INSERT INTO transfers (id, volume_id, display_name, salt, crypt_hash, no_snapshots, \
             source_project_id, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            &[
                (&new.id).into(),
                (&new.volume_id).into(),
                new.name.clone().into(),
                (&new.salt).into(),
                (&new.hash).into(),
                new.no_snapshots.into(),
                new.source_project_id.clone().into(),
                (&new.created_at).into(),
            ],
        )
        .await
        .map(drop)
    }

    /// Ends all transfers of a volume: a key that was given to somebody before opens nothing later.
    pub(crate) async fn end_transfers_of(&self, tx: &mut Tx, volume: &str) -> Result<(), DbError> {
        let sql = "UPDATE transfers SET deleted = 1, deleted_at = $2 WHERE volume_id = $1 AND deleted = 0";
        tx.execute(sql, &[volume.into(), now().into()]).await.map(drop)
    }

    /// Ends a transfer; false if it had ended already.
    pub(crate) async fn end_transfer(
        &self,
        tx: &mut Tx,
        id: &str,
        accepted_by: Option<&str>,
    ) -> Result<bool, DbError> {
        let done = tx
            .execute(
                "UPDATE transfers SET deleted = 1, deleted_at = $2, accepted = $3, \
                 destination_project_id = $4 WHERE id = $1 AND deleted = 0",
                &[id.into(), now().into(), accepted_by.is_some().into(), accepted_by.into()],
            )
            .await?;
        Ok(done != 0)
    }
}
