//! What callers rely on: states, texts, numbers.

use std::os::unix::fs::MetadataExt;

use replica::{
    Action, CounterPolicy, Error, Labels, OpenRequest, Options, Progress, Replica, State,
};
use rustix::fs::{FallocateFlags, fallocate};

use rpc::HeadParent;

use crate::place::{NOW, Place, SECTOR, pattern, read_head, read_snapshot};
use crate::purge::Purge;

fn text<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().text()
}

fn purge(replica: &mut Replica, head_parent: HeadParent) {
    let mut purge = Purge::new(head_parent);
    while purge.step(replica, 1 << 20).unwrap() != Progress::Done {}
}

fn meta(place: &Place) -> String {
    std::fs::read_to_string(place.file("volume.meta")).unwrap()
}

#[test]
fn a_replica_goes_through_its_states() {
    let place = Place::new();
    let mut replica = Replica::new(place.path(), Options::default());
    assert_eq!(replica.state(), State::Initial);
    assert_eq!(replica.report().size_bytes, 0);
    assert!(replica.open(&OpenRequest::default()).is_err());
    replica.create(16 * 4096, NOW).unwrap();
    assert_eq!(replica.state(), State::Closed);
    replica.create(99 * 4096, NOW).unwrap();
    assert_eq!(replica.report().size_bytes, 16 * 4096, "only once");
    replica.close().unwrap();
    replica.reload().unwrap();
    replica.delete().unwrap();
    assert_eq!(replica.state(), State::Closed, "these do nothing unless open");
    assert!(meta(&place).contains(r#""Dirty":false"#));
    replica.open(&OpenRequest::default()).unwrap();
    assert!(meta(&place).contains(r#""Dirty":true"#), "at once");
    assert_eq!(replica.state(), State::Open);
    assert_eq!(text(replica.open(&OpenRequest::default())), "replica is already open");
    assert_eq!(text(replica.set_rebuilding(false)), "cannot set rebuilding=false from state open");
    replica.write_at(&[1], 0).unwrap();
    assert_eq!(replica.state(), State::Dirty);
    replica.reload().unwrap();
    assert_eq!(replica.state(), State::Dirty, "kept over a reload");
    replica.set_rebuilding(true).unwrap();
    replica.set_rebuilding(true).unwrap();
    replica.close().unwrap();
    assert_eq!(replica.state(), State::Closed);
    assert!(replica.report().is_rebuilding);
    replica.open(&OpenRequest::default()).unwrap();
    assert_eq!(replica.state(), State::Rebuilding, "survives");
    replica.set_rebuilding(false).unwrap();
    replica.delete().unwrap();
    assert_eq!(replica.state(), State::Initial);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn files_have_the_modes_of_the_format() {
    let place = Place::new();
    let _replica = place.created(16);
    let mode = |path: std::path::PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(place.path()), 0o700);
    assert_eq!(mode(place.file("volume-head-000.img")), 0o644);
    assert_eq!(mode(place.file("revision.counter")), 0o600);
    assert_eq!(std::fs::metadata(place.file("revision.counter")).unwrap().len(), 4096);
}

#[test]
fn rejections_have_the_texts_callers_match() {
    let place = Place::new();
    let mut replica = place.created(16);
    let head = "volume-head-000.img";
    assert_eq!(text(replica.snapshot("", true, NOW, None)), "cannot accept empty snapshot name");
    assert_eq!(text(replica.snapshot("a", true, "", None)), "need to specific created time");
    replica.snapshot("a", true, NOW, None).unwrap();
    replica.snapshot("b", true, NOW, None).unwrap();
    assert_eq!(
        text(replica.snapshot("a", true, NOW, None)),
        "snapshot volume-snap-a.img is already existing"
    );
    assert_eq!(
        text(replica.revert("volume-snap-x.img", NOW)),
        "cannot revert to disk file volume-snap-x.img since it's not in the disk chain"
    );
    assert!(replica.revert("", NOW).is_err() && replica.revert("volume-snap-a.img", "").is_err());
    let now = replica.report().head;
    assert_ne!(now, head);
    assert_eq!(text(replica.remove(&now, false)), "cannot delete the active differencing disk");
    assert_eq!(
        text(replica.mark_removed(&now)),
        "cannot mark the active differencing disk as removed"
    );
    assert_eq!(text(replica.prepare_remove(&now)), "cannot delete the active differencing disk");
    assert_eq!(text(replica.replace(&now, "b")), "cannot replace the active differencing disk");
    assert_eq!(
        text(replica.prepare_remove("a")),
        "disk volume-snap-a.img hasn't been marked as removed"
    );
    replica.mark_removed("a").unwrap();
    assert_eq!(
        text(replica.revert("volume-snap-a.img", NOW)),
        "cannot revert to disk file volume-snap-a.img since it's already marked as removed"
    );
    assert!(replica.mark_removed("gone").is_ok() && replica.remove("gone", false).is_ok());
    assert_eq!(replica.prepare_remove("gone").unwrap(), []);
    let outside = text(replica.read_at(&mut [0; 10], 16 * SECTOR - 5));
    assert!(outside.contains("outside the volume"), "{outside}");
    assert!(replica.write_at(&[0; 10], u64::MAX - 2).is_err());
    assert!(replica.unmap_at(u64::MAX, u64::MAX).is_err());
    replica.close().unwrap();
    assert!(replica.snapshot("c", true, NOW, None).is_ok(), "silently, when not open");
    assert_eq!(text(replica.read_at(&mut [0], 0)), "replica is not open");
}

#[test]
fn the_actions_of_a_removal_follow_from_its_place() {
    let place = Place::new();
    let mut replica = place.created(16);
    for name in ["root", "middle", "top"] {
        replica.snapshot(name, true, NOW, None).unwrap();
    }
    replica.revert("volume-snap-middle.img", NOW).unwrap();
    replica.snapshot("last", true, NOW, None).unwrap();
    for name in ["root", "middle", "top", "last"] {
        replica.mark_removed(name).unwrap();
    }
    let words = |name: &str| -> Vec<String> {
        let actions: Vec<Action> = replica.prepare_remove(name).unwrap();
        actions.iter().map(|action| format!("{:?}", action.words())).collect()
    };
    assert_eq!(words("top"), [r#"("remove", "volume-snap-top.img", "")"#]);
    assert_eq!(
        words("volume-snap-root.img"),
        [
            r#"("coalesce", "volume-snap-root.img", "volume-snap-middle.img")"#,
            r#"("replace", "volume-snap-root.img", "volume-snap-middle.img")"#,
        ]
    );
    assert_eq!(words("middle"), [""; 0], "two sit on it");
    assert_eq!(words("last"), [r#"("prune", "volume-snap-last.img", "volume-head-005.img")"#]);
}

#[test]
fn the_numbers_of_small_writes_are_those_of_the_peer() {
    let place = Place::new();
    let mut replica = place.created(16);
    replica.write_at(&[1; 4096], 0).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    assert_eq!(replica.report().head_allocated_bytes, 0);
    replica.write_at(&[2; 512], 512).unwrap();
    let report = replica.report();
    assert_eq!(report.head_allocated_bytes, 4096, "a sector for half a kilobyte");
    assert_eq!(report.revision_counter, 2);
    assert_eq!(report.snapshot_size_usage_bytes, 4096);
    replica.mark_removed("a").unwrap();
    purge(&mut replica, HeadParent::Keep);
    let report = replica.report();
    assert_eq!(report.disks["volume-snap-a.img"].allocated_bytes, 0, "4096 freed");
    let mut expected = vec![0; 16 * 4096];
    expected[..4096].fill(1);
    expected[512..1024].fill(2);
    assert_eq!(read_head(&mut replica), expected);
}

#[test]
fn every_write_and_unmap_counts_and_a_death_loses_no_count() {
    let place = Place::new();
    let mut replica = place.created(16);
    replica.write_at(&[1; 512], 0).unwrap();
    replica.write_at(&[1; 8192], 8192).unwrap();
    assert_eq!(replica.unmap_at(10, 20).unwrap(), 0);
    replica.write_zeroes_at(0, 4096).unwrap();
    assert_eq!(replica.report().revision_counter, 4);
    drop(replica);
    assert_eq!(place.opened().report().revision_counter, 4);

    let options = || Options { counter_policy: CounterPolicy::OnSettle, ..Options::default() };
    let mut replica = Replica::new(place.path(), options());
    replica.open(&OpenRequest::default()).unwrap();
    for _ in 0..3 {
        replica.write_at(&[1; 512], 0).unwrap();
    }
    let on_disk = || std::fs::read(place.file("revision.counter")).unwrap()[0];
    assert_eq!(on_disk(), b'4');
    replica.settle().unwrap();
    assert_eq!(on_disk(), b'7');
    replica.write_at(&[1; 512], 0).unwrap();
    replica.flush().unwrap();
    assert_eq!(on_disk(), b'8', "a flush settles");
    replica.set_revision_counter(0).unwrap();
    assert_eq!((on_disk(), replica.report().revision_counter), (b'0', 0));

    let off = Place::new();
    let mut replica =
        Replica::new(off.path(), Options { revision_counter: false, ..Options::default() });
    replica.create(4096, NOW).unwrap();
    replica.open(&OpenRequest::default()).unwrap();
    replica.write_at(&[1], 0).unwrap();
    assert_eq!(replica.report().revision_counter, 0);
    assert!(!off.file("revision.counter").exists());
}

#[test]
fn an_unmap_never_touches_a_snapshot_that_is_kept() {
    let place = Place::new();
    let mut replica = place.created(16);
    replica.write_at(&pattern(8 * 4096, 1), 0).unwrap();
    replica.snapshot("b", true, NOW, None).unwrap();
    replica.write_at(&pattern(8 * 4096, 2), 0).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    let kept = read_snapshot(&place.path(), "a");
    replica.mark_removed("b").unwrap();
    replica.write_at(&pattern(4096, 3), 9 * SECTOR).unwrap();
    assert_eq!(replica.unmap_at(0, 16 * SECTOR).unwrap(), 4096, "only what the head had");
    assert!(read_snapshot(&place.path(), "a") == kept);
    replica.revert("volume-snap-a.img", NOW).unwrap();
    assert!(read_head(&mut replica) == kept);
}

#[test]
fn discarded_sectors_read_the_same_after_a_reopen() {
    let place = Place::new();
    let mut replica = place.created(16);
    replica.write_at(&pattern(8 * 4096, 1), 0).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    replica.write_at(&pattern(2 * 4096, 2), 0).unwrap();
    replica.unmap_at(0, 4 * SECTOR).unwrap();
    let before = read_head(&mut replica);
    assert!(before[..16384] == pattern(8 * 4096, 1)[..16384], "what the snapshot holds is seen");
    replica.reload().unwrap();
    assert!(read_head(&mut replica) == before, "and still is");
    replica.write_zeroes_at(100, 5 * SECTOR).unwrap();
    let zeroed = read_head(&mut replica);
    assert!(zeroed[100..100 + 5 * 4096].iter().all(|byte| *byte == 0), "all of them");
    drop(replica);
    assert!(read_head(&mut place.opened()) == zeroed);
}

/// What a file system frees after a snapshot was taken costs nothing any more.
#[test]
fn blocks_written_since_the_last_snapshot_are_given_back() {
    let place = Place::new();
    let mut replica = place.created(64);
    replica.write_at(&pattern(32 * 4096, 1), 0).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    replica.write_at(&pattern(12 * 4096, 2), 4 * SECTOR).unwrap();
    replica.write_at(&pattern(4096, 3), 40 * SECTOR).unwrap();
    assert_eq!(replica.report().head_allocated_bytes, 13 * SECTOR);
    assert_eq!(replica.unmap_at(0, 64 * SECTOR).unwrap(), 13 * SECTOR);
    assert_eq!(replica.report().head_allocated_bytes, 0);
    let snapshot = read_snapshot(&place.path(), "a");
    assert!(read_head(&mut replica) == snapshot, "nothing is left of the head");
    // A range that has to read zeros still hides what the snapshot holds.
    replica.write_zeroes_at(0, 64 * SECTOR).unwrap();
    assert_eq!(read_head(&mut replica), vec![0; 64 * 4096]);
    assert!(read_snapshot(&place.path(), "a") == snapshot);
}

#[test]
fn with_the_option_an_unmap_takes_the_snapshots_in_its_way() {
    let place = Place::new();
    let mut replica = place.created(16);
    replica.write_at(&pattern(8 * 4096, 1), 0).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    replica.unmap_mark_removed = true;
    assert_eq!(replica.unmap_at(0, 16 * SECTOR).unwrap(), 8 * SECTOR);
    assert_eq!(read_head(&mut replica), vec![0; 16 * 4096]);
    assert!(replica.chain().unwrap().find("a").unwrap().1.removed);
}

/// What a crash of the machine leaves in a head: a place was given, the contents never came.
#[test]
fn a_write_that_only_got_its_place_does_not_hide_the_snapshot() {
    let place = Place::new();
    let mut replica = place.created(16);
    replica.write_at(&pattern(8 * 4096, 1), 0).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    let before = read_head(&mut replica);
    let head = place.file(&replica.report().head);
    drop(replica);
    let file = std::fs::OpenOptions::new().write(true).open(&head).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 4096, 8192).unwrap();
    let mut replica = place.opened();
    assert!(read_head(&mut replica) == before);
    assert_eq!(replica.report().head_allocated_bytes, 0);
    // While another process still writes, nobody may judge what is half done.
    drop(replica);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 4096, 8192).unwrap();
    let mut replica = Replica::new(place.path(), Options::default());
    replica.open(&OpenRequest { is_upgrade: true, ..OpenRequest::default() }).unwrap();
    assert_eq!(replica.report().head_allocated_bytes, 8192);
}

/// An incremental restore writes blocks that vanished as preallocated zeros.
#[test]
fn preallocated_zeros_of_a_snapshot_hide_what_is_older() {
    let place = Place::new();
    let mut replica = place.created(16);
    replica.write_at(&pattern(8 * 4096, 1), 0).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    replica.snapshot("b", true, NOW, None).unwrap();
    replica.close().unwrap();
    let image = place.file("volume-snap-b.img");
    let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 4096, 8192).unwrap();
    let mut replica = place.opened();
    let contents = read_head(&mut replica);
    let mut expected = pattern(8 * 4096, 1);
    expected[4096..3 * 4096].fill(0);
    assert!(contents[..8 * 4096] == expected);
    replica.mark_removed("a").unwrap();
    purge(&mut replica, HeadParent::Fold);
    assert!(read_head(&mut replica) == contents, "also after a merge");
    replica.mark_removed("b").unwrap();
    purge(&mut replica, HeadParent::Fold);
    assert!(read_head(&mut replica) == contents);
    assert_eq!(replica.chain().unwrap().live().len(), 1, "only the head is left");
}

#[test]
fn a_lost_volume_meta_is_made_again_from_the_head() {
    for leave_empty in [false, true] {
        let place = Place::new();
        let mut replica = place.created(16);
        replica.write_at(&pattern(4096, 1), 0).unwrap();
        replica.snapshot("a", true, NOW, None).unwrap();
        let before = read_head(&mut replica);
        replica.close().unwrap();
        std::fs::remove_file(place.file("volume.meta")).unwrap();
        if leave_empty {
            place.put("volume.meta", "");
        }
        assert_eq!(replica.state(), State::Closed);
        replica.open(&OpenRequest::default()).unwrap();
        assert!(read_head(&mut replica) == before);
        assert!(meta(&place).contains(r#""Head":"volume-head-001.img""#));
        assert!(meta(&place).contains(r#""Parent":"volume-snap-a.img""#));
    }
}

#[test]
fn an_encrypted_volume_grows_by_its_header_when_the_engine_asks() {
    let place = Place::new();
    let options = Options { encrypted: true, ..Options::default() };
    let mut replica = Replica::new(place.path(), options);
    replica.create(16 * 4096, NOW).unwrap();
    let wanted = 16 * 4096 + (16 << 20);
    let request =
        OpenRequest { expected_size_bytes: wanted, now: NOW.into(), ..OpenRequest::default() };
    replica.open(&OpenRequest { is_upgrade: true, ..request.clone() }).unwrap();
    assert_eq!(replica.size_bytes(), Some(16 * 4096));
    replica.close().unwrap();
    replica.open(&request).unwrap();
    assert_eq!(replica.report().size_bytes, wanted);
    let name = format!("volume-snap-expand-{wanted}.img");
    let report = replica.report();
    let disk = &report.disks[&name];
    assert_eq!(disk.labels, Labels::from([("replica-expansion".into(), wanted.to_string())]));
    assert!(!disk.user_created);
}

#[test]
fn a_backing_file_shows_below_everything() {
    let place = Place::new();
    let backing = tempfile::NamedTempFile::new().unwrap();
    durable::replace(backing.path(), &pattern(10_000, 7)).unwrap();
    let options = Options { backing_file: Some(backing.path().to_owned()), ..Options::default() };
    let mut replica = Replica::new(place.path(), options.clone());
    replica.create(8 * 4096, NOW).unwrap();
    replica.open(&OpenRequest::default()).unwrap();
    let mut expected = pattern(10_000, 7);
    expected.resize(8 * 4096, 0);
    assert!(read_head(&mut replica) == expected);
    replica.write_at(&[9; 10], 5).unwrap();
    expected[5..15].fill(9);
    replica.unmap_at(4096, 4096).unwrap();
    assert!(read_head(&mut replica) == expected, "the head had nothing there to give up");
    replica.write_zeroes_at(4096, 4096).unwrap();
    expected[4096..8192].fill(0);
    assert!(read_head(&mut replica) == expected);
    assert_eq!(replica.report().snapshot_count_total, 2);
    replica.snapshot("a", true, NOW, None).unwrap();
    replica.mark_removed("a").unwrap();
    purge(&mut replica, HeadParent::Fold);
    assert!(read_head(&mut replica) == expected);

    durable::replace(backing.path(), b"QFI\xfb....").unwrap();
    let mut other = Replica::new(Place::new().path(), options);
    assert!(text(other.create(8 * 4096, NOW)).contains("qcow2"));
}

#[test]
fn a_chain_has_at_most_250_disks_and_heads_go_round() {
    let place = Place::new();
    let mut replica = place.created(4);
    for count in 1..250u32 {
        replica.write_at(&count.to_le_bytes(), 0).unwrap();
        replica.snapshot(&format!("s{count}"), true, NOW, None).unwrap();
    }
    assert_eq!(text(replica.snapshot("more", true, NOW, None)), "too many active disks: 251");
    let mut number = [0; 4];
    replica.read_at(&mut number, 0).unwrap();
    assert_eq!(u32::from_le_bytes(number), 249);
    assert_eq!(replica.report().remaining_snapshots, 0);
    assert_eq!(replica.report().head, "volume-head-009.img");
    drop(replica);
    let mut replica = place.opened();
    replica.read_at(&mut number, 0).unwrap();
    assert_eq!(u32::from_le_bytes(number), 249);
    assert_eq!(
        u32::from_le_bytes(read_snapshot(&place.path(), "s77")[..4].try_into().unwrap()),
        77
    );
}

#[test]
fn a_volume_whose_size_is_no_multiple_of_a_sector_works_to_its_last_byte() {
    let place = Place::new();
    let size = 2 * 4096 + 512;
    let mut replica = Replica::new(place.path(), Options::default());
    replica.create(size, NOW).unwrap();
    replica.open(&OpenRequest::default()).unwrap();
    replica.write_at(&[5; 100], 2 * 4096 + 412).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    replica.write_at(&[6; 10], 2 * 4096).unwrap();
    let mut expected = vec![0; 2 * 4096 + 512];
    expected[2 * 4096 + 412..].fill(5);
    expected[2 * 4096..2 * 4096 + 10].fill(6);
    assert!(read_head(&mut replica) == expected);
    assert_eq!(std::fs::metadata(place.file("volume-head-001.img")).unwrap().len(), 8704);
    replica.write_zeroes_at(4096, 4096 + 512).unwrap();
    assert_eq!(read_head(&mut replica), vec![0; 8704]);
}

#[test]
fn a_tebibyte_needs_little_memory() {
    let place = Place::new();
    let mut replica = place.created(1 << 28);
    replica.write_at(&[1; 4096], 1 << 39).unwrap();
    replica.snapshot("a", true, NOW, None).unwrap();
    let mut buffer = [0; 4096];
    for step in 0..512u64 {
        replica.write_at(&[2; 4096], step << 31).unwrap();
        replica.read_at(&mut buffer, step << 31).unwrap();
        assert_eq!(buffer, [2; 4096]);
    }
    assert!(replica.index_bytes() < 1 << 20, "{}", replica.index_bytes());
}

#[test]
fn an_upgraded_replica_goes_on_where_the_process_before_it_stopped() {
    let place = Place::new();
    let mut old = place.created(16);
    old.write_at(&[1; 4096], 0).unwrap();
    let mut new = Replica::new(place.path(), Options::default());
    new.open(&OpenRequest { is_upgrade: true, ..OpenRequest::default() }).unwrap();
    old.write_at(&[2; 4096], 0).unwrap();
    old.snapshot("last", true, NOW, None).unwrap();
    old.write_at(&[3; 512], 4096).unwrap();
    drop(old);
    let mut buffer = [0; 4096];
    new.read_at(&mut buffer, 0).unwrap();
    assert_eq!(buffer, [2; 4096]);
    new.write_at(&[4; 512], 8192).unwrap();
    assert_eq!(new.report().revision_counter, 4);
    assert_eq!(new.report().chain.len(), 2);
}

#[test]
fn what_may_run_on_another_thread_can_be_sent_there() {
    fn can_be_sent<T: Send>() {}
    can_be_sent::<Replica>();
    can_be_sent::<replica::View>();
    can_be_sent::<replica::Hash>();
    can_be_sent::<replica::Coalesce>();
}

/// With no memory to speak of, every region is read from the files again and again, while the
/// head's newest pages are still on their way to the disk.
#[test]
fn an_index_that_forgets_at_once_reads_the_same() {
    let place = Place::new();
    let options = || Options { index_budget_bytes: 0, ..Options::default() };
    let mut replica = Replica::new(place.path(), options());
    replica.create(1 << 30, NOW).unwrap();
    replica.open(&OpenRequest::default()).unwrap();
    let mut expected = std::collections::BTreeMap::new();
    let mut place_of = 12345u64;
    for round in 0..600u32 {
        place_of = place_of
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let sector = (place_of >> 33) % (1 << 18);
        replica.write_at(&[round as u8 | 1; 512], sector * SECTOR + 1024).unwrap();
        expected.insert(sector, round as u8 | 1);
        if round % 150 == 100 {
            replica.snapshot(&format!("s{round}"), true, NOW, None).unwrap();
        }
        let (sector, byte) = expected.iter().nth(round as usize % expected.len()).unwrap();
        let mut buffer = [0; 4096];
        replica.read_at(&mut buffer, sector * SECTOR).unwrap();
        let mut whole = [0; 4096];
        whole[1024..1536].fill(*byte);
        assert!(buffer == whole, "sector {sector} in round {round}");
        assert!(replica.index_bytes() < 20_000);
    }
}
