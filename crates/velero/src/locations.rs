//! Storage locations: whether they can be used, and what lies in them that the cluster does not know.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::duration::GoDuration;
use api::scalar::Time;
use api::velero::{
    Backup, BackupPhase, BackupStorageLocation, BackupStorageLocationSpec, LocationPhase,
    ObjectStorage,
};
use blobs::Prefix;
use jiff::Timestamp;
use reconcile::{Failure, Key, Loop, Next, Reconciler};

use crate::backup::queue::KIND as BACKUP;
use crate::layout::{self, BackupFile};
use crate::names;
use crate::place::DIRECTORY;
use crate::world::{Opened, STORE_WORKERS, World, in_time, is_tenants, tenant_of, turn};

/// Where the default location of this machine keeps its backups.
pub(crate) const DEFAULT_BUCKET: &str = "backups";
const OBJECT_MAX_BYTES: u64 = 4 << 20;
/// Of a store that is a tenant's own: of one object, and of how many.
const TENANT_OBJECT_MAX_BYTES: u64 = 256 << 10;
const TENANT_BACKUPS_MAX: usize = 1000;
/// How many are made known at a look: each of them is written, mirrored and told to everybody who watches.
const TENANT_BACKUPS_A_LOOK: usize = 25;
/// What a tenant may ask for in one spec, and what its controller adds to that.
const TENANT_SPEC_MAX_BYTES: usize = (64 + 16) << 10;
/// Of a status, and of the labels and annotations that are kept.
const TENANT_REST_MAX_BYTES: usize = 16 << 10;
/// A tenant's location is looked at no more often than this, whatever it asks for.
const TENANT_PERIOD_MIN: Duration = Duration::from_secs(10);
const TENANT_LOOK_WITHIN: Duration = Duration::from_mins(1);
const RETRY_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Locations {
    world: Arc<World>,
    /// The specs that were checked by this process, by uid: another one is checked at once.
    checked: Mutex<HashMap<String, BackupStorageLocationSpec>>,
}

pub(crate) async fn run(world: Arc<World>) {
    if world.settings.directories.is_some() {
        while let Err(failure) = provide_default(&world).await {
            tracing::warn!(error = %telemetry::Chain(&failure), "the default storage location is not made yet");
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
    Loop::new("velero-locations", &world.context)
        .workers(STORE_WORKERS)
        .on(&world.locations)
        .needs(&world.backups)
        .needs(&world.schedules)
        .run(Arc::new(Locations { world, checked: Mutex::default() }))
        .await;
}

/// The location that this machine has without being told, unless there is one of that name.
async fn provide_default(world: &World) -> Result<(), Failure> {
    world.locations.ready().await;
    let name = &world.settings.default_location;
    if let Some(directories) = &world.settings.directories {
        let bucket = directories.join(DEFAULT_BUCKET);
        // A store that is opened is made.
        blobs::LocalStore::open(bucket)
            .map_err(|error| Failure::other("make the directory for backups", error))?;
    }
    if world.locations.get(&world.key(name)).is_some() {
        return Ok(());
    }
    let has_default = world.locations.list().iter().any(|it| it.spec.default == Some(true));
    let spec = BackupStorageLocationSpec {
        provider: Some(DIRECTORY.to_owned()),
        object_storage: Some(ObjectStorage {
            bucket: DEFAULT_BUCKET.to_owned(),
            ..ObjectStorage::default()
        }),
        default: Some(!has_default),
        ..BackupStorageLocationSpec::default()
    };
    let mut location = BackupStorageLocation::new(name, spec);
    location.metadata.namespace = Some(world.settings.namespace.clone());
    match world.locations.create(&location).await {
        Ok(_) | Err(Failure::Conflict { .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// When something is due: never, at once, or after a while.
fn due(last: Option<Time>, every: Duration, now: Timestamp) -> Option<Duration> {
    let Some(last) = last else { return Some(Duration::ZERO) };
    if every.is_zero() {
        return None;
    }
    let passed = now.duration_since(last.timestamp());
    let passed = Duration::try_from(passed).unwrap_or_default();
    Some(every.saturating_sub(passed))
}

fn period(given: Option<&GoDuration>, default: Duration, is_tenants: bool) -> Duration {
    let period = given.and_then(|it| it.get().ok()).unwrap_or(default);
    if is_tenants && !period.is_zero() { period.max(TENANT_PERIOD_MIN) } else { period }
}

impl Reconciler for Locations {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.world;
        let Some(location) = world.locations.get(key) else { return Ok(Next::WAIT) };
        let _turn = match turn(&world.running, "location", &location) {
            Ok(turn) => turn,
            Err(later) => return Ok(later),
        };
        if let Some(newer) = self.newer_default(&location) {
            let mut next = location.as_ref().clone();
            next.spec.default = Some(false);
            tracing::info!(location = %key, newer, "another location is the default now");
            world.locations.update(&location, &next).await?;
            return Ok(Next::after(Duration::ZERO));
        }
        let now = Timestamp::now();
        let status = location.status.clone().unwrap_or_default();
        let is_tenants = is_tenants(&location);
        let frequency = location.spec.validation_frequency.as_ref();
        let every = period(frequency, world.settings.validate_every, is_tenants);
        let mut next = Next::WAIT;
        let changed = status.phase.is_none() || self.is_changed(&location);
        let checked = if changed { None } else { status.last_validation_time };
        let mut current = Arc::clone(&location);
        match due(checked, every, now) {
            Some(wait) if wait.is_zero() => {
                current = self.validate(&location).await?;
                if !every.is_zero() {
                    next = next.or(Next::after(every));
                }
            }
            Some(wait) => next = next.or(Next::after(wait)),
            None => {}
        }
        let phase = current.status.as_ref().and_then(|it| it.phase.clone());
        if phase != Some(LocationPhase::Available) {
            return Ok(next);
        }
        let frequency = location.spec.backup_sync_period.as_ref();
        let every = period(frequency, world.settings.sync_every, is_tenants);
        if every.is_zero() {
            return Ok(next);
        }
        let synced = current.status.as_ref().and_then(|it| it.last_synced_time);
        match due(synced, every, now) {
            Some(wait) if wait.is_zero() => {
                let synced = in_time(&current, TENANT_LOOK_WITHIN, self.sync(&current)).await;
                synced.unwrap_or_else(|late| {
                    Err(Failure::other(format!("look through {key}"), late))
                })?;
                next = next.or(Next::after(every));
            }
            Some(wait) => next = next.or(Next::after(wait)),
            None => {}
        }
        Ok(next)
    }
}

impl Locations {
    /// Of several defaults only the newest stays.
    fn newer_default(&self, location: &BackupStorageLocation) -> Option<String> {
        if location.spec.default != Some(true) {
            return None;
        }
        let age = |it: &BackupStorageLocation| {
            (it.metadata.creation_timestamp.as_ref().map(|it| it.0), it.metadata.name.clone())
        };
        let own = age(location);
        let all = self.world.locations.list();
        let newer = all.iter().filter(|it| it.spec.default == Some(true)).find(|it| age(it) > own);
        newer.and_then(|it| it.metadata.name.clone())
    }

    fn is_changed(&self, location: &BackupStorageLocation) -> bool {
        let checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = location.metadata.uid.as_deref().unwrap_or_default();
        checked.get(uid) != Some(&location.spec)
    }

    async fn validate(
        &self,
        location: &BackupStorageLocation,
    ) -> Result<Arc<BackupStorageLocation>, Failure> {
        let name = location.metadata.name.as_deref().unwrap_or_default();
        let found = self.check(location).await;
        if let (Some(uid), Ok(mut checked)) = (location.metadata.uid.clone(), self.checked.lock()) {
            let known = self.world.locations.list();
            checked.retain(|uid, _| known.iter().any(|it| it.metadata.uid.as_ref() == Some(uid)));
            checked.insert(uid, location.spec.clone());
        }
        let mut next = location.clone();
        let status = next.status.get_or_insert_default();
        status.last_validation_time = Some(Time::new(Timestamp::now()));
        match found {
            Ok(()) => {
                status.phase = Some(LocationPhase::Available);
                status.message = None;
            }
            Err(error) => {
                status.phase = Some(LocationPhase::Unavailable);
                status.message =
                    Some(format!("BackupStorageLocation \"{name}\" is unavailable: {error}"));
            }
        }
        self.world.locations.update(location, &next).await
    }

    async fn check(&self, location: &BackupStorageLocation) -> Result<(), String> {
        let opened = self.world.open(location).await?;
        let level =
            in_time(location, TENANT_LOOK_WITHIN, opened.store.list_level(&Prefix::ROOT)).await?;
        let level = level.map_err(|error| opened.told(&error))?;
        let foreign: Vec<&str> = level
            .folders
            .iter()
            .map(|it| it.parts().last().unwrap_or_default())
            .filter(|it| !layout::TOP_FOLDERS.contains(it))
            .collect();
        match foreign.as_slice() {
            [] => Ok(()),
            few @ ([_] | [_, _] | [_, _, _]) => Err(format!(
                "Backup store contains invalid top-level directories: [{}]",
                few.join(" ")
            )),
            many => Err(format!(
                "Backup store contains {} invalid top-level directories: [{} ...]",
                many.len(),
                many.get(..3).unwrap_or_default().join(" ")
            )),
        }
    }

    /// Both ways: what is in the store comes into the cluster, what has gone from it goes.
    async fn sync(&self, location: &BackupStorageLocation) -> Result<(), Failure> {
        let name = location.metadata.name.as_deref().unwrap_or_default();
        let doing = || format!("look through storage location {name}");
        let opened = self.world.open(location).await.map_err(|it| Failure::other(doing(), it))?;
        let root = layout::TOP_FOLDERS[0];
        let root = Prefix::parse(root).map_err(|it| Failure::other(doing(), it))?;
        let listed_at = Timestamp::now();
        let level = opened.store.list_level(&root).await;
        let level = level.map_err(|it| Failure::other(doing(), it))?;
        let stored: BTreeSet<String> =
            level.folders.iter().filter_map(|it| it.parts().last().map(str::to_owned)).collect();
        let mut left = self.room(location);
        let mut new = if is_tenants(location) { TENANT_BACKUPS_A_LOOK } else { usize::MAX };
        for backup in &stored {
            let key = self.world.key(backup);
            if self.world.backups.get(&key).is_some() || self.world.backups.is_broken(&key) {
                continue;
            }
            if left == 0 {
                tracing::warn!(
                    location = name,
                    max = TENANT_BACKUPS_MAX,
                    "a tenant's store has more backups than are taken; the others are left"
                );
                break;
            }
            if new == 0 {
                tracing::debug!(
                    location = name,
                    "more backups in it are made known at the next look"
                );
                break;
            }
            left -= 1;
            match self.bring_in(&opened, location, backup).await {
                Ok(true) => new -= 1,
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    location = name,
                    backup,
                    error,
                    "a backup in the store cannot be used"
                ),
            }
        }
        self.forget(&opened, name, &stored, listed_at).await?;
        let mut next = location.clone();
        next.status.get_or_insert_default().last_synced_time = Some(Time::new(Timestamp::now()));
        self.world.locations.update(location, &next).await.map(drop)
    }

    /// How many backups of this location may be made known.
    fn room(&self, location: &BackupStorageLocation) -> usize {
        room(location, &self.world.locations.list(), &self.world.backups.list())
    }

    /// Whether it is known since.
    async fn bring_in(
        &self,
        opened: &Opened,
        location: &BackupStorageLocation,
        name: &str,
    ) -> Result<bool, String> {
        let key = BackupFile::Object.key(name).map_err(|error| error.to_string())?;
        let tenant = tenant_of(location);
        let max = if tenant.is_some() { TENANT_OBJECT_MAX_BYTES } else { OBJECT_MAX_BYTES };
        let blob = match blobs::get_limited(opened.store.as_ref(), &key, max).await {
            Ok(blob) => blob,
            // Still on its way in, or on its way out.
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(telemetry::Chain(&error).to_string()),
        };
        let stored: Backup = serde_json::from_slice(&blob.bytes)
            .map_err(|error| format!("{key} is not a backup: {error}"))?;
        let schedules = self.world.schedules.list();
        let is_known =
            |uid: &str| schedules.iter().any(|it| it.metadata.uid.as_deref() == Some(uid));
        let location = location.metadata.name.as_deref().unwrap_or_default();
        let known = known_backup(stored, name, location, &self.world.settings.namespace, is_known)?;
        let Some(mut backup) = known else { return Ok(false) };
        if let Some(tenant) = tenant {
            backup = only_of(tenant, backup)?;
        }
        match self.world.backups.create(&backup).await {
            Ok(_) => {
                tracing::info!(backup.name = name, location, "a backup was found in the store");
                Ok(true)
            }
            Err(Failure::Conflict { .. }) => Ok(false),
            Err(failure) => Err(telemetry::Chain(&failure).to_string()),
        }
    }

    /// Backups that say they are complete and are not in the store any more.
    async fn forget(
        &self,
        opened: &Opened,
        location: &str,
        stored: &BTreeSet<String>,
        listed_at: Timestamp,
    ) -> Result<(), Failure> {
        let label = names::label_value(location);
        for backup in self.world.backups.list() {
            let name = backup.metadata.name.as_deref().unwrap_or_default();
            let is_busy = self.world.running.has(BACKUP, name);
            if is_busy || stored.contains(name) || !was_whole(&backup, &label, listed_at) {
                continue;
            }
            // The list may be older than the backup: only the object itself says that it is gone.
            let Ok(key) = BackupFile::Object.key(name) else { continue };
            if opened.store.head(&key).await.is_err_and(|error| error.is_not_found()) {
                tracing::info!(
                    backup.name = name,
                    location,
                    "a backup is not in the store any more"
                );
                self.world.backups.delete(&backup).await?;
            }
        }
        Ok(())
    }
}

/// How many backups of this location may be made known, beside those of all that are the same tenant's.
fn room(
    location: &BackupStorageLocation,
    locations: &[Arc<BackupStorageLocation>],
    backups: &[Arc<Backup>],
) -> usize {
    let Some(tenant) = tenant_of(location) else { return usize::MAX };
    let own: HashSet<&str> = locations
        .iter()
        .filter(|it| tenant_of(it) == Some(tenant))
        .filter_map(|it| it.metadata.name.as_deref())
        .collect();
    let is_here =
        |it: &Backup| it.spec.storage_location.as_deref().is_some_and(|it| own.contains(it));
    TENANT_BACKUPS_MAX.saturating_sub(backups.iter().filter(|it| is_here(it)).count())
}

/// Whether a backup of the location with this label was in its store when that was listed.
fn was_whole(backup: &Backup, label: &str, listed_at: Timestamp) -> bool {
    let of_here = backup.metadata.labels.as_ref().and_then(|it| it.get(names::STORAGE_LOCATION));
    let status = backup.status.clone().unwrap_or_default();
    let is_whole =
        matches!(status.phase, Some(BackupPhase::Completed | BackupPhase::PartiallyFailed));
    let ended = status.completion_timestamp;
    of_here.is_some_and(|it| it == label)
        && is_whole
        && ended.is_none_or(|it| it.timestamp() < listed_at)
}

/// What may be made known of a backup in a tenant's own store. Whoever writes there says what it likes:
/// only what the tenant's controller writes of this tenant counts, and nothing else of it is kept.
fn only_of(tenant: &str, mut backup: Backup) -> Result<Backup, String> {
    let metadata = &mut backup.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let mut labels = metadata.labels.take().unwrap_or_default();
    let mut notes = metadata.annotations.take().unwrap_or_default();
    if notes.get(names::TENANT_BACKUP_NAMESPACE).map(String::as_str) != Some(tenant)
        || backup.spec.included_namespaces.as_deref() != Some(&[tenant.to_owned()])
    {
        return Err(format!("it is not a backup of namespace {tenant}, whose store this is"));
    }
    if labels.get(names::TENANT_BACKUP_ID).map(String::as_str) != Some(name)
        || !is_name_for(tenant, name)
    {
        return Err(format!("its name is not one that backups of namespace {tenant} get"));
    }
    let status = backup.status.as_ref();
    let has_ended = status.is_some_and(|it| {
        use BackupPhase as P;
        let is_last = matches!(it.phase, Some(P::Completed | P::PartiallyFailed | P::Failed));
        is_last && it.completion_timestamp.is_some()
    });
    if !has_ended {
        return Err("it has not ended".to_owned());
    }
    labels.retain(|key, _| names::TENANT_BACKUP_LABELS.contains(&key.as_str()));
    notes.retain(|key, _| names::TENANT_BACKUP_NOTES.contains(&key.as_str()));
    metadata.labels = Some(labels);
    metadata.annotations = Some(notes);
    metadata.owner_references = None;
    at_most("spec", TENANT_SPEC_MAX_BYTES, &backup.spec)?;
    at_most("status", TENANT_REST_MAX_BYTES, &backup.status)?;
    at_most("metadata", TENANT_REST_MAX_BYTES, &backup.metadata)?;
    Ok(backup)
}

/// It is copied into the cluster, to its tenant's object, and into the status of that: others wait for it.
fn at_most(what: &str, max: usize, part: &impl serde::Serialize) -> Result<(), String> {
    let bytes = serde_json::to_vec(part).map_or(usize::MAX, |written| written.len());
    if bytes <= max {
        return Ok(());
    }
    Err(format!("its {what} has {bytes} bytes; {max} are allowed of a tenant's backup"))
}

/// Such names begin with the namespace, as far as it fits, and end with a uuid: nobody else's are like
/// that, nor those that schedules give.
fn is_name_for(tenant: &str, name: &str) -> bool {
    const NAMESPACE_KEPT: usize = 25;
    const UUID: usize = 36;
    let start = tenant.get(..NAMESPACE_KEPT).unwrap_or(tenant).trim_end_matches(['.', '-']);
    let Some((head, id)) = name.len().checked_sub(UUID).and_then(|at| name.split_at_checked(at))
    else {
        return false;
    };
    let is_id = id.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    is_id && head.starts_with(start) && head.ends_with('-')
}

/// The object that is made for a backup that was found, or nothing while it is not finished.
fn known_backup(
    mut stored: Backup,
    name: &str,
    location: &str,
    namespace: &str,
    is_known_schedule: impl Fn(&str) -> bool,
) -> Result<Option<Backup>, String> {
    use BackupPhase as P;
    if stored.metadata.name.as_deref() != Some(name) {
        let found = stored.metadata.name.as_deref().unwrap_or_default();
        return Err(format!("the object in the folder {name:?} is called {found:?}"));
    }
    let status = stored.status.get_or_insert_default();
    match status.phase {
        Some(
            P::WaitingForPluginOperations
            | P::WaitingForPluginOperationsPartiallyFailed
            | P::Finalizing
            | P::FinalizingPartiallyFailed,
        ) => {
            let now = Timestamp::now();
            if status.expiration.is_none_or(|it| it.timestamp() > now) {
                return Ok(None);
            }
            status.phase = Some(P::PartiallyFailed);
        }
        // As it stands it would be begun here.
        None | Some(P::New | P::Queued | P::ReadyToStart | P::InProgress) => return Ok(None),
        Some(_) => {}
    }
    let metadata = &mut stored.metadata;
    metadata.namespace = Some(namespace.to_owned());
    metadata.resource_version = None;
    metadata.uid = None;
    metadata.generation = None;
    metadata.managed_fields = None;
    metadata.self_link = None;
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
    metadata.finalizers = None;
    if let Some(owners) = &mut metadata.owner_references {
        owners.retain(|it| it.kind == "Schedule" && is_known_schedule(&it.uid));
    }
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(names::STORAGE_LOCATION.to_owned(), names::label_value(location));
    stored.spec.storage_location = Some(location.to_owned());
    Ok(Some(stored))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "fixtures are written in place")]
    fn found(metadata: Value, phase: &str) -> Result<Option<Backup>, String> {
        let stored = json!({"metadata": metadata, "spec": {"storageLocation": "elsewhere"},
            "status": {"phase": phase}});
        let stored = serde_json::from_value(stored).unwrap();
        known_backup(stored, "b", "here", "adm", |uid| uid == "known")
    }

    #[test]
    fn a_backup_that_is_found_belongs_here_and_keeps_its_marks() {
        let owner = |uid: &str| {
            json!({"apiVersion": "velero.io/v1", "kind": "Schedule",
            "name": "s", "uid": uid})
        };
        let metadata = json!({"name": "b", "namespace": "velero", "uid": "u", "resourceVersion": "7",
            "labels": {"mine": "x", "velero.io/storage-location": "elsewhere"},
            "annotations": {"a": "b"}, "finalizers": ["f"],
            "ownerReferences": [owner("known"), owner("strange")]});
        let backup = found(metadata, "Completed").unwrap().unwrap();
        let value = serde_json::to_value(&backup).unwrap();
        assert_eq!(
            value["metadata"],
            json!({"name": "b", "namespace": "adm",
                "labels": {"mine": "x", "velero.io/storage-location": "here"},
                "annotations": {"a": "b"}, "ownerReferences": [owner("known")]})
        );
        assert_eq!(backup.spec.storage_location.as_deref(), Some("here"));
    }

    #[test]
    fn what_is_not_finished_or_not_itself_stays_outside() {
        for phase in ["InProgress", "New", "Finalizing", "WaitingForPluginOperations"] {
            assert_eq!(found(json!({"name": "b"}), phase).unwrap(), None, "{phase}");
        }
        assert!(found(json!({"name": "b"}), "Failed").unwrap().is_some());
        assert!(found(json!({"name": "other"}), "Completed").is_err());
    }

    const ID: &str = "team-nightly-0d0b7b2c-ee76-412d-a867-2c23b8aa51ab";

    fn planted(change: impl FnOnce(&mut Value)) -> Result<Backup, String> {
        let mut value = json!({
            "metadata": {"name": ID,
                "labels": {"openshift.io/oadp": "True", "openshift.io/oadp-nab-origin-nacuuid": ID,
                    "velero.io/storage-location": "here"},
                "annotations": {"openshift.io/oadp-nab-origin-namespace": "team",
                    "openshift.io/oadp-nab-origin-name": "nightly"}},
            "spec": {"includedNamespaces": ["team"]},
            "status": {"phase": "Completed", "completionTimestamp": "2024-01-01T00:00:00Z"}});
        change(&mut value);
        only_of("team", serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_tenants_store_makes_known_that_tenants_backups_and_nothing_else_of_them() {
        assert!(planted(|_| {}).is_ok());
        let kept = planted(|it| {
            it["metadata"]["labels"]["velero.io/schedule-name"] = json!("daily");
            it["metadata"]["annotations"]["holdfast.io/run-as-user"] = json!("root");
            it["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Schedule", "name": "s", "uid": "u"}]);
        });
        assert_eq!(kept, planted(|_| {}));
        let other = "other-nightly-0d0b7b2c-ee76-412d-a867-2c23b8aa51ab";
        let owner = "/metadata/annotations/openshift.io~1oadp-nab-origin-namespace";
        let label = "/metadata/labels/openshift.io~1oadp-nab-origin-nacuuid";
        let name = |name: &str| vec![("/metadata/name", json!(name)), (label, json!(name))];
        let namespaces = "/spec/includedNamespaces";
        for (what, change) in [
            ("another's", vec![(owner, json!("b"))]),
            ("of another namespace", vec![(namespaces, json!(["b"]))]),
            ("of all", vec![(namespaces, json!(["team", "*"]))]),
            ("with a schedule's name", name("daily-20261117000000")),
            ("with another tenant's name", name(other)),
            ("for ever in the queue", vec![("/status/phase", json!("Paused"))]),
            ("without an end", vec![("/status/completionTimestamp", Value::Null)]),
        ] {
            let found = planted(|it| {
                for (pointer, value) in change {
                    *it.pointer_mut(pointer).unwrap() = value;
                }
            });
            assert!(found.is_err(), "{what}");
        }
    }

    #[test]
    fn a_backup_that_is_longer_than_a_tenants_may_be_stays_outside() {
        let long = |bytes: usize| json!("x".repeat(bytes));
        for (pointer, fits) in [
            ("/spec/excludedResources", json!([long(64 << 10)])),
            ("/status/failureReason", long(15 << 10)),
            ("/metadata/annotations/openshift.io~1oadp-nab-origin-name", long(15 << 10)),
        ] {
            let with = |value: Value| {
                planted(|it| {
                    let (parent, name) = pointer.rsplit_once('/').unwrap();
                    it.pointer_mut(parent).unwrap()[name.replace("~1", "/")] = value;
                })
            };
            let is_list = fits.is_array();
            assert!(with(fits).is_ok(), "{pointer}");
            let much = if is_list { json!([long(100 << 10)]) } else { long(17 << 10) };
            let refused = with(much).unwrap_err();
            assert!(refused.contains("bytes; "), "{pointer}: {refused}");
        }
    }

    #[test]
    fn a_tenant_has_room_once_however_many_locations_it_has() {
        let location = |name: &str, tenant: Option<&str>| -> Arc<BackupStorageLocation> {
            let notes = tenant.map(|it| json!({"openshift.io/oadp-nabsl-origin-namespace": it}));
            let value = json!({"metadata": {"name": name, "annotations": notes}});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let backup = |location: &str| -> Arc<Backup> {
            let value = json!({"metadata": {"name": "b"}, "spec": {"storageLocation": location}});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let locations = [
            location("a1", Some("a")),
            location("a2", Some("a")),
            location("b", Some("b")),
            location("ours", None),
        ];
        let backups: Vec<_> = ["a1", "a1", "b", "ours"].map(backup).into();
        let left = |at: usize| room(&locations[at], &locations, &backups);
        assert_eq!(left(0), TENANT_BACKUPS_MAX - 2);
        assert_eq!(left(1), TENANT_BACKUPS_MAX - 2);
        assert_eq!(left(2), TENANT_BACKUPS_MAX - 1);
        assert_eq!(left(3), usize::MAX);
    }

    #[test]
    fn a_backup_that_ended_after_the_list_was_made_is_not_missing_in_it() {
        let listed_at = "2024-01-01T12:00:00Z".parse().unwrap();
        let backup = |phase: &str, ended: &str| -> Backup {
            serde_json::from_value(json!({"metadata": {"name": "b",
                "labels": {"velero.io/storage-location": "here"}}, "spec": {},
                "status": {"phase": phase, "completionTimestamp": ended}}))
            .unwrap()
        };
        assert!(was_whole(&backup("Completed", "2024-01-01T11:59:00Z"), "here", listed_at));
        assert!(!was_whole(&backup("Completed", "2024-01-01T12:00:30Z"), "here", listed_at));
        assert!(!was_whole(&backup("Failed", "2024-01-01T11:59:00Z"), "here", listed_at));
        assert!(!was_whole(&backup("Completed", "2024-01-01T11:59:00Z"), "there", listed_at));
    }

    #[tokio::test]
    async fn a_store_of_a_tenant_is_not_waited_for_without_end() {
        let with = |notes: Value| -> BackupStorageLocation {
            serde_json::from_value(json!({"metadata": {"name": "l", "annotations": notes}}))
                .unwrap()
        };
        let tenants = with(json!({"openshift.io/oadp-nabsl-origin-namespace": "team"}));
        let late = in_time(&tenants, Duration::ZERO, std::future::pending::<()>()).await;
        assert_eq!(late, Err("it took longer than 0 s".to_owned()));
        let slow = tokio::task::yield_now();
        assert_eq!(
            in_time(&with(json!({})), Duration::ZERO, slow).await,
            Ok(()),
            "ours may be slow"
        );
    }

    #[test]
    fn a_tenant_cannot_have_its_location_looked_at_all_the_time() {
        let asked = GoDuration::from("1ns");
        let usual = Duration::from_mins(1);
        assert_eq!(period(Some(&asked), usual, false), Duration::from_nanos(1));
        assert_eq!(period(Some(&asked), usual, true), TENANT_PERIOD_MIN);
        assert_eq!(period(Some(&GoDuration::from("0s")), usual, true), Duration::ZERO);
        assert_eq!(period(None, usual, true), usual);
    }

    #[test]
    fn periods_of_zero_are_never_due_twice() {
        let now = Timestamp::from_second(100).unwrap();
        let last = Some(Time::new(Timestamp::from_second(70).unwrap()));
        assert_eq!(due(None, Duration::ZERO, now), Some(Duration::ZERO));
        assert_eq!(due(last, Duration::ZERO, now), None);
        assert_eq!(due(last, Duration::from_mins(1), now), Some(Duration::from_secs(30)));
        assert_eq!(due(last, Duration::from_secs(20), now), Some(Duration::ZERO));
    }
}
