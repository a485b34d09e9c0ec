//! The controllers: each one duty, each acting on the last state the monitor told.
//!
//! Owns: what is done beside a running etcd, and when: heartbeat, snapshots and their leases,
//! collection, defragmentation, promotion, peer URLs, the second site. Controllers do not know one
//! another. Never: HTTP, settings as files or flags have them, or a data directory at rest.

mod backoff;
mod collector;
mod defragmenter;
mod events;
mod health;
mod heartbeat;
pub mod leases;
pub mod membership;
pub mod metrics;
mod peer_urls;
mod promotion;
mod schedule;
mod second_site;
mod snapshot_leases;
mod snapshotter;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tasks::Tasks;
use tokio::sync::watch;

pub use backoff::BackoffConfig;
pub use collector::CollectorConfig;
pub use defragmenter::DefragmenterConfig;
pub use events::{EventsConfig, Site, Troubles};
pub use health::Health;
pub use heartbeat::HeartbeatConfig;
pub use peer_urls::{PeerUrlConfig, Restart};
pub use schedule::{Schedule, ScheduleError};
pub use second_site::SecondSiteConfig;
pub use snapshot_leases::SnapshotLeaseConfig;
pub use snapshotter::{
    DELTA_MEMORY_DEFAULT, Progress, SnapshotError, SnapshotterConfig, SnapshotterHandle,
    TriggerError,
};

use self::collector::{Collector, Duty};
use self::defragmenter::Defragmenter;
use self::leases::Leases;
use self::metrics::Meter;
use self::snapshotter::{Snapshotter, Tools};
use crate::etcd::{Etcd, EtcdMonitor};
use crate::store::SnapStore;

/// What is guarded and how. What is None is not done.
#[derive(Debug)]
pub struct Guard {
    /// The member beside this sidecar.
    pub etcd: Etcd,
    /// Any members of its cluster, for changes of the membership.
    pub cluster: Etcd,
    pub monitor: EtcdMonitor,
    pub store: Option<Store>,
    pub defragmenter: Option<DefragmenterConfig>,
    pub peer_urls: Option<PeerUrlConfig>,
    pub kube: Option<Kube>,
    pub metrics: Arc<dyn Meter>,
    /// Where what fails is told; events tell it on where there is an API.
    pub troubles: Troubles,
}

/// The store and what is done with it.
#[derive(Debug)]
pub struct Store {
    pub snapshots: SnapStore,
    pub snapshotter: SnapshotterConfig,
    pub collector: CollectorConfig,
    /// Another store that is kept equal, with a collector of the same policy.
    pub second: Option<SecondSiteConfig>,
}

/// The leases and which of them are kept.
#[derive(Debug)]
pub struct Kube {
    pub leases: Leases,
    pub heartbeat: Option<HeartbeatConfig>,
    pub snapshot_leases: Option<SnapshotLeaseConfig>,
    pub events: EventsConfig,
}

/// How the rest of the process speaks to the controllers.
#[derive(Debug)]
pub struct Handles {
    /// None without a store.
    pub snapshotter: Option<SnapshotterHandle>,
    /// What `/healthz` says.
    pub health: watch::Receiver<Health>,
    /// What the snapshotter has in the store; None while it is not active.
    pub progress: watch::Receiver<Option<Progress>>,
}

/// Starts the monitor and all controllers. They run until the tasks are stopped.
pub fn run(guard: Guard, tasks: &Tasks) -> Handles {
    let Guard { etcd, cluster, monitor, store, defragmenter, peer_urls, kube, metrics, troubles } =
        guard;
    let (health, health_seen) = watch::channel(Health::NotServing);
    let (progress, progress_seen) = watch::channel(None);
    // Traffic is let in only where peers find the member.
    let (settled, settled_seen) = watch::channel(peer_urls.is_none());
    let polling = monitor.clone();
    tasks.spawn_draining("monitor", |stop| async move {
        polling.run(&stop).await;
        polling.close();
    });
    if let Some(config) = peer_urls {
        let (cluster, member) = (cluster.clone(), monitor.subscribe("peer-urls"));
        let told = (settled, troubles.clone());
        tasks.spawn_draining("peer-urls", |stop| async move {
            peer_urls::run(config, cluster, member, told, stop).await;
        });
    }
    let (member, meter) = (monitor.subscribe("promotion"), Arc::clone(&metrics));
    let told = (meter, troubles.clone());
    tasks.spawn_draining("promotion", |stop| promotion::run(cluster, member, told, stop));
    let leases = kube.as_ref().map(|kube| kube.leases.clone());
    if let Some(kube) = kube {
        keep_leases(kube, &monitor, progress_seen.clone(), troubles.clone(), tasks);
    }
    if let Some(config) = defragmenter {
        let duty = Duty::Leading(monitor.subscribe("defragmenter"));
        defragment(config, etcd.clone(), duty, leases, (&metrics, &troubles), tasks);
    }
    let snapshotter = match store {
        None => {
            let member = monitor.subscribe("health");
            tasks.spawn_draining("health", |stop| {
                health::follow(member, health, settled_seen, stop)
            });
            None
        }
        Some(store) => {
            let duty = Duty::Leading(monitor.subscribe("collector"));
            collect(&store, store.snapshots.clone(), duty, (&metrics, &troubles), tasks);
            if let Some(second) = store.second.clone() {
                keep_second(second, &store, &monitor, (&metrics, &troubles), tasks);
            }
            let tools = tools(etcd, store, &metrics, (progress, troubles), tasks);
            let (handle, snapshotter) = Snapshotter::new(tools, health, settled_seen);
            let member = monitor.subscribe("snapshotter");
            tasks.spawn_draining("snapshotter", |stop| snapshotter.run(member, stop));
            Some(handle)
        }
    };
    Handles { snapshotter, health: health_seen, progress: progress_seen }
}

/// Takes snapshots whoever leads: a full one at once, then by schedule, with collection and
/// defragmentation beside it. Ends with the first error, or well when the tasks are stopped.
pub async fn run_alone(
    etcd: Etcd,
    store: Store,
    defragmenter: Option<DefragmenterConfig>,
    metrics: Arc<dyn Meter>,
    tasks: &Tasks,
) -> Result<(), SnapshotError> {
    // A command without an API: its log tells.
    let troubles = Troubles::default();
    collect(&store, store.snapshots.clone(), Duty::Always, (&metrics, &troubles), tasks);
    if let Some(config) = defragmenter {
        defragment(config, etcd.clone(), Duty::Always, None, (&metrics, &troubles), tasks);
    }
    let (progress, _) = watch::channel(None);
    let (health, _) = watch::channel(Health::NotServing);
    let tools = tools(etcd, store, &metrics, (progress, troubles), tasks);
    let (_, settled) = watch::channel(true);
    let (_handle, snapshotter) = Snapshotter::new(tools, health, settled);
    snapshotter.run_alone(tasks.stop_signal()).await
}

fn tools(
    etcd: Etcd,
    store: Store,
    metrics: &Arc<dyn Meter>,
    (progress, troubles): (watch::Sender<Option<Progress>>, Troubles),
    tasks: &Tasks,
) -> Tools {
    Tools {
        etcd,
        store: store.snapshots,
        config: store.snapshotter,
        metrics: Arc::clone(metrics),
        tasks: tasks.clone(),
        progress,
        troubles,
        tail: Mutex::default(),
        unsettled: Mutex::default(),
    }
}

fn collect(
    store: &Store,
    snapshots: SnapStore,
    duty: Duty,
    (metrics, troubles): (&Arc<dyn Meter>, &Troubles),
    tasks: &Tasks,
) {
    let config = store.collector;
    if config.is_on() {
        let collector = Collector {
            config,
            store: snapshots,
            temp_dir: store.snapshotter.temp_dir.clone(),
            metrics: Arc::clone(metrics),
            troubles: troubles.clone(),
            duty,
        };
        tasks.spawn_draining("collector", |stop| collector.run(stop));
    }
}

fn keep_second(
    second: SecondSiteConfig,
    store: &Store,
    monitor: &EtcdMonitor,
    (metrics, troubles): (&Arc<dyn Meter>, &Troubles),
    tasks: &Tasks,
) {
    let duty = Duty::Leading(monitor.subscribe("second-site-collector"));
    collect(store, second.store.clone(), duty, (metrics, troubles), tasks);
    let (snapshots, member) = (store.snapshots.clone(), monitor.subscribe("second-site"));
    let troubles = troubles.clone();
    tasks.spawn_draining("second-site", |stop| {
        second_site::run(second, snapshots, member, troubles, stop)
    });
}

fn defragment(
    config: DefragmenterConfig,
    etcd: Etcd,
    duty: Duty,
    leases: Option<Leases>,
    (metrics, troubles): (&Arc<dyn Meter>, &Troubles),
    tasks: &Tasks,
) {
    let (metrics, troubles) = (Arc::clone(metrics), troubles.clone());
    let done = BTreeMap::new();
    let defragmenter = Defragmenter { config, etcd, metrics, troubles, duty, leases, done };
    tasks.spawn_draining("defragmenter", |stop| defragmenter.run(stop));
}

fn keep_leases(
    kube: Kube,
    monitor: &EtcdMonitor,
    progress: watch::Receiver<Option<Progress>>,
    troubles: Troubles,
    tasks: &Tasks,
) {
    let Kube { leases, heartbeat, snapshot_leases, events } = kube;
    let client = leases.client();
    tasks.spawn_draining("events", |stop| events::run(events, client, troubles, stop));
    if let Some(config) = heartbeat {
        let (leases, member) = (leases.clone(), monitor.subscribe("heartbeat"));
        tasks.spawn_draining("heartbeat", |stop| heartbeat::run(config, leases, member, stop));
    }
    if let Some(config) = snapshot_leases {
        tasks.spawn_draining("snapshot-leases", |stop| {
            snapshot_leases::run(config, leases, progress, stop)
        });
    }
}
