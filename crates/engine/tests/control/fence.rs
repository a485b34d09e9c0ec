//! One engine at a time, and copies that cannot differ: what generations and records are for.

use engine::ControllerOptions;
use engine::core::Command;
use rpc::ptypes::ReplicaMode::{Err as Failed, Rw, Wo};
use rpc::ptypes::{self, ReplicaRevertRequest};
use wire::membership::Filling;

use crate::copies::Copy;
use crate::rig::{Rig, until};
use crate::whole::{abandoned, options, start, without_counters};

async fn refused(options: ControllerOptions) -> (u8, String) {
    match Rig::try_new(options).await {
        Ok(_) => panic!("it started"),
        Err(error) => (error.exit_code(), error.to_string()),
    }
}

/// Ends an engine as a kill does: nobody closes the replicas.
async fn kill(rig: Rig, copies: &[&Copy]) {
    rig.engine.volume().stop().await;
    drop(rig);
    for copy in copies {
        abandoned(copy).await;
    }
}

async fn try_write(rig: &Rig, offset: u64, byte: u8) -> Result<(), String> {
    let data = vec![byte; 4096].into();
    let done = rig.engine.volume().submit(Command::Write { offset, data, durable: false }).await;
    done.map(|_| ()).map_err(|fault| fault.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_engines_drive_one_replica_set_and_the_older_is_cut_off() {
    let [a, b] = Copy::some::<2>(true).await;
    let old = start(&[&a, &b]).await;
    old.write(0, &[1; 4096]).await;
    let (code, text) = refused(options(&[&a, &b])).await;
    assert_eq!(code, 61, "a plain start respects an engine that is there: {text}");

    let upgrade = ControllerOptions { upgrade: true, ..options(&[&a, &b]) };
    let new = Rig::try_new(upgrade).await.unwrap();
    new.write(4096, &[2; 4096]).await;
    let fault = try_write(&old, 0, 9).await.unwrap_err();
    assert!(fault.contains("cut off"), "{fault}");
    assert!(try_write(&old, 0, 9).await.is_err(), "for good");
    let again = ptypes::VolumeStartRequest {
        replica_addresses: vec![a.address()],
        size: 4 << 20,
        current_size: 4 << 20,
    };
    old.engine.shutdown().await.unwrap();
    assert!(old.client().volume_start(again).await.is_err(), "it does not come back");

    assert_eq!(new.mode_list().await, [Rw, Rw]);
    assert_eq!(new.read(0, 8192).await, [[1; 4096], [2; 4096]].concat());
    for copy in [&a, &b] {
        assert_eq!(copy.read(0, 4096).await, [1; 4096], "not one of its writes is there");
    }
}

/// An engine that was to be started on a node which hung, and comes when the volume is another's by now.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_was_given_the_volume_earlier_does_not_take_it_from_a_later_one() {
    let [a, b] = Copy::some::<2>(true).await;
    let given = |number| ControllerOptions { claim_generation: Some(number), ..options(&[&a, &b]) };
    let first = Rig::try_new(given(5)).await.unwrap();
    first.write(0, &[1; 4096]).await;
    kill(first, &[&a, &b]).await;
    let second = Rig::try_new(given(7)).await.unwrap();
    second.write(0, &[2; 4096]).await;
    // The later one is not even heard of now, or it hangs.
    kill(second, &[&a, &b]).await;
    for upgrade in [false, true] {
        let late = ControllerOptions { upgrade, ..given(6) };
        let (code, text) = refused(late).await;
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("claimed with 7 already"), "{text}");
    }
    let again = Rig::try_new(given(7)).await.unwrap();
    assert_eq!(again.mode_list().await, [Rw, Rw]);
    assert_eq!(again.read(0, 4096).await, [2; 4096]);
    let next = ControllerOptions { upgrade: true, ..given(7) };
    let next = Rig::try_new(next).await.unwrap();
    assert_eq!(next.read(0, 4096).await, [2; 4096], "engines of one right follow each other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_upgrade_leaves_out_a_copy_that_the_old_engine_had_lost() {
    let [a, mut b] = Copy::some::<2>(true).await;
    let old = start(&[&a, &b]).await;
    old.write(0, &[1; 4096]).await;
    b.kill().await;
    old.write(0, &[2; 4096]).await;
    b.start().await;
    let upgrade = ControllerOptions { upgrade: true, ..options(&[&b, &a]) };
    let new = Rig::try_new(upgrade).await.unwrap();
    assert_eq!(new.mode_list().await, [Failed, Rw]);
    assert_eq!(new.read(0, 4096).await, [2; 4096]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_upgrade_mends_what_was_in_flight() {
    let [a, b] = Copy::some::<2>(true).await;
    let old = start(&[&a, &b]).await;
    old.write(0, &[1; 4096]).await;
    old.engine.volume().stop().await;
    abandoned(&a).await;
    abandoned(&b).await;
    // What was on its way reached one of them.
    b.write(0, &[2; 4096]).await;
    let upgrade = ControllerOptions { upgrade: true, ..options(&[&a, &b]) };
    let new = Rig::try_new(upgrade).await.unwrap();
    assert_eq!(new.mode_list().await, [Rw, Rw]);
    new.snapshot("equal").await.unwrap();
    assert_eq!(a.read(0, 4096).await, b.read(0, 4096).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_upgrade_takes_nothing_while_a_copy_that_may_hold_more_is_away() {
    let [a, mut b] = Copy::some::<2>(true).await;
    let old = start(&[&a, &b]).await;
    old.write(0, &[1; 4096]).await;
    kill(old, &[&a, &b]).await;
    b.kill().await;
    let before = a.standing().await.claim;
    let upgrade = ControllerOptions { upgrade: true, ..options(&[&a, &b]) };
    let (code, text) = refused(upgrade).await;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("may have newer data"), "{text}");
    assert_eq!(a.standing().await.claim, before, "it was not claimed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_killed_under_load_costs_no_copy() {
    let [a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a, &b]).await;
    rig.write(0, &[1; 4096]).await;
    rig.engine.volume().stop().await;
    drop(rig);
    // What was in flight reached one of them.
    b.write(0, &[2; 4096]).await;
    abandoned(&a).await;
    abandoned(&b).await;
    assert_ne!(a.get().await.revision_counter, b.get().await.revision_counter);
    let rig = start(&[&a, &b]).await;
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    rig.snapshot("equal").await.unwrap();
    assert_eq!(a.read(0, 4096).await, b.read(0, 4096).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_copy_does_not_win_by_the_time_of_its_head() {
    let [a, mut b] = Copy::some::<2>(false).await;
    let rig = Rig::try_new(without_counters(&[&a, &b])).await.unwrap();
    rig.write(0, &[1; 4096]).await;
    b.kill().await;
    rig.write(0, &[2; 4096]).await;
    rig.engine.volume().submit(Command::Flush).await.unwrap();
    kill(rig, &[&a]).await;
    // Its clock is ahead, or it was only touched.
    b.start().await;
    let head = b.file("volume-head-000.img");
    let tomorrow = std::time::SystemTime::now() + std::time::Duration::from_hours(24);
    std::fs::File::options().write(true).open(head).unwrap().set_modified(tomorrow).unwrap();
    let rig = Rig::try_new(without_counters(&[&b, &a])).await.unwrap();
    assert_eq!(rig.mode_list().await, [Failed, Rw]);
    assert_eq!(rig.read(0, 4096).await, [2; 4096]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_subset_does_not_start_alone() {
    let [mut a, mut b] = Copy::some::<2>(true).await;
    let rig = start(&[&a, &b]).await;
    rig.write(0, &[1; 4096]).await;
    b.kill().await;
    rig.write(0, &[2; 4096]).await;
    kill(rig, &[&a]).await;
    a.kill().await;
    b.start().await;
    let (code, text) = refused(options(&[&b, &a])).await;
    assert_eq!(code, 1, "{text}");
    assert!(text.starts_with("no available backend due to service unavailable"), "{text}");
    assert!(text.contains("may have newer data"), "{text}");
    let salvage = ControllerOptions { salvage: true, ..options(&[&b, &a]) };
    let rig = Rig::try_new(salvage).await.unwrap();
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
    rig.engine.shutdown().await.unwrap();
    a.start().await;
    let rig = start(&[&b, &a]).await;
    assert_eq!(rig.mode_list().await, [Rw, Failed], "what was salvaged is the volume now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revert_that_reached_one_copy_leaves_no_copies_that_differ() {
    let all = Copy::some::<3>(true).await;
    let [a, b, c] = &all;
    let rig = start(&[a, b, c]).await;
    rig.write(0, &[1; 4096]).await;
    rig.snapshot("one").await.unwrap();
    rig.write(0, &[2; 4096]).await;
    rig.snapshot("two").await.unwrap();
    rig.write(4096, &[3; 4096]).await;
    kill(rig, &[a, b, c]).await;
    let request = ReplicaRevertRequest {
        name: "volume-snap-one.img".into(),
        created: "2026-11-15T06:25:24Z".into(),
    };
    a.client().replica_revert(request).await.unwrap();
    let rig = start(&[a, b, c]).await;
    assert_eq!(rig.mode_list().await, [Failed, Rw, Rw]);
    for _ in 0..4 {
        assert_eq!(rig.read(0, 8192).await, [[2; 4096], [3; 4096]].concat());
    }
}

/// Nothing but system snapshots tells the copies apart, so mending has to reach below the heads.
#[tokio::test(flavor = "multi_thread")]
async fn a_revert_below_a_system_snapshot_is_mended_whole() {
    let [a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a, &b]).await;
    rig.write(0, &[1; 4096]).await;
    rig.snapshot("one").await.unwrap();
    rig.write(0, &[2; 4096]).await;
    kill(rig, &[&a, &b]).await;
    let system = ptypes::ReplicaSnapshotRequest {
        name: "system".into(),
        created: "2026-11-15T06:25:24Z".into(),
        ..Default::default()
    };
    for copy in [&a, &b] {
        copy.client().replica_snapshot(system.clone()).await.unwrap();
    }
    let request = ReplicaRevertRequest {
        name: "volume-snap-one.img".into(),
        created: "2026-11-15T06:25:24Z".into(),
    };
    b.client().replica_revert(request).await.unwrap();
    let rig = start(&[&a, &b]).await;
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    rig.snapshot("equal").await.unwrap();
    assert_eq!(a.read(0, 4096).await, b.read(0, 4096).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_joins_is_disqualified_before_it_is_written_to_and_not_read_before_it_is_full()
{
    let [a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a]).await;
    rig.write(0, &[1; 4096]).await;
    assert_eq!(rig.add(&b.address(), true).await.unwrap(), Wo);
    let seen = b.get().await;
    assert_eq!((seen.rebuilding, seen.revision_counter), (true, 0));
    assert_eq!(b.standing().await.filling, Filling::Wanted);
    // The files have the names they should have, and nothing in them.
    rig.client().replica_prepare_rebuild(crate::rig::place(&b.address())).await.unwrap();
    let rejection = rig.verify(&b.address()).await.unwrap_err();
    assert!(rejection.message().contains("was not filled"), "{rejection}");
    assert_eq!(rig.mode_list().await, [Rw, Wo]);
    kill(rig, &[&a, &b]).await;
    let rig = start(&[&a, &b]).await;
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
    rig.engine.shutdown().await.unwrap();
    let (_, text) = refused(options(&[&b])).await;
    assert!(text.contains("to be filled"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_copy_to_mend_from_is_on_disk_before_anything_is_read() {
    let [a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a, &b]).await;
    rig.write(0, &[1; 4096]).await;
    kill(rig, &[&a, &b]).await;
    for at in 0..256 {
        b.write(at * 8192, &[2; 4096]).await;
    }
    let rig = start(&[&b, &a]).await;
    let reader = a.standing().await.record.unwrap().reader;
    let equal = async || a.standing().await.record.unwrap().reader.is_none().then_some(());
    // It may have been quick; if not, the first in the list is what was read.
    assert!(reader.is_none() || reader == Some(b.standing().await.id));
    until("the copies to be equal", equal).await;
    assert_eq!(rig.read(0, 4096).await, [2; 4096]);
    assert_eq!(a.read(0, 4096).await, [2; 4096]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_whose_command_was_killed_is_ended_by_the_engine() {
    let [a, b] = Copy::some::<2>(true).await;
    // Long enough to get from one call below to the next on a loaded machine.
    let rebuild_timeout = std::time::Duration::from_secs(10);
    let hasty = ControllerOptions { rebuild_timeout, ..options(&[&a]) };
    let rig = Rig::try_new(hasty).await.unwrap();
    rig.write(0, &[1; 4096]).await;
    rig.add(&b.address(), true).await.unwrap();
    let prepared = rig.client().replica_prepare_rebuild(crate::rig::place(&b.address())).await;
    let sync = ptypes::FilesSyncRequest {
        to_host: "127.0.0.1".into(),
        sync_file_info_list: prepared.unwrap().into_inner().sync_file_info_list,
        file_sync_http_client_timeout: 5,
        from_address_map: [(a.address(), true)].into(),
        ..Default::default()
    };
    // Nobody asks for more.
    b.agent().files_sync(sync).await.unwrap();
    let whole = async || (rig.mode_list().await == [Rw, Rw]).then_some(());
    until("the replica to be verified", whole).await;
    assert_eq!(b.read(0, 4096).await, [1; 4096]);
    let done = async || (!b.get().await.rebuilding).then_some(());
    until("it to be no longer marked as rebuilding", done).await;
    assert!(b.standing().await.record.unwrap().names(&b.standing().await.id));
}
