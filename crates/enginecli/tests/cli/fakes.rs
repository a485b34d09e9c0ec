//! Servers that note what they are asked and answer what the test told them.

use std::any::Any;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use rpc::profilerrpc::profiler_server::Profiler;
use rpc::profilerrpc::{ProfilerOpReply, ProfilerOpRequest};
use rpc::ptypes::*;
use tonic::{Request, Response, Status};

/// One call a server got.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) server: String,
    pub(crate) method: &'static str,
    /// The request, as `Debug` shows it.
    pub(crate) request: String,
    /// Names the client sent: volume, then instance.
    pub(crate) names: [Option<String>; 2],
    /// Who is to bring a rebuild to its end.
    pub(crate) rebuilding: Option<rpc::Rebuilding>,
}

type Reply = Box<dyn Any + Send>;

/// One server.
#[derive(Clone)]
pub(crate) struct Fake {
    server: String,
    calls: Arc<Mutex<Vec<Call>>>,
    replies: Arc<Mutex<HashMap<&'static str, Reply>>>,
}

impl Fake {
    pub(crate) fn new(server: &str, calls: &Arc<Mutex<Vec<Call>>>) -> Self {
        Self { server: server.to_owned(), calls: Arc::clone(calls), replies: Arc::default() }
    }

    /// What `method` answers from now on; without it, an empty message.
    pub(crate) fn on<R: Send + 'static>(&self, method: &'static str, reply: R) -> &Self {
        self.set(method, Ok(reply))
    }

    pub(crate) fn refuse<R: Send + 'static>(&self, method: &'static str, status: Status) -> &Self {
        self.set::<R>(method, Err(status))
    }

    fn set<R: Send + 'static>(&self, method: &'static str, reply: Result<R, Status>) -> &Self {
        self.replies.lock().unwrap().insert(method, Box::new(reply));
        self
    }

    #[allow(clippy::result_large_err, reason = "tonic's own error type")]
    fn answer<Q: Debug, R: Default + Clone + 'static>(
        &self,
        method: &'static str,
        request: &Request<Q>,
    ) -> Result<Response<R>, Status> {
        let name = |key| {
            request.metadata().get(key).and_then(|it| it.to_str().ok()).map(ToOwned::to_owned)
        };
        self.calls.lock().unwrap().push(Call {
            server: self.server.clone(),
            method,
            request: format!("{:?}", request.get_ref()),
            names: [name("volume-name"), name("instance-name")],
            rebuilding: rpc::rebuilding_of(request.metadata()),
        });
        let replies = self.replies.lock().unwrap();
        let Some(reply) = replies.get(method) else { return Ok(Response::new(R::default())) };
        let reply = reply.downcast_ref::<Result<R, Status>>().expect("a reply of another method");
        reply.clone().map(Response::new)
    }
}

macro_rules! fake {
    ($name:ident, $service:path: $($method:ident($request:ty) -> $reply:ty;)*) => {
        pub(crate) struct $name(pub(crate) Fake);

        #[tonic::async_trait]
        impl $service for $name {
            $(async fn $method(
                &self,
                request: Request<$request>,
            ) -> Result<Response<$reply>, Status> {
                self.0.answer(stringify!($method), &request)
            })*
        }
    };
}

fake! { FakeController, controller_service_server::ControllerService:
    volume_get(()) -> Volume;
    volume_start(VolumeStartRequest) -> Volume;
    volume_shutdown(()) -> Volume;
    volume_snapshot(VolumeSnapshotRequest) -> VolumeSnapshotReply;
    volume_revert(VolumeRevertRequest) -> Volume;
    volume_expand(VolumeExpandRequest) -> Volume;
    volume_frontend_start(VolumeFrontendStartRequest) -> Volume;
    volume_frontend_shutdown(()) -> Volume;
    volume_unmap_mark_snap_chain_removed_set(VolumeUnmapMarkSnapChainRemovedSetRequest) -> Volume;
    volume_snapshot_max_count_set(VolumeSnapshotMaxCountSetRequest) -> Volume;
    volume_snapshot_max_size_set(VolumeSnapshotMaxSizeSetRequest) -> Volume;
    volume_io(VolumeIoRequest) -> VolumeIoReply;
    replica_list(()) -> ReplicaListReply;
    replica_get(ReplicaAddress) -> ControllerReplica;
    controller_replica_create(ControllerReplicaCreateRequest) -> ControllerReplica;
    replica_delete(ReplicaAddress) -> ();
    replica_update(ControllerReplica) -> ControllerReplica;
    replica_prepare_rebuild(ReplicaAddress) -> ReplicaPrepareRebuildReply;
    replica_verify_rebuild(ReplicaAddress) -> ControllerReplica;
    replica_rebuild_concurrent_sync_limit_set(ReplicaRebuildConcurrentSyncLimitSetRequest) -> ();
    replica_rebuild_concurrent_sync_limit_get(()) -> ReplicaRebuildConcurrentSyncLimitGetResponse;
    journal_list(JournalListRequest) -> ();
    version_detail_get(()) -> VersionDetailGetReply;
    metrics_get(()) -> MetricsGetReply;
}

fake! { FakeVolume, rpc::volume::volume_server::Volume:
    restore(rpc::volume::RestoreRequest) -> rpc::volume::RestoreReply;
    purge(rpc::volume::PurgeRequest) -> rpc::volume::PurgeReply;
}

fake! { FakeProfiler, Profiler:
    profiler_op(ProfilerOpRequest) -> ProfilerOpReply;
}

fake! { FakeReplica, replica_service_server::ReplicaService:
    replica_create(ReplicaCreateRequest) -> ReplicaCreateResponse;
    replica_delete(()) -> ();
    replica_get(()) -> ReplicaGetResponse;
    replica_open(ReplicaOpenRequest) -> ReplicaOpenResponse;
    replica_close(()) -> ReplicaCloseResponse;
    replica_reload(()) -> ReplicaReloadResponse;
    replica_revert(ReplicaRevertRequest) -> ReplicaRevertResponse;
    replica_snapshot(ReplicaSnapshotRequest) -> ReplicaSnapshotResponse;
    replica_expand(ReplicaExpandRequest) -> ReplicaExpandResponse;
    disk_remove(DiskRemoveRequest) -> DiskRemoveResponse;
    disk_replace(DiskReplaceRequest) -> DiskReplaceResponse;
    disk_prepare_remove(DiskPrepareRemoveRequest) -> DiskPrepareRemoveResponse;
    disk_mark_as_removed(DiskMarkAsRemovedRequest) -> DiskMarkAsRemovedResponse;
    rebuilding_set(RebuildingSetRequest) -> RebuildingSetResponse;
    revision_counter_set(RevisionCounterSetRequest) -> RevisionCounterSetResponse;
    unmap_mark_disk_chain_removed_set(UnmapMarkDiskChainRemovedSetRequest)
        -> UnmapMarkDiskChainRemovedSetResponse;
    snapshot_max_count_set(SnapshotMaxCountSetRequest) -> SnapshotMaxCountSetResponse;
    snapshot_max_size_set(SnapshotMaxSizeSetRequest) -> SnapshotMaxSizeSetResponse;
}

fake! { FakeAgent, sync_agent_service_server::SyncAgentService:
    file_remove(FileRemoveRequest) -> ();
    file_rename(FileRenameRequest) -> ();
    file_send(FileSendRequest) -> ();
    files_sync(FilesSyncRequest) -> ();
    snapshot_clone(SnapshotCloneRequest) -> ();
    volume_export(VolumeExportRequest) -> ();
    receiver_launch(ReceiverLaunchRequest) -> ReceiverLaunchResponse;
    backup_create(BackupCreateRequest) -> BackupCreateResponse;
    backup_remove(BackupRemoveRequest) -> ();
    backup_restore(BackupRestoreRequest) -> ();
    backup_status(BackupStatusRequest) -> BackupStatusResponse;
    reset(()) -> ();
    restore_status(()) -> RestoreStatusResponse;
    snapshot_purge(()) -> ();
    snapshot_purge_status(()) -> SnapshotPurgeStatusResponse;
    replica_rebuild_status(()) -> ReplicaRebuildStatusResponse;
    snapshot_clone_status(()) -> SnapshotCloneStatusResponse;
    snapshot_hash(SnapshotHashRequest) -> ();
    snapshot_hash_status(SnapshotHashStatusRequest) -> SnapshotHashStatusResponse;
    snapshot_hash_cancel(SnapshotHashCancelRequest) -> ();
    snapshot_hash_lock_state(()) -> SnapshotHashLockStateResponse;
}
