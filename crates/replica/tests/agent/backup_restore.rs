//! Backups that become the content of a replica: whole, step by step, after a restart, and when
//! something is in the way.

use rpc::ptypes::{BackupRestoreRequest, RestoreStatusResponse};

use crate::backup::{SIZE, Target, back_up};
use crate::node::{Node, Volume, extents, until};

pub(crate) const DISK: &str = "volume-snap-restored.img";
const BLOCK: u64 = 2 << 20;

pub(crate) async fn source(target: &Target) -> Node {
    let mut volume = Volume::new(SIZE);
    volume.write(1, 1 << 20, 0);
    volume.write(2, 4096, 5 * BLOCK);
    volume.snapshot("one");
    volume.write(3, 8192, 5 * BLOCK + 8192);
    volume.write(4, 4096, 6 * BLOCK);
    volume.snapshot("two");
    let node = volume.serve().await;
    back_up(&node, target, "one", "backup-one").await;
    back_up(&node, target, "two", "backup-two").await;
    node
}

pub(crate) fn request(target: &Target, backup: &str) -> BackupRestoreRequest {
    BackupRestoreRequest {
        backup: target.backup_url(backup),
        snapshot_disk_name: DISK.into(),
        concurrent_limit: 2,
        ..BackupRestoreRequest::default()
    }
}

pub(crate) async fn status(node: &Node) -> RestoreStatusResponse {
    node.agent().restore_status(()).await.unwrap().into_inner()
}

pub(crate) async fn ended(node: &Node) -> RestoreStatusResponse {
    until("the end of a restore", || async {
        let status = status(node).await;
        (!status.is_restoring).then_some(status)
    })
    .await
}

pub(crate) async fn restore(node: &Node, target: &Target, backup: &str) {
    node.agent().backup_restore(request(target, backup)).await.unwrap();
    let status = ended(node).await;
    assert_eq!((status.state.as_str(), status.error.as_str()), ("complete", ""));
    assert_eq!((status.progress, status.last_restored.as_str()), (100, backup));
    assert_eq!(
        (status.dest_file_name.as_str(), status.backup_url),
        (DISK, target.backup_url(backup))
    );
    assert_eq!(status.current_restoring_backup, "");
}

pub(crate) async fn refused(node: &Node, request: BackupRestoreRequest) -> String {
    node.agent().backup_restore(request).await.unwrap_err().message().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_follows_backup_after_backup_and_stays_sparse() {
    let target = Target::new();
    let source = source(&target).await;
    let mut node = Node::new(SIZE).await;
    assert_eq!(status(&node).await, RestoreStatusResponse::default());
    restore(&node, &target, "backup-one").await;
    assert!(node.read_snapshot("restored") == source.read_snapshot("one"));
    let replica = node.replica().replica_get(()).await.unwrap().into_inner().replica.unwrap();
    assert_eq!(replica.parent, DISK);
    assert_eq!(extents(&node.file(DISK)).first(), Some(&(0, 1 << 20)), "holes stay holes");
    let text = refused(&node, request(&target, "backup-one")).await;
    assert_eq!(text, "already restored backup backup-one");

    // What was restored is known to the next agent, so that this is an incremental one.
    node.stop_agent().await;
    node.start_agent().await;
    let known = status(&node).await;
    assert_eq!((known.state.as_str(), known.last_restored.as_str()), ("complete", "backup-one"));
    restore(&node, &target, "backup-two").await;
    assert!(node.read_snapshot("restored") == source.read_snapshot("two"));
    assert!(!node.file("volume-delta-backup-one.img").exists());
    // Back to the older one: blocks that it has not become holes again.
    restore(&node, &target, "backup-one").await;
    assert!(node.read_snapshot("restored") == source.read_snapshot("one"));
    assert_eq!(extents(&node.file(DISK)).len(), 2);
    assert!(target.files(".lck").is_empty());
    let mut volume = node.into_volume(SIZE).await;
    let mut head = vec![0; usize::try_from(SIZE).unwrap()];
    volume.replica.read_at(&mut head, 0).unwrap();
    assert!(head == source.read_snapshot("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_failed_leaves_what_was_there_and_goes_on_after_a_restart() {
    let target = Target::new();
    let source = source(&target).await;
    let mut node = Node::new(SIZE).await;
    restore(&node, &target, "backup-one").await;
    // The block that only the second backup has.
    let first: Vec<String> = sums(&target.record("backup-one"));
    let new = sums(&target.record("backup-two")).into_iter().find(|sum| !first.contains(sum));
    let block = target.files(&format!("{}.blk", new.unwrap())).remove(0);
    let bytes = std::fs::read(&block).unwrap();
    std::fs::remove_file(&block).unwrap();
    node.agent().backup_restore(request(&target, "backup-two")).await.unwrap();
    let failed = ended(&node).await;
    assert_eq!((failed.state.as_str(), failed.progress), ("error", 0));
    assert_eq!(failed.last_restored, "backup-one");
    for part in ["failed to wait for restore complete: ", "no such file or directory"] {
        assert!(failed.error.contains(part), "{}", failed.error);
    }
    assert!(node.read_snapshot("restored") == source.read_snapshot("one"));
    let text = refused(&node, request(&target, "backup-two")).await;
    assert_eq!(text, "cannot start backup restore of the previous restore fails");

    durable::replace(&block, &bytes).unwrap();
    node.stop_agent().await;
    node.start_agent().await;
    assert_eq!(status(&node).await.last_restored, "backup-one");
    restore(&node, &target, "backup-two").await;
    assert!(node.read_snapshot("restored") == source.read_snapshot("two"));
}

pub(crate) fn sums(record: &serde_json::Value) -> Vec<String> {
    let blocks = record["Blocks"].as_array().unwrap().iter();
    blocks.map(|block| block["BlockChecksum"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_usable_base_the_whole_backup_takes_the_snapshots_place() {
    let target = Target::new();
    let source = source(&target).await;
    let node = Node::new(SIZE).await;
    restore(&node, &target, "backup-one").await;
    // Its memory is gone, its snapshot is not.
    node.agent().reset(()).await.unwrap();
    assert_eq!(status(&node).await, RestoreStatusResponse::default());
    restore(&node, &target, "backup-two").await;
    assert!(node.read_snapshot("restored") == source.read_snapshot("two"));
    assert!(!node.file(&format!("{DISK}.snap_tmp")).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_is_told_in_known_words() {
    let target = Target::new();
    let _source = source(&target).await;
    let node = Node::new(SIZE).await;
    let empty =
        BackupRestoreRequest { snapshot_disk_name: String::new(), ..request(&target, "b1") };
    assert_eq!(refused(&node, empty).await, "empty snapshot disk name for the restore");
    let empty = BackupRestoreRequest { backup: String::new(), ..request(&target, "b1") };
    assert_eq!(refused(&node, empty).await, "empty backup URL for the restore");
    let prefix = "error starting backup restore: error initiating full backup restore: ";
    let text = refused(&node, request(&target, "missing")).await;
    assert!(text.starts_with(&format!("{prefix}cannot find ")), "{text}");
    assert_eq!(status(&node).await, RestoreStatusResponse::default());
    let leaves = BackupRestoreRequest {
        snapshot_disk_name: "volume-snap-../x.img".into(),
        ..request(&target, "backup-one")
    };
    assert!(!refused(&node, leaves).await.is_empty());

    // A deletion that holds the lock.
    let cfg = target.files("volume.cfg").remove(0);
    let locks = cfg.parent().unwrap().join("locks");
    std::fs::create_dir_all(&locks).unwrap();
    let lock = br#"{"Name":"lock-0000000000000001","Type":2,"Acquired":true}"#;
    let held = locks.join("lock-0000000000000001.lck");
    durable::replace(&held, lock).unwrap();
    let text = refused(&node, request(&target, "backup-one")).await;
    assert!(text.starts_with(&format!("{prefix}failed lock ")), "{text}");
    assert_eq!(status(&node).await, RestoreStatusResponse::default());
    std::fs::remove_file(&held).unwrap();
    // A directory where the file should be.
    std::fs::create_dir(node.file(DISK)).unwrap();
    let text = refused(&node, request(&target, "backup-one")).await;
    assert!(text.contains("failed to clean up the existing file"), "{text}");
    std::fs::remove_dir(node.file(DISK)).unwrap();
    assert!(target.files(".lck").is_empty());
    restore(&node, &target, "backup-one").await;
}

/// Another volume of the same name: `two` lies over `one`.
async fn another(seed: u8) -> Node {
    let mut volume = Volume::new(SIZE);
    volume.write(seed, 1 << 20, 0);
    volume.write(seed + 1, 4096, BLOCK * u64::from(seed % 4 + 1));
    volume.snapshot("one");
    volume.write(seed + 2, 4096, 6 * BLOCK);
    volume.snapshot("two");
    volume.serve().await
}

/// As a deletion does, but for the blocks.
fn delete(target: &Target, backup: &str) {
    std::fs::remove_file(&target.files(&format!("backup_{backup}.cfg"))[0]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_was_made_again_under_its_name_is_restored_again() {
    let target = Target::new();
    let (old, new) = (another(10).await, another(20).await);
    back_up(&old, &target, "one", "nightly").await;
    let node = Node::new(SIZE).await;
    restore(&node, &target, "nightly").await;
    assert!(node.read_snapshot("restored") == old.read_snapshot("one"));
    delete(&target, "nightly");
    // What is gone is nothing newer.
    let text = refused(&node, request(&target, "nightly")).await;
    assert_eq!(text, "already restored backup nightly");
    back_up(&new, &target, "one", "nightly").await;
    restore(&node, &target, "nightly").await;
    assert!(node.read_snapshot("restored") == new.read_snapshot("one"));
    let text = refused(&node, request(&target, "nightly")).await;
    assert_eq!(text, "already restored backup nightly");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_was_made_again_is_no_base_of_what_was_restored_before() {
    let target = Target::new();
    let (old, new) = (another(10).await, another(20).await);
    back_up(&old, &target, "one", "nightly").await;
    let node = Node::new(SIZE).await;
    restore(&node, &target, "nightly").await;
    delete(&target, "nightly");
    back_up(&new, &target, "one", "nightly").await;
    back_up(&new, &target, "two", "weekly").await;
    restore(&node, &target, "weekly").await;
    assert!(node.read_snapshot("restored") == new.read_snapshot("two"));
}

/// What an agent of the release before wrote down says no more than the name.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_identity_a_base_is_older_than_what_was_written_down() {
    let target = Target::new();
    let (old, new) = (another(10).await, another(20).await);
    back_up(&old, &target, "one", "nightly").await;
    let mut node = Node::new(SIZE).await;
    restore(&node, &target, "nightly").await;
    forget_identity(&mut node).await;
    let text = refused(&node, request(&target, "nightly")).await;
    assert_eq!(text, "already restored backup nightly");
    delete(&target, "nightly");
    // Times of records are of seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    back_up(&new, &target, "one", "nightly").await;
    back_up(&new, &target, "two", "weekly").await;
    restore(&node, &target, "weekly").await;
    assert!(node.read_snapshot("restored") == new.read_snapshot("two"));
}

async fn forget_identity(node: &mut Node) {
    node.stop_agent().await;
    let path = node.file("restore.json");
    let mut record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    record.as_object_mut().unwrap().remove("held");
    durable::replace(&path, &serde_json::to_vec(&record).unwrap()).unwrap();
    node.start_agent().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_was_begun_goes_on_only_between_the_same_two_backups() {
    let target = Target::new();
    let (old, new) = (another(10).await, another(20).await);
    back_up(&old, &target, "one", "nightly").await;
    back_up(&old, &target, "two", "weekly").await;
    let mut node = Node::new(SIZE).await;
    restore(&node, &target, "nightly").await;
    let first = sums(&target.record("nightly"));
    let added = sums(&target.record("weekly")).into_iter().find(|sum| !first.contains(sum));
    std::fs::remove_file(&target.files(&format!("{}.blk", added.unwrap()))[0]).unwrap();
    node.agent().backup_restore(request(&target, "weekly")).await.unwrap();
    assert_eq!(ended(&node).await.state, "error");
    for backup in ["weekly", "nightly"] {
        delete(&target, backup);
    }
    back_up(&new, &target, "one", "nightly").await;
    back_up(&new, &target, "two", "weekly").await;
    node.stop_agent().await;
    node.start_agent().await;
    restore(&node, &target, "weekly").await;
    assert!(node.read_snapshot("restored") == new.read_snapshot("two"));
}
