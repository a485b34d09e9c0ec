//! One store, and two engines: ours, and a v1 one that `LONGHORN_V1_PROGRAM` names. They write, read and
//! delete backups of the same volume beside each other; and one of the v1 engine's is stopped until its
//! lock has ended, while ours deletes.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::backup::{BLOCK, Source, Target, backup_key};
use e2e::engine::{Ports, TIMEOUT, skip_unless_root};
use e2e::skip;
use rand::rngs::StdRng;
use rand::{RngCore as _, SeedableRng as _};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::process::{Process, Scratch, poll_until};

use crate::in_directory;

const ROUNDS: usize = 4;
/// So many that its backup is under way when it is stopped.
const LONG_BLOCKS: u64 = 192;
/// A lock ends after 150 s; the rest is for a slow machine.
const PASSED_WITHIN: Duration = Duration::from_mins(6);

/// The program of the peer; none, after having said so.
fn program() -> Option<PathBuf> {
    let Some(program) = std::env::var_os("LONGHORN_V1_PROGRAM") else {
        skip("LONGHORN_V1_PROGRAM names no v1 engine");
        return None;
    };
    if skip_unless_root("the frontend of a v1 engine lies where only root may write") {
        return None;
    }
    Some(PathBuf::from(program))
}

/// A volume under a v1 engine, with the contents that it began with.
struct Peer {
    program: PathBuf,
    volume: String,
    image: Vec<u8>,
    replica: Process,
    _engine: Process,
    ports: (Ports, Ports),
    _scratch: Scratch,
}

impl Peer {
    fn start(program: &Path, volume: &str, image: Vec<u8>) -> Self {
        let scratch = Scratch::new().unwrap();
        let ports = (Ports::claim().unwrap(), Ports::claim().unwrap());
        let dir = scratch.path().join("replica");
        std::fs::create_dir(&dir).unwrap();
        let at = |port: &Ports| format!("127.0.0.1:{}", port.base());
        let size = image.len().to_string();
        let launch = |name: &str| {
            let mut command = Command::new(program);
            command.args(["--volume-name", volume, "replica"]).arg(&dir);
            command.args(["--listen", &at(&ports.0), "--size", &size]);
            let mut replica = Process::start(command, scratch.path(), name).unwrap();
            replica.wait_for_port(at(&ports.0).parse().unwrap(), TIMEOUT).unwrap();
            replica
        };
        // It makes its files, which are then filled: writes through a frontend would say no more.
        let mut first = launch("first");
        let head = dir.join("volume-head-000.img");
        poll_until(TIMEOUT, || head.exists().then_some(())).expect("it makes its files");
        first.terminate().unwrap();
        first.wait_for_exit(TIMEOUT).unwrap();
        ports.0.wait_until_free(TIMEOUT).unwrap();
        let file = std::fs::File::options().write(true).open(&head).unwrap();
        for (index, page) in image.chunks(4096).enumerate() {
            if page.iter().any(|byte| *byte != 0) {
                file.write_all_at(page, index as u64 * 4096).unwrap();
            }
        }
        file.sync_all().unwrap();
        let replica = launch("replica");
        let mut command = Command::new(program);
        command.args(["--volume-name", volume, "controller", volume, "--frontend", "socket"]);
        command.args(["--listen", &at(&ports.1), "--size", &size, "--current-size", &size]);
        command.args(["--replica", &format!("tcp://{}", at(&ports.0))]);
        let engine = Process::start(command, scratch.path(), "engine").unwrap();
        let (program, volume) = (program.to_owned(), volume.to_owned());
        let peer =
            Self { program, volume, image, replica, _engine: engine, ports, _scratch: scratch };
        let made = poll_until(TIMEOUT, || peer.call(&["snapshot", "create", "one"]).ok());
        made.expect("it makes a snapshot");
        peer
    }

    fn call(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.args(["--url", &format!("127.0.0.1:{}", self.ports.1.base())]);
        let ran = command.args(["--volume-name", &self.volume]).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if ran.status.success() { Ok(text(&ran.stdout)) } else { Err(text(&ran.stderr)) }
    }

    fn begin(&self, target: &Target, backup: &str) -> Result<String, String> {
        self.call(&["backup", "create", "one", "--dest", &target.url(), "--backup-name", backup])
    }

    /// Until it is complete, or has failed: a v1 engine does not wait for a lock.
    fn wait(&self, backup: &str) -> Result<(), String> {
        let ended = poll_until(PASSED_WITHIN, || {
            let said = self.call(&["backup", "status", backup]).ok()?;
            let status: Value = serde_json::from_str(&said).ok()?;
            match status["state"].as_str()? {
                "complete" => Some(Ok(())),
                "error" => Some(Err(status.to_string())),
                _ => None,
            }
        });
        ended.unwrap_or_else(|| panic!("{backup} does not end"))
    }

    fn back_up(&self, target: &Target, backup: &str) -> Result<(), String> {
        self.begin(target, backup).and_then(|_| self.wait(backup))
    }

    fn remove(&self, target: &Target, backup: &str) -> Result<String, String> {
        self.call(&["backup", "rm", &target.backup_url(&self.volume, backup)])
    }

    /// The replica, and what it has started: one of these makes the backup.
    fn signal(&self, signal: Signal) {
        let ids = family(self.replica.id());
        assert!(ids.len() > 1, "the agent of a v1 replica is a process of its own");
        for id in ids {
            let id = i32::try_from(id).ok().and_then(Pid::from_raw).unwrap();
            kill_process(id, signal).unwrap();
        }
    }
}

/// A process, and all that it and they have started, whichever of their threads did.
fn family(id: u32) -> Vec<u32> {
    let mut ids = vec![id];
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    for thread in threads {
        let below = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        ids.extend(below.split_whitespace().filter_map(|id| id.parse().ok()).flat_map(family));
    }
    ids
}

/// Random blocks, the first of which are the same for every seed.
fn image(blocks: u64, common: u64, seed: u64) -> Vec<u8> {
    let mut image = vec![0; usize::try_from(blocks * BLOCK).unwrap()];
    for (index, block) in image.chunks_mut(usize::try_from(BLOCK).unwrap()).enumerate() {
        let is_common = (index as u64) < common;
        let mut random =
            StdRng::seed_from_u64(index as u64 + if is_common { 0 } else { 1000 * seed });
        random.fill_bytes(block);
    }
    image
}

#[test]
fn a_v1_engine_and_ours_share_a_volume_of_the_store() {
    let Some(program) = program() else { return };
    in_directory(|target| shared(target, &program));
}

fn shared(target: &Target, program: &Path) {
    let volume = format!("mixed-{:08x}", rand::random::<u32>());
    let theirs = Peer::start(program, &volume, image(8, 5, 1));
    let mut ours = Source::start_as(&volume, 1, 16);
    let own = image(8, 5, 2);
    ours.write(0, &own);
    ours.snapshot("ours");
    let (mut made, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let (theirs_is, ours_is) = (format!("backup-v1-{round}"), format!("backup-own-{round}"));
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| theirs.back_up(target, &theirs_is));
            let other = ours.try_back_up(target, "ours", &ours_is, &[]).map(drop);
            (one.join().unwrap(), other)
        });
        made += usize::from(one.is_ok()) + usize::from(other.is_ok());
        if round == 0 {
            continue;
        }
        // Each removes what the other made before, while the other makes one more.
        let (older_theirs, older_ours) =
            (format!("backup-v1-{}", round - 1), format!("backup-own-{}", round - 1));
        let more = format!("backup-more-{round}");
        let url = target.backup_url(&volume, &older_theirs);
        let removed = std::thread::scope(|scope| {
            let making = scope.spawn(|| theirs.back_up(target, &more));
            let by_us = target.cli().call(&["backup", "rm", &url]).code == Some(0);
            made += usize::from(making.join().unwrap().is_ok());
            let making =
                scope.spawn(|| ours.try_back_up(target, "ours", &format!("{more}-own"), &[]));
            let by_them = theirs.remove(target, &older_ours).is_ok();
            made += usize::from(making.join().unwrap().is_ok());
            [by_us, by_them]
        });
        refused += removed.iter().filter(|it| !**it).count();
        healthy(target, &volume);
    }
    for backup in target.complete(&volume) {
        let is_own = backup.contains("own");
        let expected = if is_own { &own } else { &theirs.image };
        let found = target.image(&volume, &backup, expected.len() as u64).unwrap();
        assert!(found == *expected, "{backup} holds something else");
    }
    println!(
        "{made} backups by both, {refused} of {} deletions refused by locks",
        2 * (ROUNDS - 1)
    );
    assert!(made > ROUNDS, "too little happened: {made}");
}

#[track_caller]
fn healthy(target: &Target, volume: &str) {
    let (ran, report) = target.verify(volume);
    assert_eq!(ran.code, Some(0), "{report}");
}

/// The schedule that the rule for records of others is about, with the real engine.
#[test]
fn a_stopped_v1_engine_publishes_what_is_still_there() {
    let Some(program) = program() else { return };
    in_directory(|target| stopped(target, &program));
}

fn stopped(target: &Target, program: &Path) {
    let volume = format!("mixed-{:08x}", rand::random::<u32>());
    let first = Peer::start(program, &volume, image(4, 2, 1));
    first.back_up(target, "backup-first").unwrap();
    drop(first);
    let peer = Peer::start(program, &volume, image(LONG_BLOCKS, 2, 2));
    peer.begin(target, "backup-long").unwrap();
    let before = target.blocks(&volume).len();
    let record = backup_key(&volume, "backup-long");
    let under_way = poll_until(TIMEOUT, || {
        (target.get(&record).is_some() && target.blocks(&volume).len() > before + 1).then_some(())
    });
    under_way.expect("it begins");
    peer.signal(Signal::STOP);
    let is_begun = || target.record(&volume, "backup-long")["CreatedTime"] == "";
    assert!(is_begun(), "it was stopped in time");

    // Refused until its lock has ended; then the record goes, and no block of the one that is stopped.
    let url = target.backup_url(&volume, "backup-first");
    let removed = poll_until(PASSED_WITHIN, || {
        let ran = target.cli().call(&["backup", "rm", &url]);
        (ran.code == Some(0)).then_some(ran)
    });
    removed.expect("a lock that nobody renews is passed");
    assert!(target.get(&backup_key(&volume, "backup-first")).is_none());
    peer.signal(Signal::CONT);
    peer.wait("backup-long").unwrap();
    healthy(target, &volume);
    let found = target.image(&volume, "backup-long", peer.image.len() as u64).unwrap();
    assert!(found == peer.image);
    println!("a v1 engine was stopped, passed, and published: all its blocks are there");
}
