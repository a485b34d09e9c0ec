//! Requests while all is well.

use wire::frame::Run;

use super::*;

#[test]
fn a_write_goes_to_all_under_one_number_and_waits_for_all() {
    let mut rig = Rig::healthy(3);
    let token = rig.write(4096, &[1; 4096]);
    assert_eq!(rig.waiting(), ["0 write 4096 4096", "1 write 4096 4096", "2 write 4096 4096"]);
    let numbers: Vec<u32> = rig.sent.iter().map(|(_, request)| sequence(request)).collect();
    assert_eq!(numbers[0], numbers[1]);
    assert_eq!(numbers[0], numbers[2]);
    rig.ok(1);
    rig.ok(0);
    rig.assert_open(token);
    assert_eq!(rig.core.in_flight(), 1);
    rig.ok(2);
    rig.assert_count(token, 4096);
    assert_eq!(rig.core.in_flight(), 0);
}

#[test]
fn reads_take_turns() {
    let mut rig = Rig::healthy(2);
    for expected in ["0 read 0 10", "1 read 0 10", "0 read 0 10"] {
        let token = rig.read(0, 10);
        assert_eq!(rig.waiting(), [expected]);
        rig.settle();
        assert_eq!(rig.result(token), Some(&Ok(Done::Data(Bytes::from_static(&[7; 10])))));
    }
}

#[test]
fn ranges_are_checked_with_the_texts_callers_match() {
    let mut rig = Rig::healthy(1);
    rig.core.resize(1 << 20);
    let data = Bytes::from_static(&[0; 512]);
    let (offset, len) = (1_048_576, 512);
    for (command, text) in [
        (Command::Read { offset, len }, "Read of 512 bytes at offset 1048576"),
        (Command::Status { offset, len }, "Read of 512 bytes at offset 1048576"),
        (
            Command::Write { offset: 1_048_065, data, durable: true },
            "Write of 512 bytes at offset 1048065",
        ),
        (Command::Zero { offset, len, durable: false }, "Write of 512 bytes at offset 1048576"),
        (Command::Mend { offset, len }, "Write of 512 bytes at offset 1048576"),
        (Command::Unmap { offset, len }, "unmap of 512 bytes at offset 1048576"),
        (
            Command::Read { offset: u64::MAX, len: 2 },
            "Read of 2 bytes at offset 18446744073709551615",
        ),
    ] {
        let token = rig.submit(command);
        let fault = rig.result(token).unwrap().as_ref().unwrap_err();
        assert_eq!(fault.to_string(), format!("EOF: {text} is beyond volume size 1048576"));
    }
    assert!(rig.waiting().is_empty());
}

#[test]
fn nothing_is_done_at_once_and_too_much_is_refused() {
    let mut rig = Rig::healthy(1);
    rig.core.resize(1 << 40);
    let (offset, len, durable) = (5, 0, false);
    let nothing = Bytes::new();
    for (command, done) in [
        (Command::Read { offset, len }, Done::Data(Bytes::new())),
        (Command::Write { offset, data: nothing, durable: true }, Done::Count(0)),
        (Command::Zero { offset, len, durable }, Done::Count(0)),
        (Command::Unmap { offset, len }, Done::Count(0)),
        (Command::Mend { offset, len }, Done::Count(0)),
        (Command::Status { offset, len }, Done::Runs(vec![])),
    ] {
        let token = rig.submit(command);
        assert_eq!(rig.result(token), Some(&Ok(done)));
    }
    let too_long = rig.read(0, (32 << 20) + 1);
    assert!(matches!(rig.result(too_long), Some(Err(Fault::Refused(_)))));
    let data = Bytes::from(vec![0; (32 << 20) + 1]);
    let too_long = rig.submit(Command::Write { offset, data, durable });
    assert!(matches!(rig.result(too_long), Some(Err(Fault::Refused(_)))));
    rig.read(0, 32 << 20);
    assert_eq!(rig.waiting().len(), 1);
}

#[test]
fn overlapping_changes_are_never_under_way_together() {
    let mut rig = Rig::healthy(1);
    let first = rig.write(0, &[1; 8192]);
    let second = rig.write(4096, &[2; 8192]);
    let third = rig.submit(Command::Unmap { offset: 8192, len: 4096 });
    let apart = rig.write(65536, &[3; 512]);
    assert_eq!(rig.waiting(), ["0 write 0 8192", "0 write 65536 512"]);
    rig.ok(0);
    rig.assert_count(first, 8192);
    assert_eq!(rig.waiting(), ["0 write 4096 8192", "0 write 65536 512"]);
    rig.settle();
    for (token, count) in [(second, 8192), (third, 4096), (apart, 512)] {
        rig.assert_count(token, count);
    }
}

#[test]
fn parts_of_one_sector_overlap() {
    let mut rig = Rig::healthy(1);
    rig.write(0, &[1; 512]);
    rig.write(1024, &[2; 512]);
    assert_eq!(rig.waiting(), ["0 write 0 512"], "a replica reads and writes whole sectors");
}

#[test]
fn zeros_are_written_where_there_is_no_frame_for_them() {
    let mib = 1 << 20;
    let mut rig = Rig::new(&[(ALL, Mode::Rw), (Features::NONE, Mode::Rw)]);
    let token = rig.submit(Command::Zero { offset: 0, len: mib + 4096, durable: false });
    assert_eq!(rig.waiting(), ["0 zero 0 1048576", "1 write 0 1048576"]);
    rig.ok(0);
    rig.ok(1);
    assert_eq!(rig.waiting(), ["0 zero 1048576 4096", "1 write 1048576 4096"]);
    rig.settle();
    rig.assert_count(token, mib + 4096);

    let mut rig = Rig::healthy(2);
    let token = rig.submit(Command::Zero { offset: 0, len: 60 << 20, durable: false });
    assert_eq!(rig.waiting(), ["0 zero 0 62914560", "1 zero 0 62914560"]);
    rig.settle();
    rig.assert_count(token, 60 << 20);
}

#[test]
fn status_is_asked_of_one_that_knows() {
    let mut rig = Rig::new(&[(Features::NONE, Mode::Rw), (ALL, Mode::Rw), (ALL, Mode::Wo)]);
    for _ in 0..2 {
        let token = rig.submit(Command::Status { offset: 0, len: 8192 });
        assert_eq!(rig.waiting(), ["1 status 0 8192"]);
        let hole = Run { len: 4096, hole: true };
        rig.answer(1, Outcome::Data(frame::encode_runs(&[hole])));
        assert_eq!(rig.result(token), Some(&Ok(Done::Runs(vec![hole]))));
    }
    let all_data = Run { len: 8192, hole: false };
    rig.core.set_reader(Some(rig.ids[0]));
    let token = rig.submit(Command::Status { offset: 0, len: 8192 });
    assert_eq!(rig.result(token), Some(&Ok(Done::Runs(vec![all_data]))));
}

#[test]
fn unmaps_are_refused_while_the_volume_grows() {
    let mut rig = Rig::healthy(1);
    rig.core.set_expanding(true);
    let token = rig.submit(Command::Unmap { offset: 4096, len: 8192 });
    let fault = rig.result(token).unwrap().as_ref().unwrap_err();
    let text = "cannot unmap 8192 bytes at offset 4096 while expansion in is progress";
    assert_eq!(fault.to_string(), text);
    rig.core.set_expanding(false);
    let token = rig.submit(Command::Unmap { offset: 4096, len: 8192 });
    rig.settle();
    rig.assert_count(token, 8192);
}

const TELLS: Features = Features(ALL.0 | Features::DISCARD.0);

#[test]
fn replicas_that_unmapped_by_the_same_layers_are_believed() {
    let mut rig = Rig::new(&[(TELLS, Mode::Rw), (TELLS, Mode::Rw)]);
    let token = rig.submit(Command::Unmap { offset: 4096, len: 8192 });
    assert_eq!(rig.waiting(), ["0 discard 4096 8192", "1 discard 4096 8192"]);
    rig.discarded(0, 8192, 5);
    rig.discarded(1, 4096, 5);
    rig.assert_count(token, 8192);
    assert!(rig.waiting().is_empty());
}

#[test]
fn replicas_that_unmapped_by_different_layers_are_made_equal_first() {
    for kinds in [[TELLS, TELLS], [TELLS, ALL]] {
        let mut rig = Rig::new(&kinds.map(|features| (features, Mode::Rw)));
        let token = rig.submit(Command::Unmap { offset: 5000, len: 10_000 });
        rig.discarded(1, 4096, 6);
        rig.discarded(0, 8192, 5);
        assert_eq!(rig.waiting(), ["0 read 4096 12288"]);
        rig.ok(0);
        assert_eq!(rig.waiting(), ["0 write 4096 12288", "1 write 4096 12288"]);
        rig.assert_open(token);
        rig.settle();
        rig.assert_count(token, 8192);
        assert_eq!(rig.modes(), [Mode::Rw, Mode::Rw]);
    }
}
