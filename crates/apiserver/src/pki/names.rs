//! The names and addresses a server certificate must hold.

use std::net::IpAddr;

use rustls::pki_types::ServerName;

use super::PkiError;

/// A host name or an address under which clients reach the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Name {
    Address(IpAddr),
    Host(String),
}

const USUAL: &[&str] = &[
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
];

impl Name {
    /// `None`: neither a host name nor an address.
    fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Some(Self::Address(address));
        }
        let lower = text.to_ascii_lowercase();
        ServerName::try_from(lower.as_str()).ok()?;
        Some(Self::Host(lower))
    }

    /// `0.0.0.0` and `::` are where a server listens, not where a client connects.
    fn is_reachable(&self) -> bool {
        match self {
            Self::Address(address) => !address.is_unspecified(),
            Self::Host(_) => true,
        }
    }
}

/// The usual names, the name of this machine and `extra`, each once.
pub(super) fn server_names(extra: &[String]) -> Result<Vec<Name>, PkiError> {
    let mut names: Vec<Name> = USUAL.iter().filter_map(|name| Name::parse(name)).collect();
    let system = rustix::system::uname();
    // A machine's name need not be a valid host name; then nobody can ask for it either.
    names.extend(system.nodename().to_str().ok().and_then(Name::parse));
    for name in extra {
        names.push(Name::parse(name).ok_or_else(|| PkiError::BadName(name.clone()))?);
    }
    names.retain(Name::is_reachable);
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_names_join_the_usual_ones_once() {
        let extra = ["LocalHost", "10.0.0.5", "[fe80::1]", "0.0.0.0", "backup.example.org"];
        let names = server_names(&extra.map(str::to_owned)).unwrap();
        let has = |name: &str| names.contains(&Name::parse(name).unwrap());
        assert!(has("10.0.0.5") && has("fe80::1") && has("backup.example.org") && has("::1"));
        assert!(!has("0.0.0.0"));
        assert_eq!(
            names.iter().filter(|name| **name == Name::parse("localhost").unwrap()).count(),
            1
        );
    }

    #[test]
    fn a_bad_name_is_refused_by_name() {
        for bad in ["", "a b", "x\u{e9}", "-", "http://a"] {
            let refused = server_names(&[bad.to_owned()]);
            assert!(matches!(refused, Err(PkiError::BadName(name)) if name == bad), "{bad:?}");
        }
    }
}
