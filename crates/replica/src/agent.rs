//! The sync agent: the long file work beside a replica.
//!
//! Owns: receiving and sending image files, pulling the files of a rebuild, purging, hashing,
//! cloning, backups and their restore, and where each of these stands. Never: the replica's metadata
//! or its open volume; those it
//! changes only through the replica's own verbs, which `own` calls here or over gRPC.
//!
//! Start at [`run`], then `service` for the verbs. One module a trade: `sync` (files between
//! replicas, rebuilds among them), `purge`, `hashing`, `cloning`, `backup`, `restore` (also with others
//! that restore the same). They share `status` (which may run beside which), `names` and `error`.

mod backup;
mod cloning;
mod error;
mod hashing;
mod names;
mod own;
mod purge;
mod restore;
mod service;
mod status;
mod sync;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rpc::fanout::fan_out_server::FanOutServer;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::ptypes::sync_agent_service_server::SyncAgentServiceServer;
use rpc::upkeep::FilledRequest;
use rpc::{Address, Deadline, Identity, Party, Peer};
use tasks::{CancellationToken, Tasks};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::Request;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use wire::membership::{Claim, Standing};

use self::backup::Backups;
pub use self::error::AgentError;
use self::error::{Asking, JobError};
use self::hashing::{HashJobs, HashLock};
pub(crate) use self::own::Own;
use self::own::{OwnReplica, OwnUpkeep};
use self::restore::{Current, FanOutService, Restores};
use self::service::Service;
use self::status::Statuses;
use self::sync::Ports;
use self::sync::receiver::Receivers;

/// How long jobs may take to notice that the agent ends.
const DRAIN: Duration = Duration::from_secs(10);
/// Memory for the map of sectors of a view of a snapshot.
const INDEX_BYTES: usize = 16 << 20;
/// Where the files of the node are seen: in a container, and outside of one.
const HOST_ROOTS: [&str; 2] = ["/host", "/"];

/// The flags of `sync-agent`.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The replica's directory.
    pub dir: PathBuf,
    pub volume_name: String,
    pub instance_name: String,
    pub listen: String,
    /// Control address of the replica this agent belongs to.
    pub replica: String,
    /// Ports for file receivers.
    pub ports: RangeInclusive<u16>,
}

impl AgentOptions {
    fn identity(&self) -> Identity {
        Identity { volume: self.volume_name.clone(), instance: self.instance_name.clone() }
    }
}

/// Serves until `shutdown`, then ends every job at its next step.
pub fn run(
    options: AgentOptions,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), AgentError>> {
    // What a future does is compiled by whoever polls it: unboxed, that would be the caller.
    Box::pin(async move {
        let listener = listen(&options.listen).await?;
        let address = options.replica.parse().map_err(AgentError::Replica)?;
        let own = Own::There { address, identity: options.identity() };
        serve(listener, options, own, shutdown).await
    })
}

/// [`run`] on a socket that listens already, for a replica wherever it is.
pub(crate) async fn serve(
    listener: TcpListener,
    options: AgentOptions,
    own: Own,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    let tasks = Tasks::new();
    let agent = Arc::new(Agent::new(options, own, tasks.clone())?);
    let identity = agent.identity.clone();
    let checked = move |request: Request<()>| {
        identity.check(request.metadata(), Party::Replica)?;
        Ok(request)
    };
    let fan_out = FanOutService::new(Arc::clone(&agent));
    let fan_out = FanOutServer::with_interceptor(fan_out, checked.clone());
    let service = SyncAgentServiceServer::with_interceptor(Service(Arc::clone(&agent)), checked);
    let routes = rpc::common().map_err(|error| AgentError::Routes(error.into()))?;
    tracing::info!(replica = %agent.replica, dir = %agent.dir.display(), "the sync agent is up");
    // Answers of several parts are not to wait for each other.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let serving = Server::builder()
        .trace_fn(rpc::call_span)
        .add_routes(routes.add_service(service).add_service(fan_out))
        .serve_with_incoming_shutdown(incoming, async {
            shutdown.cancelled().await;
            // Calls that wait for a job end with it.
            tasks.begin_stop();
        });
    let outcome = serving.await.map_err(AgentError::Serve);
    tasks.stop(DRAIN).await.map_err(AgentError::Drain)?;
    outcome
}

/// A host that is left out means every address; of a name with several, an IPv4 one is preferred.
async fn listen(address: &str) -> Result<TcpListener, AgentError> {
    let failed = |source| AgentError::Listen { address: address.to_owned(), source };
    let whole =
        if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.to_owned() };
    let mut found: Vec<_> = tokio::net::lookup_host(whole).await.map_err(failed)?.collect();
    found.sort_by_key(std::net::SocketAddr::is_ipv6);
    TcpListener::bind(found.as_slice()).await.map_err(failed)
}

/// What all verbs share.
#[derive(Debug)]
pub(crate) struct Agent {
    dir: PathBuf,
    own: Own,
    /// As it is called in messages.
    replica: Address,
    identity: Identity,
    statuses: Arc<Statuses>,
    hashes: HashJobs,
    backups: Arc<Backups>,
    restores: Arc<Restores>,
    fan_out: Current,
    hash_lock: HashLock,
    ports: Ports,
    receivers: Receivers,
    tasks: Tasks,
}

impl Agent {
    fn new(options: AgentOptions, own: Own, tasks: Tasks) -> Result<Self, AgentError> {
        let replica = options.replica.parse().map_err(AgentError::Replica)?;
        Ok(Self {
            restores: Arc::new(Restores::open(&options.dir)),
            identity: options.identity(),
            dir: options.dir,
            own,
            replica,
            hash_lock: HashLock::of_this_node(),
            statuses: Arc::default(),
            hashes: HashJobs::default(),
            backups: Arc::default(),
            fan_out: Current::default(),
            ports: Ports::new(options.ports),
            receivers: Receivers::default(),
            tasks,
        })
    }

    /// The replica beside this agent.
    fn own_replica(&self, deadline: Deadline) -> Result<OwnReplica, JobError> {
        self.own.replica(deadline)
    }

    fn own_upkeep(&self, deadline: Deadline) -> Result<OwnUpkeep, JobError> {
        self.own.upkeep(deadline)
    }

    /// Whether the engine that asks has the replica: who calls without a claim is no engine that could
    /// have lost it.
    async fn check_claim(&self, asks: Option<&Claim>) -> Result<(), JobError> {
        let Some(claim) = asks else { return Ok(()) };
        let Some(standing) = self.standing().await? else { return Ok(()) };
        standing.permits(claim).map_err(|refused| JobError::Refused(refused.to_string()))
    }

    /// What the replica keeps of its engines, if it is of a kind that does.
    async fn standing(&self) -> Result<Option<Standing>, JobError> {
        let asked = self.own_replica(Deadline::Usual)?.replica_get(()).await;
        let replica = asked.asking("ask", &self.replica)?.replica.ok_or(JobError::NoReplica)?;
        Ok(serde_json::from_str(&replica.holdfast_standing).ok())
    }

    /// For what the replica is being filled now, to be handed to [`Self::tell_filled`]; `None`: it is
    /// of a kind that does not say.
    async fn adoption(&self) -> Result<Option<u64>, JobError> {
        Ok(self.standing().await?.map(|standing| standing.adoption))
    }

    /// Lets the replica know that it has all it was to be filled with: no engine lets it be read
    /// from before.
    async fn tell_filled(&self, adoption: Option<u64>) -> Result<(), JobError> {
        let Some(adoption) = adoption else { return Ok(()) };
        let told = self.own_upkeep(Deadline::Usual)?.filled(FilledRequest { adoption }).await;
        told.asking("tell that it is filled", &self.replica).map(drop)
    }

    /// Runs a job that goes on when the caller who waits for it hangs up.
    async fn detached<T, F>(&self, name: &str, work: F) -> Result<T, JobError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.tasks.spawn(name, async move {
            // A caller that hung up reads the status instead.
            let _ = answer.send(work.await);
        });
        answered.await.map_err(|_| JobError::Stopped)
    }
}

/// The agent beside the replica at this control address.
fn agent_of(
    replica: &str,
    volume: &str,
    deadline: Deadline,
) -> Result<SyncAgentServiceClient<Peer>, JobError> {
    let address: Address = replica.parse().map_err(JobError::Address)?;
    let expected = Identity { volume: volume.to_owned(), instance: String::new() };
    Ok(SyncAgentServiceClient::new(dial(&address.sync_agent(), expected, deadline)?))
}

fn dial(address: &Address, expected: Identity, deadline: Deadline) -> Result<Peer, JobError> {
    rpc::connect(address, expected, deadline)
        .map_err(|source| JobError::Dial { peer: address.to_string(), source })
}

/// RFC 3339 in seconds, as the metadata files have it.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
