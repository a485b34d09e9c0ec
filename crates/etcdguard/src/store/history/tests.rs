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
}

/// An etcd that begins anew again and again leaves beginnings that never hold anything.
#[test]
fn what_never_held_anything_is_forgotten_once_nobody_will_fill_it() {
    let later = Histories::of((3..9).map(|number| begin(10 * number, &[])).collect());
    let all: BTreeSet<String> = later.iter().map(|history| history.id.clone()).collect();
    let left = [full(9, 45)];
    let kept = |settled: &BTreeSet<String>| -> Vec<i64> {
        let emptied = later.emptied(&[], &left, settled);
        let kept = later.iter().filter(|history| !emptied.contains(history));
        kept.map(|history| history.since.as_second()).collect()
    };
    assert_eq!(kept(&all), [40, 80]);
    assert_eq!(kept(&BTreeSet::new()), [30, 40, 50, 60, 70, 80]);
}

#[test]
fn only_what_held_something_is_emptied_and_never_the_newest() {
    let later = Histories::of(vec![begin(30, &[]), begin(40, &[]), begin(50, &[])]);
    let gone = [full(9, 35), full(9, 55)];
    assert_eq!(later.emptied(&gone, &[], &BTreeSet::new()), [later.iter().next().unwrap()]);
    assert_eq!(later.emptied(&gone, &[full(8, 34)], &BTreeSet::new()), Vec::<&History>::new());
}

/// The end of time included.
#[test]
fn what_begins_is_after_all_that_began() {
    for ahead in [10, 5000, Timestamp::MAX.as_second()] {
        let there = Histories::of(vec![begin(ahead, &[])]);
        let next = there.after_all(at(20));
        assert!(next >= at(20) && (next > at(ahead) || next == at(Timestamp::MAX.as_second())));
    }
    assert_eq!(Histories::default().after_all(at(20)), at(20));
}

#[test]
fn more_late_names_than_can_be_listed_are_still_earlier() {
    let there: Vec<Snapshot> = (0..5000).map(|late| full(90 + late, 100 + late)).collect();
    let histories = Histories::of(vec![begin(20, &there)]);
    assert!(there.iter().all(|it| histories.number_of(it) == 0));
    let since = histories.newest().unwrap().since;
    assert_eq!(histories.number_of(&full(2, since.as_second())), 1);
}

#[test]
fn there_is_a_time_in_every_history() {
    let histories = Histories::of(vec![begin(100, &[]), begin(200, &[])]);
    for (number, now) in [(0, 50), (0, 150), (1, 50), (1, 150), (1, 250), (2, 50), (2, 250)] {
        let time = histories.time_in(number, at(now));
        let made = Snapshot::full(5, time, None, false);
        assert_eq!(histories.number_of(&made), number, "{number} at {now}");
    }
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
    let named = History::named(&history.name()).unwrap();
    assert_eq!(named.told(&bytes), Some(history.clone()));
    assert_eq!((named.told(b"{}"), named.since, &named.id), (None, at(20), &history.id));
    for name in ["", "20-0a.json", "000000000020-.json", "000000000020-a/b.json", "x-0a.json"] {
        assert_eq!(History::named(name), None, "{name}");
    }
    assert!(name::parse(Layout::V2, &history.name()).is_err());
    for marker in ["v1", "v2"] {
        assert!(!format!("{FOLDER}/{}", history.name()).contains(marker));
    }
}
