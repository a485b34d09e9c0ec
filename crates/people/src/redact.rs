//! Addresses, texts and documents without the secrets they may hold.

mod redactor;

pub use redactor::{Redactor, harvest, is_secret_name};

const HIDDEN: &str = "…";

/// A URL without a password in it and without the values of its query.
pub fn url(text: &str) -> String {
    let (address, query) = match text.split_once('?') {
        Some((address, query)) => (address, Some(query)),
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

/// The password of a URL, if it has one.
fn password(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    Some(user.split_once(':')?.1)
}

fn authority(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
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
            ("vfs:///srv/a@b:c", "vfs:///srv/a@b:c"),
            ("plain words", "plain words"),
        ] {
            assert_eq!(url(text), wanted);
        }
    }
}
