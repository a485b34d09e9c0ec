//! The etcd, its guard, the store between them, and the looks at what is in the store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::guard::{Rig, Run, Sidecar, TIMEOUT};
use rand::rngs::StdRng;
use serde_json::Value;
use testkit::process::poll_until;

use crate::Counts;
use crate::plan::Kind;
use crate::source::{Source, number};

const FIRST_CHANGES: u32 = 200;
/// Every so many restored directories an etcd is started on one.
const BOOT_EVERY: u32 = 4;

/// A revision and the hash that the source has there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) revision: i64,
    pub(crate) hash: i64,
}

pub(crate) struct World {
    pub(crate) rig: Rig,
    pub(crate) source: Source,
    pub(crate) sidecar: Option<Sidecar>,
    /// Up to here everything is in the store: the guard said so.
    pub(crate) promised: i64,
    pub(crate) counts: Counts,
    /// How long a command needs when nobody kills it.
    pub(crate) took: BTreeMap<Kind, Duration>,
    pub(crate) next: u32,
}

impl World {
    pub(crate) fn start(random: &mut StdRng) -> Option<Self> {
        let rig = Rig::new("etcd crash")?;
        let source = Source::at(rig.endpoint());
        (0..FIRST_CHANGES).for_each(|_| source.change(random));
        std::fs::create_dir(rig.path().join("work")).unwrap();
        let mut world = Self {
            rig,
            source,
            sidecar: None,
            promised: 0,
            counts: Counts::default(),
            took: BTreeMap::new(),
            next: 0,
        };
        world.promise();
        let dir = world.fresh();
        std::fs::remove_dir_all(dir).unwrap();
        Some(world)
    }

    pub(crate) fn start_guard(&mut self) {
        if self.sidecar.is_none() {
            self.sidecar = Some(self.rig.sidecar(&["--delta-snapshot-period=1s"]));
        }
    }

    /// Has the guard promise that all there is now is in the store.
    #[track_caller]
    pub(crate) fn promise(&mut self) -> Known {
        self.start_guard();
        let sidecar = self.sidecar.as_ref().unwrap();
        let revision = self.source.revision();
        let told = poll_until(TIMEOUT, || {
            let answer = sidecar.try_ask("GET", "/snapshot/delta")?;
            (answer.0 == 200).then_some(())
        });
        assert!(told.is_some(), "no delta was ever taken:\n{}", sidecar.process.stderr());
        self.counts.promises += 1;
        self.promised = self.promised.max(revision);
        Known { revision, hash: self.source.hash(revision) }
    }

    /// A name that nothing has yet, beside others of its kind.
    pub(crate) fn place(&mut self, what: &str) -> PathBuf {
        self.next += 1;
        self.rig.path().join("work").join(format!("{what}-{}", self.next))
    }

    /// A command of the guard with the store below `home`, working at `dir`.
    pub(crate) fn command(&self, verb: &str, home: &Path, dir: &Path) -> Command {
        let mut command = self.rig.command(verb);
        command.env("HOME", home).args(self.rig.store_arguments());
        command.arg(format!("--data-dir={}", dir.display()));
        let temporary = beside(dir, ".tmp");
        command.arg(format!("--restoration-temp-snapshots-dir={}", temporary.display()));
        command
    }

    /// A whole directory from the store, nobody killed.
    #[track_caller]
    pub(crate) fn fresh(&mut self) -> PathBuf {
        let (dir, home) = (self.place("fresh"), self.rig.home());
        let begun = Instant::now();
        self.restore_from(&home, &dir);
        let took = begun.elapsed();
        self.took.insert(Kind::Restore, took);
        dir
    }

    #[track_caller]
    pub(crate) fn restore_from(&self, home: &Path, dir: &Path) {
        let run = run(&mut self.command("restore", home, dir));
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let parts = [beside(dir, ".part"), beside(dir, ".tmp")];
        for part in parts {
            assert!(!part.exists(), "{} is left behind", part.display());
        }
    }

    /// What a whole directory, or an object of the store, holds; not being whole fails the test.
    #[track_caller]
    pub(crate) fn verified(&self, path: &Path) -> Value {
        let mut command = self.rig.command("verify");
        command.arg("--output=json").arg(path);
        let run = run(&mut command);
        assert_eq!(run.code, Some(0), "{}: {}{}", path.display(), run.stdout, run.stderr);
        serde_json::from_str(&run.stdout).unwrap()
    }

    /// It is whole and holds exactly what is known; sometimes an etcd is asked as well.
    #[track_caller]
    pub(crate) fn compare(&mut self, dir: &Path, known: Known) {
        let found = self.verified(dir);
        let found = Known { revision: number(&found["revision"]), hash: number(&found["hashKV"]) };
        assert_eq!(found, known, "{}", dir.display());
        self.counts.compared += 1;
    }

    /// Compares with an etcd now and then; what an etcd ran on is no longer as it was restored.
    #[track_caller]
    pub(crate) fn compare_and_remove(&mut self, dir: &Path, known: Known) {
        self.compare(dir, known);
        if !self.counts.compared.is_multiple_of(BOOT_EVERY) {
            std::fs::remove_dir_all(dir).unwrap();
            return;
        }
        self.boot(dir, |booted| {
            let found = Known { revision: booted.revision(), hash: booted.hash(known.revision) };
            assert_eq!(found, known, "{}", dir.display());
        });
    }

    /// Starts an etcd on a directory, looks at it, and removes both.
    pub(crate) fn boot(&mut self, dir: &Path, look: impl FnOnce(&Source)) {
        let member = self.rig.boot(dir);
        look(&Source::at(&member.seat.client));
        drop(member);
        let name = dir.file_name().unwrap().display();
        std::fs::remove_dir_all(self.rig.path().join(format!("boot-{name}"))).unwrap();
        self.counts.booted += 1;
    }

    /// What a restore of the store would give: everything promised, and no gap.
    #[track_caller]
    pub(crate) fn check_store(&mut self) {
        let (dir, home) = (self.place("dry"), self.rig.home());
        let dry = run(self.command("restore", &home, &dir).arg("--dry-run"));
        assert_eq!(dry.code, Some(0), "{}", dry.stderr);
        let told: Value = serde_json::from_str(&dry.stdout).unwrap();
        assert!(told["missing"].is_null(), "there is a gap: {told}");
        let revision = number(&told["revision"]);
        assert!(revision >= self.promised, "{} was promised, and there is {told}", self.promised);
        let dir = self.fresh();
        let known = Known { revision, hash: self.source.hash(revision) };
        self.compare_and_remove(&dir, known);
    }

    /// Every object is whole; how many there are. Nothing else lies there but what a killed guard
    /// was writing, under a name that no listing shows.
    #[track_caller]
    pub(crate) fn check_objects(&self, home: &Path) -> usize {
        let store = home.join("bkt/etcd-main/v2");
        let names = std::fs::read_dir(&store).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let (hidden, objects): (Vec<String>, Vec<String>) =
            names.partition(|name| name.starts_with('.'));
        for name in &hidden {
            let is_half = name.starts_with(".durable-")
                && Path::new(name).extension().is_some_and(|extension| extension == "tmp");
            assert!(is_half, "{name} in the store");
        }
        for name in &objects {
            assert!(name.starts_with("Full-") || name.starts_with("Incr-"), "{name} in the store");
            self.verified(&store.join(name));
        }
        objects.len()
    }

    /// The last look: everything is there, and nothing else. Says how many objects there are.
    pub(crate) fn finish(mut self) -> (usize, Counts) {
        let known = self.promise();
        assert_eq!(self.sidecar.take().unwrap().stop(), Some(0));
        let dir = self.fresh();
        self.compare(&dir, known);
        self.boot(&dir, |booted| {
            let found = Known { revision: booted.revision(), hash: booted.hash(known.revision) };
            assert_eq!(found, known);
        });
        let objects = self.check_objects(&self.rig.home());
        for folder in ["tmp", "rt", "work"] {
            let left = listed(&self.rig.path().join(folder));
            // What was killed while it was written is swept after ten minutes.
            let is_known = |name: &str| name == "safe_guard" || name.starts_with(".durable-");
            let left: Vec<&String> = left.iter().filter(|name| !is_known(name)).collect();
            assert!(left.is_empty(), "{left:?} left in {folder}");
        }
        (objects, self.counts)
    }
}

/// Names in a directory; none where there is no directory.
pub(crate) fn listed(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A path with something behind its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
