//! Commands about the volume as a whole: `info`, `expand`, `frontend`, `journal`,
//! `unmap-mark-snap-chain-removed`.

use rpc::ptypes::{
    JournalListRequest, Volume, VolumeExpandRequest, VolumeFrontendStartRequest,
    VolumeUnmapMarkSnapChainRemovedSetRequest,
};
use serde::Serialize;

use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::Session;
use super::table::flags as f;

/// In the order and spelling callers know.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    name: String,
    size: i64,
    replica_count: i32,
    endpoint: String,
    frontend: String,
    frontend_state: String,
    is_expanding: bool,
    last_expansion_error: String,
    last_expansion_failed_at: String,
    unmap_mark_snap_chain_removed: bool,
    snapshot_max_count: i32,
    #[serde(rename = "SnapshotMaxSize")]
    snapshot_max_size: i64,
}

impl From<Volume> for Info {
    fn from(volume: Volume) -> Self {
        Self {
            name: volume.name,
            size: volume.size,
            replica_count: volume.replica_count,
            endpoint: volume.endpoint,
            frontend: volume.frontend,
            frontend_state: volume.frontend_state,
            is_expanding: volume.is_expanding,
            last_expansion_error: volume.last_expansion_error,
            last_expansion_failed_at: volume.last_expansion_failed_at,
            unmap_mark_snap_chain_removed: volume.unmap_mark_snap_chain_removed,
            snapshot_max_count: volume.snapshot_max_count,
            snapshot_max_size: volume.snapshot_max_size,
        }
    }
}

pub(crate) async fn info(session: &Session, console: &mut Console<'_>) -> Result<(), Error> {
    let volume = session.controller()?.volume_get(()).await.or_failed("failed to get volume")?;
    console.json(&Info::from(volume))
}

pub(crate) async fn expand(session: &Session, line: &Line) -> Result<(), Error> {
    let size = line.flags.integer(&f::EXPAND_SIZE);
    if size <= 0 {
        return Err(Error::refused("--size is required: the new size in bytes"));
    }
    let reply = session.controller()?.volume_expand(VolumeExpandRequest { size }).await;
    reply.or_failed(format!("failed to expand volume to size {size}"))?;
    Ok(())
}

pub(crate) async fn frontend_start(session: &Session, line: &Line) -> Result<(), Error> {
    let frontend = line
        .arguments
        .first()
        .cloned()
        .ok_or_else(|| Error::refused("frontend name is required"))?;
    let doing = format!("failed to start frontend {frontend}");
    let request = VolumeFrontendStartRequest { frontend };
    session.controller()?.volume_frontend_start(request).await.or_failed(doing)?;
    Ok(())
}

pub(crate) async fn frontend_shutdown(session: &Session) -> Result<(), Error> {
    let reply = session.controller()?.volume_frontend_shutdown(()).await;
    reply.or_failed("failed to shut down the frontend")?;
    Ok(())
}

pub(crate) async fn unmap_mark(session: &Session, line: &Line) -> Result<(), Error> {
    let enabled = match (line.flags.switch(&f::ENABLE), line.flags.switch(&f::DISABLE)) {
        (true, false) => true,
        (false, true) => false,
        (true, true) | (false, false) => {
            return Err(Error::refused("exactly one of --enable and --disable is required"));
        }
    };
    let request = VolumeUnmapMarkSnapChainRemovedSetRequest { enabled };
    let reply = session.controller()?.volume_unmap_mark_snap_chain_removed_set(request).await;
    reply.or_failed(format!("failed to set unmap-mark-snap-chain-removed to {enabled}"))?;
    Ok(())
}

pub(crate) async fn journal(session: &Session, line: &Line) -> Result<(), Error> {
    let limit = line.flags.integer(&f::LIMIT);
    let reply = session.controller()?.journal_list(JournalListRequest { limit }).await;
    reply.or_failed("failed to list the journal")?;
    Ok(())
}
