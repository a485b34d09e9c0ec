//! Bit flips and truncations of objects of every kind: what is damaged is named, what is not is
//! restored, and no collection of garbage makes it worse.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use e2e::backup::{BLOCK, Restored, Source, Target, backup_key, volume_folder};
use e2e::engine::run;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::in_directory;

const LANES: usize = 6;
const ONE: &str = "backup-one";
const TWO: &str = "backup-two";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// One bit of the byte at so many thousandths of the object.
    Flip(usize, u8),
    /// So many thousandths are left.
    Keep(usize),
    LoseLastByte,
    Grow,
    Remove,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Volume,
    Backup,
    /// A block that only the first backup has.
    Block,
    /// A block that both have.
    SharedBlock,
    Lock,
}

#[derive(Debug)]
struct Case {
    kind: Kind,
    key: String,
    harm: Harm,
}

impl Case {
    fn inflict(&self, target: &Target) {
        let mut bytes = target.get(&self.key).unwrap();
        let len = bytes.len();
        match self.harm {
            Harm::Flip(place, bit) => bytes[(place * len / 1000).min(len - 1)] ^= 1 << bit,
            Harm::Keep(part) => bytes.truncate(part * len / 1000),
            Harm::LoseLastByte => bytes.truncate(len - 1),
            Harm::Grow => bytes.extend_from_slice(b"{}"),
            Harm::Remove => return target.remove(&self.key),
        }
        target.put(&self.key, &bytes);
    }

    /// Whether a backup may suffer from it. A flipped bit of a label harms nobody.
    fn may_harm(&self, backup: &str) -> bool {
        match self.kind {
            Kind::Volume | Kind::SharedBlock => true,
            Kind::Backup => backup == TWO,
            Kind::Block => backup == ONE,
            Kind::Lock => false,
        }
    }

    /// Whether it must be noticed.
    fn is_certain(&self) -> bool {
        match self.kind {
            Kind::Block | Kind::SharedBlock => true,
            Kind::Volume | Kind::Backup => !matches!(self.harm, Harm::Flip(..)),
            Kind::Lock => false,
        }
    }
}

const HARMS: &[Harm] = &[
    Harm::Flip(0, 0),
    Harm::Flip(500, 3),
    Harm::Flip(999, 7),
    Harm::Keep(0),
    Harm::Keep(500),
    Harm::LoseLastByte,
    Harm::Grow,
    Harm::Remove,
];

#[test]
fn of_any_object_is_told_and_harms_no_other_backup() {
    in_directory(|target| {
        let source = source(target);
        let volume = source.name();
        let cases = cases(target, volume);
        let (count, commands) = (cases.len(), AtomicU64::new(0));
        let noticed = AtomicU64::new(0);
        let next = Mutex::new(cases.into_iter().enumerate());
        std::thread::scope(|scope| {
            for _ in 0..LANES {
                scope.spawn(|| {
                    loop {
                        let Some((index, case)) = next.lock().unwrap().next() else { break };
                        let copy = copy(target, index);
                        case.inflict(&copy);
                        let harmed = looked_at(&source, &copy, &case);
                        collected(&source, &copy, &case, &harmed);
                        if case.harm == Harm::Flip(500, 3) || case.harm == Harm::Remove {
                            restored(&source, &copy, &case, &harmed);
                        }
                        commands.fetch_add(5, Ordering::Relaxed);
                        noticed.fetch_add(u64::from(!harmed.is_empty()), Ordering::Relaxed);
                    }
                });
            }
        });
        let (commands, noticed) = (commands.into_inner(), noticed.into_inner());
        println!(
            "damage: {count} flips, truncations and losses of volume, backup, block and lock objects, {noticed} of them harm a backup, {commands} commands"
        );
    });
}

/// Two backups that share a block and have one each.
fn source(target: &Target) -> Source {
    let mut source = Source::start(1, 16);
    source.write(0, &[b'a'; 16 << 10]);
    source.write(5 * BLOCK, &[b'b'; 16 << 10]);
    source.snapshot("one");
    source.back_up(target, "one", ONE, &[]);
    source.write(5 * BLOCK, &[b'c'; 16 << 10]);
    source.snapshot("two");
    source.back_up(target, "two", TWO, &[]);
    let lock = format!("{}/locks/lock-0123456789abcdef.lck", volume_folder(source.name()));
    target.put(&lock, br#"{"Name":"lock-0123456789abcdef","Type":1,"Acquired":true}"#);
    target.age();
    source
}

fn cases(target: &Target, volume: &str) -> Vec<Case> {
    let blocks = |backup: &str| -> Vec<String> {
        let record = target.record(volume, backup);
        let sums = record["Blocks"].as_array().unwrap().iter();
        let sums = sums.map(|block| block["BlockChecksum"].as_str().unwrap());
        sums.map(|sum| e2e::backup::block_key(volume, sum)).collect()
    };
    let (one, two) = (blocks(ONE), blocks(TWO));
    let shared = one.iter().find(|key| two.contains(key)).unwrap();
    let own = one.iter().find(|key| !two.contains(key)).unwrap();
    let keys = target.keys();
    let lock = keys.iter().find(|key| key.contains("/locks/")).unwrap();
    let of = |kind: Kind, key: &str| {
        let key = key.to_owned();
        HARMS.iter().map(move |&harm| Case { kind, key: key.clone(), harm })
    };
    let mut cases: Vec<Case> = of(Kind::Volume, &format!("{}/volume.cfg", volume_folder(volume)))
        .chain(of(Kind::Backup, &backup_key(volume, TWO)))
        .chain(of(Kind::Block, own))
        .chain(of(Kind::SharedBlock, shared))
        .chain(of(Kind::Lock, lock))
        .collect();
    // Anywhere in the record of a backup: most of it means something.
    let mut random = StdRng::seed_from_u64(11);
    for _ in 0..12 {
        let harm = Harm::Flip(random.random_range(0..1000), random.random_range(0..8));
        cases.push(Case { kind: Kind::Backup, key: backup_key(volume, TWO), harm });
    }
    cases
}

fn copy(target: &Target, index: usize) -> Target {
    let Target::Directory(from) = target else { panic!("copies are made of directories") };
    let to = from.with_file_name(format!("copy-{index}"));
    run(Command::new("cp").arg("-a").arg(from).arg(&to));
    Target::directory(&to)
}

fn snapshot_of(backup: &str) -> &'static str {
    if backup == ONE { "one" } else { "two" }
}

/// Looks without changing anything; the backups that are said to be harmed.
fn looked_at(source: &Source, target: &Target, case: &Case) -> Vec<String> {
    let volume = source.name();
    let cli = target.cli();
    let listed = cli.json(&["backup", "ls", &target.url()]);
    assert!(listed.get(volume).is_some(), "{case:?}: {listed}");
    let (ran, report) = target.verify(volume);
    let healthy: Vec<&str> =
        report["healthy"].as_array().into_iter().flatten().filter_map(|it| it.as_str()).collect();
    let mut harmed = Vec::new();
    for backup in [ONE, TWO] {
        let inspected = cli.call(&["backup", "inspect", &target.backup_url(volume, backup)]);
        assert!(matches!(inspected.code, Some(0 | 1)), "{case:?}: {inspected:?}");
        if healthy.contains(&backup) {
            assert_eq!(inspected.code, Some(0), "{case:?}: {inspected:?}");
            let image = target.image(volume, backup, source.size_bytes());
            assert!(image.as_ref() == Ok(&source.snapshots[snapshot_of(backup)]), "{case:?}");
        } else {
            assert!(case.may_harm(backup), "{case:?} harms {backup}: {report} {}", ran.stderr);
            harmed.push(backup.to_owned());
        }
    }
    let lost = case.kind == Kind::Backup && case.harm == Harm::Remove;
    if case.is_certain() {
        assert!(!harmed.is_empty(), "{case:?} is not noticed: {report}");
    }
    if harmed.is_empty() || lost {
        assert_eq!(ran.code, Some(0), "{case:?}: {}", ran.stderr);
    } else {
        assert_eq!(ran.code, Some(1), "{case:?}: {report}");
        let is_clear = ["damaged", "cannot be read", "cannot find"].iter();
        assert!(is_clear.clone().any(|text| ran.stderr.contains(text)), "{case:?}: {}", ran.stderr);
    }
    harmed
}

/// Collecting garbage removes nothing that a healthy backup needs, and no record that is damaged.
fn collected(source: &Source, target: &Target, case: &Case, harmed: &[String]) {
    let volume = source.name();
    let before = target.keys();
    let ran = target.cli().call(&["backup", "gc", "--volume", volume, &target.url()]);
    assert!(matches!(ran.code, Some(0 | 1)), "{case:?}: {ran:?}");
    for backup in [ONE, TWO].iter().filter(|it| !harmed.iter().any(|harmed| harmed == *it)) {
        let image = target.image(volume, backup, source.size_bytes());
        assert!(image.as_ref() == Ok(&source.snapshots[snapshot_of(backup)]), "{case:?} after gc");
    }
    let after = target.keys();
    for record in before.iter().filter(|key| key.contains("/backups/")) {
        assert!(after.contains(record), "{case:?}: {record} was collected");
    }
}

/// A harmed backup ends in a clear error, another is restored.
fn restored(source: &Source, target: &Target, case: &Case, harmed: &[String]) {
    let volume = source.name();
    for backup in [ONE, TWO] {
        let to = Restored::fresh(1, source.size_bytes());
        let outcome = to.try_restore(target, volume, backup);
        if !harmed.iter().any(|it| it == backup) {
            outcome.unwrap_or_else(|error| panic!("{case:?}, {backup}: {error}"));
            to.assert_holds(&source.snapshots[snapshot_of(backup)], backup);
            continue;
        }
        let error = outcome.err().unwrap_or_else(|| panic!("{case:?}: {backup} was restored"));
        match case.kind {
            Kind::Block | Kind::SharedBlock => {
                let at = if case.kind == Kind::Block { 5 * BLOCK } else { 0 };
                let place = format!("{} at offset {at}: ", case.key);
                assert!(error.contains(&place), "{case:?}: {error}");
            }
            Kind::Volume | Kind::Backup | Kind::Lock => {
                let is_clear = ["cannot be read", "cannot find"].iter();
                assert!(is_clear.clone().any(|text| error.contains(text)), "{case:?}: {error}");
            }
        }
    }
}
