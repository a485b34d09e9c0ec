//! A replica that is written to and not read from, and copies that are made alike.

use super::*;

fn rebuilding() -> Rig {
    Rig::new(&[(ALL, Mode::Rw), (ALL, Mode::Wo)])
}

#[test]
fn parts_of_sectors_are_written_whole() {
    let mut rig = rebuilding();
    let token = rig.write(512, &[1; 512]);
    assert_eq!(rig.waiting(), ["0 read 0 4096"]);
    rig.ok(0);
    assert_eq!(rig.waiting(), ["0 write 0 4096", "1 write 0 4096"]);
    for (_, request) in &rig.sent {
        let Request::Write { data, .. } = request else { panic!("{request:?}") };
        let expected: Vec<u8> =
            (0..4096).map(|at| if (512..1024).contains(&at) { 1 } else { 7 }).collect();
        assert_eq!(data[..], expected);
    }
    rig.settle();
    rig.assert_count(token, 512);
}

/// What it has to hide may not have come to it yet.
#[test]
fn zeros_are_written_to_one_that_is_being_filled() {
    let mut rig = rebuilding();
    let token = rig.submit(Command::Zero { offset: 4000, len: 8192, durable: false });
    rig.ok(0);
    let Some((_, Request::Write { offset: 0, data, .. })) = rig.sent.front() else { panic!() };
    assert_eq!((data[3999], data[4000], data.len()), (7, 0, 4096));
    rig.ok(0);
    rig.ok(1);
    assert_eq!(rig.waiting(), ["0 zero 4096 4096", "1 write 4096 4096"]);
    rig.ok(0);
    rig.ok(1);
    assert_eq!(rig.waiting(), ["0 read 8192 4096"]);
    rig.settle();
    rig.assert_count(token, 8192);
}

#[test]
fn whole_sectors_and_volumes_without_rebuild_go_straight() {
    let mut rig = rebuilding();
    rig.write(4096, &[1; 8192]);
    assert_eq!(rig.waiting(), ["0 write 4096 8192", "1 write 4096 8192"]);
    let mut rig = Rig::healthy(1);
    rig.write(100, &[1; 5]);
    assert_eq!(rig.waiting(), ["0 write 100 5"]);
}

#[test]
fn the_rest_of_a_sector_comes_from_the_next_if_one_fails() {
    let mut rig = Rig::new(&[(ALL, Mode::Rw), (ALL, Mode::Rw), (ALL, Mode::Wo)]);
    let token = rig.write(512, &[1; 512]);
    rig.error(0, "input/output error");
    assert_eq!(rig.waiting(), ["1 read 0 4096"]);
    rig.settle();
    rig.assert_count(token, 512);
}

#[test]
fn unmaps_do_nothing() {
    let mut rig = rebuilding();
    let token = rig.submit(Command::Unmap { offset: 0, len: 8192 });
    rig.assert_count(token, 0);
    assert!(rig.waiting().is_empty());
}

#[test]
fn it_is_never_read_and_does_not_keep_the_volume_alive() {
    let mut rig = rebuilding();
    for _ in 0..3 {
        rig.read(0, 5);
    }
    assert_eq!(rig.waiting(), ["0 read 0 5"; 3]);
    let token = rig.write(0, &[1; 4096]);
    rig.ok(1);
    rig.lose(0);
    assert!(matches!(rig.result(token), Some(Err(Fault::Io(_)))));
    assert_eq!(rig.modes(), [Mode::Err, Mode::Wo]);
    let id = rig.ids[1];
    rig.with(|core, now, out| core.set_mode(now, id, Mode::Rw, "", out));
    let token = rig.read(0, 5);
    rig.settle();
    assert!(matches!(rig.result(token), Some(Ok(Done::Data(_)))));
}

#[test]
fn a_mend_writes_what_the_reader_has_to_all() {
    let mut rig = Rig::healthy(3);
    rig.core.set_reader(Some(rig.ids[2]));
    let token = rig.submit(Command::Mend { offset: 100, len: 4096 });
    let write = rig.write(0, &[1; 512]);
    assert_eq!(rig.waiting(), ["2 read 0 8192"], "the write waits");
    rig.ok(2);
    // The reader too: counters stay in step.
    assert_eq!(rig.waiting(), ["0 write 0 8192", "1 write 0 8192", "2 write 0 8192"]);
    for number in 0..3 {
        rig.ok(number);
    }
    rig.assert_count(token, 4096);
    rig.settle();
    rig.assert_count(write, 512);
}

#[test]
fn a_mend_goes_on_from_another_if_the_reader_fails() {
    let mut rig = Rig::healthy(3);
    rig.core.set_reader(Some(rig.ids[1]));
    let token = rig.submit(Command::Mend { offset: 0, len: 2 << 20 });
    rig.ok(1);
    for number in 0..3 {
        rig.ok(number);
    }
    assert_eq!(rig.waiting(), ["1 read 1048576 1048576"]);
    rig.lose(1);
    assert_eq!(rig.waiting(), ["0 read 1048576 1048576"]);
    rig.settle();
    rig.assert_count(token, 2 << 20);
}

#[test]
fn one_that_fails_while_the_rest_of_a_sector_is_read_is_not_written_to() {
    let mut rig = Rig::new(&[(ALL, Mode::Rw), (ALL, Mode::Wo)]);
    let token = rig.write(512, &[1; 512]);
    rig.lose(1);
    rig.settle();
    rig.assert_count(token, 512);

    let mut rig = Rig::healthy(2);
    let token = rig.submit(Command::Mend { offset: 0, len: 4096 });
    rig.lose(1);
    rig.settle();
    rig.assert_count(token, 4096);
}
