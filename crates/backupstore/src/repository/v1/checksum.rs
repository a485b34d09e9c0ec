//! What v1 names a block by: the first half of the SHA-512 of its contents. Copies are compared by the
//! whole of it.

use aws_lc_rs::digest;

use super::lanes;
use crate::block::Checksum;

impl Checksum {
    pub fn of(bytes: &[u8]) -> Self {
        Self::first_half(&sha512(bytes))
    }

    fn first_half(sum: &[u8; lanes::SUM_BYTES]) -> Self {
        let mut half = [0; Self::LEN_BYTES];
        half.iter_mut().zip(sum).for_each(|(to, from)| *to = *from);
        Self::new(half)
    }

    /// Those of several blocks, in their order: some processors do eight at a time.
    pub fn of_each(blocks: &[&[u8]]) -> Vec<Self> {
        sha512_of_each(blocks).iter().map(Self::first_half).collect()
    }
}

fn sha512(bytes: &[u8]) -> [u8; lanes::SUM_BYTES] {
    let sum = digest::digest(&digest::SHA512, bytes);
    let mut whole = [0; lanes::SUM_BYTES];
    whole.iter_mut().zip(sum.as_ref()).for_each(|(to, from)| *to = *from);
    whole
}

/// The SHA-512 of each, in their order: some processors do eight at a time, if they are of one length.
pub fn sha512_of_each(blocks: &[&[u8]]) -> Vec<[u8; lanes::SUM_BYTES]> {
    let mut sums = Vec::with_capacity(blocks.len());
    for group in blocks.chunks(lanes::LANES) {
        // A lane that is left is filled with the first block.
        let lane = |lane: usize| group.get(lane).or(group.first()).copied().unwrap_or_default();
        // Unoptimised, lanes are slower by far than the library, which never is.
        let is_faster = group.len() >= lanes::LANES_MIN && !cfg!(debug_assertions);
        let together = is_faster.then(|| lanes::together(std::array::from_fn(lane))).flatten();
        match together {
            Some(all) => sums.extend(all.into_iter().take(group.len())),
            None => sums.extend(group.iter().map(|block| sha512(block))),
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_the_first_half_of_sha_512() {
        let text = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a";
        assert_eq!(Checksum::of(b"abc").to_string(), text);
        assert_eq!(Checksum::parse(text), Some(Checksum::of(b"abc")));
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
}
