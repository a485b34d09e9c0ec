//! Copies from store to store, collection, and encryption.

use std::io::Write;

use etcdguard::store::compress::Packer;
use etcdguard::store::copy::{Junk, Selection, copy, wait_for_final};
use etcdguard::store::delta::{Event, Op, Spool};
use etcdguard::store::gc::{Inspect, Look, Plan, Policy, collect};
use etcdguard::store::{
    Compression, Environment, History, Include, SnapStore, Snapshot, StoreConfig,
};
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
        copy(&source, &target, Selection::default(), (3, Junk::Refused), |it| last = Some(it))
            .await
            .unwrap();
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
    let again =
        copy(&source, &target, Selection::default(), (3, Junk::Refused), |_| {}).await.unwrap();
    assert_eq!((again.copied.len(), again.failed.len()), (0, 0));
}

#[tokio::test]
async fn what_is_damaged_is_refused_or_copied_as_it_is_and_the_rest_is_copied() {
    let home = tempfile::tempdir().unwrap();
    let (source, target) = (local(home.path(), "source"), local(home.path(), "target"));
    fill(&source, home.path()).await;
    let bad = packed(vec![1; 8192], b"something else");
    let name = Snapshot::full(6, at(1006), Some(Compression::Gzip), true);
    save(&source, &name, &bad).await;
    let copying = |junk| copy(&source, &target, Selection::default(), (2, junk), |_| {});
    let copied = copying(Junk::Refused).await.unwrap();
    assert_eq!(copied.copied.len(), 3);
    assert_eq!(copied.failed[0].0.snap_name, name.snap_name);
    assert_eq!(target.list(Include::All).await.unwrap().len(), 3, "the bad copy is gone");
    let copied = copying(Junk::Copied).await.unwrap();
    assert_eq!((copied.copied.len(), copied.failed.len()), (1, 0), "as other programs do");
    let bytes = read(target.fetch(&copied.copied[0]).await.unwrap()).await.unwrap();
    assert_eq!(bytes, bad);
}

/// What a look into a snapshot comes to, by its last revision.
struct Answer(fn(i64) -> Look);

#[async_trait::async_trait]
impl Inspect for Answer {
    async fn inspect(&self, _: &SnapStore, full: &Snapshot) -> Look {
        (self.0)(full.last_revision)
    }
}

#[tokio::test]
async fn a_collection_removes_nothing_on_the_word_of_a_name() {
    let home = tempfile::tempdir().unwrap();
    let store = local(home.path(), "p");
    fill(&store, home.path()).await;
    let junk = Snapshot::full(900, at(2000), None, false);
    save(&store, &junk, b"junk").await;
    let before = store.list(Include::All).await.unwrap();
    let plan =
        Plan { policy: Policy::LimitBased { max_backups: 1 }, delta_retention: Duration::ZERO };
    let unknown = Answer(|_| Look::Unknown("the store does not answer".to_owned()));
    let collected = collect(&store, &plan, Timestamp::now(), &unknown).await.unwrap();
    assert_eq!(collected.removed, []);
    assert_eq!(store.list(Include::All).await.unwrap(), before);
    let look = Answer(|revision| match revision {
        900 => Look::Junk("it is no database".to_owned()),
        _ => Look::Good,
    });
    collect(&store, &plan, Timestamp::now(), &look).await.unwrap();
    let expected = [
        "Full-00000000-00000006-1006.gz.final",
        "Incr-00000007-00000007-1007.gz",
        "Full-00000000-00000900-2000",
    ];
    assert_eq!(names(&store.list(Include::All).await.unwrap()), expected);
    // It is not looked into again and again.
    let never = Answer(|_| Look::Unknown("asked again".to_owned()));
    collect(&store, &plan, Timestamp::now(), &never).await.unwrap();
    assert_eq!(names(&store.list(Include::All).await.unwrap()), expected);
}

#[tokio::test]
async fn a_copy_keeps_histories_apart() {
    let home = tempfile::tempdir().unwrap();
    let (source, target) = (local(home.path(), "source"), local(home.path(), "target"));
    fill(&source, home.path()).await;
    let there = source.list(Include::All).await.unwrap();
    let history = History::begin("0102".to_owned(), "restored".to_owned(), at(1007), &there);
    source.begin_history(&history).await.unwrap();
    let name = Snapshot::full(2, at(1007), Some(Compression::Gzip), false);
    save(&source, &name, &packed_full(1)).await;
    assert_eq!(source.latest().await.unwrap().full.unwrap().last_revision, 2);
    let how = (3, Junk::Refused);
    copy(&source, &target, Selection::default(), how, |_| {}).await.unwrap();
    assert_eq!(target.latest().await.unwrap().full.unwrap().last_revision, 2);
    assert_eq!(target.histories().await.unwrap(), source.histories().await.unwrap());
}

#[tokio::test]
async fn a_collection_removes_what_was_decided() {
    let home = tempfile::tempdir().unwrap();
    let store = local(home.path(), "p");
    fill(&store, home.path()).await;
    let plan =
        Plan { policy: Policy::LimitBased { max_backups: 1 }, delta_retention: Duration::ZERO };
    let collected =
        collect(&store, &plan, Timestamp::now(), &Answer(|_| Look::Good)).await.unwrap();
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
    let copied =
        copy(&store, &plain, Selection::default(), (1, Junk::Refused), |_| {}).await.unwrap();
    assert_eq!((copied.copied.len(), copied.failed.len()), (4, 0));
    let listed = plain.list(Include::All).await.unwrap();
    assert!(listed.iter().all(|snapshot| !snapshot.is_encrypted));
    assert_eq!(read(plain.fetch(&listed[0]).await.unwrap()).await.unwrap(), packed_full(1));
}
