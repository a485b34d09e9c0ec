//! Killing the commands that make directories and objects out of a backup.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use testkit::process::Process;

use crate::plan::{Damage, Kind, Moment, Plan, Sign};
use crate::source::number;
use crate::world::{Known, World, beside, listed, run};

/// Between two looks for a sign.
const LOOK_EVERY: Duration = Duration::from_micros(100);
const DATABASE: &str = "member/snap/db";
const LOG: &str = "member/wal";

impl World {
    /// New changes, all of them in the store.
    #[track_caller]
    fn advance(&mut self, plan: &Plan) -> Known {
        let mut random = StdRng::seed_from_u64(plan.seed);
        (0..plan.changes).for_each(|_| self.source.change(&mut random));
        self.promise()
    }

    /// Starts a command and kills it at its moment; whether it had not ended before.
    #[track_caller]
    fn kill_command(&mut self, command: Command, moment: Moment, kind: Kind, sign: &Signs) -> bool {
        self.next += 1;
        let name = format!("killed-{}", self.next);
        let mut process = Process::start(command, self.rig.path(), &name).unwrap();
        let took = self.took.get(&kind).or(self.took.get(&Kind::Restore)).copied();
        let begun = Instant::now();
        let wait = match moment {
            Moment::Share(share) => took.unwrap_or_default().mul_f64(share),
            Moment::AfterSign(wanted, pause) => {
                while !sign.is_seen(wanted) && process.wait_for_exit(Duration::ZERO).is_err() {
                    std::thread::park_timeout(LOOK_EVERY);
                }
                begun.elapsed() + pause
            }
        };
        while let Some(left) = wait.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
        let status = process.kill().unwrap();
        assert!(matches!(status.code(), None | Some(0)), "{status}: {}", process.stderr());
        self.counts.kill(kind, status.code().is_none());
        status.code().is_none()
    }

    pub(crate) fn kill_restore(&mut self, plan: &Plan) {
        let known = self.advance(plan);
        let (dir, home) = (self.place("restored"), self.rig.home());
        let part = beside(&dir, ".part");
        for moment in &plan.moments {
            if dir.exists() {
                break;
            }
            self.counts.resumed += u32::from(part.join("state.json").exists());
            let command = self.command("restore", &home, &dir);
            self.kill_command(command, *moment, Kind::Restore, &Signs::of(&dir, None));
            if dir.exists() {
                self.compare(&dir, known);
            }
        }
        if dir.exists() {
            // It had ended but for its last breath, and must not be done over it.
            let again = run(&mut self.command("restore", &home, &dir));
            assert_eq!(again.code, Some(1), "{}", again.stderr);
            assert!(!part.join("data").exists());
        } else {
            self.counts.resumed += u32::from(part.join("state.json").exists());
            self.restore_from(&home, &dir);
        }
        assert_gone(&[part, beside(&dir, ".tmp"), beside(&dir, ".old")]);
        self.compare_and_remove(&dir, known);
    }

    pub(crate) fn kill_initialize(&mut self, plan: &Plan) {
        let (dir, home) = (self.fresh(), self.rig.home());
        let known = self.advance(plan);
        damage(&dir, plan.damage);
        let (old, before) = (inode(&dir), files(&dir));
        let (part, aside) = (beside(&dir, ".part"), beside(&dir, ".old"));
        for moment in &plan.moments {
            if inode(&dir) != old && dir.exists() {
                break;
            }
            self.counts.resumed += u32::from(part.join("state.json").exists());
            let command = self.initialize(&home, &dir);
            self.kill_command(command, *moment, Kind::Initialize, &Signs::of(&dir, None));
            match inode(&dir) {
                now if now == old => assert_eq!(files(&dir), before, "the old one was written to"),
                None => {
                    assert_eq!(inode(&aside), old, "the old one is lost");
                    self.counts.between += 1;
                }
                Some(_) => {
                    assert_eq!(inode(&aside), old, "the old one is lost");
                    self.compare(&dir, known);
                }
            }
        }
        let begun = Instant::now();
        let done = run(&mut self.initialize(&home, &dir));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        self.took.entry(Kind::Initialize).or_insert(begun.elapsed());
        assert_eq!(inode(&aside), old, "the old one is kept until etcd runs");
        assert_eq!(files(&aside), before, "the old one was written to");
        std::fs::remove_dir_all(aside).unwrap();
        std::fs::remove_file(beside(&dir, ".aside")).unwrap();
        assert_gone(&[part, beside(&dir, ".tmp")]);
        self.compare_and_remove(&dir, known);
    }

    fn initialize(&self, home: &Path, dir: &Path) -> Command {
        let mut command = self.command("initialize", home, dir);
        command.arg("--validation-mode=full");
        command
    }

    pub(crate) fn kill_compact(&mut self, plan: &Plan) {
        let known = self.advance(plan);
        // A copy: in the store itself the history would end, and no hash could be compared.
        let (home, dir) = (self.place("copy"), self.place("compacted"));
        let store = home.join("bkt/etcd-main/v2");
        std::fs::create_dir_all(&store).unwrap();
        for name in self.rig.names("").iter().filter(|name| !name.starts_with('.')) {
            std::fs::copy(self.rig.store_dir().join(name), store.join(name)).unwrap();
        }
        let objects = visible(&store);
        for moment in &plan.moments {
            let command = self.command("compact", &home, &dir);
            self.counts.resumed += u32::from(beside(&dir, ".part").join("state.json").exists());
            let signs = Signs::of(&dir, Some(&store));
            self.kill_command(command, *moment, Kind::Compact, &signs);
            self.check_copy(&home, known, visible(&store) > objects);
        }
        let begun = Instant::now();
        let done = run(&mut self.command("compact", &home, &dir));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        self.took.insert(Kind::Compact, begun.elapsed());
        assert_gone(&[dir.clone(), beside(&dir, ".part"), beside(&dir, ".tmp")]);
        assert!(visible(&store) > objects, "there is no new object");
        self.check_objects(&home);
        let restored = self.check_copy_of_history_ended(&home, known);
        let expected = self.source.keys(known.revision);
        self.boot(&restored, |booted| {
            assert_eq!(booted.revision(), known.revision);
            assert_eq!(booted.keys(known.revision), expected);
        });
        std::fs::remove_dir_all(home).unwrap();
    }

    /// A store whose compaction was killed gives what it gave, with its history or without.
    #[track_caller]
    fn check_copy(&mut self, home: &Path, known: Known, is_compacted: bool) {
        let dir = if is_compacted {
            self.check_copy_of_history_ended(home, known)
        } else {
            let dir = self.place("from-copy");
            self.restore_from(home, &dir);
            self.compare(&dir, known);
            dir
        };
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[track_caller]
    fn check_copy_of_history_ended(&mut self, home: &Path, known: Known) -> PathBuf {
        let dir = self.place("from-copy");
        self.restore_from(home, &dir);
        assert_eq!(number(&self.verified(&dir)["revision"]), known.revision);
        dir
    }
}

/// Where the signs of a command's progress are.
struct Signs {
    dir: PathBuf,
    before: Option<u64>,
    /// Of a compaction, with what lies there.
    store: Option<(PathBuf, usize)>,
}

impl Signs {
    fn of(dir: &Path, store: Option<&Path>) -> Self {
        let store = store.map(|store| (store.to_owned(), listed(store).len()));
        Self { dir: dir.to_owned(), before: inode(dir), store }
    }

    fn is_seen(&self, sign: Sign) -> bool {
        let part = beside(&self.dir, ".part");
        match (sign, &self.store) {
            (Sign::Base, _) => part.join("state.json").exists(),
            (Sign::Log, None) => !listed(&part.join("data").join(LOG)).is_empty(),
            (Sign::Log, Some(_)) => part.join("slim").exists(),
            (Sign::Swap, None) => inode(&self.dir) != self.before,
            (Sign::Swap, Some((store, count))) => listed(store).len() != *count,
        }
    }
}

/// The directory itself, whatever it is called.
fn inode(dir: &Path) -> Option<u64> {
    std::fs::metadata(dir).ok().map(|found| found.ino())
}

/// Every file below, its length and when it was last written to.
fn files(dir: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let mut found = Vec::new();
    let mut names = listed(dir);
    names.sort();
    for name in names {
        let path = dir.join(&name);
        let about = std::fs::metadata(&path).unwrap();
        if about.is_dir() {
            let below = files(&path).into_iter();
            found.extend(
                below.map(|(path, length, time)| (Path::new(&name).join(path), length, time)),
            );
        } else {
            found.push((name.into(), about.len(), about.modified().unwrap()));
        }
    }
    found
}

/// Objects of a store, without what is only being written.
fn visible(store: &Path) -> usize {
    listed(store).iter().filter(|name| !name.starts_with('.')).count()
}

#[track_caller]
fn assert_gone(paths: &[PathBuf]) {
    for path in paths {
        assert!(!path.exists(), "{} is left behind", path.display());
    }
}

fn damage(dir: &Path, damage: Damage) {
    let database = dir.join(DATABASE);
    let open = |path: &Path| std::fs::File::options().write(true).open(path).unwrap();
    match damage {
        Damage::NoDatabase => std::fs::remove_file(database).unwrap(),
        Damage::Garbage => e2e::write(&database, "not a database"),
        Damage::CutShort => {
            let length = std::fs::metadata(&database).unwrap().len();
            open(&database).set_len(length / 2).unwrap();
        }
        Damage::BrokenLog => {
            let name = listed(&dir.join(LOG)).into_iter().min().unwrap();
            let file = open(&dir.join(LOG).join(name));
            std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 16], 40).unwrap();
        }
        Damage::NoLog => std::fs::remove_dir_all(dir.join(LOG)).unwrap(),
        Damage::Behind => {}
    }
}
