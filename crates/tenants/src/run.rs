//! Wires the controllers: which change asks for which pass.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::nonadmin::Phase;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::PostParams;
use kube::{Api, Resource as _};
use reconcile::{Context, Key, Loop, Object, Store};

use crate::Place;
use crate::backup::run::Backups;
use crate::config::Config;
use crate::download::run::Downloads;
use crate::location::run::Locations;
use crate::location::validate;
use crate::loose::Loose;
use crate::names::Kind;
use crate::periodic;
use crate::queue::Progress;
use crate::restore::run::Restores;
use crate::schedule::run::Schedules;
use crate::spec;
use crate::world::{
    BY_NAMESPACE, BY_TARGET, Nab, Nabsl, Vb, World, created, is_name, origin_key, scheduled,
};

/// Every object is looked at this often, though nothing changes.
const RESYNC: Duration = Duration::from_mins(10);
const RETRY: Duration = Duration::from_secs(1);
/// Passes mostly wait for the API server, which commits together what comes together.
const WORKERS: usize = 16;
/// Storage locations are looked at for another version of their Secret this often, with a pause from one
/// to the next: many of them are looked at less often, not faster.
const SECRETS_EVERY: Duration = Duration::from_mins(1);
const SECRETS_PAUSE: Duration = Duration::from_millis(100);

/// Runs until it is dropped, beside an executor whose namespace is `admin`.
pub fn run(context: Context, admin: String, place: Place) -> BoxFuture<'static, ()> {
    Box::pin(serve(context, admin, place))
}

async fn serve(context: Context, admin: String, place: Place) {
    let admin = admin.as_str();
    make_namespace(&context, admin).await;
    let (config, settings) = Config::start(&context, admin).await;
    let world = World::start(&context, admin, settings, place);
    count(&world.backups, &world);
    count(&world.restores, &world);
    count(&world.locations, &world);
    count(&world.schedules, &world);
    let backups = backups(&context, &world);
    let restores = restores(&context, &world);
    let locations = locations(&context, &world);
    let downloads = downloads(&context, &world);
    let schedules = schedules(&context, &world);
    let again = resettle(Arc::clone(&world), &backups, &restores, &locations, &schedules);
    let secrets = follow_secrets(Arc::clone(&world), &locations);
    let (backup_keys, restore_keys) = (backups.queue(), restores.queue());
    let sync = periodic::every(
        Arc::clone(&world),
        "sync of backups found in stores",
        |settings| settings.sync_period,
        periodic::sync,
    );
    let collect = periodic::every(
        Arc::clone(&world),
        "collection of orphans",
        |settings| settings.collection_period,
        periodic::collect,
    );
    tokio::join!(
        config.follow(),
        backups.run(Arc::new(Backups(Arc::clone(&world)))),
        restores.run(Arc::new(Restores(Arc::clone(&world)))),
        locations.run(Arc::new(Locations(Arc::clone(&world)))),
        downloads.run(Arc::new(Downloads(Arc::clone(&world)))),
        schedules.run(Arc::new(Schedules(Arc::clone(&world)))),
        world.feed_backups(&backup_keys),
        world.feed_restores(&restore_keys),
        again,
        secrets,
        sync,
        collect,
    );
}

/// Makes the administrators' namespace, if it is not there.
async fn make_namespace(context: &Context, name: &str) {
    let api: Api<Namespace> = Api::all(context.client.clone());
    let mut wanted = Namespace::default();
    wanted.metadata.name = Some(name.to_owned());
    loop {
        let done = match api.get_opt(name).await {
            Ok(Some(_)) => return,
            Ok(None) => api.create(&PostParams::default(), &wanted).await.map(drop),
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => return,
            Err(kube::Error::Api(status)) if status.code == 409 => return,
            Err(error) => tracing::warn!(name, error = %telemetry::Chain(&error),
                "cannot make the administrators' namespace, will try again"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Keeps the numbers of objects by phase, at the price of the changes.
fn count<K>(store: &Store<Loose<K>>, world: &World)
where
    Loose<K>: Object,
    K: 'static,
{
    let (metrics, kind) = (world.metrics.clone(), Loose::<K>::kind(&()).into_owned());
    let phase = |it: Option<&Loose<K>>| {
        let text = Loose::<K>::text(&it?.status, "/phase")?;
        // What is no phase of ours is not counted: others could write what they like.
        Phase::KNOWN.iter().copied().find(|known| *known == text)
    };
    let counts: Mutex<BTreeMap<&'static str, usize>> = Mutex::default();
    store.listen(move |_, before, now| {
        let (was, is) = (phase(before), phase(now));
        if was == is {
            return;
        }
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (phase, comes) in [(was, false), (is, true)] {
            let Some(phase) = phase else { continue };
            let count: &mut usize = counts.entry(phase).or_default();
            *count = if comes { *count + 1 } else { count.saturating_sub(1) };
            metrics.objects(&kind, phase, *count);
        }
        drop(counts);
        let made = is == Some("Created") && before.is_some();
        let created = now.filter(|_| made).and_then(created);
        if let Some(created) = created {
            let took = World::now().timestamp().duration_since(created.timestamp());
            metrics.made(&kind, Duration::try_from(took).unwrap_or_default());
        }
    });
}

/// Its own writes of status ask for no pass; spec, finalizers and deletion do.
fn edited<K>(key: &Key, before: Option<&Loose<K>>, now: Option<&Loose<K>>) -> Vec<Key> {
    let same = match (before, now) {
        (Some(before), Some(now)) => {
            let (before, now) = (&before.metadata, &now.metadata);
            before.generation == now.generation
                && before.uid == now.uid
                && before.finalizers == now.finalizers
                && before.deletion_timestamp == now.deletion_timestamp
        }
        _ => false,
    };
    if same { Vec::new() } else { vec![key.clone()] }
}

fn backups(context: &Context, world: &Arc<World>) -> Loop {
    let it = Loop::new("nonadminbackup", context)
        .workers(WORKERS)
        .resync(&world.backups, RESYNC)
        .map(&world.backups, edited);
    let shared = Arc::clone(world);
    // A backup that is gone may make room for one that waits.
    let it = it.map(&world.backups, move |key, _, now| match now {
        None => waiting(&shared, &key.namespace),
        Some(_) => Vec::new(),
    });
    let shared = Arc::clone(world);
    let it = it.map(&world.velero_backups, move |key, before, now| {
        shared.note_backup(&key.name);
        let own = [before, now].into_iter().flatten();
        let mut keys: Vec<Key> = own.filter_map(|it| origin_key(Kind::Backup, it)).collect();
        let is_done = |it: &Vb| Progress::of_backup(&it.view()) == Progress::Done;
        let origin = before.or(now).and_then(|it| origin_key(Kind::Backup, it));
        if let Some(origin) = origin.filter(|_| now.is_none_or(is_done)) {
            keys.extend(waiting(&shared, &origin.namespace));
        }
        keys
    });
    let it = it.on_related(&world.delete_requests, |it| {
        origin_key(Kind::Backup, it).into_iter().collect()
    });
    let shared = Arc::clone(world);
    let it = it.map(&world.locations, move |key, _, _| waiting(&shared, &key.namespace));
    let shared = Arc::clone(world);
    let it = it.on_related(&world.velero_locations, move |it| {
        let origin = origin_key(Kind::Location, it);
        origin.map(|origin| waiting(&shared, &origin.namespace)).unwrap_or_default()
    });
    let it = moves(it, world, &world.uploads, Kind::Backup);
    moves(it, world, &world.pod_backups, Kind::Backup)
}

/// Backups of a namespace that are not in the queue yet.
fn waiting(world: &World, namespace: &str) -> Vec<Key> {
    let early = |it: &Nab| {
        let status: api::nonadmin::NonAdminBackupStatus = it.view();
        status.phase < Some(Phase::Created)
    };
    let all = world.backups.by(BY_NAMESPACE, namespace);
    all.iter().filter(|it| early(it.as_ref())).map(|it| Key::of(it.as_ref())).collect()
}

/// A move of volume data is counted by its backup or restore.
fn moves<K>(it: Loop, world: &Arc<World>, store: &Store<Loose<K>>, kind: Kind) -> Loop
where
    Loose<K>: Object,
    K: Send + Sync + 'static,
{
    let shared = Arc::clone(world);
    it.on_related(store, move |it| {
        let (label, is_backup) = match kind {
            Kind::Backup => (crate::names::VELERO_BACKUP_NAME, true),
            Kind::Restore | Kind::Location | Kind::Download => {
                (crate::names::VELERO_RESTORE_NAME, false)
            }
        };
        let Some(name) = it.label(label) else { return Vec::new() };
        let key = shared.admin_key(name);
        let origin = if is_backup {
            shared.velero_backups.get(&key).and_then(|it| origin_key(kind, &it))
        } else {
            shared.velero_restores.get(&key).and_then(|it| origin_key(kind, &it))
        };
        origin.into_iter().collect()
    })
}

fn restores(context: &Context, world: &Arc<World>) -> Loop {
    let it = Loop::new("nonadminrestore", context)
        .workers(WORKERS)
        .resync(&world.restores, RESYNC)
        .needs(&world.velero_backups)
        .needs(&world.velero_locations)
        .map(&world.restores, edited);
    let shared = Arc::clone(world);
    let it = it.map(&world.velero_restores, move |key, before, now| {
        shared.note_restore(&key.name);
        let own = [before, now].into_iter().flatten();
        own.filter_map(|it| origin_key(Kind::Restore, it)).collect()
    });
    let shared = Arc::clone(world);
    // A backup that becomes ready is what its restores wait for.
    let it = it.map(&world.backups, move |key, _, _| {
        let all = shared.restores.by(BY_TARGET, &key.to_string());
        let early = |it: &crate::world::Nar| {
            it.view::<api::nonadmin::NonAdminRestoreStatus>().phase < Some(Phase::Created)
        };
        all.iter().filter(|it| early(it.as_ref())).map(|it| Key::of(it.as_ref())).collect()
    });
    let it = moves(it, world, &world.data_downloads, Kind::Restore);
    moves(it, world, &world.pod_restores, Kind::Restore)
}

fn locations(context: &Context, world: &Arc<World>) -> Loop {
    Loop::new("nonadminbackupstoragelocation", context)
        .resync(&world.locations, RESYNC)
        .map(&world.locations, edited)
        .on_related(&world.approvals, |it| origin_key(Kind::Location, it).into_iter().collect())
        .on_related(&world.velero_locations, |it| {
            origin_key(Kind::Location, it).into_iter().collect()
        })
}

fn downloads(context: &Context, world: &Arc<World>) -> Loop {
    Loop::new("nonadmindownloadrequest", context)
        .resync(&world.downloads, RESYNC)
        .needs(&world.velero_locations)
        .map(&world.downloads, edited)
        .on_related(&world.download_requests, |it| {
            origin_key(Kind::Download, it).into_iter().collect()
        })
}

fn schedules(context: &Context, world: &Arc<World>) -> Loop {
    Loop::new("nonadminschedule", context)
        .resync(&world.schedules, RESYNC)
        .map(&world.schedules, edited)
        // One that ends may be what the next waits for.
        .on_related(&world.backups, |it| {
            let name = scheduled(it).filter(|name| is_name(name)).into_iter();
            name.map(|name| Key::new(it.namespace(), name)).collect()
        })
}

/// Other settings are other decisions, for everything.
fn resettle(
    world: Arc<World>,
    backups: &Loop,
    restores: &Loop,
    locations: &Loop,
    schedules: &Loop,
) -> impl Future<Output = ()> + use<> {
    let queues = (backups.queue(), restores.queue(), locations.queue(), schedules.queue());
    async move {
        let mut settings = world.settings.clone();
        while settings.changed().await.is_ok() {
            for it in world.backups.list() {
                queues.0.add(&Key::of(it.as_ref()));
            }
            for it in world.restores.list() {
                queues.1.add(&Key::of(it.as_ref()));
            }
            for it in world.locations.list() {
                queues.2.add(&Key::of(it.as_ref()));
            }
            for it in world.schedules.list() {
                queues.3.add(&Key::of(it.as_ref()));
            }
        }
    }
}

/// A Secret that changes asks for a pass of the locations that name it. They are asked for by name, one
/// after the other: a right to watch Secrets is a right to read everybody's.
fn follow_secrets(world: Arc<World>, locations: &Loop) -> impl Future<Output = ()> + use<> {
    let queue = locations.queue();
    async move {
        world.locations.ready().await;
        let mut seen: HashMap<Key, Option<String>> = HashMap::new();
        loop {
            tokio::time::sleep(SECRETS_EVERY).await;
            let mut now = HashMap::new();
            for location in world.locations.list() {
                tokio::time::sleep(SECRETS_PAUSE).await;
                let key = Key::of(location.as_ref());
                let Ok(version) = secret_version(&world, &key, &location).await else {
                    // Not known: as it was.
                    now.extend(seen.remove(&key).map(|version| (key, version)));
                    continue;
                };
                if seen.get(&key) != Some(&version) {
                    queue.add(&key);
                }
                now.insert(key, version);
            }
            seen = now;
        }
    }
}

/// Which version of its Secret a location would copy now; `None` without one.
async fn secret_version(
    world: &World,
    key: &Key,
    location: &Nabsl,
) -> Result<Option<String>, kube::Error> {
    let asked = spec::object(&location.spec, "/backupStorageLocationSpec");
    let asked = validate::filled(&asked, &world.settings());
    let Some(name) = validate::secret_name(&asked).filter(|name| is_name(name)) else {
        return Ok(None);
    };
    let api: Api<Secret> = Api::namespaced(world.client.clone(), &key.namespace);
    let found = api.get_metadata_opt(name).await?;
    Ok(found.and_then(|it| it.metadata.resource_version))
}
