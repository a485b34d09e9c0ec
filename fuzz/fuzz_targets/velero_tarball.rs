//! Tarballs of backups: noise is refused, packed or not, and only safe paths reach whoever reads.
#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use velero::tarball::{Limits, Members, Sink, Unpacker};

struct Safe;

impl Sink for Safe {
    fn begin(&mut self, path: &str, len_bytes: u64) -> io::Result<bool> {
        assert!(!path.starts_with('/') && path.split('/').all(|it| it != ".."));
        assert!(len_bytes <= Limits::default().member_max_bytes);
        Ok(true)
    }

    fn bytes(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { total_max_bytes: 64 << 20, ..Limits::default() };
    let mut members = Members::new(Safe, limits);
    if members.push(bytes).is_ok() {
        let _ = members.finish();
    }
    let mut unpacker = Unpacker::new(Safe, limits);
    if unpacker.push(bytes).is_ok() {
        let _ = unpacker.finish();
    }
});
