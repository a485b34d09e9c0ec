//! `holdfast up`: everything on this machine, on embedded defaults.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use apiserver::auth::kubeconfig::{BLOCK_STORAGE, Credential, DASHBOARD, Kubeconfig, render};
use apiserver::auth::tokens::StaticTokens;
use apiserver::{ApiServer, Options};
use tokio::signal::unix::{SignalKind, signal};

use crate::block::{self, Beside};
use crate::config::{Config, Settings};
use crate::{cli, controllers, dashboard, node, version};
use ::cli::output::{self, Hint};

/// How long running work may take to end after a signal.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_KUBECONFIG_BYTES: usize = 1024 * 1024;
const MAX_TOKEN_FILE_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// Which parts run in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Everything,
    ApiServer,
}

pub(crate) fn run(settings: &Settings, role: Role) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let config = cli::resolve(settings)?;
    let runtime = cli::runtime()?;
    let result = runtime.block_on(async {
        let _guard = cli::telemetry(&config)?;
        serve(&config, role, began).await
    });
    // Nothing acknowledged depends on what is still running here.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn serve(config: &Config, role: Role, began: Instant) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let _lock = crate::home::hold(&config.data_dir).await?;
    let tasks = tasks::Tasks::new();
    let mut metrics = telemetry::Registry::new("holdfast");
    let server = ApiServer::start(options(config, role)?, tasks.clone(), &mut metrics).await?;
    server.declare_unattended(controllers::unattended());
    let mut here = None;
    // Stops before the processes of this node do: nobody is to take their end for a failure.
    let work = tasks.child("controllers");
    let mut blocks = Beside::Off;
    let mut pages = dashboard::Beside::Off;
    if role == Role::Everything {
        let figures = blockapi::Figures::new(&mut metrics);
        let metrics = reconcile::Metrics::new(&mut metrics, volumes::figures::FACTS);
        let client = |identity: controllers::Identity| {
            controllers::client_of(server.client_service(identity.user()))
        };
        volumes::setting::prepare_one_machine(&client(controllers::DEFAULTS)).await?;
        if let Some(rate) = config.backup_rate {
            volumes::setting::set_backup_rate(&client(controllers::DEFAULTS), rate).await?;
        }
        // Before the controllers: what still runs is found before anybody misses it.
        let place = node::Place::of(config, config.listen.ip());
        here = Some(node::start(client(node::IDENTITY), &place, &tasks, metrics.clone()).await?);
        let executor = executor(config)?;
        controllers::spawn(
            tenants::Place {
                askers: tenants::restore::identity::Askers::Recorded,
                executor: controllers::executor_of(executor.as_ref()),
                is_local: config.listen.ip().is_loopback(),
            },
            &work,
            &metrics,
            &config.admin_namespace,
            executor.as_ref(),
            |controller| client(controllers::identity(controller)),
        );
        for controller in controllers::EMBEDDED {
            let client = client(controllers::identity(controller));
            controller.spawn(client, &work, metrics.clone());
        }
        blocks = block::beside(config, client(block::IDENTITY), figures, &tasks).await;
        pages = dashboard::beside(config, &server, blocks.url(), &tasks).await;
    }
    let block_url = blocks.url();
    let places = [(DASHBOARD, pages.url()), (BLOCK_STORAGE, block_url.as_deref())];
    let places: Vec<_> = places.into_iter().filter_map(|(name, url)| Some((name, url?))).collect();
    write_kubeconfig(config, &server, &places)?;
    server.publish_metrics(metrics);
    output::say(&banner(config, &server, (&blocks, &pages), began.elapsed()))?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping");
    let stop = async {
        if let Err(late) = work.stop(TIMEOUT).await {
            tracing::warn!(%late, "some controllers did not end in time");
        }
        if let Some(here) = here {
            here.leave().await;
        }
        if let Err(late) = tasks.stop(TIMEOUT).await {
            tracing::warn!(%late, "some work did not end in time");
        }
        blocks.close().await;
        server.close(TIMEOUT).await;
    };
    tokio::select! {
        () = stop => Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => Ok(ExitCode::FAILURE),
        _ = terminate.recv() => Ok(ExitCode::FAILURE),
    }
}

fn options(config: &Config, role: Role) -> anyhow::Result<Options> {
    let tokens = match &config.token_auth_file {
        None => StaticTokens::default(),
        Some(path) => read_tokens(path)?,
    };
    Ok(Options {
        data_dir: config.data_dir.clone(),
        listen: config.listen,
        tls_sans: config.tls_sans.clone(),
        tokens: if role == Role::Everything {
            dashboard::with_token(config, tokens)?
        } else {
            tokens
        },
        audit: config.audit,
        definitions: api::crds(),
        services: config.services.clone(),
        controllers: controllers::identities(has_executor(config)),
        near: vec![controllers::near(&config.admin_namespace)],
    })
}

fn has_executor(config: &Config) -> bool {
    config.velero.unwrap_or(true)
}

/// Beside the embedded server, backups go to a directory of this machine unless told otherwise.
fn executor(config: &Config) -> anyhow::Result<Option<controllers::Executor>> {
    if !has_executor(config) {
        return Ok(None);
    }
    let mut settings = velero::Settings::new(&config.admin_namespace);
    settings.concurrent_backups = config.concurrent_backups;
    settings.directories = Some(config.data_dir.join("locations"));
    settings.spool = config.data_dir.join("spool");
    settings.volumes = Some(config.data_dir.join("volume-backups"));
    durable::create_dir_private(&settings.spool)?;
    let downloads = Some((config.listen.ip(), 0).into());
    Ok(Some(controllers::Executor { settings, downloads }))
}

fn read_tokens(path: &Path) -> anyhow::Result<StaticTokens> {
    let bytes = durable::read_limited(path, MAX_TOKEN_FILE_BYTES)?;
    let text = String::from_utf8(bytes)
        .with_context(|| format!("the token file {} is not text", path.display()))?;
    StaticTokens::parse(&text)
        .with_context(|| format!("the token file {} cannot be used", path.display()))
        .hint("write a line for each token: token,user,uid,\"group1,group2\"")
}

/// The address clients on this machine use.
fn url(server: &ApiServer) -> String {
    let mut address = server.address();
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            std::net::SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("https://{address}")
}

fn write_kubeconfig(
    config: &Config,
    server: &ApiServer,
    places: &[(&'static str, &str)],
) -> anyhow::Result<()> {
    let admin = server.pki().admin();
    let text = render(&Kubeconfig {
        server: &url(server),
        ca_pem: server.pki().ca_pem(),
        user: "admin",
        credential: Credential::Certificate { cert_pem: &admin.cert_pem, key_pem: &admin.key_pem },
        namespace: "default",
        places,
    });
    let path = config.data_dir.join("kubeconfig");
    // Written only if it changes: the server starts on a full disk too.
    match durable::read_limited(&path, MAX_KUBECONFIG_BYTES) {
        Ok(found) if found == text.as_bytes() => {}
        _ => match durable::replace_private(&path, text.as_bytes()) {
            Err(error) if error.kind() == Some(std::io::ErrorKind::StorageFull) => {
                let path = path.display();
                tracing::warn!(%path, "the disk is full: the kubeconfig is not brought up to date");
            }
            other => other?,
        },
    }
    Ok(())
}

fn banner(
    config: &Config,
    server: &ApiServer,
    (blocks, pages): (&Beside, &dashboard::Beside),
    took: Duration,
) -> String {
    let kubeconfig = config.data_dir.join("kubeconfig");
    format!(
        "Holdfast {version} is ready after {seconds:.2} s\n\
         \n\
         \x20 Kubernetes API   {url}\n\
         \x20 kubeconfig       {kubeconfig} (administrator)\n\
         \x20 Block Storage    {blocks}\n\
         \x20 dashboard        {pages}\n\
         \x20 data directory   {data}\n\
         \x20 metrics          {url}/metrics\n\
         \n\
         In another terminal:\n\
         \x20 export KUBECONFIG={kubeconfig}\n\
         \x20 holdfast demo      a tour of about a minute that cleans up after itself\n\
         \x20 holdfast status    health, work in progress, what needs attention\n\
         \x20 kubectl get namespaces\n\
         \n\
         Stop with Ctrl-C.",
        version = version::NUMBER,
        seconds = took.as_secs_f64(),
        url = url(server),
        blocks = blocks.told(),
        pages = pages.told(config),
        kubeconfig = kubeconfig.display(),
        data = config.data_dir.display(),
    )
}
