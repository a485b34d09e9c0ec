//! Observes a tenant's schedule and carries out what was decided.

use std::sync::Arc;

use api::condition;
use api::nonadmin::condition::ACCEPTED;
use api::nonadmin::{
    NonAdminBackup, NonAdminBackupStatus, NonAdminSchedule, NonAdminScheduleStatus as Status, Phase,
};
use api::velero::BackupStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{Failure, Key, Next, OrFail as _, Reconciler};
use serde_json::{Map, Value, json};

use super::decide::{self, Observed, Step};
use super::validate;
use crate::names::{BACKUP_FINALIZER, VELERO_SCHEDULE_NAME};
use crate::queue::Progress;
use crate::spec;
use crate::tell;
use crate::world::{BY_SCHEDULE, Nab, Nas, World, created};

/// No path is longer but by what is removed; more would be a circle.
const STEPS_MAX: usize = 64;

/// The controller of schedules.
pub(crate) struct Schedules(pub(crate) Arc<World>);

impl Reconciler for Schedules {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        if !self.0.settings().enable {
            return Ok(Next::WAIT);
        }
        match self.0.fresh::<NonAdminSchedule>(key).await? {
            Some(object) => Pass { world: &self.0, key, object: Arc::new(object) }.walk().await,
            None => Ok(Next::WAIT),
        }
    }
}

/// One pass over one object.
struct Pass<'a> {
    world: &'a World,
    key: &'a Key,
    /// As the API server answered last.
    object: Arc<Nas>,
}

impl Pass<'_> {
    async fn walk(mut self) -> Result<Next, Failure> {
        for _ in 0..STEPS_MAX {
            let seen = self.observe().await?;
            match decide::decide(&seen) {
                Step::End => return Ok(Next::WAIT),
                Step::Terminal(why) => {
                    tracing::debug!(why, "nothing more happens until the object is edited");
                    return Ok(Next::WAIT);
                }
                Step::Requeue(pause) => return Ok(Next::after(pause)),
                Step::Report(status) => self.report(&status, &seen).await?,
                Step::Ask { name, then } => {
                    self.ask(name).await?;
                    self.report(&then, &seen).await?;
                }
                Step::Remove { name } => self.remove(&name).await?,
            }
        }
        // There is more to remove.
        Ok(Next::after(std::time::Duration::ZERO))
    }

    fn schedule(&self) -> serde_json::Map<String, Value> {
        spec::object(&self.object.spec, "/scheduleSpec")
    }

    async fn observe(&self) -> Result<Observed, Failure> {
        let object = &self.object;
        let (schedule, now) = (self.schedule(), World::now());
        let says = |key: &str| schedule.get(key) == Some(&Value::Bool(true));
        let (namespace, name) = (&self.key.namespace, &self.key.name);
        let rule = match self.world.unserved(namespace).await? {
            Some(verdict) => Err(verdict),
            None => validate::judge(namespace, name, &object.spec, &self.world.settings()),
        };
        let own = self.backups().await?;
        let template = asked_of(&schedule);
        let expired = own.iter().filter(|it| is_over(it)).map(|it| it.name().to_owned());
        Ok(Observed {
            now,
            name: name.to_string(),
            created: created(object).unwrap_or(now),
            generation: object.metadata.generation,
            is_deleted: object.is_deleted(),
            status: object.known()?,
            rule,
            is_paused: says("paused"),
            skips_missed: says("skipImmediately"),
            unfinished: own.iter().find(|it| is_unfinished(it, &template)).map(|it| unfinished(it)),
            expired: expired.collect(),
        })
    }

    /// Backups that were asked for by this schedule. The newest may not be in the cache yet.
    async fn backups(&self) -> Result<Vec<Arc<Nab>>, Failure> {
        let place = format!("{}/{}", self.key.namespace, self.key.name);
        let mut all = self.world.backups.by(BY_SCHEDULE, &place);
        let status: Status = self.object.view();
        if let Some(newest) = status.last_backup_name
            && !all.iter().any(|it| it.name() == newest)
            && let Some(found) =
                self.world.fresh::<NonAdminBackup>(&self.key.beside(&newest)).await?
        {
            all.push(Arc::new(found));
        }
        Ok(all)
    }

    async fn ask(&self, name: String) -> Result<(), Failure> {
        let schedule = self.schedule();
        // Labels of the template are for the backups themselves.
        let labels = validate::template(&schedule)
            .get("metadata")
            .and_then(|it| it.get("labels")?.as_object().cloned());
        let template = asked_of(&schedule);
        let labels = labels.into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
        // A label of a controller's is not a tenant's to give by this.
        let mut labels: std::collections::BTreeMap<String, String> =
            labels.filter(|(key, _)| !key.starts_with("openshift.io/oadp")).collect();
        labels.insert(VELERO_SCHEDULE_NAME.to_owned(), label(&self.key.name));
        let meta = ObjectMeta {
            name: Some(name),
            namespace: Some(self.key.namespace.to_string()),
            labels: Some(labels),
            annotations: Some(
                [(VELERO_SCHEDULE_NAME.to_owned(), self.key.name.to_string())].into(),
            ),
            ..ObjectMeta::default()
        };
        let spec = json!({"backupSpec": template});
        let spec = spec.as_object().cloned().unwrap_or_default();
        match self.world.backups.create(&Nab::new(meta, spec)).await {
            // Made by a pass that did not live to tell.
            Ok(_) | Err(Failure::Conflict { .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// What is left of a backup whose Velero backup is gone is the object, and nothing else is touched: a
    /// store that was away for a while may bring the Velero backup back at this very moment, with its data.
    async fn remove(&self, name: &str) -> Result<(), Failure> {
        let found = self.world.fresh::<NonAdminBackup>(&self.key.beside(name)).await?;
        let Some(old) = found.filter(is_over) else { return Ok(()) };
        let mut bare = old.clone();
        if let Some(finalizers) = &mut bare.metadata.finalizers {
            finalizers.retain(|it| it != BACKUP_FINALIZER);
        }
        let bare = self.world.backups.update(&old, &bare).await?;
        // Not if somebody has looked at it since: it may have come back to life.
        self.world.backups.delete_unchanged(&bare).await
    }

    async fn report(&mut self, status: &Status, seen: &Observed) -> Result<(), Failure> {
        let mut next = (*self.object).clone();
        next.status =
            serde_json::to_value(status).or_fail(|| format!("write the status of {}", self.key))?;
        let written = self.world.schedules.update(&self.object, &next).await?;
        tell::schedule(&self.world.events, &written, &seen.status, status);
        self.object = written;
        Ok(())
    }
}

/// A label holds no more.
fn label(name: &str) -> String {
    name.get(..63).unwrap_or(name).trim_end_matches(['.', '-']).to_owned()
}

/// The Velero backup came and went: its time ran out, or somebody removed it.
fn is_over(backup: &Nab) -> bool {
    let status: NonAdminBackupStatus = backup.view();
    let accepted =
        condition::get(status.conditions.as_deref().unwrap_or_default(), ACCEPTED).cloned();
    status.phase == Some(Phase::Created)
        && !backup.is_deleted()
        && backup.spec.get("deleteBackup") != Some(&Value::Bool(true))
        && accepted.is_some_and(|it| it.reason == "VeleroBackupNotFound")
}

/// What a backup of the schedule has as its spec.
fn asked_of(schedule: &Map<String, Value>) -> Map<String, Value> {
    let mut template = validate::template(schedule);
    template.remove("metadata");
    template
}

fn unfinished(backup: &Nab) -> String {
    let status: NonAdminBackupStatus = backup.view();
    let accepted = condition::get(status.conditions.as_deref().unwrap_or_default(), ACCEPTED);
    let why = match accepted.filter(|_| status.phase == Some(Phase::BackingOff)) {
        Some(refused) => &refused.message,
        None => "it has not ended",
    };
    format!("{}: {why}", backup.name())
}

/// One that is refused keeps the next from being asked for: it would be refused, too, and they would pile up.
/// One that was asked for with another template says nothing of what this one would get.
fn is_unfinished(backup: &Nab, template: &Map<String, Value>) -> bool {
    let status: NonAdminBackupStatus = backup.view();
    let is_refused = status.phase == Some(Phase::BackingOff) && status.velero_backup.is_none();
    if is_refused && spec::object(&backup.spec, "/backupSpec") != *template {
        return false;
    }
    let is_early = status.phase.is_none_or(|phase| phase < Phase::Created);
    let velero = status.velero_backup.and_then(|it| it.status);
    let velero: Option<BackupStatus> = velero.and_then(|it| it.view().ok());
    let is_done = velero.is_some_and(|it| Progress::of_backup(&it) == Progress::Done);
    !backup.is_deleted() && (is_early || !is_done && !is_over(backup))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "fixtures are written in place")]
    fn backup(status: Value) -> Nab {
        let value =
            json!({"metadata": {"name": "n", "namespace": "a"}, "spec": {}, "status": status});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_backup_is_unfinished_until_it_ended_or_is_gone() {
        let velero =
            |phase: &str| json!({"phase": "Created", "veleroBackup": {"status": {"phase": phase}}});
        for status in [Value::Null, json!({"phase": "BackingOff"}), velero("InProgress")] {
            assert!(is_unfinished(&backup(status.clone()), &Map::new()), "{status}");
        }
        for phase in ["Completed", "Failed", "FailedValidation"] {
            assert!(!is_unfinished(&backup(velero(phase)), &Map::new()), "{phase}");
        }
        let gone = backup(
            json!({"phase": "Created", "conditions": [{"type": "Accepted", "status": "False",
            "reason": "VeleroBackupNotFound", "message": "gone", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        );
        assert!(is_over(&gone) && !is_unfinished(&gone, &Map::new()));
        assert!(!is_over(&backup(velero("Completed"))));
    }

    #[test]
    fn one_that_was_refused_is_not_waited_for_once_the_template_is_another() {
        let template = |ttl: &str| json!({"ttl": ttl}).as_object().cloned().unwrap();
        let mut refused = backup(json!({"phase": "BackingOff", "conditions": [{"type": "Accepted",
            "status": "False", "reason": "InvalidBackupSpec", "message": "ttl is no duration",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}));
        refused.spec = json!({"backupSpec": template("30d")});
        assert!(is_unfinished(&refused, &template("30d")));
        assert_eq!(unfinished(&refused), "n: ttl is no duration");
        assert!(!is_unfinished(&refused, &template("720h")));
        refused.status["veleroBackup"] = json!({"nacuuid": "a-n-1"});
        assert!(is_unfinished(&refused, &template("720h")), "there may be one of Velero");
    }

    #[test]
    fn labels_hold_what_fits() {
        assert_eq!(label("often"), "often");
        assert_eq!(label(&format!("{}.x", "a".repeat(62))), "a".repeat(62));
    }
}
