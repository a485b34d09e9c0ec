//! The calls, one by one.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use etcdguard::etcd::wire::{DeleteRangeRequest, PutRequest, RequestOp, request_op::Request};
use etcdguard::etcd::{
    ConnectionConfig, Etcd, EtcdError, EtcdMonitor, EventType, MemberState, Observation, Rejection,
};
use tasks::Tasks;

use crate::member::{Alone, TIMEOUT};

fn put(key: &str, value: &str) -> RequestOp {
    let request =
        PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), lease: 0 };
    RequestOp { request: Some(Request::RequestPut(request)) }
}

fn delete(key: &str) -> RequestOp {
    let request =
        DeleteRangeRequest { key: key.to_owned().into(), ..DeleteRangeRequest::default() };
    RequestOp { request: Some(Request::RequestDeleteRange(request)) }
}

#[tokio::test]
async fn a_watch_tells_every_change_in_the_order_of_revisions() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    let first = etcd.put("a", "1").await.unwrap();
    assert_eq!(first, 2);
    etcd.txn(vec![put("b", "2"), delete("a"), put("c", "")]).await.unwrap();
    let last = etcd.put("d", vec![7; 1_000_000]).await.unwrap();
    assert_eq!(etcd.revision(TIMEOUT).await.unwrap(), last);

    let mut watch = etcd.watch(first).await.unwrap();
    let mut seen = Vec::new();
    while seen.last().is_none_or(|(_, _, revision)| *revision < last) {
        for event in watch.next().await.unwrap().events {
            let kv = event.kv.clone().unwrap();
            seen.push((event.r#type(), kv.key, kv.mod_revision));
        }
    }
    let wanted = [
        (EventType::Put, "a", 2),
        (EventType::Put, "b", 3),
        (EventType::Delete, "a", 3),
        (EventType::Put, "c", 3),
        (EventType::Put, "d", 4),
    ]
    .map(|(kind, key, revision)| (kind, key.into(), revision));
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn a_watch_from_before_the_compaction_is_refused() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    for value in ["1", "2", "3"] {
        etcd.put("a", value).await.unwrap();
    }
    etcd.compact(3, TIMEOUT).await.unwrap();
    let error = match etcd.watch(2).await {
        Err(error) => error,
        Ok(mut watch) => watch.next().await.unwrap_err(),
    };
    assert!(error.is_compacted(), "{error}");
    assert!(error.to_string().contains("required revision has been compacted"), "{error}");
    etcd.watch(3).await.unwrap();
}

#[tokio::test]
async fn a_snapshot_is_the_database_and_its_digest() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    etcd.put("a", vec![1; 100_000]).await.unwrap();
    let mut stream = etcd.snapshot().await.unwrap();
    let mut bytes = Vec::new();
    while let Some(more) = stream.next().await.unwrap() {
        bytes.extend_from_slice(&more);
    }
    assert_eq!(bytes.len() % 512, 32);
    let (database, trailer) = bytes.split_at(bytes.len() - 32);
    assert_eq!(digest(&SHA256, database).as_ref(), trailer);
}

#[tokio::test]
async fn upkeep_calls_are_answered() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    etcd.put("a", "1").await.unwrap();
    let status = etcd.status(TIMEOUT).await.unwrap();
    assert!(status.db_size >= status.db_size_in_use && status.version.starts_with("3."));
    let before = etcd.hash_kv(0).await.unwrap();
    etcd.defragment().await.unwrap();
    assert_eq!(etcd.hash_kv(0).await.unwrap().hash, before.hash);
    assert_eq!(etcd.alarms().await.unwrap(), []);
    let [member] = etcd.members(TIMEOUT).await.unwrap().try_into().unwrap();
    assert_eq!(member.name, "default");
    let refused = etcd.promote_member(member.id, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.rejection(), Some(Rejection::NotLearner));
    let refused = etcd.remove_member(7, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.rejection(), Some(Rejection::MemberNotFound));
    let refused = etcd.add_learner(&member.peer_ur_ls, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.rejection(), Some(Rejection::PeerUrlExists));
}

#[tokio::test]
async fn the_next_endpoint_is_asked_when_one_is_gone() {
    let Some(alone) = Alone::start() else { return };
    let gone = format!("http://127.0.0.1:{}", testkit::process::free_port().unwrap());
    let nobody = Etcd::connect(&ConnectionConfig {
        endpoints: vec![gone.clone()],
        ..ConnectionConfig::default()
    });
    let error = nobody.unwrap().revision(TIMEOUT).await.unwrap_err();
    assert!(matches!(error, EtcdError::Unavailable { .. }), "{error}");
    let endpoints = vec![gone, alone.member.seat.client.clone()];
    let etcd =
        Etcd::of_cluster(&ConnectionConfig { service_endpoints: endpoints, ..alone.config() });
    assert_eq!(etcd.unwrap().revision(TIMEOUT).await.unwrap(), 1);
}

#[tokio::test]
async fn names_and_passwords_are_used_and_their_tokens_renewed() {
    let Some(mut alone) = Alone::start() else { return };
    let control = |arguments: &[&str]| {
        let mut command = testkit::etcd::etcdctl(&alone.member.seat.client).unwrap();
        assert!(command.args(arguments).output().unwrap().status.success());
    };
    let named = ConnectionConfig {
        username: "root".to_owned(),
        password: "secret".into(),
        ..alone.config()
    };
    let etcd = Etcd::connect(&named).unwrap();
    etcd.put("a", "before").await.unwrap();
    control(&["user", "add", "root:secret"]);
    control(&["user", "grant-role", "root", "root"]);
    control(&["auth", "enable"]);
    etcd.put("a", "after").await.unwrap();
    let refused = alone.connect().put("a", "nobody").await.unwrap_err();
    assert_eq!(refused.rejection(), Some(Rejection::Denied), "{refused}");
    let wrong = ConnectionConfig { password: "wrong".into(), ..named };
    let refused = Etcd::connect(&wrong).unwrap().put("a", "wrong").await.unwrap_err();
    assert_eq!(refused.rejection(), Some(Rejection::Denied), "{refused}");
    // A restart forgets the tokens, which live in memory.
    alone.member.process.kill().unwrap();
    let seat = alone.member.seat.clone();
    let dir = alone.scratch.path();
    let listed = seat.listed();
    alone.member = testkit::etcd::Member::start(&seat, dir, &listed, "existing", &[]).unwrap();
    let again = async {
        while etcd.put("a", "again").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, again).await.unwrap();
}

#[tokio::test]
async fn the_monitor_follows_the_member() {
    let Some(mut alone) = Alone::start() else { return };
    let period = Duration::from_millis(20);
    let monitor = EtcdMonitor::new(Arc::new(alone.connect()), period, Duration::from_secs(1));
    let tasks = Tasks::new();
    let running = monitor.clone();
    tasks.spawn_draining("monitor", |stop| async move { running.run(&stop).await });
    let mut seen = monitor.subscribe("test");
    let leading = seen.until(Observation::is_leading).await.unwrap();
    assert_eq!(leading.leader_id, leading.member_id);
    alone.member.process.kill().unwrap();
    let gone = seen.until(|now| now.state == MemberState::Unknown).await.unwrap();
    assert_eq!(gone.member_id, leading.member_id);
    tasks.stop(TIMEOUT).await.unwrap();
}
