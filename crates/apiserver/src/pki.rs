//! The server's own certificate authority and keys, in `<data-dir>/pki/`.
//!
//! | file | what | if it is lost |
//! | --- | --- | --- |
//! | `ca.crt`, `ca.key` | the authority clients trust | every client must be given the new one |
//! | `server.crt`, `server.key` | the server's TLS identity | issued again at the next start |
//! | `admin.crt`, `admin.key` | a client with every right | issued again at the next start |
//! | `sa.key` | signs service account tokens | all such tokens die |
//!
//! The authority is made once and never again: one that is damaged or half gone is an error that
//! names the file, because replacing it silently would lock all clients out. A key is always
//! written before its certificate and kept when the certificate is renewed, so a crash between the
//! two leaves a pair that the next start completes. No key is ever logged or shown.

mod clients;
mod der;
mod files;
mod issue;
mod names;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use secrecy::{ExposeSecret, SecretString};

pub use clients::Clients;
use files::Folder;
use issue::{Authority, Purpose, Subject};

/// Common name of the administrator's certificate.
pub const ADMIN: &str = "holdfast-admin";

const CA_LIFETIME: Duration = Duration::from_hours(10 * 365 * 24);
const LEAF_LIFETIME: Duration = Duration::from_hours(2 * 365 * 24);
/// A certificate with less time left than this is renewed at start.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(180 * 24);

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error(transparent)]
    File(#[from] durable::Error),
    #[error("cannot take rights on {} from other users", path.display())]
    Rights { path: PathBuf, source: std::io::Error },
    #[error(
        "{} is damaged: {problem}. Restore it from a backup; to begin with a new certificate \
         authority, which every client must then be given, move the whole directory away",
        path.display()
    )]
    Authority { path: PathBuf, problem: String },
    #[error(
        "{} is missing, but {} is there. Restore it from a backup; to begin with a new certificate \
         authority, which every client must then be given, move the whole directory away",
        missing.display(), present.display()
    )]
    AuthorityMissing { missing: PathBuf, present: PathBuf },
    #[error(
        "{} is damaged: {problem}. Remove it together with its .key file, and both are made again \
         at the next start",
        path.display()
    )]
    Leaf { path: PathBuf, problem: String },
    #[error(
        "{} is damaged: {problem}. Restore it from a backup, or remove it: then a new one is made \
         and all service account tokens become invalid",
        path.display()
    )]
    TokenKey { path: PathBuf, problem: String },
    #[error("{0:?} is neither a host name nor an IP address")]
    BadName(String),
    #[error("a certificate for {name} cannot be made: {problem}")]
    Issue { name: String, problem: String },
    #[error("the TLS settings are not usable: {problem}")]
    Tls { problem: String },
}

/// A client's certificate and key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCert {
    pub cert_pem: String,
    pub key_pem: String,
}

impl fmt::Debug for ClientCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCert").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

/// The authority and everything it has issued for this server.
pub struct Pki {
    authority: Authority,
    admin: ClientCert,
    service_account_key: SecretString,
    server_config: Arc<rustls::ServerConfig>,
    web_config: Arc<rustls::ServerConfig>,
    clients: Clients,
    server_expires_at: Timestamp,
}

impl fmt::Debug for Pki {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pki").field("expires", &self.server_expires_at).finish_non_exhaustive()
    }
}

impl Pki {
    /// Opens the directory, and makes what is not there yet; the caller holds the lock of the data
    /// directory, so nobody else does the same meanwhile. `sans` are names and addresses beyond
    /// the usual ones under which clients reach the server.
    pub fn open(dir: &Path, sans: &[String]) -> Result<Self, PkiError> {
        Self::open_at(dir, sans, Timestamp::now())
    }

    /// Like [`Pki::open`], at a given time.
    pub fn open_at(dir: &Path, sans: &[String], now: Timestamp) -> Result<Self, PkiError> {
        let names = names::server_names(sans)?;
        let folder = Folder::open(dir)?;
        let authority = open_authority(&folder, now)?;
        let server = Subject { name: "holdfast", groups: &[], sans: &names };
        let server = open_leaf(&folder, &authority, "server", (Purpose::Server, server), now)?;
        let admin = Subject { name: ADMIN, groups: &["system:masters"], sans: &[] };
        let admin = open_leaf(&folder, &authority, "admin", (Purpose::Client, admin), now)?;
        let service_account_key = open_token_key(&folder)?;
        let clients = clients_of(&authority)?;
        Ok(Self {
            server_config: server_config(&clients, &server)?,
            web_config: web_config(&server)?,
            clients,
            server_expires_at: server.expires_at,
            admin: ClientCert {
                cert_pem: der::pem("CERTIFICATE", &admin.cert),
                key_pem: admin.key.serialize_pem(),
            },
            authority,
            service_account_key,
        })
    }

    /// The certificate clients must trust.
    pub fn ca_pem(&self) -> &str {
        self.authority.pem()
    }

    /// TLS for the listener: HTTP/2 and HTTP/1.1. A client certificate is optional, and whoever
    /// uses one asks [`Pki::clients`] first.
    pub fn server_config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.server_config)
    }

    /// TLS for pages: HTTP/1.1, and no browser is asked for a certificate.
    pub fn web_config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.web_config)
    }

    /// Which client certificates are ours.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// When the server's certificate ends. It is renewed at a start, half a year before.
    pub fn server_expires_at(&self) -> Timestamp {
        self.server_expires_at
    }

    /// The administrator's certificate, renewed at a start when it is due.
    pub fn admin(&self) -> &ClientCert {
        &self.admin
    }

    /// PKCS#8 PEM of the key for [`crate::auth::service_account::Signer`].
    pub fn service_account_key(&self) -> &SecretString {
        &self.service_account_key
    }

    /// Makes a client certificate; nothing of it is kept here.
    pub fn issue_client(
        &self,
        common_name: &str,
        organizations: &[&str],
        lifetime: Duration,
    ) -> Result<ClientCert, PkiError> {
        let key = issue::generate_key(common_name)?;
        let subject = Subject { name: common_name, groups: organizations, sans: &[] };
        let now = Timestamp::now();
        let cert = self.authority.issue(Purpose::Client, &subject, &key, now, lifetime)?;
        Ok(ClientCert { cert_pem: der::pem("CERTIFICATE", &cert), key_pem: key.serialize_pem() })
    }
}

/// Opens the authority; makes one only in a directory that has none of our files.
fn open_authority(folder: &Folder, now: Timestamp) -> Result<Authority, PkiError> {
    let (cert, key) = (folder.read("ca.crt")?, folder.read("ca.key")?);
    let damaged = |name, problem| PkiError::Authority { path: folder.path(name), problem };
    match (cert, key) {
        (Some(cert), Some(key)) => {
            let key = read_key(&key).map_err(|problem| damaged("ca.key", problem))?;
            let authority = Authority::load(&cert, key, now);
            authority.map_err(|problem| damaged("ca.crt", problem))
        }
        (Some(_), None) => Err(PkiError::AuthorityMissing {
            missing: folder.path("ca.key"),
            present: folder.path("ca.crt"),
        }),
        (None, key) => {
            // Without its certificate the key is what a first start left that was cut off; but
            // then it had issued nothing yet.
            for name in ["server.crt", "admin.crt", "sa.key"] {
                if folder.read(name)?.is_some() {
                    let (missing, present) = (folder.path("ca.crt"), folder.path(name));
                    return Err(PkiError::AuthorityMissing { missing, present });
                }
            }
            let key = match key {
                Some(pem) => read_key(&pem).map_err(|problem| damaged("ca.key", problem))?,
                None => make_key(folder, "ca.key")?,
            };
            let authority = Authority::create(key, now, CA_LIFETIME)?;
            folder.write("ca.crt", authority.pem())?;
            Ok(authority)
        }
    }
}

/// A certificate of ours with its key.
struct Leaf {
    cert: CertificateDer<'static>,
    key: KeyPair,
    expires_at: Timestamp,
}

/// Opens `NAME.crt` and `NAME.key`; issues the certificate (again) if it is missing, nearly over or
/// made for other names or by an authority that is not ours.
fn open_leaf(
    folder: &Folder,
    authority: &Authority,
    name: &str,
    (purpose, subject): (Purpose, Subject<'_>),
    now: Timestamp,
) -> Result<Leaf, PkiError> {
    let (cert_name, key_name) = (format!("{name}.crt"), format!("{name}.key"));
    let damaged = |name: &str, problem| PkiError::Leaf { path: folder.path(name), problem };
    let mut stored = folder.read(&cert_name)?;
    let key = if let Some(pem) = folder.read(&key_name)? {
        read_key(&pem).map_err(|problem| damaged(&key_name, problem))?
    } else {
        // Without its key the certificate is of no use, and it must not meet the new one.
        if stored.take().is_some() {
            folder.remove(&cert_name)?;
        }
        make_key(folder, &key_name)?
    };
    if let Some(stored) = stored {
        let cert = CertificateDer::from_pem_slice(stored.as_bytes())
            .map_err(|_| damaged(&cert_name, "it is not a certificate in PEM form".to_owned()))?;
        let until = now.saturating_add(RENEW_BEFORE).unwrap_or(Timestamp::MAX);
        let state = authority
            .inspect(&cert, &subject, &key, until)
            .map_err(|problem| damaged(&cert_name, problem.to_owned()))?;
        if let issue::State::Good { expires_at } = state {
            return Ok(Leaf { cert, key, expires_at });
        }
    }
    let cert = authority.issue(purpose, &subject, &key, now, LEAF_LIFETIME)?;
    folder.write(&cert_name, &der::pem("CERTIFICATE", &cert))?;
    let expires_at = authority.limit(now, LEAF_LIFETIME);
    Ok(Leaf { cert, key, expires_at })
}

fn read_key(pem: &str) -> Result<KeyPair, String> {
    KeyPair::from_pem(pem).map_err(|_| "it is not a private key in PEM form".to_owned())
}

fn make_key(folder: &Folder, name: &str) -> Result<KeyPair, PkiError> {
    let key = issue::generate_key(name)?;
    folder.write(name, &key.serialize_pem())?;
    Ok(key)
}

fn open_token_key(folder: &Folder) -> Result<SecretString, PkiError> {
    const NAME: &str = "sa.key";
    if let Some(pem) = folder.read(NAME)? {
        let pem = SecretString::from(pem);
        if crate::auth::service_account::Signer::new(pem.expose_secret(), "").is_err() {
            let problem = "it is not an ECDSA P-256 key in PKCS#8 PEM form".to_owned();
            return Err(PkiError::TokenKey { path: folder.path(NAME), problem });
        }
        return Ok(pem);
    }
    let pem = SecretString::from(issue::generate_key("service account tokens")?.serialize_pem());
    folder.write(NAME, pem.expose_secret())?;
    Ok(pem)
}

fn tls(error: impl fmt::Display) -> PkiError {
    PkiError::Tls { problem: error.to_string() }
}

fn clients_of(authority: &Authority) -> Result<Clients, PkiError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.der().clone()).map_err(tls)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(Clients::new(verifier.map_err(tls)?))
}

type Builder = rustls::ConfigBuilder<rustls::ServerConfig, rustls::WantsVerifier>;

fn tls_builder(server: &Leaf) -> Result<(Builder, PrivateKeyDer<'static>), PkiError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(tls)?;
    Ok((builder, PrivateKeyDer::Pkcs8(server.key.serialize_der().into())))
}

fn web_config(server: &Leaf) -> Result<Arc<rustls::ServerConfig>, PkiError> {
    let (builder, key) = tls_builder(server)?;
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(vec![server.cert.clone()], key)
        .map_err(tls)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn server_config(clients: &Clients, server: &Leaf) -> Result<Arc<rustls::ServerConfig>, PkiError> {
    let (builder, key) = tls_builder(server)?;
    let mut config = builder
        .with_client_cert_verifier(clients.in_handshake())
        .with_single_cert(vec![server.cert.clone()], key)
        .map_err(tls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests;
