//! The data thread over replicas that speak frames.

use std::time::{Duration, Instant};

use engine::core::{Command, Done, Fault, Hold, Member, Mode, ReplicaId, Settings};
use engine::volume::{Traffic, Volume};
use rpc::Features;
use wire::frame::Request;

use crate::fake::{Fake, Vice, all_features};
use crate::{MIB, TIMEOUT, read, settings, until, write};

/// A volume of 1 MiB over these replicas.
async fn volume(settings: Settings, replicas: &[(&Fake, Features)]) -> (Volume, Vec<ReplicaId>) {
    let volume = Volume::start("vol", settings).unwrap();
    volume.resize(MIB).await.unwrap();
    let mut ids = Vec::new();
    for (fake, features) in replicas {
        ids.push(volume.attach(&fake.target(), *features, Mode::Rw).await.unwrap());
    }
    (volume, ids)
}

fn member(volume: &Volume, id: ReplicaId) -> Member {
    let members = volume.members();
    let members = members.borrow();
    members.iter().find(|member| member.id == id).unwrap().clone()
}

#[tokio::test]
async fn writes_reach_every_replica_and_reads_come_back() {
    let (ours, other) = (Fake::start(MIB), Fake::start(MIB));
    let (volume, _) =
        volume(settings(), &[(&ours, all_features()), (&other, Features::NONE)]).await;
    assert_eq!(write(&volume, 8192, 5, 4096).await, Ok(Done::Count(4096)));
    for _ in 0..4 {
        assert_eq!(read(&volume, 8192, 4096).await, vec![5; 4096]);
    }
    assert_eq!(ours.bytes(8192, 4096), vec![5; 4096]);
    assert_eq!(other.bytes(8192, 4096), vec![5; 4096]);
    assert_eq!((ours.connections(), other.connections()), (1, 2));
    assert!(matches!(ours.seen().first(), Some(Request::Flush { .. })));
    assert!(!other.seen().iter().any(|seen| matches!(seen, Request::Flush { .. })));
    volume.stop().await;
}

#[tokio::test]
async fn a_flush_reaches_those_that_understand_it() {
    let (ours, other) = (Fake::start(MIB), Fake::start(MIB));
    let (volume, _) =
        volume(settings(), &[(&ours, all_features()), (&other, Features::NONE)]).await;
    write(&volume, 0, 1, 512).await.unwrap();
    assert_eq!(volume.submit(Command::Flush).await, Ok(Done::Count(0)));
    let flushes = |fake: &Fake| {
        fake.seen().iter().filter(|seen| matches!(seen, Request::Flush { .. })).count()
    };
    assert_eq!((flushes(&ours), flushes(&other)), (2, 0));
}

#[tokio::test]
async fn a_replica_that_lies_fails_alone() {
    for vice in [
        Vice::BadMagic,
        Vice::WrongSequence,
        Vice::ShortFrame,
        Vice::LongAnswer,
        Vice::Disconnect,
        Vice::Error("input/output error"),
    ] {
        let (good, bad) = (Fake::start(MIB), Fake::start(MIB));
        let (volume, ids) =
            volume(settings(), &[(&good, all_features()), (&bad, all_features())]).await;
        write(&volume, 0, 1, 4096).await.unwrap();
        bad.turn(vice);
        for round in 0..8 {
            write(&volume, round * 4096, 2, 4096).await.unwrap();
            assert_eq!(read(&volume, round * 4096, 4096).await, vec![2; 4096], "{vice:?}");
        }
        until("the liar is out", || member(&volume, ids[1]).mode == Mode::Err).await;
        assert!(member(&volume, ids[1]).reason.is_some(), "{vice:?}");
        assert_eq!(member(&volume, ids[0]).mode, Mode::Rw, "{vice:?}");
        volume.stop().await;
    }
}

#[tokio::test]
async fn a_replica_that_lies_to_a_read_fails_alone_and_the_read_does_not() {
    let (good, bad) = (Fake::start(MIB), Fake::start(MIB));
    let (volume, ids) =
        volume(settings(), &[(&good, all_features()), (&bad, all_features())]).await;
    write(&volume, 0, 1, 4096).await.unwrap();
    bad.turn(Vice::LongAnswer);
    for _ in 0..4 {
        assert_eq!(read(&volume, 0, 4096).await, vec![1; 4096]);
    }
    assert_eq!(member(&volume, ids[1]).mode, Mode::Err);
    assert_eq!(member(&volume, ids[0]).mode, Mode::Rw);
}

#[tokio::test]
async fn a_replica_that_stalls_fails_alone() {
    // What the good one may miss of a loaded machine.
    let quick = Settings { replica_timeout: Duration::from_secs(3), ..settings() };
    let (good, bad) = (Fake::start(MIB), Fake::start(MIB));
    let (volume, ids) = volume(quick, &[(&good, all_features()), (&bad, all_features())]).await;
    bad.turn(Vice::Stall);
    write(&volume, 0, 3, 4096).await.unwrap();
    assert_eq!(read(&volume, 0, 4096).await, vec![3; 4096]);
    assert_eq!(member(&volume, ids[1]).mode, Mode::Err);
    assert_eq!(member(&volume, ids[0]).mode, Mode::Rw);
}

#[tokio::test]
async fn with_no_replica_left_requests_fail_and_say_why() {
    let only = Fake::start(MIB);
    let (volume, _) = volume(settings(), &[(&only, all_features())]).await;
    only.turn(Vice::Disconnect);
    let ended = write(&volume, 0, 3, 4096).await;
    assert!(matches!(ended, Err(Fault::Io(_))), "{ended:?}");
}

#[tokio::test]
async fn nobody_at_the_address_is_an_error_and_no_member() {
    let (volume, _) = volume(settings(), &[]).await;
    let port = testkit::process::free_port().unwrap();
    let target = engine::volume::DataTarget::Tcp(rpc::Address::new("127.0.0.1", port));
    assert!(volume.attach(&target, all_features(), Mode::Rw).await.is_err());
    assert!(volume.members().borrow().is_empty());
}

#[tokio::test]
async fn a_replica_that_never_answers_is_not_attached() {
    let quick = Settings { replica_timeout: Duration::from_millis(200), ..settings() };
    let (volume, _) = volume(quick, &[]).await;
    let silent = Fake::start(MIB);
    silent.turn(Vice::Stall);
    assert!(volume.attach(&silent.target(), all_features(), Mode::Rw).await.is_err());
    assert!(volume.members().borrow().is_empty());
}

#[tokio::test]
async fn a_detached_replica_is_written_to_no_more() {
    let (first, second) = (Fake::start(MIB), Fake::start(MIB));
    let (volume, ids) =
        volume(settings(), &[(&first, all_features()), (&second, all_features())]).await;
    write(&volume, 0, 1, 4096).await.unwrap();
    volume.detach(ids[1]).await;
    write(&volume, 0, 2, 4096).await.unwrap();
    assert_eq!(first.bytes(0, 1), [2]);
    assert_eq!(second.bytes(0, 1), [1]);
    assert_eq!(volume.members().borrow().len(), 1);
}

#[tokio::test]
async fn a_hold_keeps_changes_out_until_it_is_dropped() {
    let fake = Fake::start(MIB);
    let (volume, _) = volume(settings(), &[(&fake, all_features())]).await;
    let guard = volume.hold(Hold::Changes { flush: true }).await;
    let other = volume.clone();
    let writing = async { write(&other, 0, 9, 4096).await };
    tokio::pin!(writing);
    // The read is behind the write in the data thread's queue, so the write has been seen.
    let got = tokio::select! {
        biased;
        ended = &mut writing => panic!("written in spite of the hold: {ended:?}"),
        got = read(&volume, 0, 512) => got,
    };
    assert_eq!(got, vec![0; 512]);
    drop(guard);
    writing.await.unwrap();
    assert_eq!(fake.bytes(0, 1), [9]);
}

#[tokio::test]
async fn a_hold_nobody_waits_for_any_more_is_given_up() {
    let fake = Fake::start(MIB);
    let (volume, _) = volume(settings(), &[(&fake, all_features())]).await;
    let first = volume.hold(Hold::All).await;
    // This one cannot be in force before the first is released.
    let given_up = tokio::time::timeout(Duration::from_millis(10), volume.hold(Hold::All)).await;
    drop(given_up);
    drop(first);
    write(&volume, 0, 9, 4096).await.unwrap();
}

#[tokio::test]
async fn requests_are_checked_against_the_size_of_the_moment() {
    let fake = Fake::start(2 * MIB);
    let (volume, _) = volume(settings(), &[(&fake, all_features())]).await;
    let beyond = write(&volume, MIB, 1, 512).await.unwrap_err();
    let text = "EOF: Write of 512 bytes at offset 1048576 is beyond volume size 1048576";
    assert_eq!(beyond.to_string(), text);
    volume.resize(2 * MIB).await.unwrap();
    write(&volume, MIB, 1, 512).await.unwrap();
}

#[tokio::test]
async fn figures_of_a_second_are_seen_and_pass() {
    let fake = Fake::start(MIB);
    let (volume, _) = volume(settings(), &[(&fake, all_features())]).await;
    until("a second without", || volume.traffic() == Traffic::default()).await;
    let end = Instant::now() + TIMEOUT;
    let seen = loop {
        write(&volume, 0, 1, 4096).await.unwrap();
        // A second that nobody had the time to look at is gone: then with another write.
        let look = async {
            loop {
                match volume.traffic() {
                    seen if seen != Traffic::default() => return seen,
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        match tokio::time::timeout(Duration::from_secs(4), look).await {
            Ok(seen) => break seen,
            Err(_) => assert!(Instant::now() < end, "no second shows a write"),
        }
    };
    assert_eq!((seen.write_bytes, seen.write_count), (4096, 1));
    until("a second without", || volume.traffic() == Traffic::default()).await;
    volume.log_journal(0).await;
}

#[tokio::test]
async fn a_stopped_volume_answers_everything_with_an_error() {
    let fake = Fake::start(MIB);
    let (volume, _) = volume(settings(), &[(&fake, all_features())]).await;
    volume.stop().await;
    assert!(write(&volume, 0, 1, 512).await.is_err());
    assert!(volume.attach(&fake.target(), all_features(), Mode::Rw).await.is_err());
    assert!(volume.members().borrow().is_empty());
    drop(volume.hold(Hold::All).await);
    volume.stop().await;
}
