//! What happens now and then: backups found in stores become tenants' backups, and what lost its
//! tenant's object is removed.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::velero::BackupStatus;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use reconcile::{Failure, Key, Object, OrFail as _, Store};
use serde_json::{Map, Value, json};

use crate::loose::Loose;
use crate::names::{Kind, MARKS, Origin, SYNCED_FROM};
use crate::settings::Settings;
use crate::tombstones;
use crate::world::{Nab, Vb, World, created};

/// Runs `work` at the start and then at the period of the settings, which may change at any time.
pub(crate) async fn every(
    world: Arc<World>,
    name: &'static str,
    period: fn(&Settings) -> Option<Duration>,
    work: impl AsyncFn(&World) -> Result<(), Failure>,
) {
    let mut settings = world.settings.clone();
    loop {
        let now = Arc::clone(&settings.borrow_and_update());
        let Some(pause) = period(&now).filter(|_| now.enable) else {
            if settings.changed().await.is_err() {
                return;
            }
            continue;
        };
        if let Err(failure) = work(&world).await {
            tracing::warn!(name, error = %telemetry::Chain(&failure), "will try again");
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = settings.changed() => if changed.is_err() { return },
        }
    }
}

/// Makes tenants' backups of Velero backups that have none, as after the loss of a cluster.
pub(crate) async fn sync(world: &World) -> Result<(), Failure> {
    world.velero_backups.ready().await;
    world.velero_locations.ready().await;
    world.backups.ready().await;
    world.locations.ready().await;
    let tombstones: HashSet<String> = tombstones::read(world).await?.into_iter().collect();
    for found in world.velero_backups.list() {
        let Some(origin) = Origin::read(Kind::Backup, &found.metadata) else { continue };
        if tombstones.contains(&origin.nacuuid) {
            continue;
        }
        // One that cannot be made leaves the others.
        if let Err(failure) = sync_one(world, &origin, &found).await {
            tracing::warn!(backup = origin.nacuuid, error = %telemetry::Chain(&failure),
                "a backup found in a store cannot be given to its tenant, will try again");
        }
    }
    Ok(())
}

async fn sync_one(world: &World, origin: &Origin, found: &Vb) -> Result<(), Failure> {
    let key = Key::new(&origin.namespace, &origin.name);
    let status: BackupStatus = found.view();
    // The name is the identity; another name would be another backup that borrows it.
    let whole = status.completion_timestamp.is_some() && found.name() == origin.nacuuid;
    if !whole || found.is_deleted() || world.backups.get(&key).is_some() {
        return Ok(());
    }
    let Some(location) = synced_location(world, origin, found) else { return Ok(()) };
    if !world.owns_backup(origin, found) {
        return Ok(());
    }
    let namespace = world.namespace(&origin.namespace).await?;
    if namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some()) {
        return Ok(());
    }
    let mut spec: Map<String, Value> = Vb::document(&found.spec);
    match location {
        Some(location) => spec.insert("storageLocation".into(), json!(location)),
        None => spec.remove("storageLocation"),
    };
    let meta = ObjectMeta {
        name: Some(origin.name.clone()),
        namespace: Some(origin.namespace.clone()),
        labels: Some([(SYNCED_FROM.to_owned(), origin.nacuuid.clone())].into()),
        ..ObjectMeta::default()
    };
    let spec = [("backupSpec".to_owned(), Value::Object(spec))];
    match world.backups.create(&Nab::new(meta, spec.into_iter().collect())).await {
        Ok(_) | Err(Failure::Conflict { .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// The tenant's name for the place of a backup; `Some(None)` for the administrators' default. A place
/// that is neither is not synced from.
#[expect(clippy::option_option, reason = "no place, the default, a tenant's place")]
fn synced_location(world: &World, origin: &Origin, found: &Vb) -> Option<Option<String>> {
    let name = Vb::text(&found.spec, "/storageLocation")?;
    let location = world.velero_locations.get(&world.admin_key(name))?;
    if location.spec.get("default") == Some(&Value::Bool(true)) {
        return Some(None);
    }
    let owner = Origin::read(Kind::Location, &location.metadata)?;
    let key = Key::new(&owner.namespace, &owner.name);
    let is_live = owner.namespace == origin.namespace && world.locations.get(&key).is_some();
    is_live.then_some(Some(owner.name))
}

/// Removes what was made for tenants' objects that are gone.
pub(crate) async fn collect(world: &World) -> Result<(), Failure> {
    world.backups.ready().await;
    world.restores.ready().await;
    world.locations.ready().await;
    world.downloads.ready().await;
    let settings = world.settings();
    // What was just synced from a store may get its object in a moment.
    let young = settings.sync_period.unwrap_or_default() * 2;
    let sweep = Sweep { world, young };
    sweep
        .objects(&world.velero_backups, Kind::Backup, |key| world.backups.get(key).is_none())
        .await;
    sweep
        .objects(&world.velero_restores, Kind::Restore, |key| world.restores.get(key).is_none())
        .await;
    let no_location = |key: &Key| world.locations.get(key).is_none();
    sweep.objects(&world.velero_locations, Kind::Location, no_location).await;
    sweep.objects(&world.approvals, Kind::Location, no_location).await;
    sweep
        .objects(&world.download_requests, Kind::Download, |key| world.downloads.get(key).is_none())
        .await;
    sweep.secrets(no_location).await?;
    tombstones::prune(world).await
}

struct Sweep<'a> {
    world: &'a World,
    young: Duration,
}

impl Sweep<'_> {
    fn is_young(&self, created: Option<api::scalar::Time>) -> bool {
        let Some(created) = created else { return true };
        let age = World::now().timestamp().duration_since(created.timestamp());
        Duration::try_from(age).is_ok_and(|age| age < self.young)
    }

    async fn objects<K>(&self, store: &Store<Loose<K>>, kind: Kind, orphan: impl Fn(&Key) -> bool)
    where
        Loose<K>: Object,
    {
        for found in store.list() {
            let Some(origin) = Origin::read(kind, &found.metadata) else { continue };
            let key = Key::new(&origin.namespace, &origin.name);
            if !orphan(&key) || self.is_young(created(found.as_ref())) || found.is_deleted() {
                continue;
            }
            tracing::info!(object = found.name(), tenant = %key, "removed: its tenant's object is gone");
            if let Err(failure) = store.delete(&found).await {
                tracing::warn!(object = found.name(), error = %telemetry::Chain(&failure),
                    "an orphan cannot be removed, will try again");
            }
        }
    }

    async fn secrets(&self, orphan: impl Fn(&Key) -> bool) -> Result<(), Failure> {
        let api: Api<Secret> = Api::namespaced(self.world.client.clone(), &self.world.admin);
        let marks: BTreeSet<String> =
            MARKS.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let selector = marks.into_iter().collect::<Vec<_>>().join(",");
        let list = api.list(&ListParams::default().labels(&selector)).await;
        for found in list.or_fail(|| "list copied Secrets".into())?.items {
            let Some(origin) = Origin::read(Kind::Location, &found.metadata) else { continue };
            let key = Key::new(&origin.namespace, &origin.name);
            let age = found.metadata.creation_timestamp.as_ref().map(Into::into);
            if orphan(&key) && !self.is_young(age) {
                let name = found.metadata.name.unwrap_or_default();
                let _gone_is_fine = api.delete(&name, &DeleteParams::default()).await;
            }
        }
        Ok(())
    }
}
