//! One file from agent to agent.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use replica::DiskName;
use rpc::ptypes::{FileSendRequest, ReceiverLaunchRequest, SnapshotHashRequest};

use crate::hash::hashed;
use crate::node::{Node, Volume, assert_equal, extents, pattern, until};
use crate::proxy::{Manner, Proxy};

const SIZE: u64 = 64 << 20;
const SNAP: &str = "volume-snap-a.img";

async fn source() -> Node {
    source_of(3 << 20).await
}

/// Some data, some zeros that are data, and much nothing.
async fn source_of(len: usize) -> Node {
    let mut volume = Volume::new(SIZE);
    volume.write(1, len, 4096);
    volume.replica.write_at(&vec![0; 1 << 20], 20 << 20).unwrap();
    for index in 0..50 {
        volume.write(index as u8, 4096, (30 << 20) + index * 16384);
    }
    volume.write(7, 4096, SIZE - 4096);
    volume.snapshot("a");
    volume.serve().await
}

async fn launch(node: &Node, file: &str) -> u16 {
    let request = ReceiverLaunchRequest { to_file_name: file.into() };
    let port = node.agent().receiver_launch(request).await.unwrap().into_inner().port;
    u16::try_from(port).unwrap()
}

fn to(port: u16) -> FileSendRequest {
    FileSendRequest {
        from_file_name: SNAP.into(),
        host: "127.0.0.1".into(),
        port: i32::from(port),
        fast_sync: false,
        file_sync_http_client_timeout: 30,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_arrives_with_its_bytes_and_its_holes() {
    let (source, target) = (source().await, Node::new(SIZE).await);
    let proxy = Proxy::to(launch(&target, SNAP).await, Manner::Pass).await;
    source.agent().file_send(to(proxy.port)).await.unwrap();
    assert_equal(&source.file(SNAP), &target.file(SNAP));
    assert!(proxy.passed() < 6 << 20, "holes were sent: {}", proxy.passed());
    assert!(!target.file(&format!("{SNAP}.checksum")).exists());
}

/// A receiver of the peer ends itself while it answers the close: the connection breaks, and nobody listens
/// any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_ends_while_it_answers_the_close_has_the_file() {
    let (source, target) = (source().await, Node::new(SIZE).await);
    let proxy = Proxy::to(launch(&target, SNAP).await, Manner::EndAtClose).await;
    source.agent().file_send(to(proxy.port)).await.unwrap();
    assert_equal(&source.file(SNAP), &target.file(SNAP));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_file_that_is_there_only_what_differs_is_sent() {
    let (source, target) = (source().await, Node::new(SIZE).await);
    // The copy differs in one sector, has data where there is none, and lacks zeros that are data.
    let mut old = fs::read(source.file(SNAP)).unwrap();
    old[1 << 20] ^= 1;
    let punched = 20 << 20..21 << 20;
    let file = fs::File::create(target.file(SNAP)).unwrap();
    file.set_len(SIZE).unwrap();
    for (start, end) in extents(&source.file(SNAP)) {
        if start != punched.start {
            let piece = &old[start as usize..end as usize];
            std::os::unix::fs::FileExt::write_all_at(&file, piece, start).unwrap();
        }
    }
    std::os::unix::fs::FileExt::write_all_at(&file, &pattern(8192, 3), 40 << 20).unwrap();
    let inode = file.metadata().unwrap().ino();
    let proxy = Proxy::to(launch(&target, SNAP).await, Manner::Pass).await;
    source.agent().file_send(to(proxy.port)).await.unwrap();
    assert_equal(&source.file(SNAP), &target.file(SNAP));
    assert_eq!(fs::metadata(target.file(SNAP)).unwrap().ino(), inode);
    assert!(proxy.passed() < 4 << 20, "more than what differs: {}", proxy.passed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_again_and_again_delays_and_no_more() {
    let (source, target) = (source_of(9 << 20).await, Node::new(SIZE).await);
    let proxy = Proxy::to(launch(&target, SNAP).await, Manner::CutAfter(3 << 20)).await;
    source.agent().file_send(to(proxy.port)).await.unwrap();
    assert!(proxy.connections.load(Ordering::SeqCst) > 4, "nothing was cut");
    assert_equal(&source.file(SNAP), &target.file(SNAP));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_that_was_cut_short_is_taken_up_by_the_next() {
    let (source, target) = (source_of(9 << 20).await, Node::new(SIZE).await);
    let proxy = Proxy::to(launch(&target, SNAP).await, Manner::StallAfter(9 << 20)).await;
    let mut agent = source.agent();
    tokio::select! {
        outcome = agent.file_send(to(proxy.port)) => panic!("it ended: {outcome:?}"),
        () = proxy.stalled.notified() => {}
    }
    assert_ne!(extents(&source.file(SNAP)), extents(&target.file(SNAP)));
    // The old receiver still waits; a new one for the same file takes its place.
    let proxy = Proxy::to(launch(&target, SNAP).await, Manner::Pass).await;
    source.agent().file_send(to(proxy.port)).await.unwrap();
    assert_equal(&source.file(SNAP), &target.file(SNAP));
    assert!(proxy.passed() < 10 << 20, "what had come was sent again: {}", proxy.passed());
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_checksums_on_both_sides_are_believed_when_asked_to() {
    let (source, target) = (source().await, Node::new(SIZE).await);
    let request = SnapshotHashRequest { snapshot_name: "a".into(), rehash: false };
    source.agent().snapshot_hash(request).await.unwrap();
    let known = hashed(&source, "a").await.checksum;
    source.agent().file_send(to(launch(&target, SNAP).await)).await.unwrap();
    // The checksum came along, so the next time there is nothing to do.
    assert_eq!(hashed(&target, "a").await.checksum, known);
    let fast = |port| FileSendRequest { fast_sync: true, ..to(port) };
    let proxy = Proxy::to(launch(&target, SNAP).await, Manner::Pass).await;
    source.agent().file_send(fast(proxy.port)).await.unwrap();
    assert!(proxy.passed() < 4096, "it was compared all the same: {}", proxy.passed());
    // A file that changed since is not believed.
    let file = fs::OpenOptions::new().write(true).open(target.file(SNAP)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &pattern(8192, 3), 40 << 20).unwrap();
    drop(file);
    source.agent().file_send(fast(launch(&target, SNAP).await)).await.unwrap();
    assert_equal(&source.file(SNAP), &target.file(SNAP));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_of_a_received_file_is_used_again_and_ports_run_out() {
    let (source, target) = (source().await, Node::new(SIZE).await);
    let mut ports = Vec::new();
    loop {
        let to_file_name = format!("volume-snap-{}.img", ports.len());
        match target.agent().receiver_launch(ReceiverLaunchRequest { to_file_name }).await {
            Ok(answer) => ports.push(answer.into_inner().port),
            Err(status) => {
                assert_eq!(status.message(), "out of ports");
                break;
            }
        }
        assert!(ports.len() <= 10);
    }
    assert!(!ports.is_empty());
    source.agent().file_send(to(u16::try_from(ports[0]).unwrap())).await.unwrap();
    let copy = DiskName::of_snapshot("0").unwrap();
    assert_equal(&source.file(SNAP), &target.file(copy.as_str()));
    until("a free port", || async {
        let request = ReceiverLaunchRequest { to_file_name: "volume-snap-z.img".into() };
        target.agent().receiver_launch(request).await.ok()
    })
    .await;
}
