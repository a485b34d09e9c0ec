//! Who may drive a replica: claims, greetings, and one process for a directory.

use rpc::ptypes::{self, ReplicaOpenRequest};
use wire::frame::{Outcome, Reply, Request};
use wire::membership::{CUT_OFF_TEXT, Claim, Record, Standing};

use crate::running::{Data, Running, SIZE, data, options};

fn claim(generation: u64, engine: &str) -> Claim {
    Claim { generation, engine: engine.into() }
}

fn asking(claim: &Claim) -> ReplicaOpenRequest {
    ReplicaOpenRequest {
        holdfast_generation: claim.generation,
        holdfast_engine: claim.engine.clone(),
        ..Default::default()
    }
}

async fn open_as(running: &Running, claim: &Claim) -> Result<ptypes::Replica, tonic::Status> {
    let opened = running.client().replica_open(asking(claim)).await?;
    Ok(opened.into_inner().replica.unwrap())
}

fn hello(claim: &Claim) -> impl FnOnce(u32) -> Request {
    let (generation, engine) = (claim.generation, claim.engine.clone().into_bytes().into());
    move |sequence| Request::Hello { sequence, generation, engine }
}

async fn greeted(running: &Running, claim: &Claim) -> Data<tokio::net::TcpStream> {
    let mut data = running.tcp().await;
    assert_eq!(data.ask(hello(claim)).await, Outcome::Count(0));
    data
}

fn standing(replica: &ptypes::Replica) -> Standing {
    serde_json::from_str(&replica.holdfast_standing).unwrap()
}

#[tokio::test]
async fn a_higher_claim_cuts_off_the_lower_for_good() {
    let running = Running::new().await;
    let (old, new) = (claim(1, "a"), claim(2, "b"));
    open_as(&running, &old).await.unwrap();
    let mut first = greeted(&running, &old).await;
    assert_eq!(first.write(0, &[1; 4096]).await, Outcome::Count(4096));

    open_as(&running, &new).await.unwrap();
    assert_eq!(first.next_reply().await, Some(Reply::CutOff { generation: 2 }));
    assert_eq!(first.next_reply().await, None, "and the connection ends");
    let mut late = running.tcp().await;
    let Outcome::Error(text) = late.ask(hello(&old)).await else { panic!("it was greeted") };
    assert!(text.starts_with(CUT_OFF_TEXT), "{text}");
    assert!(matches!(late.write(0, &[2; 4096]).await, Outcome::Error(_)), "nor without a greeting");
    let refused = open_as(&running, &old).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);

    let mut second = greeted(&running, &new).await;
    assert_eq!(second.read(0, 1).await, data(&[1]));

    let running = running.restart().await;
    assert!(open_as(&running, &old).await.is_err(), "not after a crash either");
    assert!(open_as(&running, &claim(3, "a")).await.is_ok());
}

#[tokio::test]
async fn calls_of_an_engine_that_was_cut_off_change_nothing() {
    let running = Running::new().await;
    let (old, new) = (claim(1, "a"), claim(1, "b"));
    open_as(&running, &old).await.unwrap();
    open_as(&running, &new).await.unwrap();
    let of = |own: &Claim| {
        let shared = rpc::SharedClaim::default();
        shared.set(Some(own.clone()));
        let (identity, deadline) = (rpc::Identity::default(), rpc::Deadline::Usual);
        let peer = rpc::connect_claimed(&running.control, identity, deadline, shared).unwrap();
        crate::running::Client::new(peer)
    };
    let refused = of(&old).replica_close(()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(refused.message().starts_with(CUT_OFF_TEXT), "{refused}");
    let seen = running.client().replica_get(()).await.unwrap().into_inner().replica.unwrap();
    assert_eq!(seen.state, "open");
    of(&new).replica_close(()).await.unwrap();
}

#[tokio::test]
async fn a_record_is_kept_over_a_crash_and_forgotten_when_an_engine_without_records_comes() {
    let running = Running::new().await;
    let own = claim(4, "a");
    let id = standing(&open_as(&running, &own).await.unwrap()).id;
    let mut data = greeted(&running, &own).await;
    let record = Record { serial: 3, generation: 4, members: vec![id.clone()], reader: None };
    let text = bytes::Bytes::from(record.to_text());
    let send = || {
        let data = text.clone();
        move |sequence| Request::Record { sequence, mark: true, data }
    };
    assert_eq!(data.ask(send()).await, Outcome::Count(0));
    assert!(matches!(data.ask(send()).await, Outcome::Error(_)), "an old one");
    let get = async |running: &Running| {
        running.client().replica_get(()).await.unwrap().into_inner().replica.unwrap()
    };
    assert_eq!(get(&running).await.revision_counter, 1, "a mark is counted");
    let running = running.restart().await;
    let seen = standing(&get(&running).await);
    assert_eq!((seen.id, seen.claim, seen.record), (id.clone(), own, Some(record)));
    running.open().await;
    let seen = standing(&get(&running).await);
    assert_eq!((seen.id, seen.record), (id, None));
}

#[tokio::test]
async fn an_engine_without_claims_is_kept_out_while_one_with_a_claim_is_there() {
    let running = Running::new().await;
    let own = claim(1, "a");
    open_as(&running, &own).await.unwrap();
    let data = greeted(&running, &own).await;
    running.client().replica_close(()).await.unwrap();
    let refused = running.client().replica_open(ReplicaOpenRequest::default()).await.unwrap_err();
    assert!(refused.message().contains("generation 1"), "{refused}");
    drop(data);
    loop {
        let seen = running.client().replica_get(()).await.unwrap().into_inner().replica.unwrap();
        if seen.holdfast_engines == 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    running.open().await;
}

#[tokio::test]
async fn a_directory_is_served_by_one_process() {
    let first = Running::opened().await;
    let second = Running::beside(&first).await;
    let refused = |status: tonic::Status| {
        assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status}");
        assert!(status.message().contains("is in use by process"), "{status}");
    };
    let open = ReplicaOpenRequest::default();
    refused(second.client().replica_open(open.clone()).await.unwrap_err());
    refused(second.client().replica_delete(()).await.unwrap_err());
    let snapshot = ptypes::ReplicaSnapshotRequest {
        name: "s".into(),
        created: crate::running::NOW.into(),
        ..Default::default()
    };
    refused(second.client().replica_snapshot(snapshot).await.unwrap_err());
    let _place = first.stop().await;
    second.client().replica_open(open).await.unwrap();
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_ends_the_process() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::File::create(&file).unwrap();
    let mut wanted = options(file.join("replica"));
    wanted.listen = "127.0.0.1:0".into();
    wanted.size_bytes = Some(SIZE);
    let ended = replica::server::serve(wanted, tokio_util::sync::CancellationToken::new()).await;
    assert!(ended.is_err());
}

#[tokio::test]
async fn a_directory_is_handed_over_when_the_next_engine_claims_it() {
    let first = Running::new().await;
    let (old, new) = (claim(1, "a"), claim(2, "b"));
    open_as(&first, &old).await.unwrap();
    let mut before = greeted(&first, &old).await;
    assert_eq!(before.write(0, &[1; 4096]).await, Outcome::Count(4096));

    let second = Running::beside(&first).await;
    let look =
        async || second.client().replica_get(()).await.unwrap().into_inner().replica.unwrap();
    assert_eq!(standing(&look().await).claim, old);
    let record = Record { serial: 7, generation: 1, ..Record::default() };
    let text = bytes::Bytes::from(record.to_text());
    let send = |sequence| Request::Record { sequence, mark: false, data: text };
    assert_eq!(before.ask(send).await, Outcome::Count(0));
    assert_eq!(before.write(4096, &[2; 4096]).await, Outcome::Count(4096), "it goes on till then");
    assert_eq!(
        standing(&look().await).record.unwrap().serial,
        7,
        "seen though it was asked before"
    );

    let upgrade = ReplicaOpenRequest { is_upgrade: true, ..asking(&new) };
    second.client().replica_open(upgrade).await.unwrap();
    assert!(matches!(before.next_reply().await, Some(Reply::CutOff { .. })));
    assert_eq!(standing(&look().await).record.unwrap().serial, 7, "kept by who takes over");
    let mut after = greeted(&second, &new).await;
    assert_eq!(after.read(4096, 4096).await, data(&[2; 4096]), "all of it is there");
    let snapshot = ptypes::ReplicaSnapshotRequest {
        name: "s".into(),
        created: crate::running::NOW.into(),
        ..Default::default()
    };
    let refused = first.client().replica_snapshot(snapshot.clone()).await.unwrap_err();
    assert!(refused.message().contains("is in use by process"), "{refused}");
    second.client().replica_snapshot(snapshot).await.unwrap();
    let seen = second.client().replica_get(()).await.unwrap().into_inner().replica.unwrap();
    assert_eq!(standing(&seen).claim, new);
}
