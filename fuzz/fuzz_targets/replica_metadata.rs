//! The metadata files of a replica directory: `volume.meta`, the metadata of a head and a snapshot,
//! the revision counter and a checksum. Whatever is in them, opening succeeds or fails by name; a
//! directory that opened reads, closes and opens again.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use replica::{DiskName, Hash, OpenRequest, Options, Progress, Replica, View};

const HEAD: &str = "volume-head-000.img";
const SNAPSHOT: &str = "volume-snap-a.img";

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    place.join(format!("holdfast-fuzz-replica-{}", std::process::id()))
});

fn put(name: &str, bytes: &[u8]) {
    std::fs::write(DIR.join(name), bytes).expect("the directory can be written");
}

fuzz_target!(|input: (&[u8], &[u8], &[u8], &[u8], &[u8])| {
    let (volume, head, snapshot, counter, checksum) = input;
    let _ = std::fs::remove_dir_all(&*DIR);
    std::fs::create_dir_all(&*DIR).expect("the directory can be made");
    put("volume.meta", volume);
    put(&format!("{HEAD}.meta"), head);
    put(&format!("{SNAPSHOT}.meta"), snapshot);
    put("revision.counter", counter);
    put(&format!("{SNAPSHOT}.checksum"), checksum);
    put(HEAD, &[1; 4096]);
    put(SNAPSHOT, &[2; 8192]);

    let mut replica = Replica::new(&*DIR, Options::default());
    let _ = replica.report();
    if let Ok(mut view) = View::open(&DIR, "a", 1 << 20) {
        let mut buffer = vec![0; 4096.min(usize::try_from(view.size_bytes()).unwrap_or(4096))];
        view.read_at(&mut buffer, 0).expect("a view that opened reads");
    }
    let disk = DiskName::parse(SNAPSHOT).expect("it is a name");
    if let Ok(mut hash) = Hash::new(&DIR, &disk, false) {
        while hash.step(1 << 20).is_ok_and(|progress| progress != Progress::Done) {}
        let _ = hash.finish("now");
    }
    if replica.open(&OpenRequest::default()).is_ok() {
        let size = replica.size_bytes().expect("it is open");
        let mut buffer = vec![0; 4096.min(usize::try_from(size).unwrap_or(4096))];
        replica.read_at(&mut buffer, 0).expect("a replica that opened reads");
        replica.close().expect("a replica that opened closes");
        replica.open(&OpenRequest::default()).expect("a replica that closed opens");
    }
});
