//! The methods of `holdfast.engine.v1.Volume`, which the dialect does not have: what commands of the
//! dialect ask of one replica after the other. No decision is made here.

use rpc::volume::volume_server::Volume;
use rpc::volume::{PurgeReply, PurgeRequest, ReplicaError, RestoreReply, RestoreRequest};
use rpc::{HeadParent, text};
use tonic::{Request, Response, Status};

use crate::machine::outcome::Left;
use crate::machine::restore::Rejection;

use super::purge::Wanted;
use super::service::Service;

fn errors(left: Vec<Left>) -> Vec<ReplicaError> {
    let error = |Left { address, message }| ReplicaError { address, message };
    left.into_iter().map(error).collect()
}

#[tonic::async_trait]
impl Volume for Service {
    async fn restore(
        &self,
        request: Request<RestoreRequest>,
    ) -> Result<Response<RestoreReply>, Status> {
        let wish = request.into_inner();
        let begun = self.owned("restore", |engine| async move { engine.restore(wish).await });
        match begun.await? {
            Ok(left) | Err(Rejection::Copies(left)) => {
                Ok(Response::new(RestoreReply { errors: errors(left) }))
            }
            Err(Rejection::Plain(why) | Rejection::Purge(why)) => Err(text(why)),
        }
    }

    async fn purge(&self, request: Request<PurgeRequest>) -> Result<Response<PurgeReply>, Status> {
        let PurgeRequest { fold_head_parent, skip_if_in_progress } = request.into_inner();
        let head_parent = if fold_head_parent { HeadParent::Fold } else { HeadParent::Keep };
        let wanted = Wanted { head_parent, skips: skip_if_in_progress };
        let begun = self.owned("purge", move |engine| async move { engine.purge(wanted).await });
        let left = begun.await?.map_err(text)?;
        Ok(Response::new(PurgeReply { errors: errors(left) }))
    }
}
