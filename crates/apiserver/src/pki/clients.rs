//! Client certificates are judged after the handshake: a stranger's certificate is then an answer
//! (401, or whatever else the request proves) instead of a broken connection that nobody can
//! explain. The handshake itself proves that the client has the key of its certificate.
//!
//! Never: lets a certificate pass as an identity that [`Clients::trusts`] did not accept.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Knows which client certificates are ours.
#[derive(Clone)]
pub struct Clients(Arc<dyn ClientCertVerifier>);

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Clients {
    pub(super) fn new(verifier: Arc<dyn ClientCertVerifier>) -> Self {
        Self(verifier)
    }

    /// Is the first certificate signed by our authority, for clients, and valid now?
    pub fn trusts(&self, chain: &[CertificateDer<'_>]) -> bool {
        chain.split_first().is_some_and(|(own, others)| {
            self.0.verify_client_cert(own, others, UnixTime::now()).is_ok()
        })
    }

    /// What the handshake asks.
    pub(super) fn in_handshake(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Possession(Arc::clone(&self.0)))
    }
}

/// Accepts any certificate whose key the client has.
#[derive(Debug)]
struct Possession(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Possession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
