//! Whether a restore can be carried out, and from which backup. Pure.

use std::sync::Arc;

use api::scalar::Time;
use api::velero::{
    Backup, BackupPhase, BackupStorageLocation, Restore, RestorePhase, RestoreStatus,
};
use jiff::Timestamp;

use crate::backup::decide::{OPERATION_TIMEOUT, is_available, unset};
use crate::lists::Lists;
use crate::names;
use crate::selection::NON_RESTORABLE;

#[derive(Debug)]
pub(crate) struct Observed<'o> {
    pub(crate) restore: &'o Restore,
    pub(crate) backups: &'o [Arc<Backup>],
    pub(crate) locations: &'o [Arc<BackupStorageLocation>],
    pub(crate) namespace: &'o str,
    /// Why the namespace of the tenant that asked is not the one of that name any more.
    pub(crate) lost: Option<&'o str>,
    pub(crate) now: Timestamp,
}

/// The restore as it is to be written: in progress, or refused.
pub(crate) fn begin(seen: &Observed<'_>) -> Restore {
    let mut restore = seen.restore.clone();
    let mut problems = Vec::new();
    exclude(&mut restore, &mut problems);
    if unset(restore.spec.item_operation_timeout.as_ref()) {
        restore.spec.item_operation_timeout = Some(OPERATION_TIMEOUT.into());
    }
    choose_backup(&mut restore, seen, &mut problems);
    validate(&restore, &mut problems);
    problems.extend(seen.lost.map(str::to_owned));
    if problems.is_empty() {
        validate_backup(&restore, seen, &mut problems);
    }
    let mut status = RestoreStatus::default();
    if problems.is_empty() {
        status.phase = Some(RestorePhase::InProgress);
        status.start_timestamp = Some(Time::new(seen.now));
    } else {
        status.phase = Some(RestorePhase::FailedValidation);
        status.validation_errors = Some(problems);
        status.completion_timestamp = Some(Time::new(seen.now));
    }
    restore.status = Some(status);
    restore
}

fn exclude(restore: &mut Restore, problems: &mut Vec<String>) {
    let spec = &mut restore.spec;
    let included = spec.included_resources.clone().unwrap_or_default();
    for name in NON_RESTORABLE {
        if included.iter().any(|it| it == name) {
            problems.push(format!("{name} are non-restorable resources"));
        }
        let excluded = spec.excluded_resources.get_or_insert_default();
        if !excluded.iter().any(|it| it == name) {
            excluded.push(name.to_owned());
        }
    }
}

fn choose_backup(restore: &mut Restore, seen: &Observed<'_>, problems: &mut Vec<String>) {
    let set = |it: &Option<String>| it.clone().filter(|it| !it.is_empty());
    match (set(&restore.spec.backup_name), set(&restore.spec.schedule_name)) {
        (Some(_), None) => {}
        (None, Some(schedule)) => {
            let of_schedule = |it: &&Arc<Backup>| {
                let labels = it.metadata.labels.as_ref();
                labels.and_then(|it| it.get(names::SCHEDULE_NAME)) == Some(&schedule)
                    // A tenant's backup is no schedule's, whatever its labels say.
                    && owner(it).is_none()
            };
            let mut found: Vec<&Arc<Backup>> = seen.backups.iter().filter(of_schedule).collect();
            if found.is_empty() {
                problems.push("No backups found for schedule".to_owned());
                return;
            }
            let phase = |it: &Arc<Backup>| it.status.as_ref().and_then(|it| it.phase.clone());
            found.retain(|it| phase(it) == Some(BackupPhase::Completed));
            let started = |it: &&Arc<Backup>| it.status.as_ref().and_then(|it| it.start_timestamp);
            match found.into_iter().max_by_key(started) {
                Some(newest) => restore.spec.backup_name.clone_from(&newest.metadata.name),
                None => problems.push("No completed backups found for schedule".to_owned()),
            }
        }
        (None, None) | (Some(_), Some(_)) => problems.push(
            "Either a backup or schedule must be specified as a source for the restore, but not \
             both"
                .to_owned(),
        ),
    }
}

fn validate(restore: &Restore, problems: &mut Vec<String>) {
    let spec = &restore.spec;
    let lists = |a: &Option<Vec<String>>, b: &Option<Vec<String>>| {
        Lists::new(a.as_ref(), b.as_ref()).problems()
    };
    for text in lists(&spec.included_resources, &spec.excluded_resources) {
        problems.push(format!("Invalid included/excluded resource lists: {text}"));
    }
    for text in lists(&spec.included_namespaces, &spec.excluded_namespaces) {
        problems.push(format!("Invalid included/excluded namespace lists: {text}"));
    }
    match spec.existing_resource_policy.as_deref() {
        None | Some("" | "none" | "update") => {}
        Some(other) => problems.push(format!("Invalid ExistingResourcePolicy: {other}")),
    }
    let has_many = spec.or_label_selectors.as_ref().is_some_and(|it| !it.is_empty());
    if spec.label_selector.is_some() && has_many {
        problems.push(
            "encountered labelSelector as well as orLabelSelectors in restore spec, only one can \
             be specified"
                .to_owned(),
        );
    }
    if let Err(error) =
        crate::selection::selectors(spec.label_selector.as_ref(), spec.or_label_selectors.as_ref())
    {
        problems.push(format!("invalid label selector: {error}"));
    }
    if spec.hooks.as_ref().is_some_and(|it| it.resources.as_ref().is_some_and(|it| !it.is_empty()))
    {
        problems.push(
            "spec.hooks is refused: this server runs no commands in pods; remove the hooks"
                .to_owned(),
        );
    }
    if let Some(modifier) = &spec.resource_modifier {
        problems.push(format!(
            "spec.resourceModifier {} {} is refused: this server has no resource modifiers; \
             remove it",
            modifier.kind, modifier.name
        ));
    }
    for (from, to) in spec.namespace_mapping.iter().flatten() {
        if to.is_empty() || to.contains('/') || from.is_empty() {
            problems.push(format!("Invalid namespace mapping {from}:{to}"));
        }
    }
}

fn validate_backup(restore: &Restore, seen: &Observed<'_>, problems: &mut Vec<String>) {
    let name = restore.spec.backup_name.as_deref().unwrap_or_default();
    let found = seen.backups.iter().find(|it| it.metadata.name.as_deref() == Some(name));
    let Some(backup) = found else {
        problems.push(format!(
            "Error retrieving backup: can't find backup {}/{name}: backups.velero.io \"{name}\" \
             not found",
            seen.namespace
        ));
        return;
    };
    let location = backup.spec.storage_location.as_deref().unwrap_or_default();
    let found = seen.locations.iter().find(|it| it.metadata.name.as_deref() == Some(location));
    match found {
        None => problems.push(format!(
            "Error retrieving backup: can't find backup storage location {}/{location}",
            seen.namespace
        )),
        Some(it) if !is_available(it) => {
            problems.push(format!("The BSL {location} is unavailable, cannot retrieve the backup"));
        }
        Some(_) => {}
    }
    if let Some(problem) = foreign(restore, backup) {
        problems.push(problem);
    }
}

/// A restore for a tenant reads that tenant's backups only, whoever made the objects.
fn foreign(restore: &Restore, backup: &Backup) -> Option<String> {
    let note = |it: &Option<std::collections::BTreeMap<String, String>>, key: &str| {
        it.as_ref().and_then(|it| it.get(key)).cloned()
    };
    let tenant = note(&restore.metadata.annotations, names::TENANT_NAMESPACE)?;
    (owner(backup) != Some(tenant.as_str())).then(|| {
        format!(
            "the backup {} is not one of namespace {tenant}",
            backup.metadata.name.as_deref().unwrap_or_default()
        )
    })
}

/// The namespace of the tenant that a backup was made for.
fn owner(backup: &Backup) -> Option<&str> {
    let notes = backup.metadata.annotations.as_ref()?;
    notes.get(names::TENANT_BACKUP_NAMESPACE).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn backup(name: &str, more: Value) -> Arc<Backup> {
        let mut value = json!({"metadata": {"name": name}, "spec": {"storageLocation": "l"},
            "status": {"phase": "Completed"}});
        merge(&mut value, more);
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn merge(into: &mut Value, more: Value) {
        match (into, more) {
            (Value::Object(into), Value::Object(more)) => {
                for (key, value) in more {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, more) => *into = more,
        }
    }

    fn begun(restore: Value, backups: &[Arc<Backup>], available: bool) -> Restore {
        let restore: Restore = serde_json::from_value(restore).unwrap();
        let phase = if available { "Available" } else { "Unavailable" };
        let location = json!({"metadata": {"name": "l"}, "status": {"phase": phase}});
        let seen = Observed {
            restore: &restore,
            backups,
            locations: &[Arc::new(serde_json::from_value(location).unwrap())],
            namespace: "adm",
            lost: None,
            now: Timestamp::UNIX_EPOCH,
        };
        begin(&seen)
    }

    #[expect(clippy::needless_pass_by_value, reason = "fixtures are written in place")]
    fn errors(spec: Value) -> Vec<String> {
        let restore = json!({"metadata": {"name": "r"}, "spec": spec});
        begun(restore, &[backup("b", json!({}))], true)
            .status
            .unwrap()
            .validation_errors
            .unwrap_or_default()
    }

    #[test]
    fn a_restore_of_a_backup_begins() {
        let restore = begun(json!({"spec": {"backupName": "b"}}), &[backup("b", json!({}))], true);
        assert_eq!(restore.status.unwrap().phase, Some(RestorePhase::InProgress));
        assert_eq!(restore.spec.excluded_resources.unwrap()[0], "nodes");
        assert_eq!(restore.spec.item_operation_timeout, Some(OPERATION_TIMEOUT.into()));
        let asked = json!({"spec": {"backupName": "b", "itemOperationTimeout": "1h0m0s"}});
        let asked = begun(asked, &[backup("b", json!({}))], true).spec.item_operation_timeout;
        assert_eq!(asked, Some(std::time::Duration::from_hours(1).into()));
    }

    #[test]
    fn each_way_to_be_wrong_has_its_words() {
        for (spec, text) in [
            (json!({}), "Either a backup or schedule must be specified"),
            (json!({"backupName": "b", "scheduleName": "s"}), "but not both"),
            (json!({"backupName": "x"}), "Error retrieving backup: can't find backup adm/x"),
            (json!({"scheduleName": "s"}), "No backups found for schedule"),
            (
                json!({"backupName": "b", "existingResourcePolicy": "recreate"}),
                "Invalid ExistingResourcePolicy: recreate",
            ),
            (
                json!({"backupName": "b", "includedResources": ["nodes"]}),
                "nodes are non-restorable resources",
            ),
            (
                json!({"backupName": "b", "labelSelector": {}, "orLabelSelectors": [{}]}),
                "encountered labelSelector as well as orLabelSelectors in restore spec",
            ),
            (
                json!({"backupName": "b", "hooks": {"resources": [{"name": "h"}]}}),
                "runs no commands in pods",
            ),
            (
                json!({"backupName": "b", "resourceModifier": {"kind": "configmap", "name": "m"}}),
                "no resource modifiers",
            ),
        ] {
            let found = errors(spec.clone());
            assert!(found.iter().any(|it| it.contains(text)), "{spec}: {found:?}");
        }
        let down = begun(json!({"spec": {"backupName": "b"}}), &[backup("b", json!({}))], false);
        assert_eq!(
            down.status.unwrap().validation_errors.unwrap(),
            ["The BSL l is unavailable, cannot retrieve the backup"]
        );
    }

    #[test]
    fn the_newest_completed_backup_of_a_schedule_is_taken() {
        let of = |name: &str, phase: &str, start: &str| {
            backup(
                name,
                json!({"metadata": {"labels": {"velero.io/schedule-name": "s"}},
                "status": {"phase": phase, "startTimestamp": start}}),
            )
        };
        let all = [
            of("a", "Completed", "2024-01-01T00:00:00Z"),
            of("b", "Completed", "2024-01-02T00:00:00Z"),
            of("c", "Failed", "2024-01-03T00:00:00Z"),
            backup(
                "planted",
                json!({"metadata": {"labels": {"velero.io/schedule-name": "s"},
                    "annotations": {"openshift.io/oadp-nab-origin-namespace": "t"}},
                "status": {"phase": "Completed", "startTimestamp": "2034-01-01T00:00:00Z"}}),
            ),
        ];
        let restore = begun(json!({"spec": {"scheduleName": "s"}}), &all, true);
        assert_eq!(restore.spec.backup_name.as_deref(), Some("b"));
        assert_eq!(restore.status.unwrap().phase, Some(RestorePhase::InProgress));
    }

    #[test]
    fn a_tenant_restores_its_own_backups_only() {
        let restore = json!({"metadata": {"annotations": {
            "openshift.io/oadp-nar-origin-namespace": "t"}}, "spec": {"backupName": "b"}});
        let other = backup(
            "b",
            json!({"metadata": {"annotations": {
            "openshift.io/oadp-nab-origin-namespace": "u"}}}),
        );
        let own = backup(
            "b",
            json!({"metadata": {"annotations": {
            "openshift.io/oadp-nab-origin-namespace": "t"}}}),
        );
        let phase = |it: Restore| it.status.unwrap().phase.unwrap();
        assert_eq!(phase(begun(restore.clone(), &[other], true)), RestorePhase::FailedValidation);
        assert_eq!(phase(begun(restore, &[own], true)), RestorePhase::InProgress);
    }
}
