//! Packed objects: no more is unpacked at a time than a buffer holds, and what we packed comes back.
#![no_main]

use std::io::Write;

use bytes::BytesMut;
use etcdguard::store::Compression;
use etcdguard::store::compress::{Packer, Unpacker};
use libfuzzer_sys::fuzz_target;

const STEP_MAX_BYTES: usize = 128 * 1024;
const TOTAL_MAX_BYTES: usize = 64 << 20;

fn unpack(compression: Compression, packed: &[u8]) -> Option<Vec<u8>> {
    let mut unpacker = Unpacker::new(compression);
    let mut input = BytesMut::from(packed);
    let mut plain = Vec::new();
    loop {
        let piece = unpacker.step(&mut input).ok()?;
        assert!(piece.len() <= STEP_MAX_BYTES);
        if piece.is_empty() {
            unpacker.end(&input).ok()?;
            return Some(plain);
        }
        plain.extend_from_slice(&piece);
        if plain.len() > TOTAL_MAX_BYTES {
            return None;
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    for compression in Compression::ALL {
        let _ = unpack(compression, bytes);
        let mut packer = Packer::new(Some(compression), Vec::new());
        packer.write_all(bytes).expect("memory takes every byte");
        let packed = packer.finish().expect("memory takes every byte");
        assert_eq!(unpack(compression, &packed).as_deref(), Some(bytes));
    }
});
