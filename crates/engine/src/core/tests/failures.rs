//! Replicas that fail, are full, or lie.

use super::*;

const FULL: &str = "pwrite: no space left on device";

#[test]
fn a_write_succeeds_while_one_remains_that_did_it() {
    let mut rig = Rig::healthy(2);
    let token = rig.write(0, &[1; 4096]);
    rig.error(0, "input/output error");
    rig.ok(1);
    assert_eq!(rig.waiting(), ["1 mark"]);
    rig.assert_open(token);
    rig.settle();
    rig.assert_count(token, 4096);
    assert_eq!(rig.failed, [(rig.ids[0], "input/output error".to_owned())]);
    assert_eq!(rig.modes(), [Mode::Err, Mode::Rw]);
}

#[test]
fn with_none_left_the_fault_tells_what_became_of_each() {
    let mut rig = Rig::healthy(2);
    let token = rig.write(0, &[1; 4096]);
    rig.error(0, "input/output error");
    rig.lose(1);
    let fault = rig.result(token).unwrap().as_ref().unwrap_err().to_string();
    assert!(fault.contains("input/output error") && fault.contains("connection reset"), "{fault}");
    let next = rig.read(0, 1);
    assert!(matches!(rig.result(next), Some(Err(Fault::Io(_)))));
    assert_eq!(rig.failed.len(), 2);
}

#[test]
fn a_read_goes_to_the_next() {
    let mut rig = Rig::healthy(3);
    let token = rig.read(0, 100);
    rig.error(0, "input/output error");
    rig.answer(1, Outcome::Data(Bytes::from_static(&[7; 99])));
    rig.settle();
    assert_eq!(rig.result(token), Some(&Ok(Done::Data(Bytes::from_static(&[7; 100])))));
    assert_eq!(rig.modes(), [Mode::Err, Mode::Err, Mode::Rw]);
}

#[test]
fn an_unmap_is_charged_to_the_one_that_failed() {
    for guilty in [0, 1] {
        let mut rig = Rig::healthy(2);
        let token = rig.submit(Command::Unmap { offset: 0, len: 4096 });
        rig.ok(1 - guilty);
        rig.error(guilty, "operation not supported");
        rig.settle();
        rig.assert_count(token, 4096);
        assert_eq!(rig.failed.len(), 1);
        assert_eq!(rig.failed[0].0, rig.ids[guilty]);
    }
}

#[test]
fn liars_are_out_alone() {
    type Lie<'a> = &'a dyn Fn(&Request) -> (u32, Outcome);
    let wrong_number = |request: &Request| (sequence(request) ^ 0x10_0000, good(request));
    let unknown_slot = |request: &Request| (sequence(request) ^ 0xfffff, good(request));
    let short = |request: &Request| (sequence(request), Outcome::Count(4095));
    let long = |request: &Request| (sequence(request), Outcome::Count(4097));
    let other = |request: &Request| (sequence(request), Outcome::Data(Bytes::from_static(b"x")));
    let eof = |request: &Request| (sequence(request), Outcome::Eof(Bytes::new()));
    let lies: [Lie<'_>; 6] = [&wrong_number, &unknown_slot, &short, &long, &other, &eof];
    for (index, lie) in lies.into_iter().enumerate() {
        let mut rig = Rig::healthy(3);
        let token = rig.write(0, &[1; 4096]);
        rig.ok(0);
        let (id, request) = rig.sent.pop_front().unwrap();
        let (sequence, outcome) = lie(&request);
        let answer = Answer { sequence, offset: 0, outcome };
        rig.with(|core, now, out| core.reply(now, id, answer, out));
        rig.settle();
        rig.assert_count(token, 4096);
        assert_eq!(rig.modes(), [Mode::Rw, Mode::Err, Mode::Rw], "lie {index}");
        assert_eq!(rig.failed.len(), 1);
    }
}

#[test]
fn an_answer_that_comes_twice_is_a_lie() {
    let mut rig = Rig::healthy(2);
    let token = rig.write(0, &[1; 512]);
    let (id, request) = rig.sent[0].clone();
    rig.answer_to(id, &request, Outcome::Count(512));
    rig.answer_to(id, &request, Outcome::Count(512));
    rig.sent.pop_front();
    assert_eq!(rig.modes(), [Mode::Err, Mode::Rw]);
    rig.settle();
    rig.assert_count(token, 512);
}

#[test]
fn answers_after_the_failure_are_ignored() {
    let mut rig = Rig::healthy(2);
    let token = rig.write(0, &[1; 512]);
    let (id, request) = rig.sent[0].clone();
    rig.lose(0);
    rig.answer_to(id, &request, Outcome::Error("late".to_owned()));
    rig.with(|core, now, out| core.lost(now, id, "again", out));
    rig.with(|core, now, out| core.set_mode(now, id, Mode::Rw, "", out));
    rig.settle();
    rig.assert_count(token, 512);
    assert_eq!(rig.failed.len(), 1);
    assert_eq!(rig.modes(), [Mode::Err, Mode::Rw]);
}

#[test]
fn full_disks() {
    use Mode::{Err, Rw, Wo};
    struct Case {
        modes: [Mode; 3],
        full: [bool; 3],
        no_space: bool,
        after: [Mode; 3],
    }
    let cases = [
        Case {
            modes: [Rw, Rw, Rw],
            full: [true, false, false],
            no_space: false,
            after: [Err, Rw, Rw],
        },
        Case { modes: [Rw, Rw, Rw], full: [true, true, true], no_space: true, after: [Rw, Rw, Rw] },
        Case {
            modes: [Rw, Rw, Wo],
            full: [true, true, true],
            no_space: true,
            after: [Rw, Rw, Err],
        },
        Case {
            modes: [Rw, Rw, Wo],
            full: [false, false, true],
            no_space: false,
            after: [Rw, Rw, Err],
        },
        Case {
            modes: [Rw, Rw, Wo],
            full: [true, true, false],
            no_space: true,
            after: [Rw, Rw, Wo],
        },
    ];
    for Case { modes, full, no_space, after } in cases {
        let mut rig = Rig::new(&modes.map(|mode| (ALL, mode)));
        let token = rig.write(0, &[1; 4096]);
        for (number, is_full) in full.into_iter().enumerate() {
            if is_full { rig.error(number, FULL) } else { rig.ok(number) }
        }
        rig.settle();
        let expected = if no_space { Result::Err(Fault::NoSpace) } else { Ok(Done::Count(4096)) };
        assert_eq!(rig.result(token), Some(&expected), "{modes:?} {full:?}");
        assert_eq!(rig.modes(), after, "{modes:?} {full:?}");
    }
}

#[test]
fn removing_a_replica_goes_on_without_it_and_is_no_failure() {
    let mut rig = Rig::healthy(2);
    let write = rig.write(0, &[1; 512]);
    let read = rig.read(8192, 5);
    let id = rig.ids[0];
    rig.sent.retain(|(to, _)| *to != id);
    rig.with(|core, now, out| core.remove(now, id, out));
    rig.settle();
    rig.assert_count(write, 512);
    assert!(matches!(rig.result(read), Some(Ok(Done::Data(_)))));
    assert!(rig.failed.is_empty());
    assert_eq!(rig.core.members().len(), 1);
    // The place is used again; nothing of the old one sticks to the new one.
    let new = rig.with(|core, now, _| core.add(now, ALL, Mode::Wo));
    rig.ids.push(new);
    rig.write(0, &[1; 4096]);
    assert_eq!(rig.waiting(), ["1 write 0 4096", "2 write 0 4096"]);
}

#[test]
fn what_a_failed_replica_may_have_done_is_done_before_anything_completes() {
    let mut rig = Rig::new(&[(ALL, Mode::Rw), (Features::NONE, Mode::Rw)]);
    let slow = rig.write(0, &[1; 512]);
    let quick = rig.write(8192, &[1; 512]);
    rig.lose(0);
    let later = rig.write(65536, &[1; 512]);
    let (id, answer_to_slow) = rig.sent.pop_front().unwrap();
    rig.settle();
    rig.assert_open(quick);
    rig.assert_open(later);
    rig.answer_to(id, &answer_to_slow, Outcome::Count(512));
    assert_eq!(rig.waiting(), ["1 mark"]);
    rig.assert_open(slow);
    rig.error(1, "unknown request");
    for token in [slow, quick, later] {
        rig.assert_count(token, 512);
    }
    assert_eq!(rig.modes(), [Mode::Err, Mode::Rw], "it need not know marks");
}

#[test]
fn what_only_failed_replicas_did_is_not_acknowledged() {
    let mut rig = Rig::healthy(2);
    let token = rig.write(0, &[1; 512]);
    rig.ok(1);
    rig.lose(0);
    assert_eq!(rig.waiting(), ["1 mark"]);
    rig.lose(1);
    assert!(matches!(rig.result(token), Some(Err(Fault::Io(_)))));
}

#[test]
fn who_knows_marks_must_not_fail_them() {
    let mut rig = Rig::healthy(3);
    rig.lose(0);
    rig.error(1, "input/output error");
    assert_eq!(rig.modes(), [Mode::Err, Mode::Err, Mode::Rw]);
}

#[test]
fn the_reader_is_followed_by_one_other() {
    let mut rig = Rig::healthy(3);
    rig.core.set_reader(Some(rig.ids[1]));
    for _ in 0..3 {
        rig.read(0, 5);
    }
    assert_eq!(rig.waiting(), ["1 read 0 5"; 3]);
    rig.lose(1);
    assert_eq!(rig.waiting(), ["0 mark", "0 read 0 5", "0 read 0 5", "0 read 0 5", "2 mark"]);
}
