//! What one backup, restore or deletion does and leaves, step by step.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backupstore::create::CreateRequest;
use backupstore::delete::{DeleteOptions, Outcome};
use backupstore::format::SystemBackupCfg;
use backupstore::restore::{OnDamage, Sink};
use backupstore::verify::{Depth, VerifyOptions};
use backupstore::{
    BackedUp, BlockDamage, BlockSize, Control, Error, Extents, Name, Shown, Source, SystemBackup,
};
use blobs::Store;
use blobs::wrap::Fault;
use bytes::Bytes;

use crate::world::{
    BLOCK, MemorySink, PAGE, Volume, back_up, check_all, contents, create_request, delete,
    drop_locks, faulty, keys, name, over, restore_request, run_create, run_restore, volume,
};

fn written(pages: &[(usize, u64)]) -> Volume {
    let mut of = Volume::new(8);
    for (page, seed) in pages {
        of.write(*page, *seed);
    }
    of
}

/// Futures of the crate run on any thread.
#[tokio::test]
async fn futures_can_be_sent() {
    fn sent<T: Send>(future: T) -> T {
        future
    }
    let of = written(&[(0, 1)]);
    let store = over(blobs::memory());
    let (control, source) = (Control::default(), of.source(0));
    let request = create_request("snap-0", "backup-1");
    let begun = sent(store.begin_backup(request, Arc::clone(&source), &control)).await.unwrap();
    sent(begun.run(source, &control)).await.unwrap();
    let begun = sent(store.begin_restore(restore_request("backup-1"), &control)).await.unwrap();
    sent(begun.run(MemorySink::empty(8 * BLOCK as usize), &control)).await.unwrap();
    let (volume, backup) = (volume(), name("backup-1"));
    let options = DeleteOptions::default();
    sent(store.delete_backup(&volume, &backup, &options, &control)).await.unwrap();
    sent(store.delete_volume(&volume, &options, &control)).await.unwrap();
    sent(store.list(Shown::Backups)).await.unwrap();
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let deep = VerifyOptions::new(Depth::Deep);
    assert!(sent(store.verify(&volume, &deep, &control)).await.unwrap().is_healthy());
    sent(store.report_garbage(&volume, &control)).await.unwrap();
    sent(store.collect_garbage(&volume, &options, &control)).await.unwrap();
    sent(store.delete_backing_image(&backup, &options, &control)).await.unwrap();
    let url = backupstore::TargetUrl::parse("ftp://x/y").unwrap();
    let environment = backupstore::Environment::default();
    sent(backupstore::BackupStore::open(&url, &environment)).await.unwrap_err();
}

/// Without a block in the backup, what lies below the volume would be read after a restore.
#[tokio::test]
async fn zeros_over_something_are_data() {
    let mut of = written(&[(0, 7), (2, 8)]);
    of.snapshot();
    of.write(2, 0);
    of.write(3, 0);
    let store = over(blobs::memory());
    for (index, backup) in [(0, "backup-1"), (1, "backup-2")] {
        let request = create_request(&of.snapshots[index].name, backup);
        run_create(&store, request, of.source_over_something(index)).await.unwrap();
        let plan = store.plan_restore(&volume(), &name(backup), None).await.unwrap();
        let offsets: Vec<u64> = plan.jobs.iter().flat_map(|job| job.offsets.clone()).collect();
        assert_eq!(offsets, [0, BLOCK], "{backup} has a block for all that was written");
    }
    assert_eq!(check_all(&store, &of).await, 2);
}

#[tokio::test]
async fn holes_zeros_and_equal_blocks_cost_nothing() {
    // Block 0 and 3 are equal, block 1 is written with zeros, block 5 is half a block.
    let of = written(&[(0, 7), (1, 8), (2, 0), (3, 0), (6, 7), (7, 8), (10, 9)]);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    let created = back_up(&store, &of, 0, "backup-1").await.unwrap();
    assert_eq!((created.new_blocks, created.size_bytes), (2, 3 * BLOCK));
    assert_eq!(keys(&clean, "/blocks/").await.len(), 2);
    assert_eq!(contents(&store, "backup-1").await.unwrap(), of.data_of("snap-0"));
    assert_eq!(keys(&clean, "/locks/").await, []);
    let info = store.inspect_backup(&volume(), &name("backup-1")).await.unwrap();
    assert_eq!(info.newly_uploaded_data_size, created.uploaded_bytes);
    assert_eq!(created.url, "vfs:///store?backup=backup-1&volume=vol-1");
}

#[tokio::test]
async fn zeros_inside_a_block_stay_holes() {
    let of = written(&[(0, 7), (5, 9)]);
    let store = over(blobs::memory());
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let sink = MemorySink::empty(8 * BLOCK as usize);
    run_restore(&store, restore_request("backup-1"), Arc::clone(&sink) as Arc<dyn Sink>)
        .await
        .unwrap();
    let pages: Vec<u64> = sink.state.lock().unwrap().allocated.iter().copied().collect();
    assert_eq!(pages, [0, 5 * PAGE as u64]);
}

#[tokio::test]
async fn an_incremental_backup_takes_what_changed_and_forgets_what_became_zero() {
    let mut of = written(&[(0, 1), (4, 2), (8, 3)]);
    of.snapshot();
    of.write(4, 5);
    of.write(8, 0);
    of.write(12, 6);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    assert!(!back_up(&store, &of, 0, "backup-1").await.unwrap().is_incremental);
    let created = back_up(&store, &of, 1, "backup-2").await.unwrap();
    assert!(created.is_incremental);
    assert_eq!((created.new_blocks, created.size_bytes), (2, 3 * BLOCK));
    assert_eq!(check_all(&store, &of).await, 2);
    let info = store.inspect_volume(&volume()).await.unwrap();
    assert_eq!((info.last_backup_name.as_str(), info.data_stored), ("backup-2", 5 * (2 << 20)));
    // The same snapshot once more is a full one, and moves nothing.
    let again = back_up(&store, &of, 1, "backup-3").await.unwrap();
    assert_eq!((again.is_incremental, again.new_blocks, again.uploaded_bytes), (false, 0, 0));
    assert_eq!(check_all(&store, &of).await, 3);
}

#[tokio::test]
async fn a_full_backup_on_request_writes_blocks_anew() {
    let of = written(&[(0, 1), (4, 2)]);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    // One of the blocks is damaged; whoever only looks whether it is there does not see it.
    let key = keys(&clean, "/blocks/").await.remove(0);
    clean.put(&key, Bytes::from_static(b"damaged")).await.unwrap();
    assert!(matches!(contents(&store, "backup-1").await, Err(Error::Damaged(_))));
    let mut request = create_request("snap-0", "backup-2");
    request.parameters = BTreeMap::from([("backup-mode".to_owned(), "full".to_owned())]);
    let created = run_create(&store, request, of.source(0)).await.unwrap();
    assert_eq!((created.new_blocks, created.uploaded_bytes), (0, 0));
    assert!(created.uploaded_again_bytes > 0);
    assert_eq!(check_all(&store, &of).await, 2);
    let info = store.inspect_backup(&volume(), &name("backup-2")).await.unwrap();
    assert_eq!(info.parameters.unwrap()["backup-mode"], "full");
}

#[tokio::test]
async fn an_empty_block_left_by_a_crash_is_written_anew() {
    let of = written(&[(0, 1)]);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let key = keys(&clean, "/blocks/").await.remove(0);
    clean.put(&key, Bytes::new()).await.unwrap();
    back_up(&store, &of, 0, "backup-2").await.unwrap();
    assert_eq!(check_all(&store, &of).await, 2);
}

/// As many blocks that nobody names as a page of a listing shows.
async fn fill_a_page(clean: &Arc<dyn Store>) {
    let prefix = keys(clean, "volume.cfg").await.remove(0).to_string();
    let prefix = prefix.strip_suffix("/volume.cfg").unwrap();
    for filler in 0..1000_u32 {
        let sum = backupstore::format::Checksum::of(&filler.to_le_bytes()).to_string();
        let key = format!("{prefix}/blocks/{}/{}/{sum}.blk", &sum[..2], &sum[2..4]);
        clean.put_new(&blobs::Key::parse(&key).unwrap(), "x".into()).await.unwrap();
    }
}

/// More blocks than a page of a listing shows, some of the base gone or cut short: what is kept of the
/// base is stored again, and not only named.
#[tokio::test]
async fn damage_in_the_base_is_not_inherited_in_a_large_store() {
    let mut of = written(&[(0, 1), (4, 2), (8, 3)]);
    of.snapshot();
    of.write(4, 5);
    for damage in [None, Some(Bytes::new())] {
        let clean = blobs::memory();
        let store = over(Arc::clone(&clean));
        back_up(&store, &of, 0, "backup-1").await.unwrap();
        let of_base = keys(&clean, "/blocks/").await;
        fill_a_page(&clean).await;
        for key in of_base {
            match &damage {
                None => clean.delete(&key).await.unwrap(),
                Some(bytes) => drop(clean.put(&key, bytes.clone()).await.unwrap()),
            }
        }
        let created = back_up(&store, &of, 1, "backup-2").await.unwrap();
        assert!(created.is_incremental);
        assert_eq!(contents(&store, "backup-2").await.unwrap(), of.data_of("snap-1"));
    }
}

/// More blocks than a page of a listing shows.
#[tokio::test]
async fn blocks_are_found_in_a_large_store() {
    let mut of = written(&[(0, 1), (4, 2)]);
    of.snapshot();
    of.write(4, 3);
    of.write(6, 1);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    fill_a_page(&clean).await;
    let again = back_up(&store, &of, 0, "backup-2").await.unwrap();
    assert_eq!((again.new_blocks, again.uploaded_bytes), (0, 0));
    let more = back_up(&store, &of, 1, "backup-3").await.unwrap();
    assert_eq!(more.new_blocks, 1, "one of the two is there under another place");
    assert_eq!(check_all(&store, &of).await, 3);
    let collected = delete(&store, "backup-1").await.unwrap().blocks;
    assert_eq!((collected.removed_blocks, collected.referenced_blocks), (1000, 3));
    assert_eq!(check_all(&store, &of).await, 2);
}

#[tokio::test]
async fn the_method_of_the_first_backup_stays() {
    let mut of = written(&[(0, 1)]);
    of.snapshot();
    of.write(2, 3);
    let store = over(blobs::memory());
    let mut request = create_request("snap-0", "backup-1");
    request.compression = backupstore::Compression::None;
    run_create(&store, request, of.source(0)).await.unwrap();
    back_up(&store, &of, 1, "backup-2").await.unwrap();
    let info = store.inspect_backup(&volume(), &name("backup-2")).await.unwrap();
    assert_eq!(info.compression_method, Some(backupstore::Compression::None));
    assert_eq!(check_all(&store, &of).await, 2);
}

#[tokio::test]
async fn names_and_sizes_that_cannot_be_are_refused() {
    let of = written(&[(0, 1)]);
    let store = over(blobs::memory());
    let request =
        CreateRequest { block_size: BlockSize::DEFAULT, ..create_request("snap-0", "backup-1") };
    let refused = run_create(&store, request, of.source(0)).await;
    assert!(matches!(refused, Err(Error::VolumeSize { .. })), "{refused:?}");
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let mut other = of.clone();
    other.snapshot();
    let taken = back_up(&store, &other, 1, "backup-1").await.unwrap_err();
    assert_eq!(taken.to_string(), "backup backup-1 already exists");
    // The same once more: it is there already.
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let missing = contents(&store, "backup-9").await.unwrap_err();
    assert!(missing.is_not_found() && missing.to_string().starts_with("cannot find backupstore/"));
    let request = backupstore::restore::RestoreRequest::new(name("other"), name("backup-1"));
    let missing = run_restore(&store, request, MemorySink::empty(1)).await.unwrap_err();
    assert!(missing.to_string().starts_with("Source volume doesn't exist in backupstore: "));
}

/// A volume that was made again under the name of another, with snapshots of the same names.
#[tokio::test]
async fn names_that_were_given_again_are_of_something_else() {
    let (clean, old) = (blobs::memory(), written(&[(0, 1), (2, 2)]));
    let store = over(Arc::clone(&clean));
    back_up(&store, &old, 0, "backup-1").await.unwrap();
    let mut new = written(&[(0, 7)]);
    new.newest().taken = "2020-01-01T00:00:01Z".to_owned();
    let taken = back_up(&store, &new, 0, "backup-1").await.unwrap_err();
    assert!(matches!(taken, Error::ExistsOfAnother { .. }), "{taken:?}");
    let text = taken.to_string();
    assert!(text.contains("backup-1 already exists") && text.contains("another name"), "{text}");
    assert_eq!(keys(&clean, "/locks/").await, [], "the lock is given back");
    // Nor is it a base of the next one.
    new.snapshot();
    new.write(4, 8);
    assert!(!back_up(&store, &new, 1, "backup-2").await.unwrap().is_incremental);
    assert_eq!(contents(&store, "backup-2").await.unwrap(), new.data_of("snap-1"));
    new.snapshot();
    assert!(back_up(&store, &new, 2, "backup-3").await.unwrap().is_incremental);
}

/// A sink that fails from its second write on.
struct Failing(AtomicU64);

impl Sink for Failing {
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(io::Error::other("disk is full")),
        }
    }

    fn zero(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_restore_ends_with_its_sink() {
    let of = written(&[(0, 1), (4, 2), (9, 3)]);
    let store = over(blobs::memory());
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let failing = Arc::new(Failing(AtomicU64::new(0)));
    let failed = run_restore(&store, restore_request("backup-1"), failing).await;
    assert!(matches!(failed, Err(Error::Sink(_))), "{failed:?}");
}

#[tokio::test]
async fn damage_is_told_with_name_and_place_and_the_rest_is_restored() {
    let of = written(&[(0, 1), (2, 2), (4, 3), (6, 2), (8, 4)]);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let sum = |page: usize| {
        let at = page * PAGE;
        backupstore::format::Checksum::of(&of.data_of("snap-0")[at..at + BLOCK as usize])
            .to_string()
    };
    let missing = keys(&clean, &sum(2)).await.remove(0);
    clean.delete(&missing).await.unwrap();
    let flipped = keys(&clean, &sum(8)).await.remove(0);
    let mut bytes =
        blobs::get_limited(clean.as_ref(), &flipped, 1 << 20).await.unwrap().bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    clean.put(&flipped, bytes.into()).await.unwrap();

    let sink = MemorySink::empty(8 * BLOCK as usize);
    let failed =
        run_restore(&store, restore_request("backup-1"), Arc::clone(&sink) as Arc<dyn Sink>).await;
    let Err(Error::Damaged(damaged)) = failed else { panic!("{failed:?}") };
    let places: Vec<_> =
        damaged.blocks.iter().map(|it| (it.block.offset, it.path.clone())).collect();
    let page = PAGE as u64;
    assert_eq!(
        places,
        [
            (2 * page, missing.to_string()),
            (6 * page, missing.to_string()),
            (8 * page, flipped.to_string())
        ]
    );
    assert_eq!((damaged.count, &damaged.blocks[0].damage), (3, &BlockDamage::Missing));
    let text = damaged.to_string();
    assert!(
        text.contains("no such file or directory") && text.contains(&missing.to_string()),
        "{text}"
    );
    let mut expected = of.data_of("snap-0").to_vec();
    for hole in [2, 6, 8] {
        expected[hole * PAGE..hole * PAGE + BLOCK as usize].fill(0);
    }
    assert!(sink.data() == expected, "all others are restored");

    let mut request = restore_request("backup-1");
    request.on_damage = OnDamage::GoOn;
    let restored =
        run_restore(&store, request, MemorySink::empty(8 * BLOCK as usize)).await.unwrap();
    assert_eq!((restored.written, restored.damaged.count), (2, 3));
}

#[tokio::test]
async fn a_restore_goes_on_where_it_ended() {
    let of = written(&[(0, 1), (2, 2), (4, 3), (6, 4), (8, 5)]);
    let (store, faults, _) = faulty();
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let sink = MemorySink::empty(8 * BLOCK as usize);
    let control = Control::default();
    let begun = store.begin_restore(restore_request("backup-1"), &control).await.unwrap();
    for nth in 3..9 {
        faults.plan(nth, Fault::Before);
    }
    let failed = begun.run(Arc::clone(&sink) as Arc<dyn Sink>, &control).await;
    assert!(matches!(failed, Err(Error::Damaged(_))), "{failed:?}");
    let before = sink.state.lock().unwrap().writes;
    assert!((1..5).contains(&before));
    let mut calls = faults.calls();
    while faults.waiting() > 0 {
        // Spend what is left of the plan.
        let _ = store.list(Shown::VolumesOnly).await;
        calls += 1;
        assert!(calls < 1000);
    }
    let restored =
        run_restore(&store, restore_request("backup-1"), Arc::clone(&sink) as Arc<dyn Sink>);
    let restored = restored.await.unwrap();
    assert_eq!((restored.found_written, restored.written), (before, 5 - before));
    assert_eq!(sink.data(), of.data_of("snap-0"));
}

/// A source that waits until it is told to go on after its first block.
struct Slow {
    inner: Arc<dyn Source>,
    control: Control,
}

impl Source for Slow {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_snapshot(&self, of: &BackedUp) -> io::Result<bool> {
        self.inner.is_snapshot(of)
    }

    fn has_snapshot(&self, of: &BackedUp) -> io::Result<bool> {
        self.inner.has_snapshot(of)
    }

    fn changed_since(&self, base: Option<&str>) -> io::Result<Extents> {
        self.inner.changed_since(base)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.control.cancel();
        self.inner.read_at(offset, buffer)
    }
}

#[tokio::test]
async fn a_cancelled_backup_ends_and_can_be_made_again() {
    let of = written(&[(0, 1), (2, 2), (4, 3), (6, 4), (8, 5)]);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    let control = Control::default();
    let source: Arc<dyn Source> = Arc::new(Slow { inner: of.source(0), control: control.clone() });
    let request = create_request("snap-0", "backup-1");
    let begun = store.begin_backup(request, Arc::clone(&source), &control).await.unwrap();
    let ended = begun.run(source, &control).await;
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    assert!(control.percent() < 100);
    assert_eq!(keys(&clean, "/locks/").await, [], "the lock is given back");
    let progress = store.inspect_backup(&volume(), &name("backup-1")).await.unwrap_err();
    assert_eq!(progress.to_string(), "backup backup-1 is still in progress");
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    assert_eq!(check_all(&store, &of).await, 1);
}

#[tokio::test]
async fn what_was_uploaded_before_a_crash_is_not_uploaded_again() {
    let of = written(&[(0, 1), (2, 2), (4, 3), (6, 4), (8, 5)]);
    let (store, faults, clean) = faulty();
    // Fails at the final record: every block is there.
    let before = faults.calls();
    back_up(&store, &of, 0, "backup-0").await.unwrap();
    let calls = faults.calls() - before;
    crate::world::empty(&clean).await;
    faults.plan(calls - 4, Fault::Before);
    let failed = back_up(&store, &of, 0, "backup-1").await;
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(keys(&clean, "/blocks/").await.len(), 5);
    drop_locks(&clean).await;
    let created = back_up(&store, &of, 0, "backup-1").await.unwrap();
    assert_eq!(
        (created.new_blocks, created.uploaded_bytes, created.uploaded_again_bytes),
        (0, 0, 0)
    );
    assert_eq!(check_all(&store, &of).await, 1);
}

#[tokio::test]
async fn a_volume_is_removed_with_no_sibling_touched() {
    let of = written(&[(0, 1), (2, 2)]);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let prefix = keys(&clean, "volume.cfg").await.remove(0).to_string();
    let folder = prefix.strip_suffix("/volume.cfg").unwrap();
    // A name that begins alike, right beside.
    for sibling in [format!("{folder}-2/volume.cfg"), format!("{folder}.x/blocks/a")] {
        clean.put_new(&blobs::Key::parse(&sibling).unwrap(), "x".into()).await.unwrap();
    }
    let options = DeleteOptions::default();
    store.delete_volume(&volume(), &options, &Control::default()).await.unwrap();
    let left: Vec<_> = keys(&clean, "").await;
    assert_eq!(left.len(), 2, "{left:?}");
    store.delete_volume(&volume(), &options, &Control::default()).await.unwrap();
    let gone = delete(&store, "backup-1").await.unwrap_err();
    assert!(gone.to_string().starts_with("cannot find volume in backupstore: "), "{gone}");
}

#[tokio::test]
async fn a_deletion_can_be_repeated_and_finishes_what_was_left() {
    let mut of = written(&[(0, 1), (2, 2)]);
    of.snapshot();
    of.write(2, 3);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    back_up(&store, &of, 1, "backup-2").await.unwrap();
    // As if a deletion had died after the record.
    let record = keys(&clean, "backup_backup-1.cfg").await.remove(0);
    clean.delete(&record).await.unwrap();
    let report = store.report_garbage(&volume(), &Control::default()).await.unwrap();
    assert_eq!(
        (report.outcome, report.orphan_blocks, report.removed_blocks),
        (Outcome::Reported, 1, 0)
    );
    assert_eq!(keys(&clean, "/blocks/").await.len(), 3);
    let deleted = delete(&store, "backup-1").await.unwrap();
    assert_eq!((deleted.existed, deleted.blocks.removed_blocks), (false, 1));
    assert_eq!(check_all(&store, &of).await, 1);
}

#[tokio::test]
async fn an_unreadable_record_keeps_every_block_until_it_is_given_up() {
    let mut of = written(&[(0, 1), (2, 2)]);
    of.snapshot();
    of.write(2, 3);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    back_up(&store, &of, 1, "backup-2").await.unwrap();
    let bad = keys(&clean, "backup_backup-2.cfg").await.remove(0);
    let bad = blobs::Key::parse(&bad.as_str().replace("backup-2", "backup-bad")).unwrap();
    clean.put_new(&bad, "{\"Name\":".into()).await.unwrap();
    let deleted = delete(&store, "backup-1").await.unwrap();
    assert_eq!(deleted.blocks.outcome, Outcome::KeptForUnreadable);
    assert_eq!(deleted.blocks.unreadable[0].name, "backup-bad");
    assert_eq!((deleted.blocks.orphan_blocks, keys(&clean, "/blocks/").await.len()), (1, 3));
    // One way out: it is deleted itself. Another: it is given up.
    let copy = over(crate::world::copy_of(&clean).await);
    assert_eq!(delete(&copy, "backup-bad").await.unwrap().blocks.removed_blocks, 1);
    let options =
        DeleteOptions { abandon: [name("backup-bad")].into(), ..DeleteOptions::default() };
    let collected = store.collect_garbage(&volume(), &options, &Control::default()).await.unwrap();
    assert_eq!((collected.outcome, collected.removed_blocks), (Outcome::Removed, 1));
    assert_eq!(keys(&clean, "backup-bad").await, []);
    assert_eq!(check_all(&store, &of).await, 1);
}

/// Others allow longer names than we do, and may restore what has one.
#[tokio::test]
async fn a_record_with_a_name_that_is_too_long_keeps_every_block() {
    let mut of = written(&[(0, 1), (2, 2)]);
    of.snapshot();
    of.write(2, 3);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    back_up(&store, &of, 1, "backup-2").await.unwrap();
    let known = keys(&clean, "backup_backup-1.cfg").await.remove(0);
    let long = known.as_str().replace("backup-1", &"a".repeat(241));
    let long = blobs::Key::parse(&long).unwrap();
    clean.put_new(&long, "{}".into()).await.unwrap();
    let deleted = delete(&store, "backup-1").await.unwrap();
    assert_eq!(deleted.blocks.outcome, Outcome::KeptForUnreadable);
    assert_eq!(deleted.blocks.unreadable[0].name, long.as_str());
    assert_eq!(keys(&clean, "/blocks/").await.len(), 3);
    clean.delete(&long).await.unwrap();
    assert_eq!(delete(&store, "backup-1").await.unwrap().blocks.removed_blocks, 1);
}

/// Its blocks may be removed by a sleeper, or by hand.
#[tokio::test]
async fn damage_in_the_base_is_mended_and_not_inherited() {
    let mut of = written(&[(0, 1), (2, 2), (4, 3)]);
    of.snapshot();
    of.write(2, 4);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let blocks = keys(&clean, "/blocks/").await;
    for key in &blocks {
        clean.delete(key).await.unwrap();
    }
    let created = back_up(&store, &of, 1, "backup-2").await.unwrap();
    assert!(created.is_incremental);
    assert_eq!(created.new_blocks, 3, "what changed, and what the base had lost");
    assert_eq!(contents(&store, "backup-2").await.unwrap(), of.data_of("snap-1"));
}

/// The lock does not stop it, the fence does.
#[tokio::test]
async fn a_writer_whose_record_was_fenced_cannot_publish_though_it_has_its_lock() {
    let of = written(&[(0, 1), (2, 2)]);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    let (control, source) = (Control::default(), of.source(0));
    let request = create_request("snap-0", "backup-1");
    let asleep = store.begin_backup(request, Arc::clone(&source), &control).await.unwrap();
    let record = keys(&clean, "backup_backup-1.cfg").await.remove(0);
    let begun = blobs::get_limited(clean.as_ref(), &record, 1 << 20).await.unwrap().bytes;
    clean.put(&record, [begun.as_ref(), b"\n"].concat().into()).await.unwrap();
    let woken = asleep.run(source, &control).await.unwrap_err();
    assert!(matches!(woken, Error::Fenced { .. }), "{woken:?}");
    assert_eq!(check_all(&store, &of).await, 0);
}

#[tokio::test]
async fn a_record_in_progress_does_not_block_and_its_writer_cannot_finish() {
    let mut of = written(&[(0, 1), (2, 2)]);
    of.snapshot();
    of.write(2, 3);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let control = Control::default();
    let source = of.source(1);
    let request = create_request("snap-1", "backup-2");
    let asleep = store.begin_backup(request, Arc::clone(&source), &control).await.unwrap();
    // It sleeps so long that its lock ends.
    drop_locks(&clean).await;
    let deleted = delete(&store, "backup-1").await.unwrap();
    assert_eq!(deleted.blocks.outcome, Outcome::Removed);
    assert_eq!(deleted.blocks.in_progress, ["backup-2"]);
    assert_eq!(keys(&clean, "/blocks/").await, []);
    let woken = asleep.run(source, &control).await.unwrap_err();
    assert!(matches!(woken, Error::LockLost { .. } | Error::Fenced { .. }), "{woken:?}");
    assert_eq!(check_all(&store, &of).await, 0);
    back_up(&store, &of, 1, "backup-2").await.unwrap();
    assert_eq!(check_all(&store, &of).await, 1);
}

#[tokio::test]
async fn a_system_backup_is_stored_once_and_checked() {
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    let which = SystemBackup { version: Name::parse("v1.9.0").unwrap(), name: name("nightly") };
    let record = SystemBackupCfg { git_commit: "abc".to_owned(), ..SystemBackupCfg::default() };
    let archive = Bytes::from_static(b"zip");
    store.upload_system_backup(&which, archive.clone(), record.clone()).await.unwrap();
    let again = store.upload_system_backup(&which, archive.clone(), record).await.unwrap_err();
    assert!(again.to_string().ends_with("system-backup.zip already exists"), "{again}");
    assert_eq!(store.download_system_backup(&which).await.unwrap(), archive);
    let listed = store.list_system_backups().await.unwrap();
    assert_eq!(listed["nightly"], "backupstore/system-backups/v1.9.0/nightly");
    let zip = keys(&clean, "system-backup.zip").await.remove(0);
    clean.put(&zip, "piz".into()).await.unwrap();
    assert!(matches!(store.download_system_backup(&which).await, Err(Error::Archive { .. })));
    store.delete_system_backup(&which).await.unwrap();
    assert_eq!(keys(&clean, "").await, []);
}

#[tokio::test]
async fn a_backing_image_goes_with_the_blocks_that_no_other_needs() {
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    let sum = |text: &str| backupstore::format::Checksum::of(text.as_bytes()).to_string();
    let cfg = |name: &str, blocks: &[&str]| {
        let blocks: Vec<_> = blocks
            .iter()
            .enumerate()
            .map(|(index, text)| {
                format!(r#"{{"Offset":{},"BlockChecksum":"{}"}}"#, index << 21, sum(text))
            })
            .collect();
        format!(
            r#"{{"Name":"{name}","Size":"4194304","BlockCount":"2","Checksum":"x","Labels":null,"CompressionMethod":"lz4","CreatedTime":"2026-11-15T06:37:10Z","CompleteTime":"2026-11-15T06:37:10Z","Secret":"","SecretNamespace":"","ProcessingBlocks":null,"Blocks":[{}]}}"#,
            blocks.join(",")
        )
    };
    for (image, blocks) in [("image-1", ["a", "b"]), ("image-2", ["b", "c"])] {
        let key = format!("backupstore/backing-images/backing-images/{image}/backing-image.cfg");
        let key = blobs::Key::parse(&key).unwrap();
        clean.put_new(&key, cfg(image, &blocks).into()).await.unwrap();
    }
    for text in ["a", "b", "c"] {
        let sum = sum(text);
        let key =
            format!("backupstore/backing-images/blocks/{}/{}/{sum}.blk", &sum[..2], &sum[2..4]);
        clean.put_new(&blobs::Key::parse(&key).unwrap(), "x".into()).await.unwrap();
    }
    assert_eq!(store.list_backing_images().await.unwrap(), [name("image-1"), name("image-2")]);
    let info = store.inspect_backing_image(&name("image-1")).await.unwrap();
    assert_eq!((info.size, info.url.as_str()), (4_194_304, "vfs:///store?backingImage=image-1"));
    let options = DeleteOptions::default();
    let control = Control::default();
    store.delete_backing_image(&name("image-1"), &options, &control).await.unwrap();
    let left = keys(&clean, "backing-images/blocks/").await;
    assert_eq!(left.len(), 2);
    assert!(!left.iter().any(|key| key.as_str().contains(&sum("a"))));
}

/// In simulated time: what is sent and what is fetched take as long as their rate says, however many
/// workers there are, and no longer.
#[tokio::test(start_paused = true)]
async fn a_backup_and_its_restore_keep_to_their_rate() {
    const RATE: u64 = 100;
    let mut of = Volume::new(64);
    for page in 0..128 {
        of.write(page, page as u64 + 1);
    }
    let store = over(blobs::memory());
    let request = create_request("snap-0", "backup-1");
    let request = CreateRequest { bytes_per_second: Some(RATE), ..request };
    let began = tokio::time::Instant::now();
    let made = run_create(&store, request, of.source(0)).await.unwrap();
    let (took, due) = (began.elapsed().as_secs(), made.uploaded_bytes / RATE);
    assert!(due > 100, "{} bytes are too few to tell", made.uploaded_bytes);
    assert!((due..=due + due / 10).contains(&took), "{took} s for {due} s");
    let mut request = restore_request("backup-1");
    request.fetch.bytes_per_second = Some(2 * RATE);
    let sink = MemorySink::empty(of.data_of("snap-0").len());
    let began = tokio::time::Instant::now();
    run_restore(&store, request, Arc::clone(&sink) as Arc<dyn Sink>).await.unwrap();
    let (took, due) = (began.elapsed().as_secs(), due / 2);
    assert!((due..=due + due / 10).contains(&took), "{took} s for {due} s");
    assert!(sink.data() == of.data_of("snap-0"));
}
