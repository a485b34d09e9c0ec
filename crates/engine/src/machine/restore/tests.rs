use super::*;

const ONE: ReplicaId = ReplicaId(1);
const TWO: ReplicaId = ReplicaId(2);
const HEAD: &str = "volume-head-000.img";
const DISK: &str = "volume-snap-fresh.img";

fn wanted() -> Wanted {
    Wanted {
        backup: "b1".into(),
        backup_volume: "from".into(),
        backup_bytes: 4096,
        volume: "vol".into(),
        volume_bytes: 4096,
        fresh_disk: DISK.into(),
    }
}

fn asked(id: ReplicaId, mode: Mode) -> Asked {
    Asked { id, mode, address: format!("r{}", id.0) }
}

fn empty(id: ReplicaId) -> View {
    View {
        identity: Some(format!("id-{}", id.0)),
        head: HEAD.into(),
        disks: vec![HEAD.into()],
        ..View::default()
    }
}

fn holds(backup: &str) -> Restored {
    Restored { last: backup.into(), ..Restored::default() }
}

fn left(id: ReplicaId, message: &str) -> Left {
    Left { address: format!("r{}", id.0), message: message.into() }
}

/// Two copies that were looked at, and what follows.
fn looked(views: [View; 2]) -> (Restore, Vec<Step>) {
    let members = vec![asked(ONE, Mode::Rw), asked(TWO, Mode::Rw)];
    let (mut machine, first) = Restore::begin(wanted(), members);
    assert_eq!(first, [Step::Look(ONE), Step::Look(TWO)]);
    let [one, two] = views;
    assert_eq!(machine.on(Event::Looked(TWO, Ok(two))), []);
    let steps = machine.on(Event::Looked(ONE, Ok(one)));
    (machine, steps)
}

fn asking() -> Restore {
    let (machine, steps) = looked([empty(ONE), empty(TWO)]);
    let order = Order {
        disk: DISK.into(),
        together: vec![ONE, TWO],
        companions: vec!["id-1".into(), "id-2".into()],
    };
    assert_eq!(steps, [Step::Ask(ONE, order.clone()), Step::Ask(TWO, order)]);
    machine
}

fn end(left: Vec<Left>) -> [Step; 1] {
    [Step::End(Ok(left))]
}

#[test]
fn nobody_is_asked_before_all_were_looked_at_and_it_is_over_when_all_have_begun() {
    let mut machine = asking();
    assert_eq!(machine.on(Event::Answered(ONE, Ok(()))), []);
    assert_eq!(machine.on(Event::Answered(ONE, Ok(()))), [], "the same again");
    assert_eq!(machine.on(Event::Answered(TWO, Ok(()))), [Step::Record]);
    assert_eq!(machine.on(Event::Recorded(Ok(()))), end(vec![]));
}

#[test]
fn who_did_not_begin_while_another_did_is_out_before_anybody_is_told() {
    let mut machine = asking();
    machine.on(Event::Answered(ONE, Ok(())));
    assert_eq!(machine.on(Event::Answered(TWO, Err("full".into()))), [Step::LookAgain(TWO)]);
    let steps = machine.on(Event::LookedAgain(TWO, Ok(Restored::default())));
    assert_eq!(steps, [Step::Fail(TWO, "full".into()), Step::Record]);
    assert_eq!(machine.on(Event::Recorded(Ok(()))), end(vec![left(TWO, "full")]));
}

#[test]
fn one_whose_answer_was_lost_has_begun_if_it_says_so() {
    let mut machine = asking();
    machine.on(Event::Answered(TWO, Err("late".into())));
    let runs = Restored { running: Some("b1".into()), ..Restored::default() };
    assert_eq!(machine.on(Event::LookedAgain(TWO, Ok(runs))), []);
    assert_eq!(machine.on(Event::Answered(ONE, Ok(()))), [Step::Record]);
    let mut machine = asking();
    machine.on(Event::Answered(TWO, Err("late".into())));
    machine.on(Event::LookedAgain(TWO, Err("gone".into())));
    let steps = machine.on(Event::Answered(ONE, Ok(())));
    assert_eq!(steps, [Step::Fail(TWO, "late".into()), Step::Record]);
}

#[test]
fn who_has_it_already_says_so_and_stays() {
    let mut machine = asking();
    machine.on(Event::Answered(ONE, Ok(())));
    machine.on(Event::Answered(TWO, Err("already restored".into())));
    assert_eq!(machine.on(Event::LookedAgain(TWO, Ok(holds("b1")))), [Step::Record]);
    let told = end(vec![left(TWO, "already restored")]);
    assert_eq!(machine.on(Event::Recorded(Ok(()))), told);
}

#[test]
fn where_none_begins_nothing_changes_and_of_those_that_are_silent_one_stays() {
    let mut machine = asking();
    for id in [ONE, TWO] {
        machine.on(Event::Answered(id, Err("no".into())));
    }
    machine.on(Event::LookedAgain(ONE, Ok(Restored::default())));
    let steps = machine.on(Event::LookedAgain(TWO, Ok(holds("b0"))));
    assert_eq!(steps, end(vec![left(ONE, "no"), left(TWO, "no")]));
    let mut machine = asking();
    for id in [ONE, TWO] {
        machine.on(Event::Answered(id, Err("no".into())));
    }
    machine.on(Event::LookedAgain(ONE, Err("gone".into())));
    let steps = machine.on(Event::LookedAgain(TWO, Err("gone".into())));
    assert_eq!(steps, [Step::Fail(TWO, "no".into()), Step::Record]);
    let unrecorded = machine.on(Event::Recorded(Err("gone".into())));
    assert!(matches!(unrecorded.as_slice(), [Step::End(Err(Rejection::Plain(_)))]));
}

#[test]
fn while_one_restores_another_backup_nobody_is_asked() {
    let mut busy = empty(ONE);
    busy.restored.running = Some("b0".into());
    let (_, steps) = looked([busy.clone(), empty(TWO)]);
    let [Step::End(Err(Rejection::Copies(busy_ones)))] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    assert_eq!(busy_ones.len(), 1);
    assert!(busy_ones[0].message.ends_with("there is one already in progress"));
    busy.restored.running = Some("b1".into());
    let (_, steps) = looked([busy, empty(TWO)]);
    assert_eq!(steps.len(), 2, "it is asked for again: {steps:?}");
}

#[test]
fn what_stands_in_the_way_is_told_and_a_purge_is_begun_where_it_helps() {
    let refused = |change: fn(&mut View)| {
        let mut view = empty(ONE);
        change(&mut view);
        looked([view, empty(TWO)])
    };
    let (_, steps) = refused(|view| view.is_rebuilding = true);
    let rebuilding = left(ONE, "cannot do restore for normal rebuilding replica");
    assert_eq!(steps, [Step::End(Err(Rejection::Copies(vec![rebuilding])))]);
    let (_, steps) = refused(|view| view.is_purging = true);
    assert!(matches!(steps.as_slice(), [Step::End(Err(Rejection::Plain(_)))]));
    let two = |view: &mut View| {
        view.disks.extend(["volume-snap-a.img".to_owned(), "volume-snap-b.img".to_owned()]);
    };
    let (mut machine, steps) = refused(two);
    assert_eq!(steps, [Step::Purge]);
    let steps = machine.on(Event::Purging(Ok(())));
    let [Step::End(Err(Rejection::Plain(text)))] = steps.as_slice() else { panic!("{steps:?}") };
    assert!(text.contains("found more than 1 snapshot"));
    let (mut machine, _) = Restore::begin(wanted(), vec![asked(ONE, Mode::Rw)]);
    let steps = machine.on(Event::Looked(ONE, Err("gone".into())));
    assert_eq!(steps, [Step::End(Err(Rejection::Plain("gone".into())))]);
    let (_, steps) = Restore::begin(wanted(), vec![]);
    assert!(matches!(steps.as_slice(), [Step::End(Err(Rejection::Plain(_)))]));
}

#[test]
fn the_disk_is_the_one_that_is_there_or_was_begun() {
    let on = |disks: &[&str], parent: &str, restored: Restored| {
        let disks = disks.iter().map(|name| (*name).to_owned()).collect();
        let view =
            View { disks, parent: parent.into(), head: HEAD.into(), restored, ..View::default() };
        target(&[(asked(ONE, Mode::Rw), view)], DISK)
    };
    let to = |disk: &str, is_incremental| Ok(Target { disk: disk.into(), is_incremental });
    let begun = Restored { disk: "volume-snap-begun.img".into(), ..Restored::default() };
    let snap = "volume-snap-a.img";
    assert_eq!(on(&[HEAD, "/backing"], "", Restored::default()), to(DISK, false));
    assert_eq!(on(&[HEAD], "", begun.clone()), to(&begun.disk, false));
    assert_eq!(on(&[HEAD, snap], snap, holds("b0")), to(snap, true));
    assert_eq!(on(&[HEAD, snap], "", Restored::default()), to(snap, false));
    assert!(on(&[HEAD], "", holds("b0")).is_err(), "its disk is gone");
    assert!(on(&[], "", Restored::default()).is_err());
}

#[test]
fn a_volume_has_the_size_of_its_backup() {
    let sized = |backup_bytes, is_incremental| {
        check_size(&Wanted { backup_bytes, ..wanted() }, is_incremental)
    };
    assert_eq!(sized(4096, false), Ok(()));
    let text = |checked: Result<(), Rejection>| match checked {
        Err(Rejection::Plain(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(text(sized(1024, true)).contains("cannot be smaller"));
    assert!(text(sized(8192, true)).contains("need to expand"));
    assert!(text(sized(8192, false)).contains("cannot be larger"));
}

fn told(id: ReplicaId, restored: Restored) -> Told {
    Told {
        address: format!("r{}", id.0),
        identity: Some(format!("id-{}", id.0)),
        restored: Ok(restored),
    }
}

#[test]
fn only_whole_and_equal_restores_are_shown() {
    let refused = |one: &Restored, two: &Restored| {
        unfinished(&[told(ONE, one.clone()), told(TWO, two.clone())]).is_some()
    };
    let none = Restored::default();
    let killed = Restored { unfinished: "b1".into(), ..none.clone() };
    assert!(!refused(&none, &none));
    assert!(!refused(&holds("b1"), &holds("b1")));
    assert!(refused(&holds("b1"), &killed));
    assert!(refused(&holds("b1"), &Restored { running: Some("b2".into()), ..holds("b1") }));
    assert!(refused(&none, &Restored { has_failed: true, ..none.clone() }));
    let before = Restored { unfinished: "b2".into(), has_failed: true, ..holds("b1") };
    assert!(!refused(&holds("b1"), &before), "the one before is whole");
    assert!(refused(&holds("b1"), &holds("b2")), "they differ");
}

#[test]
fn one_that_was_to_be_restored_and_was_not_is_told_from_one_that_was_rebuilt_since() {
    let both = vec!["id-1".to_owned(), "id-2".to_owned()];
    let whole = Restored { companions: both, ..holds("b1") };
    let passed_over = told(TWO, Restored::default());
    let why = unfinished(&[told(ONE, whole.clone()), passed_over.clone()]).unwrap();
    assert!(why.contains("r2 was to be restored with it and was not"), "{why}");
    let rebuilt = Told { identity: Some("id-2 filled again".into()), ..passed_over.clone() };
    assert_eq!(unfinished(&[told(ONE, whole.clone()), rebuilt]), None);
    let of_another_kind = Told { identity: None, ..passed_over };
    assert_eq!(unfinished(&[told(ONE, whole), of_another_kind]), None);
}

#[test]
fn who_says_nothing_may_be_in_the_middle_of_a_restore() {
    let silent = Told { restored: Err("late".into()), ..told(TWO, Restored::default()) };
    let all = [told(ONE, Restored::default()), silent];
    assert!(unfinished(&all).is_some_and(|why| why.contains("replica r2")));
    assert!(is_under_way(&all));
    let begun = Restored { unfinished: "b2".into(), ..holds("b1") };
    assert!(is_under_way(&[told(ONE, begun.clone()), told(TWO, begun.clone())]));
    assert_eq!(unfinished(&[told(ONE, begun.clone()), told(TWO, begun)]), None);
    assert!(!is_under_way(&[told(ONE, holds("b1")), told(TWO, holds("b1"))]));
}
