//! Objects of blocks: no more is unpacked than a block holds, and only what has its checksum.
#![no_main]

use backupstore::format::{BlockSize, Checksum, Compression, pack, unpack};
use libfuzzer_sys::fuzz_target;

const METHODS: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Lz4];

fuzz_target!(|bytes: &[u8]| {
    let size = BlockSize::from_bytes(8192).expect("a size that blocks can have");
    let mut block = bytes.to_vec();
    block.resize(8192, 0);
    let sum = Checksum::of(&block);
    for method in METHODS {
        // What a stranger put there.
        if let Ok(found) = unpack(method, bytes, size, &sum) {
            assert_eq!(found, block);
        }
        let packed = pack(method, &block).expect("memory takes every byte");
        assert_eq!(unpack(method, &packed, size, &sum).as_ref(), Ok(&block));
    }
});
