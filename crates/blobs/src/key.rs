//! Names of objects. A key that exists is safe: it cannot climb out of a directory, and every
//! store writes it the same way.

use std::fmt;

/// What S3 allows.
const KEY_MAX_BYTES: usize = 1024;
/// What file systems allow between two slashes.
const SEGMENT_MAX_BYTES: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("a key cannot be empty")]
    Empty,
    #[error("the key has {len_bytes} bytes; {KEY_MAX_BYTES} are allowed")]
    TooLong { len_bytes: usize },
    #[error("the key {key:?} has a part of more than {SEGMENT_MAX_BYTES} bytes")]
    PartTooLong { key: String },
    #[error("the key {key:?} has an empty part: no slash at its ends, and none after another")]
    EmptyPart { key: String },
    #[error("the key {key:?} has a part that is only dots")]
    Dots { key: String },
    #[error("the key {key:?} has a control character or a backslash")]
    Character { key: String },
}

/// The name of an object: parts with slashes between them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    pub fn parse(key: &str) -> Result<Self, KeyError> {
        let owned = || key.to_owned();
        if key.is_empty() {
            return Err(KeyError::Empty);
        }
        if key.len() > KEY_MAX_BYTES {
            return Err(KeyError::TooLong { len_bytes: key.len() });
        }
        if key.chars().any(|c| c.is_control() || c == '\\') {
            return Err(KeyError::Character { key: owned() });
        }
        for part in key.split('/') {
            match part {
                "" => return Err(KeyError::EmptyPart { key: owned() }),
                "." | ".." => return Err(KeyError::Dots { key: owned() }),
                long if long.len() > SEGMENT_MAX_BYTES => {
                    return Err(KeyError::PartTooLong { key: owned() });
                }
                _ => {}
            }
        }
        Ok(Self(owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, out)
    }
}

impl std::str::FromStr for Key {
    type Err = KeyError;

    fn from_str(key: &str) -> Result<Self, KeyError> {
        Self::parse(key)
    }
}

/// The objects under a folder, or all of them. Whole parts only: `a/b` holds `a/b/c`, and neither
/// `a/bc` nor `a/b` itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prefix(Option<Key>);

impl Prefix {
    pub const ROOT: Self = Self(None);

    /// The empty string is the root.
    pub fn parse(prefix: &str) -> Result<Self, KeyError> {
        if prefix.is_empty() { Ok(Self::ROOT) } else { Key::parse(prefix).map(Self::from) }
    }

    pub fn folder(&self) -> Option<&Key> {
        self.0.as_ref()
    }

    pub fn holds(&self, key: &Key) -> bool {
        self.0.as_ref().is_none_or(|folder| {
            key.0.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
        })
    }
}

impl From<Key> for Prefix {
    fn from(folder: Key) -> Self {
        Self(Some(folder))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |folder| folder.fmt(out))
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_that_could_climb_or_differ_are_refused() {
        let long = "x".repeat(256);
        for bad in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/.", "a\0b", "a\nb"] {
            assert!(Key::parse(bad).is_err(), "{bad:?}");
        }
        for bad in ["a\\..\\b", long.as_str(), "x/".repeat(600).as_str()] {
            assert!(Key::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "a/b/c.cfg", ".hidden", "...", "a b", "é/ü", "100%", "a:b@c+d=e"] {
            assert_eq!(Key::parse(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn a_prefix_holds_its_folder_and_no_sibling() {
        let prefix = Prefix::parse("a/b").unwrap();
        for (key, held) in [("a/b/c", true), ("a/b/c/d", true), ("a/b", false), ("a/bc", false)] {
            assert_eq!(prefix.holds(&Key::parse(key).unwrap()), held, "{key}");
            assert!(Prefix::ROOT.holds(&Key::parse(key).unwrap()));
        }
    }

    proptest! {
        #[test]
        fn noise_is_refused_or_stays_below_the_root(noise in "[a.:/\\\\\u{0}\u{e9} ]{0,20}|.{0,40}") {
            if let Ok(key) = Key::parse(&noise) {
                let plain = |part| matches!(part, Component::Normal(_));
                prop_assert!(Path::new(key.as_str()).components().all(plain));
                prop_assert_eq!(key.to_string(), noise);
            }
        }
    }
}
