//! Observes a tenant's restore and carries out what was decided.

use std::sync::{Arc, PoisonError};

use api::condition;
use api::nonadmin::condition::QUEUED;
use api::nonadmin::{
    NonAdminBackup, NonAdminBackupStatus, NonAdminRestore, NonAdminRestoreStatus as Status, Phase,
};
use api::velero::{Backup, BackupPhase, BackupStatus, Restore};
use reconcile::{Failure, Key, Next, OrFail as _, Reconciler};

use super::decide::{self, Found, Observed, Step, Velero};
use super::identity;
use super::validate::{self, Backup as Source, Usable};
use crate::Executor;
use crate::counts;
use crate::names::{self, Kind, Origin, RESTORE_FINALIZER, RUN_AS};
use crate::settings::Settings;
use crate::spec::{self, Verdict};
use crate::tell;
use crate::world::{BY_TARGET, Nar, Vr, World};

/// No path is longer; more would be a circle.
const STEPS_MAX: usize = 16;

/// The controller of restores.
pub(crate) struct Restores(pub(crate) Arc<World>);

impl Reconciler for Restores {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let settings = self.0.settings();
        if !settings.enable {
            return Ok(Next::WAIT);
        }
        match self.0.fresh::<NonAdminRestore>(key).await? {
            Some(object) => {
                Pass { world: &self.0, key, settings, object: Arc::new(object) }.walk().await
            }
            None => Ok(Next::WAIT),
        }
    }
}

/// One pass over one object.
struct Pass<'a> {
    world: &'a World,
    key: &'a Key,
    settings: Arc<Settings>,
    /// As the API server answered last.
    object: Arc<Nar>,
}

impl Pass<'_> {
    async fn walk(mut self) -> Result<Next, Failure> {
        for _ in 0..STEPS_MAX {
            // What is made is judged by the settings of this moment, not by those the pass began with.
            self.settings = self.world.settings();
            let (seen, source) = self.observe().await?;
            match decide::decide(&seen) {
                Step::End => return Ok(Next::WAIT),
                Step::Terminal(why) => {
                    tracing::debug!(why, "nothing more happens until the object is edited");
                    return Ok(Next::WAIT);
                }
                Step::Requeue(pause) => return Ok(Next::after(pause)),
                Step::RemoveFinalizer => {
                    let store = &self.world.restores;
                    store.remove_finalizer(&self.object, RESTORE_FINALIZER).await?;
                    return Ok(Next::WAIT);
                }
                step => self.apply(step, &seen, &source).await?,
            }
        }
        Err(Failure::other("end the pass", "it goes in a circle"))
    }

    async fn observe(&self) -> Result<(Observed, Source), Failure> {
        let object = &self.object;
        let known: Status = object.known()?;
        let is_deleted = object.is_deleted();
        let queued = condition::holds(known.conditions.as_deref().unwrap_or_default(), QUEUED);
        let source = if queued || is_deleted { Source::Used } else { self.source().await? };
        let seen = Observed {
            now: World::now(),
            admin_namespace: self.world.admin.clone(),
            generation: object.metadata.generation,
            is_deleted,
            has_finalizer: object.has_finalizer(RESTORE_FINALIZER),
            spec: self.judged(&known, &source).await?,
            candidate: names::nacuuid(
                &self.key.namespace,
                &self.key.name,
                &uuid::Uuid::new_v4().to_string(),
            ),
            velero: self.velero(&known).await?,
            namespace_ends: is_deleted && self.world.namespace_ends(&self.key.namespace).await?,
            status: known,
        };
        Ok((seen, source))
    }

    async fn judged(&self, known: &Status, source: &Source) -> Result<Verdict, Failure> {
        if known.phase < Some(Phase::Created)
            && let Some(verdict) = self.world.unserved(&self.key.namespace).await?
        {
            return Ok(verdict);
        }
        let object = &self.object;
        // What was begun here goes on, whoever marks it later.
        let asked = matches!(source, Source::Used);
        let labels = object.metadata.labels.as_ref().filter(|_| !asked);
        Ok(validate::brought_back(labels).unwrap_or_else(|| {
            validate::judge(&self.key.namespace, &object.spec, source, &self.settings)
        }))
    }

    /// The backup to restore from, as the API server has it, and only if its Velero backup is this
    /// namespace's own.
    async fn source(&self) -> Result<Source, Failure> {
        let Some(name) = Nar::text(&self.object.spec, "/restoreSpec/backupName") else {
            return Ok(Source::Missing);
        };
        let Some(found) = self.world.fresh::<NonAdminBackup>(&self.key.beside(name)).await? else {
            return Ok(Source::Missing);
        };
        let status: NonAdminBackupStatus = found.view();
        let velero = status.velero_backup.and_then(|it| it.nacuuid).unwrap_or_default();
        let velero = if velero.is_empty() || found.is_deleted() {
            None
        } else {
            self.usable(name, &velero).await?
        };
        Ok(Source::Found { phase: status.phase, velero })
    }

    /// The Velero backup, if it can be restored from.
    async fn usable(&self, backup: &str, nacuuid: &str) -> Result<Option<Usable>, Failure> {
        let origin = Origin::new(&self.key.namespace, backup, nacuuid);
        let found = self.world.fresh::<Backup>(&self.world.admin_key(nacuuid)).await?;
        let Some(found) = found.filter(|found| self.world.owns_backup(&origin, found)) else {
            return Ok(None);
        };
        let status: BackupStatus = found.view();
        let done =
            matches!(status.phase, Some(BackupPhase::Completed | BackupPhase::PartiallyFailed));
        let in_own_store = self.world.is_in_own_location(&found);
        let usable = Usable { name: nacuuid.to_owned(), in_own_store };
        Ok((done && !found.is_deleted()).then_some(usable))
    }

    async fn velero(&self, known: &Status) -> Result<Velero, Failure> {
        let nacuuid = known.velero_restore.as_ref().and_then(|it| it.nacuuid.as_deref());
        let Some(nacuuid) = nacuuid.filter(|it| !it.is_empty()) else { return Ok(Velero::Absent) };
        let key = self.world.admin_key(nacuuid);
        let cached = self.world.velero_restores.get(&key).filter(|_| !self.object.is_deleted());
        let found = match cached {
            Some(found) => found,
            None => match self.world.fresh::<Restore>(&key).await? {
                Some(found) => Arc::new(found),
                None => return Ok(Velero::Absent),
            },
        };
        if !self.origin(nacuuid).owns(Kind::Restore, &found.metadata) {
            return Ok(Velero::Foreign);
        }
        let queue = self.world.restore_queue.lock().unwrap_or_else(PoisonError::into_inner);
        let position = queue.position(nacuuid);
        drop(queue);
        Ok(Velero::Found(Box::new(Found {
            status: Vr::document(&found.status).into(),
            is_deleted: found.is_deleted(),
            position,
            downloads: counts::movers(&self.world.data_downloads.by(BY_TARGET, nacuuid)),
            pod_volumes: counts::pod_volumes(&self.world.pod_restores.by(BY_TARGET, nacuuid)),
        })))
    }

    fn origin(&self, nacuuid: &str) -> Origin {
        Origin::new(&self.key.namespace, &self.key.name, nacuuid)
    }

    async fn apply(&mut self, step: Step, seen: &Observed, source: &Source) -> Result<(), Failure> {
        match step {
            Step::Report(status) => self.report(&status, seen).await,
            Step::AddFinalizer => {
                let store = &self.world.restores;
                self.object = store.add_finalizer(&self.object, RESTORE_FINALIZER).await?;
                Ok(())
            }
            Step::CreateVeleroRestore => self.create_restore(seen, source).await,
            Step::DeleteVeleroRestore => {
                let nacuuid = seen.nacuuid().unwrap_or_default();
                let found: Option<Vr> = self.world.fresh(&self.world.admin_key(nacuuid)).await?;
                let own = |it: &Vr| self.origin(nacuuid).owns(Kind::Restore, &it.metadata);
                match found.filter(own) {
                    Some(found) => self.world.velero_restores.delete(&found).await,
                    None => Ok(()),
                }
            }
            Step::RemoveFinalizer | Step::End | Step::Terminal(_) | Step::Requeue(_) => Ok(()),
        }
    }

    async fn report(&mut self, status: &Status, seen: &Observed) -> Result<(), Failure> {
        let mut next = (*self.object).clone();
        next.status =
            serde_json::to_value(status).or_fail(|| format!("write the status of {}", self.key))?;
        let written = self.world.restores.update(&self.object, &next).await?;
        tell::restore(&self.world.events, &written, &seen.status, status);
        self.object = written;
        Ok(())
    }

    async fn create_restore(&self, seen: &Observed, source: &Source) -> Result<(), Failure> {
        let Source::Found { velero: Some(backup), .. } = source else { return Ok(()) };
        let nacuuid = seen.nacuuid().unwrap_or_default();
        let asked = spec::object(&self.object.spec, "/restoreSpec");
        let mut made =
            validate::velero_spec(&self.key.namespace, &asked, &backup.name, &self.settings);
        if self.world.place.executor == Executor::Velero {
            validate::confine(&mut made, backup);
        }
        let mut meta = self.origin(nacuuid).meta(Kind::Restore, &self.world.admin);
        // Whoever gets the name of the namespace next gets nothing of it.
        let home = self.world.home(&self.key.namespace).await?.ok_or_else(|| {
            let doing = format!("make the Velero Restore of {}", self.key);
            Failure::other(doing, "its namespace is being deleted")
        })?;
        meta.annotations.get_or_insert_default().extend(home.annotations());
        let run_as = identity::run_as(
            &self.key.namespace,
            self.object.metadata.annotations.as_ref(),
            self.world.place.askers,
            self.settings.restore_account.as_deref(),
        );
        if let Some(run_as) = run_as {
            meta.annotations.get_or_insert_default().insert(RUN_AS.to_owned(), run_as);
        }
        match self.world.velero_restores.create(&Vr::new(meta, made)).await {
            // Or made by a pass that did not live to tell; whose it is, is looked at next.
            Ok(_) | Err(Failure::Conflict { .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}
