//! A volume from its first write over a lost replica to a clone of it.

use rustix::process::Signal;

use crate::nbd::Nbd;
use crate::rig::{Rig, TIMEOUT, exists, signal};

const SIZE: u64 = 32 << 20;
const MIB: u32 = 1 << 20;

#[test]
fn a_lost_replica_is_rebuilt_while_the_volume_serves() {
    let mut rig = Rig::new("vol");
    for _ in 0..3 {
        rig.add_replica(SIZE);
    }
    rig.start_volume(SIZE);
    let info = rig.json("--volume-name vol --engine-instance-name vol-e-0 info");
    assert_eq!((info["name"].as_str(), info["size"].as_u64()), (Some("vol"), Some(SIZE)));
    assert_eq!(
        (info["replicaCount"].as_u64(), info["frontendState"].as_str()),
        (Some(3), Some("up"))
    );
    assert!(info["endpoint"].as_str().unwrap().starts_with("nbd+unix://"), "{info}");

    let mut nbd = Nbd::connect(&rig.nbd_socket(), "vol");
    assert_eq!(nbd.size_bytes, SIZE);
    nbd.fill(0, MIB, b'a');
    assert_eq!(rig.ok("snapshot create one --label app=db --freeze-fs=False"), "one\n");
    nbd.fill(u64::from(MIB), MIB, b'b');

    rig.replicas[2].process.as_mut().unwrap().kill().unwrap();
    nbd.fill(u64::from(MIB) * 2, MIB, b'c');
    rig.wait_until("ERR", |rig| rig.modes() == ["RW", "RW", "ERR"]);
    let lost = rig.replicas[2].address();
    assert!(rig.ok("ls").contains(&format!("{lost} ERR  \n")), "padded and without a chain");

    rig.ok(&format!("rm-replica {lost}"));
    rig.start_replica(2, SIZE);
    let line = format!(
        "--volume-name vol add-replica --size {SIZE} {lost} --current-size {SIZE} \
         --replica-instance-name vol-r-2"
    );
    assert_eq!(rig.ok(&line), "");
    assert_eq!(rig.modes(), ["RW", "RW", "RW"]);
    assert_eq!(rig.ok("rebuild-status"), "{}\n");

    // The new one alone has everything.
    for index in [0, 1] {
        rig.ok(&format!("rm {}", rig.replicas[index].address()));
    }
    for (place, letter) in [(0, b'a'), (1, b'b'), (2, b'c'), (3, 0)] {
        assert_eq!(nbd.letter(u64::from(MIB) * place, MIB), letter);
    }
    assert!(rig.error(&format!("rm {lost}")).contains("cannot remove last replica"));
}

#[test]
fn snapshots_are_listed_hashed_purged_and_reverted_to() {
    let mut rig = Rig::new("snaps");
    for _ in 0..2 {
        rig.add_replica(SIZE);
    }
    rig.start_volume(SIZE);
    let mut nbd = Nbd::connect(&rig.nbd_socket(), "snaps");
    nbd.fill(0, MIB, b'a');
    rig.ok("snapshot create one --label note=a");
    nbd.fill(0, MIB, b'b');
    rig.ok("snapshot create two");
    assert_eq!(rig.ok("snapshot"), "ID\ntwo\none\n");
    assert!(rig.error("snapshot create two").contains("is already existing"));

    let info = rig.json("snapshot info");
    assert_eq!(info["two"]["parent"], "one");
    assert_eq!(info["one"]["children"]["two"], true);
    assert_eq!(info["one"]["labels"]["note"], "a");
    assert_eq!(info["one"]["size"], MIB.to_string());
    assert_eq!(info["volume-head"]["parent"], "two");

    rig.ok("snapshot hash two");
    rig.wait_until("checksums", |rig| {
        let statuses = rig.json("hash-status two");
        let statuses = statuses.as_object().unwrap();
        statuses.len() == 2 && statuses.values().all(|status| status["state"] == "complete")
    });
    let statuses = rig.json("snapshot hash-status two");
    let sums: Vec<_> = statuses.as_object().unwrap().values().map(|it| &it["checksum"]).collect();
    assert_eq!(sums[0], sums[1]);
    rig.ok("hash-cancel two");

    nbd.fill(0, MIB, b'c');
    assert!(rig.error("snapshot revert one").contains("volume frontend enabled"));
    rig.ok("frontend shutdown");
    assert!(!exists(&rig.nbd_socket()));
    rig.ok("snapshot revert one");
    rig.ok("frontend start nbd");
    assert_eq!(Nbd::connect(&rig.nbd_socket(), "snaps").letter(0, MIB), b'a');

    rig.ok("snapshot rm two");
    rig.ok("snapshot purge");
    rig.ok("snapshot purge --skip-if-in-progress");
    rig.wait_until("the end of the purge", |rig| {
        let statuses = rig.json("snapshot purge-status");
        statuses.as_object().unwrap().values().all(|status| status["state"] == "complete")
    });
    rig.wait_until("the merged snapshot gone", |rig| rig.json("snapshot info")["two"].is_null());
    assert_eq!(rig.ok("snapshot ls"), "ID\none\n");
    rig.ok("sync-agent-server-reset");
}

#[test]
fn a_volume_grows_and_tells_of_it() {
    let mut rig = Rig::new("grow");
    rig.add_replica(SIZE);
    rig.start_volume(SIZE);
    let size = SIZE * 2;
    rig.ok(&format!("expand --size {size}"));
    rig.wait_until("the new size", |rig| {
        let info = rig.json("info");
        info["size"] == size && info["isExpanding"] == false
    });
    assert_eq!(Nbd::connect(&rig.nbd_socket(), "grow").size_bytes, size);
    assert!(rig.error("expand --size 4096").contains("cannot be expanded to a smaller size"));
    rig.ok("unmap-mark-snap --enable");
    assert_eq!(rig.json("info")["unmapMarkSnapChainRemoved"], true);
    rig.ok("unmap-mark-snap-chain-removed --disable");
    rig.ok("journal --limit 5");
    assert_eq!(rig.ok("profiler show"), "Profiler is not enabled\n");
    assert!(rig.error("profiler enable").contains("code = Unimplemented"));
    assert_eq!(rig.ok("profiler disable"), "Profiler is disabled\n");
    let versions = rig.json("version");
    assert_eq!(versions["clientVersion"], versions["serverVersion"]);
}

#[test]
fn a_replica_to_be_restored_is_added_without_copying() {
    let mut rig = Rig::new("dr");
    rig.add_replica(SIZE);
    let address = rig.replicas[0].address();
    rig.launch_controller(SIZE, &[], &[]);
    rig.wait_for_controller();
    assert_eq!(rig.ok("ls"), "ADDRESS MODE CHAIN\n");
    // The first replica starts the volume.
    rig.ok(&format!("add {address} --size {SIZE} --current-size {SIZE} --restore"));
    assert_eq!(rig.modes(), ["RW"]);
    assert_eq!(rig.json("info")["frontendState"], "");

    let small = rig.add_replica(SIZE / 2);
    let small = rig.replicas[small].address();
    let text = rig.error(&format!("add --size {SIZE} --current-size {SIZE} --restore {small}"));
    let wanted =
        format!("rebuilding replica size {} is not the same as volume size {SIZE}", SIZE / 2);
    assert!(text.contains(&wanted), "{text}");

    let second = rig.add_replica(SIZE);
    let second = rig.replicas[second].address();
    rig.ok(&format!("add --size {SIZE} --current-size {SIZE} --restore {second}"));
    assert_eq!(rig.modes(), ["RW", "WO"]);
    assert_eq!(rig.ok("snapshot"), "ID\n", "no snapshot was taken");
    assert!(rig.json("rebuild-status")[&second].is_object());
    let early = rig.error(&format!("verify-rebuild-replica {second}"));
    assert!(early.contains("was not filled since it was added"), "{early}");
    assert_eq!(rig.modes(), ["RW", "WO"]);

    assert!(rig.error(&format!("update {second} --mode WO")).contains("cannot set to mode WO"));
    rig.ok(&format!("update {second} --mode ERR"));
    assert_eq!(rig.modes(), ["RW", "ERR"]);
}

#[test]
fn a_snapshot_is_cloned_into_another_volume() {
    let mut from = Rig::new("source");
    from.add_replica(SIZE);
    from.start_volume(SIZE);
    Nbd::connect(&from.nbd_socket(), "source").fill(0, MIB, b'x');
    from.ok("snapshot create s");

    let mut to = Rig::new("target");
    to.add_replica(SIZE);
    to.start_volume(SIZE);
    to.ok("frontend shutdown");
    to.ok(&format!(
        "snapshot clone --snapshot-name s --from-controller-address 127.0.0.1:{} \
         --from-volume-name source --from-controller-instance-name source-e-0",
        from.controller_port
    ));
    let statuses = to.json("snapshot clone-status");
    let status = &statuses[to.replicas[0].address()];
    assert_eq!(
        (status["state"].as_str(), status["snapshotName"].as_str()),
        (Some("complete"), Some("s"))
    );
    assert_eq!(status["fromReplicaAddress"], from.replicas[0].address());
    to.ok("frontend start nbd");
    assert_eq!(Nbd::connect(&to.nbd_socket(), "target").letter(0, MIB), b'x');
    let text = to.error(&format!(
        "snapshot clone --snapshot-name gone --from-controller-address 127.0.0.1:{}",
        from.controller_port
    ));
    assert!(text.contains("gone"), "{text}");
}

#[test]
fn servers_end_as_asked() {
    let mut rig = Rig::new("end");
    rig.add_replica(SIZE);
    rig.start_volume(SIZE);
    let mut controller = rig.controller.take().unwrap();
    signal(&controller, Signal::INT);
    assert_eq!(controller.wait_for_exit(TIMEOUT).unwrap().code(), Some(0));
    assert!(!exists(&rig.nbd_socket()), "the frontend was stopped");

    rig.start_volume(SIZE);
    let mut controller = rig.controller.take().unwrap();
    signal(&controller, Signal::HUP);
    assert!(!controller.wait_for_exit(TIMEOUT).unwrap().success());

    let mut replica = rig.replicas[0].process.take().unwrap();
    signal(&replica, Signal::TERM);
    assert_eq!(replica.wait_for_exit(TIMEOUT).unwrap().code(), Some(0));
}
