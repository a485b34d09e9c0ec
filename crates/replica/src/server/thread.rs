//! The data thread: one operating system thread that owns the replica and serves every data
//! connection, so that an operation hops to no other thread on its way to the file. The control
//! side sends it closures.

use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};
use tokio_util::sync::CancellationToken;

use crate::disk::{Options, Replica};
use crate::server::connection;
use crate::server::core::{Core, Shared, start_due_flush};
use crate::server::flushes::Waiter;
use crate::server::listen;

/// Calls from the control side that may wait for the data thread.
const CALLS_MAX: usize = 64;
/// Flushes run one at a time; the rest is for what tokio does with files and names.
const SYNC_THREADS: usize = 4;
/// Engines open two; the rest is for those that come while others go, and for attempts.
const CONNECTIONS_MAX: u32 = 64;
/// After a failed accept, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Job = Box<dyn FnOnce(&Shared) + Send>;

/// The data thread as the control side sees it.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    jobs: mpsc::Sender<Job>,
}

/// Where data connections come in.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The data thread is gone; so will this process be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the data thread has ended")]
pub(crate) struct Gone;

impl Handle {
    /// Runs `work` on the data thread, between two batches of frames.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let (tell, told) = oneshot::channel();
        let job: Job = Box::new(move |shared: &Shared| {
            let result = work(&mut shared.borrow_mut());
            // The caller may have gone; the work is done all the same.
            let _ = tell.send(result);
        });
        self.jobs.send(job).await.map_err(|_| Gone)?;
        told.await.map_err(|_| Gone)
    }

    /// Waits until everything done so far is on disk, beside the I/O that goes on.
    pub(crate) async fn flush(&self) -> Result<Result<(), String>, Gone> {
        let (tell, told) = oneshot::channel();
        let job: Job = Box::new(move |shared: &Shared| {
            shared.borrow_mut().await_flush(Waiter::Call(tell));
            start_due_flush(shared);
        });
        self.jobs.send(job).await.map_err(|_| Gone)?;
        told.await.map_err(|_| Gone)
    }
}

/// Starts the thread. It ends when `stop` is cancelled; the receiver hears of any end, and of none
/// if the thread panicked.
pub(crate) fn start(
    dir: std::path::PathBuf,
    options: Options,
    configure: impl FnOnce(&mut Replica) + Send + 'static,
    stop: CancellationToken,
) -> io::Result<(Handle, mpsc::Sender<Listener>, oneshot::Receiver<io::Result<()>>)> {
    let (jobs, job_queue) = mpsc::channel(CALLS_MAX);
    let (listeners, listener_queue) = mpsc::channel(4);
    let (tell, told) = oneshot::channel();
    let connections = Arc::new(AtomicU32::new(0));
    let handle = Handle { jobs };
    std::thread::Builder::new().name("data".to_owned()).spawn(move || {
        let mut replica = Replica::new(dir, options);
        configure(&mut replica);
        let shared = Rc::new(RefCell::new(Core::new(replica)));
        let ended = serve(shared, job_queue, listener_queue, &connections, &stop);
        let _ = tell.send(ended);
    })?;
    Ok((handle, listeners, told))
}

fn serve(
    shared: Shared,
    jobs: mpsc::Receiver<Job>,
    listeners: mpsc::Receiver<Listener>,
    connections: &Arc<AtomicU32>,
    stop: &CancellationToken,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(SYNC_THREADS)
        .thread_name("sync")
        .build()?;
    let tasks = LocalSet::new();
    tasks.spawn_local(run_jobs(Rc::clone(&shared), jobs));
    tasks.spawn_local(count_seconds(Rc::clone(&shared)));
    tasks.spawn_local(take_listeners(shared, listeners, Arc::clone(connections)));
    tasks.block_on(&runtime, stop.cancelled());
    drop(tasks);
    // Nothing waits for a disk that hangs.
    runtime.shutdown_background();
    Ok(())
}

/// Seconds this thread was able to work in.
async fn count_seconds(shared: Shared) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        shared.borrow_mut().owner.tick();
    }
}

async fn run_jobs(shared: Shared, mut jobs: mpsc::Receiver<Job>) {
    while let Some(job) = jobs.recv().await {
        job(&shared);
    }
}

async fn take_listeners(
    shared: Shared,
    mut listeners: mpsc::Receiver<Listener>,
    connections: Arc<AtomicU32>,
) {
    while let Some(listener) = listeners.recv().await {
        let (shared, connections) = (Rc::clone(&shared), Arc::clone(&connections));
        spawn_local(async move {
            if let Err(error) = accept(listener, shared, connections).await {
                tracing::error!(%error, "cannot listen for data");
            }
        });
    }
}

async fn accept(listener: Listener, shared: Shared, connections: Arc<AtomicU32>) -> io::Result<()> {
    match listener {
        Listener::Tcp(listener) => {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        // Without it small replies would wait for acknowledgements.
                        let _ = stream.set_nodelay(true);
                        listen::keep_alive(&stream);
                        spawn_connection(stream, peer.to_string(), &shared, &connections);
                    }
                    Err(error) => pause(&error).await,
                }
            }
        }
        Listener::Unix(listener) => {
            let listener = tokio::net::UnixListener::from_std(listener)?;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        spawn_connection(stream, "local".to_owned(), &shared, &connections);
                    }
                    Err(error) => pause(&error).await,
                }
            }
        }
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a data connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Counts a connection for as long as it lives.
struct Counted(Arc<AtomicU32>);

impl Counted {
    fn new(connections: &Arc<AtomicU32>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn spawn_connection<S>(stream: S, peer: String, shared: &Shared, connections: &Arc<AtomicU32>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    if connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
        return tracing::warn!(peer, "refused: there are too many data connections");
    }
    let counted = Counted::new(connections);
    let shared = Rc::clone(shared);
    spawn_local(async move {
        let _counted = counted;
        tracing::info!(peer, "data connection began");
        match connection::serve(stream, shared).await {
            Ok(()) => tracing::info!(peer, "data connection ended"),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(peer, %error, cause, "data connection ended");
            }
        }
    });
}
