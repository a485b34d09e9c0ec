//! Whole engines over real replicas: what a volume goes through in its life.

use engine::ControllerOptions;
use engine::core::Command;
use rpc::ptypes;
use rpc::ptypes::ReplicaMode::{Err as Failed, Rw, Wo};

use crate::copies::Copy;
use crate::rig::{Rig, SIZE, place, until, with_replicas};

pub(crate) fn options(copies: &[&Copy]) -> ControllerOptions {
    let addresses: Vec<_> = copies.iter().map(|copy| copy.address()).collect();
    with_replicas(&addresses.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn without_counters(copies: &[&Copy]) -> ControllerOptions {
    ControllerOptions { revision_counter: false, ..options(copies) }
}

pub(crate) async fn start(copies: &[&Copy]) -> Rig {
    Rig::try_new(options(copies)).await.unwrap()
}

/// Waits until no engine is connected to `copy` any more.
pub(crate) async fn abandoned(copy: &Copy) {
    until("the engine to be gone", async || (copy.get().await.holdfast_engines == 0).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_copies_take_writes_snapshots_a_death_a_revert_and_a_new_size() {
    let [a, b, mut c] = Copy::some::<3>(true).await;
    let rig = start(&[&a, &b, &c]).await;
    assert_eq!(rig.mode_list().await, [Rw, Rw, Rw]);
    rig.write(0, &[1; 8192]).await;
    rig.snapshot("one").await.unwrap();
    rig.write(4096, &[2; 4096]).await;
    for copy in [&a, &b, &c] {
        let seen = copy.get().await;
        assert!(seen.disks.contains_key("volume-snap-one.img"));
        assert!(seen.disks["volume-snap-one.img"].user_created);
    }
    c.kill().await;
    rig.write(8192, &[3; 4096]).await;
    assert_eq!(rig.mode_list().await, [Rw, Rw, Failed]);
    assert_eq!(rig.read(0, 12_288).await, [[1; 4096], [2; 4096], [3; 4096]].concat());

    rig.revert("one").await.unwrap();
    assert_eq!(rig.read(0, 12_288).await, [[1; 4096], [1; 4096], [0; 4096]].concat());

    let grown = i64::try_from(SIZE * 2).unwrap();
    let volume = rig.expand(grown).await.unwrap();
    assert_eq!((volume.size, volume.last_expansion_error.as_str()), (grown, ""));
    rig.write(SIZE as u64, &[4; 4096]).await;
    assert_eq!(rig.read(SIZE as u64, 4096).await, [4; 4096]);
    assert_eq!(a.get().await.size, grown.to_string());
    rig.engine.shutdown().await.unwrap();
    assert_eq!((a.get().await.state, a.get().await.dirty), ("closed".into(), false));
}

/// Which snapshots are flagged removed is each replica's own affair while a purge begins.
#[tokio::test(flavor = "multi_thread")]
async fn an_unmap_leaves_the_copies_equal_though_one_has_a_snapshot_removed() {
    let [a, b, c] = Copy::some::<3>(true).await;
    let rig = start(&[&a, &b, &c]).await;
    rig.write(0, &[7; 8192]).await;
    rig.snapshot("one").await.unwrap();
    a.mark_removed("one").await;
    rig.engine.volume().submit(Command::Unmap { offset: 0, len: 4096 }).await.unwrap();
    let first = rig.read(0, 8192).await;
    for _ in 0..6 {
        assert_eq!(rig.read(0, 8192).await, first);
    }
    assert_eq!(rig.mode_list().await, [Rw, Rw, Rw]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_missed_writes_is_not_started_with() {
    let [a, mut b] = Copy::some::<2>(true).await;
    let rig = start(&[&a, &b]).await;
    rig.write(0, &[1; 4096]).await;
    b.kill().await;
    rig.write(0, &[2; 4096]).await;
    rig.engine.shutdown().await.unwrap();
    b.start().await;
    let rig = start(&[&b, &a]).await;
    assert_eq!(rig.mode_list().await, [Failed, Rw]);
    assert_eq!(rig.read(0, 4096).await, [2; 4096]);
}

#[tokio::test(flavor = "multi_thread")]
async fn salvage_starts_with_the_copy_that_was_written_last() {
    let [a, mut b] = Copy::some::<2>(false).await;
    let rig = Rig::try_new(without_counters(&[&a, &b])).await.unwrap();
    rig.write(0, &[1; 4096]).await;
    b.kill().await;
    rig.write(4096, &vec![2; 65536]).await;
    rig.engine.shutdown().await.unwrap();
    b.start().await;
    let salvage = ControllerOptions { salvage: true, ..without_counters(&[&b, &a]) };
    let rig = Rig::try_new(salvage).await.unwrap();
    assert_eq!(rig.mode_list().await, [Failed, Rw]);
    assert_eq!(rig.read(4096, 4096).await, [2; 4096]);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_an_engine_that_died_are_taken_over_and_made_equal() {
    let [a, b] = Copy::some::<2>(false).await;
    let rig = Rig::try_new(without_counters(&[&a, &b])).await.unwrap();
    rig.write(0, &[1; 8192]).await;
    // It dies: nobody closes the replicas, and a last write reached one of them only.
    rig.engine.volume().stop().await;
    drop(rig);
    b.write(4096, &[9; 4096]).await;
    b.write(1 << 20, &[8; 4096]).await;
    for copy in [&a, &b] {
        abandoned(copy).await;
        assert_ne!(copy.get().await.state, "closed");
    }
    let rig = Rig::try_new(without_counters(&[&a, &b])).await.unwrap();
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    // Either is right, as nobody was told that the write is done; but reads agree from the first
    // moment on, and a snapshot waits until the copies do too.
    let chosen = (rig.read(4096, 4096).await, rig.read(1 << 20, 4096).await);
    assert!([(vec![1; 4096], vec![0; 4096]), (vec![9; 4096], vec![8; 4096])].contains(&chosen));
    for _ in 0..4 {
        assert_eq!(rig.read(4096, 4096).await, chosen.0);
    }
    rig.snapshot("equal").await.unwrap();
    for copy in [&a, &b] {
        assert_eq!(copy.read(4096, 4096).await, chosen.0);
        assert_eq!(copy.read(1 << 20, 4096).await, chosen.1);
    }
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
}

/// It came from a backup and clients wrote to it since: what they wrote last may differ.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_volume_is_made_equal_before_a_snapshot_though_it_has_no_frontend() {
    let [mut a, mut b] = Copy::some::<2>(true).await;
    let rig = start(&[&a, &b]).await;
    rig.write(0, &[1; 8192]).await;
    rig.snapshot("one").await.unwrap();
    rig.write(4096, &[2; 4096]).await;
    rig.engine.volume().stop().await;
    drop(rig);
    b.write(4096, &[9; 4096]).await;
    for copy in [&mut a, &mut b] {
        abandoned(copy).await;
        copy.kill().await;
        let restored = br#"{"lastRestored":"backup-1","snapshot":"volume-snap-one.img"}"#;
        durable::replace(copy.file("restore.json"), restored).unwrap();
        copy.start().await;
    }
    let rig = start(&[&a, &b]).await;
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    rig.snapshot("equal").await.unwrap();
    assert_eq!(a.read(4096, 4096).await, b.read(4096, 4096).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_become_equal_even_if_engines_come_and_go() {
    let [a, b, c] = Copy::some::<3>(false).await;
    let all = [&a, &b, &c];
    let rig = Rig::try_new(without_counters(&all)).await.unwrap();
    rig.engine.volume().stop().await;
    drop(rig);
    for (copy, byte) in all.into_iter().zip(1..) {
        for at in 0..64 {
            copy.write(at << 16, &[byte; 4096]).await;
        }
    }
    for round in 0..3 {
        for copy in all {
            abandoned(copy).await;
        }
        let rig = Rig::try_new(without_counters(&all)).await.unwrap();
        assert_eq!(rig.mode_list().await, [Rw, Rw, Rw], "round {round}");
        // Told to end at once, it may be anywhere on its way.
        rig.engine.shutdown().await.unwrap();
    }
    let rig = Rig::try_new(without_counters(&all)).await.unwrap();
    rig.snapshot("equal").await.unwrap();
    for at in 0..64 {
        let expected = a.read(at << 16, 4096).await;
        assert!(b.read(at << 16, 4096).await == expected, "{at}");
        assert!(c.read(at << 16, 4096).await == expected, "{at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_rebuilt_and_equal() {
    let [a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a]).await;
    rig.write(0, &[1; 8192]).await;
    rig.snapshot("one").await.unwrap();
    rig.write(4096, &[2; 4096]).await;

    assert_eq!(rig.add(&b.address(), true).await.unwrap(), Wo);
    rig.write(8192, &[3; 4096]).await;
    let rebuilding = |rebuilding| ptypes::RebuildingSetRequest { rebuilding };
    b.client().rebuilding_set(rebuilding(true)).await.unwrap();
    let prepared = rig.client().replica_prepare_rebuild(place(&b.address())).await.unwrap();
    let files = prepared.into_inner().sync_file_info_list;
    assert!(files.iter().any(|file| file.to_file_name == "volume-snap-one.img"), "{files:?}");
    let sync = ptypes::FilesSyncRequest {
        to_host: "127.0.0.1".into(),
        sync_file_info_list: files,
        file_sync_http_client_timeout: 5,
        from_address_map: [(a.address(), true)].into(),
        ..Default::default()
    };
    b.agent().files_sync(sync).await.unwrap();
    b.client().replica_reload(()).await.unwrap();
    assert_eq!(rig.verify(&b.address()).await.unwrap(), Rw);
    b.client().rebuilding_set(rebuilding(false)).await.unwrap();

    assert_eq!(a.get().await.revision_counter, b.get().await.revision_counter);
    let expected = [[1; 4096], [2; 4096], [3; 4096]].concat();
    assert_eq!(b.read(0, 12_288).await, expected);
    rig.client().replica_delete(place(&a.address())).await.unwrap();
    assert_eq!(rig.read(0, 12_288).await, expected);
    rig.revert("one").await.unwrap();
    assert_eq!(rig.read(0, 12_288).await, [[1; 4096], [1; 4096], [0; 4096]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_volume_starts_again_with_what_it_had() {
    let [a, b] = Copy::some::<2>(true).await;
    for round in 1..=3 {
        let rig = start(&[&a, &b]).await;
        assert_eq!(rig.mode_list().await, [Rw, Rw], "round {round}");
        rig.write(u64::from(round) * 4096, &[round; 4096]).await;
        rig.client().volume_shutdown(()).await.unwrap();
    }
    let rig = start(&[&b]).await;
    assert_eq!(rig.read(4096, 12_288).await, [[1; 4096], [2; 4096], [3; 4096]].concat());
}

/// A copy that was removed and comes back at once has all that the others have.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_missed_nothing_joins_to_be_read() {
    let [a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a, &b]).await;
    rig.write(0, &[1; 4096]).await;
    rig.snapshot("one").await.unwrap();
    rig.write(4096, &[2; 4096]).await;
    let remove = async || {
        rig.client().replica_delete(place(&b.address())).await.unwrap();
        until("it to be closed", async || (b.get().await.state == "closed").then_some(())).await;
    };
    let join = async || {
        let request = ptypes::ControllerReplicaCreateRequest {
            address: b.address(),
            snapshot_required: true,
            mode: Rw.into(),
        };
        Ok::<_, tonic::Status>(
            rig.client().controller_replica_create(request).await?.into_inner().mode(),
        )
    };
    remove().await;
    assert_eq!(join().await.unwrap(), Rw);
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    assert_eq!(a.get().await.chain, b.get().await.chain, "both have the snapshot of that moment");
    rig.write(8192, &[3; 4096]).await;
    assert_eq!(a.get().await.revision_counter, b.get().await.revision_counter);
    for _ in 0..4 {
        assert_eq!(rig.read(0, 12_288).await, [[1; 4096], [2; 4096], [3; 4096]].concat());
    }

    remove().await;
    rig.write(0, &[4; 4096]).await;
    let refused = join().await.unwrap_err();
    assert!(refused.message().contains("its revision counter is not"), "{refused}");
    assert!(refused.message().contains("add it in mode WO"), "{refused}");
    assert_eq!(b.get().await.state, "closed", "and it is closed again");
    let refused = join().await.unwrap_err();
    assert!(refused.message().contains("it was being filled"), "from now on: {refused}");
    assert_eq!(rig.mode_list().await, [Rw]);
    assert_eq!(rig.read(0, 4096).await, [4; 4096]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_writes_counts() {
    let [a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a, &b]).await;
    rig.write(0, &[1; 512]).await;
    assert_eq!((a.get().await.revision_counter, b.get().await.revision_counter), (1, 1));
    b.client().replica_close(()).await.unwrap();
    for number in 0..11_u8 {
        rig.write(0, &[number; 512]).await;
    }
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
    assert_eq!(a.get().await.revision_counter, 12);
}

/// What is written to a file without a name is not there for the next process.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_head_was_deleted_fails() {
    let [a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a, &b]).await;
    rig.write(0, &[1; 4096]).await;
    std::fs::remove_file(b.file(&b.get().await.head)).unwrap();
    until("it to fail", async || (rig.mode_list().await == [Rw, Failed]).then_some(())).await;
    rig.write(4096, &[2; 4096]).await;
    assert_eq!(rig.read(0, 8192).await, [[1; 4096], [2; 4096]].concat());
}
