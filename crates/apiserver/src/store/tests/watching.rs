//! Watches while others write.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;

use super::*;

fn history(events: usize) -> Options {
    let budget = Budget { events, bytes: usize::MAX };
    Options { history: budget, feed: budget, ..Options::default() }
}

/// The event a watcher is given next, when exactly one is.
async fn only(watcher: &mut Watcher) -> Arc<Event> {
    let mut events = tokio::time::timeout(DEADLINE, watcher.next()).await.unwrap().unwrap();
    assert_eq!(events.len(), 1);
    events.remove(0)
}

#[tokio::test]
async fn a_watch_reports_each_change_with_the_state_before() {
    let home = Home::new();
    let store = home.open();
    let mut watcher = store.watch("things", None, store.revision()).unwrap();
    let made = store.write(create("a")).await.unwrap();
    let event = only(&mut watcher).await;
    assert!(event.is_creation());
    assert_eq!(event.revision, made.revision);
    let changed = store.write(update(&made, "second")).await.unwrap();
    let event = only(&mut watcher).await;
    assert_eq!((event.kind, event.revision), (EventKind::Put, changed.revision));
    assert_eq!(event.previous.as_ref().unwrap().body, made.body);
    let gone = store.write(delete(&changed)).await.unwrap();
    let event = only(&mut watcher).await;
    assert_eq!((event.kind, event.revision), (EventKind::Delete, gone.revision));
    assert_eq!(event.object.body, gone.body);
    assert_eq!(event.previous.as_ref().unwrap().body, changed.body);
    assert_eq!(watcher.progress(), gone.revision);
}

#[tokio::test]
async fn a_quiet_watch_makes_progress_and_keeps_its_place() {
    let home = Home::new();
    let store = home.open_with(&history(4));
    let start = store.revision();
    let mut watcher = store.watch("things", Some("quiet"), start).unwrap();
    let mut other = store.watch("others", None, start).unwrap();
    let mut stored = store.write(create("a")).await.unwrap();
    for round in 0..50 {
        stored = store.write(update(&stored, &round.to_string())).await.unwrap();
    }
    // Nothing of `others` was forgotten, because nothing ever happened there.
    assert_eq!(other.progress(), stored.revision);
    assert!(store.watch("others", None, start).is_ok());
    // But of `things` something was, and the watcher cannot know that it was not for it.
    assert_eq!(watcher.progress(), start);
    assert!(watcher.next().await.is_err());
    let write = Write { key: Key::new("others", "", "b"), ..create("b") };
    let made = store.write(write).await.unwrap();
    assert_eq!(only(&mut other).await.revision, made.revision);
}

#[tokio::test]
async fn a_watch_from_the_future_is_silent_until_then() {
    let home = Home::new();
    let store = home.open();
    let mut watcher = store.watch("things", None, store.revision() + 2).unwrap();
    for name in ["a", "b", "c"] {
        store.write(create(name)).await.unwrap();
    }
    assert_eq!(&*only(&mut watcher).await.object.key.name, "c");
}

#[tokio::test]
async fn after_a_restart_only_the_newest_revision_can_be_resumed() {
    let home = Home::new();
    let store = home.open();
    store.write(create("a")).await.unwrap();
    drop(store);
    let store = home.open();
    let now = store.revision();
    let too_old = TooOld { requested: now - 1, oldest: now };
    for resource in ["things", "never-seen"] {
        assert_eq!(store.watch(resource, None, now - 1).unwrap_err(), too_old);
        assert_eq!(store.list_at(resource, None, now - 1).unwrap_err(), too_old);
        assert!(store.watch(resource, None, now).is_ok());
        assert!(store.list_at(resource, None, now).is_ok());
    }
    assert_eq!(store.watch_all(now - 1).unwrap_err(), too_old);
    let mut watcher = store.watch("things", None, now).unwrap();
    store.write(create("b")).await.unwrap();
    assert_eq!(&*only(&mut watcher).await.object.key.name, "b");
}

#[tokio::test]
async fn a_busy_resource_does_not_push_out_the_history_of_a_quiet_one() {
    let home = Home::new();
    let store = home.open_with(&history(20));
    let start = store.revision();
    let quiet = Write { key: Key::new("quiet", "", "q"), ..create("q") };
    store.write(quiet).await.unwrap();
    let mut stored = store.write(create("lease")).await.unwrap();
    for round in 0..200 {
        stored = store.write(update(&stored, &round.to_string())).await.unwrap();
    }
    assert_eq!(only(&mut store.watch("quiet", None, start).unwrap()).await.revision, start + 1);
    assert!(store.watch("things", None, start).is_err());
    assert_eq!(store.stats().figures().log_events, 20);
}

#[tokio::test]
async fn the_shared_line_is_made_once() {
    let home = Home::new();
    let store = home.open();
    let start = store.revision();
    store.write(create("a")).await.unwrap();
    let first = only(&mut store.watch("things", None, start).unwrap()).await;
    let second = only(&mut store.watch_all(start).unwrap()).await;
    assert_eq!(first.line(|_| bytes::Bytes::from_static(b"one")), "one");
    assert_eq!(second.line(|_| unreachable!("made already")), "one");
}

/// Follows until `last` was seen; lists again when too late, as clients do. Returns the objects as
/// it knows them then, and how often it had to list.
async fn follow(store: Store, namespace: Option<&'static str>, last: u64) -> (Vec<Key>, usize) {
    let mut lists = 0;
    'list: loop {
        let snapshot = store.list("things", namespace);
        lists += 1;
        let mut known: std::collections::BTreeMap<Key, u64> =
            snapshot.items.iter().map(|item| (item.key.clone(), item.revision)).collect();
        let Ok(mut watcher) = store.watch("things", namespace, snapshot.revision) else {
            continue 'list;
        };
        let mut position = snapshot.revision;
        while watcher.progress() < last {
            let next = tokio::time::timeout(Duration::from_millis(10), watcher.next()).await;
            let events = match next {
                Ok(Ok(events)) => events,
                Ok(Err(_)) => continue 'list,
                Err(_) => continue,
            };
            for event in events {
                assert!(event.revision > position, "in order, nothing twice");
                position = event.revision;
                // Nothing was missed: the state before is the one we know.
                let before = event.previous.as_ref().map(|previous| previous.revision);
                assert_eq!(known.get(&event.object.key).copied(), before);
                match event.kind {
                    EventKind::Put => known.insert(event.object.key.clone(), event.revision),
                    EventKind::Delete => known.remove(&event.object.key),
                };
            }
            tokio::task::yield_now().await;
        }
        return (known.into_keys().collect(), lists);
    }
}

async fn churn(store: Store, writer: usize, rounds: usize) {
    for round in 0..rounds {
        let name = format!("w{writer}-{}", round % 5);
        let namespace = if round % 2 == 0 { "even" } else { "odd" };
        let key = Key::new("things", namespace, name.as_str());
        let write = match store.get("things", namespace, &name) {
            None => Write { key, ..create(&name) },
            Some(found) if round % 7 == 0 => delete(&found),
            Some(found) => update(&found, &round.to_string()),
        };
        store.write(write).await.unwrap();
    }
}

async fn watch_under_load(events: usize) -> usize {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 150;
    let home = Home::new();
    let store = home.open_with(&history(events));
    let last = store.revision() + u64::try_from(WRITERS * ROUNDS).unwrap();
    let mut watchers = JoinSet::new();
    for namespace in [None, Some("even"), Some("odd"), None] {
        watchers.spawn(follow(store.clone(), namespace, last));
    }
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(churn(store.clone(), writer, ROUNDS));
    }
    writers.join_all().await;
    assert_eq!(store.revision(), last);
    let mut all_lists = 0;
    for (known, lists) in watchers.join_all().await {
        all_lists += lists;
        let namespaces: std::collections::BTreeSet<_> =
            known.iter().map(|key| &*key.namespace).collect();
        let scope = (namespaces.len() == 1).then(|| *namespaces.iter().next().unwrap());
        let expected: Vec<_> =
            store.list("things", scope).items.iter().map(|item| item.key.clone()).collect();
        assert_eq!(known, expected);
    }
    all_lists
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_lose_and_repeat_nothing_under_load() {
    assert_eq!(watch_under_load(100_000).await, 4, "with enough history nobody lists twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_fall_behind_are_told() {
    watch_under_load(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_consistent_while_others_write() {
    let home = Home::new();
    let store = home.open();
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    readers.spawn({
        let (store, done) = (store.clone(), Arc::clone(&done));
        async move {
            while !done.load(Ordering::SeqCst) {
                let snapshot = store.list("things", None);
                let again = store.list_at("things", None, snapshot.revision).unwrap();
                let revisions = |items: &[Arc<Stored>]| -> Vec<u64> {
                    items.iter().map(|item| item.revision).collect()
                };
                assert_eq!(revisions(&snapshot.items), revisions(&again.items));
                assert!(revisions(&snapshot.items).iter().all(|it| *it <= snapshot.revision));
                tokio::task::yield_now().await;
            }
        }
    });
    churn(store.clone(), 0, 300).await;
    done.store(true, Ordering::SeqCst);
    readers.join_all().await;
}
