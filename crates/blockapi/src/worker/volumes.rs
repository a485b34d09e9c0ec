//! Volumes: made, extended, removed.

use serde_json::{Value, json};

use super::backend::{BackendError, Origin, Progress, VolumeOrder};
use super::{Next, WorkError, Worker};
use crate::model::capabilities;
use crate::sql::Tx;
use crate::store::guard::{Change, Set};
use crate::store::messages::{Action, NewMessage};
use crate::store::volumes::Volume;
use crate::store::work::{LEASE_SECONDS, Verb, Work};
use crate::store::{new_id, now};

/// Why something failed, by the dialect's numbers.
const UNKNOWN: &str = "001";
const NO_BACKEND: &str = "003";

/// What failed for good, and what may work later.
pub(super) fn settled<T>(
    outcome: Result<Progress<T>, BackendError>,
) -> Result<Progress<T>, BackendError> {
    match outcome {
        Err(BackendError::Refused(why)) => Ok(Progress::Failed(why)),
        other => other,
    }
}

impl Worker {
    /// The volume of a piece of work, while its status is the one the work belongs to.
    async fn volume_in(&self, work: &Work, status: &str) -> Result<Option<Volume>, WorkError> {
        let volume = self.store.volume(&work.resource_id, None).await?;
        Ok(volume.filter(|it| it.status == status))
    }

    pub(super) async fn order(
        &self,
        volume: &Volume,
        name: &str,
        origin: Origin,
    ) -> Result<VolumeOrder, WorkError> {
        let kind = self.store.volume_type(&volume.volume_type_id, None).await?;
        Ok(VolumeOrder {
            name: name.to_owned(),
            gib: volume.size,
            origin,
            specs: kind.map(|it| it.extra_specs).unwrap_or_default(),
        })
    }

    async fn origin(&self, volume: &Volume) -> Result<Result<Origin, String>, WorkError> {
        if let Some(id) = &volume.snapshot_id {
            let Some(snapshot) = self.store.snapshot(id, None).await? else {
                return Ok(Err(format!("the snapshot {id} is gone")));
            };
            return Ok(match self.holder(&snapshot).await? {
                Some(volume) => Ok(Origin::Snapshot { volume, snapshot: snapshot.id }),
                None => Err(format!("the volume of the snapshot {id} is gone")),
            });
        }
        if let Some(id) = &volume.source_volid {
            let source = self.store.volume(id, None).await?;
            return Ok(match source {
                Some(source) => Ok(Origin::Volume { volume: source.backend_name().to_owned() }),
                None => Err(format!("the volume {id} is gone")),
            });
        }
        Ok(Ok(Origin::Empty))
    }

    pub(super) async fn create_volume(&self, work: &Work) -> Result<Next, WorkError> {
        let Some(volume) = self.volume_in(work, "creating").await? else {
            return self.abandon(work).await;
        };
        let progress = match self.origin(&volume).await? {
            Err(gone) => Progress::Failed(gone),
            Ok(origin) => {
                let order = self.order(&volume, volume.backend_name(), origin).await?;
                if let Some(why) = capabilities::unmet(&order.specs) {
                    let why = format!("No valid backend was found: {why}");
                    let change = Change::of(&volume.id).while_status("creating");
                    let failed = Some((Action::CreateVolume, NO_BACKEND, why));
                    let change = change.set(Set::Status("error"));
                    return self.conclude(work, &volume, change, failed).await;
                }
                settled(self.backend.ensure_volume(&order).await)?
            }
        };
        let change = Change::of(&volume.id).while_status("creating");
        match progress {
            Progress::Running => Ok(Next::Soon),
            Progress::Done(()) if work.detail.get("image").is_some() => {
                let mut tx = self.store.on_volume(&volume.id).await?;
                if self.store.end(&mut tx, work, &self.name).await? {
                    let change =
                        change.set(Set::Status("downloading")).column("launched_at", now());
                    change.apply(&self.store, &mut tx).await?;
                    let request = work.request_id.as_deref().unwrap_or_default();
                    self.store
                        .ask(&mut tx, Verb::VolumeFill, &volume.id, &work.detail, request)
                        .await?;
                    tx.commit().await?;
                }
                Ok(Next::Soon)
            }
            Progress::Done(()) => {
                let change = change.set(Set::Status("available")).column("launched_at", now());
                self.conclude(work, &volume, change, None).await
            }
            Progress::Failed(why) => {
                let failed = Some((Action::CreateVolume, UNKNOWN, why));
                self.conclude(work, &volume, change.set(Set::Status("error")), failed).await
            }
        }
    }

    /// Writes an outcome, if the work is still this worker's.
    async fn conclude(
        &self,
        work: &Work,
        volume: &Volume,
        change: Change,
        failed: Option<(Action, &'static str, String)>,
    ) -> Result<Next, WorkError> {
        let mut tx = self.store.on_volume(&volume.id).await?;
        if self.store.end(&mut tx, work, &self.name).await? {
            change.apply(&self.store, &mut tx).await?;
            if let Some((action, detail, why)) = failed {
                tracing::warn!(volume = volume.id, ?action, why, "work on a volume failed");
                let of = ("VOLUME", volume.id.as_str(), volume.project_id.as_str());
                self.tell(&mut tx, work, of, action, detail).await?;
            }
            tx.commit().await?;
        }
        Ok(Next::Ended)
    }

    /// A message to the user whose work failed.
    pub(super) async fn tell(
        &self,
        tx: &mut Tx,
        work: &Work,
        (kind, id, project): (&'static str, &str, &str),
        action: Action,
        detail: &'static str,
    ) -> Result<(), WorkError> {
        let message = NewMessage {
            project_id: project,
            request_id: work.request_id.as_deref(),
            resource_type: kind,
            resource_id: id,
            action,
            detail,
        };
        Ok(self.store.tell(tx, message).await?)
    }

    pub(super) async fn delete_volume(&self, work: &Work) -> Result<Next, WorkError> {
        let Some(volume) = self.volume_in(work, "deleting").await? else {
            return self.abandon(work).await;
        };
        let change = Change::of(&volume.id).while_status("deleting");
        match settled(self.backend.remove_volume(volume.backend_name()).await)? {
            Progress::Running => Ok(Next::Soon),
            Progress::Done(()) => {
                let mut tx = self.store.on_volume(&volume.id).await?;
                if self.store.end(&mut tx, work, &self.name).await? {
                    for snapshot in self.store.snapshots_of(&mut tx, &volume.id).await? {
                        self.store.forget_snapshot(&mut tx, &snapshot.id).await?;
                    }
                    self.store.forget_volume(&mut tx, &volume.id).await?;
                    let was_made =
                        "SELECT id FROM volumes WHERE id = $1 AND launched_at IS NOT NULL";
                    if tx.fetch_one(was_made, &[volume.id.as_str().into()]).await?.is_none() {
                        self.store.discard_late(&mut tx, volume.backend_name()).await?;
                    }
                    tx.commit().await?;
                }
                Ok(Next::Ended)
            }
            Progress::Failed(why) => {
                let change = change.set(Set::Status("error_deleting"));
                self.spare_snapshots(&volume).await?;
                self.conclude(work, &volume, change, Some((Action::DeleteVolume, UNKNOWN, why)))
                    .await
            }
        }
    }

    /// Snapshots that were to go with a volume that stays can be asked for again.
    async fn spare_snapshots(&self, volume: &Volume) -> Result<(), WorkError> {
        let sql = "UPDATE snapshots SET status = 'error' WHERE volume_id = $1 AND deleted = 0 \
             AND status = 'deleting' AND NOT EXISTS (SELECT 1 FROM workers w \
             WHERE w.resource_type = 'snapshot' AND w.resource_id = snapshots.id)";
        Ok(self.store.db.execute(sql, &[volume.id.as_str().into()]).await.map(drop)?)
    }

    pub(super) async fn extend_volume(&self, work: &Work) -> Result<Next, WorkError> {
        let size = work.detail.get("new_size").and_then(Value::as_i64);
        let (Some(volume), Some(size)) = (self.volume_in(work, "extending").await?, size) else {
            return self.abandon(work).await;
        };
        let change = Change::of(&volume.id).while_status("extending");
        match settled(self.backend.extend_volume(volume.backend_name(), size).await)? {
            Progress::Running => Ok(Next::Soon),
            Progress::Done(()) => {
                let change = change.column("size", size).set(Set::StatusByAttachments);
                self.conclude(work, &volume, change, None).await
            }
            Progress::Failed(why) => {
                let change = change.set(Set::Status("error_extending"));
                self.conclude(work, &volume, change, Some((Action::ExtendVolume, UNKNOWN, why)))
                    .await
            }
        }
    }

    /// Types differ in what new volumes are made with; nothing of one that exists has to move.
    pub(super) async fn retype_volume(&self, work: &Work) -> Result<Next, WorkError> {
        let kind = work.detail.get("type").and_then(Value::as_str);
        let (Some(volume), Some(kind)) = (self.volume_in(work, "retyping").await?, kind) else {
            return self.abandon(work).await;
        };
        let multiattach =
            self.store.volume_type(kind, None).await?.is_some_and(|it| it.is_multiattach());
        let change = Change::of(&volume.id)
            .while_status("retyping")
            .column("volume_type_id", kind)
            .column("multiattach", multiattach)
            .set(Set::StatusByAttachments);
        self.conclude(work, &volume, change, None).await
    }

    /// Every host reaches the same volumes: a migration changes who is responsible.
    pub(super) async fn migrate_volume(&self, work: &Work) -> Result<Next, WorkError> {
        let host = work.detail.get("host").and_then(Value::as_str);
        let volume = self.store.volume(&work.resource_id, None).await?;
        let (Some(volume), Some(host)) = (volume, host) else {
            return self.abandon(work).await;
        };
        let mut change = Change::of(&volume.id)
            .only_if("volumes.migration_status = 'starting'")
            .column("host", host)
            .column("migration_status", "success");
        if volume.status == "maintenance" {
            change = change.set(Set::StatusToPrevious);
        }
        self.conclude(work, &volume, change, None).await
    }

    /// Puts a volume back to its newest snapshot: by its engine, or, where a restore has put another
    /// volume in the place of the one that holds the snapshot, by a copy beside it.
    pub(super) async fn revert_volume(&self, work: &Work) -> Result<Next, WorkError> {
        let text = |key: &str| work.detail.get(key).and_then(Value::as_str);
        let volume = self.volume_in(work, "reverting").await?;
        let (Some(volume), Some(id)) = (volume, text("snapshot")) else {
            return self.abandon(work).await;
        };
        let snapshot = self.store.snapshot(id, None).await?;
        let holder = match &snapshot {
            Some(snapshot) => self.holder(snapshot).await?,
            None => None,
        };
        let Some(holder) = holder else {
            let gone = Progress::Failed("the snapshot is gone".to_owned());
            return self.revert_looked(work, &volume, id, gone).await;
        };
        if let Some(own) = text("holder") {
            if work.detail.get("asked").is_none() {
                self.backend.ask_revert(own, id).await?;
                return self.remember_revert(work, json!({"holder": own, "asked": true})).await;
            }
            let progress = settled(self.backend.find_revert(own, id).await)?;
            return self.revert_looked(work, &volume, id, progress).await;
        }
        let Some(place) = text("place") else {
            if self.is_connected(&volume).await? {
                // A client that came at the same time goes again.
                return Ok(Next::Later);
            }
            // Known before it is asked for: who cancels it must know that it may be.
            let way = if holder == volume.backend_name() {
                let sql = "SELECT id FROM workers WHERE resource_type = $1 AND resource_id = $2";
                let kind = Verb::CancelRevert.words().0;
                let cancelled = [kind.into(), holder.as_str().into()];
                if self.store.db.fetch_one(sql, &cancelled).await?.is_some() {
                    // The one before is still being called off, and this would be, too.
                    return Ok(Next::Later);
                }
                json!({"holder": holder})
            } else {
                json!({"place": new_id()})
            };
            return self.remember_revert(work, way).await;
        };
        let origin = Origin::Snapshot { volume: holder, snapshot: id.to_owned() };
        let order = self.order(&volume, place, origin).await?;
        let progress = settled(self.backend.ensure_volume(&order).await)?;
        self.revert_looked(work, &volume, id, progress).await
    }

    async fn remember_revert(&self, work: &Work, way: Value) -> Result<Next, WorkError> {
        let mut detail = way;
        if let Some(detail) = detail.as_object_mut() {
            let snapshot = work.detail.get("snapshot").cloned().unwrap_or_default();
            detail.insert("snapshot".to_owned(), snapshot);
        }
        let mut tx = self.store.db.begin().await?;
        self.store.amend(&mut tx, work, &self.name, &detail).await?;
        tx.commit().await?;
        Ok(Next::Soon)
    }

    /// Writes how a revert ended, if it did.
    async fn revert_looked(
        &self,
        work: &Work,
        volume: &Volume,
        id: &str,
        progress: Progress<()>,
    ) -> Result<Next, WorkError> {
        let (status, why) = match progress {
            Progress::Running => return Ok(Next::Soon),
            Progress::Done(()) => ("available", None),
            Progress::Failed(why) => ("error", Some(why)),
        };
        let place = work.detail.get("place").and_then(Value::as_str);
        let mut tx = self.store.on_volume(&volume.id).await?;
        if self.store.end(&mut tx, work, &self.name).await? {
            let mut change =
                Change::of(&volume.id).while_status("reverting").set(Set::Status(status));
            if let (None, Some(place)) = (&why, place) {
                change = change.column("name_id", place);
            }
            let applied = change.apply(&self.store, &mut tx).await?;
            if let Some(place) = place {
                let remnant = if applied && why.is_none() { volume.backend_name() } else { place };
                self.store.ask(&mut tx, Verb::Discard, remnant, &json!({}), "").await?;
            }
            self.store.move_snapshot(&mut tx, id, &["restoring"], "available").await?;
            if let Some(why) = why {
                tracing::warn!(volume = volume.id, why, "a volume is not reverted");
            }
            tx.commit().await?;
        }
        Ok(Next::Ended)
    }

    /// Asked for until no worker can be left that would ask for the revert once more.
    pub(super) async fn cancel_revert(&self, work: &Work) -> Result<Next, WorkError> {
        self.backend.cancel_revert(&work.resource_id).await?;
        if work.age() <= LEASE_SECONDS {
            return Ok(Next::Later);
        }
        self.abandon(work).await
    }
}
