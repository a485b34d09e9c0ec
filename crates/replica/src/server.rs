//! The replica process: control server (gRPC), data server (frames), and the sync agent beside.
//!
//! Owns: the listeners, which thread does what, the end of the process. Never: what is on disk.
//! One thread owns the replica and does all I/O on it (`thread`, `connection`, `execute`); the
//! control side (`service`, `upkeep`) sends it closures.

mod connection;
mod core;
mod execute;
mod flushes;
mod handover;
mod late;
mod listen;
mod message;
mod outgoing;
mod owner;
mod service;
mod thread;
mod upkeep;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use durable::LockError;
use futures::future::BoxFuture;
use rpc::ptypes::replica_service_server::ReplicaServiceServer;
use rpc::upkeep::upkeep_server::UpkeepServer;
use rpc::{Address, Features, Health, Identity, Party, Watching};
use tasks::Tasks;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;

use crate::agent::{self, AgentError, AgentOptions, Own};
use crate::disk::{CounterPolicy, Options};
use crate::server::core::CoreError;
pub use crate::server::listen::data_socket_file;
pub(crate) use crate::server::service::Service;
use crate::server::thread::{Handle, Listener};
pub(crate) use crate::server::upkeep::UpkeepService;

/// How long background work may take to end when the server is stopped.
const TIMEOUT: Duration = Duration::from_secs(5);
const CONTROL_PATH_VARIABLE: &str = "LONGHORN_CONTROL_PATH";

/// The flags of `replica`.
#[allow(clippy::struct_excessive_bools, reason = "one for each flag of the dialect")]
#[derive(Debug, Clone)]
pub struct ReplicaOptions {
    pub dir: PathBuf,
    /// The global `--volume-name`; empty: not checked.
    pub volume_name: String,
    pub instance_name: String,
    /// `host:port` of the control server; data is served at the next port, the agent at the one
    /// after that.
    pub listen: String,
    pub backing_file: Option<PathBuf>,
    /// Given: the directory and its head are made before listening, if there is none yet.
    pub size_bytes: Option<i64>,
    pub sync_agent: bool,
    pub sync_agent_port_count: u16,
    pub revision_counter: bool,
    /// Data on a unix socket instead of the port.
    pub data_unix: bool,
    pub unmap_mark_disk_chain_removed: bool,
    pub snapshot_max_count: i32,
    pub snapshot_max_size: i64,
    pub encrypted: bool,
}

/// Why the replica process ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Address(#[from] rpc::AddressError),
    #[error("cannot listen at {address}")]
    Listen { address: String, source: io::Error },
    #[error("cannot use the backing file {}", path.display())]
    BackingFile { path: PathBuf, source: io::Error },
    #[error("directory {} holds {found} files; a backing file directory holds exactly one", path.display())]
    BackingDirectory { path: PathBuf, found: usize },
    #[error("cannot create the replica: {}", .0.text())]
    Create(crate::disk::Error),
    #[error("cannot use the directory of the replica: {0}")]
    Directory(String),
    #[error("cannot start the data thread")]
    Start(#[source] io::Error),
    #[error("the data thread ended: {0}")]
    Data(String),
    #[error("cannot describe the gRPC services")]
    Describe(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the control server ended")]
    Control(#[from] tonic::transport::Error),
    #[error("the sync agent failed")]
    Agent(#[from] AgentError),
    #[error("the sync agent ended")]
    AgentEnded,
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}

/// Serves until SIGINT or SIGTERM, then returns at once; files are not marked clean, as nothing is
/// closed that an engine may still be using.
pub fn run(options: ReplicaOptions) -> BoxFuture<'static, Result<(), ServerError>> {
    // What a future does is compiled by whoever polls it: unboxed, that would be the caller.
    Box::pin(run_until_told(options))
}

async fn run_until_told(options: ReplicaOptions) -> Result<(), ServerError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signals)?;
    let stop = CancellationToken::new();
    tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        ended = serve(options, stop.clone()) => ended,
    }
}

/// [`run`] without signals: serves until `stop` is cancelled, and returns when all of it has ended.
pub async fn serve(options: ReplicaOptions, stop: CancellationToken) -> Result<(), ServerError> {
    let control: Address = listening(&options.listen).parse()?;
    let backing_file = options.backing_file.as_deref().map(find_backing_file).transpose()?;
    // Whichever way this returns, the data thread ends too.
    let _guard = stop.clone().drop_guard();
    let (data, listeners, mut ended) = start_data_thread(&options, backing_file, &stop)?;
    let held = use_directory(&options, &data).await?;
    let control_listener = bind(&control)?;
    let features = listen_for_data(&options, &control, &listeners).await?;
    let tasks = Tasks::new();
    let handing = handover::Agent::default();
    let handover = handover::serve(options.dir.clone(), data.clone(), handing.clone());
    tasks.spawn("handover", handover);
    let replica =
        Service { data: data.clone(), features, revision_counter: options.revision_counter };
    let upkeep = UpkeepService { data, tasks: tasks.clone() };
    let own = Own::Here { replica: replica.clone(), upkeep: upkeep.clone() };
    let server = control_server(&options, control_listener, (replica, upkeep), &stop)?;
    let agent = sync_agent(&options, &control, own, &stop, handing)?;
    let (dir, volume) = (options.dir.display(), &options.volume_name);
    match held {
        Ok(()) => tracing::info!(%dir, %control, volume, "serving"),
        // Not an end: this is how a live upgrade begins.
        Err(why) => tracing::warn!(
            %dir, %control, volume,
            "not serving yet: {why}; until that process ends, only a live upgrade takes it over"
        ),
    }
    let outcome = tokio::select! {
        outcome = server => outcome.map_err(ServerError::from),
        outcome = agent => outcome,
        thread = &mut ended => Err(data_thread_ended(thread)),
    };
    let stopped = stop.is_cancelled();
    stop.cancel();
    if !ended.is_terminated() {
        // The files are let go of, unless a disk hangs.
        let _ = tokio::time::timeout(TIMEOUT, ended).await;
    }
    if let Err(error) = tasks.stop(TIMEOUT).await {
        tracing::warn!(%error, "background work did not end");
    }
    if stopped { Ok(()) } else { outcome }
}

/// Locks the directory and makes the volume in it, if there is none yet. The inner error: another
/// process serves the directory.
async fn use_directory(
    options: &ReplicaOptions,
    data: &Handle,
) -> Result<Result<(), LockError>, ServerError> {
    let size = options.size_bytes;
    let used = data.call(move |core| match size {
        Some(size) => core.create(size, &service::now()),
        None => core.hold_directory(),
    });
    match used.await.map_err(|gone| ServerError::Data(gone.to_string()))? {
        Ok(()) => Ok(Ok(())),
        Err(CoreError::Lock(held @ LockError::Held { .. })) => Ok(Err(held)),
        Err(CoreError::Disk(error)) => Err(ServerError::Create(error)),
        Err(error @ (CoreError::Lock(_) | CoreError::Owner(_) | CoreError::Handover(_))) => {
            Err(ServerError::Directory(error.to_string()))
        }
    }
}

/// A host that is left out means every address.
fn listening(listen: &str) -> String {
    if listen.starts_with(':') { format!("0.0.0.0{listen}") } else { listen.to_owned() }
}

fn bind(address: &Address) -> Result<std::net::TcpListener, ServerError> {
    let failed = |source| ServerError::Listen { address: address.to_string(), source };
    listen::bind(address).map_err(failed)
}

/// The file itself, or the only one in a directory.
fn find_backing_file(path: &Path) -> Result<PathBuf, ServerError> {
    let failed = |source| ServerError::BackingFile { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(path.to_owned());
    }
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    match files.as_slice() {
        [only] => Ok(only.clone()),
        _ => Err(ServerError::BackingDirectory { path: path.to_owned(), found: files.len() }),
    }
}

type Ended = oneshot::Receiver<io::Result<()>>;

fn start_data_thread(
    options: &ReplicaOptions,
    backing_file: Option<PathBuf>,
    stop: &CancellationToken,
) -> Result<(Handle, mpsc::Sender<Listener>, Ended), ServerError> {
    let disk = Options {
        backing_file,
        revision_counter: options.revision_counter,
        counter_policy: CounterPolicy::OnSettle,
        encrypted: options.encrypted,
        size_bytes: options.size_bytes.unwrap_or(0),
        ..Options::default()
    };
    let (mark, count, size) = (
        options.unmap_mark_disk_chain_removed,
        options.snapshot_max_count,
        options.snapshot_max_size,
    );
    let configure = move |replica: &mut crate::disk::Replica| {
        replica.unmap_mark_removed = mark;
        replica.snapshot_max_count = count;
        replica.snapshot_max_size_bytes = size;
    };
    thread::start(options.dir.clone(), disk, configure, stop.clone()).map_err(ServerError::Start)
}

fn data_thread_ended(ended: Result<io::Result<()>, oneshot::error::RecvError>) -> ServerError {
    ServerError::Data(match ended {
        Ok(Ok(())) => "it was stopped".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it broke down".to_owned(),
    })
}

/// Binds where data comes in; says what that and this build make possible.
async fn listen_for_data(
    options: &ReplicaOptions,
    control: &Address,
    listeners: &mpsc::Sender<Listener>,
) -> Result<Features, ServerError> {
    let mut features = Features::FLUSH
        | Features::ZERO
        | Features::STATUS
        | Features::ORDERED
        | Features::UPKEEP
        | Features::DISCARD
        | Features::MEMBERSHIP
        | Features::PARTIAL;
    if options.sync_agent {
        features |= Features::AGENT;
    }
    let mut found = Vec::new();
    if options.data_unix {
        let control_path = std::env::var(CONTROL_PATH_VARIABLE).ok();
        let path = data_socket_file(control_path.as_deref(), &options.volume_name);
        let failed = |source| ServerError::Listen { address: path.display().to_string(), source };
        found.push(Listener::Unix(listen::bind_file(&path).map_err(failed)?));
    } else {
        let tcp = bind(&control.data())?;
        if listen::is_local(&tcp) {
            match listen::bind_local(control.data().port()) {
                Ok(local) => {
                    found.push(Listener::Unix(local));
                    features |= Features::LOCAL;
                }
                // Engines then use the port.
                Err(error) => tracing::warn!(%error, "no local data socket"),
            }
        }
        found.push(Listener::Tcp(tcp));
    }
    for listener in found {
        let sent = listeners.send(listener).await;
        sent.map_err(|_| ServerError::Data("it ended early".to_owned()))?;
    }
    Ok(features)
}

/// The agent runs in this process: it needs no memory of its own, and cannot be left behind. If it
/// ends, so does the process, as callers rely on both or neither.
fn sync_agent(
    options: &ReplicaOptions,
    control: &Address,
    own: Own,
    stop: &CancellationToken,
    handing: handover::Agent,
) -> Result<impl Future<Output = Result<(), ServerError>> + use<>, ServerError> {
    let address = control.sync_agent();
    let listener = if options.sync_agent { Some(bind(&address)?) } else { None };
    let first = address.port().saturating_add(1);
    let last = address.port().saturating_add(options.sync_agent_port_count);
    let agent = AgentOptions {
        dir: options.dir.clone(),
        volume_name: options.volume_name.clone(),
        instance_name: options.instance_name.clone(),
        listen: address.to_string(),
        replica: control.to_string(),
        ports: first..=last,
    };
    let stop = stop.clone();
    Ok(async move {
        // However this ends, nobody waits for the agent any more.
        let _ended = handing.ended.clone().drop_guard();
        let Some(listener) = listener else {
            handing.ended.cancel();
            return std::future::pending().await;
        };
        let failed = |source| ServerError::Listen { address: agent.listen.clone(), source };
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        let end = CancellationToken::new();
        let serving = agent::serve(listener, agent, own, end.clone());
        tokio::pin!(serving);
        let served = tokio::select! {
            served = &mut serving => Some(served),
            () = stop.cancelled() => None,
            () = handing.stop.cancelled() => None,
        };
        end.cancel();
        match served {
            Some(served) => served?,
            None => serving.await?,
        }
        if handing.stop.is_cancelled() {
            // The process stays, for whoever looks after it to end.
            handing.ended.cancel();
            return std::future::pending().await;
        }
        Err(ServerError::AgentEnded)
    })
}

fn control_server(
    options: &ReplicaOptions,
    listener: std::net::TcpListener,
    (replica, upkeep): (Service, UpkeepService),
    stop: &CancellationToken,
) -> Result<impl Future<Output = Result<(), tonic::transport::Error>> + use<>, ServerError> {
    let identity =
        Identity { volume: options.volume_name.clone(), instance: options.instance_name.clone() };
    #[allow(clippy::result_large_err, reason = "tonic's own error type")]
    let check = move |request: tonic::Request<()>| {
        identity.check(request.metadata(), Party::Replica)?;
        Ok(request)
    };
    let routes = rpc::common()
        .map_err(|error| ServerError::Describe(error.into()))?
        .add_service(Health::service(Watching::Once))
        .add_service(ReplicaServiceServer::with_interceptor(replica, check.clone()))
        .add_service(UpkeepServer::with_interceptor(upkeep, check));
    let failed = |source| ServerError::Listen { address: options.listen.clone(), source };
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let stop = stop.clone().cancelled_owned();
    Ok(tonic::transport::Server::builder()
        .trace_fn(rpc::call_span)
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, stop))
}
