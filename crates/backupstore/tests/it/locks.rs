//! Writers, deleters and locks that nobody holds any more.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backupstore::create::CreateRequest;
use backupstore::delete::DeleteOptions;
use backupstore::format::LockKind;
use backupstore::{BackupStore, Control, Error, LockSchedule, TargetUrl, Wait};
use blobs::{Key, LocalStore, Store};

use crate::world::{
    MemorySink, Volume, back_up, check_all, create_request, delete, keys, name, over,
    restore_request, volume,
};

fn two_states() -> Volume {
    let mut of = Volume::new(6);
    of.write(0, 1);
    of.write(2, 2);
    of.snapshot();
    of.write(4, 3);
    of
}

fn lock_text(lock: &str, kind: u8, acquired: bool) -> String {
    format!(r#"{{"Name":"{lock}","Type":{kind},"Acquired":{acquired}}}"#)
}

async fn put_lock(store: &Arc<dyn Store>, lock: &str, kind: u8, acquired: bool) -> Key {
    let folder = keys(store, "volume.cfg").await.remove(0).to_string();
    let folder = folder.strip_suffix("/volume.cfg").unwrap();
    let key = Key::parse(&format!("{folder}/locks/{lock}.lck")).unwrap();
    store.put(&key, lock_text(lock, kind, acquired).into()).await.unwrap();
    key
}

#[tokio::test]
async fn a_conflict_says_who_holds_the_lock_and_until_when() {
    let of = two_states();
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let key = put_lock(&clean, "lock-aaaa", 2, true).await;
    let refused = back_up(&store, &of, 1, "backup-2").await.unwrap_err();
    let Error::Locked(locked) = &refused else { panic!("{refused:?}") };
    assert_eq!((locked.holder.as_str(), locked.holder_kind), ("lock-aaaa", LockKind::Delete));
    let written = clean.head(&key).await.unwrap().modified;
    assert_eq!((locked.renewed, locked.until.as_second()), (written, written.as_second() + 150));
    let text = refused.to_string();
    assert!(text.starts_with("failed lock backupstore/volumes/"), "{text}");
    let part = "when performing backup create/restore, please try again later";
    assert!(text.contains("failed to acquire lock") && text.contains(part), "{text}");
    assert_eq!(keys(&clean, "/locks/").await, std::slice::from_ref(&key), "ours is taken away");
    // The other direction, and those that do not exclude each other.
    clean.delete(&key).await.unwrap();
    put_lock(&clean, "lock-bbbb", 1, true).await;
    let refused = delete(&store, "backup-1").await.unwrap_err().to_string();
    assert!(refused.contains("when performing backup delete, please"), "{refused}");
    back_up(&store, &of, 1, "backup-2").await.unwrap();
    assert_eq!(check_all(&store, &of).await, 2);
}

#[tokio::test]
async fn unreadable_locks_and_those_of_the_same_kind_are_no_hindrance() {
    let of = two_states();
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let key = put_lock(&clean, "lock-aaaa", 2, true).await;
    clean.put(&key, "{".into()).await.unwrap();
    put_lock(&clean, "lock-bbbb", 1, true).await;
    back_up(&store, &of, 1, "backup-2").await.unwrap();
}

/// Where a listing shows what was written at once, nobody lets a lock settle that nobody disputes.
#[tokio::test]
async fn an_undisputed_lock_is_held_at_once() {
    let of = two_states();
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean)).with_schedule(crate::world::NEVER_SETTLES);
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    // Those of one kind do not exclude each other.
    put_lock(&clean, "lock-bbbb", 1, true).await;
    back_up(&store, &of, 1, "backup-2").await.unwrap();
    crate::world::drop_locks(&clean).await;
    delete(&store, "backup-1").await.unwrap();
    assert_eq!(check_all(&store, &of).await, 1);
    assert_eq!(keys(&clean, "/locks/").await, []);
}

/// One that is only wanted may be held a moment later: then all of the protocol is kept.
#[tokio::test(start_paused = true)]
async fn a_disputed_lock_settles() {
    let of = two_states();
    let clean = blobs::memory();
    let schedule = LockSchedule { settle: Duration::from_mins(1), ..crate::world::SCHEDULE };
    let store = over(Arc::clone(&clean)).with_schedule(schedule);
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    put_lock(&clean, "lock-bbbb", 1, false).await;
    let begun = tokio::time::Instant::now();
    let refused = delete(&store, "backup-1").await.unwrap_err();
    assert!(matches!(refused, Error::Locked(_)), "{refused:?}");
    assert!(begun.elapsed() >= schedule.settle);
}

#[tokio::test]
async fn who_has_patience_waits() {
    let of = two_states();
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let key = put_lock(&clean, "lock-aaaa", 2, true).await;
    let request = CreateRequest {
        lock_timeout: Duration::from_mins(2),
        ..create_request("snap-1", "backup-2")
    };
    let control = Control::default();
    let waits = store.begin_backup(request, of.source(1), &control);
    let frees = async {
        // Until the other has put its own lock beside.
        while keys(&clean, "/locks/").await.len() < 2 {
            tokio::task::yield_now().await;
        }
        clean.delete(&key).await.unwrap();
    };
    let (begun, ()) = futures::join!(waits, frees);
    begun.unwrap().run(of.source(1), &control).await.unwrap();
    assert_eq!(check_all(&store, &of).await, 2);
}

/// Its holder wrote it by a clock that is an hour ahead, and died.
#[tokio::test]
async fn a_lock_from_the_future_that_nobody_renews_is_nobodys() {
    let of = two_states();
    let dir = tempfile::tempdir().unwrap();
    let clean: Arc<dyn Store> = Arc::new(LocalStore::at(dir.path()));
    let schedule = LockSchedule { unchanged: Duration::from_secs(1), ..crate::world::SCHEDULE };
    let store = over(Arc::clone(&clean)).with_schedule(schedule);
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let key = put_lock(&clean, "lock-aaaa", 1, true).await;
    let file = dir.path().join(key.as_str());
    let renew = || {
        let file = std::fs::File::options().write(true).open(&file).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_hours(1)).unwrap();
    };
    renew();
    // While somebody renews it, it holds, however long we wait.
    let options = |timeout| DeleteOptions { lock_timeout: timeout, ..DeleteOptions::default() };
    let (volume, backup, control) = (volume(), name("backup-1"), Control::default());
    let waiting = options(Duration::from_secs(3));
    let waits = store.delete_backup(&volume, &backup, &waiting, &control);
    let mut renewals = tokio::time::interval(Duration::from_millis(20));
    let mut waits = std::pin::pin!(waits);
    let refused = loop {
        // Renewed before it is looked at, however long this process had to wait for its turn.
        tokio::select! {
            biased;
            _ = renewals.tick() => renew(),
            done = &mut waits => break done.unwrap_err(),
        }
    };
    let Error::Locked(locked) = refused else { panic!("{refused:?}") };
    let ahead = locked.until.duration_since(jiff::Timestamp::now());
    assert!(ahead.as_secs() <= 150, "the end is counted from now: {ahead}");
    // It is watched to its end, whatever the timeout.
    let waiting = options(Duration::ZERO);
    store.delete_backup(&volume, &backup, &waiting, &control).await.unwrap();
}

#[tokio::test]
async fn who_watches_learns_whom_an_operation_waits_for() {
    let of = two_states();
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let key = put_lock(&clean, "lock-aaaa", 1, true).await;
    let (volume, backup, control) = (volume(), name("backup-1"), Control::default());
    let mut waits_for = control.waits_for();
    let options =
        DeleteOptions { lock_timeout: Duration::from_mins(1), ..DeleteOptions::default() };
    let work = store.delete_backup(&volume, &backup, &options, &control);
    let watches = async {
        waits_for.changed().await.unwrap();
        let waits = waits_for.borrow_and_update().clone();
        let Some(Wait::Lock(holder)) = waits else { panic!("{waits:?}") };
        assert_eq!((holder.holder.as_str(), holder.holder_kind), ("lock-aaaa", LockKind::Use));
        clean.delete(&key).await.unwrap();
        waits_for.changed().await.unwrap();
        assert_eq!(*waits_for.borrow_and_update(), None);
    };
    let (done, ()) = futures::join!(work, watches);
    assert!(done.unwrap().existed);
}

#[tokio::test]
async fn waiting_can_be_cancelled() {
    let of = two_states();
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let key = put_lock(&clean, "lock-aaaa", 1, true).await;
    let control = Control::default();
    let options =
        DeleteOptions { lock_timeout: Duration::from_mins(1), ..DeleteOptions::default() };
    let (volume, backup) = (volume(), name("backup-1"));
    let waits = store.delete_backup(&volume, &backup, &options, &control);
    let cancels = async {
        while keys(&clean, "/locks/").await.len() < 2 {
            tokio::task::yield_now().await;
        }
        control.cancel();
    };
    let (ended, ()) = futures::join!(waits, cancels);
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    assert_eq!(keys(&clean, "/locks/").await, [key]);
}

/// A directory, in which the age of locks can be set.
#[tokio::test]
async fn a_lock_that_was_not_renewed_is_nobodys_by_the_clock_of_the_store() {
    let of = two_states();
    let dir = tempfile::tempdir().unwrap();
    let clean: Arc<dyn Store> = Arc::new(LocalStore::at(dir.path()));
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let key = put_lock(&clean, "lock-aaaa", 1, true).await;
    let age = |seconds| {
        let file =
            std::fs::File::options().write(true).open(dir.path().join(key.as_str())).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    };
    age(90);
    assert!(matches!(delete(&store, "backup-1").await, Err(Error::Locked(_))));
    age(160);
    delete(&store, "backup-1").await.unwrap();
    assert_eq!(keys(&clean, "/locks/").await, [], "whoever passes it takes it away");
    // One that would not stand in the way is swept long after its end.
    put_lock(&clean, "lock-aaaa", 2, true).await;
    age(1000);
    let options = DeleteOptions::default();
    store.delete_volume(&volume(), &options, &Control::default()).await.unwrap();
    assert_eq!(keys(&clean, "").await, []);
}

#[tokio::test]
async fn work_ends_when_its_lock_is_taken_away() {
    let of = two_states();
    let clean = blobs::memory();
    let schedule = LockSchedule { renew_every: Duration::from_millis(5), ..crate::world::SCHEDULE };
    let url = TargetUrl::parse("vfs:///store").unwrap();
    let store = BackupStore::new(Arc::clone(&clean), url).with_schedule(schedule);
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let control = Control::default();
    let mut request = restore_request("backup-1");
    // So slow that it is still running when the lock goes.
    request.fetch.bytes_per_second = Some(1);
    let begun = store.begin_restore(request, &control).await.unwrap();
    crate::world::drop_locks(&clean).await;
    let ended = begun.run(MemorySink::empty(of.data_of("snap-0").len()), &control).await;
    assert!(matches!(ended, Err(Error::LockLost { .. })), "{ended:?}");
}

#[tokio::test]
async fn two_writers_of_one_volume_both_succeed() {
    let of = two_states();
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    let (one, two) =
        futures::join!(back_up(&store, &of, 0, "backup-1"), back_up(&store, &of, 1, "backup-2"));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(check_all(&store, &of).await, 2);
    let blocks = keys(&clean, "/blocks/").await.len() as u64;
    assert_eq!(one.new_blocks + two.new_blocks, blocks, "no block is counted twice");
    let info = store.inspect_volume(&volume()).await.unwrap();
    assert_eq!(info.data_stored, blocks * (2 << 20));
}

#[tokio::test]
async fn a_writer_and_a_deleter_never_meet() {
    let of = two_states();
    for round in 0..20 {
        let clean = blobs::memory();
        // A settle time, as the protocol has it: without, both may look before the other writes.
        let schedule = LockSchedule { settle: Duration::from_millis(20), ..crate::world::SCHEDULE };
        let url = TargetUrl::parse("vfs:///store").unwrap();
        let store = BackupStore::new(Arc::clone(&clean), url).with_schedule(schedule);
        back_up(&store, &of, 0, "backup-1").await.unwrap();
        let (made, deleted) =
            futures::join!(back_up(&store, &of, 1, "backup-2"), delete(&store, "backup-1"));
        let refused = |error: &Error| matches!(error, Error::Locked(_));
        assert!(made.is_ok() || made.as_ref().is_err_and(refused), "{round}: {made:?}");
        assert!(deleted.is_ok() || deleted.as_ref().is_err_and(refused), "{round}: {deleted:?}");
        assert!(made.is_ok() || deleted.is_ok(), "{round}: one of them has the lock");
        let left = usize::from(made.is_ok()) + usize::from(deleted.is_err());
        assert_eq!(check_all(&store, &of).await, left);
        assert_eq!(keys(&clean, "/locks/").await, []);
    }
}

/// Its holder only slept, and renews it between the look and the end: it is not passed.
#[tokio::test]
async fn a_lock_that_is_passed_cannot_be_renewed_any_more() {
    let of = two_states();
    let dir = tempfile::tempdir().unwrap();
    let clean: Arc<dyn Store> = Arc::new(LocalStore::at(dir.path()));
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let key = put_lock(&clean, "lock-aaaa", 2, true).await;
    let held = clean.head(&key).await.unwrap().version;
    let renew = clean.put_if_match(&key, lock_text("lock-aaaa", 2, true).into(), &held).await;
    let file = std::fs::File::options().write(true).open(dir.path().join(key.as_str())).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(160)).unwrap();
    back_up(&store, &of, 1, "backup-2").await.unwrap();
    let renewed =
        clean.put_if_match(&key, lock_text("lock-aaaa", 2, true).into(), &renew.unwrap()).await;
    assert!(matches!(renewed, Err(blobs::Error::Changed { .. })), "{renewed:?}");
}

#[tokio::test]
async fn locks_of_the_dead_do_not_block_a_volume() {
    let of = two_states();
    let dir = tempfile::tempdir().unwrap();
    let clean: Arc<dyn Store> = Arc::new(LocalStore::at(dir.path()));
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let key = put_lock(&clean, "lock-dead", 1, true).await;
    let folder = dir.path().join(key.as_str());
    let folder = folder.parent().unwrap();
    for number in 0..60 {
        let name = format!("lock-{number:05}");
        let mut file = std::fs::File::create(folder.join(format!("{name}.lck"))).unwrap();
        let kind = 1 + u8::from(number % 2 == 0);
        file.write_all(lock_text(&name, kind, true).as_bytes()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_hours(3)).unwrap();
    }
    clean.delete(&key).await.unwrap();
    back_up(&store, &of, 1, "backup-2").await.unwrap();
    assert_eq!(keys(&clean, "/locks/").await, []);
}
