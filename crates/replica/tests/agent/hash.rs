//! Checksums of snapshots.

use replica::Checksum;
use rpc::ptypes::{
    SnapshotHashCancelRequest, SnapshotHashRequest, SnapshotHashStatusRequest,
    SnapshotHashStatusResponse,
};

use crate::node::{Node, Volume, until};

const SIZE: u64 = 8 << 20;

async fn status(node: &Node, snapshot: &str) -> SnapshotHashStatusResponse {
    let request = SnapshotHashStatusRequest { snapshot_name: snapshot.into() };
    node.agent().snapshot_hash_status(request).await.unwrap().into_inner()
}

/// The status when the job is over.
pub(crate) async fn hashed(node: &Node, snapshot: &str) -> SnapshotHashStatusResponse {
    until("the hash", || async {
        Some(status(node, snapshot).await).filter(|status| status.state != "in_progress")
    })
    .await
}

async fn hash(node: &Node, rehash: bool) -> SnapshotHashStatusResponse {
    let request = SnapshotHashRequest { snapshot_name: "a".into(), rehash };
    node.agent().snapshot_hash(request).await.unwrap();
    hashed(node, "a").await
}

async fn node() -> Node {
    let mut volume = Volume::new(SIZE);
    volume.write(3, 1 << 20, 1 << 20);
    volume.snapshot("a");
    volume.serve().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_file_is_not_read_again_and_a_rehash_finds_rot() {
    let node = node().await;
    assert_eq!(status(&node, "a").await, SnapshotHashStatusResponse::default());
    let first = hash(&node, false).await;
    assert_eq!((first.state.as_str(), first.error.as_str()), ("complete", ""));
    assert_eq!(first.checksum.len(), 16);
    assert!(!first.silently_corrupted);
    assert_eq!(hash(&node, true).await, first);
    // A disk that loses bits does not touch the change time; nor does a record that lies.
    let record = node.file("volume-snap-a.img.checksum");
    let mut kept: Checksum = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    kept.checksum = "0123456789abcdef".into();
    durable::replace(&record, &serde_json::to_vec(&kept).unwrap()).unwrap();
    assert_eq!(hash(&node, false).await.checksum, kept.checksum, "it was read again");
    let found = hash(&node, true).await;
    assert_eq!(found.checksum, first.checksum);
    assert!(found.silently_corrupted);
    // Without a job in memory the record answers.
    node.agent().reset(()).await.unwrap();
    assert_eq!(status(&node, "a").await, found);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_never_an_error_of_the_call() {
    let node = node().await;
    for name in ["", "a/b", "nothing"] {
        let answer = status(&node, name).await;
        assert!(matches!(answer.state.as_str(), "" | "error"), "{name:?}: {answer:?}");
    }
    let request = SnapshotHashRequest { snapshot_name: "nothing".into(), rehash: false };
    node.agent().snapshot_hash(request).await.unwrap();
    let failed = hashed(&node, "nothing").await;
    assert_eq!(failed.state, "error");
    assert!(failed.error.contains("volume-snap-nothing.img"), "{}", failed.error);
    let cancel = SnapshotHashCancelRequest { snapshot_name: "unknown".into() };
    node.agent().snapshot_hash_cancel(cancel).await.unwrap();
    // Others on this machine may be hashing, but not for ever.
    until("the lock", || async {
        let state = node.agent().snapshot_hash_lock_state(()).await.unwrap().into_inner();
        (!state.is_locked).then_some(())
    })
    .await;
}
