//! Agents that restore the same backup: beside peers that are dead, know nothing, lie, come late, or
//! ask for what there is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
        ..request(target, "backup-two")
    }
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
    let (mut fetched, mut taken) = (0, 0);
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
        assert!(node.read_snapshot("restored") == source.read_snapshot("two"));
    }
    assert_eq!(fetched, one_copy(&target));
    assert!(taken > 0);

    nodes[3].agent().backup_restore(together(&target, &all, 3)).await.unwrap();
    let late = ended(&nodes[3]).await;
    assert_eq!((late.state.as_str(), late.holdfast_fetched_bytes), ("complete", 0));
    assert!(late.holdfast_taken_bytes > 0);
    assert!(nodes[3].read_snapshot("restored") == source.read_snapshot("two"));
}

/// Gives something else than the block, whichever is asked for.
#[derive(Debug, Default)]
struct Liar(Arc<AtomicUsize>);

#[tonic::async_trait]
impl FanOut for Liar {
    async fn look(&self, _: Request<LookRequest>) -> Result<Response<LookReply>, Status> {
        let reply = LookReply { stage: Stage::Restored.into(), has_blocks: true };
        Ok(Response::new(reply))
    }

    async fn block(&self, asked: Request<BlockRequest>) -> Result<Response<BlockReply>, Status> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let block = vec![7; usize::try_from(asked.get_ref().block_bytes).unwrap()];
        let (answer, packing) = (Answer::Here.into(), "none".to_owned());
        Ok(Response::new(BlockReply { answer, packing, block: block.into() }))
    }
}

async fn liar() -> (String, Arc<AtomicUsize>) {
    let liar = Liar::default();
    let asked = Arc::clone(&liar.0);
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
    let (lying, asked) = liar().await;
    let all = [dead, idle.address(), lying, "no address".to_owned(), node.address()];
    node.agent().backup_restore(together(&target, &all, 4)).await.unwrap();
    let done = ended(&node).await;
    assert_eq!((done.state.as_str(), done.error.as_str()), ("complete", ""));
    assert_eq!(done.holdfast_fetched_bytes, one_copy(&target));
    assert!(node.read_snapshot("restored") == source.read_snapshot("two"));
    // Two at a time, and not again after the first of them was found out.
    assert!((1..=2).contains(&asked.load(Ordering::Relaxed)), "{asked:?}");
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
