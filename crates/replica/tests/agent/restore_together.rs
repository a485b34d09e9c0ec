//! Agents that restore the same backup: beside peers that are dead, know nothing, lie, come late, or
//! ask for what there is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backupstore::format::Checksum;
use backupstore::restore::Sealer;
use rpc::fanout::fan_out_client::FanOutClient;
use rpc::fanout::fan_out_server::{FanOut, FanOutServer};
use rpc::fanout::{Answer, BlockReply, BlockRequest, LookReply, LookRequest, Stage};
use rpc::ptypes::BackupRestoreRequest;
use rpc::{Deadline, Identity, Peer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::backup::{SIZE, Target};
use crate::backup_restore::{ended, request, source};
use crate::node::{Node, VOLUME, free_ports, spawn};

fn together(target: &Target, all: &[String], own: u32) -> BackupRestoreRequest {
    BackupRestoreRequest {
        holdfast_together: all.to_vec(),
        holdfast_own_index: own,
        holdfast_key: KEY.to_vec(),
        ..request(target, "backup-two")
    }
}

/// What an engine tells all of them.
const KEY: [u8; 32] = [7; 32];

/// Blocks of the second backup, each once.
fn blocks(target: &Target) -> u64 {
    let mut sums = crate::backup_restore::sums(&target.record("backup-two"));
    sums.sort();
    sums.dedup();
    sums.len() as u64
}

/// What of the store belongs to the second backup.
fn one_copy(target: &Target) -> u64 {
    let sums = crate::backup_restore::sums(&target.record("backup-two"));
    let len = |sum: &String| target.files(&format!("{sum}.blk"))[0].metadata().unwrap().len();
    sums.iter().map(len).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_agents_fetch_one_copy_and_one_that_is_late_fetches_nothing() {
    let target = Target::new();
    let source = source(&target).await;
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(Node::new(SIZE).await);
    }
    let all: Vec<String> = nodes.iter().map(Node::address).collect();
    for (own, node) in (0..).zip(&nodes[..3]) {
        let mut agent = node.agent();
        let request = together(&target, &all[..3], own);
        spawn(async move { agent.backup_restore(request).await.unwrap() });
    }
    let (mut fetched, mut taken, mut hashed) = (0, 0, 0);
    for node in &nodes[..3] {
        crate::node::until("a restore", || async {
            let status = crate::backup_restore::status(node).await;
            assert_eq!(status.error, "");
            (status.state == "complete").then_some(())
        })
        .await;
        let status = ended(node).await;
        fetched += status.holdfast_fetched_bytes;
        taken += status.holdfast_taken_bytes;
        hashed += status.holdfast_hashed_blocks;
        assert!(node.read_snapshot("restored") == source.read_snapshot("two"));
    }
    assert_eq!(fetched, one_copy(&target));
    assert!(taken > 0);
    assert_eq!(hashed, blocks(&target), "each is verified by one of them");

    nodes[3].agent().backup_restore(together(&target, &all, 3)).await.unwrap();
    let late = ended(&nodes[3]).await;
    assert_eq!((late.state.as_str(), late.holdfast_fetched_bytes), ("complete", 0));
    assert!(late.holdfast_taken_bytes > 0);
    assert_eq!(late.holdfast_hashed_blocks, blocks(&target), "those have forgotten their seals");
    assert!(nodes[3].read_snapshot("restored") == source.read_snapshot("two"));
}

/// Gives something else than the block, whichever is asked for, and says that it was verified.
#[derive(Debug, Default)]
struct Liar {
    asked: Arc<AtomicUsize>,
    /// The key of its seals; none: it has no seal to show.
    sealer: Option<Sealer>,
    about: Lie,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Its seal is of what it gives.
    #[default]
    Content,
    /// Its seal is of something else: the link, or its memory, has changed what it gives.
    Seal,
}

#[tonic::async_trait]
impl FanOut for Liar {
    async fn look(&self, _: Request<LookRequest>) -> Result<Response<LookReply>, Status> {
        let reply = LookReply { stage: Stage::Restored.into(), has_blocks: true };
        Ok(Response::new(reply))
    }

    async fn block(&self, asked: Request<BlockRequest>) -> Result<Response<BlockReply>, Status> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let asked = asked.get_ref();
        let mut block = vec![7; usize::try_from(asked.block_bytes).unwrap()];
        let mut reply = BlockReply { answer: Answer::Here.into(), ..BlockReply::default() };
        if let Some(sealer) = &self.sealer {
            let name = Checksum::parse(&asked.checksum).unwrap();
            reply.seal = sealer.seal(&name, &block).unwrap().number();
            reply.sealed_by = sealer.name().to_vec();
        }
        if self.about == Lie::Seal {
            block[1234] ^= 1;
        }
        Ok(Response::new(BlockReply { packing: "none".to_owned(), block: block.into(), ..reply }))
    }
}

async fn liar(liar: Liar) -> (String, Arc<AtomicUsize>) {
    let asked = Arc::clone(&liar.asked);
    loop {
        let control = free_ports();
        let Ok(listener) = TcpListener::bind(("127.0.0.1", control + 2)).await else { continue };
        let server = tonic::transport::Server::builder().add_service(FanOutServer::new(liar));
        spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        return (format!("tcp://127.0.0.1:{control}"), asked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_depends_on_those_who_are_dead_or_idle_or_lie() {
    let target = Target::new();
    let source = source(&target).await;
    let node = Node::new(SIZE).await;
    let idle = Node::new(SIZE).await;
    let dead = format!("tcp://127.0.0.1:{}", free_ports());
    let (lying, asked) = liar(Liar::default()).await;
    let all = [dead, idle.address(), lying, "no address".to_owned(), node.address()];
    node.agent().backup_restore(together(&target, &all, 4)).await.unwrap();
    let done = ended(&node).await;
    assert_eq!((done.state.as_str(), done.error.as_str()), ("complete", ""));
    assert_eq!(done.holdfast_fetched_bytes, one_copy(&target));
    assert!(node.read_snapshot("restored") == source.read_snapshot("two"));
    // Two at a time, and not again after the first of them was found out.
    assert!((1..=2).contains(&asked.load(Ordering::Relaxed)), "{asked:?}");
}

/// The key of those who were told [`KEY`] about the restore of this backup to that volume.
fn sealer(key: &[u8], volume: &str) -> Option<Sealer> {
    Sealer::shared(key, &[volume, "vol", "backup-two"])
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_was_not_told_the_key_or_gives_other_bytes_is_found_out() {
    let target = Target::new();
    let source = source(&target).await;
    for liar_of in [
        Liar { sealer: sealer(&[8; 32], VOLUME), ..Liar::default() },
        Liar { sealer: sealer(&KEY, "another"), ..Liar::default() },
        Liar { sealer: sealer(&KEY, VOLUME), about: Lie::Seal, ..Liar::default() },
    ] {
        let shown = format!("{liar_of:?}");
        let node = Node::new(SIZE).await;
        let (lying, asked) = liar(liar_of).await;
        let all = [lying, node.address()];
        node.agent().backup_restore(together(&target, &all, 1)).await.unwrap();
        let done = ended(&node).await;
        assert_eq!((done.state.as_str(), done.error.as_str()), ("complete", ""), "{shown}");
        assert_eq!(done.holdfast_fetched_bytes, one_copy(&target), "{shown}");
        assert!(node.read_snapshot("restored") == source.read_snapshot("two"), "{shown}");
        assert!((1..=blocks(&target)).contains(&(asked.load(Ordering::Relaxed) as u64)), "{shown}");
    }
}

/// Where the engine is older, or another, or does not tell all of them the same.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_share_no_key_verify_each_for_itself() {
    let target = Target::new();
    let source = source(&target).await;
    for keys in [[vec![], vec![]], [KEY.to_vec(), vec![8; 32]], [KEY.to_vec(), vec![7; 31]]] {
        let nodes = [Node::new(SIZE).await, Node::new(SIZE).await];
        let all: Vec<String> = nodes.iter().map(Node::address).collect();
        let begin = nodes.iter().zip(keys).zip(0..).map(|((node, key), own)| {
            let request =
                BackupRestoreRequest { holdfast_key: key, ..together(&target, &all, own) };
            async move { node.agent().backup_restore(request).await.unwrap() }
        });
        futures::future::join_all(begin).await;
        let mut fetched = 0;
        for node in &nodes {
            let done = ended(node).await;
            assert_eq!((done.state.as_str(), done.error.as_str()), ("complete", ""));
            assert_eq!(done.holdfast_hashed_blocks, blocks(&target));
            assert!(node.read_snapshot("restored") == source.read_snapshot("two"));
            fetched += done.holdfast_fetched_bytes;
        }
        assert_eq!(fetched, one_copy(&target), "they share what they fetch all the same");
    }
}

fn fan_out(node: &Node, volume: &str) -> FanOutClient<Peer> {
    let expected = Identity { volume: volume.into(), instance: String::new() };
    let agent = node.control.sync_agent();
    FanOutClient::new(rpc::connect_bulk(&agent, expected, Deadline::Usual).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_is_not_believed() {
    let target = Target::new();
    let _source = source(&target).await;
    let node = Node::new(SIZE).await;
    crate::backup_restore::restore(&node, &target, "backup-two").await;
    let good = BlockRequest {
        volume: "vol".into(),
        backup: "backup-two".into(),
        checksum: "0".repeat(64),
        offset: 0,
        block_bytes: 2 << 20,
        may_fetch: true,
    };
    let asked = |request: BlockRequest| {
        let mut client = fan_out(&node, VOLUME);
        async move { client.block(request).await.map(Response::into_inner) }
    };
    let reply = asked(good.clone()).await.unwrap();
    assert_eq!((reply.answer(), reply.packing.as_str()), (Answer::Here, "lz4"));
    assert_eq!(
        (reply.seal, reply.sealed_by),
        (0, vec![]),
        "nobody has verified what was asked for"
    );
    for (offset, block_bytes) in [(SIZE, 2 << 20), (u64::MAX, 2 << 20), (SIZE - 4096, 2 << 20)] {
        let reply = asked(BlockRequest { offset, block_bytes, ..good.clone() }).await.unwrap();
        assert_eq!((reply.answer(), reply.block.len()), (Answer::Absent, 0));
    }
    let other = BlockRequest { backup: "backup-one".into(), ..good.clone() };
    assert_eq!(asked(other).await.unwrap().answer(), Answer::NotRestoring);
    for bad in [
        BlockRequest { checksum: "../x".into(), ..good.clone() },
        BlockRequest { volume: "../x".into(), ..good.clone() },
        BlockRequest { block_bytes: 1 << 40, ..good.clone() },
        BlockRequest { block_bytes: 0, ..good.clone() },
    ] {
        let refused = asked(bad).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
    let wrong = fan_out(&node, "another").block(good).await.unwrap_err();
    assert_eq!(wrong.code(), tonic::Code::FailedPrecondition);
}
