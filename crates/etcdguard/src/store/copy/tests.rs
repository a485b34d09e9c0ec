use jiff::Timestamp;

use super::*;
use crate::store::snapshot::{Snapshot, sort};

const DAY_SECONDS: i64 = 24 * 60 * 60;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn list() -> Vec<Snapshot> {
    let full = |last, day, is_final| Snapshot::full(last, at(day * DAY_SECONDS), None, is_final);
    let delta =
        |start, last, day: i64| Snapshot::delta(start, last, at(day * DAY_SECONDS + 1), None);
    let mut list = vec![
        delta(1, 2, 1),
        full(3, 2, false),
        delta(4, 5, 3),
        full(5, 4, false),
        delta(6, 7, 5),
        full(9, 6, true),
    ];
    sort(&mut list);
    list
}

fn revisions(source: &[Snapshot], destination: &[Snapshot], selection: Selection) -> Vec<i64> {
    let now = at(7 * DAY_SECONDS);
    let selected = select(source, destination, selection, now);
    selected.iter().map(|snapshot| snapshot.last_revision).collect()
}

#[test]
fn backups_are_chosen_whole_from_the_newest() {
    let list = list();
    let all = Selection::default();
    assert_eq!(revisions(&list, &[], all), [9, 5, 7, 3, 5]);
    assert_eq!(revisions(&list, &[], Selection { max_backups: Some(2), ..all }), [9, 5, 7]);
    assert_eq!(revisions(&list, &[], Selection { max_backups: Some(0), ..all }), [0; 0]);
    assert_eq!(revisions(&list, &[], Selection { max_age_days: Some(3), ..all }), [9, 5, 7]);
    assert_eq!(revisions(&list, &[], Selection { max_age_days: Some(0), ..all }), [0; 0]);
}

#[test]
fn what_is_there_is_left_out_whatever_its_mark() {
    let list = list();
    let mut there: Vec<Snapshot> = list.iter().map(select::copied_name).collect();
    assert!(there.iter().all(|snapshot| !snapshot.is_final));
    assert_eq!(revisions(&list, &there, Selection::default()), [0; 0]);
    there.retain(|snapshot| snapshot.last_revision != 7);
    assert_eq!(revisions(&list, &there, Selection::default()), [7]);
}

#[test]
fn the_end_of_a_source_is_among_its_newest_full_snapshots() {
    let mut list = list();
    assert!(has_recent_final(&list));
    for last in 10..13 {
        list.push(Snapshot::full(last, at(last * DAY_SECONDS), None, false));
    }
    assert!(has_recent_final(&list));
    list.push(Snapshot::full(14, at(14 * DAY_SECONDS), None, false));
    assert!(!has_recent_final(&list));
}

/// The clock of the earlier history was ahead: the newest backup is still that of the newest one.
#[test]
fn the_newest_history_comes_first_whatever_its_times() {
    let mut late = Snapshot::full(3, at(2 * DAY_SECONDS), None, false);
    late.history = 1;
    let earlier = Snapshot::full(90, at(6 * DAY_SECONDS), None, false);
    let one = Selection { max_backups: Some(1), ..Selection::default() };
    assert_eq!(revisions(&[earlier, late], &[], one), [3]);
}
