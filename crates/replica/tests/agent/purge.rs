//! Snapshots that go, over the replica's own verbs.

use replica::{Coalesce, DiskName};
use rpc::ptypes::{RebuildingSetRequest, SnapshotPurgeStatusResponse};
use rpc::{HeadParent, purge_request};

use crate::node::{Node, Volume, until};

const SIZE: u64 = 8 << 20;

async fn purged(node: &Node) -> SnapshotPurgeStatusResponse {
    until("the purge", || async {
        let status = node.agent().snapshot_purge_status(()).await.unwrap().into_inner();
        (!status.is_purging).then_some(status)
    })
    .await
}

async fn disks(node: &Node) -> Vec<String> {
    let replica = node.replica().replica_get(()).await.unwrap().into_inner().replica.unwrap();
    let mut names: Vec<_> = replica
        .disks
        .into_keys()
        .filter(|name| *name != replica.head)
        .map(|name| name.replace("volume-snap-", "").replace(".img", ""))
        .collect();
    names.sort();
    names
}

/// `a` and `c` are the user's, the rest is not; some of it is right under the head.
fn volume() -> Volume {
    let mut volume = Volume::in_memory(SIZE);
    for (index, name) in ["s1", "a", "s2", "s3", "c", "s4", "s5"].into_iter().enumerate() {
        let index = index as u64;
        volume.write(index as u8, 65536, index * 32768);
        volume.write(index as u8, 4096, (4 << 20) + index * 4096);
        if name.starts_with('s') {
            volume.system_snapshot(name);
        } else {
            volume.snapshot(name);
        }
    }
    volume.write(99, 4096, 0);
    volume
}

fn head(volume: &mut Volume) -> Vec<u8> {
    let mut contents = vec![0; SIZE as usize];
    volume.replica.read_at(&mut contents, 0).unwrap();
    contents
}

#[tokio::test(flavor = "multi_thread")]
async fn system_snapshots_are_merged_away_and_nothing_visible_changes() {
    let mut volume = volume();
    let before = head(&mut volume);
    let node = volume.serve().await;
    let seen = ["a", "c"].map(|name| node.read_snapshot(name));
    // Unless it is asked for more, the parent of the head stays, as with agents of the other kind.
    node.agent().snapshot_purge(()).await.unwrap();
    let status = purged(&node).await;
    assert_eq!((status.state.as_str(), status.error.as_str()), ("complete", ""));
    assert_eq!(status.progress, 100);
    assert_eq!(disks(&node).await, ["a", "c", "s5"]);
    assert!(seen == ["a", "c"].map(|name| node.read_snapshot(name)));
    node.agent().snapshot_purge(purge_request(HeadParent::Fold)).await.unwrap();
    let status = purged(&node).await;
    assert_eq!((status.state.as_str(), status.error.as_str()), ("complete", ""));
    assert_eq!(disks(&node).await, ["a", "c"]);
    assert!(seen == ["a", "c"].map(|name| node.read_snapshot(name)));
    // Nothing to do is done at once.
    node.agent().snapshot_purge(()).await.unwrap();
    let status = purged(&node).await;
    assert_eq!((status.state.as_str(), status.progress), ("complete", 100));
    let mut volume = node.into_volume(SIZE).await;
    assert!(before == head(&mut volume));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_was_cut_short_is_simply_run_again() {
    let mut volume = volume();
    let before = head(&mut volume);
    let mut node = volume.serve().await;
    let seen = ["a", "c"].map(|name| node.read_snapshot(name));
    // An agent that died in the middle of copying leaves this.
    let disk = |name| DiskName::of_snapshot(name).unwrap();
    let mut partly = Coalesce::new(&node.dir(), &disk("s1"), &disk("a")).unwrap();
    partly.step(4096).unwrap();
    drop(partly);
    // And one that is ended while it works, again and again, wherever that is.
    for _ in 0..6 {
        node.agent().snapshot_purge(purge_request(HeadParent::Fold)).await.unwrap();
        node.stop_agent().await;
        assert!(seen == ["a", "c"].map(|name| node.read_snapshot(name)));
        node.start_agent().await;
    }
    node.agent().snapshot_purge(purge_request(HeadParent::Fold)).await.unwrap();
    assert_eq!(purged(&node).await.error, "");
    assert_eq!(disks(&node).await, ["a", "c"]);
    assert!(seen == ["a", "c"].map(|name| node.read_snapshot(name)));
    let mut volume = node.into_volume(SIZE).await;
    assert!(before == head(&mut volume));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilding_replica_is_not_purged() {
    let node = volume().serve().await;
    node.replica().rebuilding_set(RebuildingSetRequest { rebuilding: true }).await.unwrap();
    let refused = node.agent().snapshot_purge(()).await.unwrap_err();
    let text = format!("cannot purge snapshots because {} is rebuilding", node.control);
    assert_eq!(refused.message(), text);
    assert_eq!(purged(&node).await.state, "error");
    assert_eq!(disks(&node).await.len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_the_process_of_its_replica_purges_as_one_apart() {
    let node = volume().serve_in_one().await;
    let seen = ["a", "c"].map(|name| node.read_snapshot(name));
    node.agent().snapshot_purge(purge_request(HeadParent::Fold)).await.unwrap();
    let status = purged(&node).await;
    assert_eq!((status.state.as_str(), status.error.as_str()), ("complete", ""));
    assert_eq!(disks(&node).await, ["a", "c"]);
    assert!(seen == ["a", "c"].map(|name| node.read_snapshot(name)));
    // What the replica refuses is said in its words, wherever it is.
    let rebuilding = RebuildingSetRequest { rebuilding: true };
    node.replica().rebuilding_set(rebuilding).await.unwrap();
    let refused = node.agent().snapshot_purge(()).await.unwrap_err();
    let wanted = format!("cannot purge snapshots because {} is rebuilding", node.control);
    assert_eq!(refused.message(), wanted);
}
