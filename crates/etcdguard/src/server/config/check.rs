//! What settings must hold before anything starts. Pure but for the existence of named files.

use std::net::IpAddr;
use std::path::Path;

use super::{
    BackoffConfig, CompressionConfig, Config, ElectionConfig, EtcdConnectionConfig, HealthConfig,
    HttpConfig, RestorationConfig, SecondaryConfig, SnapshotterConfig, Span,
};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {path}")]
    Read { path: String, source: durable::Error },
    #[error("the configuration file {path} is not text")]
    NotText { path: String },
    #[error("the configuration file {path} cannot be understood: {why}")]
    Parse { path: String, why: String },
    #[error(transparent)]
    Store(#[from] crate::store::config::BadStoreConfig),
    #[error("{setting}: {why}")]
    Setting { setting: &'static str, why: String },
}

fn refuse(setting: &'static str, why: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::Setting { setting, why: why.into() })
}

fn more_than(setting: &'static str, span: Span, least: Span) -> Result<(), ConfigError> {
    if span > least {
        return Ok(());
    }
    refuse(setting, format!("must be greater than {least}"))
}

impl Config {
    pub fn check(&self) -> Result<(), ConfigError> {
        self.etcd_connection_config.check()?;
        self.server_config.check()?;
        self.snapshotter_config.check()?;
        self.snapstore_config.validate()?;
        self.secondary_snapstore_config.check()?;
        self.compression_config.check()?;
        self.restoration_config.check()?;
        self.health_config.check()?;
        self.leader_election_config.check()?;
        self.exponential_backoff_config.check()?;
        check_schedule("defragmentation-schedule", &self.defragmentation_schedule.0)
    }
}

impl EtcdConnectionConfig {
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.endpoints.is_empty() {
            return refuse("endpoints", "name at least one");
        }
        more_than("etcd-connection-timeout", self.connection_timeout, Span::default())?;
        if self.snapshot_timeout < self.connection_timeout {
            return refuse("etcd-snapshot-timeout", "must not be less than the connection timeout");
        }
        Ok(())
    }
}

impl HttpConfig {
    /// None: every address of the machine.
    pub fn bind_address(&self) -> Result<Option<IpAddr>, ConfigError> {
        if self.bind_address.is_empty() {
            return Ok(None);
        }
        self.bind_address.parse().map(Some).map_err(|_| ConfigError::Setting {
            setting: "server-bind-address",
            why: format!(
                "{:?} is no IP address; write one as 127.0.0.1 or ::1, without a port",
                self.bind_address
            ),
        })
    }

    pub fn check(&self) -> Result<(), ConfigError> {
        self.bind_address()?;
        let Some((certificate, key)) = self.tls() else { return Ok(()) };
        for (setting, file) in [("server-cert", certificate), ("server-key", key)] {
            if !Path::new(file).exists() {
                return refuse(setting, format!("there is no file {file}"));
            }
        }
        Ok(())
    }
}

/// No schedule is one that never comes due.
fn check_schedule(setting: &'static str, schedule: &str) -> Result<(), ConfigError> {
    if schedule.is_empty() {
        return Ok(());
    }
    crate::server::controllers::schedule(setting, schedule).map(drop)
}

impl SnapshotterConfig {
    pub fn check(&self) -> Result<(), ConfigError> {
        crate::server::controllers::schedule("schedule", &self.schedule)?;
        match self.garbage_collection_policy.as_str() {
            "Exponential" => Ok(()),
            "LimitBased" if self.max_backups == 0 => {
                refuse("max-backups", "must be greater than 0")
            }
            "LimitBased" => Ok(()),
            other => refuse(
                "garbage-collection-policy",
                format!("{other:?} is neither Exponential nor LimitBased"),
            ),
        }
    }
}

impl SecondaryConfig {
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.backup_sync_enabled {
            return Ok(());
        }
        if self.store_config.provider.is_empty() {
            return refuse("secondary-storage-provider", "must be set to copy to a second store");
        }
        more_than("secondary-backup-sync-period", self.sync_period, Span::default())?;
        Ok(self.store_config.validate()?)
    }
}

impl CompressionConfig {
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.policy.as_str() {
            "gzip" | "zlib" | "lzw" => Ok(()),
            _ if !self.enabled => Ok(()),
            other => refuse("compression-policy", format!("{other:?} is none of gzip, zlib, lzw")),
        }
    }
}

impl RestorationConfig {
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.data_dir.is_empty() {
            return refuse("data-dir", "must be set");
        }
        if self.max_fetchers == 0 {
            return refuse("max-fetchers", "must be greater than 0");
        }
        match self.auto_compaction_mode.as_str() {
            "periodic" | "revision" => Ok(()),
            other => refuse(
                "auto-compaction-mode",
                format!("{other:?} is neither periodic nor revision"),
            ),
        }
    }
}

impl HealthConfig {
    pub fn check(&self) -> Result<(), ConfigError> {
        more_than("k8s-heartbeat-duration", self.heartbeat_duration, Span::default())?;
        if !self.snapshot_lease_renewal_enabled {
            return Ok(());
        }
        if self.full_snapshot_lease_name.is_empty() {
            return refuse("full-snapshot-lease-name", "must be set");
        }
        if self.delta_snapshot_lease_name.is_empty() {
            return refuse("delta-snapshot-lease-name", "must be set");
        }
        Ok(())
    }
}

impl ElectionConfig {
    pub fn check(&self) -> Result<(), ConfigError> {
        let least = Span::from_secs(1);
        more_than("reelection-period", self.reelection_period, least)?;
        more_than("etcd-connection-timeout-leader-election", self.etcd_connection_timeout, least)
    }
}

impl BackoffConfig {
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.multiplier == 0 {
            return refuse("backoff-multiplier", "must be greater than 0");
        }
        if self.attempt_limit == 0 {
            return refuse("backoff-attempt-limit", "must be greater than 0");
        }
        more_than("backoff-threshold-time", self.threshold_time, Span::default())
    }
}
