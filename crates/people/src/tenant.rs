//! Requests of those who work in a namespace.

use api::duration::GoDuration;
use api::nonadmin::{
    NonAdminBackup, NonAdminBackupSpec, NonAdminRestore, NonAdminRestoreSpec, Phase,
};
use api::velero;

/// What a request tells of itself, whichever kind it is.
#[derive(Debug, Clone)]
pub struct Told {
    pub phase: Option<Phase>,
    pub executor: String,
    /// Its place in the queue; 0 is one that runs or is done.
    pub place: Option<i64>,
    /// Why it was not accepted.
    pub why: String,
}

impl Told {
    pub fn phase(&self) -> &str {
        self.phase.as_ref().map(Phase::as_str).unwrap_or_default()
    }
}

pub fn backup(it: &NonAdminBackup) -> Told {
    let status = it.status.clone().unwrap_or_default();
    let executor = status.velero_backup.and_then(|it| it.status);
    Told {
        phase: status.phase,
        executor: phase_of(executor.map(|it| serde_json::to_value(it).unwrap_or_default())),
        place: status.queue_info.map(|it| it.estimated_queue_position),
        why: rejection(status.conditions.as_deref().unwrap_or_default()),
    }
}

pub fn restore(it: &NonAdminRestore) -> Told {
    let status = it.status.clone().unwrap_or_default();
    let executor = status.velero_restore.and_then(|it| it.status);
    Told {
        phase: status.phase,
        executor: phase_of(executor.map(|it| serde_json::to_value(it).unwrap_or_default())),
        place: status.queue_info.map(|it| it.estimated_queue_position),
        why: rejection(status.conditions.as_deref().unwrap_or_default()),
    }
}

fn phase_of(status: Option<serde_json::Value>) -> String {
    let phase = status.and_then(|it| it.get("phase").and_then(|it| it.as_str().map(str::to_owned)));
    phase.unwrap_or_default()
}

fn rejection(conditions: &[api::condition::Condition]) -> String {
    let refused =
        conditions.iter().find(|it| it.kind == "Accepted" && it.status.as_str() == "False");
    refused.map(|it| it.message.clone()).unwrap_or_default()
}

/// A backup of the namespace it is made in.
pub fn asked_backup(name: &str, ttl: Option<GoDuration>) -> NonAdminBackup {
    let spec = NonAdminBackupSpec {
        backup_spec: Some(velero::BackupSpec { ttl, ..velero::BackupSpec::default() }),
        ..NonAdminBackupSpec::default()
    };
    NonAdminBackup::new(name, spec)
}

/// A restore into the namespace it is made in.
pub fn asked_restore(name: &str, backup: &str) -> NonAdminRestore {
    let spec = NonAdminRestoreSpec {
        restore_spec: Some(velero::RestoreSpec {
            backup_name: Some(backup.to_owned()),
            ..velero::RestoreSpec::default()
        }),
    };
    NonAdminRestore::new(name, spec)
}

/// By the request's own field: the object alone can go without its data.
pub fn deletion() -> serde_json::Value {
    serde_json::json!({ "spec": { "deleteBackup": true } })
}
