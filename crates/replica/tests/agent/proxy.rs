//! A connection that fails in chosen ways, and counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::node::spawn;

/// What happens to what a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Pass,
    /// Each connection is cut after so many bytes.
    CutAfter(u64),
    /// After so many bytes in all nothing goes through any more.
    StallAfter(u64),
    /// The answer to a close is lost, and nobody listens any more.
    EndAtClose,
}

const CLOSE: &[u8] = b"POST /v1-ssync/close";

pub(crate) struct Proxy {
    pub(crate) port: u16,
    pub(crate) passed: Arc<AtomicU64>,
    pub(crate) connections: Arc<AtomicU64>,
    pub(crate) stalled: Arc<Notify>,
    running: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(target: u16, manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let passed = Arc::new(AtomicU64::new(0));
        let connections = Arc::new(AtomicU64::new(0));
        let stalled = Arc::new(Notify::new());
        let shared = (Arc::clone(&passed), Arc::clone(&connections), Arc::clone(&stalled));
        let running = spawn(async move {
            let (passed, connections, stalled) = shared;
            let ended = CancellationToken::new();
            while let Some(Ok((client, _))) = ended.run_until_cancelled(listener.accept()).await {
                connections.fetch_add(1, Ordering::SeqCst);
                let target = SocketAddr::from(([127, 0, 0, 1], target));
                let told = (Arc::clone(&passed), Arc::clone(&stalled), ended.clone());
                spawn(relay(client, target, manner, told));
            }
        });
        Self { port, passed, connections, stalled, running }
    }

    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn relay(
    client: TcpStream,
    target: SocketAddr,
    manner: Manner,
    (passed, stalled, ended): (Arc<AtomicU64>, Arc<Notify>, CancellationToken),
) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (closing, closed) = (CancellationToken::new(), CancellationToken::new());
    let (is_closing, is_closed) = (closing.clone(), closed.clone());
    let back = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            if is_closing.is_cancelled() {
                is_closed.cancel();
                return std::future::pending().await;
            }
            if to_client.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    };
    let forth = async move {
        let mut buffer = vec![0; 64 * 1024];
        let mut own = 0;
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            own += read as u64;
            let all = passed.fetch_add(read as u64, Ordering::SeqCst) + read as u64;
            match manner {
                Manner::CutAfter(limit) if own > limit => return,
                Manner::StallAfter(limit) if all > limit => {
                    stalled.notify_one();
                    return std::future::pending().await;
                }
                Manner::EndAtClose if buffer[..read].starts_with(CLOSE) => {
                    closing.cancel();
                    ended.cancel();
                }
                Manner::Pass | Manner::CutAfter(_) | Manner::StallAfter(_) | Manner::EndAtClose => {
                }
            }
            if to_server.write_all(&buffer[..read]).await.is_err() {
                return;
            }
            if closing.is_cancelled() {
                // The receiver has done it; the sender does not hear so.
                return closed.cancelled().await;
            }
        }
    };
    tokio::select! {
        () = back => {}
        () = forth => {}
    }
}
