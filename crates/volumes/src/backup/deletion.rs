//! Removing the data of backups, and of all backups of a volume, as [`mod@decide`] says.
//!
//! The status says that a deletion runs before it runs. The task holds the store's own lock, and has
//! ended well only when no block of the backup is left that nobody else names.

pub(crate) mod decide;

use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{Backup, BackupDeletion, BackupState, BackupVolume, VolumeState};
use backupstore::delete::{DeleteOptions, Outcome};
use backupstore::{BackupInfo, BackupStore, Control, Name};
use jiff::Timestamp;
use kube::ResourceExt as _;
use reconcile::{Failure, Key, Next, Severity};

use self::decide::{Act, Backoff, Record, Seen, Shown, State, decide};
use super::world::{Holds, Names, World};
use super::{RETRY_NOW, making, now, state_of};
use crate::target;
use crate::work::{Stand, Work};
use crate::{FINALIZER, NAMESPACE, label};

/// Longer than the lock of a dead process lives, so that one attempt outlasts it.
const LOCK_WAIT: Duration = Duration::from_mins(3);

/// One attempt, as its starter marks it.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    control: Control,
}

/// Deletions of this process, by the uid of the object.
pub(crate) type Removals = Work<Attempt, Result<(), String>>;

fn record_of(removals: &Removals, uid: &str) -> Record {
    let Some(entry) = removals.look(uid) else { return Record::None };
    let attempt = entry.mark.id;
    match entry.stand {
        Stand::Running => Record::Running {
            attempt,
            percent: i32::try_from(entry.mark.control.percent()).unwrap_or(0),
            waits_for: entry.mark.control.waits_for().borrow().as_ref().map(|wait| {
                let text = wait.to_string();
                text.replacen('w', "W", 1)
            }),
        },
        Stand::Ended(Ok(())) => Record::Done,
        Stand::Ended(Err(why)) => Record::Failed { attempt, why },
        Stand::Broken => Record::Failed { attempt, why: "the deletion broke down".to_owned() },
    }
}

fn backoff(world: &World) -> Backoff {
    Backoff {
        first: world.seconds("backup-deletion-retry-interval", Backoff::DEFAULT.first.as_secs()),
        longest: world
            .seconds("backup-deletion-retry-max-interval", Backoff::DEFAULT.longest.as_secs()),
    }
}

fn state(of: &BackupState) -> State {
    match of {
        BackupState::Deleting => State::Deleting,
        BackupState::Error => State::Error,
        BackupState::New
        | BackupState::Pending
        | BackupState::InProgress
        | BackupState::Completed
        | BackupState::Unknown
        | BackupState::Other(_) => State::Other,
    }
}

fn shown_state(shown: &Shown, before: BackupState) -> BackupState {
    match shown.state {
        State::Deleting => BackupState::Deleting,
        State::Error => BackupState::Error,
        State::Other => before,
    }
}

pub(crate) fn keeps_data(object: &impl kube::ResourceExt) -> bool {
    object.labels().get(label::OBJECT_ONLY).is_some_and(|it| it == "true")
        || object.annotations().contains_key(DROPPED)
}

/// Says that nobody asked for the deletion of an object but its controller: what is in the store stays. Not the
/// label with which people say so: this one must not outlive the attempt, or what they delete later stays, too.
const DROPPED: &str = "holdfast.io/dropped";

/// The object of something in a store, to be dropped and no more.
pub(crate) fn marked<K: kube::ResourceExt + Clone>(object: &K) -> K {
    let mut marked = object.clone();
    marked.annotations_mut().insert(DROPPED.to_owned(), "true".to_owned());
    marked
}

/// Takes the mark off one that was not deleted after all: whoever would have was killed.
pub(crate) fn unmark(object: &mut impl kube::ResourceExt) {
    if object.meta().deletion_timestamp.is_none() && object.annotations().contains_key(DROPPED) {
        object.annotations_mut().remove(DROPPED);
    }
}

/// What both kinds of objects have in common for a decision.
fn seen(world: &World, uid: &str, status: BackupDeletion, state: State) -> Seen {
    Seen {
        now: now(),
        state,
        status,
        record: record_of(&world.removals, uid),
        keeps_data: false,
        was_never_stored: false,
        held_by: None,
        moved: None,
        retry_now: false,
        next_attempt: uuid::Uuid::new_v4().simple().to_string(),
        what: String::new(),
        backoff: backoff(world),
    }
}

/// One pass over a backup that is to go.
pub(super) async fn of_backup(world: &Arc<World>, backup: &Arc<Backup>) -> Result<Next, Failure> {
    super::making::release_volume(world, backup).await?;
    if !backup.finalizers().iter().any(|it| it == FINALIZER) {
        return Ok(Next::WAIT);
    }
    let (uid, names, name) =
        (backup.uid().unwrap_or_default(), world.names(backup), backup.name_any());
    let status = backup.status.clone().unwrap_or_default();
    let url = status.url.clone().or_else(|| world.url_of(backup)).unwrap_or_else(|| name.clone());
    if let Some(upload) = world.uploads.look(&uid) {
        upload.mark.cancel();
    }
    let seen = Seen {
        keeps_data: keeps_data(backup.as_ref()),
        was_never_stored: was_never_stored(backup, &names),
        held_by: uploads(world, &uid, &names.volume)
            .or_else(|| held(world, &names, &name, Holds::of(status.deletion.as_ref()))),
        moved: world.moved(backup, &names.target),
        retry_now: backup.annotations().contains_key(RETRY_NOW),
        what: format!("the backup {url}"),
        ..seen(world, &uid, status.deletion.clone().unwrap_or_default(), state(&state_of(backup)))
    };
    let verdict = decide(&seen);
    if verdict.act == Act::Release {
        return released(world, backup, &uid).await;
    }
    let mut backup = Arc::clone(backup);
    if let Some(shown) = &verdict.show {
        let mut new = backup.as_ref().clone();
        if answers_retry(verdict.act) {
            new.annotations_mut().remove(RETRY_NOW);
        }
        let status = new.status.get_or_insert_default();
        status.state = Some(shown_state(shown, state_of(&backup)));
        status.deletion = Some(shown.deletion.clone());
        status.messages = messages(shown);
        status.owner_id = Some(world.me.clone());
        let before = state_of(&backup);
        backup = world.backups.update(&backup, &new).await?;
        if state_of(&backup) != before {
            world.tell_deletion(backup.as_ref(), shown);
        }
    }
    match verdict.act {
        Act::Start => start(world, &seen.next_attempt, &backup, names),
        Act::Forget | Act::Refuse => world.removals.forget(&uid),
        Act::Nothing | Act::Release => {}
    }
    Ok(verdict.look_after.map_or(Next::WAIT, Next::after))
}

/// Whether who did not want to wait was heard: a wish that stays would be heard again by every pass.
fn answers_retry(act: Act) -> bool {
    match act {
        Act::Start | Act::Refuse => true,
        Act::Nothing | Act::Forget | Act::Release => false,
    }
}

fn messages(shown: &Shown) -> Option<std::collections::BTreeMap<String, String>> {
    let pair = |key: &str, text: &Option<String>| Some((key.to_owned(), text.clone()?));
    let all: std::collections::BTreeMap<_, _> =
        [pair("info", &shown.info), pair("error", &shown.error)].into_iter().flatten().collect();
    (!all.is_empty()).then_some(all)
}

impl World {
    fn tell_deletion<K: kube::Resource<DynamicType = ()>>(&self, object: &K, shown: &Shown) {
        match shown.state {
            State::Deleting => {
                self.numbers.deletion_started();
                let attempt = shown.deletion.attempt.as_deref().unwrap_or_default();
                let text = format!("Deleting the data in the backup store, attempt {attempt}");
                self.events.say(object, Severity::Normal, "Deleting", &text);
            }
            State::Error => {
                self.numbers.deletion_failed();
                let why = shown.error.as_deref().unwrap_or_default();
                self.events.say(object, Severity::Warning, "FailedDeleting", why);
            }
            State::Other => {}
        }
    }
}

/// Nothing of it can be in a store: no replica was asked to upload it, and nobody has found it there.
fn was_never_stored(backup: &Backup, names: &Names) -> bool {
    let status = backup.status.clone().unwrap_or_default();
    let is_asked_for = backup.spec.snapshot_name.as_deref().is_some_and(|it| !it.is_empty());
    let is_known = status.replica_address.is_some() || status.url.is_some();
    !is_known && (is_asked_for || names.volume.is_empty() || super::is_refused(backup))
}

/// While it is uploaded there is nothing to delete yet, and afterwards there would be. Of a volume that
/// is detached nothing is uploaded: whoever read it is gone, though nobody could say so.
fn uploads(world: &World, uid: &str, volume: &str) -> Option<String> {
    let volume = world.volumes.get(&Key::new(NAMESPACE, volume));
    let state = volume.and_then(|it| it.status.as_ref()?.state.clone());
    let is_read = state.is_some_and(|it| it != VolumeState::Detached);
    let waits = is_read && world.uploads.is_running(uid);
    waits.then(|| "its upload has not ended yet".to_owned())
}

/// What must not lose its data: a volume that restores from it, or one deletion inside another.
fn held(world: &World, names: &Names, backup: &str, holds: Holds) -> Option<String> {
    if let Some(volume) = world.restoring_from(&names.volume, Some(backup), holds) {
        return Some(format!("volume {volume} is restoring from backup {backup}"));
    }
    let of = world.backup_volume(names)?;
    let goes = of.metadata.deletion_timestamp.is_some() && !keeps_data(of.as_ref());
    goes.then(|| format!("backup volume {} is being deleted with all its backups", of.name_any()))
}

fn start(world: &Arc<World>, attempt: &str, backup: &Backup, names: Names) {
    let control = Control::default();
    let mark = Attempt { id: attempt.to_owned(), control: control.clone() };
    let tell = (Arc::clone(&world.queues.backups), Key::of(backup));
    let (name, uid) = (backup.name_any(), backup.uid().unwrap_or_default());
    let (doors, tried) = (Arc::clone(world), tried(backup));
    world.removals.start(&uid, mark, tell, async move {
        let door = target::open(&doors, &names.target).await?;
        remove_backup(&door.store, &names.volume, &name, tried.as_ref(), &control).await
    });
}

/// A backup that was tried, and of which no store has said that it is complete.
#[derive(Debug)]
struct Tried {
    snapshot: String,
    /// When it was asked for.
    asked: Option<Timestamp>,
}

fn tried(backup: &Backup) -> Option<Tried> {
    let url = backup.status.as_ref().and_then(|it| it.url.as_ref());
    let snapshot = backup.spec.snapshot_name.clone().filter(|it| !it.is_empty());
    let snapshot = snapshot.filter(|_| url.is_none_or(String::is_empty))?;
    Some(Tried { snapshot, asked: backup.creation_timestamp().map(|it| it.0) })
}

impl Tried {
    /// What is there is of another snapshot, or was there before anybody asked for this.
    fn is_another(&self, found: &BackupInfo) -> bool {
        if ![&*self.snapshot, ""].contains(&&*found.snapshot_name) {
            return true;
        }
        let made = found.created.parse::<Timestamp>().ok();
        let before = self.asked.zip(made).map(|(asked, made)| asked.duration_since(made));
        before.is_some_and(|it| it > making::CLOCKS_APART)
    }
}

/// Removes a backup and its blocks. Not there is removed; blocks that had to stay are a failure, so
/// that they are looked at again. What is there of another snapshot, or from before, is not what was `tried`, but
/// what kept that from being made: it stays.
async fn remove_backup(
    store: &BackupStore,
    volume: &str,
    backup: &str,
    tried: Option<&Tried>,
    control: &Control,
) -> Result<(), String> {
    let (volume, backup) = (named(volume)?, named(backup)?);
    if let Some(tried) = tried
        && let Ok(found) = store.inspect_backup(&volume, &backup).await
        && tried.is_another(&found)
    {
        return Ok(());
    }
    let options = DeleteOptions { lock_timeout: LOCK_WAIT, ..DeleteOptions::default() };
    let deleted = match store.delete_backup(&volume, &backup, &options, control).await {
        Ok(deleted) => deleted.blocks,
        // Nothing at all is left of the volume.
        Err(backupstore::Error::VolumeNotFound { .. }) => return Ok(()),
        Err(error) => return Err(target::text(&error)),
    };
    match deleted.outcome {
        Outcome::Removed if deleted.is_clean() => Ok(()),
        Outcome::Removed | Outcome::Reported => Err(format!(
            "the record is removed; {} blocks that no backup names are too young to be removed",
            deleted.orphan_blocks.saturating_sub(deleted.removed_blocks)
        )),
        Outcome::KeptForUnreadable => {
            let names: Vec<String> = deleted.unreadable.iter().map(|it| it.name.clone()).collect();
            Err(format!(
                "the record is removed, its blocks are kept: the records of {} cannot be read and may need them; delete those backups, or repair them",
                names.join(", ")
            ))
        }
        Outcome::KeptForInProgress => Err(format!(
            "the record is removed, its blocks are kept while backups are being made: {}",
            deleted.in_progress.join(", ")
        )),
        Outcome::KeptForChange => Err(
            "the record is removed, its blocks are kept: somebody changed backups of this volume meanwhile".to_owned(),
        ),
    }
}

fn named(name: &str) -> Result<Name, String> {
    Name::parse(name).map_err(|error| error.to_string())
}

/// The last steps: what others should know, then the finalizer.
async fn released(world: &Arc<World>, backup: &Arc<Backup>, uid: &str) -> Result<Next, Failure> {
    if let Some(entry) = world.removals.look(uid) {
        entry.mark.control.cancel();
    }
    let names = world.names(backup);
    if let Some(of) = world.backup_volume(&names)
        && of.metadata.deletion_timestamp.is_none()
        && !keeps_data(backup.as_ref())
    {
        super::catalog::ask_for_sync(world, &of).await?;
    }
    let status = backup.status.clone().unwrap_or_default();
    if let Some(why) = status.error.filter(|it| !it.is_empty()) {
        let text = format!("Failed backup {} has been deleted: {why}", backup.name_any());
        world.events.say(backup.as_ref(), Severity::Warning, "Error", &text);
    }
    if world.is_on("auto-cleanup-when-delete-backup")
        && let Some(snapshot) = backup.spec.snapshot_name.as_deref()
        && let Some(snapshot) = world.snapshots.get(&Key::of(backup.as_ref()).beside(snapshot))
    {
        world.snapshots.delete(&snapshot).await?;
    }
    world.backups.remove_finalizer(backup, FINALIZER).await?;
    world.numbers.deleted();
    world.removals.forget(uid);
    world.uploads.forget(uid);
    Ok(Next::WAIT)
}

/// One pass over a volume of a store that is to go with all its backups.
pub(super) async fn of_volume(
    world: &Arc<World>,
    volume: &Arc<BackupVolume>,
) -> Result<Next, Failure> {
    if !volume.finalizers().iter().any(|it| it == FINALIZER) {
        return Ok(Next::WAIT);
    }
    let uid = volume.uid().unwrap_or_default();
    let status = volume.status.clone().unwrap_or_default();
    let names = super::catalog::names(volume);
    let before = status.state.clone().unwrap_or(BackupState::New);
    let holds = Holds::of(status.deletion.as_ref());
    let restoring = world.restoring_from(&names.volume, None, holds);
    let backups = world.backups_of(&names.target, &names.volume);
    let seen = Seen {
        moved: backups.iter().find_map(|it| world.moved_with_store(it, &names.target)),
        keeps_data: keeps_data(volume.as_ref()),
        held_by: restoring
            .map(|it| format!("volume {it} is restoring from a backup of {}", names.volume))
            .or_else(|| made_since(volume, &backups)),
        retry_now: volume.annotations().contains_key(RETRY_NOW),
        what: format!("the backup volume {} of target {}", names.volume, names.target),
        ..seen(world, &uid, status.deletion.clone().unwrap_or_default(), state(&before))
    };
    let verdict = decide(&seen);
    if verdict.act == Act::Release {
        return volume_released(world, volume, &names, &uid).await;
    }
    let mut volume = Arc::clone(volume);
    if let Some(shown) = &verdict.show {
        let mut new = volume.as_ref().clone();
        if answers_retry(verdict.act) {
            new.annotations_mut().remove(RETRY_NOW);
        }
        let status = new.status.get_or_insert_default();
        status.state =
            Some(shown_state(shown, before.clone())).filter(|it| *it != BackupState::New);
        status.deletion = Some(shown.deletion.clone());
        status.messages = messages(shown);
        status.owner_id = Some(world.me.clone());
        let changed = status.state.clone().unwrap_or(BackupState::New) != before;
        volume = world.backup_volumes.update(&volume, &new).await?;
        if changed {
            world.tell_deletion(volume.as_ref(), shown);
        }
    }
    match verdict.act {
        Act::Start => start_volume(world, &seen.next_attempt, &volume, names),
        Act::Forget | Act::Refuse => world.removals.forget(&uid),
        Act::Nothing | Act::Release => {}
    }
    Ok(verdict.look_after.map_or(Next::WAIT, Next::after))
}

/// A backup that nobody has asked to delete: it was made, or is being made, since the deletion of all that there were
/// was asked for, as while that failed.
fn made_since(volume: &BackupVolume, backups: &[Arc<Backup>]) -> Option<String> {
    let asked = volume.metadata.deletion_timestamp.as_ref()?.0;
    let is_newer = |backup: &&Arc<Backup>| {
        let is_ours = backup.spec.snapshot_name.as_deref().is_some_and(|it| !it.is_empty());
        let status = backup.status.as_ref();
        let made = status.and_then(|it| it.backup_created_at.as_ref()?.get());
        let wished = backup.metadata.creation_timestamp.as_ref().map(|it| it.0);
        let is_there = matches!(state_of(backup), BackupState::Completed | BackupState::InProgress);
        let since = if is_ours { wished } else { made };
        backup.metadata.deletion_timestamp.is_none() && is_there && since > Some(asked)
    };
    let newer = backups.iter().find(is_newer)?.name_any();
    Some(format!(
        "backup {newer} was made after this deletion was asked for: delete it as well, and all go"
    ))
}

fn start_volume(world: &Arc<World>, attempt: &str, volume: &BackupVolume, names: Names) {
    let control = Control::default();
    let mark = Attempt { id: attempt.to_owned(), control: control.clone() };
    let tell = (Arc::clone(&world.queues.volumes), Key::of(volume));
    let doors = Arc::clone(world);
    let uid = volume.uid().unwrap_or_default();
    world.removals.start(&uid, mark, tell, async move {
        let door = target::open(&doors, &names.target).await?;
        let volume = named(&names.volume)?;
        let options = DeleteOptions { lock_timeout: LOCK_WAIT, ..DeleteOptions::default() };
        let removed = door.store.delete_volume(&volume, &options, &control).await;
        removed.map_err(|error| target::text(&error))
    });
}

/// Its backups go first, as objects: their data is gone, or is to stay.
async fn volume_released(
    world: &Arc<World>,
    volume: &Arc<BackupVolume>,
    names: &Names,
    uid: &str,
) -> Result<Next, Failure> {
    let all = world.backups_of(&names.target, &names.volume);
    let stored: Vec<_> = all.iter().filter(|it| is_of_store(it)).collect();
    for backup in &stored {
        drop_object(world, backup).await?;
    }
    if !stored.is_empty() {
        // Their end is no event of this object.
        return Ok(Next::after(Duration::from_millis(200)));
    }
    if let Some(entry) = world.removals.look(uid) {
        entry.mark.control.cancel();
    }
    world.backup_volumes.remove_finalizer(volume, FINALIZER).await?;
    world.removals.forget(uid);
    Ok(Next::WAIT)
}

/// One that is only being made goes its own way, and makes the volume anew.
fn is_of_store(backup: &Backup) -> bool {
    match state_of(backup) {
        BackupState::Completed | BackupState::Deleting | BackupState::Unknown => true,
        BackupState::Error => backup.metadata.deletion_timestamp.is_some(),
        BackupState::New => backup.spec.snapshot_name.is_none(),
        BackupState::Pending | BackupState::InProgress | BackupState::Other(_) => false,
    }
}

/// Takes the object away and leaves what is in the store.
pub(crate) async fn drop_object(world: &World, backup: &Arc<Backup>) -> Result<(), Failure> {
    let marked = world.backups.update(backup, &marked(backup.as_ref())).await?;
    if marked.metadata.deletion_timestamp.is_none() {
        world.backups.delete_unchanged(&marked).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use backupstore::create::CreateRequest;
    use backupstore::{Environment, FileSource, Source, TargetUrl};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

    use super::*;

    #[test]
    fn one_that_stands_for_nothing_goes_without_a_look_at_a_store() {
        let names = |volume: &str| Names { target: "t".into(), volume: volume.into() };
        let mut backup = Backup::default();
        assert!(!was_never_stored(&backup, &names("v")), "nobody has looked yet");
        assert!(was_never_stored(&backup, &names("")), "no store can be asked for it");
        super::super::refuse(&mut backup);
        assert!(was_never_stored(&backup, &names("v")));
        backup.status.as_mut().unwrap().deletion = Some(BackupDeletion::default());
        assert!(!was_never_stored(&backup, &names("v")), "its deletion has failed");
        let mut asked = Backup::default();
        asked.spec.snapshot_name = Some("s".to_owned());
        assert!(was_never_stored(&asked, &names("v")));
        asked.status.get_or_insert_default().url =
            Some("vfs:///d?backup=monday&volume=vol".to_owned());
        assert!(!was_never_stored(&asked, &names("v")));
    }

    /// The backup of that name that was there before is a good one; the other was refused for it.
    #[tokio::test]
    async fn a_backup_that_was_refused_for_its_name_takes_none_along_that_has_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let url = TargetUrl::parse(&format!("vfs://{}", dir.path().display())).unwrap();
        let store = BackupStore::open(&url, &Environment::default()).await.unwrap();
        let data = dir.path().join("data");
        durable::replace(&data, &vec![7; 2 << 20]).unwrap();
        let (volume, name) = (named("vol").unwrap(), named("monday").unwrap());
        let source: Arc<dyn Source> = Arc::new(FileSource::open(&data).unwrap());
        let request = CreateRequest {
            backup: Some(name.clone()),
            ..CreateRequest::new(volume.clone(), "s1")
        };
        let begun =
            store.begin_backup(request, Arc::clone(&source), &Control::default()).await.unwrap();
        begun.run(source, &Control::default()).await.unwrap();
        let mut refused = Backup::default();
        refused.spec.snapshot_name = Some("s2".to_owned());
        let remove = |backup: &Backup| {
            let (store, tried) = (&store, tried(backup));
            async move {
                remove_backup(store, "vol", "monday", tried.as_ref(), &Control::default()).await
            }
        };
        remove(&refused).await.unwrap();
        assert!(store.inspect_backup(&volume, &name).await.is_ok());
        // Nor where the snapshot of today has the name of the one of then.
        refused.spec.snapshot_name = Some("s1".to_owned());
        let later = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(5);
        refused.metadata.creation_timestamp = Some(meta::Time(later));
        remove(&refused).await.unwrap();
        assert!(store.inspect_backup(&volume, &name).await.is_ok());
        // One that is complete is what is there, whatever its snapshot is called by now.
        refused.status.get_or_insert_default().url =
            Some("vfs:///d?backup=monday&volume=vol".to_owned());
        remove(&refused).await.unwrap();
        assert!(store.inspect_backup(&volume, &name).await.is_err());
    }

    /// A deletion that failed is tried again, and takes all that it finds.
    #[test]
    fn the_deletion_of_all_backups_takes_none_that_was_made_since() {
        let at = |second: i64| jiff::Timestamp::from_second(second).unwrap();
        let mut volume = BackupVolume::default();
        let made = |wished: i64, created: i64, state: BackupState| {
            let mut backup = Backup::default();
            backup.metadata.name = Some("b".to_owned());
            backup.metadata.creation_timestamp = Some(meta::Time(at(wished)));
            backup.spec.snapshot_name = Some("s".to_owned());
            let status = backup.status.get_or_insert_default();
            status.state = Some(state);
            status.backup_created_at =
                Some(api::scalar::Stamp::from(api::scalar::Time::new(at(created))));
            backup
        };
        let held = |volume: &BackupVolume, backup: Backup| {
            made_since(volume, &[Arc::new(backup)]).is_some()
        };
        let since = || made(20, 21, BackupState::Completed);
        assert!(!held(&volume, since()), "nobody deletes anything");
        volume.metadata.deletion_timestamp = Some(meta::Time(at(10)));
        assert!(held(&volume, since()));
        assert!(held(&volume, made(20, 0, BackupState::InProgress)));
        assert!(!held(&volume, made(20, 0, BackupState::Pending)), "it waits for the deletion");
        assert!(!held(&volume, made(5, 21, BackupState::Completed)), "it was there already");
        let mut deleted = since();
        deleted.metadata.deletion_timestamp = Some(meta::Time(at(22)));
        assert!(!held(&volume, deleted));
        // One that was found in the store: its object may be of any day.
        let found = |created| {
            let mut backup = made(20, created, BackupState::Completed);
            backup.spec.snapshot_name = None;
            backup
        };
        assert!(!held(&volume, found(5)) && held(&volume, found(21)));
    }

    #[test]
    fn one_that_was_to_be_dropped_and_was_not_loses_its_data_when_a_person_deletes_it() {
        let names = || Names { target: "t".into(), volume: "v".into() };
        let deleted = |mut backup: Backup| {
            backup.metadata.deletion_timestamp = Some(meta::Time(now()));
            backup
        };
        let dropped = marked(&Backup::default());
        assert!(keeps_data(&deleted(dropped.clone())), "it was dropped");
        // Killed before the deletion: the next pass dresses it.
        let left = super::super::dressed(&dropped, names());
        assert!(!keeps_data(&deleted(left)));
        let mut said = Backup::default();
        said.labels_mut().insert(label::OBJECT_ONLY.to_owned(), "true".to_owned());
        assert!(keeps_data(&super::super::dressed(&said, names())), "a person has said so");
    }
}
