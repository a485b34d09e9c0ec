//! The profiler switch. Holdfast has no profiling port to open: it says so, and how to profile it.

use tonic::{Request, Response, Status};

use crate::profilerrpc::profiler_server::{self, ProfilerServer};
use crate::profilerrpc::{Op, ProfilerOpReply, ProfilerOpRequest};

#[derive(Debug, Clone, Copy, Default)]
pub struct Profiler;

impl Profiler {
    pub fn service() -> ProfilerServer<Self> {
        ProfilerServer::new(Self)
    }
}

#[tonic::async_trait]
impl profiler_server::Profiler for Profiler {
    async fn profiler_op(
        &self,
        request: Request<ProfilerOpRequest>,
    ) -> Result<Response<ProfilerOpReply>, Status> {
        match request.get_ref().request_op() {
            // An empty address is how the dialect says "not running".
            Op::Show | Op::Disable => Ok(Response::new(ProfilerOpReply::default())),
            Op::Enable => Err(Status::unimplemented(
                "this server has no profiling port; profile the process with `perf record -p PID`",
            )),
        }
    }
}
