//! Backups of volumes.

use std::collections::BTreeMap;

use api::longhorn::{
    Backup, BackupDeletion, BackupMode, BackupSpec, BackupState, Frontend, VolumeSpec,
};
use api::scalar::TextInt;
use jiff::Timestamp;
use kube_core::ResourceExt as _;

use crate::or_dash;

/// When the data is of: its snapshot's time, else its own.
pub fn time(backup: &Backup) -> Option<Timestamp> {
    let status = backup.status.as_ref();
    let of = |it: Option<&api::scalar::Stamp>| it.and_then(api::scalar::Stamp::get);
    status
        .and_then(|it| of(it.snapshot_created_at.as_ref()).or(of(it.backup_created_at.as_ref())))
        .or_else(|| crate::made(backup))
}

/// The volume a backup is of, also before its controller has seen it.
pub fn volume_of(backup: &Backup) -> String {
    let status = backup.status.as_ref().and_then(|it| it.volume_name.clone());
    let label = || backup.labels().get("backup-volume").cloned();
    status.filter(|it| !it.is_empty()).or_else(label).unwrap_or_default()
}

pub fn state(backup: &Backup) -> BackupState {
    let status = backup.status.as_ref();
    status.and_then(|it| it.state.clone()).unwrap_or(BackupState::New)
}

/// State, with how far.
pub fn stand(backup: &Backup) -> String {
    let deletion = backup.status.as_ref().and_then(|it| it.deletion.as_ref());
    let is_going = backup.metadata.deletion_timestamp.is_some();
    match &state(backup) {
        // Its removal comes when what is under way has ended.
        BackupState::New | BackupState::Pending if is_going => "to be removed".to_owned(),
        BackupState::InProgress if is_going => {
            format!("{} %, to be removed", progress(backup).unwrap_or(0))
        }
        BackupState::New => "new".to_owned(),
        BackupState::InProgress => format!("{} %", progress(backup).unwrap_or(0)),
        BackupState::Deleting => format!("deleting {} %", progress(backup).unwrap_or(0)),
        BackupState::Completed if deletion.is_some_and(|it| it.waits_for.is_some()) => {
            "deletion waits".to_owned()
        }
        other => other.as_str().to_lowercase(),
    }
}

/// How far what is done to it now is, in percent.
pub fn progress(backup: &Backup) -> Option<i32> {
    let status = backup.status.as_ref()?;
    match state(backup) {
        BackupState::InProgress => Some(status.progress.unwrap_or(0)),
        BackupState::Deleting => {
            Some(status.deletion.as_ref().and_then(|it| it.progress).unwrap_or(0))
        }
        BackupState::New
        | BackupState::Pending
        | BackupState::Completed
        | BackupState::Error
        | BackupState::Unknown
        | BackupState::Other(_) => None,
    }
}

/// Why it is not further.
pub fn obstacle(backup: &Backup) -> String {
    let Some(status) = backup.status.as_ref() else { return String::new() };
    let waits = status.deletion.as_ref().and_then(|it: &BackupDeletion| it.waits_for.clone());
    let messages = status.messages.clone().unwrap_or_default();
    let told = [
        status.error.clone(),
        messages.get("error").cloned(),
        waits,
        messages.get("info").cloned(),
    ];
    told.into_iter().flatten().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ")
}

/// What the last look at its data found, and when: `healthy 2h ago`.
pub fn verified(backup: &Backup, now: Timestamp) -> String {
    let last = backup.status.as_ref().and_then(|it| it.verification.as_ref());
    let told = last.and_then(|it| {
        let when = it.verified_at?.timestamp();
        let result = it.result.as_deref().unwrap_or("Unknown").to_lowercase();
        Some(format!("{result} {} ago", crate::units::age(when, now)))
    });
    told.unwrap_or_else(|| "never".to_owned())
}

/// A backup that is asked for.
#[derive(Debug, Clone, Default)]
pub struct Asked<'a> {
    pub volume: &'a str,
    pub name: &'a str,
    pub snapshot: &'a str,
    /// Where it goes; without it, where those of its volume go.
    pub target: Option<&'a str>,
    /// Labels kept with it in the store.
    pub labels: BTreeMap<String, String>,
    pub full: bool,
}

impl Asked<'_> {
    pub fn object(&self) -> Backup {
        let mut backup = Backup::new(
            self.name,
            BackupSpec {
                snapshot_name: Some(self.snapshot.to_owned()),
                labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
                backup_mode: self.full.then_some(BackupMode::Full),
                ..BackupSpec::default()
            },
        );
        let mut labels = BTreeMap::from([("backup-volume".to_owned(), self.volume.to_owned())]);
        if let Some(target) = self.target {
            labels.insert("backup-target".to_owned(), target.to_owned());
        }
        backup.metadata.labels = Some(labels);
        backup
    }
}

/// Why no volume can be made of a backup.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("backup {name} cannot be restored: its state is {state}, {why}")]
pub struct NotRestorable {
    pub name: String,
    pub state: String,
    pub why: String,
}

/// What a volume made of a backup is to be.
pub fn as_volume(backup: &Backup, replicas: i32) -> Result<VolumeSpec, NotRestorable> {
    let status = backup.status.clone().unwrap_or_default();
    let url = status.url.filter(|it| !it.is_empty());
    let Some(url) = url.filter(|_| state(backup) == BackupState::Completed) else {
        return Err(NotRestorable {
            name: backup.name_any(),
            state: or_dash(state(backup).as_str()),
            why: or_dash(&obstacle(backup)),
        });
    };
    Ok(VolumeSpec {
        size: status.volume_size.and_then(|it| it.parse().ok()).map(TextInt),
        number_of_replicas: Some(replicas),
        frontend: Some(Frontend::BlockDevice),
        from_backup: Some(url),
        ..VolumeSpec::default()
    })
}

#[cfg(test)]
mod tests {
    use api::longhorn::BackupStatus;

    use super::*;

    #[test]
    fn a_removal_that_was_asked_for_is_told_while_the_backup_is_made() {
        let mut backup = Backup::new("b", BackupSpec::default());
        backup.status = Some(BackupStatus {
            state: Some(BackupState::InProgress),
            progress: Some(17),
            ..BackupStatus::default()
        });
        assert_eq!(stand(&backup), "17 %");
        let asked = serde_json::json!({"deletionTimestamp": "2026-11-16T02:00:00Z"});
        backup.metadata = serde_json::from_value(asked).unwrap();
        assert_eq!(stand(&backup), "17 %, to be removed");
    }
}
