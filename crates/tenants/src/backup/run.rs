//! Observes a tenant's backup and carries out what was decided.

use std::sync::{Arc, PoisonError};

use api::mirror::Mirror;
use api::nonadmin::{
    NonAdminBackup, NonAdminBackupStatus as Status, NonAdminBackupStorageLocationStatus, Phase,
};
use api::velero::{Backup, BackupStorageLocationStatus, LocationPhase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{Failure, Key, Next, OrFail as _, Reconciler};
use serde_json::{Map, Value, json};

use super::decide::{
    self, Bury, Candidate, Found, Observed, Path, Request, Step, Turn, Velero, Wanted,
};
use super::validate::{self, Others, Storage, VeleroLocation};
use crate::counts;
use crate::loose::Loose;
use crate::names::{
    self, ATTEMPT, BACKUP_FINALIZER, Kind, LEAVES_WITH_LOCATION, Origin, SYNCED_FROM,
};
use crate::settings::Settings;
use crate::spec;
use crate::tell;
use crate::tombstones::{self, Owner};
use crate::world::{BY_NAMESPACE, BY_TARGET, Dbr, Nab, Nar, Vb, World, created};

/// No path of the graph is longer; more would be a circle.
const STEPS_MAX: usize = 24;

/// The controller of backups.
pub(crate) struct Backups(pub(crate) Arc<World>);

impl Reconciler for Backups {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let settings = self.0.settings();
        if !settings.enable {
            return Ok(Next::WAIT);
        }
        let Some(object) = self.0.fresh::<NonAdminBackup>(key).await? else {
            return Ok(Next::WAIT);
        };
        // Two that are counted at once would both find room for one.
        let counted = is_counted(&settings, &status(&object));
        let _turn = if counted { Some(self.0.quota.lock().await) } else { None };
        Pass { world: &self.0, key, settings, object: Arc::new(object), is_marked: false }
            .walk()
            .await
    }
}

/// One pass over one object.
struct Pass<'a> {
    world: &'a World,
    key: &'a Key,
    settings: Arc<Settings>,
    /// As the API server answered last.
    object: Arc<Nab>,
    is_marked: bool,
}

impl Pass<'_> {
    async fn walk(mut self) -> Result<Next, Failure> {
        for _ in 0..STEPS_MAX {
            // What is made is judged by the settings of this moment, not by those the pass began with.
            self.settings = self.world.settings();
            let seen = self.observe().await?;
            match decide::decide(&seen) {
                Step::End => return Ok(Next::WAIT),
                Step::Terminal(why) => {
                    tracing::debug!(why, "nothing more happens until the object is edited");
                    return Ok(Next::WAIT);
                }
                Step::Requeue(pause) => return Ok(Next::after(pause)),
                step => {
                    if !self.apply(step, &seen).await? {
                        return Ok(Next::WAIT);
                    }
                }
            }
        }
        Err(Failure::other("end the pass", "it goes in a circle"))
    }

    async fn observe(&self) -> Result<Observed, Failure> {
        let object = &self.object;
        let wanted = wanted(&object.spec);
        let is_deleted = object.is_deleted();
        let path = decide::path(wanted, is_deleted);
        let known: Status = object.known()?;
        let candidate = self.candidate(&known).await?;
        let velero = self.velero(&known, &candidate, path).await?;
        let deletes = matches!(path, Path::Delete | Path::ForceDelete);
        Ok(Observed {
            now: World::now(),
            admin_namespace: self.world.admin.clone(),
            generation: object.metadata.generation,
            wanted,
            is_deleted,
            has_finalizer: object.has_finalizer(BACKUP_FINALIZER),
            spec: if path == Path::CreateUpdate {
                self.judge(&known).await?
            } else {
                spec::Verdict::Valid
            },
            turn: self.turn(&known),
            request: if deletes { self.request(&known).await? } else { None },
            restores: if path == Path::Delete { self.restores().await?.len() } else { 0 },
            policy: self.settings.api_delete_policy,
            namespace_ends: path == Path::ApiDelete
                && self.world.namespace_ends(&self.key.namespace).await?,
            leaves_with_location: has_annotation(object, LEAVES_WITH_LOCATION)
                && !self.lies_with_administrators(&velero),
            in_own_location: Nab::text(&object.spec, "/backupSpec/storageLocation").is_some(),
            is_marked: self.is_marked,
            status: known,
            candidate,
            velero,
        })
    }

    fn origin(&self, nacuuid: &str) -> Origin {
        Origin::new(&self.key.namespace, &self.key.name, nacuuid)
    }

    /// A new identity, or the one of a Velero backup from a store. The label alone proves nothing: a
    /// tenant can write it.
    async fn candidate(&self, known: &Status) -> Result<Candidate, Failure> {
        let label = self.object.label(SYNCED_FROM).filter(|text| !text.is_empty());
        match (known.nacuuid(), label) {
            (Some(nacuuid), Some(label)) if nacuuid == label => {
                Ok(Candidate::Synced(nacuuid.to_owned()))
            }
            (Some(nacuuid), _) => Ok(Candidate::Generated(nacuuid.to_owned())),
            (None, Some(label)) => {
                let found = self.world.fresh::<Backup>(&self.world.admin_key(label)).await?;
                let own = match found {
                    Some(found) if self.world.owns_backup(&self.origin(label), &found) => {
                        self.world.is_in_living_place(&self.key.namespace, &found)
                            && !self.is_former(label, &found).await?
                    }
                    _ => false,
                };
                Ok(if own { Candidate::Synced(label.to_owned()) } else { Candidate::Nothing })
            }
            (None, None) => Ok(Candidate::Generated(names::nacuuid(
                &self.key.namespace,
                &self.key.name,
                &uuid::Uuid::new_v4().to_string(),
            ))),
        }
    }

    /// Whether a Velero backup in the administrators' store was an earlier namespace's of this name.
    async fn is_former(&self, nacuuid: &str, found: &Vb) -> Result<bool, Failure> {
        if self.world.is_in_own_location(found) {
            return Ok(false);
        }
        let namespace = &self.key.namespace;
        let home = self.world.home(namespace).await?;
        Ok(home.is_none_or(|home| home.succeeds(&found.metadata))
            || tombstones::of(self.world, namespace).await?.former.contains(nacuuid))
    }

    async fn velero(
        &self,
        known: &Status,
        candidate: &Candidate,
        path: Path,
    ) -> Result<Velero, Failure> {
        let nacuuid = match (known.nacuuid(), candidate) {
            (Some(nacuuid), _) => nacuuid,
            (None, Candidate::Synced(nacuuid)) => nacuuid,
            (None, _) => return Ok(Velero::Absent),
        };
        let key = self.world.admin_key(nacuuid);
        let cached = self.world.velero_backups.get(&key);
        // What is cached was there a moment ago, which is enough to copy from. That something is
        // not there, or is to be deleted, is asked of the API server.
        let found = match cached.filter(|_| path == Path::CreateUpdate) {
            Some(found) => found,
            None => match self.world.fresh::<Backup>(&key).await? {
                Some(found) => Arc::new(found),
                None => return Ok(Velero::Absent),
            },
        };
        if !self.world.owns_backup(&self.origin(nacuuid), &found) {
            return Ok(Velero::Foreign);
        }
        Ok(Velero::Found(Box::new(self.describe(nacuuid, &found))))
    }

    /// Whether a Velero backup lies in a store of the administrators: there it takes room of theirs, whatever
    /// its tenant says of why it goes.
    fn lies_with_administrators(&self, velero: &Velero) -> bool {
        let Velero::Found(found) = velero else { return false };
        let name = found.spec.document().get("storageLocation").and_then(Value::as_str);
        let Some(name) = name.filter(|it| !it.is_empty()) else { return true };
        let location = self.world.velero_locations.get(&self.world.admin_key(name));
        location.is_some_and(|it| Origin::read(Kind::Location, &it.metadata).is_none())
    }

    fn describe(&self, nacuuid: &str, found: &Vb) -> Found {
        let queue = self.world.backup_queue.lock().unwrap_or_else(PoisonError::into_inner);
        let position = queue.position(nacuuid);
        drop(queue);
        Found {
            status: Vb::document(&found.status).into(),
            spec: Vb::document(&found.spec).into(),
            is_deleted: found.is_deleted(),
            position,
            uploads: counts::movers(&self.world.uploads.by(BY_TARGET, nacuuid)),
            pod_volumes: counts::pod_volumes(&self.world.pod_backups.by(BY_TARGET, nacuuid)),
        }
    }

    async fn judge(&self, known: &Status) -> Result<spec::Verdict, Failure> {
        // What was begun goes on.
        if known.phase < Some(Phase::Created)
            && let Some(verdict) = self.world.unserved(&self.key.namespace).await?
        {
            return Ok(verdict);
        }
        let is_counted = self.settings.max_backups.is_some() && known.nacuuid().is_none();
        let others = if is_counted { self.others().await? } else { Others::default() };
        let (namespace, storage) = (&self.key.namespace, self.storage());
        Ok(validate::judge(namespace, &self.object.spec, &storage, others, &self.settings))
    }

    /// Backups the namespace has: those of its objects, Velero backups whose object is gone, and what it
    /// removed by force while the data stays.
    async fn others(&self) -> Result<Others, Failure> {
        let graves = tombstones::of(self.world, &self.key.namespace).await?;
        let home = self.world.home(&self.key.namespace).await?;
        let own = self.world.backups_of(&self.key.namespace);
        let is_former = |it: &Vb| {
            let succeeds = home.as_ref().is_some_and(|home| home.succeeds(&it.metadata));
            (succeeds || graves.former.contains(it.name())) && !self.world.is_in_own_location(it)
        };
        // What says it lies in a place that is not there may be what another has planted in its own.
        let is_own =
            |it: &Vb| !is_former(it) && self.world.is_in_living_place(&self.key.namespace, it);
        let mut all: std::collections::BTreeSet<String> =
            own.iter().filter(|it| is_own(it)).map(|it| it.name().to_owned()).collect();
        let objects = self.world.backups.by(BY_NAMESPACE, &self.key.namespace);
        all.extend(objects.iter().filter_map(|it| status(it).nacuuid().map(str::to_owned)));
        let mut buried = graves.present;
        buried.extend(graves.returning.into_iter().filter(|it| !all.contains(it)));
        Ok(Others::count(all, &buried))
    }

    fn storage(&self) -> Storage {
        let Some(name) = Nab::text(&self.object.spec, "/backupSpec/storageLocation") else {
            return Storage::Default;
        };
        let Some(found) = self.world.locations.get(&self.key.beside(name)) else {
            return Storage::Missing(name.to_owned());
        };
        let status: NonAdminBackupStorageLocationStatus = found.view();
        let nacuuid = status.velero_backup_storage_location.and_then(|it| it.nacuuid);
        let phase = if found.is_deleted() { Some(Phase::Deleting) } else { status.phase };
        Storage::Found { phase, velero: self.velero_location(name, nacuuid.as_deref()), nacuuid }
    }

    fn velero_location(&self, name: &str, nacuuid: Option<&str>) -> VeleroLocation {
        let Some(nacuuid) = nacuuid else { return VeleroLocation::Missing };
        let Some(found) = self.world.velero_locations.get(&self.world.admin_key(nacuuid)) else {
            return VeleroLocation::Missing;
        };
        let origin = Origin::new(&self.key.namespace, name, nacuuid);
        if !origin.owns(Kind::Location, &found.metadata) {
            return VeleroLocation::Missing;
        }
        let status: BackupStorageLocationStatus = found.view();
        match status.phase {
            Some(LocationPhase::Available) => VeleroLocation::Available,
            _ => VeleroLocation::Unavailable,
        }
    }

    fn turn(&self, known: &Status) -> Turn {
        let waits = known.phase.is_none_or(|phase| phase < Phase::Created);
        match self.settings.max_concurrent {
            Some(max) if waits && self.world.unfinished(&self.key.namespace) >= max => {
                Turn::Later(format!(
                    "{max} backups of namespace {} are unfinished, which is as many as the \
                     administrator allows; this one follows",
                    self.key.namespace
                ))
            }
            _ => Turn::Now,
        }
    }

    /// The request to delete the Velero backup that counts: one that still runs, or the newest.
    async fn request(&self, known: &Status) -> Result<Option<Request>, Failure> {
        let Some(nacuuid) = known.nacuuid() else { return Ok(None) };
        let found = self.requests(nacuuid).await?;
        let ended = |it: &Dbr| Dbr::text(&it.status, "/phase") == Some("Processed");
        let chosen = found.iter().max_by_key(|it| (!ended(it), created(*it), it.name().to_owned()));
        Ok(chosen.map(|it| Request {
            name: it.name().to_owned(),
            status: Mirror::from(Dbr::document(&it.status)),
            attempt: it
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(ATTEMPT)?.parse().ok())
                .unwrap_or_default(),
            created: created(it).unwrap_or_else(World::now),
        }))
    }

    /// All requests to delete the Velero backup, whoever made them, as the API server has them.
    async fn requests(&self, nacuuid: &str) -> Result<Vec<Dbr>, Failure> {
        let api: kube::Api<Dbr> =
            kube::Api::namespaced(self.world.client.clone(), &self.world.admin);
        let selector = format!("{}={nacuuid}", names::VELERO_BACKUP_NAME);
        let params = kube::api::ListParams::default().labels(&selector);
        let list = api.list(&params).await.map_err(|error| Failure::Api {
            doing: format!("list DeleteBackupRequests of {nacuuid}"),
            source: Box::new(error),
        })?;
        let own = |it: &Dbr| Dbr::text(&it.spec, "/backupName") == Some(nacuuid);
        Ok(list.items.into_iter().filter(own).collect())
    }

    /// Restores from this backup that nobody has deleted yet, as the API server has them.
    async fn restores(&self) -> Result<Vec<Nar>, Failure> {
        let api: kube::Api<Nar> =
            kube::Api::namespaced(self.world.client.clone(), &self.key.namespace);
        let list = api.list(&kube::api::ListParams::default()).await;
        let list = list.map_err(|error| Failure::Api {
            doing: format!("list NonAdminRestores of {}", self.key.namespace),
            source: Box::new(error),
        })?;
        let name = Some(&*self.key.name);
        let own =
            |it: &Nar| !it.is_deleted() && Nar::text(&it.spec, "/restoreSpec/backupName") == name;
        Ok(list.items.into_iter().filter(own).collect())
    }

    /// Carries out a step; `false` when the object is gone.
    async fn apply(&mut self, step: Step, seen: &Observed) -> Result<bool, Failure> {
        match step {
            Step::Report(status) => self.report(&status, seen).await?,
            Step::ReportAndMark(status) => {
                self.report(&status, seen).await?;
                self.is_marked = true;
            }
            Step::AddFinalizer => {
                let store = &self.world.backups;
                self.object = store.add_finalizer(&self.object, BACKUP_FINALIZER).await?;
            }
            Step::CreateVeleroBackup => self.create_backup(seen).await?,
            Step::SetDelete => {
                self.world.backups.delete(&self.object).await?;
                self.is_marked = true;
                return self.refetch().await;
            }
            Step::DeleteVeleroObjects { bury } => self.delete_objects(seen, bury).await?,
            Step::DeleteRestores => {
                for restore in self.restores().await? {
                    self.world.restores.delete(&restore).await?;
                }
            }
            Step::CreateDeleteRequest => self.create_request(seen, 0).await?,
            Step::ReplaceDeleteRequest { name, attempt } => {
                let old = self.world.fresh(&self.world.admin_key(&name)).await?;
                if let Some(old) = old {
                    self.world.delete_requests.delete(&old).await?;
                }
                self.create_request(seen, attempt).await?;
            }
            Step::RemoveFinalizer => {
                let store = &self.world.backups;
                store.remove_finalizer(&self.object, BACKUP_FINALIZER).await?;
                return self.refetch().await;
            }
            Step::End | Step::Terminal(_) | Step::Requeue(_) => {}
        }
        Ok(true)
    }

    async fn refetch(&mut self) -> Result<bool, Failure> {
        match self.world.fresh::<NonAdminBackup>(self.key).await? {
            Some(object) if object.metadata.uid == self.object.metadata.uid => {
                self.object = Arc::new(object);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn report(&mut self, status: &Status, seen: &Observed) -> Result<(), Failure> {
        let mut next = (*self.object).clone();
        next.status =
            serde_json::to_value(status).or_fail(|| format!("write the status of {}", self.key))?;
        let written = self.world.backups.update(&self.object, &next).await?;
        tell::backup(&self.world.events, &written, &seen.status, status);
        self.object = written;
        Ok(())
    }

    async fn create_backup(&self, seen: &Observed) -> Result<(), Failure> {
        let nacuuid = seen.nacuuid().unwrap_or_default();
        let origin = self.origin(nacuuid);
        let storage = self.storage();
        let location = validate::place(&storage).map_err(|why| {
            Failure::other(format!("make the Velero Backup of {}", self.key), why)
        })?;
        let asked = spec::object(&self.object.spec, "/backupSpec");
        let made = validate::velero_spec(&self.key.namespace, &asked, location, &self.settings);
        let mut meta = origin.meta(Kind::Backup, &self.world.admin);
        // Without it, whoever gets the name of the namespace next would get the backup, too.
        let home = self.world.home(&self.key.namespace).await?.ok_or_else(|| {
            let doing = format!("make the Velero Backup of {}", self.key);
            Failure::other(doing, "its namespace is being deleted")
        })?;
        meta.annotations.get_or_insert_default().extend(home.annotations());
        let made = Vb::new(meta, made);
        match self.world.velero_backups.create(&made).await {
            // Or made by a pass that did not live to tell; whose it is, is looked at next.
            Ok(_) | Err(Failure::Conflict { .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn delete_objects(&self, seen: &Observed, bury: Bury) -> Result<(), Failure> {
        let nacuuid = seen.nacuuid().unwrap_or_default();
        let origin = self.origin(nacuuid);
        let owner = match bury {
            Bury::Nothing => None,
            Bury::Volumes => Some(Owner::Returning),
            Bury::Backup if seen.namespace_ends => Some(Owner::Former),
            Bury::Backup => Some(Owner::Present),
        };
        if let Some(owner) = owner {
            let status = seen.status.velero_backup.as_ref().and_then(|it| it.status.as_ref());
            let expiration = status.and_then(|it| it.view().ok()?.expiration);
            let namespace = &self.key.namespace;
            tombstones::record(self.world, namespace, nacuuid, expiration, owner).await?;
        }
        for request in self.requests(nacuuid).await? {
            self.world.delete_requests.delete(&request).await?;
        }
        let found = self.world.fresh::<Backup>(&self.world.admin_key(nacuuid)).await?;
        match found.filter(|found| self.world.owns_backup(&origin, found)) {
            Some(found) if !found.is_deleted() => self.world.velero_backups.delete(&found).await,
            _ => Ok(()),
        }
    }

    async fn create_request(&self, seen: &Observed, attempt: u32) -> Result<(), Failure> {
        let nacuuid = seen.nacuuid().unwrap_or_default();
        let origin = self.origin(nacuuid);
        let found: Option<Vb> = self.world.fresh(&self.world.admin_key(nacuuid)).await?;
        let Some(found) = found.filter(|found| self.world.owns_backup(&origin, found)) else {
            return Ok(());
        };
        let mut labels = origin.labels(Kind::Backup);
        labels.insert(names::VELERO_BACKUP_NAME.into(), nacuuid.to_owned());
        labels.extend(found.metadata.uid.map(|uid| (names::VELERO_BACKUP_UID.to_owned(), uid)));
        let mut annotations = origin.annotations(Kind::Backup);
        if attempt > 0 {
            annotations.insert(ATTEMPT.into(), attempt.to_string());
        }
        let metadata = ObjectMeta {
            generate_name: Some(format!("{nacuuid}-")),
            namespace: Some(self.world.admin.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let spec: Map<String, Value> =
            [("backupName".to_owned(), json!(nacuuid))].into_iter().collect();
        self.world.delete_requests.create(&Dbr::new(metadata, spec)).await?;
        Ok(())
    }
}

/// Whether a pass over an object in this state looks for a place in a quota and takes it.
fn is_counted(settings: &Settings, known: &Status) -> bool {
    let is_early = known.phase.is_none_or(|phase| phase < Phase::Created);
    settings.max_backups.is_some() && known.nacuuid().is_none()
        || settings.max_concurrent.is_some() && is_early
}

fn has_annotation<K>(object: &Loose<K>, key: &str) -> bool {
    object.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key))
}

fn wanted(spec: &Value) -> Wanted {
    let flag = |key: &str| spec.get(key) == Some(&Value::Bool(true));
    if flag("forceDeleteBackup") {
        Wanted::ForceDeleted
    } else if flag("deleteBackup") {
        Wanted::Deleted
    } else {
        Wanted::Kept
    }
}

/// The status as this build reads it.
fn status<K>(object: &Loose<K>) -> Status {
    object.view()
}

/// The identity a status has.
trait Identity {
    fn nacuuid(&self) -> Option<&str>;
}

impl Identity for Status {
    fn nacuuid(&self) -> Option<&str> {
        self.velero_backup.as_ref()?.nacuuid.as_deref().filter(|it| !it.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use reconcile::Context;
    use tokio::sync::watch;

    use super::*;

    /// A server that has this Velero backup, every namespace, and nothing else. Nothing changes.
    fn server(found: Value) -> kube::Client {
        let service = tower::service_fn(move |asked: http::Request<kube::client::Body>| {
            let path: Vec<&str> = asked.uri().path().trim_matches('/').split('/').collect();
            let (code, body) = match path.as_slice() {
                ["api", "v1", "namespaces", name] => {
                    (200, json!({"metadata": {"name": name, "uid": name}}))
                }
                [.., "configmaps", _] => {
                    (404, json!({"kind": "Status", "reason": "NotFound", "code": 404}))
                }
                [.., last] => {
                    let items = if *last == "backups" { vec![&found] } else { Vec::new() };
                    (200, json!({"metadata": {"resourceVersion": "1"}, "items": items}))
                }
                [] => (404, Value::Null),
            };
            let is_watch = asked.uri().query().is_some_and(|it| it.contains("watch=true"));
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let answer = http::Response::builder().status(code).body(body).unwrap();
            async move {
                if is_watch {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(answer)
            }
        });
        kube::Client::new(service, "default")
    }

    /// How many backups a namespace has in the eyes of its quotas, stored and unfinished, where this is there.
    async fn counted(found: Value) -> (usize, usize) {
        let tasks = tasks::Tasks::new();
        let metrics = reconcile::Metrics::new(&mut telemetry::Registry::new("test"), &[]);
        let context = Context::new("tenants", server(found), &tasks, metrics);
        let settings = Arc::new(Settings::default());
        let (_live, live) = watch::channel(Arc::clone(&settings));
        let world = World::start(&context, "adm", live, crate::Place::ELSEWHERE);
        world.velero_backups.ready().await;
        world.velero_locations.ready().await;
        let key = &Key::new("team", "mine");
        let object = serde_json::from_value(json!({"metadata": {"name": "mine"}, "spec": {}}));
        let object = Arc::new(object.unwrap());
        let pass = Pass { world: &world, key, settings, object, is_marked: false };
        (pass.others().await.unwrap().all, world.unfinished("team"))
    }

    #[tokio::test]
    async fn what_says_it_lies_in_a_place_that_is_gone_takes_nobodys_room() {
        let velero = |location: Value| {
            let origin = Origin::new("team", "x", "team-x-1");
            let mut metadata = serde_json::to_value(origin.meta(Kind::Backup, "adm")).unwrap();
            metadata["resourceVersion"] = json!("1");
            json!({"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": metadata,
                "spec": {"includedNamespaces": ["team"], "storageLocation": location},
                "status": {"phase": "InProgress"}})
        };
        assert_eq!(counted(velero(Value::Null)).await, (1, 1));
        assert_eq!(counted(velero(json!("gone"))).await, (0, 0));
    }

    #[test]
    fn whoever_looks_for_a_place_in_a_quota_is_counted_alone() {
        let settings = |text: &str| Settings::parse(text).unwrap();
        let with = |value: Value| -> Status { serde_json::from_value(value).unwrap() };
        let named = || json!({"nacuuid": "a-nab-1"});
        let (new, waits) =
            (with(json!({})), with(json!({"phase": "New", "veleroBackup": named()})));
        let made = with(json!({"phase": "Created", "veleroBackup": named()}));
        let both = |settings: &Settings| [&new, &waits, &made].map(|it| is_counted(settings, it));
        assert_eq!(both(&Settings::default()), [false, false, false]);
        let stored = settings("nonAdmin: {maxBackupsPerNamespace: 3}");
        assert_eq!(both(&stored), [true, false, false]);
        let at_once = settings("nonAdmin: {maxConcurrentPerNamespace: 1}");
        assert_eq!(both(&at_once), [true, true, false]);
    }
}
