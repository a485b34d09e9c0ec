//! One call to the store fails, for every call there is, before and after it was done. Then: every
//! complete backup restores byte for byte, and the same operation, made again, succeeds.

use std::sync::Arc;
use std::time::Duration;

use backupstore::delete::{DeleteOptions, Outcome};
use backupstore::restore::Sink;
use backupstore::{BackupStore, Control, Error, Shown};
use blobs::Store;
use blobs::wrap::{Fault, Faults, Faulty, Policy, Retrying};

use crate::world::{
    MemorySink, NEVER_SETTLES, SCHEDULE, Volume, back_up, check_all, contents, copy_of, delete,
    drop_locks, keys, over, restore_request, run_restore, volume,
};

fn three_states() -> Volume {
    let mut of = Volume::new(6);
    for (page, seed) in [(0, 1), (2, 2), (4, 3), (6, 3)] {
        of.write(page, seed);
    }
    of.snapshot();
    of.write(2, 4);
    of.write(8, 5);
    of.snapshot();
    of.write(0, 0);
    of.write(1, 6);
    of
}

/// Runs `operation` with its n-th call failing, for each n, on copies of `start`.
async fn at_every_call<T>(
    what: &str,
    start: &Arc<dyn Store>,
    operation: impl AsyncFn(&BackupStore) -> Result<T, Error>,
    check: impl AsyncFn(&BackupStore, &Arc<dyn Store>, Result<T, Error>),
) {
    let mut points = 0;
    let mut failures = 0;
    let schedules =
        [Fault::Before, Fault::After].map(|fault| [(fault, SCHEDULE), (fault, NEVER_SETTLES)]);
    for (fault, schedule) in schedules.into_iter().flatten() {
        for nth in 1.. {
            let clean = copy_of(start).await;
            let faults = Faults::default();
            let store =
                over(Faulty::around(Arc::clone(&clean), faults.clone())).with_schedule(schedule);
            faults.plan(nth, fault);
            let done = operation(&store).await;
            if faults.waiting() > 0 {
                assert!(done.is_ok(), "no call failed");
                break;
            }
            points += 1;
            failures += u32::from(done.is_err());
            // Whoever held a lock is dead, and long enough.
            drop_locks(&clean).await;
            check(&over(Arc::clone(&clean)), &clean, done).await;
        }
    }
    assert!(points > 10);
    println!("{what}: {points} points covered, {failures} of them ended in an error");
}

#[tokio::test]
async fn a_backup_at_every_call() {
    let of = three_states();
    let start = blobs::memory();
    let store = over(Arc::clone(&start));
    back_up(&store, &of, 0, "backup-0").await.unwrap();
    for (index, backup) in [(1, "backup-1"), (2, "backup-2")] {
        let operation = async |store: &BackupStore| back_up(store, &of, index, backup).await;
        at_every_call("backup", &start, operation, async |store, clean, done| {
            let complete = check_all(store, &of).await;
            assert!(complete >= index + usize::from(done.is_ok()));
            let uploaded = keys(clean, "/blocks/").await.len();
            let again = back_up(store, &of, index, backup).await.unwrap();
            let now = keys(clean, "/blocks/").await.len();
            assert_eq!(now - uploaded, again.new_blocks as usize, "what was there is not uploaded");
            assert_eq!(check_all(store, &of).await, index + 1);
            let info = store.inspect_volume(&volume()).await.unwrap();
            assert_eq!(info.last_backup_name, backup);
        })
        .await;
        back_up(&store, &of, index, backup).await.unwrap();
    }
}

#[tokio::test]
async fn a_first_backup_at_every_call() {
    let of = three_states();
    let start = blobs::memory();
    let operation = async |store: &BackupStore| back_up(store, &of, 0, "backup-0").await;
    at_every_call("first backup", &start, operation, async |store, _, _| {
        check_all(store, &of).await;
        back_up(store, &of, 0, "backup-0").await.unwrap();
        assert_eq!(check_all(store, &of).await, 1);
    })
    .await;
}

/// Throttled, or out now and then: whoever tries again gets there, and nothing is done twice.
#[tokio::test]
async fn a_store_that_fails_every_third_call_is_used_all_the_same() {
    let of = three_states();
    for fault in [Fault::Before, Fault::After] {
        let clean = blobs::memory();
        let faults = Faults::default();
        for nth in (1..3000).step_by(3) {
            faults.plan(nth, fault);
        }
        let policy = Policy { first_pause: Duration::from_micros(10), ..Policy::default() };
        let store = over(Retrying::around(Faulty::around(Arc::clone(&clean), faults), policy));
        for index in 0..3 {
            back_up(&store, &of, index, &format!("backup-{index}")).await.unwrap();
        }
        assert_eq!(check_all(&store, &of).await, 3);
        assert_eq!(delete(&store, "backup-1").await.unwrap().blocks.outcome, Outcome::Removed);
        assert_eq!(check_all(&store, &of).await, 2);
        let report = store.report_garbage(&volume(), &Control::default()).await.unwrap();
        assert_eq!((report.orphan_blocks, report.missing_blocks), (0, 0));
        assert_eq!(keys(&clean, "/locks/").await, []);
    }
}

async fn three_backups(of: &Volume) -> Arc<dyn Store> {
    let start = blobs::memory();
    let store = over(Arc::clone(&start));
    for index in 0..3 {
        back_up(&store, of, index, &format!("backup-{index}")).await.unwrap();
    }
    start
}

#[tokio::test]
async fn a_deletion_at_every_call() {
    let of = three_states();
    let start = three_backups(&of).await;
    for backup in ["backup-0", "backup-2"] {
        let operation = async |store: &BackupStore| delete(store, backup).await;
        at_every_call("deletion", &start, operation, async |store, clean, _| {
            assert!(check_all(store, &of).await >= 2);
            let deleted = delete(store, backup).await.unwrap();
            assert_eq!(deleted.blocks.outcome, Outcome::Removed);
            assert_eq!(check_all(store, &of).await, 2);
            let report = store.report_garbage(&volume(), &Control::default()).await.unwrap();
            assert_eq!((report.orphan_blocks, report.missing_blocks), (0, 0));
            let blocks = keys(clean, "/blocks/").await.len() as u64;
            let info = store.inspect_volume(&volume()).await.unwrap();
            assert_eq!(info.data_stored / (2 << 20), blocks);
        })
        .await;
    }
}

#[tokio::test]
async fn a_volume_deletion_at_every_call() {
    let of = three_states();
    let start = three_backups(&of).await;
    let options = DeleteOptions::default();
    let operation = async |store: &BackupStore| {
        store.delete_volume(&volume(), &options, &Control::default()).await
    };
    at_every_call("volume deletion", &start, operation, async |store, clean, _| {
        check_all(store, &of).await;
        store.delete_volume(&volume(), &options, &Control::default()).await.unwrap();
        assert_eq!(keys(clean, "").await, []);
        assert!(store.list(Shown::Backups).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_restore_at_every_call() {
    let of = three_states();
    let start = three_backups(&of).await;
    let size = of.data_of("snap-0").len();
    let operation = async |store: &BackupStore| {
        let sink = MemorySink::empty(size);
        let restored =
            run_restore(store, restore_request("backup-2"), Arc::clone(&sink) as Arc<dyn Sink>)
                .await?;
        assert!(restored.damaged.is_empty());
        Ok(sink.data())
    };
    at_every_call("restore", &start, operation, async |store, _, done| {
        if let Ok(data) = done {
            assert!(data == of.data_of("snap-2"), "what says it is restored is");
        }
        assert!(contents(store, "backup-2").await.unwrap() == of.data_of("snap-2"));
        assert_eq!(check_all(store, &of).await, 3);
    })
    .await;
}

/// A store that denies twice what it has lists it all the same: as long as it does, it is not taken for
/// removed, and nothing it may name goes.
#[tokio::test]
async fn a_record_that_is_listed_and_twice_not_found_keeps_its_blocks() {
    let of = three_states();
    let start = blobs::memory();
    let store = over(Arc::clone(&start));
    for (index, backup) in [(0, "backup-0"), (1, "backup-1"), (2, "backup-2")] {
        back_up(&store, &of, index, backup).await.unwrap();
    }
    let mut pairs = 0;
    'first: for first in 1.. {
        for second in 1.. {
            let clean = copy_of(&start).await;
            let faults = Faults::default();
            let store = over(Faulty::around(Arc::clone(&clean), faults.clone()));
            faults.plan(first, Fault::Denied);
            faults.plan(first + second, Fault::Denied);
            drop(delete(&store, "backup-1").await);
            let waiting = faults.waiting();
            drop_locks(&clean).await;
            let left = check_all(&over(Arc::clone(&clean)), &of).await;
            assert!(left >= 2, "denied calls {first} and {}", first + second);
            pairs += 1;
            match waiting {
                0 => {}
                1 => break,
                _ => break 'first,
            }
        }
    }
    println!("{pairs} pairs of calls denied");
    assert!(pairs > 50);
}
