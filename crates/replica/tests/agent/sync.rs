//! The files of a rebuild.

use std::collections::HashMap;

use rpc::ptypes::{FileLocalSync, FilesSyncRequest, SyncFileInfo};

use crate::node::{Node, Volume, assert_equal, pattern, spawn, until};

const SIZE: u64 = 16 << 20;

async fn source() -> Node {
    let mut volume = Volume::in_memory(SIZE);
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        volume.write(index as u8, 1 << 20, (index as u64) << 20);
        volume.write(index as u8, 4096, (8 << 20) + (index as u64) * 12288);
        volume.snapshot(name);
    }
    volume.serve().await
}

async fn request(sources: &[&Node]) -> FilesSyncRequest {
    FilesSyncRequest {
        to_host: "127.0.0.1".into(),
        sync_file_info_list: sources[0].files().await,
        file_sync_http_client_timeout: 30,
        from_address_map: sources.iter().map(|node| (node.address(), true)).collect(),
        ..FilesSyncRequest::default()
    }
}

fn assert_copied(source: &Node, target: &Node, files: &[SyncFileInfo]) {
    assert!(!files.is_empty());
    for file in files {
        assert_equal(&source.file(&file.from_file_name), &target.file(&file.to_file_name));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_files_arrive_equal_from_one_source_or_many() {
    for count in [1, 2] {
        let first = source().await;
        let second = source().await;
        let target = Node::in_memory(SIZE).await;
        // Left from an earlier life: wrong bytes under a right name.
        durable::replace(target.file("volume-snap-b.img"), &pattern(1 << 20, 9)).unwrap();
        let sources: Vec<&Node> = [&first, &second].into_iter().take(count).collect();
        let request = request(&sources).await;
        let files = request.sync_file_info_list.clone();
        let mut addresses: Vec<_> = sources.iter().map(|node| node.address()).collect();
        addresses.sort();
        target.agent().files_sync(request).await.unwrap();
        assert_copied(&first, &target, &files);
        let status = target.agent().replica_rebuild_status(()).await.unwrap().into_inner();
        assert_eq!((status.state.as_str(), status.progress), ("complete", 100));
        assert!(!status.is_rebuilding);
        assert_eq!(status.from_replica_address_list, addresses);
        target.replica().replica_reload(()).await.unwrap();
        for name in ["a", "b", "c"] {
            assert!(first.read_snapshot(name) == target.read_snapshot(name), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_comes_back_in_time_is_waited_for() {
    let mut source = source().await;
    let target = Node::in_memory(SIZE).await;
    let request = request(&[&source]).await;
    let files = request.sync_file_info_list.clone();
    source.stop_agent().await;
    let mut agent = target.agent();
    let syncing = spawn(async move { agent.files_sync(request).await });
    until("the rebuild", || async {
        let status = target.agent().replica_rebuild_status(()).await.unwrap().into_inner();
        status.is_rebuilding.then_some(())
    })
    .await;
    source.start_agent().await;
    syncing.await.unwrap().unwrap();
    assert_copied(&source, &target, &files);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_source_beside_a_good_one_does_no_harm() {
    let good = source().await;
    let mut dead = source().await;
    dead.stop_agent().await;
    let target = Node::in_memory(SIZE).await;
    let request = request(&[&good, &dead]).await;
    let files = request.sync_file_info_list.clone();
    target.agent().files_sync(request).await.unwrap();
    assert_copied(&good, &target, &files);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_synced_fails_with_file_and_source_named() {
    let source = source().await;
    let target = Node::in_memory(SIZE).await;
    let missing = SyncFileInfo {
        from_file_name: "volume-snap-gone.img".into(),
        to_file_name: "volume-snap-gone.img".into(),
        actual_size: 1,
    };
    let request =
        FilesSyncRequest { sync_file_info_list: vec![missing], ..request(&[&source]).await };
    let mut agent = target.agent();
    let syncing = spawn(async move { agent.files_sync(request).await });
    until("the rebuild", || async {
        let status = target.agent().replica_rebuild_status(()).await.unwrap().into_inner();
        status.is_rebuilding.then_some(())
    })
    .await;
    // Meanwhile nothing else may touch the snapshots.
    let purge = target.agent().snapshot_purge(()).await.unwrap_err();
    let text = format!("cannot purge snapshots because {} is rebuilding", target.control);
    assert_eq!(purge.message(), text);
    let again = FilesSyncRequest {
        sync_file_info_list: source.files().await,
        from_address_map: HashMap::from([(source.address(), true)]),
        ..FilesSyncRequest::default()
    };
    let refused = target.agent().files_sync(again).await.unwrap_err();
    assert_eq!(refused.message(), "replica is already rebuilding");
    let failed = syncing.await.unwrap().unwrap_err();
    let status = target.agent().replica_rebuild_status(()).await.unwrap().into_inner();
    assert_eq!((status.state.as_str(), status.is_rebuilding), ("error", false));
    assert_eq!(status.error, failed.message());
    for part in ["volume-snap-gone.img", &source.address(), "rpc error: code = Unknown"] {
        assert!(failed.message().contains(part), "{part}: {}", failed.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_to_sync_is_said() {
    let source = source().await;
    let target = Node::in_memory(SIZE).await;
    let no_files = FilesSyncRequest { sync_file_info_list: vec![], ..request(&[&source]).await };
    let no_sources =
        FilesSyncRequest { from_address_map: HashMap::new(), ..request(&[&source]).await };
    for request in [no_files, no_sources] {
        let refused = target.agent().files_sync(request).await.unwrap_err();
        assert_eq!(refused.message(), "no files or remote replicas for sync");
    }
    let mut twice = request(&[&source]).await;
    twice.sync_file_info_list.push(twice.sync_file_info_list[0].clone());
    let refused = target.agent().files_sync(twice).await.unwrap_err();
    assert!(refused.message().ends_with("is to be synced twice"), "{}", refused.message());
    let status = target.agent().replica_rebuild_status(()).await.unwrap().into_inner();
    assert_eq!(status.state, "", "a rejection is no rebuild");
    let old = FilesSyncRequest {
        from_address: source.address(),
        from_address_map: HashMap::new(),
        ..request(&[&source]).await
    };
    target.agent().files_sync(old).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_on_this_node_is_copied_without_it() {
    let mut source = source().await;
    let target = Node::in_memory(SIZE).await;
    durable::replace(target.file("volume-snap-b.img"), &pattern(1 << 20, 9)).unwrap();
    let mut request = request(&[&source]).await;
    let files = request.sync_file_info_list.clone();
    request.local_sync = Some(FileLocalSync {
        source_path: source.dir().display().to_string(),
        target_path: target.dir().display().to_string(),
    });
    source.stop_agent().await;
    target.agent().files_sync(request.clone()).await.unwrap();
    assert_copied(&source, &target, &files);
    // Paths that are not ours to write to: over the network then.
    source.start_agent().await;
    let other = Node::in_memory(SIZE).await;
    other.agent().files_sync(request).await.unwrap();
    assert_copied(&source, &other, &files);
}
