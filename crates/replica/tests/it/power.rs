//! Power fails in the middle of anything: a disk that loses, keeps or tears what was not synced, by
//! chance. What was flushed is there, and a snapshot is there whole or not at all.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use durable::Disk as _;
use durable::sim::SimDisk;
use replica::{Error, OpenRequest, Options, Progress, Replica, View};
use rpc::HeadParent;

use crate::place::{BUDGET, NOW, SECTOR, pattern};
use crate::purge::Purge;

const DIR: &str = "/replica";
const SECTORS: u64 = 24;
/// What a disk writes whole or not at all.
const UNIT: usize = durable::sim::SECTOR_BYTES;
/// Chances of the disk that are tried at every call.
const CHANCES: u64 = 3;
/// Histories by chance.
const HISTORIES: u64 = 150;

fn on(disk: &SimDisk) -> Replica {
    Replica::new(DIR, Options { files: Arc::new(disk.clone()), ..Options::default() })
}

fn opened(disk: &SimDisk) -> Result<Replica, Error> {
    let mut replica = on(disk);
    replica.open(&OpenRequest::default())?;
    Ok(replica)
}

fn head(replica: &mut Replica) -> Vec<u8> {
    let mut contents = vec![0xee; usize::try_from(replica.size_bytes().unwrap()).unwrap()];
    replica.read_at(&mut contents, 0).unwrap();
    contents
}

/// The snapshots that are not removed.
fn snapshots(replica: &Replica) -> BTreeMap<String, Vec<u8>> {
    let chain = replica.chain().unwrap();
    let kept = chain.disks().filter(|(name, disk)| !name.is_head() && !disk.removed);
    let read = |name: &str| {
        let mut view = View::open_on(replica.files(), Path::new(DIR), name, BUDGET).unwrap();
        let mut contents = vec![0xee; usize::try_from(view.size_bytes()).unwrap()];
        view.read_at(&mut contents, 0).unwrap();
        contents
    };
    kept.map(|(name, _)| (name.to_string(), read(name.as_str()))).collect()
}

/// What may be found: for each unit of the head, what was flushed and all that was written since.
#[derive(Debug, Clone, Default)]
struct Expected {
    flushed: Vec<u8>,
    /// As it would be if nothing were lost.
    newest: Vec<u8>,
    since: Vec<(usize, Vec<u8>)>,
    snapshots: BTreeMap<String, Vec<u8>>,
}

impl Expected {
    fn write(&mut self, bytes: &[u8], offset: usize) {
        self.newest[offset..offset + bytes.len()].copy_from_slice(bytes);
        // Parts of a sector are written with the rest of it.
        let sector = SECTOR as usize;
        let whole = offset / sector * sector..(offset + bytes.len()).next_multiple_of(sector);
        self.since.push((whole.start, self.newest[whole].to_vec()));
    }

    fn flush(&mut self) {
        self.flushed.clone_from(&self.newest);
        self.since.clear();
    }

    /// Lengths differ while a volume grows; what is new is zeros.
    fn allows(&self, found: &[u8]) -> Result<(), String> {
        for (index, unit) in found.chunks(UNIT).enumerate() {
            let at = index * UNIT;
            let old = self.flushed.get(at..at + UNIT).unwrap_or(&[0; UNIT]);
            let later = self.since.iter().any(|(offset, bytes)| {
                at.checked_sub(*offset).and_then(|skip| bytes.get(skip..skip + UNIT)) == Some(unit)
            });
            if unit != old && !later {
                return Err(format!("byte {at}: {:?}, flushed was {:?}", &unit[..4], &old[..4]));
            }
        }
        Ok(())
    }
}

/// A volume of some history, closed, and what it holds. Chain: head -> c -> b (removed) -> a, and a
/// branch on a.
fn prepare() -> (SimDisk, Expected) {
    let disk = SimDisk::new(1);
    disk.write_by(SECTOR as usize);
    let mut replica = on(&disk);
    replica.create(i64::try_from(SECTORS * SECTOR).unwrap(), NOW).unwrap();
    replica.open(&OpenRequest::default()).unwrap();
    replica.write_at(&pattern(12 * 4096, 1), 0).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    replica.write_at(&pattern(3 * 4096, 2), 2 * SECTOR).unwrap();
    replica.snapshot("branch", true, NOW, None).unwrap();
    replica.revert("volume-snap-a.img", NOW).unwrap();
    replica.write_at(&pattern(5 * 4096, 3), 4 * SECTOR).unwrap();
    replica.snapshot("b", true, NOW, None).unwrap();
    replica.write_at(&pattern(5 * 4096, 4), 7 * SECTOR).unwrap();
    replica.snapshot("c", true, NOW, None).unwrap();
    replica.write_at(&pattern(3 * 4096, 5), 6 * SECTOR).unwrap();
    replica.mark_removed("b").unwrap();
    let newest = head(&mut replica);
    let snapshots = snapshots(&replica);
    replica.close().unwrap();
    (disk, Expected { flushed: newest.clone(), newest, since: Vec::new(), snapshots })
}

type Operation = fn(&mut Replica) -> Result<(), Error>;

fn purge(replica: &mut Replica, head_parent: HeadParent) -> Result<(), Error> {
    let mut purge = Purge::new(head_parent);
    while purge.step(replica, 2 * SECTOR)? != Progress::Done {}
    Ok(())
}

/// What of the head is on disk when an operation is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// All that was written before.
    All,
    /// The same; before that, each unit for itself may be as it will be.
    ByUnits,
    /// What was flushed before.
    Flushed,
}

fn operations() -> Vec<(&'static str, Promise, Operation)> {
    use Promise::{All, ByUnits, Flushed};
    vec![
        ("flush", All, Replica::flush),
        ("snapshot", All, |replica| replica.snapshot("new", true, NOW, None)),
        ("revert", All, |replica| replica.revert("volume-snap-branch.img", NOW)),
        ("expand", All, |replica| replica.expand(40 * 4096, NOW).map_err(|error| error.source)),
        ("mark", Flushed, |replica| replica.mark_removed("c")),
        ("remove a leaf", Flushed, |replica| replica.remove("branch", false)),
        ("purge", Flushed, |replica| purge(replica, HeadParent::Keep)),
        ("purge that prunes the parent of the head", Flushed, |replica| {
            replica.mark_removed("c")?;
            purge(replica, HeadParent::Keep)
        }),
        ("purge that folds the parent of the head", Flushed, |replica| {
            replica.mark_removed("c")?;
            purge(replica, HeadParent::Fold)
        }),
        ("zeros", ByUnits, |replica| {
            replica.write_zeroes_at(2 * SECTOR, 6 * SECTOR)?;
            replica.flush()
        }),
        ("close", All, Replica::close),
    ]
}

/// Opens what the power left, and says what is wrong with it.
fn look(disk: &SimDisk, allowed: &[&Expected]) -> Result<(), String> {
    let mut replica = opened(disk).map_err(|error| format!("does not open: {}", error.text()))?;
    let (found, kept) = (head(&mut replica), snapshots(&replica));
    let mut why = Vec::new();
    let is_fine = allowed.iter().any(|expected| {
        let mut wanted = expected.snapshots.clone();
        // A volume that has grown shows its snapshots as long as it is.
        for contents in wanted.values_mut() {
            contents.resize(found.len(), 0);
        }
        let differs = wanted.iter().find(|(name, contents)| kept.get(*name) != Some(contents));
        let result = match differs {
            Some((name, _)) => Err(format!("snapshot {name} of {:?}", kept.keys())),
            None if wanted.len() != kept.len() => Err(format!("snapshots {:?}", kept.keys())),
            None => expected.allows(&found),
        };
        result.inspect_err(|error| why.push(error.clone())).is_ok()
    });
    if !is_fine {
        return Err(why.join("; "));
    }
    // And it can be worked with.
    replica.write_at(&[9; 100], 100).map_err(|error| error.text())?;
    replica.snapshot("later", true, NOW, None).map_err(|error| error.text())?;
    purge(&mut replica, HeadParent::Fold).map_err(|error| error.text())?;
    replica.close().map_err(|error| error.text())
}

/// Writes something, flushes it, and writes more: over what is in the head, over what lies below it, and
/// parts of sectors.
fn work(replica: &mut Replica, expected: &mut Expected) {
    let mut write = |replica: &mut Replica, len: usize, seed: u8, offset: u64| {
        replica.write_at(&pattern(len, seed), offset).unwrap();
        expected.write(&pattern(len, seed), usize::try_from(offset).unwrap());
    };
    write(replica, 2 * 4096, 6, SECTOR);
    replica.flush().unwrap();
    write(replica, 3 * 4096, 7, 5 * SECTOR);
    write(replica, 1000, 8, 10 * SECTOR + 512);
    write(replica, 512, 9, 20 * SECTOR);
    let written = expected.newest.clone();
    // Only the first was flushed.
    for at in 0..2 * 4096 {
        let at = at + 4096;
        expected.flushed[at] = written[at];
    }
}

#[test]
fn power_that_fails_at_any_call_costs_nothing_that_was_promised() {
    let (prepared, base) = prepare();
    let mut tried = 0;
    for (name, promise, operation) in operations() {
        let after = without_faults(&prepared, &base, promise, operation);
        let mut nth = 0;
        loop {
            nth += 1;
            let mut is_over = true;
            for chance in 0..CHANCES {
                let disk = prepared.copy(nth * 1000 + chance);
                let mut expected = base.clone();
                let mut replica = opened(&disk).unwrap();
                work(&mut replica, &mut expected);
                disk.die_at_call(nth);
                let done = operation(&mut replica);
                let fired = disk.fault_fired();
                drop(replica);
                disk.crash();
                is_over &= !fired;
                tried += 1;
                // What says that it is done is done; what does not is done or not. A mark alone may be.
                let mut marked = expected.clone();
                marked.snapshots.remove("volume-snap-c.img");
                if promise == Promise::ByUnits {
                    expected.since.push((0, after.newest.clone()));
                }
                let both = [&after, &expected, &marked];
                let allowed = if done.is_ok() { &both[..1] } else { &both[..] };
                if let Err(why) = look(&disk, allowed) {
                    panic!("{name}, call {nth}, chance {chance}, said {done:?}: {why}");
                }
            }
            if is_over {
                break;
            }
        }
        assert!(nth > 1, "{name} asks nothing of a disk");
    }
    println!("{tried} failures of power");
}

/// What holds when the operation has been done.
fn without_faults(
    prepared: &SimDisk,
    base: &Expected,
    promise: Promise,
    operation: Operation,
) -> Expected {
    let disk = prepared.copy(0);
    let mut expected = base.clone();
    let mut replica = opened(&disk).unwrap();
    work(&mut replica, &mut expected);
    operation(&mut replica).unwrap();
    if replica.chain().is_none() {
        replica = opened(&disk).unwrap();
    }
    let (newest, snapshots) = (head(&mut replica), snapshots(&replica));
    match promise {
        Promise::All | Promise::ByUnits => {
            Expected { flushed: newest.clone(), newest, since: Vec::new(), snapshots }
        }
        Promise::Flushed => Expected { snapshots, ..expected },
    }
}

/// Chance of its own: of which history is which.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn whatever_was_done_before_the_power_failed_is_kept() {
    let (prepared, base) = prepare();
    for seed in 0..HISTORIES {
        let (mut chance, mut expected) = (Chance(seed), base.clone());
        let disk = prepared.copy(seed);
        let mut replica = opened(&disk).unwrap();
        let mut made = 0;
        for _ in 0..6 {
            disk.die_at_call(1 + chance.below(400));
            let mut after = expected.clone();
            while !disk.is_dead() {
                let before = after.clone();
                let done = step(&mut replica, &mut after, &mut chance, &mut made);
                expected = if done.is_ok() { after.clone() } else { before };
                if done.is_err() {
                    break;
                }
            }
            drop(replica);
            disk.crash();
            if let Err(why) = check(&disk, &mut expected, &after) {
                panic!("history {seed}: {why}");
            }
            replica = opened(&disk).unwrap();
            // What is there now is on the disk.
            expected.newest = head(&mut replica);
            expected.flush();
        }
    }
}

/// The volume is in the state before or after the last step; `expected` becomes the one it is in.
fn check(disk: &SimDisk, expected: &mut Expected, after: &Expected) -> Result<(), String> {
    let mut replica = opened(disk).map_err(|error| format!("does not open: {}", error.text()))?;
    let (found, kept) = (head(&mut replica), snapshots(&replica));
    let is_after = kept == after.snapshots;
    if !is_after && kept != expected.snapshots {
        return Err(format!("snapshots {:?}", kept.keys()));
    }
    let fits = after.allows(&found).or_else(|why| {
        // Something that says it is done and is not would be seen by the snapshots, or by a flush.
        expected.allows(&found).map_err(|other| format!("{why}; {other}"))
    });
    expected.snapshots = kept;
    fits
}

fn step(
    replica: &mut Replica,
    expected: &mut Expected,
    chance: &mut Chance,
    made: &mut u64,
) -> Result<(), Error> {
    match chance.below(12) {
        0..5 => {
            let offset = chance.below(SECTORS * SECTOR - 8192) / 512 * 512;
            let len = usize::try_from((1 + chance.below(16)) * 512).unwrap();
            let bytes = pattern(len, u8::try_from(chance.below(250)).unwrap());
            expected.write(&bytes, usize::try_from(offset).unwrap());
            replica.write_at(&bytes, offset)
        }
        5 | 6 => {
            replica.flush()?;
            expected.flush();
            Ok(())
        }
        7 | 8 => {
            *made += 1;
            let name = format!("s{made}");
            let disk = format!("volume-snap-{name}.img");
            expected.snapshots.insert(disk, expected.newest.clone());
            replica.snapshot(&name, true, NOW, None)?;
            expected.flush();
            Ok(())
        }
        9 => {
            let names: Vec<String> = expected.snapshots.keys().cloned().collect();
            let Some(name) = names.get(usize::try_from(chance.below(8)).unwrap()) else {
                return Ok(());
            };
            expected.snapshots.remove(name);
            replica.mark_removed(name)
        }
        10 => purge(replica, HeadParent::Fold),
        _ => purge(replica, HeadParent::Keep),
    }
}

#[test]
fn a_disk_without_a_directory_has_no_volume() {
    let disk = SimDisk::new(3);
    assert_eq!(on(&disk).state(), replica::State::Initial);
    assert!(disk.list(Path::new("/")).unwrap().is_empty());
}
