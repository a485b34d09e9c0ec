//! Snapshots, their limits, and going back to them.

use rpc::ptypes::ReplicaMode::{Err as Failed, Rw, Wo};
use rpc::ptypes::{self, ReplicaMode};

use crate::fake::{Fake, Manner};
use crate::rig::{Rig, SIZE, options, until};

async fn pair() -> (Fake, Fake, Rig) {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address, &b.address]).await;
    (a, b, rig)
}

fn snapshots(fake: &Fake) -> Vec<String> {
    let mut names: Vec<_> = fake.replica().disks.into_keys().collect();
    names.retain(|name| name.starts_with("volume-snap-"));
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_the_same_on_all_replicas() {
    let (a, b, rig) = pair().await;
    assert_eq!(rig.snapshot("one").await.unwrap(), "one");
    let made_up = rig.snapshot("").await.unwrap();
    assert_eq!(made_up.len(), 36);
    let expected = snapshots(&a);
    assert_eq!(expected.len(), 2);
    assert_eq!(snapshots(&b), expected);
    assert!(expected.contains(&"volume-snap-one.img".to_owned()));
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_refuses_or_stalls_is_out_and_the_snapshot_is_taken() {
    let (a, b, c) = (Fake::new(SIZE), Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address, &b.address, &c.address]).await;
    b.refuse("replica_snapshot", "disk on fire");
    c.behave("replica_snapshot", Manner::Stall);
    rig.snapshot("s").await.unwrap();
    assert_eq!(rig.mode_list().await, [Rw, Failed, Failed]);
    rig.write(0, &[1; 4096]).await;
    assert_eq!(b.bytes(0, 4096), [0; 4096], "nothing reaches it any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_by_all_fails_the_call_and_nobody() {
    let (a, b, rig) = pair().await;
    a.refuse("replica_snapshot", "too many active disks: 300");
    b.refuse("replica_snapshot", "too many active disks: 300");
    let error = rig.snapshot("s").await.unwrap_err();
    assert!(error.message().contains("too many active disks: 300"), "{error}");
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_is_refused_and_nobody_is_failed() {
    let (a, b, rig) = pair().await;
    rig.snapshot("s").await.unwrap();
    let error = rig.snapshot("s").await.unwrap_err();
    assert_eq!(error.message(), "snapshot volume-snap-s.img is already existing");
    assert_eq!(a.calls("replica_snapshot"), 1, "nobody was asked to");
    b.refuse("replica_snapshot", "snapshot volume-snap-t.img is already existing");
    let error = rig.snapshot("t").await.unwrap_err();
    assert!(error.message().contains("snapshot volume-snap-t.img is already existing"), "{error}");
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    assert!(rig.snapshot("a/b").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_those_of_the_fullest_replica() {
    let (a, b, rig) = pair().await;
    let mut client = rig.client();
    let count = |count| ptypes::VolumeSnapshotMaxCountSetRequest { count };
    let size = |size| ptypes::VolumeSnapshotMaxSizeSetRequest { size };
    b.change(|replica| {
        replica.snapshot_count_usage = 3;
        replica.snapshot_size_usage = 8192;
        replica.head_file_size = 4096;
    });
    assert!(client.volume_snapshot_max_count_set(count(2)).await.is_err());
    assert!(client.volume_snapshot_max_size_set(size(4096)).await.is_err());
    let volume = client.volume_snapshot_max_count_set(count(3)).await.unwrap().into_inner();
    assert_eq!(volume.snapshot_max_count, 3);
    assert!(a.called("snapshot_max_count_set 3"));
    let error = rig.snapshot("s").await.unwrap_err();
    let full = "snapshot count usage 3 is equal or larger than snapshotMaxCount 3";
    assert_eq!(error.message(), full);
    client.volume_snapshot_max_count_set(count(10)).await.unwrap();
    let volume = client.volume_snapshot_max_size_set(size(10_000)).await.unwrap().into_inner();
    assert_eq!(volume.snapshot_max_size, 10_000);
    let error = rig.snapshot("s").await.unwrap_err();
    assert_eq!(error.message(), "snapshot free space 1808 is not enough for head file 4096");
    client.volume_snapshot_max_size_set(size(0)).await.unwrap();
    b.change(|replica| replica.snapshot_count_total = 250);
    let error = rig.snapshot("s").await.unwrap_err();
    assert_eq!(error.message(), "snapshot count total is already too big: 250");
}

#[tokio::test(flavor = "multi_thread")]
async fn unmap_mark_is_pushed_and_shown() {
    let (a, b, rig) = pair().await;
    b.refuse("unmap_mark_disk_chain_removed_set", "no");
    let request = ptypes::VolumeUnmapMarkSnapChainRemovedSetRequest { enabled: true };
    let set = rig.client().volume_unmap_mark_snap_chain_removed_set(request).await;
    assert!(set.unwrap().into_inner().unmap_mark_snap_chain_removed);
    assert!(a.replica().unmap_mark_disk_chain_removed);
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn revert_asks_for_a_snapshot_that_all_have() {
    let (a, b, rig) = pair().await;
    let text = async |name: &str| rig.revert(name).await.unwrap_err().message().to_owned();
    let missing = "cannot do revert since the target snapshot s is not found";
    assert_eq!(text("s").await, missing);
    rig.snapshot("s").await.unwrap();
    rig.revert("s").await.unwrap();
    assert!(a.called("replica_revert volume-snap-s.img"));
    assert!(b.called("replica_revert volume-snap-s.img"));
    b.change(|replica| {
        replica.disks.get_mut("volume-snap-s.img").unwrap().removed = true;
    });
    assert_eq!(text("s").await, "cannot revert to removed snapshot s");
    b.change(|replica| {
        replica.disks.remove("volume-snap-s.img");
    });
    assert_eq!(text("s").await, missing);
}

#[tokio::test(flavor = "multi_thread")]
async fn revert_is_refused_while_a_replica_is_rebuilt_and_fails_who_cannot() {
    let (_a, b, rig) = pair().await;
    rig.snapshot("s").await.unwrap();
    b.refuse("replica_revert", "disk on fire");
    rig.revert("s").await.unwrap();
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
    let c = Fake::new(SIZE);
    assert_eq!(rig.add(&c.address, false).await.unwrap(), Wo);
    let error = rig.revert("s").await.unwrap_err();
    let text = "not valid state to revert, rebuilding in process or all replica are in ERR state";
    assert_eq!(error.message(), text);
    let empty = Rig::try_new(options()).await.unwrap();
    assert_eq!(empty.revert("s").await.unwrap_err().message(), text);
    assert_eq!(rig.mode_list().await[2], ReplicaMode::Wo);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_stalls_writes_is_out_and_the_last_one_only_delays() {
    let (_a, b, rig) = pair().await;
    b.behave("data", Manner::Stall);
    rig.write(0, &[1; 4096]).await;
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
    rig.snapshot("s").await.unwrap();

    let c = Fake::new(SIZE);
    let lone = Rig::with(&[&c.address]).await;
    c.behave("data", Manner::Stall);
    let data = bytes::Bytes::from_static(&[1; 4096]);
    let write = engine::core::Command::Write { offset: 0, data, durable: false };
    let (written, taken) = tokio::join!(lone.engine.volume().submit(write), lone.snapshot("s"));
    assert!(written.is_err(), "nobody could have taken the write");
    let error = taken.unwrap_err();
    assert!(error.message().contains("requests under way did not end"), "{error}");
    assert_eq!(c.calls("replica_snapshot"), 0);
    assert_eq!(lone.mode_list().await, [Rw], "it is slow, and all there is");
}

/// Waits until `fake` was asked to do `method`.
async fn asked(fake: &Fake, method: &str) {
    until(method, async || (fake.calls(method) > 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_is_brought_to_its_end_though_the_caller_is_gone() {
    let (a, b, rig) = pair().await;
    rig.snapshot("s").await.unwrap();
    b.behave("replica_revert", Manner::Stall);
    tokio::select! {
        ended = rig.revert("s") => panic!("it ended with {ended:?}"),
        () = asked(&b, "replica_revert") => {}
    }
    until("the copy that did not go back to be out", async || {
        (rig.mode_list().await == [Rw, Failed]).then_some(())
    })
    .await;
    assert!(a.called("replica_revert volume-snap-s.img"));
}
