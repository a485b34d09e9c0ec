//! Names of snapshots: refused, or kept as they are.
#![no_main]

use etcdguard::store::name;
use etcdguard::store::snapshot::Layout;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = name::parse(Layout::V1, text);
    if let Ok(mut snapshot) = name::parse(Layout::V2, text) {
        assert_eq!(snapshot.snap_name, text);
        snapshot.rename();
        let again = name::parse(Layout::V2, &snapshot.snap_name).expect("what is written is read");
        assert_eq!(again.last_revision, snapshot.last_revision);
        assert_eq!(again.created_on, snapshot.created_on);
    }
});
