//! The health service: a server that answers at all serves.

use std::pin::Pin;
use std::time::Duration;

use tokio_stream::wrappers::IntervalStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use crate::health_v1::health_check_response::ServingStatus;
use crate::health_v1::health_server::{self, HealthServer};
use crate::health_v1::{HealthCheckRequest, HealthCheckResponse};

/// How often a watcher is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    /// Once, then the stream stays open and silent.
    Once,
    EverySecond,
}

#[derive(Debug, Clone, Copy)]
pub struct Health(Watching);

impl Health {
    pub fn service(watching: Watching) -> HealthServer<Self> {
        HealthServer::new(Self(watching))
    }
}

const SERVING: HealthCheckResponse = HealthCheckResponse { status: ServingStatus::Serving as i32 };

#[tonic::async_trait]
impl health_server::Health for Health {
    async fn check(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(SERVING))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let stream: Self::WatchStream = match self.0 {
            Watching::Once => {
                Box::pin(tokio_stream::once(Ok(SERVING)).chain(tokio_stream::pending()))
            }
            Watching::EverySecond => Box::pin(
                IntervalStream::new(tokio::time::interval(Duration::from_secs(1)))
                    .map(|_| Ok(SERVING)),
            ),
        };
        Ok(Response::new(stream))
    }
}
