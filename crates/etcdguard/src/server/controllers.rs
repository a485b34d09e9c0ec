//! From settings to controllers: what each of them is told. Pure, but for the client of the
//! Kubernetes API.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::config::{
    BackoffConfig, CompressionConfig, Config, ConfigError, EtcdConnectionConfig, SnapshotterConfig,
};
use super::http::client::{self, Trust};
use super::member::ThisMember;
use crate::control::leases::Leases;
use crate::control::{
    self, CollectorConfig, DefragmenterConfig, EventsConfig, HeartbeatConfig, Kube, PeerUrlConfig,
    Restart, SecondSiteConfig, SnapshotLeaseConfig,
};
use crate::etcd::{ConnectionConfig, TlsFiles};
use crate::store::gc::{Plan, Policy};
use crate::store::{Compression, SnapStore};

/// Where the wrapper of etcd listens.
const WRAPPER_PORT: u16 = 9095;
const WRAPPER_TIMEOUT: Duration = Duration::from_mins(1);

/// How etcd is reached; where the cluster is not said, all members of its configuration are.
pub fn connection(config: &EtcdConnectionConfig, members: Vec<String>) -> ConnectionConfig {
    let file = |path: &String| (!path.is_empty()).then(|| PathBuf::from(path));
    let service_endpoints = if config.service_endpoints.is_empty() {
        members
    } else {
        config.service_endpoints.clone()
    };
    ConnectionConfig {
        endpoints: config.endpoints.clone(),
        service_endpoints,
        username: config.username.clone(),
        password: config.password.clone(),
        connection_timeout: config.connection_timeout.duration(),
        snapshot_timeout: config.snapshot_timeout.duration(),
        defrag_timeout: config.defrag_timeout.duration(),
        insecure_transport: config.insecure_transport,
        insecure_skip_verify: config.insecure_skip_verify,
        tls: TlsFiles {
            certificate: file(&config.cert_file),
            key: file(&config.key_file),
            authority: file(&config.ca_file),
        },
        max_call_send_message_size: config.max_call_send_msg_size,
    }
}

/// Where what is done with a store has files.
#[derive(Debug, Clone, Copy)]
pub struct Directories<'d> {
    pub temp: &'d str,
    /// Of the etcd, where it is on this machine.
    pub data: Option<&'d str>,
}

/// What goes to and from a store.
pub fn store(
    snapshots: SnapStore,
    second: Option<SecondSiteConfig>,
    snapshotter: &SnapshotterConfig,
    compression: &CompressionConfig,
    backoff: &BackoffConfig,
    dirs: Directories<'_>,
) -> Result<control::Store, ConfigError> {
    let compression = if compression.enabled {
        Some(compression.policy.parse::<Compression>().map_err(|error| ConfigError::Setting {
            setting: "compression-policy",
            why: error.to_string(),
        })?)
    } else {
        None
    };
    Ok(control::Store {
        snapshots,
        second,
        collector: collector(snapshotter),
        snapshotter: control::SnapshotterConfig {
            schedule: schedule("schedule", &snapshotter.schedule)?,
            delta_period: snapshotter.delta_snapshot_period.duration(),
            delta_memory_limit: snapshotter.delta_snapshot_memory_limit,
            compression,
            temp_dir: dirs.temp.into(),
            data_dir: dirs.data.map(PathBuf::from),
            backoff: control::BackoffConfig {
                multiplier: u32::try_from(backoff.multiplier).unwrap_or(u32::MAX),
                attempt_limit: u32::try_from(backoff.attempt_limit).unwrap_or(u32::MAX),
                threshold: backoff.threshold_time.duration(),
            },
        },
    })
}

fn collector(config: &SnapshotterConfig) -> CollectorConfig {
    let policy = match config.garbage_collection_policy.as_str() {
        "LimitBased" => Policy::LimitBased {
            max_backups: u32::try_from(config.max_backups).unwrap_or(u32::MAX),
        },
        _ => Policy::Exponential,
    };
    let plan = Plan { policy, delta_retention: config.delta_snapshot_retention_period.duration() };
    CollectorConfig { period: config.garbage_collection_period.duration(), plan }
}

pub(crate) fn schedule(
    setting: &'static str,
    text: &str,
) -> Result<control::Schedule, ConfigError> {
    text.parse().map_err(|error: control::ScheduleError| ConfigError::Setting {
        setting,
        why: error.to_string(),
    })
}

/// No schedule, no defragmentation.
pub fn defragmenter(
    text: &str,
    data_dir: Option<PathBuf>,
) -> Result<Option<DefragmenterConfig>, ConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    let schedule = schedule("defragmentation-schedule", text)?;
    Ok(Some(DefragmenterConfig { schedule, data_dir }))
}

/// The peer URLs this member is to have; nothing if its configuration does not say.
pub fn peer_urls(
    config: &Config,
    member: &ThisMember,
    tasks: &tasks::Tasks,
) -> Option<PeerUrlConfig> {
    let peer_urls = match member.config.peer_urls(&member.name) {
        Ok(urls) => urls,
        Err(error) => {
            tracing::warn!("peer URLs are not looked after: {}", telemetry::Chain(&error));
            return None;
        }
    };
    let restart = config.use_etcd_wrapper.then(|| restart(config, tasks));
    Some(PeerUrlConfig { peer_urls, restart })
}

/// Asks the wrapper of etcd to end it; whoever started it starts it again.
fn restart(config: &Config, tasks: &tasks::Tasks) -> Restart {
    let endpoint = config.etcd_connection_config.endpoints.first().cloned().unwrap_or_default();
    let authorities = config.etcd_connection_config.ca_file.clone();
    let tasks = tasks.clone();
    Arc::new(move || {
        let (endpoint, authorities, tasks) = (endpoint.clone(), authorities.clone(), tasks.clone());
        Box::pin(async move {
            let text = |error: &dyn std::fmt::Display| error.to_string();
            let mut target = url::Url::parse(&endpoint).map_err(|error| text(&error))?;
            target.set_port(Some(WRAPPER_PORT)).map_err(|()| "no host".to_owned())?;
            target.set_path("/stop");
            let trust = Trust::of(&authorities).map_err(|error| text(&error))?;
            let method = http::Method::POST;
            let asked = client::request(method, &target, &trust, WRAPPER_TIMEOUT, &tasks);
            let answer = asked.await.map_err(|error| telemetry::Chain(&error).to_string())?;
            if answer.status().is_success() {
                return Ok(());
            }
            Err(format!("the wrapper of etcd answered {}", answer.status()))
        })
    })
}

#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    #[error("leases cannot be renewed: there is no way to a Kubernetes API server")]
    Client(#[source] Box<kube::Error>),
    #[error(transparent)]
    Member(#[from] super::etcd_config::EtcdConfigError),
}

/// The leases of the namespace, if anybody needs them.
pub async fn leases(config: &Config, member: &ThisMember) -> Result<Option<Leases>, KubeError> {
    let health = &config.health_config;
    let is_on = health.member_lease_renewal_enabled || health.snapshot_lease_renewal_enabled;
    if !is_on && member.config.cluster_size() < 2 {
        return Ok(None);
    }
    leases_of(&member.namespace).await.map(Some)
}

/// The leases of a namespace.
pub async fn leases_of(namespace: &str) -> Result<Leases, KubeError> {
    let client = kube::Client::try_default().await;
    let client = client.map_err(|error| KubeError::Client(Box::new(error)))?;
    Ok(Leases::new(client, namespace))
}

/// Which leases are renewed.
pub fn renewal(
    config: &Config,
    member: &ThisMember,
    leases: Option<Leases>,
) -> Result<Option<Kube>, KubeError> {
    let Some(leases) = leases else { return Ok(None) };
    let health = &config.health_config;
    let heartbeat = if health.member_lease_renewal_enabled {
        Some(HeartbeatConfig {
            member_name: member.name.clone(),
            period: health.heartbeat_duration.duration(),
            peer_tls: member.config.peers_use_tls(&member.name)?,
        })
    } else {
        None
    };
    let snapshot_leases = health.snapshot_lease_renewal_enabled.then(|| SnapshotLeaseConfig {
        full_name: health.full_snapshot_lease_name.clone(),
        delta_name: health.delta_snapshot_lease_name.clone(),
    });
    let events = EventsConfig { pod: member.pod.clone(), namespace: member.namespace.clone() };
    Ok(Some(Kube { leases, heartbeat, snapshot_leases, events }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_asked_where_it_is_said_to_be() {
        let mut config = EtcdConnectionConfig::default();
        let members = vec!["http://a:1".to_owned(), "http://b:1".to_owned()];
        assert_eq!(connection(&config, members.clone()).service_endpoints, members);
        config.service_endpoints = vec!["http://c:1".to_owned()];
        assert_eq!(connection(&config, members).service_endpoints, ["http://c:1"]);
    }

    #[test]
    fn policies_are_taken_over() {
        let mut config = SnapshotterConfig::default();
        assert_eq!(collector(&config).plan.policy, Policy::Exponential);
        config.garbage_collection_policy = "LimitBased".to_owned();
        assert_eq!(collector(&config).plan.policy, Policy::LimitBased { max_backups: 7 });
        assert!(defragmenter("", None).unwrap().is_none());
        assert!(defragmenter("nonsense", None).is_err());
    }
}
