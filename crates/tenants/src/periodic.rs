//! What happens now and then: backups found in stores become tenants' backups, and what lost its
//! tenant's object is removed.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::scalar::Time;
use api::velero::{Backup, BackupPhase, BackupStatus};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use reconcile::{Failure, Key, Object, OrFail as _, Store};
use serde_json::{Map, Value, json};

use crate::loose::Loose;
use crate::names::{Home, Kind, MARKS, Origin, SYNCED_FROM};
use crate::settings::Settings;
use crate::tombstones::{self, Graves, Owner};
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
        let is_buried = tombstones.contains(&origin.nacuuid);
        if is_buried && !Home::is_said(&found.metadata) {
            continue;
        }
        // One that cannot be made leaves the others.
        if let Err(failure) = sync_one(world, &origin, &found, is_buried).await {
            tracing::warn!(backup = origin.nacuuid, error = %telemetry::Chain(&failure),
                "a backup found in a store cannot be given to its tenant, will try again");
        }
    }
    Ok(())
}

async fn sync_one(
    world: &World,
    origin: &Origin,
    found: &Vb,
    is_buried: bool,
) -> Result<(), Failure> {
    let key = Key::new(&origin.namespace, &origin.name);
    let status: BackupStatus = found.view();
    // The name is the identity; another name would be another backup that borrows it.
    let whole = status.completion_timestamp.is_some() && found.name() == origin.nacuuid;
    // Its time is over: it goes, or stays for the administrators' reasons, which are not the tenant's.
    let is_over = status.expiration.is_some_and(|until| until < World::now());
    if !whole || is_over || found.is_deleted() || world.backups.get(&key).is_some() {
        return Ok(());
    }
    let Some(location) = synced_location(world, origin, found) else { return Ok(()) };
    if !world.owns_backup(origin, found) {
        return Ok(());
    }
    let Some(home) = world.home(&origin.namespace).await? else { return Ok(()) };
    if world.unserved(&origin.namespace).await?.is_some() {
        return Ok(());
    }
    if location.is_none() && home.succeeds(&found.metadata) {
        return bury(world, origin, found, status.expiration).await;
    }
    if is_buried {
        return Ok(());
    }
    let now = world.fresh::<Backup>(&world.admin_key(found.name())).await?;
    let graves = tombstones::of(world, &origin.namespace).await?;
    if !still_stands(found, now.as_ref(), &graves) {
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
        Ok(_) | Err(Failure::Conflict { .. }) => {}
        Err(failure) => return Err(failure),
    }
    if graves.returning.contains(&origin.nacuuid) {
        tombstones::lift(world, &origin.namespace, &origin.nacuuid).await?;
    }
    Ok(())
}

/// Whether a Velero backup is still there that was seen in a list, and is to stay. That its tenant's object
/// is gone may be heard before all that was done first.
fn still_stands(found: &Vb, now: Option<&Vb>, graves: &Graves) -> bool {
    let Some(now) = now.filter(|now| now.metadata.uid == found.metadata.uid) else { return false };
    let status: BackupStatus = now.view();
    let is_buried = [&graves.present, &graves.former].iter().any(|it| it.contains(now.name()));
    !now.is_deleted() && status.phase != Some(BackupPhase::Deleting) && !is_buried
}

/// Remembers a backup that an earlier namespace of the name left. From then on that alone holds it: an
/// administrator who takes it out of the list gives it to who has the name now.
async fn bury(
    world: &World,
    origin: &Origin,
    found: &Vb,
    expiration: Option<Time>,
) -> Result<(), Failure> {
    let Origin { namespace, nacuuid, .. } = origin;
    if !tombstones::record(world, namespace, nacuuid, expiration, Owner::Former).await? {
        return Ok(());
    }
    tracing::info!(namespace, backup = nacuuid, "not given to the new namespace of that name");
    let mut next = found.clone();
    Home::unsay(&mut next.metadata);
    world.velero_backups.update(found, &next).await.map(drop)
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
    let is_live = owner.namespace == origin.namespace && world.stands(&owner);
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
    let backup = |key: &Key| Living::of(world.backups.get(key).as_deref(), "/veleroBackup/nacuuid");
    sweep.objects(&world.velero_backups, Kind::Backup, backup).await;
    let restore =
        |key: &Key| Living::of(world.restores.get(key).as_deref(), "/veleroRestore/nacuuid");
    sweep.objects(&world.velero_restores, Kind::Restore, restore).await;
    let location = |key: &Key| {
        let pointer = "/veleroBackupStorageLocation/nacuuid";
        Living::of(world.locations.get(key).as_deref(), pointer)
    };
    sweep.objects(&world.velero_locations, Kind::Location, location).await;
    sweep.objects(&world.approvals, Kind::Location, location).await;
    let download = |key: &Key| {
        let found = world.downloads.get(key);
        found.map_or(Living::Gone, |it| Living::As(it.metadata.uid.clone().unwrap_or_default()))
    };
    sweep.objects(&world.download_requests, Kind::Download, download).await;
    sweep.secrets(location).await?;
    tombstones::prune(world).await
}

/// The tenant's object that has the name which something was made for.
#[derive(Debug, PartialEq, Eq)]
enum Living {
    Gone,
    /// It has no identity yet, and may be about to take this one.
    Unnamed,
    As(String),
}

impl Living {
    fn of<K>(object: Option<&Loose<K>>, pointer: &str) -> Self {
        let Some(object) = object else { return Self::Gone };
        match Loose::<K>::text(&object.status, pointer) {
            Some(identity) => Self::As(identity.to_owned()),
            None => Self::Unnamed,
        }
    }

    /// Whether what was made under an identity has lost its object: one that lives under the same name
    /// may be another, made later.
    fn has_left(&self, identity: &str) -> bool {
        match self {
            Self::Gone => true,
            Self::Unnamed => false,
            Self::As(known) => known != identity,
        }
    }
}

struct Sweep<'a> {
    world: &'a World,
    young: Duration,
}

impl Sweep<'_> {
    fn is_young(&self, created: Option<Time>) -> bool {
        created.is_none_or(|created| is_young(World::now(), created, self.young))
    }

    /// `living` gives the tenant's object that has the name.
    async fn objects<K>(&self, store: &Store<Loose<K>>, kind: Kind, living: impl Fn(&Key) -> Living)
    where
        Loose<K>: Object,
    {
        for found in store.list() {
            let Some(origin) = Origin::read(kind, &found.metadata) else { continue };
            let key = Key::new(&origin.namespace, &origin.name);
            let is_orphan = living(&key).has_left(&origin.nacuuid);
            if !is_orphan || self.is_young(created(found.as_ref())) || found.is_deleted() {
                continue;
            }
            tracing::info!(object = found.name(), tenant = %key, "removed: its tenant's object is gone");
            if let Err(failure) = store.delete(&found).await {
                tracing::warn!(object = found.name(), error = %telemetry::Chain(&failure),
                    "an orphan cannot be removed, will try again");
            }
        }
    }

    async fn secrets(&self, living: impl Fn(&Key) -> Living) -> Result<(), Failure> {
        let api: Api<Secret> = Api::namespaced(self.world.client.clone(), &self.world.admin);
        let marks: BTreeSet<String> =
            MARKS.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let selector = marks.into_iter().collect::<Vec<_>>().join(",");
        let list = api.list(&ListParams::default().labels(&selector)).await;
        for found in list.or_fail(|| "list copied Secrets".into())?.items {
            let Some(origin) = Origin::read(Kind::Location, &found.metadata) else { continue };
            let key = Key::new(&origin.namespace, &origin.name);
            let age = found.metadata.creation_timestamp.as_ref().map(Into::into);
            if living(&key).has_left(&origin.nacuuid) && !self.is_young(age) {
                let name = found.metadata.name.unwrap_or_default();
                let _gone_is_fine = api.delete(&name, &DeleteParams::default()).await;
            }
        }
        Ok(())
    }
}

/// A clock that was set back makes things that come from the future: they are young.
fn is_young(now: Time, created: Time, young: Duration) -> bool {
    let age = now.timestamp().duration_since(created.timestamp());
    Duration::try_from(age).map_or(true, |age| age < young)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_of_the_same_name_left_behind_is_an_orphan() {
        let live = |status: Value| {
            let value = json!({"metadata": {"name": "l"}, "status": status});
            let object: Nab = serde_json::from_value(value).unwrap();
            Living::of(Some(&object), "/veleroBackup/nacuuid")
        };
        assert!(Living::Gone.has_left("a-l-1"), "nobody has the name");
        let named = |identity: &str| live(json!({"veleroBackup": {"nacuuid": identity}}));
        assert!(named("a-l-2").has_left("a-l-1"), "who has the name is another");
        assert!(!named("a-l-1").has_left("a-l-1"));
        assert!(!live(Value::Null).has_left("a-l-1"), "it may be about to take it");
    }

    #[test]
    fn what_was_deleted_since_it_was_listed_gets_no_object_again() {
        let velero = |uid: &str, phase: &str| -> Vb {
            let metadata = json!({"name": "a-l-1", "uid": uid});
            let status = json!({"phase": phase});
            serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": status}))
                .unwrap()
        };
        let (listed, none) = (velero("1", "Completed"), Graves::default());
        assert!(still_stands(&listed, Some(&listed), &none));
        assert!(!still_stands(&listed, None, &none), "it is gone");
        assert!(!still_stands(&listed, Some(&velero("2", "Completed")), &none), "another came");
        assert!(!still_stands(&listed, Some(&velero("1", "Deleting")), &none), "it is going");
        let mut leaving = listed.clone();
        leaving.metadata.deletion_timestamp =
            serde_json::from_value(json!("2024-01-01T00:00:00Z")).unwrap();
        assert!(!still_stands(&listed, Some(&leaving), &none));
        let buried = Graves { present: ["a-l-1".to_owned()].into(), ..Graves::default() };
        assert!(!still_stands(&listed, Some(&listed), &buried), "removed by force");
        let former = Graves { former: ["a-l-1".to_owned()].into(), ..Graves::default() };
        assert!(!still_stands(&listed, Some(&listed), &former));
    }

    #[test]
    fn what_comes_from_the_future_is_young() {
        let at = |second| Time::new(jiff::Timestamp::from_second(second).unwrap());
        let young = Duration::from_mins(4);
        assert!(is_young(at(1000), at(900), young) && is_young(at(1000), at(5000), young));
        assert!(!is_young(at(1000), at(700), young));
    }
}
