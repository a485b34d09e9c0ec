//! The methods of `ControllerService`: each takes its request apart, calls the engine, shows the
//! result. No decision is made here.

use std::sync::Arc;

use rpc::ptypes::controller_service_server::ControllerService;
use rpc::{ptypes, text};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::engine::Engine;
use super::fill::{FillError, Turn};
use super::rebuild::Joined;
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
    /// Does it to its end: a caller that is gone leaves nothing half done. Where many wait for their turn,
    /// those that come are not begun as long, and go with their callers.
    pub(super) async fn owned<T, F>(
        &self,
        name: &str,
        work: impl FnOnce(Arc<Engine>) -> F + Send,
    ) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        // Never closed.
        let place = Arc::clone(&self.0.changes).acquire_owned().await.ok();
        let begin = |engine| {
            let work = work(engine);
            async move {
                let _place = place;
                work.await
            }
        };
        self.at_once(name, begin).await
    }

    /// The same, whatever else is under way.
    async fn at_once<T, F>(
        &self,
        name: &str,
        work: impl FnOnce(Arc<Engine>) -> F + Send,
    ) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let work = work(Arc::clone(&self.0));
        self.0.tasks.spawn_draining(name, |_| async move {
            // Whoever asked may be gone.
            let _ = tell.send(work.await);
        });
        told.await.map_err(|_| Status::internal(format!("{name}: broken off")))
    }

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
        let started = self.owned("start", |engine| async move {
            engine.start(&wanted.replica_addresses, wanted.size, wanted.current_size).await
        });
        started.await?.map_err(unknown)?;
        self.volume()
    }

    async fn volume_shutdown(&self, _: Request<()>) -> Reply<ptypes::Volume> {
        let released = self.owned("release", |engine| async move { engine.release().await });
        released.await?.map_err(unknown)?;
        self.volume()
    }

    async fn volume_snapshot(
        &self,
        request: Request<ptypes::VolumeSnapshotRequest>,
    ) -> Reply<ptypes::VolumeSnapshotReply> {
        let ptypes::VolumeSnapshotRequest { name, labels, freeze_filesystem } =
            request.into_inner();
        let wanted = Wanted { name, labels, freeze: freeze_filesystem };
        let taken = self.owned("snapshot", |engine| async move { engine.snapshot(wanted).await });
        let name = taken.await?.map_err(unknown)?;
        Ok(Response::new(ptypes::VolumeSnapshotReply { name }))
    }

    async fn volume_revert(
        &self,
        request: Request<ptypes::VolumeRevertRequest>,
    ) -> Reply<ptypes::Volume> {
        let name = request.into_inner().name;
        let reverted = self.owned("revert", |engine| async move { engine.revert(&name).await });
        reverted.await?.map_err(unknown)?;
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
        let frontend = request.into_inner().frontend;
        let started = self.owned("start a frontend", |engine| async move {
            engine.frontend_start(&frontend).await
        });
        started.await?.map_err(unknown)?;
        self.volume()
    }

    async fn volume_frontend_shutdown(&self, request: Request<()>) -> Reply<ptypes::Volume> {
        let stopping = rpc::stopping_of(request.metadata());
        let name = "stop a frontend";
        let stopped = match stopping {
            rpc::Stopping::Answering => {
                self.owned(name, |engine| async move { engine.frontend_shutdown().await }).await
            }
            rpc::Stopping::AtOnce => {
                self.at_once(name, |engine| async move { engine.frontend_cut().await }).await
            }
        };
        stopped?.map_err(unknown)?;
        self.volume()
    }

    async fn volume_unmap_mark_snap_chain_removed_set(
        &self,
        request: Request<ptypes::VolumeUnmapMarkSnapChainRemovedSetRequest>,
    ) -> Reply<ptypes::Volume> {
        let enabled = request.get_ref().enabled;
        let set =
            self.owned("set", move |engine| async move { engine.set_unmap_mark(enabled).await });
        set.await?.map_err(unknown)?;
        self.volume()
    }

    async fn volume_snapshot_max_count_set(
        &self,
        request: Request<ptypes::VolumeSnapshotMaxCountSetRequest>,
    ) -> Reply<ptypes::Volume> {
        let count = request.get_ref().count;
        let set = self.owned("set", move |engine| async move { engine.set_max_count(count).await });
        set.await?.map_err(unknown)?;
        self.volume()
    }

    async fn volume_snapshot_max_size_set(
        &self,
        request: Request<ptypes::VolumeSnapshotMaxSizeSetRequest>,
    ) -> Reply<ptypes::Volume> {
        let size = request.get_ref().size;
        let set = self.owned("set", move |engine| async move { engine.set_max_size(size).await });
        set.await?.map_err(unknown)?;
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
        let rebuilding = rpc::rebuilding_of(request.metadata());
        let wanted = request.into_inner();
        if let Some(how) = rebuilding.filter(|_| wanted.mode() == ptypes::ReplicaMode::Wo) {
            let filled = match self.0.turn_to_fill(&wanted.address).await {
                Ok(Turn::Ours(filling)) => {
                    self.owned("rebuild", move |_| async move { filling.run(how).await }).await?
                }
                Ok(Turn::Over(replica)) => Ok(replica),
                Err(error) => Err(error),
            };
            return match filled {
                Ok(replica) => Ok(Response::new(replica.show())),
                Err(FillError::Add(error)) => Err(replica_status(error)),
                Err(error) => Err(unknown(error)),
            };
        }
        let added = self.owned("add a replica", |engine| async move {
            engine.add(&wanted.address, wanted.snapshot_required, wanted.mode()).await
        });
        Ok(Response::new(added.await?.map_err(replica_status)?.show()))
    }

    async fn replica_delete(&self, request: Request<ptypes::ReplicaAddress>) -> Reply<()> {
        let address = request.into_inner().address;
        let removed =
            self.owned("remove a replica", |engine| async move { engine.remove(&address).await });
        removed.await?.map_err(replica_status)?;
        Ok(Response::new(()))
    }

    async fn replica_update(
        &self,
        request: Request<ptypes::ControllerReplica>,
    ) -> Reply<ptypes::ControllerReplica> {
        let wanted = request.into_inner();
        let mode = wanted.mode();
        let address = wanted.address.map(|address| address.address).unwrap_or_default();
        let updated = self.owned("switch a replica", move |engine| async move {
            engine.update(&address, mode).await
        });
        Ok(Response::new(updated.await?.map_err(replica_status)?.show()))
    }

    async fn replica_prepare_rebuild(
        &self,
        request: Request<ptypes::ReplicaAddress>,
    ) -> Reply<ptypes::ReplicaPrepareRebuildReply> {
        let address = request.into_inner().address;
        let prepared = self.owned("prepare a rebuild", |engine| async move {
            engine.prepare_rebuild(&address, Joined::Whenever).await
        });
        let (replica, sync_file_info_list) = prepared.await?.map_err(unknown)?;
        Ok(Response::new(ptypes::ReplicaPrepareRebuildReply {
            replica: Some(replica.show()),
            sync_file_info_list,
        }))
    }

    async fn replica_verify_rebuild(
        &self,
        request: Request<ptypes::ReplicaAddress>,
    ) -> Reply<ptypes::ControllerReplica> {
        let address = request.into_inner().address;
        let verified = self.owned("verify a rebuild", |engine| async move {
            engine.verify_rebuild(&address).await
        });
        Ok(Response::new(verified.await?.map_err(unknown)?.show()))
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
