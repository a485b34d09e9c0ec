//! How fast files travel. Asserts only that they arrive; the numbers are for people:
//! `cargo test --release -p replica --test agent -- --ignored --nocapture`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use rpc::ptypes::FilesSyncRequest;

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
