//! The socket: plain or TLS, limits against slow and greedy clients, a clean end.
//!
//! Never: what a request means.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderName, HeaderValue, Response, header};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tasks::{Stop, Tasks, WriteTimeout};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// A request line and its headers must be there by then.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that takes nothing of an answer for so long is cut off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_CONNECTIONS: usize = 512;
const MAX_STREAMS: u32 = 100;
const MAX_HEADER_BYTES: usize = 64 << 10;
const MAX_HEADER_LIST_BYTES: u32 = 64 << 10;
/// When accepting fails (no file descriptors left), trying again at once would only burn CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Sent with every answer over TLS.
const SECURITY_HEADERS: [(HeaderName, HeaderValue); 2] = [
    (header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000")),
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'self'")),
];

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the certificate {path}: {why}")]
    Certificate { path: String, why: String },
    #[error("cannot read the key {path}: {why}")]
    Key { path: String, why: String },
    #[error("certificate and key do not go together")]
    Pair(#[source] rustls::Error),
}

/// TLS from two PEM files.
pub fn acceptor(certificate: &str, key: &str) -> Result<TlsAcceptor, TlsError> {
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect).map_err(|why| {
            TlsError::Certificate { path: certificate.to_owned(), why: why.to_string() }
        });
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|why| TlsError::Key { path: key.to_owned(), why: why.to_string() })?;
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain?, key)
        .map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts until the task tree stops; connections then finish what they are at.
pub async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, tasks: Tasks) {
    serve_within(WRITE_TIMEOUT, listener, tls, router, tasks).await;
}

async fn serve_within(
    timeout: Duration,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    tasks: Tasks,
) {
    let stop = tasks.stop_signal();
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Some(accepted) = stop.or_stop(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => {
                // Answers are small; without it they wait for a timer.
                let _ = stream.set_nodelay(true);
                stream
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {}", telemetry::Chain(&error));
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Full: the newcomer is turned away, those inside are served.
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            tracing::warn!("too many connections ({MAX_CONNECTIONS}), refused one");
            continue;
        };
        let (tls, router) = (tls.clone(), router.clone());
        tasks.spawn_draining("connection", |stop| async move {
            connection(WriteTimeout::new(stream, timeout), tls, router, &stop).await;
            drop(slot);
        });
    }
}

async fn connection(
    stream: WriteTimeout<TcpStream>,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: &Stop,
) {
    let Some(tls) = tls else { return speak(stream, router, stop, false).await };
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
    match stop.or_stop(handshake).await {
        Some(Ok(Ok(stream))) => speak(stream, router, stop, true).await,
        Some(Ok(Err(error))) => {
            tracing::debug!("TLS handshake failed: {}", telemetry::Chain(&error));
        }
        Some(Err(_)) => tracing::debug!("TLS handshake took too long"),
        None => {}
    }
}

async fn speak<S>(stream: S, router: Router, stop: &Stop, is_secure: bool)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let router =
        if is_secure { router.layer(axum::middleware::map_response(secured)) } else { router };
    let service = TowerToHyperService::new(router);
    let builder = builder();
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.stopping() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!("a connection ended with an error: {error}");
    }
}

async fn secured(mut answer: Response<Body>) -> Response<Body> {
    answer.headers_mut().extend(SECURITY_HEADERS);
    answer
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .keep_alive_interval(Duration::from_secs(30))
        .max_pending_accept_reset_streams(Some(32));
    builder
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Far more than fits between two sockets.
    const LONG: usize = 64 << 20;

    #[tokio::test]
    async fn who_takes_no_answer_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let tasks = Tasks::new();
        let router = Router::new().route("/", axum::routing::get(|| async { vec![0; LONG] }));
        let serving =
            serve_within(Duration::from_millis(300), listener, None, router, tasks.clone());
        tasks.spawn("server", serving);
        let mut client = TcpStream::connect(at).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let connections =
            || tasks.list().iter().filter(|task| task.name.contains("connection")).count();
        for wanted in [1, 0] {
            let seen = async {
                while connections() != wanted {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let seen = tokio::time::timeout(Duration::from_secs(20), seen).await;
            seen.unwrap_or_else(|_| panic!("{} connections, not {wanted}", connections()));
        }
        drop(client);
    }
}
