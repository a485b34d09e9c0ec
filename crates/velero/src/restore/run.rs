//! One restore, from its start to its end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::scalar::Time;
use api::velero::{Backup, HookCount, Restore, RestorePhase, RestoreProgress, RestoreSpec};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::along::Along;
use super::confine::{Confined, is_withheld};
use super::decide::{self, Observed};
use super::edit::{self, Rules};
use super::item::{Existing, Fate, Maker, Outcome};
use super::queue::{KIND, Stage, stage};
use super::room::Whose;
use super::spool::{Contents, Entry, LeftOut, Spool};
use crate::catalog::{Catalog, Kind};
use crate::door::{Door, Identity, code, words};
use crate::home::Home;
use crate::journal::{Journal, Place, packed};
use crate::layout::{BackupFile, RestoreFile};
use crate::lists::Lists;
use crate::names;
use crate::selection::{Cluster, RestoreSelection};
use crate::tarball::{Limits, Unpacker};
use crate::volumes::{Data, Given, Owners, Stored, Wanted};
use crate::world::{Opened, World, is_tenants};

const SOURCE: &str = "velero/restore";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Objects of one kind that are made at the same time.
const AT_ONCE: usize = 8;
const CHUNK: usize = 256;
/// For definitions to be served, and for namespaces on their way out.
const SERVED_WITHIN: Duration = Duration::from_mins(1);
/// For the data of one claim, where the restore does not say.
const DATA_WITHIN: Duration = Duration::from_hours(4);
const TERMINATED_WITHIN: Duration = Duration::from_mins(10);
/// What a store of a tenant's own has to give on average, once it had time to begin.
const SLOWEST_BYTES_PER_SECOND: u64 = 64 << 10;
const SLOW_AFTER: Duration = Duration::from_mins(2);
/// How old the knowledge may be whose namespace is written to.
const HOME_KNOWN: Duration = Duration::from_millis(100);
/// A Secret of this type is filled with the token of whatever account it names.
const TOKEN: &str = "kubernetes.io/service-account-token";

/// Works on a restore, to whatever end.
pub(crate) async fn run(world: &World, name: &str) {
    let Some((begun, backup)) = begin(world, name).await else { return };
    let (status, result) = watch::channel(0_i64);
    let progress = report_progress(world, &begun, result);
    let work = carry_out(world, &begun, &backup, &status);
    let done = tokio::select! {
        done = work => done,
        () = progress => return crate::volumes::abandon(world, &begun).await,
    };
    let done = done.unwrap_or_else(|reason| {
        tracing::warn!(restore.name = name, reason, "the restore failed");
        let mut done = begun.as_ref().clone();
        let status = done.status.get_or_insert_default();
        status.phase = Some(RestorePhase::Failed);
        status.failure_reason = Some(reason);
        status.completion_timestamp = Some(Time::new(Timestamp::now()));
        done
    });
    settle(world, &begun, &done).await;
}

/// Writes the end into the object that was begun, and into no other of its name.
async fn settle(world: &World, begun: &Restore, done: &Restore) {
    let name = begun.metadata.name.as_deref().unwrap_or_default();
    loop {
        let failure = match world.fresh::<Restore>(name).await {
            Ok(Some(now)) if may_end(begun, &now) => {
                let mut next = now.clone();
                next.status.clone_from(&done.status);
                match world.restores.update(&now, &next).await {
                    Ok(_) => return,
                    Err(reconcile::Failure::Api { source, .. })
                        if matches!(code(&source), Some(404 | 422)) =>
                    {
                        tracing::warn!(error = %source, "the end of a restore is not written");
                        return;
                    }
                    Err(failure) => failure,
                }
            }
            Ok(_) => {
                tracing::warn!(restore.name = name, "the restore that ended is not there any more");
                return;
            }
            Err(failure) => failure,
        };
        tracing::warn!(error = %telemetry::Chain(&failure), "the end of a restore is not written yet");
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Whether this is the object that was begun, and nobody else has ended it.
fn may_end(begun: &Restore, now: &Restore) -> bool {
    now.metadata.uid == begun.metadata.uid && stage(now) == Stage::Working
}

/// Whether it is to be carried on: it may be deleted, and another server may have taken this one for gone.
fn is_wanted(begun: &Restore, now: &Restore) -> bool {
    may_end(begun, now) && now.metadata.deletion_timestamp.is_none()
}

async fn begin(world: &World, name: &str) -> Option<(Arc<Restore>, Arc<Backup>)> {
    let written = written(world, name).await?;
    let phase = written.status.as_ref().and_then(|it| it.phase.clone());
    if phase != Some(RestorePhase::InProgress) {
        return None;
    }
    let backup = world.backups.get(&world.key(written.spec.backup_name.as_deref()?))?;
    Some((written, backup))
}

/// The restore with the verdict. `None` if somebody else changed it: the queue looks again.
async fn written(world: &World, name: &str) -> Option<Arc<Restore>> {
    let restore = world.restores.get(&world.key(name))?;
    if stage(&restore) != Stage::New {
        return None;
    }
    let (backups, locations) = (world.backups.list(), world.locations.list());
    let lost = match lost(world, &restore).await {
        Ok(lost) => lost,
        Err(error) => {
            tracing::warn!(restore.name = name, error = %telemetry::Chain(&error), "the restore does not begin yet");
            tokio::time::sleep(RETRY_AFTER).await;
            return None;
        }
    };
    let seen = Observed {
        restore: &restore,
        backups: &backups,
        locations: &locations,
        namespace: &world.settings.namespace,
        lost: lost.as_deref(),
        now: Timestamp::now(),
    };
    let mut begun = decide::begin(&seen);
    let finalizers = begun.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|it| it == names::RESTORE_FINALIZER) {
        finalizers.push(names::RESTORE_FINALIZER.to_owned());
    }
    match world.restores.update(&restore, &begun).await {
        Ok(written) => Some(written),
        Err(failure) if world.refused.note(KIND, &restore.metadata, &failure) => None,
        Err(failure) => {
            tracing::warn!(restore.name = name, error = %telemetry::Chain(&failure), "the restore does not begin yet");
            tokio::time::sleep(RETRY_AFTER).await;
            None
        }
    }
}

/// The namespace that a tenant asked for a restore of.
async fn home(world: &World, restore: &Restore) -> Result<Option<Home>, kube::Error> {
    let notes = restore.metadata.annotations.as_ref();
    Home::of(&world.context.client, notes, names::TENANT_NAMESPACE).await
}

async fn lost(world: &World, restore: &Restore) -> Result<Option<String>, kube::Error> {
    match home(world, restore).await? {
        Some(home) => home.loss(&world.context.client).await,
        None => Ok(None),
    }
}

async fn report_progress(world: &World, begun: &Restore, count: watch::Receiver<i64>) {
    let mut told = begun.clone();
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        if is_unwanted(world, begun).await {
            return;
        }
        let now = *count.borrow();
        let mut next = told.clone();
        let progress = RestoreProgress { total_items: Some(now), items_restored: Some(now) };
        next.status.get_or_insert_default().progress = Some(progress);
        if next != told && world.restores.merge(&told, &next).await.is_ok() {
            told = next;
        }
    }
}

/// Whether nobody wants it any more. One that cannot be read is not absent, and a cache may be late: the
/// API server has the word.
async fn is_unwanted(world: &World, begun: &Restore) -> bool {
    let name = begun.metadata.name.as_deref().unwrap_or_default();
    let cached = world.restores.get(&world.key(name));
    if cached.is_some_and(|now| is_wanted(begun, &now)) {
        return false;
    }
    let is_gone = match world.fresh::<Restore>(name).await {
        Ok(now) => !now.is_some_and(|now| is_wanted(begun, &now)),
        Err(_) => false,
    };
    if is_gone {
        tracing::info!(
            restore.name = name,
            "the restore was deleted or ended by another while it ran"
        );
    }
    is_gone
}

async fn carry_out(
    world: &World,
    begun: &Restore,
    backup: &Backup,
    count: &watch::Sender<i64>,
) -> Result<Restore, String> {
    let name = begun.metadata.name.as_deref().unwrap_or_default();
    let location = backup.spec.storage_location.as_deref().unwrap_or_default();
    let location = world
        .location(location)
        .ok_or_else(|| format!("backup storage location {location} not found"))?;
    let opened = world.open(&location).await?;
    let confined = Confined::of(begun, &location);
    let whose = if confined.is_tenants() { Whose::Tenants } else { Whose::Administrators };
    let contents = fetch(world, &opened, backup, is_tenants(&location), whose).await?;
    let volumes = match crate::volumes::stored(&opened, &location, backup).await {
        Ok(volumes) => volumes,
        Err(_) if begun.spec.restore_pvs == Some(false) => Stored::default(),
        // Claims without their data would be taken for the real ones.
        Err(why) => {
            return Err(format!("{why}; restore with restorePVs: false to do without data"));
        }
    };
    let owners = Owners::of(backup, &location, Some(begun));
    let held = Held { contents, volumes, owners };
    let mut restorer = Restorer::new(world, begun, backup, held, confined, count).await?;
    restorer.run().await;
    let Restorer { mut journal, listed, done_count, given, .. } = restorer;
    let given = given.into_inner().unwrap_or_else(PoisonError::into_inner);
    journal.info(SOURCE, "restore completed", &[]);
    let mut done = begun.clone();
    let status = done.status.get_or_insert_default();
    status.phase = Some(if journal.errors.count == 0 {
        RestorePhase::Completed
    } else {
        RestorePhase::PartiallyFailed
    });
    status.errors = journal.errors.counted();
    status.warnings = journal.warnings.counted();
    status.progress =
        Some(RestoreProgress { total_items: Some(done_count), items_restored: Some(done_count) });
    status.hook_status = Some(HookCount::default());
    let files = [
        (RestoreFile::Results, journal.results()),
        (RestoreFile::ResourceList, packed(&listed)),
        (RestoreFile::ItemOperations, packed(&json!([]))),
        (RestoreFile::VolumeInfo, packed(&given)),
        (RestoreFile::Log, journal.into_log()),
    ];
    for (file, bytes) in files {
        keep(&opened, file, name, bytes).await;
    }
    status.completion_timestamp = Some(Time::new(Timestamp::now()));
    Ok(done)
}

/// The files of a restore are for reading only: without them it is a restore all the same.
async fn keep(opened: &Opened, file: RestoreFile, name: &str, bytes: Vec<u8>) {
    let Ok(key) = file.key(name) else { return };
    if let Err(error) = opened.store.put(&key, Bytes::from(bytes)).await {
        tracing::warn!(restore.name = name, %key, error = %telemetry::Chain(&error), "a file of a restore is not kept");
    }
}

/// The contents of the backup, read to their end and checked.
async fn fetch(
    world: &World,
    opened: &Opened,
    backup: &Backup,
    is_tenants: bool,
    whose: Whose,
) -> Result<Contents, String> {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let key = BackupFile::Contents.key(name).map_err(|error| error.to_string())?;
    let told = |error: &blobs::Error| format!("error downloading backup: {}", opened.told(error));
    let (meta, mut pieces) =
        blobs::read_stream(Arc::clone(&opened.store), &key).await.map_err(|error| told(&error))?;
    let spool = Spool::new(&world.settings.spool, &world.room, whose, meta.len_bytes)
        .map_err(|error| format!("no room to unpack the backup: {error}"))?;
    let limits = if is_tenants { Limits::of_tenants() } else { Limits::default() };
    let mut unpacker = Unpacker::new(spool, limits);
    let (began, mut read_bytes) = (tokio::time::Instant::now(), 0_u64);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| told(&error))?;
        read_bytes = read_bytes.saturating_add(piece.len() as u64);
        if is_tenants && is_slow(began.elapsed(), read_bytes) {
            let seconds = began.elapsed().as_secs();
            return Err(format!(
                "error downloading backup: the store gave {read_bytes} bytes in {seconds} s, and \
                 others wait; restore again when it is faster"
            ));
        }
        unpacker.push(&piece).map_err(|error| format!("error reading backup: {error}"))?;
        // Unpacking is work: let others have their turn.
        tokio::task::yield_now().await;
    }
    let spool = unpacker.finish().map_err(|error| format!("error reading backup: {error}"))?;
    spool.finish(&limits).map_err(|error| format!("no room to unpack the backup: {error}"))
}

/// Whether the namespace is still the one that a restore was asked for in.
#[derive(Debug, Default)]
struct Known {
    asked: Option<tokio::time::Instant>,
    lost: Option<String>,
}

/// What a backup has.
struct Held {
    contents: Contents,
    volumes: Stored,
    owners: Owners,
}

/// `apiVersion/Kind` and what became of the object; nothing where it was not asked for.
type Made = Option<(String, Outcome)>;

struct Restorer<'r> {
    world: &'r World,
    /// With the rights the restore is carried out with.
    door: Door,
    catalog: Catalog,
    contents: Contents,
    selection: RestoreSelection,
    /// What comes back though its labels are not those that were asked for.
    along: Along,
    rules: Rules,
    existing: Existing,
    status: Option<Lists>,
    confined: Confined,
    journal: Journal,
    /// `apiVersion/Kind` to `namespace/name(fate)`.
    listed: BTreeMap<String, BTreeSet<String>>,
    ready: HashMap<String, bool>,
    count: &'r watch::Sender<i64>,
    done_count: i64,
    volumes: crate::volumes::Stored,
    /// Whose data of volumes may be read.
    owners: Owners,
    restores_data: bool,
    data_within: Duration,
    uid: String,
    /// For the list of volumes.
    given: Mutex<Vec<Value>>,
    home: Option<Home>,
    known: Mutex<Known>,
}

impl<'r> Restorer<'r> {
    async fn new(
        world: &'r World,
        begun: &'r Restore,
        backup: &Backup,
        Held { contents, volumes, owners }: Held,
        confined: Confined,
        count: &'r watch::Sender<i64>,
    ) -> Result<Self, String> {
        let (catalog, silent) = Catalog::ask(&world.context.client)
            .await
            .map_err(|error| format!("error listing kinds: {}", words(&error)))?;
        let name = begun.metadata.name.clone().unwrap_or_default();
        let mut journal = Journal::new("restore", &world.settings.namespace, &name);
        journal.info(SOURCE, "starting restore", &[]);
        for group in silent {
            let message = format!("a group of the API does not answer: {group}");
            journal.warn(Place::Server, SOURCE, &message);
        }
        let note =
            |key: &str| begun.metadata.annotations.as_ref().and_then(|it| it.get(key)).cloned();
        let identity = note(names::RUN_AS).map(|text| Identity::parse(&text)).transpose()?;
        let status = begun.spec.restore_status.as_ref().map(|it| {
            Lists::new(it.included_resources.as_ref(), it.excluded_resources.as_ref())
                .resolved(|name| catalog.resolve(name))
        });
        Ok(Self {
            door: identity.map_or_else(|| world.door.clone(), |it| world.door.acting_as(it)),
            data_within: data_within(&begun.spec, confined.is_tenants()),
            confined,
            selection: RestoreSelection::of(&begun.spec, &catalog)?,
            along: Along::default(),
            rules: Rules {
                backup: backup.metadata.name.clone().unwrap_or_default(),
                restore: name,
                namespaces: begun.spec.namespace_mapping.clone().unwrap_or_default(),
                keep_node_ports: begun.spec.preserve_node_ports == Some(true),
            },
            existing: Existing::of(begun.spec.existing_resource_policy.as_deref()),
            status,
            journal,
            listed: BTreeMap::new(),
            ready: HashMap::new(),
            count,
            done_count: 0,
            catalog,
            contents,
            world,
            volumes,
            owners,
            restores_data: begun.spec.restore_pvs != Some(false),
            uid: begun.metadata.uid.clone().unwrap_or_default(),
            given: Mutex::default(),
            home: home(world, begun).await.map_err(|error| words(&error))?,
            known: Mutex::default(),
        })
    }

    /// Why nothing more may be written. Asked anew if the answer is older than `age`.
    async fn lost(&self, age: Duration) -> Option<String> {
        let home = self.home.as_ref()?;
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.lost.is_some() || known.asked.is_some_and(|asked| asked.elapsed() < age) {
                return known.lost.clone();
            }
        }
        let asked = tokio::time::Instant::now();
        let lost = match home.loss(&self.world.context.client).await {
            Ok(lost) => lost,
            Err(error) => Some(format!("cannot tell whose namespace it is: {}", words(&error))),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Known { asked: Some(asked), lost };
        known.lost.clone()
    }

    async fn run(&mut self) {
        if self.contents.is_empty() {
            let message = "zero items to be restored: directory \"resources\": does not exist";
            self.journal.warn(Place::Server, SOURCE, message);
        }
        self.tell_left_out();
        let wants = |resource: &str, entry: &Entry| {
            self.selection.takes_resource(resource) && self.wants(resource, entry)
        };
        self.along = Along::of(&self.contents, &self.selection, wants).await;
        for resource in self.contents.resources() {
            if !self.selection.takes_resource(&resource) && resource != "namespaces" {
                continue;
            }
            let all = self.contents.of(&resource);
            let entries: Vec<&Entry> = all.iter().filter(|it| self.wants(&resource, it)).collect();
            if resource == "namespaces" {
                self.namespaces(&entries).await;
                continue;
            }
            if entries.is_empty() {
                continue;
            }
            self.kind(&resource, &entries).await;
            if let Some(why) = self.lost(HOME_KNOWN).await {
                let message = format!("the restore ends here: {why}");
                self.journal.error(Place::Server, SOURCE, &message);
                return;
            }
            if resource == DEFINITIONS {
                self.await_definitions(&entries).await;
            }
        }
    }

    /// What was asked for, perhaps, and cannot be read: nobody knows its labels.
    fn tell_left_out(&mut self) {
        for it in self.contents.left_out() {
            let is_wanted = self.selection.takes_resource(&it.resource)
                && match &it.namespace {
                    Some(namespace) => {
                        self.confined.allows(namespace, self.rules.target(namespace))
                            && self.selection.takes_namespace(namespace)
                    }
                    None => {
                        self.confined.allows_cluster()
                            && self.selection.takes_cluster_objects() == Cluster::All
                    }
                };
            if is_wanted {
                let LeftOut { resource, namespace, name, why } = it;
                let message =
                    format!("{resource} {name:?} is not restored: its path is no path: {why}");
                self.journal.error(Place::of(namespace.as_deref()), SOURCE, &message);
            }
        }
    }

    fn wants(&self, resource: &str, entry: &Entry) -> bool {
        match &entry.namespace {
            Some(namespace) => {
                self.confined.allows(namespace, self.rules.target(namespace))
                    && self.selection.takes_namespace(namespace)
            }
            None if resource == "namespaces" => {
                self.confined.tenant.is_none()
                    && self.confined.allows(&entry.name, self.rules.target(&entry.name))
                    && !self.selection.excludes_resource(resource)
                    && self.selection.takes_namespace(&entry.name)
            }
            None => {
                self.confined.allows_cluster()
                    && resource != "persistentvolumes"
                    && self.selection.takes_cluster_objects() == Cluster::All
                    || self.is_kept_volume(resource, entry)
            }
        }
    }

    /// A volume that stays when its claim goes is made again as it was; others get new ones.
    fn is_kept_volume(&self, resource: &str, entry: &Entry) -> bool {
        if resource != "persistentvolumes"
            || !self.confined.allows_cluster()
            || self.selection.takes_cluster_objects() == Cluster::None
            || self.volumes.has_volume(&entry.name)
        {
            return false;
        }
        let Ok(volume) = self.contents.read(entry) else { return false };
        let text = |path: &str| volume.pointer(path).and_then(Value::as_str);
        text("/spec/persistentVolumeReclaimPolicy") == Some("Retain")
            && (self.selection.takes_cluster_objects() == Cluster::All
                || text("/spec/claimRef/namespace")
                    .is_some_and(|it| self.selection.takes_namespace(it)))
    }

    async fn namespaces(&mut self, entries: &[&Entry]) {
        for entry in entries {
            self.ensure_namespace(&entry.name).await;
        }
    }

    /// All objects of one kind, some at a time.
    async fn kind(&mut self, resource: &str, entries: &[&Entry]) {
        let originals: BTreeSet<String> =
            entries.iter().filter_map(|it| it.namespace.as_deref().map(str::to_owned)).collect();
        for namespace in &originals {
            self.ensure_namespace(namespace).await;
        }
        // Some at a time: what was made is told before more is read.
        for some in entries.chunks(CHUNK) {
            if self.lost(HOME_KNOWN).await.is_some() {
                return;
            }
            let made = self.some(resource, some).await;
            for (entry, done) in some.iter().zip(made) {
                if let Some((kind, outcome)) = done {
                    self.record(resource, entry, &kind, &outcome);
                }
            }
        }
    }

    /// What became of each, in their order.
    async fn some(&self, resource: &str, entries: &[&Entry]) -> Vec<Made> {
        let work: Vec<BoxFuture<'_, Made>> = entries
            .iter()
            .map(|entry| {
                let made = async move {
                    let made = self.one(resource, entry).await;
                    self.count.send_modify(|count| *count += 1);
                    made
                };
                Box::pin(made) as BoxFuture<'_, Made>
            })
            .collect();
        futures::stream::iter(work).buffered(AT_ONCE).collect().await
    }
    /// `None` for what the labels leave out.
    async fn one(&self, resource: &str, entry: &Entry) -> Made {
        let failed = |why: String| Some((resource.to_owned(), Outcome::failed(why)));
        let shown = match &entry.namespace {
            Some(namespace) => format!("{resource}/{namespace}/{}", entry.name),
            None => format!("{resource}/{}", entry.name),
        };
        let original = match self.contents.read(entry) {
            Ok(object) => object,
            Err(why) => return failed(format!("error restoring {shown}: {why}")),
        };
        if !self.selection.matches(&original) && !self.along.holds(resource, entry) {
            return None;
        }
        if let Some(namespace) = &entry.namespace {
            let target = self.rules.target(namespace);
            if self.ready.get(target) != Some(&true) {
                return failed(format!(
                    "error restoring {shown}: the namespace {target} is not there"
                ));
            }
        }
        let maker = Maker {
            door: &self.door,
            own: &self.world.door,
            catalog: &self.catalog,
            rules: &self.rules,
            existing: self.existing,
            status: self.status.as_ref(),
            heeds_marks: !self.confined.withholds(),
        };
        let kind = match maker.kind(resource, &original) {
            Ok(kind) => kind,
            Err(why) => return failed(format!("error restoring {shown}: {why}")),
        };
        let listed = format!("{}/{}", kind.api_version(), kind.kind);
        if kind.namespaced != entry.namespace.is_some() {
            return failed(format!("error restoring {shown}: it does not belong into this scope"));
        }
        // A kind that cannot be listed and deleted is a verb, not an object: a binding of a pod to a
        // node, a review.
        if !kind.can_be_backed_up() {
            return failed(format!("error restoring {shown}: it is no object that can be kept"));
        }
        let is_withheld = is_withheld(kind)
            || self.confined.withholds_group(&kind.group)
            || resource == "secrets" && original.get("type").and_then(Value::as_str) == Some(TOKEN);
        if self.confined.withholds() && is_withheld {
            let mut outcome = Outcome::new(Fate::Skipped);
            outcome.warnings.push(format!(
                "{shown} is not restored: rights, limits and what other programs act on are set by an \
                 administrator, not by a tenant's restore or from a tenant's own store"
            ));
            return Some((listed, outcome));
        }
        if edit::skip(resource, &original).is_some() {
            return Some((listed, Outcome::new(Fate::Skipped)));
        }
        if let Some(why) = self.lost(HOME_KNOWN).await {
            return failed(format!("error restoring {shown}: {why}"));
        }
        let mut object = edit::prepare(resource, original.clone(), &self.rules);
        if resource != "persistentvolumeclaims" {
            return Some((listed, maker.make(resource, kind, &object, &original).await));
        }
        self.claim(&original, &mut object);
        let given = match self.data(entry, kind, &mut object).await {
            Ok(given) => given,
            Err(why) => return failed(format!("error restoring {shown}: {why}")),
        };
        // Fetching its data took as long as it took.
        if let Some(why) = self.lost(Duration::ZERO).await {
            if let Some(given) = given {
                given.take_back(self.world).await;
            }
            return failed(format!("error restoring {shown}: {why}"));
        }
        let outcome = maker.make(resource, kind, &object, &original).await;
        match given {
            Some(given) if outcome.fate != Fate::Created => given.take_back(self.world).await,
            Some(given) => self.note_given(entry, &object, &given),
            None => {}
        }
        Some((listed, outcome))
    }

    /// The data of a claim, if the backup has it and nobody has such a claim yet. A claim whose data
    /// cannot be had is not made: an empty volume would be taken for the real one.
    async fn data(
        &self,
        entry: &Entry,
        kind: &Kind,
        claim: &mut Value,
    ) -> Result<Option<Given>, String> {
        let from = entry.namespace.as_deref().unwrap_or_default();
        if !self.restores_data {
            return Ok(None);
        }
        let data = self.volumes.data(from, &entry.name);
        if data == Data::None {
            return Ok(None);
        }
        let target = self.rules.target(from);
        // Looking is ours to do, as with namespaces.
        let there = self.world.door.get(kind, Some(target), &entry.name).await;
        if there.map_err(|error| words(&error))?.is_some() {
            return Ok(None);
        }
        let Data::In(handle) = data else {
            return Err("its data could not be taken when the backup was made; restore another \
                        backup, or with restorePVs: false"
                .to_owned());
        };
        // Whether the claim may be made is known before anything is fetched for it.
        self.door.try_create(kind, Some(target), claim).await.map_err(|error| words(&error))?;
        let wanted = Wanted {
            backup: &self.rules.backup,
            handle,
            from,
            owners: &self.owners,
            restore: &self.rules.restore,
            restore_uid: &self.uid,
            claim,
            within: self.data_within,
        };
        let given = crate::volumes::give(self.world, &wanted)
            .await
            .map_err(|why| format!("its data is not restored: {why}"))?;
        given.bind(claim);
        Ok(Some(given))
    }

    fn note_given(&self, entry: &Entry, claim: &Value, given: &Given) {
        let from = entry.namespace.as_deref().unwrap_or_default();
        let Data::In(handle) = self.volumes.data(from, &entry.name) else { return };
        let info = json!({
            "pvcName": entry.name, "pvcNamespace": claim.pointer("/metadata/namespace"),
            "pvName": given.volume, "restoreMethod": "NativeSnapshot", "snapshotDataMoved": false,
            "nativeSnapshotInfo": {"snapshotHandle": handle, "volumeType": "longhorn"},
        });
        self.given.lock().unwrap_or_else(PoisonError::into_inner).push(info);
    }

    /// A claim keeps its volume where that comes back too; for others a new one is provided.
    fn claim(&self, original: &Value, claim: &mut Value) {
        let volume = original.pointer("/spec/volumeName").and_then(Value::as_str);
        let volume = self.contents.find("persistentvolumes", None, volume.unwrap_or_default());
        if !volume.is_some_and(|it| self.is_kept_volume("persistentvolumes", it)) {
            edit::unbind(claim);
        }
    }

    fn record(&mut self, resource: &str, entry: &Entry, kind: &str, outcome: &Outcome) {
        let target = entry.namespace.as_deref().map(|it| self.rules.target(it).to_owned());
        let place = Place::of(target.as_deref());
        for message in &outcome.warnings {
            self.journal.warn(place, SOURCE, message);
        }
        for message in &outcome.errors {
            self.journal.error(place, SOURCE, message);
        }
        let shown = match &target {
            Some(namespace) => format!("{namespace}/{}", entry.name),
            None => entry.name.to_string(),
        };
        let word = outcome.fate.word();
        let more = [("resource", resource), ("name", &shown), ("action", word)];
        self.journal.info(SOURCE, "Restored item", &more);
        self.listed.entry(kind.to_owned()).or_default().insert(format!("{shown}({word})"));
        self.done_count += 1;
    }

    /// The namespace that `original` is restored to; `false` is remembered as well.
    async fn ensure_namespace(&mut self, original: &str) {
        let target = self.rules.target(original).to_owned();
        if self.ready.contains_key(&target) {
            return;
        }
        let is_ready = match self.make_namespace(original, &target).await {
            Ok(is_made) => {
                if is_made {
                    let made = format!("{target}({})", Fate::Created.word());
                    self.listed.entry("v1/Namespace".to_owned()).or_default().insert(made);
                    self.done_count += 1;
                    self.count.send_modify(|count| *count += 1);
                }
                true
            }
            Err(why) => {
                let message = format!("cannot restore to namespace {target}: {why}");
                self.journal.error(Place::Namespace(&target), SOURCE, &message);
                false
            }
        };
        self.ready.insert(target, is_ready);
    }

    /// Whether it was not there before.
    async fn make_namespace(&self, original: &str, target: &str) -> Result<bool, String> {
        let kind = self.catalog.resource("namespaces").ok_or("the server has no namespaces")?;
        let began = tokio::time::Instant::now();
        // Looking is ours to do: a tenant may not see its own Namespace object.
        loop {
            let found = self.world.door.get(kind, None, target).await.map_err(|it| words(&it))?;
            match found {
                Some(found) if found.pointer("/metadata/deletionTimestamp").is_none() => {
                    return Ok(false);
                }
                Some(_)
                    if began.elapsed() < TERMINATED_WITHIN && self.confined.tenant.is_none() =>
                {
                    tokio::time::sleep(PROGRESS_EVERY).await;
                }
                Some(_) => return Err("it is being deleted".to_owned()),
                None if self.confined.tenant.is_some() => {
                    return Err("it does not exist".to_owned());
                }
                None => break,
            }
        }
        // Labels of a namespace say what may run in it.
        let trusted = self.confined.author.is_none();
        let stored = self.contents.find("namespaces", None, original).filter(|_| trusted);
        let stored = stored.and_then(|it| self.contents.read(it).ok()).unwrap_or_else(|| json!({}));
        let labels = stored.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
        let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": target, "labels": labels,
            "annotations": stored.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}))}});
        if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut)
        {
            labels
                .insert("kubernetes.io/metadata.name".to_owned(), Value::String(target.to_owned()));
        }
        match self.door.create(kind, None, &object).await {
            Ok(_) => Ok(true),
            Err(error) if code(&error) == Some(409) => Ok(false),
            Err(error) => Err(words(&error)),
        }
    }

    /// Objects of kinds that were just defined can be made once the server serves them.
    async fn await_definitions(&mut self, entries: &[&Entry]) {
        let began = tokio::time::Instant::now();
        loop {
            let mut waits = false;
            for entry in entries {
                let Some(kind) = self.catalog.resource(DEFINITIONS) else { return };
                if let Ok(Some(found)) = self.world.door.get(kind, None, &entry.name).await {
                    waits |= !is_established(&found);
                }
            }
            if !waits || began.elapsed() > SERVED_WITHIN {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        match Catalog::ask(&self.world.context.client).await {
            Ok((catalog, _)) => self.catalog = catalog,
            Err(error) => {
                let message = format!("error listing kinds: {}", words(&error));
                self.journal.error(Place::Server, SOURCE, &message);
            }
        }
    }
}

/// How long the data of a claim is waited for. Restores of tenants wait for each other's places.
fn data_within(spec: &RestoreSpec, is_tenants: bool) -> Duration {
    let asked = spec.item_operation_timeout.as_ref().and_then(|it| it.get().ok());
    crate::volumes::within(asked.filter(|it| !it.is_zero()), DATA_WITHIN, is_tenants)
}

/// Whether a store of a tenant's own gives less than is waited for.
fn is_slow(passed: Duration, read_bytes: u64) -> bool {
    passed > SLOW_AFTER && read_bytes / passed.as_secs().max(1) < SLOWEST_BYTES_PER_SECOND
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    let holds = |name: &str| {
        conditions.into_iter().flatten().any(|it| {
            it.get("type").and_then(Value::as_str) == Some(name)
                && it.get("status").and_then(Value::as_str) == Some("True")
        })
    };
    holds("Established") && holds("NamesAccepted")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restore(uid: &str, phase: &str, more: Value) -> Restore {
        let mut metadata = json!({"name": "r", "uid": uid});
        if let (Value::Object(metadata), Value::Object(more)) = (&mut metadata, more) {
            metadata.extend(more);
        }
        serde_json::from_value(
            json!({"metadata": metadata, "spec": {}, "status": {"phase": phase}}),
        )
        .unwrap()
    }

    #[test]
    fn a_tenants_restore_waits_no_longer_for_data_than_others_do() {
        let hours = |asked: &str, is_tenants| {
            let spec = serde_json::from_value(json!({"itemOperationTimeout": asked})).unwrap();
            data_within(&spec, is_tenants).as_secs() / 3600
        };
        assert_eq!([hours("1h", true), hours("9000h", true), hours("0s", true)], [1, 4, 4]);
        assert_eq!([hours("1h", false), hours("9000h", false), hours("0s", false)], [1, 9000, 4]);
    }

    #[tokio::test]
    async fn what_another_server_has_begun_is_not_begun_again() {
        use crate::world::tests::{server, world};

        for (phase, begins) in [("New", true), ("InProgress", false), ("Failed", false)] {
            let mut found = serde_json::to_value(restore("1", phase, json!({}))).unwrap();
            found["metadata"]["namespace"] = json!("adm");
            found["metadata"]["resourceVersion"] = json!("1");
            let tasks = tasks::Tasks::new();
            let world = world(server("restores", found), &tasks);
            world.restores.ready().await;
            assert_eq!(written(&world, "r").await.is_some(), begins, "{phase}");
        }
    }

    #[test]
    fn the_end_is_written_into_what_was_begun_and_nothing_else() {
        let begun = restore("1", "InProgress", json!({}));
        assert!(may_end(&begun, &begun));
        assert!(!may_end(&begun, &restore("2", "InProgress", json!({}))), "made anew");
        assert!(!may_end(&begun, &restore("1", "Failed", json!({}))), "another has ended it");
        let deleted = json!({"deletionTimestamp": "2024-01-01T00:00:00Z"});
        assert!(is_wanted(&begun, &begun));
        assert!(!is_wanted(&begun, &restore("1", "InProgress", deleted)));
        assert!(!is_wanted(&begun, &restore("2", "InProgress", json!({}))));
        let passed_over = restore("1", "Failed", json!({}));
        assert!(!is_wanted(&begun, &passed_over), "another server has taken this one for gone");
    }

    #[tokio::test]
    async fn a_restore_that_cannot_be_read_is_not_one_that_is_gone() {
        use crate::world::tests::world;

        let begun = restore("1", "InProgress", json!({}));
        let there = serde_json::to_value(&begun).unwrap();
        let undecodable = json!({"metadata": {"name": "r", "uid": "1"}, "spec": 7});
        let down = json!({"kind": "Status", "status": "Failure", "code": 500});
        let gone =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        for (code, answer, is_gone) in [
            (200, &there, false),
            (200, &undecodable, false),
            (500, &down, false),
            (404, &gone, true),
        ] {
            let answer = answer.to_string();
            let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
                let body = kube::client::Body::from(answer.clone().into_bytes());
                let answer = http::Response::builder().status(code).body(body).unwrap();
                std::future::ready(Ok::<_, std::convert::Infallible>(answer))
            });
            let tasks = tasks::Tasks::new();
            let world = world(kube::Client::new(service, "default"), &tasks);
            assert_eq!(is_unwanted(&world, &begun).await, is_gone, "{code}");
        }
    }

    #[test]
    fn a_store_that_trickles_is_not_waited_for() {
        let (minute, rate) = (Duration::from_mins(1), SLOWEST_BYTES_PER_SECOND);
        assert!(!is_slow(minute, 0), "it may need a while to begin");
        assert!(is_slow(minute * 5, 0) && is_slow(minute * 5, rate * 299));
        assert!(!is_slow(minute * 5, rate * 300));
    }
}
