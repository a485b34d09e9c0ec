//! `snapshot clone` and `snapshot clone-status`.

use rpc::ptypes::{ReplicaMode, SnapshotCloneStatusResponse};

use crate::world::World;

const FLAGS: &str = "--snapshot-name s --from-volume-name src --from-controller-instance-name src-e \
                     --export-backing-image-if-exist --file-sync-http-client-timeout 30";

#[test]
fn every_replica_copies_from_a_healthy_one_of_the_other_volume() {
    let from = World::new(&[ReplicaMode::Err, ReplicaMode::Rw]);
    let to = World::healthy(2);
    let line = from.fill(&format!("snapshot clone --from-controller-address {{url}} {FLAGS}"));
    assert_eq!(to.ok(&line), "");
    let calls = to.calls_of("snapshot_clone");
    let wanted = from.fill(
        "SnapshotCloneRequest { from_address: \"{1}\", to_host: \"127.0.0.1\", \
         snapshot_file_name: \"s\", export_backing_image_if_exist: true, \
         file_sync_http_client_timeout: 30, from_volume_name: \"src\" }",
    );
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call.request == wanted), "{calls:?}");
    let names = from.calls_of("replica_list")[0].names.clone();
    assert_eq!(names, [Some("src".to_owned()), Some("src-e".to_owned())]);
}

#[test]
fn a_copy_that_failed_is_a_failure() {
    let from = World::healthy(1);
    let to = World::healthy(1);
    let status = SnapshotCloneStatusResponse { error: "broken".into(), ..Default::default() };
    to.replicas[0].agent.on("snapshot_clone_status", status);
    let line = from.fill("snapshot clone --snapshot-name s --from-controller-address {url}");
    assert_eq!(to.error(&line), to.fill("{0}: broken"));
}

#[test]
fn what_is_missing_is_told() {
    let from = World::new(&[ReplicaMode::Err]);
    let to = World::healthy(1);
    assert_eq!(to.error("snapshot clone"), "--snapshot-name is required");
    assert_eq!(
        to.error("snapshot clone --snapshot-name s"),
        "--from-controller-address is required"
    );
    let line = from.fill("snapshot clone --snapshot-name s --from-controller-address {url}");
    assert_eq!(to.error(&line), "cannot find any healthy replica to clone from");
    to.list(&[ReplicaMode::Wo]);
    assert!(to.error(&line).contains("in mode WO"));
    assert!(to.calls_of("snapshot_clone").is_empty());
}

#[test]
fn the_status_of_a_copy_is_shown() {
    let world = World::new(&[ReplicaMode::Rw, ReplicaMode::Err]);
    let status = SnapshotCloneStatusResponse {
        is_cloning: true,
        progress: 7,
        state: "in_progress".into(),
        from_replica_address: "tcp://x:1".into(),
        snapshot_name: "s".into(),
        ..Default::default()
    };
    world.replicas[0].agent.on("snapshot_clone_status", status);
    let wanted = "{\n\t\"{0}\": {\n\t\t\"isCloning\": true,\n\t\t\"error\": \"\",\n\
                  \t\t\"progress\": 7,\n\t\t\"state\": \"in_progress\",\n\
                  \t\t\"fromReplicaAddress\": \"tcp://x:1\",\n\t\t\"snapshotName\": \"s\"\n\t}\n}\n";
    assert_eq!(world.ok("snapshot clone-status"), world.fill(wanted));
}
