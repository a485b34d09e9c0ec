//! Replicas that the engine fills by itself.

use rpc::ptypes::ReplicaMode::{Err as Failed, Rw};
use rpc::ptypes::{ControllerReplicaCreateRequest, ReplicaMode};
use rpc::{Rebuilding, rebuild_request};
use tonic::{Code, Status};

use crate::copies::Copy;
use crate::fake::{Fake, Manner};
use crate::rig::{Rig, SIZE, until};
use crate::whole::start;

const HOW: Rebuilding =
    Rebuilding { fast_sync: true, file_sync_timeout_seconds: 5, call_timeout_seconds: 0 };

async fn fill(rig: &Rig, address: &str) -> Result<ReplicaMode, Status> {
    let replica = ControllerReplicaCreateRequest {
        address: address.into(),
        snapshot_required: true,
        mode: ReplicaMode::Wo.into(),
    };
    let filled = rig.client().controller_replica_create(rebuild_request(replica, HOW)).await;
    Ok(filled?.into_inner().mode())
}

async fn is_whole(rig: &Rig, copy: &Copy) {
    assert_eq!(copy.read(0, 4096).await, [1; 4096]);
    assert!(!copy.get().await.rebuilding);
    assert!(copy.standing().await.record.unwrap().names(&copy.standing().await.id));
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_fills_a_replica_and_a_second_one_waits_for_it() {
    let [a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a]).await;
    rig.write(0, &[1; 4096]).await;
    let address = b.address();
    let (one, other) = tokio::join!(fill(&rig, &address), fill(&rig, &address));
    assert_eq!((one.unwrap(), other.unwrap()), (Rw, Rw));
    is_whole(&rig, &b).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_goes_on_though_whoever_asked_for_it_is_gone() {
    let [a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a]).await;
    rig.write(0, &[1; 4096]).await;
    let address = b.address();
    tokio::select! {
        // It may be that quick.
        _ = fill(&rig, &address) => {}
        () = until("it to be added", async || (rig.mode_list().await.len() == 2).then_some(())) => {}
    }
    until("it to be filled", async || (rig.mode_list().await == [Rw, Rw]).then_some(())).await;
    until("it to be no longer marked", async || (!b.get().await.rebuilding).then_some(())).await;
    is_whole(&rig, &b).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_filled_is_out_at_once() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    let error = fill(&rig, &b.address).await.unwrap_err();
    let text = format!("replica {} is not filled: rpc error: code = Unimplemented", b.address);
    assert!(error.message().starts_with(&text), "{error}");
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
    let again = fill(&rig, &b.address).await.unwrap_err();
    let text = format!("replica {} has failed: remove it before adding it", b.address);
    assert_eq!((again.code(), again.message()), (Code::Unknown, text.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_take_the_snapshot_is_no_member_and_keeps_nothing_out() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    b.behave("replica_snapshot", Manner::Refuse(Status::unknown("disk on fire")));
    let error = fill(&rig, &b.address).await.unwrap_err();
    let text = format!("{}: disk on fire", b.address);
    assert!(error.message().ends_with(&text), "{error}");
    assert_eq!(rig.mode_list().await, [Rw]);
    assert_eq!(a.calls("replica_snapshot"), 0, "nobody else was asked");
    assert_eq!(b.state(), "closed");
    rig.write(0, &[1; 4096]).await;
}
