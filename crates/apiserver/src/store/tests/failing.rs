//! Disks that are full or fail.

use super::*;

fn faulty() -> (Home, Options, Store) {
    let home = Home::new();
    let options = Options::default();
    let store = home.open_with(&options);
    (home, options, store)
}

#[tokio::test]
async fn a_full_file_refuses_and_recovers() {
    let home = Home::new();
    let store = home.open_with(&Options { max_pages: Some(20), ..Options::default() });
    let long = "x".repeat(3000);
    let mut made = Vec::new();
    let full = loop {
        let name = format!("n{}", made.len());
        match store.write(put(&name, Expected::Absent, &long)).await {
            Ok(stored) => made.push(stored),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, WriteError::Full), "{full:?}");
    let revision = store.revision();
    assert_eq!(store.list("things", None).items.len(), made.len());
    assert!(matches!(
        store.write(put("again", Expected::Absent, &long)).await,
        Err(WriteError::Full)
    ));
    assert_eq!(store.revision(), revision, "what failed is not visible");
    // Deleting works on a full store, and what it frees can be used again.
    for stored in &made[..4] {
        store.write(delete(stored)).await.unwrap();
    }
    let late = store.write(put("late", Expected::Absent, &long)).await.unwrap();
    assert!(late.revision > revision);
    let expected = store.list("things", None);
    drop(store);
    // So does a larger limit.
    let store = home.open();
    let found = store.list("things", None);
    assert_eq!(found.revision, expected.revision);
    assert_eq!(names(&found.items), names(&expected.items));
    for number in 0..20 {
        store.write(put(&format!("more{number}"), Expected::Absent, &long)).await.unwrap();
    }
}

#[tokio::test]
async fn a_full_batch_fails_as_a_whole() {
    let home = Home::new();
    let store = home.open_with(&Options { max_pages: Some(20), ..Options::default() });
    let long = "x".repeat(3000);
    let names: Vec<String> = (0..200).map(|number| format!("n{number}")).collect();
    let writes = names.iter().map(|name| store.write(put(name, Expected::Absent, &long)));
    let results = join_all(writes).await;
    for (name, result) in names.iter().zip(results) {
        let is_there = store.get("things", "default", name).is_some();
        match result {
            Ok(_) => assert!(is_there),
            Err(WriteError::Full) => assert!(!is_there),
            Err(other) => panic!("{other:?}"),
        }
    }
    store.write(create("small")).await.unwrap();
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_counts_when_the_file_has_it() {
    let (home, options, store) = faulty();
    let start = store.revision();
    let mut watcher = store.watch("things", None, start).unwrap();
    options.faults.lose_answer();
    let made = store.write(create("a")).await.unwrap();
    assert_eq!(watcher.next().await.unwrap()[0].revision, made.revision);
    store.write(update(&made, "second")).await.unwrap();
    drop(store);
    assert_eq!(home.open().revision(), start + 2);
}

#[tokio::test]
async fn a_commit_that_was_lost_is_reported_and_its_revision_not_reused() {
    let (home, options, store) = faulty();
    let start = store.revision();
    options.faults.lose_commit();
    assert!(matches!(store.write(create("a")).await, Err(WriteError::Storage(_))));
    assert_eq!(store.revision(), start);
    assert!(store.get("things", "default", "a").is_none());
    let made = store.write(create("a")).await.unwrap();
    assert_eq!(made.revision, start + 2);
    assert_eq!(store.stats().figures().failed, 1);
    drop(store);
    assert_eq!(home.open().revision(), start + 2);
}

#[tokio::test]
async fn a_doubt_is_settled_once_the_file_can_be_opened_again() {
    for is_committed in [true, false] {
        let (home, options, store) = faulty();
        let start = store.revision();
        if is_committed {
            options.faults.lose_answer();
        } else {
            options.faults.lose_commit();
        }
        options.faults.refuse_reconnects(2);
        assert!(matches!(store.write(create("a")).await, Err(WriteError::Storage(_))));
        assert!(store.get("things", "default", "a").is_none());
        // Still no connection: nothing is decided on a state that may be wrong.
        assert!(matches!(store.write(create("a")).await, Err(WriteError::Storage(_))));
        let third = store.write(create("a")).await;
        if is_committed {
            assert!(matches!(third, Err(WriteError::Exists)));
            assert_eq!(store.get("things", "default", "a").unwrap().revision, start + 1);
        } else {
            assert_eq!(third.unwrap().revision, start + 2);
        }
        let expected = store.get("things", "default", "a").unwrap();
        drop(store);
        let found = home.open().get("things", "default", "a").unwrap();
        assert_eq!((found.revision, &found.body), (expected.revision, &expected.body));
    }
}

#[tokio::test]
async fn the_condition_of_the_writer_is_known_and_can_be_mended_without_a_write() {
    let (_home, options, store) = faulty();
    assert_eq!(store.condition(), Condition::Well);
    options.faults.lose_commit();
    options.faults.refuse_reconnects(1);
    store.write(create("a")).await.unwrap_err();
    until(&store, Condition::Failing).await;
    store.recover();
    until(&store, Condition::Well).await;
    store.close().await;
    until(&store, Condition::Ended).await;
}

async fn until(store: &Store, wanted: Condition) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while store.condition() != wanted {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", store.condition());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn rights_follow_also_a_commit_of_which_nobody_heard() {
    let (_home, options, store) = faulty();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    store.follow(move |event| told.lock().unwrap().push(event.revision));
    options.faults.lose_answer();
    options.faults.refuse_reconnects(1);
    // The caller hears of a failure, and yet it has happened.
    store.write(create("a")).await.unwrap_err();
    assert!(seen.lock().unwrap().is_empty(), "not known yet");
    store.write(create("b")).await.unwrap();
    let made = ["a", "b"].map(|name| store.get("things", "default", name).unwrap().revision);
    assert_eq!(*seen.lock().unwrap(), made);
}

/// The user of the server may have less than the disk.
#[tokio::test]
async fn a_quota_that_is_used_up_is_a_full_disk() {
    let (home, options, store) = faulty();
    let made = store.write(create("a")).await.unwrap();
    options.faults.use_up_quota(true);
    for _ in 0..3 {
        let refused = store.write(create("b")).await.unwrap_err();
        assert!(matches!(refused, WriteError::Full), "{refused:?}");
    }
    store.write(delete(&made)).await.expect("deletions are written into what was set aside");
    assert_eq!(
        store.write(create("b")).await.map_err(|it| it.to_string()).err().as_deref(),
        Some("no space is left for the object store")
    );
    options.faults.use_up_quota(false);
    store.write(create("b")).await.unwrap();
    drop(store);
    assert_eq!(names(&home.open().list("things", None).items), ["b"]);
}
