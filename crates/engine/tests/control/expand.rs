//! Growing a volume.

use rpc::ptypes;
use rpc::ptypes::ReplicaMode::{Err as Failed, Rw};
use tonic::Status;

use crate::fake::{Fake, Manner};
use crate::rig::{Rig, SIZE};

const GROWN: i64 = 8 << 20;

fn failure(code: &str) -> Manner {
    let json = format!(r#"{{"code":"{code}","message":"disk full","rollbackMessage":""}}"#);
    Manner::Refuse(Status::internal(json))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_grows_with_its_replicas() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address, &b.address]).await;
    let volume = rig.expand(GROWN).await.unwrap();
    assert_eq!((volume.size, volume.last_expansion_error.as_str()), (GROWN, ""));
    assert_eq!((a.replica().size, b.replica().size), (GROWN.to_string(), GROWN.to_string()));
    assert_eq!(rig.expand(GROWN).await.unwrap().size, GROWN);
    assert_eq!(a.calls("replica_expand"), 1, "the same size again is nothing to do");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_at_once() {
    let a = Fake::new(SIZE);
    let rig = Rig::with(&[&a.address]).await;
    let text = async |size| rig.expand(size).await.unwrap_err().message().to_owned();
    assert_eq!(text(4096).await, "controller cannot be expanded to a smaller size 4096");
    assert!(text(GROWN + 1).await.contains("multiple"));
    assert_eq!(a.calls("replica_expand"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_that_cannot_grow_is_out() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address, &b.address]).await;
    b.behave("replica_expand", failure("FunctionFailedRollbackSucceeded"));
    let volume = rig.expand(GROWN).await.unwrap();
    assert_eq!(volume.size, GROWN);
    assert_eq!(
        volume.last_expansion_error,
        format!(
            "the expansion succeeded, but some replica expansion failed: {}: disk full",
            b.address
        )
    );
    assert!(volume.last_expansion_failed_at.ends_with('Z'));
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_no_replica_can_grow_those_that_are_whole_stay() {
    let (a, b) = (Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address, &b.address]).await;
    a.behave("replica_expand", failure("FunctionFailedRollbackSucceeded"));
    b.behave("replica_expand", failure("FunctionFailedRollbackFailed"));
    let volume = rig.expand(GROWN).await.unwrap();
    assert_eq!(volume.size, 4 << 20);
    let begin = "the expansion failed since all replica expansion failed: ";
    assert!(volume.last_expansion_error.starts_with(begin), "{}", volume.last_expansion_error);
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
    rig.write(0, &[5; 4096]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_expansion_at_a_time_and_nobody_joins_meanwhile() {
    let (a, b, c) = (Fake::new(SIZE), Fake::new(SIZE), Fake::new(SIZE));
    let rig = Rig::with(&[&a.address, &b.address]).await;
    b.behave("replica_expand", Manner::Stall);
    let mut client = rig.client();
    let request = ptypes::VolumeExpandRequest { size: GROWN };
    assert!(client.volume_expand(request).await.unwrap().into_inner().is_expanding);
    let error = client.volume_expand(request).await.unwrap_err();
    assert_eq!(error.message(), "controller expansion is in progress");
    let error = rig.add(&c.address, true).await.unwrap_err();
    assert_eq!(error.message(), "cannot add WO replica during expansion");
    let start = ptypes::VolumeFrontendStartRequest { frontend: "nbd".into() };
    let error = client.volume_frontend_start(start).await.unwrap_err();
    assert_eq!(error.message(), "cannot start frontend during the engine expansion");
    let ended = crate::rig::until("the expansion", async || {
        let volume = rig.get().await;
        (!volume.is_expanding).then_some(volume)
    });
    assert_eq!(ended.await.size, GROWN, "one that stalls is not waited for");
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
}
