//! One look at a running engine: what it and its replicas say of themselves now.

use std::collections::BTreeMap;

use api::longhorn::{
    EngineCloneStatus, EnginePurgeStatus, EngineRebuildStatus, EngineRestoreStatus, EngineSnapshot,
    ProgressState, ReplicaMode,
};
use api::scalar::Stamp;
use futures::future::join_all;
use jiff::Timestamp;
use rpc::ptypes;

use super::client::{CallError, Controller, Reach};

/// What a look found. Addresses are as the engine lists them: `tcp://ip:port`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Look {
    pub(crate) size: i64,
    pub(crate) endpoint: String,
    pub(crate) frontend_up: bool,
    pub(crate) is_expanding: bool,
    pub(crate) last_expansion_error: String,
    pub(crate) last_expansion_failed_at: String,
    pub(crate) modes: BTreeMap<String, ReplicaMode>,
    /// Of those that answered; the others keep what was known.
    pub(crate) restores: BTreeMap<String, EngineRestoreStatus>,
    /// When the backups were started that they hold, of those that say it.
    pub(crate) restored_at: BTreeMap<String, Timestamp>,
    pub(crate) purges: BTreeMap<String, EnginePurgeStatus>,
    pub(crate) rebuilds: BTreeMap<String, EngineRebuildStatus>,
    pub(crate) clones: BTreeMap<String, EngineCloneStatus>,
    /// Of one copy that can be read.
    pub(crate) snapshots: Option<BTreeMap<String, EngineSnapshot>>,
    pub(crate) snapshots_error: String,
    /// Snapshots of the copy that has the most, without the head.
    pub(crate) most_snapshots: usize,
}

impl Look {
    /// Copies that hold an earlier backup of the newest one's name do not hold the newest: it was deleted
    /// and made again.
    pub(crate) fn forget_earlier(&mut self, newest: &str, started: Timestamp) {
        for (address, restore) in &mut self.restores {
            let is_earlier = self.restored_at.get(address).is_some_and(|held| *held < started);
            if is_earlier && restore.last_restored.as_deref() == Some(newest) {
                restore.last_restored = Some(String::new());
            }
        }
    }
}

/// How far a look goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// What the engine itself says.
    Engine,
    /// What its replicas say, too.
    Replicas,
    /// And how far they have restored.
    Restores,
    /// And how far they have copied another volume.
    Clones,
}

/// Asks the engine, then all its replicas at once.
pub(crate) async fn look(
    reach: &Reach,
    mut controller: Controller,
    depth: Depth,
) -> Result<Look, CallError> {
    let volume = controller.volume_get(()).await;
    let volume = volume.map_err(|status| CallError::of("get volume", &status))?.into_inner();
    let listed = controller.replica_list(()).await;
    let listed = listed.map_err(|status| CallError::of("list replicas", &status))?.into_inner();
    let mut found = Look {
        size: volume.size,
        frontend_up: volume.frontend_state == "up",
        endpoint: volume.endpoint,
        is_expanding: volume.is_expanding,
        last_expansion_error: volume.last_expansion_error,
        last_expansion_failed_at: volume.last_expansion_failed_at,
        modes: listed.replicas.into_iter().filter_map(mode).collect(),
        ..Look::default()
    };
    if depth == Depth::Engine {
        return Ok(found);
    }
    let working: Vec<(&String, &ReplicaMode)> =
        found.modes.iter().filter(|(_, mode)| **mode != ReplicaMode::Error).collect();
    let asked = join_all(working.iter().map(|(address, mode)| {
        let readable = **mode == ReplicaMode::ReadWrite;
        of_replica(reach, address, depth, readable)
    }));
    let answers: Vec<(String, OfReplica)> = asked.await;
    for (address, answer) in answers {
        if let Some(restore) = answer.restore {
            found.restores.insert(address.clone(), restore);
            found.restored_at.extend(answer.restored_at.map(|at| (address.clone(), at)));
        }
        if let Some(purge) = answer.purge {
            found.purges.insert(address.clone(), purge);
        }
        if let Some(rebuild) = answer.rebuild {
            found.rebuilds.insert(address.clone(), rebuild);
        }
        if let Some(clone) = answer.clone {
            found.clones.insert(address.clone(), clone);
        }
        match answer.snapshots {
            Some(Ok(snapshots)) => {
                found.most_snapshots = found.most_snapshots.max(snapshots.len().saturating_sub(1));
                found.snapshots.get_or_insert(snapshots);
            }
            Some(Err(error)) => found.snapshots_error = error,
            None => {}
        }
    }
    if found.snapshots.is_some() {
        found.snapshots_error.clear();
    }
    Ok(found)
}

fn mode(replica: ptypes::ControllerReplica) -> Option<(String, ReplicaMode)> {
    let mode = match replica.mode() {
        ptypes::ReplicaMode::Wo => ReplicaMode::WriteOnly,
        ptypes::ReplicaMode::Rw => ReplicaMode::ReadWrite,
        ptypes::ReplicaMode::Err => ReplicaMode::Error,
    };
    Some((replica.address?.address, mode))
}

#[derive(Default)]
struct OfReplica {
    restore: Option<EngineRestoreStatus>,
    restored_at: Option<Timestamp>,
    purge: Option<EnginePurgeStatus>,
    rebuild: Option<EngineRebuildStatus>,
    clone: Option<EngineCloneStatus>,
    snapshots: Option<Result<BTreeMap<String, EngineSnapshot>, String>>,
}

async fn of_replica(
    reach: &Reach,
    address: &str,
    depth: Depth,
    readable: bool,
) -> (String, OfReplica) {
    let mut answer = OfReplica::default();
    if let Ok(mut agent) = reach.agent(address) {
        let mut other = agent.clone();
        let mut third = agent.clone();
        let mut fourth = agent.clone();
        let (purge, rebuild, restore, clone) = tokio::join!(
            agent.snapshot_purge_status(()),
            other.replica_rebuild_status(()),
            async {
                if depth == Depth::Restores { third.restore_status(()).await.ok() } else { None }
            },
            async {
                let asks = depth == Depth::Clones;
                if asks { fourth.snapshot_clone_status(()).await.ok() } else { None }
            },
        );
        answer.clone = clone.map(|reply| clone_status(reply.into_inner()));
        answer.purge = purge.ok().map(|reply| purge_status(reply.into_inner()));
        answer.rebuild = rebuild.ok().map(|reply| rebuild_status(reply.into_inner()));
        let restore = restore.map(tonic::Response::into_inner);
        answer.restored_at = restore.as_ref().and_then(|it| it.holdfast_restored_at.parse().ok());
        answer.restore = restore.map(restore_status);
    }
    if readable {
        answer.snapshots = Some(snapshots(reach, address).await);
    }
    (address.to_owned(), answer)
}

async fn snapshots(
    reach: &Reach,
    address: &str,
) -> Result<BTreeMap<String, EngineSnapshot>, String> {
    let mut replica = reach.replica(address).map_err(|error| error.to_string())?;
    let reply = replica.replica_get(()).await.map_err(|status| status.message().to_owned())?;
    let found = reply.into_inner().replica.ok_or_else(|| "the replica said nothing".to_owned())?;
    let disks = found.disks.into_values();
    Ok(disks.filter_map(|disk| snapshot(disk, &found.head)).collect())
}

const HEAD: &str = "volume-head";

/// `volume-snap-NAME.img` is snapshot NAME, and the head is `volume-head`; others are none.
fn short<'n>(disk: &'n str, head: &str) -> Option<&'n str> {
    if disk == head {
        return Some(HEAD);
    }
    disk.strip_prefix("volume-snap-")?.strip_suffix(".img")
}

fn snapshot(disk: ptypes::DiskInfo, head: &str) -> Option<(String, EngineSnapshot)> {
    let name = short(&disk.name, head)?.to_owned();
    let children = disk.children.into_iter();
    let children = children.filter_map(|(child, is)| Some((short(&child, head)?.to_owned(), is)));
    let snapshot = EngineSnapshot {
        name: Some(name.clone()),
        parent: Some(short(&disk.parent, head).unwrap_or_default().to_owned()),
        children: Some(children.collect()),
        removed: Some(disk.removed),
        usercreated: Some(disk.user_created),
        created: Some(Stamp::from(disk.created.as_str())),
        size: Some(disk.size),
        labels: Some(disk.labels.into_iter().collect()),
    };
    Some((name, snapshot))
}

fn restore_status(reply: ptypes::RestoreStatusResponse) -> EngineRestoreStatus {
    EngineRestoreStatus {
        is_restoring: Some(reply.is_restoring),
        last_restored: Some(reply.last_restored),
        current_restoring_backup: Some(reply.current_restoring_backup),
        progress: Some(reply.progress),
        error: Some(reply.error),
        filename: Some(reply.dest_file_name),
        state: Some(ProgressState::from(reply.state.as_str())),
        backup_url: Some(reply.backup_url),
    }
}

fn clone_status(reply: ptypes::SnapshotCloneStatusResponse) -> EngineCloneStatus {
    EngineCloneStatus {
        is_cloning: Some(reply.is_cloning),
        progress: Some(reply.progress),
        state: Some(ProgressState::from(reply.state.as_str())),
        error: Some(reply.error),
        from_replica_address: Some(reply.from_replica_address),
        snapshot_name: Some(reply.snapshot_name),
    }
}

fn purge_status(reply: ptypes::SnapshotPurgeStatusResponse) -> EnginePurgeStatus {
    EnginePurgeStatus {
        is_purging: Some(reply.is_purging),
        progress: Some(reply.progress),
        state: Some(ProgressState::from(reply.state.as_str())),
        error: Some(reply.error),
    }
}

fn rebuild_status(reply: ptypes::ReplicaRebuildStatusResponse) -> EngineRebuildStatus {
    EngineRebuildStatus {
        is_rebuilding: Some(reply.is_rebuilding),
        progress: Some(reply.progress),
        state: Some(ProgressState::from(reply.state.as_str())),
        error: Some(reply.error),
        from_replica_address_list: Some(reply.from_replica_address_list),
        applied_rebuilding_mbps: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_named_as_snapshots_and_others_are_left_out() {
        let head = "volume-head-003.img";
        assert_eq!(short(head, head), Some("volume-head"));
        assert_eq!(short("volume-snap-a-b.img", head), Some("a-b"));
        assert_eq!(short("volume-head-002.img", head), None);
        assert_eq!(short("base.qcow2", head), None);
    }
}
