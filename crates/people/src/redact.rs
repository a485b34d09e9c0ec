//! Addresses, texts and documents without the secrets they may hold.

mod redactor;

pub use redactor::{Redactor, harvest, is_secret_name};

const HIDDEN: &str = "…";

/// A URL without a password in it and without the values of its query.
pub fn url(text: &str) -> String {
    let begin = text.find("://").map_or(0, |at| at + 3);
    let end = begin + text.get(begin..).map_or(0, end_of_authority);
    let query = text.get(end..).and_then(|it| it.find('?')).map(|at| end + at);
    let (address, query) = match query {
        Some(at) => (text.split_at(at).0, text.get(at + 1..)),
        None => (text, None),
    };
    let mut shown = authority(address);
    if let Some(query) = query {
        let parts: Vec<String> = query
            .split('&')
            .map(|part| match part.split_once('=') {
                Some((key, _)) => format!("{key}={HIDDEN}"),
                None => part.to_owned(),
            })
            .collect();
        shown = format!("{shown}?{}", parts.join("&"));
    }
    shown
}

/// A URL without a password in it, and otherwise as it is: to be copied.
pub fn without_password(text: &str) -> String {
    authority(text)
}

/// The password of a URL, if it has one.
fn password(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let (authority, _) = rest.split_at(end_of_authority(rest));
    let (user, _) = authority.rsplit_once('@')?;
    Some(user.split_once(':')?.1)
}

/// Where the part with users and hosts ends: at a slash or a question mark, unless that is one of a password
/// which was written as it is.
fn end_of_authority(rest: &str) -> usize {
    let end_from = |from: usize| {
        let found = rest.get(from..).and_then(|it| it.find(['/', '?']));
        found.map_or(rest.len(), |at| from + at)
    };
    let end = end_from(0);
    let is_port = |it: &str| it.bytes().all(|it| it.is_ascii_digit());
    let is_cut = rest.get(..end).is_some_and(|it| {
        !it.contains('@') && it.split_once(':').is_some_and(|(_, tail)| !is_port(tail))
    });
    let at = rest.get(end..).and_then(|it| it.find('@')).filter(|_| is_cut);
    at.map_or(end, |at| end_from(end + at))
}

fn authority(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let (authority, path) = rest.split_at(end_of_authority(rest));
    let Some((user, host)) = authority.rsplit_once('@') else { return address.to_owned() };
    match user.split_once(':') {
        // A token in the place of a user.
        None if matches!(scheme, "http" | "https") => format!("{scheme}://{HIDDEN}@{host}{path}"),
        // `s3://bucket@region/`: no secret.
        None => address.to_owned(),
        Some((user, _)) => format!("{scheme}://{user}:{HIDDEN}@{host}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_values_of_queries_are_hidden() {
        for (text, wanted) in [
            ("s3://bucket@region/path", "s3://bucket@region/path"),
            ("cifs://ann:pa@ss@host/share", "cifs://ann:…@host/share"),
            ("postgres://u:p@h:5432/db?sslmode=require&x", "postgres://u:…@h:5432/db?sslmode=…&x"),
            ("https://token@host/x", "https://…@host/x"),
            ("cifs://ann:pa/ss@host/share", "cifs://ann:…@host/share"),
            ("https://host:8443/a@b", "https://host:8443/a@b"),
            ("vfs:///srv/a@b:c", "vfs:///srv/a@b:c"),
            ("plain words", "plain words"),
        ] {
            assert_eq!(url(text), wanted);
        }
    }
}
