//! Death and failure at every step of every operation that changes more than one file: whoever
//! opens the directory next finds the state before or the state after, whole.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use replica::{Error, ExpandCode, OpenRequest, Options, Progress, Replica, State, StepHook};
use rpc::HeadParent;

use crate::place::{NOW, Place, SECTOR, Seen, pattern, see};
use crate::purge::Purge;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The process is gone.
    Die,
    FailOnce,
    FailFromNowOn,
}

#[derive(Debug)]
struct Fuse {
    left: AtomicU64,
    fault: Fault,
    fired: AtomicBool,
}

impl Fuse {
    fn new(fault: Fault) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(u64::MAX), fault, fired: AtomicBool::new(false) })
    }

    /// The `nth` step from now on is the one.
    fn arm(&self, nth: u64) {
        self.left.store(nth, Ordering::SeqCst);
    }

    fn disarm(&self) {
        self.arm(u64::MAX);
    }

    fn fired(&self) -> bool {
        self.fired.load(Ordering::SeqCst)
    }
}

impl StepHook for Fuse {
    fn before(&self, _step: &'static str, _file: &str) -> io::Result<()> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        let is_hit = left == 1 || (left > u64::MAX / 2 && self.fired() && left != u64::MAX);
        if !is_hit {
            return Ok(());
        }
        self.fired.store(true, Ordering::SeqCst);
        match self.fault {
            // Without the message a panic would print; a process that is killed says nothing.
            Fault::Die => resume_unwind(Box::new("killed")),
            Fault::FailOnce => {
                self.disarm();
                Err(io::ErrorKind::StorageFull.into())
            }
            Fault::FailFromNowOn => {
                self.arm(1);
                Err(io::ErrorKind::StorageFull.into())
            }
        }
    }
}

/// Chain: head -> c -> b (removed) -> a, and a branch on a.
fn prepare(place: &Place) {
    let mut replica = place.created(24);
    replica.write_at(&pattern(12 * 4096, 1), 0).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    replica.write_at(&pattern(3 * 4096, 2), 2 * SECTOR).unwrap();
    replica.snapshot("branch", true, NOW, None).unwrap();
    replica.revert("volume-snap-a.img", NOW).unwrap();
    replica.write_at(&pattern(5 * 4096, 3), 4 * SECTOR).unwrap();
    replica.snapshot("b", true, NOW, None).unwrap();
    replica.write_at(&pattern(5 * 4096, 4), 7 * SECTOR).unwrap();
    replica.snapshot("c", true, NOW, None).unwrap();
    replica.write_at(&pattern(1000, 5), 20 * SECTOR + 5).unwrap();
    replica.mark_removed("b").unwrap();
    replica.close().unwrap();
}

fn open_with(place: &Place, fuse: &Arc<Fuse>) -> Replica {
    let hook: Arc<dyn StepHook> = Arc::<Fuse>::clone(fuse);
    let mut replica = Replica::new(place.path(), Options { hook, ..Options::default() });
    replica.open(&OpenRequest::default()).unwrap();
    replica
}

type Operation = fn(&mut Replica) -> Result<(), Error>;

fn purge(replica: &mut Replica, head_parent: HeadParent) -> Result<(), Error> {
    let mut purge = Purge::new(head_parent);
    while purge.step(replica, 2 * SECTOR)? != Progress::Done {}
    Ok(())
}

fn operations() -> Vec<(&'static str, Operation)> {
    vec![
        ("snapshot", |replica| replica.snapshot("new", true, NOW, None)),
        ("revert", |replica| replica.revert("volume-snap-branch.img", NOW)),
        ("expand", |replica| replica.expand(40 * 4096, NOW).map_err(|error| error.source)),
        ("mark", |replica| replica.mark_removed("c")),
        ("remove leaf", |replica| replica.remove("branch", false)),
        ("purge", |replica| purge(replica, HeadParent::Fold)),
        ("purge of the head's parent", |replica| {
            replica.mark_removed("c")?;
            purge(replica, HeadParent::Fold)
        }),
        ("prune", |replica| {
            replica.mark_removed("c")?;
            purge(replica, HeadParent::Keep)
        }),
        ("rebuilding", |replica| replica.set_rebuilding(true)),
        ("reload", Replica::reload),
        ("close", |replica| {
            replica.close()?;
            replica.open(&OpenRequest::default())
        }),
        ("mark on unmap", |replica| {
            replica.unmap_mark_removed = true;
            replica.unmap_at(0, 0).map(drop)
        }),
    ]
}

/// What is seen without faults, before and after; operations of more than one step may also be
/// seen in between, so the marks in the middle count as states too.
fn states(operation: Operation) -> Vec<Seen> {
    let place = Place::in_memory();
    prepare(&place);
    let mut replica = place.opened();
    let before = see(&mut replica);
    operation(&mut replica).unwrap();
    let after = see(&mut replica);
    let mut marked = before.clone();
    marked.1.remove("c");
    vec![before, after, marked]
}

/// No second head, nothing half written.
fn is_tidy(place: &Place) {
    let names: Vec<String> = std::fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let heads = names.iter().filter(|name| name.starts_with("volume-head")).count();
    assert_eq!(heads, 2, "{names:?}");
    let extension = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    assert!(!names.iter().any(|name| extension(name) == "tmp"), "{names:?}");
    for image in names.iter().filter(|name| extension(name) == "img") {
        assert!(names.contains(&format!("{image}.meta")), "{image} in {names:?}");
    }
}

#[test]
fn a_death_at_any_step_leaves_the_old_state_or_the_new_one() {
    for (name, operation) in operations() {
        let expected = states(operation);
        for nth in 1.. {
            let place = Place::in_memory();
            prepare(&place);
            let fuse = Fuse::new(Fault::Die);
            let mut replica = open_with(&place, &fuse);
            fuse.arm(nth);
            let died = catch_unwind(AssertUnwindSafe(|| operation(&mut replica))).is_err();
            drop(replica);
            let mut next = place.opened();
            assert!(expected.contains(&see(&mut next)), "{name}, step {nth}");
            next.write_at(&[9; 100], 100).unwrap();
            next.snapshot("later", true, NOW, None).unwrap();
            purge(&mut next, HeadParent::Fold).unwrap();
            if !died {
                is_tidy(&place);
                assert!(!fuse.fired() && nth > 1);
                break;
            }
        }
    }
}

#[test]
fn a_failure_at_any_step_leaves_a_replica_that_goes_on() {
    for fault in [Fault::FailOnce, Fault::FailFromNowOn] {
        for (name, operation) in operations() {
            if name == "close" {
                continue;
            }
            let expected = states(operation);
            for nth in 1.. {
                let place = Place::in_memory();
                prepare(&place);
                let fuse = Fuse::new(fault);
                let mut replica = open_with(&place, &fuse);
                fuse.arm(nth);
                let failed = operation(&mut replica).is_err();
                fuse.disarm();
                assert!(!failed || fuse.fired());
                let now = see(&mut replica);
                assert!(expected.contains(&now), "{name}, step {nth}");
                replica.write_at(&[9; 100], 100).unwrap();
                let now = see(&mut replica);
                drop(replica);
                let mut next = place.opened();
                assert_eq!(next.report().state, expected_state(name, failed), "{name}, step {nth}");
                if fault == Fault::FailOnce || name == "purge" {
                    assert!(now == see(&mut next), "{name}, step {nth}");
                } else {
                    assert!(now.0 == see(&mut next).0, "{name}, step {nth}");
                }
                if !fuse.fired() {
                    is_tidy(&place);
                    break;
                }
            }
        }
    }
}

fn expected_state(name: &str, failed: bool) -> State {
    if name == "rebuilding" && !failed { State::Rebuilding } else { State::Open }
}

#[test]
fn a_death_while_cleaning_up_after_a_death_is_cleaned_up_too() {
    let operation: Operation = |replica| replica.snapshot("new", true, NOW, None);
    let expected = states(operation);
    for nth in 1..12 {
        for again in 1..8 {
            let place = Place::in_memory();
            prepare(&place);
            let fuse = Fuse::new(Fault::Die);
            let mut replica = open_with(&place, &fuse);
            fuse.arm(nth);
            let _ = catch_unwind(AssertUnwindSafe(|| operation(&mut replica)));
            drop(replica);
            let fuse = Fuse::new(Fault::Die);
            fuse.arm(again);
            let _ = catch_unwind(AssertUnwindSafe(|| open_with(&place, &fuse)));
            let mut next = place.opened();
            assert!(expected.contains(&see(&mut next)), "step {nth}, then {again}");
            is_tidy(&place);
        }
    }
}

#[test]
fn a_death_while_creating_leaves_nothing_or_a_volume() {
    for nth in 1.. {
        let place = Place::in_memory();
        let fuse = Fuse::new(Fault::Die);
        let hook: Arc<dyn StepHook> = Arc::<Fuse>::clone(&fuse);
        let mut replica = Replica::new(place.path(), Options { hook, ..Options::default() });
        fuse.arm(nth);
        let died = catch_unwind(AssertUnwindSafe(|| replica.create(8 * 4096, NOW))).is_err();
        let mut next = place.created(8);
        assert_eq!(see(&mut next).0, vec![0; 8 * 4096], "step {nth}");
        if !died {
            break;
        }
    }
}

#[test]
fn a_death_while_deleting_leaves_the_volume_or_none() {
    for nth in 1.. {
        let place = Place::in_memory();
        prepare(&place);
        let fuse = Fuse::new(Fault::Die);
        let mut replica = open_with(&place, &fuse);
        let before = see(&mut replica);
        fuse.arm(nth);
        let died = catch_unwind(AssertUnwindSafe(|| replica.delete())).is_err();
        drop(replica);
        let mut next = Replica::new(place.path(), Options::default());
        match next.state() {
            State::Closed => {
                next.open(&OpenRequest::default()).unwrap();
                assert!(before == see(&mut next), "step {nth}");
            }
            State::Initial => {
                next.create(4 * 4096, NOW).unwrap();
                next.open(&OpenRequest::default()).unwrap();
                assert_eq!(see(&mut next).0, vec![0; 4 * 4096], "step {nth}");
            }
            other => panic!("{other} after step {nth}"),
        }
        if !died {
            assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 4, "only the new one");
            break;
        }
    }
}

#[test]
fn an_expansion_says_whether_the_way_back_worked() {
    let place = Place::in_memory();
    prepare(&place);
    let mut replica = place.opened();
    // What a script does to provoke it.
    let obstacle = place.file("volume-snap-expand-163840.img.meta.tmp");
    std::fs::create_dir(&obstacle).unwrap();
    let error = replica.expand(40 * 4096, NOW).unwrap_err();
    assert_eq!(error.code, ExpandCode::RollbackSucceeded);
    assert!(!obstacle.exists(), "the obstacle is taken away");
    assert_eq!(replica.size_bytes(), Some(24 * SECTOR));
    replica.expand(40 * 4096, NOW).unwrap();
    assert_eq!(replica.size_bytes(), Some(40 * SECTOR));
    let fuse = Fuse::new(Fault::FailFromNowOn);
    drop(replica);
    let mut replica = open_with(&place, &fuse);
    fuse.arm(5);
    let error = replica.expand(80 * 4096, NOW).unwrap_err();
    assert_eq!(error.code, ExpandCode::RollbackFailed);
    assert!(error.rollback.is_some());
    let error = replica.expand(4096, NOW).unwrap_err();
    assert_eq!(error.code, ExpandCode::FailedWithoutRollback);
    assert!(replica.expand(40 * 4096, NOW).is_ok(), "the same size is fine");
    assert!(replica.expand(40 * 4096 + 512, NOW).is_err());
}
