//! Where nobody has to show who they are, a web page must not be able to ask: a name of a stranger's
//! that is made to point at this machine makes his page one of ours, as browsers see it.

use std::net::IpAddr;

use http::{HeaderMap, header};

/// Whether a request can have come from a program of this machine, and from no page. Programs name the
/// machine by its address or as localhost; browsers tell of what page a request is.
pub(super) fn is_a_programs(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|it| it.to_str().unwrap_or_default());
    let is_named = text(header::HOST).is_none_or(is_of_this_machine);
    is_named && text(header::ORIGIN).is_none()
}

fn is_of_this_machine(host: &str) -> bool {
    let port = |it: &str| it.bytes().all(|it| it.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, it)| port(it)).map_or(host, |(name, _)| name);
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_strangers_are_told_from_programs() {
        let asked = |pairs: &[(&'static str, &'static str)]| {
            let headers: HeaderMap = pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            is_a_programs(&headers)
        };
        let names = ["127.0.0.1:8776", "localhost:8776", "LOCALHOST", "[::1]:8776", "10.0.0.7"];
        assert!(names.iter().all(|name| asked(&[("host", name)])) && asked(&[]));
        for name in [
            "evil.example:8776",
            "evil.example",
            "127.0.0.1.evil.example",
            "",
            "localhost.",
            "[evil]",
        ] {
            assert!(!asked(&[("host", name)]), "{name}");
        }
        assert!(!asked(&[("host", "127.0.0.1:8776"), ("origin", "http://127.0.0.1:7480")]));
    }
}
