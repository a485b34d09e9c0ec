//! `snapshot` and what is below it, but for `clone`.

use std::collections::HashMap;

use rpc::ptypes::{
    DiskInfo, DiskMarkAsRemovedResponse, Replica, ReplicaMode, SnapshotHashStatusResponse,
    SnapshotPurgeStatusResponse, VolumeSnapshotReply,
};
use rpc::volume::{PurgeReply, ReplicaError};
use tonic::Status;

use crate::world::World;

fn chain(disks: &[&str]) -> Replica {
    Replica { chain: disks.iter().map(|disk| (*disk).to_owned()).collect(), ..Replica::default() }
}

#[test]
fn snapshots_all_healthy_replicas_have_are_listed() {
    let world = World::new(&[ReplicaMode::Rw, ReplicaMode::Rw, ReplicaMode::Wo]);
    world.replicas[0].is(chain(&["volume-head-002.img", "volume-snap-b.img", "volume-snap-a.img"]));
    world.replicas[1].is(chain(&["volume-head-001.img", "volume-snap-a.img"]));
    for line in ["snapshot", "snapshots", "snapshot ls"] {
        assert_eq!(world.ok(line), "ID\na\n", "{line}");
    }
    assert_eq!(World::healthy(0).ok("snapshot"), "ID\n");
}

#[test]
fn a_snapshot_is_created_with_labels() {
    let world = World::healthy(1);
    world.controller.on("volume_snapshot", VolumeSnapshotReply { name: "s1".into() });
    let line = "snapshot create s1 --label app=db --freeze-fs=True --unknown flag";
    assert_eq!(world.ok(line), "s1\n");
    let wanted = "VolumeSnapshotRequest { name: \"s1\", labels: {\"app\": \"db\"}, \
                  freeze_filesystem: true }";
    assert_eq!(world.calls_of("volume_snapshot")[0].request, wanted);
    world.ok("snapshot create --freeze-fs=False");
    let request = &world.calls_of("volume_snapshot")[1].request;
    assert!(request.contains("name: \"\"") && request.contains("freeze_filesystem: false"));
    assert!(world.error("snapshot create --label nothing").starts_with("invalid label"));
}

#[test]
fn a_removed_snapshot_is_marked_on_all_replicas_and_not_hashed_any_more() {
    let world = World::healthy(2);
    assert_eq!(world.ok("snapshot rm a b"), "");
    for method in ["disk_mark_as_removed", "snapshot_hash_cancel"] {
        let mut seen: Vec<String> = world
            .calls_of(method)
            .iter()
            .map(|it| format!("{} {}", it.server, it.request))
            .collect();
        seen.sort();
        let names: Vec<bool> = seen
            .iter()
            .zip(["a", "b", "a", "b"])
            .map(|(it, name)| it.contains(&format!("\"{name}\"")))
            .collect();
        assert_eq!(names, [true; 4], "{seen:?}");
    }
    assert_eq!(world.error("snapshot rm"), "snapshot name is required");
}

#[test]
fn each_name_that_cannot_be_removed_is_told() {
    let world = World::healthy(1);
    let text = "cannot mark the active differencing disk as removed";
    world.replicas[0]
        .replica
        .refuse::<DiskMarkAsRemovedResponse>("disk_mark_as_removed", Status::unknown(text));
    let outcome = world.run("snapshot rm a b");
    assert_eq!((outcome.exit_code, outcome.out.as_str()), (1, ""));
    assert_eq!(outcome.err.lines().count(), 3, "{}", outcome.err);
    for (line, name) in outcome.err.lines().zip(["a", "b", "b"]) {
        assert!(line.contains(text) && line.contains(&format!("snapshot {name}")), "{line}");
    }
}

#[test]
fn nothing_is_removed_while_a_replica_is_not_healthy() {
    let world = World::new(&[ReplicaMode::Rw, ReplicaMode::Wo]);
    let text = world.error("snapshot rm a");
    assert!(text.contains(&world.fill("while replica {1} is in mode WO")), "{text}");
    assert!(world.calls_of("disk_mark_as_removed").is_empty());
}

#[test]
fn a_volume_is_reverted() {
    let world = World::healthy(1);
    assert_eq!(world.ok("snapshot revert a"), "");
    assert_eq!(world.calls_of("volume_revert")[0].request, "VolumeRevertRequest { name: \"a\" }");
    assert_eq!(world.error("snapshot revert"), "snapshot name is required");
}

#[test]
fn a_purge_is_started_on_all_replicas_that_did_not_fail() {
    let world = World::new(&[ReplicaMode::Rw, ReplicaMode::Wo, ReplicaMode::Err]);
    world.replicas.iter().for_each(|node| node.is(Replica::default()));
    assert_eq!(world.ok("snapshot purge"), "");
    assert_eq!(world.calls_of("snapshot_purge").len(), 2);

    world.forget_calls();
    world.replicas[1].is(Replica { rebuilding: true, ..Replica::default() });
    let wanted = "cannot purge snapshots because replica {1} is rebuilding";
    assert_eq!(world.error("snapshot purge"), world.fill(wanted));
    world.replicas[1].is(Replica::default());
    let purging = SnapshotPurgeStatusResponse { is_purging: true, ..Default::default() };
    world.replicas[0].agent.on("snapshot_purge_status", purging);
    let wanted = "replica {0} is already purging snapshots";
    assert_eq!(world.error("snapshot purge"), world.fill(wanted));
    assert_eq!(world.ok("snapshot purge --skip-if-in-progress"), "");
    assert!(world.calls_of("snapshot_purge").is_empty());
}

#[test]
fn a_controller_of_ours_has_all_replicas_purge_by_itself() {
    let world = World::ours(2);
    assert_eq!(world.ok("snapshot purge --fold-head-parent"), "");
    assert_eq!(world.called(), ["controller.replica_list", "controller.purge"]);
    let request = &world.calls_of("purge")[0].request;
    assert!(request.contains("fold_head_parent: true, skip_if_in_progress: false"), "{request}");
    let error = |address: &str| ReplicaError { address: address.into(), message: "busy".into() };
    let errors = vec![error("tcp://a"), error("tcp://b")];
    world.controller.on("purge", PurgeReply { errors });
    assert_eq!(world.error("snapshot purge"), "tcp://a: busy; tcp://b: busy");
    world.controller.refuse::<PurgeReply>("purge", Status::unknown("not now"));
    assert_eq!(world.error("snapshot purge"), "not now");
}

#[test]
fn the_status_of_a_purge_leaves_failed_replicas_out() {
    let world = World::new(&[ReplicaMode::Rw, ReplicaMode::Err]);
    let status = SnapshotPurgeStatusResponse {
        progress: 100,
        state: "complete".into(),
        ..Default::default()
    };
    world.replicas[0].agent.on("snapshot_purge_status", status);
    let wanted = "{\n\t\"{0}\": {\n\t\t\"error\": \"\",\n\t\t\"isPurging\": false,\n\
                  \t\t\"progress\": 100,\n\t\t\"state\": \"complete\"\n\t}\n}\n";
    assert_eq!(world.ok("snapshot purge-status"), world.fill(wanted));
}

fn disk(parent: &str, children: &[&str], size: &str) -> DiskInfo {
    DiskInfo {
        parent: parent.into(),
        children: children.iter().map(|child| ((*child).to_owned(), true)).collect(),
        created: "2026-01-02T03:04:05Z".into(),
        size: size.into(),
        ..DiskInfo::default()
    }
}

#[test]
fn snapshot_info_is_of_the_replica_with_most_disks() {
    let world = World::healthy(2);
    let mut snapshot = disk("", &["volume-head-001.img"], "4096");
    snapshot.user_created = true;
    snapshot.removed = true;
    snapshot.labels = HashMap::from([("a".to_owned(), "x&y".to_owned())]);
    let disks = HashMap::from([
        ("volume-head-001.img".to_owned(), disk("volume-snap-s.img", &[], "0")),
        ("volume-snap-s.img".to_owned(), snapshot),
    ]);
    world.replicas[1].is(Replica { disks, ..Replica::default() });
    let less = HashMap::from([("volume-head-000.img".to_owned(), disk("", &[], "8192"))]);
    world.replicas[0].is(Replica { disks: less, ..Replica::default() });
    let wanted = "{\n\t\"s\": {\n\t\t\"name\": \"s\",\n\t\t\"parent\": \"\",\n\t\t\"children\": {\n\
                  \t\t\t\"volume-head\": true\n\t\t},\n\t\t\"removed\": true,\n\
                  \t\t\"usercreated\": true,\n\t\t\"created\": \"2026-01-02T03:04:05Z\",\n\
                  \t\t\"size\": \"4096\",\n\t\t\"labels\": {\n\t\t\t\"a\": \"x\\u0026y\"\n\t\t}\n\
                  \t},\n\t\"volume-head\": {\n\t\t\"name\": \"volume-head\",\n\
                  \t\t\"parent\": \"s\",\n\t\t\"children\": {},\n\t\t\"removed\": false,\n\
                  \t\t\"usercreated\": false,\n\t\t\"created\": \"2026-01-02T03:04:05Z\",\n\
                  \t\t\"size\": \"0\",\n\t\t\"labels\": {}\n\t}\n}\n";
    assert_eq!(world.ok("snapshot info"), wanted);
}

#[test]
fn hashing_is_asked_of_all_replicas_once_all_are_healthy() {
    let world = World::healthy(2);
    for line in ["snapshot hash s --rehash", "hash s --rehash=t"] {
        world.forget_calls();
        assert_eq!(world.ok(line), "");
        let calls = world.calls_of("snapshot_hash");
        assert_eq!(calls.len(), 2);
        let wanted = "SnapshotHashRequest { snapshot_name: \"s\", rehash: true }";
        assert!(calls.iter().all(|call| call.request == wanted), "{calls:?}");
    }
    for line in ["snapshot hash-cancel s", "hash-cancel s"] {
        world.forget_calls();
        assert_eq!(world.ok(line), "");
        assert_eq!(world.calls_of("snapshot_hash_cancel").len(), 2);
    }
    world.list(&[ReplicaMode::Rw, ReplicaMode::Wo]);
    let wanted = "cannot request hashing snapshot s: replica {1} is rebuilding";
    assert_eq!(world.error("hash s"), world.fill(wanted));
    assert_eq!(world.error("hash"), "snapshot name is required");
}

#[test]
fn checksums_are_shown_and_so_is_silent_corruption() {
    let world = World::healthy(1);
    let status = SnapshotHashStatusResponse {
        state: "complete".into(),
        checksum: "0badcafe".into(),
        silently_corrupted: true,
        ..Default::default()
    };
    world.replicas[0].agent.on("snapshot_hash_status", status);
    let wanted = "{\n\t\"{0}\": {\n\t\t\"state\": \"complete\",\n\t\t\"checksum\": \"0badcafe\",\n\
                  \t\t\"error\": \"\",\n\t\t\"silentlyCorrupted\": true\n\t}\n}\n";
    for line in ["snapshot hash-status s", "hash-status s"] {
        assert_eq!(world.ok(line), world.fill(wanted), "{line}");
    }
}
