//! What tenants see in `kubectl describe`: the turns in the life of their objects.

use api::condition::{self, Condition};
use api::mirror::Mirror;
use api::nonadmin::condition::{ACCEPTED, DELETING};
use api::nonadmin::{
    NonAdminBackupStatus, NonAdminBackupStorageLocationStatus, NonAdminRestoreStatus,
    NonAdminScheduleStatus, Phase,
};
use reconcile::{Events, Severity};
use serde_json::Value;

use crate::world::{Nab, Nabsl, Nar, Nas};

/// What of a status is worth an event.
struct Turn<'a> {
    phase: Option<Phase>,
    conditions: &'a [Condition],
    velero: Option<&'a str>,
}

pub(crate) fn backup(
    events: &Events,
    object: &Nab,
    before: &NonAdminBackupStatus,
    now: &NonAdminBackupStatus,
) {
    let turn =
        |status: &'_ NonAdminBackupStatus| -> (Option<Phase>, Vec<Condition>, Option<String>) {
            let velero = status.velero_backup.as_ref().and_then(|it| it.status.as_ref());
            (
                status.phase,
                status.conditions.clone().unwrap_or_default(),
                phase_of(velero.map(Mirror::document)),
            )
        };
    say(events, object, "Backup", &turn(before), &turn(now));
}

pub(crate) fn restore(
    events: &Events,
    object: &Nar,
    before: &NonAdminRestoreStatus,
    now: &NonAdminRestoreStatus,
) {
    let turn =
        |status: &'_ NonAdminRestoreStatus| -> (Option<Phase>, Vec<Condition>, Option<String>) {
            let velero = status.velero_restore.as_ref().and_then(|it| it.status.as_ref());
            (
                status.phase,
                status.conditions.clone().unwrap_or_default(),
                phase_of(velero.map(Mirror::document)),
            )
        };
    say(events, object, "Restore", &turn(before), &turn(now));
}

pub(crate) fn location(
    events: &Events,
    object: &Nabsl,
    before: &NonAdminBackupStorageLocationStatus,
    now: &NonAdminBackupStorageLocationStatus,
) {
    let turn = |status: &'_ NonAdminBackupStorageLocationStatus| -> (Option<Phase>, Vec<Condition>, Option<String>) {
        (status.phase, status.conditions.clone().unwrap_or_default(), None)
    };
    say(events, object, "BackupStorageLocation", &turn(before), &turn(now));
}

/// That it is refused; what it asks for speaks for itself.
pub(crate) fn schedule(
    events: &Events,
    object: &Nas,
    before: &NonAdminScheduleStatus,
    now: &NonAdminScheduleStatus,
) {
    let turn = |status: &'_ NonAdminScheduleStatus| -> Seen {
        (None, status.conditions.clone().unwrap_or_default(), None)
    };
    say(events, object, "Schedule", &turn(before), &turn(now));
}

fn phase_of(document: Option<&serde_json::Map<String, Value>>) -> Option<String> {
    document?.get("phase")?.as_str().map(str::to_owned)
}

type Seen = (Option<Phase>, Vec<Condition>, Option<String>);

fn say<K>(events: &Events, object: &K, what: &str, before: &Seen, now: &Seen)
where
    K: kube::Resource<DynamicType = ()>,
{
    let look = |seen: &'_ Seen| -> Vec<(Severity, String, String)> {
        let turn = Turn { phase: seen.0, conditions: &seen.1, velero: seen.2.as_deref() };
        turn.events(what)
    };
    let said = look(before);
    for (severity, reason, message) in look(now) {
        if !said.iter().any(|it| it.1 == reason && it.2 == message) {
            events.say(object, severity, &reason, &message);
        }
    }
}

impl Turn<'_> {
    /// Everything this status would say, had nothing been said before.
    fn events(&self, what: &str) -> Vec<(Severity, String, String)> {
        let mut all = Vec::new();
        let refused = condition::get(self.conditions, ACCEPTED)
            .filter(|entry| entry.status == condition::Status::False);
        if let Some(entry) = refused {
            all.push((Severity::Warning, entry.reason.clone(), entry.message.clone()));
        }
        if self.phase >= Some(Phase::Created) {
            let message = format!("handed to Velero; its progress is in status.velero{what}");
            all.push((Severity::Normal, format!("{what}Created"), message));
        }
        if let Some(entry) = condition::get(self.conditions, DELETING) {
            all.push((Severity::Normal, entry.reason.clone(), entry.message.clone()));
        }
        let severity = match self.velero {
            Some("Completed") => Some(Severity::Normal),
            Some("Failed" | "PartiallyFailed" | "FailedValidation") => Some(Severity::Warning),
            _ => None,
        };
        if let (Some(severity), Some(phase)) = (severity, self.velero) {
            let message = format!("the Velero {what} ended: {phase}");
            all.push((severity, format!("{what}{phase}"), message));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use api::condition::{Verdict, set};

    use super::*;

    #[test]
    fn a_status_speaks_of_rejection_creation_end_and_deletion() {
        let now = jiff::Timestamp::UNIX_EPOCH.into();
        let mut conditions: Vec<Condition> = Vec::new();
        set(&mut conditions, &Verdict::new(ACCEPTED, false, "InvalidBackupSpec", "no"), now);
        let turn = Turn { phase: Some(Phase::BackingOff), conditions: &conditions, velero: None };
        assert_eq!(
            turn.events("Backup"),
            [(Severity::Warning, "InvalidBackupSpec".into(), "no".into())]
        );
        let turn = Turn { phase: Some(Phase::Created), conditions: &[], velero: Some("Failed") };
        let reasons: Vec<String> = turn.events("Backup").into_iter().map(|it| it.1).collect();
        assert_eq!(reasons, ["BackupCreated", "BackupFailed"]);
        let turn = Turn { phase: None, conditions: &[], velero: None };
        assert!(turn.events("Backup").is_empty());
    }
}
