//! Silence and pings.

use super::*;

#[test]
fn a_silent_replica_fails_while_others_answer() {
    let mut rig = Rig::healthy(2);
    let token = rig.write(0, &[1; 512]);
    rig.ok(0);
    rig.tick(7);
    assert!(rig.failed.is_empty());
    rig.tick(1);
    assert_eq!(rig.failed, [(rig.ids[1], "r/w timeout".to_owned())]);
    rig.settle();
    rig.assert_count(token, 512);
}

#[test]
fn answers_count_as_life_and_pings_do_not() {
    let mut rig = Rig::healthy(2);
    rig.core.set_reader(Some(rig.ids[0]));
    for _ in 0..3 {
        rig.write(0, &[1; 512]);
        rig.tick(6);
        rig.settle();
    }
    assert!(rig.failed.is_empty());
    rig.write(0, &[1; 512]);
    for _ in 0..8 {
        rig.tick(1);
        let is_ping = |(_, request): &(ReplicaId, Request)| matches!(request, Request::Ping { .. });
        while let Some(index) = rig.sent.iter().position(is_ping) {
            let (id, request) = rig.sent.remove(index).unwrap();
            rig.answer_to(id, &request, Outcome::Count(0));
        }
    }
    assert_eq!(rig.failed.len(), 1, "and of two the last is kept");
}

#[test]
fn the_last_is_kept_and_its_clients_are_told() {
    let mut rig = Rig::healthy(1);
    let write = rig.write(0, &[1; 512]);
    let behind = rig.write(0, &[2; 512]);
    let read = rig.read(0, 5);
    rig.tick(8);
    rig.tick(7);
    assert!(rig.completed.is_empty());
    let young = rig.read(100, 5);
    rig.tick(1);
    for token in [write, behind, read] {
        assert_eq!(rig.result(token), Some(&Err(Fault::Io("r/w timeout".to_owned()))));
    }
    rig.assert_open(young);
    assert_eq!(rig.modes(), [Mode::Rw]);
    assert_eq!(rig.core.in_flight(), 1);
    // Late answers are no lie; the place is free again only now.
    let overlapping = rig.write(0, &[3; 512]);
    let writes = rig.waiting().iter().filter(|it| *it == "0 write 0 512").count();
    assert_eq!(writes, 1, "the first may still be done");
    rig.settle();
    rig.assert_count(overlapping, 512);
    assert_eq!(rig.modes(), [Mode::Rw]);
    assert_eq!(rig.core.in_flight(), 0);
}

#[test]
fn one_request_that_is_never_answered_is_noticed() {
    let mut rig = Rig::healthy(2);
    let stuck = rig.write(0, &[1; 512]);
    rig.ok(0);
    let never = rig.sent.pop_front().unwrap();
    assert_eq!(rig.number(never.0), 1);
    for _ in 0..8 {
        rig.write(8192, &[1; 512]);
        rig.tick(4);
        rig.settle();
    }
    assert_eq!(rig.failed, [(rig.ids[1], "r/w timeout".to_owned())]);
    rig.settle();
    rig.assert_count(stuck, 512);
}

#[test]
fn pings_go_out_one_at_a_time_and_errors_are_final() {
    let mut rig = Rig::healthy(2);
    rig.tick(1);
    assert!(rig.waiting().is_empty());
    rig.tick(1);
    assert_eq!(rig.waiting(), ["0 ping", "1 ping"]);
    rig.ok(0);
    rig.tick(2);
    assert_eq!(rig.waiting(), ["0 ping", "1 ping"]);
    rig.tick(60);
    assert!(rig.failed.is_empty(), "a ping is not timed on its own");
    rig.error(1, "replica is closed");
    assert_eq!(rig.failed, [(rig.ids[1], "ping: replica is closed".to_owned())]);
}
