//! Adding, rebuilding, switching and removing replicas.

use rpc::ptypes::ReplicaMode::{Err as Failed, Rw, Wo};
use rpc::ptypes::{self, ReplicaMode};
use tonic::Code;

use crate::fake::{Fake, Manner};
use crate::rig::{Rig, SIZE, options, place};

async fn update(rig: &Rig, address: &str, mode: ReplicaMode) -> Result<ReplicaMode, tonic::Status> {
    let wanted = ptypes::ControllerReplica { address: Some(place(address)), mode: mode.into() };
    Ok(rig.client().replica_update(wanted).await?.into_inner().mode())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_from_adding_to_reading() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    rig.snapshot("old").await.unwrap();
    b.change(|replica| {
        replica.disks.insert("volume-snap-left.img".into(), ptypes::DiskInfo::default());
    });
    assert_eq!(rig.add(&b.address, true).await.unwrap(), Wo);
    let system: Vec<_> =
        b.replica().chain.into_iter().filter(|disk| disk.contains("snap")).collect();
    assert_eq!(system.len(), 1);
    assert!(a.replica().disks.contains_key(&system[0]), "both have the same system snapshot");
    rig.write(0, &[9; 4096]).await;
    assert_eq!(b.bytes(0, 4096), [9; 4096], "it takes writes from the moment it joined");

    let prepared = rig.client().replica_prepare_rebuild(place(&b.address)).await.unwrap();
    let prepared = prepared.into_inner();
    assert_eq!(prepared.replica.unwrap().mode(), Wo);
    let files: Vec<_> = prepared
        .sync_file_info_list
        .iter()
        .map(|file| (file.from_file_name.as_str(), file.actual_size))
        .collect();
    assert!(files.contains(&("volume-snap-old.img", 4096)), "{files:?}");
    assert!(files.contains(&("volume-snap-old.img.meta", 0)), "{files:?}");
    assert_eq!(files.len(), 4);
    assert!(b.called("disk_remove volume-snap-left.img true"));
    assert!(b.called("revision_counter_set 0"));
    assert!(b.called("receiver_launch volume-head-000.img.meta"));
    assert!(a.called("file_send volume-head-000.img.meta 127.0.0.1:4711"));

    let error = rig.verify(&b.address).await.unwrap_err();
    assert!(error.message().contains("'s disk number is not equal to that of RW replica"));
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_the_same_disks_is_read_from_after_verifying() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    rig.add(&b.address, true).await.unwrap();
    a.change(|replica| replica.revision_counter = 77);
    assert_eq!(rig.verify(&b.address).await.unwrap(), Rw);
    assert!(b.called("revision_counter_set 77"));
    assert_eq!(rig.verify(&b.address).await.unwrap(), Rw, "once more is fine");
    assert_eq!(rig.verify(&a.address).await.unwrap(), Rw);
    let error = rig.client().replica_prepare_rebuild(place(&a.address)).await.unwrap_err();
    assert!(error.message().contains("mode RW"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_healthy_replica_survives_verifying_and_a_lone_restored_one_becomes_readable() {
    let a = Fake::new(SIZE);
    let rig = Rig::with(&[&a.address]).await;
    assert_eq!(rig.verify(&a.address).await.unwrap(), Rw);
    let b = Fake::new(SIZE);
    assert_eq!(rig.add(&b.address, false).await.unwrap(), Wo);
    assert_eq!(b.calls("replica_snapshot"), 0, "none was asked for");
    assert_eq!(update(&rig, &a.address, Failed).await.unwrap(), Failed);
    assert_eq!(rig.verify(&b.address).await.unwrap(), Rw);
    assert_eq!(rig.mode_list().await, [Failed, Rw]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_joins_at_a_time_and_only_a_closed_one_of_the_right_size() {
    let (a, b, c) = (Fake::new(SIZE), Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    let text = async |fake: &Fake, snapshot| {
        rig.add(&fake.address, snapshot).await.unwrap_err().message().to_owned()
    };
    b.change(|replica| replica.state = "open".into());
    assert_eq!(text(&b, true).await, "replica must be closed, cannot add in state: open");
    b.change(|replica| {
        replica.state = "closed".into();
        replica.size = "4096".into();
    });
    assert!(text(&b, true).await.contains("has size 4096"));
    assert_eq!(b.state(), "closed", "and it is closed again");
    b.change(|replica| replica.size = SIZE.to_string());
    b.refuse("replica_snapshot", "disk on fire");
    assert!(text(&b, true).await.contains("disk on fire"));
    assert_eq!(a.calls("replica_snapshot"), 0, "the new one is asked first");
    assert_eq!(rig.add(&b.address, false).await.unwrap(), Wo);
    assert_eq!(rig.add(&b.address, true).await.unwrap(), Wo, "a known one is not added again");
    assert_eq!(text(&c, true).await, "can only have one WO replica at a time");
    assert_eq!(rig.modes().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_replica_may_be_added_and_switched_by_hand() {
    let a = Fake::new(SIZE);
    let rig = Rig::try_new(options()).await.unwrap();
    assert_eq!(rig.add(&a.address, true).await.unwrap(), Wo);
    assert_eq!(rig.get().await.size, 4 << 20);
    let error = update(&rig, &a.address, Wo).await.unwrap_err();
    assert_eq!(error.message(), "cannot set to mode WO");
    assert_eq!(update(&rig, &a.address, Rw).await.unwrap(), Rw);
    rig.write(0, &[4; 512]).await;
    assert_eq!(rig.read(0, 512).await, [4; 512]);
    assert_eq!(update(&rig, &a.address, Failed).await.unwrap(), Failed);
    assert_eq!(update(&rig, &a.address, Rw).await.unwrap(), Failed, "ERR is for good");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_found_by_address_and_removed() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address, &b.address]).await;
    let mut client = rig.client();
    let found = client.replica_get(place(&b.address)).await.unwrap().into_inner();
    assert_eq!((found.address.clone().unwrap().address, found.mode()), (b.address.clone(), Rw));
    client.replica_delete(place(&b.address)).await.unwrap();
    assert_eq!(b.state(), "closed");
    let error = client.replica_get(place(&b.address)).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let text = format!(
        "cannot find the replica with address {} in the controller server of volume vol-test",
        b.address
    );
    assert_eq!(error.message(), text);
    client.replica_delete(place("tcp://nobody:1")).await.unwrap();
    client.replica_delete(place(&a.address)).await.unwrap();
    assert_eq!(rig.modes().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_replica_stays_while_the_frontend_is_up() {
    let a = Fake::new(SIZE);
    let rig = Rig::with(&[&a.address]).await;
    let mut client = rig.client();
    let start = |frontend: &str| ptypes::VolumeFrontendStartRequest { frontend: frontend.into() };
    let text = async |name: &str| {
        rig.client().volume_frontend_start(start(name)).await.unwrap_err().message().to_owned()
    };
    assert_eq!(text("").await, "cannot start empty frontend");
    assert_eq!(text("x").await, "failed to find frontend: x: unsupported frontend type: x");
    let volume = client.volume_frontend_start(start("nbd")).await.unwrap().into_inner();
    assert_eq!((volume.frontend.as_str(), volume.frontend_state.as_str()), ("nbd", "up"));
    assert!(!volume.endpoint.is_empty());
    assert_eq!(text("socket").await, "frontend nbd is already started, cannot be set as socket");
    let error = client.replica_delete(place(&a.address)).await.unwrap_err();
    assert_eq!(error.message(), "cannot remove last replica if volume is up");
    rig.snapshot("s").await.unwrap();
    let error = rig.revert("s").await.unwrap_err();
    assert_eq!(error.message(), "volume frontend enabled, aborting snapshot revert");
    let volume = client.volume_frontend_shutdown(()).await.unwrap().into_inner();
    assert_eq!((volume.frontend.as_str(), volume.frontend_state.as_str()), ("nbd", "down"));
    rig.revert("s").await.unwrap();
    client.replica_delete(place(&a.address)).await.unwrap();
}

/// It may be in the middle of a restore.
#[tokio::test(flavor = "multi_thread")]
async fn no_frontend_starts_while_an_agent_does_not_answer() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address, &b.address]).await;
    b.refuse("restore_status", "the disk hangs");
    let start = ptypes::VolumeFrontendStartRequest { frontend: "nbd".into() };
    let refused = rig.client().volume_frontend_start(start).await.unwrap_err();
    let text = refused.message();
    assert!(text.contains(&b.address) && text.contains("the disk hangs"), "{text}");
    assert_eq!(rig.get().await.frontend_state, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_replica_delays_neither_lists_nor_others() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address, &b.address]).await;
    for method in ["replica_get", "replica_snapshot", "replica_close"] {
        b.behave(method, Manner::Stall);
    }
    let taking = rig.snapshot("s");
    let looking = async {
        for _ in 0..20 {
            assert_eq!(rig.get().await.replica_count, 2);
            assert_eq!(rig.modes().await.len(), 2);
        }
    };
    let (taken, ()) = tokio::join!(taking, looking);
    taken.unwrap();
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
    rig.client().replica_delete(place(&b.address)).await.unwrap();
    assert_eq!(rig.mode_list().await, [Rw]);
}
