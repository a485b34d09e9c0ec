//! The TLS side of the NBD server, from PEM files.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::TlsFiles;
use crate::frontend::FrontendError;

pub(super) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, FrontendError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed("protocol versions", &error))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| unusable(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(
                verifier.build().map_err(|error| unusable(path, &error))?,
            )
        }
    };
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key, &error))?;
    let config = builder
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(|error| unusable(&files.certificate, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FrontendError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let found: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(path, &"it holds no certificate"));
    }
    Ok(found)
}

fn unusable(path: &Path, error: &impl std::fmt::Display) -> FrontendError {
    failed(&path.display().to_string(), error)
}

fn failed(what: &str, error: &impl std::fmt::Display) -> FrontendError {
    FrontendError::Failed(format!("cannot set up TLS for nbd: {what}: {error}"))
}
