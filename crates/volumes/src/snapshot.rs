//! Snapshots as objects: one for each that an engine has, and a way to ask for more or fewer.
//!
//! What is to be done about one is decided by [`decide`], a pure function. An engine that does not run
//! is asked for by a ticket, which goes when it is no longer needed.

mod decide;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{
    AttacherType, Engine, EnginePurgeStatus, Snapshot, SnapshotSpec, SnapshotStatus,
    VolumeAttachment, VolumeState, VolumeStatus,
};
use api::scalar::{Stamp, Time};
use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use reconcile::{Failure, Key, Loop, Next, OrFail as _, Reconciler, Severity};
use rpc::ptypes::VolumeSnapshotRequest;

use self::decide::{Act, Merge, Purge, Seen, decide};
use crate::engine::client::Reach;
use crate::engine::command::PURGE;
use crate::engine::monitor::Monitors;
use crate::volume::World;
use crate::{FINALIZER, NAMESPACE, attachment, engine, label};

const HEAD: &str = "volume-head";
/// On a snapshot that is to be merged away: when its engine was asked to, or was last seen at it.
const MERGE: &str = "holdfast.io/merge";
/// What stands there where the engine has let it be.
const REFUSED: &str = "refused";
const COMMAND_TIMEOUT: Duration = Duration::from_mins(3);
/// Engines by the names of their snapshots.
pub(crate) const BY_SNAPSHOT: &str = "snapshot";

/// Attachments by the snapshots for which they hold their volume.
pub(crate) const HELD_FOR: &str = "held for";

/// The value of [`HELD_FOR`].
pub(crate) fn held_for(attachment: &VolumeAttachment) -> Vec<String> {
    attachment::holders(attachment, &AttacherType::SnapshotController)
}

/// The value of [`BY_SNAPSHOT`].
pub(crate) fn snapshots_of(engine: &Engine) -> Vec<String> {
    let all = engine.status.as_ref().and_then(|it| it.snapshots.as_ref());
    all.into_iter().flatten().map(|(name, _)| name.clone()).filter(|it| it != HEAD).collect()
}

pub(crate) fn plan(world: &Arc<World>) -> Loop {
    let own = Arc::clone(world);
    Loop::new("snapshots", &world.context)
        .on(&world.snapshots)
        .map(&world.engines, move |_, before, now| {
            // What an engine has, where it is, and whether it has said how its copies are.
            let told = |engine: Option<&Engine>| {
                engine.map(|it| {
                    let status = it.status.as_ref();
                    let snapshots = status.and_then(|it| it.snapshots.clone());
                    let answers = status.is_some_and(|it| it.replica_mode_map.is_some());
                    (snapshots, engine::address(it), answers)
                })
            };
            if told(before) == told(now) {
                return Vec::new();
            }
            let volume = now.or(before).and_then(|it| it.spec.instance.volume_name.clone());
            let objects = own.snapshots.by("volume", volume.as_deref().unwrap_or_default());
            let mut names: Vec<String> = objects.iter().map(|it| it.name_any()).collect();
            names.extend(before.into_iter().chain(now).flat_map(snapshots_of));
            names.iter().map(|name| Key::new(NAMESPACE, name)).collect()
        })
        // A ticket may be for one that is not there any more.
        .map(&world.attachments, |_, _, now| {
            let held = now.into_iter().flat_map(held_for);
            held.map(|snapshot| Key::new(NAMESPACE, &snapshot)).collect()
        })
        .needs(&world.volumes)
}

pub(crate) struct Snapshots {
    world: Arc<World>,
    monitors: Arc<Monitors>,
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Snapshots").finish_non_exhaustive()
    }
}

impl Reconciler for Snapshots {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let Some(snapshot) = self.world.snapshots.get(key) else {
            self.release_left(key).await?;
            return self.adopt(key).await;
        };
        self.settle(&snapshot).await
    }
}

impl Snapshots {
    pub(crate) fn new(world: Arc<World>, monitors: Arc<Monitors>) -> Self {
        Self { world, monitors }
    }

    /// What is left of a snapshot whose object is gone: its ticket, where somebody has removed the object by force.
    async fn release_left(&self, key: &Key) -> Result<(), Failure> {
        let world = &self.world;
        if world.snapshots.is_broken(key) {
            return Ok(());
        }
        let kind = AttacherType::SnapshotController;
        for held in world.attachments.by(HELD_FOR, &key.name) {
            if let Some(next) = attachment::without(&held, kind.clone(), &key.name) {
                world.attachments.merge(&held, &next).await?;
            }
        }
        Ok(())
    }

    /// An engine has a snapshot that no object tells of.
    async fn adopt(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.world;
        let engines = world.engines.by(BY_SNAPSHOT, &key.name);
        let Some(engine) = engines.first().filter(|_| !world.snapshots.is_broken(key)) else {
            return Ok(Next::WAIT);
        };
        let all = engine.status.as_ref().and_then(|it| it.snapshots.as_ref());
        let known = all.and_then(|it| it.get(key.name.as_ref()));
        let name = engine.spec.instance.volume_name.clone().unwrap_or_default();
        let Some(volume) = world.volumes.get(&Key::new(NAMESPACE, &name)) else {
            return Ok(Next::WAIT);
        };
        let leaving = volume.metadata.deletion_timestamp.is_some();
        // Those of a restore come and go with it.
        let restores = volume.status.as_ref().is_some_and(|it| it.restore_required == Some(true));
        if known.is_none_or(|it| it.removed == Some(true))
            || leaving
            || restores
            || crate::volume::is_unfinished_clone(&volume)
        {
            return Ok(Next::WAIT);
        }
        let spec =
            SnapshotSpec { volume: Some(name.clone()), create_snapshot: Some(false), labels: None };
        let mut made = Snapshot::new(&key.name, spec);
        made.metadata.namespace = Some(NAMESPACE.to_owned());
        made.metadata.owner_references = volume.controller_owner_ref(&()).map(|it| vec![it]);
        made.finalizers_mut().push(FINALIZER.to_owned());
        made.labels_mut().insert(label::VOLUME.to_owned(), name);
        world.snapshots.create(&made).await?;
        Ok(Next::WAIT)
    }

    async fn settle(&self, snapshot: &Arc<Snapshot>) -> Result<Next, Failure> {
        let world = &self.world;
        let name = snapshot.spec.volume.clone().unwrap_or_default();
        let volume = world.volumes.get(&Key::new(NAMESPACE, &name));
        let engine = engine::active(&world.engines, &name);
        let status = engine.as_ref().and_then(|it| it.status.clone()).unwrap_or_default();
        let all = status.snapshots.unwrap_or_default();
        let verdict = decide(&Seen {
            now: Timestamp::now(),
            snapshot,
            volume: volume.as_deref(),
            engine: engine.as_ref().map(|it| it.name_any()),
            runs: engine.as_deref().is_some_and(|it| engine::address(it).is_some())
                && status.replica_mode_map.is_some(),
            purge: purge_of(status.purge_status.as_ref()),
            merge: merge_of(snapshot),
            size: status.current_size.map(|it| it.0),
            known: all.get(&snapshot.name_any()),
            may_purge: crate::setting::value(&world.settings, "disable-snapshot-purge") != "true",
        });
        self.hold_volume(snapshot, volume.as_deref(), verdict.ticket).await?;
        let mut next = snapshot.as_ref().clone();
        next.status = Some(verdict.status);
        note_merge(&mut next, verdict.merge);
        if !verdict.gone && snapshot.metadata.deletion_timestamp.is_none() {
            if !next.finalizers().iter().any(|it| it == FINALIZER) {
                next.finalizers_mut().push(FINALIZER.to_owned());
            }
            next.labels_mut().entry(label::VOLUME.to_owned()).or_insert_with(|| name.clone());
            if let Some(volume) = volume.as_ref().filter(|_| next.owner_references().is_empty()) {
                next.owner_references_mut().extend(volume.controller_owner_ref(&()));
            }
        }
        let written = world.snapshots.update(snapshot, &next).await?;
        if verdict.gone {
            if snapshot.metadata.deletion_timestamp.is_none() {
                world.snapshots.delete(&written).await?;
            }
            world.snapshots.remove_finalizer(&written, FINALIZER).await?;
            return Ok(Next::WAIT);
        }
        if let (Some(act), Some(engine)) = (verdict.act, engine.as_deref()) {
            self.perform(act, &written, engine).await?;
        }
        Ok(verdict.next.map_or(Next::WAIT, Next::after))
    }

    async fn perform(&self, act: Act, snapshot: &Snapshot, engine: &Engine) -> Result<(), Failure> {
        let Some(reach) = Reach::of(engine) else { return Ok(()) };
        let name = snapshot.name_any();
        match act {
            Act::Take => {
                take(&reach, snapshot).await?;
                let mut next = snapshot.clone();
                let status: &mut SnapshotStatus = next.status.get_or_insert_default();
                status.requested_time = Some(Stamp::from(Time::new(Timestamp::now())));
                self.world.snapshots.update(snapshot, &next).await?;
                let text = format!("successfully provisioned the snapshot {name}");
                self.world.context.events.say(snapshot, Severity::Normal, "Create", &text);
            }
            Act::Remove => {
                command(&reach, &["snapshot", "rm", &name]).await?;
                self.purge(&reach, snapshot).await?;
            }
            Act::Purge => self.purge(&reach, snapshot).await?,
        }
        self.monitors.nudge(&Key::of(engine));
        Ok(())
    }

    /// One that was refused, as while a copy is filled, was not asked for.
    async fn purge(&self, reach: &Reach, snapshot: &Snapshot) -> Result<(), Failure> {
        command(reach, &PURGE).await?;
        let mut next = snapshot.clone();
        note_merge(&mut next, Merge::Asked(Timestamp::now()));
        self.world.snapshots.update(snapshot, &next).await.map(drop)
    }

    /// Keeps the volume attached while the snapshot needs its engine.
    async fn hold_volume(
        &self,
        snapshot: &Snapshot,
        volume: Option<&api::longhorn::Volume>,
        wanted: bool,
    ) -> Result<(), Failure> {
        let Some(volume) = volume else { return Ok(()) };
        let Some(known) = self.world.attachments.get(&Key::of(volume)) else { return Ok(()) };
        let status = volume.status.clone().unwrap_or_default();
        let mut next = known.as_ref().clone();
        let tickets = next.spec.attachment_tickets.get_or_insert_default();
        let ticket = |node: &str| {
            attachment::own(AttacherType::SnapshotController, &snapshot.name_any(), node, "any")
        };
        let (id, _) = ticket("");
        let at = tickets.get(&id).map(|it| it.node_id.clone().unwrap_or_default());
        if !wanted {
            tickets.remove(&id);
        } else if let Some(node) = goes_to(&status, at.as_deref(), |it| self.world.is_up(it)) {
            tickets.extend([ticket(&node)]);
        }
        self.world.attachments.merge(&known, &next).await.map(drop)
    }
}

fn merge_of(snapshot: &Snapshot) -> Merge {
    match snapshot.annotations().get(MERGE).map(String::as_str) {
        Some(REFUSED) => Merge::Refused,
        Some(at) => at.parse().map_or(Merge::Unasked, Merge::Asked),
        None => Merge::Unasked,
    }
}

fn note_merge(snapshot: &mut Snapshot, merge: Merge) {
    let text = match merge {
        Merge::Unasked => {
            if let Some(notes) = &mut snapshot.metadata.annotations {
                notes.remove(MERGE);
            }
            return;
        }
        Merge::Asked(at) => Time::new(at).to_string(),
        Merge::Refused => REFUSED.to_owned(),
    };
    snapshot.annotations_mut().insert(MERGE.to_owned(), text);
}

/// Of all copies together.
fn purge_of(all: Option<&BTreeMap<String, EnginePurgeStatus>>) -> Purge {
    let mut all = all.into_iter().flatten().map(|(_, it)| it);
    let failed = |it: &EnginePurgeStatus| it.error.as_ref().is_some_and(|it| !it.is_empty());
    if all.clone().any(|it| it.is_purging == Some(true)) {
        Purge::Running
    } else if all.any(failed) {
        Purge::Failed
    } else {
        Purge::Over
    }
}

/// Where the ticket of a snapshot goes; nothing if it stays as it is, or is not needed. A node that is gone for
/// good keeps no volume.
fn goes_to(
    volume: &VolumeStatus,
    ticket: Option<&str>,
    is_up: impl Fn(&str) -> bool,
) -> Option<String> {
    let stays = match ticket {
        Some(at) => is_up(at),
        // One that is attached anyway needs no ticket of ours.
        None => volume.state == Some(VolumeState::Attached),
    };
    let nodes = [&volume.current_node_id, &volume.owner_id].into_iter().flatten();
    nodes.filter(|_| !stays).find(|it| is_up(it)).cloned()
}

async fn take(reach: &Reach, snapshot: &Snapshot) -> Result<(), Failure> {
    let name = snapshot.name_any();
    let doing = || format!("take snapshot {name} of volume {}", reach.volume);
    let request = VolumeSnapshotRequest {
        name: name.clone(),
        labels: snapshot.spec.labels.clone().unwrap_or_default().into_iter().collect(),
        freeze_filesystem: false,
    };
    let mut controller = reach.controller().or_fail(doing)?;
    match controller.volume_snapshot(request).await {
        Ok(_) => Ok(()),
        // Taken before, by a pass that was cut short.
        Err(status) if was_there(status.message()) => Ok(()),
        Err(status) => Err(Failure::other(doing(), status.message().to_owned())),
    }
}

/// Whether an engine says that it has a snapshot of that name, and not that it lacks something.
fn was_there(text: &str) -> bool {
    text.contains("already exist")
}

async fn command(reach: &Reach, arguments: &[&str]) -> Result<(), Failure> {
    let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
    let run = engine::run(reach, &arguments, COMMAND_TIMEOUT).await;
    run.or_fail(|| format!("run {} for volume {}", arguments.join(" "), reach.volume)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_of_a_merge_is_read_again() {
        let mut snapshot = Snapshot::new("s", SnapshotSpec::default());
        let at = Timestamp::from_second(1_000_000).unwrap();
        for merge in [Merge::Unasked, Merge::Asked(at), Merge::Refused, Merge::Unasked] {
            note_merge(&mut snapshot, merge);
            assert_eq!(merge_of(&snapshot), merge);
        }
        snapshot.annotations_mut().insert(MERGE.to_owned(), "soon".to_owned());
        assert_eq!(merge_of(&snapshot), Merge::Unasked);
    }

    /// It would be waited for, and then be lost with its object.
    #[test]
    fn a_snapshot_that_could_not_be_taken_is_not_taken() {
        assert!(was_there("snapshot s1 is already existing"));
        assert!(!was_there("replica tcp://h:1: volume-head-002.img does not exist"));
    }

    #[test]
    fn a_snapshot_does_not_hold_a_volume_on_a_node_that_is_gone() {
        let status = |at: &str, owner: &str, state| VolumeStatus {
            current_node_id: Some(at.into()),
            owner_id: Some(owner.into()),
            state: Some(state),
            ..VolumeStatus::default()
        };
        let is_up = |node: &str| node == "n1" || node == "n2";
        for (volume, ticket, wanted) in [
            (status("", "n1", VolumeState::Detached), None, Some("n1")),
            (status("n2", "n1", VolumeState::Attaching), None, Some("n2")),
            (status("n1", "n1", VolumeState::Attached), None, None),
            (status("n1", "n1", VolumeState::Attached), Some("n2"), None),
            (status("gone", "n1", VolumeState::Attached), Some("gone"), Some("n1")),
            (status("gone", "gone", VolumeState::Attached), Some("gone"), None),
        ] {
            let text = format!("{volume:?} {ticket:?}");
            assert_eq!(goes_to(&volume, ticket, is_up).as_deref(), wanted, "{text}");
        }
    }
}
