//! Certificates of a test: an authority, and what it signed for servers and clients on loopback.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// PEM files in a directory.
#[derive(Debug, Clone)]
pub struct Pki {
    dir: PathBuf,
}

impl Pki {
    /// A new authority, with certificates for `hosts` and for a client.
    pub fn new(dir: PathBuf, hosts: &[IpAddr]) -> Self {
        std::fs::create_dir(&dir).unwrap();
        let mut authority = named(&format!("authority in {}", dir.display()), &[]);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, key()).unwrap();
        let pki = Self { dir };
        crate::write(&pki.file("ca.pem"), &authority.pem());
        pki.sign("server", hosts, &authority);
        pki.sign("client", &[], &authority);
        pki
    }

    fn sign(&self, name: &str, hosts: &[IpAddr], authority: &Issuer<'_, KeyPair>) {
        let key = key();
        let certificate = named(name, hosts).signed_by(&key, authority).unwrap();
        crate::write(&self.file(&format!("{name}.pem")), &certificate.pem());
        crate::write(&self.file(&format!("{name}.key")), &key.serialize_pem());
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn flag(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.file(name).display())
    }

    /// For an etcd that serves over TLS, and only who shows a certificate.
    pub fn of_etcd(&self) -> Vec<String> {
        vec![
            self.flag("cert-file", "server.pem"),
            self.flag("key-file", "server.key"),
            self.flag("trusted-ca-file", "ca.pem"),
            "--client-cert-auth".to_owned(),
        ]
    }

    /// For whoever asks that etcd: etcdctl and the guard have the same flags.
    pub fn of_client(&self) -> Vec<String> {
        let mut flags = vec![self.authority()];
        flags.extend([self.flag("cert", "client.pem"), self.flag("key", "client.key")]);
        flags
    }

    pub fn authority(&self) -> String {
        self.flag("cacert", "ca.pem")
    }

    /// For a guard that answers over TLS.
    pub fn of_sidecar(&self) -> Vec<String> {
        vec![self.flag("server-cert", "server.pem"), self.flag("server-key", "server.key")]
    }

    /// Trusts this authority and nobody else.
    pub fn trust(&self) -> Arc<rustls::ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority_of(&self.file("ca.pem"))).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    }
}

fn authority_of(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

fn named(name: &str, hosts: &[IpAddr]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
