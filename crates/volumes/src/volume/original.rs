//! The volume that another is copied from: how it is, and what is asked of it for the copy.

use api::longhorn::{
    AttacherType, CloneMode, CloneState, Robustness, Snapshot, SnapshotSpec, Volume,
};
use kube::{Resource, ResourceExt};
use reconcile::{Failure, Key};

use super::World;
use super::clone::{AtOriginal, Found, Original, own_snapshot, read_source};
use crate::engine::client::Reach;
use crate::{FINALIZER, NAMESPACE, attachment, engine, label};

/// Volumes that are copied to, by the volume they are copied from.
pub(super) const BY_ORIGINAL: &str = "original";

fn state(volume: &Volume) -> CloneState {
    let status = volume.status.as_ref().and_then(|it| it.clone_status.as_ref()?.state.clone());
    status.unwrap_or(CloneState::Unset)
}

/// The value of [`BY_ORIGINAL`].
pub(super) fn of(volume: &Volume) -> Vec<String> {
    let named = volume.spec.data_source.as_deref().and_then(read_source);
    let waits = state(volume) != CloneState::Completed;
    named.filter(|_| waits).map(|it| it.volume).into_iter().collect()
}

/// Volumes that are being made from this one.
pub(super) fn copies(world: &World, volume: &str) -> Vec<Key> {
    world.volumes.by(BY_ORIGINAL, volume).iter().map(|it| Key::of(it.as_ref())).collect()
}

/// What a volume is to be a copy of, and whether that can be copied now.
pub(super) fn original(world: &World, volume: &Volume) -> Original {
    let url = volume.spec.data_source.as_deref().unwrap_or_default();
    if url.is_empty() || state(volume) == CloneState::Completed {
        return Original::None;
    }
    let Some(named) = read_source(url) else {
        let why = format!(
            "spec.dataSource {url:?} names nothing: write vol://VOLUME or snap://VOLUME/SNAPSHOT"
        );
        return Original::Impossible(why);
    };
    if volume.spec.clone_mode == Some(CloneMode::LinkedClone) {
        let why = "spec.cloneMode linked-clone needs the engine v2: write full-copy".to_owned();
        return Original::Impossible(why);
    }
    if volume.spec.from_backup.as_deref().is_some_and(|it| !it.is_empty()) {
        let why = "a volume has spec.dataSource or spec.fromBackup, not both".to_owned();
        return Original::Impossible(why);
    }
    let from = &named.volume;
    let Some(source) = world.volumes.get(&Key::new(NAMESPACE, from)) else {
        return Original::Missing(format!("volume {from} does not exist"));
    };
    if let Some(why) = unready(&source) {
        return Original::Missing(format!("volume {from} {why}"));
    }
    let is_own = named.snapshot.is_none();
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    let snapshot = named.snapshot.unwrap_or_else(|| own_snapshot(uid));
    let object = world.snapshots.get(&Key::new(NAMESPACE, &snapshot));
    let object = object.filter(|it| it.spec.volume.as_ref() == Some(from));
    let status = object.as_ref().and_then(|it| it.status.clone()).unwrap_or_default();
    let is_taken = status.ready_to_use == Some(true)
        && object.as_ref().is_some_and(|it| it.metadata.deletion_timestamp.is_none());
    if !is_own && !is_taken {
        let why = match status.error.filter(|it| !it.is_empty()) {
            _ if object.is_none() => "does not exist".to_owned(),
            Some(error) => format!("is not ready: {error}"),
            None => "is not ready".to_owned(),
        };
        return Original::Missing(format!("snapshot {snapshot} of volume {from} {why}"));
    }
    let whole = source.spec.size.map_or(0, |it| it.0);
    let size_bytes = status.restore_size.filter(|size| !is_own && *size > 0).unwrap_or(whole);
    let engine = engine::active(&world.engines, from);
    let answers = |engine: &api::longhorn::Engine| {
        Reach::of(engine).is_some()
            && engine.status.as_ref().is_some_and(|it| it.replica_mode_map.is_some())
    };
    let at = source.status.clone().unwrap_or_default();
    let nodes = [at.current_node_id, source.spec.node_id.clone(), at.owner_id];
    let node = nodes.into_iter().flatten().find(|it| world.is_up(it));
    Original::Found(Found {
        volume: from.clone(),
        snapshot,
        is_own,
        size_bytes,
        node: node.unwrap_or_default(),
        is_taken,
        runs: engine.as_deref().is_some_and(answers),
    })
}

/// Why a volume cannot be copied now.
fn unready(source: &Volume) -> Option<&'static str> {
    let status = source.status.clone().unwrap_or_default();
    if source.metadata.deletion_timestamp.is_some() {
        return Some("is being deleted");
    }
    if status.is_standby == Some(true) || status.restore_required == Some(true) {
        return Some("is restoring data");
    }
    let copied = source.spec.data_source.as_deref().is_some_and(|it| !it.is_empty());
    if copied && state(source) != CloneState::Completed {
        return Some("is itself being copied to");
    }
    if status.robustness == Some(Robustness::Faulted) {
        return Some("is faulted");
    }
    (source.spec.size.map_or(0, |it| it.0) <= 0).then_some("has no size yet")
}

/// Attaches the source and takes a snapshot of it, or lets go of both.
pub(super) async fn keep(world: &World, copy: &Volume, wanted: &AtOriginal) -> Result<(), Failure> {
    let source = world.volumes.get(&Key::new(NAMESPACE, &wanted.volume));
    if let Some(source) = &source {
        hold(world, copy, source, wanted.held_at.as_deref()).await?;
    }
    let Some((name, needed)) = &wanted.snapshot else { return Ok(()) };
    let key = Key::new(NAMESPACE, name);
    match (world.snapshots.get(&key), source) {
        (None, Some(source)) if *needed && wanted.held_at.is_some() => {
            let spec = SnapshotSpec {
                volume: Some(wanted.volume.clone()),
                create_snapshot: Some(true),
                labels: Some([("clone-of".to_owned(), copy.name_any())].into()),
            };
            let mut made = Snapshot::new(name, spec);
            made.metadata.namespace = Some(NAMESPACE.to_owned());
            made.metadata.owner_references = source.controller_owner_ref(&()).map(|it| vec![it]);
            made.finalizers_mut().push(FINALIZER.to_owned());
            made.labels_mut().insert(label::VOLUME.to_owned(), wanted.volume.clone());
            world.snapshots.create(&made).await.map(drop)
        }
        // The copy has a snapshot of this name, too; that is another's.
        (Some(snapshot), _)
            if !needed
                && snapshot.spec.volume.as_ref() == Some(&wanted.volume)
                && snapshot.metadata.deletion_timestamp.is_none() =>
        {
            world.snapshots.delete(&snapshot).await
        }
        _ => Ok(()),
    }
}

/// A ticket for the source, as long as it is copied from.
async fn hold(
    world: &World,
    copy: &Volume,
    source: &Volume,
    node: Option<&str>,
) -> Result<(), Failure> {
    let Some(known) = world.attachments.get(&Key::of(source)) else { return Ok(()) };
    let kind = AttacherType::VolumeCloneController;
    let (id, ticket) = attachment::own(kind, &copy.name_any(), node.unwrap_or_default(), "any");
    let mut next = known.as_ref().clone();
    let tickets = next.spec.attachment_tickets.get_or_insert_default();
    match node {
        Some(_) => tickets.insert(id, ticket),
        None => tickets.remove(&id),
    };
    if next == *known {
        return Ok(());
    }
    world.attachments.merge(&known, &next).await.map(drop)
}
