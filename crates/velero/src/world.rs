//! What the parts of the executor share: settings, the objects of its namespace, the way to stores.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::velero::{
    Backup, BackupStorageLocation, DeleteBackupRequest, DownloadRequest, Restore, Schedule,
    ServerStatusRequest,
};
use blobs::Store as Blobs;
use blobs::wrap::{Policy, Retrying};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Resource};
use reconcile::{Context, Failure, Key, Next, Store};
use serde::de::DeserializeOwned;

use crate::door::Door;
use crate::downloads::Downloads;
use crate::names;
use crate::place::{self, Place};
use crate::refused::Refused;
use crate::restore::room::Room;

/// How the executor is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the resources live that it acts on.
    pub namespace: String,
    /// Backups that may run at the same time.
    pub concurrent_backups: usize,
    pub default_ttl: Duration,
    /// How often stores are looked through for backups that are not known, and checked.
    pub sync_every: Duration,
    pub validate_every: Duration,
    /// The name of the location that is used where none is the default.
    pub default_location: String,
    /// Where locations that are directories of this machine live. Then `default_location` is made.
    pub directories: Option<PathBuf>,
    /// Where a tarball is unpacked while it is restored from; nothing has a name there.
    pub spool: PathBuf,
    /// Where the data of volumes goes if administrators set up no backup target for it. Of a machine
    /// that is its own cluster only.
    pub volumes: Option<PathBuf>,
    /// Files of directories are fetched from here.
    pub(crate) downloads: Option<Downloads>,
}

impl Settings {
    pub fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            concurrent_backups: 1,
            default_ttl: Duration::from_hours(720),
            sync_every: Duration::from_mins(1),
            validate_every: Duration::from_mins(1),
            default_location: "default".to_owned(),
            directories: None,
            spool: std::env::temp_dir(),
            volumes: None,
            downloads: None,
        }
    }
}

/// A location that can be read and written.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Blobs>,
    pub(crate) place: Place,
    pub(crate) credentials: blobs::Credentials,
    pub(crate) is_tenants: bool,
}

impl Opened {
    /// What went wrong, in words that may stand in a status. Of what a tenant's location leads to no word
    /// is passed on: it may be no store, and who named it may read here what only this server reaches.
    pub(crate) fn told(&self, error: &blobs::Error) -> String {
        told(error, self.is_tenants)
    }
}

fn told(error: &blobs::Error, is_tenants: bool) -> String {
    use blobs::Error as E;

    let whole = telemetry::Chain(error).to_string();
    if !is_tenants {
        return whole;
    }
    let bare = match error {
        E::Refused { what, .. } => format!("the store refuses {what}"),
        E::NotFound { .. }
        | E::Exists { .. }
        | E::Changed { .. }
        | E::TooLong { .. }
        | E::Denied { .. }
        | E::Locked { .. }
        | E::Unsupported { .. }
        | E::ForeignName { .. }
        | E::Unusable { .. }
        | E::Body { .. }
        | E::Unavailable { .. }
        | E::PermitEnded
        | E::Disk(_) => error.to_string(),
    };
    match status(&whole) {
        Some(code) => format!("{bare} (status {code})"),
        None => bare,
    }
}

/// The status of an answer, where a message has one.
fn status(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("status ")?;
    let rest = rest.strip_prefix("code").unwrap_or(rest).trim_start_matches([':', ' ']);
    let code = rest.get(..3)?;
    let is_code = code.bytes().all(|it| it.is_ascii_digit());
    (is_code && !rest.get(3..)?.starts_with(|it: char| it.is_ascii_digit())).then_some(code)
}

pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) context: Context,
    pub(crate) door: Door,
    pub(crate) backups: Store<Backup>,
    pub(crate) restores: Store<Restore>,
    pub(crate) locations: Store<BackupStorageLocation>,
    pub(crate) deletions: Store<DeleteBackupRequest>,
    pub(crate) downloads: Store<DownloadRequest>,
    pub(crate) schedules: Store<Schedule>,
    pub(crate) questions: Store<ServerStatusRequest>,
    /// Stores that were opened, by what they were opened with.
    open: Mutex<HashMap<String, Arc<dyn Blobs>>>,
    pub(crate) running: Running,
    pub(crate) refused: Refused,
    /// For what restores unpack.
    pub(crate) room: Room,
}

impl std::fmt::Debug for World {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("World").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Stores that are kept open.
const OPEN_MAX: usize = 256;

impl World {
    pub(crate) fn start(context: &Context, settings: Settings) -> Arc<Self> {
        let namespace = settings.namespace.clone();
        Arc::new(Self {
            door: Door::new(context.client.clone()),
            backups: Store::within(&namespace).status_in_object().start(context),
            restores: Store::within(&namespace).status_in_object().start(context),
            locations: Store::within(&namespace).status_in_object().start(context),
            deletions: Store::within(&namespace).status_in_object().start(context),
            downloads: Store::within(&namespace).status_in_object().start(context),
            schedules: Store::within(&namespace).status_in_object().start(context),
            questions: Store::within(&namespace).status_in_object().start(context),
            open: Mutex::default(),
            running: Running::default(),
            refused: Refused::default(),
            room: Room::default(),
            context: context.clone(),
            settings,
        })
    }

    pub(crate) fn key(&self, name: &str) -> Key {
        Key::new(&self.settings.namespace, name)
    }

    /// An object of ours as the API server has it now.
    pub(crate) async fn fresh<K>(&self, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.context.client.clone(), &self.settings.namespace);
        let found = api.get_opt(name).await;
        found.map_err(|error| Failure::Api {
            doing: format!("read {} {name}", K::kind(&())),
            source: Box::new(error),
        })
    }

    pub(crate) fn location(&self, name: &str) -> Option<Arc<BackupStorageLocation>> {
        self.locations.get(&self.key(name))
    }

    /// The way to a location. Nothing is asked of the store yet.
    pub(crate) async fn open(&self, location: &BackupStorageLocation) -> Result<Opened, String> {
        let place = place::place(location, self.settings.directories.as_deref())?;
        let (fingerprint, store, credentials) = match &place {
            Place::S3(s3) => {
                let mut s3 = s3.as_ref().clone();
                if let Some(reference) =
                    location.spec.object_storage.as_ref().and_then(|it| it.ca_cert_ref.as_ref())
                {
                    let name = reference.name.as_deref().unwrap_or_default();
                    s3.network.ca_pem = Some(self.secret(name, &reference.key).await?);
                }
                let (name, key) = match &location.spec.credential {
                    Some(it) => (it.name.as_deref().unwrap_or_default(), it.key.as_str()),
                    None => place::DEFAULT_SECRET,
                };
                let text = self
                    .secret(name, key)
                    .await
                    .map_err(|error| format!("unable to get credentials: {error}"))?;
                let credentials = place::credentials(&text, &s3.profile)?;
                let fingerprint = format!("{} {:?} {text}", s3.url, s3.network);
                let opened = blobs::open_over(&s3.url, &credentials, &s3.network);
                let store = opened.map_err(|error| telemetry::Chain(&error).to_string())?;
                (fingerprint, store, credentials)
            }
            Place::Directory { bucket, root } => {
                let is_there = bucket.is_dir();
                if !is_there {
                    let name = bucket.file_name().unwrap_or_default().to_string_lossy();
                    return Err(format!("the server has no directory {name:?} for backups"));
                }
                let store: Arc<dyn Blobs> = Arc::new(blobs::LocalStore::at(root.clone()));
                (root.display().to_string(), store, blobs::Credentials::Anonymous)
            }
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        let store =
            open.entry(fingerprint).or_insert_with(|| Retrying::around(store, timeout())).clone();
        Ok(Opened { store, place, credentials, is_tenants: is_tenants(location) })
    }

    async fn secret(&self, name: &str, key: &str) -> Result<String, String> {
        let api: Api<Secret> =
            Api::namespaced(self.context.client.clone(), &self.settings.namespace);
        let found = api.get_opt(name).await;
        let found = found.map_err(|error| {
            format!("unable to get key for secret: {}", telemetry::Chain(&error))
        })?;
        let Some(secret) = found else {
            return Err(format!("unable to get key for secret: Secret \"{name}\" not found"));
        };
        let bytes = secret.data.and_then(|mut it| it.remove(key));
        let Some(bytes) = bytes else {
            return Err(format!(
                "unable to get key for secret: Secret \"{name}\" has no key {key}"
            ));
        };
        String::from_utf8(bytes.0)
            .map_err(|_| format!("the key {key} of Secret \"{name}\" is not text"))
    }
}

/// Whether the store of a location is a tenant's own: what it holds, and how fast it answers, is then up
/// to somebody who has no rights here.
pub(crate) fn is_tenants(location: &BackupStorageLocation) -> bool {
    tenant_of(location).is_some()
}

/// The namespace of the tenant whose location it is.
pub(crate) fn tenant_of(location: &BackupStorageLocation) -> Option<&str> {
    let notes = location.metadata.annotations.as_ref()?;
    notes.get(names::TENANT_LOCATION_NAMESPACE).map(String::as_str)
}

/// Workers for what is asked of stores: more than there are tenants that all answer slowly at once.
pub(crate) const STORE_WORKERS: usize = 16;
const TURN_AGAIN: Duration = Duration::from_secs(2);

/// A turn at a store. Those of one tenant's own are asked one after the other, so that however many it has
/// and however slowly they answer, they keep one worker from the others; the error is when to ask again.
pub(crate) fn turn(
    running: &Running,
    kind: &'static str,
    location: &BackupStorageLocation,
) -> Result<Option<Work>, Next> {
    tenant_of(location).map(|tenant| turn_of(running, kind, tenant)).transpose()
}

/// As [`turn`], for what a tenant asks of whatever store.
pub(crate) fn turn_of(running: &Running, kind: &'static str, tenant: &str) -> Result<Work, Next> {
    running.begin(kind, tenant).ok_or_else(|| Next::after(TURN_AGAIN))
}

/// A store of a tenant's own gets this long, and then others their turn.
pub(crate) async fn in_time<T>(
    location: &BackupStorageLocation,
    within: Duration,
    work: impl Future<Output = T>,
) -> Result<T, String> {
    if !is_tenants(location) {
        return Ok(work.await);
    }
    let done = tokio::time::timeout(within, work).await;
    done.map_err(|_| format!("it took longer than {} s", within.as_secs()))
}

/// Enough for a store that stumbles; one that is down is told soon.
fn timeout() -> Policy {
    Policy { tries_max: 4, total_max: Duration::from_secs(30), ..Policy::default() }
}

/// What this process works on now, by kind and name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running(Arc<Mutex<HashSet<(&'static str, String)>>>);

impl Running {
    pub(crate) fn has(&self, kind: &'static str, name: &str) -> bool {
        self.lock().contains(&(kind, name.to_owned()))
    }

    /// The names of all of a kind.
    pub(crate) fn all(&self, kind: &'static str) -> HashSet<String> {
        let all = self.lock();
        all.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect()
    }

    /// `None` if it is being worked on already.
    pub(crate) fn begin(&self, kind: &'static str, name: &str) -> Option<Work> {
        let mark = (kind, name.to_owned());
        let is_new = self.lock().insert(mark.clone());
        is_new.then(|| Work { running: self.clone(), mark })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<(&'static str, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One piece of work, until it is dropped.
#[derive(Debug)]
pub(crate) struct Work {
    running: Running,
    mark: (&'static str, String),
}

impl Drop for Work {
    fn drop(&mut self) {
        self.running.lock().remove(&self.mark);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A server that has this object where lists of `plural` are asked for, and takes whatever is written.
    pub(crate) fn server(plural: &'static str, object: Value) -> kube::Client {
        let service = tower::service_fn(move |asked: http::Request<kube::client::Body>| {
            let last = asked.uri().path().rsplit('/').next().unwrap_or_default();
            let items = if last == plural { vec![&object] } else { Vec::new() };
            let listed = json!({"metadata": {"resourceVersion": "1"}, "items": items});
            let is_read = asked.method() == http::Method::GET;
            let body = if is_read { listed } else { object.clone() };
            let is_watch = asked.uri().query().is_some_and(|it| it.contains("watch=true"));
            let body = kube::client::Body::from(body.to_string().into_bytes());
            async move {
                if is_watch {
                    std::future::pending::<()>().await;
                }
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) type Objects = Arc<Mutex<Vec<Value>>>;

    /// A server that has these objects of one kind, and takes nothing that is written of `refused`.
    pub(crate) fn refusing(
        plural: &'static str,
        refused: &'static str,
        objects: &Objects,
    ) -> kube::Client {
        let objects = Arc::clone(objects);
        let service = tower::service_fn(move |asked: http::Request<kube::client::Body>| {
            let objects = Arc::clone(&objects);
            async move {
                let (head, body) = asked.into_parts();
                let last = head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
                if head.uri.query().is_some_and(|it| it.contains("watch=true")) {
                    std::future::pending::<()>().await;
                }
                let change = body.collect_bytes().await.unwrap();
                let mut all = objects.lock().unwrap_or_else(PoisonError::into_inner);
                let of_kind = head.uri.path().contains(&format!("/{plural}"));
                let found = all.iter_mut().find(|it| of_kind && it["metadata"]["name"] == *last);
                let (code, body) = match found {
                    None if last == plural => {
                        (200, json!({"metadata": {"resourceVersion": "1"}, "items": *all}))
                    }
                    None => (200, json!({"metadata": {"resourceVersion": "1"}, "items": []})),
                    Some(it) if head.method == http::Method::GET => (200, it.clone()),
                    Some(_) if last == refused => (
                        422,
                        json!({"kind": "Status", "status": "Failure", "code": 422,
                            "message": "it is invalid"}),
                    ),
                    Some(it) => {
                        let change: Value = serde_json::from_slice(&change).unwrap();
                        for (key, value) in change["status"].as_object().into_iter().flatten() {
                            it["status"][key] = value.clone();
                        }
                        (200, it.clone())
                    }
                };
                let body = kube::client::Body::from(body.to_string().into_bytes());
                let answer = http::Response::builder().status(code).body(body).unwrap();
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        kube::Client::new(service, "default")
    }

    /// The phases that the server has, by name.
    pub(crate) fn phases(objects: &Objects) -> std::collections::BTreeMap<String, String> {
        let all = objects.lock().unwrap_or_else(PoisonError::into_inner);
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        all.iter().map(|it| (text(&it["metadata"]["name"]), text(&it["status"]["phase"]))).collect()
    }

    /// A world that this server is all of.
    pub(crate) fn world(client: kube::Client, tasks: &tasks::Tasks) -> Arc<World> {
        let mut registry = telemetry::Registry::new("test");
        let metrics = reconcile::Metrics::new(&mut registry, &[]);
        World::start(&Context::new("velero", client, tasks, metrics), Settings::new("adm"))
    }

    #[test]
    fn stores_of_one_tenant_are_asked_one_after_the_other() {
        let location = |notes: Value| -> BackupStorageLocation {
            serde_json::from_value(json!({"metadata": {"name": "l", "annotations": notes}}))
                .unwrap()
        };
        let of = |tenant: &str| location(json!({names::TENANT_LOCATION_NAMESPACE: tenant}));
        let running = Running::default();
        let first = turn(&running, "look", &of("a")).unwrap();
        assert!(turn(&running, "look", &of("a")).is_err(), "its next one waits");
        assert!(turn(&running, "deletion", &of("a")).is_ok(), "for its like");
        assert!(turn(&running, "look", &of("b")).is_ok(), "nobody else does");
        assert!(matches!(turn(&running, "look", &location(json!({}))), Ok(None)));
        drop(first);
        assert!(turn(&running, "look", &of("a")).is_ok());
    }
}

#[cfg(test)]
mod told {
    use super::*;

    #[test]
    fn nothing_of_what_a_tenants_location_leads_to_is_passed_on() {
        let said = "Error performing GET http://10.0.0.7/: Server returned non-2xx status code: 403 Forbidden: token=s3cr3t";
        let error = || blobs::Error::Unavailable { what: "list a".to_owned(), source: said.into() };
        assert!(told(&error(), false).contains("s3cr3t"), "administrators read all of it");
        let bare = told(&error(), true);
        assert_eq!(bare, "the store did not answer for list a (status 403)");
        let silent =
            blobs::Error::Unavailable { what: "list a".to_owned(), source: "refused".into() };
        assert_eq!(told(&silent, true), "the store did not answer for list a");
    }

    #[test]
    fn a_status_is_found_as_it_is_written() {
        assert_eq!(status("x (status 301, MovedPermanently"), Some("301"));
        assert_eq!(status("a status code: 403 Forbidden"), Some("403"));
        assert_eq!(status("status 4031"), None);
        assert_eq!(status("its status is unknown"), None);
    }
}
