//! What a volume consists of: its engine, its copies, and where each of them is.

use std::time::Duration;

use api::longhorn::{
    AccessMode, BlockSize, CloneState, DataEngine, DataLocality, Engine, EngineSpec, InstanceSpec,
    InstanceState, Override, Replica, ReplicaSpec, VolumeState,
};
use api::scalar::TextInt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};

use super::draft::{Draft, is_usable, node_of};
use super::is_new;
use super::locality::Local;
use crate::schedule::{self, Affinity, Asked, Placed, Rules, Topology};
use crate::{DATA, FINALIZER, NAMESPACE, image, label};

/// Sizes are whole blocks of backups.
const SIZE_STEP: i64 = 2 * 1024 * 1024;
const LARGE_BLOCK: i64 = 16 * 1024 * 1024;
/// When a copy without a place is placed again, though nothing changed.
const PLACE_AGAIN: Duration = Duration::from_secs(30);
/// A copy that was made to be filled and is not, is not tried again.
pub(super) const LAST_TRY: i32 = 5;

/// The engine of a volume.
pub(super) fn engine_name(volume: &str) -> String {
    format!("{volume}-e-0")
}

impl Draft<'_> {
    /// What a volume has when nobody said otherwise.
    pub(super) fn fill_in(&mut self) {
        let (settings, size) = (&self.seen.settings, self.size());
        let is_new = is_new(&self.state());
        let spec = &mut self.volume.spec;
        let blocks = size.max(0).div_euclid(SIZE_STEP) + i64::from(size.rem_euclid(SIZE_STEP) != 0);
        let whole = blocks.saturating_mul(SIZE_STEP);
        if whole != size {
            spec.size = Some(TextInt(whole));
        }
        let asked = spec.number_of_replicas.filter(|count| *count > 0);
        if spec.data_locality.is_none() {
            let usual = settings.data_locality.clone();
            // The only copy is on the node: many copies cannot be.
            let fits = usual != DataLocality::StrictLocal || asked.is_none_or(|count| count == 1);
            spec.data_locality = Some(if fits { usual } else { DataLocality::Disabled });
        }
        if asked.is_none() {
            let is_local = spec.data_locality == Some(DataLocality::StrictLocal);
            spec.number_of_replicas = Some(if is_local { 1 } else { settings.replica_count });
        }
        if spec.image.as_deref().is_none_or(str::is_empty) {
            spec.image = Some(image::DEFAULT.to_owned());
        }
        spec.data_engine.get_or_insert(DataEngine::V1);
        // What it has from the beginning stays: backups of other blocks share nothing.
        let is_plain = spec.from_backup.as_deref().is_none_or(str::is_empty);
        if is_new {
            let large = is_plain && settings.large_blocks && whole % LARGE_BLOCK == 0;
            let usual = if large { BlockSize::SixteenMib } else { BlockSize::TwoMib };
            spec.backup_block_size.get_or_insert(usual);
            spec.backup_compression_method.get_or_insert(settings.compression.clone());
        }
        if is_new && is_plain {
            spec.access_mode.get_or_insert(AccessMode::ReadWriteOnce);
        }
        if spec.backup_target_name.as_deref().is_none_or(str::is_empty) {
            spec.backup_target_name = Some("default".to_owned());
        }
        if self.status.current_image.as_deref().is_none_or(str::is_empty) {
            self.status.current_image.clone_from(&spec.image);
        }
    }

    fn owner_reference(&self) -> Vec<OwnerReference> {
        self.volume.controller_owner_ref(&()).into_iter().collect()
    }

    fn instance(&self) -> InstanceSpec {
        InstanceSpec {
            volume_name: Some(self.name()),
            volume_size: self.volume.spec.size,
            image: self.status.current_image.clone(),
            desire_state: Some(InstanceState::Stopped),
            data_engine: self.volume.spec.data_engine.clone(),
            ..InstanceSpec::default()
        }
    }

    /// How many snapshots it may have: as it says, or as the setting does.
    pub(super) fn snapshot_limit(&self) -> Option<i32> {
        let own = self.volume.spec.snapshot_max_count.filter(|it| *it > 0);
        own.or(self.seen.settings.snapshot_max_count).or(self.volume.spec.snapshot_max_count)
    }

    /// How many files of a copy are filled at once.
    pub(super) fn sync_limit(&self) -> Option<i32> {
        let own = self.volume.spec.rebuild_concurrent_sync_limit.filter(|it| *it > 0);
        own.or(self.seen.settings.rebuild_sync_limit)
            .or(self.volume.spec.rebuild_concurrent_sync_limit)
    }

    pub(super) fn make_engine(&mut self) {
        if self.engine.is_some() || self.size() <= 0 {
            return;
        }
        let spec = EngineSpec {
            instance: self.instance(),
            frontend: self.volume.spec.frontend.clone(),
            active: Some(true),
            snapshot_max_count: self.snapshot_limit(),
            snapshot_max_size: self.volume.spec.snapshot_max_size,
            rebuild_concurrent_sync_limit: self.sync_limit(),
            ..EngineSpec::default()
        };
        let mut engine = Engine::new(&engine_name(&self.name()), spec);
        engine.metadata.namespace = Some(NAMESPACE.to_owned());
        engine.metadata.owner_references = Some(self.owner_reference());
        engine.finalizers_mut().push(FINALIZER.to_owned());
        engine.labels_mut().insert(label::VOLUME.to_owned(), self.name());
        self.engine = Some(engine);
        self.follow_backups();
    }

    /// All copies at once, while the volume is new; later ones are made one by one.
    pub(super) fn make_first_copies(&mut self) {
        if self.state() != VolumeState::Creating || self.size() <= 0 {
            return;
        }
        if self.clone_state() != CloneState::Failed {
            self.add_copies();
        }
    }

    /// As many as are missing.
    pub(super) fn add_copies(&mut self) {
        for _ in self.replicas.len()..self.copies_wanted() {
            let copy = self.new_copy(0);
            self.create.push(copy);
        }
    }

    pub(super) fn new_copy(&mut self, rebuild_retry_count: i32) -> Replica {
        let mark = (self.fresh)();
        let volume = self.name();
        let spec = ReplicaSpec {
            instance: self.instance(),
            engine_name: self.engine.as_ref().map(ResourceExt::name_any),
            active: Some(true),
            rebuild_retry_count: Some(rebuild_retry_count),
            snapshot_max_count: self.snapshot_limit(),
            snapshot_max_size: self.volume.spec.snapshot_max_size,
            data_directory_name: Some(format!("{volume}-{}", (self.fresh)())),
            ..ReplicaSpec::default()
        };
        let mut replica = Replica::new(&format!("{volume}-r-{mark}"), spec);
        replica.metadata.namespace = Some(NAMESPACE.to_owned());
        replica.metadata.owner_references = Some(self.owner_reference());
        replica.finalizers_mut().extend([FINALIZER.to_owned(), DATA.to_owned()]);
        replica.labels_mut().insert(label::VOLUME.to_owned(), volume);
        replica
    }

    /// Gives a place to every copy that has none, and says whether all have one.
    pub(super) fn place_copies(&mut self) {
        let mut nodes = self.seen.candidates.clone();
        let asked = self.asked();
        let (mut refused, mut waits) = (None, false);
        let local = self.only_place();
        let all = self.replicas.len() + self.create.len();
        for index in 0..all {
            let others = self.placed(index);
            let Some(replica) = self.copy_mut(index) else { continue };
            if node_of(replica).is_some() || !is_usable(replica) {
                continue;
            }
            let hard = replica.spec.hard_node_affinity.clone().filter(|it| !it.is_empty());
            let hard = match (hard, &local) {
                (None, Local::At(node)) => Some(node.clone()),
                (None, Local::Unknown) => {
                    waits = true;
                    continue;
                }
                (hard, Local::At(_) | Local::Unknown | Local::Anywhere) => hard,
            };
            let asked = Asked { hard_node: hard, ..asked.clone() };
            match schedule::place(&asked, &nodes, &others) {
                Ok(place) => {
                    schedule::reserve(&mut nodes, &place, asked.size_bytes);
                    replica.spec.instance.node_id = Some(place.node.clone());
                    replica.spec.disk_id = Some(place.disk_uuid.clone());
                    replica.spec.disk_path = Some(place.disk_path);
                    let labels = replica.labels_mut();
                    labels.insert(label::NODE.to_owned(), place.node);
                    labels.insert(label::DISK.to_owned(), place.disk_uuid);
                }
                Err(why) => refused = Some(why),
            }
        }
        match refused {
            None if waits => {
                let why = "the only copy is made where the volume is first attached";
                self.condition("Scheduled", true, "WaitForFirstAttachment", why);
            }
            None => self.condition("Scheduled", true, "", ""),
            Some(why) => {
                self.condition("Scheduled", false, "ReplicaSchedulingFailure", &why.to_string());
                self.look_after(PLACE_AGAIN);
            }
        }
    }

    fn copy_mut(&mut self, index: usize) -> Option<&mut Replica> {
        let known = self.replicas.len();
        if index < known {
            self.replicas.get_mut(index)
        } else {
            self.create.get_mut(index - known)
        }
    }

    /// The places of all copies but one.
    pub(super) fn placed(&self, without: usize) -> Vec<Placed> {
        let all = self.replicas.iter().chain(&self.create).enumerate();
        let others = all.filter(|(index, replica)| {
            *index != without && is_usable(replica) && !self.delete.contains(&replica.name_any())
        });
        others
            .filter_map(|(_, replica)| {
                Some(Placed {
                    node: node_of(replica)?.to_owned(),
                    disk: replica.spec.disk_id.clone().unwrap_or_default(),
                    evicting: replica.spec.eviction_requested == Some(true),
                })
            })
            .collect()
    }

    pub(super) fn asked(&self) -> Asked {
        let (spec, settings) = (&self.volume.spec, &self.seen.settings);
        let soft = |own: Option<&Override>, usual: bool| match own {
            Some(Override::Enabled) => true,
            Some(Override::Disabled) => false,
            Some(Override::Ignored | Override::Other(_)) | None => usual,
        };
        let tags = |list: Option<&Vec<String>>| list.into_iter().flatten().cloned().collect();
        let topology = spec.topology_requirement.iter().flatten().map(|one| Topology {
            region: one.get("topology.kubernetes.io/region").cloned().unwrap_or_default(),
            zone: one.get("topology.kubernetes.io/zone").cloned().unwrap_or_default(),
        });
        Asked {
            size_bytes: self.size(),
            data_bytes: self.status.actual_size.unwrap_or(0),
            hard_node: None,
            node_selector: tags(spec.node_selector.as_ref()),
            disk_selector: tags(spec.disk_selector.as_ref()),
            topology: topology.collect(),
            affinity: Affinity {
                zone_soft: soft(spec.replica_zone_soft_anti_affinity.as_ref(), settings.zone_soft),
                node_soft: soft(spec.replica_soft_anti_affinity.as_ref(), settings.node_soft),
                disk_soft: soft(spec.replica_disk_soft_anti_affinity.as_ref(), settings.disk_soft),
            },
            rules: Rules {
                over_provisioning_percent: settings.over_provisioning_percent,
                minimal_available_percent: settings.minimal_available_percent,
            },
            empty_node_selector_matches_all: settings.empty_node_selector_matches_all,
            empty_disk_selector_matches_all: settings.empty_disk_selector_matches_all,
        }
    }

    /// Engine and copies are told of the size the volume is to have. It never shrinks below what it
    /// has.
    pub(super) fn follow_size(&mut self) {
        let asked = self.size();
        let current = self.engine_status().current_size.map_or(0, |it| it.0);
        // What was asked for and has not happened may be taken back.
        let takes_back =
            self.status.expansion_required == Some(true) && current > 0 && asked >= current;
        let Some(engine) = &mut self.engine else { return };
        let planned = engine.spec.instance.volume_size.map_or(0, |it| it.0);
        // One that was taken back too late has happened.
        let size = if takes_back { asked } else { asked.max(planned).max(current) };
        engine.spec.instance.volume_size = Some(TextInt(size));
        for replica in &mut self.replicas {
            replica.spec.instance.volume_size = Some(TextInt(size));
        }
        let grows = current > 0 && current < size;
        if asked < size {
            let text = format!(
                "shrinking volume {} size from {size} to {asked} is not supported",
                self.name()
            );
            self.volume.spec.size = Some(TextInt(size));
            self.tell(reconcile::Severity::Warning, "FailedExpansion", text);
        } else if size < planned {
            let text =
                format!("the expansion of volume {} to {planned} is taken back", self.name());
            self.tell(reconcile::Severity::Normal, "CanceledExpansion", text);
        } else if self.status.expansion_required == Some(true) && !grows {
            let text = format!("Succeeds to expand the volume {} to size {size}", self.name());
            self.tell(reconcile::Severity::Normal, "SucceededExpansion", text);
        }
        if grows || self.status.expansion_required.is_some() {
            self.status.expansion_required = Some(grows);
        }
    }

    /// Who is responsible for a volume that is nowhere yet: the same node as long as it is there.
    pub(super) fn choose_owner(&mut self) {
        let wanted = self.volume.spec.node_id.clone().filter(|node| self.seen.up.contains(node));
        // Elsewhere it cannot be attached.
        let home = self.home().filter(|node| self.seen.up.contains(*node)).map(str::to_owned);
        let known = self.status.owner_id.clone().filter(|node| self.seen.up.contains(node));
        let of_copy =
            self.replicas.iter().filter_map(node_of).find(|node| self.seen.up.contains(*node));
        let of_copy = of_copy.map(str::to_owned);
        let any = self.seen.up.first().cloned();
        if let Some(owner) = home.or(wanted).or(known).or(of_copy).or(any) {
            self.status.owner_id = Some(owner);
        }
    }
}
