//! The replica an agent belongs to: in this process, where it is called as what it is, or in another,
//! where it is called over gRPC. Jobs see no difference: the same verbs, the same limits of time, the
//! same words when it refuses.

use std::pin::Pin;

use futures::Stream;
use rpc::ptypes::replica_service_client::ReplicaServiceClient;
use rpc::ptypes::replica_service_server::ReplicaService as _;
use rpc::ptypes::{
    DiskMarkAsRemovedRequest, DiskMarkAsRemovedResponse, DiskPrepareRemoveRequest,
    DiskPrepareRemoveResponse, DiskRemoveRequest, DiskRemoveResponse, DiskReplaceRequest,
    DiskReplaceResponse, ReplicaGetResponse, ReplicaReloadResponse, ReplicaRevertRequest,
    ReplicaRevertResponse,
};
use rpc::upkeep::upkeep_client::UpkeepClient;
use rpc::upkeep::upkeep_server::Upkeep as _;
use rpc::upkeep::{FilledRequest, FilledResponse, MergeHeadParentProgress, MergeHeadParentRequest};
use rpc::{Address, Deadline, Identity, Peer};
use tonic::{Request, Response, Status};

use super::dial;
use super::error::JobError;
use crate::server::{Service, UpkeepService};

/// Where the replica is.
#[derive(Debug)]
pub(crate) enum Own {
    Here { replica: Service, upkeep: UpkeepService },
    There { address: Address, identity: Identity },
}

impl Own {
    pub(super) fn replica(&self, deadline: Deadline) -> Result<OwnReplica, JobError> {
        Ok(match self {
            Self::Here { replica, .. } => OwnReplica::Here(replica.clone(), deadline),
            Self::There { address, identity } => {
                let peer = dial(address, identity.clone(), deadline)?;
                OwnReplica::There(ReplicaServiceClient::new(peer))
            }
        })
    }

    pub(super) fn upkeep(&self, deadline: Deadline) -> Result<OwnUpkeep, JobError> {
        Ok(match self {
            Self::Here { upkeep, .. } => OwnUpkeep::Here(upkeep.clone(), deadline),
            Self::There { address, identity } => {
                let peer = dial(address, identity.clone(), deadline)?;
                OwnUpkeep::There(UpkeepClient::new(peer))
            }
        })
    }
}

type Reply<T> = Result<Response<T>, Status>;

/// The common verbs.
#[derive(Debug)]
pub(super) enum OwnReplica {
    Here(Service, Deadline),
    There(ReplicaServiceClient<Peer>),
}

/// What a sync agent of ours asks beyond them.
#[derive(Debug)]
pub(super) enum OwnUpkeep {
    Here(UpkeepService, Deadline),
    There(UpkeepClient<Peer>),
}

macro_rules! verbs {
    ($kind:ident: $($name:ident($request:ty) -> $response:ty;)*) => {
        impl $kind {$(
            pub(super) async fn $name(&mut self, request: $request) -> Reply<$response> {
                match self {
                    Self::Here(own, deadline) => {
                        within(*deadline, own.$name(Request::new(request))).await
                    }
                    Self::There(client) => client.$name(request).await,
                }
            }
        )*}
    };
}

verbs! { OwnReplica:
    replica_get(()) -> ReplicaGetResponse;
    replica_reload(()) -> ReplicaReloadResponse;
    replica_revert(ReplicaRevertRequest) -> ReplicaRevertResponse;
    disk_mark_as_removed(DiskMarkAsRemovedRequest) -> DiskMarkAsRemovedResponse;
    disk_prepare_remove(DiskPrepareRemoveRequest) -> DiskPrepareRemoveResponse;
    disk_remove(DiskRemoveRequest) -> DiskRemoveResponse;
    disk_replace(DiskReplaceRequest) -> DiskReplaceResponse;
}

verbs! { OwnUpkeep:
    filled(FilledRequest) -> FilledResponse;
}

/// How far a merge is, as often as there is something to tell.
pub(super) type Merging =
    Pin<Box<dyn Stream<Item = Result<MergeHeadParentProgress, Status>> + Send>>;

impl OwnUpkeep {
    pub(super) async fn merge_head_parent(
        &mut self,
        request: MergeHeadParentRequest,
    ) -> Reply<Merging> {
        match self {
            Self::Here(own, deadline) => {
                within(*deadline, own.merge_head_parent(Request::new(request))).await
            }
            Self::There(client) => {
                let begun = client.merge_head_parent(request).await?;
                Ok(begun.map(|steps| Box::pin(steps) as Merging))
            }
        }
    }
}

/// A disk that hangs holds up the data thread, not the job: what gRPC would say after that time.
async fn within<T>(deadline: Deadline, call: impl Future<Output = Reply<T>>) -> Reply<T> {
    let late = |_| Status::cancelled("Timeout expired");
    tokio::time::timeout(deadline.duration(), call).await.unwrap_or_else(|at| Err(late(at)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_replica_that_hangs_is_given_up_as_over_the_network() {
        let deadline = Deadline::After(Duration::from_millis(1));
        let hung = within::<()>(deadline, std::future::pending()).await.unwrap_err();
        assert_eq!((hung.code(), hung.message()), (tonic::Code::Cancelled, "Timeout expired"));
    }
}
