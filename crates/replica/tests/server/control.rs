//! The life of a replica through its control service, and the texts callers match on.

use rpc::health_v1::HealthCheckRequest;
use rpc::health_v1::health_client::HealthClient;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::{Deadline, Identity, ptypes};
use tonic::{Code, Status};
use wire::frame::Outcome;

use crate::running::{Client, Running, SIZE, data};

pub(crate) fn text<T: std::fmt::Debug>(result: Result<T, Status>) -> String {
    let status = result.unwrap_err();
    assert_eq!(status.code(), Code::Unknown, "{status:?}");
    status.message().to_owned()
}

pub(crate) async fn get(client: &mut Client) -> ptypes::Replica {
    client.replica_get(()).await.unwrap().into_inner().replica.unwrap()
}

fn open(is_upgrade: bool, expected_backend_size: i64) -> ptypes::ReplicaOpenRequest {
    ptypes::ReplicaOpenRequest { is_upgrade, expected_backend_size, ..Default::default() }
}

#[tokio::test]
async fn a_volume_is_opened_written_and_closed() {
    let running = Running::new().await;
    let mut client = running.client();
    let state = get(&mut client).await;
    assert_eq!((state.state.as_str(), state.size), ("closed", SIZE.to_string()));
    let opened = client.replica_open(open(false, 0)).await.unwrap().into_inner().replica.unwrap();
    assert_eq!((opened.state.as_str(), opened.dirty), ("open", false));
    let mut port = running.tcp().await;
    let mut local = running.local();
    assert_eq!(port.ping().await, Outcome::Count(0));
    assert_eq!(port.write(4096, &[7; 4096]).await, Outcome::Count(4096));
    assert_eq!(local.read(4096, 4096).await, data(&[7; 4096]));
    assert_eq!(local.flush().await, Outcome::Count(0));
    let state = get(&mut client).await;
    assert_eq!((state.state.as_str(), state.revision_counter), ("dirty", 1));
    assert_eq!((state.holdfast_features, state.holdfast_engines), (511, 2));
    assert_eq!((state.sector_size, state.head_file_size), (512, 4096));
    assert!(state.last_modify_time > 1_000_000_000_000_000_000);
    assert_eq!(state.remain_snapshots, 249);
    assert_eq!((state.snapshot_count_usage, state.snapshot_count_total), (0, 1));
    assert_eq!(text(client.replica_open(open(false, 0)).await), "replica is already open");
    let closed = client.replica_close(()).await.unwrap().into_inner().replica.unwrap();
    assert_eq!((closed.state.as_str(), closed.dirty), ("closed", false));
    assert_eq!(port.ping().await, Outcome::Error("replica is in state closed".into()));
    assert!(matches!(port.read(0, 512).await, Outcome::Error(_)));
    assert!(matches!(port.write(0, &[1; 512]).await, Outcome::Error(_)));
    assert!(matches!(local.flush().await, Outcome::Error(_)));
    // Closing and reloading what is not open is fine.
    client.replica_close(()).await.unwrap();
    client.replica_reload(()).await.unwrap();
    drop((port, local));
    let gone = async { while get(&mut client).await.holdfast_engines > 0 {} };
    tokio::time::timeout(std::time::Duration::from_mins(2), gone).await.unwrap();
}

#[tokio::test]
async fn a_directory_is_made_when_a_caller_says_so() {
    let running = Running::with(|options| options.size_bytes = None).await;
    let mut client = running.client();
    let state = get(&mut client).await;
    assert_eq!((state.state.as_str(), state.size.as_str()), ("initial", "0"));
    assert!(client.replica_open(open(false, 0)).await.is_err());
    let create = |size: &str| ptypes::ReplicaCreateRequest { size: size.to_owned() };
    assert_eq!(text(client.replica_create(create("x")).await), r#"size "x" is not a number"#);
    assert!(text(client.replica_create(create("13")).await).contains("multiple of 512"));
    let made = client.replica_create(create("1048576")).await.unwrap().into_inner();
    assert_eq!(made.replica.unwrap().state, "closed");
    // It exists: nothing happens.
    let again = client.replica_create(create("2097152")).await.unwrap().into_inner();
    assert_eq!(again.replica.unwrap().size, "1048576");
    // Only an open one is deleted.
    client.replica_delete(()).await.unwrap();
    assert_eq!(get(&mut client).await.state, "closed");
    client.replica_open(open(false, 0)).await.unwrap();
    client.replica_delete(()).await.unwrap();
    assert_eq!(get(&mut client).await.state, "initial");
    let left = std::fs::read_dir(&running.options.dir).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["LOCK"], "it is still the directory of this process");
}

#[tokio::test]
async fn names_of_another_volume_or_instance_are_refused() {
    let running = Running::with(|options| {
        options.volume_name = "vol".into();
        options.instance_name = "vol-r-1".into();
    })
    .await;
    let named = |volume: &str, instance: &str| {
        running.client_as(Identity { volume: volume.into(), instance: instance.into() })
    };
    assert!(named("vol", "vol-r-1").replica_get(()).await.is_ok());
    assert!(named("vol", "").replica_get(()).await.is_ok());
    for (volume, instance, expected) in [
        ("other", "", "incorrect volume name other; check replica address"),
        ("vol", "vol-r-2", "incorrect instance name vol-r-2; check replica address"),
    ] {
        let refused = named(volume, instance).replica_get(()).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, expected));
    }
}

#[tokio::test]
async fn health_is_served_and_watched() {
    let running = Running::new().await;
    let peer = rpc::connect(&running.control, Identity::default(), Deadline::Usual).unwrap();
    let mut health = HealthClient::new(peer);
    let reply = health.check(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(reply.status, 1);
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
}

#[tokio::test]
async fn the_rebuilding_flag_survives_and_is_set_only_where_it_makes_sense() {
    let running = Running::new().await;
    let set = |rebuilding| ptypes::RebuildingSetRequest { rebuilding };
    let mut client = running.client();
    assert_eq!(
        text(client.rebuilding_set(set(true)).await),
        "cannot set rebuilding=true from state closed"
    );
    running.open().await;
    assert_eq!(
        text(client.rebuilding_set(set(false)).await),
        "cannot set rebuilding=false from state open"
    );
    let state = client.rebuilding_set(set(true)).await.unwrap().into_inner().replica.unwrap();
    assert_eq!((state.state.as_str(), state.rebuilding), ("rebuilding", true));
    assert_eq!(running.tcp().await.ping().await, Outcome::Count(0));
    let running = running.restart().await;
    running.open().await;
    let mut client = running.client();
    assert_eq!(get(&mut client).await.state, "rebuilding");
    client.rebuilding_set(set(false)).await.unwrap();
    assert_eq!(get(&mut client).await.state, "open");
}

#[tokio::test]
async fn counters_and_limits_are_set() {
    let running = Running::opened().await;
    let mut client = running.client();
    let counter = ptypes::RevisionCounterSetRequest { counter: 42 };
    let state = client.revision_counter_set(counter).await.unwrap().into_inner().replica.unwrap();
    assert_eq!((state.revision_counter, state.revision_counter_disabled), (42, false));
    let mark = ptypes::UnmapMarkDiskChainRemovedSetRequest { enabled: true };
    let marked = client.unmap_mark_disk_chain_removed_set(mark).await.unwrap().into_inner();
    assert!(marked.replica.unwrap().unmap_mark_disk_chain_removed);
    let count = ptypes::SnapshotMaxCountSetRequest { count: 5 };
    client.snapshot_max_count_set(count).await.unwrap();
    let size = ptypes::SnapshotMaxSizeSetRequest { size: 1 << 30 };
    client.snapshot_max_size_set(size).await.unwrap();
    // What was counted is found again by the next process, without a close.
    let mut port = running.local();
    for _ in 0..3 {
        assert_eq!(port.write(0, &[1; 512]).await, Outcome::Count(512));
    }
    let running = running.restart().await;
    assert_eq!(get(&mut running.client()).await.revision_counter, 45);
}

#[tokio::test]
async fn a_replica_without_a_counter_says_so() {
    let running = Running::with(|options| options.revision_counter = false).await;
    running.open().await;
    assert_eq!(running.local().write(0, &[1; 512]).await, Outcome::Count(512));
    let state = get(&mut running.client()).await;
    assert_eq!((state.revision_counter, state.revision_counter_disabled), (0, true));
    assert!(!running.options.dir.join("revision.counter").exists());
}

#[tokio::test]
async fn an_expansion_says_whether_the_copy_is_as_it_was() {
    let running = Running::opened().await;
    let mut client = running.client();
    let expand = |size| ptypes::ReplicaExpandRequest { size };
    let grown = client.replica_expand(expand(2 * SIZE)).await.unwrap().into_inner();
    let grown = grown.replica.unwrap();
    assert_eq!(grown.size, (2 * SIZE).to_string());
    let snapshot = format!("volume-snap-expand-{}.img", 2 * SIZE);
    assert_eq!(grown.disks[&snapshot].labels["replica-expansion"], (2 * SIZE).to_string());
    assert!(!grown.disks[&snapshot].user_created);
    let mut port = running.local();
    assert_eq!(port.write(2 * SIZE - 512, &[9; 512]).await, Outcome::Count(512));
    client.replica_expand(expand(2 * SIZE)).await.unwrap();
    let refused = client.replica_expand(expand(SIZE)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Internal);
    let parsed: serde_json::Value = serde_json::from_str(refused.message()).unwrap();
    assert_eq!(parsed["code"], "FunctionFailedWithoutRollback");
    // A directory in the way of the snapshot's metadata provokes the way back.
    let meta = format!("volume-snap-expand-{}.img.meta.tmp", 3 * SIZE);
    std::fs::create_dir(running.options.dir.join(&meta)).unwrap();
    let failed = client.replica_expand(expand(3 * SIZE)).await.unwrap_err();
    let parsed: serde_json::Value = serde_json::from_str(failed.message()).unwrap();
    assert_eq!(parsed["code"], "FunctionFailedRollbackSucceeded");
    assert!(!running.options.dir.join(meta).exists());
    client.replica_expand(expand(3 * SIZE)).await.unwrap();
}

#[tokio::test]
async fn an_encrypted_volume_makes_room_for_its_header() {
    let running = Running::with(|options| options.encrypted = true).await;
    let expected = SIZE + (16 << 20);
    let mut client = running.client();
    let opened = client.replica_open(open(false, expected)).await.unwrap().into_inner();
    assert_eq!(opened.replica.unwrap().size, expected.to_string());
}

#[tokio::test]
async fn the_sync_agent_listens_two_ports_on() {
    let running = Running::with(|options| options.sync_agent = true).await;
    running.open().await;
    let address = running.control.sync_agent();
    let peer = rpc::connect(&address, Identity::default(), Deadline::Usual).unwrap();
    let mut agent = SyncAgentServiceClient::new(peer);
    let status = agent.replica_rebuild_status(()).await.unwrap().into_inner();
    assert!(!status.is_rebuilding);
    agent.reset(()).await.unwrap();
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let running = Running::new().await;
    let mut options = running.options.clone();
    options.dir = running.place.path().join("other");
    let ended = replica::server::serve(options, tokio_util::sync::CancellationToken::new()).await;
    assert_eq!(ended.unwrap_err().to_string(), format!("cannot listen at {}", running.control));
}

#[tokio::test]
async fn two_processes_hand_a_directory_over() {
    let old = Running::opened().await;
    let mut before = old.local();
    before.flush().await;
    before.write(0, &[1; 4096]).await;
    let dir = old.options.dir.clone();
    let new = Running::with(|options| options.dir = dir).await;
    new.client().replica_open(open(true, 0)).await.unwrap();
    // The old engine writes on while the new one connects.
    before.write(4096, &[2; 4096]).await;
    let mut after = new.local();
    assert_eq!(after.read(4096, 4096).await, data(&[2; 4096]));
    after.write(8192, &[3; 4096]).await;
    assert_eq!(get(&mut new.client()).await.revision_counter, 3);
}
