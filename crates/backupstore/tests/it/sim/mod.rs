//! The protocol of locks, records and sweeps in simulated time: what ships, run by several machines over
//! one store, with pauses, lost and late calls, wrong clocks, and stores of every kind.
//!
//! What must hold at every moment: a record that says it is complete has all its blocks.

mod actor;
mod peer;
mod schedules;
mod seeds;
mod world;

use std::sync::Arc;
use std::time::Duration;

use backupstore::create::CreateRequest;
use backupstore::delete::DeleteOptions;
use backupstore::verify::{Depth, VerifyOptions};
use backupstore::{
    Abilities, BackupStore, Compression, Control, Error, LOCK_TIMEOUT, LockSchedule, TargetUrl,
};
use blobs::Store;
use blobs::wrap::{Policy, Retrying};

use self::actor::{Actor, ActorClock, ActorProcesses, View};
use crate::world::{Volume, create_request, name, volume};

/// How long operations wait for a lock.
const TIMEOUT: Duration = LOCK_TIMEOUT;

/// Three states: blocks come back that were there before.
fn states() -> Volume {
    let mut of = Volume::new(6);
    for page in 0..5 {
        of.write(page * 2, 1 + page as u64);
    }
    of.snapshot();
    of.write(2, 9);
    of.write(10, 7);
    of.snapshot();
    of.write(2, 2);
    of.write(0, 0);
    of
}

/// Ours, on one machine.
struct Ours {
    actor: Arc<Actor>,
    store: BackupStore,
    /// When somebody calls off what it does.
    cancelled_after: Option<Duration>,
}

impl Ours {
    async fn new(actor: Arc<Actor>) -> Self {
        let view: Arc<dyn Store> = Arc::new(View(Arc::clone(&actor)));
        let view = Retrying::around(view, Policy::default());
        let url = TargetUrl::parse("vfs:///store").unwrap();
        // As an operation does that meets this store for the first time, on a good day.
        let probed = Arc::new(View(Actor::build(&actor.world, "probe", 7).start()));
        let abilities = Abilities::probe(probed.as_ref()).await.unwrap();
        let store = BackupStore::new(view, url)
            .with_abilities(abilities)
            .with_schedule(LockSchedule::default())
            .with_clock(Arc::new(ActorClock(Arc::clone(&actor))))
            .with_processes(Arc::new(ActorProcesses(Arc::clone(&actor))));
        Self { actor, store, cancelled_after: None }
    }

    /// Until it ends, or its machine dies.
    async fn run<T>(
        &self,
        what: &str,
        control: &Control,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        self.actor.world.log(format_args!("{}: {what}", self.actor.name));
        let cancels = async {
            if let Some(after) = self.cancelled_after {
                tokio::time::sleep(after).await;
                self.actor.world.log(format_args!("{}: {what}: cancelled", self.actor.name));
                control.cancel();
            }
            futures::future::pending::<()>().await;
        };
        let done = tokio::select! {
            done = work => done,
            () = cancels => return None,
            () = self.actor.killed.cancelled() => return None,
        };
        let said = match &done {
            Ok(_) => "done".to_owned(),
            Err(error) => chain(error),
        };
        self.actor.world.log(format_args!("{}: {what}: {said}", self.actor.name));
        done.ok()
    }

    async fn back_up(&self, of: &Volume, index: usize, backup: &str) -> bool {
        let source = of.source(index);
        let control = Control::default();
        let request = CreateRequest {
            compression: Compression::None,
            lock_timeout: TIMEOUT,
            ..create_request(&of.snapshots[index].name, backup)
        };
        let work = Box::pin(async {
            let begun = self.store.begin_backup(request, Arc::clone(&source), &control).await?;
            begun.run(Arc::clone(&source), &control).await
        });
        self.run(&format!("back up {backup}"), &control, work).await.is_some()
    }

    async fn delete(&self, backup: &str) -> bool {
        let options = DeleteOptions { lock_timeout: TIMEOUT, ..DeleteOptions::default() };
        let (volume, backup, control) = (volume(), name(backup), Control::default());
        let work = Box::pin(self.store.delete_backup(&volume, &backup, &options, &control));
        self.run(&format!("delete {backup}"), &control, work).await.is_some()
    }

    /// Whether all that is complete is there, as far as lists tell.
    async fn is_healthy(&self) -> bool {
        let (volume, control) = (volume(), Control::default());
        let options = VerifyOptions::new(Depth::Quick);
        let work = Box::pin(self.store.verify(&volume, &options, &control));
        self.run("verify", &control, work).await.is_none_or(|found| found.is_healthy())
    }

    async fn delete_volume(&self) -> bool {
        let options = DeleteOptions { lock_timeout: TIMEOUT, ..DeleteOptions::default() };
        let (volume, control) = (volume(), Control::default());
        let work = Box::pin(self.store.delete_volume(&volume, &options, &control));
        self.run("delete the volume", &control, work).await.is_some()
    }

    async fn collect(&self) -> bool {
        let options = DeleteOptions { lock_timeout: TIMEOUT, ..DeleteOptions::default() };
        let (volume, control) = (volume(), Control::default());
        let work = Box::pin(self.store.collect_garbage(&volume, &options, &control));
        self.run("collect", &control, work).await.is_some()
    }
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
