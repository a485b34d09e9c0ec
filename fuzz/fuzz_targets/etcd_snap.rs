//! A file of an etcd's raft snapshot.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = etcdguard::datadir::read_snap(bytes.to_vec().into());
});
