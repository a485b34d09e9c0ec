//! Calls to engines, replicas and sync agents.

use std::io;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::codegen::InterceptedService;
use tonic::service::Interceptor;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::service_fn;

use crate::{Address, Identity, SharedClaim, dial};

/// How long a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Three minutes, for calls that only change metadata.
    Usual,
    /// A day, for calls that copy data and answer at the end.
    Long,
    After(Duration),
}

impl Deadline {
    /// As long as it is.
    pub fn duration(self) -> Duration {
        match self {
            Self::Usual => Duration::from_mins(3),
            Self::Long => Duration::from_hours(24),
            Self::After(duration) => duration,
        }
    }
}

/// A connection that sends names along with every call; hand it to a generated client.
pub type Peer = InterceptedService<Channel, Caller>;

/// Adds the expected names to each call.
#[derive(Debug, Clone)]
pub struct Caller(Identity, SharedClaim);

impl Interceptor for Caller {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        self.0.attach(&mut request);
        self.1.attach(request.metadata_mut());
        crate::trace::attach(request.metadata_mut());
        Ok(request)
    }
}

const CONNECT: Duration = Duration::from_secs(10);
const BULK_STREAM_BYTES: u32 = 4 << 20;
const BULK_CONNECTION_BYTES: u32 = 16 << 20;

/// Makes a peer that connects at its first call, so that a peer that is not there is an error of
/// the call: code `UNAVAILABLE`.
///
/// # Errors
/// If the address is no valid host and port.
pub fn connect(
    address: &Address,
    expected: Identity,
    deadline: Deadline,
) -> Result<Peer, tonic::transport::Error> {
    connect_claimed(address, expected, deadline, SharedClaim::default())
}

/// [`connect`] for an engine: its calls carry its claim.
///
/// # Errors
/// If the address is no valid host and port.
pub fn connect_claimed(
    address: &Address,
    expected: Identity,
    deadline: Deadline,
    claim: SharedClaim,
) -> Result<Peer, tonic::transport::Error> {
    let channel = endpoint(address, deadline)?.connect_with_connector_lazy(service_fn(reach));
    Ok(InterceptedService::new(channel, Caller(expected, claim)))
}

/// [`connect`] for answers of megabytes: they are not to wait for leave to be sent on.
///
/// # Errors
/// If the address is no valid host and port.
pub fn connect_bulk(
    address: &Address,
    expected: Identity,
    deadline: Deadline,
) -> Result<Peer, tonic::transport::Error> {
    let channel = endpoint(address, deadline)?
        .initial_stream_window_size(BULK_STREAM_BYTES)
        .initial_connection_window_size(BULK_CONNECTION_BYTES)
        .connect_with_connector_lazy(service_fn(reach));
    Ok(InterceptedService::new(channel, Caller(expected, SharedClaim::default())))
}

fn endpoint(address: &Address, deadline: Deadline) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(address.uri())?.connect_timeout(CONNECT).timeout(deadline.duration()))
}

async fn reach(uri: Uri) -> io::Result<TokioIo<TcpStream>> {
    let host = uri.host().unwrap_or_default();
    // An IPv6 address stands in brackets there.
    let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    let port = uri.port_u16().unwrap_or_default();
    dial((host, port)).await.map(TokioIo::new)
}
