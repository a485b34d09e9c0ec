//! The small verbs, and what every server of the dialect has besides.

use rpc::health_v1::HealthCheckRequest;
use rpc::health_v1::health_client::HealthClient;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::ptypes::{
    BackupRemoveRequest, BackupRestoreRequest, FileRemoveRequest, FileRenameRequest,
    FileSendRequest, ReceiverLaunchRequest, RestoreStatusResponse,
};
use rpc::{Deadline, Identity, SharedClaim};
use tonic::Code;
use wire::membership::{CUT_OFF_TEXT, Claim};

use crate::node::{Node, VOLUME};

const SIZE: u64 = 1 << 20;

#[tokio::test]
async fn files_are_renamed_and_removed_and_names_do_not_leave_the_directory() {
    let node = Node::new(SIZE).await;
    durable::replace(node.file("one"), b"1").unwrap();
    durable::replace(node.place.path().join("outside"), b"1").unwrap();
    let rename = |old: &str, new: &str| FileRenameRequest {
        old_file_name: old.into(),
        new_file_name: new.into(),
    };
    node.agent().file_rename(rename("one", "two")).await.unwrap();
    assert!(!node.file("one").exists() && node.file("two").exists());
    let remove = |file: &str| FileRemoveRequest { file_name: file.into() };
    let refused = |status: &tonic::Status, name: &str| {
        let text = format!("{name:?} is not the plain name of a file");
        assert_eq!(status.message(), text);
    };
    for name in ["../outside", "..", ".", "", "a/b", "/etc/passwd"] {
        refused(&node.agent().file_remove(remove(name)).await.unwrap_err(), name);
        refused(&node.agent().file_rename(rename("two", name)).await.unwrap_err(), name);
        refused(&node.agent().file_rename(rename(name, "three")).await.unwrap_err(), name);
        let launch = ReceiverLaunchRequest { to_file_name: name.into() };
        refused(&node.agent().receiver_launch(launch).await.unwrap_err(), name);
        let send = FileSendRequest { from_file_name: name.into(), ..FileSendRequest::default() };
        refused(&node.agent().file_send(send).await.unwrap_err(), name);
    }
    node.agent().file_remove(remove("two")).await.unwrap();
    assert!(!node.file("two").exists());
    assert!(node.place.path().join("outside").exists());
    let gone = node.agent().file_remove(remove("two")).await.unwrap_err();
    assert_eq!(gone.message(), "cannot remove two: no such file or directory");
}

/// Another engine has the volume: what this one still asks for would go below its clients.
#[tokio::test]
async fn an_engine_that_lost_the_replica_begins_nothing() {
    let node = Node::new(SIZE).await;
    let claim = SharedClaim::default();
    claim.set(Some(Claim { generation: 7, engine: "gone".into() }));
    let identity = Identity { volume: VOLUME.into(), instance: "instance".into() };
    let address = node.control.sync_agent();
    let peer = rpc::connect_claimed(&address, identity, Deadline::Usual, claim).unwrap();
    let mut late = SyncAgentServiceClient::new(peer);
    let request = BackupRestoreRequest {
        backup: "vfs:///t?backup=b&volume=v".into(),
        snapshot_disk_name: "volume-snap-a.img".into(),
        ..BackupRestoreRequest::default()
    };
    for refused in [late.backup_restore(request).await, late.snapshot_purge(()).await] {
        let refused = refused.unwrap_err();
        assert!(refused.message().starts_with(CUT_OFF_TEXT), "{refused}");
    }
    let status = node.agent().restore_status(()).await.unwrap().into_inner();
    assert_eq!(status, RestoreStatusResponse::default());
    node.agent().snapshot_purge(()).await.unwrap();
}

#[tokio::test]
async fn calls_meant_for_another_replica_are_refused() {
    let node = Node::new(SIZE).await;
    let other = Identity { volume: "other".into(), instance: String::new() };
    let refused = node.agent_as(other).restore_status(()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.message(), "incorrect volume name other; check replica address");
    let other = Identity { volume: VOLUME.into(), instance: "else".into() };
    let refused = node.agent_as(other).restore_status(()).await.unwrap_err();
    assert_eq!(refused.message(), "incorrect instance name else; check replica address");
    node.agent_as(Identity::default()).restore_status(()).await.unwrap();
}

#[tokio::test]
async fn an_agent_has_no_health_service_and_did_nothing_yet() {
    let node = Node::new(SIZE).await;
    let peer = || {
        let address = node.control.sync_agent();
        rpc::connect(&address, Identity::default(), rpc::Deadline::Usual).unwrap()
    };
    let health = HealthClient::new(peer()).check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(health.code(), Code::Unimplemented);
    let removed = node.agent().backup_remove(BackupRemoveRequest::default()).await.unwrap_err();
    assert_eq!(removed.code(), Code::Unimplemented);
    let restored = node.agent().restore_status(()).await.unwrap().into_inner();
    assert_eq!(restored, RestoreStatusResponse::default());
    let purge = node.agent().snapshot_purge_status(()).await.unwrap().into_inner();
    assert_eq!((purge.state.as_str(), purge.progress), ("", 0));
    node.agent().reset(()).await.unwrap();
}
