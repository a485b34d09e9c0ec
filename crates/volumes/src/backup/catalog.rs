//! The volumes of a store, and which backups of them there are: what the store lists becomes objects,
//! and objects of what it no longer lists go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{
    Backup, BackupSpec, BackupState, BackupVolume, BackupVolumeSpec, BackupVolumeStatus, BlockSize,
};
use api::scalar::{Stamp, Time};
use backupstore::{Name, Shown, VolumeInfo};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use reconcile::{Failure, Key, Next, Reconciler};

use super::world::{Names, World, backup_volume_name};
use super::{deletion, now, state_of};
use crate::work::Stand;
use crate::{FINALIZER, NAMESPACE, label, target};

/// A store that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(15);
/// Minutes after which a failed backup goes; 0 is never.
const FAILED_TTL: (&str, u64) = ("failed-backup-ttl", 1440);

/// What the store has of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Listed(Box<Listed>),
    Silent(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// When the look began.
    at: Timestamp,
    /// What had been asked for then; what was asked for later needs another look.
    asked: Option<Time>,
    /// Before the look: what was complete, and so must be in the list.
    known: BTreeSet<String>,
    backups: BTreeSet<String>,
    /// Nothing where the record of the volume cannot be read.
    info: Option<VolumeInfo>,
    modified: Option<Timestamp>,
    why: Option<String>,
}

pub(super) fn names(volume: &BackupVolume) -> Names {
    Names {
        target: volume.spec.backup_target_name.clone().unwrap_or_default(),
        volume: volume.spec.volume_name.clone().unwrap_or_default(),
    }
}

/// The object for a volume of a target, asked to look at the store; made, where there is none.
pub(crate) async fn ensure(world: &World, names: &Names) -> Result<(), Failure> {
    if let Some(found) = world.backup_volume(names) {
        return ask_for_sync(world, &found).await;
    }
    let mut made = BackupVolume {
        spec: BackupVolumeSpec {
            backup_target_name: Some(names.target.clone()),
            volume_name: Some(names.volume.clone()),
            sync_requested_at: None,
        },
        ..BackupVolume::default()
    };
    made.metadata.name = Some(backup_volume_name(names));
    made.metadata.namespace = Some(NAMESPACE.to_owned());
    made.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    made.labels_mut().insert(label::BACKUP_TARGET.to_owned(), names.target.clone());
    made.labels_mut().insert(label::BACKUP_VOLUME.to_owned(), names.volume.clone());
    let target = world.target(&names.target);
    made.metadata.owner_references =
        target.and_then(|it| it.controller_owner_ref(&())).map(|it| vec![plain(it)]);
    match world.backup_volumes.create(&made).await {
        // Another was faster, or it cannot be: that one says so itself.
        Ok(_) | Err(Failure::Conflict { .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Not a controller in the sense of garbage collection, and in nobody's way when it goes.
fn plain(reference: OwnerReference) -> OwnerReference {
    OwnerReference { controller: None, block_owner_deletion: None, ..reference }
}

/// Asks for the store to be read again.
pub(crate) async fn ask_for_sync(world: &World, volume: &Arc<BackupVolume>) -> Result<(), Failure> {
    world.listings.forget(&asked_key(volume));
    let mut new = volume.as_ref().clone();
    let asked = next_request(volume.spec.sync_requested_at.map(Time::timestamp), now());
    new.spec.sync_requested_at = Some(Time::new(asked));
    world.backup_volumes.merge(volume, &new).await?;
    Ok(())
}

/// No request is for a later time than this, counted from now.
const FAR_AHEAD: Duration = Duration::from_mins(1);

/// Later than any look that has begun, and than what was asked for before; unless that is a time that
/// nobody will live to see.
fn next_request(before: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let next = |it: Timestamp| it.checked_add(Duration::from_secs(1)).unwrap_or(it);
    let before = before.filter(|it| !is_far_ahead(*it, now)).map(next);
    before.map_or(next(now), |it| it.max(next(now)))
}

fn is_far_ahead(at: Timestamp, now: Timestamp) -> bool {
    now.checked_add(FAR_AHEAD).is_ok_and(|latest| at > latest)
}

fn asked_key(volume: &BackupVolume) -> String {
    volume.uid().unwrap_or_default()
}

/// One pass over one volume of a store.
#[derive(Debug)]
pub(super) struct BackupVolumes(pub(super) Arc<World>);

impl Reconciler for BackupVolumes {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.0;
        let Some(volume) = world.backup_volumes.get(key) else { return Ok(Next::WAIT) };
        if volume.metadata.deletion_timestamp.is_some() {
            return deletion::of_volume(world, &volume).await;
        }
        let mut dressed = volume.as_ref().clone();
        deletion::unmark(&mut dressed);
        let volume = world.backup_volumes.update(&volume, &dressed).await?;
        let volume = world.backup_volumes.add_finalizer(&volume, FINALIZER).await?;
        let uid = asked_key(&volume);
        match world.listings.look(&uid).map(|it| it.stand) {
            Some(Stand::Running) => Ok(Next::WAIT),
            Some(Stand::Ended(Found::Listed(listed))) => {
                take(world, &volume, &listed).await?;
                world.listings.forget(&uid);
                let is_whole = listed.info.is_some();
                Ok(Next::after(if is_whole { Duration::from_millis(10) } else { AGAIN }))
            }
            Some(Stand::Ended(Found::Silent(why))) => {
                show_silence(world, &volume, &why).await?;
                world.listings.forget(&uid);
                Ok(Next::after(AGAIN))
            }
            Some(Stand::Broken) | None if is_stale(world, &volume) => {
                start(world, &volume, key);
                Ok(Next::WAIT)
            }
            Some(Stand::Broken) | None => Ok(Next::WAIT),
        }
    }
}

fn is_stale(world: &World, volume: &BackupVolume) -> bool {
    let synced = volume.status.as_ref().and_then(|it| it.last_synced_at);
    let asked = volume.spec.sync_requested_at;
    let is_answered = asked.is_some_and(|it| world.answered.is_answered(&asked_key(volume), it));
    is_due(synced.map(Time::timestamp), asked.map(Time::timestamp), is_answered, now())
}

fn is_due(
    synced: Option<Timestamp>,
    asked: Option<Timestamp>,
    is_answered: bool,
    now: Timestamp,
) -> bool {
    // Looked at by a clock that was ahead is not looked at.
    let Some(synced) = synced.filter(|it| !is_far_ahead(*it, now)) else { return true };
    match asked {
        None => false,
        // It never gets old: once it was answered it is done with.
        Some(asked) if is_far_ahead(asked, now) => !is_answered,
        // Times are of seconds: one that is equal may have been asked for after the look.
        Some(asked) => asked > synced || (asked == synced && !is_answered),
    }
}

fn start(world: &Arc<World>, volume: &BackupVolume, key: &Key) {
    let of = names(volume);
    let known = world.backups_of(&of.target, &of.volume);
    let known = known.iter().filter(|it| state_of(it) == BackupState::Completed);
    let known = known.map(|it| it.name_any()).collect();
    let asked = volume.spec.sync_requested_at;
    let tell = (Arc::clone(&world.queues.volumes), key.clone());
    let own = Arc::clone(world);
    let limit = Duration::from_secs(60 * world.number("backup-execution-timeout", 1).max(1));
    world.listings.start(&asked_key(volume), (), tell, async move {
        match tokio::time::timeout(limit, list(&own, of, known, asked)).await {
            Ok(Ok(listed)) => Found::Listed(Box::new(listed)),
            Ok(Err(why)) => Found::Silent(why),
            Err(_) => {
                Found::Silent(format!("the store did not answer within {} s", limit.as_secs()))
            }
        }
    });
}

async fn list(
    world: &World,
    of: Names,
    known: BTreeSet<String>,
    asked: Option<Time>,
) -> Result<Listed, String> {
    let at = now();
    let door = target::open(world, &of.target).await?;
    let volume = Name::parse(&of.volume).map_err(|error| error.to_string())?;
    let text = |error: backupstore::Error| target::text(&error);
    let listed = door.store.list_volume(&volume, Shown::Backups).await.map_err(text)?;
    let backups = listed.backups.into_keys().collect();
    let (info, why) = match door.store.inspect_volume(&volume).await {
        Ok(info) => (Some(info), None),
        Err(error) if error.is_not_found() => (None, Some(target::text(&error))),
        Err(error @ backupstore::Error::Unreadable { .. }) => (None, Some(target::text(&error))),
        Err(error) => return Err(target::text(&error)),
    };
    let modified = door.store.head(&volume, None).await.ok().map(|it| it.modification_time);
    Ok(Listed { at, asked, known, backups, info, modified, why })
}

async fn take(
    world: &Arc<World>,
    volume: &Arc<BackupVolume>,
    listed: &Listed,
) -> Result<(), Failure> {
    let of = names(volume);
    let objects = world.backups_of(&of.target, &of.volume);
    let have: BTreeSet<String> = objects.iter().map(|it| it.name_any()).collect();
    let mut complete: Vec<Latest> = objects.iter().filter_map(|it| Latest::of(it)).collect();
    for name in listed.backups.difference(&have) {
        complete.extend(pull(world, volume, &of, name).await?);
    }
    complete.retain(|it| listed.backups.contains(&it.name));
    for backup in &objects {
        let name = backup.name_any();
        let is_gone = listed.known.contains(&name) && !listed.backups.contains(&name);
        let is_at_rest = backup.metadata.deletion_timestamp.is_none();
        if is_at_rest
            && ((is_gone && state_of(backup) == BackupState::Completed)
                || has_expired(world, backup))
        {
            deletion::drop_object(world, backup).await?;
        } else if listed.backups.contains(&name) {
            place(world, backup).await?;
        }
    }
    show(world, volume, listed, complete.into_iter().max()).await
}

/// A complete backup of a volume, by the time of its snapshot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Latest {
    at: Timestamp,
    name: String,
}

impl Latest {
    fn of(backup: &Backup) -> Option<Self> {
        let is_complete = state_of(backup) == BackupState::Completed;
        let stays = backup.metadata.deletion_timestamp.is_none();
        let at = backup.status.as_ref()?.snapshot_created_at.as_ref()?.get()?;
        (is_complete && stays).then(|| Self { at, name: backup.name_any() })
    }
}

/// A backup that the store lists lies there, also if its target had another URL when it was made.
async fn place(world: &World, backup: &Arc<Backup>) -> Result<(), Failure> {
    // It came into the store since: it is read as if it was new.
    if super::is_refused(backup) {
        let mut new = backup.as_ref().clone();
        new.status = None;
        return world.backups.update(backup, &new).await.map(drop);
    }
    let known = backup.status.as_ref().and_then(|it| it.url.clone()).filter(|it| !it.is_empty());
    let here = world.url_of(backup);
    if known.is_none() || here.is_none() || known == here {
        return Ok(());
    }
    let mut new = backup.as_ref().clone();
    new.status.get_or_insert_default().url = here;
    world.backups.update(backup, &new).await.map(drop)
}

/// Failed ones go after a while; what little they left in the store goes with the next deletion.
fn has_expired(world: &World, backup: &Backup) -> bool {
    let minutes = world.number(FAILED_TTL.0, FAILED_TTL.1);
    let synced = backup.status.as_ref().and_then(|it| it.last_synced_at);
    let age = synced.map(|it| it.timestamp().duration_until(now()));
    minutes > 0
        && matches!(state_of(backup), BackupState::Error | BackupState::Unknown)
        && age.is_some_and(|it| it.as_mins() > i64::try_from(minutes).unwrap_or(i64::MAX))
}

/// Makes the object of a backup that is only in the store. One that is still being made elsewhere, or
/// was removed since it was listed, gets none.
async fn pull(
    world: &Arc<World>,
    of: &BackupVolume,
    names: &Names,
    name: &str,
) -> Result<Option<Latest>, Failure> {
    let read = super::reading::read(Arc::clone(world), names.clone(), name.to_owned()).await;
    let super::reading::Found::Backup(info) = read else { return Ok(None) };
    let size = info.parameters.as_ref().and_then(|it| it.get("backup-block-size").cloned());
    let size = size.map_or(BlockSize::TwoMib, |it| match BlockSize::from(it.as_str()) {
        BlockSize::Other(_) => BlockSize::Unknown,
        known => known,
    });
    let mut made = Backup {
        spec: BackupSpec { backup_block_size: Some(size), ..BackupSpec::default() },
        ..Backup::default()
    };
    made.metadata.name = Some(name.to_owned());
    made.metadata.namespace = Some(NAMESPACE.to_owned());
    made.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    made.metadata.owner_references = of.controller_owner_ref(&()).map(|it| vec![plain(it)]);
    made.labels_mut().insert(label::BACKUP_VOLUME.to_owned(), names.volume.clone());
    made.labels_mut().insert(label::BACKUP_TARGET.to_owned(), names.target.clone());
    let made = match world.backups.create(&made).await {
        Ok(made) => made,
        // A backup of this name in another target: the first one has it.
        Err(Failure::Conflict { .. }) => return Ok(None),
        Err(failure) if failure.rejection().is_some() => {
            tracing::warn!(backup = name, volume = names.volume, error = %telemetry::Chain(&failure),
                "a backup in the store cannot be shown");
            return Ok(None);
        }
        Err(failure) => return Err(failure),
    };
    match super::reading::complete(world, &made, &info).await {
        Ok(()) | Err(Failure::Conflict { .. }) => {
            let at = info.snapshot_created.parse().ok();
            Ok(at.map(|at| Latest { at, name: name.to_owned() }))
        }
        Err(failure) => Err(failure),
    }
}

async fn show(
    world: &World,
    volume: &Arc<BackupVolume>,
    listed: &Listed,
    latest: Option<Latest>,
) -> Result<(), Failure> {
    let mut new = volume.as_ref().clone();
    let old = new.status.take().unwrap_or_default();
    let status = looked_at(old, listed, latest, now());
    new.status = Some(BackupVolumeStatus { owner_id: Some(world.me.clone()), ..status });
    world.backup_volumes.update(volume, &new).await?;
    if let Some(asked) = listed.asked.filter(|_| listed.info.is_some()) {
        world.answered.answer(&asked_key(volume), asked);
    }
    Ok(())
}

/// What a look shows. Which backup is the newest is in the record of the volume: while that cannot be read,
/// the store was not looked at, or a volume that is activated would go on with an older backup. The latest that
/// is complete is newer where its snapshot was taken after the one that the record names was begun.
fn looked_at(
    old: BackupVolumeStatus,
    listed: &Listed,
    latest: Option<Latest>,
    now: Timestamp,
) -> BackupVolumeStatus {
    // Nobody has asked for its deletion: what says so is not believed.
    let old = BackupVolumeStatus { state: None, deletion: None, ..old };
    let messages = listed.why.clone().map(|why| [("error".to_owned(), why)].into());
    let last_modification_time = listed.modified.map(Time::new);
    let Some(info) = &listed.info else {
        return BackupVolumeStatus { messages, last_modification_time, ..old };
    };
    // As if it had been looked at when the look began, but never before what was asked for.
    let asked = listed.asked.filter(|it| !is_far_ahead(it.timestamp(), now));
    let described = described(old, info);
    let told = described.last_backup_at.as_ref().and_then(Stamp::get);
    // Whoever made it was killed before it told its volume.
    let is_behind = |latest: &Latest| match (&described.last_backup_name, told) {
        (None, _) => true,
        (Some(_), told) => told.is_some_and(|told| latest.at > told),
    };
    let (last_backup_name, last_backup_at) = match latest.filter(is_behind) {
        Some(Latest { at, name }) => (Some(name), Some(Stamp::from(Time::new(at)))),
        None => (described.last_backup_name.clone(), described.last_backup_at.clone()),
    };
    BackupVolumeStatus {
        messages,
        last_modification_time,
        last_synced_at: Some(Time::new(listed.at)).max(asked),
        last_backup_name,
        last_backup_at,
        ..described
    }
}

fn described(old: BackupVolumeStatus, info: &VolumeInfo) -> BackupVolumeStatus {
    let some = |text: &String| Some(text.clone()).filter(|it| !it.is_empty());
    let stamp = |text: &String| some(text).map(|it| Stamp::from(it.as_str()));
    BackupVolumeStatus {
        size: Some(info.size.to_string()),
        labels: info.labels.clone().filter(|it| !it.is_empty()),
        created_at: stamp(&info.created),
        last_backup_name: some(&info.last_backup_name),
        last_backup_at: stamp(&info.last_backup_at),
        data_stored: Some(info.data_stored.to_string()),
        backing_image_name: some(&info.backing_image_name),
        backing_image_checksum: some(&info.backing_image_checksum),
        storage_class_name: some(&info.storage_class_name),
        ..old
    }
}

async fn show_silence(world: &World, volume: &Arc<BackupVolume>, why: &str) -> Result<(), Failure> {
    let mut new = volume.as_ref().clone();
    let status = new.status.get_or_insert_default();
    status.messages = Some([("error".to_owned(), why.to_owned())].into());
    world.backup_volumes.update(volume, &new).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_the_end_of_time_is_answered_once_and_keeps_nobody_from_asking() {
        let now: Timestamp = "2025-03-01T10:00:00Z".parse().unwrap();
        let second = Duration::from_secs(1);
        let end = Timestamp::MAX;
        assert_eq!(next_request(Some(end), now), now + second);
        assert_eq!(next_request(None, now), now + second);
        assert_eq!(next_request(Some(now + second), now), now + second * 2);
        assert!(is_due(Some(now), Some(end), false, now));
        assert!(!is_due(Some(now), Some(end), true, now));
        assert!(is_due(Some(end), None, true, now), "it was looked at by a clock that was ahead");
        assert!(is_due(Some(now), Some(now + second), true, now));
        assert!(!is_due(Some(now), Some(now - second), false, now));
    }

    /// Whoever made it was killed before it told its volume, and nobody makes another.
    #[test]
    fn a_backup_that_the_record_of_its_volume_does_not_name_yet_is_the_newest() {
        let now: Timestamp = "2025-03-01T10:00:00Z".parse().unwrap();
        let at = |minute: i64| now + jiff::SignedDuration::from_mins(minute);
        let shown = |told: (&str, &str), latest: Option<(i64, &str)>| {
            let info = VolumeInfo {
                last_backup_name: told.0.to_owned(),
                last_backup_at: told.1.to_owned(),
                ..VolumeInfo::default()
            };
            let listed = Listed {
                at: now,
                asked: None,
                known: BTreeSet::new(),
                backups: BTreeSet::new(),
                info: Some(info),
                modified: None,
                why: None,
            };
            let latest =
                latest.map(|(minute, name)| Latest { at: at(minute), name: name.to_owned() });
            let shown = looked_at(BackupVolumeStatus::default(), &listed, latest, now);
            let time = shown.last_backup_at.and_then(|it| it.get());
            (shown.last_backup_name.unwrap_or_default(), time)
        };
        let first = ("b-1", "2025-03-01T10:00:00Z");
        assert_eq!(shown(first, Some((1, "b-2"))), ("b-2".to_owned(), Some(at(1))));
        assert_eq!(shown(first, Some((0, "b-0"))), ("b-1".to_owned(), Some(at(0))));
        assert_eq!(shown(first, None), ("b-1".to_owned(), Some(at(0))));
        assert_eq!(shown(("", ""), Some((1, "b-2"))), ("b-2".to_owned(), Some(at(1))));
        assert_eq!(shown(("b-1", "?"), Some((1, "b-2"))), ("b-1".to_owned(), None));
    }

    #[test]
    fn a_volume_whose_record_cannot_be_read_was_not_looked_at() {
        let now: Timestamp = "2025-03-01T10:00:00Z".parse().unwrap();
        let before = Time::new(now - Duration::from_mins(1));
        let old = BackupVolumeStatus {
            last_backup_name: Some("b-1".to_owned()),
            last_synced_at: Some(before),
            ..BackupVolumeStatus::default()
        };
        let unread = Listed {
            at: now,
            asked: Some(Time::new(now)),
            known: BTreeSet::new(),
            backups: ["b-1", "b-2"].map(str::to_owned).into(),
            info: None,
            modified: None,
            why: Some("volume.cfg is damaged".to_owned()),
        };
        let shown = looked_at(old.clone(), &unread, None, now);
        assert_eq!(shown.last_synced_at, Some(before));
        assert_eq!(shown.messages.unwrap()["error"], "volume.cfg is damaged");
        let info = VolumeInfo { last_backup_name: "b-2".to_owned(), ..VolumeInfo::default() };
        let read = Listed { info: Some(info), why: None, ..unread };
        let shown = looked_at(old, &read, None, now);
        assert_eq!(shown.last_backup_name.as_deref(), Some("b-2"));
        assert_eq!((shown.last_synced_at, shown.messages), (Some(Time::new(now)), None));
    }
}
