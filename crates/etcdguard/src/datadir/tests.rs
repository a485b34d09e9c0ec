//! A directory we write passes our own check, and every kind of damage to it is found.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::bolt::{Bolt, DEFAULT_PAGE_SIZE, Editor, Writer};

fn put(key: &str, revision: i64, version: i64) -> (RowKey, KeyValue) {
    let value = KeyValue {
        key: Bytes::copy_from_slice(key.as_bytes()),
        create_revision: revision - version + 1,
        mod_revision: revision,
        version,
        value: Bytes::from_static(b"value"),
        lease: 0,
    };
    (RowKey { revision: Revision { main: revision, sub: 0 }, is_tombstone: false }, value)
}

fn delete(key: &str, revision: i64) -> (RowKey, KeyValue) {
    let value = KeyValue { key: Bytes::copy_from_slice(key.as_bytes()), ..KeyValue::default() };
    (RowKey { revision: Revision { main: revision, sub: 0 }, is_tombstone: true }, value)
}

fn database(path: &Path, rows: &[(RowKey, KeyValue)], compacted: Option<i64>) {
    let mut writer = Writer::new(File::create(path).unwrap(), DEFAULT_PAGE_SIZE);
    writer.bucket(KEY_BUCKET, 0).unwrap();
    for (key, value) in rows {
        writer.put(&key.encode(), &value.encode_to_vec()).unwrap();
    }
    writer.bucket(META_BUCKET, 0).unwrap();
    if let Some(main) = compacted {
        writer.put(b"finishedCompactRev", &Revision { main, sub: 0 }.encode()).unwrap();
    }
    writer.finish().unwrap();
}

fn identity() -> Identity {
    Identity {
        name: "b".into(),
        initial_cluster: "a=http://10.0.0.1:2380,b=http://10.0.0.2:2380,c=http://10.0.0.3:2380"
            .into(),
        token: "etcd-cluster".into(),
        peer_urls: vec!["http://10.0.0.2:2380".into()],
    }
}

fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    make_dirs(dir.path()).unwrap();
    let path = dir.path().join(DATABASE);
    database(&path, &[put("a", 2, 1), put("b", 3, 1), delete("a", 4)], None);
    let mut editor = Editor::open(&path).unwrap();
    rejoin(&Bolt::open(&path).unwrap(), &mut editor, &identity()).unwrap();
    editor.commit().unwrap();
    write_log(dir.path(), &identity()).unwrap();
    dir
}

#[test]
fn a_directory_we_write_is_in_order() {
    let dir = directory();
    for mode in [Mode::Sanity, Mode::Full] {
        let checked = check(dir.path(), mode).unwrap();
        assert_eq!((checked.revision, checked.warnings), (4, vec![]));
    }
    let log = check(dir.path(), Mode::Full).unwrap().log.unwrap();
    let own = identity().members().unwrap().iter().find(|it| it.name == "b").unwrap().id;
    assert_eq!((log.member, log.last, log.commit, log.term), (own, 3, 3, 1));
    let segment = dir.path().join("member/wal/0000000000000000-0000000000000000.wal");
    assert_eq!(segment.metadata().unwrap().len(), 64_000_000);
    assert_eq!(segment.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        dir.path().join("member/wal").metadata().unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn a_directory_in_use_is_not_looked_at() {
    let dir = directory();
    assert!(!is_locked(dir.path()).unwrap());
    let held = File::open(dir.path().join(DATABASE)).unwrap();
    held.lock().unwrap();
    assert!(is_locked(dir.path()).unwrap());
    assert_eq!(check(dir.path(), Mode::Sanity).unwrap_err().kind(), DamageKind::Locked);
    drop(held);
    assert!(check(dir.path(), Mode::Sanity).is_ok());
}

fn overwrite(dir: &Path, file: &str, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(dir.join(file)).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

const SEGMENT: &str = "member/wal/0000000000000000-0000000000000000.wal";
const SNAPSHOT: &str = "member/snap/0000000000000001-0000000000000003.snap";

#[test]
fn every_damage_is_found_and_called_what_it_is() {
    type Harm = fn(&Path);
    let cases: &[(&str, DamageKind, Option<DamageKind>, Harm)] = &[
        ("no directory", DamageKind::Missing, Some(DamageKind::Missing), |dir| {
            fs::remove_dir_all(dir).unwrap();
        }),
        ("no log", DamageKind::Structure, Some(DamageKind::Structure), |dir| {
            fs::remove_dir_all(dir.join("member/wal")).unwrap();
        }),
        ("no database", DamageKind::Corrupt, Some(DamageKind::Corrupt), |dir| {
            fs::remove_file(dir.join(DATABASE)).unwrap();
        }),
        ("headers", DamageKind::Corrupt, Some(DamageKind::Corrupt), |dir| {
            overwrite(dir, DATABASE, 0, &[0; 8192]);
        }),
        ("a row", DamageKind::Corrupt, None, |dir| {
            let bytes = fs::read(dir.join(DATABASE)).unwrap();
            let rows = bytes.windows(5).enumerate().filter(|(_, it)| it == b"value");
            for (at, _) in rows.collect::<Vec<_>>() {
                // The length before the value: what follows is not a row any more.
                overwrite(dir, DATABASE, at as u64 - 1, &[200]);
            }
        }),
        ("no segment", DamageKind::Corrupt, None, |dir| {
            fs::remove_file(dir.join(SEGMENT)).unwrap();
        }),
        ("a record", DamageKind::Corrupt, None, |dir| overwrite(dir, SEGMENT, 150, b"xxxx")),
        ("another log's snapshot", DamageKind::Corrupt, None, |dir| {
            let other = dir.join("member/snap/0000000000000002-0000000000000009.snap");
            let image = raft::SnapshotMetadata { index: Some(9), term: Some(2), conf_state: None };
            let data = raft::Snapshot { data: None, metadata: Some(image) }.encode_to_vec();
            let crc = Some(crc32c::crc32c(&data));
            let file = raft::SnapImage { crc, data: Some(data.into()) }.encode_to_vec();
            File::create(other).unwrap().write_all_at(&file, 0).unwrap();
        }),
    ];
    for (what, full, sanity, harm) in cases {
        let dir = directory();
        harm(dir.path());
        let found = check(dir.path(), Mode::Full).unwrap_err();
        assert_eq!(found.kind(), *full, "{what}: {found}");
        let found = check(dir.path(), Mode::Sanity).err().map(|found| found.kind());
        assert_eq!(found, *sanity, "{what}");
    }
}

#[test]
fn an_unreadable_snapshot_file_is_passed_over() {
    let dir = directory();
    let newer = dir.path().join("member/snap/0000000000000007-0000000000000009.snap");
    File::create(newer).unwrap().write_all_at(b"nonsense", 0).unwrap();
    let checked = check(dir.path(), Mode::Full).unwrap();
    assert_eq!(checked.warnings.len(), 1, "{:?}", checked.warnings);
    // Without the only one the log can still be read from its beginning.
    overwrite(dir.path(), SNAPSHOT, 20, b"nonsense");
    assert_eq!(check(dir.path(), Mode::Full).unwrap().warnings.len(), 2);
}

#[test]
fn a_log_torn_in_its_last_record_is_accepted() {
    let dir = directory();
    let segment = dir.path().join(SEGMENT);
    let bytes = fs::read(&segment).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    File::options().write(true).open(&segment).unwrap().set_len(end as u64 - 4).unwrap();
    // The torn record is the one that knows the snapshot, so look at the log alone.
    let log = verify_wal(&dir.path().join("member/wal"), None).unwrap();
    assert!(log.is_torn);
    assert_eq!((log.last, log.commit), (3, 3));
}

#[test]
fn a_check_changes_nothing() {
    let dir = directory();
    let before = fs::read(dir.path().join(DATABASE)).unwrap();
    check(dir.path(), Mode::Full).unwrap();
    assert!(fs::read(dir.path().join(DATABASE)).unwrap() == before);
    let mut names: Vec<_> = fs::read_dir(dir.path().join("member/snap"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["0000000000000001-0000000000000003.snap", "db"]);
}

#[test]
fn compacted_rows_count_only_where_they_are_the_latest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let rows = [put("a", 2, 1), put("b", 3, 1), put("a", 5, 2), delete("b", 6), put("c", 7, 1)];
    database(&path, &rows, Some(4));
    let bolt = Bolt::open(&path).unwrap();
    let keys = bolt.bucket(KEY_BUCKET).unwrap().unwrap();
    let latest = latest_rows(&keys, 7).unwrap();
    let found: Vec<usize> = (0..5).filter(|number| latest.contains(*number)).collect();
    assert_eq!((found, latest.count), (vec![2, 4], 2));
    let of = |rows: &[&(RowKey, KeyValue)]| {
        rows.iter().fold(crc32c::crc32c(b"key"), |sum, (key, value)| {
            let sum = crc32c::crc32c_append(sum, &key.encode());
            crc32c::crc32c_append(sum, &value.encode_to_vec())
        })
    };
    let [a, b, a2, gone, c] = &rows;
    let hash = |revision| hash_kv(&bolt, revision).unwrap();
    assert_eq!(hash(None), HashKv { hash: of(&[a2, gone, c]), revision: 7, compact_revision: 4 });
    assert_eq!(hash(Some(5)).hash, of(&[b, a2]));
    assert!(matches!(hash_kv(&bolt, Some(4)), Err(HashError::Compacted { .. })));
    assert!(matches!(hash_kv(&bolt, Some(8)), Err(HashError::Future { .. })));
    let _ = a;
}

proptest! {
    /// Whatever the bytes, a segment and a snapshot file are read to an end or an error.
    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = read_segment(&noise);
        let _ = read_snap(noise.into());
    }

    /// A changed byte of the log is noticed, or changes nothing that is said.
    #[test]
    fn a_changed_byte_of_the_log_is_noticed(at in 0u64..700, flip in 1u8..) {
        let dir = directory();
        let good = verify_wal(&dir.path().join("member/wal"), None).unwrap();
        let mut byte = [0];
        let file = File::options().read(true).write(true).open(dir.path().join(SEGMENT)).unwrap();
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ flip], at).unwrap();
        if let Ok(found) = verify_wal(&dir.path().join("member/wal"), None) {
            prop_assert!(found.is_torn || (found.last, found.member) == (good.last, good.member));
        }
    }
}
