//! Who holds the volume is told to replicas before anything depends on it; an engine that lost the
//! volume does nothing more; and copies that are full stay alike.

use super::*;

const OURS: Features = Features(ALL.0 | Features::MEMBERSHIP.0 | Features::PARTIAL.0);
const FULL: &str = "pwrite: no space left on device";

fn recording(features: &[Features]) -> Rig {
    let replicas: Vec<_> = features.iter().map(|features| (*features, Mode::Rw)).collect();
    let mut rig = Rig::new(&replicas);
    rig.core.keep_records(7, 4);
    for (number, id) in rig.ids.clone().into_iter().enumerate() {
        rig.core.set_name(id, format!("copy-{number}"));
    }
    rig
}

/// What a write got that found no room: up to `reached`.
fn ran_full(rig: &mut Rig, number: usize, reached: i64) {
    let id = rig.ids[number];
    let index = rig.sent.iter().position(|(to, _)| *to == id).expect("owes nothing");
    let (_, request) = rig.sent.remove(index).unwrap();
    let outcome = Outcome::Error(FULL.to_owned());
    let answer = Answer { sequence: sequence(&request), offset: reached, outcome };
    rig.with(|core, now, out| core.reply(now, id, answer, out));
}

#[test]
fn a_write_that_a_failed_replica_lacks_waits_for_the_record_without_it() {
    let mut rig = recording(&[OURS; 3]);
    let token = rig.write(0, &[1; 4096]);
    rig.ok(0);
    rig.ok(1);
    rig.error(2, "input/output error");
    rig.assert_open(token);
    let record = r#"record {"serial":5,"generation":7,"members":["copy-0","copy-1"]}"#;
    assert_eq!(rig.waiting(), [format!("0 {record}"), format!("1 {record}")]);
    rig.ok(0);
    rig.assert_open(token);
    rig.ok(1);
    rig.assert_count(token, 4096);
}

#[test]
fn a_record_is_written_on_request_and_names_the_reader() {
    let mut rig = recording(&[OURS, ALL]);
    rig.core.set_reader(Some(rig.ids[0]));
    let token = rig.submit(Command::Record);
    let members = r#""members":["copy-0","copy-1"],"reader":"copy-0""#;
    let record = format!(r#"0 record {{"serial":5,"generation":7,{members}}}"#);
    assert_eq!(rig.waiting(), [record], "counts of others are left alone");
    rig.settle();
    rig.assert_count(token, 0);
}

#[test]
fn one_that_cannot_keep_a_record_is_out_were_it_the_last() {
    let mut rig = recording(&[OURS; 2]);
    let token = rig.write(0, &[1; 4096]);
    rig.ok(0);
    rig.error(1, "input/output error");
    rig.error(0, FULL);
    rig.settle();
    assert!(matches!(rig.result(token), Some(Err(Fault::Io(_)))));
    assert_eq!(rig.modes(), [Mode::Err, Mode::Err]);
}

#[test]
fn who_waits_for_a_record_that_the_last_never_keeps_is_told() {
    let mut rig = recording(&[OURS]);
    let record = rig.submit(Command::Record);
    let write = rig.write(0, &[1; 4096]);
    let never = rig.sent.pop_front().unwrap();
    assert!(matches!(never.1, Request::Record { .. }));
    // It does all else that it is asked for.
    for _ in 0..8 {
        rig.assert_open(record);
        rig.read(8192, 5);
        rig.settle();
        rig.tick(4);
    }
    for token in [record, write] {
        assert_eq!(rig.result(token), Some(&Err(Fault::Io("r/w timeout".to_owned()))));
    }
    assert_eq!(rig.modes(), [Mode::Rw]);
    // Late, and nobody is told a second time.
    rig.answer_to(never.0, &never.1, Outcome::Count(0));
    rig.settle();
    assert_eq!(rig.core.in_flight(), 0);
    let after = rig.write(0, &[2; 4096]);
    rig.settle();
    rig.assert_count(after, 4096);
}

#[test]
fn an_engine_that_was_cut_off_fails_everything_for_good() {
    let mut rig = recording(&[OURS; 2]);
    let token = rig.write(0, &[1; 4096]);
    rig.ok(0);
    rig.with(|core, now, out| core.cut_off(now, 8, out));
    let text = rig.result(token).unwrap().as_ref().unwrap_err().to_string();
    assert!(text.contains("generation 8"), "{text}");
    rig.sent.clear();
    let id = rig.with(|core, now, _| core.add(now, OURS, Mode::Rw));
    rig.ids.push(id);
    assert_eq!(rig.modes(), [Mode::Err, Mode::Err, Mode::Err], "nobody joins it");
    let next = rig.write(0, &[2; 4096]);
    assert!(matches!(rig.result(next), Some(Err(Fault::Io(_)))));
}

/// Hazard: all replicas are full, each stops at another byte, and nobody fails.
#[test]
fn copies_that_ran_full_at_different_bytes_are_made_alike_before_the_client_hears() {
    let mut rig = recording(&[OURS; 2]);
    let token = rig.write(0, &[1; 16_384]);
    ran_full(&mut rig, 0, 12_288);
    ran_full(&mut rig, 1, 4096);
    rig.assert_open(token);
    assert_eq!(rig.waiting(), ["1 read 4096 8192"], "as the one has it that got least far");
    rig.ok(1);
    assert_eq!(rig.waiting(), ["0 write 4096 8192"], "what it overwrites is its own");
    rig.ok(0);
    assert_eq!(rig.result(token), Some(&Err(Fault::NoSpace)));
    assert_eq!(rig.modes(), [Mode::Rw, Mode::Rw]);
}

#[test]
fn copies_that_ran_full_at_the_same_byte_are_left_alone_and_one_that_cannot_follow_is_out() {
    let mut rig = recording(&[OURS; 2]);
    let token = rig.write(0, &[1; 16_384]);
    ran_full(&mut rig, 0, 4096);
    ran_full(&mut rig, 1, 4096);
    assert_eq!(rig.result(token), Some(&Err(Fault::NoSpace)));
    let token = rig.write(0, &[1; 16_384]);
    ran_full(&mut rig, 0, 8192);
    ran_full(&mut rig, 1, 4096);
    rig.ok(1);
    rig.error(0, FULL);
    rig.settle();
    assert_eq!(rig.result(token), Some(&Err(Fault::NoSpace)));
    assert_eq!(rig.modes(), [Mode::Err, Mode::Rw]);
}
