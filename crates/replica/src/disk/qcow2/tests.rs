//! A small image made by hand, whole and with noise in it. Images of real tools are read by the
//! tests of the crate.

use std::path::Path;

use durable::sim::SimDisk;
use durable::{Disk as _, Mode, Open};
use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;

use super::*;

const CLUSTER: usize = 512;
const PLAIN: u64 = 1 << 63;
const PACKED: u64 = 1 << 62;

/// Clusters of 512 bytes: header, first table, second table, a plain cluster, a compressed one. The
/// volume: plain, nothing, compressed, zeros over an allocated cluster, nothing, 100 bytes plain.
fn image() -> Vec<u8> {
    let mut bytes = vec![0; 5 * CLUSTER];
    bytes[..4].copy_from_slice(MAGIC);
    for (at, value) in [(4, 3u32), (20, 9), (36, 1), (100, 104)] {
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    let (plain, packed) = (PLAIN | 0x600, PACKED | 0x800);
    let entries = [plain, 0, packed, plain | 1, 0, plain];
    let fields = [(24, 5 * 512 + 100), (40, 512), (512, 1024 | PLAIN)];
    let entries = entries.into_iter().enumerate().map(|(index, entry)| (1024 + index * 8, entry));
    for (at, value) in fields.into_iter().chain(entries) {
        bytes[at..at + 8].copy_from_slice(&u64::to_be_bytes(value));
    }
    bytes[3 * CLUSTER..4 * CLUSTER].fill(1);
    let mut packed = vec![0; CLUSTER];
    let mut deflate = Compress::new(Compression::fast(), false);
    deflate.compress(&[2; CLUSTER], &mut packed, FlushCompress::Finish).unwrap();
    bytes[4 * CLUSTER..].copy_from_slice(&packed);
    bytes
}

fn open(bytes: &[u8]) -> Result<Qcow2, Qcow2Error> {
    let disk = SimDisk::new(0);
    let file = disk.open_sparse(Path::new("/image"), Open::CreateNew(Mode::PUBLIC)).unwrap();
    durable::write_all_at(&*file, bytes, 0).unwrap();
    Qcow2::open(Arc::from(file), bytes.len() as u64)
}

#[test]
fn every_kind_of_cluster_reads_as_it_should() {
    let opened = open(&image()).unwrap();
    assert_eq!(opened.len_bytes(), 5 * 512 + 100);
    let mut expected = Vec::new();
    for byte in [1, 0, 2, 0, 0, 1] {
        expected.extend([byte; CLUSTER]);
    }
    expected[5 * CLUSTER + 100..].fill(0);
    for (from, to) in [(0, 6 * CLUSTER), (500, 530), (1030, 1540), (2600, 3000)] {
        let mut found = vec![9; to - from];
        opened.read(&mut found, from as u64).unwrap();
        assert!(found == expected[from..to], "{from}..{to}");
    }
    let mut extents = Vec::new();
    opened.extents(100..u64::MAX, |extent| extents.push((extent.start, extent.end))).unwrap();
    assert_eq!(extents, [(100, 512), (1024, 1536), (2560, 2660)]);
}

#[test]
fn damage_is_named() {
    let read = |at: usize, value: u64| {
        let mut bytes = image();
        bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        let opened = open(&bytes).unwrap();
        opened.read(&mut [0; 6 * CLUSTER], 0).unwrap_err().to_string()
    };
    assert_eq!(read(512, 1 << 40), "the place of a table is damaged");
    assert_eq!(read(512, 5 * 512), "the place of a table is damaged");
    assert_eq!(read(1024, 1 << 40), "the place of a cluster is damaged");
    for (at, value) in [(1024, PACKED | 1 << 40), (1024, PACKED | 512), (4 * CLUSTER, u64::MAX)] {
        assert_eq!(read(at, value), "a compressed cluster is damaged");
    }
}

#[test]
fn memory_for_tables_is_bounded() {
    let mut bytes = image();
    // A volume of 200 tables, none of which is there.
    bytes.resize(8 * CLUSTER, 0);
    bytes[36..40].copy_from_slice(&200u32.to_be_bytes());
    bytes[24..32].copy_from_slice(&(200 * 64 * 512u64).to_be_bytes());
    bytes[512..].fill(0);
    let opened = open(&bytes).unwrap();
    opened.extents(0..u64::MAX, |extent| panic!("{extent:?}")).unwrap();
    assert_eq!(opened.cache.lock().unwrap().tables.len() as u64, TABLES_MAX);
}

proptest! {
    #[test]
    fn noise_never_panics(patches in prop::collection::vec((0..5 * CLUSTER, any::<u8>()), 0..8)) {
        let mut bytes = image();
        for (at, byte) in patches {
            bytes[at] = byte;
        }
        if let Ok(opened) = open(&bytes) {
            let _ = opened.read(&mut [0; 6 * CLUSTER], 0);
            let _ = opened.extents(0..1 << 20, |_| {});
        }
    }
}
