//! A look at a store: which volumes it has, and which of them changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{BackupTarget, BackupVolume};
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
    let mark = Mark { at: now(), asked, fingerprint, is_changed };
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

/// Objects for new volumes, none for those that are gone, and a sync for those that changed.
pub(super) async fn take(
    world: &Arc<World>,
    target: &BackupTarget,
    volumes: &BTreeMap<String, Option<Timestamp>>,
    is_changed: bool,
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
            None if is_at_rest(world, &name, volume) => drop_object(world, object).await?,
            None => {}
            Some(modified) => {
                let status = object.status.clone().unwrap_or_default();
                let is_same = status.last_modification_time == modified.map(Time::new);
                // What changed while it was last looked at may have changed twice in that second.
                let is_fresh = status.last_synced_at.is_none_or(|synced| {
                    modified.is_some_and(|it| it + Duration::from_secs(2) > synced.timestamp())
                });
                if is_changed || !is_same || is_fresh {
                    catalog::ask_for_sync(world, object).await?;
                }
            }
        }
    }
    Ok(())
}

/// A volume whose first backup is being made is not in the store yet.
fn is_at_rest(world: &World, target: &str, volume: &str) -> bool {
    world.backups_of(target, volume).iter().all(|it| crate::backup::is_final(it))
}

/// Takes the object away and leaves what is in the store.
pub(super) async fn drop_object(world: &World, volume: &Arc<BackupVolume>) -> Result<(), Failure> {
    let marked = world.backup_volumes.update(volume, &marked(volume.as_ref())).await?;
    if marked.metadata.deletion_timestamp.is_none() {
        world.backup_volumes.delete_unchanged(&marked).await?;
    }
    Ok(())
}
