//! One run of a job: its volumes, a few at a time, each with its own end.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::longhorn::{
    Backup, BackupMode, BackupSpec, BackupState, RecurringJob, RecurringTask, Robustness, Snapshot,
    SnapshotSpec, SystemBackup, SystemBackupSpec, SystemState, Volume, VolumeBackupPolicy,
    VolumeState,
};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use reconcile::Key;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::{Address, Deadline, Identity, connect};
use tasks::CancellationToken;

use super::World;
use super::retention::{Keep, expired};
use crate::backup::now;
use crate::{NAMESPACE, label};

const JOB_LABEL: &str = "RecurringJob";
const JOBS: &str = "recurring-job.longhorn.io/";
const GROUPS: &str = "recurring-job-group.longhorn.io/";
const DEFAULT_GROUP: &str = "default";
/// How long a run may take, unless its job says otherwise.
const DEADLINE: Duration = Duration::from_hours(24);
/// How often what is waited for is looked at; it lies in a cache.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) fn job_label(job: &str) -> String {
    format!("{JOBS}{job}")
}

pub(crate) fn group_label(group: &str) -> String {
    format!("{GROUPS}{group}")
}

/// Whether a label names a job or a group of jobs.
pub(crate) fn is_job_label(name: &str) -> bool {
    name.starts_with(JOBS) || name.starts_with(GROUPS)
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(super) result: &'static str,
    pub(super) message: String,
}

impl End {
    pub(super) fn broken() -> Self {
        Self { result: "Failed", message: "the run broke down".to_owned() }
    }

    pub(super) fn is_well(&self) -> bool {
        self.result == "Succeeded"
    }
}

/// Whether the job is for the volume.
fn is_for(job: &RecurringJob, volume: &Volume) -> bool {
    let has = |name: &str| volume.labels().get(name).is_some_and(|it| it == "enabled");
    let is_free =
        !volume.labels().iter().any(|(name, value)| value == "enabled" && is_job_label(name));
    let in_group = |group: &String| has(&group_label(group)) || (is_free && group == DEFAULT_GROUP);
    has(&job_label(&job.name_any())) || job.spec.groups.iter().flatten().any(in_group)
}

/// Why a volume has no turn.
fn passed_over(world: &World, volume: &Volume) -> Option<&'static str> {
    let status = volume.status.clone().unwrap_or_default();
    let allows_detached =
        world.word("allow-recurring-job-while-volume-detached").as_deref() == Some("true");
    if volume.metadata.deletion_timestamp.is_some() {
        Some("it is being deleted")
    } else if status.restore_required == Some(true) {
        Some("it is restoring data")
    } else if status.robustness == Some(Robustness::Faulted) {
        Some("it is faulted")
    } else if status.state != Some(VolumeState::Attached) && !allows_detached {
        Some("it is not attached")
    } else {
        None
    }
}

pub(super) async fn run(
    world: Arc<World>,
    job: Arc<RecurringJob>,
    number: i64,
    stop: CancellationToken,
) -> End {
    let deadline = job.spec.parameters.as_ref().and_then(|it| it.get("deadline").cloned());
    let deadline = deadline.map(|it| api::duration::GoDuration::from(it.as_str()));
    let deadline = deadline.and_then(|it| it.get().ok()).unwrap_or(DEADLINE);
    let work = all(&world, &job, number);
    tokio::select! {
        done = tokio::time::timeout(deadline, work) => done.unwrap_or_else(|_| End {
            result: "DeadlineExceeded",
            message: format!("not done within {} s; what it had begun goes on by itself", deadline.as_secs()),
        }),
        () = stop.cancelled() => End { result: "Canceled", message: "canceled".to_owned() },
    }
}

async fn all(world: &Arc<World>, job: &Arc<RecurringJob>, number: i64) -> End {
    if job.spec.task == Some(RecurringTask::SystemBackup) {
        return end(vec![("system".to_owned(), back_up_system(world, job).await)], &[]);
    }
    let volumes: Vec<Arc<Volume>> =
        world.volumes.list().into_iter().filter(|it| is_for(job, it)).collect();
    let mut left_out = Vec::new();
    let mut turns = Vec::new();
    for volume in volumes {
        match passed_over(world, &volume) {
            Some(why) => left_out.push(format!("{} was left out: {why}", volume.name_any())),
            None => turns.push(volume),
        }
    }
    let limit = usize::try_from(job.spec.concurrency.unwrap_or(10)).unwrap_or(10).max(1);
    let done: Vec<(String, Result<(), String>)> = futures::stream::iter(turns)
        .map(|volume| async move { (volume.name_any(), one(world, job, &volume, number).await) })
        .buffer_unordered(limit)
        .collect()
        .await;
    end(done, &left_out)
}

fn end(done: Vec<(String, Result<(), String>)>, left_out: &[String]) -> End {
    let well = done.iter().filter(|(_, it)| it.is_ok()).count();
    let failed: Vec<String> = done
        .into_iter()
        .filter_map(|(volume, done)| Some(format!("{volume}: {}", done.err()?)))
        .collect();
    let result = if failed.is_empty() { "Succeeded" } else { "Failed" };
    let mut message = format!("done for {well}, failed for {}", failed.len());
    for more in failed.iter().chain(left_out).take(10) {
        message = format!("{message}; {more}");
    }
    End { result, message }
}

/// Marks the volume as worked on until it is dropped.
struct Busy<'w>(&'w World, (String, String));

impl<'w> Busy<'w> {
    fn enter(world: &'w World, job: &RecurringJob, volume: &str) -> Option<Self> {
        let mark = (job.uid().unwrap_or_default(), volume.to_owned());
        let mut busy = world.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = busy.insert(mark.clone());
        drop(busy);
        // Made only then: one that is dropped takes the lock, and the mark of whoever has it.
        is_first.then(|| Self(world, mark))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

async fn one(
    world: &Arc<World>,
    job: &RecurringJob,
    volume: &Volume,
    number: i64,
) -> Result<(), String> {
    let name = volume.name_any();
    let Some(_busy) = Busy::enter(world, job, &name) else {
        return Err("an earlier run still works on it".to_owned());
    };
    match job.spec.task.clone().unwrap_or(RecurringTask::Snapshot) {
        RecurringTask::Snapshot => {
            drop_snapshots(world, job, &name, None).await?;
            let made = take_snapshot(world, job, &name).await?;
            drop_snapshots(world, job, &name, Some(&made)).await
        }
        RecurringTask::SnapshotForceCreate => {
            let made = take_snapshot(world, job, &name).await?;
            drop_snapshots(world, job, &name, Some(&made)).await
        }
        RecurringTask::Backup => {
            drop_backup_snapshots(world, job, volume, None).await?;
            back_up(world, job, volume, number).await
        }
        RecurringTask::BackupForceCreate => back_up(world, job, volume, number).await,
        RecurringTask::SnapshotDelete => drop_all_snapshots(world, job, &name).await,
        RecurringTask::SnapshotCleanup => purge(world, &name).await,
        RecurringTask::FilesystemTrim => {
            Err("a file system can be trimmed only by the machine that has mounted it: mount it with discard, or run fstrim there".to_owned())
        }
        RecurringTask::SystemBackup => Ok(()),
        RecurringTask::Other(task) => Err(format!("the task {task:?} is not known")),
    }
}

/// Labels of what a job makes.
fn labels(job: &RecurringJob) -> BTreeMap<String, String> {
    let mut labels = job.spec.labels.clone().unwrap_or_default();
    labels.insert(JOB_LABEL.to_owned(), job.name_any());
    labels
}

fn is_of(job: &RecurringJob, labels: Option<&BTreeMap<String, String>>) -> bool {
    labels.and_then(|it| it.get(JOB_LABEL)).is_some_and(|it| *it == job.name_any())
}

fn told(failure: &reconcile::Failure) -> String {
    telemetry::Chain(failure).to_string()
}

async fn take_snapshot(world: &World, job: &RecurringJob, volume: &str) -> Result<String, String> {
    let short: String = format!("{}-c", job.name_any()).chars().take(8).collect();
    let name = format!("{short}-{}", uuid::Uuid::new_v4());
    let mut made = Snapshot {
        spec: SnapshotSpec {
            volume: Some(volume.to_owned()),
            create_snapshot: Some(true),
            labels: Some(labels(job)),
        },
        ..Snapshot::default()
    };
    made.metadata.name = Some(name.clone());
    made.metadata.namespace = Some(NAMESPACE.to_owned());
    made.labels_mut().insert(label::VOLUME.to_owned(), volume.to_owned());
    world.snapshots.create(&made).await.map_err(|failure| told(&failure))?;
    let key = Key::new(NAMESPACE, &name);
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(snapshot) = world.snapshots.get(&key) else {
            return Err(format!("snapshot {name} was deleted before it was taken"));
        };
        if snapshot.status.as_ref().and_then(|it| it.ready_to_use) == Some(true) {
            return Ok(name);
        }
    }
}

/// The backups that are not final need their snapshots.
fn is_needed(world: &World, volume: &str, snapshot: &str) -> bool {
    world.backups.by("volume", volume).iter().any(|backup| {
        let state = backup.status.as_ref().and_then(|it| it.state.clone());
        backup.spec.snapshot_name.as_deref() == Some(snapshot)
            && !state.unwrap_or(BackupState::New).is_final()
    })
}

fn taken(snapshot: &Snapshot) -> Timestamp {
    let stamp = snapshot.status.as_ref().and_then(|it| it.creation_time.clone());
    let created = snapshot.metadata.creation_timestamp.as_ref().map(|it| it.0);
    stamp.and_then(|it| it.get()).or(created).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn ready_snapshots(world: &World, volume: &str) -> Vec<Arc<Snapshot>> {
    let mut all = world.snapshots.by("volume", volume);
    all.retain(|it| {
        it.metadata.deletion_timestamp.is_none()
            && it.status.as_ref().and_then(|it| it.ready_to_use) == Some(true)
    });
    all
}

/// The snapshots of the job, and when they were taken.
fn own_snapshots(world: &World, job: &RecurringJob, volume: &str) -> Vec<(Timestamp, String)> {
    let mut own = ready_snapshots(world, volume);
    own.retain(|it| {
        is_of(job, it.spec.labels.as_ref())
            || is_of(job, it.status.as_ref().and_then(|it| it.labels.as_ref()))
    });
    own.iter().map(|it| (taken(it), it.name_any())).collect()
}

/// Old snapshots of the job, seen from the one that it has just made.
async fn drop_snapshots(
    world: &World,
    job: &RecurringJob,
    volume: &str,
    made: Option<&str>,
) -> Result<(), String> {
    let old = expired(&own_snapshots(world, job, volume), Keep::of(&job.spec), made, now());
    drop_named(world, job, volume, &old).await
}

/// Those of a backup job are needed only until the next backup: of them the one of the newest backup and
/// the one that was just taken are kept.
async fn drop_backup_snapshots(
    world: &World,
    job: &RecurringJob,
    volume: &Volume,
    made: Option<&str>,
) -> Result<(), String> {
    let name = volume.name_any();
    let cleans =
        world.word("auto-cleanup-recurring-job-backup-snapshot").as_deref() != Some("false");
    let keep = if cleans { Keep::Newest(0) } else { Keep::of(&job.spec) };
    let mut old = expired(&own_snapshots(world, job, &name), keep, made, now());
    let last =
        last_backup(world, job, volume).and_then(|it| it.status.as_ref()?.snapshot_name.clone());
    old.retain(|it| made != Some(it) && last.as_ref() != Some(it));
    drop_named(world, job, &name, &old).await
}

async fn drop_named(
    world: &World,
    job: &RecurringJob,
    volume: &str,
    names: &[String],
) -> Result<(), String> {
    for name in names.iter().filter(|it| !is_needed(world, volume, it)) {
        let Some(snapshot) = world.snapshots.get(&Key::new(NAMESPACE, name)) else { continue };
        world.snapshots.delete(&snapshot).await.map_err(|failure| {
            let text = told(&failure);
            world.events.say(job, reconcile::Severity::Warning, "FailedDeleting", &text);
            text
        })?;
    }
    Ok(())
}

async fn drop_all_snapshots(world: &World, job: &RecurringJob, volume: &str) -> Result<(), String> {
    let all = ready_snapshots(world, volume);
    let named: Vec<(Timestamp, String)> = all.iter().map(|it| (taken(it), it.name_any())).collect();
    drop_named(world, job, volume, &expired(&named, Keep::of(&job.spec), None, now())).await
}

/// The target whose store has the backups of a volume.
fn target_of(volume: &Volume) -> &str {
    let target = volume.spec.backup_target_name.as_deref().filter(|it| !it.is_empty());
    target.unwrap_or(crate::target::DEFAULT)
}

/// Whether a backup counts as one that the job has made, and so may be deleted by it. What lies in another target may
/// be of a volume and a job of another cluster that have these names there.
fn is_made_by(job: &RecurringJob, backup: &Backup, target: &str) -> bool {
    let status = backup.status.clone().unwrap_or_default();
    backup.metadata.deletion_timestamp.is_none()
        && backup.labels().get(label::BACKUP_TARGET).is_some_and(|it| it == target)
        && status.state == Some(BackupState::Completed)
        && (is_of(job, backup.spec.labels.as_ref()) || is_of(job, status.labels.as_ref()))
}

fn own_backups(world: &World, job: &RecurringJob, volume: &Volume) -> Vec<Arc<Backup>> {
    let mut all = world.backups.by("volume", &volume.name_any());
    all.retain(|it| is_made_by(job, it, target_of(volume)));
    all
}

fn made(backup: &Backup) -> Timestamp {
    let stamp = backup.status.as_ref().and_then(|it| it.backup_created_at.clone());
    stamp.and_then(|it| it.get()).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn last_backup(world: &World, job: &RecurringJob, volume: &Volume) -> Option<Arc<Backup>> {
    own_backups(world, job, volume).into_iter().max_by_key(|it| (made(it), it.name_any()))
}

async fn back_up(
    world: &World,
    job: &RecurringJob,
    volume: &Volume,
    number: i64,
) -> Result<(), String> {
    let name = volume.name_any();
    let snapshot = take_snapshot(world, job, &name).await?;
    let every = job
        .spec
        .parameters
        .as_ref()
        .and_then(|it| it.get("full-backup-interval")?.parse::<i64>().ok());
    let is_full = every.is_some_and(|every| every > 0 && number % every == 0);
    let mode = if is_full { BackupMode::Full } else { BackupMode::Incremental };
    let backup = format!("backup-{:016x}", rand::random::<u64>());
    let mut object = Backup {
        spec: BackupSpec {
            snapshot_name: Some(snapshot.clone()),
            labels: Some(labels(job)),
            backup_mode: Some(mode),
            backup_block_size: volume.spec.backup_block_size.clone(),
            ..BackupSpec::default()
        },
        ..Backup::default()
    };
    object.metadata.name = Some(backup.clone());
    object.metadata.namespace = Some(NAMESPACE.to_owned());
    object.labels_mut().insert(label::BACKUP_VOLUME.to_owned(), name.clone());
    object.labels_mut().insert(label::BACKUP_TARGET.to_owned(), target_of(volume).to_owned());
    world.backups.create(&object).await.map_err(|failure| told(&failure))?;
    completed(world, &backup).await?;
    let own = own_backups(world, job, volume);
    let named: Vec<(Timestamp, String)> = own.iter().map(|it| (made(it), it.name_any())).collect();
    for old in expired(&named, Keep::of(&job.spec), Some(&backup), now()) {
        let Some(old) = world.backups.get(&Key::new(NAMESPACE, &old)) else { continue };
        // Its data is removed in the background, and this run does not wait for that.
        world.backups.delete(&old).await.map_err(|failure| told(&failure))?;
    }
    drop_backup_snapshots(world, job, volume, Some(&snapshot)).await
}

async fn completed(world: &World, backup: &str) -> Result<(), String> {
    let key = Key::new(NAMESPACE, backup);
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(found) = world.backups.get(&key) else {
            return Err(format!("backup {backup} was deleted before it was complete"));
        };
        let status = found.status.clone().unwrap_or_default();
        match status.state.unwrap_or(BackupState::New) {
            BackupState::Completed => return Ok(()),
            BackupState::Error | BackupState::Unknown => {
                return Err(format!(
                    "backup {backup} failed: {}",
                    status.error.unwrap_or_default()
                ));
            }
            BackupState::Deleting => {
                return Err(format!("backup {backup} was deleted before it was complete"));
            }
            BackupState::New
            | BackupState::Pending
            | BackupState::InProgress
            | BackupState::Other(_) => {}
        }
    }
}

/// Has every copy merge the snapshots that nobody wants any more.
async fn purge(world: &World, volume: &str) -> Result<(), String> {
    let engine = world.engines.by("volume", volume).into_iter().next();
    let copies =
        engine.as_ref().and_then(|it| it.status.as_ref()?.current_replica_address_map.clone());
    let copies = copies.filter(|it| !it.is_empty()).ok_or("its engine does not run")?;
    for address in copies.values() {
        let address: Address = address.parse().map_err(|it: rpc::AddressError| it.to_string())?;
        let expected = Identity { volume: volume.to_owned(), instance: String::new() };
        let peer = connect(&address.sync_agent(), expected, Deadline::Usual);
        let mut agent = SyncAgentServiceClient::new(peer.map_err(|it| it.to_string())?);
        let asked = agent.snapshot_purge(rpc::purge_request(rpc::HeadParent::Fold)).await;
        asked.map_err(|status| format!("{address}: {}", status.message()))?;
    }
    Ok(())
}

async fn back_up_system(world: &World, job: &RecurringJob) -> Result<(), String> {
    let parameters = job.spec.parameters.clone().unwrap_or_default();
    let policy =
        parameters.get("volume-backup-policy").map(|it| VolumeBackupPolicy::from(it.as_str()));
    let short: String = job.name_any().chars().take(24).collect();
    let name = format!("{short}-{:016x}", rand::random::<u64>());
    let mut made = SystemBackup {
        spec: SystemBackupSpec { volume_backup_policy: policy },
        ..SystemBackup::default()
    };
    made.metadata.name = Some(name.clone());
    made.metadata.namespace = Some(NAMESPACE.to_owned());
    made.labels_mut().insert(JOB_LABEL.to_owned(), job.name_any());
    world.system_backups.create(&made).await.map_err(|failure| told(&failure))?;
    let key = Key::new(NAMESPACE, &name);
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(found) = world.system_backups.get(&key) else {
            return Err(format!("system backup {name} was deleted before it was ready"));
        };
        match found.status.as_ref().and_then(|it| it.state.clone()) {
            Some(SystemState::Ready) => break,
            Some(SystemState::Error) => return Err(format!("system backup {name} failed")),
            Some(_) | None => {}
        }
    }
    for old in expired_systems(&world.system_backups.list(), job, &name) {
        let Some(old) = world.system_backups.get(&Key::new(NAMESPACE, &old)) else { continue };
        world.system_backups.delete(&old).await.map_err(|failure| told(&failure))?;
    }
    Ok(())
}

/// Of those of the job that are whole, the old ones; and all that failed, which are kept in no one's place.
fn expired_systems(all: &[Arc<SystemBackup>], job: &RecurringJob, made: &str) -> Vec<String> {
    let state = |it: &SystemBackup| it.status.as_ref().and_then(|it| it.state.clone());
    let taken = |it: &SystemBackup| {
        it.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |it| it.0)
    };
    let own = all.iter().filter(|it| {
        it.metadata.deletion_timestamp.is_none()
            && it.labels().get(JOB_LABEL).is_some_and(|it| *it == job.name_any())
    });
    let whole = own.clone().filter(|it| state(it) == Some(SystemState::Ready));
    let named: Vec<(Timestamp, String)> = whole.map(|it| (taken(it), it.name_any())).collect();
    let failed = own.filter(|it| state(it) == Some(SystemState::Error)).map(|it| it.name_any());
    expired(&named, Keep::of(&job.spec), Some(made), now()).into_iter().chain(failed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_backup_that_failed_is_kept_in_no_ones_place() {
        let mut daily = job("daily", &[]);
        daily.spec.retain = Some(2);
        let made = |name: &str, hour: i64, state: SystemState| {
            let mut made = SystemBackup::default();
            made.metadata.name = Some(name.to_owned());
            made.metadata.labels = Some([(JOB_LABEL.to_owned(), "daily".to_owned())].into());
            let at = Timestamp::from_second(hour * 3600).unwrap();
            made.metadata.creation_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
            made.status.get_or_insert_default().state = Some(state);
            Arc::new(made)
        };
        let all = [
            made("oldest", 1, SystemState::Ready),
            made("good", 2, SystemState::Ready),
            made("failed", 3, SystemState::Error),
            made("new", 4, SystemState::Ready),
            made("others", 5, SystemState::Generating),
        ];
        assert_eq!(expired_systems(&all, &daily, "new"), ["oldest", "failed"]);
    }

    /// A cluster whose store is a target here as well would lose its backups to a job of this one.
    #[test]
    fn a_job_deletes_no_backup_of_another_target() {
        let nightly = job("nightly", &[]);
        let mut backup = Backup::default();
        backup.labels_mut().insert(label::BACKUP_TARGET.to_owned(), "t".to_owned());
        let status = backup.status.get_or_insert_default();
        status.state = Some(BackupState::Completed);
        status.labels = Some([(JOB_LABEL.to_owned(), "nightly".to_owned())].into());
        assert!(is_made_by(&nightly, &backup, "t"));
        assert!(!is_made_by(&nightly, &backup, "u"));
        assert!(!is_made_by(&job("weekly", &[]), &backup, "t"));
        assert_eq!(target_of(&volume(&[])), "default");
    }

    fn job(name: &str, groups: &[&str]) -> RecurringJob {
        let mut job = RecurringJob::default();
        job.metadata.name = Some(name.to_owned());
        job.spec.groups = Some(groups.iter().map(|it| (*it).to_owned()).collect());
        job
    }

    fn volume(labels: &[&str]) -> Volume {
        let mut volume = Volume::default();
        let pair = |it: &&str| ((*it).to_owned(), "enabled".to_owned());
        volume.metadata.labels = Some(labels.iter().map(pair).collect());
        volume
    }

    #[test]
    fn a_job_is_for_volumes_with_its_label_its_groups_or_none() {
        for (job, labels, wanted) in [
            (job("j", &[]), &["recurring-job.longhorn.io/j"][..], true),
            (job("j", &[]), &["recurring-job.longhorn.io/other"], false),
            (job("j", &["g"]), &["recurring-job-group.longhorn.io/g"], true),
            (job("j", &["default"]), &[], true),
            (job("j", &["default"]), &["recurring-job.longhorn.io/other"], false),
            (job("j", &["default"]), &["recurring-job-group.longhorn.io/default"], true),
            (job("j", &[]), &[], false),
        ] {
            assert_eq!(is_for(&job, &volume(labels)), wanted, "{labels:?}");
        }
    }

    #[test]
    fn one_failure_does_not_hide_what_went_well() {
        let done = vec![("a".to_owned(), Ok(())), ("b".to_owned(), Err("no room".to_owned()))];
        let end = end(done, &["c was left out: it is faulted".to_owned()]);
        assert_eq!(end.result, "Failed");
        assert!(end.message.contains("done for 1") && end.message.contains("b: no room"));
        assert!(end.message.contains("c was left out"));
    }
}
