//! What the controllers of tenants share: caches, settings, the two queues, and questions about them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::nonadmin::{
    NonAdminBackup, NonAdminBackupStorageLocation, NonAdminBackupStorageLocationRequest,
    NonAdminDownloadRequest, NonAdminRestore, NonAdminSchedule,
};
use api::scalar::Time;
use api::velero::{
    Backup, BackupStatus, BackupStorageLocation, DataDownload, DataUpload, DeleteBackupRequest,
    DownloadRequest, PodVolumeBackup, PodVolumeRestore, Restore, RestoreStatus,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ApiResource;
use kube::{Api, Client, Resource};
use reconcile::{Context, Events, Failure, Key, Metrics, Object, Store};
use tokio::sync::{Mutex as Turn, Notify, OnceCell, watch};

use crate::Place;
use crate::loose::Loose;
use crate::names::{
    Home, Kind, Origin, VELERO_BACKUP_NAME, VELERO_RESTORE_NAME, VELERO_SCHEDULE_NAME,
};
use crate::queue::{Place as QueuePlace, Progress, Queue, note};
use crate::settings::Settings;
use crate::spec::Verdict;

pub(crate) type Nab = Loose<NonAdminBackup>;
pub(crate) type Nar = Loose<NonAdminRestore>;
pub(crate) type Nabsl = Loose<NonAdminBackupStorageLocation>;
pub(crate) type Nadr = Loose<NonAdminDownloadRequest>;
pub(crate) type Nas = Loose<NonAdminSchedule>;
pub(crate) type Approval = Loose<NonAdminBackupStorageLocationRequest>;
pub(crate) type Vb = Loose<Backup>;
pub(crate) type Vr = Loose<Restore>;
pub(crate) type Bsl = Loose<BackupStorageLocation>;
pub(crate) type Dbr = Loose<DeleteBackupRequest>;
pub(crate) type Dr = Loose<DownloadRequest>;

/// Objects by their namespace.
pub(crate) const BY_NAMESPACE: &str = "namespace";
/// Restores by `namespace/backup`; Velero objects of one backup or restore by its name.
pub(crate) const BY_TARGET: &str = "target";
/// Backups by `namespace/schedule`, for those that a schedule asked for.
pub(crate) const BY_SCHEDULE: &str = "schedule";
/// Velero objects by the namespace of the tenant they were made for.
pub(crate) const BY_TENANT: &str = "tenant";

/// Everything the controllers share.
pub(crate) struct World {
    pub(crate) client: Client,
    /// The namespace of the executor.
    pub(crate) admin: String,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) place: Place,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    pub(crate) backups: Store<Nab>,
    pub(crate) restores: Store<Nar>,
    pub(crate) locations: Store<Nabsl>,
    pub(crate) downloads: Store<Nadr>,
    pub(crate) schedules: Store<Nas>,
    pub(crate) approvals: Store<Approval>,
    pub(crate) velero_backups: Store<Vb>,
    pub(crate) velero_restores: Store<Vr>,
    pub(crate) velero_locations: Store<Bsl>,
    pub(crate) delete_requests: Store<Dbr>,
    pub(crate) download_requests: Store<Dr>,
    pub(crate) uploads: Store<Loose<DataUpload>>,
    pub(crate) data_downloads: Store<Loose<DataDownload>>,
    pub(crate) pod_backups: Store<Loose<PodVolumeBackup>>,
    pub(crate) pod_restores: Store<Loose<PodVolumeRestore>>,
    pub(crate) backup_queue: Mutex<Queue>,
    pub(crate) restore_queue: Mutex<Queue>,
    /// Places that moved and that nobody was told since.
    pub(crate) moved_backups: Moved,
    pub(crate) moved_restores: Moved,
    /// Held while a backup is counted against the quota and takes its place in it.
    pub(crate) quota: Turn<()>,
    cluster_uid: OnceCell<String>,
}

/// The namespace that is as old as its cluster.
const FIRST_NAMESPACE: &str = "kube-system";

/// Whether an object can be called so.
pub(crate) fn is_name(text: &str) -> bool {
    let fits = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-' || it == '.';
    (1..=253).contains(&text.len()) && text.chars().all(fits) && !text.starts_with('.')
}

impl World {
    pub(crate) fn start(
        context: &Context,
        admin: &str,
        settings: watch::Receiver<Arc<Settings>>,
        place: Place,
    ) -> Arc<Self> {
        let world = Self {
            client: context.client.clone(),
            admin: admin.to_owned(),
            settings,
            place,
            events: context.events.clone(),
            metrics: context.metrics.clone(),
            backups: Store::everywhere()
                .index(BY_NAMESPACE, in_namespace)
                .index(BY_SCHEDULE, |it: &Nab| {
                    let name = scheduled(it).into_iter();
                    name.map(|name| format!("{}/{name}", it.namespace())).collect()
                })
                .start(context),
            restores: Store::everywhere()
                .index(BY_NAMESPACE, in_namespace)
                .index(BY_TARGET, |it: &Nar| beside(it, &it.spec, "/restoreSpec/backupName"))
                .start(context),
            locations: Store::everywhere().index(BY_NAMESPACE, in_namespace).start(context),
            downloads: Store::everywhere().index(BY_NAMESPACE, in_namespace).start(context),
            schedules: Store::everywhere().start(context),
            approvals: Store::within(admin).start(context),
            velero_backups: Store::within(admin)
                .status_in_object()
                .index(BY_TENANT, |it: &Vb| tenant(Kind::Backup, it))
                .start(context),
            velero_restores: Store::within(admin)
                .status_in_object()
                .index(BY_TENANT, |it: &Vr| tenant(Kind::Restore, it))
                .start(context),
            velero_locations: Store::within(admin).status_in_object().start(context),
            delete_requests: Store::within(admin)
                .status_in_object()
                .index(BY_TARGET, |it: &Dbr| {
                    Dbr::text(&it.spec, "/backupName").map(str::to_owned).into_iter().collect()
                })
                .start(context),
            download_requests: Store::within(admin).status_in_object().start(context),
            uploads: moves(admin, VELERO_BACKUP_NAME, context),
            data_downloads: moves(admin, VELERO_RESTORE_NAME, context),
            pod_backups: moves(admin, VELERO_BACKUP_NAME, context),
            pod_restores: moves(admin, VELERO_RESTORE_NAME, context),
            backup_queue: Mutex::default(),
            restore_queue: Mutex::default(),
            moved_backups: Moved::default(),
            moved_restores: Moved::default(),
            quota: Turn::default(),
            cluster_uid: OnceCell::new(),
        };
        Arc::new(world)
    }

    pub(crate) fn now() -> Time {
        jiff::Timestamp::now().into()
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    /// The object as the API server has it now.
    pub(crate) async fn fresh<K>(&self, key: &Key) -> Result<Option<Loose<K>>, Failure>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        // Names come from specs of tenants too, and become part of a path: one that no object can have is
        // nobody's.
        if !is_name(&key.name) {
            return Ok(None);
        }
        let resource = ApiResource::erase::<K>(&());
        let api: Api<Loose<K>> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = api.get_opt(&key.name).await;
        found.map_err(|error| Failure::Api {
            doing: format!("read {} {key}", resource.kind),
            source: Box::new(error),
        })
    }

    pub(crate) fn admin_key(&self, name: &str) -> Key {
        Key::new(&self.admin, name)
    }

    /// Whether this place may hold what `namespace` owns: its own location, or one of the
    /// administrators. A tenant writes what it likes into its bucket, also Velero backups that claim
    /// to be somebody else's.
    pub(crate) fn may_hold(&self, location: Option<&str>, namespace: &str) -> bool {
        let Some(location) = location else { return true };
        let Some(found) = self.velero_locations.get(&self.admin_key(location)) else { return true };
        match Origin::read(Kind::Location, &found.metadata) {
            // One that another has taken the name of is nobody's: its tenant is gone, or made it anew.
            Some(origin) => origin.namespace == namespace && !self.is_replaced(&origin),
            None => true,
        }
    }

    fn is_replaced(&self, origin: &Origin) -> bool {
        self.living(origin).is_some_and(|identity| identity != origin.nacuuid)
    }

    /// Identity of the tenant's location that has the name now.
    fn living(&self, origin: &Origin) -> Option<String> {
        let found = self.locations.get(&Key::new(&origin.namespace, &origin.name))?;
        let identity = Nabsl::text(&found.status, "/veleroBackupStorageLocation/nacuuid");
        identity.map(str::to_owned)
    }

    /// Whether the tenant's location behind this Velero location is there, and is the one it was made for.
    /// A location whose tenant is gone may be left over for a while, with the name of the namespace on it.
    pub(crate) fn stands(&self, origin: &Origin) -> bool {
        self.living(origin).is_some_and(|identity| identity == origin.nacuuid)
    }

    /// Whether a Velero backup lies with the administrators, or in a location that the namespace has now.
    pub(crate) fn is_in_living_place(&self, namespace: &str, found: &Vb) -> bool {
        let Some(name) = Vb::text(&found.spec, "/storageLocation") else { return true };
        let Some(location) = self.velero_locations.get(&self.admin_key(name)) else { return false };
        let origin = Origin::read(Kind::Location, &location.metadata);
        origin.is_none_or(|origin| origin.namespace == namespace && self.stands(&origin))
    }

    /// Whether this Velero backup was made for this origin, and lies where it may.
    pub(crate) fn owns_backup(&self, origin: &Origin, found: &Vb) -> bool {
        let location = Vb::text(&found.spec, "/storageLocation");
        let included = found.spec.get("includedNamespaces").and_then(serde_json::Value::as_array);
        let own = included.is_some_and(|list| {
            list.len() == 1 && list.iter().all(|it| it.as_str() == Some(&origin.namespace))
        });
        own && origin.owns(Kind::Backup, &found.metadata)
            && self.may_hold(location, &origin.namespace)
    }

    /// Whether the tenant's namespace is being deleted.
    pub(crate) async fn namespace_ends(&self, namespace: &str) -> Result<bool, Failure> {
        let found = self.namespace(namespace).await?;
        Ok(found.is_some_and(|found| found.metadata.deletion_timestamp.is_some()))
    }

    pub(crate) async fn namespace(&self, name: &str) -> Result<Option<Namespace>, Failure> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.get_opt(name).await.map_err(|error| Failure::Api {
            doing: format!("read Namespace {name}"),
            source: Box::new(error),
        })
    }

    /// Why tenants of a namespace are not served; its labels may change at any time.
    pub(crate) async fn unserved(&self, namespace: &str) -> Result<Option<Verdict>, Failure> {
        let settings = self.settings();
        let Some(selector) = &settings.tenant_namespaces else { return Ok(None) };
        let found = self.namespace(namespace).await?;
        let labels = found.and_then(|it| it.metadata.labels);
        Ok((!selector.matches(labels.as_ref())).then(|| {
            Verdict::NotYet(format!(
                "namespace {namespace} is not one whose tenants are served: the administrator chooses \
                 them by their labels (tenantNamespaceSelector)"
            ))
        }))
    }

    /// Which namespace has this name now; `None` for one that ends or is not there.
    pub(crate) async fn home(&self, namespace: &str) -> Result<Option<Home>, Failure> {
        let found = self.namespace(namespace).await?;
        let found = found.filter(|it| it.metadata.deletion_timestamp.is_none());
        let Some(namespace_uid) = found.and_then(|it| it.metadata.uid) else { return Ok(None) };
        let ask = async || {
            let first = self.namespace(FIRST_NAMESPACE).await?;
            first.and_then(|it| it.metadata.uid).ok_or_else(|| {
                let doing = "tell this cluster from others".to_owned();
                Failure::other(doing, format!("it has no namespace {FIRST_NAMESPACE}"))
            })
        };
        let cluster_uid = self.cluster_uid.get_or_try_init(ask).await?.clone();
        Ok(Some(Home { namespace_uid, cluster_uid }))
    }

    /// Whether a Velero backup lies in a store of a tenant's own: it belongs to whoever has its keys.
    pub(crate) fn is_in_own_location(&self, found: &Vb) -> bool {
        let name = Vb::text(&found.spec, "/storageLocation").unwrap_or_default();
        let location = self.velero_locations.get(&self.admin_key(name));
        location.is_some_and(|it| Origin::read(Kind::Location, &it.metadata).is_some())
    }

    /// Notes how far a Velero backup is, and from where on others moved by that.
    pub(crate) fn note_backup(&self, name: &str) {
        let moved = note(&self.backup_queue, name, || {
            let found = self.velero_backups.get(&self.admin_key(name))?;
            Some((created(&*found)?, Progress::of_backup(&found.view::<BackupStatus>())))
        });
        self.moved_backups.note(moved);
    }

    /// Notes how far a Velero restore is, and from where on others moved by that.
    pub(crate) fn note_restore(&self, name: &str) {
        let moved = note(&self.restore_queue, name, || {
            let found = self.velero_restores.get(&self.admin_key(name))?;
            Some((created(&*found)?, Progress::of_restore(&found.view::<RestoreStatus>())))
        });
        self.moved_restores.note(moved);
    }

    /// Asks for a pass of the tenants' backups whose place moved, until it is dropped.
    pub(crate) async fn feed_backups(&self, keys: &reconcile::Queue) {
        let origin = |name: &str| {
            let found = self.velero_backups.get(&self.admin_key(name))?;
            origin_key(Kind::Backup, found.as_ref())
        };
        self.moved_backups.feed(&self.backup_queue, keys, origin).await;
    }

    /// Asks for a pass of the tenants' restores whose place moved, until it is dropped.
    pub(crate) async fn feed_restores(&self, keys: &reconcile::Queue) {
        let origin = |name: &str| {
            let found = self.velero_restores.get(&self.admin_key(name))?;
            origin_key(Kind::Restore, found.as_ref())
        };
        self.moved_restores.feed(&self.restore_queue, keys, origin).await;
    }

    /// Velero backups of a namespace: those that are its own, not those that only say so.
    pub(crate) fn backups_of(&self, namespace: &str) -> Vec<Arc<Vb>> {
        let mut all = self.velero_backups.by(BY_TENANT, namespace);
        all.retain(|it| {
            let origin = Origin::read(Kind::Backup, &it.metadata);
            origin
                .is_some_and(|origin| it.name() == origin.nacuuid && self.owns_backup(&origin, it))
        });
        all
    }

    /// Unfinished Velero backups of a namespace.
    pub(crate) fn unfinished(&self, namespace: &str) -> usize {
        let all = self.backups_of(namespace);
        let waits = |it: &Vb| {
            Progress::of_backup(&it.view::<BackupStatus>()) != Progress::Done
                && self.is_in_living_place(namespace, it)
        };
        all.iter().filter(|it| waits(it.as_ref())).count()
    }
}

/// From where on places in a queue have moved since they were last told. One end moves all behind it:
/// these must not stand in the way of the one that ended, nor be written once for every end, nor cost
/// anything while more ends come.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    from: Mutex<Option<QueuePlace>>,
    changed: Notify,
}

impl Moved {
    fn note(&self, from: Option<QueuePlace>) {
        let Some(from) = from else { return };
        let mut noted = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.as_ref().is_none_or(|noted| from < *noted) {
            *noted = Some(from);
        }
        drop(noted);
        self.changed.notify_one();
    }

    /// Gives them to the keys that wait for a pass, a few at a time and in their order.
    async fn feed(
        &self,
        queue: &Mutex<Queue>,
        keys: &reconcile::Queue,
        origin: impl Fn(&str) -> Option<Key>,
    ) {
        /// So many may wait before more are given: new ones come behind no more than these.
        const AHEAD: usize = 32;
        const PAUSE: Duration = Duration::from_millis(5);
        loop {
            self.changed.notified().await;
            let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner).take();
            while let Some(place) = from {
                let (names, rest) =
                    queue.lock().unwrap_or_else(PoisonError::into_inner).behind(&place, AHEAD);
                while keys.depth() >= AHEAD {
                    tokio::time::sleep(PAUSE).await;
                }
                for key in names.iter().filter_map(|name| origin(name)) {
                    keys.add(&key);
                }
                from = rest;
            }
        }
    }
}

/// The tenant's object that an object of the executor says it was made for.
pub(crate) fn origin_key<K>(kind: Kind, object: &Loose<K>) -> Option<Key> {
    let origin = Origin::read(kind, &object.metadata)?;
    Some(Key::new(&origin.namespace, &origin.name))
}

pub(crate) fn created<K>(object: &Loose<K>) -> Option<Time> {
    object.metadata.creation_timestamp.as_ref().map(Time::from)
}

fn in_namespace<K>(object: &Loose<K>) -> Vec<String> {
    vec![object.namespace().to_owned()]
}

/// The schedule that a backup says it was asked for by; who writes that itself delays its own schedule.
pub(crate) fn scheduled(backup: &Nab) -> Option<&str> {
    backup.metadata.annotations.as_ref()?.get(VELERO_SCHEDULE_NAME).map(String::as_str)
}

fn beside<K>(object: &Loose<K>, value: &serde_json::Value, pointer: &str) -> Vec<String> {
    let name = Loose::<K>::text(value, pointer);
    name.map(|name| format!("{}/{name}", object.namespace())).into_iter().collect()
}

fn tenant<K>(kind: Kind, object: &Loose<K>) -> Vec<String> {
    Origin::read(kind, &object.metadata).map(|origin| origin.namespace).into_iter().collect()
}

fn moves<K>(admin: &str, label: &'static str, context: &Context) -> Store<Loose<K>>
where
    Loose<K>: Object,
    K: Resource<DynamicType = ()> + 'static,
{
    Store::within(admin)
        .status_in_object()
        .index(BY_TARGET, move |it: &Loose<K>| {
            it.label(label).map(str::to_owned).into_iter().collect()
        })
        .start(context)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn what_leads_elsewhere_is_no_name() {
        assert!(is_name("nightly-1.2") && is_name("a"));
        for bad in ["", "../x", "a/status", "a?watch=true", "A", "a b", "a%2fb", &"a".repeat(254)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
