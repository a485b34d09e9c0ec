//! A qcow2 backing file: a small good image with some of its bytes changed and any bytes behind it.
//! Whatever it says, a replica on top of it reads or fails by name.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use replica::{OpenRequest, Options, Replica};

const CLUSTER: usize = 512;
const SIZE: u64 = 64 * 1024;
const NOW: &str = "2026-11-15T06:25:24Z";

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    place.join(format!("holdfast-fuzz-qcow2-{}", std::process::id()))
});

/// Header, first table, second table; the first clusters of the volume are plain, compressed and
/// zeros, and lie behind these.
fn image() -> Vec<u8> {
    let mut bytes = vec![0; 3 * CLUSTER];
    bytes[..4].copy_from_slice(b"QFI\xfb");
    for (at, value) in [(4, 3u32), (20, 9), (36, 2), (100, 104)] {
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    let tables = [(512, 1024), (1024, 3 * 512), (1032, 1 << 62 | 1540), (1040, 1)];
    for (at, value) in [(24, SIZE), (40, 512)].into_iter().chain(tables) {
        bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

fuzz_target!(|input: (Vec<(u16, u8)>, &[u8])| {
    let (changes, data) = input;
    let mut bytes = image();
    bytes.extend_from_slice(data);
    for (at, byte) in changes {
        let at = usize::from(at) % bytes.len();
        bytes[at] = byte;
    }
    let _ = std::fs::remove_dir_all(&*DIR);
    std::fs::create_dir_all(&*DIR).expect("the directory can be made");
    let backing = DIR.join("backing");
    std::fs::write(&backing, &bytes).expect("the directory can be written");

    let options = Options { backing_file: Some(backing), ..Options::default() };
    let mut replica = Replica::new(DIR.join("replica"), options);
    let size = i64::try_from(SIZE).expect("it is small");
    if replica.create(size, NOW).is_ok() && replica.open(&OpenRequest::default()).is_ok() {
        let mut contents = vec![0; usize::try_from(SIZE).expect("it is small")];
        let is_read = replica.read_at(&mut contents, 0).is_ok();
        let mut again = vec![1; contents.len()];
        if is_read {
            replica.read_at(&mut again, 0).expect("what was read once reads again");
            assert!(contents == again);
        }
        let _ = replica.block_status(0, SIZE, |_| {});
        replica.close().expect("a replica that opened closes");
    }
});
