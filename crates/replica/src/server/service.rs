//! The gRPC service of a replica. Every method is one call to the data thread and, almost always,
//! the replica as it is afterwards. Owns which errors become which status; decides nothing else.

use jiff::Timestamp;
use rpc::ptypes::replica_service_server::ReplicaService;
use rpc::{Features, ptypes};
use tonic::{Request, Response, Status};

use wire::membership::Claim;

use crate::disk::{Error, Labels, OpenRequest};
use crate::server::core::{Claiming, Core, CoreError};
use crate::server::message::{self, Context};
use crate::server::owner::OwnerError;
use crate::server::thread::Handle;

#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) data: Handle,
    pub(crate) features: Features,
    pub(crate) revision_counter: bool,
}

/// Seconds, UTC, as metadata files have it.
pub(crate) fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

impl Service {
    /// Runs `change` on the data thread and says how the replica is afterwards. An engine that was
    /// cut off changes nothing, and nobody does in a directory that another process serves.
    async fn change(
        &self,
        claim: Option<Claim>,
        change: impl FnOnce(&mut Core) -> Result<(), Status> + Send + 'static,
    ) -> Result<Option<ptypes::Replica>, Status> {
        self.look(move |core| {
            core.hold_directory().map_err(not_changed)?;
            core.owner.check_call(claim.as_ref()).map_err(|error| not_changed(error.into()))?;
            change(core)
        })
        .await
    }

    async fn look(
        &self,
        change: impl FnOnce(&mut Core) -> Result<(), Status> + Send + 'static,
    ) -> Result<Option<ptypes::Replica>, Status> {
        let context = Context { features: self.features, revision_counter: self.revision_counter };
        let work = move |core: &mut Core| {
            change(core)?;
            Ok(Some(message::replica(core, context)))
        };
        self.data.call(work).await.map_err(gone)?
    }
}

pub(crate) fn gone(error: impl std::fmt::Display) -> Status {
    Status::unavailable(error.to_string())
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
pub(crate) fn refused(error: Error) -> Status {
    rpc::text(error.text())
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
pub(crate) fn not_changed(error: CoreError) -> Status {
    match error {
        CoreError::Disk(error) => refused(error),
        CoreError::Owner(OwnerError::Refused(refused)) => {
            Status::failed_precondition(refused.to_string())
        }
        CoreError::Owner(error) => rpc::text(error.to_string()),
        CoreError::Lock(error) => Status::failed_precondition(error.to_string()),
        CoreError::Handover(_) => Status::failed_precondition(error.to_string()),
    }
}

type Reply<T> = Result<Response<T>, Status>;

/// A reply that holds nothing but the replica.
macro_rules! reply {
    ($kind:ident, $replica:expr) => {
        Ok(Response::new(ptypes::$kind { replica: $replica }))
    };
}

#[tonic::async_trait]
impl ReplicaService for Service {
    async fn replica_create(
        &self,
        request: Request<ptypes::ReplicaCreateRequest>,
    ) -> Reply<ptypes::ReplicaCreateResponse> {
        let claim = rpc::claim_of(request.metadata());
        let text = request.into_inner().size;
        let size = text.parse::<i64>();
        let size = size.map_err(|_| rpc::text(format!("size {text:?} is not a number")))?;
        let change = move |core: &mut Core| core.create(size, &now()).map_err(not_changed);
        reply!(ReplicaCreateResponse, self.change(claim, change).await?)
    }

    async fn replica_delete(&self, request: Request<()>) -> Reply<()> {
        let claim = rpc::claim_of(request.metadata());
        self.change(claim, |core| core.delete().map_err(not_changed)).await?;
        Ok(Response::new(()))
    }

    async fn replica_get(&self, _: Request<()>) -> Reply<ptypes::ReplicaGetResponse> {
        reply!(ReplicaGetResponse, self.look(|_| Ok(())).await?)
    }

    async fn replica_open(
        &self,
        request: Request<ptypes::ReplicaOpenRequest>,
    ) -> Reply<ptypes::ReplicaOpenResponse> {
        let asked = request.into_inner();
        let open = move |core: &mut Core| {
            let request = OpenRequest {
                is_upgrade: asked.is_upgrade,
                expected_size_bytes: asked.expected_backend_size,
                now: now(),
                salvage: asked.holdfast_salvage,
            };
            let claiming = (asked.holdfast_generation > 0).then(|| Claiming {
                claim: Claim {
                    generation: asked.holdfast_generation,
                    engine: asked.holdfast_engine.clone(),
                },
                adopt: asked.holdfast_adopt,
            });
            core.open(&request, claiming.as_ref()).map_err(not_changed)
        };
        reply!(ReplicaOpenResponse, self.look(open).await?)
    }

    async fn replica_close(&self, request: Request<()>) -> Reply<ptypes::ReplicaCloseResponse> {
        let claim = rpc::claim_of(request.metadata());
        let change = |core: &mut Core| core.replica.close().map_err(refused);
        reply!(ReplicaCloseResponse, self.change(claim, change).await?)
    }

    async fn replica_reload(&self, request: Request<()>) -> Reply<ptypes::ReplicaReloadResponse> {
        let claim = rpc::claim_of(request.metadata());
        let change = |core: &mut Core| core.replica.reload().map_err(refused);
        reply!(ReplicaReloadResponse, self.change(claim, change).await?)
    }

    async fn replica_revert(
        &self,
        request: Request<ptypes::ReplicaRevertRequest>,
    ) -> Reply<ptypes::ReplicaRevertResponse> {
        let claim = rpc::claim_of(request.metadata());
        let ptypes::ReplicaRevertRequest { name, created } = request.into_inner();
        let change = move |core: &mut Core| core.replica.revert(&name, &created).map_err(refused);
        reply!(ReplicaRevertResponse, self.change(claim, change).await?)
    }

    async fn replica_snapshot(
        &self,
        request: Request<ptypes::ReplicaSnapshotRequest>,
    ) -> Reply<ptypes::ReplicaSnapshotResponse> {
        let claim = rpc::claim_of(request.metadata());
        let ptypes::ReplicaSnapshotRequest { name, user_created, created, labels } =
            request.into_inner();
        let labels: Labels = labels.into_iter().collect();
        let change = move |core: &mut Core| {
            let replica = &mut core.replica;
            replica.snapshot(&name, user_created, &created, Some(labels)).map_err(refused)
        };
        reply!(ReplicaSnapshotResponse, self.change(claim, change).await?)
    }

    async fn replica_expand(
        &self,
        request: Request<ptypes::ReplicaExpandRequest>,
    ) -> Reply<ptypes::ReplicaExpandResponse> {
        let claim = rpc::claim_of(request.metadata());
        let size = request.into_inner().size;
        let change = move |core: &mut Core| {
            let expanded = core.replica.expand(size, &now());
            // The text is what engines parse, to know whether the copy is as it was.
            expanded.map_err(|error| Status::internal(error.json()))
        };
        reply!(ReplicaExpandResponse, self.change(claim, change).await?)
    }

    async fn disk_remove(
        &self,
        request: Request<ptypes::DiskRemoveRequest>,
    ) -> Reply<ptypes::DiskRemoveResponse> {
        let claim = rpc::claim_of(request.metadata());
        let ptypes::DiskRemoveRequest { name, force } = request.into_inner();
        let change = move |core: &mut Core| core.replica.remove(&name, force).map_err(refused);
        reply!(DiskRemoveResponse, self.change(claim, change).await?)
    }

    async fn disk_replace(
        &self,
        request: Request<ptypes::DiskReplaceRequest>,
    ) -> Reply<ptypes::DiskReplaceResponse> {
        let claim = rpc::claim_of(request.metadata());
        let ptypes::DiskReplaceRequest { target, source } = request.into_inner();
        let change = move |core: &mut Core| core.replica.replace(&target, &source).map_err(refused);
        reply!(DiskReplaceResponse, self.change(claim, change).await?)
    }

    async fn disk_prepare_remove(
        &self,
        request: Request<ptypes::DiskPrepareRemoveRequest>,
    ) -> Reply<ptypes::DiskPrepareRemoveResponse> {
        let name = request.into_inner().name;
        let ask = move |core: &mut Core| core.replica.prepare_remove(&name);
        let actions = self.data.call(ask).await.map_err(gone)?.map_err(refused)?;
        let operation = |action: &crate::disk::Action| {
            let (action, source, target) = action.words();
            ptypes::PrepareRemoveAction {
                action: action.to_owned(),
                source: source.to_owned(),
                target: target.to_owned(),
            }
        };
        let operations = actions.iter().map(operation).collect();
        Ok(Response::new(ptypes::DiskPrepareRemoveResponse { operations }))
    }

    async fn disk_mark_as_removed(
        &self,
        request: Request<ptypes::DiskMarkAsRemovedRequest>,
    ) -> Reply<ptypes::DiskMarkAsRemovedResponse> {
        let claim = rpc::claim_of(request.metadata());
        let name = request.into_inner().name;
        let change = move |core: &mut Core| core.replica.mark_removed(&name).map_err(refused);
        reply!(DiskMarkAsRemovedResponse, self.change(claim, change).await?)
    }

    async fn rebuilding_set(
        &self,
        request: Request<ptypes::RebuildingSetRequest>,
    ) -> Reply<ptypes::RebuildingSetResponse> {
        let claim = rpc::claim_of(request.metadata());
        let wanted = request.into_inner().rebuilding;
        let change = move |core: &mut Core| core.replica.set_rebuilding(wanted).map_err(refused);
        reply!(RebuildingSetResponse, self.change(claim, change).await?)
    }

    async fn revision_counter_set(
        &self,
        request: Request<ptypes::RevisionCounterSetRequest>,
    ) -> Reply<ptypes::RevisionCounterSetResponse> {
        let claim = rpc::claim_of(request.metadata());
        let value = request.into_inner().counter;
        let change =
            move |core: &mut Core| core.replica.set_revision_counter(value).map_err(refused);
        reply!(RevisionCounterSetResponse, self.change(claim, change).await?)
    }

    async fn unmap_mark_disk_chain_removed_set(
        &self,
        request: Request<ptypes::UnmapMarkDiskChainRemovedSetRequest>,
    ) -> Reply<ptypes::UnmapMarkDiskChainRemovedSetResponse> {
        let claim = rpc::claim_of(request.metadata());
        let enabled = request.into_inner().enabled;
        let change = move |core: &mut Core| {
            core.replica.unmap_mark_removed = enabled;
            Ok(())
        };
        reply!(UnmapMarkDiskChainRemovedSetResponse, self.change(claim, change).await?)
    }

    async fn snapshot_max_count_set(
        &self,
        request: Request<ptypes::SnapshotMaxCountSetRequest>,
    ) -> Reply<ptypes::SnapshotMaxCountSetResponse> {
        let claim = rpc::claim_of(request.metadata());
        let count = request.into_inner().count;
        let change = move |core: &mut Core| {
            core.replica.snapshot_max_count = count;
            Ok(())
        };
        reply!(SnapshotMaxCountSetResponse, self.change(claim, change).await?)
    }

    async fn snapshot_max_size_set(
        &self,
        request: Request<ptypes::SnapshotMaxSizeSetRequest>,
    ) -> Reply<ptypes::SnapshotMaxSizeSetResponse> {
        let claim = rpc::claim_of(request.metadata());
        let size = request.into_inner().size;
        let change = move |core: &mut Core| {
            core.replica.snapshot_max_size_bytes = size;
            Ok(())
        };
        reply!(SnapshotMaxSizeSetResponse, self.change(claim, change).await?)
    }
}
