//! `holdfast node`: this machine as a node of any cluster. In `holdfast up` the same runs beside the
//! API server.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use reconcile::{Context, Metrics};
use tasks::Tasks;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use volumes::instances::{Instances, Options, Processes};

use crate::cli;
use crate::config::{self, Config, NbdTls, Settings};
use crate::controllers::{self, Identity};
use crate::health::{self, Health};
use ::cli::output;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than it takes to see that another machine of the same name lives.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(6);

/// Under whom a node acts beside the embedded server.
pub(crate) const IDENTITY: Identity = Identity { name: "node", grants: volumes::node::GRANTS };

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    health: health::Args,
    /// The cluster to work for; without it, the usual places: $KUBECONFIG, ~/.kube/config, or the
    /// service account of a pod.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long)]
    context: Option<String>,
    /// What this machine is called, as --node-name.
    #[arg(long, value_name = "NAME", conflicts_with = "node_name")]
    name: Option<String>,
    /// Where engines and replicas listen, as --node-address.
    #[arg(long, value_name = "IP", conflicts_with = "node_address")]
    address: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = args.settings.clone().with_node(args.name.clone(), args.address.clone());
    let config = cli::resolve(&settings)?;
    let runtime = cli::runtime()?;
    let ended = runtime.block_on(async {
        let _guard = cli::telemetry(&config)?;
        serve(args, &config).await
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn serve(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let _lock = crate::home::hold(&config.data_dir).await?;
    let client = controllers::connect(args.kubeconfig.as_ref(), args.context.as_deref()).await?;
    let tasks = Tasks::new();
    let health = Health::start(&args.health, &tasks).await?;
    let mut registry = telemetry::Registry::new("holdfast");
    let metrics = Metrics::new(&mut registry, &[]);
    let place = Place::of(config, Ipv4Addr::LOCALHOST.into());
    let here = start(client, &place, &tasks, metrics).await?;
    health.ready(registry);
    output::say(&format!(
        "Holdfast node {} at {}, data in {}",
        place.name,
        place.address,
        config.data_dir.display()
    ))?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping");
    let stop = async {
        here.leave().await;
        if let Err(late) = tasks.stop(TIMEOUT).await {
            tracing::warn!(%late, "some work did not end in time");
        }
    };
    tokio::select! {
        () = stop => Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => Ok(ExitCode::FAILURE),
        _ = terminate.recv() => Ok(ExitCode::FAILURE),
    }
}

/// What a node is called and where it is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    name: String,
    address: IpAddr,
    data_dir: PathBuf,
    engine_arguments: Vec<String>,
    otlp_endpoint: Option<String>,
}

impl Place {
    /// `usual` is its address unless another was given.
    pub(crate) fn of(config: &Config, usual: IpAddr) -> Self {
        let usual = if usual.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { usual };
        Self {
            name: config.node_name.clone(),
            address: config.node_address.unwrap_or(usual),
            data_dir: config.data_dir.clone(),
            engine_arguments: config.nbd_tls.as_ref().map_or_else(Vec::new, NbdTls::arguments),
            otlp_endpoint: config.otlp_endpoint.clone(),
        }
    }

    /// What engines and replicas find in their environment: traces go on in them.
    fn environment(&self) -> Vec<(String, String)> {
        let told = |endpoint: &String| (config::variable("otlp-endpoint"), endpoint.clone());
        self.otlp_endpoint.iter().map(told).collect()
    }
}

/// A node that runs in this process.
pub(crate) struct Here {
    client: Client,
    options: volumes::node::Options,
    host: Arc<Processes>,
}

impl Here {
    /// Ends its processes, and says that it left.
    pub(crate) async fn leave(self) {
        volumes::node::leave(self.client, &self.options, self.host.as_ref()).await;
    }
}

/// Finds what an earlier process left, and begins.
pub(crate) async fn start(
    client: Client,
    place: &Place,
    tasks: &Tasks,
    metrics: Metrics,
) -> anyhow::Result<Here> {
    // Absolute: objects and records name paths below it, and others read them.
    let data_dir =
        std::path::absolute(&place.data_dir).context("cannot find the data directory")?;
    let host = Processes::open(
        Options {
            root: data_dir.join("instances"),
            address: place.address,
            ports: Options::PORTS,
            program: program()?,
            engine_arguments: place.engine_arguments.clone(),
            environment: place.environment(),
            max: Options::MAX,
            timeout: Options::TIMEOUT,
        },
        tasks,
    );
    let host = Arc::new(host.await.context("cannot look after engines and replicas")?);
    let options = volumes::node::Options {
        name: place.name.clone(),
        machine: volumes::node::machine(&data_dir).context("cannot tell which machine this is")?,
        disk: data_dir.join("disk"),
        programs: data_dir.join("engine-binaries"),
    };
    let context = Context::new("node", client.clone(), tasks, metrics);
    let scope = context.tasks.clone();
    let instances: Arc<dyn Instances> = host.clone();
    let (refused, told) = oneshot::channel();
    scope.spawn("run", volumes::node::run(context, options.clone(), instances, refused));
    // Whoever is not refused by then is not, or the API server is away and it is told in the log.
    if let Ok(Ok(taken)) = tokio::time::timeout(CLAIM_TIMEOUT, told).await {
        return Err(taken.into());
    }
    Ok(Here { client, options, host })
}

/// This program, also after its file was replaced by a newer one.
fn program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    Ok(if own.is_file() { own } else { Path::new("/proc/self/exe").to_owned() })
}
