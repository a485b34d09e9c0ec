//! Starts everything that guards one member, and ends it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tasks::Tasks;
use tokio::net::TcpListener;

use super::config::{Config, ConfigError};
use super::controllers::{self, Directories, KubeError};
use super::http::forward::Forwarder;
use super::http::transport::{self, TlsError};
use super::http::{self, Api, Snapshots};
use super::initialize::{Initializer, Neighbours, StatusCell};
use super::leftovers::Leftovers;
use super::member::{MemberError, ThisMember};
use super::metrics::Metrics;
use crate::control::{self, Guard, SecondSiteConfig, Troubles};
use crate::etcd::{Etcd, EtcdError, EtcdMonitor};
use crate::store::{Environment, SnapStore, StoreError};

/// What runs is given so long to end when told to.
const END_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Member(#[from] MemberError),
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Kube(#[from] KubeError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot listen on port {port} of {address}")]
    Listen { address: IpAddr, port: u16, source: std::io::Error },
}

/// Guards the member until the tasks are stopped.
pub async fn serve(
    config: Config,
    environment: &Environment,
    tasks: &Tasks,
) -> Result<(), ServeError> {
    let member = ThisMember::read(environment)?;
    let tls = match config.server_config.tls() {
        Some((certificate, key)) => Some(transport::acceptor(certificate, key)?),
        None => None,
    };
    let listener = listen(config.server_config.bind_address()?, config.server_config.port).await?;
    let connection =
        controllers::connection(&config.etcd_connection_config, member.config.all_client_urls());
    let (etcd, cluster) = (Etcd::connect(&connection)?, Etcd::of_cluster(&connection)?);
    let election = &config.leader_election_config;
    let monitor = EtcdMonitor::new(
        Arc::new(etcd.clone()),
        election.reelection_period.duration(),
        election.etcd_connection_timeout.duration(),
    );
    let store = open_store(&config, environment)?;
    if let Some(store) = &store {
        store.check_access().await?;
    }
    let metrics = Arc::new(Metrics::default());
    metrics.cluster_size(member.config.cluster_size());
    let leases = controllers::leases(&config, &member).await?;
    let neighbours = Neighbours {
        name: member.name.clone(),
        peer_urls: member.config.peer_urls(&member.name).unwrap_or_default(),
        cluster_size: member.config.cluster_size(),
        cluster: cluster.clone(),
        leases: leases.clone(),
    };
    let initializer = Arc::new(Initializer {
        restoration: config.restoration_config.clone(),
        store: store.clone(),
        store_temp_dir: PathBuf::from(&config.snapstore_config.temp_dir),
        namespace: Some(member.namespace.clone()),
        neighbours: Some(neighbours),
        metrics: Arc::clone(&metrics),
        tasks: tasks.clone(),
    });
    let troubles = Troubles::default();
    let handles = control::run(
        Guard {
            etcd: etcd.clone(),
            cluster: cluster.clone(),
            monitor: monitor.clone(),
            store: guarded(&config, store.clone(), environment)?,
            defragmenter: controllers::defragmenter(
                &config.defragmentation_schedule.0,
                Some(PathBuf::from(&config.restoration_config.data_dir)),
            )?,
            peer_urls: controllers::peer_urls(&config, &member, tasks),
            kube: controllers::renewal(&config, &member, leases)?,
            metrics: metrics.clone(),
            troubles: troubles.clone(),
        },
        tasks,
    );
    let api = Arc::new(Api {
        monitor,
        health: handles.health,
        status: Arc::new(StatusCell::default()),
        initializer,
        snapshots: store
            .zip(handles.snapshotter)
            .map(|(store, snapshotter)| Snapshots { store, snapshotter }),
        forwarder: forwarder(&config, etcd, tasks),
        member,
        cluster,
        metrics,
        troubles: troubles.clone(),
        home: environment.home(),
        tasks: tasks.clone(),
    });
    let (leftovers, watched) = (leftovers(&config, &api.home, troubles), api.monitor.clone());
    let (status, sweeping) = (Arc::clone(&api.status), tasks.clone());
    tasks.spawn_draining("leftovers", |stop| leftovers.run(watched, status, sweeping, stop));
    let router = http::router(api, config.server_config.enable_profiling);
    tracing::info!("listening on port {}", config.server_config.port);
    transport::serve(listener, tls, router, tasks.clone()).await;
    if let Err(error) = tasks.stop(END_TIMEOUT).await {
        tracing::debug!("{error}");
    }
    Ok(())
}

/// What may be left behind by whoever was killed.
fn leftovers(config: &Config, home: &Path, troubles: Troubles) -> Leftovers {
    let data_dir = PathBuf::from(&config.restoration_config.data_dir);
    let written = [data_dir.parent(), Some(home)].into_iter().flatten().map(Path::to_owned);
    let written = written.chain([data_dir.join("member")]).collect();
    Leftovers { data_dir, written, troubles }
}

/// On the address that is named, or on all, of both families where there are both.
async fn listen(address: Option<IpAddr>, port: u16) -> Result<TcpListener, ServeError> {
    if address.is_none()
        && let Ok(both) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await
    {
        return Ok(both);
    }
    let address = address.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    TcpListener::bind((address, port)).await.map_err(|source| ServeError::Listen {
        address,
        port,
        source,
    })
}

/// Without a provider there are no backups.
fn open_store(config: &Config, environment: &Environment) -> Result<Option<SnapStore>, ServeError> {
    if config.snapstore_config.provider.is_empty() {
        tracing::warn!("no storage provider is named: no snapshots are taken");
        return Ok(None);
    }
    Ok(Some(SnapStore::open(&config.snapstore_config, environment)?))
}

fn guarded(
    config: &Config,
    store: Option<SnapStore>,
    environment: &Environment,
) -> Result<Option<control::Store>, ServeError> {
    let Some(store) = store else { return Ok(None) };
    let secondary = &config.secondary_snapstore_config;
    let second = if secondary.backup_sync_enabled {
        Some(SecondSiteConfig {
            store: SnapStore::open(&secondary.store_config, environment)?,
            period: secondary.sync_period.duration(),
        })
    } else {
        None
    };
    Ok(Some(controllers::store(
        store,
        second,
        &config.snapshotter_config,
        &config.compression_config,
        &config.exponential_backoff_config,
        Directories {
            temp: &config.snapstore_config.temp_dir,
            data: Some(&config.restoration_config.data_dir),
        },
    )?))
}

fn forwarder(config: &Config, etcd: Etcd, tasks: &Tasks) -> Forwarder {
    Forwarder {
        etcd,
        port: config.server_config.port,
        authorities: config.etcd_connection_config.ca_file.clone(),
        timeout: config.etcd_connection_config.snapshot_timeout.duration(),
        tasks: tasks.clone(),
    }
}
