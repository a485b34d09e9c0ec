use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::on;

fn root() -> &'static Path {
    Path::new("/")
}

/// What a file holds after a crash, for many seeds.
fn outcomes(prepare: impl Fn(&SimDisk)) -> BTreeSet<Option<Vec<u8>>> {
    (0..200)
        .map(|seed| {
            let disk = SimDisk::new(seed);
            prepare(&disk);
            disk.crash();
            on::read_limited(&disk, Path::new("/f"), 1 << 20).ok()
        })
        .collect()
}

fn create(disk: &SimDisk) -> Box<dyn File> {
    disk.open(Path::new("/f"), Open::CreateNew(Mode::PUBLIC)).unwrap()
}

#[test]
fn an_unsynced_write_is_lost_kept_or_torn() {
    let found = outcomes(|disk| {
        let file = create(disk);
        disk.sync_dir(root()).unwrap();
        file.write_at(&[1; 2 * SECTOR_BYTES], 0).unwrap();
    });
    let torn = [vec![1; SECTOR_BYTES], vec![0; SECTOR_BYTES]].concat();
    assert!(found.contains(&Some(vec![])), "lost");
    assert!(found.contains(&Some(vec![1; 2 * SECTOR_BYTES])), "kept");
    assert!(found.contains(&Some(vec![0; 2 * SECTOR_BYTES])), "zero-filled");
    assert!(found.contains(&Some(torn)), "torn");
    assert!(!found.contains(&None), "the name was synced");
}

#[test]
fn an_unsynced_name_is_lost_or_kept_even_if_the_file_was_synced() {
    let found = outcomes(|disk| {
        let file = create(disk);
        file.write_at(b"x", 0).unwrap();
        file.sync_all().unwrap();
    });
    assert_eq!(found, BTreeSet::from([None, Some(b"x".to_vec())]));
}

#[test]
fn a_synced_file_with_a_synced_name_is_there() {
    let found = outcomes(|disk| {
        let file = create(disk);
        file.write_at(b"x", 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(root()).unwrap();
    });
    assert_eq!(found, BTreeSet::from([Some(b"x".to_vec())]));
}

#[test]
fn an_unsynced_removal_may_come_undone() {
    let found = outcomes(|disk| {
        let file = create(disk);
        file.sync_data().unwrap();
        disk.sync_dir(root()).unwrap();
        disk.remove(Path::new("/f")).unwrap();
    });
    assert_eq!(found, BTreeSet::from([None, Some(vec![])]));
}

#[test]
fn a_second_sync_does_not_bring_what_a_failed_one_lost() {
    let found = outcomes(|disk| {
        let file = create(disk);
        disk.sync_dir(root()).unwrap();
        file.write_at(b"x", 0).unwrap();
        disk.fail_call(1, ErrorKind::Other);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        let mut seen = [0];
        assert_eq!(file.read_at(&mut seen, 0).unwrap(), 1, "until a restart it looks well");
    });
    assert!(found.len() > 1, "{found:?}");
}

#[test]
fn a_killed_process_loses_nothing_it_wrote() {
    let disk = SimDisk::new(7);
    let file = create(&disk);
    file.write_at(b"x", 0).unwrap();
    disk.kill();
    assert_eq!(on::read_limited(&disk, Path::new("/f"), 9).unwrap(), b"x");
    assert!(file.read_at(&mut [0], 0).is_err(), "its files are closed");
}

#[test]
fn a_dead_process_makes_no_more_calls() {
    let disk = SimDisk::new(7);
    disk.die_at_call(2);
    let file = create(&disk);
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.sync_all().is_err());
    assert!(disk.list(root()).is_err());
    assert!(disk.fault_fired() && disk.is_dead());
    disk.crash();
    assert!(!disk.is_dead());
    disk.list(root()).unwrap();
}

#[test]
fn rot_changes_one_bit_for_good() {
    let disk = SimDisk::new(7);
    on::replace(&disk, Path::new("/f"), &[0; 9], Mode::PUBLIC).unwrap();
    disk.rot(Path::new("/f"), 4).unwrap();
    disk.crash();
    let found = on::read_limited(&disk, Path::new("/f"), 9).unwrap();
    assert_eq!(found.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    assert!(disk.rot(Path::new("/f"), 9).is_err());
}

#[test]
fn a_file_opened_for_reading_cannot_be_written() {
    let disk = SimDisk::new(7);
    create(&disk);
    let file = disk.open(Path::new("/f"), Open::Read).unwrap();
    assert_eq!(file.write_at(b"x", 0).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert!(file.truncate(0).is_err());
}

#[test]
fn renames_follow_the_rules_of_rename() {
    let disk = SimDisk::new(7);
    let (f, g, d, e) = (Path::new("/f"), Path::new("/g"), Path::new("/d"), Path::new("/e"));
    create(&disk);
    disk.create_dir(d, Mode::PRIVATE_DIR).unwrap();
    disk.create_dir(e, Mode::PRIVATE_DIR).unwrap();
    assert_eq!(disk.rename(f, d).unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(disk.rename(d, f).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(disk.rename(g, f).unwrap_err().kind(), ErrorKind::NotFound);
    disk.rename(f, &d.join("f")).unwrap();
    assert_eq!(disk.rename(e, d).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(disk.remove_dir(d).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    disk.rename(d, e).unwrap();
    assert_eq!(disk.list(root()).unwrap().len(), 1);
    disk.remove(&e.join("f")).unwrap();
    disk.remove_dir(e).unwrap();
}

proptest! {
    /// The same seed and the same calls leave the same disk.
    #[test]
    fn a_seed_is_a_disk(
        seed in any::<u64>(),
        writes in prop::collection::vec((0u64..4096, 1usize..1500), 1..8),
    ) {
        let run = || {
            let disk = SimDisk::new(seed);
            let file = create(&disk);
            for (offset, len) in &writes {
                file.write_at(&vec![7; *len], *offset).unwrap();
            }
            disk.crash();
            on::read_limited(&disk, Path::new("/f"), 1 << 20).ok()
        };
        prop_assert_eq!(run(), run());
    }
}
