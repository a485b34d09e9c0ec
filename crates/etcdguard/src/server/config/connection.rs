//! How to reach etcd.

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Span;

/// What is printed in place of a password.
const HIDDEN: &str = "***";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdConnectionConfig {
    pub endpoints: Vec<String>,
    pub service_endpoints: Vec<String>,
    pub username: String,
    #[serde(serialize_with = "hide", deserialize_with = "take")]
    pub password: SecretString,
    pub connection_timeout: Span,
    pub snapshot_timeout: Span,
    pub defrag_timeout: Span,
    pub insecure_transport: bool,
    pub insecure_skip_verify: bool,
    pub cert_file: String,
    pub key_file: String,
    pub ca_file: String,
    pub max_call_send_msg_size: usize,
}

impl Default for EtcdConnectionConfig {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            service_endpoints: Vec::new(),
            username: String::new(),
            password: SecretString::default(),
            connection_timeout: Span::from_secs(30),
            snapshot_timeout: Span::from_secs(15 * 60),
            defrag_timeout: Span::from_secs(8 * 60),
            insecure_transport: true,
            // A flag has the other default; the dialect wants it so.
            insecure_skip_verify: false,
            cert_file: String::new(),
            key_file: String::new(),
            ca_file: String::new(),
            max_call_send_msg_size: 0,
        }
    }
}

fn hide<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    let hidden = if secret.expose_secret().is_empty() { "" } else { HIDDEN };
    serializer.serialize_str(hidden)
}

fn take<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}
