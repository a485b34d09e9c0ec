//! The life of volumes against nodes that obey: the same functions that run, with everything around
//! them in memory.

mod faults;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use api::longhorn::{
    AccessMode, AttacherType, BackupTarget, BackupVolume, BackupVolumeSpec, BackupVolumeStatus,
    CloneState, Engine, EngineCloneStatus, EngineRestoreStatus, EngineSnapshot, InstanceState,
    InstanceStatus, ProgressState, Replica, ReplicaMode, Robustness, Volume, VolumeAttachment,
    VolumeAttachmentSpec, VolumeSpec, VolumeStatus,
};
use api::scalar::{Stamp, TextInt, Time};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::ResourceExt;

use self::clones::{begun, clone_state, cloned};
use self::faults::{Fault, Write};
use super::*;
use crate::attachment;
use crate::replica::address_of;
use crate::schedule::{Candidate, CandidateDisk, Room};
use crate::setting::Settings;
use crate::volume::clone::{AtOriginal, Found, Original, TRIES};
use crate::volume::draft::{Image, has_failed, is_active, is_usable};

mod clones;
mod drawings;
mod forged;
mod losses;
mod places;
mod starting;
mod truth;
mod upgrades;
mod usage;

const MIB: i64 = 1024 * 1024;
const NODE: &str = "n1";
/// An engine that cannot fill copies of a volume that restores.
const OLD: &str = "longhornio/longhorn-engine:v1.0.1";
/// One that takes over from this build's under its clients, and this from it.
const NEW: &str = "holdfast/engine:v9.9.9";

/// A volume and everything that belongs to it, with processes that do as they are told.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own of the made-up world")]
struct World {
    now: Timestamp,
    volume: Volume,
    attachment: VolumeAttachment,
    engine: Option<Engine>,
    replicas: Vec<Replica>,
    settings: Settings,
    images: BTreeMap<String, Image>,
    /// The next engine does not take over.
    replacing_fails: bool,
    backup_volume: Option<BackupVolume>,
    target: Option<BackupTarget>,
    source: Source,
    original: Original,
    /// What is asked of the source of a copy.
    at_original: Option<AtOriginal>,
    /// Copies that were written to from the source of a copy.
    copied: BTreeSet<String>,
    copying_fails: bool,
    /// Snapshots the engine was put back to.
    reverted: Vec<String>,
    up: BTreeSet<String>,
    /// Copies whose disk is not there.
    no_disk: BTreeSet<String>,
    /// Nodes that are to be emptied.
    evicting: BTreeSet<String>,
    serial: u32,
    told: Vec<String>,
    /// Copies whose data is behind, or whose restore fails.
    broken: BTreeSet<String>,
    /// Backups that copies hold.
    held: BTreeMap<String, String>,
    /// Nobody reads the store though it is asked for.
    store_is_silent: bool,
    /// No copy gets anything from the store.
    store_is_lost: bool,
    /// The engine was put back, and that is not written down.
    is_half_reverted: bool,
    /// A client had the volume since then.
    is_written: bool,
    /// What goes wrong in which pass.
    fault: Option<Fault>,
    /// How many writes each pass had so far.
    counts: Vec<usize>,
    /// Engine and copies before their nodes last reported.
    past: (Option<Engine>, Vec<Replica>),
    /// Nodes do nothing before the next pass.
    is_paused: bool,
}

fn image(cli: i32, controller: (i32, i32)) -> Image {
    Image { cli, controller, is_own: false, nodes: BTreeSet::from([NODE.to_owned()]) }
}

fn node(name: &str) -> Candidate {
    Candidate {
        name: name.into(),
        zone: String::new(),
        region: String::new(),
        is_open: true,
        runs_instances: true,
        has_image: true,
        tags: BTreeSet::new(),
        disks: vec![CandidateDisk {
            uuid: format!("{name}-disk"),
            path: "/disk".into(),
            is_open: true,
            has_file_limit: false,
            tags: BTreeSet::new(),
            room: Room {
                maximum_bytes: 1 << 40,
                available_bytes: 1 << 40,
                scheduled_bytes: 0,
                reserved_bytes: 0,
            },
        }],
    }
}

impl World {
    fn new(spec: VolumeSpec) -> Self {
        let spec =
            VolumeSpec { size: Some(TextInt(32 * MIB)), number_of_replicas: Some(2), ..spec };
        let mut volume = Volume::new("v", spec);
        volume.metadata.uid = Some("u".into());
        let spec =
            VolumeAttachmentSpec { volume: Some("v".into()), ..VolumeAttachmentSpec::default() };
        Self {
            now: Timestamp::from_second(1_000_000).unwrap(),
            volume,
            attachment: VolumeAttachment::new("v", spec),
            engine: None,
            replicas: Vec::new(),
            settings: Settings { node_soft: true, ..Settings::default() },
            images: BTreeMap::from([
                (crate::image::DEFAULT.to_owned(), image(12, (4, 6))),
                (OLD.to_owned(), image(3, (3, 5))),
                (NEW.to_owned(), image(12, (4, 6))),
            ]),
            replacing_fails: false,
            backup_volume: None,
            target: None,
            source: Source::None,
            original: Original::None,
            at_original: None,
            copied: BTreeSet::new(),
            copying_fails: false,
            reverted: Vec::new(),
            up: BTreeSet::from([NODE.to_owned()]),
            no_disk: BTreeSet::new(),
            evicting: BTreeSet::new(),
            serial: 0,
            told: Vec::new(),
            broken: BTreeSet::new(),
            held: BTreeMap::new(),
            store_is_silent: false,
            store_is_lost: false,
            is_half_reverted: false,
            is_written: false,
            fault: None,
            counts: Vec::new(),
            past: (None, Vec::new()),
            is_paused: false,
        }
    }

    fn from_backup(standby: bool) -> Self {
        let mut world = Self::new(VolumeSpec {
            from_backup: Some("vfs:///d?backup=b1&volume=src".into()),
            standby: Some(standby),
            ..VolumeSpec::default()
        });
        world.source = Source::Found {
            volume: "src".into(),
            backup: "b1".into(),
            backup_volume_size: Some(32 * MIB),
            access_mode: Some(AccessMode::ReadWriteMany),
        };
        world.store("b1", 32 * MIB);
        world
    }

    /// The newest backup of the source, and how large that is.
    fn store(&mut self, newest: &str, size: i64) {
        let spec = BackupVolumeSpec {
            volume_name: Some("src".into()),
            backup_target_name: Some("default".into()),
            ..BackupVolumeSpec::default()
        };
        let mut stored = BackupVolume::new("src-1", spec);
        stored.status = Some(BackupVolumeStatus {
            size: Some(size.to_string()),
            last_backup_name: Some(newest.into()),
            ..BackupVolumeStatus::default()
        });
        self.backup_volume = Some(stored);
    }

    fn candidate(&self, name: &str) -> Candidate {
        Candidate { is_open: !self.evicting.contains(name), ..node(name) }
    }

    fn is_evicting(&self, replica: &Replica) -> bool {
        replica.spec.instance.node_id.as_ref().is_some_and(|it| self.evicting.contains(it))
    }

    fn seen(&self) -> Seen {
        Seen {
            now: self.now,
            volume: self.volume.clone(),
            attachment: Some(self.attachment.clone()),
            engine: self.engine.clone(),
            replicas: self.replicas.clone(),
            has_snapshots: false,
            candidates: self.up.iter().map(|name| self.candidate(name)).collect(),
            up: self.up.clone(),
            no_disk: self.no_disk.clone(),
            evicting: self
                .replicas
                .iter()
                .filter(|it| self.is_evicting(it))
                .map(ResourceExt::name_any)
                .collect(),
            settings: self.settings.clone(),
            images: self.images.clone(),
            source: self.source.clone(),
            original: self.original.clone(),
            backup_volume: self.backup_volume.clone(),
            target: self.target.clone(),
            newest_is_known: true,
            rebuilding: BTreeMap::new(),
        }
    }

    /// What a pass would write now, one after the other.
    fn writes(&mut self, seen: &Seen) -> Vec<Write> {
        let mut serial = self.serial;
        let plan = decide(seen, &mut || {
            serial += 1;
            format!("{serial:08x}")
        });
        self.serial = serial;
        self.at_original.clone_from(&plan.at_original);
        faults::writes(seen, &plan)
    }

    /// What must hold at every moment.
    fn check(&self) {
        let Some(engine) = &self.engine else { return };
        let modes = engine.status.clone().unwrap_or_default().replica_mode_map.unwrap_or_default();
        let filling = modes.values().filter(|mode| **mode == ReplicaMode::WriteOnly).count();
        assert!(filling <= 1, "more than one copy is being filled");
        let had_data = self
            .replicas
            .iter()
            .any(|it| it.spec.last_healthy_at.as_ref().is_some_and(Stamp::is_set));
        let stays = self.replicas.iter().any(|it| !is_leaving(it));
        let leaving = self.volume.metadata.deletion_timestamp.is_some();
        // What a copy of another volume holds before it is complete is no data.
        let clone = self.volume.status.clone().and_then(|it| it.clone_status?.state);
        let unfilled = matches!(clone, Some(CloneState::Failed | CloneState::Initiated));
        assert!(!had_data || stays || leaving || unfilled, "the last copy is removed");
        let serves = engine.spec.instance.desire_state == Some(InstanceState::Running)
            && engine.spec.disable_frontend != Some(true);
        assert!(!serves || !unfilled, "a copy is served that is not complete");
        // No directory is without an active copy, and none has two.
        for replica in &self.replicas {
            let dir = &replica.spec.data_directory_name;
            let beside = |it: &&Replica| it.spec.data_directory_name == *dir && !is_leaving(it);
            let all: Vec<_> = self.replicas.iter().filter(beside).collect();
            assert!(all.len() <= 2, "three copies on one directory");
        }
        self.check_planned(engine);
    }

    /// What an engine is given holds all that was ever written: a whole copy that it is not given has
    /// failed, or it might be taken for good when it comes back.
    fn check_planned(&self, engine: &Engine) {
        let starts = engine.spec.instance.desire_state == Some(InstanceState::Running);
        let planned = engine.spec.replica_address_map.clone().unwrap_or_default();
        let replacing =
            engine.spec.upgraded_replica_address_map.as_ref().is_some_and(|it| !it.is_empty());
        for replica in self.replicas.iter().filter(|_| starts && !planned.is_empty() && !replacing)
        {
            let is_whole = replica.spec.healthy_at.as_ref().is_some_and(Stamp::is_set);
            let name = replica.name_any();
            assert!(
                planned.contains_key(&name) || !is_usable(replica) || !is_whole,
                "{name} is left behind and counts as good"
            );
        }
    }

    /// The node does as the plans say; the engine and its monitor, too.
    fn obey(&mut self) {
        self.past = (self.engine.clone(), self.replicas.clone());
        if std::mem::take(&mut self.is_paused) {
            return;
        }
        self.replicas.retain(|it| !is_leaving(it));
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            let has_disk = !self.no_disk.contains(&replica.name_any());
            let wants = replica.spec.instance.desire_state == Some(InstanceState::Running);
            let up =
                replica.spec.instance.node_id.as_deref().is_some_and(|it| self.up.contains(it));
            let status = replica.status.get_or_insert_default();
            let failed = status.instance.current_state == Some(InstanceState::Error);
            if failed && wants {
                continue;
            }
            let runs = wants && up && has_disk;
            status.instance = InstanceStatus {
                current_state: Some(if runs {
                    InstanceState::Running
                } else {
                    InstanceState::Stopped
                }),
                ip: Some("10.0.0.1".into()),
                port: Some(if runs { 1000 + i32::try_from(index).unwrap() * 10 } else { 0 }),
                ..InstanceStatus::default()
            };
        }
        self.engine_obeys();
    }

    #[expect(clippy::too_many_lines, reason = "all that an engine does, in one place")]
    fn engine_obeys(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        let mut status = engine.status.clone().unwrap_or_default();
        let wants = engine.spec.instance.desire_state == Some(InstanceState::Running);
        if status.instance.current_state == Some(InstanceState::Error) && wants {
            return;
        }
        if !wants {
            let (size, snapshots) = (status.current_size, status.snapshots.clone());
            status =
                api::longhorn::EngineStatus { current_size: size, snapshots, ..Default::default() };
            status.instance.current_state = Some(InstanceState::Stopped);
            engine.status = Some(status);
            return;
        }
        let image = engine.spec.instance.image.clone();
        let next = engine.spec.upgraded_replica_address_map.clone().unwrap_or_default();
        let runs = status.instance.current_state == Some(InstanceState::Running);
        let differs = status.instance.current_image != image;
        if !runs {
            status.instance.current_image.clone_from(&image);
        } else if !next.is_empty() && differs && self.replacing_fails {
            let next = crate::instances::Successor {
                image: image.unwrap_or_default(),
                error: Some("exit status 1".to_owned()),
            };
            let now = api::scalar::Time::new(self.now);
            crate::node::say_upgrade(&mut status.instance, Some(&next), now);
            engine.status = Some(status);
            return;
        } else if !next.is_empty() && differs {
            // It has taken over; its monitor looks at it later.
            status.instance.current_image.clone_from(&image);
            engine.status = Some(status);
            return;
        } else if !differs {
            let now = api::scalar::Time::new(self.now);
            crate::node::say_upgrade(&mut status.instance, None, now);
        }
        self.is_written |= self.is_half_reverted && engine.spec.disable_frontend != Some(true);
        let began = status.instance.current_state == Some(InstanceState::Running);
        status.instance.current_state = Some(InstanceState::Running);
        (status.instance.ip, status.instance.port) = (Some("10.0.0.1".into()), Some(900));
        let map = engine.spec.replica_address_map.clone().unwrap_or_default();
        let map = if next.is_empty() { map } else { next };
        let mut old = status.replica_mode_map.clone().unwrap_or_default();
        // The next engine found its copies as they were.
        let is_next = runs && !map.keys().any(|name| old.contains_key(name));
        if is_next {
            old = map.keys().map(|name| (name.clone(), ReplicaMode::ReadWrite)).collect();
            let held: BTreeSet<String> = self.held.values().cloned().collect();
            let held = held.into_iter().next_back();
            self.held.extend(map.keys().filter_map(|name| Some((name.clone(), held.clone()?))));
        }
        let mut modes = BTreeMap::new();
        let mut fills = old.values().any(|mode| *mode == ReplicaMode::WriteOnly);
        let grows = engine.spec.instance.volume_size != status.current_size && began;
        for name in map.keys() {
            let mode = match old.get(name) {
                Some(ReplicaMode::WriteOnly) => ReplicaMode::ReadWrite,
                Some(mode) => mode.clone(),
                None if !began => ReplicaMode::ReadWrite,
                None if fills || grows => continue,
                None => {
                    fills = true;
                    self.held.remove(name);
                    ReplicaMode::WriteOnly
                }
            };
            modes.insert(name.clone(), mode);
        }
        status.current_size = engine.spec.instance.volume_size;
        status.current_replica_address_map = Some(
            map.iter()
                .filter(|(name, _)| modes.contains_key(*name))
                .map(|(a, b)| (a.clone(), b.clone()))
                .collect(),
        );
        let asked = engine.spec.requested_backup_restore.clone().filter(|it| !it.is_empty());
        let mut restores = BTreeMap::new();
        // A real engine lays a backup only into a volume that is as large as the store says its volume is.
        let store = self.backup_volume.as_ref().and_then(|it| it.status.as_ref()?.size.clone());
        let fits = status.current_size.map(|it| it.to_string()) == store;
        for (name, at) in map.iter().filter(|(name, _)| fits && modes.contains_key(*name)) {
            let Some(asked) = &asked else { continue };
            let fails = self.broken.contains(name);
            if !fails && !self.store_is_lost {
                self.held.insert(name.clone(), asked.clone());
            }
            restores.insert(
                format!("tcp://{at}"),
                EngineRestoreStatus {
                    last_restored: self.held.get(name).cloned(),
                    error: fails.then(|| "a block is missing".to_owned()),
                    ..EngineRestoreStatus::default()
                },
            );
        }
        let held: BTreeSet<Option<&String>> =
            modes.keys().map(|name| self.held.get(name)).collect();
        let agreed = if held.len() == 1 { held.first().unwrap().cloned() } else { None };
        status.last_restored_backup = Some(agreed.unwrap_or_default()).filter(|_| asked.is_some());
        status.restore_status = Some(restores);
        let told = engine.spec.requested_data_source.as_deref().is_some_and(|it| !it.is_empty());
        let mut clones = BTreeMap::new();
        for (name, at) in map.iter().filter(|(name, _)| told && modes.contains_key(*name)) {
            self.copied.insert(name.clone());
            let (state, error) = if self.copying_fails {
                (ProgressState::Error, "no space left".to_owned())
            } else {
                (ProgressState::Complete, String::new())
            };
            let clone = EngineCloneStatus {
                state: Some(state),
                error: Some(error),
                snapshot_name: Some("x".into()),
                ..EngineCloneStatus::default()
            };
            clones.insert(format!("tcp://{at}"), clone);
        }
        status.clone_status = Some(clones);
        status.replica_mode_map = Some(modes);
        engine.status = Some(status);
    }

    fn run(&mut self, passes: usize) {
        for _ in 0..passes {
            self.pass();
            self.obey();
            self.now += SignedDuration::from_millis(200);
        }
    }

    fn ticket(&mut self, node: &str) {
        let (_, ticket) = attachment::own(AttacherType::LonghornApi, "x", node, "false");
        let tickets = self.attachment.spec.attachment_tickets.get_or_insert_default();
        tickets.insert("api".into(), ticket);
    }

    fn drop_ticket(&mut self) {
        self.attachment.spec.attachment_tickets.get_or_insert_default().remove("api");
    }

    fn status(&self) -> VolumeStatus {
        self.volume.status.clone().unwrap()
    }

    fn is(&self, state: &VolumeState, robustness: &Robustness) {
        let status = self.status();
        let replicas: Vec<_> = self.replicas.iter().map(|it| (&it.spec, &it.status)).collect();
        assert_eq!(
            (status.state.as_ref(), status.robustness.as_ref()),
            (Some(state), Some(robustness)),
            "{status:#?} {replicas:#?} {:#?}",
            self.engine
        );
    }

    /// The process of a copy ends by itself.
    fn kill(&mut self, index: usize) -> String {
        let replica = &mut self.replicas[index];
        replica.status.as_mut().unwrap().instance.current_state = Some(InstanceState::Error);
        replica.name_any()
    }

    /// The node of a copy is not heard of any more. What runs there goes on, for all anybody knows.
    fn lose_node(&mut self, index: usize) -> String {
        let node = self.replicas[index].spec.instance.node_id.clone().unwrap();
        self.up.remove(&node);
        node
    }

    /// What the engine says of a copy.
    fn set_mode(&mut self, index: usize, mode: ReplicaMode) {
        let name = self.replicas[index].name_any();
        let status = self.engine.as_mut().unwrap().status.as_mut().unwrap();
        status.replica_mode_map.as_mut().unwrap().insert(name, mode);
    }

    fn planned(&self) -> Vec<String> {
        let engine = self.engine.as_ref().unwrap();
        engine.spec.replica_address_map.clone().unwrap_or_default().into_keys().collect()
    }

    fn condition(&self, kind: &str) -> Option<api::longhorn::Condition> {
        self.status().conditions.unwrap_or_default().into_iter().find(|it| it.kind == kind)
    }
}

fn attached() -> World {
    let mut world = World::new(VolumeSpec::default());
    world.run(6);
    world.ticket(NODE);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    world
}

#[test]
fn a_new_volume_is_made_whole_and_detached() {
    let mut world = World::new(VolumeSpec::default());
    world.run(6);
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    assert_eq!(world.replicas.len(), 2);
    assert_eq!(world.engine.as_ref().unwrap().name_any(), "v-e-0");
    assert!(world.volume.finalizers().contains(&FINALIZER.to_owned()));
    let scheduled =
        world.status().conditions.unwrap().into_iter().find(|it| it.kind == "Scheduled");
    assert_eq!(scheduled.unwrap().status, api::condition::Status::True);
    let before = world.volume.clone();
    world.run(3);
    assert_eq!(world.volume, before, "a quiet volume is not written");
}

#[test]
fn a_ticket_attaches_and_its_end_detaches() {
    let mut world = attached();
    assert_eq!(world.status().current_node_id.as_deref(), Some(NODE));
    assert!(world.attachment.status.as_ref().unwrap().attachment_ticket_statuses.as_ref().unwrap()["api"].satisfied);
    world.drop_ticket();
    world.run(6);
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    assert!(world.replicas.iter().all(|it| address_of(it).is_none()));
    world.ticket(NODE);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.replicas.len(), 2);
}

#[test]
fn a_copy_that_broke_is_filled_again() {
    let mut world = attached();
    let name = world.kill(0);
    world.pass();
    world.is(&VolumeState::Attached, &Robustness::Degraded);
    assert!(has_failed(&world.replicas[0]));
    world.run(12);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.replicas[0].name_any(), name);
    assert_eq!(world.replicas.len(), 2);
    assert!(
        world.told.contains(&"Degraded".to_owned()) && world.told.contains(&"Healthy".to_owned())
    );
}

#[test]
fn a_copy_that_was_deleted_is_replaced_at_once() {
    let mut world = attached();
    world.replicas[0].metadata.deletion_timestamp = Some(meta::Time(world.now));
    world.run(10);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.replicas.len(), 2);
}

#[test]
fn more_and_fewer_copies_without_a_degraded_moment_on_the_way_down() {
    let mut world = attached();
    world.volume.spec.number_of_replicas = Some(3);
    world.run(12);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.replicas.len(), 3);
    world.told.clear();
    world.volume.spec.number_of_replicas = Some(1);
    world.run(12);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert_eq!(world.replicas.len(), 1);
    assert!(!world.told.contains(&"Degraded".to_owned()));
}

#[test]
fn an_engine_that_broke_is_attached_again_and_the_volume_is_never_faulted() {
    let mut world = attached();
    let status = world.engine.as_mut().unwrap().status.as_mut().unwrap();
    status.instance.current_state = Some(InstanceState::Error);
    world.run(14);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert!(world.told.contains(&"DetachedUnexpectedly".to_owned()));
    assert!(!world.told.contains(&"Faulted".to_owned()));
}

#[test]
fn copies_that_all_broke_are_salvaged_together() {
    let mut world = attached();
    world.kill(0);
    world.kill(1);
    world.pass();
    assert_eq!(world.status().robustness, Some(Robustness::Faulted));
    world.run(20);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert!(world.told.contains(&"AutoSalvaged".to_owned()));
}

#[test]
fn a_volume_grows_and_never_shrinks() {
    let mut world = attached();
    world.volume.spec.size = Some(TextInt(64 * MIB));
    world.run(4);
    assert_eq!(
        world.engine.as_ref().unwrap().status.as_ref().unwrap().current_size,
        Some(TextInt(64 * MIB))
    );
    world.volume.spec.size = Some(TextInt(32 * MIB));
    world.run(2);
    assert_eq!(world.volume.spec.size, Some(TextInt(64 * MIB)));
}

#[test]
fn an_expansion_that_does_not_happen_can_be_taken_back() {
    let mut world = attached();
    let size = |world: &World| world.engine.as_ref().unwrap().spec.instance.volume_size;
    world.volume.spec.size = Some(TextInt(1 << 60));
    world.pass();
    assert_eq!(size(&world), Some(TextInt(1 << 60)));
    assert_eq!(world.status().expansion_required, Some(true));
    world.volume.spec.size = Some(TextInt(16 * MIB));
    world.pass();
    assert_eq!(world.volume.spec.size, Some(TextInt(1 << 60)), "it has more than that");
    world.volume.spec.size = Some(TextInt(32 * MIB));
    world.pass();
    assert_eq!(
        (world.volume.spec.size, size(&world)),
        (Some(TextInt(32 * MIB)), Some(TextInt(32 * MIB)))
    );
    assert_eq!(world.status().expansion_required, Some(false));
    assert!(!world.told.contains(&"SucceededExpansion".to_owned()));
    world.run(3);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

#[test]
fn a_restore_ends_by_itself() {
    let mut world = World::from_backup(false);
    world.run(20);
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    let status = world.status();
    assert_eq!((status.restore_initiated, status.restore_required), (Some(true), Some(false)));
    assert!(world.attachment.spec.attachment_tickets.as_ref().unwrap().is_empty());
    world.ticket(NODE);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

#[test]
fn an_older_backup_of_a_volume_that_grew_is_restored_as_large_as_that_is_now() {
    for polled_late in [false, true] {
        let mut world = World::from_backup(false);
        if polled_late {
            world.run(1);
        }
        world.store("b2", 64 * MIB);
        world.run(25);
        world.is(&VolumeState::Detached, &Robustness::Unknown);
        assert_eq!(world.status().restore_required, Some(false), "polled late: {polled_late}");
        assert_eq!(world.volume.spec.size, Some(TextInt(64 * MIB)));
        assert!(world.told.contains(&"LargerThanBackup".to_owned()), "polled late: {polled_late}");
    }
}

#[test]
fn a_standby_volume_that_holds_the_newest_backup_says_so() {
    let mut world = World::from_backup(true);
    world.run(12);
    let told = |world: &World| {
        let told = world.condition("Restore").unwrap();
        (told.status, told.reason.unwrap(), told.message.unwrap())
    };
    let (status, reason, text) = told(&world);
    assert_eq!((status, reason.as_str()), (api::condition::Status::True, "Following"));
    assert!(text.contains("b1"), "{text}");
    world.broken = world.replicas.iter().map(ResourceExt::name_any).collect();
    world.held.clear();
    world.store("b2", 32 * MIB);
    world.pass();
    let (_, reason, text) = told(&world);
    assert_eq!(reason, "RestoreInProgress");
    assert!(text.contains("b2"), "{text}");
}

#[test]
fn a_standby_volume_that_is_grown_by_hand_is_set_back_and_follows_on() {
    let mut world = World::from_backup(true);
    world.run(12);
    world.volume.spec.size = Some(TextInt(128 * MIB));
    world.run(3);
    assert_eq!(world.volume.spec.size, Some(TextInt(32 * MIB)));
    assert!(world.told.contains(&"SizeRefused".to_owned()));
    world.store("b2", 48 * MIB);
    world.run(8);
    let engine = world.engine.as_ref().unwrap().status.clone().unwrap();
    assert_eq!(engine.last_restored_backup.as_deref(), Some("b2"));
    assert_eq!(engine.current_size, Some(TextInt(48 * MIB)));
}

#[test]
fn a_restore_that_no_copy_can_do_ends_faulted_and_stays_so() {
    let mut world = World::from_backup(false);
    world.run(1);
    world.broken = (0..99).map(|serial| format!("v-r-{serial:08x}")).collect();
    world.run(30);
    world.is(&VolumeState::Detached, &Robustness::Faulted);
    let restore =
        world.status().conditions.unwrap().into_iter().find(|it| it.kind == "Restore").unwrap();
    assert_eq!(restore.reason.as_deref(), Some("RestoreFailure"));
    assert!(
        restore
            .message
            .unwrap()
            .starts_with("All replica restore failed and the volume became Faulted")
    );
    world.ticket(NODE);
    world.run(10);
    world.is(&VolumeState::Detached, &Robustness::Faulted);
}

#[test]
fn a_standby_volume_follows_heals_grows_and_is_activated_with_the_newest() {
    let mut world = World::from_backup(true);
    world.run(12);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    let held = |world: &World| {
        world
            .engine
            .as_ref()
            .unwrap()
            .status
            .as_ref()
            .unwrap()
            .last_restored_backup
            .clone()
            .unwrap()
    };
    assert_eq!(held(&world), "b1");
    world.ticket(NODE);
    world.run(4);
    assert_eq!(world.volume.spec.disable_frontend, Some(true), "nobody gets a volume that follows");
    let crashed = world.kill(0);
    world.store("b2", 64 * MIB);
    world.run(20);
    let names: Vec<String> = world.replicas.iter().map(ResourceExt::name_any).collect();
    assert!(names.len() == 2 && !names.contains(&crashed), "{crashed} is not replaced: {names:?}");
    assert_eq!(held(&world), "b2");
    assert_eq!(world.volume.spec.size, Some(TextInt(64 * MIB)));
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    assert!(!world.told.contains(&"Faulted".to_owned()));
    world.drop_ticket();
    world.volume.spec.standby = Some(false);
    world.run(12);
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    assert_eq!(world.status().is_standby, Some(false));
}

#[test]
fn activation_waits_for_a_copy_that_is_being_filled() {
    let mut world = World::from_backup(true);
    world.run(12);
    world.volume.spec.standby = Some(false);
    world.kill(0);
    world.pass();
    assert_eq!(world.status().is_standby, Some(true));
    world.run(20);
    assert_eq!(world.status().is_standby, Some(false));
    let good = world.replicas.iter().filter(|it| is_usable(it)).count();
    assert_eq!(good, 2);
}

#[test]
fn a_volume_that_is_deleted_stops_everything_and_goes_last() {
    let mut world = attached();
    world.volume.metadata.deletion_timestamp = Some(meta::Time(world.now));
    let seen = world.seen();
    let plan = decide(&seen, &mut || "x".into());
    assert!(plan.dismantle && !plan.release);
    assert_eq!(plan.delete.len(), 2);
    let mut seen = world.seen();
    (seen.engine, seen.replicas) = (None, Vec::new());
    assert!(decide(&seen, &mut || "x".into()).release);
}

#[test]
fn a_backup_that_is_not_there_is_waited_for_with_the_reason() {
    let mut world = World::from_backup(false);
    world.source = Source::Missing("cannot get backup b1: it does not exist".into());
    world.run(3);
    assert!(world.engine.is_none() && world.replicas.is_empty());
    let restore =
        world.status().conditions.unwrap().into_iter().find(|it| it.kind == "Restore").unwrap();
    assert_eq!(restore.reason.as_deref(), Some("RestorePending"));
}

fn with_snapshot() -> World {
    let mut world = attached();
    let status = world.engine.as_mut().unwrap().status.as_mut().unwrap();
    status.snapshots = Some(BTreeMap::from([("x".to_owned(), EngineSnapshot::default())]));
    world
}

fn ask_revert(world: &mut World, snapshot: &str) {
    let asked = crate::volume::revert::ASKED.to_owned();
    world.volume.annotations_mut().insert(asked, snapshot.to_owned());
}

#[test]
fn a_volume_is_reverted_alone_and_without_a_frontend() {
    let mut world = with_snapshot();
    ask_revert(&mut world, "x");
    world.run(4);
    assert!(world.reverted.is_empty(), "it is in use");
    let revert = |world: &World| {
        let all = world.status().conditions.unwrap();
        let found = all.into_iter().find(|it| it.kind == "Revert").unwrap();
        (found.reason.unwrap(), found.message.unwrap())
    };
    assert_eq!(revert(&world).0, "RevertPending");
    world.drop_ticket();
    world.run(16);
    assert_eq!(world.reverted, ["x"]);
    assert_eq!(revert(&world).0, "Reverted");
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    assert!(world.volume.annotations().is_empty());
    assert!(world.attachment.spec.attachment_tickets.as_ref().unwrap().is_empty());
    ask_revert(&mut world, "other");
    world.run(2);
    assert_eq!(revert(&world).0, "RevertFailure");
    assert!(revert(&world).1.contains("no snapshot other"));
    assert_eq!(world.reverted.len(), 1);
}

#[test]
fn a_revert_that_is_not_written_down_is_done_again_before_anybody_gets_the_volume() {
    let mut world = with_snapshot();
    world.drop_ticket();
    ask_revert(&mut world, "x");
    let mut lost = false;
    for _ in 0..30 {
        let before = (world.volume.clone(), world.attachment.clone());
        let reverts = world.reverted.len();
        world.run(1);
        if world.reverted.len() > reverts && !lost {
            // The engine has done it; a client came first with its ticket, and nothing is written.
            (world.volume, world.attachment) = before;
            world.ticket(NODE);
            lost = true;
        }
        let engine = world.engine.as_ref().unwrap();
        let serves = engine.spec.instance.desire_state == Some(InstanceState::Running)
            && engine.spec.disable_frontend != Some(true);
        assert!(
            !lost || !serves || world.volume.annotations().is_empty(),
            "served before it is done"
        );
    }
    assert_eq!(world.reverted, ["x", "x"]);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
}

#[test]
fn a_detach_that_was_cut_short_between_two_writes_leaves_no_volume_without_an_engine() {
    let mut world = attached();
    world.drop_ticket();
    let before = world.volume.clone();
    world.pass();
    world.obey();
    // The engine and the ticket were written, the volume was not; then somebody wants it again.
    world.volume = before;
    world.ticket(NODE);
    world.run(20);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    let engine = world.engine.as_ref().unwrap();
    assert_eq!(engine.spec.instance.desire_state, Some(InstanceState::Running));
}
