//! Attachments of volumes to servers.

use super::list::{self, ListError, Page, Source};
use super::statement::Statement;
use super::{Store, now};
use crate::sql::{DbError, Row, Tx};

#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    pub(crate) id: String,
    pub(crate) volume_id: String,
    pub(crate) instance: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) mountpoint: Option<String>,
    pub(crate) attached_at: Option<String>,
    pub(crate) detached_at: Option<String>,
    pub(crate) status: String,
    pub(crate) mode: Option<String>,
    pub(crate) connection_info: Option<String>,
}

const COLUMNS: &str = "volume_attachment.id, volume_attachment.volume_id, \
    volume_attachment.instance_uuid, volume_attachment.attached_host, volume_attachment.mountpoint, \
    volume_attachment.attach_time, volume_attachment.detach_time, volume_attachment.attach_status, \
    volume_attachment.attach_mode, volume_attachment.connection_info";
const JOINS: &str = " JOIN volumes ON volumes.id = volume_attachment.volume_id";

/// What pages are made of.
pub(crate) const SOURCE: Source<'static> =
    Source { table: "volume_attachment", joins: JOINS, columns: COLUMNS };

impl Attachment {
    fn of(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.text("id")?,
            volume_id: row.text("volume_id")?,
            instance: row.opt("instance_uuid")?,
            host: row.opt("attached_host")?,
            mountpoint: row.opt("mountpoint")?,
            attached_at: row.opt("attach_time")?,
            detached_at: row.opt("detach_time")?,
            status: row.text("attach_status")?,
            mode: row.opt("attach_mode")?,
            connection_info: row.opt("connection_info")?,
        })
    }

    /// Of a row that holds more than one thing.
    pub(super) fn of_volume(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.text("attachment_id")?,
            volume_id: row.text("of_volume")?,
            instance: row.opt("instance_uuid")?,
            host: row.opt("attached_host")?,
            mountpoint: row.opt("mountpoint")?,
            attached_at: row.opt("attach_time")?,
            detached_at: row.opt("detach_time")?,
            status: row.text("attached_as")?,
            mode: row.opt("attach_mode")?,
            connection_info: row.opt("connection_info")?,
        })
    }
}

/// What a new attachment is.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewAttachment {
    pub(crate) id: String,
    pub(crate) volume_id: String,
    pub(crate) instance: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) mountpoint: Option<String>,
    pub(crate) status: &'static str,
    pub(crate) mode: Option<String>,
}

impl Store {
    /// An attachment of a volume that is the project's, if one is given.
    pub(crate) async fn attachment(
        &self,
        id: &str,
        project: Option<&str>,
    ) -> Result<Option<Attachment>, DbError> {
        let mut sql = Statement::new("SELECT ");
        sql.push(COLUMNS).push(" FROM volume_attachment").push(JOINS);
        sql.push(" WHERE volume_attachment.deleted = 0 AND volume_attachment.id = ").bind(id);
        if let Some(project) = project {
            sql.push(" AND volumes.project_id = ").bind(project);
        }
        let row = self.db.fetch_one(&sql.text, &sql.values).await?;
        row.map(|row| Attachment::of(&row)).transpose()
    }

    pub(crate) async fn attachments(
        &self,
        page: &Page,
    ) -> Result<(Vec<Attachment>, Option<i64>), ListError> {
        let found = list::fetch(&self.db, SOURCE, page).await?;
        let rows = found.rows.iter().map(Attachment::of).collect::<Result<Vec<_>, _>>()?;
        Ok((rows, found.count))
    }

    pub(crate) async fn insert_attachment(
        &self,
        tx: &mut Tx,
        new: &NewAttachment,
    ) -> Result<(), DbError> {
        let time = now();
        let attached = (new.status == "attached").then(|| time.clone());
        tx.execute(
            "INSERT INTO volume_attachment (id, volume_id, instance_uuid, attached_host, mountpoint, \
             attach_status, attach_mode, attach_time, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            &[
                (&new.id).into(),
                (&new.volume_id).into(),
                new.instance.clone().into(),
                new.host.clone().into(),
                new.mountpoint.clone().into(),
                new.status.into(),
                new.mode.clone().into(),
                attached.into(),
                time.into(),
            ],
        )
        .await
        .map(drop)
    }

    /// How a live attachment was asked to use its volume, where it was said.
    pub(crate) async fn attach_mode(
        &self,
        tx: &mut Tx,
        id: &str,
    ) -> Result<Option<String>, DbError> {
        let sql = "SELECT attach_mode FROM volume_attachment WHERE id = $1 AND deleted = 0";
        let row = tx.fetch_one(sql, &[id.into()]).await?;
        Ok(row.map(|row| row.opt("attach_mode")).transpose()?.flatten())
    }

    pub(crate) async fn set_attach_mode(
        &self,
        tx: &mut Tx,
        id: &str,
        mode: &str,
    ) -> Result<(), DbError> {
        let sql = "UPDATE volume_attachment SET attach_mode = $2 WHERE id = $1 AND deleted = 0";
        tx.execute(sql, &[id.into(), mode.into()]).await.map(drop)
    }

    /// Whether the attachment was live.
    pub(crate) async fn end_attachment(&self, tx: &mut Tx, id: &str) -> Result<bool, DbError> {
        let done = tx
            .execute(
                "UPDATE volume_attachment SET deleted = 1, attach_status = 'detached', \
                 deleted_at = $2, detach_time = $2, updated_at = $2 WHERE id = $1 AND deleted = 0",
                &[id.into(), now().into()],
            )
            .await?;
        Ok(done != 0)
    }

    /// All of a volume.
    pub(crate) async fn end_attachments(&self, tx: &mut Tx, volume: &str) -> Result<u64, DbError> {
        tx.execute(
            "UPDATE volume_attachment SET deleted = 1, attach_status = 'detached', \
             deleted_at = $2, detach_time = $2, updated_at = $2 WHERE volume_id = $1 AND deleted = 0",
            &[volume.into(), now().into()],
        )
        .await
    }

    /// Moves a live attachment on, and keeps what is known of its connection.
    pub(crate) async fn move_attachment(
        &self,
        tx: &mut Tx,
        id: &str,
        status: &str,
        connection: Option<(&str, &str)>,
    ) -> Result<bool, DbError> {
        let time = now();
        let attached = (status == "attached").then(|| time.clone());
        let mut sql = Statement::new("UPDATE volume_attachment SET attach_status = ");
        sql.bind(status).push(", updated_at = ").bind(time);
        if let Some(attached) = attached {
            sql.push(", attach_time = ").bind(attached);
        }
        if let Some((connector, info)) = connection {
            sql.push(", connector = ").bind(connector).push(", connection_info = ").bind(info);
        }
        sql.push(" WHERE deleted = 0 AND id = ").bind(id);
        Ok(tx.execute(&sql.text, &sql.values).await? != 0)
    }
}
