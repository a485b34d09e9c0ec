//! A volume backed up to a directory, restored into another volume, and its backups removed.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::process::Process;

use crate::nbd::Nbd;
use crate::rig::{Rig, TIMEOUT};

const SIZE: u64 = 32 << 20;
const MIB: u32 = 1 << 20;
const BLOCK: u64 = 2 << 20;

fn back_up(rig: &Rig, target: &str, snapshot: &str, backup: &str) -> Value {
    let line = format!("backup create {snapshot} --dest {target} --backup-name {backup}");
    let created = rig.json(&format!("{line} --label app=db --concurrent-limit 2"));
    assert_eq!(created["backupID"], backup);
    assert_eq!(created["replicaAddress"], rig.replicas[0].address());
    rig.wait_until("the end of the backup", |rig| {
        let status = rig.json(&format!("backup status {backup}"));
        assert_ne!(status["state"], "error", "{status}");
        status["state"] == "complete" && status["progress"] == 100
    });
    created
}

fn blocks(dir: &Path) -> usize {
    files(dir, "blk")
}

fn files(dir: &Path, extension: &str) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let is_one = path.extension().is_some_and(|it| it == extension);
            if path.is_dir() { files(&path, extension) } else { usize::from(is_one) }
        })
        .sum()
}

/// So slow that it cannot have ended by itself. It leaves neither files nor locks.
fn a_signal_ends_a_restore_to_a_file(rig: &Rig, store: &Path, url: &str) {
    let out = rig.path("images");
    std::fs::create_dir(&out).unwrap();
    let mut command = Command::new(&rig.program);
    command.args(["backup", "restore-to-file", url, "--output-format", "raw"]);
    command.args(["--bandwidth-limit", "1", "--output-file"]).arg(out.join("image"));
    let mut process = Process::start(command, &rig.path(""), "restore-to-file").unwrap();
    let left = || std::fs::read_dir(&out).unwrap().count();
    let locks = || files(store, "lck");
    rig.wait_until("its files and its lock", |_| left() > 0 && locks() > 0);
    process.terminate().unwrap();
    assert_eq!(process.wait_for_exit(TIMEOUT).unwrap().code(), Some(128 + 15));
    assert_eq!((left(), locks()), (0, 0), "{}", process.stderr());
    assert_eq!(process.stdout(), "interrupted\n");
}

/// Nobody can clean up after itself that is killed: the next one there does. Over a copy of the store,
/// since the lock of the killed one stays for a while.
fn a_killed_restore_to_a_file_leaves_nothing_for_ever(rig: &Rig, store: &Path, query: &str) {
    let (out, copy) = (rig.path("killed-images"), rig.path("copied-store"));
    std::fs::create_dir(&out).unwrap();
    let copied = Command::new("cp").arg("-r").args([store, copy.as_path()]).status().unwrap();
    assert!(copied.success());
    let url = format!("vfs://{}?{query}", copy.display());
    let restore = |flags: &[&str]| {
        let mut command = Command::new(&rig.program);
        command.args(["backup", "restore-to-file", &url, "--output-format", "raw"]).args(flags);
        command.arg("--output-file").arg(out.join("image"));
        command
    };
    let slow = restore(&["--bandwidth-limit", "1"]);
    let mut process = Process::start(slow, &rig.path(""), "killed-restore").unwrap();
    let left = || -> Vec<String> {
        let entries = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect()
    };
    rig.wait_until("its files and its lock", |_| !left().is_empty() && files(&copy, "lck") > 0);
    process.kill().unwrap();
    let [killed] = &left()[..] else { panic!("{:?}", left()) };
    assert!(killed.starts_with(".holdfast-"), "{killed}");
    let done = restore(&[]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(left(), ["image"]);
}

#[test]
fn a_volume_is_backed_up_restored_elsewhere_and_its_backups_removed() {
    let mut from = Rig::new("source");
    from.add_replica(SIZE);
    from.start_volume(SIZE);
    let store = from.path("store");
    std::fs::create_dir(&store).unwrap();
    let target = format!("vfs://{}", store.display());
    let url = |backup: &str| format!("{target}?backup={backup}&volume=source");
    let mut nbd = Nbd::connect(&from.nbd_socket(), "source");
    nbd.fill(0, MIB, b'a');
    nbd.fill(5 * BLOCK, MIB, b'b');
    from.ok("snapshot create one");
    assert_eq!(back_up(&from, &target, "one", "backup-one")["isIncremental"], false);
    assert_eq!(blocks(&store), 2);
    nbd.fill(5 * BLOCK, MIB, b'c');
    from.ok("snapshot create two");
    assert_eq!(back_up(&from, &target, "two", "backup-two")["isIncremental"], true);
    assert_eq!(blocks(&store), 3);
    let head = from.error("backup create volume-head --dest vfs:///x");
    assert!(head.contains("cannot backup the head disk in the chain"), "{head}");

    let list = from.json(&format!("backup ls {target}"));
    let names: Vec<_> = list["source"]["Backups"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["backup-one", "backup-two"]);
    let info = from.json(&format!("backup inspect {}", url("backup-two")));
    assert_eq!((&info["SnapshotName"], &info["Labels"]["app"]), (&"two".into(), &"db".into()));
    assert_eq!(
        (&info["VolumeSize"], &info["URL"]),
        (&SIZE.to_string().into(), &url("backup-two").into())
    );
    let report = from.json(&format!("backup verify --deep --volume source {target}"));
    assert_eq!((&report["checkedBlocks"], &report["orphanBlocks"]), (&3.into(), &0.into()));
    let missing = from.run(&format!("backup inspect {}", url("missing")));
    assert_eq!(missing.code, Some(1));
    assert!(missing.out.starts_with("cannot find backupstore/volumes/"), "{}", missing.out);

    a_signal_ends_a_restore_to_a_file(&from, &store, &url("backup-two"));
    let query = "backup=backup-two&volume=source";
    a_killed_restore_to_a_file_leaves_nothing_for_ever(&from, &store, query);
    let busy = from.run(&format!("backup restore {}", url("backup-two")));
    assert_eq!(busy.out, "volume frontend enabled, cannot perform restore\n");
    let mut to = Rig::new("restored");
    for _ in 0..2 {
        to.add_replica(SIZE);
    }
    let addresses: Vec<String> = to.replicas.iter().map(crate::rig::Node::address).collect();
    let socket = to.nbd_socket();
    to.launch_controller(SIZE, &addresses, &["--nbd-unix", socket.to_str().unwrap()]);
    to.wait_for_controller();
    for (backup, letter) in [("backup-one", b'b'), ("backup-two", b'c')] {
        assert_eq!(to.ok(&format!("backup restore {} --concurrent-limit 2", url(backup))), "");
        to.wait_until("the end of the restore", |rig| {
            let statuses = rig.json("backup restore-status");
            statuses.as_object().unwrap().values().all(|status| {
                assert_ne!(status["state"], "error", "{statuses}");
                status["state"] == "complete" && status["lastRestored"] == backup
            })
        });
        let again = to.run(&format!("backup restore {}", url(backup)));
        assert!(again.out.contains("\"ReplicaErrors\""), "{}", again.out);
        assert!(again.out.contains(&format!("already restored backup {backup}")));
        to.ok("frontend start nbd");
        let mut nbd = Nbd::connect(&to.nbd_socket(), "restored");
        for (offset, wanted) in [(0, b'a'), (BLOCK, 0), (5 * BLOCK, letter)] {
            assert_eq!(nbd.letter(offset, MIB), wanted);
        }
        drop(nbd);
        to.ok("frontend shutdown");
    }

    assert_eq!(from.ok(&format!("backup rm {}", url("backup-one"))), "");
    assert_eq!(blocks(&store), 2, "exactly the block that only the removed one had is gone");
    let left = from.json(&format!("backup gc --dry-run --volume source {target}"));
    assert_eq!((&left["orphanBlocks"], &left["referencedBlocks"]), (&0.into(), &2.into()));
    from.ok(&format!("backup rm --volume source {target}"));
    assert_eq!((from.ok(&format!("backup ls {target}")).as_str(), blocks(&store)), ("{}\n", 0));
}
