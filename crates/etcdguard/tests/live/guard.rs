//! A guard beside the etcd of a test, with a store in the test's directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etcdguard::control::metrics::Unmetered;
use etcdguard::control::{
    BackoffConfig, CollectorConfig, DefragmenterConfig, Guard, Handles, Health, PeerUrlConfig,
    SnapshotterConfig, SnapshotterHandle, Store, Troubles, run,
};
use etcdguard::etcd::{ConnectionConfig, Etcd, EtcdMonitor};
use etcdguard::store::delta::Events;
use etcdguard::store::gc::{Plan, Policy};
use etcdguard::store::{Compression, Environment, Include, Kind, SnapStore, Snapshot, StoreConfig};
use tasks::Tasks;

use crate::member::TIMEOUT;

pub(crate) const SPARSE: &str = "0 0 1 1 *";

/// The settings a test may care about.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) connection: ConnectionConfig,
    /// Above the store.
    pub(crate) home: PathBuf,
    pub(crate) schedule: String,
    pub(crate) delta_period: Duration,
    pub(crate) delta_memory_limit: u64,
    pub(crate) defragmentation: Option<&'static str>,
    pub(crate) peer_urls: Option<Vec<String>>,
    /// Of the etcd.
    pub(crate) data_dir: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn new(connection: ConnectionConfig, home: &Path) -> Self {
        Self {
            connection,
            home: home.to_owned(),
            schedule: testkit::etcd::far_schedule(),
            delta_period: Duration::from_hours(1),
            delta_memory_limit: 0,
            defragmentation: None,
            peer_urls: None,
            data_dir: None,
        }
    }

    pub(crate) fn store(&self) -> SnapStore {
        let config = StoreConfig {
            provider: "Local".to_owned(),
            container: "backups".to_owned(),
            prefix: "etcd-main".to_owned(),
            ..StoreConfig::default()
        };
        let home = self.home.to_str().unwrap();
        let environment: Environment = [("HOME", home)].into_iter().collect();
        SnapStore::open(&config, &environment).unwrap()
    }

    /// Where the objects are.
    pub(crate) fn objects(&self) -> PathBuf {
        self.home.join("backups/etcd-main/v2")
    }
}

pub(crate) struct Running {
    pub(crate) tasks: Tasks,
    pub(crate) handles: Handles,
    pub(crate) store: SnapStore,
}

impl Running {
    pub(crate) fn start(settings: &Settings) -> Self {
        let etcd = Etcd::connect(&settings.connection).unwrap();
        let period = Duration::from_millis(50);
        let monitor = EtcdMonitor::new(Arc::new(etcd.clone()), period, Duration::from_secs(5));
        let store = settings.store();
        let snapshotter = SnapshotterConfig {
            schedule: settings.schedule.parse().unwrap(),
            delta_period: settings.delta_period,
            delta_memory_limit: settings.delta_memory_limit,
            compression: Some(Compression::Gzip),
            temp_dir: settings.home.join("temp"),
            data_dir: settings.data_dir.clone(),
            backoff: BackoffConfig { multiplier: 1, attempt_limit: 6, threshold: TIMEOUT },
        };
        let plan =
            Plan { policy: Policy::LimitBased { max_backups: 7 }, delta_retention: Duration::ZERO };
        let tasks = Tasks::new();
        let guard = Guard {
            etcd,
            cluster: Etcd::of_cluster(&settings.connection).unwrap(),
            monitor,
            store: Some(Store {
                snapshots: store.clone(),
                snapshotter,
                collector: CollectorConfig { period: Duration::from_mins(1), plan },
                second: None,
            }),
            defragmenter: settings.defragmentation.map(|schedule| DefragmenterConfig {
                schedule: schedule.parse().unwrap(),
                data_dir: Some(settings.home.clone()),
            }),
            peer_urls: settings
                .peer_urls
                .clone()
                .map(|peer_urls| PeerUrlConfig { peer_urls, restart: None }),
            kube: None,
            metrics: Arc::new(Unmetered),
            troubles: Troubles::default(),
        };
        Self { handles: run(guard, &tasks), tasks, store }
    }

    pub(crate) fn snapshotter(&self) -> SnapshotterHandle {
        self.handles.snapshotter.clone().unwrap()
    }

    pub(crate) fn is_serving(&self) -> bool {
        *self.handles.health.borrow() == Health::Serving
    }

    /// Until the snapshotter takes requests.
    pub(crate) async fn active(&mut self) {
        let serving = self.handles.health.wait_for(|health| *health == Health::Serving);
        tokio::time::timeout(TIMEOUT, serving).await.unwrap().unwrap();
        let active = self.handles.progress.wait_for(Option::is_some);
        tokio::time::timeout(TIMEOUT, active).await.unwrap().unwrap();
    }

    pub(crate) async fn stop(self) {
        self.tasks.stop(TIMEOUT).await.unwrap();
    }

    /// Kind, first and last revision of what is in the store.
    pub(crate) async fn ranges(&self) -> Vec<(Kind, i64, i64)> {
        ranges(&self.store.list(Include::All).await.unwrap())
    }

    /// The revisions of the events in a delta.
    pub(crate) async fn revisions(&self, delta: &Snapshot) -> Vec<i64> {
        let mut events = Events::of(self.store.open_plain(delta).await.unwrap());
        let mut found = Vec::new();
        while let Some(event) = events.next().await.unwrap() {
            found.push(event.mod_revision);
        }
        found
    }
}

/// That the newest full and what follows it hold every revision up to `last`.
pub(crate) async fn assert_whole(guard: &Running, last: i64) {
    let latest = guard.store.latest().await.unwrap();
    let mut covered = latest.full.unwrap().last_revision;
    let mut deltas = latest.deltas;
    deltas.sort_by_key(|delta| (delta.start_revision, delta.last_revision));
    for delta in &deltas {
        assert!(delta.start_revision <= covered + 1, "a gap before {delta:?}");
        let wanted: Vec<i64> = (delta.start_revision..=delta.last_revision).collect();
        assert_eq!(guard.revisions(delta).await, wanted);
        covered = covered.max(delta.last_revision);
    }
    assert_eq!(covered, last);
}

pub(crate) fn ranges(snapshots: &[Snapshot]) -> Vec<(Kind, i64, i64)> {
    snapshots.iter().map(|one| (one.kind, one.start_revision, one.last_revision)).collect()
}
