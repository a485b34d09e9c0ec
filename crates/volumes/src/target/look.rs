//! A look at a store: which volumes it has, and which of them changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{Backup, BackupTarget, BackupVolume};
use api::scalar::Time;
use backupstore::{Name, Shown};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use reconcile::{Failure, Key};

use super::door;
use crate::backup::deletion::marked;
use crate::backup::{Names, World, catalog, now};

/// Questions to the store at a time.
const ASKS_AT_ONCE: usize = 16;

/// What a look went by.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) at: Timestamp,
    /// What had been asked for then.
    pub(crate) asked: Option<Time>,
    pub(crate) fingerprint: String,
    /// It is another store than the last time, or nobody knows.
    pub(crate) is_changed: bool,
    /// Objects, by uid, whose volumes were in the store then, if they are there at all: a backup that was
    /// complete only later may have come too late for the list.
    pub(crate) known: BTreeSet<String>,
}

/// What a look found: volumes, and when their records were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Volumes(BTreeMap<String, Option<Timestamp>>),
    Silent(String),
}

pub(super) fn start(world: &Arc<World>, target: &Arc<BackupTarget>) {
    let fingerprint = door::fingerprint(world, target);
    let name = target.name_any();
    let is_changed = !world.doors.is_seen(&name, &fingerprint);
    let asked = target.spec.sync_requested_at;
    let known = known(world, &name);
    let mark = Mark { at: now(), asked, fingerprint, is_changed, known };
    let tell = (Arc::clone(&world.queues.targets), Key::of(target.as_ref()));
    let own = Arc::clone(world);
    let limit = Duration::from_secs(60 * world.number("backup-execution-timeout", 1).max(1));
    let url = target.spec.backup_target_url.clone().unwrap_or_default();
    world.syncs.start(&target.uid().unwrap_or_default(), mark, tell, async move {
        let why = match tokio::time::timeout(limit, look(&own, &name)).await {
            Ok(Ok(volumes)) => return Found::Volumes(volumes),
            Ok(Err(why)) => why,
            Err(_) => format!("no answer within {} s", limit.as_secs()),
        };
        // Conditions, events and pages repeat it.
        let shown = people::redact::without_password(&url);
        let why = why.replace(&url, &shown);
        Found::Silent(format!("failed to list backup volumes in {shown}: {why}"))
    });
}

async fn look(world: &World, target: &str) -> Result<BTreeMap<String, Option<Timestamp>>, String> {
    let door = door::open(world, target).await?;
    door.store.check().await.map_err(|error| door::text(&error))?;
    let listed = door.store.list(Shown::VolumesOnly).await.map_err(|error| door::text(&error))?;
    let ages = futures::stream::iter(listed.into_keys()).map(|volume| {
        let store = &door.store;
        async move {
            let name = Name::parse(&volume).ok();
            let head = match &name {
                Some(name) => store.head(name, None).await.ok(),
                None => None,
            };
            (volume, head.map(|it| it.modification_time))
        }
    });
    Ok(ages.buffer_unordered(ASKS_AT_ONCE).collect().await)
}

/// The objects of a target with which nothing is under way.
fn known(world: &World, target: &str) -> BTreeSet<String> {
    let all = world.backup_volumes.by("target", target);
    let at_rest = all.iter().filter(|it| {
        is_at_rest(&world.backups_of(target, it.spec.volume_name.as_deref().unwrap_or_default()))
    });
    at_rest.filter_map(|it| it.uid()).collect()
}

/// Objects for new volumes, none for those that are gone, and a sync for those that changed.
pub(super) async fn take(
    world: &Arc<World>,
    target: &BackupTarget,
    volumes: &BTreeMap<String, Option<Timestamp>>,
    mark: &Mark,
) -> Result<(), Failure> {
    let name = target.name_any();
    let objects = world.backup_volumes.by("target", &name);
    let have: BTreeSet<&str> =
        objects.iter().filter_map(|it| it.spec.volume_name.as_deref()).collect();
    for (volume, _) in volumes.iter().filter(|(volume, _)| !have.contains(volume.as_str())) {
        let names = Names { target: name.clone(), volume: volume.clone() };
        match catalog::ensure(world, &names).await {
            Err(failure) if failure.rejection().is_some() => {
                tracing::warn!(volume, target = name, error = %telemetry::Chain(&failure),
                    "a volume in the store cannot be shown");
            }
            done => done?,
        }
    }
    for object in objects.iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
        let volume = object.spec.volume_name.as_deref().unwrap_or_default();
        match volumes.get(volume) {
            None if is_gone(object, mark, &world.backups_of(&name, volume)) => {
                drop_object(world, object).await?;
            }
            None => {}
            Some(modified) => {
                let status = object.status.clone().unwrap_or_default();
                let is_same = status.last_modification_time == modified.map(Time::new);
                // What changed while it was last looked at may have changed twice in that second.
                let is_fresh = status.last_synced_at.is_none_or(|synced| {
                    modified.is_some_and(|it| it + Duration::from_secs(2) > synced.timestamp())
                });
                if mark.is_changed || !is_same || is_fresh {
                    catalog::ask_for_sync(world, object).await?;
                }
            }
        }
    }
    Ok(())
}

/// Whether one that is not in the list is not in the store.
fn is_gone(object: &BackupVolume, mark: &Mark, backups: &[Arc<Backup>]) -> bool {
    object.uid().is_some_and(|uid| mark.known.contains(&uid)) && is_at_rest(backups)
}

/// A volume whose first backup is being made is not in the store yet.
fn is_at_rest(backups: &[Arc<Backup>]) -> bool {
    backups.iter().all(|it| crate::backup::is_final(it))
}

/// Takes the object away and leaves what is in the store.
pub(super) async fn drop_object(world: &World, volume: &Arc<BackupVolume>) -> Result<(), Failure> {
    let marked = world.backup_volumes.update(volume, &marked(volume.as_ref())).await?;
    if marked.metadata.deletion_timestamp.is_none() {
        world.backup_volumes.delete_unchanged(&marked).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::longhorn::BackupState;

    use super::*;

    /// Its objects would go, and be missed until the next look.
    #[test]
    fn a_volume_whose_first_backup_was_complete_during_a_look_is_not_gone() {
        let mut object = BackupVolume::default();
        object.metadata.uid = Some("u".to_owned());
        let mark = |known: &[&str]| Mark {
            at: now(),
            asked: None,
            fingerprint: String::new(),
            is_changed: false,
            known: known.iter().map(|it| (*it).to_owned()).collect(),
        };
        let mut backup = Backup::default();
        backup.spec.snapshot_name = Some("s".to_owned());
        backup.status.get_or_insert_default().state = Some(BackupState::Completed);
        let complete = [Arc::new(backup.clone())];
        assert!(is_gone(&object, &mark(&["u"]), &complete));
        assert!(!is_gone(&object, &mark(&[]), &complete), "it was made since");
        backup.status.get_or_insert_default().state = Some(BackupState::InProgress);
        assert!(!is_gone(&object, &mark(&["u"]), &[Arc::new(backup)]));
    }
}
