//! Snapshots: taken and removed.

use serde_json::json;

use super::backend::Progress;
use super::volumes::settled;
use super::{NOT_TAKEN, Next, WorkError, Worker};
use crate::sql::Value;
use crate::store::messages::Action;
use crate::store::snapshots::WHOLE;
use crate::store::work::{Verb, Work};

impl Worker {
    /// What holds a snapshot: the volume behind its row when it was taken.
    pub(super) async fn holder(
        &self,
        snapshot: &crate::store::snapshots::Snapshot,
    ) -> Result<Option<String>, WorkError> {
        if let Some(holder) = &snapshot.provider_id {
            return Ok(Some(holder.clone()));
        }
        let volume = self.store.volume(&snapshot.volume_id, None).await?;
        Ok(volume.map(|it| it.backend_name().to_owned()))
    }

    pub(super) async fn create_snapshot(&self, work: &Work) -> Result<Next, WorkError> {
        let snapshot = self.store.snapshot(&work.resource_id, None).await?;
        let Some(snapshot) = snapshot.filter(|it| it.status == "creating") else {
            return self.abandon(work).await;
        };
        let holder = self.holder(&snapshot).await?;
        let progress = match &holder {
            None => Progress::Failed("its volume is gone".to_owned()),
            Some(volume) => settled(self.backend.ensure_snapshot(volume, &snapshot.id).await)?,
        };
        let (status, gib, failed) = match progress {
            Progress::Running if !self.is_late(work) => return Ok(Next::Soon),
            Progress::Running => ("error", None, Some(NOT_TAKEN.to_owned())),
            Progress::Done(taken) => ("available", taken.gib, None),
            Progress::Failed(why) => ("error", None, Some(why)),
        };
        let mut tx = self.store.db.begin().await?;
        if self.store.end(&mut tx, work, &self.name).await? {
            self.store.move_snapshot(&mut tx, &snapshot.id, &["creating"], status).await?;
            let sql = "UPDATE snapshots SET provider_id = $2, \
                 volume_size = COALESCE($3, volume_size) WHERE id = $1";
            let values = [snapshot.id.as_str().into(), holder.into(), Value::Int(gib)];
            tx.execute(sql, &values).await?;
            if let Some(why) = failed {
                tracing::warn!(snapshot = snapshot.id, why, "a snapshot is not taken");
                let of = ("VOLUME_SNAPSHOT", snapshot.id.as_str(), snapshot.project_id.as_str());
                self.tell(&mut tx, work, of, Action::CreateSnapshot, "001").await?;
            }
            tx.commit().await?;
        }
        Ok(Next::Ended)
    }

    pub(super) async fn delete_snapshot(&self, work: &Work) -> Result<Next, WorkError> {
        let snapshot = self.store.snapshot(&work.resource_id, None).await?;
        let Some(snapshot) = snapshot.filter(|it| it.status == "deleting") else {
            return self.abandon(work).await;
        };
        let holder = self.holder(&snapshot).await?;
        let progress = match &holder {
            // What held it is gone, and it with it.
            None => Progress::Done(()),
            Some(volume) => settled(self.backend.remove_snapshot(volume, &snapshot.id).await)?,
        };
        let why = match progress {
            Progress::Running => return Ok(Next::Soon),
            Progress::Done(()) => None,
            Progress::Failed(why) => Some(why),
        };
        let mut tx = self.store.db.begin().await?;
        if self.store.end(&mut tx, work, &self.name).await? {
            match why {
                None => {
                    self.store.forget_snapshot(&mut tx, &snapshot.id).await?;
                    if snapshot.progress.as_deref() != Some(WHOLE) {
                        let (id, detail) = (&snapshot.id, json!({"holder": holder}));
                        self.store.ask_late(&mut tx, Verb::DropCopy, id, &detail).await?;
                    }
                }
                Some(why) => {
                    tracing::warn!(snapshot = snapshot.id, why, "a snapshot is not removed");
                    let id = snapshot.id.as_str();
                    self.store.move_snapshot(&mut tx, id, &["deleting"], "error_deleting").await?;
                    let of = ("VOLUME_SNAPSHOT", id, snapshot.project_id.as_str());
                    self.tell(&mut tx, work, of, Action::DeleteSnapshot, "001").await?;
                }
            }
            tx.commit().await?;
        }
        Ok(Next::Ended)
    }
}
