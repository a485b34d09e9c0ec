//! Snapshots of a real etcd, and what may go wrong meanwhile.

use std::time::Duration;

use etcdguard::control::TriggerError;
use etcdguard::store::{Include, Kind};
use rustix::process::{Pid, Signal, kill_process};

use crate::guard::{Running, SPARSE, Settings, assert_whole};
use crate::member::{Alone, TIMEOUT};

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_takes_one_full_and_a_restart_goes_on_with_deltas() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    etcd.put("a", "1").await.unwrap();
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let sparse = Settings { schedule: SPARSE.to_owned(), ..settings.clone() };
    let mut guard = Running::start(&sparse);
    guard.active().await;
    assert_eq!(guard.snapshotter().delta().await, Ok(None));
    assert_eq!(guard.ranges().await, [(Kind::Full, 0, 2)]);
    guard.stop().await;

    etcd.put("b", "2").await.unwrap();
    etcd.put("c", "3").await.unwrap();
    let mut guard = Running::start(&settings);
    guard.active().await;
    assert_eq!(guard.ranges().await, [(Kind::Full, 0, 2), (Kind::Incr, 3, 4)]);
    let delta = guard.store.list(Include::All).await.unwrap().pop().unwrap();
    assert_eq!(guard.revisions(&delta).await, [3, 4]);
    guard.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delta_on_request_holds_every_acknowledged_write() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    let mut guard = Running::start(&Settings::new(alone.config(), alone.scratch.path()));
    guard.active().await;
    let mut before = 1;
    for round in 0..40 {
        let revision = etcd.put("w", round.to_string()).await.unwrap();
        let delta = guard.snapshotter().delta().await.unwrap().unwrap();
        assert_eq!((delta.start_revision, delta.last_revision), (before + 1, revision));
        before = revision;
    }
    guard.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_full_is_taken_once_and_any_other_whenever_it_is_asked_for() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    let mut guard = Running::start(&Settings::new(alone.config(), alone.scratch.path()));
    guard.active().await;
    let ask = guard.snapshotter();
    etcd.put("a", "1").await.unwrap();
    let last = ask.full(true).await.unwrap();
    assert!(last.is_final && last.snap_name.ends_with(".gz.final"), "{last:?}");
    assert_eq!(ask.full(true).await.unwrap(), last);
    let plain = ask.full(false).await.unwrap();
    assert_eq!((plain.is_final, plain.last_revision), (false, 2));
    etcd.put("b", "1").await.unwrap();
    assert_eq!(ask.delta().await.unwrap().unwrap().start_revision, 3);
    guard.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_cuts_deltas_and_never_a_revision() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let mut guard = Running::start(&Settings { delta_memory_limit: 20_000, ..settings });
    guard.active().await;
    let mut last = 0;
    for round in 0..60 {
        last = etcd.put(format!("m/{round}"), vec![b'x'; 600]).await.unwrap();
    }
    guard.snapshotter().delta().await.unwrap();
    let deltas = guard.store.list(Include::All).await.unwrap();
    let deltas: Vec<_> = deltas.iter().filter(|one| one.kind == Kind::Incr).collect();
    assert!(deltas.len() >= 3, "{deltas:?}");
    let mut before = 1;
    for delta in deltas {
        let wanted: Vec<i64> = (before + 1..=delta.last_revision).collect();
        assert_eq!(guard.revisions(delta).await, wanted);
        before = delta.last_revision;
    }
    assert_eq!(before, last);
    guard.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_that_is_gone_makes_a_full() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let mut guard = Running::start(&settings);
    guard.active().await;
    guard.stop().await;
    for value in ["1", "2", "3"] {
        etcd.put("a", value).await.unwrap();
    }
    etcd.compact(4, TIMEOUT).await.unwrap();
    let mut guard = Running::start(&settings);
    guard.active().await;
    assert_eq!(guard.ranges().await, [(Kind::Full, 0, 1), (Kind::Full, 0, 4)]);
    guard.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_store_loses_nothing() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let mut guard = Running::start(&settings);
    guard.active().await;
    etcd.put("a", "1").await.unwrap();
    let (objects, aside) = (settings.objects(), settings.home.join("aside"));
    std::fs::rename(&objects, &aside).unwrap();
    std::fs::File::create(&objects).unwrap();
    let error = guard.snapshotter().delta().await.unwrap_err();
    assert!(matches!(error, TriggerError::Failed(_)), "{error}");
    assert!(error.to_string().contains("a part of it is an object"), "the cause is told: {error}");
    etcd.put("b", "1").await.unwrap();
    std::fs::remove_file(&objects).unwrap();
    std::fs::rename(&aside, &objects).unwrap();
    guard.active().await;
    let ask = guard.snapshotter();
    let covered = async {
        while ask.delta().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, covered).await.unwrap();
    let ranges = guard.ranges().await;
    let (_, first, _) = ranges[1];
    let (_, _, last) = *ranges.last().unwrap();
    assert_eq!((first, last), (2, 3), "{ranges:?}");
    guard.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_open_is_answered_when_the_etcd_hangs_or_the_guard_stops() {
    let Some(alone) = Alone::start() else { return };
    let mut guard = Running::start(&Settings::new(alone.config(), alone.scratch.path()));
    guard.active().await;
    let pid = Pid::from_raw(i32::try_from(alone.member.process.id()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let ask = guard.snapshotter();
    let (full, delta) =
        tokio::time::timeout(TIMEOUT, async { tokio::join!(ask.full(false), ask.delta()) })
            .await
            .unwrap();
    assert_eq!((full, delta), (Err(TriggerError::NotActive), Err(TriggerError::NotActive)));
    kill_process(pid, Signal::CONT).unwrap();
    guard.active().await;
    kill_process(pid, Signal::STOP).unwrap();
    let asking = ask.clone();
    let (answer, ()) = tokio::join!(asking.full(false), guard.stop());
    assert_eq!(answer, Err(TriggerError::NotActive));
    assert_eq!(ask.delta().await, Err(TriggerError::NotActive));
    kill_process(pid, Signal::CONT).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_guards_that_both_lead_leave_no_gap() {
    let Some(alone) = Alone::start() else { return };
    let etcd = alone.connect();
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let (mut one, mut other) = (Running::start(&settings), Running::start(&settings));
    one.active().await;
    other.active().await;
    let mut last = 0;
    for round in 0..30 {
        last = etcd.put(format!("k/{}", round % 7), round.to_string()).await.unwrap();
        match round % 5 {
            1 => drop(one.snapshotter().delta().await.unwrap()),
            3 => drop(other.snapshotter().delta().await.unwrap()),
            4 if round > 20 => drop(one.snapshotter().full(false).await.unwrap()),
            _ => {}
        }
    }
    let (a, b) = (one.snapshotter(), other.snapshotter());
    let (a, b) = tokio::join!(a.delta(), b.delta());
    a.unwrap();
    b.unwrap();
    assert_whole(&one, last).await;
    one.stop().await;
    other.stop().await;
}
