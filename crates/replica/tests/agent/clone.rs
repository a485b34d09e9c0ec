//! A snapshot of one volume as the beginning of another.

use rpc::ptypes::SnapshotCloneRequest;

use crate::node::{Node, VOLUME, Volume};

const SIZE: u64 = 8 << 20;

async fn source() -> Node {
    let mut volume = Volume::new(SIZE);
    volume.write(1, 2 << 20, 0);
    volume.snapshot("a");
    volume.write(2, 1 << 20, 1 << 20);
    volume.snapshot("b");
    volume.write(3, 1 << 20, 0);
    volume.serve().await
}

fn request(source: &Node, snapshot: &str) -> SnapshotCloneRequest {
    SnapshotCloneRequest {
        from_address: source.address(),
        to_host: "127.0.0.1".into(),
        snapshot_file_name: snapshot.into(),
        export_backing_image_if_exist: false,
        file_sync_http_client_timeout: 30,
        from_volume_name: VOLUME.into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clone_is_the_snapshot_and_the_head_sits_on_it() {
    let (source, target) = (source().await, Node::new(SIZE).await);
    let expected = source.read_snapshot("b");
    target.agent().snapshot_clone(request(&source, "b")).await.unwrap();
    let status = target.agent().snapshot_clone_status(()).await.unwrap().into_inner();
    assert_eq!((status.state.as_str(), status.progress), ("complete", 100));
    assert_eq!((status.is_cloning, status.snapshot_name.as_str()), (false, "b"));
    assert_eq!(status.from_replica_address, source.address());
    let replica = target.replica().replica_get(()).await.unwrap().into_inner().replica.unwrap();
    assert_eq!(replica.parent, "volume-snap-b.img");
    assert!(target.read_snapshot("b") == expected);
    let mut volume = target.into_volume(SIZE).await;
    let mut head = vec![0; SIZE as usize];
    volume.replica.read_at(&mut head, 0).unwrap();
    assert!(head == expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_that_fails_says_so_in_the_call_and_in_the_status() {
    let (source, target) = (source().await, Node::new(SIZE).await);
    let failed = target.agent().snapshot_clone(request(&source, "none")).await.unwrap_err();
    let status = target.agent().snapshot_clone_status(()).await.unwrap().into_inner();
    assert_eq!((status.state.as_str(), status.is_cloning), ("error", false));
    assert_eq!(status.error, failed.message());
    for part in ["none", &source.address()] {
        assert!(failed.message().contains(part), "{}", failed.message());
    }
    let wrong = SnapshotCloneRequest { from_volume_name: "other".into(), ..request(&source, "b") };
    let failed = target.agent().snapshot_clone(wrong).await.unwrap_err();
    assert!(failed.message().contains("incorrect volume name other"), "{}", failed.message());
}
