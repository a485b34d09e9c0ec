//! Which addresses a tenant's storage location may name. Pure: names are not looked up.
//!
//! The executor asks whatever address stands there, from where it is. Without a list it refuses what only
//! those inside can reach: this machine, the link, the administrators' own network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// An entry of `allowedEndpoints`: `[scheme://]host[:port]`, where the host may begin with `*.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    scheme: Option<String>,
    /// All hosts below it.
    is_suffix: bool,
    host: String,
    port: Option<u16>,
}

impl Endpoint {
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, text),
        };
        let (is_suffix, rest) = match rest.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let read = read(&format!("{}://{rest}", scheme.unwrap_or("http")))?;
        // A port is one that was written.
        let has_port = rest.trim_end_matches('/').rsplit_once(':').is_some_and(|(_, port)| {
            !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit())
        });
        let is_plain = read.path() == "/" && read.query().is_none() && read.fragment().is_none();
        let host = host(&read);
        (is_plain && !host.contains('*')).then(|| Self {
            scheme: scheme.map(str::to_lowercase),
            is_suffix,
            host,
            port: read.port_or_known_default().filter(|_| has_port),
        })
    }

    fn allows(&self, url: &Url) -> bool {
        let host = host(url);
        let fits = if self.is_suffix {
            host.strip_suffix(&self.host).is_some_and(|rest| rest.ends_with('.'))
        } else {
            host == self.host
        };
        fits && self.scheme.as_deref().is_none_or(|it| it == url.scheme())
            && self.port.is_none_or(|it| Some(it) == url.port_or_known_default())
    }
}

/// Why an address may not be named. `allowed`: the administrators' list; `is_local`: tenants are on this
/// machine and reach what it reaches.
pub fn fault(text: &str, allowed: Option<&[Endpoint]>, is_local: bool) -> Option<String> {
    let Some(url) = read(text) else {
        return Some("is not an address; write it as https://s3.example.com".to_owned());
    };
    let shown = host(&url);
    match allowed {
        Some(list) if list.iter().any(|it| it.allows(&url)) => None,
        Some(_) => Some(format!(
            "is restricted, the administrator does not allow {shown}; ask for it in allowedEndpoints"
        )),
        None if !is_local && is_inner(&url) => Some(format!(
            "is restricted, {shown} is an inner address; an administrator can allow it in \
             allowedEndpoints"
        )),
        None => None,
    }
}

fn read(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https");
    (is_web && url.has_host() && url.username().is_empty() && url.password().is_none())
        .then_some(url)
}

/// As it is compared: in lower case, without the dot at its end.
fn host(url: &Url) -> String {
    url.host_str().unwrap_or_default().trim_end_matches('.').to_owned()
}

fn is_inner(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(_)) => {
            let name = host(url);
            name == "localhost" || name.ends_with(".localhost") || is_metadata(&name)
        }
        Some(Host::Ipv4(address)) => is_inner_v4(address),
        Some(Host::Ipv6(address)) => is_inner_v6(address),
        None => true,
    }
}

/// Where clouds answer to machines, credentials among other things.
fn is_metadata(name: &str) -> bool {
    matches!(name, "metadata" | "metadata.google.internal" | "instance-data")
}

/// Where one cloud answers to its machines, at an address that looks like any other.
const WIRE_SERVER: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

fn is_inner_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    first == 0
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        // Between a provider and its customers.
        || first == 100 && (64..128).contains(&second)
        // Given out for protocols and for measuring, or not at all: some clouds answer there.
        || (first, second, third) == (192, 0, 0)
        || first == 198 && (18..20).contains(&second)
        || first >= 240
        || address == WIRE_SERVER
}

fn is_inner_v6(address: Ipv6Addr) -> bool {
    let [first, second, third, .., high, low] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    // The same addresses in other words: mapped, translated, compatible, and through relays.
    let is_translated = (first, second) == (0x64, 0xff9b);
    let is_compatible = address.to_ipv4().is_some();
    let inner = match first {
        0x2002 => Some(v4(second, third)),
        _ if is_translated || is_compatible => Some(v4(high, low)),
        _ => None,
    };
    match inner {
        Some(inner) => is_inner_v4(inner),
        None => {
            IpAddr::V6(address).is_unspecified()
                || address.is_loopback()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || address.is_multicast()
                // Once for sites, and tunnels whose other end is written backwards.
                || first & 0xffc0 == 0xfec0
                || (first, second) == (0x2001, 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_addresses_are_refused_however_they_are_written() {
        for text in [
            "http://127.0.0.1:24900",
            "http://127.1",
            "http://2130706433",
            "http://0x7f000001/",
            "http://0",
            "http://localhost:9000",
            "http://LOCALHOST.",
            "http://a.localhost",
            "https://[::1]:9000",
            "http://[::ffff:127.0.0.1]",
            "http://[64:ff9b::a00:1]",
            "http://[fe80::1]",
            "http://[fd00::1]",
            "http://169.254.169.254/latest",
            "http://metadata.google.internal",
            "http://10.0.0.1",
            "http://172.16.3.4",
            "http://192.168.1.1",
            "http://100.64.0.1",
            "http://168.63.129.16",
            "http://192.0.0.192",
            "http://198.18.0.1",
            "http://240.0.0.1",
            "http://[::127.0.0.1]",
            "http://[::ffff:168.63.129.16]",
            "http://[2002:7f00:1::]",
            "http://[2002:a9fe:a9fe::1]",
            "http://[fec0::1]",
            "http://[2001:0:1::1]",
        ] {
            let why = fault(text, None, false).unwrap_or_else(|| panic!("{text} is let through"));
            assert!(
                why.contains("is an inner address") && why.contains("allowedEndpoints"),
                "{why}"
            );
            assert_eq!(fault(text, None, true), None, "{text}: tenants are here");
        }
        for text in [
            "https://s3.example.com",
            "http://8.8.8.8:9000",
            "http://172.32.0.1",
            "http://192.0.2.1",
            "http://[2001:db8::1]",
            "http://[2002:808:808::1]",
        ] {
            assert_eq!(fault(text, None, false), None, "{text}");
        }
        for text in ["s3.example.com", "ftp://a", "http://", "http://u@127.0.0.1", "file:///etc"] {
            let why = fault(text, None, true).unwrap_or_default();
            assert!(why.starts_with("is not an address"), "{text}: {why}");
        }
    }

    #[test]
    fn a_list_allows_what_stands_in_it_and_nothing_else() {
        let list: Vec<Endpoint> =
            ["https://s3.example.com", "10.1.2.3:9000", "*.store.example", "minio.minio.svc"]
                .iter()
                .map(|it| Endpoint::parse(it).unwrap())
                .collect();
        let is_allowed = |text: &str| fault(text, Some(&list), true).is_none();
        for text in [
            "https://s3.example.com",
            "https://S3.example.com:8443/x",
            "http://10.1.2.3:9000",
            "http://a.b.store.example:80",
            "http://minio.minio.svc:9000",
        ] {
            assert!(is_allowed(text), "{text}");
        }
        for text in [
            "http://s3.example.com",
            "https://s3.example.com.evil",
            "http://10.1.2.3",
            "http://store.example",
            "http://evilstore.example",
            "https://8.8.8.8",
        ] {
            assert!(!is_allowed(text), "{text}");
        }
        for text in ["", "*", "a b", "http://x/path", "ftp://x", "*.*.x", "x:99999"] {
            assert_eq!(Endpoint::parse(text), None, "{text}");
        }
    }
}
