use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use tokio::sync::{mpsc, oneshot};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

fn names(tasks: &Tasks) -> Vec<String> {
    tasks.list().into_iter().map(|task| task.name).collect()
}

async fn forever() {
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn stopping_drops_plain_work_at_its_await() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let tasks = Tasks::new();
    let held = Dropped(Arc::clone(&dropped));
    tasks.spawn("holder", async move {
        let _held = held;
        forever().await;
    });
    tasks.stop(TIMEOUT).await.unwrap();
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(names(&tasks), Vec::<String>::new());
}

#[tokio::test]
async fn draining_work_finishes_what_it_began() {
    let tasks = Tasks::new();
    let (done, finished) = oneshot::channel();
    tasks.spawn_draining("writer", |stop| async move {
        stop.stopping().await;
        tokio::task::yield_now().await;
        done.send(()).unwrap();
    });
    tasks.stop(TIMEOUT).await.unwrap();
    finished.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_end_is_named() {
    let tasks = Tasks::new();
    tasks.child("volumes").child("v1").spawn_draining("flush", |_| forever());
    tasks.spawn("good", forever());
    let error = tasks.stop(Duration::from_millis(1500)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 of the background tasks did not end within 1500 ms: volumes/v1/flush"
    );
}

#[tokio::test]
async fn stopping_a_scope_leaves_the_others_alone() {
    let tasks = Tasks::new();
    let (one, other) = (tasks.child("one"), tasks.child("other"));
    one.spawn("a", forever());
    one.child("below").spawn("b", forever());
    other.spawn("c", forever());
    assert_eq!(names(&tasks), ["one/a", "one/below/b", "other/c"]);
    assert_eq!(names(&one), ["one/a", "one/below/b"]);
    one.stop(TIMEOUT).await.unwrap();
    assert!(!tasks.stop_signal().is_stopping());
    assert_eq!(names(&tasks), ["other/c"]);
    tasks.stop(TIMEOUT).await.unwrap();
    assert!(other.stop_signal().is_stopping());
}

#[tokio::test]
async fn a_panic_is_counted_and_hurts_nobody_else() {
    let tasks = Tasks::new();
    tasks.spawn("broken", async { panic!("on purpose {}", 1) });
    tasks.spawn_blocking("broken", |_| panic!("on purpose"));
    let failed = tasks.child("sql").blocking("query", || -> u32 { panic!("on purpose") }).await;
    let expected =
        BlockingError::Panicked { name: "sql/query".to_owned(), message: "on purpose".to_owned() };
    assert_eq!(failed.unwrap_err(), expected);
    assert_eq!(tasks.blocking("query", || 7).await, Ok(7));
    tasks.stop(TIMEOUT).await.unwrap();
    assert_eq!(tasks.panics(), 3);
}

#[tokio::test]
async fn blocking_work_hears_of_the_stop_and_is_waited_for() {
    let tasks = Tasks::new();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let (ended, mut end) = mpsc::channel(1);
    tasks.spawn_blocking("reader", move |stop| {
        gone.recv().unwrap();
        assert!(stop.is_stopping());
        ended.blocking_send(()).unwrap();
    });
    tasks.begin_stop();
    let early = tasks.stop(Duration::ZERO).await.unwrap_err();
    assert_eq!(early.still_running, ["reader"]);
    go.send(()).unwrap();
    tasks.stop(TIMEOUT).await.unwrap();
    end.recv().await.unwrap();
    assert_eq!(tasks.panics(), 0);
}

#[tokio::test]
async fn nothing_starts_in_a_stopped_scope() {
    let tasks = Tasks::new();
    tasks.stop(TIMEOUT).await.unwrap();
    tasks.spawn("late", async { panic!("never polled") });
    tasks.spawn_blocking("late", |_| panic!("never run"));
    tasks.child("new").spawn("late", async { panic!("never polled") });
    tasks.stop(TIMEOUT).await.unwrap();
    assert_eq!(tasks.panics(), 0);
    assert_eq!(tasks.blocking("drain", || 1).await, Ok(1), "those who drain may still work");
}

#[tokio::test]
async fn or_stop_gives_the_output_or_nothing() {
    let tasks = Tasks::new();
    assert_eq!(tasks.stop_signal().or_stop(async { 1 }).await, Some(1));
    tasks.begin_stop();
    assert_eq!(tasks.stop_signal().or_stop(forever()).await, None);
    tasks.stop_signal().stopping_owned().await;
}

#[test]
fn a_dropped_runtime_leaves_nothing_listed() {
    let tasks = Tasks::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { tasks.spawn("orphan", forever()) });
    assert_eq!(names(&tasks), ["orphan"]);
    drop(runtime);
    assert_eq!(names(&tasks), Vec::<String>::new());
}

proptest! {
    /// Whatever the tree looks like, stopping its root ends all of it.
    #[test]
    fn stopping_the_root_ends_every_task(parents in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut scopes = vec![Tasks::new()];
            for parent in &parents {
                let scope = scopes[parent.index(scopes.len())].child("scope");
                scope.spawn("plain", forever());
                scope.spawn_draining("draining", |stop| async move { stop.stopping().await });
                scopes.push(scope);
            }
            assert_eq!(scopes[0].list().len(), 2 * parents.len());
            scopes[0].stop(TIMEOUT).await.unwrap();
            for scope in &scopes {
                assert!(scope.list().is_empty());
                assert!(scope.stop_signal().is_stopping());
            }
        });
    }
}
