//! Making a backup, as [`super::decide`] says: what is seen for it, and what is done.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::longhorn::{
    AccessMode, AttacherType, AttachmentTicket, Backup, BackupMode, BackupState, BackupUpload,
    BackupVolume, BlockSize, InstanceState, VolumeSpec, VolumeState,
};
use api::scalar::{Stamp, Time};
use backupstore::BackupInfo;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use reconcile::{Failure, Key, Next};
use rpc::Address;
use rpc::ptypes::BackupCreateRequest;

use super::decide::{
    Act, Record, Seen, Snapshot, Target, Verdict, Volume, decide, not_its_own, not_stored,
};
use super::upload::{End, Progress, Upload, find_replica};
use super::world::{HELD_FOR, Names, World};
use super::{now, reading, state_of};
use crate::attachment::without;
use crate::setting::BACKUP_RATE;
use crate::volume::starting::why_not_attached;
use crate::work::Stand;
use crate::{FINALIZER, NAMESPACE, label, target};

/// How far clocks of two machines may be apart for a backup not to be called another's.
pub(super) const CLOCKS_APART: SignedDuration = SignedDuration::from_mins(1);

pub(super) async fn pass(world: &Arc<World>, backup: &Arc<Backup>) -> Result<Next, Failure> {
    let names = world.names(backup);
    let uid = backup.uid().unwrap_or_default();
    // Two that look at once would both find that nobody uploads.
    let _turn = match limit(world, &names) {
        Limit::None => None,
        Limit::Target | Limit::Machine => Some(world.turn.lock().await),
    };
    let verdict = decide(&seen(world, backup, &names, &uid));
    match verdict.act {
        Act::Finish => return finish(world, backup, &names, &uid).await,
        Act::Attach | Act::Start => hold_volume(world, backup, &names).await?,
        Act::Nothing | Act::Watch | Act::Forget => {}
    }
    let replica = match verdict.act {
        Act::Start => match choose(world, backup, &names).await {
            Ok(replica) => Some(replica),
            Err(why) => {
                tracing::debug!(why, "no replica to back up from");
                let text =
                    format!("Waiting for the engine of volume {} to be ready: {why}", names.volume);
                let waits = Verdict { info: Some(text), act: Act::Nothing, ..verdict };
                show(world, backup, &waits, None).await?;
                return Ok(Next::after(std::time::Duration::from_secs(2)));
            }
        },
        _ => None,
    };
    let backup = show(world, backup, &verdict, replica.as_deref()).await?;
    match verdict.act {
        Act::Start => start(world, &backup, &names, true),
        Act::Watch => start(world, &backup, &names, false),
        Act::Forget => world.uploads.forget(&uid),
        Act::Nothing | Act::Attach | Act::Finish => {}
    }
    Ok(verdict.look_after.map_or(Next::WAIT, Next::after))
}

fn seen(world: &World, backup: &Backup, names: &Names, uid: &str) -> Seen {
    let snapshot_name = backup.spec.snapshot_name.clone().unwrap_or_default();
    Seen {
        now: now(),
        state: state_of(backup),
        upload: backup.status.as_ref().and_then(|it| it.upload.clone()).unwrap_or_default(),
        volume: volume(world, names),
        snapshot: snapshot(world, &snapshot_name, &names.volume),
        target: target_of(world, &names.target),
        deleted_first: deleted_first(world, backup, names),
        uploaded_first: uploaded_first(world, backup, names),
        record: record(world, uid),
        snapshot_name,
        volume_name: names.volume.clone(),
        target_name: names.target.clone(),
    }
}

fn volume(world: &World, names: &Names) -> Volume {
    let Some(volume) = world.volumes.get(&Key::new(NAMESPACE, &names.volume)) else {
        return Volume::Missing;
    };
    let status = volume.status.clone().unwrap_or_default();
    if status.restore_required == Some(true) || status.is_standby == Some(true) {
        return Volume::Restoring;
    }
    let engine = world.engine(&names.volume);
    let runs = engine.as_ref().and_then(|it| it.status.as_ref()).is_some_and(|it| {
        it.instance.current_state == Some(InstanceState::Running) && it.instance.port.is_some()
    });
    if runs && status.state == Some(VolumeState::Attached) {
        return Volume::Served;
    }
    let engine = engine.map_or_else(|| format!("{}-e-0", names.volume), |it| it.name_any());
    Volume::Down { engine, why: why_not_attached(&volume) }
}

fn snapshot(world: &World, name: &str, volume: &str) -> Snapshot {
    let found = world.snapshots.get(&Key::new(NAMESPACE, name));
    match found.filter(|it| it.spec.volume.as_deref() == Some(volume)) {
        None => Snapshot::Missing,
        Some(it) if it.status.as_ref().and_then(|it| it.ready_to_use) == Some(true) => {
            Snapshot::Ready
        }
        Some(_) => Snapshot::NotReady,
    }
}

fn target_of(world: &World, name: &str) -> Target {
    let Some(found) = world.target(name) else { return Target::Missing };
    let status = found.status.clone().unwrap_or_default();
    if status.available == Some(true) {
        return Target::Ready;
    }
    let why = status.conditions.unwrap_or_default().into_iter().find(|it| it.kind == "Unavailable");
    let why = why.and_then(|it| it.message).filter(|it| !it.is_empty());
    Target::Unavailable(why.unwrap_or_else(|| "it has not been looked at yet".to_owned()))
}

/// A backup of the same volume whose data is being removed, or is about to be. One whose deletion
/// failed, or waits for a restore, is in nobody's way.
fn deleted_first(world: &World, backup: &Backup, names: &Names) -> Option<String> {
    let all = world.backups_of(&names.target, &names.volume);
    let mut others = all.iter().filter(|it| it.metadata.uid != backup.metadata.uid);
    if let Some(first) = others.find(|it| loses_data(it)) {
        return Some(first.name_any());
    }
    let of = world.backup_volume(names)?;
    loses_all(&of).then(|| of.name_any())
}

/// All backups of the volume are being removed. What only its status says nobody has asked for.
fn loses_all(volume: &BackupVolume) -> bool {
    let state = volume.status.as_ref().and_then(|it| it.state.as_ref());
    volume.metadata.deletion_timestamp.is_some() && state == Some(&BackupState::Deleting)
}

fn loses_data(backup: &Backup) -> bool {
    let status = backup.status.clone().unwrap_or_default();
    let deletion = status.deletion.unwrap_or_default();
    let is_held = deletion.waits_for.is_some();
    let has_failed = state_of(backup) == BackupState::Error && deletion.failures.unwrap_or(0) > 0;
    let was_stored = status.replica_address.is_some()
        || status.url.is_some()
        || backup.spec.snapshot_name.is_none();
    let keeps = super::deletion::keeps_data(backup);
    // Without ours its data is gone already: somebody else keeps the object.
    let is_ours = backup.finalizers().iter().any(|it| it == FINALIZER);
    backup.metadata.deletion_timestamp.is_some()
        && is_ours
        && was_stored
        && !keeps
        && (state_of(backup) == BackupState::Deleting || (!is_held && !has_failed))
}

/// Who shares a limited rate with a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    None,
    /// Backups to the same target.
    Target,
    /// All of them.
    Machine,
}

fn limit(world: &World, names: &Names) -> Limit {
    let of_target = world.target(&names.target).and_then(|it| it.spec.bytes_per_second);
    if world.number(BACKUP_RATE, 0) > 0 {
        Limit::Machine
    } else if of_target.is_some_and(|it| it.0 > 0) {
        Limit::Target
    } else {
        Limit::None
    }
}

/// Under a limit of the rate one upload at a time has all of it.
fn uploaded_first(world: &World, backup: &Backup, names: &Names) -> Option<String> {
    let all = match limit(world, names) {
        Limit::None => return None,
        Limit::Target => world.backups.by("open-at", &names.target),
        Limit::Machine => world.backups.list(),
    };
    let other = |it: &&Arc<Backup>| {
        it.metadata.uid != backup.metadata.uid
            && world.uploads.is_running(&it.uid().unwrap_or_default())
    };
    all.iter().find(other).map(|it| it.name_any())
}

fn record(world: &World, uid: &str) -> Record {
    let Some(entry) = world.uploads.look(uid) else { return Record::None };
    match entry.stand {
        Stand::Running => match entry.mark.percent() {
            None => Record::Starting,
            Some(percent) => Record::Running { percent },
        },
        Stand::Ended(End::Complete) => Record::Complete,
        Stand::Ended(End::Failed(why)) => Record::Failed(why),
        Stand::Ended(End::Locked(why)) => Record::Locked(why),
        Stand::Ended(End::Lost(why)) => Record::Lost(why),
        Stand::Ended(End::Untold(why)) => Record::Untold(why),
        Stand::Broken => Record::Lost("the upload was not watched to its end".to_owned()),
    }
}

async fn show(
    world: &Arc<World>,
    backup: &Arc<Backup>,
    verdict: &Verdict,
    replica: Option<&str>,
) -> Result<Arc<Backup>, Failure> {
    let names = world.names(backup);
    let mut new = backup.as_ref().clone();
    let size = world.volumes.get(&Key::new(NAMESPACE, &names.volume)).and_then(|it| it.spec.size);
    let status = new.status.get_or_insert_default();
    let is_over = verdict.state == BackupState::Error;
    status.state = Some(verdict.state.clone());
    status.error.clone_from(&verdict.error);
    let info = verdict.info.clone().map(|text| BTreeMap::from([("info".to_owned(), text)]));
    status.messages = info;
    status.upload = Some(verdict.upload.clone()).filter(|it| *it != BackupUpload::default());
    status.progress =
        verdict.percent.map(|it| it.max(status.progress.unwrap_or(0))).or(status.progress);
    status.owner_id = Some(world.me.clone());
    status.backup_target_name = Some(names.target.clone());
    status.volume_name = Some(names.volume.clone()).filter(|it| !it.is_empty());
    status.snapshot_name.clone_from(&backup.spec.snapshot_name);
    status.volume_size = size.map(|it| it.to_string()).or_else(|| status.volume_size.clone());
    if let Some(replica) = replica {
        status.replica_address = Some(replica.to_owned());
    }
    if is_over {
        status.last_synced_at = Some(Time::new(now()));
    }
    let (before, error) = (state_of(backup), verdict.error.as_deref());
    let written = world.backups.update(backup, &new).await?;
    if before != verdict.state {
        reading::tell_volume(world, &written, &verdict.state, error);
        if is_over {
            world.numbers.upload_failed();
        }
    }
    Ok(written)
}

async fn finish(
    world: &Arc<World>,
    backup: &Arc<Backup>,
    names: &Names,
    uid: &str,
) -> Result<Next, Failure> {
    let Some(found) = reading::ask(world, backup) else { return Ok(Next::WAIT) };
    match found {
        reading::Found::Backup(info)
            if is_of_another(backup, &info, taken(world, backup, names).as_ref()) =>
        {
            let mut snapshot = info.snapshot_name.clone();
            if backup.spec.snapshot_name.as_ref() == Some(&snapshot) {
                snapshot.push_str(", which was taken at another time");
            }
            let verdict = not_its_own(&seen(world, backup, names, uid), &snapshot);
            show(world, backup, &verdict, None).await?;
            world.uploads.forget(uid);
            Ok(Next::WAIT)
        }
        reading::Found::Backup(info) => {
            // A small one may be over before anybody looked: every state is shown.
            let backup = shown_in_progress(world, backup).await?;
            reading::complete(world, &backup, &info).await?;
            world.uploads.forget(uid);
            Ok(Next::WAIT)
        }
        reading::Found::Missing => {
            let verdict = not_stored(&seen(world, backup, names, uid));
            show(world, backup, &verdict, None).await?;
            if verdict.state == BackupState::Error {
                world.uploads.forget(uid);
                return Ok(Next::WAIT);
            }
            Ok(Next::after(std::time::Duration::from_secs(2)))
        }
        reading::Found::Unfinished | reading::Found::Silent(_) => {
            Ok(Next::after(std::time::Duration::from_secs(2)))
        }
    }
}

/// When the snapshot was taken that is to be backed up, where that is known.
fn taken(world: &World, backup: &Backup, names: &Names) -> Option<Stamp> {
    let snapshot = backup.spec.snapshot_name.as_deref()?;
    let found = world.snapshots.get(&Key::new(NAMESPACE, snapshot))?;
    let is_ours = found.spec.volume.as_deref() == Some(&names.volume);
    found.status.as_ref().filter(|_| is_ours)?.creation_time.clone()
}

/// The store has a backup of this name, and of another snapshot than was asked for: of another name, or one
/// of the same name that was `taken` at another time.
fn is_of_another(backup: &Backup, info: &BackupInfo, taken: Option<&Stamp>) -> bool {
    let wanted = backup.spec.snapshot_name.as_deref().unwrap_or_default();
    if ![wanted, ""].contains(&info.snapshot_name.as_str()) {
        return true;
    }
    let Some(taken) = taken.and_then(Stamp::get) else { return false };
    if let Ok(stored) = info.snapshot_taken.parse::<Timestamp>() {
        return stored != taken;
    }
    // What older agents write says only when they began, by their own clocks.
    let began = info.snapshot_created.parse::<Timestamp>();
    began.is_ok_and(|began| taken.duration_since(began) > CLOCKS_APART)
}

async fn shown_in_progress(
    world: &Arc<World>,
    backup: &Arc<Backup>,
) -> Result<Arc<Backup>, Failure> {
    if state_of(backup) == BackupState::InProgress {
        return Ok(Arc::clone(backup));
    }
    let mut shown = backup.as_ref().clone();
    let status = shown.status.get_or_insert_default();
    status.state = Some(BackupState::InProgress);
    status.messages = None;
    let shown = world.backups.update(backup, &shown).await?;
    reading::tell_volume(world, &shown, &BackupState::InProgress, None);
    Ok(shown)
}

fn engine_address(world: &World, volume: &str) -> Option<Address> {
    let engine = world.engine(volume)?;
    let status = &engine.status.as_ref()?.instance;
    let host =
        status.storage_ip.clone().filter(|it| !it.is_empty()).or_else(|| status.ip.clone())?;
    Some(Address::new(host, u16::try_from(status.port?).ok()?))
}

/// The replica that was asked before, if it is still good.
async fn choose(world: &World, backup: &Backup, names: &Names) -> Result<String, String> {
    let engine = engine_address(world, &names.volume);
    let engine = engine.ok_or_else(|| "the engine has no address".to_owned())?;
    let before = backup.status.as_ref().and_then(|it| it.replica_address.clone());
    find_replica(&engine, &names.volume, before.as_deref()).await
}

fn start(world: &Arc<World>, backup: &Arc<Backup>, names: &Names, begins: bool) {
    let progress = Arc::new(Progress::default());
    let tell = || (Arc::clone(&world.queues.backups), Key::of(backup.as_ref()));
    let (uid, own, names) = (backup.uid().unwrap_or_default(), Arc::clone(world), names.clone());
    let (mark, backup, told) = (Arc::clone(&progress), Arc::clone(backup), tell());
    world.uploads.start(&uid, mark, tell(), async move {
        let door = match target::open(&own, &names.target).await {
            Ok(door) => door,
            Err(why) => return End::Lost(why),
        };
        let replica = backup.status.as_ref().and_then(|it| it.replica_address.clone());
        let upload = Upload {
            volume: names.volume.clone(),
            backup: backup.name_any(),
            replica: replica.unwrap_or_default(),
            store: door.store.clone(),
            progress,
            tell: told,
        };
        if begins {
            upload.begin(request(&own, &backup, &names, &door)).await
        } else {
            upload.follow().await
        }
    });
}

fn request(
    world: &World,
    backup: &Backup,
    names: &Names,
    door: &target::Door,
) -> BackupCreateRequest {
    let volume = world.volumes.get(&Key::new(NAMESPACE, &names.volume));
    let spec = volume.map(|it| it.spec.clone()).unwrap_or_default();
    let labels = stored_labels(backup, &spec);
    let method = spec.backup_compression_method.map(|it| it.as_str().to_owned());
    let method = method.unwrap_or_else(|| world.word("backup-compression-method", "lz4"));
    let block_size = backup.spec.backup_block_size.clone().or(spec.backup_block_size);
    let block_size = block_size
        .filter(|it| *it != BlockSize::Unknown)
        .map_or("2097152".to_owned(), |it| it.as_str().to_owned());
    let mode = match backup.spec.backup_mode {
        Some(BackupMode::Full) => "full",
        _ => "incremental",
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let rate = [door.bytes_per_second, world.number(BACKUP_RATE, 0)];
    BackupCreateRequest {
        snapshot_file_name: backup.spec.snapshot_name.clone().unwrap_or_default(),
        backup_target: door.url.to_string(),
        volume_name: names.volume.clone(),
        labels: labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        credential: door.environment.to_pairs().into_iter().collect(),
        backing_image_name: spec.backing_image.unwrap_or_default(),
        backing_image_checksum: String::new(),
        backup_name: backup.name_any(),
        compression_method: method,
        concurrent_limit: i32::try_from(world.number("backup-concurrent-limit", 2)).unwrap_or(2),
        storage_class_name: String::new(),
        parameters: HashMap::from([
            pair("backup-block-size", &block_size),
            pair("backup-mode", mode),
        ]),
        holdfast_bytes_per_second: rate.into_iter().filter(|it| *it > 0).min().unwrap_or(0),
    }
}

/// What is stored with a backup: what was asked for, and what a volume that is made of it needs to know.
fn stored_labels(backup: &Backup, of: &VolumeSpec) -> BTreeMap<String, String> {
    let mut labels = backup.spec.labels.clone().unwrap_or_default();
    if let Some(mode) = of.access_mode.as_ref().filter(|it| **it != AccessMode::Unset) {
        labels.entry(label::ACCESS_MODE.to_owned()).or_insert_with(|| mode.as_str().to_owned());
    }
    labels
}

fn ticket_id(backup: &str) -> String {
    let id = format!("backup-controller-{backup}");
    id.chars().take(253).collect()
}

/// Asks for the volume to be attached, wherever it is or may be, as long as the backup is made.
async fn hold_volume(world: &World, backup: &Backup, names: &Names) -> Result<(), Failure> {
    let Some(attachment) = world.attachments.get(&Key::new(NAMESPACE, &names.volume)) else {
        return Ok(());
    };
    let Some(node) = node_for(world, &names.volume) else { return Ok(()) };
    let id = ticket_id(&backup.name_any());
    let mut new = attachment.as_ref().clone();
    let tickets = new.spec.attachment_tickets.get_or_insert_default();
    let old = tickets.get(&id);
    if old.is_some_and(|it| it.node_id.as_deref() == Some(&node)) {
        return Ok(());
    }
    let generation = old.and_then(|it| it.generation).unwrap_or(0).saturating_add(1);
    let parameters = BTreeMap::from([("disableFrontend".to_owned(), "any".to_owned())]);
    let ticket = AttachmentTicket {
        id: Some(id.clone()),
        kind: Some(AttacherType::BackupController),
        node_id: Some(node),
        parameters: Some(parameters),
        generation: Some(generation),
    };
    tickets.insert(id, ticket);
    // Each ticket has one writer.
    world.attachments.merge(&attachment, &new).await?;
    Ok(())
}

fn node_for(world: &World, volume: &str) -> Option<String> {
    let volume = world.volumes.get(&Key::new(NAMESPACE, volume))?;
    let status = volume.status.clone().unwrap_or_default();
    let known = [volume.spec.node_id.clone(), status.current_node_id, status.owner_id];
    let nodes = world.nodes.list();
    let up: BTreeSet<String> =
        nodes.iter().filter(|it| crate::volume::is_ready(it)).map(|it| it.name_any()).collect();
    choose_node(known, &up)
}

/// The first that is there, or any. A node that is gone keeps no volume.
fn choose_node(known: [Option<String>; 3], up: &BTreeSet<String>) -> Option<String> {
    known.into_iter().flatten().find(|it| up.contains(it)).or_else(|| up.first().cloned())
}

/// Takes the ticket back.
pub(super) async fn release_volume(world: &World, backup: &Backup) -> Result<(), Failure> {
    let names = world.names(backup);
    let Some(attachment) = world.attachments.get(&Key::new(NAMESPACE, &names.volume)) else {
        return Ok(());
    };
    let id = ticket_id(&backup.name_any());
    let mut new = attachment.as_ref().clone();
    let tickets = new.spec.attachment_tickets.get_or_insert_default();
    if tickets.remove(&id).is_none() {
        return Ok(());
    }
    world.attachments.merge(&attachment, &new).await?;
    Ok(())
}

/// What is left of a backup whose object is gone: its ticket, where somebody has removed the object by force.
pub(super) async fn release_left(world: &World, key: &Key) -> Result<(), Failure> {
    if world.backups.is_broken(key) {
        return Ok(());
    }
    for attachment in world.attachments.by(HELD_FOR, &key.name) {
        if let Some(next) = without(&attachment, AttacherType::BackupController, &key.name) {
            world.attachments.merge(&attachment, &next).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

    use super::*;

    /// Whoever restores from it would get what was there at another time.
    #[test]
    fn a_backup_is_complete_only_with_the_snapshot_that_was_asked_for() {
        let mut backup = Backup::default();
        backup.spec.snapshot_name = Some("s2".to_owned());
        let info = |snapshot: &str| BackupInfo {
            snapshot_name: snapshot.to_owned(),
            ..BackupInfo::default()
        };
        assert!(is_of_another(&backup, &info("s1"), None));
        assert!(!is_of_another(&backup, &info("s2"), None));
        let stored = |taken: &str, began: &str| BackupInfo {
            snapshot_taken: taken.to_owned(),
            snapshot_created: began.to_owned(),
            ..info("s2")
        };
        let taken = Stamp::from("2026-11-15T06:30:00Z");
        for (stored, wanted) in [
            (stored("2026-11-15T06:30:00Z", "2026-11-15T06:30:02Z"), false),
            // The names were given again.
            (stored("2026-11-15T06:29:59Z", "2026-11-15T06:30:02Z"), true),
            (stored("", "2026-11-15T06:30:02Z"), false),
            (stored("", "2026-11-15T06:29:58Z"), false),
            (stored("", "2026-11-15T06:28:00Z"), true),
            (stored("", ""), false),
        ] {
            assert_eq!(is_of_another(&backup, &stored, Some(&taken)), wanted, "{stored:?}");
        }
        let earlier = stored("", "2026-11-15T06:28:00Z");
        assert!(!is_of_another(&backup, &earlier, Some(&Stamp::never())));
    }

    #[test]
    fn a_backup_says_who_might_use_its_volume_unless_somebody_said_otherwise() {
        let stored = |said: Option<&str>, mode: Option<AccessMode>| {
            let mut backup = Backup::default();
            let labels = said.map(|it| (label::ACCESS_MODE.to_owned(), it.to_owned()));
            backup.spec.labels = Some(labels.into_iter().collect());
            let of = VolumeSpec { access_mode: mode, ..VolumeSpec::default() };
            stored_labels(&backup, &of).remove(label::ACCESS_MODE)
        };
        assert_eq!(stored(None, Some(AccessMode::ReadWriteMany)).as_deref(), Some("rwx"));
        assert_eq!(stored(Some("rwo"), Some(AccessMode::ReadWriteMany)).as_deref(), Some("rwo"));
        assert_eq!(stored(None, Some(AccessMode::Unset)), None);
        assert_eq!(stored(None, None), None);
    }

    #[test]
    fn a_backup_whose_object_somebody_else_keeps_is_in_nobodys_way() {
        let mut backup = Backup::default();
        backup.metadata.deletion_timestamp = Some(meta::Time(now()));
        backup.metadata.finalizers = Some(vec![FINALIZER.to_owned(), "other".to_owned()]);
        backup.status.get_or_insert_default().state = Some(BackupState::Deleting);
        assert!(loses_data(&backup));
        backup.metadata.finalizers = Some(vec!["other".to_owned()]);
        assert!(!loses_data(&backup));
    }

    #[test]
    fn backups_wait_for_a_volume_whose_deletion_somebody_asked_for() {
        let mut volume = BackupVolume::default();
        volume.status.get_or_insert_default().state = Some(BackupState::Deleting);
        assert!(!loses_all(&volume), "that alone is only said");
        volume.metadata.deletion_timestamp = Some(meta::Time(now()));
        assert!(loses_all(&volume));
        volume.status.get_or_insert_default().state = Some(BackupState::Error);
        assert!(!loses_all(&volume));
    }

    #[test]
    fn a_backup_holds_no_volume_on_a_node_that_is_gone() {
        let up = ["n1", "n2"].map(str::to_owned).into();
        let node = |names: [&str; 3]| choose_node(names.map(|it| Some(it.to_owned())), &up);
        assert_eq!(node(["n2", "n2", "n1"]).as_deref(), Some("n2"));
        assert_eq!(node(["gone", "gone", "n2"]).as_deref(), Some("n2"));
        assert_eq!(node(["", "", "gone"]).as_deref(), Some("n1"));
    }
}
