//! Work on rows, driven to its end. A pass takes what is due, looks how far it is, and either waits
//! or writes the outcome; nothing is remembered in between, so any worker can go on where another
//! was lost.

pub(crate) mod backend;
mod backups;
pub(crate) mod decide;
pub(crate) mod resources;
#[cfg(test)]
pub(crate) mod simulated;
mod snapshots;
mod volumes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;

use crate::rest::Behaviour;
use crate::sql::DbError;
use crate::store::Store;
use crate::store::work::{Verb, Work};
use backend::{Backend, BackendError};

/// Work in hand at once.
const AT_ONCE: usize = 16;
/// Rows looked at in one pass.
const BATCH: i64 = 200;
/// One look at the backend may take this long; well below a lease.
const LOOK: Duration = Duration::from_secs(15);
/// Between passes while something runs, and while nothing does.
const BUSY: Duration = Duration::from_millis(150);
const IDLE: Duration = Duration::from_secs(2);
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Between looks at work that takes its time.
const SLOW_SECONDS: i64 = 1;

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
}

impl Worker {
    /// Works until told to stop, then gives back what it holds.
    pub(crate) async fn run(self, stop: tasks::Stop) {
        let mut added = self.store.work_added();
        let mut heartbeat: Option<Instant> = None;
        while !stop.is_stopping() {
            if heartbeat.is_none_or(|it| it.elapsed() >= HEARTBEAT) {
                heartbeat = Some(Instant::now());
                if let Err(error) = self.report().await {
                    tracing::warn!(error = %telemetry::Chain(&error), "no heartbeat is kept");
                }
            }
            added.mark_unchanged();
            let busy = match self.pass().await {
                Ok(busy) => busy,
                Err(error) => {
                    tracing::warn!(error = %telemetry::Chain(&error), "work cannot be looked at");
                    false
                }
            };
            let pause = if busy { BUSY } else { IDLE };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = added.changed() => {}
                () = stop.stopping() => {}
            }
        }
        if let Err(error) = self.store.release(&self.name).await {
            tracing::warn!(error = %telemetry::Chain(&error), "work is not given back; its leases will run out");
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
        Ok(())
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
        let slow = match outcome {
            Ok(Ok(Next::Ended | Next::Soon)) => return,
            Ok(Ok(Next::Later)) => SLOW_SECONDS,
            Ok(Err(error)) => {
                let (verb, id) = (work.verb, &work.resource_id);
                tracing::warn!(?verb, id, error = %telemetry::Chain(&error), "work is tried again");
                SLOW_SECONDS
            }
            Err(_) => {
                tracing::warn!(verb = ?work.verb, id = work.resource_id, "the backend is slow; work is tried again");
                SLOW_SECONDS
            }
        };
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
            Verb::SnapshotCreate => self.create_snapshot(work).await,
            Verb::SnapshotDelete => self.delete_snapshot(work).await,
            Verb::BackupCreate => self.create_backup(work).await,
            Verb::BackupRestore => self.restore_backup(work).await,
            Verb::BackupDelete => self.delete_backup(work).await,
            Verb::Discard => self.discard(work).await,
            Verb::DropCopy => self.drop_copy(work).await,
            Verb::Disconnect => self.end_connection(work).await,
        }
    }

    /// Ends work whose row is gone or no longer in its state.
    async fn abandon(&self, work: &Work) -> Result<Next, WorkError> {
        let mut tx = self.store.db.begin().await?;
        self.store.end(&mut tx, work, &self.name).await?;
        tx.commit().await?;
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
            backend::Progress::Running => Ok(Next::Later),
            backend::Progress::Done(()) => self.abandon(work).await,
            backend::Progress::Failed(why) => Err(BackendError::Unreachable(why).into()),
        }
    }

    async fn end_connection(&self, work: &Work) -> Result<Next, WorkError> {
        let volume = work.detail.get("volume").and_then(serde_json::Value::as_str);
        self.backend.disconnect(volume.unwrap_or_default(), &work.resource_id).await?;
        self.abandon(work).await
    }
}
