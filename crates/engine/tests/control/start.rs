//! Starting a volume: who is taken, who is refused, what becomes of them.

use engine::ControllerOptions;
use rpc::ptypes::ReplicaMode::{Err as Failed, Rw};
use rpc::{Features, ptypes};
use testkit::process::free_ports;
use tonic::Status;

use crate::fake::{Fake, Manner};
use crate::rig::{Rig, SIZE, VOLUME, options, with_replicas};

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_starts_with_all_its_replicas_and_closes_them() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address, &b.address]).await;
    assert_eq!(
        rig.modes().await,
        [(a.address.clone(), Rw), (b.address.clone(), Rw)],
        "in the order they were given"
    );
    assert!(a.called(&format!("replica_open false {SIZE}")));
    let volume = rig.get().await;
    assert_eq!((volume.name.as_str(), volume.size, volume.replica_count), (VOLUME, 4 << 20, 2));
    rig.write(4096, &[7; 4096]).await;
    assert_eq!((a.bytes(4096, 4096), b.bytes(4096, 4096)), (vec![7; 4096], vec![7; 4096]));
    let after = rig.client().volume_shutdown(()).await.unwrap().into_inner();
    assert_eq!(after.replica_count, 0);
    assert_eq!((a.state(), b.state()), ("closed".into(), "closed".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_must_be_closed_unless_its_engine_is_gone() {
    let (a, b, c) = (Fake::new(SIZE), Fake::new(SIZE), Fake::new(SIZE));
    b.change(|replica| replica.state = "dirty".into());
    c.change(|replica| {
        replica.state = "dirty".into();
        replica.holdfast_features = Features::ZERO.0;
    });
    let rig = Rig::with(&[&a.address, &b.address, &c.address]).await;
    assert_eq!(rig.mode_list().await, [Rw, Failed, Rw]);
    assert_eq!(b.calls("replica_open"), 0);
    assert_eq!((c.calls("replica_close"), c.calls("replica_open")), (1, 1));
}

async fn refused(options: ControllerOptions) -> (u8, String) {
    match Rig::try_new(options).await {
        Ok(_) => panic!("it started"),
        Err(error) => (error.exit_code(), error.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_usable_replica_the_exit_code_says_why() {
    let open = Fake::new(SIZE);
    open.change(|replica| replica.state = "open".into());
    let (code, text) = refused(with_replicas(&[&open.address])).await;
    assert_eq!(code, 61);
    assert!(text.starts_with("no available backend due to replica error"), "{text}");
    assert!(text.contains("replica must be closed, cannot add in state: open"), "{text}");

    let gone = format!("tcp://127.0.0.1:{}", free_ports(3).unwrap());
    let (code, text) = refused(with_replicas(&[&open.address, &gone])).await;
    assert_eq!(code, 1);
    assert!(text.starts_with("no available backend due to service unavailable"), "{text}");

    let (code, text) = refused(with_replicas(&[&gone, &gone])).await;
    assert_eq!(code, 1);
    let twice = format!("invalid ReplicaAddress: duplicate replica addresses {gone}");
    assert_eq!(text, twice);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_do_not_fit_are_listed_as_failed_and_let_go() {
    let (good, small, stale, other) =
        (Fake::new(SIZE), Fake::new(SIZE / 2), Fake::new(SIZE), Fake::new(SIZE));
    good.change(|replica| replica.revision_counter = 9);
    stale.change(|replica| replica.revision_counter = 8);
    other.change(|replica| replica.revision_counter_disabled = true);
    let all = [&good.address, &small.address, &stale.address, &other.address];
    let rig = Rig::with(&all.map(String::as_str)).await;
    assert_eq!(rig.mode_list().await, [Rw, Failed, Failed, Failed]);
    assert_eq!(good.state(), "open");
    for refused in [&small, &stale, &other] {
        assert_eq!(refused.state(), "closed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_does_not_compare_counters() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    a.change(|replica| replica.revision_counter = 9);
    let wanted = ControllerOptions { upgrade: true, ..with_replicas(&[&a.address, &b.address]) };
    let rig = Rig::try_new(wanted).await.unwrap();
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    assert!(a.called(&format!("replica_open true {SIZE}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn salvage_keeps_the_newest_head() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    for (fake, modified) in [(&a, 1), (&b, 1 << 40)] {
        fake.change(|replica| {
            replica.revision_counter_disabled = true;
            replica.last_modify_time = modified;
        });
    }
    let wanted = ControllerOptions {
        revision_counter: false,
        salvage: true,
        ..with_replicas(&[&a.address, &b.address])
    };
    assert_eq!(Rig::try_new(wanted).await.unwrap().mode_list().await, [Failed, Rw]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_lone_replica_is_freed_of_a_rebuild_that_broke_off() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    b.change(|replica| replica.rebuilding = true);
    let rig = Rig::with(&[&a.address, &b.address]).await;
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
    rig.client().volume_shutdown(()).await.unwrap();
    b.change(|replica| replica.rebuilding = true);
    assert_eq!(Rig::with(&[&b.address]).await.mode_list().await, [Rw]);
    assert!(b.called("rebuilding_set false"));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_reach_replicas_and_one_that_refuses_them_is_out() {
    let (a, b, c) = (Fake::new(SIZE), Fake::new(SIZE), Fake::new(SIZE));
    b.refuse("snapshot_max_count_set", "no");
    c.behave("snapshot_max_size_set", Manner::Refuse(Status::unimplemented("never heard of it")));
    let wanted = ControllerOptions {
        unmap_mark_snap_chain_removed: true,
        snapshot_max_count: 17,
        snapshot_max_size: 1 << 40,
        ..with_replicas(&[&a.address, &b.address, &c.address])
    };
    let rig = Rig::try_new(wanted).await.unwrap();
    assert_eq!(rig.mode_list().await, [Rw, Failed, Rw]);
    for call in [
        "unmap_mark_disk_chain_removed_set true",
        "snapshot_max_count_set 17",
        "snapshot_max_size_set 1099511627776",
    ] {
        assert!(a.called(call), "{call}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_can_be_started_by_a_call_and_a_second_start_does_nothing() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::try_new(options()).await.unwrap();
    assert_eq!(rig.get().await.replica_count, 0);
    let start = |addresses: &[&Fake]| ptypes::VolumeStartRequest {
        replica_addresses: addresses.iter().map(|fake| fake.address.clone()).collect(),
        size: 4 << 20,
        current_size: 4 << 20,
    };
    let started = rig.client().volume_start(start(&[&a])).await.unwrap().into_inner();
    assert_eq!((started.replica_count, started.size), (1, 4 << 20));
    rig.client().volume_start(start(&[&b])).await.unwrap();
    assert_eq!(rig.modes().await, [(a.address.clone(), Rw)]);
    assert_eq!(b.calls("replica_open"), 0);
    let twice = rig.client().volume_shutdown(()).await;
    assert!(twice.is_ok());
    let error = rig.client().volume_start(start(&[&a, &a])).await.unwrap_err();
    assert!(error.message().starts_with("invalid ReplicaAddress: duplicate replica addresses"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_file_is_a_replica_that_keeps_no_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("raw.img");
    std::fs::File::create(&path).unwrap().set_len(SIZE as u64).unwrap();
    let address = format!("file://{}", path.display());
    let rig = Rig::with(&[&address]).await;
    assert_eq!(rig.modes().await, [(address, Rw)]);
    rig.write(8192, &[3; 512]).await;
    assert_eq!(rig.read(8192, 512).await, [3; 512]);
    rig.snapshot("s").await.unwrap();
    let error = rig.revert("s").await.unwrap_err();
    assert!(error.message().contains("is not supported by the raw file"), "{error}");
    assert_eq!(rig.mode_list().await, [Rw], "the rejection costs nothing");
}
