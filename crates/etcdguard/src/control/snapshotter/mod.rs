//! The snapshotter: while its etcd leads, it keeps the store up to date. It opens with a full
//! snapshot or goes on with deltas ([`decide`]), then writes deltas by time and size, and fulls by
//! schedule and on request ([`session`]).
//!
//! ```text
//!            leads                 answers          snapshot taken
//!  Follower ───────▶ Probing ───────────────▶ Starting ───────▶ Active
//!     ▲                 ▲      wait for backoff                    │
//!     │ no longer leads └──────────────── any error ◀──────────────┘
//!     └── from everywhere, at once: what is under way is dropped
//! ```
//!
//! Nothing here waits for anybody who stops: a term of leadership is one future, and dropping it
//! answers every question that is open. Never: leases ([`super::snapshot_leases`] reads what is
//! published here), collection of old snapshots, or a look at other members.

mod chain;
mod decide;
pub(super) mod full;
mod handle;
mod history;
mod session;
mod tail;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tasks::{Stop, Tasks};
use tokio::sync::{mpsc, watch};

use self::chain::Chain;
use self::handle::Request;
pub use self::handle::{SnapshotterHandle, TriggerError};
use self::session::Session;
use self::tail::Tail;
use super::backoff::{Backoff, BackoffConfig};
use super::events::{Site, Troubles};
use super::health::Health;
use super::metrics::Meter;
use super::schedule::Schedule;
use crate::bolt::BoltError;
use crate::etcd::{Etcd, EtcdError, Observation, Subscription};
use crate::store::{Compression, SnapStore, Snapshot, StoreError};

const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const PROBE_AGAIN: Duration = Duration::from_secs(1);
/// A shorter period switches deltas off.
const DELTA_PERIOD_MIN: Duration = Duration::from_secs(1);
/// What no limit of a delta means.
pub const DELTA_MEMORY_DEFAULT: u64 = 10 << 20;

#[derive(Debug, Clone)]
pub struct SnapshotterConfig {
    pub schedule: Schedule,
    /// Below a second: no deltas.
    pub delta_period: Duration,
    /// Of the text of a delta; 0 is the default.
    pub delta_memory_limit: u64,
    pub compression: Option<Compression>,
    pub temp_dir: PathBuf,
    /// Of the etcd, where it is here: it may say that it is an earlier state on purpose.
    pub data_dir: Option<PathBuf>,
    pub backoff: BackoffConfig,
}

impl SnapshotterConfig {
    pub(crate) fn has_deltas(&self) -> bool {
        self.delta_period >= DELTA_PERIOD_MIN
    }

    fn delta_limit(&self) -> u64 {
        if self.delta_memory_limit == 0 { DELTA_MEMORY_DEFAULT } else { self.delta_memory_limit }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("etcd cannot be read")]
    Etcd(#[from] EtcdError),
    #[error("the store cannot be used")]
    Store(#[from] StoreError),
    #[error("a snapshot cannot be put together")]
    Spool(#[source] io::Error),
    #[error("the database of a full snapshot cannot be read")]
    Database(#[from] BoltError),
    #[error("what etcd sent is not the database of an etcd")]
    Foreign,
    #[error("another guard began a history in the store after this one had looked")]
    Overtaken,
    #[error("the data directory cannot be looked at")]
    Origin(#[source] durable::Error),
}

impl SnapshotError {
    /// One of a few words, for a label.
    fn kind(&self) -> &'static str {
        match self {
            Self::Etcd(_) => "etcd",
            Self::Store(_) | Self::Overtaken => "store",
            Self::Spool(_) | Self::Origin(_) => "spool",
            Self::Database(_) | Self::Foreign => "database",
        }
    }
}

/// What the snapshotter has in the store, for the leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub full: Option<Snapshot>,
    /// The last revision of the newest delta after that full.
    pub delta: Option<i64>,
    /// Rises with every look for changes, whether there were some or not.
    pub delta_looks: u64,
    /// When the history of these began, where it is not the first of the store.
    pub since: Option<Timestamp>,
}

impl Progress {
    /// The last revision in the store, where another history was there before.
    pub(super) fn newest(&self) -> Option<i64> {
        self.since?;
        self.full.as_ref().map(|full| full.last_revision).max(self.delta)
    }
}

/// What it works with.
pub(super) struct Tools {
    pub(super) etcd: Etcd,
    pub(super) store: SnapStore,
    pub(super) config: SnapshotterConfig,
    pub(super) metrics: Arc<dyn Meter>,
    pub(super) tasks: Tasks,
    /// None while it is not active.
    pub(super) progress: watch::Sender<Option<Progress>>,
    pub(super) troubles: Troubles,
    /// The last changes in the store, by the name of the snapshot that this process saved them in.
    pub(super) tail: Mutex<Option<(String, Tail)>>,
    /// The last snapshot that was sent, until it is known to lie where it should.
    pub(super) unsettled: Mutex<Option<history::Unsettled>>,
}

/// The controller. Made once, runs as long as the process.
pub(super) struct Snapshotter {
    tools: Tools,
    requests: mpsc::Receiver<Request>,
    health: watch::Sender<Health>,
    /// Traffic is let in only after this.
    settled: watch::Receiver<bool>,
}

impl Snapshotter {
    /// Begins when `settled` is true.
    pub(super) fn new(
        tools: Tools,
        health: watch::Sender<Health>,
        settled: watch::Receiver<bool>,
    ) -> (SnapshotterHandle, Self) {
        let (handle, requests) = handle::channel();
        (handle, Self { tools, requests, health, settled })
    }

    /// Follows the state of the member until told to stop.
    pub(super) async fn run(mut self, mut member: Subscription, stop: Stop) {
        while self.follow(&mut member, &stop).await {
            tracing::info!("the etcd member leads: snapshots are taken here");
            tokio::select! {
                () = stop.stopping() => {}
                _ = member.until(|seen| !seen.is_leading()) => {
                    tracing::info!("the etcd member no longer leads: no more snapshots here");
                }
                () = self.lead() => {}
            }
            self.health.send_replace(Health::NotServing);
            self.tools.progress.send_replace(None);
        }
    }

    /// Refuses questions until the member leads; false at the end.
    async fn follow(&mut self, member: &mut Subscription, stop: &Stop) -> bool {
        let Self { requests, settled, .. } = self;
        let leads = async {
            settled.wait_for(|settled| *settled).await.ok()?;
            member.until(Observation::is_leading).await
        };
        let refusing = refuse(requests);
        tokio::select! {
            biased;
            () = stop.stopping() => false,
            seen = leads => seen.is_some(),
            () = refusing => false,
        }
    }

    /// One term of leadership: over and over, until it is dropped.
    async fn lead(&mut self) {
        let mut backoff = Backoff::new(self.tools.config.backoff);
        let mut last_full_failed = false;
        loop {
            self.probe().await;
            self.refuse_for(backoff.delay()).await;
            self.health.send_replace(Health::Serving);
            let mut session = Session::new(&self.tools, last_full_failed);
            let ended = match session.start().await {
                Ok(()) => {
                    backoff.succeeded();
                    session.serve(&mut self.requests).await
                }
                Err(error) => error,
            };
            last_full_failed = session.last_full_failed;
            backoff.failed();
            self.tools.progress.send_replace(None);
            self.tools.metrics.snapshotter_failed(ended.kind());
            let why = telemetry::Chain(&ended).to_string();
            tracing::error!("the snapshotter begins anew: {why}");
            self.tools.troubles.tell(Site::Snapshot, why);
        }
    }

    /// Ends when the etcd answers.
    async fn probe(&mut self) {
        while let Err(error) = self.tools.etcd.status(PROBE_TIMEOUT).await {
            self.health.send_replace(Health::NotServing);
            tracing::warn!("etcd does not answer: {}", telemetry::Chain(&error));
            self.refuse_for(PROBE_AGAIN).await;
        }
    }

    async fn refuse_for(&mut self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = refuse(&mut self.requests) => {}
        }
    }

    /// Without regard to who leads, and with the first error as the end: a full snapshot now, then
    /// as ever. Ends well only when told to stop.
    pub(super) async fn run_alone(mut self, stop: Stop) -> Result<(), SnapshotError> {
        let mut session = Session::new(&self.tools, false);
        let work = async {
            session.begin_with_full().await?;
            Err(session.serve(&mut self.requests).await)
        };
        stop.or_stop(work).await.unwrap_or(Ok(()))
    }
}

/// Answers that nobody is active, for as long as it is polled.
async fn refuse(requests: &mut mpsc::Receiver<Request>) {
    while let Some(request) = requests.recv().await {
        request.refuse(TriggerError::NotActive);
    }
    // Nobody can ask any more.
    std::future::pending::<()>().await;
}

/// What the metrics tell of the newest snapshot.
fn tell(metrics: &dyn Meter, chain: &Chain, snapshot: &Snapshot) {
    metrics.latest_snapshot(snapshot.kind, snapshot.last_revision, snapshot.created_on.as_second());
    metrics.latest_deltas(chain.deltas.len(), chain.delta_revisions());
}

/// Now, as names of snapshots count it.
fn now() -> Timestamp {
    Timestamp::now()
}
