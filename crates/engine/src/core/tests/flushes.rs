//! Flushes and what waits for them.

use super::*;

#[test]
fn flushes_ride_together() {
    let mut rig = Rig::healthy(2);
    let first = rig.submit(Command::Flush);
    let (second, third) = (rig.submit(Command::Flush), rig.submit(Command::Flush));
    assert_eq!(rig.waiting(), ["0 flush", "1 flush"], "one round at a time");
    rig.ok(0);
    rig.ok(1);
    rig.assert_count(first, 0);
    rig.assert_open(second);
    assert_eq!(rig.waiting(), ["0 flush", "1 flush"], "one for both that came meanwhile");
    rig.settle();
    rig.assert_count(second, 0);
    rig.assert_count(third, 0);
}

#[test]
fn durable_changes_complete_after_a_flush() {
    let data = Bytes::from_static(&[1; 4096]);
    for command in [
        Command::Write { offset: 0, data, durable: true },
        Command::Zero { offset: 0, len: 4096, durable: true },
    ] {
        let mut rig = Rig::healthy(2);
        let token = rig.submit(command);
        rig.ok(0);
        rig.ok(1);
        assert_eq!(rig.waiting(), ["0 flush", "1 flush"]);
        rig.assert_open(token);
        rig.settle();
        rig.assert_count(token, 4096);
    }
}

#[test]
fn write_through_makes_all_changes_durable() {
    let mut rig = Rig::healthy(1);
    rig.core.set_write_through(true);
    for command in [
        Command::Write { offset: 0, data: Bytes::from_static(b"abc"), durable: false },
        Command::Zero { offset: 0, len: 3, durable: false },
        Command::Unmap { offset: 0, len: 3 },
    ] {
        let token = rig.submit(command);
        rig.ok(0);
        assert_eq!(rig.waiting(), ["0 flush"]);
        rig.ok(0);
        rig.assert_count(token, 3);
    }
}

#[test]
fn who_writes_through_is_not_asked() {
    let mut rig = Rig::new(&[(Features::NONE, Mode::Rw), (ALL, Mode::Wo)]);
    let token = rig.submit(Command::Flush);
    assert_eq!(rig.waiting(), ["1 flush"]);
    rig.settle();
    rig.assert_count(token, 0);

    let mut rig = Rig::new(&[(Features::NONE, Mode::Rw)]);
    let token = rig.submit(Command::Flush);
    rig.assert_count(token, 0);
}

#[test]
fn a_failed_flush_is_the_end_of_a_replica() {
    let mut rig = Rig::healthy(2);
    let token = rig.submit(Command::Flush);
    rig.error(0, "no space left on device");
    assert_eq!(rig.modes(), [Mode::Err, Mode::Rw]);
    rig.settle();
    rig.assert_count(token, 0);
    let token = rig.submit(Command::Flush);
    rig.error(1, "input/output error");
    assert!(matches!(rig.result(token), Some(Err(Fault::Io(_)))));
    assert_eq!(rig.modes(), [Mode::Err, Mode::Err]);
}

#[test]
fn a_flush_in_which_a_replica_failed_is_done_again_after_the_mark() {
    let mut rig = Rig::healthy(3);
    let token = rig.submit(Command::Flush);
    rig.ok(0);
    rig.lose(1);
    assert_eq!(rig.waiting(), ["0 mark", "2 flush", "2 mark"]);
    rig.ok(2);
    rig.ok(2);
    rig.assert_open(token);
    rig.ok(0);
    assert_eq!(rig.waiting(), ["0 flush", "2 flush"]);
    rig.settle();
    rig.assert_count(token, 0);
}
