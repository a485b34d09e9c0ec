use super::super::name;
use super::super::snapshot::{Kind, Latest, Layout, sort};
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn full(last: i64, second: i64) -> Snapshot {
    Snapshot::full(last, at(second), None, false)
}

fn begin(second: i64, there: &[Snapshot]) -> History {
    History::begin(new_id(), "restored".to_owned(), at(second), there)
}

fn numbered(histories: &Histories, mut all: Vec<Snapshot>) -> Vec<Snapshot> {
    for snapshot in &mut all {
        snapshot.history = histories.number_of(snapshot);
    }
    sort(&mut all);
    all
}

/// Also what bears the very second, and what says a time that has not come.
#[test]
fn what_was_there_before_is_of_the_history_before() {
    let there = vec![full(90, 10), Snapshot::delta(91, 100, at(20), None), full(999, 5000)];
    let histories = Histories::of(vec![begin(20, &there)]);
    let mut all = there.clone();
    all.extend([full(30, 20), Snapshot::delta(31, 33, at(40), None)]);
    let all = numbered(&histories, all);
    let seen: Vec<(usize, i64)> = all.iter().map(|it| (it.history, it.last_revision)).collect();
    assert_eq!(seen, [(0, 90), (0, 100), (0, 999), (1, 30), (1, 33)]);
    let latest = Latest::of(&all);
    assert_eq!(latest.full.unwrap().last_revision, 30);
    assert_eq!(latest.deltas.len(), 1);
}

/// A history is written down before its first snapshot; killed in between, nothing is hidden.
#[test]
fn a_history_without_a_snapshot_hides_nothing() {
    let there = vec![full(90, 10), Snapshot::delta(91, 100, at(20), None)];
    let histories = Histories::of(vec![begin(30, &there)]);
    let latest = Latest::of(&numbered(&histories, there.clone()));
    assert_eq!((latest.full.unwrap().last_revision, latest.deltas.len()), (90, 1));
    let later = Histories::of(vec![begin(30, &there), begin(40, &there)]);
    let empty: Vec<&History> = later.empty(&there).collect();
    assert_eq!(empty, [later.iter().next().unwrap()], "the newest may still begin");
}

/// The deltas of a history without its full snapshot do not take that of another.
#[test]
fn a_set_never_reaches_over_the_edge_of_a_history() {
    let there = vec![full(90, 10)];
    let histories = Histories::of(vec![begin(20, &there)]);
    let mut all = there;
    all.push(Snapshot::delta(31, 33, at(40), None));
    let latest = Latest::of(&numbered(&histories, all));
    assert_eq!(latest.full, None);
    assert!(latest.deltas.iter().all(|delta| delta.kind == Kind::Incr && delta.history == 1));
}

#[test]
fn its_object_is_read_as_it_was_written_and_is_no_snapshot_to_anybody() {
    let history = begin(20, &[full(90, 20)]);
    let bytes = serde_json::to_vec(&history).unwrap();
    assert_eq!(History::read(&bytes), Some(history.clone()));
    assert_eq!(History::read(b"{}"), None);
    assert!(name::parse(Layout::V2, &history.name()).is_err());
    for marker in ["v1", "v2"] {
        assert!(!format!("{FOLDER}/{}", history.name()).contains(marker));
    }
}
