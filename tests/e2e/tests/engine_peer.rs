//! A real v1 engine with our replicas, ours with its replicas, and mixtures of both, if
//! `LONGHORN_V1_PROGRAM` names one (`cargo xtask peers engine` builds it): rebuilds in both directions,
//! mixed sets, live upgrades, backups that the other restores. Everything is compared byte for byte.
//!
//! Volumes are reached through the frontend `socket`, which both have.

use std::path::PathBuf;

use bytes::Bytes;
use e2e::engine::{
    Cli, Engine, Frames, Frontend, MIB, Program, Setup, TIMEOUT, Volume, signal, skip_unless_root,
};
use e2e::skip;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::Value;
use testkit::process::{Scratch, poll_until};
use wire::frame::Outcome;

const SIZE: u64 = 32 * MIB;

/// The peer's program; none, after having said so.
fn peer() -> Option<Program> {
    if skip_unless_root("the frontend socket lies where only root may write") {
        return None;
    }
    let Some(program) = std::env::var_os("LONGHORN_V1_PROGRAM") else {
        skip("LONGHORN_V1_PROGRAM names no engine of the peer; cargo xtask peers engine does");
        return None;
    };
    Some(Program::Peer(PathBuf::from(program)))
}

fn name(program: &Program) -> &'static str {
    match program {
        Program::Ours => "ours",
        Program::Peer(_) => "the peer's",
    }
}

/// A volume of replicas of either kind under an engine of either kind, and what it must hold.
struct Mixed {
    volume: Volume,
    /// Of those that are part of the volume.
    members: Vec<usize>,
    image: Vec<u8>,
    random: StdRng,
}

impl Mixed {
    fn start(engine: &Program, replicas: &[&Program]) -> Self {
        let setup =
            Setup { replicas: 0, size_bytes: SIZE, frontend: Frontend::Socket, ..Setup::default() };
        let volume = Volume::prepare_in(Scratch::new().unwrap(), setup);
        let image = vec![0; usize::try_from(SIZE).unwrap()];
        let mut mixed =
            Self { volume, members: Vec::new(), image, random: StdRng::seed_from_u64(12) };
        for program in replicas {
            let index = mixed.launch(program);
            mixed.members.push(index);
        }
        mixed.start_engine(engine, &[]);
        mixed
    }

    /// A replica that runs, and is not part of the volume.
    fn launch(&mut self, program: &Program) -> usize {
        let index = self.volume.add_process();
        let replica = &mut self.volume.replicas[index];
        replica.setup.program = program.clone();
        // The peer wants it to be there.
        std::fs::create_dir_all(&replica.dir).unwrap();
        replica.start();
        index
    }

    fn start_engine(&mut self, program: &Program, more: &[&str]) {
        self.volume.engine = Some(self.engine(program, more));
    }

    fn engine(&self, program: &Program, more: &[&str]) -> Engine {
        let address = |index: &usize| self.volume.replicas[*index].address();
        let addresses: Vec<String> = self.members.iter().map(address).collect();
        let mut arguments = self.volume.engine_arguments_for(&addresses);
        arguments.extend(more.iter().map(|it| (*it).to_owned()));
        let (scratch, name) = (self.volume.scratch(), &self.volume.name);
        let mut engine = Engine::launch_of(program, scratch, name, &arguments);
        engine.wait_until_serving();
        engine
    }

    fn cli(&self) -> Cli {
        self.volume.cli()
    }

    fn frames(&self) -> Frames {
        let path = PathBuf::from(format!("/var/run/longhorn-{}.sock", self.volume.name));
        let is_there = poll_until(TIMEOUT, || path.exists().then_some(()));
        assert!(is_there.is_some(), "no {}", path.display());
        Frames::unix(&path)
    }

    /// Writes of any length that clients use, anywhere.
    #[track_caller]
    fn scribble(&mut self, frames: &mut Frames, writes: usize) {
        for _ in 0..writes {
            let lengths = [512, 1536, 4096, 4608, 8192, 65536];
            let mut data = vec![0; lengths[self.random.random_range(0..lengths.len())]];
            self.random.fill_bytes(&mut data);
            let offset = self.random.random_range(0..=(self.image.len() - data.len()) / 512) * 512;
            self.image[offset..offset + data.len()].copy_from_slice(&data);
            let at = i64::try_from(offset).unwrap();
            let len = u32::try_from(data.len()).unwrap();
            let outcome = frames.write(at, Bytes::from(data)).unwrap();
            // Of a part of a sector the peer counts the sector.
            assert!(
                matches!(outcome, Outcome::Count(count) if count == len || count == 4096),
                "{len}: {outcome:?}"
            );
        }
    }

    /// The volume and each of its copies hold what was written, in the head and in every snapshot.
    #[track_caller]
    fn check(&self, frames: &mut Frames) {
        assert!(frames.read_all(SIZE) == self.image, "the engine reads something else");
        let copies: Vec<_> =
            self.members.iter().map(|it| self.volume.replicas[*it].layers()).collect();
        let first = copies[0].sums();
        for (copy, member) in copies.iter().zip(&self.members) {
            let program = name(&self.volume.replicas[*member].setup.program);
            assert_eq!(copy.sums(), first, "{program}, {:?}", copy.chain());
        }
        assert!(copies[0].contents() == self.image, "the copies hold something else");
        let modes = self.cli().modes();
        assert_eq!(modes.len(), self.members.len(), "{modes:?}");
        assert!(modes.iter().all(|(_, mode)| mode == "RW"), "{modes:?}");
    }

    /// Rebuilds a new copy.
    fn add(&mut self, program: &Program) {
        let index = self.launch(program);
        let replica = &self.volume.replicas[index];
        let (address, instance) = (replica.address(), replica.setup.instance.clone());
        let size = SIZE.to_string();
        let sizes = ["--size", &size, "--current-size", &size];
        let named = ["--replica-instance-name", &instance];
        self.cli().run(&[&["add-replica", &address][..], &sizes, &named].concat());
        self.members.push(index);
    }

    /// Takes all copies of a kind out of the volume.
    fn remove(&mut self, program: &Program) {
        let is_gone = |it: &usize| self.volume.replicas[*it].setup.program == *program;
        let gone: Vec<usize> = self.members.iter().copied().filter(is_gone).collect();
        for index in gone {
            self.cli().run(&["rm-replica", &self.volume.replicas[index].address()]);
            self.volume.replicas[index].kill();
            self.members.retain(|it| *it != index);
        }
    }
}

/// Every pair of an engine and another, ours or not.
fn both(peer: &Program) -> [Program; 2] {
    [Program::Ours, peer.clone()]
}

#[test]
fn copies_are_rebuilt_from_the_other_kind_under_either_engine() {
    let Some(peer) = peer() else { return };
    for engine in both(&peer) {
        for (from, to) in [(&Program::Ours, &peer), (&peer, &Program::Ours)] {
            println!("engine: {}, from {}, to {}", name(&engine), name(from), name(to));
            let mut mixed = Mixed::start(&engine, &[from]);
            let mut frames = mixed.frames();
            mixed.scribble(&mut frames, 100);
            mixed.cli().run(&["snapshot", "create", "first"]);
            mixed.scribble(&mut frames, 100);
            mixed.add(to);
            mixed.scribble(&mut frames, 50);
            mixed.check(&mut frames);
            // The new one carries all of it alone, and gives it back.
            mixed.remove(from);
            mixed.scribble(&mut frames, 50);
            mixed.check(&mut frames);
            mixed.add(from);
            mixed.scribble(&mut frames, 50);
            mixed.check(&mut frames);
        }
    }
}

#[test]
fn mixed_copies_stay_equal_under_either_engine() {
    let Some(peer) = peer() else { return };
    for engine in both(&peer) {
        println!("engine: {}", name(&engine));
        let mut mixed = Mixed::start(&engine, &[&Program::Ours, &peer, &Program::Ours]);
        let mut frames = mixed.frames();
        for snapshot in ["one", "two", "three"] {
            mixed.scribble(&mut frames, 60);
            mixed.cli().run(&["snapshot", "create", snapshot]);
        }
        mixed.scribble(&mut frames, 60);
        mixed.check(&mut frames);
        mixed.cli().run(&["snapshot", "rm", "two"]);
        mixed.cli().run(&["snapshot", "purge"]);
        let purged = poll_until(TIMEOUT, || {
            let statuses = mixed.cli().json(&["snapshot", "purge-status"]);
            let all = statuses.as_object()?;
            let is_done = |it: &Value| it["isPurging"] == false && it["state"] == "complete";
            all.values().all(is_done).then_some(())
        });
        assert!(purged.is_some(), "the purge does not end");
        mixed.scribble(&mut frames, 60);
        mixed.check(&mut frames);
        assert!(!mixed.cli().snapshots().contains(&"two".to_owned()));
        // A whole restart: closed, and opened by an engine of the other kind.
        drop(frames);
        mixed.volume.stop_engine();
        for index in mixed.members.clone() {
            mixed.volume.replicas[index].restart();
        }
        let other = if engine == peer { Program::Ours } else { peer.clone() };
        mixed.start_engine(&other, &[]);
        let mut frames = mixed.frames();
        mixed.check(&mut frames);
        mixed.scribble(&mut frames, 60);
        mixed.check(&mut frames);
    }
}

#[test]
fn volumes_are_upgraded_from_the_peer_and_back_while_they_serve() {
    let Some(peer) = peer() else { return };
    for (old, new) in [(&peer, &Program::Ours), (&Program::Ours, &peer)] {
        println!("from {} to {}", name(old), name(new));
        let mut mixed = Mixed::start(old, &[old, old]);
        let mut frames = mixed.frames();
        mixed.scribble(&mut frames, 100);
        mixed.cli().run(&["snapshot", "create", "before"]);
        mixed.scribble(&mut frames, 100);
        drop(frames);
        // New processes on the same directories, and an engine over them.
        let before = std::mem::take(&mut mixed.members);
        for index in &before {
            let next = mixed.volume.add_process();
            let dir = mixed.volume.replicas[*index].dir.clone();
            let replica = &mut mixed.volume.replicas[next];
            (replica.dir, replica.setup.program) = (dir, new.clone());
            replica.start();
            mixed.members.push(next);
        }
        // An engine of the peer that takes over has no such frontend: it takes the copies over, and a
        // restart brings the frontend.
        if *new == peer {
            mixed.volume.setup.frontend = Frontend::None;
        }
        let engine = mixed.engine(new, &["--upgrade"]);
        let mut previous = mixed.volume.engine.replace(engine).unwrap();
        if *new != peer {
            // While the one before still runs.
            let mut frames = mixed.frames();
            mixed.check(&mut frames);
            mixed.scribble(&mut frames, 100);
        }
        signal(&previous.process, Signal::KILL);
        previous.process.wait_for_exit(TIMEOUT).unwrap();
        for index in before {
            mixed.volume.replicas[index].kill();
        }
        if *new == peer {
            let modes = mixed.cli().modes();
            assert!(modes.iter().all(|(_, mode)| mode == "RW"), "{modes:?}");
            // It would end itself at a snapshot, without a frontend.
            assert!(mixed.cli().snapshots().contains(&"before".to_owned()));
            mixed.volume.stop_engine();
            for index in mixed.members.clone() {
                mixed.volume.replicas[index].restart();
            }
            mixed.volume.setup.frontend = Frontend::Socket;
            mixed.start_engine(new, &[]);
        }
        let mut frames = mixed.frames();
        mixed.check(&mut frames);
        mixed.scribble(&mut frames, 100);
        mixed.check(&mut frames);
        mixed.cli().run(&["snapshot", "create", "after"]);
        mixed.scribble(&mut frames, 50);
        mixed.check(&mut frames);
    }
}

/// Waits for the end of a backup; fails the test if it failed.
#[track_caller]
fn await_backup(cli: &Cli, begun: &Value) {
    let id = begun["backupID"].as_str().unwrap();
    let replica = begun["replicaAddress"].as_str().unwrap_or_default();
    let mut arguments = vec!["backup", "status", id];
    if !replica.is_empty() {
        arguments.extend(["--replica", replica]);
    }
    let ended = poll_until(TIMEOUT, || {
        let status = cli.json(&arguments);
        match status["state"].as_str().unwrap_or_default() {
            "complete" => Some(()),
            "error" => panic!("{status}"),
            _ => None,
        }
    });
    assert!(ended.is_some(), "{id} does not end");
}

#[test]
fn what_one_backs_up_the_other_restores() {
    let Some(peer) = peer() else { return };
    for (from, to) in [(&peer, &Program::Ours), (&Program::Ours, &peer)] {
        println!("from {} to {}", name(from), name(to));
        let store = Scratch::new().unwrap();
        let url = format!("vfs://{}", store.path().display());
        let mut source = Mixed::start(from, &[from]);
        let mut frames = source.frames();
        let mut backups = Vec::new();
        for snapshot in ["first", "second"] {
            source.scribble(&mut frames, 100);
            source.cli().run(&["snapshot", "create", snapshot]);
            let begun = source.cli().json(&[
                "backup",
                "create",
                snapshot,
                "--dest",
                &url,
                "--backup-name",
                &format!("backup-{snapshot}"),
            ]);
            await_backup(&source.cli(), &begun);
            backups.push((format!("backup-{snapshot}"), source.image.clone()));
        }
        for (backup, image) in backups {
            let mut target = restored(to, &url, &source.volume.name, &backup);
            target.image = image;
            // A frontend comes only now.
            target.cli().run(&["frontend", "start", "socket"]);
            let mut frames = target.frames();
            target.check(&mut frames);
        }
    }
}

/// A volume without a frontend that a backup was restored to.
fn restored(program: &Program, url: &str, volume: &str, backup: &str) -> Mixed {
    let setup =
        Setup { replicas: 0, size_bytes: SIZE, frontend: Frontend::None, ..Setup::default() };
    let image = vec![0; usize::try_from(SIZE).unwrap()];
    let volume_of = Volume::prepare_in(Scratch::new().unwrap(), setup);
    let random = StdRng::seed_from_u64(13);
    let mut target = Mixed { volume: volume_of, members: Vec::new(), image, random };
    for _ in 0..2 {
        let index = target.launch(program);
        target.members.push(index);
    }
    target.start_engine(program, &[]);
    let from = format!("{url}?backup={backup}&volume={volume}");
    target.cli().run(&["backup", "restore", &from]);
    let ended = poll_until(TIMEOUT, || {
        let statuses = target.cli().json(&["backup", "restore-status"]);
        let all = statuses.as_object()?;
        let failed = all.values().find(|it| it["error"].as_str().is_some_and(|it| !it.is_empty()));
        assert!(failed.is_none(), "{statuses}");
        let is_done = |it: &Value| it["isRestoring"] == false && it["state"] == "complete";
        all.values().all(is_done).then_some(())
    });
    assert!(ended.is_some(), "the restore of {backup} does not end");
    target
}
