//! The socket: TLS, HTTP/1.1 and HTTP/2, limits against slow and greedy clients, a clean end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::dispatch::{self, PeerCertificate};
use crate::doors::{Doors, Limits, Place};
use crate::pki::Clients;
use crate::server::Server;
use tasks::WriteTimeout;

/// A connection that has not said what it wants by then is closed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The first request of a connection must be there by then.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Longer than clients keep idle connections (90 s is usual), so that it is they who close them: a
/// request must not meet a connection that is just being closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
const MAX_STREAMS: u32 = 1000;
/// What a client may send ahead of what is read, on a stream and on all of a connection.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// What is written ahead of what a stream may send.
const STREAM_BUFFER_BYTES: usize = 64 * 1024;
const SAY_AGAIN_AFTER: Duration = Duration::from_mins(1);
const MAX_HEADER_BYTES: usize = 64 * 1024;
const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;
/// When accepting fails (no file descriptors left), trying again at once would only burn CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until the task tree stops; connections then finish what they are at.
pub(crate) async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    clients: Clients,
    limits: Limits,
) {
    let stop = server.tasks.token();
    let doors = Doors::new(limits.within(open_files()));
    let rejections = telemetry::Seldom::new(SAY_AGAIN_AFTER);
    let acceptor = TlsAcceptor::from(tls);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(unsaid) = rejections.pass() {
                    tracing::warn!(%error, unsaid, "cannot accept a connection");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = doors.enter();
        let (server, acceptor, clients) = (server.clone(), acceptor.clone(), clients.clone());
        let name = "connection";
        server.clone().tasks.spawn_draining(name, move |_stop| async move {
            connection(server, acceptor, clients, stream, peer, place).await;
        });
    }
}

async fn connection(
    server: Arc<Server>,
    acceptor: TlsAcceptor,
    clients: Clients,
    stream: TcpStream,
    peer: SocketAddr,
    place: Place,
) {
    let stop = server.tasks.token();
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
    let tls = tokio::select! {
        () = stop.cancelled() => return,
        () = place.guest.leave.cancelled() => return,
        handshake = handshake => match handshake {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
        },
    };
    let certificate = tls.get_ref().1.peer_certificates().map(|chain| match chain.first() {
        Some(own) if clients.trusts(chain) => PeerCertificate::Trusted(Bytes::copy_from_slice(own)),
        _ => PeerCertificate::Stranger,
    });
    let place = Arc::new(place);
    let arrived = CancellationToken::new();
    let silent = silence(arrived.clone());
    let inside = Arc::clone(&place);
    let service = service_fn(move |request: Request<Incoming>| {
        arrived.cancel();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(inside.visit());
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        let server = server.clone();
        async move { Ok::<_, std::convert::Infallible>(dispatch::handle(server, request).await) }
    });
    let server_timeout = place.write_timeout();
    let builder = http_builder();
    let tls = WriteTimeout::new(tls, server_timeout);
    let connection = builder.serve_connection(TokioIo::new(tls), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = silent => return tracing::debug!(%peer, "no request came in time"),
        () = place.guest.leave.cancelled() => {
            return tracing::debug!(%peer, "a connection without credentials gave way to a newcomer");
        }
        () = place.stalls() => return tracing::debug!(%peer, "no answer is being taken"),
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended with an error");
    }
}

/// How many files this process may have open, after it has asked for all that it can get.
fn open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit { current: now.maximum, maximum: now.maximum };
    let raised = now.current != now.maximum && setrlimit(Resource::Nofile, most).is_ok();
    let limit = if raised { now.maximum } else { now.current };
    limit.unwrap_or(u64::MAX)
}

/// Ends when no request has arrived in time; never once one has.
async fn silence(arrived: CancellationToken) {
    let waited = tokio::time::timeout(FIRST_REQUEST_TIMEOUT, arrived.cancelled()).await;
    if waited.is_ok() {
        std::future::pending::<()>().await;
    }
}

fn http_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(STREAM_BUFFER_BYTES)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_pending_accept_reset_streams(Some(64));
    builder
}
