//! The embedded API server, measured from where its clients stand: TLS, bearer token, loopback.

mod load;
mod table;
mod work;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::{Endpoint, Server};

use table::{Figures, Row};
use work::Work;

/// Another server of the same protocol.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) ca: PathBuf,
    pub(crate) processes: Vec<u32>,
}

const STARTS: usize = 5;
const MIB: f64 = 1024.0 * 1024.0;

pub(crate) async fn run(peer: Option<Peer>) -> Result<()> {
    let other = match &peer {
        Some(peer) => measure_peer(peer).await.context("the peer")?,
        None => table::known(),
    };
    let ours = measure_ours().await.context("holdfast")?;
    let name = if peer.is_some() { "peer" } else { "kube-apiserver + etcd (known)" };
    println!("{}", table::render(&ours, &other, name));
    Ok(())
}

async fn measure_ours() -> Result<Figures> {
    let mut figures = Figures::default();
    figures.set(Row::StartUp, start_up().await?.as_secs_f64() * 1000.0);
    let server = Server::start();
    figures.set(Row::MemoryIdle, mebibytes(server.resident_bytes()));
    let endpoint = server.endpoint();
    let resident = || Some(server.resident_bytes());
    measure(&endpoint, &mut figures, resident).await?;
    let work = Work::new(endpoint);
    work.update_leases().await?;
    let size =
        |name: &str| std::fs::metadata(server.data_dir().join(name)).map_or(0, |it| it.len());
    figures.set(Row::FileAfterLeases, mebibytes(size("objects.db") + size("objects.db-wal")));
    Ok(figures)
}

async fn measure_peer(peer: &Peer) -> Result<Figures> {
    let mut figures = Figures::default();
    let ca = std::fs::read(&peer.ca).with_context(|| peer.ca.display().to_string())?;
    let endpoint = Endpoint::new(&peer.url, &ca, &peer.token);
    let resident = || {
        let all: Option<Vec<u64>> =
            peer.processes.iter().map(|pid| e2e::server::resident_bytes(*pid)).collect();
        all.filter(|all| !all.is_empty()).map(|all| all.iter().sum())
    };
    if let Some(bytes) = resident() {
        figures.set(Row::MemoryIdle, mebibytes(bytes));
    }
    measure(&endpoint, &mut figures, resident).await?;
    Ok(figures)
}

/// The median of a few first starts, each on an empty directory.
async fn start_up() -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let start = Instant::now();
        let server = Server::start();
        let ready = server.endpoint().connect().await?.get("/readyz").await?;
        anyhow::ensure!(ready.code() == 200, "not ready: {}", ready.status);
        times.push(start.elapsed());
    }
    load::median(&mut times).context("no start")
}

/// Everything that can be measured from outside.
async fn measure(
    endpoint: &Endpoint,
    figures: &mut Figures,
    resident: impl Fn() -> Option<u64>,
) -> Result<()> {
    let work = Work::new(endpoint.clone());
    work.prepare().await?;
    work.create(figures).await?;
    if let Some(bytes) = resident() {
        figures.set(Row::MemoryLoaded, mebibytes(bytes));
    }
    work.get(figures).await?;
    work.patch(figures).await?;
    work.conflict(figures).await?;
    work.list(figures).await?;
    work.latency(figures).await?;
    work.fan_out(figures).await?;
    work.delete_all(figures).await?;
    unread(&work, figures, resident).await?;
    work.clear().await
}

/// What readers cost that do not read.
async fn unread(
    work: &Work,
    figures: &mut Figures,
    resident: impl Fn() -> Option<u64>,
) -> Result<()> {
    work.make_large().await?;
    let before = resident();
    let readers = work.ask_and_not_read().await?;
    if let (Some(before), Some(after)) = (before, resident()) {
        figures.set(Row::MemoryUnread, mebibytes(after.saturating_sub(before)));
    }
    drop(readers);
    work.clear_large().await
}

#[expect(clippy::cast_precision_loss, reason = "sizes shown with three digits")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MIB
}
