//! The loops around restores: one at a time in the order of creation, those of tenants beside them, and
//! what is left of one that is deleted.

use std::sync::Arc;
use std::time::Duration;

use api::scalar::Time;
use api::velero::{BackupStorageLocation, Restore, RestorePhase};
use jiff::Timestamp;
use reconcile::{Failure, Key, Loop, Next, Reconciler};

use super::run;
use crate::backup::decide::is_available;
use crate::backup::queue::look;
use crate::deletions::STORE_WITHIN;
use crate::layout;
use crate::names;
use crate::world::{STORE_WORKERS, World, in_time, tenant_of, turn};

pub(crate) const KIND: &str = "restore";
const RETRY_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    New,
    Working,
    Done,
}

pub(crate) fn stage(restore: &Restore) -> Stage {
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

/// A restore that waits or runs, as the queue sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    name: String,
    created: Option<Timestamp>,
    /// The tenant who asked for it, or whose own store it reads from.
    tenant: Option<String>,
    is_running: bool,
}

/// Restores of tenants that run at the same time, one for each tenant. They mostly wait, for volumes
/// and for stores.
const TENANTS_AT_ONCE: usize = 8;

/// Which restores begin now. How long a tenant's volumes and its store take is up to the tenant, and so
/// is how many restores it asks for: they keep nobody else waiting.
fn next(seen: &[Seen]) -> Vec<String> {
    let mut waiting: Vec<&Seen> = seen.iter().filter(|it| !it.is_running).collect();
    waiting.sort_by_key(|it| (it.created, &it.name));
    let running: Vec<&Seen> = seen.iter().filter(|it| it.is_running).collect();
    let mut begin = Vec::new();
    if !running.iter().any(|it| it.tenant.is_none()) {
        begin.extend(waiting.iter().find(|it| it.tenant.is_none()).map(|it| it.name.clone()));
    }
    let mut tenants: Vec<&str> = running.iter().filter_map(|it| it.tenant.as_deref()).collect();
    for it in waiting {
        let Some(tenant) = it.tenant.as_deref() else { continue };
        if tenants.len() < TENANTS_AT_ONCE && !tenants.contains(&tenant) {
            tenants.push(tenant);
            begin.push(it.name.clone());
        }
    }
    begin
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
        let (mut seen, mut again) = (Vec::new(), Next::WAIT);
        let (running, all) = look(|| world.running.all(KIND), || world.restores.list());
        for restore in all {
            let name = restore.metadata.name.clone().unwrap_or_default();
            let is_running = running.contains(&name);
            let stage = stage(&restore);
            if let Some(later) =
                world.refused.until(KIND, &restore.metadata).filter(|_| !is_running)
            {
                again = again.or(later);
                continue;
            }
            if stage == Stage::Working && !is_running {
                crate::volumes::abandon(world, &restore).await;
                match world.restores.update(&restore, &abandoned(&restore)).await {
                    Err(failure) if world.refused.note(KIND, &restore.metadata, &failure) => {
                        self.again.add(key);
                    }
                    written => drop(written?),
                }
            }
            let waits = stage == Stage::New && restore.metadata.deletion_timestamp.is_none();
            if is_running || waits {
                let created = restore.metadata.creation_timestamp.as_ref().map(|it| it.0);
                seen.push(Seen { tenant: tenant(world, &restore), name, created, is_running });
            }
        }
        for name in next(&seen) {
            let Some(work) = world.running.begin(KIND, &name) else { continue };
            let (world, queue, key) = (Arc::clone(world), Arc::clone(&self.again), key.clone());
            self.world.context.tasks.spawn("restore", async move {
                run::run(&world, &name).await;
                drop(work);
                queue.add(&key);
            });
        }
        Ok(again)
    }
}

fn tenant(world: &World, restore: &Restore) -> Option<String> {
    let notes = restore.metadata.annotations.as_ref();
    if let Some(asks) = notes.and_then(|it| it.get(names::TENANT_NAMESPACE)) {
        return Some(asks.clone());
    }
    let location = location_of(world, restore)?;
    tenant_of(&location).map(str::to_owned)
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
        .workers(STORE_WORKERS)
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
        let _turn =
            match location_of(world, &restore).map(|it| turn(&world.running, "removal", &it)) {
                None => None,
                Some(Ok(turn)) => turn,
                Some(Err(later)) => return Ok(later),
            };
        remove_files(world, &restore, &key.name).await?;
        world.restores.remove_finalizer(&restore, names::RESTORE_FINALIZER).await?;
        Ok(Next::WAIT)
    }
}

/// Where the files of a restore lie: with those of its backup.
fn location_of(world: &World, restore: &Restore) -> Option<Arc<BackupStorageLocation>> {
    let backup = world.backups.get(&world.key(restore.spec.backup_name.as_deref()?))?;
    world.location(backup.spec.storage_location.as_deref()?)
}

async fn remove_files(world: &World, restore: &Restore, name: &str) -> Result<(), Failure> {
    let Some(location) = location_of(world, restore) else { return Ok(()) };
    let doing = format!("remove the files of restore {name}");
    if !is_available(&location) {
        return Err(Failure::other(doing, "its storage location is not available"));
    }
    let Ok(folder) = layout::restore_folder(name) else { return Ok(()) };
    let opened = world.open(&location).await.map_err(|it| Failure::other(doing.clone(), it))?;
    let removing = blobs::delete_all(opened.store.as_ref(), &folder);
    let removed = in_time(&location, STORE_WITHIN, removing).await;
    let removed = removed.map_err(|late| Failure::other(doing.clone(), late))?;
    removed.map(drop).map_err(|it| Failure::other(doing, it))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::tests::{Objects, phases, refusing};

    #[tokio::test(start_paused = true)]
    async fn a_restore_that_the_server_does_not_take_holds_up_no_other() {
        let restore = |name: &str, phase: &str, second: u32| {
            json!({"apiVersion": "velero.io/v1", "kind": "Restore", "metadata": {"name": name,
                "namespace": "adm", "uid": name, "resourceVersion": "1",
                "creationTimestamp": format!("2024-01-01T00:00:0{second}Z")},
                "spec": {"backupName": "none"}, "status": {"phase": phase}})
        };
        for phase in ["New", "InProgress"] {
            let all: Objects = Arc::new(std::sync::Mutex::new(vec![
                restore("bad", phase, 1),
                restore("good", "New", 2),
            ]));
            let tasks = tasks::Tasks::new();
            let world = crate::world::tests::world(refusing("restores", "bad", &all), &tasks);
            world.restores.ready().await;
            let again = Arc::new(reconcile::Queue::new(reconcile::Backoff::DEFAULT));
            let queue = Restores { world, again };
            let key = queue.world.key("queue");
            for _ in 0..20 {
                drop(queue.reconcile(&key).await);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let phases = phases(&all);
            assert_eq!(phases["bad"], phase, "its writes are refused");
            assert_eq!(phases["good"], "FailedValidation", "it waits behind one that is {phase}");
        }
    }

    fn seen(name: &str, second: i64, tenant: Option<&str>, is_running: bool) -> Seen {
        Seen {
            name: name.to_owned(),
            created: Timestamp::from_second(second).ok(),
            tenant: tenant.map(str::to_owned),
            is_running,
        }
    }

    #[test]
    fn restores_from_our_stores_run_one_by_one_in_their_order() {
        let all = [seen("c", 3, None, false), seen("a", 1, None, false), seen("b", 1, None, false)];
        assert_eq!(next(&all), ["a"]);
        assert_eq!(next(&[all[0].clone(), seen("x", 9, None, true)]), Vec::<String>::new());
    }

    #[test]
    fn a_tenants_store_keeps_nobody_else_waiting() {
        let slow = seen("slow", 1, Some("t"), true);
        let all = [
            slow,
            seen("t2", 2, Some("t"), false),
            seen("ours", 3, None, false),
            seen("u1", 4, Some("u"), false),
            seen("u2", 5, Some("u"), false),
            seen("v1", 6, Some("v"), false),
            seen("w1", 7, Some("w"), false),
        ];
        assert_eq!(next(&all), ["ours", "u1", "v1", "w1"], "one of each tenant");
        let mut crowd: Vec<Seen> = (0..TENANTS_AT_ONCE)
            .map(|number| seen(&format!("r{number}"), 1, Some(&format!("t{number}")), true))
            .collect();
        crowd.extend([seen("ours", 3, None, false), seen("x", 2, Some("x"), false)]);
        assert_eq!(next(&crowd), ["ours"], "no more of them than may");
    }
}
