//! Names of volumes, backups and locks, and checksums, which name blocks. A value that exists is a
//! name that the layout can hold: it has no slash and no leading dot.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;

use super::lanes;
use crate::error::Error;

/// What a file system allows, less what the layout adds (`backup_`, `.cfg`).
const NAME_MAX_BYTES: usize = 240;

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

/// The first half of a SHA-512; written as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum([u8; Self::LEN_BYTES]);

impl Checksum {
    const LEN_BYTES: usize = 32;

    pub fn of(bytes: &[u8]) -> Self {
        let sum = digest::digest(&digest::SHA512, bytes);
        let mut half = [0; Self::LEN_BYTES];
        half.iter_mut().zip(sum.as_ref()).for_each(|(to, from)| *to = *from);
        Self(half)
    }

    /// Those of several blocks, in their order: some processors do eight at a time.
    pub fn of_each(blocks: &[&[u8]]) -> Vec<Self> {
        let mut sums = Vec::with_capacity(blocks.len());
        for group in blocks.chunks(lanes::LANES) {
            // A lane that is left is filled with the first block.
            let lane = |lane: usize| group.get(lane).or(group.first()).copied().unwrap_or_default();
            // Unoptimised, lanes are slower by far than the library, which never is.
            let is_faster = group.len() >= lanes::LANES_MIN && !cfg!(debug_assertions);
            let together =
                is_faster.then(|| lanes::first_halves(std::array::from_fn(lane))).flatten();
            match together {
                Some(all) => sums.extend(all.into_iter().take(group.len()).map(Self)),
                None => sums.extend(group.iter().map(|block| Self::of(block))),
            }
        }
        sums
    }

    pub(crate) fn first_byte(&self) -> u8 {
        let [first, ..] = self.0;
        first
    }

    /// Its first bytes as a number: as good as drawn by lot.
    pub fn lot(&self) -> u64 {
        self.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// Lower-case digits only: another spelling would be another object.
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
        if pairs.len() != Self::LEN_BYTES {
            return None;
        }
        let mut sum = [0; Self::LEN_BYTES];
        for (to, [high, low]) in sum.iter_mut().zip(pairs) {
            *to = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(sum))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&hex(&self.0))
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

impl fmt::Debug for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
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

    #[test]
    fn a_checksum_is_the_first_half_of_sha_512() {
        let text = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a";
        assert_eq!(Checksum::of(b"abc").to_string(), text);
        assert_eq!(Checksum::parse(text), Some(Checksum::of(b"abc")));
        assert_eq!(Checksum::parse(&text.to_uppercase()), None);
        assert_eq!(Checksum::parse(&text[2..]), None);
        assert_eq!(Checksum::parse(&format!("{text}00")), None);
        assert_eq!(
            Checksum::parse("../../../../../../../../../../../../../../../../../../../../a"),
            None
        );
    }

    #[test]
    fn checksums_of_several_are_those_of_each() {
        for count in 0_u8..10 {
            let blocks: Vec<Vec<u8>> = (0..count).map(|n| vec![n; 4096]).collect();
            let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
            let each: Vec<Checksum> = blocks.iter().map(|block| Checksum::of(block)).collect();
            assert_eq!(Checksum::of_each(&blocks), each);
        }
    }

    proptest! {
        #[test]
        fn noise_is_refused_or_kept(noise in ".{0,70}|[0-9a-f]{60,66}") {
            if let Some(sum) = Checksum::parse(&noise) {
                prop_assert_eq!(sum.to_string(), noise.clone());
            }
            if let Ok(name) = Name::parse(&noise) {
                prop_assert_eq!(name.to_string(), noise);
            }
        }
    }
}
