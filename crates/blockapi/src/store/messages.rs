//! Messages to users about work that failed after it was accepted.

use super::list::{self, ListError, Page, Source};
use super::statement::Statement;
use super::{Store, new_id, now, stamp_in};
use crate::sql::{DbError, Row, Tx};

const LIFE_SECONDS: i64 = 30 * 24 * 3600;

#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) level: String,
    pub(crate) request_id: Option<String>,
    pub(crate) resource_type: Option<String>,
    pub(crate) resource_uuid: Option<String>,
    pub(crate) event_id: String,
    pub(crate) action_id: String,
    pub(crate) detail_id: String,
    pub(crate) expires_at: Option<String>,
    pub(crate) created_at: String,
}

const COLUMNS: &str = "messages.id, messages.message_level, messages.request_id, \
    messages.resource_type, messages.resource_uuid, messages.event_id, messages.action_id, \
    messages.detail_id, messages.expires_at, messages.created_at";

/// What pages are made of.
pub(crate) const SOURCE: Source<'static> =
    Source { table: "messages", joins: "", columns: COLUMNS };

/// What failed, by the dialect's number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    CreateVolume,
    CopyVolumeToImage,
    CopyImageToVolume,
    DeleteVolume,
    ExtendVolume,
    CreateSnapshot,
    DeleteSnapshot,
    CreateBackup,
    DeleteBackup,
    RestoreBackup,
}

impl Action {
    const ALL: [(Self, &'static str, &'static str); 10] = [
        (Self::CreateVolume, "001", "schedule allocate volume"),
        (Self::CopyVolumeToImage, "003", "copy volume to image"),
        (Self::CopyImageToVolume, "005", "copy image to volume"),
        (Self::ExtendVolume, "007", "extend volume"),
        (Self::CreateSnapshot, "009", "create snapshot"),
        (Self::DeleteSnapshot, "010", "delete snapshot"),
        (Self::DeleteVolume, "008", "delete volume"),
        (Self::CreateBackup, "013", "create backup"),
        (Self::DeleteBackup, "014", "delete backup"),
        (Self::RestoreBackup, "015", "restore backup"),
    ];

    fn id(self) -> &'static str {
        let found = Self::ALL
            .iter()
            .find(|(it, _, _)| std::mem::discriminant(it) == std::mem::discriminant(&self));
        found.map_or("000", |(_, id, _)| id)
    }
}

/// What a message says, from its numbers.
pub(crate) fn text(action: &str, detail: &str) -> String {
    let action =
        Action::ALL.iter().find(|(_, id, _)| *id == action).map_or("unknown action", |it| it.2);
    let detail = match detail {
        "003" => "No backend offers what the extra specs of the volume type ask for.",
        "017" => "Backup state does not allow the operation",
        "018" => "The backup service is down",
        "020" => "Backup driver failed to create backup.",
        "024" => "Schedule is not possible: there is no service that could do it.",
        "025" => "Backup driver failed to delete backup.",
        "026" => "Backup driver failed to restore backup.",
        "027" => "Volume state does not allow the operation",
        _ => "An unknown error occurred.",
    };
    format!("{action}:{detail}")
}

/// A message to be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewMessage<'a> {
    pub(crate) project_id: &'a str,
    pub(crate) request_id: Option<&'a str>,
    pub(crate) resource_type: &'static str,
    pub(crate) resource_id: &'a str,
    pub(crate) action: Action,
    pub(crate) detail: &'static str,
}

impl Message {
    fn of(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.text("id")?,
            level: row.text("message_level")?,
            request_id: row.opt("request_id")?,
            resource_type: row.opt("resource_type")?,
            resource_uuid: row.opt("resource_uuid")?,
            event_id: row.text("event_id")?,
            action_id: row.text("action_id")?,
            detail_id: row.text("detail_id")?,
            expires_at: row.opt("expires_at")?,
            created_at: row.text("created_at")?,
        })
    }
}

impl Store {
    pub(crate) async fn tell(&self, tx: &mut Tx, new: NewMessage<'_>) -> Result<(), DbError> {
        let event = format!("VOLUME_{}_{}_{}", new.resource_type, new.action.id(), new.detail);
        tx.execute(
            "INSERT INTO messages (id, project_id, message_level, request_id, resource_type, \
             resource_uuid, event_id, action_id, detail_id, expires_at, created_at) \
             VALUES ($1, $2, 'ERROR', $3, $4, $5, $6, $7, $8, $9, $10)",
            &[
                new_id().into(),
                new.project_id.into(),
                new.request_id.into(),
                new.resource_type.into(),
                new.resource_id.into(),
                event.into(),
                new.action.id().into(),
                new.detail.into(),
                stamp_in(LIFE_SECONDS).into(),
                now().into(),
            ],
        )
        .await
        .map(drop)
    }

    pub(crate) async fn message(
        &self,
        id: &str,
        project: Option<&str>,
    ) -> Result<Option<Message>, DbError> {
        let mut sql = Statement::new("SELECT ");
        sql.push(COLUMNS).push(" FROM messages WHERE deleted = 0 AND id = ").bind(id);
        if let Some(project) = project {
            sql.push(" AND project_id = ").bind(project);
        }
        let row = self.db.fetch_one(&sql.text, &sql.values).await?;
        row.map(|row| Message::of(&row)).transpose()
    }

    pub(crate) async fn messages(
        &self,
        page: &Page,
    ) -> Result<(Vec<Message>, Option<i64>), ListError> {
        let found = list::fetch(&self.db, SOURCE, page).await?;
        let rows = found.rows.iter().map(Message::of).collect::<Result<Vec<_>, _>>()?;
        Ok((rows, found.count))
    }

    pub(crate) async fn delete_message(&self, id: &str) -> Result<bool, DbError> {
        let sql = "UPDATE messages SET deleted = 1, deleted_at = $2 WHERE id = $1 AND deleted = 0";
        Ok(self.db.execute(sql, &[id.into(), now().into()]).await? != 0)
    }

    /// Messages whose time has come.
    pub(crate) async fn expire_messages(&self) -> Result<u64, DbError> {
        let sql = "UPDATE messages SET deleted = 1, deleted_at = $1 WHERE deleted = 0 AND expires_at < $1";
        self.db.execute(sql, &[now().into()]).await
    }
}
