//! LZ4 frames, written and read around whole chunks: a block goes through no buffer but its own. The
//! frame is that of the format: independent chunks of at most 4 MiB, a checksum of the contents, no
//! length in the header.

use lz4_flex::block::{DecompressError, decompress_into};

use super::lz4;

/// Magic, flags 0x64, chunks of 4 MiB, and the checksum of these two.
pub(super) const HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x64, 0x70, 0xb9];
const CHUNK_MAX: usize = 4 << 20;
/// Marks a chunk that is stored as it is.
const PLAIN: u32 = 1 << 31;

/// The most that contents of this length take, packed.
pub(super) fn packed_max(len: usize) -> usize {
    len + len / 255 + 64 + 4 * len.div_ceil(CHUNK_MAX)
}

/// Adds all of `contents` to `out`, packed.
pub(super) fn pack(contents: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    out.extend_from_slice(&HEADER);
    for chunk in contents.chunks(CHUNK_MAX) {
        let size_at = out.len();
        out.extend_from_slice(&[0; 4]);
        let size = if let Some(packed) = lz4::pack(chunk, out) {
            u32::try_from(packed).map_err(std::io::Error::other)?
        } else {
            out.extend_from_slice(chunk);
            u32::try_from(chunk.len()).map_err(std::io::Error::other)? | PLAIN
        };
        if let Some(place) = out.get_mut(size_at..size_at + 4) {
            place.copy_from_slice(&size.to_le_bytes());
        }
    }
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&checksum(contents).to_le_bytes());
    Ok(())
}

/// Why a frame was not unpacked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Another kind of frame, or none: one for the general reader.
    Foreign,
    Broken(String),
    /// It holds more than there is room for.
    Long,
}

/// Unpacks into `out` and says how much came. The checksum of the contents is not looked at: who
/// asks has a better one.
pub(super) fn unpack(frame: &[u8], out: &mut [u8]) -> Result<usize, Rejection> {
    let mut rest = frame.strip_prefix(&HEADER).ok_or(Rejection::Foreign)?;
    let mut done = 0;
    loop {
        let (size, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let size = u32::from_le_bytes(*size);
        if size == 0 {
            return if after.len() == 4 { Ok(done) } else { Err(cut()) };
        }
        let len = usize::try_from(size & !PLAIN).map_err(|_| cut())?;
        let (chunk, after) = after.split_at_checked(len).ok_or_else(cut)?;
        let target = out.get_mut(done..).unwrap_or_default();
        done += if size & PLAIN == 0 {
            decompress_into(chunk, target).map_err(|error| match error {
                DecompressError::OutputTooSmall { .. } => Rejection::Long,
                other => Rejection::Broken(other.to_string()),
            })?
        } else {
            target.get_mut(..len).ok_or(Rejection::Long)?.copy_from_slice(chunk);
            len
        };
        rest = after;
    }
}

fn cut() -> Rejection {
    Rejection::Broken("the frame does not end where it should".to_owned())
}

const P1: u32 = 0x9e37_79b1;
const P2: u32 = 0x85eb_ca77;
const P3: u32 = 0xc2b2_ae3d;
const P4: u32 = 0x27d4_eb2f;
const P5: u32 = 0x1656_67b1;

/// XXH32 without a seed, as the frame format asks for.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let (stripes, tail) = bytes.as_chunks::<16>();
    let mut sum = if stripes.is_empty() { P5 } else { mix(stripes) };
    // The format counts modulo 2^32.
    #[expect(clippy::cast_possible_truncation, reason = "the algorithm says so")]
    let len = bytes.len() as u32;
    sum = sum.wrapping_add(len);
    let (words, odd) = tail.as_chunks::<4>();
    for word in words {
        let lane = u32::from_le_bytes(*word).wrapping_mul(P3);
        sum = sum.wrapping_add(lane).rotate_left(17).wrapping_mul(P4);
    }
    for byte in odd {
        sum = sum.wrapping_add(u32::from(*byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
    }
    sum = (sum ^ (sum >> 15)).wrapping_mul(P2);
    sum = (sum ^ (sum >> 13)).wrapping_mul(P3);
    sum ^ (sum >> 16)
}

fn mix(stripes: &[[u8; 16]]) -> u32 {
    let mut lanes = [P1.wrapping_add(P2), P2, 0, 0_u32.wrapping_sub(P1)];
    for stripe in stripes {
        let (words, _) = stripe.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            let input = u32::from_le_bytes(*word).wrapping_mul(P2);
            *lane = lane.wrapping_add(input).rotate_left(13).wrapping_mul(P1);
        }
    }
    let rotated = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
    rotated.fold(0, u32::wrapping_add)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use lz4_flex::frame::FrameDecoder;
    use proptest::prelude::*;

    use super::*;

    fn packed(contents: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        pack(contents, &mut out).unwrap();
        assert!(out.len() <= packed_max(contents.len()));
        out
    }

    fn through_the_library(frame: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        FrameDecoder::new(frame).read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn checksums_are_those_of_the_algorithm() {
        for (bytes, sum) in [
            (&b""[..], 0x02cc_5d05),
            (b"a", 0x550d_7456),
            (b"abc", 0x32d1_53ff),
            (b"Nobody inspects the spammish repetition", 0xe229_3b2f),
        ] {
            assert_eq!(checksum(bytes), sum);
        }
    }

    #[test]
    fn several_chunks_make_one_frame() {
        let mut contents: Vec<u8> = (0..9_u32 << 19).map(|n| (n >> 16).to_le_bytes()[0]).collect();
        // The last one does not shrink.
        let mut noise = 1_u64;
        for byte in &mut contents[CHUNK_MAX..] {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = noise.to_be_bytes()[0];
        }
        let frame = packed(&contents);
        assert!(through_the_library(&frame) == contents);
        let mut out = vec![0; contents.len()];
        assert_eq!(unpack(&frame, &mut out), Ok(contents.len()));
        assert!(out == contents);
        assert_eq!(unpack(&frame, &mut out[..CHUNK_MAX + 100]), Err(Rejection::Long));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn any_contents_come_back(contents: Vec<u8>, repeat in 1_usize..20) {
            let contents = contents.repeat(repeat);
            let frame = packed(&contents);
            prop_assert_eq!(&through_the_library(&frame), &contents);
            let mut out = vec![0; contents.len()];
            prop_assert_eq!(unpack(&frame, &mut out), Ok(contents.len()));
            prop_assert_eq!(out, contents);
        }

        #[test]
        fn noise_never_panics(noise: Vec<u8>) {
            let mut out = [0; 64];
            let _ = unpack(&noise, &mut out);
            let _ = unpack(&[&HEADER[..], &noise].concat(), &mut out);
        }
    }
}
