//! Observes a tenant's storage location and carries out what was decided.

use std::sync::Arc;

use api::mirror::Mirror;
use api::nonadmin::{
    Approval as Decision, NonAdminBackupStorageLocation, NonAdminBackupStorageLocationRequest,
    NonAdminBackupStorageLocationStatus as Status, Phase,
};
use api::velero::BackupStorageLocation;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use reconcile::{Failure, Key, Next, OrFail as _, Reconciler};
use serde_json::{Value, json};

use super::decide::{self, Copy, Observed, Request, Step, Written};
use super::validate::{self, Credentials};
use crate::loose::Loose;
use crate::names::{self, Kind, LEAVES_WITH_LOCATION, LOCATION_FINALIZER, Origin};
use crate::settings::Settings;
use crate::spec;
use crate::tell;
use crate::world::{Approval, Bsl, Nab, Nabsl, World, is_name};

/// No path is longer; more would be a circle.
const STEPS_MAX: usize = 24;
/// What is copied is data to us.
const COPY_TYPE: &str = "Opaque";

/// The controller of storage locations.
pub(crate) struct Locations(pub(crate) Arc<World>);

impl Reconciler for Locations {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let settings = self.0.settings();
        if !settings.enable {
            return Ok(Next::WAIT);
        }
        let Some(object) = self.0.fresh::<NonAdminBackupStorageLocation>(key).await? else {
            return Ok(Next::WAIT);
        };
        let object = Arc::new(object);
        let pass = Pass {
            world: &self.0,
            key,
            settings,
            object,
            secret_written: None,
            location_written: None,
        };
        pass.walk().await
    }
}

/// One pass over one object.
struct Pass<'a> {
    world: &'a World,
    key: &'a Key,
    settings: Arc<Settings>,
    /// As the API server answered last.
    object: Arc<Nabsl>,
    secret_written: Option<Written>,
    location_written: Option<Written>,
}

/// What was read beside the object.
struct Beside {
    source: Option<Secret>,
    secret: Option<Secret>,
    location: Option<Bsl>,
    request: Option<Approval>,
}

impl Pass<'_> {
    async fn walk(mut self) -> Result<Next, Failure> {
        for _ in 0..STEPS_MAX {
            // What is written is judged by the settings of this moment, not by those the pass began with.
            self.settings = self.world.settings();
            let (seen, beside) = self.observe().await?;
            match decide::decide(&seen) {
                Step::End => return Ok(Next::WAIT),
                Step::Terminal(why) => {
                    tracing::debug!(why, "nothing more happens until a person acts");
                    return Ok(Next::WAIT);
                }
                Step::Requeue(pause) => return Ok(Next::after(pause)),
                Step::RemoveFinalizer => {
                    let store = &self.world.locations;
                    store.remove_finalizer(&self.object, LOCATION_FINALIZER).await?;
                    return Ok(Next::WAIT);
                }
                step => self.apply(step, &seen, beside).await?,
            }
        }
        Err(Failure::other("end the pass", "it goes in a circle"))
    }

    async fn observe(&self) -> Result<(Observed, Beside), Failure> {
        let object = &self.object;
        let known: Status = object.known()?;
        let nacuuid =
            known.velero_backup_storage_location.as_ref().and_then(|it| it.nacuuid.clone());
        let nacuuid = nacuuid.filter(|it| !it.is_empty());
        let unserved = if known.phase < Some(Phase::Created) {
            self.world.unserved(&self.key.namespace).await?
        } else {
            None
        };
        let (source, credentials) = match &unserved {
            None => self.credentials().await,
            Some(_) => (None, Credentials::Missing),
        };
        let beside = self.beside(nacuuid.as_deref(), source).await?;
        let origin = self.origin(nacuuid.as_deref().unwrap_or_default());
        let seen = Observed {
            now: World::now(),
            admin_namespace: self.world.admin.clone(),
            namespace: self.key.namespace.to_string(),
            name: self.key.name.to_string(),
            generation: object.metadata.generation,
            is_deleted: object.is_deleted(),
            has_finalizer: object.has_finalizer(LOCATION_FINALIZER),
            requested: self.requested(),
            spec: unserved.unwrap_or_else(|| {
                let is_local = self.world.place.is_local;
                validate::judge(&object.spec, &credentials, &self.settings, is_local)
            }),
            candidate: names::nacuuid(
                &self.key.namespace,
                &self.key.name,
                &uuid::Uuid::new_v4().to_string(),
            ),
            require_approval: self.settings.require_approval,
            request: beside
                .request
                .as_ref()
                .map(|it| Request { decision: decision(&it.spec), status: it.view() }),
            secret: compare_secret(&origin, &beside),
            location: self.compare_location(&origin, beside.location.as_ref()),
            velero: beside.location.as_ref().map(|it| Mirror::from(Bsl::document(&it.status))),
            backups: if object.is_deleted() { self.backups().await?.len() } else { 0 },
            secret_written: self.secret_written,
            location_written: self.location_written,
            status: known,
        };
        Ok((seen, beside))
    }

    fn origin(&self, nacuuid: &str) -> Origin {
        Origin::new(&self.key.namespace, &self.key.name, nacuuid)
    }

    fn requested(&self) -> Mirror<api::velero::BackupStorageLocationSpec> {
        let spec = self.object.spec.get("backupStorageLocationSpec").unwrap_or(&Value::Null);
        Nabsl::document(spec).into()
    }

    async fn credentials(&self) -> (Option<Secret>, Credentials) {
        let asked = spec::object(&self.object.spec, "/backupStorageLocationSpec");
        let asked = validate::filled(&asked, &self.settings);
        // A name that leads elsewhere is refused by validation, and not looked up.
        let Some(name) = validate::secret_name(&asked).filter(|name| is_name(name)) else {
            return (None, Credentials::Missing);
        };
        let api: Api<Secret> = Api::namespaced(self.world.client.clone(), &self.key.namespace);
        match api.get_opt(name).await {
            Ok(Some(found)) => match validate::unfit(&asked, &found) {
                None => (Some(found), Credentials::Found),
                Some(why) => (None, Credentials::Unfit(why)),
            },
            Ok(None) => (None, Credentials::Missing),
            Err(error) => (None, Credentials::Unreadable(error.to_string())),
        }
    }

    async fn beside(
        &self,
        nacuuid: Option<&str>,
        source: Option<Secret>,
    ) -> Result<Beside, Failure> {
        let Some(nacuuid) = nacuuid else {
            return Ok(Beside { source, secret: None, location: None, request: None });
        };
        let key = self.world.admin_key(nacuuid);
        let request = self.world.fresh::<NonAdminBackupStorageLocationRequest>(&key).await?;
        let origin = self.origin(nacuuid);
        Ok(Beside {
            source,
            secret: self
                .secrets()
                .get_opt(nacuuid)
                .await
                .or_fail(|| format!("read Secret {key}"))?,
            location: self.world.fresh::<BackupStorageLocation>(&key).await?,
            request: request.filter(|it| origin.owns(Kind::Location, &it.metadata)),
        })
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.world.client.clone(), &self.world.admin)
    }

    fn wanted_location(&self, nacuuid: &str) -> serde_json::Map<String, Value> {
        let asked = spec::object(&self.object.spec, "/backupStorageLocationSpec");
        validate::velero_spec(&self.key.namespace, nacuuid, &asked, &self.settings)
    }

    fn compare_location(&self, origin: &Origin, found: Option<&Bsl>) -> Copy {
        match found {
            None => Copy::Missing,
            Some(found) if !origin.owns(Kind::Location, &found.metadata) => Copy::Foreign,
            Some(found) => {
                let mut there = Bsl::document(&found.spec);
                // The server writes its default.
                if there.get("default") == Some(&Value::Bool(false)) {
                    there.remove("default");
                }
                if there == self.wanted_location(&origin.nacuuid) {
                    Copy::Same
                } else {
                    Copy::Differs
                }
            }
        }
    }

    /// Backups in this location whose removal nobody asked for yet.
    async fn backups(&self) -> Result<Vec<Nab>, Failure> {
        let api: Api<Nab> = Api::namespaced(self.world.client.clone(), &self.key.namespace);
        let list = api.list(&ListParams::default()).await;
        let list = list.or_fail(|| format!("list NonAdminBackups of {}", self.key.namespace))?;
        let name = Some(&*self.key.name);
        let own = |it: &Nab| {
            Nab::text(&it.spec, "/backupSpec/storageLocation") == name
                && it.spec.get("forceDeleteBackup") != Some(&Value::Bool(true))
        };
        Ok(list.items.into_iter().filter(own).collect())
    }

    async fn apply(&mut self, step: Step, seen: &Observed, beside: Beside) -> Result<(), Failure> {
        let nacuuid = seen.nacuuid().unwrap_or_default().to_owned();
        let origin = self.origin(&nacuuid);
        match step {
            Step::Report(status) => self.report(&status, seen).await,
            Step::CreateRequest(decision) => {
                let meta = origin.meta(Kind::Location, &self.world.admin);
                let spec = [("approvalDecision".to_owned(), json!(decision))];
                let made = Approval::new(meta, spec.into_iter().collect());
                let made = self.world.approvals.create(&made).await?;
                let mut asked = (*made).clone();
                let answer = seen.first_answer(decision);
                asked.status =
                    serde_json::to_value(answer).or_fail(|| "write the request".into())?;
                self.world.approvals.update(&made, &asked).await.map(drop)
            }
            Step::Approve => {
                self.change_request(beside, |it| {
                    it.spec = json!({"approvalDecision": "approve"});
                })
                .await
            }
            Step::ReportRequest(status) => {
                let status =
                    serde_json::to_value(*status).or_fail(|| "write the request".into())?;
                self.change_request(beside, |it| it.status = status).await
            }
            Step::AddFinalizer => {
                let store = &self.world.locations;
                self.object = store.add_finalizer(&self.object, LOCATION_FINALIZER).await?;
                Ok(())
            }
            Step::WriteSecret => self.write_secret(&origin, beside).await,
            Step::WriteLocation => self.write_location(&origin, beside).await,
            Step::Revoke => self.revoke(&origin, beside).await,
            Step::ForceDeleteBackups => self.force_delete_backups().await,
            Step::DeleteObjects => {
                if let Some(request) = &beside.request {
                    self.world.approvals.delete(request).await?;
                }
                self.revoke(&origin, beside).await
            }
            Step::RemoveFinalizer | Step::End | Step::Terminal(_) | Step::Requeue(_) => Ok(()),
        }
    }

    async fn report(&mut self, status: &Status, seen: &Observed) -> Result<(), Failure> {
        let mut next = (*self.object).clone();
        next.status =
            serde_json::to_value(status).or_fail(|| format!("write the status of {}", self.key))?;
        let written = self.world.locations.update(&self.object, &next).await?;
        tell::location(&self.world.events, &written, &seen.status, status);
        self.object = written;
        Ok(())
    }

    async fn change_request(
        &self,
        beside: Beside,
        change: impl FnOnce(&mut Approval),
    ) -> Result<(), Failure> {
        let Some(old) = beside.request else { return Ok(()) };
        let mut new = old.clone();
        change(&mut new);
        self.world.approvals.update(&old, &new).await.map(drop)
    }

    async fn write_secret(&mut self, origin: &Origin, beside: Beside) -> Result<(), Failure> {
        let Some(source) = beside.source else { return Ok(()) };
        let doing = || format!("copy the Secret of {}", self.key);
        let mut copy = beside.secret.unwrap_or_default();
        let is_new = copy.metadata.resource_version.is_none();
        if is_new {
            copy.metadata = origin.meta(Kind::Location, &self.world.admin);
        }
        copy.data = source.data;
        let params = PostParams::default();
        if is_new {
            // Whatever the tenant's is: a type cannot be changed later, and some mean more than data.
            copy.type_ = Some(COPY_TYPE.to_owned());
            self.secrets().create(&params, &copy).await.or_fail(doing)?;
        } else {
            // Compare-and-set by the version that was read.
            self.secrets().replace(&origin.nacuuid, &params, &copy).await.or_fail(doing)?;
        }
        self.secret_written = Some(if is_new { Written::Created } else { Written::Updated });
        Ok(())
    }

    async fn write_location(&mut self, origin: &Origin, beside: Beside) -> Result<(), Failure> {
        let wanted = self.wanted_location(&origin.nacuuid);
        let store = &self.world.velero_locations;
        self.location_written = Some(match beside.location {
            None => {
                let meta = origin.meta(Kind::Location, &self.world.admin);
                store.create(&Bsl::new(meta, wanted)).await?;
                Written::Created
            }
            Some(old) => {
                let mut new = old.clone();
                new.spec = Value::Object(wanted);
                store.update(&old, &new).await?;
                Written::Updated
            }
        });
        Ok(())
    }

    async fn revoke(&self, origin: &Origin, beside: Beside) -> Result<(), Failure> {
        if let Some(location) = &beside.location
            && origin.owns(Kind::Location, &location.metadata)
        {
            self.world.velero_locations.delete(location).await?;
        }
        if let Some(secret) = &beside.secret
            && origin.owns(Kind::Location, &secret.metadata)
        {
            let done = self.secrets().delete(&origin.nacuuid, &DeleteParams::default()).await;
            match done {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                done => {
                    done.or_fail(|| format!("delete the copied Secret {}", origin.nacuuid))?;
                }
            }
        }
        Ok(())
    }

    /// Without their location nobody could delete them otherwise.
    async fn force_delete_backups(&self) -> Result<(), Failure> {
        for old in self.backups().await? {
            let mut new = old.clone();
            if let Value::Object(spec) = &mut new.spec {
                spec.insert("forceDeleteBackup".into(), Value::Bool(true));
            }
            let notes = new.metadata.annotations.get_or_insert_default();
            notes.insert(LEAVES_WITH_LOCATION.to_owned(), self.key.name.to_string());
            self.world.backups.update(&old, &new).await?;
        }
        Ok(())
    }
}

fn decision(spec: &Value) -> Option<Decision> {
    match Loose::<NonAdminBackupStorageLocationRequest>::text(spec, "/approvalDecision") {
        Some("approve") => Some(Decision::Approve),
        Some("reject") => Some(Decision::Reject),
        _ => None,
    }
}

fn compare_secret(origin: &Origin, beside: &Beside) -> Copy {
    match (&beside.secret, &beside.source) {
        (None, _) => Copy::Missing,
        (Some(copy), _) if !origin.owns(Kind::Location, &copy.metadata) => Copy::Foreign,
        (Some(copy), Some(source)) if copy.data != source.data => Copy::Differs,
        (Some(_), _) => Copy::Same,
    }
}
