//! Writes what was decided: copies, then the engine, then the volume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{Engine, Replica, Volume, VolumeAttachment, VolumeAttachmentSpec};
use kube::{Resource, ResourceExt};
use reconcile::{Broken, Failure, Key, Next, Object, OrFail as _, Reconciler, Severity, Store};

use super::World;
use super::decide::decide;
use super::draft::{Plan, Seen, is_at_rest, process_state};
use super::make::engine_name;
use super::observe::{Whose, living_owner, observe, whose};
use super::original;
use super::steps::{Step, steps};
use crate::engine::client::Reach;
use crate::replica::is_unwanted;
use crate::{DATA, FINALIZER, NAMESPACE, engine, label};

pub(super) struct Volumes(pub(super) Arc<World>);

impl Reconciler for Volumes {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.0;
        let Some(volume) = world.volumes.get(key) else {
            return forget(world, key).await;
        };
        let (engines, replicas) = (world.engines.broken(), world.replicas.broken());
        if let Some(broken) = unreadable(&volume.name_any(), &engines, &replicas) {
            // Whatever it is, it is not missing: nothing is made, dropped or moved without it.
            let doing = format!("look after volume {}", volume.name_any());
            let why = format!("its {} cannot be read: {}", broken.key.name, broken.why);
            return Err(Failure::other(doing, why));
        }
        let deleting = volume.metadata.deletion_timestamp.is_some();
        if let Some(left) = see_off_others(world, &volume).await?.filter(|_| !deleting) {
            // Served as this volume's, it would be another's data.
            let doing = format!("look after volume {}", volume.name_any());
            let why = format!(
                "{left} belongs to an earlier volume of this name, and has to be deleted first"
            );
            world.context.events.say(volume.as_ref(), Severity::Warning, "NameInUse", &why);
            return Err(Failure::other(doing, why));
        }
        if let Some(why) = engine_of_another(world, &volume).filter(|_| !deleting) {
            world.context.events.say(volume.as_ref(), Severity::Warning, "NameInUse", &why);
            return Err(Failure::other(format!("look after volume {}", volume.name_any()), why));
        }
        if !deleting {
            ensure_attachment(world, &volume).await?;
        }
        let seen = observe(world, &volume).await?;
        let mut fresh = || {
            let random = uuid::Uuid::new_v4().simple().to_string();
            random.chars().take(8).collect::<String>()
        };
        let plan = decide(&seen, &mut fresh);
        apply(world, &volume, &seen, &plan).await?;
        Ok(plan.next.map_or(Next::WAIT, |pause| Next::after(pause.max(Duration::from_millis(50)))))
    }
}

/// Lets go of what an earlier volume of this name has left and somebody has deleted, as when no volume of the name
/// is there; and says what is left of it.
async fn see_off_others(world: &World, volume: &Volume) -> Result<Option<String>, Failure> {
    let (name, mut left) = (volume.name_any(), None);
    for replica in world.replicas.by("volume", &name) {
        let whose = whose(replica.as_ref(), volume);
        if whose == Whose::Volumes || is_anothers(world, volume, replica.as_ref()) {
            continue;
        }
        if is_unwanted(&replica) {
            world.replicas.remove_finalizer(&replica, DATA).await?;
        }
        release_idle(&world.replicas, replica.as_ref(), is_idle_replica).await?;
        if whose == Whose::Earlier {
            left = Some(format!("replica {}", replica.name_any()));
        }
    }
    for engine in world.engines.by(engine::BY_VOLUME, &name) {
        let whose = whose(engine.as_ref(), volume);
        if whose == Whose::Volumes || is_anothers(world, volume, engine.as_ref()) {
            continue;
        }
        release_idle(&world.engines, engine.as_ref(), is_idle_engine).await?;
        if whose == Whose::Earlier {
            left = Some(format!("engine {}", engine.name_any()));
        }
    }
    // One of its name is made for it alone.
    let attachment = world.attachments.get(&Key::of(volume));
    let of_earlier = |it: &Arc<VolumeAttachment>| whose(it.as_ref(), volume) == Whose::Earlier;
    if let Some(attachment) = attachment.filter(of_earlier) {
        if attachment.metadata.deletion_timestamp.is_some() {
            world.attachments.remove_finalizer(&attachment, FINALIZER).await?;
        }
        left = Some(format!("volume attachment {name}"));
    }
    Ok(left)
}

/// Why its engine cannot be made: what has the name of it names another volume.
fn engine_of_another(world: &World, volume: &Volume) -> Option<String> {
    let key = Key::new(NAMESPACE, &engine_name(&volume.name_any()));
    let found = world.engines.get(&key)?;
    let of = found.spec.instance.volume_name.clone().unwrap_or_default();
    (of != volume.name_any())
        .then(|| format!("engine {} names volume {of:?}, and has to be deleted first", key.name))
}

/// It is another volume's, which is there: somebody has had it name this one. It is left out, and to that one.
fn is_anothers<K: Object>(world: &World, volume: &Volume, object: &K) -> bool {
    let Some(owner) = living_owner(world, object) else { return false };
    let (name, other) = (object.name_any(), volume.name_any());
    let text = format!(
        "{name} belongs to volume {owner}, and its spec.volumeName says {other}: it is left out there; set that back"
    );
    world.context.events.say(object, Severity::Warning, "ForeignVolume", &text);
    true
}

/// An engine or a copy of the volume that cannot be decoded, by the name that it has.
fn unreadable<'b>(
    volume: &str,
    engines: &'b [Broken],
    replicas: &'b [Broken],
) -> Option<&'b Broken> {
    let is_of = |broken: &&Broken, sort: &str| {
        let rest = broken.key.name.strip_prefix(volume).and_then(|it| it.strip_prefix(sort));
        rest.is_some_and(|mark| mark.chars().all(|it| it.is_ascii_hexdigit()))
    };
    let mut engines = engines.iter().filter(|it| is_of(it, "-e-"));
    let mut replicas = replicas.iter().filter(|it| is_of(it, "-r-"));
    engines.next().or_else(|| replicas.next())
}

/// Every volume has one, of its name.
async fn ensure_attachment(world: &World, volume: &Volume) -> Result<(), Failure> {
    let key = Key::of(volume);
    if world.attachments.get(&key).is_some() || world.attachments.is_broken(&key) {
        return Ok(());
    }
    let spec = VolumeAttachmentSpec {
        volume: Some(volume.name_any()),
        attachment_tickets: Some(std::collections::BTreeMap::new()),
    };
    let mut made = VolumeAttachment::new(&volume.name_any(), spec);
    made.metadata.namespace = Some(NAMESPACE.to_owned());
    made.metadata.owner_references = volume.controller_owner_ref(&()).map(|it| vec![it]);
    made.finalizers_mut().push(FINALIZER.to_owned());
    made.labels_mut().insert(label::VOLUME.to_owned(), volume.name_any());
    world.attachments.create(&made).await.map(drop)
}

/// Puts the engine back to a snapshot. Done again, it changes nothing: nobody gets the volume before it
/// is written down as done.
async fn revert(
    world: &World,
    volume: &Volume,
    seen: &Seen,
    snapshot: &str,
) -> Result<(), Failure> {
    let doing = || format!("revert volume {} to snapshot {snapshot}", volume.name_any());
    let Some(reach) = seen.engine.as_ref().and_then(Reach::of) else {
        return Err(Failure::other(doing(), "its engine does not run"));
    };
    let mut controller = reach.controller().or_fail(doing)?;
    let request = rpc::ptypes::VolumeRevertRequest { name: snapshot.to_owned() };
    let done = controller.volume_revert(request).await;
    done.map(drop).map_err(|status| {
        let text = format!("{}: {}", doing(), status.message());
        world.context.events.say(volume, Severity::Warning, "FailedRevert", &text);
        Failure::other(doing(), status.message().to_owned())
    })
}

async fn apply(world: &World, volume: &Volume, seen: &Seen, plan: &Plan) -> Result<(), Failure> {
    let (mut written, mut copies) = (None, BTreeMap::new());
    for step in steps(seen, plan) {
        match step {
            Step::Revert(snapshot) => revert(world, volume, seen, snapshot).await?,
            Step::Replica(old, new) => {
                copies.insert(old.name_any(), world.replicas.update(old, new).await?);
            }
            Step::MakeReplica(new) => drop(world.replicas.create(new).await?),
            Step::Engine(old, new) => drop(world.engines.update(old, new).await?),
            Step::MakeEngine(new) => drop(world.engines.create(new).await?),
            Step::Attachment(old, new) => drop(world.attachments.update(old, new).await?),
            Step::AtOriginal(wanted) => original::keep(world, volume, wanted).await?,
            Step::Volume(new) => {
                written = Some(world.volumes.update(volume, new).await?);
                for told in &plan.told {
                    world.context.events.say(volume, told.severity, told.reason, &told.message);
                }
            }
            Step::Sync(store, at) => {
                let mut asked = store.clone();
                asked.spec.sync_requested_at = Some(at);
                world.backup_volumes.merge(store, &asked).await?;
            }
            Step::SyncTarget(target, at) => {
                let mut asked = target.clone();
                asked.spec.sync_requested_at = Some(at);
                world.targets.merge(target, &asked).await?;
            }
            Step::LetGo(replica) => {
                let decided = as_decided(replica, &copies);
                world.replicas.remove_finalizer(decided, DATA).await?;
            }
            Step::Delete(replica) => world.replicas.delete(replica).await?,
        }
    }
    for replica in &seen.replicas {
        release_idle(&world.replicas, replica, is_idle_replica).await?;
    }
    if let (Some(written), true) = (written, plan.dismantle) {
        dismantle(world, seen, plan, &written).await?;
    }
    Ok(())
}

/// A copy as it was looked at, or as this pass has written it. What somebody else wrote since is a conflict: that
/// another copy has all of it was decided without that.
fn as_decided<'a>(
    replica: &'a Replica,
    written: &'a BTreeMap<String, Arc<Replica>>,
) -> &'a Replica {
    written.get(&replica.name_any()).map_or(replica, Arc::as_ref)
}

/// A volume that is gone needs no copy any more.
async fn forget(world: &World, key: &Key) -> Result<Next, Failure> {
    if !world.volumes.is_broken(key) {
        for replica in world.replicas.by("volume", &key.name) {
            if is_unwanted(&replica) && living_owner(world, replica.as_ref()).is_none() {
                world.replicas.remove_finalizer(&replica, DATA).await?;
            }
        }
    }
    Ok(Next::WAIT)
}

/// One that was never given to a node has nobody to see it off.
async fn release_idle<K: Object>(
    store: &Store<K>,
    object: &K,
    is_idle: impl Fn(&K) -> bool,
) -> Result<(), Failure> {
    let now = store.get(&Key::of(object));
    let is_over = |it: &&Arc<K>| it.meta().deletion_timestamp.is_some() && is_idle(it);
    match now.as_ref().filter(is_over) {
        Some(now) => store.remove_finalizer(now, FINALIZER).await,
        None => Ok(()),
    }
}

fn is_idle_replica(replica: &Replica) -> bool {
    let set = |text: Option<&String>| text.is_some_and(|text| !text.is_empty());
    let owner = replica.status.as_ref().and_then(|it| it.instance.owner_id.as_ref());
    !set(replica.spec.instance.node_id.as_ref())
        && !set(owner)
        && is_at_rest(&process_state(replica))
}

fn is_idle_engine(engine: &Engine) -> bool {
    let set = |text: Option<&String>| text.is_some_and(|text| !text.is_empty());
    let owner = engine.status.as_ref().and_then(|it| it.instance.owner_id.as_ref());
    !set(engine.spec.instance.node_id.as_ref()) && !set(owner)
}

/// Snapshots, engine, copies, then the attachment; the volume when nothing is left.
async fn dismantle(
    world: &World,
    seen: &Seen,
    plan: &Plan,
    volume: &Volume,
) -> Result<(), Failure> {
    let name = volume.name_any();
    for snapshot in world.snapshots.by("volume", &name) {
        if snapshot.metadata.deletion_timestamp.is_none() {
            world.snapshots.delete(&snapshot).await?;
        }
        // It goes with the data.
        if let Some(now) = world.snapshots.get(&Key::of(snapshot.as_ref())) {
            world.snapshots.remove_finalizer(&now, FINALIZER).await?;
        }
    }
    if let Some(engine) = &seen.engine {
        if engine.metadata.deletion_timestamp.is_none() {
            world.engines.delete(engine).await?;
        }
        release_idle(&world.engines, engine, is_idle_engine).await?;
    }
    if !plan.release {
        return Ok(());
    }
    if let Some(attachment) = world.attachments.get(&Key::new(NAMESPACE, &name)) {
        if attachment.metadata.deletion_timestamp.is_none() {
            world.attachments.delete(&attachment).await?;
        }
        let now = world.attachments.get(&Key::new(NAMESPACE, &name)).unwrap_or(attachment);
        world.attachments.remove_finalizer(&now, FINALIZER).await?;
    }
    world.volumes.remove_finalizer(volume, FINALIZER).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_let_go_of_as_it_was_when_that_was_decided() {
        let at = |version: &str| {
            let mut replica = Replica::default();
            replica.metadata.name = Some("v-r-1".to_owned());
            replica.metadata.resource_version = Some(version.to_owned());
            replica
        };
        let (seen, mut written) = (at("1"), BTreeMap::new());
        let version = |written: &_| as_decided(&seen, written).resource_version();
        assert_eq!(version(&written).as_deref(), Some("1"));
        written.insert(seen.name_any(), Arc::new(at("2")));
        assert_eq!(version(&written).as_deref(), Some("2"));
    }

    #[test]
    fn what_cannot_be_read_is_known_by_its_name() {
        let broken = |name: &str| Broken {
            key: Key::new(NAMESPACE, name),
            uid: String::new(),
            version: String::new(),
            why: "a bool was expected".to_owned(),
        };
        let (engines, replicas) = ([broken("v-e-0")], [broken("a-r-b-r-0123abcd")]);
        let of = |volume: &str| unreadable(volume, &engines, &replicas).map(|it| &*it.key.name);
        assert_eq!(of("v"), Some("v-e-0"));
        assert_eq!(of("a-r-b"), Some("a-r-b-r-0123abcd"));
        assert_eq!((of("a"), of("w")), (None, None));
    }
}
