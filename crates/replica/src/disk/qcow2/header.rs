//! The header of a qcow2 image. Pure: from bytes to what a reader needs, or why there is none.

use super::{Qcow2Error, damaged};

pub(crate) const MAGIC: &[u8; 4] = b"QFI\xfb";
/// As much of the header as we know; shorter ones lack the last fields.
pub(super) const HEADER_BYTES: usize = 112;
const V2_BYTES: usize = 72;
const V3_BYTES: usize = 104;

const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// As replicas have it: sums of two sizes still fit.
const SIZE_MAX_BYTES: u64 = 1 << 62;
/// The first-level table is no longer than this.
const TABLE_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Only reference counts may be wrong, and nobody reads those.
const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
/// The field with the method counts.
const COMPRESSION: u64 = 1 << 3;

const DEFLATE: u8 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) cluster_bits: u32,
    /// Of the volume.
    pub(super) size_bytes: u64,
    /// Of the first-level table, which is long enough for the volume and lies in the file.
    pub(super) table_offset: u64,
}

impl Header {
    pub(super) fn parse(bytes: &[u8], file_bytes: u64) -> Result<Self, Qcow2Error> {
        let word = |at: usize| {
            let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
            found.map(|found| u32::from_be_bytes(*found)).ok_or(Qcow2Error::Short)
        };
        let long = |at: usize| super::number_at(bytes, at).ok_or(Qcow2Error::Short);
        if !bytes.starts_with(MAGIC) || bytes.len() < V2_BYTES {
            return Err(Qcow2Error::Short);
        }
        let version = word(4)?;
        match version {
            2 => {}
            3 => check_features(bytes, long(72)?, word(100)?)?,
            other => return Err(Qcow2Error::Version(other)),
        }
        if word(32)? != 0 {
            return Err(Qcow2Error::Encrypted);
        }
        if long(8)? != 0 {
            return Err(Qcow2Error::BackingFile);
        }
        let cluster_bits = word(20)?;
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(damaged("the size of its clusters"));
        }
        let header = Self { version, cluster_bits, size_bytes: long(24)?, table_offset: long(40)? };
        header.check_table(word(36)?, file_bytes)?;
        Ok(header)
    }

    fn check_table(&self, entries: u32, file_bytes: u64) -> Result<(), Qcow2Error> {
        if self.size_bytes > SIZE_MAX_BYTES {
            return Err(damaged("its size"));
        }
        let covered = self.cluster_bytes() * (self.cluster_bytes() / 8);
        let needed = self.size_bytes.div_ceil(covered);
        let len = needed.saturating_mul(8);
        let is_good = needed <= u64::from(entries)
            && len <= TABLE_MAX_BYTES
            && self.table_offset.is_multiple_of(self.cluster_bytes())
            && self.table_offset.checked_add(len).is_some_and(|end| end <= file_bytes);
        if is_good { Ok(()) } else { Err(damaged("its first table")) }
    }

    pub(super) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }
}

fn check_features(bytes: &[u8], features: u64, header_bytes: u32) -> Result<(), Qcow2Error> {
    let header_bytes = usize::try_from(header_bytes).unwrap_or(usize::MAX);
    if bytes.len() < V3_BYTES {
        return Err(Qcow2Error::Short);
    }
    if header_bytes < V3_BYTES {
        return Err(damaged("the length of its header"));
    }
    if features & CORRUPT != 0 {
        return Err(Qcow2Error::Corrupt);
    }
    if features & EXTERNAL_DATA != 0 {
        return Err(Qcow2Error::ExternalData);
    }
    let unknown = features & !(DIRTY | COMPRESSION);
    if unknown != 0 {
        return Err(Qcow2Error::Features(unknown));
    }
    let method = bytes.get(V3_BYTES).copied().filter(|_| header_bytes > V3_BYTES);
    match method.unwrap_or(DEFLATE) {
        DEFLATE => Ok(()),
        other => Err(Qcow2Error::Compression(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_BYTES: u64 = 1 << 20;

    /// Version 3, clusters of 64 KiB, 1 GiB, the first table at 192 KiB.
    fn good() -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        for (at, value) in [(4, 3u32), (20, 16), (36, 2), (100, 112)] {
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        for (at, value) in [(24, 1u64 << 30), (40, 3 << 16)] {
            bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    fn with(at: usize, value: &[u8]) -> String {
        let mut bytes = good();
        bytes[at..at + value.len()].copy_from_slice(value);
        match Header::parse(&bytes, FILE_BYTES) {
            Ok(header) => format!("{} clusters", header.size_bytes >> header.cluster_bits),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_header_is_taken_or_refused_with_the_reason() {
        let long = u64::to_be_bytes;
        let word = u32::to_be_bytes;
        assert_eq!(with(0, MAGIC), "16384 clusters");
        assert_eq!(with(72, &long(DIRTY)), "16384 clusters");
        assert_eq!(with(4, &word(4)), "version 4 of the format is not known");
        assert_eq!(with(32, &word(2)), "it is encrypted");
        assert_eq!(with(8, &long(200)), "it has a backing file of its own; flatten it first");
        assert_eq!(with(72, &long(CORRUPT)), "it is marked as corrupt");
        assert_eq!(with(72, &long(EXTERNAL_DATA)), "it keeps its data in another file");
        assert_eq!(with(72, &long(16)), "it needs features that are not known: 0x10");
        assert_eq!(with(104, &[1]), "its compression method 1 is not known");
        assert_eq!(with(100, &word(72)), "the length of its header is damaged");
        for bits in [0, 8, 22, 64, u32::MAX] {
            assert_eq!(with(20, &word(bits)), "the size of its clusters is damaged");
        }
        assert_eq!(with(24, &long(u64::MAX)), "its size is damaged");
        for size in [(1 << 30) + 1, 1 << 62] {
            assert_eq!(with(24, &long(size)), "its first table is damaged");
        }
        for place in [1, FILE_BYTES, u64::MAX - 65_535] {
            assert_eq!(with(40, &long(place)), "its first table is damaged");
        }
        for len in 0..V3_BYTES {
            let cut = Header::parse(&good()[..len], FILE_BYTES);
            assert!(matches!(cut, Err(Qcow2Error::Short)), "{len}");
        }
    }
}
