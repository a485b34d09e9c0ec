//! The database of an etcd: a small good one with some of its bytes changed and any bytes behind it.
//! Whatever it says, checking, reading and hashing it come to an end, with an error by name.
#![no_main]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use etcdguard::bolt::{Bolt, Writer, check};
use etcdguard::datadir;
use libfuzzer_sys::fuzz_target;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    place.join(format!("holdfast-fuzz-etcd-{}", std::process::id()))
});

/// Three levels of small pages, an inline bucket and one of several pages.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let file = File::create(&*FILE).expect("the file can be made");
    let mut writer = Writer::new(file, 1024);
    writer.bucket(b"key", 0).expect("names ascend");
    for revision in 2u64..400 {
        let mut key = revision.to_be_bytes().to_vec();
        key.push(b'_');
        key.extend_from_slice(&[0; 8]);
        let row = [b"\x0a\x01a\x18".as_slice(), &[(revision % 128) as u8]].concat();
        writer.put(&key, &row).expect("keys ascend");
    }
    writer.bucket(b"meta", 0).expect("names ascend");
    writer.put(b"finishedCompactRev", b"\0\0\0\0\0\0\0\x09_\0\0\0\0\0\0\0\0").expect("it fits");
    writer.finish().expect("the file can be written");
    std::fs::read(&*FILE).expect("the file can be read")
});

fuzz_target!(|input: (Vec<(u16, u8)>, &[u8])| {
    let (changes, more) = input;
    let mut bytes = IMAGE.clone();
    bytes.extend_from_slice(more);
    for (at, byte) in changes {
        let at = usize::from(at) % bytes.len();
        bytes[at] = byte;
    }
    std::fs::write(&*FILE, &bytes).expect("the file can be written");
    let Ok(bolt) = Bolt::open(&FILE) else { return };
    let is_whole = check(&bolt).is_ok_and(|checked| checked.findings.is_empty());
    let names = bolt.buckets();
    assert!(!is_whole || names.is_ok(), "what passes the check can be read");
    for name in names.unwrap_or_default() {
        let Ok(Some(bucket)) = bolt.bucket(&name) else { continue };
        let rows = bucket.rows().map(|rows| rows.filter(Result::is_err).count());
        assert!(!is_whole || rows.is_ok_and(|bad| bad == 0), "what passes the check can be read");
        let _ = bucket.last();
        let _ = bucket.get(b"term");
    }
    let _ = datadir::hash_kv(&bolt, None);
    let _ = datadir::check_database(&bolt);
});
