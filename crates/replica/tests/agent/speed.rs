//! How fast files travel. Asserts only that they arrive; the numbers are for people:
//! `cargo test --release -p replica --test agent -- --ignored --nocapture`.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use rpc::ptypes::{BackupRestoreRequest, FilesSyncRequest};

use crate::backup::{Target, back_up};
use crate::backup_restore::{ended, request};
use crate::node::{Node, Volume, assert_equal};

const SIZE: u64 = 2 << 30;
const MIB: u64 = 1 << 20;
const SNAP: &str = "volume-snap-a.img";

async fn sync(what: &str, source: &Node, target: &Node, fast_sync: bool) {
    let request = FilesSyncRequest {
        to_host: "127.0.0.1".into(),
        sync_file_info_list: source.files().await,
        fast_sync,
        file_sync_http_client_timeout: 30,
        from_address_map: [(source.address(), true)].into(),
        ..FilesSyncRequest::default()
    };
    let started = Instant::now();
    target.agent().files_sync(request).await.unwrap();
    let ms = started.elapsed().as_millis().max(1);
    eprintln!("{what}: {ms} ms, {} MiB/s", u128::from(SIZE / MIB) * 1000 / ms);
    assert_equal(&source.file(SNAP), &target.file(SNAP));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "two gigabytes, for people"]
async fn two_gigabytes() {
    let mut volume = Volume::new(SIZE);
    for at in (0..SIZE).step_by(MIB as usize) {
        volume.write((at / MIB) as u8, MIB as usize, at);
    }
    volume.snapshot("a");
    let (source, target) = (volume.serve().await, Node::new(SIZE).await);
    sync("all of 2 GiB", &source, &target, false).await;
    sync("nothing of 2 GiB differs", &source, &target, false).await;
    let file = fs::OpenOptions::new().write(true).open(target.file(SNAP)).unwrap();
    for at in (0..SIZE).step_by(100 * MIB as usize) {
        file.write_all_at(&vec![9; MIB as usize], at).unwrap();
    }
    sync("1 % of 2 GiB differs", &source, &target, false).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "many requests, for people"]
async fn a_sparse_volume() {
    let mut volume = Volume::new(SIZE);
    for index in 0..5000 {
        volume.write(index as u8, 4096, index * (SIZE / 5000) / 4096 * 4096);
    }
    volume.snapshot("a");
    let (source, target) = (volume.serve().await, Node::new(SIZE).await);
    sync("sparse 2 GiB, 5000 sectors, new", &source, &target, false).await;
    sync("sparse 2 GiB, 5000 sectors, there", &source, &target, false).await;
}

/// Two megabytes: noise, or words as in a log.
fn block(index: u64) -> Vec<u8> {
    let mut state = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    if index.is_multiple_of(2) {
        return (0..MIB / 4).flat_map(|_| next().to_le_bytes()).collect();
    }
    let mut text = String::new();
    while text.len() < 2 * MIB as usize {
        let word =
            ["request", "from", "volume", "took", "error", "status=200"][next() as usize % 6];
        text.push_str(word);
        // Writing to a string cannot fail.
        let _ = write!(text, " {} ", next() % 1000);
    }
    text.truncate(2 * MIB as usize);
    text.into_bytes()
}

async fn restore_to(what: &str, target: &Target, source: &Node, count: u32, key: &[u8]) {
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(Node::new(SIZE).await);
    }
    let all: Vec<String> = nodes.iter().map(Node::address).collect();
    rustix::fs::sync();
    let started = Instant::now();
    let begin = nodes.iter().zip(0..).map(|(node, own)| {
        let request = BackupRestoreRequest {
            holdfast_together: all.clone(),
            holdfast_own_index: own,
            holdfast_key: key.to_vec(),
            concurrent_limit: 5,
            ..request(target, "backup")
        };
        async move { node.agent().backup_restore(request).await.unwrap() }
    });
    futures::future::join_all(begin).await;
    for node in &nodes {
        let done = ended(node).await;
        assert_eq!((done.state.as_str(), done.error.as_str()), ("complete", ""));
    }
    let ms = started.elapsed().as_millis().max(1);
    eprintln!("{what}: {ms} ms, {} MiB/s each", u128::from(SIZE / MIB) * 1000 / ms);
    for node in &nodes {
        assert_equal(&source.file(SNAP), &node.file(crate::backup_restore::DISK));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "two gigabytes, for people"]
async fn restores() {
    let mut volume = Volume::new(SIZE);
    for at in (0..SIZE).step_by(2 * MIB as usize) {
        volume.replica.write_at(&block(at / MIB / 2), at).unwrap();
    }
    volume.snapshot("a");
    let (source, target) = (volume.serve().await, Target::new());
    back_up(&source, &target, "a", "backup").await;
    for _ in 0..2 {
        restore_to("one replica", &target, &source, 1, &[]).await;
        restore_to("three replicas, each verifying", &target, &source, 3, &[]).await;
        restore_to("three replicas, one verifying", &target, &source, 3, &[7; 32]).await;
    }
}
