//! Backups of a replica's snapshots to a directory, and what the agent remembers of them.

use std::path::Path;

use rpc::ptypes::{BackupCreateRequest, BackupStatusRequest, BackupStatusResponse};
use tempfile::TempDir;

use crate::node::{Node, Volume, until};

pub(crate) const SIZE: u64 = 16 << 20;
const BLOCK: u64 = 2 << 20;

/// A directory for backups.
pub(crate) struct Target(TempDir);

impl Target {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn url(&self) -> String {
        format!("vfs://{}", self.0.path().display())
    }

    pub(crate) fn backup_url(&self, backup: &str) -> String {
        format!("{}?backup={backup}&volume=vol", self.url())
    }

    /// All files whose names end so.
    pub(crate) fn files(&self, suffix: &str) -> Vec<std::path::PathBuf> {
        fn walk(dir: &Path, suffix: &str, found: &mut Vec<std::path::PathBuf>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, suffix, found);
                } else if path.to_string_lossy().ends_with(suffix) {
                    found.push(path);
                }
            }
        }
        let mut found = Vec::new();
        walk(self.0.path(), suffix, &mut found);
        found.sort();
        found
    }

    pub(crate) fn record(&self, backup: &str) -> serde_json::Value {
        let files = self.files(&format!("backup_{backup}.cfg"));
        serde_json::from_slice(&std::fs::read(&files[0]).unwrap()).unwrap()
    }
}

pub(crate) fn request(target: &Target, snapshot: &str, backup: &str) -> BackupCreateRequest {
    BackupCreateRequest {
        snapshot_file_name: snapshot.into(),
        backup_target: target.url(),
        volume_name: "vol".into(),
        labels: vec!["app=db".into(), "note=a=b".into()],
        backup_name: backup.into(),
        compression_method: "lz4".into(),
        concurrent_limit: 2,
        storage_class_name: "0".into(),
        ..BackupCreateRequest::default()
    }
}

pub(crate) async fn ended(node: &Node, backup: &str) -> BackupStatusResponse {
    until("the end of a backup", || async {
        let asked = BackupStatusRequest { backup: backup.into() };
        let status = node.agent().backup_status(asked).await.unwrap().into_inner();
        (status.state != "in_progress").then_some(status)
    })
    .await
}

/// Makes a backup; whether it was incremental.
pub(crate) async fn back_up(node: &Node, target: &Target, snapshot: &str, backup: &str) -> bool {
    let made = node.agent().backup_create(request(target, snapshot, backup)).await.unwrap();
    let status = ended(node, backup).await;
    assert_eq!((status.state.as_str(), status.error.as_str()), ("complete", ""));
    made.into_inner().is_incremental
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_backup_and_an_incremental_one_after_it() {
    let mut volume = Volume::new(SIZE);
    volume.write(1, 1 << 20, 0);
    volume.write(2, 4096, 5 * BLOCK);
    volume.snapshot("one");
    volume.write(3, 4096, 5 * BLOCK + 8192);
    volume.snapshot("two");
    volume.write(4, 4096, 7 * BLOCK);
    let node = volume.serve().await;
    let target = Target::new();

    assert!(!back_up(&node, &target, "one", "backup-one").await);
    let status = ended(&node, "backup-one").await;
    assert_eq!((status.progress, status.snapshot_name.as_str()), (100, "one"));
    assert_eq!(status.backup_url, target.backup_url("backup-one"));
    let record = target.record("backup-one");
    let offsets = |record: &serde_json::Value| -> Vec<u64> {
        let blocks = record["Blocks"].as_array().unwrap().iter();
        blocks.map(|block| block["Offset"].as_u64().unwrap()).collect()
    };
    assert_eq!(offsets(&record), [0, 5 * BLOCK]);
    assert_eq!(record["Labels"]["note"], "a=b");
    assert_eq!(target.files(".blk").len(), 2);

    assert!(back_up(&node, &target, "two", "backup-two").await);
    assert_eq!(offsets(&target.record("backup-two")), [0, 5 * BLOCK]);
    assert_eq!(target.files(".blk").len(), 3, "only what changed was added");
    assert!(target.files(".lck").is_empty());
    // The same snapshot again is a full one, and finds all its blocks there.
    assert!(!back_up(&node, &target, "two", "backup-three").await);
    assert_eq!(target.files(".blk").len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_backed_up_is_refused_and_remembered() {
    let mut volume = Volume::new(SIZE);
    volume.write(1, 4096, 0);
    volume.snapshot("one");
    let node = volume.serve().await;
    let target = Target::new();
    let failed = |request: BackupCreateRequest| {
        let mut agent = node.agent();
        async move { agent.backup_create(request).await.unwrap_err().message().to_owned() }
    };
    let text = failed(request(&target, "none", "backup-a")).await;
    assert!(text.contains("none"), "{text}");
    let status = ended(&node, "backup-a").await;
    assert_eq!((status.state.as_str(), &status.error), ("error", &text));
    let other = BackupCreateRequest {
        backup_target: "ftp://x/y".into(),
        ..request(&target, "one", "backup-b")
    };
    assert_eq!(failed(other).await, "driver ftp is not supported");
    for bad in ["../x", "a/b"] {
        assert!(failed(request(&target, "one", bad)).await.contains("invalid name"));
    }
    let bad = BackupCreateRequest { labels: vec!["x".into()], ..request(&target, "one", "bb") };
    assert!(failed(bad).await.contains("not written as key=value"));
    let unknown = BackupStatusRequest { backup: "never".into() };
    let unknown = node.agent().backup_status(unknown).await.unwrap_err();
    assert_eq!(unknown.message(), "backup not found never");
    node.agent().reset(()).await.unwrap();
    let gone = BackupStatusRequest { backup: "backup-a".into() };
    assert!(node.agent().backup_status(gone).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_being_removed_is_not_backed_up() {
    let mut volume = Volume::new(SIZE);
    volume.write(1, 4096, 0);
    volume.snapshot("one");
    let node = volume.serve().await;
    let mark = rpc::ptypes::DiskMarkAsRemovedRequest { name: "one".into() };
    node.replica().disk_mark_as_removed(mark).await.unwrap();
    let target = Target::new();
    node.agent().backup_create(request(&target, "one", "backup-a")).await.unwrap();
    let status = ended(&node, "backup-a").await;
    assert_eq!(status.state, "error");
    assert!(status.error.contains("snapshot one was removed meanwhile"), "{}", status.error);
}

/// A volume of the same name as others here: `one` below `two`, which was taken at that time.
async fn volume_with(seed: u8, one_at: &str, two_at: &str) -> Node {
    let mut volume = Volume::new(SIZE);
    volume.write(seed, 8192, u64::from(seed) * 4096);
    volume.replica.snapshot("one", true, one_at, None).unwrap();
    volume.write(seed + 1, 4096, 5 * BLOCK);
    volume.replica.snapshot("two", true, two_at, None).unwrap();
    volume.serve().await
}

const BEFORE: &str = "2026-11-01T00:00:00Z";
const BEFORE_TOO: &str = "2026-11-01T00:00:01Z";

/// As a v1 engine writes a record, which does not say when the snapshot was taken.
fn without_time_of_snapshot(target: &Target, backup: &str) {
    let mut record = target.record(backup);
    record.as_object_mut().unwrap().remove("SnapshotTakenAt");
    let path = target.files(&format!("backup_{backup}.cfg")).remove(0);
    durable::replace(&path, &serde_json::to_vec(&record).unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_the_names_of_a_backup_and_its_snapshot_is_not_an_earlier_try() {
    let target = Target::new();
    let old = volume_with(1, BEFORE, BEFORE).await;
    back_up(&old, &target, "two", "nightly").await;
    let blocks = target.files(".blk").len();
    // The same once more: it is there already.
    back_up(&old, &target, "two", "nightly").await;

    let new = volume_with(7, BEFORE_TOO, BEFORE_TOO).await;
    let made = new.agent().backup_create(request(&target, "two", "nightly")).await;
    let text = made.unwrap_err().message().to_owned();
    assert!(text.contains("nightly already exists, of another snapshot"), "{text}");
    assert_eq!(ended(&new, "nightly").await.state, "error");
    assert_eq!(target.files(".blk").len(), blocks);
    assert!(target.files(".lck").is_empty());

    without_time_of_snapshot(&target, "nightly");
    back_up(&old, &target, "two", "nightly").await;
    let new = volume_with(7, BEFORE, "2999-01-01T00:00:00Z").await;
    let made = new.agent().backup_create(request(&target, "two", "nightly")).await;
    let text = made.unwrap_err().message().to_owned();
    assert!(text.contains("nightly already exists, of another snapshot"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_another_volume_of_the_same_names_is_no_base() {
    let target = Target::new();
    let old = volume_with(1, BEFORE, BEFORE).await;
    back_up(&old, &target, "one", "nightly").await;
    let new = volume_with(7, BEFORE_TOO, BEFORE_TOO).await;
    assert!(!back_up(&new, &target, "two", "weekly").await, "against another volume's backup");
    let node = Node::new(SIZE).await;
    crate::backup_restore::restore(&node, &target, "weekly").await;
    assert!(node.read_snapshot("restored") == new.read_snapshot("two"));
}
