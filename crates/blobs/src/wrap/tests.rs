use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use telemetry::Registry;

use super::*;
use crate::conformance;
use crate::remote::memory;
use crate::store::get_limited;

fn key() -> Key {
    Key::parse("a/b").unwrap()
}

fn faulty() -> (Arc<dyn Store>, Faults) {
    let faults = Faults::default();
    (Faulty::around(memory(), faults.clone()), faults)
}

fn retrying(inner: Arc<dyn Store>) -> Arc<dyn Store> {
    Retrying::around(inner, Policy { tries_max: 4, ..Policy::default() })
}

#[tokio::test]
async fn every_wrapper_passes_the_suite() {
    let mut registry = Registry::new("test");
    let metrics = Metrics::register(&mut registry);
    let limit = NonZeroUsize::new(2).unwrap();
    let store = Measured::around(memory(), metrics, "main");
    let store = Faulty::around(Limited::around(store, limit), Faults::default());
    let store = retrying(store);
    conformance::run(store.as_ref(), &Prefix::parse("suite").unwrap()).await;
    let text = registry.encode();
    for line in [
        "test_store_calls_total{store=\"main\",method=\"put_new\",outcome=\"conflict\"}",
        "test_store_calls_total{store=\"main\",method=\"list\",outcome=\"ok\"}",
        "test_store_running_calls{store=\"main\"} 0",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_tried_again_and_meets_its_own_write() {
    for fault in [Fault::Before, Fault::After] {
        let (inner, faults) = faulty();
        let store = retrying(inner);
        faults.plan(1, fault);
        let version = store.put_new(&key(), "one".into()).await.unwrap();
        faults.plan(1, fault);
        store.put_if_match(&key(), "two".into(), &version).await.unwrap();
        faults.plan(1, fault);
        assert_eq!(get_limited(store.as_ref(), &key(), 9).await.unwrap().bytes, "two");
        faults.plan(1, fault);
        store.head(&key()).await.unwrap();
        faults.plan(1, fault);
        store.list(&Prefix::ROOT, None).await.unwrap();
        faults.plan(1, fault);
        store.delete(&key()).await.unwrap();
        assert_eq!(faults.waiting(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_gave_leave_to_remove_is_told_what_was_not_answered() {
    let told = Arc::new(AtomicUsize::new(0));
    let permit = Permit::new(|| true).telling({
        let told = Arc::clone(&told);
        move || {
            told.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (inner, faults) = faulty();
    let store = retrying(inner);
    store.delete_within(&key(), &permit).await.unwrap();
    store.delete_many(&[key()], &permit).await.unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 0);
    for fault in [Fault::Before, Fault::After] {
        faults.plan(1, fault);
        store.delete_within(&key(), &permit).await.unwrap();
        faults.plan(1, fault);
        store.delete_many(&[key()], &permit).await.unwrap();
    }
    assert_eq!(told.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn the_write_of_another_is_not_taken_for_ours() {
    let (inner, faults) = faulty();
    inner.put_new(&key(), "other".into()).await.unwrap();
    let store = retrying(inner);
    for bytes in ["one", "othe", "other and more"] {
        faults.plan(1, Fault::Before);
        let refused = store.put_new(&key(), bytes.into()).await;
        assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn tries_end() {
    let (inner, faults) = faulty();
    for nth in 1..=9 {
        faults.plan(nth, Fault::Before);
    }
    let error = retrying(inner).head(&key()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }));
    assert_eq!(faults.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_go_better_is_not_tried_again() {
    let (inner, faults) = faulty();
    let store = retrying(inner);
    assert!(store.head(&key()).await.unwrap_err().is_not_found());
    assert_eq!(faults.calls(), 1);
}

#[test]
fn pauses_grow_to_a_limit() {
    let policy = Policy::default();
    let pauses: Vec<_> = (1..=40).map(|tries| policy.longest_pause(tries)).collect();
    assert!(pauses.is_sorted());
    assert_eq!(pauses[0], policy.first_pause);
    assert_eq!(pauses[39], policy.pause_max);
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_than_the_limit() {
    let (slow, faults) = faulty();
    for nth in 1..=6 {
        faults.plan(nth, Fault::Delay(Duration::from_secs(1)));
    }
    let store = Limited::around(slow, NonZeroUsize::new(2).unwrap());
    let started = tokio::time::Instant::now();
    join_all((0..6).map(|_| async { store.list(&Prefix::ROOT, None).await.unwrap() })).await;
    assert_eq!(started.elapsed().as_secs(), 3, "six calls, two at a time");
}
