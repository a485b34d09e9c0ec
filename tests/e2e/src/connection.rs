//! One HTTPS connection to an API server, with a bearer token: what the raw suites and the
//! benchmark speak with. HTTP/1.1, one request at a time.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where a server is, whom to trust there and who calls.
#[derive(Debug, Clone)]
pub struct Endpoint {
    host: String,
    port: u16,
    token: String,
    tls: Arc<ClientConfig>,
}

impl Endpoint {
    pub fn new(url: &str, ca_pem: &[u8], token: &str) -> Self {
        let url: Uri = url.parse().unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            host: url.host().unwrap().trim_matches(['[', ']']).to_owned(),
            port: url.port_u16().unwrap_or(443),
            token: token.to_owned(),
            tls: Arc::new(tls),
        }
    }

    /// The same server, another caller; an empty token is none.
    #[must_use]
    pub fn as_user(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    pub async fn tcp(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A TLS stream without a word of HTTP said yet.
    pub async fn tls(&self) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        TlsConnector::from(self.tls.clone()).connect(name, self.tcp().await?).await
    }

    pub async fn connect(&self) -> io::Result<Connection> {
        let stream = TokioIo::new(self.tls().await?);
        let (sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Its error is also the error of the request that waits for an answer.
            let _ = connection.await;
        });
        Ok(Connection {
            sender,
            _driver: driver,
            host: format!("{}:{}", self.host, self.port),
            authorization: format!("Bearer {}", self.token),
        })
    }
}

#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<()>,
    host: String,
    authorization: String,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The body, or null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn code(&self) -> u16 {
        self.status.as_u16()
    }

    /// `metadata.resourceVersion` as a number.
    pub fn revision(&self) -> u64 {
        revision(&self.json())
    }
}

/// `metadata.resourceVersion` as a number; 0 if there is none.
pub fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok()).unwrap_or(0)
}

pub const JSON: &str = "application/json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";

impl Connection {
    /// Sends a request and waits for its whole answer. `body` is its type and bytes.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<(&str, Bytes)>,
    ) -> io::Result<Answer> {
        let answer = self.open(method, path, body).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        Ok(Answer { status, headers, body })
    }

    async fn open(
        &mut self,
        method: &str,
        path: &str,
        body: Option<(&str, Bytes)>,
    ) -> io::Result<http::Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::ACCEPT, JSON);
        if self.authorization != "Bearer " {
            request = request.header(header::AUTHORIZATION, &self.authorization);
        }
        let mut bytes = Bytes::new();
        if let Some((content_type, given)) = body {
            request = request.header(header::CONTENT_TYPE, content_type);
            bytes = given;
        }
        let request = request.body(Full::new(bytes)).map_err(io::Error::other)?;
        self.sender.ready().await.map_err(io::Error::other)?;
        self.sender.send_request(request).await.map_err(io::Error::other)
    }

    pub async fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.send("GET", path, None).await
    }

    pub async fn post(&mut self, path: &str, body: &Value) -> io::Result<Answer> {
        self.send("POST", path, Some((JSON, body.to_string().into()))).await
    }

    pub async fn put(&mut self, path: &str, body: &Value) -> io::Result<Answer> {
        self.send("PUT", path, Some((JSON, body.to_string().into()))).await
    }

    pub async fn merge(&mut self, path: &str, body: &Value) -> io::Result<Answer> {
        self.send("PATCH", path, Some((MERGE_PATCH, body.to_string().into()))).await
    }

    pub async fn delete(&mut self, path: &str) -> io::Result<Answer> {
        self.send("DELETE", path, None).await
    }

    /// Gives the connection to a watch, open when this returns.
    pub async fn watch(mut self, path: &str) -> io::Result<Events> {
        let answer = self.open("GET", path, None).await?;
        let status = answer.status();
        Ok(Events {
            status,
            body: answer.into_body(),
            buffer: BytesMut::new(),
            looked: 0,
            _connection: self,
        })
    }
}

/// The lines of a watch.
#[derive(Debug)]
pub struct Events {
    pub status: StatusCode,
    body: Incoming,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    looked: usize,
    _connection: Connection,
}

impl Events {
    /// The next line as it came; none when the stream has ended or broken.
    pub async fn line(&mut self) -> Option<Bytes> {
        loop {
            let fresh = self.buffer.get(self.looked..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.looked + at + 1).freeze();
                self.looked = 0;
                return Some(line);
            }
            self.looked = self.buffer.len();
            let frame = self.body.frame().await?.ok()?;
            if let Ok(chunk) = frame.into_data() {
                self.buffer.extend_from_slice(&chunk);
            }
        }
    }

    /// The next event.
    pub async fn next(&mut self) -> Option<Value> {
        let line = self.line().await?;
        Some(serde_json::from_slice(&line).unwrap())
    }
}
