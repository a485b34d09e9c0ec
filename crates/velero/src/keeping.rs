//! What happens by the clock: backups that have expired, and schedules that make new ones.

use std::sync::Arc;
use std::time::Duration;

use api::scalar::Time;
use api::velero::{
    Backup, BackupPhase, DeleteBackupRequest, DeleteBackupRequestSpec, DeletePhase, Restore,
    Schedule, SchedulePhase, ScheduleStatus,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use reconcile::{Cron, Failure, Key, Loop, Next, Reconciler};

use crate::backup::decide::is_available;
use crate::names;
use crate::restore::queue::{Stage, stage};
use crate::world::World;

/// No pause is longer: clocks may be set.
const LOOK_AT_LEAST: Duration = Duration::from_hours(1);
const SCHEDULE_AT_LEAST: Duration = Duration::from_mins(1);
const RETRY_AFTER: Duration = Duration::from_mins(1);
const NAME_TAKEN: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Expiry {
    world: Arc<World>,
}

pub(crate) async fn run_expiry(world: Arc<World>) {
    Loop::new("velero-expiry", &world.context)
        .on(&world.backups)
        .needs(&world.deletions)
        .needs(&world.locations)
        .needs(&world.restores)
        .run(Arc::new(Expiry { world }))
        .await;
}

fn until(end: Timestamp, longest: Duration) -> Duration {
    let left = Duration::try_from(Timestamp::now().duration_until(end)).unwrap_or_default();
    // A little later than the whole second, so that it has passed for sure.
    left.saturating_add(Duration::from_millis(50)).min(longest)
}

impl Reconciler for Expiry {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.world;
        let Some(backup) = world.backups.get(key) else { return Ok(Next::WAIT) };
        let status = backup.status.clone().unwrap_or_default();
        let Some(expiration) = status.expiration else { return Ok(Next::WAIT) };
        if expiration.timestamp() > Timestamp::now() {
            return Ok(Next::after(until(expiration.timestamp(), LOOK_AT_LEAST)));
        }
        if matches!(status.phase, Some(BackupPhase::InProgress | BackupPhase::ReadyToStart)) {
            return Ok(Next::after(RETRY_AFTER));
        }
        let name = backup.metadata.name.clone().unwrap_or_default();
        if is_read(&name, expiration.timestamp(), &world.restores.list()) {
            return Ok(Next::after(RETRY_AFTER));
        }
        let location = backup.spec.storage_location.clone().unwrap_or_default();
        let failure = match world.location(&location) {
            None => Some("BSLNotFound"),
            Some(it) if it.spec.access_mode == Some(api::velero::AccessMode::ReadOnly) => {
                Some("BSLReadOnly")
            }
            Some(it) if !is_available(&it) => return Ok(Next::after(RETRY_AFTER)),
            Some(_) => None,
        };
        let marked = backup.metadata.labels.as_ref().and_then(|it| it.get(names::GC_FAILURE));
        if marked.map(String::as_str) != failure {
            let mut next = backup.as_ref().clone();
            let labels = next.metadata.labels.get_or_insert_default();
            match failure {
                Some(reason) => labels.insert(names::GC_FAILURE.to_owned(), reason.to_owned()),
                None => labels.remove(names::GC_FAILURE),
            };
            world.backups.update(&backup, &next).await?;
        }
        if failure.is_some() {
            return Ok(Next::after(LOOK_AT_LEAST));
        }
        let is_asked = world.deletions.list().iter().any(|it| {
            it.spec.backup_name.as_deref() == Some(&name)
                && it.status.as_ref().and_then(|it| it.phase.clone())
                    != Some(DeletePhase::Processed)
        });
        if !is_asked {
            tracing::info!(backup.name = name, "a backup has expired");
            world.deletions.create(&deletion(&backup, &world.settings.namespace)).await?;
        }
        Ok(Next::after(RETRY_AFTER))
    }
}

/// Whether a restore that began in time still reads a backup: the deletion would take both, and leave half of
/// what was to come back. One that begins later keeps nothing.
fn is_read(backup: &str, expiration: Timestamp, restores: &[Arc<Restore>]) -> bool {
    restores.iter().any(|it| {
        let began = it.status.as_ref().and_then(|it| it.start_timestamp);
        it.spec.backup_name.as_deref() == Some(backup)
            && stage(it) == Stage::Working
            && began.is_some_and(|began| began.timestamp() <= expiration)
    })
}

/// A request to delete this backup.
fn deletion(backup: &Backup, namespace: &str) -> DeleteBackupRequest {
    let name = backup.metadata.name.clone().unwrap_or_default();
    let mut request = DeleteBackupRequest {
        spec: DeleteBackupRequestSpec { backup_name: Some(name.clone()) },
        ..DeleteBackupRequest::default()
    };
    request.metadata.generate_name = Some(format!("{name}-"));
    request.metadata.namespace = Some(namespace.to_owned());
    let labels = request.metadata.labels.get_or_insert_default();
    labels.insert(names::BACKUP_NAME.to_owned(), names::label_value(&name));
    if let Some(uid) = &backup.metadata.uid {
        labels.insert(names::BACKUP_UID.to_owned(), uid.clone());
    }
    request
}

#[derive(Debug)]
struct Schedules {
    world: Arc<World>,
}

pub(crate) async fn run_schedules(world: Arc<World>) {
    Loop::new("velero-schedules", &world.context)
        .on(&world.schedules)
        .needs(&world.backups)
        .run(Arc::new(Schedules { world }))
        .await;
}

impl Reconciler for Schedules {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.world;
        let Some(schedule) = world.schedules.get(key) else { return Ok(Next::WAIT) };
        if schedule.metadata.deletion_timestamp.is_some() {
            return Ok(Next::WAIT);
        }
        let text = schedule.spec.schedule.clone().unwrap_or_default();
        let parsed = parse(&text);
        let enabled = verdict(&schedule, parsed.as_ref().err(), Timestamp::now());
        let schedule = world.schedules.update(&schedule, &enabled).await?;
        let Ok(cron) = parsed else { return Ok(Next::WAIT) };
        if schedule.spec.paused == Some(true) {
            return Ok(Next::WAIT);
        }
        let now = Timestamp::now();
        let Some(due) = next_run(&schedule, &cron) else { return Ok(Next::WAIT) };
        if due > now {
            return Ok(Next::after(until(due, SCHEDULE_AT_LEAST)));
        }
        // Asked for by a pass that did not live to write it down, or did not hear the answer.
        if let Some(made) = asked_since(&schedule, &world.backups.list(), due) {
            self.note_run(&schedule, made).await?;
            return Ok(Next::after(Duration::ZERO));
        }
        if self.is_busy(&schedule) {
            return Ok(Next::after(SCHEDULE_AT_LEAST));
        }
        let backup = from_schedule(&schedule, now, &world.settings.namespace);
        match world.backups.create(&backup).await {
            Ok(_) => {}
            Err(Failure::Conflict { .. }) => {
                let found =
                    world.fresh::<Backup>(backup.metadata.name.as_deref().unwrap_or_default());
                if !found.await?.is_some_and(|it| is_of(&schedule, &it)) {
                    // The name is taken; the next second has another.
                    tracing::warn!(schedule = %key, "the name of its backup belongs to another");
                    return Ok(Next::after(NAME_TAKEN));
                }
            }
            Err(failure) => return Err(failure),
        }
        self.note_run(&schedule, now).await?;
        Ok(Next::after(Duration::ZERO))
    }
}

/// When a backup of this schedule was made that it asked for because of this time, or later.
fn asked_since(schedule: &Schedule, backups: &[Arc<Backup>], due: Timestamp) -> Option<Timestamp> {
    let own = backups.iter().filter(|it| is_of(schedule, it));
    let made = own.filter_map(|it| {
        let made = it.metadata.creation_timestamp.as_ref().map(|it| it.0)?;
        // One that was found in a store is younger than what it speaks of.
        let began = it.status.as_ref().and_then(|it| it.start_timestamp);
        Some(began.map_or(made, |began| began.timestamp().min(made)))
    });
    made.filter(|made| *made >= due).max()
}

fn parse(text: &str) -> Result<Cron, String> {
    if text.trim().is_empty() {
        return Err("Schedule must be a non-empty valid Cron expression".to_owned());
    }
    text.parse().map_err(|error| format!("invalid schedule: {error}"))
}

/// The schedule with what is wrong with it, and a first run that was asked to be skipped.
fn verdict(schedule: &Schedule, problem: Option<&String>, now: Timestamp) -> Schedule {
    let mut next = schedule.clone();
    let status: &mut ScheduleStatus = next.status.get_or_insert_default();
    match problem {
        None => {
            status.phase = Some(SchedulePhase::Enabled);
            status.validation_errors = None;
        }
        Some(problem) => {
            status.phase = Some(SchedulePhase::FailedValidation);
            status.validation_errors = Some(vec![problem.clone()]);
        }
    }
    if next.spec.skip_immediately == Some(true) {
        next.spec.skip_immediately = Some(false);
        status.last_skipped = Some(Time::new(now));
    }
    // Written by a clock that was ahead: nothing would be due until that time has come.
    let now = Time::new(now);
    for time in [&mut status.last_backup, &mut status.last_skipped].into_iter().flatten() {
        *time = (*time).min(now);
    }
    let is_made_later =
        schedule.metadata.creation_timestamp.as_ref().is_some_and(|it| it.0 > now.timestamp());
    if is_made_later && status.last_backup.is_none() {
        status.last_skipped.get_or_insert(now);
    }
    next
}

/// Runs that were missed are not made up for: the next one counts from the last.
fn next_run(schedule: &Schedule, cron: &Cron) -> Option<Timestamp> {
    let status = schedule.status.clone().unwrap_or_default();
    let created = schedule.metadata.creation_timestamp.as_ref().map(|it| it.0);
    let known = [status.last_backup, status.last_skipped].into_iter().flatten();
    let last = known.map(Time::timestamp).max().or(created)?;
    cron.after(last)
}

fn from_schedule(schedule: &Schedule, now: Timestamp, namespace: &str) -> Backup {
    let name = schedule.metadata.name.clone().unwrap_or_default();
    let stamp = now.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y%m%d%H%M%S").to_string();
    let mut template = schedule.spec.template.clone().unwrap_or_default();
    let labels = template.metadata.take().and_then(|it| it.labels);
    let mut backup = Backup::new(&format!("{name}-{stamp}"), template);
    backup.metadata.namespace = Some(namespace.to_owned());
    let mut labels = labels.or_else(|| schedule.metadata.labels.clone()).unwrap_or_default();
    labels.insert(names::SCHEDULE_NAME.to_owned(), names::label_value(&name));
    backup.metadata.labels = Some(labels);
    backup.metadata.annotations.clone_from(&schedule.metadata.annotations);
    if schedule.spec.use_owner_references_in_backup == Some(true) {
        backup.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "velero.io/v1".to_owned(),
            kind: "Schedule".to_owned(),
            name,
            uid: schedule.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        }]);
    }
    backup
}

/// Whether a backup was made by this schedule. A tenant's never was, whatever its labels say.
fn is_of(schedule: &Schedule, backup: &Backup) -> bool {
    let name = names::label_value(schedule.metadata.name.as_deref().unwrap_or_default());
    let labels = backup.metadata.labels.as_ref();
    let notes = backup.metadata.annotations.as_ref();
    labels.and_then(|it| it.get(names::SCHEDULE_NAME)) == Some(&name)
        && !notes.is_some_and(|it| it.contains_key(names::TENANT_BACKUP_NAMESPACE))
}

impl Schedules {
    async fn note_run(&self, schedule: &Schedule, at: Timestamp) -> Result<(), Failure> {
        let mut next = schedule.clone();
        next.status.get_or_insert_default().last_backup = Some(Time::new(at));
        self.world.schedules.update(schedule, &next).await.map(drop)
    }

    /// Whether a backup of this schedule has not ended yet.
    fn is_busy(&self, schedule: &Schedule) -> bool {
        self.world.backups.list().iter().any(|it| {
            let phase = it.status.as_ref().and_then(|it| it.phase.as_ref());
            is_of(schedule, it)
                && matches!(
                    phase,
                    None | Some(
                        BackupPhase::New
                            | BackupPhase::Queued
                            | BackupPhase::ReadyToStart
                            | BackupPhase::InProgress
                    )
                )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_backup_of_a_schedule_is_named_and_marked_after_it() {
        let schedule: Schedule = serde_json::from_value(json!({
            "metadata": {"name": "daily", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"schedule": "@daily", "useOwnerReferencesInBackup": true,
                "template": {"ttl": "1h", "metadata": {"labels": {"x": "y"}}}}}))
        .unwrap();
        let now = "2024-02-03T04:05:06Z".parse().unwrap();
        let backup = from_schedule(&schedule, now, "adm");
        assert_eq!(
            serde_json::to_value(&backup).unwrap(),
            json!({"apiVersion": "velero.io/v1", "kind": "Backup",
                "metadata": {"name": "daily-20240203040506", "namespace": "adm",
                    "labels": {"x": "y", "velero.io/schedule-name": "daily"},
                    "annotations": {"c": "d"}, "ownerReferences": [{"apiVersion": "velero.io/v1",
                        "kind": "Schedule", "name": "daily", "uid": "u", "controller": true}]},
                "spec": {"ttl": "1h"}})
        );
    }

    #[test]
    fn a_backup_that_expires_is_kept_for_the_restore_that_reads_it() {
        let restore = |backup: &str, phase: &str, began: &str| -> Arc<Restore> {
            let status = json!({"phase": phase, "startTimestamp": began});
            let spec = json!({"backupName": backup});
            let value = json!({"metadata": {"name": "r"}, "spec": spec, "status": status});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let (before, at, later) =
            ("2024-01-01T00:00:00Z", "2024-01-01T12:00:00Z", "2024-01-01T13:00:00Z");
        let at = at.parse::<Timestamp>().unwrap();
        let reads = |it: Arc<Restore>| is_read("b", at, &[restore("a", "InProgress", before), it]);
        assert!(reads(restore("b", "InProgress", before)));
        assert!(!reads(restore("b", "InProgress", later)), "nobody keeps it by restoring again");
        assert!(!reads(restore("b", "Completed", before)));
        assert!(!reads(restore("other", "InProgress", before)));
        let asked: Restore =
            serde_json::from_value(json!({"metadata": {"name": "r"}, "spec": {"backupName": "b"}}))
                .unwrap();
        assert!(!reads(Arc::new(asked)), "it has not begun");
    }

    #[test]
    fn a_backup_that_has_the_name_is_not_yet_one_of_the_schedule() {
        let schedule: Schedule =
            serde_json::from_value(json!({"metadata": {"name": "daily"}, "spec": {}})).unwrap();
        let with = |metadata: serde_json::Value| -> Backup {
            serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
        };
        let label = json!({"velero.io/schedule-name": "daily"});
        assert!(is_of(&schedule, &with(json!({"name": "b", "labels": label}))));
        assert!(!is_of(&schedule, &with(json!({"name": "b"}))));
        let planted = json!({"name": "b", "labels": label,
            "annotations": {"openshift.io/oadp-nab-origin-namespace": "t"}});
        assert!(!is_of(&schedule, &with(planted)));
    }

    #[test]
    fn a_backup_that_was_asked_for_and_not_written_down_is_not_asked_for_again() {
        let schedule: Schedule =
            serde_json::from_value(json!({"metadata": {"name": "daily"}, "spec": {}})).unwrap();
        let made = |schedule: &str, at: &str| -> Arc<Backup> {
            let metadata = json!({"name": "b", "creationTimestamp": at,
                "labels": {"velero.io/schedule-name": schedule}});
            Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap())
        };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let due = at("2024-01-02T00:00:00Z");
        let (earlier, other) =
            (made("daily", "2024-01-01T00:00:03Z"), made("other", "2024-01-02T00:00:05Z"));
        assert_eq!(asked_since(&schedule, &[earlier.clone(), other.clone()], due), None);
        let mut found = made("daily", "2024-01-02T00:00:04Z");
        let began = "2024-01-01T00:00:02Z".parse::<Timestamp>().unwrap();
        let status = Arc::make_mut(&mut found).status.get_or_insert_default();
        status.start_timestamp = Some(Time::new(began));
        assert_eq!(asked_since(&schedule, &[found], due), None, "it came from a store");
        let last = made("daily", "2024-01-02T00:00:02Z");
        assert_eq!(
            asked_since(&schedule, &[earlier, other, last], due),
            Some(at("2024-01-02T00:00:02Z"))
        );
    }

    #[test]
    fn schedules_count_from_the_last_run_or_skip() {
        let schedule = |status: serde_json::Value| -> Schedule {
            serde_json::from_value(json!({"metadata": {"name": "s",
                "creationTimestamp": "2024-01-01T00:30:00Z"}, "spec": {}, "status": status}))
            .unwrap()
        };
        let cron = parse("CRON_TZ=UTC 0 * * * *").unwrap();
        let at = |status| next_run(&schedule(status), &cron).unwrap().to_string();
        assert_eq!(at(json!({})), "2024-01-01T01:00:00Z");
        assert_eq!(at(json!({"lastBackup": "2024-01-01T05:00:00Z"})), "2024-01-01T06:00:00Z");
        assert_eq!(
            at(
                json!({"lastBackup": "2024-01-01T05:00:00Z", "lastSkipped": "2024-01-01T07:10:00Z"})
            ),
            "2024-01-01T08:00:00Z"
        );
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_no_schedule_waiting() {
        let cron = parse("CRON_TZ=UTC 0 * * * *").unwrap();
        let now: Timestamp = "2024-01-01T05:10:00Z".parse().unwrap();
        for (created, status) in [
            ("2024-01-01T00:30:00Z", json!({"lastBackup": "2030-01-01T00:00:00Z"})),
            ("2024-01-01T00:30:00Z", json!({"lastSkipped": "2030-01-01T00:00:00Z"})),
            ("2030-01-01T00:00:00Z", json!({})),
        ] {
            let schedule: Schedule = serde_json::from_value(json!({"metadata": {"name": "s",
                "creationTimestamp": created}, "spec": {}, "status": status}))
            .unwrap();
            let settled = verdict(&schedule, None, now);
            assert_eq!(next_run(&settled, &cron).unwrap().to_string(), "2024-01-01T06:00:00Z");
            let later = "2024-01-01T05:50:00Z".parse().unwrap();
            assert_eq!(verdict(&settled, None, later), settled, "and it stays so");
        }
    }

    #[test]
    fn a_schedule_that_cannot_be_read_says_so() {
        assert_eq!(parse(" ").unwrap_err(), "Schedule must be a non-empty valid Cron expression");
        assert!(parse("every day").unwrap_err().starts_with("invalid schedule: "));
    }
}
