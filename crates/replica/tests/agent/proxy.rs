//! A connection that fails in chosen ways, and counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::node::spawn;

/// What happens to what a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Pass,
    /// Each connection is cut after so many bytes.
    CutAfter(u64),
    /// After so many bytes in all nothing goes through any more.
    StallAfter(u64),
}

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
            while let Ok((client, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let target = SocketAddr::from(([127, 0, 0, 1], target));
                spawn(relay(client, target, manner, Arc::clone(&passed), Arc::clone(&stalled)));
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
    passed: Arc<AtomicU64>,
    stalled: Arc<Notify>,
) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = async move {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
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
                Manner::Pass | Manner::CutAfter(_) | Manner::StallAfter(_) => {}
            }
            if to_server.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = back => {}
        () = forth => {}
    }
}
