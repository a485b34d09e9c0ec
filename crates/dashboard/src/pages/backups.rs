//! Backups of volumes: how each stands, why it is not further, and what can be done with it.

use api::longhorn::{Backup, BackupState};
use jiff::Timestamp;
use kube::ResourceExt as _;
use people::backup::{obstacle, progress, stand, state, time, verified, volume_of};
use people::units::{age, bytes_of, date};

use super::{Content, tone};
use crate::read::Listed;
use crate::view::{Cell, Field, Form, Section, Table, Tone, path};
use crate::visit::Visit;
use crate::web::Oops;

pub(super) async fn content(visit: &Visit) -> Result<Content, Oops> {
    let mut backups = visit.reader().volumes::<Backup>().await?;
    let mut content = Content::titled("Backups");
    content.sections.push(Section::Table(table(
        "All backups, newest first",
        "There are no backups yet. Open a volume and press Back up.",
        &mut backups,
        visit.now,
    )));
    Ok(content)
}

pub(super) fn table(
    title: &str,
    none: &'static str,
    backups: &mut Listed<Backup>,
    now: Timestamp,
) -> Table {
    backups.items.sort_by_key(|it| std::cmp::Reverse(time(it)));
    Table {
        title: title.to_owned(),
        head: &[
            "Backup",
            "Volume",
            "Date (UTC)",
            "Size",
            "New",
            "State",
            "Verified",
            "Why",
            "Actions",
        ],
        rows: backups.items.iter().map(|it| row(it, now)).collect(),
        none,
        foot: backups.foot(),
    }
}

fn row(backup: &Backup, now: Timestamp) -> Vec<Cell> {
    let status = backup.status.clone().unwrap_or_default();
    let at = time(backup);
    let told = stand(backup);
    let looked = verified(backup, now);
    let result = looked.split(' ').next().unwrap_or_default().to_owned();
    let when = at.map(|at| format!("{}, {} ago", date(at), age(at, now)));
    vec![
        Cell::text(backup.name_any()),
        Cell::link("/volumes", &volume_of(backup)),
        Cell::text(when.unwrap_or_default()),
        Cell::text(bytes_of(status.size.as_deref())),
        Cell::text(bytes_of(status.newly_upload_data_size.as_deref())),
        Cell::going(progress(backup), tone(&told), told.clone()),
        Cell::badge(tone(&result), looked),
        Cell::text(why(backup, now)),
        Cell::Forms(forms(backup)),
    ]
}

/// What stands in its way, and when a failed deletion is tried again.
fn why(backup: &Backup, now: Timestamp) -> String {
    let deletion = backup.status.as_ref().and_then(|it| it.deletion.clone());
    let again = deletion.and_then(|it| it.retry_at).map(api::scalar::Time::timestamp);
    let again = again.filter(|it| *it > now && state(backup) == BackupState::Error);
    let again = again.map(|at| format!("next attempt in {}", age(now, at)));
    let obstacle = Some(obstacle(backup)).filter(|it| !it.is_empty());
    [obstacle, again].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn forms(backup: &Backup) -> Vec<Form> {
    let name = backup.name_any();
    let folder = path("/backups", &name);
    let is_leaving = backup.metadata.deletion_timestamp.is_some();
    let mut forms = Vec::new();
    if state(backup) == BackupState::Completed && !is_leaving {
        forms.push(Form {
            id: format!("restore-{name}"),
            label: "Restore",
            told: format!("Restores backup {name} into a new volume."),
            action: format!("{folder}/restore"),
            button: "Restore",
            tone: Tone::Plain,
            fields: vec![
                Field::name("Name of the volume", format!("{}-restored", volume_of(backup))),
                Field::replicas("3"),
            ],
        });
        forms.push(Form {
            id: format!("standby-{name}"),
            label: "Standby",
            told: format!("Creates a volume that follows the backups of {}.", volume_of(backup)),
            action: format!("{folder}/standby"),
            button: "Create",
            tone: Tone::Plain,
            fields: vec![
                Field::name("Name of the volume", format!("{}-standby", volume_of(backup))),
                Field::replicas("2"),
            ],
        });
    }
    if state(backup) == BackupState::Error && is_leaving {
        forms.push(Form {
            id: format!("retry-{name}"),
            label: "Retry",
            told: format!("Retries the deletion of backup {name} now."),
            action: format!("{folder}/retry"),
            button: "Retry now",
            tone: Tone::Plain,
            fields: Vec::new(),
        });
    }
    if !is_leaving {
        forms.push(Form {
            id: format!("delete-{name}"),
            label: "Delete",
            told: format!(
                "Deletes backup {name}, and all data that no other backup uses, in the background."
            ),
            action: format!("{folder}/delete"),
            button: "Delete permanently",
            tone: Tone::Bad,
            fields: Vec::new(),
        });
    }
    forms
}

#[cfg(test)]
mod tests {
    use api::longhorn::{BackupDeletion, BackupSpec, BackupStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn backup(state: BackupState, is_leaving: bool) -> Backup {
        let mut it = Backup::new("b", BackupSpec::default());
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        it.metadata.deletion_timestamp = is_leaving.then_some(Time(now));
        it.status = Some(BackupStatus {
            state: Some(state),
            error: Some("the store is full".to_owned()),
            deletion: Some(BackupDeletion {
                retry_at: Some(api::scalar::Time::new(now)),
                ..BackupDeletion::default()
            }),
            ..BackupStatus::default()
        });
        it
    }

    fn labels(backup: &Backup) -> Vec<&'static str> {
        forms(backup).into_iter().map(|it| it.label).collect()
    }

    #[test]
    fn only_what_can_be_done_is_offered() {
        let complete = backup(BackupState::Completed, false);
        assert_eq!(labels(&complete), ["Restore", "Standby", "Delete"]);
        assert_eq!(labels(&backup(BackupState::InProgress, false)), ["Delete"]);
        assert_eq!(labels(&backup(BackupState::Deleting, true)), [""; 0]);
        assert_eq!(labels(&backup(BackupState::Error, true)), ["Retry"]);
        assert_eq!(labels(&backup(BackupState::Error, false)), ["Delete"]);
    }

    #[test]
    fn a_failed_deletion_says_why_and_when_it_is_tried_again() {
        let failed = backup(BackupState::Error, true);
        let before = "2026-11-16T11:59:30Z".parse().unwrap();
        assert_eq!(why(&failed, before), "the store is full; next attempt in 30s");
        let after = "2026-11-16T12:00:30Z".parse().unwrap();
        assert_eq!(why(&failed, after), "the store is full");
    }
}
