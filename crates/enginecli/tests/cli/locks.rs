//! Commands that need a lock of a backup store: they wait, say for whom, and give up in known words.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::store::Store;
use crate::world::{fatal, run};

fn a_lock(store: &Store, name: &str, kind: u8) -> PathBuf {
    let folder = store.files("volume.cfg").remove(0).parent().unwrap().join("locks");
    fs::create_dir_all(&folder).unwrap();
    let text = format!(r#"{{"Name":"{name}","Type":{kind},"Acquired":true}}"#);
    let path = folder.join(format!("{name}.lck"));
    durable::replace(&path, text.as_bytes()).unwrap();
    path
}

#[test]
fn a_held_lock_is_waited_for_and_a_stale_one_is_taken_over() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::at(&place.path().join("store"));
    let image = place.path().join("image");
    File::create(&image).unwrap().set_len(4 << 20).unwrap();
    store.back_up("vol", "backup-1", &image);
    let lock = a_lock(&store, "lock-other", 1);
    let url = store.url("vol", "backup-1");
    for line in [
        format!("backup rm {url} --lock-timeout 1"),
        format!("backup rm --volume vol {} --lock-timeout 1", store.target),
        format!("backup gc --volume vol {} --lock-timeout 1", store.target),
    ] {
        let refused = run(&line);
        assert_eq!(refused.exit_code, 1, "{line}");
        assert!(refused.out.starts_with("failed lock backupstore/volumes/"), "{}", refused.out);
        let wanted = "when performing backup delete, please try again later (held by lock-other \
                      type 1, renewed ";
        assert!(refused.out.contains(wanted), "{}", refused.out);
        assert_eq!(format!("{}\n", fatal(&refused.err)), refused.out);
        let waits = refused.err.lines().next().unwrap();
        assert!(waits.contains("msg=\"waiting for a lock\""), "{waits}");
        assert!(waits.contains("holder=lock-other") && waits.contains("until="), "{waits}");
    }
    let at_once = run(&format!("backup rm {url} --lock-timeout 0"));
    assert!(!at_once.err.contains("waiting"), "{}", at_once.err);
    assert_eq!(store.files(".lck"), std::slice::from_ref(&lock), "our own locks are gone");
    let file = File::options().write(true).open(&lock).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(160)).unwrap();
    let done = run(&format!("backup rm {url}"));
    assert_eq!((done.exit_code, done.err.as_str()), (0, ""), "{}", done.out);
    assert!(store.files("backup_backup-1.cfg").is_empty());
}
