//! Names of volumes, backups and locks. A value that exists is a name that any layout can hold: it has no
//! slash and no leading dot.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// What a file system allows, less what the layout adds (`backup_`, `.cfg`).
pub(crate) const NAME_MAX_BYTES: usize = 240;

/// The name of a volume, a backup, a lock or a backing image.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    pub fn parse(name: &str) -> Result<Self, Error> {
        let mut bytes = name.bytes();
        let starts = bytes.next().is_some_and(|first| first.is_ascii_alphanumeric());
        let goes_on = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if starts && goes_on && (2..=NAME_MAX_BYTES).contains(&name.len()) {
            Ok(Self(name.to_owned()))
        } else {
            Err(Error::Name { name: name.chars().take(NAME_MAX_BYTES).collect() })
        }
    }

    /// `backup-` and 16 hex digits that nobody else draws.
    pub fn new_backup() -> Self {
        Self(format!("backup-{:016x}", rand::random::<u64>()))
    }

    pub(crate) fn new_lock() -> Self {
        Self(format!("lock-{:016x}", rand::random::<u64>()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, out)
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::parse(name)
    }
}

/// Lower-case digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for nibble in bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
        text.push(char::from(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0')));
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_could_climb_or_hide_are_refused() {
        let long = "x".repeat(241);
        for bad in ["", "a", ".a", "-a", "_a", "..", "a/b", "a b", "a\0", "é1", "a\n", &long] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["ab", "a-", "0..", "pvc-1_2.x", "BACKINGIMAGE"] {
            assert_eq!(Name::parse(good).unwrap().as_str(), good);
        }
        assert_eq!(Name::new_backup().as_str().len(), 23);
    }

    proptest! {
        #[test]
        fn noise_is_refused_or_kept(noise in ".{0,70}|[0-9a-f._-]{2,66}") {
            if let Ok(name) = Name::parse(&noise) {
                prop_assert_eq!(name.to_string(), noise);
            }
        }
    }
}
