//! The socket: plain on loopback, TLS elsewhere; limits against slow and greedy clients.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tasks::{Stop, Tasks, WriteTimeout};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::caller::Caller;
use crate::places::Places;

/// When accepting fails (no file descriptors left), trying again at once would only burn CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const MAX_CONNECTIONS: usize = 512;
/// A request line and its headers must be there by then; a connection without one ends.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);
/// A client that takes nothing of an answer for so long is cut off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A listener and how those are served who come to it.
pub struct Door {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Door").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Door {
    pub fn new(listener: TcpListener, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        Self { listener, tls: tls.map(TlsAcceptor::from) }
    }

    /// Accepts until the task tree stops; connections then finish what they are at.
    pub async fn serve(self, router: Router, tasks: Tasks) {
        let stop = tasks.stop_signal();
        let places = Places::new(MAX_CONNECTIONS);
        while let Some(accepted) = stop.or_stop(self.listener.accept()).await {
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {}", telemetry::Chain(&error));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let place = places.take(peer.ip());
            let (router, tls) = (router.clone(), self.tls.clone());
            tasks.spawn_draining("connection", move |stop| async move {
                place.leave.run_until_cancelled(enter(stream, tls, router, &stop)).await;
            });
        }
    }
}

async fn enter(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router, stop: &Stop) {
    // Answers are small; without it they wait for a timer.
    let _ = stream.set_nodelay(true);
    let caller = Caller::of(&stream).await;
    let Some(tls) = tls else { return speak(Box::new(stream), caller, router, stop).await };
    let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
    match stop.or_stop(shaken).await {
        Some(Ok(Ok(stream))) => speak(Box::new(stream), caller, router, stop).await,
        Some(Ok(Err(error))) => tracing::debug!(%error, "a TLS handshake failed"),
        Some(Err(_)) | None => {}
    }
}

/// With TLS or without: HTTP is compiled once for both.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn speak(stream: Box<dyn Stream>, caller: Caller, router: Router, stop: &Stop) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT);
    let stream = TokioIo::new(WriteTimeout::new(stream, WRITE_TIMEOUT));
    let router = router.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller);
        request
    });
    let connection = builder.serve_connection(stream, TowerToHyperService::new(router));
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.stopping() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended with an error");
    }
}
