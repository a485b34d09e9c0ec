//! A store that another engine wrote, used through the command line; and the same volume backed up
//! by us, byte for byte the same.

use std::process::Command;

use e2e::backup::{Restored, Source, Target, unpack};
use e2e::engine::{Frontend, Setup, Volume, run, sum};
use serde_json::{Value, json};
use testkit::process::Scratch;

use crate::{in_bucket, in_directory};

/// The archives are those of the crates.
const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates");
const VOLUME: &str = "golden";
const BACKUPS: [&str; 3] = ["backup-one", "backup-two", "backup-three"];

fn expected() -> Value {
    let text = std::fs::read(format!("{CRATES}/backupstore/tests/golden/expected.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The store as it came.
fn unpacked(scratch: &Scratch) -> Target {
    let archive = format!("{CRATES}/backupstore/tests/golden/backupstore.tar.gz");
    run(Command::new("tar").args(["-xSzf", &archive, "-C"]).arg(scratch.path()));
    Target::directory(&scratch.path().join("store"))
}

fn copied_to(target: &Target) {
    let scratch = Scratch::new().unwrap();
    let from = unpacked(&scratch);
    for key in from.keys() {
        target.put(&key, &from.get(&key).unwrap());
    }
}

#[test]
fn a_store_of_another_engine_is_used_in_a_directory() {
    in_directory(|target| {
        copied_to(target);
        used(target);
    });
}

#[test]
fn a_store_of_another_engine_is_used_in_a_bucket() {
    in_bucket(|target| {
        copied_to(target);
        used(target);
    });
}

fn used(target: &Target) {
    let (cli, expected) = (target.cli(), expected());
    let size = expected["size"].as_u64().unwrap();
    let listed = cli.json(&["backup", "ls", &target.url()]);
    let names: Vec<&String> = listed[VOLUME]["Backups"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["backup-one", "backup-three", "backup-two"]);
    for backup in BACKUPS {
        let info = cli.json(&["backup", "inspect", &target.backup_url(VOLUME, backup)]);
        assert_eq!(info["SnapshotName"], expected["backups"][backup]["snapshot"]);
        assert_eq!(
            (&info["VolumeSize"], &info["Messages"]),
            (&size.to_string().into(), &Value::Null)
        );
    }
    let (_, report) = target.verify(VOLUME);
    assert_eq!((&report["blocks"], &report["checkedBlocks"]), (&7.into(), &7.into()), "{report}");
    assert_eq!(report["healthy"], json!(["backup-one", "backup-three", "backup-two"]));
    target.assert_sound(VOLUME);

    let sum_of = |backup: &str| expected["backups"][backup]["sha256"].as_str().unwrap().to_owned();
    std::thread::scope(|scope| {
        for backup in BACKUPS {
            let sum_of = &sum_of;
            scope.spawn(move || {
                restored(&Restored::fresh(1, size), target, backup, &sum_of(backup));
            });
        }
        scope.spawn(|| {
            let volume = Restored::fresh(3, size);
            for backup in ["backup-one", "backup-two", "backup-three", "backup-one"] {
                restored(&volume, target, backup, &sum_of(backup));
            }
        });
    });

    let mut left = BACKUPS.to_vec();
    for (gone, blocks) in [("backup-two", 7), ("backup-three", 4), ("backup-one", 0)] {
        cli.run(&["backup", "rm", &target.backup_url(VOLUME, gone)]);
        left.retain(|backup| *backup != gone);
        target.assert_sound(VOLUME);
        assert_eq!(target.blocks(VOLUME).len(), blocks, "after {gone}");
        for backup in &left {
            assert_eq!(sum(&target.image(VOLUME, backup, size).unwrap()), sum_of(backup));
        }
    }
    cli.run(&["backup", "rm", "--volume", VOLUME, &target.url()]);
    let mut keys = target.keys();
    // What is known of a target, and what is laid by on its disk, is not of its volumes.
    keys.retain(|key| !key.starts_with("backupstore/holdfast/"));
    assert_eq!(keys, [] as [&str; 0]);
    println!(
        "golden store in a {}: listed, inspected, verified, 7 restores, collected",
        target.kind()
    );
}

fn restored(volume: &Restored, target: &Target, backup: &str, expected: &str) {
    volume.try_restore(target, VOLUME, backup).unwrap_or_else(|error| panic!("{backup}: {error}"));
    assert_eq!(sum(&volume.volume.assert_equal()), expected, "{backup}");
}

#[test]
fn what_we_write_is_what_another_engine_wrote() {
    let scratch = Scratch::new().unwrap();
    let theirs = unpacked(&scratch);
    let ours = Target::directory(&scratch.path().join("ours"));
    let expected = expected();
    let setup = Setup {
        replicas: 1,
        size_bytes: expected["size"].as_u64().unwrap(),
        frontend: Frontend::None,
        ..Setup::default()
    };
    let mut volume = Volume::prepare_as(Scratch::new().unwrap(), VOLUME.to_owned(), setup);
    let archive = format!("{CRATES}/replica/tests/golden/replica.tar.gz");
    run(Command::new("tar").args(["-xSzf", &archive, "-C"]).arg(volume.scratch()));
    volume.replicas[0].dir = volume.scratch().join("replica");
    volume.replicas[0].start();
    volume.start_engine();
    let source = Source::over(volume);
    for (index, backup) in BACKUPS.iter().enumerate() {
        let known = &expected["backups"][backup];
        let (method, snapshot) = (known["compression"].as_str(), known["snapshot"].as_str());
        let label = format!("step={}", index + 1);
        let more = ["--compression-method", method.unwrap(), "--label", &label];
        source.back_up(&ours, snapshot.unwrap(), backup, &more);
    }
    let mut keys = ours.keys();
    keys.retain(|key| !key.starts_with("backupstore/holdfast/"));
    assert_eq!(keys, theirs.keys());
    let (mut our_bytes, mut their_bytes) = (0, 0);
    for key in theirs.keys() {
        let (our, their) = (ours.get(&key).unwrap(), theirs.get(&key).unwrap());
        if !key.contains("/blocks/") {
            assert_eq!(without_variables(&our), without_variables(&their), "{key}");
            continue;
        }
        (our_bytes, their_bytes) = (our_bytes + our.len(), their_bytes + their.len());
        assert_eq!(our[..FRAME_HEAD], their[..FRAME_HEAD], "the head of {key}");
        assert_eq!(our[our.len() - FRAME_END..], their[their.len() - FRAME_END..], "end of {key}");
        let (our, their) = (unpack("lz4", our).unwrap(), unpack("lz4", their).unwrap());
        assert!(our == their, "{key} holds something else");
    }
    let new: u64 = BACKUPS.iter().map(|backup| uploaded(&ours, backup)).sum();
    assert_eq!(new, our_bytes as u64, "what the records say was uploaded");
    println!(
        "golden store written anew: {} objects of the same names, records and contents, {our_bytes} bytes of blocks (theirs {their_bytes})",
        theirs.keys().len()
    );
}

fn uploaded(target: &Target, backup: &str) -> u64 {
    let record = target.record(VOLUME, backup);
    record["NewlyUploadedDataSize"].as_str().unwrap().parse().unwrap()
}

/// Magic number, flags, descriptor and their checksum.
const FRAME_HEAD: usize = 7;
/// End mark and the checksum of the contents.
const FRAME_END: usize = 8;

/// The text of a record with everything made the same that may differ: times, and how small a block
/// was packed, which is up to whoever packs it. Everything else stays as it is.
fn without_variables(bytes: &[u8]) -> String {
    let mut text = String::from_utf8(bytes.to_vec()).unwrap();
    let record: Value = serde_json::from_slice(bytes).unwrap();
    // Ours alone, before the brace that ends the record.
    if let Some(taken) = record["SnapshotTakenAt"].as_str() {
        text = text.replacen(&format!(",\"SnapshotTakenAt\":\"{taken}\""), "", 1);
    }
    for field in ["CreatedTime", "SnapshotCreatedAt", "LastBackupAt", "NewlyUploadedDataSize"] {
        if let Some(value) = record[field].as_str() {
            text = text.replacen(&format!("\"{field}\":\"{value}\""), field, 1);
        }
    }
    text
}
