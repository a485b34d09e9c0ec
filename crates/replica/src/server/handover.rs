//! Hands a directory from one process to the next in a live upgrade.
//!
//! The process that holds the directory listens on an abstract unix socket named after it. One that
//! was opened to take over asks there when an engine claims it, or, of one that makes no claims, when it
//! begins with I/O: the old process ends its agent's jobs (a purge would go on moving files), cuts off its engine, brings everything to disk
//! and lets go of the lock; then it answers. It stays, and refuses everything.

use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use durable::{DirLock, LockError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::server::core::{Core, CoreError, HandedOver, run_aside};
use crate::server::thread::Handle;

const ASK: &[u8; 8] = b"handover";
const DONE: &[u8; 4] = b"done";
/// How long the other process may take: its jobs end at their next step, and all that was written and
/// never flushed goes to disk.
const TIMEOUT: Duration = Duration::from_secs(150);
/// How long a process that connects may take to say what it wants.
const ASKS: Duration = Duration::from_secs(5);
/// How often, and how far apart, one that holds the directory and does not listen is asked again.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);
/// How often a process that does not hold the directory looks whether it does by now.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// By what the agent and the hand-over know of each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Agent {
    /// It is to end.
    pub(crate) stop: CancellationToken,
    /// It has ended, or there is none.
    pub(crate) ended: CancellationToken,
}

fn socket_of(dir: &Path) -> io::Result<SocketAddr> {
    let found = std::fs::metadata(dir)?;
    let name = format!("holdfast-replica-dir-{}-{}", found.dev(), found.ino());
    SocketAddr::from_abstract_name(name)
}

/// Why a directory was not taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandoverError {
    #[error("the process that serves this directory does not hand it over: {0}")]
    Ask(#[from] io::Error),
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// Has the process that holds `dir` hand it over, if there is one.
pub(crate) fn take(dir: &Path) -> Result<DirLock, HandoverError> {
    let mut left = TRIES;
    loop {
        ask(dir)?;
        match DirLock::acquire(dir) {
            // It has the directory, and does not listen yet.
            Err(LockError::Held { .. }) if left > 0 => std::thread::park_timeout(PAUSE),
            other => return Ok(other?),
        }
        left -= 1;
    }
}

/// Asks the process that holds `dir` for it, and waits until it has let go. Nobody there: it is
/// free, or in the hands of one that cannot be asked, which the lock tells.
fn ask(dir: &Path) -> io::Result<()> {
    let mut stream = match UnixStream::connect_addr(&socket_of(dir)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
        other => other?,
    };
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(ASK)?;
    let mut answer = [0; DONE.len()];
    stream.read_exact(&mut answer)?;
    if answer == *DONE { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Serves one hand-over, whenever this process holds the directory; then there is none to serve.
pub(crate) async fn serve(dir: PathBuf, data: Handle, agent: Agent) {
    let listener = loop {
        match data.call(|core| core.holds_directory()).await {
            Err(_) => return,
            Ok(true) => match listen(&dir) {
                Ok(listener) => break listener,
                Err(error) => tracing::debug!(%error, "no hand-over yet"),
            },
            Ok(false) => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            // Out of descriptors: the next call would fail as well.
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        };
        let ours = rustix::process::geteuid().as_raw();
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0) {
            continue;
        }
        let mut asked = [0; ASK.len()];
        let read = tokio::time::timeout(ASKS, stream.read_exact(&mut asked)).await;
        if !matches!(read, Ok(Ok(_))) || asked != *ASK {
            continue;
        }
        // The next holder listens at this name.
        drop(listener);
        tracing::info!(dir = %dir.display(), "handing the directory over to another process");
        agent.stop.cancel();
        agent.ended.cancelled().await;
        if let Err(error) = flush_aside(&data).await {
            // Tried once more below, where it decides.
            tracing::warn!(%error, "a flush before the hand-over failed: {error}");
        }
        loop {
            match data.call(Core::hand_over).await {
                Ok(Ok(HandedOver::NotYet)) => tokio::time::sleep(LOOK_EVERY).await,
                Ok(Ok(HandedOver::Done)) => return drop(stream.write_all(DONE).await),
                Ok(Err(error)) => {
                    return tracing::error!(%error, "the directory is not handed over");
                }
                Err(_) => return,
            }
        }
    }
}

/// Brings to disk what there is, while the engine is still served: what is left for the hand-over itself,
/// when nobody is served, is little.
async fn flush_aside(data: &Handle) -> Result<(), CoreError> {
    let Ok(begun) = data.call(Core::begin_last_flush).await else { return Ok(()) };
    let Some(flush) = begun? else { return Ok(()) };
    let Ok(flushed) = run_aside(flush).await else { return Ok(()) };
    data.call(|core| core.end_last_flush(flushed)).await.unwrap_or(Ok(()))
}

fn listen(dir: &Path) -> io::Result<tokio::net::UnixListener> {
    let listener = UnixListener::bind_addr(&socket_of(dir)?)?;
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}
