//! Backups: made, restored, removed. What ends here writes the backup's row and the volume's
//! `backup_status`, and never its `status`: that belongs to those who attach, extend and delete.

use serde_json::{Value, json};

use super::backend::{BackupOrder, Origin, Progress, Saved};
use super::decide::{self, Begin, LOST, Seen, Step};
use super::volumes::settled;
use super::{NOT_TAKEN, Next, WorkError, Worker};
use crate::model::status::BackupStatus;
use crate::store::backups::{Backup, is_last, reason};
use crate::store::guard::{Change, Set};
use crate::store::messages::Action;
use crate::store::volumes::Volume;
use crate::store::work::{Verb, Work};
use crate::store::{Metadata, Pairs, new_id, now, stamp};

/// How a backup ended that came to nothing.
enum Failure {
    Broken(String),
    /// Nobody knows why: the volume is as free as before.
    Lost,
}

const NOT_MARKED: &str = "the volume is no longer to be backed up";

fn text<'a>(work: &'a Work, key: &str) -> Option<&'a str> {
    work.detail.get(key).and_then(Value::as_str)
}

fn truth(work: &Work, key: &str) -> bool {
    work.detail.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn with(work: &Work, key: &str, value: impl Into<Value>) -> Value {
    let mut detail = match &work.detail {
        Value::Object(detail) => detail.clone(),
        _ => serde_json::Map::new(),
    };
    detail.insert(key.to_owned(), value.into());
    Value::Object(detail)
}

impl Worker {
    async fn backup_in(&self, work: &Work, status: &str) -> Result<Option<Backup>, WorkError> {
        let backup = self.store.backup(&work.resource_id, None).await?;
        Ok(backup.filter(|it| it.status == status))
    }

    /// Keeps something that became known; the next pass reads it.
    pub(super) async fn note(
        &self,
        work: &Work,
        key: &str,
        value: impl Into<Value>,
    ) -> Result<bool, WorkError> {
        let mut tx = self.store.db.begin().await?;
        let kept = self.store.amend(&mut tx, work, &self.name, &with(work, key, value)).await?;
        tx.commit().await?;
        Ok(kept)
    }

    pub(super) async fn create_backup(&self, work: &Work) -> Result<Next, WorkError> {
        let Some(backup) = self.backup_in(work, "creating").await? else {
            return self.abandon(work).await;
        };
        let Some(volume) = self.store.volume(&backup.volume_id, None).await? else {
            let gone = Failure::Broken("its volume is gone".to_owned());
            return self.backup_failed(work, &backup, gone).await;
        };
        let seen = Seen {
            is_copied: backup.snapshot_id.is_some() || truth(work, "copied"),
            was_started: truth(work, "started"),
            found: settled_find(self.backend.find_backup(&backup.id).await)?,
        };
        match decide::backup(seen) {
            Step::TakeCopy => self.take_copy(work, &backup, &volume).await,
            Step::Start => self.start_backup(work, &backup, &volume).await,
            Step::Wait => Ok(Next::Later),
            Step::Finish(saved) => self.backup_done(work, &backup, saved).await,
            Step::Fail(why) => self.backup_failed(work, &backup, Failure::Broken(why)).await,
            Step::Lose => self.backup_failed(work, &backup, Failure::Lost).await,
        }
    }

    /// The moment the backup is of. From here on the volume may change as it likes.
    async fn take_copy(
        &self,
        work: &Work,
        backup: &Backup,
        volume: &Volume,
    ) -> Result<Next, WorkError> {
        let copy = copy_of(&backup.id);
        match settled(self.backend.ensure_snapshot(volume.backend_name(), &copy).await)? {
            Progress::Running if !self.is_late(work) => Ok(Next::Soon),
            Progress::Running => {
                let late = Failure::Broken(NOT_TAKEN.to_owned());
                self.backup_failed(work, backup, late).await
            }
            Progress::Failed(why) => self.backup_failed(work, backup, Failure::Broken(why)).await,
            Progress::Done(taken) => {
                let mut tx = self.store.on_volume(&volume.id).await?;
                if !self.is_marked(&mut tx, work, backup).await? {
                    // By now it may be another owner's: what was copied is not what was asked for.
                    if self.store.amend(&mut tx, work, &self.name, &work.detail).await? {
                        let detail = json!({"holder": volume.backend_name()});
                        self.store.ask(&mut tx, Verb::DropCopy, &copy, &detail, "").await?;
                        tx.commit().await?;
                    }
                    let lost = Failure::Broken(NOT_MARKED.to_owned());
                    return self.backup_failed(work, backup, lost).await;
                }
                let mut detail = with(work, "copied", true);
                if let Some(detail) = detail.as_object_mut() {
                    detail.insert("holder".to_owned(), json!(volume.backend_name()));
                }
                if self.store.amend(&mut tx, work, &self.name, &detail).await? {
                    // Its size is the volume's at that moment, whatever is extended later.
                    let sql = "UPDATE backups SET data_timestamp = $2, temp_snapshot_id = $3, \
                         size = COALESCE($4, (SELECT size FROM volumes WHERE id = $5)), \
                         updated_at = $6 WHERE id = $1 AND deleted = 0 AND status = 'creating'";
                    let values = [
                        backup.id.as_str().into(),
                        stamp(taken.at).into(),
                        copy.into(),
                        crate::sql::Value::Int(taken.gib),
                        volume.id.as_str().into(),
                        now().into(),
                    ];
                    tx.execute(sql, &values).await?;
                    tx.commit().await?;
                }
                Ok(Next::Soon)
            }
        }
    }

    /// Whether the volume still bears the mark that this backup made.
    async fn is_marked(
        &self,
        tx: &mut crate::sql::Tx,
        work: &Work,
        backup: &Backup,
    ) -> Result<bool, WorkError> {
        let change = Change::of(&backup.volume_id)
            .while_backup(BackupStatus::BackingUp)
            .only_if_with(&is_last(Verb::BackupCreate, &work.created_at));
        Ok(change.apply(&self.store, tx).await?)
    }

    async fn start_backup(
        &self,
        work: &Work,
        backup: &Backup,
        volume: &Volume,
    ) -> Result<Next, WorkError> {
        let (holder, snapshot) = match &backup.snapshot_id {
            None => {
                let holder = text(work, "holder").unwrap_or(volume.backend_name()).to_owned();
                (holder, copy_of(&backup.id))
            }
            Some(id) => {
                let snapshot = self.store.snapshot(id, None).await?;
                let holder = match &snapshot {
                    Some(snapshot) => self.holder(snapshot).await?,
                    None => None,
                };
                let Some(holder) = holder else {
                    let gone = Failure::Broken(format!("the snapshot {id} is gone"));
                    return self.backup_failed(work, backup, gone).await;
                };
                (holder, id.clone())
            }
        };
        let order = BackupOrder {
            name: backup.id.clone(),
            volume: holder,
            snapshot,
            incremental: backup.parent_id.is_some(),
        };
        let started = self.backend.start_backup(&order).await.map(Progress::Done);
        if let Progress::Failed(why) = settled(started)? {
            return self.backup_failed(work, backup, Failure::Broken(why)).await;
        }
        self.note(work, "started", true).await?;
        Ok(Next::Soon)
    }

    async fn backup_done(
        &self,
        work: &Work,
        backup: &Backup,
        saved: Saved,
    ) -> Result<Next, WorkError> {
        let mut tx = self.store.on_volume(&backup.volume_id).await?;
        if !self.store.end(&mut tx, work, &self.name).await? {
            return Ok(Next::Ended);
        }
        let container = saved.container.or_else(|| backup.container.clone());
        let also = [
            ("object_count", saved.objects.into()),
            ("service_metadata", saved.handle.into()),
            ("container", container.into()),
            ("service", "holdfast".into()),
            ("availability_zone", self.behaviour.zone.as_str().into()),
            ("fail_reason", crate::sql::Value::Text(None)),
        ];
        let done =
            self.store.move_backup(&mut tx, &backup.id, &["creating"], "available", &also).await?;
        if done {
            self.let_go(&mut tx, work, backup, None).await?;
            self.drop_older_copies(&mut tx, work, backup).await?;
        }
        tx.commit().await?;
        if done {
            self.figures.backed_up("available", &backup.created_at);
        }
        Ok(Next::Ended)
    }

    /// The volume or the snapshot is free again; only of the mark that this backup made.
    async fn let_go(
        &self,
        tx: &mut crate::sql::Tx,
        work: &Work,
        backup: &Backup,
        left: Option<BackupStatus>,
    ) -> Result<(), WorkError> {
        if let Some(snapshot) = &backup.snapshot_id {
            self.store.move_snapshot(tx, snapshot, &["backing-up"], "available").await?;
            return Ok(());
        }
        let change = Change::of(&backup.volume_id)
            .while_backup(BackupStatus::BackingUp)
            .only_if_with(&is_last(Verb::BackupCreate, &work.created_at))
            .set(Set::Backup(left));
        change.apply(&self.store, tx).await?;
        Ok(())
    }

    /// The copy of the newest backup stays, so that the next one reads only what changed since;
    /// those of the others go.
    async fn drop_older_copies(
        &self,
        tx: &mut crate::sql::Tx,
        work: &Work,
        backup: &Backup,
    ) -> Result<(), WorkError> {
        let sql = "SELECT id FROM backups WHERE volume_id = $1 AND id <> $2 AND deleted = 0 \
             AND temp_snapshot_id IS NOT NULL AND status IN ('available', 'error')";
        let values = [backup.volume_id.as_str().into(), backup.id.as_str().into()];
        let Some(holder) = text(work, "holder") else { return Ok(()) };
        for row in tx.fetch(sql, &values).await? {
            let id = row.text("id")?;
            let sql = "UPDATE backups SET temp_snapshot_id = NULL WHERE id = $1";
            tx.execute(sql, &[id.as_str().into()]).await?;
            let detail = json!({"holder": holder});
            self.store.ask(tx, Verb::DropCopy, &copy_of(&id), &detail, "").await?;
        }
        Ok(())
    }

    pub(super) async fn drop_copy(&self, work: &Work) -> Result<Next, WorkError> {
        let holder = text(work, "holder").unwrap_or_default();
        match settled(self.backend.remove_snapshot(holder, &work.resource_id).await)? {
            Progress::Running => Ok(Next::Later),
            Progress::Done(()) => self.abandon(work).await,
            Progress::Failed(why) => {
                tracing::warn!(copy = work.resource_id, why, "a copy of a backup is left behind");
                self.abandon(work).await
            }
        }
    }

    /// What came of a backup after its row had gone.
    pub(super) async fn drop_backup(&self, work: &Work) -> Result<Next, WorkError> {
        let (id, holder) = (&work.resource_id, text(work, "holder").unwrap_or_default());
        let removed = match settled(self.backend.remove_backup(id, None).await)? {
            Progress::Done(()) => {
                settled(self.backend.remove_snapshot(holder, &copy_of(id)).await)?
            }
            other => other,
        };
        match removed {
            Progress::Running => Ok(Next::Later),
            Progress::Done(()) => self.abandon(work).await,
            Progress::Failed(why) => {
                tracing::warn!(backup = id, why, "what was made of a backup is left behind");
                self.abandon(work).await
            }
        }
    }

    async fn backup_failed(
        &self,
        work: &Work,
        backup: &Backup,
        failure: Failure,
    ) -> Result<Next, WorkError> {
        let (why, left) = match failure {
            Failure::Broken(why) => (why, Some(BackupStatus::ErrorBackingUp)),
            Failure::Lost => (LOST.to_owned(), None),
        };
        let mut tx = self.store.on_volume(&backup.volume_id).await?;
        if !self.store.end(&mut tx, work, &self.name).await? {
            return Ok(Next::Ended);
        }
        tracing::warn!(backup = backup.id, why, "a backup failed");
        let also = [("fail_reason", reason(&why).into())];
        let failed =
            self.store.move_backup(&mut tx, &backup.id, &["creating"], "error", &also).await?;
        if failed {
            self.let_go(&mut tx, work, backup, left).await?;
            let of = ("VOLUME_BACKUP", backup.id.as_str(), backup.project_id.as_str());
            self.tell(&mut tx, work, of, Action::CreateBackup, "020").await?;
        }
        tx.commit().await?;
        if failed {
            self.figures.backed_up("error", &backup.created_at);
        }
        Ok(Next::Ended)
    }

    // ------------------------------------------------------------ restore

    pub(super) async fn restore_backup(&self, work: &Work) -> Result<Next, WorkError> {
        let backup = self.backup_in(work, "restoring").await?;
        let (Some(backup), Some(target)) = (backup, text(work, "volume")) else {
            return self.abandon(work).await;
        };
        let Some(volume) = self.store.volume(target, None).await? else {
            return self.restore_failed(work, &backup, target, "the volume is gone").await;
        };
        let restoring = volume.backup_status.as_deref() == Some("restoring-backup");
        if volume.status == "deleting" || !restoring {
            let why = "the volume is no longer to be restored";
            return self.restore_failed(work, &backup, target, why).await;
        }
        let Some(handle) = backup.service_metadata.clone() else {
            let why = "the record of the backup does not say where it is";
            return self.restore_failed(work, &backup, target, why).await;
        };
        let is_new = truth(work, "creates") || truth(work, "new");
        // Into a volume that exists means: beside it, and then in its place.
        let name = match (is_new, text(work, "place")) {
            (true, _) => volume.id.clone(),
            (false, Some(place)) => place.to_owned(),
            (false, None) => {
                if self.is_connected(&volume).await? {
                    return self.wait_or_fail_restore(work, &backup, target).await;
                }
                self.note(work, "place", new_id()).await?;
                return Ok(Next::Soon);
            }
        };
        if truth(work, "new") && volume.status == "creating" {
            let change =
                Change::of(&volume.id).while_status("creating").set(Set::Status("available"));
            change.run(&self.store).await?;
        }
        if !truth(work, "begun") {
            let stored = self.backend.find_stored(&handle).await?;
            match decide::restore(stored, volume.size, self.is_late(work)) {
                Begin::Wait => return Ok(Next::Later),
                Begin::Fail(why) => return self.restore_failed(work, &backup, target, &why).await,
                // Known before it is asked for: from then on it is looked at and not for.
                Begin::Make if !self.note(work, "begun", true).await? => return Ok(Next::Ended),
                Begin::Make => {}
            }
        }
        let order = self.order(&volume, &name, Origin::Backup { handle }).await?;
        match settled(self.backend.ensure_volume(&order).await)? {
            Progress::Running => Ok(Next::Soon),
            Progress::Failed(why) => self.restore_failed(work, &backup, target, &why).await,
            Progress::Done(()) => self.restore_done(work, &backup, &volume, &name).await,
        }
    }

    /// A client that came at the same time as the restore goes again.
    async fn wait_or_fail_restore(
        &self,
        work: &Work,
        backup: &Backup,
        target: &str,
    ) -> Result<Next, WorkError> {
        if !self.is_late(work) {
            return Ok(Next::Later);
        }
        self.restore_failed(work, backup, target, "a client is connected to the volume").await
    }

    async fn restore_done(
        &self,
        work: &Work,
        backup: &Backup,
        volume: &Volume,
        name: &str,
    ) -> Result<Next, WorkError> {
        let mut tx = self.store.on_volume(&volume.id).await?;
        if !self.store.end(&mut tx, work, &self.name).await? {
            return Ok(Next::Ended);
        }
        self.store.move_backup(&mut tx, &backup.id, &["restoring"], "available", &[]).await?;
        let mut change = Change::of(&volume.id)
            .while_backup(BackupStatus::RestoringBackup)
            .only_if_with(&is_last(Verb::BackupRestore, &work.created_at))
            .set(Set::Backup(None))
            .set(Set::StatusCreated);
        if name != volume.id {
            change = change.column("name_id", name);
        }
        let applied = change.apply(&self.store, &mut tx).await?;
        if name != volume.id {
            // The one that is no longer behind the row: what was there, or what came too late.
            let remnant = if applied { volume.backend_name() } else { name };
            self.store.ask(&mut tx, Verb::Discard, remnant, &json!({}), "").await?;
        }
        if applied && volume.id != backup.volume_id {
            let pair = Metadata::from([("src_backup_id".to_owned(), backup.id.clone())]);
            Pairs::Volume.put(&mut tx, &volume.id, &pair).await?;
        }
        if !applied {
            // Whoever asked for it must not believe that the volume holds it.
            let of = ("VOLUME_BACKUP", backup.id.as_str(), backup.project_id.as_str());
            self.tell(&mut tx, work, of, Action::RestoreBackup, "026").await?;
        }
        tx.commit().await?;
        self.store.wake();
        Ok(Next::Ended)
    }

    async fn restore_failed(
        &self,
        work: &Work,
        backup: &Backup,
        target: &str,
        why: &str,
    ) -> Result<Next, WorkError> {
        let mut tx = self.store.on_volume(target).await?;
        if !self.store.end(&mut tx, work, &self.name).await? {
            return Ok(Next::Ended);
        }
        tracing::warn!(backup = backup.id, volume = target, why, "a restore failed");
        let also = [("fail_reason", reason(why).into())];
        self.store.move_backup(&mut tx, &backup.id, &["restoring"], "available", &also).await?;
        let change = Change::of(target)
            .while_backup(BackupStatus::RestoringBackup)
            .only_if_with(&is_last(Verb::BackupRestore, &work.created_at))
            .set(Set::Backup(Some(BackupStatus::ErrorRestoring)))
            .set(Set::StatusNotCreated);
        let applied = change.apply(&self.store, &mut tx).await?;
        // What was made for it: beside it, or, if its row went meanwhile, itself. What a row was made
        // for goes as well: it holds nothing whole, and may be larger than the row.
        let row = "SELECT id FROM volumes WHERE id = $1 AND deleted = 0";
        let is_gone = tx.fetch_one(row, &[target.into()]).await?.is_none();
        let is_own = applied && (truth(work, "creates") || truth(work, "new"));
        if let Some(remnant) = text(work, "place").or((is_gone || is_own).then_some(target)) {
            self.store.ask(&mut tx, Verb::Discard, remnant, &json!({}), "").await?;
        }
        let of = ("VOLUME_BACKUP", backup.id.as_str(), backup.project_id.as_str());
        self.tell(&mut tx, work, of, Action::RestoreBackup, "026").await?;
        tx.commit().await?;
        Ok(Next::Ended)
    }

    // ------------------------------------------------------------ import

    /// A record is as good as what it is of: there, or found when the target was read. A record of the
    /// same that is on its way out may take the data with it: its end is waited for.
    pub(super) async fn import_backup(&self, work: &Work) -> Result<Next, WorkError> {
        let Some(backup) = self.backup_in(work, "creating").await? else {
            return self.abandon(work).await;
        };
        if self.store.has_leaving_twin(&backup).await? {
            return Ok(Next::Later);
        }
        let handle = backup.service_metadata.as_deref().unwrap_or_default();
        let (status, why) = if self.backend.find_stored(handle).await?.is_some() {
            ("available", None)
        } else if self.is_late(work) {
            ("error", Some("no backup target has what the record is of"))
        } else {
            return Ok(Next::Later);
        };
        let mut tx = self.store.db.begin().await?;
        if self.store.end(&mut tx, work, &self.name).await? {
            let also = [("fail_reason", why.into())];
            self.store.move_backup(&mut tx, &backup.id, &["creating"], status, &also).await?;
            tx.commit().await?;
        }
        Ok(Next::Ended)
    }

    // ------------------------------------------------------------ delete

    /// Whether what is stored goes with its record; nothing if the work is no longer this worker's. Once
    /// that is so it stays so: a record that comes later finds this one, and waits.
    async fn goes_with(&self, work: &Work, backup: &Backup) -> Result<Option<bool>, WorkError> {
        if truth(work, "goes") {
            return Ok(Some(true));
        }
        let mut tx = self.store.db.begin().await?;
        if self.store.has_twin(&mut tx, backup).await? {
            return Ok(Some(false));
        }
        let detail = with(work, "goes", true);
        let kept = self.store.amend(&mut tx, work, &self.name, &detail).await?;
        tx.commit().await?;
        Ok(kept.then_some(true))
    }

    pub(super) async fn delete_backup(&self, work: &Work) -> Result<Next, WorkError> {
        let Some(backup) = self.backup_in(work, "deleting").await? else {
            return self.abandon(work).await;
        };
        let handle = backup.service_metadata.as_deref();
        let progress = match self.goes_with(work, &backup).await? {
            None => return Ok(Next::Ended),
            Some(false) => Progress::Done(()),
            Some(true) => settled(self.backend.remove_backup(&backup.id, handle).await)?,
        };
        match progress {
            Progress::Running => Ok(Next::Soon),
            Progress::Done(()) => {
                let volume = self.store.volume(&backup.volume_id, None).await?;
                let mut tx = self.store.db.begin().await?;
                if self.store.end(&mut tx, work, &self.name).await? {
                    if let Some(volume) = volume {
                        let detail = json!({"holder": volume.backend_name()});
                        let copy = copy_of(&backup.id);
                        self.store.ask(&mut tx, Verb::DropCopy, &copy, &detail, "").await?;
                        if handle.is_none() {
                            let (verb, id) = (Verb::DropBackup, &backup.id);
                            self.store.ask_late(&mut tx, verb, id, &detail).await?;
                        }
                    }
                    self.store.forget_backup(&mut tx, &backup.id).await?;
                    tx.commit().await?;
                }
                Ok(Next::Ended)
            }
            Progress::Failed(why) => {
                let mut tx = self.store.db.begin().await?;
                if self.store.end(&mut tx, work, &self.name).await? {
                    tracing::warn!(backup = backup.id, why, "a backup is not removed");
                    let also = [("fail_reason", reason(&why).into())];
                    let id = backup.id.as_str();
                    self.store.move_backup(&mut tx, id, &["deleting"], "error", &also).await?;
                    let of = ("VOLUME_BACKUP", id, backup.project_id.as_str());
                    self.tell(&mut tx, work, of, Action::DeleteBackup, "025").await?;
                    tx.commit().await?;
                }
                Ok(Next::Ended)
            }
        }
    }
}

/// The name of the copy a backup is read from.
pub(crate) fn copy_of(backup: &str) -> String {
    format!("copy-{backup}")
}

fn settled_find(
    found: Result<Option<Progress<Saved>>, super::backend::BackendError>,
) -> Result<Option<Progress<Saved>>, super::backend::BackendError> {
    match found {
        Err(super::backend::BackendError::Refused(why)) => Ok(Some(Progress::Failed(why))),
        other => other,
    }
}
