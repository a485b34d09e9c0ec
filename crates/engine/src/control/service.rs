//! The methods of `ControllerService`: each takes its request apart, calls the engine, shows the
//! result. No decision is made here.

use std::sync::Arc;

use rpc::ptypes::controller_service_server::ControllerService;
use rpc::{ptypes, text};
use tonic::{Request, Response, Status};

use super::engine::Engine;
use super::replicas::ReplicaError;
use super::snapshot::Wanted;
use super::version::version;

#[derive(Debug, Clone)]
pub(super) struct Service(pub(super) Arc<Engine>);

type Reply<T> = Result<Response<T>, Status>;

/// An error as this dialect sends it: code UNKNOWN and its text.
fn unknown(error: impl std::fmt::Display) -> Status {
    text(error.to_string())
}

fn replica_status(error: ReplicaError) -> Status {
    match error {
        ReplicaError::NotFound { .. } => Status::not_found(error.to_string()),
        other => unknown(other),
    }
}

impl Service {
    #[allow(clippy::unnecessary_wraps, reason = "what every method ends with")]
    fn volume(&self) -> Reply<ptypes::Volume> {
        Ok(Response::new(self.0.show()))
    }
}

#[tonic::async_trait]
impl ControllerService for Service {
    async fn volume_get(&self, _: Request<()>) -> Reply<ptypes::Volume> {
        self.volume()
    }

    async fn volume_start(
        &self,
        request: Request<ptypes::VolumeStartRequest>,
    ) -> Reply<ptypes::Volume> {
        let wanted = request.into_inner();
        let started =
            self.0.start(&wanted.replica_addresses, wanted.size, wanted.current_size).await;
        started.map_err(unknown)?;
        self.volume()
    }

    async fn volume_shutdown(&self, _: Request<()>) -> Reply<ptypes::Volume> {
        self.0.release().await.map_err(unknown)?;
        self.volume()
    }

    async fn volume_snapshot(
        &self,
        request: Request<ptypes::VolumeSnapshotRequest>,
    ) -> Reply<ptypes::VolumeSnapshotReply> {
        let ptypes::VolumeSnapshotRequest { name, labels, freeze_filesystem } =
            request.into_inner();
        let wanted = Wanted { name, labels, freeze: freeze_filesystem };
        let name = self.0.snapshot(wanted).await.map_err(unknown)?;
        Ok(Response::new(ptypes::VolumeSnapshotReply { name }))
    }

    async fn volume_revert(
        &self,
        request: Request<ptypes::VolumeRevertRequest>,
    ) -> Reply<ptypes::Volume> {
        self.0.revert(&request.get_ref().name).await.map_err(unknown)?;
        self.volume()
    }

    async fn volume_expand(
        &self,
        request: Request<ptypes::VolumeExpandRequest>,
    ) -> Reply<ptypes::Volume> {
        self.0.expand(request.get_ref().size).map_err(unknown)?;
        self.volume()
    }

    async fn volume_frontend_start(
        &self,
        request: Request<ptypes::VolumeFrontendStartRequest>,
    ) -> Reply<ptypes::Volume> {
        self.0.frontend_start(&request.get_ref().frontend).await.map_err(unknown)?;
        self.volume()
    }

    async fn volume_frontend_shutdown(&self, request: Request<()>) -> Reply<ptypes::Volume> {
        let stopped = match rpc::stopping_of(request.metadata()) {
            rpc::Stopping::Answering => self.0.frontend_shutdown().await,
            rpc::Stopping::AtOnce => self.0.frontend_cut().await,
        };
        stopped.map_err(unknown)?;
        self.volume()
    }

    async fn volume_unmap_mark_snap_chain_removed_set(
        &self,
        request: Request<ptypes::VolumeUnmapMarkSnapChainRemovedSetRequest>,
    ) -> Reply<ptypes::Volume> {
        self.0.set_unmap_mark(request.get_ref().enabled).await.map_err(unknown)?;
        self.volume()
    }

    async fn volume_snapshot_max_count_set(
        &self,
        request: Request<ptypes::VolumeSnapshotMaxCountSetRequest>,
    ) -> Reply<ptypes::Volume> {
        self.0.set_max_count(request.get_ref().count).await.map_err(unknown)?;
        self.volume()
    }

    async fn volume_snapshot_max_size_set(
        &self,
        request: Request<ptypes::VolumeSnapshotMaxSizeSetRequest>,
    ) -> Reply<ptypes::Volume> {
        self.0.set_max_size(request.get_ref().size).await.map_err(unknown)?;
        self.volume()
    }

    async fn volume_io(&self, _: Request<ptypes::VolumeIoRequest>) -> Reply<ptypes::VolumeIoReply> {
        Err(Status::unimplemented("read and write through the frontend"))
    }

    async fn replica_list(&self, _: Request<()>) -> Reply<ptypes::ReplicaListReply> {
        let replicas = self.0.replicas().iter().map(super::engine::Replica::show).collect();
        Ok(Response::new(ptypes::ReplicaListReply { replicas }))
    }

    async fn replica_get(
        &self,
        request: Request<ptypes::ReplicaAddress>,
    ) -> Reply<ptypes::ControllerReplica> {
        let address = &request.get_ref().address;
        let found = self.0.find(address).ok_or_else(|| self.0.not_found(address));
        Ok(Response::new(found.map_err(replica_status)?.show()))
    }

    async fn controller_replica_create(
        &self,
        request: Request<ptypes::ControllerReplicaCreateRequest>,
    ) -> Reply<ptypes::ControllerReplica> {
        let wanted = request.get_ref();
        let added = self.0.add(&wanted.address, wanted.snapshot_required, wanted.mode()).await;
        Ok(Response::new(added.map_err(replica_status)?.show()))
    }

    async fn replica_delete(&self, request: Request<ptypes::ReplicaAddress>) -> Reply<()> {
        self.0.remove(&request.get_ref().address).await.map_err(replica_status)?;
        Ok(Response::new(()))
    }

    async fn replica_update(
        &self,
        request: Request<ptypes::ControllerReplica>,
    ) -> Reply<ptypes::ControllerReplica> {
        let wanted = request.get_ref();
        let address = wanted.address.as_ref().map_or("", |address| address.address.as_str());
        let updated = self.0.update(address, wanted.mode()).await;
        Ok(Response::new(updated.map_err(replica_status)?.show()))
    }

    async fn replica_prepare_rebuild(
        &self,
        request: Request<ptypes::ReplicaAddress>,
    ) -> Reply<ptypes::ReplicaPrepareRebuildReply> {
        let prepared = self.0.prepare_rebuild(&request.get_ref().address).await;
        let (replica, sync_file_info_list) = prepared.map_err(unknown)?;
        Ok(Response::new(ptypes::ReplicaPrepareRebuildReply {
            replica: Some(replica.show()),
            sync_file_info_list,
        }))
    }

    async fn replica_verify_rebuild(
        &self,
        request: Request<ptypes::ReplicaAddress>,
    ) -> Reply<ptypes::ControllerReplica> {
        let verified = self.0.verify_rebuild(&request.get_ref().address).await;
        Ok(Response::new(verified.map_err(unknown)?.show()))
    }

    async fn replica_rebuild_concurrent_sync_limit_set(
        &self,
        request: Request<ptypes::ReplicaRebuildConcurrentSyncLimitSetRequest>,
    ) -> Reply<()> {
        self.0.set_rebuild_sync_limit(request.get_ref().limit).map_err(unknown)?;
        Ok(Response::new(()))
    }

    async fn replica_rebuild_concurrent_sync_limit_get(
        &self,
        _: Request<()>,
    ) -> Reply<ptypes::ReplicaRebuildConcurrentSyncLimitGetResponse> {
        let limit = self.0.state().rebuild_sync_limit;
        Ok(Response::new(ptypes::ReplicaRebuildConcurrentSyncLimitGetResponse { limit }))
    }

    async fn journal_list(&self, request: Request<ptypes::JournalListRequest>) -> Reply<()> {
        let limit = u64::try_from(request.get_ref().limit).unwrap_or(0);
        self.0.volume.log_journal(limit).await;
        Ok(Response::new(()))
    }

    async fn version_detail_get(&self, _: Request<()>) -> Reply<ptypes::VersionDetailGetReply> {
        Ok(Response::new(ptypes::VersionDetailGetReply { version: Some(version()) }))
    }

    async fn metrics_get(&self, _: Request<()>) -> Reply<ptypes::MetricsGetReply> {
        let traffic = self.0.volume.traffic();
        let metrics = ptypes::Metrics {
            read_throughput: traffic.read_bytes,
            write_throughput: traffic.write_bytes,
            read_latency: traffic.read_latency_ns,
            write_latency: traffic.write_latency_ns,
            read_iops: traffic.read_count,
            write_iops: traffic.write_count,
        };
        Ok(Response::new(ptypes::MetricsGetReply { metrics: Some(metrics) }))
    }
}
