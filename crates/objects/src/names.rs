//! Which strings may name things: objects, labels, annotations, finalizers, keys of a `ConfigMap`.
//!
//! Owns: the syntax of names. Never: knows which object a name belongs to. Every check returns the
//! detail of the rejection; the caller adds the field.

/// Longest DNS subdomain, in bytes.
pub const SUBDOMAIN_MAX: usize = 253;
/// Longest DNS label, label value and name part of a label key, in bytes.
pub const LABEL_MAX: usize = 63;
/// Bytes of `generateName` that survive; the rest of a DNS label is left for the suffix.
pub const GENERATED_BASE_MAX: usize = 58;
/// Characters of a generated suffix.
pub const SUFFIX_LEN: usize = 5;
/// What suffixes are drawn from: no vowels and no look-alikes, so that no words appear.
pub const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// How the name of an object is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameRule {
    /// DNS subdomain: labels joined by dots.
    #[default]
    Subdomain,
    /// One DNS label.
    Label,
    /// One DNS label that starts with a letter (Services).
    LetterLabel,
    /// Anything that can be one segment of a URL path (RBAC).
    PathSegment,
}

impl NameRule {
    pub fn check(self, name: &str) -> Result<(), String> {
        match self {
            Self::Subdomain => dns_subdomain(name),
            Self::Label => dns_label(name),
            Self::LetterLabel => letter_label(name),
            Self::PathSegment => path_segment(name),
        }
    }

    /// Checks a `generateName`, which may end where a suffix would go on.
    pub fn check_base(self, base: &str) -> Result<(), String> {
        match self {
            Self::PathSegment => path_segment(base),
            _ => self.check(&format!("{}a", base.trim_end_matches('-'))),
        }
    }
}

/// The name made from `generateName` and a random suffix the caller drew from [`SUFFIX_ALPHABET`].
pub fn generated(base: &str, suffix: &str) -> String {
    let mut end = base.len().min(GENERATED_BASE_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", base.get(..end).unwrap_or_default())
}

pub fn dns_subdomain(name: &str) -> Result<(), String> {
    at_most(name, SUBDOMAIN_MAX)?;
    if name.split('.').all(is_label) {
        return Ok(());
    }
    Err("must be lower-case letters, digits, '-' and '.', each dotted part starting and ending \
         with a letter or digit (a DNS subdomain, for example 'example.com')"
        .to_owned())
}

pub fn dns_label(name: &str) -> Result<(), String> {
    at_most(name, LABEL_MAX)?;
    if is_label(name) {
        return Ok(());
    }
    Err("must be lower-case letters, digits and '-', starting and ending with a letter or digit \
         (a DNS label, for example 'my-name')"
        .to_owned())
}

/// A DNS label that starts with a letter.
pub fn letter_label(name: &str) -> Result<(), String> {
    dns_label(name)?;
    if name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Ok(());
    }
    Err("must start with a lower-case letter".to_owned())
}

/// A name of an RBAC object: `system:discovery` is fine, what breaks a URL path is not.
pub fn path_segment(name: &str) -> Result<(), String> {
    match name {
        "" => Err("must not be empty".to_owned()),
        "." | ".." => Err(format!("may not be '{name}'")),
        _ if name.contains(['/', '%']) => Err("may not contain '/' or '%'".to_owned()),
        _ => Ok(()),
    }
}

/// A label key, annotation key or finalizer: `[prefix/]name`.
pub fn qualified_name(key: &str) -> Result<(), String> {
    let name = match key.split_once('/') {
        Some((prefix, name)) => {
            dns_subdomain(prefix).map_err(|detail| format!("prefix part {detail}"))?;
            name
        }
        None => key,
    };
    if name.is_empty() {
        return Err("name part must not be empty".to_owned());
    }
    at_most(name, LABEL_MAX).map_err(|detail| format!("name part {detail}"))?;
    if is_word(name) {
        return Ok(());
    }
    Err("name part must be letters, digits, '-', '_' and '.', starting and ending with a letter or \
         digit, with an optional DNS subdomain and '/' before it (for example 'example.com/my.name')"
        .to_owned())
}

pub fn label_value(value: &str) -> Result<(), String> {
    at_most(value, LABEL_MAX)?;
    if value.is_empty() || is_word(value) {
        return Ok(());
    }
    Err("a label value must be empty or letters, digits, '-', '_' and '.', starting and ending with \
         a letter or digit (for example 'my_value')"
        .to_owned())
}

/// A key of a `ConfigMap` or Secret; it may become a file name.
pub fn config_key(key: &str) -> Result<(), String> {
    at_most(key, SUBDOMAIN_MAX)?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(fits) {
        return Err("a key must be letters, digits, '-', '_' and '.', and not empty (for example \
                    'key.name')"
            .to_owned());
    }
    // Mounted volumes keep their own bookkeeping under names that start with two dots.
    if key == "." || key.starts_with("..") {
        return Err("a key may not be '.' nor start with '..'".to_owned());
    }
    Ok(())
}

fn at_most(value: &str, max: usize) -> Result<(), String> {
    if value.len() <= max {
        return Ok(());
    }
    Err(format!("must be no more than {max} bytes"))
}

fn is_label(part: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    edges(part, fits) && part.bytes().all(|byte| fits(byte) || byte == b'-')
}

fn is_word(word: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric();
    edges(word, fits) && word.bytes().all(|byte| fits(byte) || matches!(byte, b'-' | b'_' | b'.'))
}

/// Whether the first and last byte satisfy `fits`; false for the empty string.
fn edges(text: &str, fits: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&byte| fits(byte)) && bytes.last().is_some_and(|&byte| fits(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(check: fn(&str) -> Result<(), String>, good: &[&str], bad: &[&str]) {
        for name in good {
            assert_eq!(check(name), Ok(()), "{name:?}");
        }
        for name in bad {
            assert!(check(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn names_follow_their_tables() {
        let long = "a".repeat(64);
        let longer = "a".repeat(254);
        table(
            dns_label,
            &["a", "a-b", "0a", &"a".repeat(63)],
            &["", "a.b", "A", "-a", "a-", &long],
        );
        table(letter_label, &["a", "a0"], &["0a", ""]);
        table(
            dns_subdomain,
            &["a", "a.b-c.d0", &"a".repeat(253)],
            &["", ".", "a..b", "a.", ".a", "a_b", "A", "a/b", "é", &longer],
        );
        table(path_segment, &["system:discovery", "A b", "..."], &["", ".", "..", "a/b", "a%b"]);
        table(
            qualified_name,
            &["a", "A_b.c-d", "x.io/A", "kubernetes.io/metadata.name"],
            &["", "/a", "x.io/", "X.io/a", "a/b/c", "-a", "a b", &long, &format!("x.io/{long}")],
        );
        table(label_value, &["", "a", "A_b.c-1"], &["-a", "a.", "a b", "a/b", &long]);
        table(config_key, &["a", ".a", "A_b.c-1", "-"], &["", ".", "..", "..a", "a/b", &longer]);
    }

    #[test]
    fn a_base_may_end_where_the_suffix_goes_on() {
        assert!(NameRule::Subdomain.check_base("backup-").is_ok());
        assert!(NameRule::Label.check_base("a.b-").is_err());
        assert!(NameRule::PathSegment.check_base("system:x-").is_ok());
    }

    #[test]
    fn a_generated_name_is_cut_before_the_suffix() {
        assert_eq!(generated("a-", "bcdfg"), "a-bcdfg");
        let name = generated(&"x".repeat(80), "bcdfg");
        assert_eq!((name.len(), name.ends_with("xbcdfg")), (63, true));
    }

    proptest! {
        #[test]
        fn noise_never_panics(name in ".{0,300}", suffix in "[a-z]{5}") {
            let _ = (dns_subdomain(&name), dns_label(&name), letter_label(&name));
            let _ = (path_segment(&name), qualified_name(&name), label_value(&name));
            let _ = (config_key(&name), NameRule::Label.check_base(&name));
            prop_assert!(generated(&name, &suffix).len() <= GENERATED_BASE_MAX + SUFFIX_LEN);
        }

        #[test]
        fn every_label_is_a_subdomain(name in "[a-z0-9-]{0,70}") {
            prop_assert!(dns_label(&name).is_err() || dns_subdomain(&name).is_ok());
        }
    }
}
