//! Addresses of engines and replicas, and the ports next to them.

use std::fmt;
use std::str::FromStr;

/// `host:port` of a control server.
///
/// Callers write it as `host:port`, `tcp://host:port` or `http://host:port/v1`; data and sync
/// servers are never announced, they are at the next two ports.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    host: String,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("address {0:?} has no port: write it as host:port")]
    NoPort(String),
    #[error("address {0:?} has a port that is no number between 1 and 65533")]
    BadPort(String),
    #[error("address {0:?} has no host: write it as host:port")]
    NoHost(String),
}

impl Address {
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The host, an IPv6 one without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the replica at this control address takes reads and writes.
    #[must_use]
    pub fn data(&self) -> Self {
        self.next(1)
    }

    /// Where the sync agent of the replica at this control address listens.
    #[must_use]
    pub fn sync_agent(&self) -> Self {
        self.next(2)
    }

    /// As a gRPC client dials it.
    pub fn uri(&self) -> String {
        format!("http://{self}")
    }

    fn next(&self, steps: u16) -> Self {
        Self { host: self.host.clone(), port: self.port.saturating_add(steps) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let bare = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("http://"));
        let bare = bare.unwrap_or(text);
        let bare = bare.strip_suffix("/v1").unwrap_or(bare);
        let (host, port) =
            bare.rsplit_once(':').ok_or_else(|| AddressError::NoPort(text.to_owned()))?;
        let port = port.parse().ok().filter(|port| (1..=65_533).contains(port));
        let port = port.ok_or_else(|| AddressError::BadPort(text.to_owned()))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(AddressError::NoHost(text.to_owned()));
        }
        Ok(Self::new(host, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_suffix_are_stripped() {
        for text in ["tcp://10.0.0.1:9502", "http://10.0.0.1:9502/v1", "10.0.0.1:9502"] {
            assert_eq!(text.parse(), Ok(Address::new("10.0.0.1", 9502)), "{text}");
        }
    }

    #[test]
    fn data_and_sync_are_the_next_two_ports() {
        let control = Address::new("::1", 9502);
        assert_eq!(control.data().to_string(), "[::1]:9503");
        assert_eq!(control.sync_agent().to_string(), "[::1]:9504");
        assert_eq!("[::1]:9502".parse(), Ok(control));
    }

    #[test]
    fn what_is_no_address_says_why() {
        assert_eq!("host".parse::<Address>(), Err(AddressError::NoPort("host".into())));
        assert_eq!("h:x".parse::<Address>(), Err(AddressError::BadPort("h:x".into())));
        assert_eq!("h:65534".parse::<Address>(), Err(AddressError::BadPort("h:65534".into())));
        assert_eq!(":1".parse::<Address>(), Err(AddressError::NoHost(":1".into())));
    }
}
