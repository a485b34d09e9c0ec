//! A store that a v1 engine wrote: it is read, restored and collected as it should be.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use backupstore::create::CreateRequest;
use backupstore::delete::{DeleteOptions, Outcome};
use backupstore::format::{BackupCfg, Checksum, Compression, VolumeCfg, pack, unpack};
use backupstore::restore::{FileSink, RestoreRequest};
use backupstore::verify::{Depth, VerifyOptions};
use backupstore::{BackupStore, BlockSize, Control, Environment, Shown, TargetUrl};
use serde_json::{Value, json};

use crate::world::{
    PAGE, SCHEDULE, Snapshot, TAKEN, Volume, create_request, keys, name, over, run_create,
};

struct Golden {
    dir: tempfile::TempDir,
    store: BackupStore,
    expected: Value,
}

async fn golden() -> Golden {
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let dir = tempfile::tempdir().unwrap();
    let archive = format!("{files}/backupstore.tar.gz");
    let unpacked = Command::new("tar").arg("-xSzf").arg(archive).arg("-C").arg(dir.path()).status();
    assert!(unpacked.unwrap().success());
    let url = format!("vfs://{}/store", dir.path().display());
    let url = TargetUrl::parse(&url).unwrap();
    let store =
        BackupStore::open(&url, &Environment::default()).await.unwrap().with_schedule(SCHEDULE);
    let expected = std::fs::read(format!("{files}/expected.json")).unwrap();
    Golden { dir, store, expected: serde_json::from_slice(&expected).unwrap() }
}

impl Golden {
    fn path(&self, below: &str) -> std::path::PathBuf {
        self.dir.path().join("store/backupstore/volumes/5b/c3/golden").join(below)
    }

    fn blocks(&self) -> Vec<String> {
        let mut found = vec![];
        let mut folders = vec![self.path("blocks")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else {
                    found.push(entry.file_name().into_string().unwrap());
                }
            }
        }
        found.sort();
        found
    }

    /// The object of each block, by name.
    fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let read = |block: &String| {
            let below = format!("blocks/{}/{}/{block}", &block[..2], &block[2..4]);
            std::fs::read(self.path(&below)).unwrap()
        };
        self.blocks().into_iter().map(|block| (block.clone(), read(&block))).collect()
    }

    fn image(&self) -> std::path::PathBuf {
        self.dir.path().join("image")
    }

    /// The SHA-256 of the restored image.
    async fn restore(&self, backup: &str, previous: Option<&str>) -> String {
        let image = self.image();
        let sink = match previous {
            Some(_) => FileSink::open(&image).unwrap(),
            None => FileSink::create(&image, 16 << 20).unwrap(),
        };
        let mut request = RestoreRequest::new(name("golden"), name(backup));
        request.previous = previous.map(name);
        let control = Control::default();
        let begun = self.store.begin_restore(request, &control).await.unwrap();
        begun.run(Arc::new(sink), &control).await.unwrap();
        assert_eq!(control.percent(), 100);
        let sum =
            aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &std::fs::read(&image).unwrap());
        sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[tokio::test]
async fn it_is_listed_and_inspected() {
    let golden = golden().await;
    let blank = json!({
        "Name": "", "URL": "", "SnapshotName": "", "SnapshotCreated": "", "Created": "",
        "Size": "0", "Labels": null, "Parameters": null, "IsIncremental": false,
        "NewlyUploadedDataSize": "0", "ReUploadedDataSize": "0", "Messages": null,
    });
    let listed = serde_json::to_value(golden.store.list(Shown::Backups).await.unwrap()).unwrap();
    assert_eq!(
        listed,
        json!({"golden": {
            "Name": "", "Size": "0", "Labels": null, "Created": "", "LastBackupName": "",
            "LastBackupAt": "", "DataStored": "0", "Messages": {},
            "Backups": {"backup-one": blank, "backup-three": blank, "backup-two": blank},
            "BackingImageName": "", "BackingImageChecksum": "", "StorageClassname": "", "DataEngine": "",
        }})
    );
    let volume = golden.store.inspect_volume(&name("golden")).await.unwrap();
    assert_eq!(
        serde_json::to_string(&volume).unwrap(),
        r#"{"Name":"golden","Size":"16777216","Labels":{"step":"3"},"Created":"2026-11-15T08:12:36Z","LastBackupName":"backup-three","LastBackupAt":"2026-11-15T08:12:47Z","DataStored":"14680064","Messages":{},"BackingImageName":"","BackingImageChecksum":"","StorageClassname":"0","DataEngine":"v1"}"#
    );
    let backup = golden.store.inspect_backup(&name("golden"), &name("backup-two")).await.unwrap();
    let url = format!("{}?backup=backup-two&volume=golden", golden.store.url());
    assert_eq!(
        serde_json::to_string(&backup).unwrap(),
        format!(
            r#"{{"Name":"backup-two","URL":"{url}","SnapshotName":"snap-backup-two","SnapshotCreated":"2026-11-15T08:12:42Z","Created":"2026-11-15T08:12:44Z","Size":"10485760","Labels":{{"step":"2"}},"Parameters":{{"backup-block-size":"2097152"}},"IsIncremental":true,"CompressionMethod":"lz4","NewlyUploadedDataSize":"17150","ReUploadedDataSize":"0","VolumeName":"golden","VolumeSize":"16777216","VolumeCreated":"2026-11-15T08:12:36Z","Messages":null}}"#
        )
    );
    let head = golden.store.head(&name("golden"), Some(&name("backup-two"))).await.unwrap();
    let head = serde_json::to_string(&head).unwrap();
    assert!(head.starts_with(r#"{"ModificationTime":"20"#), "{head}");
}

#[tokio::test]
async fn its_records_come_back_byte_for_byte() {
    let golden = golden().await;
    let read = |below: &str| std::fs::read(golden.path(below)).unwrap();
    for backup in ["one", "two", "three"] {
        let bytes = read(&format!("backups/backup_backup-{backup}.cfg"));
        let cfg = backupstore::format::parse_backup(&bytes).unwrap();
        assert_eq!(backupstore::format::backup_bytes(&cfg).unwrap(), bytes);
        let BackupCfg { blocks, .. } = cfg;
        assert!(!blocks.is_empty());
    }
    let bytes = read("volume.cfg");
    let cfg: VolumeCfg = backupstore::format::parse_volume(&bytes).unwrap();
    assert_eq!(backupstore::format::volume_bytes(&cfg).unwrap(), bytes);
}

#[tokio::test]
async fn its_blocks_are_packed_byte_for_byte() {
    let golden = golden().await;
    let objects = golden.objects();
    assert_eq!(objects.len(), 7);
    for (block, object) in objects {
        let sum = Checksum::parse(block.strip_suffix(".blk").unwrap()).unwrap();
        let contents = unpack(Compression::Lz4, &object, BlockSize::DEFAULT, &sum).unwrap();
        let packed = pack(Compression::Lz4, &contents).unwrap();
        assert!(packed == object, "{block}: {} bytes, not {}", packed.len(), object.len());
    }
}

/// The same snapshots make the same objects, and tell the same numbers.
#[tokio::test]
async fn its_backups_are_made_again_byte_for_byte() {
    let golden = golden().await;
    let mut snapshots: Vec<Snapshot> = vec![];
    for backup in ["backup-one", "backup-two", "backup-three"] {
        golden.restore(backup, None).await;
        let data = std::fs::read(golden.image()).unwrap();
        let zeros = vec![0; data.len()];
        let before = snapshots.last().map_or(&zeros, |last| &last.data);
        let pages = data.chunks(PAGE).zip(before.chunks(PAGE)).enumerate();
        let written = pages.filter(|(_, (now, before))| now != before);
        let written = written.map(|(page, _)| (page * PAGE) as u64..((page + 1) * PAGE) as u64);
        let written = written.collect();
        snapshots.push(Snapshot {
            name: format!("snap-{backup}"),
            taken: TAKEN.to_owned(),
            data,
            written,
        });
    }
    let volume = Volume { snapshots };
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    for (index, backup) in ["backup-one", "backup-two", "backup-three"].into_iter().enumerate() {
        let request = CreateRequest {
            volume: name("golden"),
            block_size: BlockSize::DEFAULT,
            ..create_request(&volume.snapshots[index].name, backup)
        };
        run_create(&store, request, volume.source(index)).await.unwrap();
        let ours = store.inspect_backup(&name("golden"), &name(backup)).await.unwrap();
        let theirs = golden.store.inspect_backup(&name("golden"), &name(backup)).await.unwrap();
        assert_eq!(ours.newly_uploaded_data_size, theirs.newly_uploaded_data_size, "{backup}");
        assert_eq!((ours.size, ours.is_incremental), (theirs.size, theirs.is_incremental));
    }
    let mut made = BTreeMap::new();
    for key in keys(&clean, "/blocks/").await {
        let blob = blobs::get_limited(clean.as_ref(), &key, 1 << 30).await.unwrap();
        let block = key.as_str().rsplit('/').next().unwrap().to_owned();
        made.insert(block, blob.bytes.to_vec());
    }
    assert!(made == golden.objects());
}

#[tokio::test]
async fn it_verifies_and_restores() {
    let golden = golden().await;
    for depth in [Depth::Quick, Depth::Deep] {
        let options = VerifyOptions::new(depth);
        let report = golden.store.verify(&name("golden"), &options, &Control::default()).await;
        let report = report.unwrap();
        assert!(report.is_healthy(), "{report:?}");
        assert_eq!((report.healthy.len(), report.blocks, report.orphan_blocks), (3, 7, 0));
    }
    let expected = |backup: &str| golden.expected["backups"][backup]["sha256"].clone();
    for backup in ["backup-one", "backup-two", "backup-three"] {
        assert_eq!(golden.restore(backup, None).await, expected(backup), "{backup}");
    }
    // From one to another, in both directions.
    golden.restore("backup-one", None).await;
    for (from, to) in [("backup-one", "backup-three"), ("backup-three", "backup-one")] {
        assert_eq!(golden.restore(to, Some(from)).await, expected(to), "{from} to {to}");
    }
}

#[tokio::test]
async fn deleting_removes_exactly_what_nobody_needs() {
    let users: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("02e3", &["one", "two", "three"][..]),
        ("05b8", &["one"]),
        ("2e18", &["one", "two", "three"]),
        ("4eb2", &["three"]),
        ("671c", &["one", "two", "three"]),
        ("efb5", &["two", "three"]),
        ("f871", &["two", "three"]),
    ]);
    let (control, options) = (Control::default(), DeleteOptions::default());
    for first in ["one", "two", "three"] {
        let golden = golden().await;
        let mut left = vec!["one", "two", "three"];
        for gone in
            [first].into_iter().chain(["two", "one", "three"].into_iter().filter(|it| *it != first))
        {
            left.retain(|it| *it != gone);
            let backup = name(&format!("backup-{gone}"));
            let volume = name("golden");
            let deleted = golden.store.delete_backup(&volume, &backup, &options, &control);
            let deleted = deleted.await.unwrap();
            assert_eq!((deleted.existed, deleted.blocks.outcome), (true, Outcome::Removed));
            let needed = users.iter().filter(|(_, by)| by.iter().any(|it| left.contains(it)));
            let needed: Vec<_> = needed.map(|(block, _)| (*block).to_owned()).collect();
            let found: Vec<_> = golden.blocks().iter().map(|it| it[..4].to_owned()).collect();
            assert_eq!(found, needed, "after {gone}, with {left:?}");
            let info = golden.store.inspect_volume(&name("golden")).await.unwrap();
            assert_eq!(info.data_stored, needed.len() as u64 * (2 << 20));
            let last = ["three", "two", "one"].into_iter().find(|it| left.contains(it));
            assert_eq!(
                info.last_backup_name,
                last.map_or(String::new(), |it| format!("backup-{it}"))
            );
            for backup in &left {
                let backup = format!("backup-{backup}");
                let sum = golden.restore(&backup, None).await;
                assert_eq!(sum, golden.expected["backups"][&backup]["sha256"]);
            }
        }
        golden.store.delete_volume(&name("golden"), &options, &control).await.unwrap();
        assert!(!golden.path("").exists(), "nothing is left, not even folders");
        assert!(golden.store.list(Shown::Backups).await.unwrap().is_empty());
    }
}
