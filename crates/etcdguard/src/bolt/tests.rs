//! What is written is read back whole; what is damaged says so and ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

type Contents = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;

fn write(path: &Path, contents: &Contents, page_size: usize) {
    let mut writer = Writer::new(File::create(path).unwrap(), page_size);
    for (name, rows) in contents {
        writer.bucket(name, 7).unwrap();
        for (key, value) in rows {
            writer.put(key, value).unwrap();
        }
    }
    let written = writer.finish().unwrap();
    assert_eq!(path.metadata().unwrap().len(), written.bytes);
}

fn read(path: &Path) -> Contents {
    let bolt = Bolt::open(path).unwrap();
    let names = bolt.buckets().unwrap();
    let rows = |name: &Bytes| {
        let rows = bolt.bucket(name).unwrap().unwrap().rows().unwrap();
        rows.map(|row| row.unwrap()).map(|row| (row.key.to_vec(), row.value.to_vec())).collect()
    };
    names.iter().map(|name| (name.to_vec(), rows(name))).collect()
}

fn assert_whole(path: &Path, rows: usize) {
    let checked = check(&Bolt::open(path).unwrap()).unwrap();
    assert_eq!(checked.findings, vec![]);
    assert_eq!(checked.rows, rows as u64);
}

/// Many small rows, so that there are three levels, and some larger than a page.
fn sample() -> Contents {
    let many = (0u32..9000).map(|n| {
        let length = if n % 1000 == 3 { 20_000 } else { (n % 90) as usize };
        (n.to_be_bytes().repeat(4), vec![b'v'; length])
    });
    BTreeMap::from([
        (b"alarm".to_vec(), BTreeMap::new()),
        (b"key".to_vec(), many.collect()),
        (b"meta".to_vec(), BTreeMap::from([(b"term".to_vec(), b"1".to_vec())])),
    ])
}

fn temporary() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    (dir, path)
}

fn count(contents: &Contents) -> usize {
    contents.values().map(BTreeMap::len).sum()
}

#[test]
fn a_big_tree_is_read_back_whole() {
    let (_dir, path) = temporary();
    write(&path, &sample(), 1024);
    assert_whole(&path, count(&sample()));
    assert_eq!(read(&path), sample());
    let bolt = Bolt::open(&path).unwrap();
    let bucket = bolt.bucket(b"key").unwrap().unwrap();
    assert_eq!(bucket.sequence(), 7);
    assert_eq!(bucket.last().unwrap().unwrap().key, 8999u32.to_be_bytes().repeat(4));
    assert_eq!(bucket.get(&1003u32.to_be_bytes().repeat(4)).unwrap().unwrap().len(), 20_000);
    assert_eq!(bucket.get(b"zzz").unwrap(), None);
    let later = bucket.rows_from(&8990u32.to_be_bytes().repeat(4)).unwrap();
    assert_eq!(later.count(), 10);
    assert!(bolt.bucket(b"none").unwrap().is_none());
    assert_eq!(bolt.bucket(b"alarm").unwrap().unwrap().last().unwrap(), None);
}

#[test]
fn rows_out_of_order_are_refused() {
    let (_dir, path) = temporary();
    let mut writer = Writer::new(File::create(&path).unwrap(), DEFAULT_PAGE_SIZE);
    assert!(matches!(writer.put(b"a", b""), Err(WriteError::NoBucket(_))));
    writer.bucket(b"b", 0).unwrap();
    writer.put(b"b", b"").unwrap();
    assert!(matches!(writer.put(b"b", b""), Err(WriteError::Order)));
    assert!(matches!(writer.put(b"a", b""), Err(WriteError::Order)));
    assert!(matches!(writer.bucket(b"a", 0), Err(WriteError::Order)));
    assert!(matches!(writer.put(b"c", b""), Err(WriteError::NoBucket(_))));
}

#[test]
fn a_file_that_was_not_finished_opens_nowhere() {
    let (_dir, path) = temporary();
    let mut writer = Writer::new(File::create(&path).unwrap(), DEFAULT_PAGE_SIZE);
    writer.bucket(b"key", 0).unwrap();
    (0u32..100_000).for_each(|n| writer.put(&n.to_be_bytes(), b"some value").unwrap());
    drop(writer);
    assert!(path.metadata().unwrap().len() > 1 << 20);
    assert!(matches!(Bolt::open(&path), Err(BoltError::NoMeta)));
}

#[test]
fn what_is_appended_but_not_committed_is_not_seen() {
    let (_dir, path) = temporary();
    write(&path, &sample(), 1024);
    let mut editor = Editor::open(&path).unwrap();
    editor.append_to(b"key").unwrap();
    (9000u32..29_000).for_each(|n| editor.put(&n.to_be_bytes().repeat(4), b"more").unwrap());
    drop(editor);
    assert_eq!(read(&path), sample());
    assert_whole(&path, count(&sample()));
}

#[test]
fn one_bad_header_is_survived() {
    for (bad, page_size) in [(0, 1024), (1, 4096), (0, 65536)] {
        let (_dir, path) = temporary();
        write(&path, &sample(), page_size);
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"garbage", bad * page_size as u64 + 20).unwrap();
        assert_eq!(read(&path), sample());
    }
}

#[test]
fn a_file_cut_short_is_refused() {
    let (_dir, path) = temporary();
    write(&path, &sample(), 4096);
    let length = path.metadata().unwrap().len();
    File::options().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
    assert!(matches!(Bolt::open(&path), Err(BoltError::Short { .. })));
    File::options().write(true).open(&path).unwrap().set_len(length + 32).unwrap();
    assert_whole(&path, count(&sample()));
}

/// Each of these is found, and by the right name.
#[test]
fn each_damage_is_named() {
    let page = 4096;
    // Page 3 and those it runs over hold one large row; the eighth is an ordinary leaf.
    let cases: &[(&str, u64, &[u8], &str)] = &[
        ("the id of a page", 8 * page, &[77], "page 8: calls itself page 77"),
        ("its kind", 8 * page + 8, &[4], "page 8: has the kind 0x4, which is not of a tree"),
        ("a run to beyond the end", 8 * page + 12, &[0, 64], "page 8: is not below the number"),
        ("a run that is too long", 8 * page + 14, &[1], "page 8: runs over 65537 pages"),
        ("an element", 8 * page + 16 + 6, &[1], "page 8: element 0 points outside the page"),
        ("the first key", 8 * page + 20, &[1], "page 8: element 1 is not above the one before it"),
    ];
    for (what, at, bytes, expected) in cases {
        let (_dir, path) = temporary();
        write(&path, &sample(), 4096);
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(bytes, *at).unwrap();
        let checked = check(&Bolt::open(&path).unwrap()).unwrap();
        let texts: Vec<String> = checked.findings.iter().map(ToString::to_string).collect();
        assert!(texts.iter().any(|text| text.contains(expected)), "{what}: {texts:?}");
    }
}

/// A branch whose children all are itself: both the check and a walk end.
#[test]
fn a_tree_that_leads_into_itself_ends() {
    let (_dir, path) = temporary();
    write(&path, &sample(), 1024);
    let bolt = Bolt::open(&path).unwrap();
    let spine = bolt.bucket(b"key").unwrap().unwrap();
    let file = File::options().write(true).read(true).open(&path).unwrap();
    // The root of the bucket is the last branch that was written.
    let branches = (2..bolt.meta().high_water).rev();
    let is_branch = |id: &u64| bolt.header(*id).is_ok_and(|it| it.id == *id && it.flags == 1);
    let root = branches.into_iter().find(is_branch).unwrap();
    file.write_all_at(&root.to_le_bytes(), root * 1024 + 16 + 8).unwrap();
    let error = spine.rows().unwrap().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("lies deeper than 16 levels"), "{error}");
    let findings = check(&bolt).unwrap().findings;
    assert!(findings.contains(&Finding { page: root, fault: Fault::UsedTwice }), "{findings:?}");
}

fn contents() -> impl Strategy<Value = Contents> {
    let key = prop::collection::vec(any::<u8>(), 1..40);
    let value = (0usize..3000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]);
    let rows = prop::collection::btree_map(key, value, 0..60);
    prop::collection::btree_map(prop::collection::vec(any::<u8>(), 1..10), rows, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_contents_are_read_back(contents in contents()) {
        let (_dir, path) = temporary();
        write(&path, &contents, 1024);
        assert_whole(&path, count(&contents));
        prop_assert_eq!(read(&path), contents);
    }

    /// However the rows come in portions, the result is the same as at one time.
    #[test]
    fn appended_rows_are_as_if_written_at_once(
        sizes in prop::collection::vec(0usize..2600, 1..200),
        cuts in prop::collection::btree_set(0usize..200, 0..5),
    ) {
        let (_dir, path) = temporary();
        let empty = BTreeMap::from([(b"key".to_vec(), BTreeMap::new())]);
        write(&path, &empty, 1024);
        let mut editor = Editor::open(&path).unwrap();
        editor.append_to(b"key").unwrap();
        let mut rows = BTreeMap::new();
        for (number, size) in sizes.iter().enumerate() {
            if cuts.contains(&number) {
                editor.commit().unwrap();
                editor.append_to(b"key").unwrap();
            }
            let key = number.to_be_bytes().to_vec();
            editor.put(&key, &vec![3; *size]).unwrap();
            rows.insert(key, vec![3; *size]);
        }
        let members = [Row { key: Bytes::from_static(b"a"), value: Bytes::from_static(b"b") }];
        editor.replace_bucket(b"members", &members).unwrap();
        editor.commit().unwrap();
        assert_whole(&path, sizes.len() + 1);
        let members = BTreeMap::from([(b"a".to_vec(), b"b".to_vec())]);
        let all = BTreeMap::from([(b"key".to_vec(), rows), (b"members".to_vec(), members)]);
        prop_assert_eq!(read(&path), all);
    }

    /// Whatever bytes are changed, reading and checking end without a panic.
    #[test]
    fn damage_never_panics(changes in prop::collection::vec((0usize..12 * 1024, any::<u8>()), 1..12)) {
        let (_dir, path) = temporary();
        let rows = (0u8..120).map(|n| (vec![n; 17], vec![n; 60])).collect();
        write(&path, &BTreeMap::from([(b"key".to_vec(), rows)]), 1024);
        let file = File::options().write(true).open(&path).unwrap();
        for (at, byte) in changes {
            file.write_all_at(&[byte], at as u64).unwrap();
        }
        if let Ok(bolt) = Bolt::open(&path) {
            let is_whole = check(&bolt).is_ok_and(|checked| checked.findings.is_empty());
            let walked = bolt.bucket(b"key").map(|found| found.map(|it| it.rows().map(Iterator::count)));
            prop_assert!(!is_whole || walked.is_ok());
        }
    }
}
