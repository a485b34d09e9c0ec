//! What becomes of a backup before it runs: its place in the queue, its defaults, and whether it can
//! be run at all. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use api::duration::GoDuration;
use api::scalar::Time;
use api::velero::{
    AccessMode, Backup, BackupPhase, BackupStatus, BackupStorageLocation, LocationPhase,
};
use jiff::{SignedDuration, Timestamp};

use crate::lists::Lists;
use crate::names;
use crate::selection::{uses_new_filters, uses_old_filters};

/// What the server says where a backup says nothing.
#[derive(Debug, Clone)]
pub(crate) struct Defaults {
    pub(crate) ttl: Duration,
    pub(crate) location: String,
}

const CSI_TIMEOUT: Duration = Duration::from_mins(10);
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_hours(4);
const GROUP_LABEL: &str = "velero.io/volume-group";
/// Kinds that never belong into a backup.
const SNAPSHOTS: [&str; 2] =
    ["volumesnapshots.snapshot.storage.k8s.io", "volumesnapshotcontents.snapshot.storage.k8s.io"];

/// What is known when a backup is to begin.
#[derive(Debug)]
pub(crate) struct Observed<'o> {
    pub(crate) backup: &'o Backup,
    pub(crate) locations: &'o [std::sync::Arc<BackupStorageLocation>],
    /// Those that ask to be left out.
    pub(crate) excluded_namespaces: &'o [String],
    /// Those of its locations for snapshots that are not there.
    pub(crate) no_snapshot_locations: &'o [String],
    /// Why the namespace of the tenant that asked is not the one of that name any more.
    pub(crate) lost: Option<&'o str>,
    pub(crate) versions: &'o ServerVersion,
    pub(crate) now: Timestamp,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ServerVersion {
    pub(crate) git: String,
    pub(crate) major: String,
    pub(crate) minor: String,
}

/// The backup as it is to be written: with its defaults, and either in progress or refused.
pub(crate) fn begin(seen: &Observed<'_>, defaults: &Defaults) -> Backup {
    let mut backup = seen.backup.clone();
    let chosen = complete(&mut backup, seen, defaults);
    let mut problems = validate(&backup, seen.locations, chosen);
    problems.extend(seen.no_snapshot_locations.iter().map(|name| {
        format!(
            "a VolumeSnapshotLocation CRD for the location {name} with the name specified in the \
             backup spec needs to be created before this snapshot can be executed. Error: \
             volumesnapshotlocations.velero.io \"{name}\" not found"
        )
    }));
    problems.extend(seen.lost.map(str::to_owned));
    let ttl = backup.spec.ttl.as_ref().map(GoDuration::get);
    let ttl = match ttl {
        Some(Ok(ttl)) => ttl,
        Some(Err(error)) => {
            problems.push(format!("ttl: {error}"));
            defaults.ttl
        }
        None => defaults.ttl,
    };
    let expiration = SignedDuration::try_from(ttl)
        .ok()
        .and_then(|ttl| seen.now.checked_add(ttl).ok())
        .map(Time::new);
    let mut status = BackupStatus {
        version: Some(1),
        format_version: Some(names::FORMAT_VERSION.to_owned()),
        expiration,
        ..BackupStatus::default()
    };
    if problems.is_empty() {
        status.phase = Some(BackupPhase::InProgress);
        status.start_timestamp = Some(Time::new(seen.now));
    } else {
        status.phase = Some(BackupPhase::FailedValidation);
        status.validation_errors = Some(problems);
        // Without it whoever counts unfinished backups would count this one for ever.
        status.completion_timestamp = Some(Time::new(seen.now));
    }
    backup.status = Some(status);
    backup
}

/// Who chose the storage location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    ByUser,
    ByServer,
}

/// Nothing, or a zero: both ask for what the server has.
pub(crate) fn unset(duration: Option<&GoDuration>) -> bool {
    duration.is_none_or(|it| it.get().is_ok_and(|it| it.is_zero()))
}

fn complete(backup: &mut Backup, seen: &Observed<'_>, defaults: &Defaults) -> Chosen {
    let is_old = uses_old_filters(&backup.spec) || !uses_new_filters(&backup.spec);
    let spec = &mut backup.spec;
    if unset(spec.ttl.as_ref()) {
        spec.ttl = Some(defaults.ttl.into());
    }
    if unset(spec.csi_snapshot_timeout.as_ref()) {
        spec.csi_snapshot_timeout = Some(CSI_TIMEOUT.into());
    }
    if unset(spec.item_operation_timeout.as_ref()) {
        spec.item_operation_timeout = Some(OPERATION_TIMEOUT.into());
    }
    if spec.volume_group_snapshot_label_key.as_deref().is_none_or(str::is_empty) {
        spec.volume_group_snapshot_label_key = Some(GROUP_LABEL.to_owned());
    }
    let former = spec.default_volumes_to_restic.take();
    // Yes by either name is yes.
    let files = [spec.default_volumes_to_fs_backup, former].contains(&Some(true));
    spec.default_volumes_to_fs_backup = Some(files);
    spec.snapshot_move_data = Some(spec.snapshot_move_data.unwrap_or(false));
    spec.hooks.get_or_insert_default();
    if spec.included_namespaces.as_ref().is_none_or(Vec::is_empty) {
        spec.included_namespaces = Some(vec!["*".to_owned()]);
    }
    // One that is named and asks to be left out is told, not passed over. Others that nobody asked for are
    // not named: tenants read this.
    let asked = Lists::new(spec.included_namespaces.as_ref(), None);
    for name in seen.excluded_namespaces.iter().filter(|name| asked.holds(name)) {
        append(&mut spec.excluded_namespaces, name);
    }
    let everything = |list: &Option<Vec<String>>| {
        list.as_ref().is_some_and(|list| list.iter().any(|it| it == "*"))
    };
    if is_old {
        for name in SNAPSHOTS {
            append(&mut spec.excluded_resources, name);
        }
    } else {
        if !everything(&spec.excluded_namespace_scoped_resources) {
            append(&mut spec.excluded_namespace_scoped_resources, SNAPSHOTS[0]);
        }
        if !everything(&spec.excluded_cluster_scoped_resources) {
            append(&mut spec.excluded_cluster_scoped_resources, SNAPSHOTS[1]);
        }
    }
    let chosen = choose_location(backup, seen.locations, defaults);
    annotate(backup, seen.versions);
    chosen
}

fn append(list: &mut Option<Vec<String>>, name: &str) {
    let list = list.get_or_insert_default();
    if !list.iter().any(|it| it == name) {
        list.push(name.to_owned());
    }
}

fn choose_location(
    backup: &mut Backup,
    locations: &[std::sync::Arc<BackupStorageLocation>],
    defaults: &Defaults,
) -> Chosen {
    let given = backup.spec.storage_location.clone().filter(|name| !name.is_empty());
    let chosen = if given.is_some() { Chosen::ByUser } else { Chosen::ByServer };
    let name = given.unwrap_or_else(|| {
        let default = locations.iter().find(|it| it.spec.default == Some(true));
        default.and_then(|it| it.metadata.name.clone()).unwrap_or_else(|| defaults.location.clone())
    });
    let labels = backup.metadata.labels.get_or_insert_default();
    labels.insert(names::STORAGE_LOCATION.to_owned(), names::label_value(&name));
    backup.spec.storage_location = Some(name);
    chosen
}

fn annotate(backup: &mut Backup, versions: &ServerVersion) {
    let annotations: &mut BTreeMap<String, String> =
        backup.metadata.annotations.get_or_insert_default();
    for (key, value) in [
        (names::GIT_VERSION, versions.git.as_str()),
        (names::MAJOR_VERSION, &versions.major),
        (names::MINOR_VERSION, &versions.minor),
        (names::RESOURCE_TIMEOUT, "10m0s"),
    ] {
        annotations.insert(key.to_owned(), value.to_owned());
    }
}

/// Everything that is wrong with a backup, in the words that users know.
fn validate(
    backup: &Backup,
    locations: &[std::sync::Arc<BackupStorageLocation>],
    chosen: Chosen,
) -> Vec<String> {
    let spec = &backup.spec;
    let mut found = Vec::new();
    found.extend(validate_location(
        spec.storage_location.as_deref().unwrap_or_default(),
        locations,
        chosen,
    ));
    let lists =
        |a: &Option<Vec<String>>, b: &Option<Vec<String>>| Lists::new(a.as_ref(), b.as_ref());
    let mut say = |what: &str, problems: Vec<String>| {
        found.extend(problems.into_iter().map(|it| format!("Invalid {what} lists: {it}")));
    };
    say(
        "included/excluded resource",
        lists(&spec.included_resources, &spec.excluded_resources).problems(),
    );
    say(
        "cluster-scoped included/excluded resource",
        lists(&spec.included_cluster_scoped_resources, &spec.excluded_cluster_scoped_resources)
            .scoped_problems(),
    );
    say(
        "namespace-scoped included/excluded resource",
        lists(&spec.included_namespace_scoped_resources, &spec.excluded_namespace_scoped_resources)
            .scoped_problems(),
    );
    say(
        "included/excluded namespace",
        lists(&spec.included_namespaces, &spec.excluded_namespaces).problems(),
    );
    // The server adds to one list of the old filters itself: only what the user wrote counts.
    let mut written = backup.spec.clone();
    if uses_new_filters(&written)
        && let Some(list) = &mut written.excluded_resources
    {
        list.retain(|it| !SNAPSHOTS.contains(&it.as_str()));
    }
    if uses_old_filters(&written) && uses_new_filters(&written) {
        found.push(
            "include-resources, exclude-resources and include-cluster-resources are old filter \
             parameters.\ninclude-cluster-scoped-resources, exclude-cluster-scoped-resources, \
             include-namespace-scoped-resources and exclude-namespace-scoped-resources are new \
             filter parameters.\nThey cannot be used together"
                .to_owned(),
        );
    }
    let has_many = spec.or_label_selectors.as_ref().is_some_and(|it| !it.is_empty());
    if spec.label_selector.is_some() && has_many {
        found.push(
            "encountered labelSelector as well as orLabelSelectors in backup spec, only one can \
             be specified"
                .to_owned(),
        );
    }
    if let Err(error) =
        crate::selection::selectors(spec.label_selector.as_ref(), spec.or_label_selectors.as_ref())
    {
        found.push(format!("invalid label selector: {error}"));
    }
    found.extend(unsupported(backup));
    found
}

/// What this server would silently not do is refused.
fn unsupported(backup: &Backup) -> Vec<String> {
    let spec = &backup.spec;
    let mut found = Vec::new();
    if spec.hooks.as_ref().is_some_and(|it| it.resources.as_ref().is_some_and(|it| !it.is_empty()))
    {
        found.push(
            "spec.hooks is refused: this server runs no commands in pods; remove the hooks, or \
             run the commands before the backup is created"
                .to_owned(),
        );
    }
    if let Some(policy) = &spec.resource_policy {
        found.push(format!(
            "spec.resourcePolicy {} {} is refused: this server has no resource policies; remove it",
            policy.kind, policy.name
        ));
    }
    found
}

fn validate_location(
    name: &str,
    locations: &[std::sync::Arc<BackupStorageLocation>],
    chosen: Chosen,
) -> Option<String> {
    let found = locations.iter().find(|it| it.metadata.name.as_deref() == Some(name));
    let Some(location) = found else {
        let gap = match chosen {
            Chosen::ByServer => format!("the server default {name} does not exist"),
            Chosen::ByUser => format!("the default {name} was not found"),
        };
        return Some(format!(
            "an existing backup storage location was not specified at backup creation time and \
             {gap}. Please address this issue (see `velero backup-location -h` for options) and \
             create a new backup. Error: backupstoragelocations.velero.io \"{name}\" not found"
        ));
    };
    if location.spec.access_mode == Some(AccessMode::ReadOnly) {
        return Some(format!(
            "backup can't be created because backup storage location {name} is currently in \
             read-only mode"
        ));
    }
    if !is_available(location) {
        return Some(format!(
            "backup can't be created because BackupStorageLocation {name} is in Unavailable \
             status."
        ));
    }
    None
}

pub(crate) fn is_available(location: &BackupStorageLocation) -> bool {
    location.status.as_ref().and_then(|it| it.phase.as_ref()) == Some(&LocationPhase::Available)
}

#[cfg(test)]
mod tests;
