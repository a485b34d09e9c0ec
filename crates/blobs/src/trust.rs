//! Whose certificates are believed where a user names some: those signed by an authority of the system
//! or by one of the named, and a named one itself, also if it says that it is an authority. That is what
//! `openssl req -x509` makes, and what services on one's own machines often show.

use std::sync::Arc;

use object_store::client::HttpClient;
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::{NoProxy, Proxy, redirect};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;

use crate::open::Network;
use crate::timeouts::{CONNECT, UNACKNOWLEDGED};

/// What the library of certificates says of an authority that is shown as a service's own.
const IS_AUTHORITY: &str = "CaUsedAsEndEntity";

#[derive(Debug)]
struct Named {
    inner: Verifier,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judged = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match judged {
            // Its times are checked before this is said, its names are not.
            Err(error) if says_authority(&error) && self.named.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn says_authority(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            other.to_string().contains(IS_AUTHORITY)
        }
        _ => false,
    }
}

/// The one kind of client there is. It believes the certificates that were named too, and goes where
/// it was sent by its user only: a store that answers with another address could send what acts for a
/// tenant to any service inside the network (docs/decisions/0087).
pub(crate) fn client(
    network: &Network,
    options: &ClientOptions,
) -> object_store::Result<HttpClient> {
    let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
    let mut builder = reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .tcp_user_timeout(UNACKNOWLEDGED)
        .http1_only()
        // What is compressed on the way has another length than what is stored.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .https_only(allow_http.as_deref() != Some("true"));
    builder = match &network.ca_pem {
        _ if network.accept_any_certificate => builder.tls_danger_accept_invalid_certs(true),
        Some(pem) => builder.tls_backend_preconfigured(config(pem)?),
        None => builder,
    };
    if let Some(proxy) = &network.proxy {
        let excludes = network.proxy_excludes.as_deref().and_then(NoProxy::from_string);
        builder = builder.proxy(Proxy::all(proxy).map_err(failed)?.no_proxy(excludes));
    }
    builder.build().map(HttpClient::new).map_err(failed)
}

fn config(pem: &str) -> object_store::Result<ClientConfig> {
    let named: Vec<_> =
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(failed)?;
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
    let inner = Verifier::new_with_extra_roots(named.iter().cloned(), Arc::clone(&provider));
    let verifier = Named { inner: inner.map_err(failed)?, named };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic { store: "HTTP client", source: Box::new(error) }
}
