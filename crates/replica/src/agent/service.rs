//! The verbs of the sync agent: each takes its request apart, calls the job, and draws the answer.

use std::sync::Arc;

use rpc::ptypes::sync_agent_service_server::SyncAgentService;
use rpc::ptypes::{
    BackupCreateRequest, BackupCreateResponse, BackupRemoveRequest, BackupRestoreRequest,
    BackupStatusRequest, BackupStatusResponse, FileRemoveRequest, FileRenameRequest,
    FileSendRequest, FilesSyncRequest, ReceiverLaunchRequest, ReceiverLaunchResponse,
    ReplicaRebuildStatusResponse, RestoreStatusResponse, SnapshotCloneRequest,
    SnapshotCloneStatusResponse, SnapshotHashCancelRequest, SnapshotHashLockStateResponse,
    SnapshotHashRequest, SnapshotHashStatusRequest, SnapshotHashStatusResponse,
    SnapshotPurgeStatusResponse, VolumeExportRequest,
};
use tonic::{Request, Response, Status};

use super::error::JobError;
use super::{Agent, backup, cloning, hashing, purge, restore, sync};

const REMOVE_AT_THE_STORE: &str = "backups are removed from their store, with backup rm";

#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Agent>);

fn answer<T>(outcome: Result<T, JobError>) -> Result<Response<T>, Status> {
    outcome.map(Response::new).map_err(|error| error.status())
}

#[tonic::async_trait]
impl SyncAgentService for Service {
    async fn file_remove(
        &self,
        request: Request<FileRemoveRequest>,
    ) -> Result<Response<()>, Status> {
        answer(sync::remove(&self.0, &request.get_ref().file_name).await)
    }

    async fn file_rename(
        &self,
        request: Request<FileRenameRequest>,
    ) -> Result<Response<()>, Status> {
        let names = request.get_ref();
        answer(sync::rename(&self.0, &names.old_file_name, &names.new_file_name).await)
    }

    async fn file_send(&self, request: Request<FileSendRequest>) -> Result<Response<()>, Status> {
        answer(Box::pin(sync::send(&self.0, request.into_inner())).await)
    }

    async fn files_sync(&self, request: Request<FilesSyncRequest>) -> Result<Response<()>, Status> {
        answer(sync::files_sync(Arc::clone(&self.0), request.into_inner()).await)
    }

    async fn snapshot_clone(
        &self,
        request: Request<SnapshotCloneRequest>,
    ) -> Result<Response<()>, Status> {
        answer(cloning::clone(Arc::clone(&self.0), request.into_inner()).await)
    }

    async fn volume_export(
        &self,
        request: Request<VolumeExportRequest>,
    ) -> Result<Response<()>, Status> {
        answer(Box::pin(cloning::export(Arc::clone(&self.0), request.into_inner())).await)
    }

    async fn receiver_launch(
        &self,
        request: Request<ReceiverLaunchRequest>,
    ) -> Result<Response<ReceiverLaunchResponse>, Status> {
        answer(sync::receive(&self.0, &request.get_ref().to_file_name).await)
    }

    async fn backup_create(
        &self,
        request: Request<BackupCreateRequest>,
    ) -> Result<Response<BackupCreateResponse>, Status> {
        answer(backup::create(&self.0, request.into_inner()).await)
    }

    async fn backup_remove(
        &self,
        _request: Request<BackupRemoveRequest>,
    ) -> Result<Response<()>, Status> {
        Err(Status::unimplemented(REMOVE_AT_THE_STORE))
    }

    async fn backup_restore(
        &self,
        request: Request<BackupRestoreRequest>,
    ) -> Result<Response<()>, Status> {
        let claim = rpc::claim_of(request.metadata());
        answer(restore::start(&self.0, request.into_inner(), claim).await)
    }

    async fn backup_status(
        &self,
        request: Request<BackupStatusRequest>,
    ) -> Result<Response<BackupStatusResponse>, Status> {
        answer(self.0.backups.status(&request.get_ref().backup))
    }

    async fn reset(&self, _request: Request<()>) -> Result<Response<()>, Status> {
        answer(restore::reset(&self.0).await)?;
        self.0.statuses.reset();
        self.0.hashes.reset();
        self.0.backups.reset();
        Ok(Response::new(()))
    }

    async fn restore_status(
        &self,
        _request: Request<()>,
    ) -> Result<Response<RestoreStatusResponse>, Status> {
        answer(restore::status(&self.0).await)
    }

    async fn snapshot_purge(&self, request: Request<()>) -> Result<Response<()>, Status> {
        let head_parent = rpc::head_parent_of(request.metadata());
        let claim = rpc::claim_of(request.metadata());
        answer(purge::start(&self.0, head_parent, claim).await)
    }

    async fn snapshot_purge_status(
        &self,
        _request: Request<()>,
    ) -> Result<Response<SnapshotPurgeStatusResponse>, Status> {
        let phase = self.0.statuses.board().purge;
        Ok(Response::new(SnapshotPurgeStatusResponse {
            is_purging: phase.is_running(),
            error: phase.error(),
            progress: phase.percent(),
            state: phase.word().to_owned(),
        }))
    }

    async fn replica_rebuild_status(
        &self,
        _request: Request<()>,
    ) -> Result<Response<ReplicaRebuildStatusResponse>, Status> {
        let board = self.0.statuses.board();
        let phase = board.rebuild;
        Ok(Response::new(ReplicaRebuildStatusResponse {
            is_rebuilding: phase.is_running(),
            error: phase.error(),
            progress: phase.percent(),
            state: phase.word().to_owned(),
            from_replica_address: board.rebuild_sources.first().cloned().unwrap_or_default(),
            from_replica_address_list: board.rebuild_sources,
        }))
    }

    async fn snapshot_clone_status(
        &self,
        _request: Request<()>,
    ) -> Result<Response<SnapshotCloneStatusResponse>, Status> {
        let board = self.0.statuses.board();
        let phase = board.clone;
        Ok(Response::new(SnapshotCloneStatusResponse {
            is_cloning: phase.is_running(),
            error: phase.error(),
            progress: phase.percent(),
            state: phase.word().to_owned(),
            from_replica_address: board.clone_source,
            snapshot_name: board.clone_snapshot,
        }))
    }

    async fn snapshot_hash(
        &self,
        request: Request<SnapshotHashRequest>,
    ) -> Result<Response<()>, Status> {
        let SnapshotHashRequest { snapshot_name, rehash } = request.into_inner();
        answer(hashing::start(&self.0, &snapshot_name, rehash))
    }

    async fn snapshot_hash_status(
        &self,
        request: Request<SnapshotHashStatusRequest>,
    ) -> Result<Response<SnapshotHashStatusResponse>, Status> {
        Ok(Response::new(hashing::status(&self.0, &request.get_ref().snapshot_name).await))
    }

    async fn snapshot_hash_cancel(
        &self,
        request: Request<SnapshotHashCancelRequest>,
    ) -> Result<Response<()>, Status> {
        hashing::cancel(&self.0, &request.get_ref().snapshot_name);
        Ok(Response::new(()))
    }

    async fn snapshot_hash_lock_state(
        &self,
        _request: Request<()>,
    ) -> Result<Response<SnapshotHashLockStateResponse>, Status> {
        let held = self.0.hash_lock.is_held(&self.0.tasks).await;
        answer(held.map(|is_locked| SnapshotHashLockStateResponse { is_locked }))
    }
}
