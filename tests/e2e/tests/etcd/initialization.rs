//! Bringing a data directory into shape before etcd starts.

use std::os::unix::fs::MetadataExt as _;

use e2e::guard::{Rig, Run, TIMEOUT};
use testkit::process::poll_until;

use crate::{guarded, history};

#[track_caller]
fn initialize(rig: &mut Rig, mode: &str) -> Run {
    let data = format!("--data-dir={}", rig.data_dir().display());
    let temporary =
        format!("--restoration-temp-snapshots-dir={}", rig.path().join("irt").display());
    let mode = format!("--validation-mode={mode}");
    rig.run("initialize", &[&data, &temporary, &mode])
}

/// The directory itself, whatever it is called.
fn identity(rig: &Rig) -> Option<u64> {
    std::fs::metadata(rig.data_dir()).ok().map(|found| found.ino())
}

/// A backup of everything, and etcd stopped. Gives revision and hash.
fn backed_up(rig: &mut Rig) -> (i64, u64) {
    history(rig, 2);
    let known = (rig.revision(), rig.hash_kv());
    rig.stop_etcd();
    known
}

#[track_caller]
fn assert_holds(rig: &Rig, (revision, hash): (i64, u64)) {
    let member = rig.boot(&rig.data_dir());
    assert_eq!(e2e::guard::revision(&member.seat.client), revision);
    assert_eq!(e2e::guard::hash_kv(&member.seat.client, 0), hash);
}

#[test]
fn valid_data_is_kept_and_not_written_to() {
    let Some(mut rig) = Rig::new("valid data") else { return };
    backed_up(&mut rig);
    let database = rig.data_dir().join("member/snap/db");
    let (before, bytes) = (identity(&rig), std::fs::read(&database).unwrap());
    for mode in ["sanity", "full"] {
        let run = initialize(&mut rig, mode);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!(identity(&rig), before);
        assert!(std::fs::read(&database).unwrap() == bytes, "the database was written to");
    }
    assert_eq!(std::fs::read_to_string(rig.path().join("safe_guard")).unwrap(), "ns1");
}

#[test]
fn a_missing_directory_is_restored() {
    let Some(mut rig) = Rig::new("missing directory") else { return };
    let known = backed_up(&mut rig);
    std::fs::remove_dir_all(rig.data_dir()).unwrap();
    assert_eq!(initialize(&mut rig, "full").code, Some(0));
    assert_holds(&rig, known);
}

#[test]
fn a_damaged_database_is_restored_in_both_modes() {
    for mode in ["sanity", "full"] {
        let Some(mut rig) = Rig::new("damaged database") else { return };
        let known = backed_up(&mut rig);
        e2e::write(&rig.data_dir().join("member/snap/db"), "not a database");
        assert_eq!(initialize(&mut rig, mode).code, Some(0));
        assert_holds(&rig, known);
    }
}

#[test]
fn a_damaged_log_is_found_by_a_full_look_only() {
    let Some(mut rig) = Rig::new("damaged log") else { return };
    let known = backed_up(&mut rig);
    let log = std::fs::read_dir(rig.data_dir().join("member/wal")).unwrap();
    let log = log.map(|entry| entry.unwrap().path());
    let log = log.filter(|path| path.extension().is_some_and(|it| it == "wal")).min().unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[600] ^= 0xff;
    std::fs::File::create(&log)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &bytes))
        .unwrap();
    let before = identity(&rig);
    assert_eq!(initialize(&mut rig, "sanity").code, Some(0));
    assert_eq!(identity(&rig), before);
    assert_eq!(initialize(&mut rig, "full").code, Some(0));
    assert_ne!(identity(&rig), before);
    assert_holds(&rig, known);
}

#[test]
fn data_older_than_the_backup_is_restored() {
    let Some(mut rig) = Rig::new("data behind") else { return };
    rig.put("a", "1");
    rig.stop_etcd();
    let saved = rig.path().join("saved");
    copy(&rig.data_dir(), &saved);
    rig.start_etcd();
    let known = backed_up(&mut rig);
    std::fs::remove_dir_all(rig.data_dir()).unwrap();
    std::fs::rename(&saved, rig.data_dir()).unwrap();
    assert_eq!(initialize(&mut rig, "full").code, Some(0));
    assert_holds(&rig, known);
}

#[test]
fn without_a_backup_damage_ends_in_a_fresh_start_and_valid_data_is_kept() {
    let Some(mut rig) = Rig::new("empty store") else { return };
    rig.put("a", "1");
    rig.stop_etcd();
    let before = identity(&rig);
    assert_eq!(initialize(&mut rig, "full").code, Some(0));
    assert_eq!(identity(&rig), before);
    e2e::write(&rig.data_dir().join("member/snap/db"), "not a database");
    assert_eq!(initialize(&mut rig, "full").code, Some(0));
    assert_eq!(identity(&rig), None);
    assert_eq!(initialize(&mut rig, "full").code, Some(0));
}

#[test]
fn a_volume_of_another_namespace_is_not_touched() {
    let Some(mut rig) = Rig::new("foreign volume") else { return };
    backed_up(&mut rig);
    e2e::write(&rig.path().join("safe_guard"), "ns2");
    e2e::write(&rig.data_dir().join("member/snap/db"), "not a database");
    let before = identity(&rig);
    assert_eq!(initialize(&mut rig, "full").code, Some(1));
    assert_eq!(identity(&rig), before);
}

#[test]
fn a_store_that_fails_leaves_the_data_alone() {
    let Some(mut rig) = Rig::new("failing store") else { return };
    backed_up(&mut rig);
    e2e::write(&rig.data_dir().join("member/snap/db"), "not a database");
    let before = identity(&rig);
    let mut command = rig.command("initialize");
    command.arg("--storage-provider=FAILED");
    command.arg(format!("--data-dir={}", rig.data_dir().display()));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(identity(&rig), before);
}

#[test]
fn the_wrapper_of_etcd_is_served() {
    let Some(mut rig) = Rig::new("initialization over http") else { return };
    rig.put("a", "1");
    let sidecar = guarded(&mut rig, &[]);
    rig.put("b", "2");
    sidecar.json("/snapshot/delta");
    let known = (rig.revision(), rig.hash_kv());
    rig.stop_etcd();
    std::fs::remove_dir_all(rig.data_dir()).unwrap();
    assert_eq!(sidecar.get("/initialization/start?mode=full"), (200, String::new()));
    let end = poll_until(TIMEOUT, || {
        let told = sidecar.get("/initialization/status").1;
        (told != "Progress").then_some(told)
    });
    assert_eq!(end.as_deref(), Some("Successful"), "{}", sidecar.process.stderr());
    assert_eq!(sidecar.get("/initialization/status").1, "New");
    let part = rig.data_dir().with_extension("etcd.part");
    assert!(!part.exists(), "{}", part.display());
    assert_holds(&rig, known);
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
