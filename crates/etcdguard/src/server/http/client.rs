//! One HTTP request to a neighbour: the leading sidecar, or etcd's wrapper. Bounded in time and
//! size.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tasks::Tasks;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Lists of snapshots are the largest answers.
const BODY_MAX_BYTES: usize = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("{0} is no address of a server")]
    Address(Url),
    #[error("cannot connect to {address}")]
    Connect { address: String, source: std::io::Error },
    #[error("{address} did not answer in time")]
    Late { address: String },
    #[error("cannot speak to {address}")]
    Speak { address: String, source: hyper::Error },
    #[error("the answer of {address} cannot be read: {why}")]
    Answer { address: String, why: String },
    #[error("the authorities in {path} cannot be read: {why}")]
    Authorities { path: String, why: String },
}

/// Whom to trust when speaking TLS.
#[derive(Debug, Clone)]
pub struct Trust(Arc<rustls::ClientConfig>);

impl Trust {
    /// The authorities of a PEM file. Without a file nobody is trusted, and TLS fails.
    pub fn of(path: &str) -> Result<Self, RequestError> {
        let mut roots = rustls::RootCertStore::empty();
        if !path.is_empty() {
            let error = |why: String| RequestError::Authorities { path: path.to_owned(), why };
            let found = CertificateDer::pem_file_iter(path).map_err(|it| error(it.to_string()))?;
            for certificate in found {
                let certificate = certificate.map_err(|it| error(it.to_string()))?;
                roots.add(certificate).map_err(|it| error(it.to_string()))?;
            }
        }
        let config = rustls::ClientConfig::builder();
        Ok(Self(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
    }
}

/// Sends one request without a body and reads the whole answer.
pub async fn request(
    method: Method,
    target: &Url,
    trust: &Trust,
    timeout: Duration,
    tasks: &Tasks,
) -> Result<Response<Bytes>, RequestError> {
    let late = || RequestError::Late { address: target.authority().to_owned() };
    tokio::time::timeout(timeout, ask(method, target, trust, tasks)).await.map_err(|_| late())?
}

async fn ask(
    method: Method,
    target: &Url,
    trust: &Trust,
    tasks: &Tasks,
) -> Result<Response<Bytes>, RequestError> {
    let bad = || RequestError::Address(target.clone());
    let host = target.host_str().ok_or_else(bad)?;
    let port = target.port_or_known_default().ok_or_else(bad)?;
    // The brackets of an IPv6 address belong to the URL.
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let address = target.authority().to_owned();
    let failed = |source| RequestError::Connect { address: address.clone(), source };
    let connecting =
        tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((name.as_str(), port)));
    let stream = connecting
        .await
        .map_err(|_| RequestError::Late { address: address.clone() })?
        .map_err(failed)?;
    if target.scheme() != "https" {
        return exchange(method, target, stream, tasks).await;
    }
    let name = ServerName::try_from(name).map_err(|_| bad())?;
    let connector = TlsConnector::from(Arc::clone(&trust.0));
    let stream = connector.connect(name, stream).await.map_err(failed)?;
    exchange(method, target, stream, tasks).await
}

async fn exchange<S>(
    method: Method,
    target: &Url,
    stream: S,
    tasks: &Tasks,
) -> Result<Response<Bytes>, RequestError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let address = target.authority().to_owned();
    let failed = |source| RequestError::Speak { address: address.clone(), source };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tasks.spawn("outgoing request", async move {
        // What went wrong is told to the one who asked.
        let _ = connection.await;
    });
    let path = target
        .query()
        .map_or_else(|| target.path().to_owned(), |query| format!("{}?{query}", target.path()));
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, &address)
        .body(Empty::<Bytes>::new())
        .map_err(|_| RequestError::Address(target.clone()))?;
    let answer = sender.send_request(request).await.map_err(failed)?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, BODY_MAX_BYTES).collect().await;
    let body =
        body.map_err(|why| RequestError::Answer { address, why: why.to_string() })?.to_bytes();
    Ok(Response::from_parts(head, body))
}
