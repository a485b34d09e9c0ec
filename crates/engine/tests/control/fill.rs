//! Replicas that the engine fills by itself.

use std::pin::{Pin, pin};

use rpc::ptypes::ReplicaMode::{Err as Failed, Rw, Wo};
use rpc::ptypes::controller_service_client::ControllerServiceClient;
use rpc::ptypes::{ControllerReplicaCreateRequest, ReplicaMode, VolumeSnapshotRequest};
use rpc::{Peer, Rebuilding, rebuild_request};
use tokio::sync::watch;
use tonic::{Code, Status};

use crate::copies::Copy;
use crate::fake::{Fake, Manner};
use crate::rig::{Rig, SIZE, place, until};
use crate::whole::start;

const HOW: Rebuilding =
    Rebuilding { fast_sync: true, file_sync_timeout_seconds: 5, call_timeout_seconds: 0 };

async fn fill(rig: &Rig, address: &str) -> Result<ReplicaMode, Status> {
    fill_by(&mut rig.client(), address).await
}

type Client = ControllerServiceClient<Peer>;

async fn fill_by(client: &mut Client, address: &str) -> Result<ReplicaMode, Status> {
    let request = rebuild_request(joining(address), HOW);
    Ok(client.controller_replica_create(request).await?.into_inner().mode())
}

fn joining(address: &str) -> ControllerReplicaCreateRequest {
    ControllerReplicaCreateRequest {
        address: address.into(),
        snapshot_required: true,
        mode: ReplicaMode::Wo.into(),
    }
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

/// A controller that was started anew has those verified that nobody seems to look after.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_another_has_verified_meanwhile_does_not_stay_marked() {
    let [a, b] = [(); 2].map(|()| Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    let (go, goes) = watch::channel(false);
    b.behave("files_sync", Manner::Until(goes));
    let mut filled = pin!(fill(&rig, &b.address));
    tokio::select! {
        ended = &mut filled => panic!("it ended: {ended:?}"),
        () = until("it to be copied to", async || (b.calls("files_sync") == 1).then_some(())) => {}
    }
    assert_eq!(rig.verify(&b.address).await.unwrap(), Rw);
    assert!(b.replica().rebuilding, "whoever asks by the dialect says so himself");
    go.send_replace(true);
    assert_eq!(filled.await.unwrap(), Rw);
    assert!(!b.replica().rebuilding);
}

/// `b` is being filled, and goes on once the sender says so.
async fn filling<F>(rig: &Rig, b: &Fake, first: &mut Pin<&mut F>) -> watch::Sender<bool>
where
    F: Future<Output = Result<ReplicaMode, Status>>,
{
    let (go, goes) = watch::channel(false);
    b.behave("rebuilding_set", Manner::Until(goes));
    tokio::select! {
        ended = first => panic!("it ended: {ended:?}"),
        () = until("it to be marked", async || (b.calls("rebuilding_set") == 1).then_some(())) => {}
    }
    assert_eq!(rig.mode_list().await, [Rw, Wo]);
    go
}

/// Sends a call, and returns once the controller has it: what was sent after it is answered, and one
/// thread does all in its order.
async fn arrives<F: Future>(client: &mut Client, call: &mut Pin<&mut F>) {
    assert!(futures::poll!(call).is_pending());
    client.volume_get(()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_one_is_refused_at_once_as_it_is_in_the_dialect() {
    let [a, b, c] = [(); 3].map(|()| Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    let mut first = pin!(fill(&rig, &b.address));
    let go = filling(&rig, &b, &mut first).await;
    let error = fill(&rig, &c.address).await.unwrap_err();
    assert_eq!(error.message(), "can only have one WO replica at a time");
    assert_eq!(fill(&rig, &a.address).await.unwrap(), Rw, "it has what is asked for");
    go.send_replace(true);
    first.await.unwrap_err();
}

#[tokio::test]
async fn one_that_is_removed_does_not_come_back_by_who_waited_for_it() {
    let [a, b] = [(); 2].map(|()| Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    let mut first = pin!(fill(&rig, &b.address));
    let _go = filling(&rig, &b, &mut first).await;
    let (gone, goes) = watch::channel(false);
    b.behave("replica_get", Manner::Until(goes));
    let mut client = rig.client();
    client.volume_get(()).await.unwrap();
    let mut by_second = client.clone();
    let mut second = pin!(fill_by(&mut by_second, &b.address));
    arrives(&mut client, &mut second).await;
    client.replica_delete(place(&b.address)).await.unwrap();
    gone.send_replace(true);
    first.await.unwrap_err();
    let error = second.await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");
    assert_eq!(rig.mode_list().await, [Rw]);
    assert_eq!(b.calls("replica_open"), 1);
}

#[tokio::test]
async fn what_another_added_at_the_same_address_is_not_taken_from_him() {
    let [a, b] = [(); 2].map(|()| Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    let mut first = pin!(fill(&rig, &b.address));
    let go = filling(&rig, &b, &mut first).await;
    let (gone, goes) = watch::channel(false);
    b.behave("replica_get", Manner::Until(goes));
    // Who wants to change something waits for a snapshot: in this order.
    let (answer, answers) = watch::channel(false);
    a.behave("replica_snapshot", Manner::Until(answers));
    let mut client = rig.client();
    client.volume_get(()).await.unwrap();
    let [mut one, mut other, mut third] = [(); 3].map(|()| client.clone());
    let mut taken = pin!(one.volume_snapshot(VolumeSnapshotRequest::default()));
    arrives(&mut client, &mut taken).await;
    until("it to be asked", async || (a.calls("replica_snapshot") == 2).then_some(())).await;
    let mut removed = pin!(other.replica_delete(place(&b.address)));
    arrives(&mut client, &mut removed).await;
    let mut added = pin!(third.controller_replica_create(joining(&b.address)));
    arrives(&mut client, &mut added).await;
    go.send_replace(true);
    until("it to be marked", async || b.replica().rebuilding.then_some(())).await;
    answer.send_replace(true);
    taken.await.unwrap();
    removed.await.unwrap();
    gone.send_replace(true);
    assert_eq!(added.await.unwrap().into_inner().mode(), Wo);
    first.await.unwrap_err();
    assert_eq!(rig.mode_list().await, [Rw, Wo], "it is his");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_joins_a_volume_that_was_let_go_of_meanwhile() {
    let [a, b] = [(); 2].map(|()| Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    rig.client().volume_shutdown(()).await.unwrap();
    let error = fill(&rig, &b.address).await.unwrap_err();
    assert_eq!(error.message(), "cannot find any healthy replica to rebuild from");
    assert_eq!(rig.mode_list().await, []);
    assert_eq!(b.calls("replica_open"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_ends_though_it_fills_a_replica() {
    let [a, b] = [(); 2].map(|()| Fake::new(SIZE));
    let rig = Rig::with(&[&a.address]).await;
    let mut first = pin!(fill(&rig, &b.address));
    let _go = filling(&rig, &b, &mut first).await;
    rig.engine.shutdown().await.unwrap();
    first.await.unwrap_err();
    assert_eq!((a.state(), b.state()), ("closed".to_owned(), "closed".to_owned()));
}

#[tokio::test]
async fn so_many_changes_wait_without_their_callers_and_no_more() {
    let a = Fake::new(SIZE);
    let rig = Rig::with(&[&a.address]).await;
    let (answer, answers) = watch::channel(false);
    a.behave("replica_snapshot", Manner::Until(answers));
    let mut client = rig.client();
    client.volume_get(()).await.unwrap();
    let mut callers: Vec<_> = (0..150)
        .map(|_| {
            let mut one = client.clone();
            Box::pin(async move { one.volume_snapshot(VolumeSnapshotRequest::default()).await })
        })
        .collect();
    for call in &mut callers {
        assert!(futures::poll!(call).is_pending());
    }
    client.volume_get(()).await.unwrap();
    drop(callers);
    client.volume_get(()).await.unwrap();
    answer.send_replace(true);
    rig.snapshot("last").await.unwrap();
    assert_eq!(a.calls("replica_snapshot"), 64 + 1);
}
