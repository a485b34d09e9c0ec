//! Connections to endpoints, plain or with TLS. What certificate is shown and who is trusted is
//! read for each connection.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::Service;

use super::TlsFiles;

/// Where systems keep the authorities they trust, the first that is there.
const SYSTEM_AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const HTTP2: &[u8] = b"h2";

/// Makes the connections of one client.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    pub(super) files: Arc<TlsFiles>,
    pub(super) skip_verify: bool,
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.open(&uri).await.map(TokioIo::new) })
    }
}

impl Connector {
    async fn open(&self, uri: &Uri) -> io::Result<Box<dyn Stream>> {
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().ok_or_else(|| invalid(format!("{uri} names no host")))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        if !secure {
            return Ok(Box::new(stream));
        }
        let connector = TlsConnector::from(Arc::new(self.config()?));
        let name = ServerName::try_from(host.to_owned()).map_err(invalid)?;
        Ok(Box::new(connector.connect(name, stream).await?))
    }

    fn config(&self) -> io::Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(invalid)?;
        let builder = if self.skip_verify {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        } else {
            builder.with_root_certificates(self.trusted()?)
        };
        let mut config = match (&self.files.certificate, &self.files.key) {
            (Some(certificate), Some(key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|e| unusable(key, &e))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, private)
                    .map_err(|error| unusable(certificate, &error))?
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) | (None, Some(_)) => {
                return Err(invalid(
                    "a client certificate needs its key, and the key it".to_owned(),
                ));
            }
        };
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(config)
    }

    fn trusted(&self) -> io::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let system = std::env::var_os("SSL_CERT_FILE").map(Into::into).or_else(|| {
            SYSTEM_AUTHORITIES
                .iter()
                .map(Into::into)
                .find(|path: &std::path::PathBuf| path.exists())
        });
        if let Some(path) = &self.files.authority {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| unusable(path, &error))?;
            }
        } else if let Some(path) = system {
            // A system's list may hold what is not understood: the rest still counts.
            roots.add_parsable_certificates(certificates(&path)?);
        }
        Ok(roots)
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let found: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(path, &"it holds no certificate"));
    }
    Ok(found)
}

fn unusable(path: &Path, error: &impl std::fmt::Display) -> io::Error {
    invalid(format!("cannot use {}: {error}", path.display()))
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// Takes any certificate whose key signed the handshake: what skipping the verification asks for.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
