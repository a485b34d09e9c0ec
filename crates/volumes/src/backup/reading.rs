//! A backup as its store describes it: of one that was just made, or made elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{Backup, BackupState, BackupStatus};
use api::scalar::{Stamp, Time};
use backupstore::{BackupInfo, Name};
use kube::ResourceExt as _;
use reconcile::{Failure, Key, Next, Severity};

use super::world::{Names, World};
use super::{catalog, deletion, is_pulled, now, refuse, state_of};
use crate::target;
use crate::work::Stand;

/// Kept in the store and of no use in the object.
const HIDDEN_LABEL: &str = "VolumeRecurringJobInfo";
/// A store that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(10);

/// What the store said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Backup(Box<BackupInfo>),
    Missing,
    /// Somebody is still making it.
    Unfinished,
    Silent(String),
}

pub(super) async fn read(world: Arc<World>, names: Names, backup: String) -> Found {
    let door = match target::open(&world, &names.target).await {
        Ok(door) => door,
        Err(why) => return Found::Silent(why),
    };
    let (Ok(volume), Ok(backup)) = (Name::parse(&names.volume), Name::parse(&backup)) else {
        return Found::Missing;
    };
    match door.store.inspect_backup(&volume, &backup).await {
        Ok(info) => Found::Backup(Box::new(info)),
        Err(backupstore::Error::InProgress { .. }) => Found::Unfinished,
        Err(error) if error.is_not_found() => Found::Missing,
        Err(error) => Found::Silent(target::text(&error)),
    }
}

/// Starts to read, or says what came of it. The answer is used once.
pub(super) fn ask(world: &Arc<World>, backup: &Backup) -> Option<Found> {
    let uid = backup.uid().unwrap_or_default();
    match world.readings.look(&uid).map(|it| it.stand) {
        Some(Stand::Running) => None,
        Some(Stand::Ended(found)) => {
            world.readings.forget(&uid);
            Some(found)
        }
        Some(Stand::Broken) | None => {
            let tell = (Arc::clone(&world.queues.backups), Key::of(backup));
            let work = read(Arc::clone(world), world.names(backup), backup.name_any());
            world.readings.start(&uid, (), tell, work);
            None
        }
    }
}

/// One pass over a backup that is only read.
pub(super) async fn pass(world: &Arc<World>, backup: &Arc<Backup>) -> Result<Next, Failure> {
    let Some(found) = ask(world, backup) else { return Ok(Next::WAIT) };
    match found {
        Found::Backup(info) => {
            complete(world, backup, &info).await?;
            Ok(Next::WAIT)
        }
        // It came with a list that was older than its removal.
        Found::Missing if is_pulled(backup) => {
            deletion::drop_object(world, backup).await?;
            Ok(Next::WAIT)
        }
        Found::Missing if backup.spec.snapshot_name.as_deref().is_none_or(str::is_empty) => {
            let mut refused = backup.as_ref().clone();
            refuse(&mut refused);
            world.backups.update(backup, &refused).await?;
            Ok(Next::WAIT)
        }
        Found::Missing | Found::Unfinished => Ok(Next::after(Duration::from_mins(1))),
        Found::Silent(why) => {
            tracing::debug!(why, "the backup cannot be read from its store now");
            Ok(Next::after(AGAIN))
        }
    }
}

/// Writes what the store says, and that the backup is complete.
pub(super) async fn complete(
    world: &Arc<World>,
    backup: &Arc<Backup>,
    info: &BackupInfo,
) -> Result<(), Failure> {
    let names = world.names(backup);
    let was = state_of(backup);
    let mut new = backup.as_ref().clone();
    let snapshot = world.snapshots.get(&Key::of(backup.as_ref()).beside(&info.snapshot_name));
    let taken = snapshot.and_then(|it| it.status.as_ref()?.creation_time.clone());
    let old = new.status.take().unwrap_or_default();
    new.status = Some(BackupStatus {
        owner_id: Some(world.me.clone()),
        backup_target_name: Some(names.target.clone()),
        snapshot_created_at: taken.filter(Stamp::is_set).or_else(|| stamp(&info.snapshot_created)),
        ..described(old, info)
    });
    let done = world.backups.update(backup, &new).await?;
    if was == BackupState::Completed || backup.spec.snapshot_name.is_none() {
        return Ok(());
    }
    world.numbers.completed(info.newly_uploaded_data_size);
    tell_volume(world, &done, &BackupState::Completed, None);
    catalog::ensure(world, &names).await?;
    if world.is_on("auto-cleanup-snapshot-after-on-demand-backup-completed")
        && !info.labels.as_ref().is_some_and(|it| it.contains_key("RecurringJob"))
        && let Some(snapshot) =
            world.snapshots.get(&Key::of(backup.as_ref()).beside(&info.snapshot_name))
    {
        world.snapshots.delete(&snapshot).await?;
    }
    Ok(())
}

fn described(old: BackupStatus, info: &BackupInfo) -> BackupStatus {
    let some = |text: &String| Some(text.clone()).filter(|it| !it.is_empty());
    let labels = info.labels.clone().map(|mut labels: BTreeMap<String, String>| {
        labels.remove(HIDDEN_LABEL);
        labels
    });
    BackupStatus {
        state: Some(BackupState::Completed),
        progress: Some(100),
        error: None,
        url: some(&info.url),
        snapshot_name: some(&info.snapshot_name),
        backup_created_at: stamp(&info.created),
        size: Some(info.size.to_string()),
        labels: labels.filter(|it| !it.is_empty()),
        messages: info.messages.clone().filter(|it| !it.is_empty()),
        volume_name: some(&info.volume_name),
        volume_size: Some(info.volume_size.to_string()),
        volume_created: stamp(&info.volume_created),
        volume_backing_image_name: some(&info.volume_backing_image_name),
        last_synced_at: Some(Time::new(now())),
        compression_method: info.compression_method.as_ref().map(ToString::to_string),
        newly_upload_data_size: Some(info.newly_uploaded_data_size.to_string()),
        re_uploaded_data_size: Some(info.re_uploaded_data_size.to_string()),
        upload: old.upload.map(|it| api::longhorn::BackupUpload { waiting_since: None, ..it }),
        ..old
    }
}

fn stamp(text: &str) -> Option<Stamp> {
    Some(Stamp::from(text)).filter(Stamp::is_set)
}

/// The volume hears of every step of its backups.
pub(super) fn tell_volume(
    world: &World,
    backup: &Backup,
    state: &BackupState,
    error: Option<&str>,
) {
    let names = world.names(backup);
    let Some(volume) = world.volumes.get(&Key::of(backup).beside(&names.volume)) else { return };
    let snapshot = backup.spec.snapshot_name.as_deref().unwrap_or_default();
    let labels = backup.spec.labels.clone().unwrap_or_default();
    let mut text = format!("Snapshot {snapshot} backup {} label {labels:?}", backup.name_any());
    let severity = match error {
        Some(error) => {
            text = format!("{text}: {error}");
            Severity::Warning
        }
        None => Severity::Normal,
    };
    world.events.say(volume.as_ref(), severity, state.as_str(), &text);
}
