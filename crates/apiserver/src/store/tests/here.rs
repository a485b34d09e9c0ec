//! Writes that come alone, and are done on the thread of whoever brings them.

#![expect(clippy::disallowed_methods, reason = "each test awaits what it spawns")]

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ThreadId;

use super::*;

/// The threads on which changes became visible, in order.
fn places(store: &Store) -> Arc<Mutex<Vec<ThreadId>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    store.follow(move |_event| told.lock().unwrap().push(std::thread::current().id()));
    seen
}

/// Writes in a task of its own, and says on which thread it began.
fn bring(
    store: &Store,
    write: Write,
) -> tokio::task::JoinHandle<(ThreadId, Result<Arc<Stored>, WriteError>)> {
    let store = store.clone();
    tokio::spawn(async move { (std::thread::current().id(), store.write_here(write).await) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_comes_alone_is_done_where_it_is_brought() {
    let home = Home::new();
    let store = home.open();
    let places = places(&store);
    let (brought, made) = bring(&store, create("a")).await.unwrap();
    let made = made.unwrap();
    assert_eq!(*places.lock().unwrap(), [brought]);
    // Who has other things to do brings it to the writer.
    store.write(update(&made, "second")).await.unwrap();
    assert_ne!(places.lock().unwrap()[1], brought);
    // A refusal is one here too.
    let (_, refused) = bring(&store, create("a")).await.unwrap();
    assert!(matches!(refused, Err(WriteError::Exists)));
    drop(store);
    assert_eq!(names(&home.open().list("things", None).items), ["a"]);
}

#[tokio::test]
async fn a_runtime_of_one_thread_does_not_wait_for_the_disk() {
    let home = Home::new();
    let store = home.open();
    let places = places(&store);
    store.write_here(create("a")).await.unwrap();
    assert_ne!(*places.lock().unwrap(), [std::thread::current().id()]);
}

/// A store whose next commit is held between the disk and memory until it is let go.
fn held() -> (Home, Store, Receiver<()>, Sender<()>) {
    let home = Home::new();
    let store = home.open();
    let (reached, is_reached) = channel();
    let (let_go, go) = channel();
    let gate = Mutex::new(Some((reached, go)));
    store.follow(move |_event| {
        let once = gate.lock().unwrap().take();
        if let Some((reached, go)) = once {
            reached.send(()).unwrap();
            go.recv_timeout(DEADLINE).unwrap();
        }
    });
    (home, store, is_reached, let_go)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_while_another_is_written_waits_without_a_thread() {
    let (home, store, is_reached, let_go) = held();
    let first = bring(&store, create("a"));
    is_reached.recv_timeout(DEADLINE).unwrap();
    // It is on the disk, and nobody sees it; more come, of both kinds.
    let mut later: Vec<_> = ["b", "c", "d"].map(|name| bring(&store, create(name))).into();
    let queued = store.clone();
    later.push(tokio::spawn(async move {
        (std::thread::current().id(), queued.write(create("e")).await)
    }));
    // Reads go on, with as many threads as there were.
    for _ in 0..8 {
        let reader = store.clone();
        let read = tokio::spawn(async move { reader.list("things", None).items.len() });
        assert_eq!(read.await.unwrap(), 0);
    }
    // Whoever gives up changes nothing for the others.
    later.pop().unwrap().abort();
    let_go.send(()).unwrap();
    first.await.unwrap().1.unwrap();
    for write in later {
        write.await.unwrap().1.unwrap();
    }
    store.close().await;
    assert!(matches!(bring(&store, create("z")).await.unwrap().1, Err(WriteError::Stopped)));
    let expected = store.list("things", None);
    drop(store);
    let found = home.open().list("things", None);
    assert_eq!(names(&found.items), names(&expected.items));
    assert_eq!(names(&found.items)[..4], ["a", "b", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_waits_for_the_write_that_is_being_done() {
    let (home, store, is_reached, let_go) = held();
    let first = bring(&store, create("a"));
    is_reached.recv_timeout(DEADLINE).unwrap();
    let closing = store.clone();
    let closed = tokio::spawn(async move { closing.close().await });
    let_go.send(()).unwrap();
    closed.await.unwrap();
    let made = first.await.unwrap().1.unwrap();
    drop(store);
    assert_eq!(home.open().get("things", "default", "a").unwrap().revision, made.revision);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_breaks_down_where_it_was_brought_to_writes_no_more() {
    let home = Home::new();
    let store = home.open();
    store.follow(|event| assert_ne!(&*event.object.key.name, "bad", "a bug"));
    bring(&store, create("good")).await.unwrap().1.unwrap();
    assert!(bring(&store, create("bad")).await.is_err(), "the task has panicked");
    assert_eq!(store.condition(), Condition::Ended);
    for write in [store.write(create("b")).await, bring(&store, create("c")).await.unwrap().1] {
        assert!(matches!(write, Err(WriteError::Stopped)), "{write:?}");
    }
    assert_eq!(names(&store.list("things", None).items), ["good"], "reads go on");
    store.close().await;
    drop(store);
    // It was durable, though nobody was told.
    assert_eq!(names(&home.open().list("things", None).items), ["bad", "good"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_failed_here_is_settled_as_any_other() {
    for is_committed in [true, false] {
        let home = Home::new();
        let options = Options::default();
        let store = home.open_with(&options);
        if is_committed {
            options.faults.lose_answer();
        } else {
            options.faults.lose_commit();
        }
        options.faults.refuse_reconnects(1);
        let (_, first) = bring(&store, create("a")).await.unwrap();
        assert!(matches!(first, Err(WriteError::Storage(_))), "{first:?}");
        bring(&store, create("b")).await.unwrap().1.unwrap();
        let expected: &[&str] = if is_committed { &["a", "b"] } else { &["b"] };
        assert_eq!(names(&store.list("things", None).items), expected);
        drop(store);
        assert_eq!(names(&home.open().list("things", None).items), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_here_too_and_deletions_go_on() {
    let home = Home::new();
    let options = Options::default();
    let store = home.open_with(&options);
    let made = bring(&store, create("a")).await.unwrap().1.unwrap();
    options.faults.use_up_quota(true);
    for _ in 0..3 {
        let (_, refused) = bring(&store, create("b")).await.unwrap();
        assert!(matches!(refused, Err(WriteError::Full)), "{refused:?}");
    }
    bring(&store, delete(&made)).await.unwrap().1.unwrap();
    options.faults.use_up_quota(false);
    bring(&store, create("b")).await.unwrap().1.unwrap();
    drop(store);
    assert_eq!(names(&home.open().list("things", None).items), ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_writes_that_come_alone_is_copied_back_too() {
    let home = Home::new();
    let store = home.open();
    let writer = store.clone();
    let write_all = tokio::spawn(async move {
        let mut last = writer.write_here(create("a")).await.unwrap();
        for round in 0..3000 {
            last = writer.write_here(update(&last, &"x".repeat(round))).await.unwrap();
        }
    });
    write_all.await.unwrap();
    let log = home.0.path().join("objects.db-wal");
    let bytes = std::fs::metadata(&log).unwrap().len();
    assert!(bytes <= 12 << 20, "log of {bytes} bytes");
    drop(store);
}
