//! What is known of a volume and what it is to become: the ground on which the parts of the decision
//! work, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::condition::{self, Verdict};
use api::longhorn::{
    AccessMode, AttachmentTicket, BackupTarget, BackupVolume, Condition, Engine, EngineStatus,
    InstanceState, Replica, ReplicaMode, Robustness, Volume, VolumeAttachment, VolumeState,
    VolumeStatus,
};
use api::scalar::{Stamp, Time};
use jiff::Timestamp;
use kube::ResourceExt;
use reconcile::Severity;

use super::clone::{AtOriginal, Original};
use crate::replica::address_of;
pub(crate) use crate::replica::is_leaving;
use crate::schedule::Candidate;
use crate::setting::Settings;

/// More copies than this no volume has; not every definition of volumes says so.
const MOST_COPIES: usize = 20;

/// The backup a volume is made from, as far as it could be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The volume is made from nothing.
    None,
    /// It cannot be found, or not yet.
    Missing(String),
    Found {
        /// Name of the source volume and of the backup.
        volume: String,
        backup: String,
        /// Size of the source when that backup was made.
        backup_volume_size: Option<i64>,
        /// Who might use the source at one time.
        access_mode: Option<AccessMode>,
    },
}

/// An engine image that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// Version of its command line.
    pub(crate) cli: i32,
    /// Oldest and newest version of its controller's API.
    pub(crate) controller: (i32, i32),
    /// This build's own: it is on every node.
    pub(crate) is_own: bool,
    pub(crate) nodes: BTreeSet<String>,
}

impl Image {
    pub(crate) fn is_on(&self, node: &str) -> bool {
        self.is_own || self.nodes.contains(node)
    }
}

/// Everything that is looked at.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) now: Timestamp,
    pub(crate) volume: Volume,
    pub(crate) attachment: Option<VolumeAttachment>,
    pub(crate) engine: Option<Engine>,
    pub(crate) replicas: Vec<Replica>,
    /// Whether there are snapshots of it as objects.
    pub(crate) has_snapshots: bool,
    /// Nodes as far as placing copies goes.
    pub(crate) candidates: Vec<Candidate>,
    /// Nodes that are there and ready.
    pub(crate) up: BTreeSet<String>,
    /// Copies on nodes that are there, and whose disk is not: their data cannot be reached.
    pub(crate) no_disk: BTreeSet<String>,
    /// Copies on nodes or disks that are to be emptied.
    pub(crate) evicting: BTreeSet<String>,
    pub(crate) settings: Settings,
    /// Engine images that are deployed.
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) source: Source,
    /// The volume it is to be a copy of.
    pub(crate) original: Original,
    /// What the store has of the volume it is made from, or of itself.
    pub(crate) backup_volume: Option<BackupVolume>,
    /// The target that the store of its source belongs to, while that leads there.
    pub(crate) target: Option<BackupTarget>,
    /// Whether the newest backup in there has an object.
    pub(crate) newest_is_known: bool,
    /// Copies that are being filled on each node, of all volumes.
    pub(crate) rebuilding: BTreeMap<String, i64>,
}

/// Something for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) severity: Severity,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What is to be written. Objects that are as they were are not written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) volume: Volume,
    pub(crate) attachment: Option<VolumeAttachment>,
    pub(crate) engine: Option<Engine>,
    /// Those that are there, as they are to be.
    pub(crate) replicas: Vec<Replica>,
    /// New ones.
    pub(crate) create: Vec<Replica>,
    pub(crate) delete: BTreeSet<String>,
    /// Those that somebody has deleted and that the volume can do without.
    pub(crate) let_go: BTreeSet<String>,
    /// Those that its engine writes to: they end when it has let go of them, not under it.
    pub(crate) held: BTreeSet<String>,
    /// The store is to be read anew, as asked for at this time.
    pub(crate) sync: Option<Time>,
    /// Everything that hangs on the volume goes.
    pub(crate) dismantle: bool,
    /// Nothing hangs on it any more.
    pub(crate) release: bool,
    /// The snapshot its engine is put back to, before anything is written.
    pub(crate) revert: Option<String>,
    /// What is to be so at the volume it is copied from.
    pub(crate) at_original: Option<AtOriginal>,
    pub(crate) told: Vec<Told>,
    pub(crate) next: Option<Duration>,
}

/// The decision in the making.
pub(super) struct Draft<'a> {
    pub(super) seen: &'a Seen,
    pub(super) volume: Volume,
    pub(super) status: VolumeStatus,
    pub(super) engine: Option<Engine>,
    pub(super) replicas: Vec<Replica>,
    pub(super) create: Vec<Replica>,
    pub(super) delete: BTreeSet<String>,
    pub(super) let_go: BTreeSet<String>,
    pub(super) sync: Option<Time>,
    pub(super) tickets: BTreeMap<String, AttachmentTicket>,
    pub(super) revert: Option<String>,
    pub(super) told: Vec<Told>,
    pub(super) next: Option<Duration>,
    pub(super) fresh: &'a mut dyn FnMut() -> String,
}

impl<'a> Draft<'a> {
    pub(super) fn new(seen: &'a Seen, fresh: &'a mut dyn FnMut() -> String) -> Self {
        let tickets = seen.attachment.as_ref().and_then(|it| it.spec.attachment_tickets.clone());
        Self {
            volume: seen.volume.clone(),
            status: seen.volume.status.clone().unwrap_or_default(),
            engine: seen.engine.clone(),
            replicas: seen.replicas.clone(),
            create: Vec::new(),
            delete: BTreeSet::new(),
            let_go: BTreeSet::new(),
            sync: None,
            tickets: tickets.unwrap_or_default(),
            revert: None,
            told: Vec::new(),
            next: None,
            seen,
            fresh,
        }
    }

    pub(super) fn name(&self) -> String {
        self.volume.name_any()
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp::from(Time::new(self.seen.now))
    }

    /// When a copy fails now: never before one that failed earlier, whatever the clock says. What failed last
    /// is what a volume goes on with.
    pub(super) fn failure(&self) -> Stamp {
        let failed = |it: &Replica| it.spec.failed_at.as_ref().and_then(Stamp::get);
        let latest = self.replicas.iter().filter_map(failed).max();
        let later = latest.filter(|at| at.as_second() >= self.seen.now.as_second()).map(|at| {
            // Stamps are of seconds: of two passes in one of them, the later one is later.
            Time::new(at.checked_add(Duration::from_secs(1)).unwrap_or(at))
        });
        later.map_or_else(|| self.stamp(), Stamp::from)
    }

    pub(super) fn tell(&mut self, severity: Severity, reason: &'static str, message: String) {
        self.told.push(Told { severity, reason, message });
    }

    pub(super) fn look_after(&mut self, pause: Duration) {
        self.next = Some(self.next.map_or(pause, |earlier| earlier.min(pause)));
    }

    pub(super) fn condition(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        let list: &mut Vec<Condition> = self.status.conditions.get_or_insert_default();
        let verdict = Verdict::new(kind, holds, reason, message);
        condition::set(list, &verdict, Time::new(self.seen.now));
    }

    pub(super) fn drop_condition(&mut self, kind: &str) {
        if let Some(list) = &mut self.status.conditions {
            list.retain(|it| it.kind != kind);
        }
    }

    pub(super) fn state(&self) -> VolumeState {
        self.status.state.clone().unwrap_or(VolumeState::Unset)
    }

    pub(super) fn robustness(&self) -> Robustness {
        self.status.robustness.clone().unwrap_or(Robustness::Unset)
    }

    pub(super) fn is_faulted(&self) -> bool {
        self.status.robustness == Some(Robustness::Faulted)
    }

    pub(super) fn restores(&self) -> bool {
        self.status.restore_required == Some(true)
    }

    pub(super) fn copies_wanted(&self) -> usize {
        let asked = self.volume.spec.number_of_replicas.filter(|count| *count > 0);
        let count = asked.unwrap_or(self.seen.settings.replica_count);
        usize::try_from(count).unwrap_or(1).clamp(1, MOST_COPIES)
    }

    pub(super) fn size(&self) -> i64 {
        self.volume.spec.size.map_or(0, |size| size.0)
    }

    pub(super) fn engine_status(&self) -> EngineStatus {
        self.seen.engine.as_ref().and_then(|it| it.status.clone()).unwrap_or_default()
    }

    pub(super) fn engine_state(&self) -> InstanceState {
        self.engine_status().instance.current_state.unwrap_or(InstanceState::Unset)
    }

    /// The engine answers.
    pub(super) fn engine_runs(&self) -> bool {
        self.engine_state() == InstanceState::Running
    }

    pub(super) fn mode(&self, replica: &str) -> Option<ReplicaMode> {
        self.engine_status().replica_mode_map?.get(replica).cloned()
    }

    /// Its node is there.
    pub(super) fn is_up(&self, node: Option<&str>) -> bool {
        node.is_some_and(|node| self.seen.up.contains(node))
    }

    pub(super) fn set_state(&mut self, state: VolumeState) {
        self.status.state = Some(state);
    }

    pub(super) fn set_robustness(&mut self, robustness: Robustness) {
        self.status.robustness = Some(robustness);
    }

    /// Copies that the engine writes to.
    fn written(&self) -> BTreeSet<String> {
        let modes = self.engine_status().replica_mode_map.filter(|_| self.engine_runs());
        let modes = modes.into_iter().flatten();
        modes.filter(|(_, mode)| *mode != ReplicaMode::Error).map(|(name, _)| name).collect()
    }

    pub(super) fn finish(mut self) -> Plan {
        let held = self.written();
        let at_original = self.at_original();
        let attachment = self.seen.attachment.as_ref().map(|attachment| {
            let mut next = attachment.clone();
            next.spec.attachment_tickets = Some(self.tickets.clone());
            super::tickets::report(
                &mut next,
                &self.volume,
                &self.status,
                self.home(),
                self.seen.now,
            );
            next
        });
        self.volume.status = Some(self.status);
        Plan {
            volume: self.volume,
            attachment,
            engine: self.engine,
            replicas: self.replicas,
            create: self.create,
            delete: self.delete,
            let_go: self.let_go,
            held,
            sync: self.sync,
            dismantle: false,
            release: false,
            at_original,
            revert: self.revert,
            told: self.told,
            next: self.next,
        }
    }
}

/// Whether a stamp says that something happened.
pub(crate) fn is_set(stamp: Option<&Stamp>) -> bool {
    stamp.is_some_and(Stamp::is_set)
}

pub(crate) fn has_failed(replica: &Replica) -> bool {
    is_set(replica.spec.failed_at.as_ref())
}

/// Gives a copy up: what is written from now on it does not have.
pub(super) fn fail(replica: &mut Replica, now: &Stamp) {
    if !has_failed(replica) {
        replica.spec.failed_at = Some(now.clone());
        replica.spec.last_failed_at = Some(now.clone());
    }
    replica.spec.instance.desire_state = Some(InstanceState::Stopped);
}

/// It is the one of its directory that counts. In a live upgrade there are two for a while, of one
/// image each.
pub(crate) fn is_active(replica: &Replica) -> bool {
    replica.spec.active != Some(false)
}

/// In use, and not given up.
pub(crate) fn is_usable(replica: &Replica) -> bool {
    !has_failed(replica) && !is_leaving(replica) && is_active(replica)
}

pub(crate) fn process_state(replica: &Replica) -> InstanceState {
    let status = replica.status.as_ref().map(|it| &it.instance);
    status.and_then(|it| it.current_state.clone()).unwrap_or(InstanceState::Unset)
}

/// Nothing of it runs.
pub(crate) fn is_at_rest(state: &InstanceState) -> bool {
    match state {
        InstanceState::Stopped | InstanceState::Unset | InstanceState::Terminated => true,
        InstanceState::Running
        | InstanceState::Suspended
        | InstanceState::Error
        | InstanceState::Starting
        | InstanceState::Stopping
        | InstanceState::Unknown
        | InstanceState::Other(_) => false,
    }
}

/// Its node is there, and its disk; or its process runs, which proves it.
pub(super) fn is_there(seen: &Seen, replica: &Replica) -> bool {
    let has_disk = address_of(replica).is_some() || !seen.no_disk.contains(&replica.name_any());
    node_of(replica).is_some_and(|node| seen.up.contains(node)) && has_disk
}

pub(crate) fn node_of(replica: &Replica) -> Option<&str> {
    replica.spec.instance.node_id.as_deref().filter(|node| !node.is_empty())
}
