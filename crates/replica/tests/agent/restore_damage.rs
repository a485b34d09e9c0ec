//! Restores of backups that lack blocks, and rebuilds of what was restored.

use rpc::ptypes::{BackupRestoreRequest, FilesSyncRequest, RestoreStatusResponse};

use crate::backup::{SIZE, Target};
use crate::backup_restore::{ended, request, restore, source, status, sums};
use crate::node::{Node, Volume};

const BLOCK: u64 = 2 << 20;

/// Removes the block of the second backup that lies at `5 * BLOCK`; its name.
fn damage(target: &Target) -> String {
    let record = target.record("backup-two");
    let blocks = record["Blocks"].as_array().unwrap();
    let at = blocks.iter().position(|block| block["Offset"] == 5 * BLOCK).unwrap();
    let name = format!("{}.blk", sums(&record)[at]);
    std::fs::remove_file(target.files(&name).remove(0)).unwrap();
    name
}

fn places(content: &[u8]) -> [&[u8]; 3] {
    [0, 5, 6].map(|index| &content[index * BLOCK as usize..][..BLOCK as usize])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_block_is_named_and_all_others_are_restored() {
    let target = Target::new();
    let source = source(&target).await;
    let name = damage(&target);
    let node = Node::new(SIZE).await;
    node.agent().backup_restore(request(&target, "backup-two")).await.unwrap();
    let failed = ended(&node).await;
    assert_eq!((failed.state.as_str(), failed.last_restored.as_str()), ("error", ""));
    let place = format!("{name} at offset {}: no such file or directory", 5 * BLOCK);
    assert!(failed.error.contains(&place), "{}", failed.error);
    let file = std::fs::read(node.file(crate::backup_restore::DISK)).unwrap();
    let wanted = source.read_snapshot("two");
    let ([first, missing, third], wanted) = (places(&file), places(&wanted));
    assert!(first == wanted[0] && third == wanted[2] && missing.iter().all(|byte| *byte == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_goes_on_without_a_block_if_it_is_told_to() {
    let target = Target::new();
    let source = source(&target).await;
    let node = Node::new(SIZE).await;
    restore(&node, &target, "backup-one").await;
    let name = damage(&target);
    let go_on = BackupRestoreRequest { holdfast_go_on: true, ..request(&target, "backup-two") };
    node.agent().backup_restore(go_on).await.unwrap();
    let done = ended(&node).await;
    assert_eq!((done.state.as_str(), done.last_restored.as_str()), ("complete", "backup-two"));
    assert!(done.holdfast_left_out.contains(&name), "{}", done.holdfast_left_out);
    // Where the block is missing, the older backup is still there.
    let (one, two) = (source.read_snapshot("one"), source.read_snapshot("two"));
    let found = node.read_snapshot("restored");
    let (found, one, two) = (places(&found), places(&one), places(&two));
    assert!(found[0] == two[0] && found[1] == one[1] && found[2] == two[2]);
    // What lacks a block is no base for the next one.
    restore(&node, &target, "backup-one").await;
    assert!(node.read_snapshot("restored") == source.read_snapshot("one"));
    assert_eq!(status(&node).await.holdfast_left_out, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_forgets_what_was_restored() {
    let target = Target::new();
    let _source = source(&target).await;
    let node = Node::new(SIZE).await;
    restore(&node, &target, "backup-one").await;
    let mut healthy = Volume::new(SIZE);
    healthy.write(9, 4096, 0);
    healthy.snapshot("other");
    let healthy = healthy.serve().await;
    let sync = FilesSyncRequest {
        to_host: "127.0.0.1".into(),
        sync_file_info_list: healthy.files().await,
        from_address_map: [(healthy.address(), true)].into(),
        ..FilesSyncRequest::default()
    };
    node.agent().files_sync(sync).await.unwrap();
    assert!(!node.file("restore.json").exists());
    let known = RestoreStatusResponse {
        holdfast_fetched_bytes: 0,
        holdfast_taken_bytes: 0,
        holdfast_hashed_blocks: 0,
        ..status(&node).await
    };
    assert_eq!(known, RestoreStatusResponse::default());
}
