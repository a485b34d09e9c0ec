//! A store that the existing sidecar wrote.

use std::path::Path;
use std::process::Command;

use etcdguard::store::delta::{Encoder, Events, Op};
use etcdguard::store::full::Checked;

use crate::support::{local, names, read};

fn unpack_golden(home: &Path) {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/store.tar.gz");
    let done = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(home).status().unwrap();
    assert!(done.success());
}

#[tokio::test]
async fn its_objects_are_listed_and_read() {
    let home = tempfile::tempdir().unwrap();
    unpack_golden(home.path());
    let store = local(home.path(), "etcd-main");
    let latest = store.latest().await.unwrap();
    let full = latest.full.unwrap();
    assert_eq!(full.snap_name, "Full-00000000-00000041-1794730525.gz");
    assert_eq!(full.prefix, format!("{}/bkt/etcd-main/v2/", home.path().display()));
    assert_eq!(
        names(&latest.deltas),
        ["Incr-00000042-00000062-1794730528.gz", "Incr-00000063-00000064-1794730529.gz"]
    );
    let database = read(Checked::new(store.open_plain(&full).await.unwrap())).await.unwrap();
    assert_eq!(database.len() % 4096, 32);
    let mut revisions = Vec::new();
    for delta in &latest.deltas {
        let mut events = Events::of(store.open_plain(delta).await.unwrap());
        while let Some(event) = events.next().await.unwrap() {
            revisions.push(event.mod_revision);
        }
    }
    assert_eq!(revisions.first(), Some(&42));
    assert_eq!(revisions.last(), Some(&64));
}

#[tokio::test]
async fn its_deltas_are_written_again_byte_by_byte() {
    let home = tempfile::tempdir().unwrap();
    unpack_golden(home.path());
    let store = local(home.path(), "etcd-main");
    let mut deletes = 0;
    for delta in store.latest().await.unwrap().deltas {
        let text = read(store.open_plain(&delta).await.unwrap()).await.unwrap();
        let mut events = Events::of(Box::pin(std::io::Cursor::new(text.clone())));
        let mut encoder = Encoder::new(Vec::new());
        while let Some(event) = events.next().await.unwrap() {
            deletes += usize::from(event.op == Op::Delete);
            encoder.push(&event).unwrap();
        }
        assert_eq!(encoder.finish().unwrap(), text);
    }
    assert!(deletes > 0);
}
