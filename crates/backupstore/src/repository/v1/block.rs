//! Blocks: their size, how they are packed into objects, and how they are taken out again.
//!
//! What comes from a store is believed in nothing: a block that unpacks to another length, or whose
//! checksum is another, is refused, and no more is unpacked than a block can hold.

use std::io::{self, Read, Write};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::FrameDecoder;

use super::frame::{self, Rejection};
use super::json;
use crate::block::{BlockSize, Checksum, Compression, Damage, Packing};
use crate::buffers::{Buffer, BufferPool};

/// How long an object of a block may be beside the block: no packing adds more.
const PACKED_EXTRA_BYTES: u64 = 64 * 1024;

/// As in parameters: empty and 0 are the default.
pub(super) fn parse_size(text: &str) -> Result<BlockSize, String> {
    let size = match json::quantity(text) {
        None if text.is_empty() => Some(BlockSize::DEFAULT),
        Some(0) => Some(BlockSize::DEFAULT),
        Some(bytes) => BlockSize::from_bytes(bytes),
        None => None,
    };
    size.ok_or_else(|| format!("its size of blocks, {text:?}, cannot be used"))
}

/// The longest object that can be a block of this size.
pub(crate) fn object_max_bytes(size: BlockSize) -> u64 {
    size.bytes() + size.bytes() / 64 + PACKED_EXTRA_BYTES
}

/// Whether an object of this length can be the block it is named after: a writer that died may have
/// left an empty one.
pub(crate) fn is_plausible(packing: Packing, len_bytes: u64) -> bool {
    match packing.compression {
        Compression::None => len_bytes == packing.size.bytes(),
        Compression::Gzip | Compression::Lz4 => {
            (1..=object_max_bytes(packing.size)).contains(&len_bytes)
        }
    }
}

/// Packs one block.
pub fn pack(method: Compression, block: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    pack_onto(method, block, &mut out)?;
    Ok(out)
}

/// Packs one block into a buffer of the pool.
pub(crate) fn pack_in(method: Compression, block: &[u8], pool: &BufferPool) -> io::Result<Buffer> {
    let mut buffer = pool.empty(frame::packed_max(block.len()));
    pack_onto(method, block, buffer.tail())?;
    Ok(buffer)
}

fn pack_onto(method: Compression, block: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    match method {
        Compression::None => out.extend_from_slice(block),
        Compression::Gzip => {
            let mut packer = GzEncoder::new(out, flate2::Compression::default());
            packer.write_all(block)?;
            packer.finish()?;
        }
        Compression::Lz4 => frame::pack(block, out)?,
    }
    Ok(())
}

/// Takes a block out of its object and checks that it is the one that was asked for.
pub fn unpack(
    method: Compression,
    object: &[u8],
    size: BlockSize,
    expected: &Checksum,
) -> Result<Vec<u8>, Damage> {
    let block = open(method, object, size, &BufferPool::default())?;
    let found = Checksum::of(&block);
    if found == *expected { Ok(block.to_vec()) } else { Err(Damage::Checksum { found }) }
}

/// Takes a block out of its object; whether it is the right one is for the caller to see.
pub(crate) fn open(
    method: Compression,
    object: &[u8],
    size: BlockSize,
    pool: &BufferPool,
) -> Result<Buffer, Damage> {
    let plain = || inflate(object, size, pool);
    let unframe = || unframe(object, size, pool);
    let gunzip = || inflate(GzDecoder::new(object), size, pool);
    // Backing images share blocks, each packed as whoever came first packs: if it is not what was
    // announced it may be one of the others.
    match method {
        Compression::None => plain()
            .or_else(|damage| unframe().map_err(|_| damage))
            .or_else(|damage| gunzip().map_err(|_| damage)),
        Compression::Gzip => gunzip()
            .or_else(|damage| unframe().map_err(|_| damage))
            .or_else(|damage| plain().map_err(|_| damage)),
        Compression::Lz4 => unframe()
            .or_else(|damage| gunzip().map_err(|_| damage))
            .or_else(|damage| plain().map_err(|_| damage)),
    }
}

fn unframe(object: &[u8], size: BlockSize, pool: &BufferPool) -> Result<Buffer, Damage> {
    let mut block = pool.buffer(size.len());
    match frame::unpack(object, &mut block) {
        Ok(found) if found == block.len() => Ok(block),
        Ok(found) => Err(Damage::Length {
            found: u64::try_from(found).unwrap_or(u64::MAX),
            expected: size.bytes(),
        }),
        Err(Rejection::Foreign) => inflate(FrameDecoder::new(object), size, pool),
        Err(Rejection::Broken(why)) => Err(Damage::Packing { why }),
        Err(Rejection::Long) => {
            Err(Damage::Length { found: size.bytes() + 1, expected: size.bytes() })
        }
    }
}

/// One byte more than a block ends it.
fn inflate(mut from: impl Read, size: BlockSize, pool: &BufferPool) -> Result<Buffer, Damage> {
    let failed = |error: io::Error| Damage::Packing { why: error.to_string() };
    let mut block = pool.buffer(size.len());
    let mut done = 0;
    while let Some(rest) = block.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match from.read(rest).map_err(failed)? {
            0 => {
                let found = u64::try_from(done).unwrap_or(u64::MAX);
                return Err(Damage::Length { found, expected: size.bytes() });
            }
            read => done += read,
        }
    }
    // Also makes the decoder read the checksum at the end.
    match from.read(&mut [0]).map_err(failed)? {
        0 => Ok(block),
        _ => Err(Damage::Length { found: size.bytes() + 1, expected: size.bytes() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn small() -> BlockSize {
        BlockSize::from_bytes(8192).unwrap()
    }

    const METHODS: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Lz4];

    fn block() -> Vec<u8> {
        (0..8192_u32)
            .flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes())
            .take(8192)
            .collect()
    }

    #[test]
    fn a_frame_has_the_flags_of_the_format() {
        let packed = pack(Compression::Lz4, &block()).unwrap();
        assert_eq!(packed[..6], [0x04, 0x22, 0x4d, 0x18, 0x64, 0x70]);
        // One chunk, the end mark and the checksum of the contents: chunks have none of their own.
        let chunk = u32::from_le_bytes(packed[7..11].try_into().unwrap()) & 0x7fff_ffff;
        assert_eq!(packed.len(), 11 + usize::try_from(chunk).unwrap() + 8);
    }

    #[test]
    fn what_was_packed_comes_back() {
        for (method, block) in METHODS.into_iter().flat_map(|m| [(m, block()), (m, vec![0; 8192])])
        {
            let packed = pack(method, &block).unwrap();
            let sum = Checksum::of(&block);
            assert_eq!(unpack(method, &packed, small(), &sum).unwrap(), block);
            assert!(packed.len() as u64 <= object_max_bytes(small()));
        }
        let packed = pack(Compression::Gzip, &block()).unwrap();
        let other = unpack(Compression::Lz4, &packed, small(), &Checksum::of(&block()));
        assert_eq!(other.unwrap(), block(), "gzip where lz4 was announced");
        let packed = pack(Compression::Lz4, &block()).unwrap();
        let other = unpack(Compression::Gzip, &packed, small(), &Checksum::of(&block()));
        assert_eq!(other.unwrap(), block(), "lz4 where gzip was announced");
    }

    #[test]
    fn an_object_that_holds_more_or_less_than_a_block_is_refused() {
        for method in METHODS {
            let bomb = pack(method, &vec![7; 1 << 20]).unwrap();
            let refused = unpack(method, &bomb, small(), &Checksum::of(b"")).unwrap_err();
            assert_eq!(refused, Damage::Length { found: 8193, expected: 8192 });
            let short = pack(method, &[7; 100]).unwrap();
            let refused = unpack(method, &short, small(), &Checksum::of(&[7; 100])).unwrap_err();
            assert_eq!(refused, Damage::Length { found: 100, expected: 8192 });
        }
    }

    proptest! {
        #[test]
        fn no_damage_passes(at in 0_usize..9000, flip in 1_u8.., cut in 0_usize..9000, which in 0_usize..3) {
            let method = METHODS[which];
            let good = pack(method, &block()).unwrap();
            let sum = Checksum::of(&block());
            let mut flipped = good.clone();
            if let Some(byte) = flipped.get_mut(at) {
                *byte ^= flip;
            }
            for damaged in [flipped, good[..cut.min(good.len())].to_vec()] {
                if let Ok(found) = unpack(method, &damaged, small(), &sum) {
                    prop_assert!(found == block());
                }
            }
        }
    }
}
