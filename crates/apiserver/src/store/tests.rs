//! What the store promises, from outside. `model` compares it with a plain map, `watching` is about
//! changes under load, `file` about what is on disk, `failing` about disks that fail, `here` about writes that come alone.

mod failing;
mod file;
mod here;
mod model;
mod watching;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// Long enough for any machine; only a broken test waits it out.
const DEADLINE: Duration = Duration::from_mins(1);

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("objects.db")
    }

    fn open(&self) -> Store {
        self.open_with(&Options::default())
    }

    fn open_with(&self, options: &Options) -> Store {
        Store::open(self.file(), options).unwrap()
    }

    fn rejection(&self) -> OpenError {
        Store::open(self.file(), &Options::default()).unwrap_err()
    }
}

fn key(name: &str) -> Key {
    Key::new("things", "default", name)
}

fn body(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "value": value})
}

fn create(name: &str) -> Write {
    put(name, Expected::Absent, "first")
}

fn put(name: &str, expected: Expected, value: &str) -> Write {
    let change = Change::Put(body(name, value));
    Write { key: key(name), expected, require: Vec::new(), change }
}

fn update(stored: &Stored, value: &str) -> Write {
    let change = Change::Put(body(&stored.key.name, value));
    let expected = Expected::Revision(stored.revision);
    Write { key: stored.key.clone(), expected, require: Vec::new(), change }
}

fn delete(stored: &Stored) -> Write {
    let change = Change::Delete(stored.value().unwrap());
    let expected = Expected::Revision(stored.revision);
    Write { key: stored.key.clone(), expected, require: Vec::new(), change }
}

fn names(items: &[Arc<Stored>]) -> Vec<&str> {
    items.iter().map(|item| &*item.key.name).collect()
}

#[tokio::test]
async fn a_write_is_read_back_with_its_revision() {
    let home = Home::new();
    let store = home.open();
    let before = store.revision();
    assert!(before > 1);
    let made = store.write(create("a")).await.unwrap();
    assert_eq!(made.revision, before + 1);
    assert_eq!(store.revision(), made.revision);
    assert_eq!(made.value().unwrap()["metadata"]["resourceVersion"], made.revision.to_string());
    assert_eq!(store.get("things", "default", "a").unwrap().body, made.body);
    assert!(store.get("things", "other", "a").is_none());
    assert!(store.get("others", "default", "a").is_none());
    let changed = store.write(update(&made, "second")).await.unwrap();
    assert_eq!(changed.revision, made.revision + 1);
    let gone = store.write(delete(&changed)).await.unwrap();
    assert_eq!(gone.revision, changed.revision + 1);
    assert_eq!(gone.value().unwrap()["metadata"]["resourceVersion"], gone.revision.to_string());
    assert_eq!(gone.value().unwrap()["value"], "second");
    assert!(store.get("things", "default", "a").is_none());
    assert_eq!(store.count("things"), 0);
}

#[tokio::test]
async fn writes_happen_only_on_what_they_expect() {
    let home = Home::new();
    let store = home.open();
    let made = store.write(create("a")).await.unwrap();
    let revision = store.revision();
    assert!(matches!(store.write(create("a")).await, Err(WriteError::Exists)));
    let stale = store.write(put("a", Expected::Revision(made.revision - 1), "x")).await;
    match stale {
        Err(WriteError::Conflict { current: Some(current) }) => {
            assert_eq!(current.revision, made.revision);
        }
        other => panic!("{other:?}"),
    }
    let absent = store.write(put("b", Expected::Revision(made.revision), "x")).await;
    assert!(matches!(absent, Err(WriteError::Conflict { current: None })));
    let nothing = Write {
        key: key("b"),
        expected: Expected::Absent,
        require: Vec::new(),
        change: Change::Delete(body("b", "x")),
    };
    let nothing = store.write(nothing).await;
    assert!(matches!(nothing, Err(WriteError::Conflict { current: None })));
    assert_eq!(store.revision(), revision, "a refused write consumes no revision");
    assert_eq!(store.stats().figures().rejected, 4);
}

#[tokio::test]
async fn a_required_object_must_be_unchanged_at_commit() {
    let home = Home::new();
    let store = home.open();
    let namespace = store.write(create("space")).await.unwrap();
    let needing = |name: &str, revision| Write {
        require: vec![Require { key: key("space"), revision }],
        ..create(name)
    };
    store.write(needing("a", namespace.revision)).await.unwrap();
    // Queued together, so that the requirement is decided against the batch itself.
    let (gone, late) = tokio::join!(
        store.write(delete(&namespace)),
        store.write(needing("b", namespace.revision))
    );
    gone.unwrap();
    assert!(matches!(late, Err(WriteError::RequirementChanged)));
    assert!(store.get("things", "default", "b").is_none());
}

#[tokio::test]
async fn a_write_that_was_lent_can_be_tried_again() {
    let home = Home::new();
    let store = home.open();
    let space = store.write(create("space")).await.unwrap();
    let missed = Require { key: key("space"), revision: space.revision - 1 };
    let mut write = Write { require: vec![missed], ..create("a") };
    let early = store.write(&write).await;
    assert!(matches!(early, Err(WriteError::RequirementChanged)));
    write.require = vec![Require { key: key("space"), revision: space.revision }];
    let made = store.write(&write).await.unwrap();
    assert_eq!(made.value().unwrap()["value"], "first");
}

#[tokio::test]
async fn of_many_writers_from_one_revision_exactly_one_wins() {
    let home = Home::new();
    let store = home.open();
    let made = store.write(create("a")).await.unwrap();
    let values: Vec<String> = (0..64).map(|writer| format!("writer {writer}")).collect();
    let results = join_all(values.iter().map(|value| store.write(update(&made, value)))).await;
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 63));
    let winner = won.into_iter().next().unwrap().unwrap();
    assert_eq!(store.get("things", "default", "a").unwrap().body, winner.body);
    for result in lost {
        match result {
            Err(WriteError::Conflict { current: Some(current) }) => {
                assert_eq!(current.revision, winner.revision);
            }
            other => panic!("{other:?}"),
        }
    }
    let results = join_all((0..64).map(|_| store.write(create("b")))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
}

#[tokio::test]
async fn lists_are_ordered_and_cut_into_pages() {
    let home = Home::new();
    let store = home.open();
    for (namespace, name) in
        [("b", "x"), ("a", "z"), ("", "c"), ("a", "y"), ("ab", "k"), ("b", "a")]
    {
        let write = Write { key: Key::new("things", namespace, name), ..create(name) };
        store.write(write).await.unwrap();
    }
    let all = store.list("things", None);
    assert_eq!(all.revision, store.revision());
    assert_eq!(names(&all.items), ["c", "y", "z", "k", "a", "x"]);
    assert_eq!(names(&store.list("things", Some("a")).items), ["y", "z"]);
    assert!(store.list("things", Some("none")).items.is_empty());
    let page = store.list_page("things", None, Some(("a", "y")), 2);
    assert_eq!((names(&page.items), page.remaining), (vec!["z", "k"], 2));
    let page = store.list_page("things", Some("a"), Some(("a", "y")), 5);
    assert_eq!((names(&page.items), page.remaining), (vec!["z"], 0));
    for outside in [("b", ""), ("b", "zz")] {
        assert!(store.list_page("things", Some("a"), Some(outside), 5).items.is_empty());
    }
    assert_eq!(store.list_page("things", Some("a"), Some(("", "zz")), 5).items.len(), 2);
    // A cursor whose object is gone still marks a place.
    assert_eq!(
        names(&store.list_page("things", None, Some(("aa", "m")), 9).items),
        ["k", "a", "x"]
    );
    assert_eq!(store.list_page("things", None, None, 0).remaining, 6);
    assert_eq!(store.list_page("nothing", None, None, 5).items.len(), 0);
}

#[tokio::test]
async fn uids_and_owners_are_found_while_they_last() {
    let home = Home::new();
    let owned = |name: &str, owners: &[&str]| {
        let owners: Vec<_> = owners.iter().map(|uid| json!({ "uid": uid })).collect();
        json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "ownerReferences": owners}})
    };
    let write = |name: &str, expected, owners: &[&str]| Write {
        key: key(name),
        expected,
        require: Vec::new(),
        change: Change::Put(owned(name, owners)),
    };
    let store = home.open();
    let first = store.write(write("a", Expected::Absent, &["p", "q"])).await.unwrap();
    store.write(write("b", Expected::Absent, &["p"])).await.unwrap();
    assert_eq!(names(&store.dependents("p")), ["a", "b"]);
    assert_eq!(names(&store.dependents("q")), ["a"]);
    assert_eq!(&*store.by_uid("uid-a").unwrap().key.name, "a");
    let second = store.write(write("a", Expected::Revision(first.revision), &["q"])).await.unwrap();
    assert_eq!(names(&store.dependents("p")), ["b"]);
    assert_eq!(store.by_uid("uid-a").unwrap().revision, second.revision);
    drop(store);
    let store = home.open();
    assert_eq!(names(&store.dependents("q")), ["a"]);
    assert_eq!(store.by_uid("uid-a").unwrap().revision, second.revision);
    store.write(delete(&second)).await.unwrap();
    assert!(store.by_uid("uid-a").is_none());
    assert!(store.dependents("q").is_empty());
    assert_eq!(store.resources(), [Arc::from("things")]);
    assert_eq!(store.count("things"), 1);
}

#[tokio::test]
async fn writes_at_the_same_time_share_commits() {
    let home = Home::new();
    let store = home.open();
    let names: Vec<String> = (0..500).map(|number| format!("n{number}")).collect();
    for result in join_all(names.iter().map(|name| store.write(create(name)))).await {
        result.unwrap();
    }
    let figures = store.stats().figures();
    assert_eq!((figures.writes, figures.objects), (500, 500));
    assert!(figures.batches < 100, "{figures:?}");
    assert!(figures.largest_batch > 1);
}

#[tokio::test]
async fn a_cancelled_write_happens_once_or_not_at_all() {
    let home = Home::new();
    let store = home.open();
    for round in 0..20 {
        let name = format!("n{round}");
        let mut write = Box::pin(store.write(create(&name)));
        // Polled once: queued, not answered.
        let _ = futures::poll!(&mut write);
        drop(write);
    }
    // Behind them in the queue.
    let last = store.write(create("last")).await.unwrap();
    let made = store.list("things", None).items.len();
    assert_eq!(made, 21);
    assert_eq!(store.stats().figures().writes, 21);
    assert_eq!(store.revision(), last.revision);
}

#[tokio::test]
async fn waiting_for_a_revision_ends_when_it_is_there() {
    let home = Home::new();
    let store = home.open();
    let now = store.revision();
    assert!(store.wait_for(now, Duration::ZERO).await);
    assert!(!store.wait_for(now + 1, Duration::ZERO).await);
    let (reached, made) = tokio::join!(store.wait_for(now + 1, DEADLINE), store.write(create("a")));
    assert!(reached);
    made.unwrap();
}

#[tokio::test]
async fn a_closed_store_still_reads_but_takes_no_writes() {
    let home = Home::new();
    let store = home.open();
    let (made, ()) = tokio::join!(store.write(create("a")), store.close());
    made.unwrap();
    assert!(matches!(store.write(create("b")).await, Err(WriteError::Stopped)));
    assert!(store.get("things", "default", "a").is_some());
    store.close().await;
    let again = home.open();
    assert!(again.get("things", "default", "a").is_some());
}

#[tokio::test]
async fn objects_beyond_the_limit_are_refused() {
    let home = Home::new();
    let store = home.open_with(&Options { max_object_bytes: 500, ..Options::default() });
    let long = put("a", Expected::Absent, &"x".repeat(500));
    assert!(matches!(store.write(long).await, Err(WriteError::TooLarge { .. })));
    store.write(create("a")).await.unwrap();
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// The mark of a deletion makes an object longer; one that is as long as it may be must go too.
#[tokio::test]
async fn the_largest_object_can_be_marked_and_deleted() {
    let home = Home::new();
    let limit = 500;
    let store = home.open_with(&Options { max_object_bytes: limit, ..Options::default() });
    let written = |value: String, marked: bool| {
        let mut object = body("a", &value);
        if marked {
            object["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        }
        object
    };
    let change = |expected, change| Write { key: key("a"), expected, require: Vec::new(), change };
    // The revision is not counted: it is written in later.
    let bare =
        json!({"metadata": {"name": "a", "resourceVersion": "", "uid": "uid-a"}, "value": ""});
    let value = "x".repeat(limit - bare.to_string().len());
    let longer = change(Expected::Absent, Change::Put(written(format!("{value}x"), false)));
    assert!(matches!(store.write(longer).await, Err(WriteError::TooLarge { .. })));
    let whole = change(Expected::Absent, Change::Put(written(value.clone(), false)));
    let made = store.write(whole).await.unwrap();
    let mark = change(Expected::Revision(made.revision), Change::Put(written(value.clone(), true)));
    let marked = store.write(mark).await.unwrap();
    let gone = change(Expected::Revision(marked.revision), Change::Delete(written(value, true)));
    store.write(gone).await.unwrap();
    assert_eq!(store.count("things"), 0);
    // What waits for its deletion is no way around the limit.
    let long = written("x".repeat(DELETION_BYTES + limit), true);
    let long = change(Expected::Absent, Change::Put(long));
    assert!(matches!(store.write(long).await, Err(WriteError::TooLarge { .. })));
}

/// Who has the name of a namespace now is not shown what was there before it ended.
#[tokio::test]
async fn the_history_of_a_namespace_ends_with_it() {
    let home = Home::new();
    let store = home.open();
    let space = |name: &str| Key::new("/namespaces", "", name);
    let write = async |key: Key, expected, change| {
        store.write(Write { key, expected, require: Vec::new(), change }).await.unwrap().revision
    };
    let there = write(space("default"), Expected::Absent, Change::Put(body("default", ""))).await;
    let made = store.write(create("a")).await.unwrap().revision;
    let gone = write(key("a"), Expected::Revision(made), Change::Delete(body("a", ""))).await;
    assert_eq!(store.list_at("things", Some("default"), made).unwrap().items.len(), 1);
    let last = Change::Delete(body("default", ""));
    let end = write(space("default"), Expected::Revision(there), last).await;
    write(space("default"), Expected::Absent, Change::Put(body("default", ""))).await;
    for old in [made, gone] {
        let too_old = store.list_at("things", Some("default"), old).unwrap_err();
        assert_eq!(too_old, TooOld { requested: old, oldest: end });
        assert_eq!(store.watch("things", Some("default"), old).unwrap_err(), too_old);
        // Those who see all namespaces see what they saw.
        assert!(store.list_at("things", None, old).is_ok());
        assert!(store.list_at("things", Some("other"), old).is_ok());
        assert!(store.watch("things", None, old).is_ok());
    }
    assert_eq!(store.list_at("things", Some("default"), end).unwrap().items.len(), 0);
    assert!(store.watch("things", Some("default"), end).is_ok());
    // However many end, none is forgotten.
    for number in 0..1100 {
        let name = format!("n{number}");
        let there = write(space(&name), Expected::Absent, Change::Put(body(&name, ""))).await;
        let last = Change::Delete(body(&name, ""));
        write(space(&name), Expected::Revision(there), last).await;
    }
    assert!(store.list_at("things", Some("default"), made).is_err());
    assert!(store.list_at("things", Some("n0"), made).is_err());
}

#[tokio::test]
async fn what_a_namespace_may_hold_has_a_limit_also_for_those_who_come_together() {
    let home = Home::new();
    let quota = Quota { namespace: Size { objects: 10, bytes: 4000 }, ..Quota::default() };
    let options = Options { quota: quota.clone(), ..Options::default() };
    let store = home.open_with(&options);
    let all: Vec<String> = (0..40).map(|number| format!("n{number:02}")).collect();
    let made = join_all(all.iter().map(|name| store.write(create(name)))).await;
    let refused = made.iter().filter_map(|one| one.as_ref().err());
    assert!(refused.clone().all(|it| matches!(it, WriteError::Quota(Exceeded::Objects(10)))));
    assert_eq!(refused.count(), 30);
    // Elsewhere there is room, and for what is there already, while it does not grow too much.
    let mut elsewhere = create("n00");
    elsewhere.key = Key::new("things", "other", "n00");
    store.write(elsewhere).await.unwrap();
    let first = store.get("things", "default", "n00").unwrap();
    let first = store.write(update(&first, "again")).await.unwrap();
    let large = store.write(update(&first, &"x".repeat(4000))).await.unwrap_err();
    assert!(matches!(large, WriteError::Quota(Exceeded::Bytes(4000))), "{large:?}");
    store.write(delete(&first)).await.unwrap();
    store.write(create("late")).await.unwrap();
    assert_eq!(store.size("things").objects, 11);
    let total = store.total();
    drop(store);
    // It counts from what it finds.
    let store = home.open_with(&options);
    assert_eq!(store.total(), total);
    assert!(matches!(store.write(create("more")).await, Err(WriteError::Quota(_))));
}
