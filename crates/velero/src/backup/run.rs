//! One backup, from its start to its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::scalar::Time;
use api::velero::{Backup, BackupPhase, BackupProgress, BackupSpec, BackupStatus, HookCount};
use blobs::{Key, Parts};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::collect::{Collector, ResourceList};
use super::decide::{self, Defaults, Observed, ServerVersion};
use super::pack::Packer;
use crate::catalog::Catalog;
use crate::door::words;
use crate::journal::{Journal, Place, packed};
use crate::layout::BackupFile;
use crate::names;
use crate::selection::Selection;
use crate::world::{Opened, World};

const SOURCE: &str = "velero/backup";
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Why a backup as a whole failed.
#[derive(Debug)]
struct Fatal {
    reason: String,
    /// Whether the end is told with its time. Peers leave it out where a store could not be opened or
    /// written, and their clients know it so.
    is_timed: bool,
}

impl Fatal {
    fn untimed(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_timed: false }
    }

    fn timed(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_timed: true }
    }
}

/// Works on a backup that was released from the queue, to whatever end.
pub(crate) async fn run(world: &World, name: &str) {
    let Some(begun) = begin(world, name).await else { return };
    if begun.status.as_ref().and_then(|it| it.phase.as_ref()) != Some(&BackupPhase::InProgress) {
        return;
    }
    let clock = tokio::time::Instant::now();
    let done = match make(world, &begun).await {
        Ok(done) => done,
        Err(fatal) => {
            tracing::warn!(backup.name = name, reason = fatal.reason, "the backup failed");
            failed(&begun, &fatal)
        }
    };
    let phase = done.status.as_ref().and_then(|it| it.phase.clone());
    tracing::info!(backup.name = name, ?phase, took_ms = %clock.elapsed().as_millis(), "backup ended");
    settle(world, &begun, &done).await;
}

/// Writes the end, however often it takes: without it the backup would seem to run on.
async fn settle(world: &World, begun: &Backup, done: &Backup) {
    let mut before = begun.clone();
    // Progress was written since; the end is written over whatever it was.
    if let Some(status) = &mut before.status {
        status.progress = None;
    }
    loop {
        match world.backups.merge(&before, done).await {
            Ok(_) => return,
            Err(reconcile::Failure::Api { source, .. })
                if matches!(crate::door::code(&source), Some(404 | 422)) =>
            {
                tracing::warn!(error = %source, "the end of a backup is not written");
                return;
            }
            Err(failure) => {
                tracing::warn!(error = %telemetry::Chain(&failure), "the end of a backup is not written yet");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

/// Writes defaults and the verdict. `None` if somebody else changed the object: the queue looks again.
async fn begin(world: &World, name: &str) -> Option<Arc<Backup>> {
    let backup = world.backups.get(&world.key(name))?;
    let versions = versions(world).await;
    let excluded = excluded_namespaces(world).await;
    let locations = world.locations.list();
    let seen = Observed {
        backup: &backup,
        locations: &locations,
        excluded_namespaces: &excluded,
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
        Err(failure) => {
            tracing::warn!(backup.name = name, error = %telemetry::Chain(&failure), "the backup does not begin yet");
            tokio::time::sleep(RETRY_AFTER).await;
            None
        }
    }
}

async fn versions(world: &World) -> ServerVersion {
    match world.context.client.apiserver_version().await {
        Ok(it) => ServerVersion { git: it.git_version, major: it.major, minor: it.minor },
        Err(_) => ServerVersion::default(),
    }
}

async fn excluded_namespaces(world: &World) -> Vec<String> {
    let api: kube::Api<k8s_openapi::api::core::v1::Namespace> =
        kube::Api::all(world.context.client.clone());
    let labelled = format!("{}=true", names::EXCLUDE_FROM_BACKUP);
    let params = kube::api::ListParams::default().labels(&labelled);
    let found = api.list_metadata(&params).await;
    found.map_or_else(
        |_| Vec::new(),
        |list| list.items.into_iter().filter_map(|it| it.metadata.name).collect(),
    )
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
            let error = telemetry::Chain(&error);
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
    for group in silent {
        let message = format!("a group of the API does not answer: {group}");
        journal.warn(Place::Server, SOURCE, &message);
    }
    let gathered = upload(world, begun, &opened, &catalog, &selection, journal).await?;
    finish(begun, &opened, gathered).await
}

fn key(file: BackupFile, name: &str) -> Result<Key, Fatal> {
    file.key(name).map_err(|error| Fatal::timed(error.to_string()))
}

/// What is known when the tarball is in the store.
struct Gathered {
    journal: Journal,
    listed: ResourceList,
    count: i64,
    volumes: Vec<Value>,
}

async fn upload(
    world: &World,
    begun: &Backup,
    opened: &Opened,
    catalog: &Catalog,
    selection: &Selection,
    journal: Journal,
) -> Result<Gathered, Fatal> {
    let name = begun.metadata.name.as_deref().unwrap_or_default();
    let (packer, body) = Packer::new(Timestamp::now().as_second());
    let mut collector = Collector::new(&world.door, catalog, selection, packer, journal, name);
    collector.ordered = ordered(&begun.spec, catalog);
    let progress = report_progress(world, begun, collector.count.subscribe());
    let contents = key(BackupFile::Contents, name)?;
    let parts = Parts { at_once: 2, ..Parts::default() };
    let sending = opened.store.put_stream(&contents, body, &parts);
    let gathering = async move {
        let done = collector.run().await;
        let claims = std::mem::take(&mut collector.claims);
        let volumes = crate::volumes::back_up(begun, &claims, &mut collector.journal);
        let Collector { packer, journal, listed, count, .. } = collector;
        let count = *count.borrow();
        if done.is_ok() {
            // An upload that failed says why itself.
            let _ = packer.finish().await;
        }
        Gathered { journal, listed, count, volumes }
    };
    let work = async { tokio::join!(sending, gathering) };
    let (sent, gathered) = tokio::select! {
        done = work => done,
        () = progress => unreachable_end(),
    };
    sent.map_err(|error| {
        Fatal::untimed(format!("error uploading the contents: {}", telemetry::Chain(&error)))
    })?;
    Ok(gathered)
}

/// Progress is told until the work ends, never shorter.
fn unreachable_end<T>() -> T {
    unreachable!("progress is told as long as there is somebody to tell")
}

async fn report_progress(world: &World, begun: &Backup, count: watch::Receiver<i64>) {
    let mut told = begun.clone();
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        let now = *count.borrow();
        let mut next = told.clone();
        let progress = BackupProgress { total_items: Some(now), items_backed_up: Some(now) };
        next.status.get_or_insert_default().progress = Some(progress);
        if next != told && world.backups.merge(&told, &next).await.is_ok() {
            told = next;
        }
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
    let Gathered { mut journal, listed, count, volumes } = gathered;
    journal.info(SOURCE, &format!("Backed up a total of {count} items"), &[]);
    let mut done = begun.clone();
    let status = done.status.get_or_insert_default();
    complete(status, &journal, count);
    let small = [
        (BackupFile::Results, journal.results()),
        (BackupFile::ResourceList, packed(&listed)),
        (BackupFile::VolumeSnapshots, packed(&Value::Null)),
        (BackupFile::PodVolumeBackups, packed(&Value::Null)),
        (BackupFile::ItemOperations, packed(&json!([]))),
        (BackupFile::VolumeInfo, packed(&volumes)),
    ];
    for (file, bytes) in small {
        put(opened, &key(file, name)?, bytes).await?;
    }
    // A backup without its log is a backup all the same.
    if let Err(fatal) = put(opened, &key(BackupFile::Log, name)?, journal.into_log()).await {
        tracing::warn!(backup.name = name, reason = fatal.reason, "the log is not kept");
    }
    done.metadata.managed_fields = None;
    let text = serde_json::to_vec_pretty(&done)
        .map_err(|error| Fatal::timed(format!("cannot write the backup as JSON: {error}")))?;
    put(opened, &key(BackupFile::Object, name)?, text).await?;
    Ok(done)
}

async fn put(opened: &Opened, key: &Key, bytes: Vec<u8>) -> Result<(), Fatal> {
    let put = opened.store.put(key, Bytes::from(bytes)).await;
    put.map(drop).map_err(|error| {
        Fatal::untimed(format!("error uploading {key}: {}", telemetry::Chain(&error)))
    })
}

fn complete(status: &mut BackupStatus, journal: &Journal, count: i64) {
    status.phase = Some(if journal.errors.count == 0 {
        BackupPhase::Completed
    } else {
        BackupPhase::PartiallyFailed
    });
    status.errors = journal.errors.counted();
    status.warnings = journal.warnings.counted();
    status.progress =
        Some(BackupProgress { total_items: Some(count), items_backed_up: Some(count) });
    status.hook_status = Some(HookCount::default());
    status.completion_timestamp = Some(Time::new(Timestamp::now()));
}

/// A backup that a process that is gone was working on. Where everything had arrived in the store, it is
/// what the store says; else it has failed, and what lies in the store of it is removed.
pub(crate) async fn abandoned(world: &World, backup: &Backup) {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let looking = tokio::time::timeout(RECOVER_WITHIN, recover(world, backup));
    let found = looking.await.unwrap_or_default();
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
        Err(failure) => {
            tracing::warn!(backup.name = name, error = %telemetry::Chain(&failure), "looking again");
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}

const RECOVER_WITHIN: Duration = Duration::from_secs(10);
const OBJECT_MAX_BYTES: u64 = 4 << 20;

/// The status that the store has, if the object had arrived there.
async fn recover(world: &World, backup: &Backup) -> Option<BackupStatus> {
    let name = backup.metadata.name.as_deref()?;
    let location = world.location(backup.spec.storage_location.as_deref()?)?;
    let opened = world.open(&location).await.ok()?;
    let key = BackupFile::Object.key(name).ok()?;
    match blobs::get_limited(opened.store.as_ref(), &key, OBJECT_MAX_BYTES).await {
        Ok(blob) => {
            let stored: Backup = serde_json::from_slice(&blob.bytes).ok()?;
            let is_same = stored.metadata.uid == backup.metadata.uid;
            stored.status.filter(|it| is_same && it.completion_timestamp.is_some())
        }
        Err(error) if error.is_not_found() => {
            let folder = crate::layout::backup_folder(name).ok()?;
            if let Err(error) = blobs::delete_all(opened.store.as_ref(), &folder).await {
                tracing::warn!(backup.name = name, error = %telemetry::Chain(&error), "parts of a backup stay in the store");
            }
            None
        }
        Err(_) => None,
    }
}
