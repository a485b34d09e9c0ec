//! A segment of an etcd's write-ahead log.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = etcdguard::datadir::read_segment(bytes);
});
