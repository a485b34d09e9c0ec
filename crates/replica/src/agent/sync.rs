//! Files between replicas: one that is sent, one that is received, and all those of a rebuild.
//!
//! Start at [`files_sync`], a rebuild: `pull` runs it, `queue` decides what is copied when, `local` is
//! the way without a network. `sender` and `receiver` are the two ends of the file protocol, which
//! clones use too; `content` is what is sent, `target` what it becomes, `ports` where it comes in.

pub(super) mod content;
mod local;
mod ports;
mod pull;
mod queue;
pub(super) mod receiver;
pub(super) mod sender;
mod target;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rpc::Address;
use rpc::ptypes::{FileSendRequest, ReceiverLaunchResponse};

use self::content::{Content, FileContent, recorded};
pub(super) use self::ports::Ports;
pub(super) use self::pull::files_sync;
use self::sender::Manner;
pub(super) use self::target::sync_dir;
use super::Agent;
use super::error::JobError;
use super::names::FileName;
use crate::disk::{During, SECTOR_BYTES};

/// How often it is told how far a file is.
pub(super) const PROGRESS_PERIOD: Duration = Duration::from_millis(500);
/// How much of a file is looked through for holes at a time.
const WINDOW_BYTES: u64 = 256 * 1024 * 1024;

pub(super) async fn remove(agent: &Agent, name: &str) -> Result<(), JobError> {
    let file = FileName::parse(name)?;
    let dir = agent.dir.clone();
    let remove = move || {
        fs::remove_file(file.path_in(&dir)).during("remove", &file)?;
        sync_dir(&dir)
    };
    Ok(agent.tasks.blocking("remove a file", remove).await??)
}

pub(super) async fn rename(agent: &Agent, old: &str, new: &str) -> Result<(), JobError> {
    let (old, new) = (FileName::parse(old)?, FileName::parse(new)?);
    let dir = agent.dir.clone();
    let rename = move || {
        fs::rename(old.path_in(&dir), new.path_in(&dir)).during("rename", &old)?;
        sync_dir(&dir)
    };
    Ok(agent.tasks.blocking("rename a file", rename).await??)
}

/// Sends a file of this replica to a receiver; returns when that has all of it.
pub(super) async fn send(agent: &Agent, request: FileSendRequest) -> Result<(), JobError> {
    let file = FileName::parse(&request.from_file_name)?;
    let port = u16::try_from(request.port).map_err(|_| JobError::BadPort(request.port))?;
    let (dir, name) = (agent.dir.clone(), file.clone());
    let open = move || {
        let content = FileContent::open(&dir, &name)?;
        let record = name.disk().and_then(|disk| recorded(&dir, &disk));
        Ok::<_, JobError>((content, record))
    };
    let (content, record) = agent.tasks.blocking("open a file", open).await??;
    let manner = Manner {
        direct_io: !file.is_meta() && content.size_bytes().is_multiple_of(SECTOR_BYTES),
        file: file.to_string(),
        to: Address::new(request.host, port),
        recorded: record,
        fast_sync: request.fast_sync,
        timeout: sender::timeout(request.file_sync_http_client_timeout),
    };
    let stop = agent.tasks.stop_signal();
    let sent = stop.or_stop(sender::send(&agent.tasks, Arc::new(content), manner)).await;
    let sent = sent.ok_or(JobError::Stopped)??;
    let (compared_bytes, sent_bytes) = (sent.compared_bytes, sent.sent_bytes);
    tracing::debug!(%file, compared_bytes, sent_bytes, "a file was sent");
    Ok(())
}

/// Waits for a file at a port of its own, and says which.
pub(super) async fn receive(
    agent: &Arc<Agent>,
    name: &str,
) -> Result<ReceiverLaunchResponse, JobError> {
    let launched = receiver::launch(agent, FileName::parse(name)?).await?;
    Ok(ReceiverLaunchResponse { port: i32::from(launched.port) })
}
