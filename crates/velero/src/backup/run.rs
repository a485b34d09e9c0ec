//! One backup, from its start to its end.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::scalar::Time;
use api::velero::{
    Backup, BackupPhase, BackupProgress, BackupSpec, BackupStatus, BackupStorageLocation,
    HookCount, VolumeSnapshotLocation,
};
use blobs::{Key, Parts};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Counts;
use super::collect::{Collector, ResourceList};
use super::decide::{self, Defaults, Observed, ServerVersion};
use super::machine::{Stage, stage};
use super::pack::Packer;
use super::queue::KIND;
use crate::catalog::Catalog;
use crate::door::words;
use crate::home::Home;
use crate::journal::{Journal, Place, packed};
use crate::layout::BackupFile;
use crate::names;
use crate::selection::Selection;
use crate::tarball::Limits;
use crate::volumes::Taken;
use crate::world::{Opened, World, is_tenants};

const SOURCE: &str = "velero/backup";
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// For a whole backup to a store of a tenant's own.
const TENANTS_WITHIN: Duration = Duration::from_hours(1);

/// Why a backup as a whole failed.
#[derive(Debug)]
struct Fatal {
    reason: String,
    /// Whether the end is told with its time. Peers leave it out where a store could not be opened or
    /// written, and their clients know it so.
    is_timed: bool,
    /// The object may be in the store all the same: its last write was under way.
    may_have_arrived: bool,
}

impl Fatal {
    fn untimed(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_timed: false, may_have_arrived: false }
    }

    fn timed(reason: impl Into<String>) -> Self {
        Self { is_timed: true, ..Self::untimed(reason) }
    }

    fn unanswered(self) -> Self {
        Self { may_have_arrived: true, ..self }
    }
}

/// Works on a backup that was released from the queue, to whatever end.
pub(crate) async fn run(world: &World, name: &str) {
    let Some(begun) = begin(world, name).await else { return };
    if begun.status.as_ref().and_then(|it| it.phase.as_ref()) != Some(&BackupPhase::InProgress) {
        return;
    }
    let clock = tokio::time::Instant::now();
    let done = match while_wanted(Box::pin(make(world, &begun)), gone(world, &begun)).await {
        Ok(done) => done,
        Err(fatal) => {
            tracing::warn!(backup.name = name, reason = fatal.reason, "the backup failed");
            let remains = if fatal.may_have_arrived {
                look_for(world, &begun).await
            } else {
                Remains::Nothing
            };
            let (done, keeps_data) = end(&begun, &fatal, remains);
            if !keeps_data {
                crate::volumes::discard(world, &begun).await;
            }
            done
        }
    };
    let phase = done.status.as_ref().and_then(|it| it.phase.clone());
    tracing::info!(backup.name = name, ?phase, took_ms = %clock.elapsed().as_millis(), "backup ended");
    settle(world, &begun, &done).await;
}

/// Writes the end, however often it takes: without it the backup would seem to run on.
/// It goes into the object that was begun, and into no other of its name.
async fn settle(world: &World, begun: &Backup, done: &Backup) {
    let name = begun.metadata.name.as_deref().unwrap_or_default();
    loop {
        let failure = match world.fresh::<Backup>(name).await {
            Ok(Some(now)) if may_end(begun, &now) => {
                let mut next = now.clone();
                next.status.clone_from(&done.status);
                match world.backups.update(&now, &next).await {
                    Ok(_) => return,
                    Err(reconcile::Failure::Api { source, .. })
                        if matches!(crate::door::code(&source), Some(404 | 422)) =>
                    {
                        tracing::warn!(error = %source, "the end of a backup is not written");
                        return;
                    }
                    Err(failure) => failure,
                }
            }
            Ok(_) => {
                tracing::warn!(backup.name = name, "the backup that ended is not there any more");
                return;
            }
            Err(failure) => failure,
        };
        tracing::warn!(error = %telemetry::Chain(&failure), "the end of a backup is not written yet");
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Whether this is the object that was begun, and nobody else has ended it.
fn may_end(begun: &Backup, now: &Backup) -> bool {
    let phase = now.status.as_ref().and_then(|it| it.phase.as_ref());
    now.metadata.uid == begun.metadata.uid && stage(phase) == Stage::Working
}

const ENDED: &str = "another server has taken this one for gone, and has ended the backup";
const DELETED: &str = "the backup was deleted while it ran";

/// Why a backup is not to be carried on, if so. `now` is the object that has its name. One that went on
/// after it was deleted would be counted by nobody: whoever deletes what runs would have any number of them.
fn unwanted(begun: &Backup, now: Option<&Backup>) -> Option<&'static str> {
    match now.filter(|now| now.metadata.uid == begun.metadata.uid) {
        None => Some(DELETED),
        Some(now) if now.metadata.deletion_timestamp.is_some() => Some(DELETED),
        Some(now) if may_end(begun, now) => None,
        Some(_) => Some(ENDED),
    }
}

/// Until nobody wants it any more: why.
async fn gone(world: &World, begun: &Backup) -> &'static str {
    let name = begun.metadata.name.as_deref().unwrap_or_default();
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        if unwanted(begun, world.backups.get(&world.key(name)).as_deref()).is_none() {
            continue;
        }
        // One that cannot be read is not absent, and a cache may be late.
        if let Ok(now) = world.fresh::<Backup>(name).await
            && let Some(why) = unwanted(begun, now.as_ref())
        {
            return why;
        }
    }
}

/// What is made may have arrived when it is seen that nobody wants it: the store says.
async fn while_wanted<T>(
    work: impl Future<Output = Result<T, Fatal>>,
    gone: impl Future<Output = &'static str>,
) -> Result<T, Fatal> {
    tokio::select! {
        done = work => done,
        why = gone => Err(Fatal::timed(why).unanswered()),
    }
}

/// Writes defaults and the verdict. `None` if somebody else changed the object: the queue looks again.
async fn begin(world: &World, name: &str) -> Option<Arc<Backup>> {
    let backup = world.backups.get(&world.key(name))?;
    if stage(backup.status.as_ref().and_then(|it| it.phase.as_ref())) != Stage::Ready {
        return None;
    }
    let versions = versions(world).await;
    let known = async {
        let excluded = excluded_namespaces(world).await?;
        Ok((excluded, absent(world, &backup.spec).await?, lost(world, &backup).await?))
    };
    let (excluded, absent, lost) = match known.await {
        Ok(known) => known,
        Err(error) => {
            let error: kube::Error = error;
            tracing::warn!(backup.name = name, error = %telemetry::Chain(&error), "the backup does not begin yet");
            tokio::time::sleep(RETRY_AFTER).await;
            return None;
        }
    };
    let locations = world.locations.list();
    let seen = Observed {
        backup: &backup,
        locations: &locations,
        excluded_namespaces: &excluded,
        no_snapshot_locations: &absent,
        lost: lost.as_deref(),
        versions: &versions,
        now: Timestamp::now(),
    };
    let defaults = Defaults {
        ttl: world.settings.default_ttl,
        location: world.settings.default_location.clone(),
    };
    let begun = decide::begin(&seen, &defaults);
    match world.backups.update(&backup, &begun).await {
        Ok(written) => Some(written),
        Err(failure) if world.refused.note(KIND, &backup.metadata, &failure) => None,
        Err(failure) => {
            tracing::warn!(backup.name = name, error = %telemetry::Chain(&failure), "the backup does not begin yet");
            tokio::time::sleep(RETRY_AFTER).await;
            None
        }
    }
}

/// The namespace that a tenant asked for a backup of.
async fn home(world: &World, backup: &Backup) -> Result<Option<Home>, kube::Error> {
    let notes = backup.metadata.annotations.as_ref();
    Home::of(&world.context.client, notes, names::TENANT_BACKUP_NAMESPACE).await
}

async fn lost(world: &World, backup: &Backup) -> Result<Option<String>, kube::Error> {
    match home(world, backup).await? {
        Some(home) => home.loss(&world.context.client).await,
        None => Ok(None),
    }
}

async fn versions(world: &World) -> ServerVersion {
    match world.context.client.apiserver_version().await {
        Ok(it) => ServerVersion { git: it.git_version, major: it.major, minor: it.minor },
        Err(_) => ServerVersion::default(),
    }
}

async fn excluded_namespaces(world: &World) -> Result<Vec<String>, kube::Error> {
    let api: kube::Api<k8s_openapi::api::core::v1::Namespace> =
        kube::Api::all(world.context.client.clone());
    let labelled = format!("{}=true", names::EXCLUDE_FROM_BACKUP);
    let params = kube::api::ListParams::default().labels(&labelled);
    let list = api.list_metadata(&params).await?;
    Ok(list.items.into_iter().filter_map(|it| it.metadata.name).collect())
}

/// The locations for snapshots that a backup names, and that are not there.
async fn absent(world: &World, spec: &BackupSpec) -> Result<Vec<String>, kube::Error> {
    let api: kube::Api<VolumeSnapshotLocation> =
        kube::Api::namespaced(world.context.client.clone(), &world.settings.namespace);
    let mut absent = Vec::new();
    for name in spec.volume_snapshot_locations.iter().flatten() {
        // What is no name is not asked for: it would be another question, or none.
        let is_name = !name.is_empty()
            && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"-.".contains(&it))
            && !name.starts_with('.');
        if !is_name || api.get_metadata_opt(name).await?.is_none() {
            absent.push(name.clone());
        }
    }
    Ok(absent)
}

/// How a backup ends that could not be carried to its end, and whether its data of volumes stays: as
/// long as somebody may restore from it.
fn end(begun: &Backup, fatal: &Fatal, remains: Remains) -> (Backup, bool) {
    match remains {
        Remains::Whole(status) => {
            let mut done = begun.clone();
            done.status = Some(*status);
            (done, true)
        }
        Remains::Nothing | Remains::Another => (failed(begun, fatal), false),
        Remains::Unknown(why) => {
            let mut done = failed(begun, fatal);
            let status = done.status.get_or_insert_default();
            let reason = &fatal.reason;
            status.failure_reason = Some(format!(
                "{reason}; it may be in the store all the same, which does not say ({why}): its \
                 data of volumes is kept until this backup is deleted"
            ));
            (done, true)
        }
    }
}

fn failed(begun: &Backup, fatal: &Fatal) -> Backup {
    let mut done = begun.clone();
    let status = done.status.get_or_insert_default();
    status.phase = Some(BackupPhase::Failed);
    status.failure_reason = Some(fatal.reason.clone());
    if fatal.is_timed {
        status.completion_timestamp = Some(Time::new(Timestamp::now()));
    }
    done
}

/// A store of a tenant's own may be as slow as the tenant likes; others wait behind it. What the volumes
/// take is not up to the store.
fn limit(location: &BackupStorageLocation) -> Option<Duration> {
    is_tenants(location).then_some(TENANTS_WITHIN)
}

async fn in_time<T>(
    limit: Option<Duration>,
    storing: impl Future<Output = Result<T, Fatal>>,
) -> Result<T, Fatal> {
    let Some(limit) = limit else { return storing.await };
    tokio::time::timeout(limit, storing).await.unwrap_or_else(|_| {
        let minutes = limit.as_secs() / 60;
        let reason = format!("the store did not take the backup within {minutes} minutes");
        Err(Fatal::timed(reason).unanswered())
    })
}

/// The store has its time, and then the volumes have theirs.
async fn in_turn<S, T>(
    limit: Option<Duration>,
    storing: impl Future<Output = Result<S, Fatal>>,
    taking: impl AsyncFnOnce(S) -> T,
) -> Result<T, Fatal> {
    let stored = in_time(limit, storing).await?;
    Ok(taking(stored).await)
}

async fn make(world: &World, begun: &Backup) -> Result<Backup, Fatal> {
    let name = begun.metadata.name.as_deref().unwrap_or_default();
    let location = begun.spec.storage_location.as_deref().unwrap_or_default();
    let location = world
        .location(location)
        .ok_or_else(|| Fatal::untimed(format!("backup storage location {location} not found")))?;
    let opened = world.open(&location).await.map_err(Fatal::untimed)?;
    let object_key = key(BackupFile::Object, name)?;
    match opened.store.head(&object_key).await {
        Ok(_) => return Err(Fatal::timed("backup already exists in object storage")),
        Err(error) if error.is_not_found() => {}
        Err(error) => {
            let error = opened.told(&error);
            return Err(Fatal::untimed(format!(
                "error checking if backup already exists in object storage: {error}"
            )));
        }
    }
    let (catalog, silent) = Catalog::ask(&world.context.client)
        .await
        .map_err(|error| Fatal::timed(format!("error listing kinds: {}", words(&error))))?;
    let selection = Selection::of(&begun.spec, &catalog).map_err(Fatal::timed)?;
    let mut journal = Journal::new("backup", &world.settings.namespace, name);
    journal.info(SOURCE, "Starting backup", &[]);
    tell_silent(&mut journal, &silent);
    // A group that does not answer is told already.
    for name in Selection::strangers(&begun.spec, &catalog) {
        let message =
            format!("nothing is called {name:?} in this cluster: none of it is backed up");
        journal.warn(Place::Server, SOURCE, &message);
    }
    let limit = limit(&location);
    let to = To { opened: &opened, within: limit, limits: limits(&location) };
    let upload = upload(world, begun, &to, &catalog, &selection, journal);
    let gathered = Box::pin(upload).await?;
    // A server that stood still may have been taken for gone, and what it had stored may be removed.
    if let Ok(now) = world.fresh::<Backup>(name).await
        && let Some(why) = unwanted(begun, now.as_ref())
    {
        return Err(Fatal::timed(why).unanswered());
    }
    in_time(limit, finish(begun, &opened, gathered)).await
}

/// The objects of a group that does not answer are missing, and the backup is then not whole.
fn tell_silent(journal: &mut Journal, silent: &[String]) {
    for group in silent {
        let message = format!("a group of the API does not answer: {group}");
        if is_only_measured(group) {
            journal.warn(Place::Server, SOURCE, &message);
        } else {
            journal.error(Place::Server, SOURCE, &message);
        }
    }
}

/// Groups of what is measured and never stored: they are often down, and nothing of them is kept.
fn is_only_measured(group: &str) -> bool {
    let name = group.split_once('/').map_or(group, |(name, _)| name);
    name == "metrics.k8s.io" || name.ends_with(".metrics.k8s.io")
}

fn key(file: BackupFile, name: &str) -> Result<Key, Fatal> {
    file.key(name).map_err(|error| Fatal::timed(error.to_string()))
}

/// What is known when the tarball is in the store.
struct Gathered {
    journal: Journal,
    listed: ResourceList,
    counts: Counts,
    volumes: Taken,
}

/// Where a backup goes.
struct To<'t> {
    opened: &'t Opened,
    within: Option<Duration>,
    limits: Limits,
}

/// Of the archive: what a restore from there will read.
fn limits(location: &BackupStorageLocation) -> Limits {
    if is_tenants(location) { Limits::of_tenants() } else { Limits::default() }
}

async fn upload(
    world: &World,
    begun: &Backup,
    to: &To<'_>,
    catalog: &Catalog,
    selection: &Selection,
    journal: Journal,
) -> Result<Gathered, Fatal> {
    let name = begun.metadata.name.as_deref().unwrap_or_default();
    let (packer, body) = Packer::new(Timestamp::now().as_second());
    let mut collector =
        Collector::new(&world.door, catalog, selection, packer, journal, name, to.limits);
    let home = home(world, begun).await.map_err(|error| Fatal::timed(words(&error)))?;
    collector.home = home.map(|home| (home, &world.context.client));
    collector.ordered = ordered(&begun.spec, catalog);
    let counts = collector.count.clone();
    let progress = report_progress(world, begun, counts.subscribe());
    let contents = key(BackupFile::Contents, name)?;
    let parts = Parts { at_once: 2, ..Parts::default() };
    let sending = to.opened.store.put_stream(&contents, body, &parts);
    let gathering = async move {
        let done = collector.run().await;
        let Collector { packer, journal, listed, claims, lost, .. } = collector;
        // An upload that failed says why itself.
        match &lost {
            None if done.is_ok() => drop(packer.finish().await),
            None => {}
            Some(why) => packer.cut_off(why).await,
        }
        (journal, listed, claims, lost)
    };
    let storing = async {
        let (sent, (journal, listed, claims, lost)) = tokio::join!(sending, gathering);
        if let Some(why) = lost {
            return Err(Fatal::timed(why));
        }
        sent.map_err(|error| {
            Fatal::untimed(format!("error uploading the contents: {}", to.opened.told(&error)))
        })?;
        Ok((journal, listed, claims))
    };
    let work = in_turn(to.within, storing, async |(mut journal, listed, claims)| {
        let volumes = crate::volumes::take(world, begun, &claims, &mut journal, &counts).await;
        let counts = *counts.borrow();
        Gathered { journal, listed, counts, volumes }
    });
    tokio::select! {
        done = work => done,
        never = progress => match never {},
    }
}

async fn report_progress(
    world: &World,
    begun: &Backup,
    counts: watch::Receiver<Counts>,
) -> Infallible {
    let mut told = begun.clone();
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        let now = *counts.borrow();
        let mut next = told.clone();
        show(next.status.get_or_insert_default(), now);
        if next != told && world.backups.merge(&told, &next).await.is_ok() {
            told = next;
        }
    }
}

fn show(status: &mut BackupStatus, now: Counts) {
    let Counts { items, volumes, volumes_done } = now;
    status.progress =
        Some(BackupProgress { total_items: Some(items), items_backed_up: Some(items) });
    if volumes > 0 {
        status.volume_snapshots_attempted = Some(volumes);
        status.volume_snapshots_completed = Some(volumes_done);
    }
}

fn ordered(spec: &BackupSpec, catalog: &Catalog) -> BTreeMap<String, Vec<String>> {
    let lists = spec.ordered_resources.iter().flatten();
    lists
        .flat_map(|(resource, list)| {
            let places: Vec<String> = list.split(',').map(|it| it.trim().to_owned()).collect();
            catalog.resolve(resource).into_iter().map(move |it| (it, places.clone()))
        })
        .collect()
}

/// The small files, and last the object: until it is there, there is no backup.
async fn finish(begun: &Backup, opened: &Opened, gathered: Gathered) -> Result<Backup, Fatal> {
    let name = begun.metadata.name.as_deref().unwrap_or_default();
    let Gathered { mut journal, listed, counts, volumes } = gathered;
    journal.info(SOURCE, &format!("Backed up a total of {} items", counts.items), &[]);
    let mut done = begun.clone();
    let status = done.status.get_or_insert_default();
    complete(status, &journal, counts);
    let small = [
        (BackupFile::Results, journal.results()),
        (BackupFile::ResourceList, packed(&listed)),
        (BackupFile::VolumeSnapshots, packed(&volumes.snapshots)),
        (BackupFile::PodVolumeBackups, packed(&Value::Null)),
        (BackupFile::ItemOperations, packed(&json!([]))),
        (BackupFile::VolumeInfo, packed(&volumes.volumes)),
    ];
    for (file, bytes) in small {
        put(opened, &key(file, name)?, bytes).await?;
    }
    // A backup without its log is a backup all the same.
    if let Err(fatal) = put(opened, &key(BackupFile::Log, name)?, journal.into_log()).await {
        tracing::warn!(backup.name = name, reason = fatal.reason, "the log is not kept");
    }
    // Whoever took this one for abandoned meanwhile has removed what was there of it.
    if let Err(error) = opened.store.head(&key(BackupFile::Contents, name)?).await {
        let error = opened.told(&error);
        return Err(Fatal::untimed(format!("the contents cannot be found in the store: {error}")));
    }
    done.metadata.managed_fields = None;
    let text = serde_json::to_vec_pretty(&done)
        .map_err(|error| Fatal::timed(format!("cannot write the backup as JSON: {error}")))?;
    put(opened, &key(BackupFile::Object, name)?, text).await.map_err(Fatal::unanswered)?;
    Ok(done)
}

async fn put(opened: &Opened, key: &Key, bytes: Vec<u8>) -> Result<(), Fatal> {
    let put = opened.store.put(key, Bytes::from(bytes)).await;
    put.map(drop)
        .map_err(|error| Fatal::untimed(format!("error uploading {key}: {}", opened.told(&error))))
}

fn complete(status: &mut BackupStatus, journal: &Journal, counts: Counts) {
    status.phase = Some(if journal.errors.count == 0 {
        BackupPhase::Completed
    } else {
        BackupPhase::PartiallyFailed
    });
    status.errors = journal.errors.counted();
    status.warnings = journal.warnings.counted();
    show(status, counts);
    status.hook_status = Some(HookCount::default());
    status.completion_timestamp = Some(Time::new(Timestamp::now()));
}

/// A backup that a process that is gone was working on. Where everything had arrived in the store, it is
/// what the store says; else it has failed, and what lies in the store of it is removed.
pub(crate) async fn abandoned(world: &World, backup: &Backup) {
    if stage(backup.status.as_ref().and_then(|it| it.phase.as_ref())) != Stage::Working {
        // Somebody else has ended it since it was looked at.
        return;
    }
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let found = match look_for(world, backup).await {
        Remains::Whole(status) => Some(*status),
        Remains::Nothing | Remains::Another | Remains::Unknown(_) => None,
    };
    let mut done = backup.clone();
    done.status = found.or_else(|| {
        let mut status = backup.status.clone().unwrap_or_default();
        let phase = status.phase.as_ref().map_or("InProgress", |it| it.as_str());
        status.failure_reason = Some(format!(
            "found a backup with status \"{phase}\" during the server starting, mark it as \"Failed\""
        ));
        status.phase = Some(BackupPhase::Failed);
        status.completion_timestamp = Some(Time::new(Timestamp::now()));
        Some(status)
    });
    match world.backups.update(backup, &done).await {
        Ok(_) => tracing::info!(backup.name = name, "a backup was found that nobody works on"),
        Err(failure) if world.refused.note(KIND, &backup.metadata, &failure) => {}
        Err(failure) => {
            tracing::warn!(backup.name = name, error = %telemetry::Chain(&failure), "looking again");
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}

const RECOVER_WITHIN: Duration = Duration::from_secs(10);
/// How often a store that does not answer is asked: a backup that is whole is not given up at its first
/// stumble, and those that wait are not kept for ever.
const RECOVER_TRIES: u32 = 6;
const OBJECT_MAX_BYTES: u64 = 4 << 20;

/// What a store says of a backup that nobody works on.
#[derive(Debug, PartialEq)]
enum Remains {
    Whole(Box<BackupStatus>),
    Nothing,
    /// What lies there is not the end of this one.
    Another,
    /// It did not say.
    Unknown(String),
}

/// What the store has of a backup; it is asked for a while.
async fn look_for(world: &World, backup: &Backup) -> Remains {
    let mut last = String::new();
    for _ in 0..RECOVER_TRIES {
        let looking = tokio::time::timeout(RECOVER_WITHIN, recover(world, backup)).await;
        match looking.unwrap_or_else(|_| Remains::Unknown("it does not answer".to_owned())) {
            Remains::Unknown(why) => {
                let name = backup.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(backup.name = name, why, "the store cannot be asked for a backup");
                tokio::time::sleep(RETRY_AFTER).await;
                last = why;
            }
            said => return said,
        }
    }
    Remains::Unknown(last)
}

async fn recover(world: &World, backup: &Backup) -> Remains {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let (Ok(key), Ok(folder)) = (BackupFile::Object.key(name), crate::layout::backup_folder(name))
    else {
        return Remains::Nothing;
    };
    let location = backup.spec.storage_location.as_deref().and_then(|it| world.location(it));
    let opened = match location {
        Some(location) => world.open(&location).await,
        // It may be set up again, over the same store.
        None => Err("its storage location is not there".to_owned()),
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(why) => return Remains::Unknown(why),
    };
    let found = blobs::get_limited(opened.store.as_ref(), &key, OBJECT_MAX_BYTES).await;
    let remains = remains(backup, found.map(|blob| blob.bytes));
    if remains == Remains::Nothing {
        // Only now it is sure that nobody will ever restore from it.
        crate::volumes::discard(world, backup).await;
    }
    if remains == Remains::Nothing
        && let Err(error) = blobs::delete_all(opened.store.as_ref(), &folder).await
    {
        tracing::warn!(backup.name = name, error = %telemetry::Chain(&error), "parts of a backup stay in the store");
    }
    remains
}

fn remains(backup: &Backup, found: Result<Bytes, blobs::Error>) -> Remains {
    let bytes = match found {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Remains::Nothing,
        Err(error) => return Remains::Unknown(telemetry::Chain(&error).to_string()),
    };
    let stored = serde_json::from_slice::<Backup>(&bytes).ok();
    let own = stored.filter(|it| it.metadata.uid == backup.metadata.uid);
    match own.and_then(|it| it.status).filter(|it| it.completion_timestamp.is_some()) {
        Some(status) => Remains::Whole(Box::new(status)),
        None => Remains::Another,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "fixtures are written in place")]
    fn backup(uid: &str, status: Value) -> Backup {
        let value = json!({"metadata": {"name": "b", "uid": uid}, "spec": {}, "status": status});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_end_is_written_into_what_was_begun_and_nothing_else() {
        let phase = |it: &str| json!({"phase": it});
        let begun = backup("1", phase("InProgress"));
        assert!(may_end(&begun, &begun));
        assert!(!may_end(&begun, &backup("2", phase("InProgress"))), "made anew");
        assert!(!may_end(&begun, &backup("2", json!({}))), "made anew, and not begun");
        assert!(!may_end(&begun, &backup("1", phase("Failed"))), "another has ended it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_backup_that_is_deleted_or_ended_by_another_is_not_carried_on() {
        let phase = |it: &str| json!({"phase": it});
        let begun = backup("1", phase("InProgress"));
        let leaving: Backup = serde_json::from_value(json!({"metadata": {"name": "b", "uid": "1",
            "deletionTimestamp": "2024-01-01T00:00:00Z"}, "spec": {}, "status": {"phase": "InProgress"}}))
        .unwrap();
        let anew = backup("2", phase("InProgress"));
        for (now, wanted) in [
            (Some(&begun), None),
            (Some(&backup("1", phase("Failed"))), Some(ENDED)),
            (Some(&anew), Some(DELETED)),
            (Some(&leaving), Some(DELETED)),
            (None, Some(DELETED)),
        ] {
            assert_eq!(unwanted(&begun, now), wanted, "{now:?}");
        }
        let never = std::future::pending::<Result<(), Fatal>>();
        let ended = while_wanted(never, std::future::ready(DELETED)).await.unwrap_err();
        assert!(ended.reason == DELETED && ended.may_have_arrived, "{ended:?}");
        let slow = async {
            tokio::time::sleep(PROGRESS_EVERY * 60).await;
            Ok(())
        };
        assert!(while_wanted(slow, std::future::pending()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenants_store_has_an_hour_and_the_data_of_volumes_its_own_time() {
        let limit = Some(TENANTS_WITHIN);
        let stored = async || Ok::<_, Fatal>(());
        let taking = async |()| tokio::time::sleep(TENANTS_WITHIN * 3).await;
        assert!(in_turn(limit, stored(), taking).await.is_ok());
        let never = std::future::pending::<Result<(), Fatal>>();
        let late = in_turn(limit, never, taking).await.unwrap_err();
        assert!(late.reason.contains("within 60 minutes") && late.may_have_arrived, "{late:?}");
        let slow = async {
            tokio::time::sleep(TENANTS_WITHIN * 2).await;
            Ok(())
        };
        assert!(in_turn(None, slow, taking).await.is_ok(), "ours may be slow");
    }

    #[tokio::test]
    async fn a_location_that_is_gone_does_not_say_that_nothing_arrived_in_it() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            let body = kube::client::Body::from(br#"{"kind":"Status","code":404}"#.to_vec());
            let answer = http::Response::builder().status(404).body(body).unwrap();
            std::future::ready(Ok::<_, Infallible>(answer))
        });
        let tasks = tasks::Tasks::new();
        let world = crate::world::tests::world(kube::Client::new(service, "default"), &tasks);
        let mut begun = backup("1", json!({"phase": "InProgress"}));
        begun.spec.storage_location = Some("gone".to_owned());
        assert!(matches!(recover(&world, &begun).await, Remains::Unknown(_)));
    }

    #[tokio::test]
    async fn what_is_no_name_is_absent_and_not_asked_for() {
        let service = tower::service_fn(|asked: http::Request<kube::client::Body>| {
            let path = asked.uri().path().to_owned();
            let is_there = path.ends_with("/volumesnapshotlocations/there");
            let (code, body) = if is_there {
                (200, json!({"metadata": {"name": "there"}}))
            } else {
                (404, json!({"kind": "Status", "reason": "NotFound", "code": 404}))
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let answer = http::Response::builder().status(code).body(body).unwrap();
            std::future::ready(Ok::<_, Infallible>(answer))
        });
        let tasks = tasks::Tasks::new();
        let world = crate::world::tests::world(kube::Client::new(service, "default"), &tasks);
        let spec = json!({"volumeSnapshotLocations": ["there", "gone", "", "../there", "a/there"]});
        let spec: BackupSpec = serde_json::from_value(spec).unwrap();
        let absent = absent(&world, &spec).await.unwrap();
        assert_eq!(absent, ["gone", "", "../there", "a/there"]);
    }

    #[tokio::test]
    async fn what_another_server_has_begun_is_not_begun_again() {
        for (phase, begins) in [("ReadyToStart", true), ("InProgress", false), ("Deleting", false)]
        {
            let found = json!({"apiVersion": "velero.io/v1", "kind": "Backup",
                "metadata": {"name": "b", "namespace": "adm", "uid": "1", "resourceVersion": "1"},
                "spec": {}, "status": {"phase": phase}});
            let tasks = tasks::Tasks::new();
            let client = crate::world::tests::server("backups", found);
            let world = crate::world::tests::world(client, &tasks);
            world.backups.ready().await;
            assert_eq!(begin(&world, "b").await.is_some(), begins, "{phase}");
        }
    }

    fn gathered() -> Gathered {
        Gathered {
            journal: Journal::new("backup", "adm", "b"),
            listed: ResourceList::new(),
            counts: Counts::default(),
            volumes: Taken::default(),
        }
    }

    fn opened(store: Arc<dyn blobs::Store>) -> Opened {
        let root = std::path::PathBuf::new();
        Opened {
            store,
            place: crate::place::Place::Directory { bucket: root.clone(), root },
            credentials: blobs::Credentials::Anonymous,
            is_tenants: false,
        }
    }

    #[tokio::test]
    async fn a_backup_whose_last_write_is_not_answered_is_what_the_store_says() {
        use blobs::wrap::{Fault, Faults, Faulty};
        let begun = backup("1", json!({"phase": "InProgress"}));
        let (contents, object) = (BackupFile::Contents.key("b"), BackupFile::Object.key("b"));
        let (contents, object) = (contents.unwrap(), object.unwrap());
        // How many calls it takes, to lose the answer to the last.
        let (store, faults) = (blobs::memory(), Faults::default());
        let counted = opened(Faulty::around(Arc::clone(&store), faults.clone()));
        store.put(&contents, Bytes::from_static(b"x")).await.unwrap();
        finish(&begun, &counted, gathered()).await.unwrap();
        let last = faults.calls();
        for (fault, is_whole) in [(Fault::After, true), (Fault::Before, false)] {
            let (store, faults) = (blobs::memory(), Faults::default());
            let lossy = opened(Faulty::around(Arc::clone(&store), faults.clone()));
            store.put(&contents, Bytes::from_static(b"x")).await.unwrap();
            faults.plan(last, fault);
            let fatal = finish(&begun, &lossy, gathered()).await.unwrap_err();
            assert!(fatal.may_have_arrived, "{fatal:?}");
            let found = blobs::get_limited(store.as_ref(), &object, OBJECT_MAX_BYTES).await;
            let remains = remains(&begun, found.map(|blob| blob.bytes));
            let (done, keeps_data) = end(&begun, &fatal, remains);
            let phase = done.status.unwrap().phase.unwrap();
            assert_eq!(keeps_data, is_whole, "{fault:?}");
            assert_eq!(phase == BackupPhase::Completed, is_whole, "{fault:?}: {phase:?}");
        }
    }

    #[test]
    fn data_stays_while_a_store_does_not_say_whether_it_has_the_backup() {
        let begun = backup("1", json!({"phase": "InProgress"}));
        let fatal = Fatal::untimed("error uploading b").unanswered();
        let (done, keeps_data) = end(&begun, &fatal, Remains::Unknown("down".to_owned()));
        let status = done.status.unwrap();
        assert!(keeps_data && status.phase == Some(BackupPhase::Failed));
        assert!(status.failure_reason.unwrap().contains("may be in the store"));
        assert!(!end(&begun, &fatal, Remains::Another).1);
    }

    #[tokio::test]
    async fn a_backup_whose_contents_are_gone_is_none() {
        let opened = opened(blobs::memory());
        let begun = backup("1", json!({"phase": "InProgress"}));
        let fatal = finish(&begun, &opened, gathered()).await.unwrap_err();
        assert!(fatal.reason.contains("contents cannot be found"), "{fatal:?}");
        assert!(!fatal.may_have_arrived, "the object was never sent");
        let object = BackupFile::Object.key("b").unwrap();
        assert!(opened.store.head(&object).await.unwrap_err().is_not_found());
        let contents = BackupFile::Contents.key("b").unwrap();
        opened.store.put(&contents, Bytes::from_static(b"x")).await.unwrap();
        assert!(finish(&begun, &opened, gathered()).await.is_ok());
        assert!(opened.store.head(&object).await.is_ok());
    }

    #[test]
    fn a_backup_without_the_objects_of_a_group_is_not_whole() {
        let mut journal = Journal::new("backup", "adm", "b");
        tell_silent(&mut journal, &["metrics.k8s.io/v1beta1: down".to_owned()]);
        assert_eq!((journal.errors.count, journal.warnings.count), (0, 1));
        tell_silent(&mut journal, &["example.com/v1: down".to_owned()]);
        assert_eq!((journal.errors.count, journal.warnings.count), (1, 1));
    }

    #[test]
    fn a_store_that_does_not_say_is_not_one_that_has_nothing() {
        let begun = backup("1", json!({"phase": "InProgress"}));
        let key = BackupFile::Object.key("b").unwrap();
        let bytes = |it: &Backup| Ok(Bytes::from(serde_json::to_vec(it).unwrap()));
        let whole = json!({"phase": "Completed", "completionTimestamp": "2024-01-01T00:00:00Z"});
        let found = remains(&begun, bytes(&backup("1", whole.clone())));
        assert!(matches!(found, Remains::Whole(_)), "{found:?}");
        assert_eq!(remains(&begun, bytes(&backup("2", whole))), Remains::Another);
        let gone = blobs::Error::NotFound { key: key.clone() };
        assert_eq!(remains(&begun, Err(gone)), Remains::Nothing);
        let down = blobs::Error::Unavailable { what: key.to_string(), source: "down".into() };
        assert!(matches!(remains(&begun, Err(down)), Remains::Unknown(_)));
    }
}
