//! Where the etcd is and how to get in.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

/// The settings of one etcd and of the cluster it is part of.
#[derive(Debug, Clone)]
pub struct ConnectionConfig {
    /// Of the member that is guarded. Only the first is asked for status.
    pub endpoints: Vec<String>,
    /// Of the cluster as a whole, for membership calls. Empty: as `endpoints`.
    pub service_endpoints: Vec<String>,
    /// Used only when both are set.
    pub username: String,
    pub password: SecretString,
    pub connection_timeout: Duration,
    pub snapshot_timeout: Duration,
    /// For each member.
    pub defrag_timeout: Duration,
    /// Decides for endpoints that name no scheme: false, or any TLS file, means TLS.
    pub insecure_transport: bool,
    pub insecure_skip_verify: bool,
    pub tls: TlsFiles,
    /// The longest request in bytes; 0 leaves it to etcd.
    pub max_call_send_message_size: usize,
}

/// PEM files; read again for each connection, so that renewed ones are taken up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Whom to trust; the system's authorities if there is none.
    pub authority: Option<PathBuf>,
}

impl TlsFiles {
    fn any(&self) -> bool {
        self.certificate.is_some() || self.key.is_some() || self.authority.is_some()
    }
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            service_endpoints: Vec::new(),
            username: String::new(),
            password: SecretString::default(),
            connection_timeout: Duration::from_secs(30),
            snapshot_timeout: Duration::from_mins(15),
            defrag_timeout: Duration::from_mins(8),
            insecure_transport: true,
            insecure_skip_verify: false,
            tls: TlsFiles::default(),
            max_call_send_message_size: 0,
        }
    }
}

impl ConnectionConfig {
    /// An endpoint with the scheme it is spoken to.
    pub(super) fn with_scheme(&self, endpoint: &str) -> String {
        if endpoint.contains("://") {
            return endpoint.to_owned();
        }
        let scheme = if self.insecure_transport && !self.tls.any() { "http" } else { "https" };
        format!("{scheme}://{endpoint}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_an_endpoint_is_its_own_or_follows_the_settings() {
        let plain = ConnectionConfig::default();
        assert_eq!(plain.with_scheme("10.0.0.1:2379"), "http://10.0.0.1:2379");
        assert_eq!(plain.with_scheme("https://a:1"), "https://a:1");
        let secure = ConnectionConfig { insecure_transport: false, ..plain.clone() };
        assert_eq!(secure.with_scheme("a:1"), "https://a:1");
        assert_eq!(secure.with_scheme("http://a:1"), "http://a:1");
        let tls = TlsFiles { authority: Some("ca.pem".into()), ..TlsFiles::default() };
        let named = ConnectionConfig { tls, ..plain };
        assert_eq!(named.with_scheme("a:1"), "https://a:1");
    }
}
