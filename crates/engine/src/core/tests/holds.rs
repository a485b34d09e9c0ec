//! Points in the stream of requests at which nothing is under way.

use super::*;

const CHANGES: Hold = Hold::Changes { flush: false };

#[test]
fn a_hold_waits_for_changes_and_keeps_later_ones_back() {
    let mut rig = Rig::healthy(2);
    let before = rig.write(0, &[1; 512]);
    let id = rig.hold(CHANGES);
    let after = rig.write(8192, &[2; 512]);
    let read = rig.read(0, 5);
    assert!(rig.held.is_empty());
    rig.settle();
    rig.assert_count(before, 512);
    rig.assert_open(after);
    assert!(rig.result(read).is_some(), "reads go on");
    assert_eq!(rig.held, [id]);
    let flush = rig.submit(Command::Flush);
    rig.settle();
    rig.assert_count(flush, 0);
    rig.release(id);
    rig.settle();
    rig.assert_count(after, 512);
}

#[test]
fn a_change_that_waits_for_another_is_before_the_hold() {
    let mut rig = Rig::healthy(1);
    rig.write(0, &[1; 512]);
    let second = rig.write(0, &[2; 512]);
    let id = rig.hold(CHANGES);
    rig.ok(0);
    assert!(rig.held.is_empty());
    rig.ok(0);
    rig.assert_count(second, 512);
    assert_eq!(rig.held, [id]);
}

#[test]
fn with_flush_all_before_is_on_disk() {
    let mut rig = Rig::healthy(2);
    rig.write(0, &[1; 512]);
    let id = rig.hold(Hold::Changes { flush: true });
    rig.ok(0);
    rig.ok(1);
    assert_eq!(rig.waiting(), ["0 flush", "1 flush"]);
    assert!(rig.held.is_empty());
    rig.settle();
    assert_eq!(rig.held, [id]);
}

#[test]
fn a_hold_of_all_keeps_everything_back() {
    let mut rig = Rig::healthy(1);
    rig.read(0, 5);
    let id = rig.hold(Hold::All);
    assert!(rig.held.is_empty());
    rig.settle();
    assert_eq!(rig.held, [id]);
    let tokens = [rig.read(0, 5), rig.write(0, &[1; 5]), rig.submit(Command::Flush)];
    assert!(rig.waiting().is_empty());
    rig.release(id);
    rig.settle();
    assert!(tokens.iter().all(|token| rig.result(*token).is_some()));
}

#[test]
fn holds_come_one_after_another() {
    let mut rig = Rig::healthy(1);
    let first = rig.hold(CHANGES);
    let between = rig.write(0, &[1; 5]);
    let second = rig.hold(Hold::All);
    assert_eq!(rig.held, [first]);
    rig.release(first);
    assert_eq!(rig.held, [first], "the write is under way");
    rig.settle();
    rig.assert_count(between, 5);
    assert_eq!(rig.held, [first, second]);
}

#[test]
fn a_hold_comes_into_force_whatever_fails() {
    for hold in [CHANGES, Hold::Changes { flush: true }, Hold::All] {
        let mut rig = Rig::healthy(2);
        rig.write(0, &[1; 512]);
        rig.read(0, 512);
        let id = rig.hold(hold);
        rig.lose(0);
        rig.lose(1);
        assert_eq!(rig.held, [id], "{hold:?}");
    }
}

#[test]
fn a_hold_that_flushes_outlives_the_failure_of_one() {
    let mut rig = Rig::healthy(2);
    let id = rig.hold(Hold::Changes { flush: true });
    rig.lose(1);
    rig.ok(0);
    assert_eq!(rig.waiting(), ["0 mark"]);
    rig.settle();
    assert_eq!(rig.held, [id]);
}

#[test]
fn counters_stand_still_under_a_hold() {
    let mut rig = Rig::healthy(2);
    let id = rig.hold(CHANGES);
    rig.lose(1);
    assert!(rig.waiting().is_empty());
    let flush = rig.submit(Command::Flush);
    assert!(rig.waiting().is_empty());
    rig.release(id);
    assert_eq!(rig.waiting(), ["0 mark"]);
    rig.settle();
    rig.assert_count(flush, 0);
}
