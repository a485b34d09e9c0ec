//! One store, two that write to it, one that is restored from it; and what is known of its backups.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use e2e::backup::{Source, Target, backup_key, block_key};
use e2e::engine::{Frontend, MIB, Ran, Setup, TIMEOUT, Volume, sum};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use testkit::process::{Process, Scratch, poll_until};

use crate::Counts;
use crate::plan::{Kind, Moment, Plan};
use crate::restores::Standby;

const MEBIBYTES: u64 = 16;
/// More are not kept.
const BACKUPS_MAX: usize = 5;
const ORPHANS: u32 = 300;
/// A sign that has not come by then will not.
const SIGN_WITHIN: Duration = Duration::from_mins(1);
/// Between two looks for a sign.
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub(crate) struct Lane {
    pub(crate) target: Target,
    pub(crate) volume: String,
    /// Two volumes of one name, as when one was restored elsewhere and both live on.
    writers: [Source; 2],
    standby: Standby,
    packing: &'static str,
    /// SHA-256 of what a backup of that name must hold if it is complete.
    known: BTreeMap<String, String>,
    /// Backups that were said to be complete, the oldest first.
    complete: Vec<String>,
    next: u32,
    scratch: Scratch,
}

/// How a command that may be killed is watched.
struct Watched<'p> {
    plan: &'p Plan,
    /// Of work beyond the lock.
    sign: Box<dyn Fn() -> bool + 'p>,
}

impl Watched<'_> {
    /// Waits for the moment of the kill. False if it will not come: what was to be killed is over.
    fn wait(&self, is_over: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        let pause = match self.plan.moment {
            Moment::After(pause) => pause,
            Moment::AfterSign(pause) => {
                while !(self.sign)() {
                    if is_over() || begun.elapsed() > SIGN_WITHIN {
                        return false;
                    }
                    std::thread::park_timeout(LOOK_EVERY);
                }
                pause
            }
        };
        // Its length is part of the experiment.
        pause_for(pause);
        true
    }
}

impl Lane {
    pub(crate) fn start(number: u32) -> Self {
        let scratch = Scratch::new().unwrap();
        let volume = format!("crash-{}-{number}-{:x}", std::process::id(), rand::random::<u32>());
        let writer = |socket: &str| {
            let mut setup = Setup { replicas: 1, size_bytes: MEBIBYTES * MIB, ..Setup::default() };
            setup.frontend = Frontend::Nbd;
            // The usual socket has the name of the volume, which these share.
            let socket = scratch.path().join(socket).display().to_string();
            setup.engine = vec!["--nbd-unix".to_owned(), socket];
            let mut own = Volume::prepare_as(Scratch::new().unwrap(), volume.clone(), setup);
            own.restart();
            Source::over(own)
        };
        let writers = [writer("one.sock"), writer("two.sock")];
        Self {
            target: Target::directory(&scratch.path().join("store")),
            writers,
            standby: Standby::new(MEBIBYTES * MIB),
            packing: if number.is_multiple_of(2) { "lz4" } else { "none" },
            known: BTreeMap::new(),
            complete: Vec::new(),
            next: 0,
            volume,
            scratch,
        }
    }

    pub(crate) fn round(&mut self, plan: &Plan, counts: &Mutex<Counts>) {
        let mut random = StdRng::seed_from_u64(plan.seed);
        // There is always something to lose.
        while self.complete.len() < 2 {
            let (snapshot, backup) = self.snapshot(0, plan, &mut random);
            self.back_up(0, &snapshot, &backup);
        }
        let kind = if self.complete.len() > BACKUPS_MAX { Kind::Remove } else { plan.kind };
        let begun = Instant::now();
        let in_time = match kind {
            Kind::Create => self.create(plan, &mut random, counts),
            Kind::TwoWriters => self.two_writers(plan, &mut random, counts),
            Kind::Remove => self.remove(plan, counts),
            Kind::Collect => self.collect(plan, &mut random, counts),
            Kind::WriterAndDeleter => self.writer_and_deleter(plan, &mut random, counts),
            Kind::Restore => self.restore(plan, &mut random, counts),
        };
        let mut counts = counts.lock().unwrap();
        let (all, early) = counts.kills.entry(kind).or_default();
        (*all, *early) = (*all + 1, *early + u32::from(in_time));
        if std::env::var_os("BACKUP_CRASH_VERBOSE").is_some() {
            println!("{}: {kind:?} took {:.1?}, {plan:?}", self.volume, begun.elapsed());
        }
    }

    /// New data, a snapshot of it, and the name of its backup.
    fn snapshot(&mut self, writer: usize, plan: &Plan, random: &mut StdRng) -> (String, String) {
        self.next += 1;
        let (snapshot, backup) = (format!("snap-{}", self.next), format!("backup-{}", self.next));
        let source = &mut self.writers[writer];
        source.scribble(random, plan.writes);
        source.snapshot(&snapshot);
        source.snapshots.clear();
        self.known.insert(backup.clone(), sum(&source.image));
        (snapshot, backup)
    }

    /// From its begin to its end; also one that was begun before.
    fn back_up(&mut self, writer: usize, snapshot: &str, backup: &str) {
        let more = ["--compression-method", self.packing, "--concurrent-limit", "2"];
        self.writers[writer].back_up(&self.target, snapshot, backup, &more);
        self.complete.push(backup.to_owned());
    }

    fn is_complete(&self, backup: &str) -> bool {
        self.target.complete(&self.volume).iter().any(|name| name == backup)
    }

    fn path(&self, key: &str) -> PathBuf {
        let Target::Directory(root) = &self.target else { panic!("it is a directory") };
        root.join(key)
    }

    /// A command in the background.
    fn begin_create<'s>(
        &'s self,
        scope: &'s std::thread::Scope<'s, '_>,
        writer: usize,
        names: &'s (String, String),
    ) -> ScopedJoinHandle<'s, Result<(), String>> {
        let more = ["--compression-method", self.packing, "--concurrent-limit", "2"];
        let source = &self.writers[writer];
        let (snapshot, backup) = names;
        scope.spawn(move || {
            source.begin(&self.target, snapshot, backup, &more)?;
            // Its end is waited for where it is not killed.
            Ok(())
        })
    }

    /// The first sign of a backup is its record.
    fn watch_create<'p>(&self, plan: &'p Plan, backup: &str) -> Watched<'p> {
        let record = self.path(&backup_key(&self.volume, backup));
        Watched { plan, sign: Box::new(move || record.exists()) }
    }

    fn kill_writer(&mut self, writer: usize) {
        self.writers[writer].volume.replicas[0].kill();
    }

    fn create(&mut self, plan: &Plan, random: &mut StdRng, counts: &Mutex<Counts>) -> bool {
        let names = self.snapshot(0, plan, random);
        let watched = self.watch_create(plan, &names.1);
        let process = self.writers[0].volume.replicas[0].process.as_ref().unwrap().id();
        let own = &*self;
        std::thread::scope(|scope| {
            let creating = own.begin_create(scope, 0, &names);
            watched.wait(|| creating.is_finished() && own.is_complete(&names.1));
            kill(process);
            // Refused or not: the record tells.
            let _ = creating.join().unwrap();
        });
        self.kill_writer(0);
        let in_time = !self.is_complete(&names.1);
        self.recover(counts);
        self.finish_backup(0, &names, counts);
        in_time
    }

    /// After a kill: what was killed runs again, locks of the dead have ended, nothing is lost.
    fn recover(&mut self, counts: &Mutex<Counts>) {
        for writer in &mut self.writers {
            if writer.volume.replicas[0].process.is_none() {
                writer.volume.restart();
            }
        }
        self.target.age();
        self.check(counts);
    }

    /// Does again what was cut short; what lies in the store is not uploaded again.
    fn finish_backup(&mut self, writer: usize, names: &(String, String), counts: &Mutex<Counts>) {
        let was_complete = self.is_complete(&names.1);
        let before = self.block_files();
        self.back_up(writer, &names.0, &names.1);
        let after = self.block_files();
        for (block, file) in &before {
            assert_eq!(after.get(block), Some(file), "{block} was uploaded again for {}", names.1);
        }
        counts.lock().unwrap().resumed += u64::from(!was_complete);
        self.check(counts);
    }

    /// Identities of the files of blocks: one that is written anew has another.
    fn block_files(&self) -> BTreeMap<String, (u64, i64, i64)> {
        let blocks = self.target.blocks(&self.volume).into_iter();
        let found = blocks.map(|key| {
            let file = std::fs::metadata(self.path(&key)).unwrap();
            (key, (file.ino(), file.mtime(), file.mtime_nsec()))
        });
        found.collect()
    }

    fn two_writers(&mut self, plan: &Plan, random: &mut StdRng, counts: &Mutex<Counts>) -> bool {
        let names = [self.snapshot(0, plan, random), self.snapshot(1, plan, random)];
        let victim = usize::from(plan.second);
        let watched = self.watch_create(plan, &names[victim].1);
        let process = self.writers[victim].volume.replicas[0].process.as_ref().unwrap().id();
        let own = &*self;
        std::thread::scope(|scope| {
            let first = own.begin_create(scope, 0, &names[0]);
            // Not in step with the other.
            pause_for(plan.stagger / 4);
            let second = own.begin_create(scope, 1, &names[1]);
            let killed = if plan.second { &second } else { &first };
            watched.wait(|| killed.is_finished() && own.is_complete(&names[victim].1));
            kill(process);
            let (first, second) = (first.join().unwrap(), second.join().unwrap());
            let survived = if plan.second { first } else { second };
            survived.unwrap_or_else(|error| panic!("the other writer was refused: {error}"));
            own.writers[1 - victim].wait(&names[1 - victim].1).unwrap();
        });
        self.complete.push(names[1 - victim].1.clone());
        self.kill_writer(victim);
        let in_time = !self.is_complete(&names[victim].1);
        self.recover(counts);
        self.finish_backup(victim, &names[victim], counts);
        in_time
    }

    /// Begins a command of the store that is to be killed.
    fn launch(&mut self, arguments: &[&str]) -> Process {
        self.next += 1;
        let command = self.target.cli().command(arguments);
        Process::start(command, self.scratch.path(), &format!("command-{}", self.next)).unwrap()
    }

    /// Kills it when its moment has come; whether it had not ended before.
    fn kill_watched(watched: &Watched<'_>, process: Process) -> (bool, Ran) {
        let process = Mutex::new(process);
        watched.wait(|| process.lock().unwrap().wait_for_exit(Duration::ZERO).is_ok());
        let mut process = process.into_inner().unwrap();
        let ended = process.wait_for_exit(Duration::ZERO).is_ok();
        let status = process.kill().unwrap();
        let (stdout, stderr) = (process.stdout(), process.stderr());
        (!ended, Ran { code: status.code(), stdout, stderr })
    }

    fn oldest(&self) -> (String, String) {
        let backup = self.complete[0].clone();
        let url = self.target.backup_url(&self.volume, &backup);
        (backup, url)
    }

    fn remove(&mut self, plan: &Plan, counts: &Mutex<Counts>) -> bool {
        let (backup, url) = self.oldest();
        let record = self.path(&backup_key(&self.volume, &backup));
        let watched = Watched { plan, sign: Box::new(move || !record.exists()) };
        // From now on it need not be there.
        self.complete.remove(0);
        let process = self.launch(&["backup", "rm", &url]);
        let (in_time, _) = Self::kill_watched(&watched, process);
        self.recover(counts);
        self.target.cli().run(&["backup", "rm", &url]);
        assert!(!self.is_complete(&backup), "{backup} was removed");
        self.target.assert_sound(&self.volume);
        self.check(counts);
        in_time
    }

    fn collect(&mut self, plan: &Plan, random: &mut StdRng, counts: &Mutex<Counts>) -> bool {
        let name = |_| {
            let (high, low): (u128, u128) = (random.random(), random.random());
            (block_key(&self.volume, &format!("{high:032x}{low:032x}")), b"nobody's".to_vec())
        };
        let orphans: Vec<_> = (0..ORPHANS).map(name).collect();
        self.target.put_all(&orphans);
        let first = orphans.iter().map(|(key, _)| key).min().unwrap();
        let first = self.path(first);
        let watched = Watched { plan, sign: Box::new(move || !first.exists()) };
        let url = self.target.url();
        let volume = self.volume.clone();
        let arguments = ["backup", "gc", "--volume", &volume, &url];
        let process = self.launch(&arguments);
        let (in_time, _) = Self::kill_watched(&watched, process);
        self.recover(counts);
        self.target.cli().run(&arguments);
        self.target.assert_sound(&self.volume);
        self.check(counts);
        in_time
    }

    /// They exclude each other: one of them waits or is refused, whoever is killed.
    fn writer_and_deleter(
        &mut self,
        plan: &Plan,
        random: &mut StdRng,
        counts: &Mutex<Counts>,
    ) -> bool {
        let names = self.snapshot(0, plan, random);
        let (removed, url) = self.oldest();
        self.complete.remove(0);
        let record = self.path(&backup_key(&self.volume, &removed));
        let replica = self.writers[0].volume.replicas[0].process.as_ref().unwrap().id();
        let remove = self.target.cli().command(&["backup", "rm", &url]);
        let own = &*self;
        let (created, in_time) = std::thread::scope(|scope| {
            let creating = own.begin_create(scope, 0, &names);
            // Close to each other, in any order of their locks.
            pause_for(plan.stagger / 2);
            let process = Process::start(remove, own.scratch.path(), &names.1).unwrap();
            let in_time = if plan.second {
                let watched = Watched { plan, sign: Box::new(move || !record.exists()) };
                Self::kill_watched(&watched, process).0
            } else {
                let watched = own.watch_create(plan, &names.1);
                let is_over = || creating.is_finished() && own.is_complete(&names.1);
                let refused = || creating.is_finished();
                watched.wait(|| is_over() || refused());
                kill(replica);
                let mut process = process;
                let removed = process.wait_for_exit(TIMEOUT).unwrap();
                let text = process.stderr();
                let is_refused = text.contains("failed to acquire lock");
                assert!(removed.success() || is_refused, "the removal failed: {text}");
                counts.lock().unwrap().refused += u64::from(is_refused);
                !own.is_complete(&names.1)
            };
            let created = creating.join().unwrap();
            let ended = created.clone().and_then(|()| own.writers[0].wait(&names.1).map(drop));
            (if plan.second { ended } else { created }, in_time)
        });
        if let Err(error) = &created {
            // A deletion that was killed keeps its lock until that ends.
            let is_rejection = error.contains("failed to acquire lock");
            assert!(is_rejection || !plan.second, "the backup failed: {error}");
            counts.lock().unwrap().refused += u64::from(is_rejection);
        }
        if !plan.second {
            self.kill_writer(0);
        }
        self.recover(counts);
        self.target.cli().run(&["backup", "rm", &url]);
        self.finish_backup(0, &names, counts);
        assert!(!self.is_complete(&removed), "{removed} was removed");
        in_time
    }

    fn restore(&mut self, plan: &Plan, random: &mut StdRng, counts: &Mutex<Counts>) -> bool {
        let last = self.standby.last.clone();
        let others: Vec<&String> =
            self.complete.iter().filter(|name| Some(*name) != last.as_ref()).collect();
        let backup = others[random.random_range(0..others.len())].clone();
        let (target, volume) = (self.target.clone(), self.volume.clone());
        let in_time = self.standby.interrupted(&target, &volume, &backup, plan, random);
        self.target.age();
        self.check(counts);
        self.standby.restore(&target, &volume, &backup, &self.known[&backup]);
        counts.lock().unwrap().restores += 1;
        in_time
    }

    /// Everything that is complete is whole, and everything that was complete is there.
    fn check(&self, counts: &Mutex<Counts>) {
        let complete = self.target.complete(&self.volume);
        let lost: Vec<_> = self.complete.iter().filter(|name| !complete.contains(name)).collect();
        assert!(lost.is_empty(), "{lost:?} are gone");
        let (ran, report) = self.target.verify(&self.volume);
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
        let healthy: BTreeSet<&str> =
            report["healthy"].as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
        let size = MEBIBYTES * MIB;
        for backup in &complete {
            assert!(healthy.contains(backup.as_str()), "{backup}: {report}");
            let image = self.target.image(&self.volume, backup, size);
            let image = image.unwrap_or_else(|error| panic!("{backup}: {error}"));
            assert_eq!(sum(&image), self.known[backup], "{backup} holds something else");
        }
        let mut counts = counts.lock().unwrap();
        let checked = complete.len() as u64;
        (counts.backups, counts.bytes) = (counts.backups + checked, counts.bytes + checked * size);
    }

    /// No block is left that nobody needs, and everything restores to a volume.
    pub(crate) fn finish(mut self, counts: &Mutex<Counts>) {
        self.target.age();
        let url = self.target.url();
        self.target.cli().run(&["backup", "gc", "--volume", &self.volume, &url]);
        self.target.assert_sound(&self.volume);
        for backup in self.target.complete(&self.volume) {
            if self.standby.last.as_ref() != Some(&backup) {
                let known = &self.known[&backup];
                self.standby.restore(&self.target, &self.volume, &backup, known);
                counts.lock().unwrap().restores += 1;
            }
        }
        self.target.cli().run(&["backup", "rm", "--volume", &self.volume, &url]);
        let is_of_target = |key: &str| key.starts_with("backupstore/holdfast/");
        let mut left = self.target.keys();
        left.retain(|key| !key.contains("/locks/") && !is_of_target(key));
        assert_eq!(left, [] as [&str; 0], "a removed volume leaves nothing");
    }
}

/// SIGKILL to a process of ours; its handle is settled afterwards.
pub(crate) fn kill(process: u32) {
    let id = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    // It may have ended by itself, and is still ours: nobody has waited for it.
    let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
}

/// The length of a pause is part of the experiment.
pub(crate) fn pause_for(length: Duration) {
    let _ = poll_until(length, || None::<()>);
}
