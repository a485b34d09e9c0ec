//! The system's own resources in a backup store, and back from there.
//!
//! A system backup is an archive with one file for each kind, of objects as they would be made anew:
//! no status, and nothing that the server gave them. With its policy it has volumes backed up first,
//! so that a restore finds their data. A restore makes what is not there, and leaves what is.

mod archive;
mod catalog;
mod restore;
mod save;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::condition::Verdict as Conclusion;
use api::longhorn::{
    Backup, BackupTarget, Snapshot, SystemBackup, SystemRestore, SystemState, Volume,
};
use api::scalar::Time;
use backupstore::format::SystemBackupCfg;
use backupstore::{BackupStore, Name, SystemBackup as Stored};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt as _};
use reconcile::{
    Context, Controller, EVENT_RIGHTS, Events, Failure, Grant, Key, Loop, Next, Queue, Reconciler,
    Severity, Store,
};

use crate::backup::{deletion, now};
use crate::target::{self, Door};
use crate::work::{Stand, Work};
use crate::{FINALIZER, NAMESPACE, label};

/// In the path of system backups in a store.
pub(crate) const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

pub(crate) const CONTROLLERS: &[Controller] = &[Controller {
    name: "system-backups",
    grants: &[
        Grant {
            groups: &["longhorn.io"],
            resources: &["systembackups", "systemrestores"],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["systembackups/status", "systemrestores/status"],
            verbs: &["patch"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["volumes", "settings", "recurringjobs", "backuptargets"],
            verbs: &["get", "list", "watch", "create", "patch"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["snapshots", "backups"],
            verbs: &["get", "list", "watch", "create"],
        },
        Grant { groups: &["longhorn.io"], resources: &["backupvolumes"], verbs: &["get"] },
        Grant { groups: &[""], resources: &["secrets"], verbs: &["get", "list", "watch"] },
        EVENT_RIGHTS,
    ],
    acts_on: &["systembackups.longhorn.io", "systemrestores.longhorn.io"],
    run: |context| run(context),
}];

#[derive(Debug)]
pub(crate) struct World {
    client: Connection,
    saves: Store<SystemBackup>,
    restores: Store<SystemRestore>,
    targets: Store<BackupTarget>,
    secrets: Store<Secret>,
    volumes: Store<Volume>,
    snapshots: Store<Snapshot>,
    backups: Store<Backup>,
    events: Events,
    saving: Arc<Queue>,
    restoring: Arc<Queue>,
    /// By the uid of the object.
    work: Work<(), Result<End, String>>,
    /// What the default target has.
    listings: Work<catalog::Mark, Result<BTreeSet<String>, String>>,
    cataloguing: Arc<Queue>,
    shown: Mutex<Option<String>>,
    me: String,
}

/// A client that can be shown.
#[derive(Clone)]
pub(crate) struct Connection(Client);

impl std::fmt::Debug for Connection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Client")
    }
}

/// How work for an object ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Saved { version: String, created: String },
    Removed,
    Restored(String),
}

fn run(context: Context) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let saves = Loop::new("system-backups", &context);
        let restores = Loop::new("system-restores", &context);
        let listings = Loop::new("system-catalog", &context);
        let world = Arc::new(World {
            client: Connection(context.client.clone()),
            saves: Store::within(NAMESPACE).start(&context),
            restores: Store::within(NAMESPACE).start(&context),
            targets: Store::within(NAMESPACE).start(&context),
            secrets: Store::within(NAMESPACE).start(&context),
            volumes: Store::within(NAMESPACE).start(&context),
            snapshots: Store::within(NAMESPACE).start(&context),
            backups: Store::within(NAMESPACE)
                .index("volume", |it: &Backup| {
                    it.labels().get(label::BACKUP_VOLUME).cloned().into_iter().collect()
                })
                .start(&context),
            events: context.events.clone(),
            saving: saves.queue(),
            restoring: restores.queue(),
            work: Work::new("work", &context.tasks),
            listings: Work::new("system-listings", &context.tasks),
            cataloguing: listings.queue(),
            shown: Mutex::default(),
            me: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        });
        let saves = saves
            .on(&world.saves)
            .needs(&world.targets)
            .needs(&world.secrets)
            .needs(&world.volumes)
            .needs(&world.backups);
        let restores = restores
            .on(&world.restores)
            .needs(&world.saves)
            .needs(&world.targets)
            .needs(&world.secrets);
        let listings = listings.on(&world.targets).needs(&world.saves).needs(&world.secrets);
        futures::join!(
            saves.run(Arc::new(Saves(Arc::clone(&world)))),
            listings.run(Arc::new(catalog::Catalog(Arc::clone(&world)))),
            restores.run(Arc::new(Restores(world))),
        );
    })
}

impl World {
    /// System backups live in the default target.
    async fn open(&self) -> Result<Arc<Door>, String> {
        let target = self.targets.get(&Key::new(NAMESPACE, target::DEFAULT));
        let target = target.ok_or_else(|| "there is no default backup target".to_owned())?;
        let secret = target.spec.credential_secret.clone().unwrap_or_default();
        let secret = self.secrets.get(&Key::new(NAMESPACE, &secret));
        target::open_with(&target, secret.as_deref()).await.map(Arc::new)
    }

    async fn show_save(&self, name: &str, state: SystemState) {
        let Some(save) = self.saves.get(&Key::new(NAMESPACE, name)) else { return };
        let mut new = save.as_ref().clone();
        new.status.get_or_insert_default().state = Some(state);
        if let Err(failure) = self.saves.merge(&save, &new).await {
            tracing::debug!(error = %telemetry::Chain(&failure), "a state was not shown");
        }
    }
}

/// One pass over one system backup.
#[derive(Debug)]
struct Saves(Arc<World>);

impl Reconciler for Saves {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.0;
        let Some(save) = world.saves.get(key) else { return Ok(Next::WAIT) };
        let (uid, goes) =
            (save.uid().unwrap_or_default(), save.metadata.deletion_timestamp.is_some());
        let status = save.status.clone().unwrap_or_default();
        let is_over = matches!(status.state, Some(SystemState::Ready | SystemState::Error));
        if goes && deletion::keeps_data(save.as_ref()) {
            world.saves.remove_finalizer(&save, FINALIZER).await?;
            return Ok(Next::WAIT);
        }
        let mut dressed = save.as_ref().clone();
        deletion::unmark(&mut dressed);
        let save = world.saves.update(&save, &dressed).await?;
        match world.work.look(&uid).map(|it| it.stand) {
            Some(Stand::Running) => Ok(Next::WAIT),
            Some(Stand::Ended(end)) => {
                self.take(&save, end).await?;
                world.work.forget(&uid);
                Ok(if goes { Next::after(Duration::from_secs(10)) } else { Next::WAIT })
            }
            Some(Stand::Broken) => {
                self.take(&save, Err("it broke down".to_owned())).await?;
                world.work.forget(&uid);
                Ok(Next::WAIT)
            }
            None if goes => {
                if save.finalizers().iter().any(|it| it == FINALIZER) {
                    let mut new = save.as_ref().clone();
                    new.status.get_or_insert_default().state = Some(SystemState::Deleting);
                    let save = world.saves.update(&save, &new).await?;
                    let tell = (Arc::clone(&world.saving), key.clone());
                    world.work.start(&uid, (), tell, save::remove(Arc::clone(world), save));
                }
                Ok(Next::WAIT)
            }
            None if is_over => Ok(Next::WAIT),
            // Also after a crash: an archive that is there already is not made again.
            None => {
                let save = world.saves.add_finalizer(&save, FINALIZER).await?;
                let tell = (Arc::clone(&world.saving), key.clone());
                world.work.start(&uid, (), tell, save::save(Arc::clone(world), save));
                Ok(Next::WAIT)
            }
        }
    }
}

impl Saves {
    async fn take(
        &self,
        save: &Arc<SystemBackup>,
        end: Result<End, String>,
    ) -> Result<(), Failure> {
        let world = &self.0;
        let mut new = save.as_ref().clone();
        let status = new.status.get_or_insert_default();
        status.owner_id = Some(world.me.clone());
        let conclusion = match end {
            Ok(End::Removed) => {
                world.saves.remove_finalizer(save, FINALIZER).await?;
                if save.metadata.deletion_timestamp.is_none() {
                    world.saves.delete(save).await?;
                }
                return Ok(());
            }
            Ok(End::Saved { version, created }) => {
                status.state = Some(SystemState::Ready);
                status.version = Some(version);
                status.created_at = created.parse().ok().map(Time::new);
                status.last_synced_at = Some(Time::new(now()));
                Conclusion::new("Error", false, "", "")
            }
            Ok(End::Restored(_)) => return Ok(()),
            Err(why) => {
                status.state = Some(SystemState::Error);
                world.events.say(save.as_ref(), Severity::Warning, "Error", &why);
                Conclusion::new("Error", true, "Failed", why)
            }
        };
        api::condition::set(
            status.conditions.get_or_insert_default(),
            &conclusion,
            Time::new(now()),
        );
        world.saves.update(save, &new).await?;
        Ok(())
    }
}

/// One pass over one restore.
#[derive(Debug)]
struct Restores(Arc<World>);

impl Reconciler for Restores {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.0;
        let Some(restore) = world.restores.get(key) else { return Ok(Next::WAIT) };
        if restore.metadata.deletion_timestamp.is_some() {
            return Ok(Next::WAIT);
        }
        let uid = restore.uid().unwrap_or_default();
        let mut new = restore.as_ref().clone();
        let status = new.status.get_or_insert_default();
        if matches!(status.state, Some(SystemState::Completed | SystemState::Error)) {
            return Ok(Next::WAIT);
        }
        status.owner_id = Some(world.me.clone());
        let (state, conclusion) = match world.work.look(&uid).map(|it| it.stand) {
            Some(Stand::Running) => return Ok(Next::WAIT),
            None => {
                let tell = (Arc::clone(&world.restoring), key.clone());
                world.work.start(
                    &uid,
                    (),
                    tell,
                    restore::restore(Arc::clone(world), Arc::clone(&restore)),
                );
                (SystemState::Restoring, Conclusion::new("Error", false, "", ""))
            }
            Some(Stand::Ended(Ok(End::Restored(text)))) => {
                (SystemState::Completed, Conclusion::new("Error", false, "Restored", text))
            }
            Some(Stand::Ended(Ok(_)) | Stand::Broken) => {
                (SystemState::Error, Conclusion::new("Error", true, "Failed", "it broke down"))
            }
            Some(Stand::Ended(Err(why))) => {
                world.events.say(restore.as_ref(), Severity::Warning, "Error", &why);
                (SystemState::Error, Conclusion::new("Error", true, "Failed", why))
            }
        };
        status.state = Some(state);
        api::condition::set(
            status.conditions.get_or_insert_default(),
            &conclusion,
            Time::new(now()),
        );
        world.restores.update(&restore, &new).await?;
        Ok(Next::WAIT)
    }
}

/// The system backup of this name that a version of this program makes.
fn named(version: &str, name: &str) -> Result<Stored, String> {
    let parse = |text: &str| Name::parse(text).map_err(|error| error.to_string());
    Ok(Stored { version: parse(version)?, name: parse(name)? })
}

/// Where a system backup lies: as its object says, or, where that says nothing, as this version would have made it,
/// or as it is listed. Without a record there is none.
async fn find(
    store: &BackupStore,
    name: &str,
    version: Option<&str>,
) -> Result<Option<(Stored, SystemBackupCfg)>, String> {
    let listed = async {
        let all = store.list_system_backups().await.map_err(|error| target::text(&error))?;
        let folder = all.get(name).map(|it| it.trim_end_matches('/').to_owned());
        Ok::<_, String>(folder.and_then(|it| it.rsplit('/').nth(1).map(str::to_owned)))
    };
    let versions = match version.filter(|it| !it.is_empty()) {
        // Another of that name is another.
        Some(known) => vec![known.to_owned()],
        None => [VERSION.to_owned()].into_iter().chain(listed.await?).collect(),
    };
    for version in versions {
        let id = named(&version, name)?;
        match store.system_backup(&id).await {
            Ok(record) => return Ok(Some((id, record))),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(target::text(&error)),
        }
    }
    Ok(None)
}

/// The version that made the system backup of an object, as far as that is known.
fn version_of(save: Option<&SystemBackup>) -> Option<&str> {
    save?.status.as_ref()?.version.as_deref()
}

#[cfg(test)]
mod tests {
    use backupstore::{Environment, TargetUrl};

    use super::*;

    /// Who upgrades has to get back, and rid of, what was saved before.
    #[tokio::test]
    async fn what_an_earlier_version_has_saved_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let url = TargetUrl::parse(&format!("vfs://{}", dir.path().display())).unwrap();
        let store = BackupStore::open(&url, &Environment::default()).await.unwrap();
        assert_eq!(find(&store, "all", None).await, Ok(None));
        let earlier = named("v0.0.9", "all").unwrap();
        let record = SystemBackupCfg::default();
        let archive = bytes::Bytes::from_static(b"x");
        store.upload_system_backup(&earlier, archive.clone(), record.clone()).await.unwrap();
        let found = |version| {
            let store = &store;
            async move { find(store, "all", version).await.unwrap().map(|it| it.1.version) }
        };
        assert_eq!(found(None).await.as_deref(), Some("v0.0.9"));
        // Of two, that which is meant.
        let own = named(VERSION, "all").unwrap();
        store.upload_system_backup(&own, archive, record).await.unwrap();
        assert_eq!(found(None).await.as_deref(), Some(VERSION));
        assert_eq!(found(Some("v0.0.9")).await.as_deref(), Some("v0.0.9"));
        // Also a second time, by whoever does not know that the first came to its end.
        for _ in 0..2 {
            save::take_away(&store, "all", Some("v0.0.9")).await.unwrap();
            assert!(store.system_backup(&earlier).await.is_err());
            assert!(store.system_backup(&own).await.is_ok(), "another of that name is gone");
        }
        save::take_away(&store, "all", None).await.unwrap();
        assert_eq!(found(None).await, None);
        save::take_away(&store, "all", None).await.unwrap();
    }

    /// Killed between the archive and its record.
    #[tokio::test]
    async fn an_archive_without_a_record_keeps_no_system_backup_from_being_made() {
        let dir = tempfile::tempdir().unwrap();
        let url = TargetUrl::parse(&format!("vfs://{}", dir.path().display())).unwrap();
        let store = BackupStore::open(&url, &Environment::default()).await.unwrap();
        let id = named(VERSION, "all").unwrap();
        let archive = bytes::Bytes::from_static(b"x");
        let folder = dir.path().join("backupstore/system-backups").join(VERSION).join("all");
        std::fs::create_dir_all(&folder).unwrap();
        durable::replace(folder.join("system-backup.zip"), b"half").unwrap();
        let upload = |again| save::upload(&store, &id, &archive, SystemBackupCfg::default(), again);
        assert!(upload(false).await.is_err(), "somebody else may be at it");
        assert!(upload(true).await.is_ok());
        assert_eq!(store.download_system_backup(&id).await.unwrap(), archive);
    }
}
