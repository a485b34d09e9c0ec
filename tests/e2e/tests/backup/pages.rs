//! More objects than a service lists at once.

use e2e::backup::{BLOCK, Source, Target, backup_key, block_key, volume_folder};
use serde_json::Value;

use crate::{in_bucket, in_directory};

/// More than a page of S3 has.
const MANY: u32 = 1100;

#[test]
fn of_a_directory() {
    in_directory(many);
}

#[test]
fn of_a_bucket() {
    in_bucket(many);
}

fn many(target: &Target) {
    let mut source = Source::start(1, 16);
    let volume = source.name().to_owned();
    source.write(BLOCK, &[b'x'; 4096]);
    source.snapshot("one");
    source.back_up(target, "one", "backup-one", &["--compression-method", "none"]);
    let cli = target.cli();
    let url = target.url();

    let orphans: Vec<_> = (0..MANY)
        .map(|number| (block_key(&volume, &format!("{number:04x}{number:060x}")), b"old".to_vec()))
        .collect();
    target.put_all(&orphans);
    let dry = cli.json(&["backup", "gc", "--dry-run", "--volume", &volume, &url]);
    assert_eq!((&dry["orphanBlocks"], &dry["outcome"]), (&MANY.into(), &"reported".into()));
    let removed = cli.json(&["backup", "gc", "--volume", &volume, &url]);
    assert_eq!((&removed["removedBlocks"], &removed["outcome"]), (&MANY.into(), &"removed".into()));
    target.assert_sound(&volume);

    let mut record: Value = target.record(&volume, "backup-one");
    let records: Vec<_> = (0..MANY)
        .map(|number| {
            let name = format!("copy-{number:04}");
            record["Name"] = name.clone().into();
            (backup_key(&volume, &name), record.to_string().into_bytes())
        })
        .collect();
    target.put_all(&records);
    let listed = cli.json(&["backup", "ls", &url]);
    let names = listed[&volume]["Backups"].as_object().unwrap().len();
    assert_eq!(names, MANY as usize + 1);
    cli.run(&["backup", "rm", &target.backup_url(&volume, "backup-one")]);
    assert_eq!(target.blocks(&volume).len(), 1, "the copies still name it");
    cli.run(&["backup", "rm", "--volume", &volume, &url]);
    let folder = volume_folder(&volume);
    let left: Vec<_> = target.keys().into_iter().filter(|key| key.starts_with(&folder)).collect();
    assert_eq!(left, [] as [&str; 0]);
    println!(
        "pages of a {}: {MANY} orphans collected, {MANY} backups listed and removed",
        target.kind()
    );
}
