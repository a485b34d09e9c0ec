//! `holdfast block-api`: the Block Storage API as a process of its own, and what operators do to its
//! database. In `holdfast up` the same service runs beside the API server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::auth::controller::{Controller as Identity, Grant};
use blockapi::auth::{Keystone, KeystoneOptions};
use blockapi::cli::{DbCommand, UpgradeCommand};
use blockapi::{Behaviour, BlockApi, Figures, Glance, NoAuth, Options, Resources};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli;
use crate::config::{Config, Settings};
use crate::controllers::{connect, host_name};
use crate::health::{self, Health};
use ::cli::output;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Copies of a volume whose type does not say.
const REPLICAS: i32 = 2;
/// The same in `up`: on one machine a second copy takes room and protects from little.
const REPLICAS_HERE: i32 = 1;

/// Under whom the service acts beside the embedded server.
pub(crate) const IDENTITY: Identity = Identity {
    name: "block-storage",
    grants: &[
        Grant {
            groups: &["longhorn.io"],
            resources: &["volumes", "snapshots", "backups", "volumeattachments"],
            verbs: &["get", "list", "create", "patch", "delete"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["engines", "nodes", "backupvolumes"],
            verbs: &["get", "list"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["backuptargets"],
            verbs: &["get", "create"],
        },
    ],
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    health: health::Args,
    /// Where the rows are: `sqlite:PATH` or `postgres://…`; without it, a file in the data directory.
    #[arg(
        long,
        value_name = "URL",
        global = true,
        env = "HOLDFAST_DATABASE_URL",
        hide_env_values = true
    )]
    database_url: Option<String>,
    /// The cluster whose volumes are served; without it, the usual places.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long)]
    context: Option<String>,
    /// The identity service, as in <http://127.0.0.1:5000/v3>; without it every caller is an
    /// administrator, on loopback only.
    #[arg(long, value_name = "URL", env = "OS_AUTH_URL")]
    auth_url: Option<String>,
    /// As whom tokens are validated; the password comes from `OS_PASSWORD`.
    #[arg(long, default_value = "cinder", env = "OS_USERNAME")]
    auth_user: String,
    #[arg(long, env = "OS_PASSWORD", hide = true, hide_env_values = true, default_value = "")]
    auth_password: String,
    /// The project of that user.
    #[arg(long, default_value = "service", env = "OS_PROJECT_NAME")]
    auth_project: String,
    /// The domain of that user and project.
    #[arg(long, default_value = "Default")]
    auth_domain: String,
    /// In place of the address clients used, in links.
    #[arg(long, value_name = "URL")]
    public_endpoint: Option<String>,
    /// The image service, as in <http://127.0.0.1:9292>: volumes can then be made from its raw images,
    /// and images from volumes.
    #[arg(long, value_name = "URL")]
    glance_url: Option<String>,
    /// The availability zone.
    #[arg(long, default_value = "nova")]
    zone: String,
    /// Serve only; other processes work on the rows.
    #[arg(long)]
    no_worker: bool,
    /// Requests below 3.72 find a volume blocked by its backup, as they did before.
    #[arg(long)]
    legacy_backup_serialization: bool,
    /// Requests below 3.72 do not see that a backup failed.
    #[arg(long)]
    legacy_hide_backup_error: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Command {
    /// Look after the database.
    #[command(subcommand)]
    Db(DbCommand),
    /// Look whether an upgrade is complete.
    #[command(subcommand)]
    Upgrade(UpgradeCommand),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = cli::resolve(&args.settings)?;
    let runtime = cli::runtime()?;
    runtime.block_on(async {
        let _guard = cli::telemetry(&config)?;
        let database = args.database_url.clone().unwrap_or_else(|| database(&config));
        let mut out = Vec::new();
        let code = match &args.command {
            None => return serve(args, &config, database).await,
            Some(Command::Db(command)) => blockapi::cli::db(&database, command, &mut out).await?,
            Some(Command::Upgrade(UpgradeCommand::Check)) => {
                blockapi::cli::check(&database, &mut out).await?
            }
        };
        output::say(String::from_utf8_lossy(&out).trim_end())?;
        Ok(ExitCode::from(code))
    })
}

/// Where rows are unless told otherwise.
fn database(config: &Config) -> String {
    format!("sqlite:{}", config.data_dir.join("block.db").display())
}

fn behaviour(zone: &str) -> Behaviour {
    Behaviour {
        zone: zone.to_owned(),
        host: format!("{}@holdfast#holdfast", host_name()),
        ..Behaviour::default()
    }
}

async fn serve(args: &Args, config: &Config, database: String) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let client = connect(args.kubeconfig.as_ref(), args.context.as_deref()).await?;
    let identity: Arc<dyn blockapi::Identity> = match &args.auth_url {
        None => Arc::new(NoAuth),
        Some(url) => Arc::new(Keystone::new(KeystoneOptions {
            url: url.clone(),
            user: args.auth_user.clone(),
            password: args.auth_password.clone(),
            project: args.auth_project.clone(),
            user_domain: args.auth_domain.clone(),
            project_domain: args.auth_domain.clone(),
        })?),
    };
    let mut metrics = telemetry::Registry::new("holdfast");
    let options = Options {
        database,
        listen: config.block_listen.unwrap_or_else(|| ([127, 0, 0, 1], 8776).into()),
        behaviour: Behaviour {
            public_endpoint: args.public_endpoint.clone(),
            legacy_backup_serialization: args.legacy_backup_serialization,
            legacy_hide_backup_error: args.legacy_hide_backup_error,
            ..behaviour(&args.zone)
        },
        identity,
        images: args.glance_url.as_deref().map(Glance::new).transpose()?,
        migrate: false,
        work: !args.no_worker,
        figures: Figures::new(&mut metrics),
    };
    let tasks = tasks::Tasks::new();
    let health = Health::start(&args.health, &tasks).await?;
    let backend = Arc::new(with_authority(Resources::new(client, REPLICAS), config)?);
    let api = BlockApi::start(options, backend, &tasks).await?;
    health.ready(metrics);
    output::say(&format!("Block Storage API  http://{}/v3", api.address()))?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    if let Err(late) = tasks.stop(TIMEOUT).await {
        tracing::warn!(%late, "some work did not end in time");
    }
    api.close().await;
    Ok(ExitCode::SUCCESS)
}

/// With what clients believe volumes by that are reached inside TLS.
fn with_authority(backend: Resources, config: &Config) -> anyhow::Result<Resources> {
    let Some(file) = &config.nbd_ca_file else { return Ok(backend) };
    let pem = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the certificate authority {}", file.display()))?;
    Ok(backend.with_authority(pem))
}

/// The service beside the embedded API server. One that cannot start does not keep the rest from
/// running, be it for a port that is taken or a disk that is full: it is told, with what to do.
pub(crate) async fn beside(
    config: &Config,
    client: kube::Client,
    figures: Figures,
    tasks: &tasks::Tasks,
) -> Beside {
    let Some(listen) = config.block_listen else { return Beside::Off };
    match begin(config, listen, (client, figures), tasks).await {
        Ok(api) => Beside::Serves(api),
        Err(error) => {
            tracing::warn!(%listen, error = format!("{error:#}"), "the Block Storage API is not served");
            let taken = error.downcast_ref::<blockapi::StartError>();
            match taken {
                Some(blockapi::StartError::Listen { address, .. }) => Beside::Blocked(*address),
                Some(blockapi::StartError::Db(_) | blockapi::StartError::Open(_)) | None => {
                    Beside::Failed(error.to_string())
                }
            }
        }
    }
}

async fn begin(
    config: &Config,
    listen: SocketAddr,
    (client, figures): (kube::Client, Figures),
    tasks: &tasks::Tasks,
) -> anyhow::Result<BlockApi> {
    let options = Options {
        database: config.database_url.clone().unwrap_or_else(|| database(config)),
        listen,
        behaviour: behaviour("nova"),
        identity: Arc::new(NoAuth),
        images: None,
        // A file of our own is brought up to date; a database that others share is theirs to upgrade.
        migrate: config.database_url.is_none(),
        work: true,
        figures,
    };
    let folder = config.data_dir.join("block-backups");
    durable::create_dir_private(&folder)?;
    let folder = std::path::absolute(folder)?;
    let backend = Resources::new(client, REPLICAS_HERE).with_store(folder);
    let backend = Arc::new(with_authority(backend, config)?);
    Ok(BlockApi::start(options, backend, tasks).await?)
}

/// What became of the service in `up`.
pub(crate) enum Beside {
    Off,
    Blocked(SocketAddr),
    Failed(String),
    Serves(BlockApi),
}

impl Beside {
    /// A line for people.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::Blocked(address) => {
                format!("not served: {address} is taken; choose another with --block-listen")
            }
            Self::Failed(why) => format!("not served: {why}; the log tells more"),
            Self::Serves(api) => format!("http://{}/v3", api.address()),
        }
    }

    /// Where it is, if it is.
    pub(crate) fn url(&self) -> Option<String> {
        match self {
            Self::Serves(api) => Some(format!("http://{}/v3", api.address())),
            Self::Off | Self::Blocked(_) | Self::Failed(_) => None,
        }
    }

    pub(crate) async fn close(&self) {
        if let Self::Serves(api) = self {
            api.close().await;
        }
    }
}
