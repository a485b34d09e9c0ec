//! A snapshot of another volume as the first one of this: exported there as one flat image, received
//! here, and the head put on it. Owns both ends of that.

use std::sync::Arc;

use durable::{Mode, RealDisk};
use rpc::ptypes::{ReplicaRevertRequest, SnapshotCloneRequest, VolumeExportRequest};
use rpc::{Address, Deadline};

use super::error::{Asking, JobError};
use super::names::FileName;
use super::status::{Claim, Kind};
use super::sync::PROGRESS_PERIOD;
use super::sync::content::{Backing, Content, FlatContent};
use super::sync::receiver;
use super::sync::sender::{self, Manner};
use super::{Agent, agent_of};
use crate::disk::{DiskName, SECTOR_BYTES, meta_file};

/// The metadata of a disk that sits on nothing.
pub(super) const ROOT_META: &[u8] = b"{\"Parent\":\"\"}\n";

/// Returns when the clone is there, or with the reason why not; the status has the same. Goes on
/// when the caller hangs up.
pub(crate) async fn clone(
    agent: Arc<Agent>,
    request: SnapshotCloneRequest,
) -> Result<(), JobError> {
    let disk = DiskName::of_either(&request.snapshot_file_name)?;
    let claim = agent.statuses.begin(Kind::Clone, &agent.replica, |board| {
        board.clone_source.clone_from(&request.from_address);
        board.clone_snapshot.clone_from(&request.snapshot_file_name);
    })?;
    let own = Arc::clone(&agent);
    let work = async move {
        let outcome = pull(&own, &claim, &disk, &request).await;
        if let Err(error) = &outcome {
            tracing::warn!(%disk, error = error.text(), "the snapshot was not cloned");
        }
        claim.finish(&outcome);
        outcome
    };
    agent.detached("clone a snapshot", work).await?
}

async fn pull(
    agent: &Arc<Agent>,
    claim: &Claim,
    disk: &DiskName,
    request: &SnapshotCloneRequest,
) -> Result<(), JobError> {
    let launched = receiver::launch(agent, FileName::of_disk(disk)).await?;
    let export = VolumeExportRequest {
        snapshot_file_name: request.snapshot_file_name.clone(),
        host: request.to_host.clone(),
        port: i32::from(launched.port),
        export_backing_image_if_exist: request.export_backing_image_if_exist,
        file_sync_http_client_timeout: request.file_sync_http_client_timeout,
    };
    let mut source = agent_of(&request.from_address, &request.from_volume_name, Deadline::Long)?;
    let exported = source.volume_export(export);
    tokio::pin!(exported);
    let mut tick = tokio::time::interval(PROGRESS_PERIOD);
    let outcome = loop {
        tokio::select! {
            outcome = &mut exported => break outcome,
            _ = tick.tick() => {
                claim.progress(u8::try_from(launched.meter.percent()).unwrap_or(0));
            }
        }
    };
    launched.stop();
    outcome.asking(format!("have snapshot {disk} exported"), &request.from_address)?;
    launched.check_received(&FileName::of_disk(disk))?;
    adopt(agent, disk).await
}

/// Makes the image part of the chain and puts the head on it.
pub(super) async fn adopt(agent: &Arc<Agent>, disk: &DiskName) -> Result<(), JobError> {
    let path = agent.dir.join(meta_file(disk));
    let write = move || durable::on::replace(&RealDisk, &path, ROOT_META, Mode::PUBLIC);
    agent.tasks.blocking("write metadata", write).await??;
    let mut replica = agent.own_replica(Deadline::Usual)?;
    replica.replica_reload(()).await.asking("reload", &agent.replica)?;
    let revert = ReplicaRevertRequest { name: disk.to_string(), created: super::now() };
    replica.replica_revert(revert).await.asking(format!("revert to {disk}"), &agent.replica)?;
    Ok(())
}

/// Sends a snapshot with all it sits on, as one flat image.
pub(crate) async fn export(
    agent: Arc<Agent>,
    request: VolumeExportRequest,
) -> Result<(), JobError> {
    let port = u16::try_from(request.port).map_err(|_| JobError::BadPort(request.port))?;
    let backing =
        if request.export_backing_image_if_exist { Backing::Included } else { Backing::LeftOut };
    let (dir, snapshot) = (agent.dir.clone(), request.snapshot_file_name.clone());
    let open = move || FlatContent::open(&dir, &snapshot, backing);
    let content = agent.tasks.blocking("open a snapshot", open).await??;
    let manner = Manner {
        file: request.snapshot_file_name,
        to: Address::new(request.host, port),
        direct_io: content.size_bytes().is_multiple_of(SECTOR_BYTES),
        recorded: None,
        fast_sync: false,
        timeout: sender::timeout(request.file_sync_http_client_timeout),
    };
    let stop = agent.tasks.stop_signal();
    let sent = stop.or_stop(sender::send(&agent.tasks, Arc::new(content), manner)).await;
    let sent = sent.ok_or(JobError::Stopped)??;
    tracing::info!(bytes = sent.sent_bytes, "a snapshot was exported");
    Ok(())
}
