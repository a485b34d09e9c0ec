//! From flags to settings, group by group. Pure.

use crate::server::config::{
    BackoffConfig, CompactorConfig, CompressionConfig, Config, CopierConfig, ElectionConfig,
    EtcdConnectionConfig, HealthConfig, HttpConfig, RestorationConfig, Schedule, SecondaryConfig,
    SnapshotterConfig, StoreConfig,
};

use super::flag::Given;

pub(crate) fn server(given: &Given) -> Config {
    Config {
        etcd_connection_config: connection(given),
        server_config: HttpConfig {
            // What is no port is refused where the flag is read.
            port: u16::try_from(given.count("server-port")).unwrap_or_default(),
            bind_address: given.text("server-bind-address"),
            server_cert: given.text("server-cert"),
            server_key: given.text("server-key"),
            enable_profiling: given.switch("enable-profiling"),
        },
        snapshotter_config: snapshotter(given),
        snapstore_config: store(given, ""),
        secondary_snapstore_config: SecondaryConfig {
            backup_sync_enabled: given.switch("secondary-backup-sync-enabled"),
            sync_period: given.span("secondary-backup-sync-period"),
            store_config: store(given, "secondary-"),
        },
        compression_config: compression(given),
        restoration_config: restoration(given),
        health_config: HealthConfig {
            snapshot_lease_renewal_enabled: given.switch("enable-snapshot-lease-renewal"),
            member_lease_renewal_enabled: given.switch("enable-member-lease-renewal"),
            heartbeat_duration: given.span("k8s-heartbeat-duration"),
            full_snapshot_lease_name: given.text("full-snapshot-lease-name"),
            delta_snapshot_lease_name: given.text("delta-snapshot-lease-name"),
        },
        leader_election_config: ElectionConfig {
            reelection_period: given.span("reelection-period"),
            etcd_connection_timeout: given.span("etcd-connection-timeout-leader-election"),
        },
        exponential_backoff_config: backoff(given),
        defragmentation_schedule: defragmentation(given),
        use_etcd_wrapper: given.switch("use-etcd-wrapper"),
    }
}

pub(crate) fn connection(given: &Given) -> EtcdConnectionConfig {
    EtcdConnectionConfig {
        endpoints: given.texts("endpoints"),
        service_endpoints: given.texts("service-endpoints"),
        username: given.text("etcd-username"),
        password: given.text("etcd-password").into(),
        connection_timeout: given.span("etcd-connection-timeout"),
        snapshot_timeout: given.span("etcd-snapshot-timeout"),
        defrag_timeout: given.span("etcd-defrag-timeout"),
        insecure_transport: given.switch("insecure-transport"),
        insecure_skip_verify: given.switch("insecure-skip-tls-verify"),
        cert_file: given.text("cert"),
        key_file: given.text("key"),
        ca_file: given.text("cacert"),
        max_call_send_msg_size: 0,
    }
}

pub(crate) fn snapshotter(given: &Given) -> SnapshotterConfig {
    SnapshotterConfig {
        schedule: given.text("schedule"),
        delta_snapshot_period: given.span("delta-snapshot-period"),
        delta_snapshot_memory_limit: given.count("delta-snapshot-memory-limit"),
        delta_snapshot_retention_period: given.span("delta-snapshot-retention-period"),
        garbage_collection_period: given.span("garbage-collection-period"),
        garbage_collection_policy: given.text("garbage-collection-policy"),
        max_backups: given.count("max-backups"),
    }
}

/// The store whose flags begin with `prefix`: none, `source-` or `secondary-`.
pub(crate) fn store(given: &Given, prefix: &str) -> StoreConfig {
    let name = |flag: &str| format!("{prefix}{flag}");
    StoreConfig {
        provider: given.text(&name("storage-provider")),
        container: given.text(&name("store-container")),
        prefix: given.text(&name("store-prefix")),
        endpoint_override: given.text(&name("store-endpoint-override")),
        max_parallel_chunk_uploads: u32::try_from(given.count(&name("max-parallel-chunk-uploads")))
            .unwrap_or(u32::MAX),
        min_chunk_size: given.integer(&name("min-chunk-size")),
        temp_dir: given.text(&name("snapstore-temp-directory")),
        // Variables of a second store or a source have the same word in front.
        env_prefix: prefix.to_uppercase().replace('-', "_"),
        is_source: prefix == "source-",
    }
}

pub(crate) fn restoration(given: &Given) -> RestorationConfig {
    RestorationConfig {
        initial_cluster: given.text("initial-cluster"),
        initial_cluster_token: given.text("initial-cluster-token"),
        data_dir: given.text("data-dir"),
        temp_dir: given.text("restoration-temp-snapshots-dir"),
        initial_advertise_peer_urls: given.texts("initial-advertise-peer-urls"),
        name: given.text("name"),
        skip_hash_check: given.switch("skip-hash-check"),
        max_fetchers: given.count("max-fetchers"),
        max_request_bytes: given.count("max-request-bytes"),
        max_txn_ops: given.count("max-txn-ops"),
        max_call_send_msg_size: given.count("max-call-send-message-size"),
        embedded_etcd_quota_bytes: given.integer("embedded-etcd-quota-bytes"),
        auto_compaction_mode: given.text("auto-compaction-mode"),
        auto_compaction_retention: given.text("auto-compaction-retention"),
    }
}

pub(crate) fn compression(given: &Given) -> CompressionConfig {
    CompressionConfig {
        enabled: given.switch("compress-snapshots"),
        policy: given.text("compression-policy"),
    }
}

pub(crate) fn backoff(given: &Given) -> BackoffConfig {
    BackoffConfig {
        multiplier: given.count("backoff-multiplier"),
        attempt_limit: given.count("backoff-attempt-limit"),
        threshold_time: given.span("backoff-threshold-time"),
    }
}

pub(crate) fn defragmentation(given: &Given) -> Schedule {
    Schedule(given.text("defragmentation-schedule"))
}

pub(crate) fn compactor(given: &Given) -> CompactorConfig {
    CompactorConfig {
        defragment: given.switch("defragment"),
        snapshot_timeout: given.span("etcd-snapshot-timeout"),
        defrag_timeout: given.span("etcd-defrag-timeout"),
        full_snapshot_lease_name: given.text("full-snapshot-lease-name"),
        delta_snapshot_lease_name: given.text("delta-snapshot-lease-name"),
        snapshot_lease_renewal_enabled: given.switch("enable-snapshot-lease-renewal"),
        metrics_scrape_wait_duration: given.span("metrics-scrape-wait-duration"),
    }
}

pub(crate) fn copier(given: &Given) -> CopierConfig {
    CopierConfig {
        max_backups_to_copy: given.integer("max-backups-to-copy"),
        max_backup_age_days: given.integer("max-backup-age"),
        max_parallel_copy_operations: given.count("max-parallel-copy-operations"),
        wait_for_final_snapshot: given.switch("wait-for-final-snapshot"),
        wait_for_final_snapshot_timeout: given.span("wait-for-final-snapshot-timeout"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Command;
    use super::*;

    fn defaults(command: &str) -> Given {
        Given::defaults(Command::find(command).unwrap().flags().into_iter())
    }

    #[test]
    fn defaults_of_flags_are_those_of_the_file_but_for_one() {
        let mut from_flags = server(&defaults("server"));
        assert!(from_flags.etcd_connection_config.insecure_skip_verify);
        from_flags.etcd_connection_config.insecure_skip_verify = false;
        from_flags.secondary_snapstore_config.store_config.env_prefix.clear();
        assert_eq!(from_flags.to_yaml(), Config::default().to_yaml());
    }

    #[test]
    fn other_commands_have_their_own_defaults() {
        let compactor = compactor(&defaults("compact"));
        assert_eq!(compactor.snapshot_timeout.to_string(), "30m0s");
        assert!(compactor.defragment);
        let flags = Command::find("server").unwrap().flags();
        let port = flags.iter().find(|flag| flag.name() == "server-port").unwrap();
        let mut given = defaults("server");
        for none in ["65536", "70000", "-1", "http"] {
            assert!(given.add(port, none).is_err(), "{none}");
        }
        given.add(port, "65535").unwrap();
        assert_eq!(server(&given).server_config.port, 65535);
        let copier = copier(&defaults("copy"));
        assert_eq!((copier.max_backups_to_copy, copier.max_parallel_copy_operations), (-1, 10));
        let source = store(&defaults("copy"), "source-");
        assert_eq!((source.env_prefix.as_str(), source.is_source), ("SOURCE_", true));
    }
}
