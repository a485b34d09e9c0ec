use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::store::name;
use crate::store::snapshot::{Latest, Layout, sort};

/// A Wednesday, at 13:20.
const NOW: i64 = 1_700_006_400 + 13 * HOUR_SECONDS + 20 * 60;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn full(revision: i64, second: i64) -> Snapshot {
    Snapshot::full(revision, at(second), None, false)
}

fn delta(revision: i64, second: i64) -> Snapshot {
    Snapshot::delta(revision, revision, at(second), None)
}

fn plan(policy: Policy) -> Plan {
    Plan { policy, delta_retention: Duration::ZERO }
}

fn newest_full(snapshots: &[Snapshot]) -> Option<&Snapshot> {
    snapshots.iter().rev().find(|it| it.kind == Kind::Full && !it.is_chunk)
}

fn gone(snapshots: &[Snapshot], plan: &Plan) -> Vec<i64> {
    decide(snapshots, newest_full(snapshots), plan, Keep::Nothing, at(NOW))
        .iter()
        .map(|it| it.snapshot.last_revision)
        .collect()
}

#[test]
fn a_number_of_full_snapshots_stays_and_the_newest_stream_whole() {
    let list = [
        full(1, 10),
        delta(2, 11),
        full(3, 20),
        delta(4, 21),
        full(5, 30),
        delta(6, 31),
        delta(7, 32),
    ];
    let limit = |max_backups| plan(Policy::LimitBased { max_backups });
    assert_eq!(gone(&list, &limit(9)), [2, 4]);
    assert_eq!(gone(&list, &limit(2)), [2, 1, 4]);
    assert_eq!(gone(&list, &limit(1)), [2, 1, 4, 3]);
    assert_eq!(gone(&list, &limit(0)), [2, 1, 4, 3], "the newest is never touched");
}

#[test]
fn deltas_stay_for_their_retention_also_without_their_full_snapshot() {
    let list = [full(1, NOW - 100), delta(2, NOW - 90), delta(3, NOW - 10), full(4, NOW - 5)];
    let plan = Plan {
        delta_retention: Duration::from_mins(1),
        ..plan(Policy::LimitBased { max_backups: 1 })
    };
    assert_eq!(gone(&list, &plan), [2, 1]);
}

#[test]
fn deltas_without_any_full_snapshot_stay() {
    let list = [delta(1, 10), delta(2, 11)];
    assert_eq!(gone(&list, &plan(Policy::LimitBased { max_backups: 1 })), [0; 0]);
    assert_eq!(gone(&list, &plan(Policy::Exponential)), [0; 0]);
}

#[test]
fn what_the_store_protects_is_left() {
    let mut locked = full(1, 10);
    locked.immutable_until = Some(at(NOW + 1));
    let list = [locked.clone(), full(2, 11), full(3, 12)];
    let limit = plan(Policy::LimitBased { max_backups: 1 });
    assert_eq!(gone(&list, &limit), [2]);
    locked.immutable_until = Some(at(NOW - 1));
    assert_eq!(gone(&[locked, full(2, 11), full(3, 12)], &limit), [1, 2]);
}

/// Between the two listings another guard forgot an older history, and a lock was made longer. By names
/// alone the junk at the end would be what stays.
#[test]
fn what_is_good_is_known_again_whatever_else_is_told_of_it() {
    let list = [full(1, 10), full(2, 20), full(900, 30)];
    let limit = plan(Policy::LimitBased { max_backups: 1 });
    let mut good = list[1].clone();
    good.history = 3;
    good.immutable_until = Some(at(NOW + 1));
    good.stored_at = Some(at(25));
    let deletes = decide(&list, Some(&good), &limit, Keep::Nothing, at(NOW));
    let gone: Vec<i64> = deletes.iter().map(|it| it.snapshot.last_revision).collect();
    assert_eq!(gone, [1]);
}

#[test]
fn chunks_go_with_their_object_or_when_nobody_finishes_them() {
    let chunk = |second: i64| {
        let name = full(9, second).snap_name;
        name::parse(Layout::V2, &format!("{name}/0000000001")).unwrap()
    };
    let mut list =
        vec![full(9, NOW - 50), chunk(NOW - 50), chunk(NOW - 40), chunk(NOW - 2 * DAY_SECONDS)];
    sort(&mut list);
    let seconds = |keep| {
        let plan = plan(Policy::LimitBased { max_backups: 7 });
        let deletes = decide(&list, newest_full(&list), &plan, keep, at(NOW));
        let mut seconds: Vec<i64> =
            deletes.iter().map(|it| NOW - it.snapshot.created_on.as_second()).collect();
        seconds.sort_unstable();
        seconds
    };
    assert_eq!(seconds(Keep::Nothing), [50, 2 * DAY_SECONDS], "one that is being sent stays");
    assert_eq!(seconds(Keep::Chunks), [2 * DAY_SECONDS], "they are the data of their object");
}

/// What is kept, said by groups: the newest of each hour of today, of each of the seven days
/// before, of each of the four weeks before those; all of this hour; and the newest of all.
fn survivors(seconds: &[i64]) -> Vec<i64> {
    let midnight = (NOW / DAY_SECONDS + 1) * DAY_SECONDS - 1;
    let this_hour = NOW / HOUR_SECONDS;
    let has_weeks = seconds
        .iter()
        .rev()
        .skip(1)
        .any(|it| (8 * DAY_SECONDS..35 * DAY_SECONDS).contains(&(midnight - it)));
    let weeks_from = if has_weeks { midnight - DAY_SECONDS } else { midnight };
    let mut groups: BTreeMap<(u8, i64), i64> = BTreeMap::new();
    for (place, second) in seconds.iter().enumerate() {
        let age = midnight - second;
        let group = if age < DAY_SECONDS {
            if second / HOUR_SECONDS == this_hour {
                (0, i64::try_from(place).unwrap())
            } else {
                (1, age / HOUR_SECONDS)
            }
        } else if age < 8 * DAY_SECONDS {
            (2, age / DAY_SECONDS)
        } else if weeks_from - second < 35 * DAY_SECONDS {
            (3, (weeks_from - second) / WEEK_SECONDS)
        } else {
            continue;
        };
        // From the oldest to the newest, so the last one stays.
        groups.insert(group, *second);
    }
    let mut kept: Vec<i64> = groups.into_values().chain(seconds.last().copied()).collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

#[test]
fn a_year_of_hourly_snapshots_comes_down_to_hours_days_and_weeks() {
    let seconds: Vec<i64> = (0..365 * 24).rev().map(|hour| NOW - hour * HOUR_SECONDS).collect();
    let list: Vec<Snapshot> =
        seconds.iter().zip(1..).map(|(second, revision)| full(revision, *second)).collect();
    let removed =
        decide(&list, newest_full(&list), &plan(Policy::Exponential), Keep::Nothing, at(NOW));
    // 14 hours of today, 7 days, 4 weeks.
    assert_eq!(list.len() - removed.len(), 14 + 7 + 4);
}

proptest! {
    #[test]
    fn snapshots_thin_out_with_age(
        ages in prop::collection::btree_set(0_i64..40 * DAY_SECONDS, 0..300),
        recent in prop::collection::btree_set(0_i64..2 * DAY_SECONDS, 0..60),
    ) {
        let mut seconds: Vec<i64> = ages.union(&recent).map(|age| NOW - age).collect();
        seconds.sort_unstable();
        let list: Vec<Snapshot> =
            seconds.iter().zip(1..).map(|(second, revision)| full(revision, *second)).collect();
        let removed: Vec<i64> = decide(&list, newest_full(&list), &plan(Policy::Exponential), Keep::Nothing, at(NOW))
            .iter()
            .map(|it| it.snapshot.created_on.as_second())
            .collect();
        let kept: Vec<i64> = seconds.iter().copied().filter(|it| !removed.contains(it)).collect();
        prop_assert_eq!(kept, survivors(&seconds));
    }

    #[test]
    fn a_restore_loses_nothing_by_a_collection(
        kinds in prop::collection::vec((any::<bool>(), 0_i64..60 * DAY_SECONDS), 1..60),
        max_backups in 0_u32..5,
        by_age in any::<bool>(),
    ) {
        let mut list: Vec<Snapshot> = kinds
            .iter()
            .zip(1..)
            .map(|((is_full, age), revision)| {
                if *is_full { full(revision, NOW - age) } else { delta(revision, NOW - age) }
            })
            .collect();
        sort(&mut list);
        let policy =
            if by_age { Policy::Exponential } else { Policy::LimitBased { max_backups } };
        let removed = decide(&list, newest_full(&list), &plan(policy), Keep::Nothing, at(NOW));
        let left: Vec<Snapshot> = list
            .iter()
            .filter(|it| !removed.iter().any(|delete| delete.snapshot == **it))
            .cloned()
            .collect();
        if Latest::of(&list).full.is_some() {
            prop_assert_eq!(Latest::of(&left), Latest::of(&list));
        }
    }
}

#[test]
fn what_is_no_backup_does_not_push_one_out() {
    let mut list = vec![full(5, 30), delta(6, 31), delta(7, 32)];
    let junk: Vec<Snapshot> = (1..=9).map(|it| full(9000 + it, 100 + it)).collect();
    list.extend(junk);
    let limit = plan(Policy::LimitBased { max_backups: 1 });
    for policy in [limit, plan(Policy::Exponential)] {
        let deletes = decide(&list, list.first(), &policy, Keep::Nothing, at(NOW));
        assert_eq!(deletes, [], "the backup and what follows it");
    }
    let by_name = decide(&list, None, &limit, Keep::Nothing, at(NOW));
    assert_eq!(by_name.len(), list.len() - 1, "with nothing to lose the policy is as ever");
}

/// The end of an earlier history is in no later full snapshot: it goes as a whole, by the policy.
#[test]
fn an_earlier_history_goes_by_policy_and_the_newest_however_low_its_revisions_stays() {
    let later = |mut snapshot: Snapshot| {
        snapshot.history = 1;
        snapshot
    };
    let mut list = vec![full(50, 10), delta(51, 11), full(60, 20), delta(61, 21), delta(62, 22)];
    list.extend([full(10, 30), delta(11, 31)].map(later));
    sort(&mut list);
    let limit = |max_backups| plan(Policy::LimitBased { max_backups });
    assert_eq!(gone(&list, &limit(3)), [51]);
    assert_eq!(gone(&list, &limit(2)), [51, 50]);
    assert_eq!(gone(&list, &limit(1)), [51, 50, 61, 62, 60]);
}

fn stored(snapshot: Snapshot, second: i64) -> Snapshot {
    Snapshot { stored_at: Some(at(second)), ..snapshot }
}

/// A history that began by a clock a month ahead: every name says the second at which it began.
/// The store knows better when each was made.
#[test]
fn snapshots_of_a_clock_that_was_ahead_thin_out_by_the_time_they_came() {
    let ahead = NOW + 30 * DAY_SECONDS;
    let seconds = (0..30 * 24).rev().map(|hour| NOW - hour * HOUR_SECONDS).zip(1..);
    let right: Vec<Snapshot> =
        seconds.clone().map(|(second, revision)| full(revision, second)).collect();
    let late: Vec<Snapshot> =
        seconds.map(|(second, revision)| stored(full(revision, ahead), second)).collect();
    let by_age = plan(Policy::Exponential);
    assert_eq!(gone(&late, &by_age), gone(&right, &by_age));
    let come = |list: &[Snapshot]| {
        decide(list, list.last(), &by_age, Keep::Nothing, at(NOW + DAY_SECONDS)).len()
    };
    let later = decide(&late, late.last(), &by_age, Keep::Nothing, at(ahead + 1));
    assert_eq!(later.len(), come(&right), "also once that time has come");
}

/// The clock of the collector is a year ahead, and the store's is not.
#[test]
fn a_clock_that_is_ahead_makes_nothing_old() {
    let list: Vec<Snapshot> = (0..28)
        .rev()
        .map(|day| NOW - day * DAY_SECONDS)
        .zip(1..)
        .map(|(second, revision)| stored(full(revision, second), second + 5))
        .chain([stored(delta(49, NOW + 365 * DAY_SECONDS), NOW)])
        .collect();
    for policy in [Policy::Exponential, Policy::LimitBased { max_backups: 7 }] {
        let plan = Plan { delta_retention: Duration::from_hours(1), ..plan(policy) };
        let good = newest_full(&list);
        let ahead = at(NOW + 365 * DAY_SECONDS);
        let expected = decide(&list, good, &plan, Keep::Nothing, at(NOW + 5 + DAY_SECONDS));
        assert_eq!(decide(&list, good, &plan, Keep::Nothing, ahead), expected);
        assert!(list.len() - expected.len() >= 7, "{policy:?}: {expected:?}");
    }
}

/// One that a copy brought came long after it was made: the name is right.
#[test]
fn what_was_copied_is_as_old_as_its_name_says() {
    let list = [(1, 40), (2, 36), (3, 1)]
        .map(|(revision, days)| stored(full(revision, NOW - days * DAY_SECONDS), NOW));
    assert_eq!(gone(&list, &plan(Policy::Exponential)), [1, 2]);
}
