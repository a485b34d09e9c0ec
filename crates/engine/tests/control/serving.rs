//! What the server has besides its volume: identity, health, version, numbers.

use rpc::health_v1::HealthCheckRequest;
use rpc::health_v1::health_check_response::ServingStatus;
use rpc::health_v1::health_client::HealthClient;
use rpc::{Deadline, Identity, ptypes};
use tonic::Code;

use crate::fake::Fake;
use crate::rig::{Rig, SIZE, options, until};

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
