//! The Local provider.

use std::io;
use std::os::unix::fs::PermissionsExt;

use etcdguard::store::{Compression, Include, Snapshot};
use jiff::Timestamp;
use tokio::io::AsyncReadExt;

use crate::support::{local, names, read, save};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[tokio::test]
async fn what_is_saved_is_listed_read_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let store = local(home.path(), "etcd-main");
    assert!(store.list(Include::All).await.unwrap().is_empty());
    let full = Snapshot::full(7, at(1_700_000_000), Some(Compression::Gzip), false);
    let delta = Snapshot::delta(8, 9, at(1_700_000_001), None);
    save(&store, &delta, b"delta").await;
    save(&store, &full, b"full").await;
    let listed = store.list(Include::Unmarked).await.unwrap();
    assert_eq!(
        names(&listed),
        ["Full-00000000-00000007-1700000000.gz", "Incr-00000008-00000009-1700000001"]
    );
    assert_eq!(read(store.fetch(&listed[0]).await.unwrap()).await.unwrap(), b"full");
    let dir = home.path().join("bkt/etcd-main/v2");
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let file = dir.join(&listed[0].snap_name);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    store.delete(&listed[0]).await.unwrap();
    store.delete(&listed[0]).await.unwrap();
    assert_eq!(names(&store.list(Include::All).await.unwrap()), [delta.snap_name.as_str()]);
    assert!(store.fetch(&listed[0]).await.err().unwrap().is_not_found());
}

#[tokio::test]
async fn a_body_that_fails_leaves_nothing_and_keeps_what_was_there() {
    let home = tempfile::tempdir().unwrap();
    let store = local(home.path(), "p");
    let full = Snapshot::full(7, at(1_700_000_000), None, false);
    let broken = || {
        let failing = tokio_util::io::StreamReader::new(futures::stream::iter([
            Ok(bytes::Bytes::from_static(b"half")),
            Err(io::Error::other("the other side is gone")),
        ]));
        Box::pin(failing)
    };
    store.save(&full, broken()).await.unwrap_err();
    assert!(store.list(Include::All).await.unwrap().is_empty());
    let dir = home.path().join("bkt/p/v2");
    assert_eq!(dir.read_dir().unwrap().count(), 0, "no half of it is left");
    save(&store, &full, b"whole").await;
    store.save(&full, broken()).await.unwrap_err();
    assert_eq!(read(store.fetch(&full).await.unwrap()).await.unwrap(), b"whole");
    // One that is given up in the middle, as at the end of the process.
    let endless = b"half".as_slice().chain(tokio::io::repeat(1));
    let given_up = tokio::time::timeout(
        std::time::Duration::from_millis(20),
        store.save(&full, Box::pin(endless)),
    );
    assert!(given_up.await.is_err());
    assert_eq!(read(store.fetch(&full).await.unwrap()).await.unwrap(), b"whole");
}

#[tokio::test]
async fn siblings_and_odd_prefixes_are_kept_apart() {
    let home = tempfile::tempdir().unwrap();
    let full = Snapshot::full(1, at(1), None, false);
    for (prefix, count) in
        [("etcd-main", 1), ("etcd-main-2", 1), ("env1/x", 1), ("v1/v2", 1), ("", 1), ("a//b/", 1)]
    {
        let store = local(home.path(), prefix);
        save(&store, &full, prefix.as_bytes()).await;
        let listed = store.list(Include::All).await.unwrap();
        assert_eq!(listed.len(), count, "{prefix}: {listed:?}");
        assert_eq!(read(store.fetch(&listed[0]).await.unwrap()).await.unwrap(), prefix.as_bytes());
    }
    assert!(home.path().join("bkt/env1/x/v2").join(&full.snap_name).is_file());
}
