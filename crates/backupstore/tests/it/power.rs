//! A directory on a disk that forgets what was not synced: power fails at every call of a backup. Then:
//! every complete backup restores byte for byte, and the same backup, made again, succeeds. And how often
//! a backup waits for the disk.

use std::path::Path;
use std::sync::Arc;

use backupstore::Control;
use backupstore::delete::DeleteOptions;
use blobs::{LocalStore, Prefix, Store, list_all};
use durable::Disk as _;
use durable::sim::SimDisk;

use crate::world::{Volume, back_up, check_all, delete, drop_locks, keys, over, volume};

/// More than wait together, so that some are committed on the way.
const BLOCKS: u64 = 80;
const SEEDS: u64 = 3;
/// Of the calls of a long backup, one of so many.
const STRIDE: usize = 35;

fn directory(disk: &SimDisk) -> Arc<dyn Store> {
    Arc::new(LocalStore::open_on(Box::new(disk.clone()), "/store").unwrap())
}

fn full(blocks: u64) -> Volume {
    let mut of = Volume::new(blocks);
    for block in 0..blocks {
        of.write(usize::try_from(2 * block).unwrap(), block + 1);
    }
    of.snapshot();
    for page in [0, 3, 11] {
        of.write(page, 1000 + page as u64);
    }
    of
}

/// One backup is complete; power fails in the one after it.
async fn fail_at(seed: u64, nth: u64, of: &Volume) -> bool {
    let disk = SimDisk::new(seed);
    let store = directory(&disk);
    disk.die_at_call(nth);
    let first = back_up(&over(Arc::clone(&store)), of, 0, "backup-0").await;
    let second = back_up(&over(store), of, 1, "backup-1").await;
    let fired = disk.fault_fired();
    disk.crash();
    let store = directory(&disk);
    drop_locks(&store).await;
    let target = over(store);
    let complete = check_all(&target, of).await;
    let acknowledged = usize::from(first.is_ok()) + usize::from(second.is_ok());
    assert!(complete >= acknowledged, "seed {seed}, call {nth}: {complete} of {acknowledged}");
    for (index, name) in [(0, "backup-0"), (1, "backup-1")] {
        back_up(&target, of, index, name).await.unwrap();
    }
    assert_eq!(check_all(&target, of).await, 2, "seed {seed}, call {nth}");
    fired
}

#[tokio::test]
async fn power_fails_at_every_call_of_a_short_backup() {
    let of = full(6);
    for seed in 0..SEEDS {
        let mut points = 0;
        for nth in 1.. {
            points += 1;
            if !fail_at(seed, nth, &of).await {
                break;
            }
        }
        assert!(points > 100, "{points}");
    }
}

/// Somebody is killed at every call of a backup while the machine goes on: what it wrote is seen, and not
/// on the disk. The next try finds it there, and completes; then power fails.
async fn kill_at(disk: SimDisk, nth: u64, of: &Volume) -> bool {
    let store = directory(&disk);
    disk.die_at_call(nth);
    let killed = back_up(&over(store), of, 0, "backup-0").await;
    let fired = disk.fault_fired();
    disk.kill();
    let store = directory(&disk);
    drop_locks(&store).await;
    back_up(&over(store), of, 0, "backup-0").await.unwrap();
    disk.crash();
    let store = directory(&disk);
    drop_locks(&store).await;
    assert_eq!(check_all(&over(store), of).await, 1, "call {nth}, {killed:?}");
    fired
}

#[tokio::test]
async fn what_a_killed_writer_left_is_durable_before_it_is_relied_on() {
    let of = full(6);
    for with_barriers in [true, false] {
        for seed in 0..2 {
            let mut points = 0;
            for nth in 1.. {
                points += 1;
                let disk = SimDisk::new(seed);
                if !with_barriers {
                    disk.without_barriers();
                }
                if !kill_at(disk, nth, &of).await {
                    break;
                }
            }
            assert!(points > 60, "{points}");
        }
    }
}

/// The same for a deletion: a record that was removed, and not for good, comes back with all its blocks or
/// not at all.
#[tokio::test]
async fn what_a_killed_deletion_removed_stays_away_before_blocks_go() {
    let of = full(6);
    for seed in 0..SEEDS {
        let mut points = 0;
        for nth in 1.. {
            points += 1;
            let disk = SimDisk::new(seed);
            let store = directory(&disk);
            for (index, name) in [(0, "backup-0"), (1, "backup-1")] {
                back_up(&over(Arc::clone(&store)), &of, index, name).await.unwrap();
            }
            disk.die_at_call(nth);
            let _ = delete(&over(store), "backup-0").await;
            let fired = disk.fault_fired();
            disk.kill();
            let store = directory(&disk);
            drop_locks(&store).await;
            let options = DeleteOptions::default();
            let target = over(store);
            target.collect_garbage(&volume(), &options, &Control::default()).await.unwrap();
            disk.crash();
            let store = directory(&disk);
            drop_locks(&store).await;
            let complete = check_all(&over(store), &of).await;
            assert!((1..=2).contains(&complete), "seed {seed}, call {nth}: {complete}");
            if !fired {
                assert_eq!(complete, 1);
                break;
            }
        }
        assert!(points > 60, "{points}");
    }
}

/// The blocks lie on another file system than the rest, which is mounted, or linked to, inside.
#[tokio::test]
async fn blocks_on_another_file_system_are_durable_as_well() {
    let of = full(6);
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        let store = directory(&disk);
        // Where the blocks of the volume lie is known when there are some.
        back_up(&over(Arc::clone(&store)), &of, 0, "backup-0").await.unwrap();
        let block = keys(&store, "/blocks/").await.remove(0).to_string();
        let (volume, _) = block.split_once("/blocks/").unwrap();
        let disk = SimDisk::new(seed);
        let store = directory(&disk);
        for part in Path::new("/store").join(volume).ancestors().collect::<Vec<_>>().iter().rev() {
            let _ = disk.create_dir(part, durable::Mode::PRIVATE_DIR);
        }
        disk.mount(&Path::new("/store").join(volume).join("blocks")).unwrap();
        back_up(&over(store), &of, 0, "backup-0").await.unwrap();
        disk.crash();
        let store = directory(&disk);
        drop_locks(&store).await;
        assert_eq!(check_all(&over(store), &of).await, 1, "seed {seed}");
    }
}

#[tokio::test]
async fn power_fails_in_a_backup_that_commits_on_its_way() {
    let of = full(BLOCKS);
    for seed in 0..SEEDS {
        for nth in (1 + seed..).step_by(STRIDE) {
            if !fail_at(seed, nth, &of).await {
                break;
            }
        }
    }
}

#[tokio::test]
async fn blocks_wait_for_the_disk_together() {
    const MANY: u64 = 256;
    let disk = SimDisk::new(1);
    let store = directory(&disk);
    let of = full(MANY);
    let before = disk.syncs();
    let made = back_up(&over(store), &of, 0, "backup-0").await.unwrap();
    assert_eq!(made.new_blocks, MANY);
    let syncs = disk.syncs() - before;
    println!("{MANY} blocks: {syncs} syncs");
    // Locks and records take their own, whatever the number of blocks.
    assert!(syncs < MANY / 4, "{syncs} syncs for {MANY} blocks");
}

/// A disk that is full at whatever point of a backup: what was acknowledged stays, and nothing says that it
/// is complete that is not.
#[tokio::test]
async fn a_full_disk_costs_no_backup() {
    let of = full(20);
    let mut made = 0;
    for more in 0..30 {
        let disk = SimDisk::new(more);
        let target = over(directory(&disk));
        back_up(&target, &of, 0, "backup-0").await.unwrap();
        let all = list_all(directory(&disk).as_ref(), &Prefix::ROOT).await.unwrap();
        disk.limit_bytes(all.iter().map(|meta| meta.len_bytes).sum::<u64>() + more * 1500);
        made += usize::from(back_up(&target, &of, 1, "backup-1").await.is_ok());
        disk.limit_bytes(u64::MAX);
        drop_locks(&directory(&disk)).await;
        assert!(check_all(&target, &of).await >= 1, "{more}");
        // What it left behind is in nobody's way.
        back_up(&target, &of, 1, "backup-1").await.unwrap();
        assert_eq!(check_all(&target, &of).await, 2, "{more}");
    }
    assert!((1..30).contains(&made), "{made}");
}
