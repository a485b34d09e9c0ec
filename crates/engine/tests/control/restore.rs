//! Restores and purges that the engine has its replicas begin.

use rpc::ptypes::ReplicaMode::{Err as Failed, Rw};
use rpc::ptypes::{RestoreStatusResponse, VolumeFrontendStartRequest};
use rpc::volume::{PurgeReply, PurgeRequest, ReplicaError, RestoreRequest};
use tokio::sync::watch;
use tonic::Status;

use crate::copies::Copy;
use crate::fake::{Agent, Fake, Manner};
use crate::rig::{Rig, SIZE, until};
use crate::whole::{abandoned, start};

fn wish() -> RestoreRequest {
    RestoreRequest {
        backup: "vfs:///t?backup=b1&volume=v".into(),
        backup_name: "b1".into(),
        backup_volume: "v".into(),
        backup_bytes: SIZE as u64,
        ..RestoreRequest::default()
    }
}

async fn restore(rig: &Rig) -> Result<Vec<ReplicaError>, Status> {
    rig.beyond().restore(wish()).await.map(|reply| reply.into_inner().errors)
}

/// Replicas with agents, under one engine.
async fn set<const N: usize>() -> (Rig, [Fake; N]) {
    let fakes = [(); N].map(|()| Fake::new(SIZE));
    for fake in &fakes {
        fake.has_agent(Agent::default());
    }
    let addresses: Vec<&str> = fakes.iter().map(|fake| fake.address.as_str()).collect();
    (Rig::with(&addresses).await, fakes)
}

fn error(fake: &Fake, message: &str) -> ReplicaError {
    ReplicaError { address: fake.address.clone(), message: message.into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_begin_at_one_disk_though_whoever_asked_for_it_is_gone() {
    let (rig, [a, b]) = set::<2>().await;
    let (go, goes) = watch::channel(false);
    b.behave("restore_status", Manner::Until(goes));
    tokio::select! {
        ended = restore(&rig) => panic!("it ended: {ended:?}"),
        () = until("b to be looked at", async || (b.calls("restore_status") == 1).then_some(())) => {}
    }
    assert_eq!(a.calls("backup_restore"), 0, "nobody is asked before all were looked at");
    go.send_replace(true);
    let both = async || [&a, &b].iter().all(|it| it.calls("backup_restore") == 1).then_some(());
    until("both to be asked", both).await;
    let again = restore(&rig).await.unwrap();
    assert_eq!(again, [], "they are on their way to it, and take it");
    let disk = |fake: &Fake, index| {
        let calls = fake.all_calls();
        let call = calls.iter().find_map(|call| call.strip_prefix("backup_restore ")).unwrap();
        call.strip_suffix(&format!(" {index}")).unwrap().to_owned()
    };
    assert_eq!(disk(&a, 0), disk(&b, 1));
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    let start = VolumeFrontendStartRequest { frontend: "nbd".into() };
    let refused = rig.client().volume_frontend_start(start).await.unwrap_err();
    assert!(refused.message().contains("has not finished to restore b1"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_begin_is_out_unless_none_does() {
    let (rig, [a, b]) = set::<2>().await;
    let text = |fake: &Fake, why: &str| {
        let address = &fake.address;
        format!(
            "failed to restore backup on replica {address}: rpc error: code = Unknown desc = {why}"
        )
    };
    for fake in [&a, &b] {
        fake.refuse("backup_restore", "no space");
    }
    let (of_a, of_b) = (text(&a, "no space"), text(&b, "no space"));
    assert_eq!(restore(&rig).await.unwrap(), [error(&a, &of_a), error(&b, &of_b)]);
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    let (go, goes) = watch::channel(true);
    a.behave("backup_restore", Manner::Until(goes));
    assert_eq!(restore(&rig).await.unwrap(), [error(&b, &of_b)]);
    assert_eq!(rig.mode_list().await, [Rw, Failed]);
    drop(go);
    let told = restore(&rig).await.unwrap();
    assert_eq!(told, [error(&b, "cannot restore backup from replica in mode ERR")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_restores_another_backup_keeps_all_from_this_one() {
    let (rig, [a, b]) = set::<2>().await;
    let running = RestoreStatusResponse {
        is_restoring: true,
        current_restoring_backup: "b0".into(),
        ..RestoreStatusResponse::default()
    };
    a.has_agent(Agent { restore: running, ..Agent::default() });
    let told = restore(&rig).await.unwrap();
    assert_eq!(told.len(), 1);
    assert!(told[0].message.ends_with("there is one already in progress"), "{told:?}");
    assert_eq!((a.calls("backup_restore"), b.calls("backup_restore")), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_is_begun_by_all_though_whoever_asked_for_it_is_gone() {
    let (rig, [a, b]) = set::<2>().await;
    let (go, goes) = watch::channel(false);
    b.behave("snapshot_purge_status", Manner::Until(goes));
    let mut client = rig.beyond();
    tokio::select! {
        ended = client.purge(PurgeRequest::default()) => panic!("it ended: {ended:?}"),
        () = until("b to be looked at", async || {
            (b.calls("snapshot_purge_status") == 1).then_some(())
        }) => {}
    }
    assert_eq!(a.calls("snapshot_purge"), 0);
    go.send_replace(true);
    let both = async || [&a, &b].iter().all(|it| it.calls("snapshot_purge") == 1).then_some(());
    until("both to be asked", both).await;
    let refused = rig.beyond().purge(PurgeRequest::default()).await.unwrap_err();
    let text = format!("replica {} is already purging snapshots", a.address);
    assert_eq!(refused.message(), text);
    let skip = PurgeRequest { skip_if_in_progress: true, ..PurgeRequest::default() };
    assert_eq!(rig.beyond().purge(skip).await.unwrap().into_inner(), PurgeReply::default());
    a.change(|replica| replica.rebuilding = true);
    let refused = rig.beyond().purge(skip).await.unwrap_err();
    let text = format!("cannot purge snapshots because replica {} is rebuilding", a.address);
    assert_eq!(refused.message(), text);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_purged_before_a_restore() {
    let (rig, [a]) = set::<1>().await;
    rig.snapshot("one").await.unwrap();
    rig.snapshot("two").await.unwrap();
    let refused = restore(&rig).await.unwrap_err();
    assert!(refused.message().starts_with("found more than 1 snapshot"), "{refused}");
    assert_eq!((a.calls("snapshot_purge"), a.calls("backup_restore")), (1, 0));
    let busy = restore(&rig).await.unwrap_err();
    assert_eq!(busy.message(), "cannot do restore now since replicas are purging snapshots");
}

/// The engine was killed when it had asked the first of them.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_not_asked_any_more_is_not_shown_beside_one_that_was() {
    let [mut a, b] = Copy::some::<2>(true).await;
    let rig = start(&[&a, &b]).await;
    let identity =
        |standing: wire::membership::Standing| format!("{}@{}", standing.id, standing.adoption);
    let both = [identity(a.standing().await), identity(b.standing().await)];
    rig.snapshot("one").await.unwrap();
    rig.engine.volume().stop().await;
    drop(rig);
    abandoned(&a).await;
    abandoned(&b).await;
    a.kill().await;
    let companions = format!("[\"{}\",\"{}\"]", both[0], both[1]);
    let restored = format!(
        "{{\"lastRestored\":\"b1\",\"snapshot\":\"volume-snap-one.img\",\"companions\":{companions}}}"
    );
    durable::replace(a.file("restore.json"), restored.as_bytes()).unwrap();
    a.start().await;
    let rig = start(&[&a, &b]).await;
    let nbd = || VolumeFrontendStartRequest { frontend: "nbd".into() };
    let refused = rig.client().volume_frontend_start(nbd()).await.unwrap_err();
    let text = format!("replica {} was to be restored with it and was not", b.address());
    assert!(refused.message().contains(&text), "{refused}");
    rig.client().replica_delete(crate::rig::place(&b.address())).await.unwrap();
    rig.client().volume_frontend_start(nbd()).await.unwrap();
}
