//! Backups and the volumes they were made of: creation, progress, deletion.
//!
//! Start with [`mod@decide`] (how a backup is made) and `deletion/decide` (how its data is removed);
//! the rest reads caches for them and does what they say. The store itself is read and changed by
//! tasks ([`crate::work`]), never by a pass.

pub(crate) mod catalog;
mod decide;
pub(crate) mod deletion;
mod making;
mod numbers;
mod reading;
mod upload;
mod world;

use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{
    Backup, BackupDeletion, BackupState, BackupTarget, BackupVolume, Engine, Snapshot, Volume,
};
use api::scalar::Time;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use reconcile::{Context, Controller, EVENT_RIGHTS, Failure, Grant, Key, Loop, Next, Reconciler};

pub(crate) use self::world::{Names, World, backup_volume_name};
use crate::{FINALIZER, NAMESPACE, figures, label, target};

/// Asks for the next attempt of a deletion at once.
pub const RETRY_NOW: &str = "holdfast.io/retry-now";

pub(crate) const CONTROLLERS: &[Controller] = &[Controller {
    name: "backups",
    grants: &[
        Grant {
            groups: &["longhorn.io"],
            resources: &["backups", "backupvolumes", "backuptargets"],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["backups/status", "backupvolumes/status", "backuptargets/status"],
            verbs: &["patch"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["volumes", "engines", "nodes", "settings"],
            verbs: &["get", "list", "watch"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["snapshots"],
            verbs: &["get", "list", "watch", "delete"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["volumeattachments"],
            verbs: &["get", "list", "watch", "patch"],
        },
        // The credentials of targets.
        Grant { groups: &[""], resources: &["secrets"], verbs: &["get", "list", "watch"] },
        EVENT_RIGHTS,
    ],
    acts_on: &["backups.longhorn.io", "backupvolumes.longhorn.io", "backuptargets.longhorn.io"],
    run: |context| run(context),
}];

/// What got lost is looked for this often.
const RESYNC: Duration = Duration::from_mins(2);

fn run(context: Context) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let backups = Loop::new("backups", &context).workers(8);
        let volumes = Loop::new("backup-volumes", &context);
        let targets = Loop::new("backup-targets", &context);
        let queues = world::Queues {
            backups: backups.queue(),
            volumes: volumes.queue(),
            targets: targets.queue(),
        };
        let world = Arc::new(World::start(&context, queues));
        let backups = watch_for_backups(backups, &world).resync(&world.backups, RESYNC);
        let volumes = watch_for_volumes(volumes, &world).resync(&world.backup_volumes, RESYNC);
        let targets = watch_for_targets(targets, &world).resync(&world.targets, RESYNC);
        futures::join!(
            backups.run(Arc::new(Backups(Arc::clone(&world)))),
            volumes.run(Arc::new(catalog::BackupVolumes(Arc::clone(&world)))),
            targets.run(Arc::new(target::Targets(Arc::clone(&world)))),
            target::keep_default(Arc::clone(&world)),
            numbers::keep(Arc::clone(&world)),
            figures::tell_of_backups(&context, &world.backups, &world.targets),
        );
    })
}

/// Those of the same volume wait for each other.
fn siblings(world: &World, backup: &Backup) -> Vec<Key> {
    let of = world.names(backup);
    let waits = |it: &Backup| matches!(state_of(it), BackupState::New | BackupState::Pending);
    world
        .backups_of(&of.target, &of.volume)
        .iter()
        .filter(|it| waits(it))
        .map(|it| Key::of(it.as_ref()))
        .collect()
}

fn watch_for_backups(backups: Loop, world: &Arc<World>) -> Loop {
    let (same, of_volume, of_engine, of_snapshot, of_target) = (
        Arc::clone(world),
        Arc::clone(world),
        Arc::clone(world),
        Arc::clone(world),
        Arc::clone(world),
    );
    let unfinished = |world: &World, volume: &str| -> Vec<Key> {
        let open = world.backups.by("open", volume);
        open.iter().map(|it| Key::of(it.as_ref())).collect()
    };
    backups
        .on(&world.backups)
        .on_related(&world.backups, move |backup: &Backup| siblings(&same, backup))
        .on_related(&world.volumes, move |volume: &Volume| {
            let mut keys = unfinished(&of_volume, &volume.name_any());
            // What was restored from may be deleted now.
            keys.extend(
                world::restores(volume)
                    .into_iter()
                    .flat_map(|source| unfinished(&of_volume, &source)),
            );
            keys
        })
        .on_related(&world.engines, move |engine: &Engine| {
            let volume = engine.spec.instance.volume_name.clone().unwrap_or_default();
            let mut keys = unfinished(&of_engine, &volume);
            if let Some(volume) = of_engine.volumes.get(&Key::new(NAMESPACE, &volume)) {
                keys.extend(
                    world::restores(&volume)
                        .into_iter()
                        .flat_map(|source| unfinished(&of_engine, &source)),
                );
            }
            keys
        })
        .on_related(&world.snapshots, move |snapshot: &Snapshot| {
            unfinished(&of_snapshot, snapshot.spec.volume.as_deref().unwrap_or_default())
        })
        .on_related(&world.targets, move |target: &BackupTarget| {
            let name = target.name_any();
            let open = of_target.backups.by("open-at", &name);
            open.iter().map(|it| Key::of(it.as_ref())).collect()
        })
        // A ticket may be for one that is not there any more.
        .map(&world.attachments, |_, _, now| {
            let held = now.into_iter().flat_map(world::held_for);
            held.map(|backup| Key::new(NAMESPACE, &backup)).collect()
        })
        .needs(&world.backup_volumes)
        .needs(&world.settings)
        .needs(&world.secrets)
        .needs(&world.nodes)
}

fn watch_for_volumes(volumes: Loop, world: &Arc<World>) -> Loop {
    let (of_target, of_engine) = (Arc::clone(world), Arc::clone(world));
    volumes
        .on(&world.backup_volumes)
        .on_related(&world.targets, move |target: &BackupTarget| {
            let all = of_target.backup_volumes.by("target", &target.name_any());
            all.iter().map(|it| Key::of(it.as_ref())).collect()
        })
        .on_related(&world.engines, move |engine: &Engine| {
            let volume = engine.spec.instance.volume_name.clone().unwrap_or_default();
            let volume = of_engine.volumes.get(&Key::new(NAMESPACE, &volume));
            let sources = volume.iter().filter_map(|it| world::restores(it));
            sources
                .flat_map(|source| of_engine.backup_volumes.by("volume", &source))
                .map(|it| Key::of(it.as_ref()))
                .collect()
        })
        .needs(&world.backups)
        .needs(&world.volumes)
        .needs(&world.settings)
        .needs(&world.secrets)
}

fn watch_for_targets(targets: Loop, world: &Arc<World>) -> Loop {
    let (of_secret, of_volume) = (Arc::clone(world), Arc::clone(world));
    targets
        .on(&world.targets)
        // Of every target, not of the default one alone.
        .on_related(&world.secrets, move |secret: &Secret| {
            let all = of_secret.targets.by("secret", &secret.name_any());
            all.iter().map(|it| Key::of(it.as_ref())).collect()
        })
        .map(&world.backup_volumes, move |_, before: Option<&BackupVolume>, now| {
            let _ = &of_volume;
            // One that is gone may have to come back.
            let gone = before.filter(|_| now.is_none());
            let target = gone.and_then(|it| it.spec.backup_target_name.as_deref());
            target.map(|target| Key::new(NAMESPACE, target)).into_iter().collect()
        })
        .needs(&world.backups)
        .needs(&world.settings)
}

pub(crate) fn state_of(backup: &Backup) -> BackupState {
    backup.status.as_ref().and_then(|it| it.state.clone()).unwrap_or(BackupState::New)
}

/// One pass over one backup.
#[derive(Debug)]
struct Backups(Arc<World>);

impl Reconciler for Backups {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.0;
        let Some(backup) = world.backups.get(key) else {
            making::release_left(world, key).await?;
            return Ok(Next::WAIT);
        };
        if backup.metadata.deletion_timestamp.is_some() {
            return deletion::of_backup(world, &backup).await;
        }
        let backup = self.dress(&backup).await?;
        match way(&backup, world.url_of(&backup).as_deref()) {
            Way::Make => making::pass(world, &backup).await,
            Way::Read => reading::pass(world, &backup).await,
            Way::Rest => {
                making::release_volume(world, &backup).await?;
                Ok(Next::WAIT)
            }
        }
    }
}

impl Backups {
    /// The finalizer and the labels that others find it by.
    async fn dress(&self, backup: &Arc<Backup>) -> Result<Arc<Backup>, Failure> {
        let world = &self.0;
        let of = world.names(backup);
        let dressed = dressed(backup, of);
        if dressed == **backup {
            return Ok(Arc::clone(backup));
        }
        world.backups.update(backup, &dressed).await
    }
}

fn dressed(backup: &Backup, of: world::Names) -> Backup {
    let mut dressed = backup.clone();
    if !dressed.finalizers().iter().any(|it| it == FINALIZER) {
        dressed.finalizers_mut().push(FINALIZER.to_owned());
    }
    deletion::unmark(&mut dressed);
    if !of.volume.is_empty() {
        dressed.labels_mut().entry(label::BACKUP_VOLUME.to_owned()).or_insert(of.volume);
        dressed.labels_mut().entry(label::BACKUP_TARGET.to_owned()).or_insert(of.target);
    }
    dressed
}

/// Where the truth about a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// With the engine: it is being made.
    Make,
    /// In the store.
    Read,
    Rest,
}

/// For one that is not being deleted; `here` is where it would lie now.
fn way(backup: &Backup, here: Option<&str>) -> Way {
    let status = backup.status.clone().unwrap_or_default();
    let is_asked_for = backup.spec.snapshot_name.as_deref().is_some_and(|it| !it.is_empty());
    let state = state_of(backup);
    // Nobody has asked for that: whoever wrote it would keep everybody else waiting.
    if state == BackupState::Deleting {
        return Way::Read;
    }
    if is_asked_for && status.last_synced_at.is_none() && !state.is_final() {
        return Way::Make;
    }
    if matches!(state, BackupState::Error | BackupState::Unknown) && is_asked_for {
        return Way::Rest;
    }
    let (synced, asked) = (status.last_synced_at, backup.spec.sync_requested_at);
    let moved = status.url.is_some() && status.url.as_deref() != here;
    let is_stale = asked.is_some_and(|asked| synced.is_none_or(|synced| asked > synced));
    if synced.is_none() || is_stale || moved { Way::Read } else { Way::Rest }
}

/// Its deletion was asked for, has said that it waits, and was never begun: all of it is there, and a volume that
/// is to be restored from it holds it from its first moment on.
pub(crate) fn is_untouched(deletion: Option<&BackupDeletion>) -> bool {
    deletion.is_some_and(|it| it.waits_for.is_some() && it.attempt.is_none())
}

/// It names no snapshot, and its store has nothing of its name: nothing will ever come of it by itself.
fn refuse(backup: &mut Backup) {
    let text = "spec.snapshotName is empty, and the store has no backup of this name: name a Snapshot of the volume in \
                a new Backup, or, for a backup that is in a store, the volume and the target in the labels \
                backup-volume and backup-target";
    let status = backup.status.get_or_insert_default();
    status.state = Some(BackupState::Error);
    status.error = Some(text.to_owned());
    status.last_synced_at = Some(Time::new(now()));
}

fn is_refused(backup: &Backup) -> bool {
    let status = backup.status.clone().unwrap_or_default();
    let is_asked_for = backup.spec.snapshot_name.as_deref().is_some_and(|it| !it.is_empty());
    !is_asked_for
        && status.state == Some(BackupState::Error)
        && status.url.is_none()
        && status.deletion.is_none()
}

/// It was found in a store, and made for what is there.
fn is_pulled(backup: &Backup) -> bool {
    backup.owner_references().iter().any(|it| it.kind == "BackupVolume")
}

pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// Whether the object stands for what is in a store.
pub(crate) fn is_complete(backup: &Backup) -> bool {
    state_of(backup) == BackupState::Completed
        || (state_of(backup) == BackupState::New && backup.spec.snapshot_name.is_none())
}

pub(crate) fn is_final(backup: &Backup) -> bool {
    state_of(backup).is_final()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_is_said_to_be_deleted_and_is_not_is_read_again() {
        let mut backup = Backup::default();
        let status = backup.status.get_or_insert_default();
        (status.url, status.last_synced_at) = (Some("u".to_owned()), Some(Time::new(now())));
        for (state, here, wanted) in [
            (BackupState::Completed, "u", Way::Rest),
            (BackupState::Completed, "elsewhere", Way::Read),
            (BackupState::Deleting, "u", Way::Read),
        ] {
            let text = format!("{state:?} {here}");
            backup.status.get_or_insert_default().state = Some(state);
            assert_eq!(way(&backup, Some(here)), wanted, "{text}");
        }
        backup.spec.snapshot_name = Some("s".to_owned());
        assert_eq!(way(&backup, Some("u")), Way::Read);
        backup.status = None;
        assert_eq!(way(&backup, None), Way::Make);
    }
}
