//! The loops around restores: one at a time in the order of creation, and what is left of one that is
//! deleted.

use std::sync::Arc;
use std::time::Duration;

use api::scalar::Time;
use api::velero::{Restore, RestorePhase};
use jiff::Timestamp;
use reconcile::{Failure, Key, Loop, Next, Reconciler};

use super::run;
use crate::backup::decide::is_available;
use crate::layout;
use crate::names;
use crate::world::World;

pub(crate) const KIND: &str = "restore";
const RETRY_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Working,
    Done,
}

fn stage(restore: &Restore) -> Stage {
    use RestorePhase as P;
    match restore.status.as_ref().and_then(|it| it.phase.as_ref()) {
        None | Some(P::New) => Stage::New,
        Some(P::Other(word)) if word.is_empty() => Stage::New,
        Some(
            P::InProgress
            | P::WaitingForPluginOperations
            | P::WaitingForPluginOperationsPartiallyFailed
            | P::Finalizing
            | P::FinalizingPartiallyFailed,
        ) => Stage::Working,
        Some(P::FailedValidation | P::Completed | P::PartiallyFailed | P::Failed | P::Other(_)) => {
            Stage::Done
        }
    }
}

/// Which restore is next.
#[derive(Debug)]
struct Restores {
    world: Arc<World>,
    again: Arc<reconcile::Queue>,
}

pub(crate) async fn run_queue(world: Arc<World>) {
    let all = world.key("queue");
    let whole = all.clone();
    let queue = Loop::new("velero-restores", &world.context)
        .workers(1)
        .map(&world.restores, move |_, _, _| vec![whole.clone()])
        .needs(&world.backups)
        .needs(&world.locations);
    let again = queue.queue();
    again.add(&all);
    queue.run(Arc::new(Restores { world, again })).await;
}

impl Reconciler for Restores {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.world;
        let mut waiting = Vec::new();
        for restore in world.restores.list() {
            let name = restore.metadata.name.clone().unwrap_or_default();
            match stage(&restore) {
                Stage::Working if !world.running.has(KIND, &name) => {
                    let done = abandoned(&restore);
                    world.restores.update(&restore, &done).await?;
                }
                Stage::New if restore.metadata.deletion_timestamp.is_none() => {
                    let created = restore.metadata.creation_timestamp.as_ref().map(|it| it.0);
                    waiting.push((created, name));
                }
                Stage::New | Stage::Working | Stage::Done => {}
            }
        }
        waiting.sort();
        let is_free = world.running.count(KIND) == 0;
        if let (true, Some((_, name))) = (is_free, waiting.into_iter().next())
            && let Some(work) = world.running.begin(KIND, &name)
        {
            let (world, again, key) = (Arc::clone(world), Arc::clone(&self.again), key.clone());
            self.world.context.tasks.spawn("restore", async move {
                run::run(&world, &name).await;
                drop(work);
                again.add(&key);
            });
        }
        Ok(Next::WAIT)
    }
}

fn abandoned(restore: &Restore) -> Restore {
    let mut done = restore.clone();
    let status = done.status.get_or_insert_default();
    let phase = status.phase.as_ref().map_or("InProgress", |it| it.as_str());
    status.failure_reason = Some(format!(
        "found a restore with status \"{phase}\" during the server starting, mark it as \"Failed\""
    ));
    status.phase = Some(RestorePhase::Failed);
    status.completion_timestamp = Some(Time::new(Timestamp::now()));
    done
}

/// Removes the files of restores that are deleted.
#[derive(Debug)]
struct Removals {
    world: Arc<World>,
}

pub(crate) async fn run_removals(world: Arc<World>) {
    Loop::new("velero-restore-removals", &world.context)
        .on(&world.restores)
        .needs(&world.backups)
        .needs(&world.locations)
        .run(Arc::new(Removals { world }))
        .await;
}

impl Reconciler for Removals {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.world;
        let Some(restore) = world.restores.get(key) else { return Ok(Next::WAIT) };
        let finalizers = restore.metadata.finalizers.as_ref();
        let is_held =
            finalizers.is_some_and(|it| it.iter().any(|it| it == names::RESTORE_FINALIZER));
        if restore.metadata.deletion_timestamp.is_none() || !is_held {
            return Ok(Next::WAIT);
        }
        if world.running.has(KIND, &key.name) {
            return Ok(Next::after(RETRY_AFTER));
        }
        remove_files(world, &restore, &key.name).await?;
        world.restores.remove_finalizer(&restore, names::RESTORE_FINALIZER).await?;
        Ok(Next::WAIT)
    }
}

async fn remove_files(world: &World, restore: &Restore, name: &str) -> Result<(), Failure> {
    let backup = restore.spec.backup_name.as_deref().unwrap_or_default();
    let Some(backup) = world.backups.get(&world.key(backup)) else { return Ok(()) };
    let location = backup.spec.storage_location.as_deref().unwrap_or_default();
    let Some(location) = world.location(location) else { return Ok(()) };
    let doing = format!("remove the files of restore {name}");
    if !is_available(&location) {
        return Err(Failure::other(doing, "its storage location is not available"));
    }
    let Ok(folder) = layout::restore_folder(name) else { return Ok(()) };
    let opened = world.open(&location).await.map_err(|it| Failure::other(doing.clone(), it))?;
    let removed = blobs::delete_all(opened.store.as_ref(), &folder).await;
    removed.map(drop).map_err(|it| Failure::other(doing, it))
}
