//! A directory written by the peer opens, and reads as the peer read it.

use std::process::Command;

use replica::{OpenRequest, Options, Replica, State, View};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::place::{BUDGET, NOW, read_head, read_snapshot};

fn unpack() -> (TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/replica.tar.gz");
    // With tar: it keeps the holes, and they mean something here.
    let status =
        Command::new("tar").args(["-xSzf", archive, "-C"]).arg(place.path()).status().unwrap();
    assert!(status.success());
    let dir = place.path().join("replica");
    (place, dir)
}

fn expected() -> serde_json::Value {
    serde_json::from_str(include_str!("../golden/expected.json")).unwrap()
}

fn sum(contents: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(contents).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn every_snapshot_and_the_head_read_as_the_peer_read_them() {
    let (_place, dir) = unpack();
    let mut replica = Replica::new(&dir, Options::default());
    assert_eq!(replica.state(), State::Closed);
    replica.open(&OpenRequest::default()).unwrap();
    let states = &expected()["replica_states"];
    assert_eq!(sum(&read_head(&mut replica)), states["volume-head"]);
    for name in ["snap-backup-one", "snap-backup-two", "snap-backup-three"] {
        assert_eq!(sum(&read_snapshot(&dir, name)), states[name], "{name}");
    }
    let report = replica.report();
    assert_eq!(report.size_bytes, 16_777_216);
    assert_eq!(report.chain.len(), 4);
    assert_eq!(report.disks["volume-snap-snap-backup-two.img"].labels["step"], "2");
    assert_eq!((report.snapshot_count_usage, report.snapshot_count_total), (3, 4));
}

#[test]
fn every_state_survives_work_on_the_head_and_a_purge() {
    let (_place, dir) = unpack();
    let mut replica = Replica::new(&dir, Options::default());
    replica.open(&OpenRequest::default()).unwrap();
    let before = sum(&read_head(&mut replica));
    replica.mark_removed("snap-backup-two").unwrap();
    replica.mark_removed("snap-backup-three").unwrap();
    let mut purge = crate::purge::Purge::new(rpc::HeadParent::Fold);
    while purge.step(&mut replica, 1 << 20).unwrap() != replica::Progress::Done {}
    assert_eq!(replica.chain().unwrap().live().len(), 2);
    replica.close().unwrap();
    replica.open(&OpenRequest::default()).unwrap();
    assert_eq!(sum(&read_head(&mut replica)), before);
    replica.write_at(&[1; 512], 512).unwrap();
    replica.snapshot("more", true, NOW, None).unwrap();
    let states = &expected()["replica_states"];
    let one = "snap-backup-one";
    assert_eq!(sum(&read_snapshot(&dir, one)), states[one]);
    replica.revert("volume-snap-snap-backup-one.img", NOW).unwrap();
    assert_eq!(sum(&read_head(&mut replica)), states[one]);
}

#[test]
fn a_delta_covers_exactly_what_is_newer_than_its_base() {
    let (_place, dir) = unpack();
    let mut view = View::open(&dir, "snap-backup-three", BUDGET).unwrap();
    let one = read_snapshot(&dir, "snap-backup-one");
    let three = read_snapshot(&dir, "snap-backup-three");
    let mut rebuilt = one.clone();
    let mut changed = 0;
    let size = view.size_bytes();
    let mut runs = Vec::new();
    view.changed_since(Some("snap-backup-one"), 0, size, |run| runs.push(run)).unwrap();
    assert_eq!(runs.iter().map(|run| run.len_bytes).sum::<u64>(), size);
    for run in runs.into_iter().filter(|run| run.is_data) {
        let range = usize::try_from(run.offset).unwrap()
            ..usize::try_from(run.offset + run.len_bytes).unwrap();
        changed += range.len();
        rebuilt[range.clone()].copy_from_slice(&three[range]);
    }
    assert!(rebuilt == three && one != three);
    assert!(changed < 1 << 20, "{changed}");
    assert!(view.changed_since(Some("gone"), 0, size, |_| {}).is_err());
}
