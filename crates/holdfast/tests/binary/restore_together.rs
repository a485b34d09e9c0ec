//! Volumes of three replicas, each a process, that restore together: what they fetch from the store in
//! all is one copy, whoever dies, comes late, or is killed part way.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use crate::nbd::Nbd;
use crate::rig::{Node, Rig};

const MIB: u64 = 1 << 20;

/// A store with a backup of many blocks.
struct Store {
    rig: Rig,
    size: u64,
    target: String,
}

impl Store {
    /// Some data in every MiB, each time other but for every eighth.
    fn new(size: u64) -> Self {
        Self::with(size, Vec::new())
    }

    fn with(size: u64, replica_flags: Vec<String>) -> Self {
        let mut rig = Rig::new("source");
        rig.replica_flags = replica_flags;
        rig.add_replica(size);
        rig.start_volume(size);
        let dir = rig.path("store");
        std::fs::create_dir(&dir).unwrap();
        let store = Self { target: format!("vfs://{}", dir.display()), rig, size };
        let mut nbd = store.nbd();
        for block in 0..size / MIB {
            let content = if block % 8 == 0 { 8 } else { block };
            nbd.write(block * MIB, &noise(content, 16 << 10));
        }
        drop(nbd);
        store.back_up("one");
        store
    }

    fn nbd(&self) -> Nbd {
        Nbd::connect(&self.rig.nbd_socket(), "source")
    }

    fn back_up(&self, name: &str) {
        self.rig.ok(&format!("snapshot create {name}"));
        let line = format!("backup create {name} --dest {}", self.target);
        self.rig.json(&format!("{line} --backup-name backup-{name} --backup-block-size 1"));
        self.rig.wait_until("the end of the backup", |rig| {
            let status = rig.json(&format!("backup status backup-{name}"));
            assert_ne!(status["state"], "error", "{status}");
            status["state"] == "complete"
        });
    }

    fn url(&self, name: &str) -> String {
        format!("{}?backup=backup-{name}&volume=source", self.target)
    }

    /// Sizes of all blocks, by path.
    fn blocks(&self) -> Vec<(PathBuf, u64)> {
        fn walk(dir: &Path, found: &mut Vec<(PathBuf, u64)>) {
            for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() {
                    walk(&path, found);
                } else if path.extension().is_some_and(|it| it == "blk") {
                    found.push((path, entry.metadata().unwrap().len()));
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.rig.path("store"), &mut found);
        found
    }

    fn bytes(&self) -> u64 {
        self.blocks().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Whether a restored replica has what the volume has now.
    fn is_equal(&self, other: &Rig, replica: usize) {
        let dir = other.path(&format!("replica{replica}"));
        let found = std::fs::read(dir.join(snapshot_of(other, replica))).unwrap();
        assert_eq!(u64::try_from(found.len()).unwrap(), self.size);
        let mut source = self.nbd();
        for (at, found) in (0..self.size).step_by(1 << 20).zip(found.chunks(1 << 20)) {
            assert!(source.read(at, 1 << 20) == found, "replica {replica} at {at}");
        }
    }
}

/// The only snapshot.
fn snapshot_of(rig: &Rig, index: usize) -> String {
    let dir = rig.path(&format!("replica{index}"));
    let names = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name());
    let mut names = names.map(|name| name.into_string().unwrap());
    let is_image = |name: &str| Path::new(name).extension().is_some_and(|it| it == "img");
    names.find(|name| name.starts_with("volume-snap-") && is_image(name)).unwrap()
}

/// Bytes that are not packed well.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(len).collect()
}

/// A volume to restore to.
fn empty(name: &str, size: u64, replicas: usize) -> Rig {
    let mut rig = Rig::new(name);
    for _ in 0..replicas {
        rig.add_replica(size);
    }
    let addresses: Vec<String> = rig.replicas.iter().map(Node::address).collect();
    let socket = rig.nbd_socket();
    rig.launch_controller(size, &addresses, &["--nbd-unix", socket.to_str().unwrap()]);
    rig.wait_for_controller();
    rig
}

fn statuses(rig: &Rig) -> Vec<Value> {
    let all = rig.json("backup restore-status");
    rig.replicas
        .iter()
        .map(|node| all[node.address()].clone())
        .filter(|status| !status.is_null())
        .collect()
}

fn wait(rig: &Rig, backup: &str) -> Vec<Value> {
    rig.wait_until("the end of the restore", |rig| {
        statuses(rig).iter().all(|status| {
            assert_ne!(status["state"], "error", "{status}");
            status["state"] == "complete" && status["lastRestored"] == backup
        })
    });
    statuses(rig)
}

fn sum(statuses: &[Value], key: &str) -> u64 {
    statuses.iter().map(|status| status[key].as_u64().unwrap_or(0)).sum()
}

#[test]
fn three_replicas_fetch_one_copy_of_a_backup() {
    let size = 48 * MIB;
    let store = Store::new(size);
    let one_copy = store.bytes();
    let lone = empty("lone", size, 1);
    let began = Instant::now();
    lone.ok(&format!("backup restore {} --concurrent-limit 4", store.url("one")));
    let alone = wait(&lone, "backup-one");
    let lone_time = began.elapsed();
    assert_eq!(sum(&alone, "fetchedBytes"), one_copy);

    let to = empty("restored", size, 3);
    let began = Instant::now();
    assert_eq!(to.ok(&format!("backup restore {} --concurrent-limit 4", store.url("one"))), "");
    let done = wait(&to, "backup-one");
    let time = began.elapsed();
    let (fetched, taken) = (sum(&done, "fetchedBytes"), sum(&done, "takenBytes"));
    println!(
        "one copy in the store: {one_copy} bytes in {} blocks; fetched by three replicas: {fetched} \
         bytes in {time:?}, by one: {one_copy} in {lone_time:?}; passed on: {taken} bytes",
        store.blocks().len()
    );
    assert_eq!(fetched, one_copy);
    for status in &done {
        assert!(status["fetchedBytes"].as_u64().unwrap() < one_copy, "each had its part: {status}");
    }
    (0..3).for_each(|replica| store.is_equal(&to, replica));

    // What changed since is fetched once as well.
    let mut nbd = store.nbd();
    for block in [1, 8, 40, 41] {
        nbd.write(block * MIB, &noise(1000 + block, 64 << 10));
    }
    drop(nbd);
    store.back_up("two");
    let changed = store.bytes() - one_copy;
    to.ok(&format!("backup restore {}", store.url("two")));
    let done = wait(&to, "backup-two");
    println!("changed: {changed} bytes; fetched: {}", sum(&done, "fetchedBytes"));
    assert_eq!(sum(&done, "fetchedBytes"), changed);
    (0..3).for_each(|replica| store.is_equal(&to, replica));
}

#[test]
fn a_replica_that_is_killed_goes_on_where_it_was() {
    let size = 40 * MIB;
    let store = Store::new(size);
    let one_copy = store.bytes();
    let mut to = empty("killed", size, 1);
    // Slow enough to be caught in the middle, whatever the machine.
    let line = format!("backup restore {} --bandwidth-limit 24k", store.url("one"));
    to.ok(&line);
    let kept = |rig: &Rig| {
        let record = std::fs::read(rig.path("replica0/restore.json")).ok()?;
        let record: Value = serde_json::from_slice(&record).ok()?;
        let map = record["unfinished"]["written"].as_str()?.to_owned();
        (!map.trim_matches(['A', '=']).is_empty()).then_some(map)
    };
    to.wait_until("a part that is kept", |rig| kept(rig).is_some());
    let before = sum(&statuses(&to), "fetchedBytes");
    to.replicas[0].process.take().unwrap().kill().unwrap();
    assert!(before > 0 && before < one_copy, "{before} of {one_copy}");

    // The controller lost its only replica; another one takes over.
    drop(to.controller.take());
    to.start_replica(0, 0);
    let address = to.replicas[0].address();
    let socket = to.nbd_socket();
    to.launch_controller(size, &[address], &["--nbd-unix", socket.to_str().unwrap()]);
    to.wait_for_controller();
    to.ok(&format!("backup restore {}", store.url("one")));
    let after = sum(&wait(&to, "backup-one"), "fetchedBytes");
    println!("one copy: {one_copy} bytes; before the kill: {before}, after it: {after}");
    assert!(after < one_copy, "what was kept is not fetched again: {after} of {one_copy}");
    store.is_equal(&to, 0);
}

#[test]
fn an_image_below_does_not_show_through_what_was_restored() {
    let size = 8 * MIB;
    let place = tempfile::tempdir().unwrap();
    let image = place.path().join("base.img");
    File::create(&image).unwrap().write_all(&vec![b'i'; 6 << 20]).unwrap();
    let flags = vec!["--backing-file".to_owned(), image.display().to_string()];
    let store = Store::with(size, flags.clone());
    let mut nbd = store.nbd();
    // Zeros that are written hide what is below, and what is not written shows it.
    nbd.fill(MIB + 65536, 65536, 0);
    drop(nbd);
    store.back_up("two");
    let mut to = Rig::new("above");
    to.replica_flags = flags;
    for _ in 0..2 {
        to.add_replica(size);
    }
    let addresses: Vec<String> = to.replicas.iter().map(Node::address).collect();
    let socket = to.nbd_socket();
    to.launch_controller(size, &addresses, &["--nbd-unix", socket.to_str().unwrap()]);
    to.wait_for_controller();
    for name in ["one", "two"] {
        to.ok(&format!("backup restore {}", store.url(name)));
        wait(&to, &format!("backup-{name}"));
    }
    to.ok("frontend start nbd");
    let (mut source, mut restored) = (store.nbd(), Nbd::connect(&to.nbd_socket(), "above"));
    for at in (0..size).step_by(65536) {
        assert!(source.read(at, 65536) == restored.read(at, 65536), "at {at}");
    }
    assert_eq!(restored.letter(MIB + 65536, 65536), 0);
    assert_eq!(restored.letter(MIB + 2 * 65536, 65536), b'i');
}

#[test]
fn two_replicas_go_on_when_the_third_is_killed() {
    let size = 32 * MIB;
    let store = Store::new(size);
    let mut to = empty("orphaned", size, 3);
    let line = format!("backup restore {} --bandwidth-limit 120k", store.url("one"));
    to.ok(&line);
    to.wait_until("the first blocks", |rig| {
        let all = statuses(rig);
        all.len() == 3 && all.iter().all(|status| status["fetchedBytes"].as_u64() > Some(0))
    });
    to.replicas[2].process.take().unwrap().kill().unwrap();
    to.wait_until("two that are left", |rig| rig.modes() == ["RW", "RW", "ERR"]);
    to.replicas.truncate(2);
    wait(&to, "backup-one");
    (0..2).for_each(|replica| store.is_equal(&to, replica));
}
