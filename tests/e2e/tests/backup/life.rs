//! The whole life of backups: full, incremental, restored to three replicas and on top of that,
//! removed one by one and with their volume.

use e2e::backup::{BLOCK, Restored, Source, Target, sibling, volume_folder};
use e2e::engine::Ran;
use serde_json::Value;

use crate::{in_bucket, in_directory};

#[test]
fn of_backups_in_a_directory() {
    in_directory(life);
}

#[test]
fn of_backups_in_a_bucket() {
    in_bucket(life);
}

#[test]
fn who_waits_for_a_restore_hears_how_it_ended() {
    in_directory(waited_for);
}

fn waited_for(target: &Target) {
    let mut source = Source::start(1, 16);
    let volume = source.name().to_owned();
    source.write(0, &[b'a'; 16 << 10]);
    source.snapshot("one");
    source.back_up(target, "one", "backup-one", &[]);
    let url = target.backup_url(&volume, "backup-one");
    let restore = |to: &Restored| {
        let cli = to.volume.cli().with(&target.environment());
        cli.call(&["backup", "restore", &url, "--wait"])
    };
    let whole = Restored::fresh(2, source.size_bytes());
    let ran = restore(&whole);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    // No look again: it is over.
    for status in whole.statuses() {
        assert_eq!((&status["isRestoring"], &status["state"]), (&false.into(), &"complete".into()));
    }
    whole.assert_holds(&source.snapshots["one"], "backup-one");
    // One that cannot be whole ends as a failure, not as a beginning.
    for block in target.blocks(&volume) {
        target.remove(&block);
    }
    let ran = restore(&Restored::fresh(1, source.size_bytes()));
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("not whole"), "{}{}", ran.stdout, ran.stderr);
}

fn life(target: &Target) {
    let mut source = Source::start(1, 16);
    let volume = source.name().to_owned();
    let mut beside = Source::start_as(&sibling(&volume), 1, 16);
    let cli = target.cli();
    create(target, &mut source);
    looked_at(target, &volume);
    restored(target, &source);

    // Another volume whose objects begin with the same letters.
    beside.write(3 * BLOCK, &[b'z'; 4096]);
    beside.snapshot("other");
    beside.back_up(target, "other", "backup-two", &[]);
    let folder = format!("{}/", volume_folder(beside.name()));
    let of_sibling = || -> Vec<String> {
        target.keys().into_iter().filter(|key| key.starts_with(&folder)).collect()
    };
    let before = of_sibling();
    assert!(before.len() >= 3, "{before:?}");

    assert_eq!(cli.run(&["backup", "rm", &target.backup_url(&volume, "backup-one")]), "");
    target.assert_sound(&volume);
    assert_eq!(target.blocks(&volume).len(), 2, "what only the removed one had is gone");
    // A second time there is nothing left to do.
    assert_eq!(cli.run(&["backup", "rm", &target.backup_url(&volume, "backup-one")]), "");
    let image = target.image(&volume, "backup-two", source.size_bytes()).unwrap();
    assert!(image == source.snapshots["two"]);

    assert_eq!(cli.run(&["backup", "rm", "--volume", &volume, &target.url()]), "");
    let listed = cli.json(&["backup", "ls", &target.url()]);
    assert_eq!(names(&listed), [beside.name()]);
    assert!(
        !target.keys().iter().any(|key| key.starts_with(&format!("{}/", volume_folder(&volume))))
    );
    assert_eq!(of_sibling(), before, "a volume beside a removed one is untouched");
    target.assert_sound(beside.name());
    let again = Restored::fresh(1, beside.size_bytes());
    again.restore(target, beside.name(), "backup-two", &beside.snapshots["other"]);
    println!(
        "life of backups in a {}: restored to 3 replicas, removed, sibling kept",
        target.kind()
    );
}

/// A full backup and an incremental one.
fn create(target: &Target, source: &mut Source) {
    let volume = source.name().to_owned();
    source.write(0, &[b'a'; 16 << 10]);
    source.write(5 * BLOCK, &[b'b'; 16 << 10]);
    source.snapshot("one");
    let labels = ["--label", "app=db", "--label", "tier=gold", "--concurrent-limit", "2"];
    let begun = source.back_up(target, "one", "backup-one", &labels);
    assert_eq!(
        (&begun["backupID"], &begun["isIncremental"]),
        (&"backup-one".into(), &false.into())
    );
    assert_eq!(begun["replicaAddress"], source.volume.replicas[0].address());
    let status = source.wait("backup-one").unwrap();
    assert_eq!((&status["progress"], &status["snapshotName"]), (&100.into(), &"one".into()));
    assert_eq!(status["backupURL"], target.backup_url(&volume, "backup-one"));
    assert_eq!(target.blocks(&volume).len(), 2, "holes cost nothing");

    source.write(5 * BLOCK + 8192, &[b'c'; 4096]);
    source.snapshot("two");
    let begun = source.back_up(target, "two", "backup-two", &[]);
    assert_eq!(begun["isIncremental"], true);
    assert_eq!(target.blocks(&volume).len(), 3, "only what changed is uploaded");
    for (snapshot, backup) in [("one", "backup-one"), ("two", "backup-two")] {
        let image = target.image(&volume, backup, source.size_bytes()).unwrap();
        assert!(image == source.snapshots[snapshot], "{backup}");
    }
    // A name that is drawn.
    let begun = source.volume.cli().with(&target.environment());
    let begun = begun.json(&["backup", "create", "two", "--dest", &target.url()]);
    let drawn = begun["backupID"].as_str().unwrap();
    assert!(drawn.starts_with("backup-") && drawn.len() == 23, "{drawn}");
    assert_eq!(begun["isIncremental"], false, "the same snapshot twice in a row gives a full one");
    source.wait(drawn).unwrap();
    assert_eq!(target.blocks(&volume).len(), 3);
    target.cli().run(&["backup", "rm", &target.backup_url(&volume, drawn)]);
    assert_eq!(target.blocks(&volume).len(), 3, "every block of the removed one is needed");
}

fn names(listed: &Value) -> Vec<&str> {
    listed.as_object().unwrap().keys().map(String::as_str).collect()
}

fn looked_at(target: &Target, volume: &str) {
    let cli = target.cli();
    let listed = cli.json(&["backup", "ls", &target.url()]);
    assert_eq!(names(&listed), [volume]);
    assert_eq!(names(&listed[volume]["Backups"]), ["backup-one", "backup-two"]);
    let only = cli.json(&["backup", "ls", "--volume", volume, "--volume-only", &target.url()]);
    assert_eq!(only[volume].get("Backups"), None, "{only}");
    let url = target.backup_url(volume, "backup-one");
    let info = cli.json(&["backup", "inspect", &url]);
    for (field, expected) in [
        ("Name", "backup-one"),
        ("URL", url.as_str()),
        ("SnapshotName", "one"),
        ("VolumeName", volume),
        ("VolumeSize", "16777216"),
        ("Size", "4194304"),
        ("CompressionMethod", "lz4"),
    ] {
        assert_eq!(info[field], expected, "{field} of {info}");
    }
    assert_eq!(info["Labels"], serde_json::json!({"app": "db", "tier": "gold"}));
    let of_volume = cli.json(&["backup", "inspect-volume", &url]);
    assert_eq!(of_volume["LastBackupName"], "backup-two", "{of_volume}");
    assert_eq!(of_volume["DataStored"], (3 * BLOCK).to_string());
    let head = cli.json(&["backup", "head", &url]);
    assert!(head["ModificationTime"].as_str().unwrap().starts_with("20"), "{head}");
    target.assert_sound(volume);
    let dry = cli.json(&["backup", "gc", "--dry-run", "--volume", volume, &target.url()]);
    assert_eq!((&dry["orphanBlocks"], &dry["referencedBlocks"]), (&0.into(), &3.into()));
    let missing: Ran = cli.call(&["backup", "inspect", &target.backup_url(volume, "missing")]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stdout.starts_with("cannot find backupstore/volumes/"), "{}", missing.stdout);
}

/// To three replicas, and then the next one on top.
fn restored(target: &Target, source: &Source) {
    let volume = source.name();
    let to = Restored::fresh(3, source.size_bytes());
    to.restore(target, volume, "backup-one", &source.snapshots["one"]);
    for (replica, status) in to.volume.replicas.iter().zip(to.statuses()) {
        assert_eq!(
            (&status["progress"], &status["lastRestored"]),
            (&100.into(), &"backup-one".into())
        );
        let allocated = allocated_bytes(&replica.dir);
        assert!(allocated < 2 * BLOCK, "holes stay holes: {allocated} bytes");
    }
    let again = to.begin(target, volume, "backup-one").unwrap_err();
    assert!(
        again.contains("\"ReplicaErrors\"") && again.contains("already restored backup backup-one")
    );
    to.restore(target, volume, "backup-two", &source.snapshots["two"]);
    let url = target.backup_url(volume, "backup-two");
    let busy = source.volume.cli().with(&target.environment()).call(&["backup", "restore", &url]);
    assert_eq!(busy.stdout, "volume frontend enabled, cannot perform restore\n");
}

fn allocated_bytes(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let images = files.filter(|entry| entry.file_name().to_string_lossy().ends_with(".img"));
    images.map(|entry| entry.metadata().unwrap().blocks() * 512).sum()
}
