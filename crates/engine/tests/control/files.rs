//! Volumes on raw files, alone and beside a replica.

use std::fs::File;
use std::path::{Path, PathBuf};

use rpc::ptypes::{self, ReplicaMode::Rw};

use crate::copies::Copy;
use crate::rig::{Rig, SIZE};

const GROWN: i64 = 8 << 20;

fn raw(folder: &Path) -> (PathBuf, String) {
    let path = folder.join("raw");
    File::create_new(&path).unwrap().set_len(SIZE as u64).unwrap();
    let address = format!("file://{}", path.display());
    (path, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_file_takes_part_in_snapshots_and_grows() {
    let folder = tempfile::tempdir().unwrap();
    let (path, address) = raw(folder.path());
    let rig = Rig::with(&[&address]).await;
    rig.write(0, &[1; 4096]).await;
    assert_eq!(rig.snapshot("one").await.unwrap(), "one");
    let grown = rig.expand(GROWN).await.unwrap();
    assert_eq!((grown.size, grown.last_expansion_error.as_str()), (GROWN, ""));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 << 20);
    rig.write(SIZE as u64, &[2; 4096]).await;
    assert_eq!(rig.read(SIZE as u64, 4096).await, [2; 4096]);
    assert_eq!(rig.read(0, 4096).await, [1; 4096]);
    assert_eq!(rig.expand(GROWN).await.unwrap().size, GROWN, "once more is nothing to do");
    assert_eq!(rig.mode_list().await, [Rw]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_file_and_a_replica_stay_together() {
    let folder = tempfile::tempdir().unwrap();
    let (path, address) = raw(folder.path());
    let [copy] = Copy::some::<1>(true).await;
    // A raw file counts as one that has seen a write.
    let mut client = copy.client();
    client.replica_open(ptypes::ReplicaOpenRequest::default()).await.unwrap();
    let counter = ptypes::RevisionCounterSetRequest { counter: 1 };
    client.revision_counter_set(counter).await.unwrap();
    client.replica_close(()).await.unwrap();
    let rig = Rig::with(&[&copy.address(), &address]).await;
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    rig.write(0, &[3; 4096]).await;
    rig.snapshot("one").await.unwrap();
    assert!(copy.get().await.disks.contains_key("volume-snap-one.img"));
    let grown = rig.expand(GROWN).await.unwrap();
    assert_eq!((grown.size, grown.last_expansion_error.as_str()), (GROWN, ""));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 << 20);
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
}

/// One that is larger than what is asked for is left as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_raw_file_is_never_made_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let (path, address) = raw(folder.path());
    let rig = Rig::with(&[&address]).await;
    File::options().write(true).open(&path).unwrap().set_len(16 << 20).unwrap();
    let volume = rig.expand(GROWN).await.unwrap();
    assert_eq!(volume.size, i64::try_from(SIZE).unwrap());
    assert!(volume.last_expansion_error.contains("is not made smaller"), "{volume:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 16 << 20);
    assert_eq!(rig.mode_list().await, [Rw]);
}
