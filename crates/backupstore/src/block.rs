//! Blocks as all formats have them: their names, their places, how long they are and how they are packed.
//! What a name is made of, what an object of a block looks like and where it lies is the format's
//! ([`crate::repository`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::hex;

/// The name of a block, which its contents decide; written as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum([u8; Self::LEN_BYTES]);

impl Checksum {
    pub(crate) const LEN_BYTES: usize = 32;

    pub(crate) const fn new(bytes: [u8; Self::LEN_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) fn first_byte(&self) -> u8 {
        let [first, ..] = self.0;
        first
    }

    pub(crate) fn bytes(&self) -> &[u8; Self::LEN_BYTES] {
        &self.0
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

impl fmt::Debug for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// A block and the place in the volume where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockRef {
    pub offset: u64,
    pub checksum: Checksum,
}

/// The length of all blocks of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockSize(u32);

impl BlockSize {
    pub const DEFAULT: Self = Self(2 << 20);
    const UNIT: u32 = 4096;
    const MAX: u32 = 64 << 20;

    /// Whole pages, at most 64 MiB: a lie about it must not cost more memory than that.
    pub fn from_bytes(bytes: u64) -> Option<Self> {
        let bytes = u32::try_from(bytes).ok()?;
        (bytes > 0 && bytes % Self::UNIT == 0 && bytes <= Self::MAX).then_some(Self(bytes))
    }

    pub fn bytes(self) -> u64 {
        u64::from(self.0)
    }

    pub(crate) fn len(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// How blocks are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Option<String>", into = "&'static str")]
pub enum Compression {
    None,
    /// What the absence of a name means, too.
    #[default]
    Gzip,
    Lz4,
}

impl Compression {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "gzip" | "" => Ok(Self::Gzip),
            "lz4" => Ok(Self::Lz4),
            other => Err(format!("unsupported compression method: {other}")),
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Lz4 => "lz4",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl TryFrom<Option<String>> for Compression {
    type Error = String;

    fn try_from(text: Option<String>) -> Result<Self, String> {
        Self::parse(&text.unwrap_or_default())
    }
}

impl From<Compression> for &'static str {
    fn from(method: Compression) -> Self {
        method.as_str()
    }
}

/// What all blocks of one record have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Packing {
    pub(crate) size: BlockSize,
    pub(crate) compression: Compression,
}

/// Why an object is not the block that its name says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it cannot be unpacked: {why}")]
    Packing { why: String },
    #[error("it holds {found} bytes, {expected} are a block")]
    Length { found: u64, expected: u64 },
    /// Tools look for these words.
    #[error("checksum verification failed: its contents have the checksum {found}")]
    Checksum { found: Checksum },
    /// Of a block that somebody else has verified.
    #[error("it is not what its seal was made of")]
    Seal,
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    // No comparison of slices: that would be a call for each.
    let is_zero = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all | byte) == 0;
    chunks.iter().all(|chunk| is_zero(chunk)) && is_zero(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_checksum_has_one_spelling() {
        let text = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a";
        assert_eq!(Checksum::parse(text).unwrap().to_string(), text);
        assert_eq!(Checksum::parse(&text.to_uppercase()), None);
        assert_eq!(Checksum::parse(&text[2..]), None);
        assert_eq!(Checksum::parse(&format!("{text}00")), None);
        assert_eq!(
            Checksum::parse("../../../../../../../../../../../../../../../../../../../../a"),
            None
        );
    }

    proptest! {
        #[test]
        fn noise_is_no_checksum_or_kept(noise in ".{0,70}|[0-9a-f]{60,66}") {
            if let Some(sum) = Checksum::parse(&noise) {
                prop_assert_eq!(sum.to_string(), noise);
            }
        }

        #[test]
        fn zeros_are_found(len in 0_usize..300, at in 0_usize..300) {
            let mut bytes = vec![0; len];
            prop_assert!(is_zero(&bytes));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = 1;
                prop_assert!(!is_zero(&bytes));
            }
        }
    }
}
