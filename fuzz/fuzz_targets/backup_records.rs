//! Records of a backup store: whatever a store holds, they are refused or come back as they were.
#![no_main]

use backupstore::format;
use backupstore::target::BackupUrl;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut cfg) = format::parse_backup(bytes) {
        // Fractions need not come back to the last digit.
        cfg.others.clear();
        cfg.processing_blocks = None;
        let written = format::backup_bytes(&cfg).expect("what was read can be written");
        assert_eq!(format::parse_backup(&written).as_ref(), Ok(&cfg));
    }
    if let Ok(mut cfg) = format::parse_volume(bytes) {
        cfg.others.clear();
        let written = format::volume_bytes(&cfg).expect("what was read can be written");
        assert_eq!(format::parse_volume(&written).as_ref(), Ok(&cfg));
    }
    let _ = format::parse_backing_image(bytes);
    let _ = format::parse_lock(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = BackupUrl::parse(text);
    }
});
