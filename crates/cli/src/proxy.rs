//! Which servers are asked around a proxy that the environment names. The client takes the proxy for
//! every server, this machine included, which no proxy elsewhere can reach.

use std::net::IpAddr;

use kube::Config;

/// The configuration without its proxy, where the server is to be asked directly.
pub fn around(mut config: Config) -> Config {
    let exceptions = ["NO_PROXY", "no_proxy"].map(|it| std::env::var(it).unwrap_or_default());
    let host = config.cluster_url.host().unwrap_or_default();
    if is_direct(host, &exceptions.join(",")) {
        config.proxy_url = None;
    }
    config
}

/// Whether a host is this machine, or among the exceptions: names with what is below them, addresses and
/// ranges of them, or `*` for all.
fn is_direct(host: &str, exceptions: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|it| it.to_canonical().is_loopback()) {
        return true;
    }
    exceptions.split(',').map(str::trim).filter(|it| !it.is_empty()).any(|exception| {
        let name = exception.trim_start_matches("*.").trim_start_matches('.').to_ascii_lowercase();
        let is_below =
            host.strip_suffix(&name).is_some_and(|it| it.is_empty() || it.ends_with('.'));
        let is_in =
            address.is_some_and(|address| range(exception).is_some_and(|it| holds(it, address)));
        exception == "*" || is_below || is_in
    })
}

fn range(text: &str) -> Option<(IpAddr, u32)> {
    let (first, bits) = text.split_once('/')?;
    Some((first.parse().ok()?, bits.parse().ok()?))
}

fn holds((first, bits): (IpAddr, u32), address: IpAddr) -> bool {
    match (first, address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => {
            let shift = 32_u32.saturating_sub(bits);
            let cut = |it: u32| it.checked_shr(shift).unwrap_or(0);
            cut(first.to_bits()) == cut(address.to_bits())
        }
        (IpAddr::V6(first), IpAddr::V6(address)) => {
            let shift = 128_u32.saturating_sub(bits);
            let cut = |it: u128| it.checked_shr(shift).unwrap_or(0);
            cut(first.to_bits()) == cut(address.to_bits())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_exceptions_are_asked_directly() {
        for host in ["127.0.0.1", "localhost", "[::1]", "::1", "127.3.2.1"] {
            assert!(is_direct(host, ""), "{host}");
        }
        let exceptions = "10.0.0.0/8, .svc.local,example.org,192.168.1.7,fd00::/8";
        for host in
            ["10.9.8.7", "api.svc.local", "svc.local", "a.example.org", "192.168.1.7", "fd12::1"]
        {
            assert!(is_direct(host, exceptions), "{host}");
            assert!(!is_direct(host, ""), "{host}");
        }
        for host in ["11.0.0.1", "anexample.org", "192.168.1.70", "fe80::1", "example.com"] {
            assert!(!is_direct(host, exceptions), "{host}");
            assert!(is_direct(host, "*"), "{host}");
        }
    }
}
