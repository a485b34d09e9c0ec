//! From resources to what is to be started. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::longhorn::{Disk, DiskStatus, Engine, Frontend, InstanceState, Node, Replica};
use api::scalar::Stamp;
use kube::ResourceExt;

use super::decide::{DATA_GONE, FAILED_STARTING};
use crate::instances::{EngineLaunch, Key, Launch, ReplicaLaunch, Role};

/// Why it cannot be started now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotYet {
    #[error("it has no volume")]
    NoVolume,
    #[error("its volume has no size")]
    NoSize,
    #[error("it has no replica to write to")]
    NoReplicas,
    /// Others change the map when they see where the replica is.
    #[error("replica {0} is not at {1} yet")]
    Moved(String, String),
    #[error("this node has no disk {id:?} at {path:?}")]
    NoDisk { id: String, path: String },
    #[error("disk {0:?} is not the one that was there, or cannot be used")]
    DiskNotReady(String),
    #[error("its data directory {0:?} is no name of a directory of a replica")]
    Directory(String),
    /// Two volumes in one directory would be each other's end.
    #[error("its data directory is that of {0}")]
    Taken(String),
    /// It was looked for before the object came to want it.
    #[error("its directory was not looked at yet")]
    NotLooked,
    /// An empty one in its place would be taken for what it was.
    #[error("it was whole and its data is gone: {} holds no volume", .0.display())]
    DataGone(PathBuf),
}

impl NotYet {
    /// Whether somebody is at work on it, and nobody needs to be told.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Moved(..) | Self::NoReplicas | Self::NotLooked => true,
            Self::NoVolume
            | Self::NoSize
            | Self::NoDisk { .. }
            | Self::DiskNotReady(_)
            | Self::DataGone(_)
            | Self::Taken(_)
            | Self::Directory(_) => false,
        }
    }

    /// What its condition says, in a word.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::DataGone(_) => DATA_GONE,
            Self::NoVolume
            | Self::NoSize
            | Self::NoReplicas
            | Self::Moved(..)
            | Self::NoDisk { .. }
            | Self::DiskNotReady(_)
            | Self::Directory(_)
            | Self::Taken(_)
            | Self::NotLooked => FAILED_STARTING,
        }
    }
}

/// The engine with the replicas it is told of, or, as one that takes over from it, with those that it is
/// to go on with. All of them must be where it is told they are: an
/// engine that starts with addresses of yesterday takes good copies for failed ones.
pub(super) fn engine(
    engine: &Engine,
    upgrade: bool,
    replica: impl Fn(&str) -> Option<std::sync::Arc<Replica>>,
    setting: impl Fn(&str) -> Option<i64>,
    programs: &Path,
) -> Result<Launch, NotYet> {
    let spec = &engine.spec;
    let instance = &spec.instance;
    let volume = instance.volume_name.clone().ok_or(NotYet::NoVolume)?;
    let size_bytes = instance.volume_size.map(|it| it.0).filter(|it| *it > 0);
    let size_bytes = size_bytes.ok_or(NotYet::NoSize)?;
    let status = engine.status.as_ref();
    let current = status.and_then(|it| it.current_size).map(|it| it.0);
    let map = if upgrade { &spec.upgraded_replica_address_map } else { &spec.replica_address_map };
    let map = map.as_ref().filter(|map| !map.is_empty());
    let map = map.ok_or(NotYet::NoReplicas)?;
    check_addresses(map, replica)?;
    // An engine does not start with a time of nothing: without a word it takes its own.
    let seconds = |name| {
        let set = setting(name).and_then(|it| u64::try_from(it).ok());
        set.filter(|it| *it > 0).map(Duration::from_secs)
    };
    let role = EngineLaunch {
        size_bytes,
        current_size_bytes: current.filter(|it| *it > 0 && *it <= size_bytes).unwrap_or(size_bytes),
        frontend: has_frontend(spec.frontend.as_ref()) && spec.disable_frontend != Some(true),
        replicas: map.values().cloned().collect(),
        salvage: instance.salvage_requested == Some(true),
        upgrade,
        claim_generation: spec.claim_generation,
        unmap_mark_snap_chain_removed: spec.unmap_mark_snap_chain_removed_enabled == Some(true),
        snapshot_max_count: spec.snapshot_max_count.filter(|it| *it > 0),
        snapshot_max_size_bytes: spec.snapshot_max_size.map(|it| it.0).filter(|it| *it > 0),
        rebuild_concurrent_sync_limit: spec.rebuild_concurrent_sync_limit.filter(|it| *it > 0),
        replica_timeout: seconds("engine-replica-timeout"),
        file_sync_timeout: seconds("replica-file-sync-http-client-timeout"),
    };
    let image = instance.image.clone().unwrap_or_default();
    Ok(Launch {
        key: Key::engine(engine.name_any()),
        volume,
        program: program(programs, &image),
        image,
        role: Role::Engine(role),
    })
}

fn check_addresses(
    map: &BTreeMap<String, String>,
    replica: impl Fn(&str) -> Option<std::sync::Arc<Replica>>,
) -> Result<(), NotYet> {
    for (name, address) in map {
        let found = replica(name);
        let is_there = found.as_deref().and_then(address_of).is_some_and(|it| it == *address);
        if !is_there {
            return Err(NotYet::Moved(name.clone(), address.clone()));
        }
    }
    Ok(())
}

/// Where a replica listens, while it runs.
pub(super) fn address_of(replica: &Replica) -> Option<String> {
    let status = &replica.status.as_ref()?.instance;
    if status.current_state != Some(InstanceState::Running) {
        return None;
    }
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let ip = filled(&status.storage_ip).or_else(|| filled(&status.ip))?;
    let port = status.port.filter(|port| *port > 0)?;
    Some(if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") })
}

/// Whatever the volume asks to appear as, it is served as NBD.
fn has_frontend(frontend: Option<&Frontend>) -> bool {
    match frontend {
        None | Some(Frontend::None) => false,
        Some(
            Frontend::BlockDevice
            | Frontend::Iscsi
            | Frontend::Nvmf
            | Frontend::Ublk
            | Frontend::Other(_),
        ) => true,
    }
}

/// What lies where a replica's data should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ground {
    /// The identity of the disk, as the disk itself says now.
    pub(super) disk: Option<String>,
    /// Whether there is a volume in its directory.
    pub(super) has_volume: bool,
    /// A copy of another volume that was there before, and whose directory it is.
    pub(super) taken_by: Option<String>,
}

/// The copy of another volume that has the directory of this one, and came before it. Twins of one volume share
/// theirs.
pub(super) fn taken_by<'r>(
    replica: &Replica,
    others: impl Iterator<Item = &'r Replica>,
) -> Option<String> {
    let age = |it: &Replica| (it.metadata.creation_timestamp.clone(), it.metadata.uid.clone());
    let spec = &replica.spec;
    let mut before = others.filter(|other| {
        other.spec.disk_id == spec.disk_id
            && other.spec.data_directory_name == spec.data_directory_name
            && other.spec.instance.volume_name != spec.instance.volume_name
            && age(other) < age(replica)
    });
    let other = before.next()?;
    let volume = other.spec.instance.volume_name.clone().unwrap_or_default();
    Some(format!("replica {} of volume {volume}", other.name_any()))
}

/// The replica on its disk, if that is the one that is there now: what its node says of its disks is up to half
/// a minute old. A replica makes its volume where there is none, so one that was whole and has nothing left is
/// not started: it would be served empty.
pub(super) fn replica(
    replica: &Replica,
    node: &Node,
    ground: Option<&Ground>,
    programs: &Path,
) -> Result<Launch, NotYet> {
    let instance = &replica.spec.instance;
    let volume = instance.volume_name.clone().ok_or(NotYet::NoVolume)?;
    let size_bytes = instance.volume_size.map(|it| it.0).filter(|it| *it > 0);
    let size_bytes = size_bytes.ok_or(NotYet::NoSize)?;
    let place = place(replica, node)?;
    if !place.is_ready {
        return Err(NotYet::DiskNotReady(place.disk));
    }
    let ground = ground.ok_or(NotYet::NotLooked)?;
    if ground.disk != replica.spec.disk_id {
        return Err(NotYet::DiskNotReady(place.disk));
    }
    if let Some(other) = &ground.taken_by {
        return Err(NotYet::Taken(other.clone()));
    }
    let was_whole = replica.spec.healthy_at.as_ref().is_some_and(Stamp::is_set);
    if was_whole && !ground.has_volume {
        return Err(NotYet::DataGone(place.dir));
    }
    let role = ReplicaLaunch {
        dir: place.dir,
        size_bytes,
        unmap_mark_disk_chain_removed: false,
        snapshot_max_count: replica.spec.snapshot_max_count.filter(|it| *it > 0),
        snapshot_max_size_bytes: replica.spec.snapshot_max_size.map(|it| it.0).filter(|it| *it > 0),
    };
    let image = instance.image.clone().unwrap_or_default();
    Ok(Launch {
        key: Key::replica(replica.name_any()),
        volume,
        program: program(programs, &image),
        image,
        role: Role::Replica(role),
    })
}

/// Where a replica's data is on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) dir: PathBuf,
    /// Name of the disk.
    pub(super) disk: String,
    /// Whether the disk is the one it should be.
    pub(super) is_ready: bool,
}

/// The directory of a replica: on a disk that this node has, and nowhere else, whatever the object
/// says.
pub(super) fn place(replica: &Replica, node: &Node) -> Result<Place, NotYet> {
    let id = replica.spec.disk_id.clone().unwrap_or_default();
    let path = replica.spec.disk_path.clone().unwrap_or_default();
    let statuses = node.status.as_ref().and_then(|it| it.disk_status.as_ref());
    let found = node.spec.disks.iter().flatten().find_map(|(name, disk)| {
        let status = statuses.and_then(|all| all.get(name))?;
        is_disk(disk, status, &id, &path).then_some((name, status))
    });
    let Some((name, status)) = found else { return Err(NotYet::NoDisk { id, path }) };
    let directory = replica.spec.data_directory_name.clone().unwrap_or_default();
    if !is_directory_name(&directory) {
        return Err(NotYet::Directory(directory));
    }
    let dir = Path::new(&path).join(REPLICAS).join(directory);
    let conditions = status.conditions.as_deref().unwrap_or_default();
    Ok(Place { dir, disk: name.clone(), is_ready: api::condition::holds(conditions, "Ready") })
}

/// Whether a node can start a replica where its data is.
pub(crate) fn has_disk(replica: &Replica, node: &Node) -> bool {
    place(replica, node).is_ok_and(|it| it.is_ready)
}

/// Directory of all replicas of a disk.
pub(super) const REPLICAS: &str = "replicas";

fn is_disk(disk: &Disk, status: &DiskStatus, id: &str, path: &str) -> bool {
    !id.is_empty()
        && status.disk_uuid.as_deref() == Some(id)
        && disk.path.as_deref().map(Path::new) == Some(Path::new(path))
}

/// One part of a path, and such a one as names of replicas' directories have.
pub(super) fn is_directory_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (3..=200).contains(&name.len())
        && name.contains('-')
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(is_plain)
}

/// The program of an engine image, if it is not this one.
pub(super) fn program(programs: &Path, image: &str) -> Option<PathBuf> {
    let name: String = image
        .chars()
        .map(|each| if each.is_ascii_alphanumeric() || each == '.' { each } else { '-' })
        .collect();
    let name = name.trim_start_matches('.');
    let found = programs.join(name).join("longhorn");
    (!name.is_empty() && found.is_file()).then_some(found)
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;
