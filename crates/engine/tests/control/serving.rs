//! What the server has besides its volume: identity, health, version, numbers.

use rpc::health_v1::HealthCheckRequest;
use rpc::health_v1::health_check_response::ServingStatus;
use rpc::health_v1::health_client::HealthClient;
use rpc::{Deadline, Identity, ptypes};
use tonic::Code;

use crate::fake::Fake;
use crate::rig::{Rig, SIZE, options, until, with_replicas};

#[tokio::test(flavor = "multi_thread")]
async fn calls_for_another_volume_or_instance_are_refused() {
    let rig = Rig::try_new(options()).await.unwrap();
    let call = async |volume: &str, instance: &str| {
        let identity = Identity { volume: volume.into(), instance: instance.into() };
        rig.client_as(identity).volume_get(()).await
    };
    assert!(call("", "").await.is_ok());
    assert!(call("vol-test", "vol-test-e-0").await.is_ok());
    let error = call("other", "").await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(error.message(), "incorrect volume name other; check controller address");
    let error = call("vol-test", "other").await.unwrap_err();
    assert_eq!(error.message(), "incorrect instance name other; check controller address");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_told_once_and_again() {
    let rig = Rig::try_new(options()).await.unwrap();
    let peer = rpc::connect(&rig.address, Identity::default(), Deadline::Usual).unwrap();
    let mut health = HealthClient::new(peer);
    let request = HealthCheckRequest::default();
    let once = health.check(request.clone()).await.unwrap().into_inner();
    assert_eq!(once.status(), ServingStatus::Serving);
    let mut watched = health.watch(request).await.unwrap().into_inner();
    for _ in 0..2 {
        assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn version_limits_journal_and_numbers() {
    let a = Fake::new(SIZE);
    let rig = Rig::with(&[&a.address]).await;
    let mut client = rig.client();
    let version = client.version_detail_get(()).await.unwrap().into_inner().version.unwrap();
    assert_eq!((version.cli_api_version, version.cli_api_min_version), (12, 8));
    assert_eq!((version.controller_api_version, version.controller_api_min_version), (6, 4));
    assert_eq!((version.data_format_version, version.data_format_min_version), (1, 1));
    assert!(!version.version.is_empty());

    let limit = |limit| ptypes::ReplicaRebuildConcurrentSyncLimitSetRequest { limit };
    client.replica_rebuild_concurrent_sync_limit_set(limit(5)).await.unwrap();
    assert!(client.replica_rebuild_concurrent_sync_limit_set(limit(0)).await.is_err());
    let now = client.replica_rebuild_concurrent_sync_limit_get(()).await.unwrap().into_inner();
    assert_eq!(now.limit, 5);

    client.journal_list(ptypes::JournalListRequest { limit: 3 }).await.unwrap();
    let error = client.volume_io(ptypes::VolumeIoRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);

    let metrics = until("written bytes in the numbers", async || {
        rig.write(0, &[1; 4096]).await;
        let metrics = rig.client().metrics_get(()).await.unwrap().into_inner().metrics.unwrap();
        (metrics.write_iops > 0).then_some(metrics)
    })
    .await;
    assert!(metrics.write_throughput >= 4096);
    assert!(metrics.write_latency > 0);
}

const REPLICA: &str = "HOLDFAST_TEST_REPLICA";
const LISTEN: &str = "HOLDFAST_TEST_LISTEN";

/// The process of the next test.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by another test as a process of its own"]
async fn a_controller_process() {
    let listen = std::env::var(LISTEN).unwrap();
    let replica = std::env::var(REPLICA).unwrap();
    let options = engine::ControllerOptions { listen, ..with_replicas(&[&replica]) };
    engine::control::run(options).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_told_to_end_closes_its_replicas() {
    let a = Fake::new(SIZE);
    let port = testkit::process::free_port().unwrap();
    let listen = rpc::Address::new("127.0.0.1", port);
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "serving::a_controller_process", "--ignored"])
        .env(LISTEN, listen.to_string())
        .env(REPLICA, &a.address)
        .stdout(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let peer = rpc::connect(&listen, Identity::default(), Deadline::Usual).unwrap();
    until("the process to serve", async || {
        HealthClient::new(peer.clone()).check(HealthCheckRequest::default()).await.ok()
    })
    .await;
    assert_eq!(a.state(), "open");
    let id = i32::try_from(child.id().unwrap()).unwrap();
    let id = rustix::process::Pid::from_raw(id).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().await.unwrap().success());
    assert_eq!(a.state(), "closed");
}
