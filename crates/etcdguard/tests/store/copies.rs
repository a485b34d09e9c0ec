//! Copies from store to store, collection, and encryption.

use std::io::Write;

use etcdguard::store::compress::Packer;
use etcdguard::store::copy::{Selection, copy, wait_for_final};
use etcdguard::store::delta::{Event, Op, Spool};
use etcdguard::store::gc::{Plan, Policy, collect};
use etcdguard::store::{Compression, Environment, Include, SnapStore, Snapshot, StoreConfig};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::time::Duration;

use crate::support::{local, names, read, save};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn packed_full(fill: u8) -> Vec<u8> {
    let plain = vec![fill; 8192];
    packed(plain.clone(), &plain)
}

/// With the checksum of something.
fn packed(mut plain: Vec<u8>, summed: &[u8]) -> Vec<u8> {
    plain.extend_from_slice(&Sha256::digest(summed));
    let mut packer = Packer::new(Some(Compression::Gzip), Vec::new());
    packer.write_all(&plain).unwrap();
    packer.finish().unwrap()
}

async fn save_delta(store: &SnapStore, dir: &std::path::Path, revision: i64) -> Snapshot {
    let mut spool = Spool::new(dir, Some(Compression::Gzip));
    spool
        .push(&Event {
            op: Op::Put,
            key: "k".into(),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            value: "v".into(),
            lease: 0,
            time: at(revision),
        })
        .unwrap();
    let delta = Snapshot::delta(revision, revision, at(1000 + revision), Some(Compression::Gzip));
    store.save(&delta, spool.finish().unwrap()).await.unwrap()
}

async fn fill(store: &SnapStore, dir: &std::path::Path) {
    for (last, is_final) in [(3, false), (6, true)] {
        let full = Snapshot::full(last, at(1000 + last), Some(Compression::Gzip), is_final);
        save(store, &full, &packed_full(1)).await;
        save_delta(store, dir, last + 1).await;
    }
}

#[tokio::test]
async fn a_copy_takes_what_is_missing_and_drops_the_last_mark() {
    let home = tempfile::tempdir().unwrap();
    let (source, target) = (local(home.path(), "source"), local(home.path(), "target"));
    fill(&source, home.path()).await;
    assert!(wait_for_final(&source, None, Duration::ZERO).await.unwrap());
    assert!(!wait_for_final(&target, Some(Duration::ZERO), Duration::ZERO).await.unwrap());
    let mut last = None;
    let copied =
        copy(&source, &target, Selection::default(), 3, |it| last = Some(it)).await.unwrap();
    assert_eq!((copied.copied.len(), copied.failed.len()), (4, 0));
    assert_eq!(last.map(|it| (it.done, it.total)), Some((4, 4)));
    assert_eq!(
        names(&target.list(Include::All).await.unwrap()),
        [
            "Full-00000000-00000003-1003.gz",
            "Incr-00000004-00000004-1004.gz",
            "Full-00000000-00000006-1006.gz",
            "Incr-00000007-00000007-1007.gz"
        ]
    );
    let again = copy(&source, &target, Selection::default(), 3, |_| {}).await.unwrap();
    assert_eq!((again.copied.len(), again.failed.len()), (0, 0));
}

#[tokio::test]
async fn what_is_damaged_is_not_copied_and_the_rest_is() {
    let home = tempfile::tempdir().unwrap();
    let (source, target) = (local(home.path(), "source"), local(home.path(), "target"));
    fill(&source, home.path()).await;
    let bad = packed(vec![1; 8192], b"something else");
    let name = Snapshot::full(6, at(1006), Some(Compression::Gzip), true);
    save(&source, &name, &bad).await;
    let copied = copy(&source, &target, Selection::default(), 2, |_| {}).await.unwrap();
    assert_eq!(copied.copied.len(), 3);
    assert_eq!(copied.failed[0].0.snap_name, name.snap_name);
    assert_eq!(target.list(Include::All).await.unwrap().len(), 3, "the bad copy is gone");
}

#[tokio::test]
async fn a_collection_removes_what_was_decided() {
    let home = tempfile::tempdir().unwrap();
    let store = local(home.path(), "p");
    fill(&store, home.path()).await;
    let plan =
        Plan { policy: Policy::LimitBased { max_backups: 1 }, delta_retention: Duration::ZERO };
    let collected = collect(&store, &plan, Timestamp::now()).await.unwrap();
    assert_eq!((collected.removed.len(), collected.failed.len()), (2, 0));
    assert_eq!(
        names(&store.list(Include::All).await.unwrap()),
        ["Full-00000000-00000006-1006.gz.final", "Incr-00000007-00000007-1007.gz"]
    );
}

fn encrypted(home: &std::path::Path, key_file: Option<&str>) -> SnapStore {
    let config = StoreConfig { container: "bkt".to_owned(), ..StoreConfig::default() };
    let key = key_file.map(|name| ("SNAPSHOT_ENCRYPTION_KEY_FILE", home.join(name)));
    let environment: Environment = [("HOME", home.to_path_buf())]
        .into_iter()
        .chain(key)
        .map(|(name, path)| (name, path.to_str().unwrap().to_owned()))
        .collect();
    SnapStore::open(&config, &environment).unwrap()
}

#[tokio::test]
async fn encrypted_objects_say_so_and_need_the_key() {
    let home = tempfile::tempdir().unwrap();
    durable::replace(home.path().join("key"), &[7; 32]).unwrap();
    durable::replace(home.path().join("wrong"), &[8; 32]).unwrap();
    let store = encrypted(home.path(), Some("key"));
    fill(&store, home.path()).await;
    let listed = store.list(Include::All).await.unwrap();
    assert!(listed.iter().all(|snapshot| snapshot.is_encrypted));
    assert_eq!(listed[2].snap_name, "Full-00000000-00000006-1006.gz.aesgcm.final");
    for snapshot in &listed {
        store.verify(snapshot).await.unwrap();
        assert!(encrypted(home.path(), Some("wrong")).verify(snapshot).await.is_err());
        let refused = encrypted(home.path(), None).verify(snapshot).await.unwrap_err();
        assert!(refused.to_string().contains("SNAPSHOT_ENCRYPTION_KEY_FILE"));
    }
    let raw = read(store.fetch(&listed[0]).await.unwrap()).await.unwrap();
    assert!(raw.starts_with(b"HFSNAP1\0"));
    // A copy to a store without encryption is opened on its way.
    let plain = local(home.path(), "plain");
    let copied = copy(&store, &plain, Selection::default(), 1, |_| {}).await.unwrap();
    assert_eq!((copied.copied.len(), copied.failed.len()), (4, 0));
    let listed = plain.list(Include::All).await.unwrap();
    assert!(listed.iter().all(|snapshot| !snapshot.is_encrypted));
    assert_eq!(read(plain.fetch(&listed[0]).await.unwrap()).await.unwrap(), packed_full(1));
}
