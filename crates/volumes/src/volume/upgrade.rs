//! Which engine serves a volume, and how another takes its place: at once while the volume is detached,
//! and under its clients while it is attached and whole.
//!
//! A live upgrade has three steps, each of which can be seen in the objects, so that whoever looks next
//! goes on from there. Each copy gets a twin: another Replica of the wanted image, inactive, whose
//! process runs beside the first on the same directory. When all twins run, the engine is told of them
//! and of the image, and its node starts the next engine, which takes copies and clients over. When that
//! one says how the twins are, they become the copies, and the others go, without the data. Until the
//! next engine has taken over, everything can be taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::longhorn::{AttacherType, DataLocality, InstanceState, Replica, Robustness, VolumeState};
use kube::ResourceExt;
use reconcile::Severity;

use super::draft::{
    Draft, Image, Plan, fail, has_failed, is_active, is_at_rest, is_leaving, is_set, is_usable,
    node_of, process_state,
};
use super::is_new;
use super::restore::is_busy;
use crate::image::CLI_API_WITH_RESTORE_REBUILD;
use crate::node::{failed_creation, failed_upgrade};
use crate::replica::address_of;

/// When an image that was not there is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The condition of a volume that waits for another engine, or was refused one.
const UPGRADE: &str = "EngineUpgrade";

/// The condition of a new volume whose image nobody knows.
const IMAGE: &str = "EngineImage";

/// What becomes of a wish for another image.
enum Wish {
    Refused(String),
    /// Nothing speaks against it but the moment.
    Waits(&'static str, String),
    Granted,
}

impl Draft<'_> {
    /// Nothing is made of a new volume before its image is there: its copies would be made by another engine.
    pub(super) fn lacks_image(&mut self) -> Option<String> {
        let wanted = self.status.current_image.clone().unwrap_or_default();
        // What an earlier version of ours was called is served by this one.
        let is_ours = wanted.starts_with(crate::image::OURS);
        let is_known = is_ours || self.seen.images.contains_key(&wanted);
        if is_known || self.engine.is_some() || !is_new(&self.state()) {
            self.drop_condition(IMAGE);
            return None;
        }
        Some(format!(
            "engine image {wanted} is not deployed: make an EngineImage for it whose program a node has, or leave spec.image empty"
        ))
    }

    pub(super) fn wait_for_image(mut self, why: &str) -> Plan {
        // It may be named anew as long as nothing is made.
        self.status.current_image = None;
        self.condition(IMAGE, false, "NotDeployed", why);
        self.look_after(LOOK_AGAIN);
        self.finish()
    }

    /// Whether its engine can fill copies of a volume that restores. An older one cannot: the volume
    /// goes on with the copies it has.
    pub(super) fn rebuilds_restores(&self) -> bool {
        let image = self.status.current_image.as_ref();
        let image = image.and_then(|it| self.seen.images.get(it));
        image.is_none_or(|image| image.cli >= CLI_API_WITH_RESTORE_REBUILD)
    }

    /// The engine was told of twins, and they are not its copies yet.
    pub(super) fn is_replacing(&self) -> bool {
        let told =
            self.engine.as_ref().and_then(|it| it.spec.upgraded_replica_address_map.as_ref());
        told.is_some_and(|map| !map.is_empty())
    }

    /// A copy or its twin is on its way: nothing else is done to copies meanwhile.
    pub(super) fn is_upgrading(&self) -> bool {
        self.is_replacing() || self.replicas.iter().any(|it| !is_active(it) && !is_leaving(it))
    }

    /// The image that is asked for is taken, waited with, or refused.
    pub(super) fn follow_image(&mut self) {
        self.take_twins();
        if self.is_replacing() {
            self.follow_replacement();
            return;
        }
        let wanted = self.volume.spec.image.clone().unwrap_or_default();
        let current = self.status.current_image.clone().unwrap_or_default();
        if wanted == current {
            self.drop_twins();
            return;
        }
        let rests = self.state() == VolumeState::Detached
            && is_at_rest(&self.engine_state())
            && self.replicas.iter().all(|it| is_at_rest(&process_state(it)));
        let Some(image) = self.seen.images.get(&wanted) else {
            return self.refuse_image(&format!("engine image {wanted} is not deployed"));
        };
        if rests {
            self.drop_twins();
            return self.take_image(&wanted);
        }
        match self.wish(&wanted, image) {
            Wish::Refused(why) => self.refuse_image(&why),
            Wish::Waits(reason, why) => {
                self.drop_twins();
                self.condition(UPGRADE, false, reason, &why);
            }
            Wish::Granted => self.make_twins(&wanted),
        }
    }

    /// Whether an engine that runs may be replaced now.
    fn wish(&self, wanted: &str, image: &Image) -> Wish {
        let name = self.name();
        let when_detached = |why: &str| {
            let text = format!("volume {name} is served by {wanted} when it was detached: {why}");
            Wish::Waits("WaitForDetach", text)
        };
        if self.state() != VolumeState::Attached || !self.engine_runs() {
            return when_detached("it is neither attached nor detached now");
        }
        if self.status.robustness != Some(Robustness::Healthy) {
            return Wish::Refused(format!("cannot do live upgrade for a unhealthy volume {name}"));
        }
        if self.volume.spec.data_locality == Some(DataLocality::StrictLocal) {
            let why = format!("cannot do live upgrade for an attached strict-local volume {name}");
            return Wish::Refused(why);
        }
        // One without an object is this build's, whatever it is called.
        let current = self.status.current_image.as_ref();
        let current = current.and_then(|it| self.seen.images.get(it));
        let (oldest, newest) = image.controller;
        if let Some((_, now)) = current.map(|it| it.controller)
            && !(oldest..=newest).contains(&now)
        {
            let why =
                format!("it takes over from engines of version {oldest} to {newest}, not {now}");
            return when_detached(&why);
        }
        let at = self.status.current_node_id.as_deref();
        let places: BTreeSet<&str> =
            self.replicas.iter().filter(|it| is_usable(it)).filter_map(node_of).chain(at).collect();
        let missing: Vec<&str> = places.into_iter().filter(|node| !image.is_on(node)).collect();
        if !missing.is_empty() {
            return when_detached(&format!("it is not on node {}", missing.join(", ")));
        }
        match self.is_at_work() {
            Some(what) => Wish::Waits("WaitForIdle", format!("{wanted} takes over when {what}")),
            None => Wish::Granted,
        }
    }

    /// What a new process would end: a copy's work belongs to its process.
    fn is_at_work(&self) -> Option<String> {
        let status = self.engine_status();
        let restores = self.restores()
            && status.last_restored_backup.as_deref().is_none_or(|held| {
                let asked =
                    self.engine.as_ref().and_then(|it| it.spec.requested_backup_restore.as_ref());
                held.is_empty() || asked.map(String::as_str) != Some(held)
            });
        let uses = self.tickets.iter().find(|(_, ticket)| {
            matches!(
                ticket.kind,
                Some(
                    AttacherType::SnapshotController
                        | AttacherType::BackupController
                        | AttacherType::VolumeCloneController
                        | AttacherType::VolumeExpansionController
                        | AttacherType::VolumeRebuildingController
                )
            )
        });
        let text = if restores {
            "the newest backup is restored".to_owned()
        } else if let Some((id, _)) = uses {
            format!("{id} has let go of the volume")
        } else if is_busy(&status) || !self.is_synced() || self.is_growing() {
            "no copy is filled, purged or expanded".to_owned()
        } else if self.clones() || self.revert_has_begun() {
            "the volume is itself".to_owned()
        } else {
            return None;
        };
        Some(text)
    }

    /// One twin for each copy; when all of them run, the engine is told.
    fn make_twins(&mut self, wanted: &str) {
        if let Some(why) = self.failed_twin() {
            return self.refuse_image(&why);
        }
        // What an earlier try left at the engine's node goes first.
        if failed_upgrade(&self.engine_status().instance).is_some() {
            return;
        }
        let copies: Vec<Replica> =
            self.replicas.iter().filter(|it| is_usable(it)).cloned().collect();
        let mut map = BTreeMap::new();
        for copy in &copies {
            match self.twin_of(copy) {
                Some(twin) if is_for(twin, wanted) => {
                    if let Some(at) = address_of(twin) {
                        map.insert(twin.name_any(), at);
                    }
                }
                // Of an earlier wish: it goes first.
                Some(_) => return self.drop_twins(),
                None => {
                    let twin = self.new_twin(copy, wanted);
                    self.create.push(twin);
                }
            }
        }
        let text = format!("{wanted} takes over from {}", self.current_image());
        self.condition(UPGRADE, false, "UpgradeInProgress", &text);
        if map.len() < copies.len() {
            return;
        }
        if let Some(engine) = &mut self.engine {
            engine.spec.upgraded_replica_address_map = Some(map);
            engine.spec.instance.image = Some(wanted.to_owned());
        }
        self.tell(Severity::Normal, "EngineUpgrading", text);
    }

    fn new_twin(&mut self, copy: &Replica, image: &str) -> Replica {
        let mut twin = self.new_copy(0);
        let spec = &mut twin.spec;
        spec.active = Some(false);
        spec.data_directory_name.clone_from(&copy.spec.data_directory_name);
        spec.disk_id.clone_from(&copy.spec.disk_id);
        spec.disk_path.clone_from(&copy.spec.disk_path);
        spec.hard_node_affinity.clone_from(&copy.spec.hard_node_affinity);
        spec.instance.node_id.clone_from(&copy.spec.instance.node_id);
        spec.instance.volume_size = copy.spec.instance.volume_size;
        spec.instance.image = Some(image.to_owned());
        spec.instance.desire_state = Some(InstanceState::Running);
        for name in [crate::label::NODE, crate::label::DISK] {
            if let Some(value) = copy.labels().get(name).cloned() {
                twin.labels_mut().insert(name.to_owned(), value);
            }
        }
        twin
    }

    /// The inactive one on the directory of a copy.
    fn twin_of(&self, copy: &Replica) -> Option<&Replica> {
        self.replicas.iter().find(|it| !is_active(it) && !is_leaving(it) && is_beside(it, copy))
    }

    fn failed_twin(&self) -> Option<String> {
        let twins = self.replicas.iter().filter(|it| !is_active(it) && !is_leaving(it));
        let mut failed = twins.filter(|it| process_state(it) == InstanceState::Error);
        let twin = failed.next()?;
        let why = twin.status.as_ref().and_then(|it| failed_creation(&it.instance));
        let why = why.unwrap_or("its process ended");
        Some(format!(
            "replica {} cannot be started beside the one before it: {why}",
            twin.name_any()
        ))
    }

    /// The engine was told. It is waited for, unless it cannot be.
    fn follow_replacement(&mut self) {
        let status = self.engine_status().instance;
        let told = self.engine.as_ref().and_then(|it| it.spec.instance.image.clone());
        let why = failed_upgrade(&status).map(str::to_owned);
        if let Some(why) = why.filter(|_| status.current_image != told) {
            self.take_back_image();
            self.refuse_image(&why);
        }
    }

    /// The engine is of the image it was of before.
    pub(super) fn take_back_image(&mut self) {
        let current = self.status.current_image.clone();
        if let Some(engine) = &mut self.engine {
            engine.spec.upgraded_replica_address_map = Some(BTreeMap::new());
            engine.spec.instance.image = current;
        }
    }

    /// The next engine has taken over and says how its copies are: they are the copies from now on.
    fn take_twins(&mut self) {
        let Some(engine) = &self.engine else { return };
        let next = engine.spec.upgraded_replica_address_map.clone().unwrap_or_default();
        let image = engine.spec.instance.image.clone();
        let status = self.engine_status();
        let modes = status.replica_mode_map.unwrap_or_default();
        let has_begun = !next.is_empty()
            && self.engine_runs()
            && status.instance.current_image == image
            && next.keys().all(|name| modes.contains_key(name));
        if !has_begun {
            return self.finish_upgrade();
        }
        let now = self.failure();
        let before = self.replicas.clone();
        for replica in &mut self.replicas {
            let is_next = next.contains_key(&replica.name_any());
            let beside = before
                .iter()
                .find(|it| it.name_any() != replica.name_any() && is_beside(it, replica));
            match beside {
                // It has what the one before had, and takes its history on.
                Some(other) if is_next && !is_active(replica) => {
                    let (spec, of) = (&mut replica.spec, &other.spec);
                    spec.active = Some(true);
                    spec.healthy_at.clone_from(&of.healthy_at);
                    spec.last_healthy_at.clone_from(&of.last_healthy_at);
                    spec.last_failed_at.clone_from(&of.last_failed_at);
                    spec.rebuild_retry_count = Some(0);
                }
                Some(other) if !is_next && next.contains_key(&other.name_any()) => {
                    replica.spec.active = Some(false);
                    replica.spec.instance.desire_state = Some(InstanceState::Stopped);
                }
                // It was lost while the engine was replaced.
                None if !is_next && is_usable(replica) => fail(replica, &now),
                Some(_) | None => {}
            }
        }
        if let Some(engine) = &mut self.engine {
            engine.spec.replica_address_map = Some(next);
            engine.spec.upgraded_replica_address_map = Some(BTreeMap::new());
        }
        self.finish_upgrade();
    }

    /// Engine and copies are of the wanted image: so is the volume.
    fn finish_upgrade(&mut self) {
        let Some(engine) = &self.engine else { return };
        let image = engine.spec.instance.image.clone();
        let is_of = |it: &Replica| it.spec.instance.image == image;
        let done = !self.is_replacing()
            && self.status.current_image != image
            && self.state() == VolumeState::Attached
            && self.engine_status().instance.current_image == image
            && self.replicas.iter().filter(|it| is_usable(it)).all(is_of);
        if let Some(image) = image.filter(|_| done) {
            self.say_taken(&image);
        }
    }

    /// A pass that made twins the copies may have ended between two writes, and everything was taken back
    /// since: then neither of the two on a directory is active. The one that was a copy is one again, or the
    /// data would go with both.
    fn keep_one_of_each(&mut self) {
        let all = self.replicas.clone();
        let there = |it: &&Replica| !is_leaving(it);
        for replica in &mut self.replicas {
            let mut beside = all.iter().filter(there).filter(|it| is_beside(it, replica));
            if is_leaving(replica) || beside.clone().any(is_active) {
                continue;
            }
            let was_copy = |it: &Replica| is_set(it.spec.last_healthy_at.as_ref());
            let kept = beside.clone().find(|it| was_copy(it)).or_else(|| beside.next());
            if kept.is_some_and(|it| it.name_any() == replica.name_any()) {
                replica.spec.active = Some(true);
            }
        }
    }

    /// What is inactive ends, and then its object goes. The data is the active one's.
    fn drop_twins(&mut self) {
        self.keep_one_of_each();
        for replica in self.replicas.iter_mut().filter(|it| !is_active(it) && !is_leaving(it)) {
            replica.spec.instance.desire_state = Some(InstanceState::Stopped);
            let is_away = node_of(replica).is_some_and(|node| !self.seen.up.contains(node));
            if is_at_rest(&process_state(replica)) || is_away {
                self.delete.insert(replica.name_any());
            }
        }
    }

    fn current_image(&self) -> String {
        self.status.current_image.clone().unwrap_or_default()
    }

    fn take_image(&mut self, wanted: &str) {
        if let Some(engine) = &mut self.engine {
            engine.spec.instance.image = Some(wanted.to_owned());
        }
        for replica in self.replicas.iter_mut().filter(|it| is_active(it)) {
            replica.spec.instance.image = Some(wanted.to_owned());
        }
        self.say_taken(wanted);
    }

    fn say_taken(&mut self, image: &str) {
        // One that failed before comes back as what the others are.
        for replica in self.replicas.iter_mut().filter(|it| is_active(it) && has_failed(it)) {
            replica.spec.instance.image = Some(image.to_owned());
        }
        self.status.current_image = Some(image.to_owned());
        let text = format!("volume {} is served by {image} from now on", self.name());
        self.condition(UPGRADE, true, "Upgraded", &text);
        self.tell(Severity::Normal, "EngineUpgraded", text);
    }

    /// Nothing changes, and it is told.
    fn refuse_image(&mut self, why: &str) {
        self.drop_twins();
        self.volume.spec.image.clone_from(&self.status.current_image);
        self.condition(UPGRADE, false, "UpgradeRefused", why);
        self.tell(Severity::Warning, "FailedEngineUpgrade", why.to_owned());
    }

    /// The volume is closed while its engine was being replaced: that ended well, or it is taken back.
    pub(super) fn end_replacement(&mut self) {
        let told = self.engine.as_ref().and_then(|it| it.spec.instance.image.clone());
        if self.is_replacing() && self.engine_status().instance.current_image != told {
            self.take_back_image();
            let name = self.name();
            self.refuse_image(&format!("volume {name} was closed while its engine was replaced"));
        } else if self.is_replacing() {
            // The same directories under the other names: which of the two objects stays is all one.
            self.take_back_image();
        }
    }
}

/// It was made for this image, and nobody has told it to end.
fn is_for(twin: &Replica, image: &str) -> bool {
    let spec = &twin.spec.instance;
    spec.image.as_deref() == Some(image) && spec.desire_state == Some(InstanceState::Running)
}

/// Both are on one directory.
fn is_beside(one: &Replica, other: &Replica) -> bool {
    let place = |it: &Replica| (it.spec.disk_id.clone(), it.spec.data_directory_name.clone());
    place(one) == place(other) && one.spec.data_directory_name.is_some()
}
