//! A large volume with ten backups, of which nothing exists but names: what verifying, collecting and
//! deleting cost in memory. A process of its own, since it measures itself. `BACKUP_SCALE_GIB` sets the
//! size of the volume.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::format_push_string)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use async_trait::async_trait;
use backupstore::delete::{DeleteOptions, Outcome};
use backupstore::format::Checksum;
use backupstore::verify::{Depth, VerifyOptions};
use backupstore::{BackupStore, Control, Name, TargetUrl};
use blobs::{
    Blob, Body, Capabilities, Error, Key, Level, Meta, Page, Parts, Permit, Prefix, Store, Version,
};
use bytes::Bytes;
use jiff::Timestamp;

const BLOCK_BYTES: u64 = 2 << 20;
const BACKUPS: u64 = 10;
/// Each backup after the first has changed one block of so many.
const CHANGED_ONE_OF: u64 = 20;
const PAGE: u64 = 999;
const USUAL_GIB: u64 = 64;
/// For 1 TiB; less for less, above what any process needs.
const MEMORY_MAX_MIB: u64 = 256;
const MEMORY_MIN_MIB: u64 = 128;

/// A store that makes up what it is asked for. Small objects, such as locks, are kept beside it.
#[derive(Debug)]
struct Synthetic {
    /// Of one backup.
    blocks: u64,
    small: Arc<dyn Store>,
    folder: String,
    removed_records: Mutex<BTreeSet<u64>>,
    removed_blocks: Mutex<u64>,
}

impl Synthetic {
    /// Different blocks of all backups.
    fn all(&self) -> u64 {
        self.blocks + (BACKUPS - 1) * self.blocks.div_ceil(CHANGED_ONE_OF)
    }

    /// In the order of numbers, spread over all folders.
    fn sum(&self, number: u64) -> String {
        let step = u64::MAX / self.all();
        format!("{:016x}{:048x}", number * step, 0)
    }

    fn block(&self, backup: u64, index: u64) -> u64 {
        let changed_in = index % CHANGED_ONE_OF;
        if (1..=backup).contains(&changed_in) {
            let each = self.blocks.div_ceil(CHANGED_ONE_OF);
            self.blocks + (changed_in - 1) * each + index / CHANGED_ONE_OF
        } else {
            index
        }
    }

    fn record(&self, backup: u64) -> Bytes {
        let mut text = String::with_capacity(usize::try_from(self.blocks * 120).unwrap());
        let size = self.blocks * BLOCK_BYTES;
        let _ = write!(
            text,
            r#"{{"Name":"backup-{backup}","VolumeName":"vol-1","SnapshotName":"snap-{backup}","SnapshotCreatedAt":"2026-11-15T06:37:1{backup}Z","CreatedTime":"2026-11-15T06:37:1{backup}Z","Size":"{size}","Labels":null,"Parameters":{{"backup-block-size":"{BLOCK_BYTES}"}},"CompressionMethod":"lz4","Blocks":["#
        );
        for index in 0..self.blocks {
            let (offset, sum) = (index * BLOCK_BYTES, self.sum(self.block(backup, index)));
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(text, r#"{comma}{{"Offset":{offset},"BlockChecksum":"{sum}"}}"#);
        }
        text.push_str(r#"],"SingleFile":{"FilePath":""}}"#);
        text.into()
    }

    fn backup_of(&self, key: &Key) -> Option<u64> {
        let name = key.as_str().strip_prefix(&format!("{}/backups/backup_backup-", self.folder))?;
        let number = name.strip_suffix(".cfg")?.parse().ok()?;
        (number < BACKUPS && !self.removed_records.lock().unwrap().contains(&number))
            .then_some(number)
    }

    fn block_meta(&self, number: u64) -> Meta {
        let sum = self.sum(number);
        let key = format!("{}/blocks/{}/{}/{sum}.blk", self.folder, &sum[..2], &sum[2..4]);
        meta(&key, 4096)
    }
}

fn meta(key: &str, len_bytes: u64) -> Meta {
    Meta {
        key: Key::parse(key).unwrap(),
        len_bytes,
        version: Version::tagged(key),
        modified: Timestamp::from_second(1_800_000_000).unwrap(),
    }
}

#[async_trait]
impl Store for Synthetic {
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.small.put_new(key, bytes).await
    }

    async fn put_if_match(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, Error> {
        self.small.put_if_match(key, bytes, version).await
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.small.put(key, bytes).await
    }

    async fn put_stream(&self, key: &Key, body: Body, parts: &Parts) -> Result<Version, Error> {
        self.small.put_stream(key, body, parts).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, Error> {
        let Some(backup) = self.backup_of(key) else {
            return self.small.get_range(key, range).await;
        };
        let bytes = self.record(backup);
        let len_bytes = bytes.len() as u64;
        let end = usize::try_from(range.end.min(len_bytes)).unwrap();
        Ok(Blob { meta: meta(key.as_str(), len_bytes), bytes: bytes.slice(..end) })
    }

    async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), Error> {
        self.small.get_stream(key).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, Error> {
        match self.backup_of(key) {
            Some(_) => Ok(meta(key.as_str(), self.blocks * 110)),
            None => self.small.head(key).await,
        }
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        if !prefix.to_string().contains("/blocks") {
            return self.small.list(prefix, after).await;
        }
        let step = u64::MAX / self.all();
        let first = after.map_or(0, |after| {
            let sum = after.as_str().rsplit('/').next().unwrap();
            u64::from_str_radix(&sum[..16], 16).unwrap() / step + 1
        });
        let end = (first + PAGE).min(self.all());
        let objects = (first..end).map(|number| self.block_meta(number)).collect();
        Ok(Page { objects, is_last: end == self.all() })
    }

    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        let mut level = self.small.list_level(prefix).await?;
        if prefix.to_string().contains("/backups") {
            for backup in 0..BACKUPS {
                let key = format!("{}/backups/backup_backup-{backup}.cfg", self.folder);
                if self.backup_of(&Key::parse(&key).unwrap()).is_some() {
                    level.objects.push(meta(&key, self.blocks * 110));
                }
            }
        }
        Ok(level)
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        match self.backup_of(key) {
            Some(backup) => drop(self.removed_records.lock().unwrap().insert(backup)),
            None => self.small.delete(key).await?,
        }
        Ok(())
    }

    async fn delete_many(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        permit.check()?;
        *self.removed_blocks.lock().unwrap() += keys.len() as u64;
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        self.small.capabilities()
    }
}

/// The most memory that this process ever had.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn a_large_volume_is_verified_collected_and_deleted_in_little_memory() {
    let gib = std::env::var("BACKUP_SCALE_GIB").ok().map_or(USUAL_GIB, |gib| gib.parse().unwrap());
    let sum = Checksum::of(b"vol-1").to_string();
    let store = Arc::new(Synthetic {
        // So that each backup has changed equally many.
        blocks: (gib << 30) / BLOCK_BYTES / CHANGED_ONE_OF * CHANGED_ONE_OF,
        small: blobs::memory(),
        folder: format!("backupstore/volumes/{}/{}/vol-1", &sum[..2], &sum[2..4]),
        removed_records: Mutex::default(),
        removed_blocks: Mutex::default(),
    });
    let cfg = r#"{"Name":"vol-1","Size":"1099511627776","LastBackupName":"backup-9","LastBackupAt":"","CompressionMethod":"\"lz4\""}"#;
    let key = Key::parse(&format!("{}/volume.cfg", store.folder)).unwrap();
    store.small.put_new(&key, cfg.into()).await.unwrap();
    let target = BackupStore::new(Arc::clone(&store) as _, TargetUrl::parse("vfs:///x").unwrap());
    let (volume, control) = (Name::parse("vol-1").unwrap(), Control::default());

    let begun = Instant::now();
    let report = target.verify(&volume, &VerifyOptions::new(Depth::Quick), &control).await.unwrap();
    assert!(report.is_healthy() && report.orphan_blocks == 0, "{:?}", report.damaged);
    assert_eq!((report.healthy.len() as u64, report.blocks), (BACKUPS, store.all()));
    println!("{gib} GiB, {BACKUPS} backups, {} blocks", store.all());
    println!("verified in {:.1?}, {} MiB", begun.elapsed(), peak_mib());

    let begun = Instant::now();
    let options = DeleteOptions::default();
    let last = Name::parse("backup-9").unwrap();
    let deleted = target.delete_backup(&volume, &last, &options, &control).await.unwrap();
    assert_eq!(deleted.blocks.outcome, Outcome::Removed);
    assert_eq!(deleted.blocks.removed_blocks, store.blocks.div_ceil(CHANGED_ONE_OF));
    println!("one deleted in {:.1?}, {} MiB", begun.elapsed(), peak_mib());

    let begun = Instant::now();
    target.collect_garbage(&volume, &options, &control).await.unwrap();
    let peak = peak_mib();
    println!("collected in {:.1?}, {peak} MiB", begun.elapsed());
    let allowed = (MEMORY_MAX_MIB * gib / 1024).max(MEMORY_MIN_MIB);
    assert!(peak <= allowed, "{peak} MiB; {allowed} are allowed");
}
