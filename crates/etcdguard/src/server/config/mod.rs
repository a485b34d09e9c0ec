//! The configuration of every command: groups of settings, as flags and as the file have them.
//!
//! Owns: names, defaults and checks of the settings. Never: where they come from (flags are
//! `cli`'s), or what is done with them.

mod check;
mod connection;
mod span;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use self::check::ConfigError;
pub use self::connection::EtcdConnectionConfig;
pub use self::span::Span;
use crate::datadir::Identity;
use crate::restore::{Existing, Restoration};
pub use crate::store::StoreConfig;

/// The largest configuration file that is read.
const FILE_MAX_BYTES: usize = 1 << 20;

/// Everything `server` can be told. Keys are those of the file; what a file leaves out has its
/// default, and keys nobody knows are ignored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    pub etcd_connection_config: EtcdConnectionConfig,
    pub server_config: HttpConfig,
    pub snapshotter_config: SnapshotterConfig,
    pub snapstore_config: StoreConfig,
    pub secondary_snapstore_config: SecondaryConfig,
    pub compression_config: CompressionConfig,
    pub restoration_config: RestorationConfig,
    pub health_config: HealthConfig,
    pub leader_election_config: ElectionConfig,
    pub exponential_backoff_config: BackoffConfig,
    pub defragmentation_schedule: Schedule,
    pub use_etcd_wrapper: bool,
}

/// A cron expression; empty never comes due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schedule(pub String);

impl Default for Schedule {
    /// Every third day at midnight.
    fn default() -> Self {
        Self("0 0 */3 * *".to_owned())
    }
}

/// The HTTP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpConfig {
    pub port: u16,
    /// The one address that is listened on; all of the machine's where it is empty.
    pub bind_address: String,
    #[serde(rename = "server-cert")]
    pub server_cert: String,
    #[serde(rename = "server-key")]
    pub server_key: String,
    pub enable_profiling: bool,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            port: 8080,
            bind_address: String::new(),
            server_cert: String::new(),
            server_key: String::new(),
            enable_profiling: false,
        }
    }
}

impl HttpConfig {
    /// Both files, or no TLS.
    pub fn tls(&self) -> Option<(&str, &str)> {
        (!self.server_cert.is_empty() && !self.server_key.is_empty())
            .then_some((&self.server_cert, &self.server_key))
    }
}

/// When snapshots are taken, and how many are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotterConfig {
    pub schedule: String,
    pub delta_snapshot_period: Span,
    pub delta_snapshot_memory_limit: u64,
    pub delta_snapshot_retention_period: Span,
    pub garbage_collection_period: Span,
    pub garbage_collection_policy: String,
    pub max_backups: u64,
}

impl Default for SnapshotterConfig {
    fn default() -> Self {
        Self {
            schedule: "0 */1 * * *".to_owned(),
            delta_snapshot_period: Span::from_secs(20),
            delta_snapshot_memory_limit: 10 << 20,
            delta_snapshot_retention_period: Span::default(),
            garbage_collection_period: Span::from_secs(60),
            garbage_collection_policy: "Exponential".to_owned(),
            max_backups: 7,
        }
    }
}

/// A second store that gets a copy of everything.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecondaryConfig {
    pub backup_sync_enabled: bool,
    pub sync_period: Span,
    #[serde(rename = "StoreConfig", alias = "storeConfig")]
    pub store_config: StoreConfig,
}

impl Default for SecondaryConfig {
    fn default() -> Self {
        Self {
            backup_sync_enabled: false,
            sync_period: Span::from_secs(3600),
            store_config: StoreConfig::default(),
        }
    }
}

/// How new snapshots are compressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CompressionConfig {
    pub enabled: bool,
    pub policy: String,
}

impl Default for CompressionConfig {
    fn default() -> Self {
        Self { enabled: true, policy: "gzip".to_owned() }
    }
}

/// What a restored data directory is to be. The settings of an etcd that would run while restoring
/// are accepted and mean nothing: none runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RestorationConfig {
    pub initial_cluster: String,
    pub initial_cluster_token: String,
    pub data_dir: String,
    pub temp_dir: String,
    #[serde(rename = "initialAdvertisePeerURLs")]
    pub initial_advertise_peer_urls: Vec<String>,
    pub name: String,
    pub skip_hash_check: bool,
    pub max_fetchers: u64,
    #[serde(rename = "MaxRequestBytes", alias = "maxRequestBytes")]
    pub max_request_bytes: u64,
    #[serde(rename = "MaxTxnOps", alias = "maxTxnOps")]
    pub max_txn_ops: u64,
    pub max_call_send_msg_size: u64,
    pub embedded_etcd_quota_bytes: i64,
    pub auto_compaction_mode: String,
    pub auto_compaction_retention: String,
}

impl Default for RestorationConfig {
    fn default() -> Self {
        Self {
            initial_cluster: "default=http://localhost:2380".to_owned(),
            initial_cluster_token: "etcd-cluster".to_owned(),
            data_dir: "default.etcd".to_owned(),
            temp_dir: "default.restoration.tmp".to_owned(),
            initial_advertise_peer_urls: vec!["http://localhost:2380".to_owned()],
            name: "default".to_owned(),
            skip_hash_check: false,
            max_fetchers: 6,
            max_request_bytes: 10 << 20,
            max_txn_ops: 10 << 10,
            max_call_send_msg_size: 10 << 20,
            embedded_etcd_quota_bytes: 8 << 30,
            auto_compaction_mode: "periodic".to_owned(),
            auto_compaction_retention: "30m".to_owned(),
        }
    }
}

impl RestorationConfig {
    /// The same for a restore.
    pub fn restoration(&self, existing: Existing) -> Restoration {
        Restoration {
            data_dir: PathBuf::from(&self.data_dir),
            identity: Identity {
                name: self.name.clone(),
                initial_cluster: self.initial_cluster.clone(),
                token: self.initial_cluster_token.clone(),
                peer_urls: self.initial_advertise_peer_urls.clone(),
            },
            temp_dir: PathBuf::from(&self.temp_dir),
            max_fetchers: usize::try_from(self.max_fetchers).unwrap_or(usize::MAX),
            skip_hash_check: self.skip_hash_check,
            existing,
        }
    }
}

/// Leases: which are renewed, how often, and their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HealthConfig {
    pub snapshot_lease_renewal_enabled: bool,
    pub member_lease_renewal_enabled: bool,
    pub heartbeat_duration: Span,
    pub full_snapshot_lease_name: String,
    pub delta_snapshot_lease_name: String,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            snapshot_lease_renewal_enabled: false,
            member_lease_renewal_enabled: false,
            heartbeat_duration: Span::from_secs(30),
            full_snapshot_lease_name: "full-snapshot-revisions".to_owned(),
            delta_snapshot_lease_name: "delta-snapshot-revisions".to_owned(),
        }
    }
}

/// How often the member is asked who leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ElectionConfig {
    pub reelection_period: Span,
    pub etcd_connection_timeout: Span,
}

impl Default for ElectionConfig {
    fn default() -> Self {
        Self { reelection_period: Span::from_secs(5), etcd_connection_timeout: Span::from_secs(5) }
    }
}

/// Waiting longer and longer after failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BackoffConfig {
    pub multiplier: u64,
    pub attempt_limit: u64,
    pub threshold_time: Span,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self { multiplier: 2, attempt_limit: 6, threshold_time: Span::from_secs(128) }
    }
}

/// What `compact` is told besides the restoration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactorConfig {
    pub defragment: bool,
    pub snapshot_timeout: Span,
    pub defrag_timeout: Span,
    pub full_snapshot_lease_name: String,
    pub delta_snapshot_lease_name: String,
    pub snapshot_lease_renewal_enabled: bool,
    pub metrics_scrape_wait_duration: Span,
}

/// What `copy` is told besides its two stores. A negative number is no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopierConfig {
    pub max_backups_to_copy: i64,
    pub max_backup_age_days: i64,
    pub max_parallel_copy_operations: u64,
    pub wait_for_final_snapshot: bool,
    pub wait_for_final_snapshot_timeout: Span,
}

impl Config {
    /// Reads a file over the defaults.
    pub fn from_file(path: &str) -> Result<Self, ConfigError> {
        let bytes = durable::read_limited(path, FILE_MAX_BYTES)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let text =
            String::from_utf8(bytes).map_err(|_| ConfigError::NotText { path: path.to_owned() })?;
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(&text)
            .map_err(|why| ConfigError::Parse { path: path.to_owned(), why: why.to_string() })
    }

    /// The whole as YAML for the log, without secrets.
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self).unwrap_or_else(|error| format!("# {error}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_changes_what_it_names_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        let text = "etcdConnectionConfig:\n  endpoints: [http://a:1]\n  password: geheim\n\
                    snapshotterConfig:\n  deltaSnapshotPeriod: 5s\n  unknownKey: 1\n\
                    restorationConfig:\n  MaxTxnOps: 7\n  restoreDataDir: x\n\
                    secondarySnapstoreConfig:\n  StoreConfig:\n    provider: S3\n\
                    serverConfig: {port: 1, server-cert: /a, server-key: /b}\n";
        durable::replace(&path, text.as_bytes()).unwrap();
        let config = Config::from_file(path.to_str().unwrap()).unwrap();
        assert_eq!(config.etcd_connection_config.endpoints, ["http://a:1"]);
        assert_eq!(config.snapshotter_config.delta_snapshot_period, Span::from_secs(5));
        assert_eq!(config.snapshotter_config.max_backups, 7);
        assert_eq!(config.restoration_config.max_txn_ops, 7);
        assert_eq!(config.restoration_config.data_dir, "default.etcd");
        assert_eq!(config.secondary_snapstore_config.store_config.provider, "S3");
        assert_eq!(config.server_config.tls(), Some(("/a", "/b")));
        assert_eq!(config.server_config.bind_address().unwrap(), None);
        let printed = config.to_yaml();
        assert!(!printed.contains("geheim"), "{printed}");
        assert!(!format!("{config:?}").contains("geheim"));
    }

    #[test]
    fn an_address_to_listen_on_is_one_of_ip() {
        let at = |text: &str| HttpConfig { bind_address: text.to_owned(), ..HttpConfig::default() };
        assert_eq!(at("::1").bind_address().unwrap(), Some(std::net::Ipv6Addr::LOCALHOST.into()));
        for bad in ["localhost", "127.0.0.1:8080", "[::1]"] {
            let error = at(bad).check().unwrap_err().to_string();
            assert!(error.contains("server-bind-address") && error.contains(bad), "{error}");
        }
    }

    #[test]
    fn what_cannot_work_is_named() {
        let named = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(Config::default().check().is_ok());
        for (change, setting) in [
            (
                (|it| it.leader_election_config.reelection_period = Span::from_secs(1))
                    as fn(&mut Config),
                "reelection-period",
            ),
            (|it| it.snapstore_config.min_chunk_size = 1, "min chunk size"),
            (|it| it.server_config = cert("/no/such/file"), "server-cert"),
            (|it| it.compression_config.policy = "zip".to_owned(), "compression-policy"),
            (
                |it| it.snapshotter_config.garbage_collection_policy = "limitbased".to_owned(),
                "garbage-collection-policy",
            ),
            (
                |it| it.etcd_connection_config.snapshot_timeout = Span::from_secs(1),
                "etcd-snapshot-timeout",
            ),
        ] {
            let error = named(change);
            assert!(error.starts_with(setting), "{error}");
        }
    }

    fn cert(path: &str) -> HttpConfig {
        HttpConfig {
            server_cert: path.to_owned(),
            server_key: path.to_owned(),
            ..HttpConfig::default()
        }
    }
}
