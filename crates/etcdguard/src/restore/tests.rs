//! Plans for every target.

use super::*;
use crate::store::Snapshot;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn full(last: i64, second: i64) -> Snapshot {
    Snapshot::full(last, at(second), None, false)
}

fn delta(start: i64, last: i64, second: i64) -> Snapshot {
    Snapshot::delta(start, last, at(second), None)
}

/// What is taken, as revisions: base, and start and last of each delta.
fn taken(snapshots: &[Snapshot], target: Target) -> (Option<i64>, Vec<(i64, i64)>) {
    let mut sorted = snapshots.to_vec();
    crate::store::snapshot::sort(&mut sorted);
    let plan = plan(&sorted, target).unwrap();
    let deltas = plan.deltas.iter().map(|it| (it.start_revision, it.last_revision)).collect();
    (plan.base.map(|base| base.last_revision), deltas)
}

fn set() -> Vec<Snapshot> {
    vec![
        full(10, 10),
        delta(11, 20, 20),
        delta(21, 30, 30),
        full(30, 31),
        delta(31, 40, 40),
        // What came between 40 and 50 only the full snapshot has.
        full(50, 50),
        delta(51, 60, 60),
        delta(55, 70, 61),
    ]
}

#[test]
fn each_target_takes_what_it_needs() {
    type Case = (Target, i64, &'static [(i64, i64)]);
    let cases: &[Case] = &[
        (Target::Newest, 50, &[(51, 60), (55, 70)]),
        (Target::Revision(10), 10, &[]),
        (Target::Revision(25), 10, &[(11, 20), (21, 30)]),
        (Target::Revision(30), 30, &[]),
        (Target::Revision(40), 30, &[(31, 40)]),
        (Target::Revision(45), 50, &[]),
        (Target::Revision(5), 10, &[]),
        (Target::Revision(52), 50, &[(51, 60)]),
        (Target::Revision(70), 50, &[(51, 60), (55, 70)]),
        (Target::Time(at(10)), 10, &[(11, 20), (21, 30)]),
        (Target::Time(at(25)), 10, &[(11, 20), (21, 30), (31, 40)]),
        (Target::Time(at(45)), 30, &[(31, 40)]),
        (Target::Time(at(60)), 50, &[(51, 60), (55, 70)]),
        (Target::Time(at(999)), 50, &[(51, 60), (55, 70)]),
    ];
    for (target, base, deltas) in cases {
        assert_eq!(taken(&set(), *target), (Some(*base), deltas.to_vec()), "{target:?}");
    }
}

#[test]
fn what_is_not_there_is_said() {
    let of = |snapshots: &[Snapshot], target| plan(snapshots, target).unwrap_err();
    assert_eq!(of(&[], Target::Newest), PlanError::Empty);
    let mut all = set();
    crate::store::snapshot::sort(&mut all);
    let beyond = PlanError::Beyond { asked: 71, newest: 70 };
    assert_eq!(of(&all, Target::Revision(71)), beyond);
    let early = PlanError::TooEarly { asked: at(9), oldest: at(10) };
    assert_eq!(of(&all, Target::Time(at(9))), early);
    let before = PlanError::Before { asked: 5, oldest: 11 };
    assert_eq!(of(&[delta(11, 20, 0)], Target::Revision(5)), before);
}

#[test]
fn gaps_are_seen_from_where_the_database_stands() {
    let snapshots = [full(10, 0), delta(13, 20, 1), delta(14, 16, 2), delta(22, 25, 3)];
    let plan = plan(&snapshots, Target::Newest).unwrap();
    assert_eq!(plan.gap(10), Some(Gap { after: 10, next: 13 }));
    assert_eq!(plan.gap(12), Some(Gap { after: 20, next: 22 }));
    assert_eq!(plan.gap(21), None);
    assert_eq!(plan.last(), 25);
}

#[test]
fn chunks_are_not_snapshots() {
    let chunk = Snapshot { is_chunk: true, ..full(99, 99) };
    assert_eq!(taken(&[full(10, 0), chunk], Target::Newest), (Some(10), vec![]));
}

#[test]
fn a_full_disk_is_told_from_other_failures() {
    use std::io::{Error, ErrorKind};
    for (kind, is_full) in [
        (ErrorKind::StorageFull, true),
        (ErrorKind::QuotaExceeded, true),
        (ErrorKind::PermissionDenied, false),
    ] {
        let written = RestoreError::io("write", "db")(kind.into());
        assert_eq!(written.is_for_want_of_room(), is_full, "{written}");
        let base = RestoreError::BadBase { before: 1, source: Box::new(written) };
        assert_eq!(base.is_for_want_of_room(), is_full, "{base}");
        let source = crate::store::delta::DeltaError::Read(Error::from(kind));
        let delta = RestoreError::Delta { name: String::new(), before: None, source };
        assert_eq!(delta.is_for_want_of_room(), is_full, "{delta}");
    }
}
