//! What is started from which objects.

use std::sync::Arc;

use api::longhorn::{
    Condition, EngineSpec, EngineStatus, InstanceSpec, InstanceStatus, NodeSpec, NodeStatus,
    ReplicaSpec, ReplicaStatus,
};
use api::scalar::TextInt;

use super::*;

fn instance() -> InstanceSpec {
    InstanceSpec {
        volume_name: Some("vol".into()),
        volume_size: Some(TextInt(4096)),
        image: Some("img".into()),
        ..InstanceSpec::default()
    }
}

fn an_engine() -> Engine {
    let map = [("r1", "127.0.0.1:10"), ("r2", "127.0.0.2:20")];
    let spec = EngineSpec {
        instance: instance(),
        frontend: Some(Frontend::BlockDevice),
        replica_address_map: Some(map.map(|(a, b)| (a.into(), b.into())).into()),
        ..EngineSpec::default()
    };
    Engine::new("vol-e-0", spec)
}

fn at(ip: &str, port: i32) -> Replica {
    let mut replica = Replica::new("r", ReplicaSpec::default());
    let instance = InstanceStatus {
        current_state: Some(InstanceState::Running),
        ip: Some(ip.into()),
        port: Some(port),
        ..InstanceStatus::default()
    };
    replica.status = Some(ReplicaStatus { instance });
    replica
}

fn found(name: &str) -> Option<Arc<Replica>> {
    match name {
        "r1" => Some(Arc::new(at("127.0.0.1", 10))),
        "r2" => Some(Arc::new(at("127.0.0.2", 20))),
        _ => None,
    }
}

fn role(launch: Launch) -> EngineLaunch {
    match launch.role {
        Role::Engine(engine) => engine,
        Role::Replica(_) => panic!("an engine was asked for"),
    }
}

#[test]
fn an_engine_starts_with_its_replicas_where_they_are() {
    let none = Path::new("/nonexistent");
    let launch = engine(&an_engine(), false, found, |_| Some(9), none).unwrap();
    assert_eq!((launch.volume.as_str(), launch.program.clone()), ("vol", None));
    let role = role(launch);
    assert_eq!(role.replicas, ["127.0.0.1:10", "127.0.0.2:20"]);
    assert!(role.frontend);
    assert_eq!(role.replica_timeout, Some(Duration::from_secs(9)));
    assert_eq!((role.size_bytes, role.current_size_bytes), (4096, 4096));
}

#[test]
fn an_engine_waits_for_replicas_that_moved() {
    let none = Path::new("/nonexistent");
    let moved = |name: &str| found(name).map(|_| Arc::new(at("127.0.0.1", 10)));
    let error = engine(&an_engine(), false, moved, |_| None, none).unwrap_err();
    assert_eq!(error, NotYet::Moved("r2".into(), "127.0.0.2:20".into()));
    assert!(error.is_passing());
    assert!(engine(&an_engine(), false, |_| None, |_| None, none).is_err());
}

#[test]
fn a_volume_that_grows_is_opened_at_the_size_it_has() {
    let mut grows = an_engine();
    grows.spec.instance.volume_size = Some(TextInt(8192));
    grows.spec.disable_frontend = Some(true);
    grows.status =
        Some(EngineStatus { current_size: Some(TextInt(4096)), ..EngineStatus::default() });
    let role = role(engine(&grows, false, found, |_| None, Path::new("/nonexistent")).unwrap());
    assert_eq!((role.size_bytes, role.current_size_bytes), (8192, 4096));
    assert!(!role.frontend);
}

fn node(ready: bool) -> Node {
    let disk = Disk { path: Some("/disk".into()), ..Disk::default() };
    let ready = Condition {
        kind: "Ready".into(),
        status: ready.into(),
        last_probe_time: None,
        last_transition_time: None,
        reason: None,
        message: None,
    };
    let status = DiskStatus {
        disk_uuid: Some("u1".into()),
        conditions: Some(vec![ready]),
        ..DiskStatus::default()
    };
    let spec = NodeSpec { disks: Some([("d".into(), disk)].into()), ..NodeSpec::default() };
    let mut node = Node::new("n1", spec);
    node.status = Some(NodeStatus {
        disk_status: Some([("d".into(), status)].into()),
        ..NodeStatus::default()
    });
    node
}

fn on(disk: &str, path: &str, directory: &str) -> Replica {
    let spec = ReplicaSpec {
        instance: instance(),
        disk_id: Some(disk.into()),
        disk_path: Some(path.into()),
        data_directory_name: Some(directory.into()),
        ..ReplicaSpec::default()
    };
    Replica::new("vol-r-1", spec)
}

fn good() -> Ground {
    Ground { disk: Some("u1".into()), has_volume: true, taken_by: None }
}

#[test]
fn a_copy_that_was_whole_is_never_made_anew_and_served_empty() {
    let none = Path::new("/nonexistent");
    let fresh = on("u1", "/disk", "vol-1");
    let mut whole = fresh.clone();
    whole.spec.healthy_at = Some(Stamp::from("2025-03-01T10:00:00Z"));
    let mut refilled = whole.clone();
    refilled.spec.healthy_at = Some(Stamp::never());
    refilled.spec.last_healthy_at = whole.spec.healthy_at.clone();
    let empty = Ground { has_volume: false, ..good() };
    let gone = NotYet::DataGone("/disk/replicas/vol-1".into());
    let other = || NotYet::DiskNotReady("d".into());
    for (copy, ground, wanted) in [
        (&whole, Some(good()), None),
        (&whole, Some(empty.clone()), Some(gone)),
        // One that was never whole, and one that is to be filled, begin with nothing.
        (&fresh, Some(empty.clone()), None),
        (&refilled, Some(empty.clone()), None),
        // Another file system is there since the disks were last looked at, or none.
        (&whole, Some(Ground { disk: Some("u2".into()), ..good() }), Some(other())),
        (&fresh, Some(Ground { disk: None, ..empty }), Some(other())),
        (&fresh, None, Some(NotYet::NotLooked)),
    ] {
        let done = replica(copy, &node(true), ground.as_ref(), none);
        assert_eq!(done.err(), wanted, "{ground:?}");
    }
}

#[test]
fn a_replica_stays_on_its_disk() {
    let none = Path::new("/nonexistent");
    let launch = replica(&on("u1", "/disk", "vol-1"), &node(true), Some(&good()), none).unwrap();
    let Role::Replica(role) = launch.role else { panic!("a replica was asked for") };
    assert_eq!(role.dir, Path::new("/disk/replicas/vol-1"));
    for bad in ["..", "../vol-1", "vol-1/..", "vol", "", ".vol-1", "vol-1\0", "a-/../../etc"] {
        let refused = replica(&on("u1", "/disk", bad), &node(true), Some(&good()), none);
        assert_eq!(refused.unwrap_err(), NotYet::Directory(bad.into()));
    }
    for (disk, path) in [("u2", "/disk"), ("u1", "/etc"), ("", "/disk"), ("u1", "")] {
        let refused = replica(&on(disk, path, "vol-1"), &node(true), Some(&good()), none);
        assert!(matches!(refused, Err(NotYet::NoDisk { .. })), "{disk} {path}");
    }
    let refused = replica(&on("u1", "/disk", "vol-1"), &node(false), Some(&good()), none);
    assert_eq!(refused.unwrap_err(), NotYet::DiskNotReady("d".into()));
}

#[test]
fn another_engine_image_brings_its_own_program() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("registry.example-engine-v1");
    std::fs::create_dir_all(&place).unwrap();
    durable::replace(place.join("longhorn"), b"").unwrap();
    assert_eq!(program(dir.path(), "registry.example/engine:v1"), Some(place.join("longhorn")));
    for none in ["", "other", "..", "../registry.example-engine-v1"] {
        assert_eq!(program(dir.path(), none), None, "{none:?}");
    }
}

#[test]
fn a_copy_does_not_open_the_directory_of_another_volumes() {
    let of = |name: &str, volume: &str, second: i64| {
        let mut replica = Replica::new(name, ReplicaSpec::default());
        let at = jiff::Timestamp::from_second(second).unwrap();
        replica.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
        replica.spec.instance.volume_name = Some(volume.into());
        replica.spec.disk_id = Some("u1".into());
        replica.spec.data_directory_name = Some("v-1".into());
        replica
    };
    let (first, twin, later) = (of("v-r-1", "v", 1), of("v-r-2", "v", 2), of("w-r-1", "w", 3));
    let all = [first.clone(), twin.clone(), later.clone()];
    assert_eq!(taken_by(&first, all.iter()), None, "whoever comes later keeps nobody out");
    assert_eq!(taken_by(&twin, all.iter()), None);
    let taken = taken_by(&later, all.iter());
    assert_eq!(taken.as_deref(), Some("replica v-r-1 of volume v"));
    let mut beside = later;
    beside.spec.disk_id = Some("u2".into());
    assert_eq!(taken_by(&beside, all.iter()), None);
}
