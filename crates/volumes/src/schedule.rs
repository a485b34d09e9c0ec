//! Where a copy of a volume goes. Pure: nodes, disks and copies come in as values, a place or all the
//! reasons against one come out.
//!
//! Start at [`place`]. [`candidates`] makes its input from resources; who places several copies in
//! one go counts each with [`reserve`] before the next.

mod rejection;
mod room;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::condition;
use api::longhorn::{Disk, DiskStatus, DiskType, Node};
use kube::ResourceExt;

pub use self::rejection::{Reason, Rejection};
pub use self::room::{Room, Rules};

/// The longest file of the file systems that have such a limit.
const EXT4_MAX_BYTES: i64 = 16 * 1024 * 1024 * 1024 * 1024;

/// A node, as far as placing copies goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub name: String,
    pub zone: String,
    pub region: String,
    /// Ready, schedulable, open for copies, and not being deleted.
    pub is_open: bool,
    /// Whether its instance manager runs.
    pub runs_instances: bool,
    pub has_image: bool,
    pub tags: BTreeSet<String>,
    pub disks: Vec<CandidateDisk>,
}

/// A disk, as far as placing copies goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateDisk {
    pub uuid: String,
    pub path: String,
    /// Schedulable, open for copies, not being emptied, and of the right kind.
    pub is_open: bool,
    pub has_file_limit: bool,
    pub tags: BTreeSet<String>,
    pub room: Room,
}

/// What is to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Nominal size of the copy.
    pub size_bytes: i64,
    /// Bytes its data will take for certain.
    pub data_bytes: i64,
    /// The only node it may go to.
    pub hard_node: Option<String>,
    pub node_selector: BTreeSet<String>,
    pub disk_selector: BTreeSet<String>,
    /// Regions and zones it may go to, one of them; empty: any.
    pub topology: Vec<Topology>,
    pub affinity: Affinity,
    pub rules: Rules,
    /// Whether volumes that ask for no tags may go where there are some.
    pub empty_node_selector_matches_all: bool,
    pub empty_disk_selector_matches_all: bool,
}

/// A region or zone; what is empty may be any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    pub region: String,
    pub zone: String,
}

/// What copies of a volume may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affinity {
    pub zone_soft: bool,
    pub node_soft: bool,
    pub disk_soft: bool,
}

impl Default for Affinity {
    /// As settings are without being set.
    fn default() -> Self {
        Self { zone_soft: true, node_soft: false, disk_soft: true }
    }
}

/// Another copy of the volume, placed already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub node: String,
    pub disk: String,
    /// It is to go as soon as another has taken its place.
    pub evicting: bool,
}

/// Where a copy goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub node: String,
    pub disk_uuid: String,
    pub disk_path: String,
}

/// The nodes as resources show them.
pub fn candidates(
    nodes: &[Arc<Node>],
    runs_instances: impl Fn(&str) -> bool,
    has_image: impl Fn(&str) -> bool,
) -> Vec<Candidate> {
    nodes.iter().map(|node| candidate(node, &runs_instances, &has_image)).collect()
}

fn candidate(
    node: &Node,
    runs_instances: impl Fn(&str) -> bool,
    has_image: impl Fn(&str) -> bool,
) -> Candidate {
    let name = node.name_any();
    // Not cloned: it names every copy on the node, and every pass of every volume looks here.
    let status = node.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    let statuses = status.and_then(|it| it.disk_status.as_ref());
    let disks = node.spec.disks.iter().flatten();
    let disks = disks.filter_map(|(name, disk)| Some(candidate_disk(disk, statuses?.get(name)?)));
    Candidate {
        zone: status.and_then(|it| it.zone.clone()).unwrap_or_default(),
        region: status.and_then(|it| it.region.clone()).unwrap_or_default(),
        is_open: condition::holds(conditions, "Ready")
            && condition::holds(conditions, "Schedulable")
            && node.spec.allow_scheduling == Some(true)
            && node.spec.eviction_requested != Some(true)
            && node.metadata.deletion_timestamp.is_none(),
        runs_instances: runs_instances(&name),
        has_image: has_image(&name),
        tags: node.spec.tags.iter().flatten().cloned().collect(),
        disks: disks.collect(),
        name,
    }
}

fn candidate_disk(disk: &Disk, status: &DiskStatus) -> CandidateDisk {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    CandidateDisk {
        uuid: status.disk_uuid.clone().unwrap_or_default(),
        path: disk.path.clone().unwrap_or_default(),
        is_open: condition::holds(conditions, "Schedulable")
            && condition::holds(conditions, "Ready")
            && disk.allow_scheduling == Some(true)
            && disk.eviction_requested != Some(true)
            && disk.disk_type != Some(DiskType::Block)
            && status.disk_uuid.as_deref().is_some_and(|it| !it.is_empty()),
        has_file_limit: status.filesystem_type.as_deref() == Some("ext2/ext3"),
        tags: disk.tags.iter().flatten().cloned().collect(),
        room: Room {
            maximum_bytes: status.storage_maximum.unwrap_or_default(),
            available_bytes: status.storage_available.unwrap_or_default(),
            scheduled_bytes: status.storage_scheduled.unwrap_or_default(),
            reserved_bytes: disk.storage_reserved.unwrap_or_default(),
        },
    }
}

/// Counts a copy that was just placed, which the disk's status does not know of yet.
pub fn reserve(nodes: &mut [Candidate], place: &Place, size_bytes: i64) {
    let node = nodes.iter_mut().find(|node| node.name == place.node);
    let disks = node.into_iter().flat_map(|node| &mut node.disks);
    for disk in disks.filter(|disk| disk.uuid == place.disk_uuid) {
        disk.room.scheduled_bytes = disk.room.scheduled_bytes.saturating_add(size_bytes);
    }
}

/// The place for one more copy beside those in `others`, or every reason why there is none.
pub fn place(asked: &Asked, nodes: &[Candidate], others: &[Placed]) -> Result<Place, Rejection> {
    let mut against = Rejection::default();
    let open = open_nodes(asked, nodes, &mut against);
    let Some(open) = open else { return Err(against) };
    let neighbours = Neighbours::new(nodes, others);
    // Disks that would take it if only the neighbours allowed.
    let mut any_disk = false;
    let usable: Vec<(&Candidate, Vec<&CandidateDisk>)> = open
        .into_iter()
        .map(|node| {
            let disks = open_disks(asked, node, &mut against);
            any_disk |= !disks.is_empty();
            (node, neighbours.allowed(node, disks, asked.affinity))
        })
        .filter(|(_, disks)| !disks.is_empty())
        .collect();
    for tier in tiers(asked.affinity) {
        let choice =
            usable.iter().filter(|(node, _)| neighbours.fits(node, *tier)).max_by(|a, b| {
                // The larger is better; of equals, the first by name.
                let (left, right) = (left_on(&a.1), left_on(&b.1));
                left.cmp(&right).then_with(|| b.0.name.cmp(&a.0.name))
            });
        let Some((node, disks)) = choice else { continue };
        let best = disks.iter().max_by(|a, b| {
            let by_room = a.room.left_bytes().cmp(&b.room.left_bytes());
            by_room.then_with(|| b.uuid.cmp(&a.uuid))
        });
        if let Some(disk) = best {
            return Ok(Place {
                node: node.name.clone(),
                disk_uuid: disk.uuid.clone(),
                disk_path: disk.path.clone(),
            });
        }
    }
    if any_disk {
        against.add(Reason::Neighbours);
    }
    Err(against)
}

/// What is left on a node. The dialect asks for the least spread of what is left over all nodes after
/// the copy was placed; that is the node with the most left, whatever the copy's size.
fn left_on(disks: &[&CandidateDisk]) -> i64 {
    disks.iter().fold(0, |sum, disk| i64::saturating_add(sum, disk.room.left_bytes()))
}

fn open_nodes<'n>(
    asked: &Asked,
    nodes: &'n [Candidate],
    against: &mut Rejection,
) -> Option<Vec<&'n Candidate>> {
    let mut left: Vec<&Candidate> = nodes.iter().collect();
    let mut narrow = |reason: Reason, keep: &dyn Fn(&Candidate) -> bool| {
        left.retain(|node| keep(node));
        if left.is_empty() {
            against.add(reason);
        }
        !left.is_empty()
    };
    let hard = asked.hard_node.as_deref().filter(|name| !name.is_empty());
    let all = narrow(Reason::NoNode, &|_| true)
        && narrow(Reason::NodesUnavailable, &|node| node.is_open && node.runs_instances)
        && narrow(Reason::HardAffinity, &|node| hard.is_none_or(|name| node.name == name))
        && narrow(Reason::NoImage, &|node| node.has_image)
        && narrow(Reason::Topology, &|node| fits_topology(asked, node))
        && narrow(Reason::Tags, &|node| {
            matches(&asked.node_selector, &node.tags, asked.empty_node_selector_matches_all)
        });
    all.then_some(left)
}

fn fits_topology(asked: &Asked, node: &Candidate) -> bool {
    let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
    asked.topology.is_empty()
        || asked
            .topology
            .iter()
            .any(|it| fits(&it.region, &node.region) && fits(&it.zone, &node.zone))
}

fn matches(selector: &BTreeSet<String>, tags: &BTreeSet<String>, empty_matches_all: bool) -> bool {
    if selector.is_empty() {
        return empty_matches_all || tags.is_empty();
    }
    selector.is_subset(tags)
}

fn open_disks<'n>(
    asked: &Asked,
    node: &'n Candidate,
    against: &mut Rejection,
) -> Vec<&'n CandidateDisk> {
    if node.disks.is_empty() {
        against.add(Reason::NoDisk);
    }
    let mut open = Vec::new();
    for disk in &node.disks {
        let reason = if !disk.is_open {
            Reason::DisksUnavailable
        } else if !matches(&asked.disk_selector, &disk.tags, asked.empty_disk_selector_matches_all)
        {
            Reason::Tags
        } else if disk.has_file_limit && asked.size_bytes > EXT4_MAX_BYTES {
            Reason::VolumeSize
        } else if asked.rules.refuses(&disk.room, asked.size_bytes, asked.data_bytes).is_some() {
            Reason::Storage
        } else {
            open.push(disk);
            continue;
        };
        against.add(reason);
    }
    open
}

/// How near other copies a copy may come, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    /// Neither node nor zone has one.
    FreshZone,
    /// Those in its zone, and on it, are all to go.
    LeavingZone,
    /// The node has none.
    FreshNode,
    /// Those on it are all to go.
    LeavingNode,
    Any,
}

fn tiers(affinity: Affinity) -> &'static [Tier] {
    match (affinity.zone_soft, affinity.node_soft) {
        (false, _) => &[Tier::FreshZone, Tier::LeavingZone],
        (true, false) => &[Tier::FreshZone, Tier::FreshNode, Tier::LeavingNode],
        (true, true) => &[Tier::FreshZone, Tier::FreshNode, Tier::Any],
    }
}

struct Neighbours<'a> {
    others: &'a [Placed],
    nodes: &'a [Candidate],
}

impl<'a> Neighbours<'a> {
    fn new(nodes: &'a [Candidate], others: &'a [Placed]) -> Self {
        Self { others, nodes }
    }

    fn fits(&self, node: &Candidate, tier: Tier) -> bool {
        let on_node = |it: &&Placed| it.node == node.name;
        let in_zone = |it: &&Placed| self.zone_of(&it.node) == node.zone;
        match tier {
            Tier::FreshZone => !self.others.iter().any(|it| on_node(&it) || in_zone(&it)),
            Tier::LeavingZone => {
                let mut near = self.others.iter().filter(|it| on_node(it) || in_zone(it));
                near.all(|it| it.evicting)
            }
            Tier::FreshNode => !self.others.iter().any(|it| on_node(&it)),
            Tier::LeavingNode => self.others.iter().filter(on_node).all(|it| it.evicting),
            Tier::Any => true,
        }
    }

    fn zone_of(&self, node: &str) -> &str {
        self.nodes.iter().find(|it| it.name == node).map_or("", |it| it.zone.as_str())
    }

    /// The disks without a copy of the volume; if there are none, all, where that is allowed.
    fn allowed<'n>(
        &self,
        node: &Candidate,
        disks: Vec<&'n CandidateDisk>,
        affinity: Affinity,
    ) -> Vec<&'n CandidateDisk> {
        let is_fresh = |disk: &&CandidateDisk| {
            !self.others.iter().any(|it| it.node == node.name && it.disk == disk.uuid)
        };
        let fresh: Vec<&CandidateDisk> = disks.iter().copied().filter(is_fresh).collect();
        if fresh.is_empty() && affinity.disk_soft { disks } else { fresh }
    }
}

#[cfg(test)]
mod tests;
