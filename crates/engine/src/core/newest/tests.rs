use wire::membership::{Claim, Standing};

use super::super::start::{Layer, NoBackend, Plan, StartRules, choose};
use super::*;

const GIB: i64 = 1 << 30;

fn layer(name: &str, kept: bool) -> Layer {
    Layer { name: name.to_owned(), kept }
}

fn record(serial: u64, members: &[&str]) -> Record {
    let members = members.iter().map(|member| (*member).to_owned()).collect();
    Record { serial, generation: 1, members, reader: None }
}

/// A copy of our kind, closed well, with this record.
fn copy(id: &str, record: Option<Record>) -> Found {
    let claim = Claim { generation: 9, engine: "e".into() };
    let standing = Standing { id: id.into(), claim, record, ..Standing::default() };
    Found { standing: Some(standing), ..other_kind(id, 1) }
}

fn other_kind(address: &str, counter: i64) -> Found {
    Found {
        size_bytes: GIB,
        sector_size: 512,
        usable: true,
        state: "open".into(),
        counter: Some(counter),
        head_modified_ns: 0,
        head_allocated_bytes: 0,
        unclean: false,
        address: address.into(),
        standing: None,
        layers: vec![],
    }
}

fn rules() -> StartRules {
    StartRules {
        size_bytes: GIB,
        current_size_bytes: 0,
        upgrade: false,
        revision_counter: true,
        salvage: false,
    }
}

fn start(copies: Vec<Found>) -> Plan {
    let seen: Vec<Seen> = copies.into_iter().map(Seen::Opened).collect();
    choose(&seen, &rules()).unwrap()
}

fn kept(plan: &Plan) -> Vec<bool> {
    plan.verdicts.iter().map(Result::is_ok).collect()
}

fn away() -> Seen {
    Seen::Unreachable("c: connection refused".into())
}

/// Hazard: an engine killed under load costs redundancy.
#[test]
fn copies_of_one_record_are_all_taken_whatever_they_counted() {
    let counted = |id, counter| Found {
        counter: Some(counter),
        unclean: true,
        ..copy(id, Some(record(3, &["a", "b"])))
    };
    let plan = start(vec![counted("a", 7), counted("b", 9)]);
    assert_eq!((kept(&plan), plan.reader, plan.serial), (vec![true, true], Some(0), 3));
}

/// Hazard: with counters off the newest head decided, by clocks that lie.
#[test]
fn a_copy_that_was_left_behind_is_refused_however_new_its_head_looks() {
    let off = |found: Found, modified| Found { counter: None, head_modified_ns: modified, ..found };
    let stale = off(copy("b", Some(record(2, &["a", "b"]))), i64::MAX);
    let good = off(copy("a", Some(record(3, &["a"]))), 0);
    for salvage in [false, true] {
        let rules = StartRules { revision_counter: false, salvage, ..rules() };
        let seen = [Seen::Opened(stale.clone()), Seen::Opened(good.clone())];
        let plan = choose(&seen, &rules).unwrap();
        assert_eq!((kept(&plan), plan.reader), (vec![false, true], None));
    }
}

/// Hazard: a stale subset starts alone when the good replicas are unreachable.
#[test]
fn a_subset_does_not_start_while_the_rest_may_exist() {
    let copies = || Seen::Opened(copy("a", Some(record(2, &["a", "b", "c"]))));
    let both = [copies(), Seen::Opened(copy("b", Some(record(2, &["a", "b", "c"])))), away()];
    let Err(NoBackend::Unavailable(why)) = choose(&both, &rules()) else { panic!("it started") };
    assert!(why.starts_with("1 of the 3 replicas"), "{why}");
    let salvage = StartRules { salvage: true, ..rules() };
    assert_eq!(kept(&choose(&both, &salvage).unwrap()), [true, true, false]);
    assert!(choose(&both[..2], &rules()).is_ok(), "whoever leaves it out gave it up");
    let known = [Seen::Opened(copy("a", Some(record(2, &["a"])))), away()];
    assert!(choose(&known, &rules()).is_ok(), "nobody is missing");
    let bad = Seen::Failed {
        why: "damaged".into(),
        standing: copy("c", Some(record(2, &["a", "b", "c"]))).standing.map(Box::new),
    };
    let seen = [both[0].clone(), both[1].clone(), bad];
    assert_eq!(kept(&choose(&seen, &rules()).unwrap()), [true, true, false]);
}

/// Hazard: one whose disk hangs, or whose notes are damaged, may be the one that went on alone.
#[test]
fn one_that_answers_and_does_not_say_what_it_holds_is_not_left_behind() {
    let old = copy("a", Some(record(2, &["a", "b"])));
    let seen = [Seen::Opened(old), Seen::Failed { why: "timed out".into(), standing: None }];
    let refused = choose(&seen, &rules()).unwrap_err();
    assert!(
        matches!(&refused, NoBackend::Unavailable(why) if why.contains("timed out")),
        "{refused}"
    );
    assert!(choose(&seen, &StartRules { salvage: true, ..rules() }).is_ok());
}

/// Hazard: a copy that was given up had counted further than those that went on.
#[test]
fn the_later_generation_wins_over_the_larger_serial() {
    let went_on = Record { generation: 3, ..record(5, &["a"]) };
    let given_up = Record { generation: 2, ..record(9, &["b"]) };
    let seen = [copy("a", Some(went_on)), copy("b", Some(given_up))];
    assert_eq!(kept(&start(seen.to_vec())), [true, false]);
    assert_eq!(kept(&start(seen.into_iter().rev().collect())), [false, true]);
}

/// Hazard: after a partition the larger counter won, not the later data.
#[test]
fn the_later_record_wins_over_the_larger_counter() {
    let busy = Found { counter: Some(1000), ..copy("a", Some(record(4, &["a", "b"]))) };
    let later = Found { counter: Some(10), ..copy("b", Some(record(5, &["b"]))) };
    assert_eq!(kept(&start(vec![busy, later])), [false, true]);
}

/// Hazard: the choice of the copy to mend from is not durable.
#[test]
fn mending_goes_on_from_the_copy_that_was_recorded() {
    let reading = |id| {
        let record = Record { reader: Some("b".into()), ..record(3, &["a", "b"]) };
        copy(id, Some(record))
    };
    let plan = start(vec![reading("a"), reading("b")]);
    assert_eq!(plan.reader, Some(1), "though all were closed since");
    let plan = start(vec![reading("a")]);
    assert_eq!((kept(&plan), plan.reader), (vec![true], None));
}

#[test]
fn an_engine_without_records_in_between_makes_counters_decide() {
    let old = Found { counter: Some(5), ..copy("a", Some(record(3, &["a", "b"]))) };
    let used = Found { counter: Some(6), ..copy("b", None) };
    assert_eq!(kept(&start(vec![old.clone(), used])), [false, true]);
    let new = copy("z", None);
    assert_eq!(kept(&start(vec![old, new])), [true, false], "one that never belonged");
}

#[test]
fn in_mixed_sets_both_must_be_good() {
    let members = ["a", "tcp://x"];
    let ours = |counter| Found { counter: Some(counter), ..copy("a", Some(record(3, &members))) };
    assert_eq!(kept(&start(vec![ours(5), other_kind("tcp://x", 5)])), [true, true]);
    assert_eq!(kept(&start(vec![ours(5), other_kind("tcp://x", 4)])), [true, false]);
    assert_eq!(kept(&start(vec![ours(5), other_kind("tcp://y", 5)])), [true, false]);
}

#[test]
fn a_copy_that_was_to_be_filled_is_none_unless_it_is_all_there_is_to_salvage() {
    let mut half = copy("a", None);
    half.standing = half.standing.map(|it| Standing { filling: Filling::Wanted, ..it });
    let seen = [Seen::Opened(half)];
    assert!(choose(&seen, &rules()).is_err());
    assert!(choose(&seen, &StartRules { salvage: true, ..rules() }).is_ok());
}

/// Hazard: a revert, then a crash, leaves copies different and calls them equal.
#[test]
fn copies_with_other_snapshots_than_most_are_refused() {
    let with = |id, names: &[&str]| Found {
        layers: names.iter().map(|name| layer(name, true)).collect(),
        unclean: true,
        ..copy(id, Some(record(3, &["a", "b", "c"])))
    };
    let plan = start(vec![with("a", &["t", "s"]), with("b", &["s"]), with("c", &["s"])]);
    assert_eq!((kept(&plan), plan.reader), (vec![false, true, true], Some(1)));
    assert_eq!(plan.base.as_deref(), Some("s"));
    let plan = start(vec![with("a", &["t", "s"]), with("b", &["s"])]);
    assert_eq!(kept(&plan), [true, false], "of equals the first");
}

#[test]
fn what_purges_leave_behind_is_no_difference_but_widens_the_mending() {
    let with = |id, layers: Vec<Layer>| Found {
        layers,
        unclean: true,
        ..copy(id, Some(record(3, &["a", "b"])))
    };
    let (system, gone) = (layer("system", false), layer("gone", false));
    let plan = start(vec![
        with("a", vec![system, layer("s", true), gone]),
        with("b", vec![layer("s", true)]),
    ]);
    assert_eq!((kept(&plan), plan.base.as_deref()), (vec![true, true], Some("s")));
    // Marked at one copy only: what it shows may change there.
    let plan = start(vec![with("a", vec![layer("s", false)]), with("b", vec![layer("s", true)])]);
    assert_eq!((kept(&plan), plan.base), (vec![true, true], None));
}

/// Hazard: a live upgrade takes a copy that the old engine had lost.
#[test]
fn an_upgrade_passes_over_what_the_records_do_not_name_before_the_first_claim() {
    let good = copy("a", Some(record(3, &["a"])));
    let lost = copy("b", Some(record(2, &["a", "b"])));
    let mut filling = copy("c", None);
    filling.standing.as_mut().unwrap().filling = Filling::Wanted;
    let seen = [lost, filling, good].map(Seen::Opened);
    let passed: Vec<bool> =
        passed_over(&seen, false).unwrap().iter().map(Option::is_some).collect();
    assert_eq!(passed, [true, true, false]);
    let before = [Seen::Opened(copy("a", Some(record(3, &["a", "b"])))), away()];
    assert!(matches!(passed_over(&before, false), Err(NoBackend::Unavailable(_))));
    assert_eq!(passed_over(&before, true).unwrap(), [None, None]);
    let without = [Seen::Opened(other_kind("a", 1)), away()];
    assert_eq!(passed_over(&without, false).unwrap(), [None, None], "no records, no verdict");
}

/// Hazard: while an upgrade claims one copy after the other, the old engine goes on with the rest.
#[test]
fn an_upgrade_mends_from_a_copy_that_the_last_record_of_the_old_engine_names() {
    let upgrade = StartRules { upgrade: true, ..rules() };
    let first = copy("a", Some(record(3, &["a", "b"])));
    let last = copy("b", Some(record(4, &["b"])));
    let plan = choose(&[first.clone(), last].map(Seen::Opened), &upgrade).unwrap();
    assert_eq!((kept(&plan), plan.reader), (vec![true, true], Some(1)));
    let both = [first, copy("b", Some(record(3, &["a", "b"])))];
    let plan = choose(&both.map(Seen::Opened), &upgrade).unwrap();
    assert_eq!((kept(&plan), plan.reader), (vec![true, true], Some(0)), "in flight, perhaps");
    let mended = Record { reader: Some("b".into()), ..record(4, &["a", "b"]) };
    let two = [copy("a", Some(mended.clone())), copy("b", Some(mended))];
    let plan = choose(&two.map(Seen::Opened), &upgrade).unwrap();
    assert_eq!(plan.reader, Some(1), "it goes on with what was being mended");
}
