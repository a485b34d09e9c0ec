//! Seals: how one who has verified a block by its name tells others so, at a fraction of what verifying
//! costs. A seal is a keyed sum over the block as it is unpacked, bound to its name; only those who
//! have the key can make one, and whoever checks it notices any other byte. It says who vouches, not
//! what is true: whoever has the key is believed.

use std::fmt;
use std::num::NonZeroU64;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{digest, rand};

use crate::block::Checksum;

/// Tells this use of a key from any other.
const LABEL: &[u8] = b"holdfast restore seal 1";

/// 64 bits of a message authentication code; none is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal(NonZeroU64);

impl Seal {
    pub fn from_number(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    pub fn number(self) -> u64 {
        self.0.get()
    }
}

/// A key for seals, and its name.
pub struct Sealer {
    key: LessSafeKey,
    name: [u8; Self::NAME_BYTES],
}

impl Sealer {
    pub const KEY_BYTES: usize = 32;
    const NAME_BYTES: usize = 16;

    /// A key that those share who were told the same secret and work on the same: each of `about` is
    /// part of the key. None where the secret is no secret, or a part is not known.
    pub fn shared(secret: &[u8], about: &[&str]) -> Option<Self> {
        if secret.len() != Self::KEY_BYTES || about.iter().any(|part| part.is_empty()) {
            return None;
        }
        let mut sum = digest::Context::new(&digest::SHA512);
        sum.update(LABEL);
        for part in about {
            sum.update(&part.len().to_le_bytes());
            sum.update(part.as_bytes());
        }
        sum.update(secret);
        let sum = sum.finish();
        let (key, rest) = sum.as_ref().split_at_checked(Self::KEY_BYTES)?;
        let name = *rest.first_chunk()?;
        Some(Self { key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?), name })
    }

    /// A key that nobody else has: its seals are for its owner. None where the system has no secrets to
    /// give.
    pub fn own() -> Option<Self> {
        let mut secret = [0; Self::KEY_BYTES];
        rand::fill(&mut secret).ok()?;
        Self::shared(&secret, &[])
    }

    /// Tells keys apart, and says nothing about them.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// To be asked only about a block that was just verified.
    pub fn seal(&self, block: &Checksum, content: &[u8]) -> Option<Seal> {
        // A number is to be used for one content only, and one name has one content: a seal is never
        // made before that was seen.
        let nonce = Nonce::assume_unique_for_key(*block.bytes().first_chunk::<NONCE_LEN>()?);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(content), &mut []).ok()?;
        let number = u64::from_le_bytes(*tag.as_ref().first_chunk()?);
        Some(Seal(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)))
    }

    /// Whether it is the seal of that block with that content.
    pub fn fits(&self, seal: Seal, block: &Checksum, content: &[u8]) -> bool {
        self.seal(block, content) == Some(seal)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sealer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_one_key_one_name_and_one_content() {
        let sealer = Sealer::shared(&[7; 32], &["volume", "backup"]).unwrap();
        let same = Sealer::shared(&[7; 32], &["volume", "backup"]).unwrap();
        let block = vec![3; 4096];
        let name = Checksum::of(&block);
        let seal = sealer.seal(&name, &block).unwrap();
        assert!(same.fits(seal, &name, &block) && same.name() == sealer.name());
        for at in [0, 63, 64, 2000, 4095] {
            let mut other = block.clone();
            other[at] ^= 1;
            assert!(!sealer.fits(seal, &name, &other), "at {at}");
        }
        assert!(!sealer.fits(seal, &Checksum::of(b"other"), &block));
        assert!(!sealer.fits(seal, &name, &block[1..]));
        let others = [
            Sealer::shared(&[8; 32], &["volume", "backup"]),
            Sealer::shared(&[7; 32], &["volumeb", "ackup"]),
            Sealer::own(),
        ];
        for other in others {
            let other = other.unwrap();
            assert!(!other.fits(seal, &name, &block) && other.name() != sealer.name());
        }
        assert!(Sealer::shared(&[7; 31], &["volume"]).is_none());
        assert!(Sealer::shared(&[7; 32], &["volume", ""]).is_none(), "one that is not known");
    }
}
