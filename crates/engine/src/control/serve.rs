//! Runs the engine process: the volume first, then its control server, until told to end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rpc::ptypes::controller_service_server::ControllerServiceServer;
use rpc::volume::volume_server::VolumeServer;
use rpc::{Health, Identity, Party, Watching};
use tasks::Tasks;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tonic::Request;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::ControllerOptions;
use crate::core::start::NoBackend;
use crate::frontend::FrontendError;

use super::engine::Engine;
use super::service::Service;
use super::start::StartError;

/// Why the engine process ends other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("cannot start the data thread: {0}")]
    DataThread(#[source] io::Error),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("cannot wait for signals: {0}")]
    Signals(#[source] io::Error),
    #[error("cannot serve: {0}")]
    Serve(String),
    #[error("cannot end cleanly: {0}")]
    Shutdown(#[source] FrontendError),
    #[error("ended by a second signal, before all replicas were closed")]
    Impatient,
}

/// Said by whoever watches the process: all replicas have failed.
const EXIT_ALL_REPLICAS_FAILED: u8 = 61;

impl ControlError {
    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Start(StartError::NoBackend(NoBackend::ReplicaError(_))) => {
                EXIT_ALL_REPLICAS_FAILED
            }
            Self::Start(_)
            | Self::DataThread(_)
            | Self::Listen { .. }
            | Self::Signals(_)
            | Self::Serve(_)
            | Self::Shutdown(_)
            | Self::Impatient => 1,
        }
    }
}

/// Runs the engine of one volume until SIGINT or SIGTERM. SIGHUP keeps its default action, which
/// ends the process at once and leaves frontend and replicas to the engine that takes over.
pub fn run(options: ControllerOptions) -> BoxFuture<'static, Result<(), ControlError>> {
    // What a future does is compiled by whoever polls it: unboxed, that would be the caller.
    Box::pin(run_until_told(options))
}

async fn run_until_told(options: ControllerOptions) -> Result<(), ControlError> {
    let mut signals = Signals::new().map_err(ControlError::Signals)?;
    let listen = options.listen.clone();
    let engine = tokio::select! {
        launched = Engine::launch(options) => launched?,
        () = signals.next() => return Ok(()),
    };
    let served = match bind(&listen).await {
        Ok(listener) => tokio::select! {
            served = serve(&engine, listener) => served,
            () = signals.next() => Ok(()),
        },
        Err(source) => Err(ControlError::Listen { address: listen, source }),
    };
    let closed = tokio::select! {
        closed = engine.shutdown() => closed.map_err(ControlError::Shutdown),
        () = signals.next() => Err(ControlError::Impatient),
    };
    served.and(closed)
}

impl Engine {
    /// Starts the data thread and, if replicas are given, the volume and its frontend.
    pub async fn launch(options: ControllerOptions) -> Result<Arc<Self>, ControlError> {
        let engine = Self::new(options, Tasks::new()).map_err(ControlError::DataThread)?;
        let engine = Arc::new(engine);
        engine.watch_members();
        engine.tend_replicas();
        engine.offer_clients();
        let options = &engine.options;
        let (size, current_size) = (options.size_bytes, options.current_size_bytes);
        if let Err(error) = engine.start(&options.replicas, size, current_size).await {
            // The frontend is what can fail once replicas are open.
            if let Err(error) = engine.shutdown().await {
                tracing::error!(%error, "cannot end cleanly: {error}");
            }
            return Err(error.into());
        }
        Ok(engine)
    }
}

/// Serves `ControllerService`, what we have beyond it, and what goes with it on `listener`, for ever.
pub async fn serve(engine: &Arc<Engine>, listener: TcpListener) -> Result<(), ControlError> {
    let broken = |error: &dyn std::error::Error| ControlError::Serve(error.to_string());
    let identity = Identity {
        volume: engine.options.volume.clone(),
        instance: engine.options.instance_name.clone(),
    };
    let check = move |request: Request<()>| {
        identity.check(request.metadata(), Party::Controller)?;
        Ok(request)
    };
    let service = Service(Arc::clone(engine));
    let beyond = VolumeServer::with_interceptor(service.clone(), check.clone());
    let service = ControllerServiceServer::with_interceptor(service, check);
    let routes = rpc::common()
        .map_err(|error| broken(&error))?
        .add_service(Health::service(Watching::EverySecond))
        .add_service(service)
        .add_service(beyond);
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving volume {} at {address}", engine.options.volume);
    }
    Server::builder()
        .trace_fn(rpc::call_span)
        .tcp_keepalive(Some(KEEPALIVE))
        .add_routes(routes)
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
        .await
        .map_err(|error| broken(&error))
}

const KEEPALIVE: Duration = Duration::from_secs(30);

/// `host:port`; without a host, every address of this machine.
async fn bind(listen: &str) -> io::Result<TcpListener> {
    match listen.strip_prefix(':').map(str::parse::<u16>) {
        Some(Ok(port)) => TcpListener::bind(("0.0.0.0", port)).await,
        Some(Err(_)) | None => TcpListener::bind(listen).await,
    }
}

/// The signals that ask the process to end.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        tracing::info!("asked to end");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_all_failed_end_with_their_own_code() {
        let start = |kind| ControlError::Start(StartError::NoBackend(kind));
        let failed = start(NoBackend::ReplicaError("a: b".into()));
        assert_eq!(failed.exit_code(), 61);
        assert!(failed.to_string().starts_with("no available backend due to replica error"));
        let silent = start(NoBackend::Unavailable("a: b".into()));
        assert_eq!(silent.exit_code(), 1);
        assert!(silent.to_string().starts_with("no available backend due to service unavailable"));
        assert_eq!(ControlError::Impatient.exit_code(), 1);
    }
}
