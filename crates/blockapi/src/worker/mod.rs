//! Work on rows, driven to its end. A pass takes what is due, looks how far it is, and either waits
//! or writes the outcome; nothing is remembered in between, so any worker can go on where another
//! was lost.

pub(crate) mod backend;
mod backups;
pub(crate) mod decide;
mod images;
pub(crate) mod resources;
#[cfg(test)]
pub(crate) mod simulated;
mod snapshots;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use crate::figures::Figures;
use crate::images::{Copies, Images};
use crate::rest::Behaviour;
use crate::sql::DbError;
use crate::store::Store;
use crate::store::volumes::Volume;
use crate::store::work::{AGAIN, IMAGE_COPY, Verb, Work};
use backend::{Backend, BackendError, Progress};

/// Work in hand at once.
const AT_ONCE: usize = 16;
/// Rows looked at in one pass.
const BATCH: i64 = 200;
/// One look at the backend may take this long; well below a lease.
const LOOK: Duration = Duration::from_secs(15);
/// Between passes while something runs, and while nothing does. What was just asked for may be done in a
/// moment: then each pause is twice the one before, from the first on.
const FIRST: Duration = Duration::from_millis(20);
const BUSY: Duration = Duration::from_millis(150);
const IDLE: Duration = Duration::from_secs(2);
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Between looks at work that takes its time: the longer it ran, the longer.
const SLOW_SECONDS: std::ops::RangeInclusive<i64> = 1..=30;
/// Work that is not done this many seconds after it was asked for takes its time.
const QUICK_SECONDS: i64 = 60;
/// What should be done at once and is not after this many seconds will not be.
const PATIENCE_SECONDS: i64 = 600;
const NOT_TAKEN: &str = "the volume could not be copied within ten minutes: it has no running copy";

/// What a look at one piece of work led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Its outcome is written, or it is no longer ours.
    Ended,
    /// It runs; look again at the next pass.
    Soon,
    /// It runs and will for a while.
    Later,
}

/// Seconds until the next look at work of an age; none for the next pass.
fn pause(next: Next, age: i64) -> Option<i64> {
    match next {
        Next::Ended => None,
        Next::Soon if age < QUICK_SECONDS => None,
        Next::Soon | Next::Later => {
            Some((age / QUICK_SECONDS).clamp(*SLOW_SECONDS.start(), *SLOW_SECONDS.end()))
        }
    }
}

/// How long to wait after so many passes since work was added.
fn rest(busy: bool, passes: u32) -> Duration {
    if !busy {
        return IDLE;
    }
    FIRST.saturating_mul(1_u32.checked_shl(passes).unwrap_or(u32::MAX)).min(BUSY)
}

/// Why a look came to nothing. It is repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// One worker; several may share a database.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) store: Store,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) behaviour: Arc<Behaviour>,
    /// Unique among workers and over restarts.
    pub(crate) name: String,
    /// Before that nobody may have been there to do anything.
    pub(crate) started: jiff::Timestamp,
    /// Nothing where no image service is configured.
    pub(crate) images: Option<Arc<Images>>,
    pub(crate) copies: Copies,
    pub(crate) figures: Figures,
}

/// For a process without a worker: looks now and then whether services of the release before run.
pub(crate) async fn watch_services(store: Store, figures: Figures, stop: tasks::Stop) {
    while !stop.is_stopping() {
        stop.or_stop(tokio::time::sleep(HEARTBEAT)).await;
        let looked = async {
            store.look_for_old_services().await?;
            figures.count_work(&store).await
        };
        if let Err(error) = looked.await {
            tracing::warn!(error = %telemetry::Chain(&error), "services cannot be looked up");
        }
    }
}

impl Worker {
    /// Works until told to stop, then gives back what it holds.
    pub(crate) async fn run(self, stop: tasks::Stop) {
        tokio::join!(self.beat(&stop), self.work(&stop));
        if let Err(error) = self.store.release(&self.name).await {
            tracing::warn!(error = %telemetry::Chain(&error), "work is not given back; its leases will run out");
        }
    }

    /// Tells others that it lives, however long a pass takes.
    async fn beat(&self, stop: &tasks::Stop) {
        while !stop.is_stopping() {
            if let Err(error) = self.report().await {
                tracing::warn!(error = %telemetry::Chain(&error), "no heartbeat is kept");
            }
            stop.or_stop(tokio::time::sleep(HEARTBEAT)).await;
        }
    }

    async fn work(&self, stop: &tasks::Stop) {
        let mut added = self.store.work_added();
        let mut passes = 0_u32;
        while !stop.is_stopping() {
            added.mark_unchanged();
            let busy = match self.pass().await {
                Ok(busy) => busy,
                Err(error) => {
                    tracing::warn!(error = %telemetry::Chain(&error), "work cannot be looked at");
                    false
                }
            };
            tokio::select! {
                () = tokio::time::sleep(rest(busy, passes)) => passes = passes.saturating_add(1),
                _ = added.changed() => passes = 0,
                () = stop.stopping() => {}
            }
        }
    }

    /// Says that the services of this process live, and looks who else does.
    pub(crate) async fn report(&self) -> Result<(), DbError> {
        let zone = &self.behaviour.zone;
        let place = self.behaviour.host.split('#').next().unwrap_or_default();
        let machine = place.split('@').next().unwrap_or_default();
        self.store.report_service(place, "cinder-volume", zone).await?;
        self.store.report_service(machine, "cinder-backup", zone).await?;
        self.store.report_service(machine, "cinder-scheduler", zone).await?;
        self.store.look_for_old_services().await?;
        self.store.expire_messages().await?;
        self.figures.count_work(&self.store).await
    }

    /// One look at everything that is due; whether anything runs.
    pub(crate) async fn pass(&self) -> Result<bool, DbError> {
        let due = self.store.due(&self.name, BATCH).await?;
        let busy = !due.is_empty();
        futures::stream::iter(due)
            .for_each_concurrent(AT_ONCE, |work| async move { self.attend(&work).await })
            .await;
        Ok(busy)
    }

    async fn attend(&self, work: &Work) {
        let outcome = match self.store.take(work, &self.name).await {
            Ok(false) => return,
            Ok(true) => tokio::time::timeout(LOOK, Box::pin(self.drive(work))).await,
            Err(error) => Ok(Err(error.into())),
        };
        let next = match outcome {
            Ok(Ok(next)) => next,
            Ok(Err(error)) => {
                let (verb, id) = (work.verb, &work.resource_id);
                tracing::warn!(?verb, id, error = %telemetry::Chain(&error), "work is tried again");
                Next::Later
            }
            Err(_) => {
                tracing::warn!(verb = ?work.verb, id = work.resource_id, "the backend is slow; work is tried again");
                Next::Later
            }
        };
        let Some(slow) = pause(next, work.age()) else { return };
        if let Err(error) = self.store.postpone(work, &self.name, slow).await {
            tracing::warn!(error = %telemetry::Chain(&error), "work cannot be postponed");
        }
    }

    async fn drive(&self, work: &Work) -> Result<Next, WorkError> {
        match work.verb {
            Verb::VolumeCreate => self.create_volume(work).await,
            Verb::VolumeDelete => self.delete_volume(work).await,
            Verb::VolumeExtend => self.extend_volume(work).await,
            Verb::VolumeRetype => self.retype_volume(work).await,
            Verb::VolumeMigrate => self.migrate_volume(work).await,
            Verb::VolumeRevert => self.revert_volume(work).await,
            Verb::VolumeFill => self.fill_volume(work).await,
            Verb::VolumeUpload => self.upload_volume(work).await,
            Verb::SnapshotCreate => self.create_snapshot(work).await,
            Verb::SnapshotDelete => self.delete_snapshot(work).await,
            Verb::BackupCreate => self.create_backup(work).await,
            Verb::BackupRestore => self.restore_backup(work).await,
            Verb::BackupDelete => self.delete_backup(work).await,
            Verb::BackupImport => self.import_backup(work).await,
            Verb::Discard => self.discard(work).await,
            Verb::DropCopy => self.drop_copy(work).await,
            Verb::Disconnect => self.end_connection(work).await,
            Verb::CancelRevert => self.cancel_revert(work).await,
            Verb::DropBackup => self.drop_backup(work).await,
        }
    }

    /// Ends work whose row is gone or no longer in its state.
    async fn abandon(&self, work: &Work) -> Result<Next, WorkError> {
        let mut tx = self.store.db.begin().await?;
        if self.store.end(&mut tx, work, &self.name).await? {
            self.store.undo(&mut tx, work).await?;
            tx.commit().await?;
        }
        Ok(Next::Ended)
    }

    async fn discard(&self, work: &Work) -> Result<Next, WorkError> {
        // Snapshots of what was there before a restore live in it.
        let sql = "SELECT id FROM snapshots WHERE provider_id = $1 AND deleted = 0 LIMIT 1";
        let name = work.resource_id.as_str();
        if self.store.db.fetch_one(sql, &[name.into()]).await?.is_some() {
            return Ok(Next::Later);
        }
        match self.backend.remove_volume(name).await? {
            Progress::Running => Ok(Next::Later),
            Progress::Done(()) if work.detail.get(AGAIN).is_some() => self.abandon(work).await,
            Progress::Done(()) => {
                let mut tx = self.store.db.begin().await?;
                if self.store.end(&mut tx, work, &self.name).await? {
                    self.store.discard_late(&mut tx, name).await?;
                    tx.commit().await?;
                }
                Ok(Next::Ended)
            }
            Progress::Failed(why) => Err(BackendError::Unreachable(why).into()),
        }
    }

    /// Whether work that takes a moment should be done by now.
    fn is_late(&self, work: &Work) -> bool {
        let up = jiff::Timestamp::now().duration_since(self.started).as_secs();
        work.age().min(up) >= PATIENCE_SECONDS
    }

    async fn is_connected(&self, volume: &Volume) -> Result<bool, WorkError> {
        Ok(!self.backend.connections(volume.backend_name()).await?.is_empty())
    }

    async fn end_connection(&self, work: &Work) -> Result<Next, WorkError> {
        let text = |key: &str| work.detail.get(key).and_then(serde_json::Value::as_str);
        let name = text("name").unwrap_or(&work.resource_id);
        let taken_down = self.backend.disconnect(text("volume").unwrap_or_default(), name).await?;
        // Of the others clients let go themselves; a copy may go on writing.
        if name == IMAGE_COPY && taken_down != Progress::Done(()) {
            return Ok(Next::Soon);
        }
        self.abandon(work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_asked_for_is_looked_at_soon() {
        let waits = [0, 1, 2, 3, 4, 40, u32::MAX].map(|passes| rest(true, passes).as_millis());
        assert_eq!(waits, [20, 40, 80, 150, 150, 150, 150]);
        assert_eq!(rest(false, 0), IDLE);
    }

    #[test]
    fn looks_become_rarer_with_age_and_never_stop() {
        assert_eq!(pause(Next::Soon, 0), None);
        assert_eq!(pause(Next::Later, 0), Some(1));
        assert_eq!(pause(Next::Soon, 600), Some(10));
        assert_eq!(pause(Next::Later, i64::MAX), Some(30));
        assert_eq!(pause(Next::Ended, 600), None);
    }
}
