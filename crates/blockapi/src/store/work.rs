//! Work under way: one row for each volume, snapshot or backup something is being done to. A worker
//! takes a row for a while, and what it writes at the end counts only while the row is still its own.

use serde_json::json;

use super::statement::Statement;
use super::{Store, just_after, new_id, now, seconds_since, stamp_in};
use crate::sql::{DbError, Row, Tx};

/// The name under which a worker is connected to a volume that it copies an image to or from.
pub(crate) const IMAGE_COPY: &str = "image-copy";

/// In what a volume is discarded with: it was before.
pub(crate) const AGAIN: &str = "again";

/// How long a worker may be silent before another takes over.
pub(crate) const LEASE_SECONDS: i64 = 30;

/// What is done, to what kind of row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    VolumeCreate,
    VolumeDelete,
    VolumeExtend,
    VolumeRetype,
    VolumeMigrate,
    VolumeRevert,
    /// The data of an image is written to it.
    VolumeFill,
    /// Its data is read into an image.
    VolumeUpload,
    SnapshotCreate,
    SnapshotDelete,
    BackupCreate,
    BackupRestore,
    BackupDelete,
    /// A record that came from elsewhere, until what it is of is found.
    BackupImport,
    /// A volume behind a row that another has taken the place of.
    Discard,
    /// The copy a backup was read from.
    DropCopy,
    /// A connection that could not be taken down when it ended.
    Disconnect,
    /// A revert that is no longer wanted.
    CancelRevert,
    /// A backup without a row, and its copy.
    DropBackup,
}

impl Verb {
    const ALL: [Self; 19] = [
        Self::VolumeCreate,
        Self::VolumeDelete,
        Self::VolumeExtend,
        Self::VolumeRetype,
        Self::VolumeMigrate,
        Self::VolumeRevert,
        Self::VolumeFill,
        Self::VolumeUpload,
        Self::SnapshotCreate,
        Self::SnapshotDelete,
        Self::BackupCreate,
        Self::BackupRestore,
        Self::BackupDelete,
        Self::BackupImport,
        Self::Discard,
        Self::DropCopy,
        Self::Disconnect,
        Self::CancelRevert,
        Self::DropBackup,
    ];

    /// Kind of row and word, as stored.
    pub(crate) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::VolumeCreate => ("volume", "creating"),
            Self::VolumeDelete => ("volume", "deleting"),
            Self::VolumeExtend => ("volume", "extending"),
            Self::VolumeRetype => ("volume", "retyping"),
            Self::VolumeMigrate => ("volume", "migrating"),
            Self::VolumeRevert => ("volume", "reverting"),
            Self::VolumeFill => ("volume", "downloading"),
            Self::VolumeUpload => ("volume", "uploading"),
            Self::SnapshotCreate => ("snapshot", "creating"),
            Self::SnapshotDelete => ("snapshot", "deleting"),
            Self::BackupCreate => ("backup", "creating"),
            Self::BackupRestore => ("backup", "restoring"),
            Self::BackupDelete => ("backup", "deleting"),
            Self::BackupImport => ("backup", "importing"),
            Self::Discard => ("remnant", "deleting"),
            Self::DropCopy => ("copy", "deleting"),
            Self::Disconnect => ("connection", "ending"),
            Self::CancelRevert => ("revert", "ending"),
            Self::DropBackup => ("unfinished", "deleting"),
        }
    }

    fn parse(kind: &str, word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.words() == (kind, word))
    }
}

/// One piece of work.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) id: String,
    pub(crate) verb: Verb,
    pub(crate) resource_id: String,
    /// Arguments, as JSON.
    pub(crate) detail: serde_json::Value,
    pub(crate) request_id: Option<String>,
    pub(crate) created_at: String,
}

impl Work {
    /// How many seconds ago it was asked for.
    pub(crate) fn age(&self) -> i64 {
        seconds_since(&self.created_at)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.detail.get(key).and_then(serde_json::Value::as_str)
    }

    /// Work of a kind this build does not know is left alone.
    fn of(row: &Row) -> Result<Option<Self>, DbError> {
        let Some(verb) = Verb::parse(&row.text("resource_type")?, &row.text("status")?) else {
            return Ok(None);
        };
        let detail = row.opt("detail")?.and_then(|text| serde_json::from_str(&text).ok());
        Ok(Some(Self {
            id: row.text("id")?,
            verb,
            resource_id: row.text("resource_id")?,
            detail: detail.unwrap_or_default(),
            request_id: row.opt("request_id")?,
            created_at: row.text("created_at")?,
        }))
    }
}

const COLUMNS: &str = "id, resource_type, resource_id, status, detail, request_id, created_at";

async fn insert(
    tx: &mut Tx,
    verb: Verb,
    resource: &str,
    detail: &serde_json::Value,
    request: &str,
    not_before: Option<String>,
) -> Result<(), DbError> {
    insert_at(tx, verb, resource, detail, request, (now(), not_before)).await
}

async fn insert_at(
    tx: &mut Tx,
    verb: Verb,
    resource: &str,
    detail: &serde_json::Value,
    request: &str,
    (created_at, not_before): (String, Option<String>),
) -> Result<(), DbError> {
    let (kind, word) = verb.words();
    tx.execute(
        "INSERT INTO workers (id, resource_type, resource_id, status, detail, request_id, \
         created_at, not_before) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        &[
            new_id().into(),
            kind.into(),
            resource.into(),
            word.into(),
            detail.to_string().into(),
            request.into(),
            created_at.into(),
            not_before.into(),
        ],
    )
    .await
    .map(drop)
}

impl Store {
    /// Asks for the removal of what a worker may have on its way that does not know yet that it is no
    /// longer wanted: once it must have noticed.
    pub(crate) async fn ask_late(
        &self,
        tx: &mut Tx,
        verb: Verb,
        resource: &str,
        detail: &serde_json::Value,
    ) -> Result<(), DbError> {
        self.cancel_only(tx, verb, resource).await?;
        insert(tx, verb, resource, detail, "", Some(stamp_in(LEASE_SECONDS))).await
    }

    /// The same for a volume behind no row.
    pub(crate) async fn discard_late(&self, tx: &mut Tx, name: &str) -> Result<(), DbError> {
        self.ask_late(tx, Verb::Discard, name, &json!({ AGAIN: true })).await
    }

    /// Asks for work, in the transaction that made it necessary; it replaces what was being done to
    /// the same row.
    pub(crate) async fn ask(
        &self,
        tx: &mut Tx,
        verb: Verb,
        resource: &str,
        detail: &serde_json::Value,
        request: &str,
    ) -> Result<(), DbError> {
        let (kind, _) = verb.words();
        self.cancel(tx, kind, resource).await?;
        insert(tx, verb, resource, detail, request, None).await
    }

    /// The same for a backup or a restore of a volume, which the transaction holds: it was asked for
    /// after all others of that volume, whatever the clocks of those who let them in say.
    pub(crate) async fn ask_in_turn(
        &self,
        tx: &mut Tx,
        verb: Verb,
        (backup, volume): (&str, &str),
        detail: &serde_json::Value,
        request: &str,
    ) -> Result<(), DbError> {
        let (kind, word) = verb.words();
        self.cancel(tx, kind, backup).await?;
        let column = match verb {
            Verb::BackupRestore => "restore_volume_id",
            _ => "volume_id",
        };
        let sql = format!(
            "SELECT MAX(w.created_at) AS newest FROM workers w JOIN backups b ON b.id = w.resource_id \
             WHERE b.{column} = $1 AND b.deleted = 0 AND w.resource_type = $2 AND w.status = $3"
        );
        let row = tx.fetch_one(&sql, &[volume.into(), kind.into(), word.into()]).await?;
        let newest = row.map(|row| row.opt("newest")).transpose()?.flatten();
        let created_at = newest.map_or_else(now, |it| now().max(just_after(&it)));
        insert_at(tx, verb, backup, detail, request, (created_at, None)).await
    }

    /// Whatever is being done to a row is no longer wanted, and nothing of it is left behind.
    pub(crate) async fn cancel(&self, tx: &mut Tx, kind: &str, id: &str) -> Result<(), DbError> {
        let sql = format!(
            "DELETE FROM workers WHERE resource_type = $1 AND resource_id = $2 RETURNING {COLUMNS}"
        );
        for row in tx.fetch(&sql, &[kind.into(), id.into()]).await? {
            if let Some(work) = Work::of(&row)? {
                self.undo(tx, &work).await?;
            }
        }
        Ok(())
    }

    /// Forgets work that holds nothing.
    async fn cancel_only(&self, tx: &mut Tx, verb: Verb, resource: &str) -> Result<(), DbError> {
        let sql = "DELETE FROM workers WHERE resource_type = $1 AND resource_id = $2";
        tx.execute(sql, &[verb.words().0.into(), resource.into()]).await.map(drop)
    }

    /// Gives back what work held that does not come to its end.
    pub(crate) async fn undo(&self, tx: &mut Tx, work: &Work) -> Result<(), DbError> {
        if let Some(place) = work.text("place") {
            self.discard_late(tx, place).await?;
        }
        match work.verb {
            Verb::VolumeRevert => {
                let snapshot = work.text("snapshot").unwrap_or_default();
                self.move_snapshot(tx, snapshot, &["restoring"], "available").await?;
                if let Some(holder) = work.text("holder") {
                    self.cancel_only(tx, Verb::CancelRevert, holder).await?;
                    insert(tx, Verb::CancelRevert, holder, &json!({}), "", None).await?;
                }
            }
            Verb::VolumeFill | Verb::VolumeUpload => {
                // Whoever copies is cut off.
                let volume = work.text("place").or(work.text("holder"));
                let volume = volume.unwrap_or(&work.resource_id);
                let detail = json!({"volume": volume, "name": IMAGE_COPY});
                let key = format!("{volume}/{IMAGE_COPY}");
                self.cancel_only(tx, Verb::Disconnect, &key).await?;
                insert(tx, Verb::Disconnect, &key, &detail, "", None).await?;
            }
            Verb::VolumeMigrate => {
                let sql = "UPDATE volumes SET migration_status = 'error' \
                     WHERE id = $1 AND deleted = 0 AND migration_status = 'starting'";
                tx.execute(sql, &[work.resource_id.as_str().into()]).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// How much work there is of each kind, of all workers together.
    pub(crate) async fn work_counts(
        &self,
    ) -> Result<Vec<((&'static str, &'static str), i64)>, DbError> {
        let sql = "SELECT resource_type, status, COUNT(*) AS n FROM workers \
             GROUP BY resource_type, status";
        let rows = self.db.fetch(sql, &[]).await?;
        let mut counts: Vec<_> = Verb::ALL.into_iter().map(|it| (it.words(), 0)).collect();
        for row in rows {
            let (kind, word) = (row.text("resource_type")?, row.text("status")?);
            let known =
                counts.iter_mut().find(|((of, doing), _)| (*of, *doing) == (&*kind, &*word));
            if let Some((_, count)) = known {
                *count = row.int("n")?;
            }
        }
        Ok(counts)
    }

    /// Whether work is still this worker's.
    pub(crate) async fn holds(&self, work: &Work, owner: &str) -> Result<bool, DbError> {
        let sql = "SELECT id FROM workers WHERE id = $1 AND owner = $2";
        let found = self.db.fetch_one(sql, &[work.id.as_str().into(), owner.into()]).await?;
        Ok(found.is_some())
    }

    /// Work that is free, or this worker's own, and due: what was not looked at for the longest time
    /// comes first, so that nothing waits for what never ends.
    pub(crate) async fn due(&self, owner: &str, limit: i64) -> Result<Vec<Work>, DbError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM workers WHERE (owner IS NULL OR owner = $1 OR lease_until < $2) \
             AND (not_before IS NULL OR not_before <= $2) ORDER BY COALESCE(not_before, created_at) \
             LIMIT $3"
        );
        let rows = self.db.fetch(&sql, &[owner.into(), now().into(), limit.into()]).await?;
        let works: Result<Vec<_>, _> = rows.iter().map(Work::of).collect();
        Ok(works?.into_iter().flatten().collect())
    }

    /// Takes or keeps a piece of work. False: another was faster, or it is gone. Counts the takers.
    pub(crate) async fn take(&self, work: &Work, owner: &str) -> Result<bool, DbError> {
        let mut sql = Statement::new("UPDATE workers SET attempts = attempts + CASE WHEN owner = ");
        sql.bind(owner).push(" THEN 0 ELSE 1 END, owner = ").bind(owner);
        sql.push(", lease_until = ").bind(stamp_in(LEASE_SECONDS));
        sql.push(", updated_at = ").bind(now()).push(", not_before = ").bind(now());
        sql.push(" WHERE id = ").bind(work.id.as_str());
        sql.push(" AND (owner IS NULL OR owner = ").bind(owner);
        sql.push(" OR lease_until < ").bind(now()).push(")");
        Ok(self.db.execute(&sql.text, &sql.values).await? != 0)
    }

    /// Not again before some seconds have passed; kept by this worker.
    pub(crate) async fn postpone(
        &self,
        work: &Work,
        owner: &str,
        seconds: i64,
    ) -> Result<(), DbError> {
        let sql = "UPDATE workers SET not_before = $3 WHERE id = $1 AND owner = $2";
        let values = [work.id.as_str().into(), owner.into(), stamp_in(seconds).into()];
        self.db.execute(sql, &values).await.map(drop)
    }

    /// Keeps arguments that became known on the way.
    pub(crate) async fn amend(
        &self,
        tx: &mut Tx,
        work: &Work,
        owner: &str,
        detail: &serde_json::Value,
    ) -> Result<bool, DbError> {
        let sql = "UPDATE workers SET detail = $3, updated_at = $4 WHERE id = $1 AND owner = $2";
        let values =
            [work.id.as_str().into(), owner.into(), detail.to_string().into(), now().into()];
        Ok(tx.execute(sql, &values).await? != 0)
    }

    /// Ends a piece of work in the transaction that writes its outcome. False: it is no longer this
    /// worker's, and the outcome must not be written.
    pub(crate) async fn end(&self, tx: &mut Tx, work: &Work, owner: &str) -> Result<bool, DbError> {
        let sql = "DELETE FROM workers WHERE id = $1 AND owner = $2";
        Ok(tx.execute(sql, &[work.id.as_str().into(), owner.into()]).await? != 0)
    }

    /// Gives back what a worker holds, at its end.
    pub(crate) async fn release(&self, owner: &str) -> Result<(), DbError> {
        let sql = "UPDATE workers SET owner = NULL, lease_until = NULL WHERE owner = $1";
        self.db.execute(sql, &[owner.into()]).await.map(drop)
    }
}
