//! Fault loops: fail or die at every call, crash, reopen, and find the old contents or the new.

use std::io::ErrorKind;

use proptest::prelude::*;

use super::*;
use crate::error::Retry;
use crate::real::RealDisk;
use crate::sim::SimDisk;

const SEEDS: u64 = 24;
const FILE: &str = "/data/file";

fn file() -> &'static Path {
    Path::new(FILE)
}

/// A disk with a synced directory, and in it the old contents, if any.
fn disk_with(seed: u64, old: Option<&[u8]>) -> SimDisk {
    let disk = SimDisk::new(seed);
    create_dir(&disk, Path::new("/data"), Mode::PRIVATE_DIR).unwrap();
    if let Some(old) = old {
        replace(&disk, file(), old, Mode::PUBLIC).unwrap();
    }
    disk
}

fn contents(disk: &SimDisk) -> Option<Vec<u8>> {
    match read_limited(disk, file(), 1 << 20) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.is_not_found() => None,
        Err(error) => panic!("{error:?}"),
    }
}

fn check(disk: &SimDisk, old: Option<&[u8]>, new: &[u8], acknowledged: bool) {
    let found = contents(disk);
    if acknowledged {
        assert_eq!(found.as_deref(), Some(new), "acknowledged, and lost");
    } else {
        assert!(found.as_deref() == old || found.as_deref() == Some(new), "a mixture");
    }
    sweep(disk, Path::new("/data")).unwrap();
    let left: Vec<_> = disk.list(Path::new("/data")).unwrap();
    assert!(left.iter().all(|entry| entry.name == "file"), "swept clean: {left:?}");
}

/// Runs `work` once for every call it makes, with that call failing as `plan` says.
fn for_every_call(
    seed: u64,
    old: Option<&[u8]>,
    new: &[u8],
    plan: impl Fn(&SimDisk, u64),
    work: impl Fn(&SimDisk) -> Result<(), Error>,
) {
    for nth in 1.. {
        let disk = disk_with(seed, old);
        plan(&disk, nth);
        let result = work(&disk);
        if !disk.fault_fired() {
            result.unwrap();
            assert!(nth > 4, "there were calls to fail");
            return;
        }
        disk.crash();
        check(&disk, old, new, result.is_ok());
        // Restart is the normal path: the same call again must now succeed, and stick.
        match replace(&disk, file(), new, Mode::PUBLIC) {
            Ok(_) => disk.crash(),
            Err(error) => panic!("{error:?}"),
        }
        check(&disk, old, new, true);
    }
}

fn long(byte: u8) -> Vec<u8> {
    vec![byte; 3 * crate::sim::SECTOR_BYTES + 17]
}

#[test]
fn replace_leaves_old_or_new_whichever_call_fails() {
    let (old, new) = (long(b'o'), long(b'n'));
    for seed in 0..SEEDS {
        for kind in [ErrorKind::StorageFull, ErrorKind::PermissionDenied, ErrorKind::Other] {
            for_every_call(
                seed,
                Some(&old),
                &new,
                |disk, nth| disk.fail_call(nth, kind),
                |disk| replace(disk, file(), &new, Mode::PUBLIC).map(drop),
            );
        }
    }
}

#[test]
fn replace_leaves_old_or_new_wherever_it_dies() {
    let (old, new) = (long(b'o'), long(b'n'));
    for seed in 0..SEEDS {
        for before in [None, Some(old.as_slice())] {
            for_every_call(seed, before, &new, SimDisk::die_at_call, |disk| {
                replace(disk, file(), &new, Mode::PRIVATE).map(drop)
            });
        }
    }
}

#[test]
fn create_new_leaves_nothing_or_all_wherever_it_dies() {
    let new = long(b'n');
    for seed in 0..SEEDS {
        for_every_call(seed, None, &new, SimDisk::die_at_call, |disk| {
            create_new(disk, file(), &new, Mode::PUBLIC).map(drop)
        });
        for_every_call(
            seed,
            None,
            &new,
            |disk, nth| disk.fail_call(nth, ErrorKind::StorageFull),
            |disk| create_new(disk, file(), &new, Mode::PUBLIC).map(drop),
        );
    }
}

#[test]
fn what_is_committed_together_is_there_and_nothing_is_there_in_part() {
    let new = long(b'n');
    for seed in 0..SEEDS {
        for before in [None, Some(long(b'o'))] {
            let together = |disk: &SimDisk| {
                let barrier = disk.barrier(Path::new("/data")).during(Operation::Open, file())?;
                let staged = stage(disk, file(), &new, Mode::PUBLIC, IfTaken::Replace)?;
                commit(disk, barrier.unwrap().as_ref(), &[staged]).map(drop)
            };
            for_every_call(seed, before.as_deref(), &new, SimDisk::die_at_call, together);
            let fail = |disk: &SimDisk, nth| disk.fail_call(nth, ErrorKind::Other);
            for_every_call(seed, before.as_deref(), &new, fail, together);
        }
    }
}

/// The model has teeth: a name that is given before the contents were waited for.
#[test]
fn naming_before_the_barrier_is_caught() {
    let torn = (0..SEEDS).any(|seed| {
        let disk = disk_with(seed, None);
        let staged = stage(&disk, file(), &long(b'n'), Mode::PUBLIC, IfTaken::Replace).unwrap();
        staged.name(&disk).unwrap();
        disk.crash();
        contents(&disk).is_some_and(|found| found != long(b'n'))
    });
    assert!(torn);
}

/// The model has teeth: writing in place, without a sync, is caught.
#[test]
fn writing_in_place_is_caught() {
    let (old, new) = (long(b'o'), long(b'n'));
    let mixed = (0..SEEDS).any(|seed| {
        let disk = disk_with(seed, Some(&old));
        let open = disk.open(file(), Open::Write).unwrap();
        write_all_at(open.as_ref(), &new, 0).unwrap();
        disk.crash();
        let found = contents(&disk).unwrap();
        found != old && found != new
    });
    assert!(mixed);
}

/// The model has teeth: a rename whose directory was not synced can be lost.
#[test]
fn leaving_out_the_sync_of_the_directory_is_caught() {
    let lost = (0..SEEDS).any(|seed| {
        let disk = disk_with(seed, Some(b"old"));
        let (beside, _) = write_beside(&disk, Path::new("/data"), b"new", Mode::PUBLIC).unwrap();
        disk.rename(&beside, file()).unwrap();
        disk.crash();
        contents(&disk).as_deref() == Some(b"old".as_slice())
    });
    assert!(lost);
}

#[test]
fn an_acknowledged_removal_stays_removed() {
    for seed in 0..SEEDS {
        for nth in 1.. {
            let disk = disk_with(seed, Some(b"old"));
            disk.die_at_call(nth);
            let removed = remove(&disk, file());
            let fired = disk.fault_fired();
            disk.crash();
            let found = contents(&disk);
            assert!(found.is_none() || found.as_deref() == Some(b"old"));
            if removed.is_ok() {
                assert_eq!(found, None);
            }
            if !fired {
                break;
            }
        }
    }
}

#[test]
fn directories_are_made_with_those_above_them_and_stay() {
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        create_dir(&disk, Path::new("/a/b/c"), Mode::PRIVATE_DIR).unwrap();
        create_dir(&disk, Path::new("/a/b/c"), Mode::PRIVATE_DIR).unwrap();
        disk.crash();
        let found = disk.stat(Path::new("/a/b/c")).unwrap();
        assert!(found.is_dir);
        assert_eq!(found.mode, Mode::PRIVATE_DIR);
    }
}

#[test]
fn a_file_in_the_way_of_a_directory_is_an_error_that_names_it() {
    let disk = disk_with(1, Some(b"old"));
    let error = create_dir(&disk, Path::new("/data/file/x"), Mode::PRIVATE_DIR).unwrap_err();
    assert!(error.to_string().contains("/data/file"), "{error}");
}

#[test]
fn creating_a_taken_name_changes_nothing() {
    let disk = disk_with(1, Some(b"old"));
    let error = create_new(&disk, file(), b"new", Mode::PUBLIC).unwrap_err();
    assert!(matches!(error, Error::Exists { .. }));
    assert_eq!(error.to_string(), "/data/file exists already");
    assert_eq!(contents(&disk).unwrap(), b"old");
    assert_eq!(sweep(&disk, Path::new("/data")).unwrap(), 0, "nothing left beside it");
}

#[test]
fn a_full_disk_keeps_the_old_contents_and_says_try_later() {
    let disk = disk_with(1, Some(b"old"));
    disk.limit_bytes(8);
    let error = replace(&disk, file(), &long(b'n'), Mode::PUBLIC).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::StorageFull));
    assert_eq!(error.retry(), Retry::Later);
    assert!(error.to_string().starts_with("cannot write /data/.durable-"), "{error}");
    assert_eq!(contents(&disk).unwrap(), b"old");
}

#[test]
fn a_file_longer_than_the_limit_is_refused() {
    let disk = disk_with(1, Some(b"12345"));
    assert_eq!(read_limited(&disk, file(), 5).unwrap(), b"12345");
    let error = read_limited(&disk, file(), 4).unwrap_err();
    assert!(matches!(error, Error::TooLong { max_bytes: 4, .. }));
}

#[test]
fn a_path_without_a_name_is_refused() {
    let disk = SimDisk::new(1);
    for path in ["/", "", "..", "a/.."] {
        let error = replace(&disk, Path::new(path), b"", Mode::PUBLIC).unwrap_err();
        assert!(matches!(error, Error::NotAFileName { .. }), "{path}: {error}");
    }
}

#[test]
fn every_replacement_is_another_file_by_inode_and_time() {
    let temp = tempfile::tempdir().unwrap();
    let disks: [(&dyn Disk, PathBuf); 2] =
        [(&SimDisk::new(1), PathBuf::from("/f")), (&RealDisk, temp.path().join("f"))];
    for (disk, path) in disks {
        let mut seen = vec![create_new(disk, &path, b"x", Mode::PUBLIC).unwrap()];
        for _ in 0..50 {
            let made = replace(disk, &path, b"x", Mode::PUBLIC).unwrap();
            assert_eq!(disk.stat(&path).unwrap(), made);
            assert!(
                seen.iter().all(|one| (one.inode, one.modified) != (made.inode, made.modified))
            );
            seen.push(made);
        }
    }
}

#[test]
fn only_files_being_written_are_swept() {
    let disk = disk_with(1, Some(b"old"));
    for name in [".durable-x", "x.tmp", ".hidden.tmp", ".durable-0000000000000001.tmp"] {
        disk.open(&Path::new("/data").join(name), Open::CreateNew(Mode::PUBLIC)).unwrap();
    }
    assert_eq!(sweep(&disk, Path::new("/data")).unwrap(), 1);
    assert_eq!(disk.list(Path::new("/data")).unwrap().len(), 4);
}

#[test]
fn the_real_disk_does_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("one/two");
    crate::create_dir_private(&dir).unwrap();
    assert_eq!(RealDisk.stat(&dir).unwrap().mode, Mode::PRIVATE_DIR);
    let path = dir.join("n".repeat(255));
    crate::create_new(&path, b"one").unwrap();
    assert!(matches!(crate::create_new(&path, b"two"), Err(Error::Exists { .. })));
    crate::replace(&path, b"three").unwrap();
    assert_eq!(crate::read_limited(&path, 5).unwrap(), b"three");
    crate::replace_private(&path, b"").unwrap();
    assert_eq!(RealDisk.stat(&path).unwrap().mode, Mode::PRIVATE);
    assert_eq!(crate::read_limited(&path, 0).unwrap(), b"");
    assert_eq!(RealDisk.list(&dir).unwrap().len(), 1, "nothing left beside it");
    crate::remove(&path).unwrap();
    assert!(crate::remove(&path).unwrap_err().is_not_found());
    assert_eq!(crate::sweep(&dir).unwrap(), 0);
}

#[test]
fn writers_on_the_real_disk_do_not_mix() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("file");
    std::thread::scope(|scope| {
        for byte in b'a'..b'e' {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..20 {
                    crate::replace(path, &[byte; 4096]).unwrap();
                }
            });
        }
    });
    let found = crate::read_limited(&path, 4096).unwrap();
    assert_eq!(found.len(), 4096);
    assert!(found.iter().all(|byte| Some(byte) == found.first()));
    assert_eq!(RealDisk.list(temp.path()).unwrap().len(), 1);
}

proptest! {
    /// Any history of replacements, with a death anywhere in it, ends in the last acknowledged
    /// contents or the ones after.
    #[test]
    fn a_history_of_replacements_ends_in_the_last_or_the_next(
        seed in any::<u64>(),
        lengths in prop::collection::vec(0usize..2000, 1..6),
        nth in 1u64..40,
    ) {
        let disk = disk_with(seed, None);
        disk.die_at_call(nth);
        let mut allowed: Vec<Option<Vec<u8>>> = vec![None];
        for (step, len) in lengths.iter().enumerate() {
            let bytes = vec![u8::try_from(step).unwrap(); *len];
            let done = replace(&disk, file(), &bytes, Mode::PUBLIC).is_ok();
            if done {
                allowed.clear();
            }
            allowed.push(Some(bytes));
            if !done {
                break;
            }
        }
        disk.crash();
        prop_assert!(allowed.contains(&contents(&disk)));
    }

    /// The two disks agree on every read after any writes and cuts.
    #[test]
    fn the_simulated_disk_reads_like_the_real_one(
        steps in prop::collection::vec((any::<bool>(), 0u64..3000, 0usize..700), 0..20),
    ) {
        let temp = tempfile::tempdir().unwrap();
        let disks: [(&dyn Disk, PathBuf); 2] =
            [(&SimDisk::new(1), PathBuf::from("/f")), (&RealDisk, temp.path().join("f"))];
        let mut found = Vec::new();
        for (disk, path) in disks {
            let file = disk.open(&path, Open::CreateNew(Mode::PUBLIC)).unwrap();
            for (step, (is_write, offset, len)) in steps.iter().enumerate() {
                if *is_write {
                    let bytes = vec![u8::try_from(step + 1).unwrap(); *len];
                    write_all_at(file.as_ref(), &bytes, *offset).unwrap();
                } else {
                    file.truncate(*offset).unwrap();
                }
            }
            file.sync_data().unwrap();
            prop_assert_eq!(file.len_bytes().unwrap(), disk.stat(&path).unwrap().len_bytes);
            found.push(read_limited(disk, &path, 1 << 20).unwrap());
        }
        prop_assert_eq!(&found[0], &found[1]);
    }
}

/// Long enough to go around the cache, from places where that can be and where it cannot.
#[test]
fn long_contents_are_whole_wherever_they_lie_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let memory: Vec<u8> = (0..=250).cycle().take(1 << 20).collect();
    let aligned = memory.as_ptr().align_offset(4096);
    for from in [aligned, aligned + 1] {
        for len in [0, 5, 256 * 1024, 512 * 1024, 512 * 1024 + 123] {
            let bytes = &memory[from..from + len];
            let path = dir.path().join(format!("{from}-{len}"));
            let made = create_new(&RealDisk, &path, bytes, Mode::PRIVATE).unwrap();
            assert_eq!(made.len_bytes, len as u64);
            assert!(std::fs::read(&path).unwrap() == bytes);
            replace(&RealDisk, &path, bytes, Mode::PRIVATE).unwrap();
            assert!(std::fs::read(&path).unwrap() == bytes);
        }
    }
}
