//! Plans write by write: a pass ends after any of its writes, and the next one goes on from there.

use super::*;
use crate::volume::steps::{Step, steps};

/// What one write changes, as the server stores it: an object and its status are two writes.
#[derive(Debug, Clone)]
pub(super) enum Write {
    Revert(String),
    Replica(Box<Replica>),
    ReplicaStatus(Box<Replica>),
    MakeReplica(Box<Replica>),
    Engine(Box<Engine>),
    EngineStatus(Box<Engine>),
    Attachment(Box<VolumeAttachment>),
    AttachmentStatus(Box<VolumeAttachment>),
    Volume(Box<Volume>),
    VolumeStatus(Box<Volume>),
    Told(Vec<&'static str>),
    Sync(api::scalar::Time),
    LetGo(String),
    Delete(String),
}

/// Both halves of a change that differ.
macro_rules! halves {
    ($all:ident, $old:expr, $new:expr, $object:path, $status:path) => {{
        let (mut before, mut after) = ($old.clone(), $new.clone());
        (before.status, after.status) = (None, None);
        if before != after {
            $all.push($object(Box::new($new.clone())));
        }
        if $old.status != $new.status {
            $all.push($status(Box::new($new.clone())));
        }
    }};
}

pub(super) fn writes(seen: &Seen, plan: &Plan) -> Vec<Write> {
    let mut all = Vec::new();
    for step in steps(seen, plan) {
        match step {
            Step::Revert(snapshot) => all.push(Write::Revert(snapshot.to_owned())),
            Step::Replica(old, new) => {
                halves!(all, old, new, Write::Replica, Write::ReplicaStatus);
            }
            Step::MakeReplica(new) => all.push(Write::MakeReplica(Box::new(new.clone()))),
            Step::Engine(old, new) => halves!(all, old, new, Write::Engine, Write::EngineStatus),
            Step::MakeEngine(new) => all.push(Write::Engine(Box::new(new.clone()))),
            Step::Attachment(old, new) => {
                halves!(all, old, new, Write::Attachment, Write::AttachmentStatus);
            }
            Step::AtOriginal(_) => {}
            Step::Volume(new) => {
                halves!(all, seen.volume, new, Write::Volume, Write::VolumeStatus);
                if !plan.told.is_empty() {
                    all.push(Write::Told(plan.told.iter().map(|it| it.reason).collect()));
                }
            }
            Step::Sync(_, at) | Step::SyncTarget(_, at) => all.push(Write::Sync(at)),
            Step::LetGo(replica) => all.push(Write::LetGo(replica.name_any())),
            Step::Delete(replica) => all.push(Write::Delete(replica.name_any())),
        }
    }
    all
}

impl World {
    fn replica(&mut self, name: &str) -> Option<&mut Replica> {
        self.replicas.iter_mut().find(|it| it.name_any() == name)
    }

    pub(super) fn put(&mut self, write: Write) {
        match write {
            Write::Revert(snapshot) => self.reverts(snapshot),
            Write::Replica(new) => {
                let known = self.replica(&new.name_any()).unwrap();
                let status = known.status.take();
                *known = Replica { status, ..*new };
            }
            Write::ReplicaStatus(new) => {
                self.replica(&new.name_any()).unwrap().status.clone_from(&new.status);
            }
            Write::MakeReplica(new) => self.replicas.push(Replica { status: None, ..*new }),
            Write::Engine(new) => {
                let status = self.engine.take().and_then(|it| it.status);
                self.engine = Some(Engine { status, ..*new });
            }
            Write::EngineStatus(new) => self.engine.as_mut().unwrap().status = new.status,
            Write::Attachment(new) => {
                let status = self.attachment.status.take();
                self.attachment = VolumeAttachment { status, ..*new };
            }
            Write::AttachmentStatus(new) => self.attachment.status = new.status,
            Write::Volume(new) => {
                let status = self.volume.status.take();
                self.volume = Volume { status, ..*new };
                if !self.volume.annotations().contains_key(crate::volume::revert::ASKED) {
                    (self.is_half_reverted, self.is_written) = (false, false);
                }
            }
            Write::VolumeStatus(new) => self.volume.status = new.status,
            Write::Told(told) => self.told.extend(told.into_iter().map(str::to_owned)),
            Write::Sync(at) => {
                let Some(store) = self.backup_volume.as_mut() else {
                    self.target.as_mut().unwrap().spec.sync_requested_at = Some(at);
                    return;
                };
                store.spec.sync_requested_at = Some(at);
                if !self.store_is_silent {
                    store.status.as_mut().unwrap().last_synced_at = Some(at);
                }
            }
            Write::LetGo(name) => {
                let replica = self.replica(&name).unwrap();
                replica.finalizers_mut().retain(|it| it != crate::DATA);
            }
            Write::Delete(name) => {
                let now = meta::Time(self.now);
                self.replica(&name).unwrap().metadata.deletion_timestamp = Some(now);
            }
        }
    }

    /// The engine is put back. What a client wrote since it was done before is lost with that.
    fn reverts(&mut self, snapshot: String) {
        assert!(!self.is_written, "a client has written since the volume was reverted");
        self.is_half_reverted = true;
        self.reverted.push(snapshot);
    }

    /// One pass, with what goes wrong in it.
    pub(super) fn pass(&mut self) {
        let number = self.counts.len();
        let goes_wrong = self.fault.filter(|it| it.pass == number).map(|it| it.kind);
        let mut seen = self.seen();
        match goes_wrong {
            Some(FaultKind::OldEngine) => seen.engine.clone_from(&self.past.0),
            Some(FaultKind::OldReplicas) => seen.replicas.clone_from(&self.past.1),
            Some(FaultKind::Cut { .. }) | None => {}
        }
        let writes = self.writes(&seen);
        self.counts.push(writes.len());
        let mut most = usize::MAX;
        if let Some(FaultKind::Cut { after, obeyed }) = goes_wrong {
            (most, self.is_paused) = (after, !obeyed);
        }
        for write in writes.into_iter().take(most) {
            if self.conflicts(&seen, &write) {
                return;
            }
            self.put(write);
            self.check();
        }
    }

    /// Somebody else has written since it was looked at.
    fn conflicts(&self, seen: &Seen, write: &Write) -> bool {
        let changed = |name: &str| {
            let is = |it: &&Replica| it.name_any() == name;
            seen.replicas.iter().find(is).map(|it| &it.status)
                != self.replicas.iter().find(is).map(|it| &it.status)
        };
        match write {
            Write::Replica(new) | Write::ReplicaStatus(new) => changed(&new.name_any()),
            Write::LetGo(name) | Write::Delete(name) => changed(name),
            Write::MakeReplica(new) => {
                self.replicas.iter().any(|it| it.name_any() == new.name_any())
            }
            Write::Engine(_) | Write::EngineStatus(_) => {
                seen.engine.as_ref().map(|it| &it.status)
                    != self.engine.as_ref().map(|it| &it.status)
            }
            Write::Revert(_)
            | Write::Attachment(_)
            | Write::AttachmentStatus(_)
            | Write::Volume(_)
            | Write::VolumeStatus(_)
            | Write::Told(_)
            | Write::Sync(_) => false,
        }
    }
}

/// What goes wrong in one pass of a walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    pub(super) pass: usize,
    pub(super) kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// It ends after so many writes: killed, or somebody else has changed what is next. Nodes do what is
    /// stored by then before the next one, or are slower than that.
    Cut { after: usize, obeyed: bool },
    /// It knows of everything but what the node of the engine reported last.
    OldEngine,
    /// The same of the nodes of the copies.
    OldReplicas,
}

#[test]
fn a_backup_that_asks_for_a_volume_while_its_snapshot_lets_go_of_it_finds_its_engine() {
    for after in 0..8 {
        let mut world = attached();
        let tickets = world.attachment.spec.attachment_tickets.clone();
        // The ticket of the snapshot is gone: the volume is to be detached.
        world.drop_ticket();
        let kind = FaultKind::Cut { after, obeyed: true };
        world.fault = Some(Fault { pass: world.counts.len(), kind });
        world.pass();
        // The next write finds that somebody else has changed the tickets, and the node has not waited.
        world.obey();
        world.attachment.spec.attachment_tickets = tickets;
        world.run(20);
        world.is(&VolumeState::Attached, &Robustness::Healthy);
        let engine = world.engine.clone().unwrap().status.unwrap().instance;
        assert_eq!(engine.current_state, Some(InstanceState::Running));
        let lies = world.told.contains(&"DetachedUnexpectedly".to_owned());
        assert!(!lies, "after {after} writes: an engine that was told to end is said to have died");
    }
}
