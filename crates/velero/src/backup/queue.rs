//! The loop around the queue: what [`super::machine`] decides is written, and work is started.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::velero::{Backup, BackupPhase};
use jiff::Timestamp;
use reconcile::{Failure, Key, Loop, Next, Reconciler};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::machine::{Action, Seen, decide};
use super::run;
use crate::lists::Lists;
use crate::world::{World, tenant_of};

pub(crate) const KIND: &str = "backup";
/// Places in a long queue change with each backup that ends; they are told no more often than this for
/// each hundred that wait.
const RENUMBER_EVERY: Duration = Duration::from_millis(500);

pub(crate) struct BackupQueue {
    world: Arc<World>,
    again: Arc<reconcile::Queue>,
    renumbered: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for BackupQueue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("BackupQueue").finish_non_exhaustive()
    }
}

/// Any change of any backup is a look at all of them.
pub(crate) async fn run(world: Arc<World>) {
    let all = world.key("queue");
    let whole = all.clone();
    let queue = Loop::new("velero-backups", &world.context)
        .workers(1)
        .map(&world.backups, move |_, _, _| vec![whole.clone()])
        .needs(&world.locations);
    let again = queue.queue();
    again.add(&all);
    let reconciler = BackupQueue { world, again, renumbered: Mutex::default() };
    queue.run(Arc::new(reconciler)).await;
}

impl BackupQueue {
    /// All backups but those that are left out, and when these are looked at again.
    fn see(&self) -> (Vec<Seen>, Next) {
        let world = &self.world;
        let (running, all) = look(|| world.running.all(KIND), || world.backups.list());
        let mut next = Next::WAIT;
        let mut kept = Vec::with_capacity(all.len());
        for backup in all {
            let it = seen(world, &backup, &running);
            match world.refused.until(KIND, &backup.metadata).filter(|_| !it.is_running) {
                Some(later) => next = next.or(later),
                None => kept.push(it),
            }
        }
        (kept, next)
    }

    /// Whether it is there now. One that the API server does not take is left out of the next pass, which
    /// then gives its place to others.
    async fn place(
        &self,
        key: &Key,
        name: &str,
        phase: BackupPhase,
        position: Option<i64>,
    ) -> Result<bool, Failure> {
        let Some(backup) = self.world.backups.get(&self.world.key(name)) else { return Ok(false) };
        let mut next = backup.as_ref().clone();
        let status = next.status.get_or_insert_default();
        status.phase = Some(phase);
        status.queue_position = position;
        match self.world.backups.update(&backup, &next).await {
            Ok(_) => Ok(true),
            Err(failure) if self.world.refused.note(KIND, &backup.metadata, &failure) => {
                self.again.add(key);
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    fn start(&self, key: &Key, name: String) {
        let Some(work) = self.world.running.begin(KIND, &name) else { return };
        let (world, again, key) = (Arc::clone(&self.world), Arc::clone(&self.again), key.clone());
        self.world.context.tasks.spawn("backup", async move {
            Box::pin(run::run(&world, &name)).await;
            drop(work);
            again.add(&key);
        });
    }

    fn abandon(&self, key: &Key, name: &str) {
        let Some(backup) = self.world.backups.get(&self.world.key(name)) else { return };
        let Some(work) = self.world.running.begin(KIND, name) else { return };
        let (world, again, key) = (Arc::clone(&self.world), Arc::clone(&self.again), key.clone());
        self.world.context.tasks.spawn("abandoned backup", async move {
            run::abandoned(&world, &backup).await;
            drop(work);
            again.add(&key);
        });
    }
}

/// What is worked on, and then the objects. One that ends in between is seen to be worked on for a moment
/// longer; the other way round it would be one that nobody works on, and has not ended.
pub(crate) fn look<T>(
    running: impl FnOnce() -> HashSet<String>,
    objects: impl FnOnce() -> T,
) -> (HashSet<String>, T) {
    let running = running();
    (running, objects())
}

impl Reconciler for BackupQueue {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let (seen, mut next) = self.see();
        let actions = decide(&seen, self.world.settings.concurrent_backups.max(1));
        let waiting = actions.iter().filter(|it| matches!(it, Action::Renumber { .. })).count();
        let mut renumbered = self.renumbered.lock().await;
        let pause = RENUMBER_EVERY * u32::try_from(waiting / 100 + 1).unwrap_or(u32::MAX);
        let wait = renumbered.map_or(Duration::ZERO, |it| pause.saturating_sub(it.elapsed()));
        // Work first: places can wait.
        for action in &actions {
            match action {
                Action::Release { name } => {
                    if self.place(key, name, BackupPhase::ReadyToStart, None).await? {
                        self.start(key, name.clone());
                    }
                }
                Action::Start { name } => self.start(key, name.clone()),
                Action::Abandoned { name } => self.abandon(key, name),
                Action::Queue { .. } | Action::Renumber { .. } => {}
            }
        }
        let may_renumber = wait.is_zero();
        for action in actions {
            match action {
                Action::Queue { name, position } => {
                    self.place(key, &name, BackupPhase::Queued, Some(position)).await?;
                }
                Action::Renumber { name, position } if may_renumber => {
                    self.place(key, &name, BackupPhase::Queued, Some(position)).await?;
                }
                Action::Renumber { .. } => next = next.or(Next::after(wait)),
                Action::Release { .. } | Action::Start { .. } | Action::Abandoned { .. } => {}
            }
        }
        if may_renumber && waiting > 0 {
            *renumbered = Some(Instant::now());
        }
        Ok(next)
    }
}

fn seen(world: &World, backup: &Backup, running: &HashSet<String>) -> Seen {
    let name = backup.metadata.name.clone().unwrap_or_default();
    let status = backup.status.as_ref();
    let spec = &backup.spec;
    Seen {
        is_running: running.contains(&name),
        tenant: spec
            .storage_location
            .as_deref()
            .and_then(|it| world.location(it))
            .and_then(|it| tenant_of(&it).map(str::to_owned)),
        created: backup.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |it| it.0),
        phase: status.and_then(|it| it.phase.clone()),
        position: status.and_then(|it| it.queue_position),
        namespaces: Lists::new(
            spec.included_namespaces.as_ref(),
            spec.excluded_namespaces.as_ref(),
        ),
        name,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;
    use crate::world::tests::{Objects, phases, refusing, world};

    #[tokio::test(start_paused = true)]
    async fn a_backup_that_the_server_does_not_take_holds_up_no_other() {
        let backup = |name: &str, phase: &str, second: u32| {
            json!({"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": name,
                "namespace": "adm", "uid": name, "resourceVersion": "1",
                "creationTimestamp": format!("2024-01-01T00:00:0{second}Z")},
                "spec": {"includedNamespaces": ["a"]}, "status": {"phase": phase}})
        };
        for phase in ["New", "Queued", "ReadyToStart", "InProgress"] {
            let all: Objects = Arc::new(std::sync::Mutex::new(vec![
                backup("bad", phase, 1),
                backup("good", "New", 2),
            ]));
            let tasks = tasks::Tasks::new();
            let world = world(refusing("backups", "bad", &all), &tasks);
            world.backups.ready().await;
            let again = Arc::new(reconcile::Queue::new(reconcile::Backoff::DEFAULT));
            let queue = BackupQueue { world, again, renumbered: Mutex::default() };
            let key = queue.world.key("queue");
            for _ in 0..20 {
                drop(queue.reconcile(&key).await);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let phases = phases(&all);
            assert_eq!(phases["bad"], phase, "its writes are refused");
            assert_ne!(phases["good"], "New", "it waits behind one that is {phase}");
            assert_ne!(phases["good"], "Queued", "it waits behind one that is {phase}");
        }
    }

    #[test]
    fn one_that_ends_while_it_is_looked_at_is_not_one_that_nobody_works_on() {
        // It ends right after the first look, whatever that is at.
        let has_ended = Cell::new(false);
        let running = || {
            let goes_on = !has_ended.replace(true);
            goes_on.then(|| "b".to_owned()).into_iter().collect()
        };
        let objects = || {
            let has_ended = has_ended.replace(true);
            if has_ended { BackupPhase::Completed } else { BackupPhase::InProgress }
        };
        let (running, phase) = look(running, objects);
        let seen = Seen {
            is_running: running.contains("b"),
            name: "b".to_owned(),
            created: Timestamp::UNIX_EPOCH,
            phase: Some(phase),
            position: None,
            namespaces: Lists::default(),
            tenant: None,
        };
        assert_eq!(decide(&[seen], 1), []);
    }
}
