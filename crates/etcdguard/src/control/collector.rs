//! Removes old snapshots from a store, every period, while this sidecar leads. Reads nothing but
//! the store; what goes is decided by [`crate::store::gc`], which has full snapshots looked into
//! here.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tasks::Stop;
use tokio::time::{Instant, MissedTickBehavior};

use super::events::{Site, Troubles};
use super::metrics::{Meter, Object};
use super::snapshotter::full::{StoredError, stored};
use crate::etcd::{Observation, Subscription};
use crate::store::gc::{Collected, Inspect, Look, Plan, collect};
use crate::store::{SnapStore, Snapshot};

/// No upload takes longer; one that began earlier was left by somebody who was killed.
const UPLOAD_MAX: SignedDuration = SignedDuration::from_hours(24);
/// A period that is not longer switches collection off.
const PERIOD_OFF: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub struct CollectorConfig {
    pub period: Duration,
    pub plan: Plan,
}

impl CollectorConfig {
    pub(super) fn is_on(&self) -> bool {
        self.period > PERIOD_OFF
    }
}

/// Who may collect.
pub(super) enum Duty {
    /// The sidecar that leads.
    Leading(Subscription),
    /// This process, whoever leads.
    Always,
}

impl Duty {
    pub(super) fn is_on(&mut self) -> bool {
        match self {
            Self::Leading(member) => member.latest().is_leading(),
            Self::Always => true,
        }
    }

    /// Ends when it is on; never once nobody tells of the member any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe.
    pub(super) async fn on(&mut self) {
        match self {
            Self::Leading(member) => {
                if member.until(Observation::is_leading).await.is_none() {
                    std::future::pending::<()>().await;
                }
            }
            Self::Always => {}
        }
    }
}

pub(super) struct Collector {
    pub(super) config: CollectorConfig,
    pub(super) store: SnapStore,
    /// Full snapshots are brought here to be looked into.
    pub(super) temp_dir: PathBuf,
    pub(super) metrics: Arc<dyn Meter>,
    pub(super) troubles: Troubles,
    pub(super) duty: Duty,
}

impl Collector {
    pub(super) async fn run(mut self, stop: Stop) {
        let period = self.config.period;
        let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let inspector = Inspector { temp_dir: self.temp_dir };
        while stop.or_stop(ticks.tick()).await.is_some() {
            if !self.duty.is_on() {
                continue;
            }
            let work = collect(&self.store, &self.config.plan, Timestamp::now(), &inspector);
            match stop.or_stop(work).await {
                Some(Ok(collected)) => {
                    tell(self.metrics.as_ref(), &collected);
                    if let Some(why) = why(&collected) {
                        self.troubles.tell(Site::Collection, why);
                    }
                }
                Some(Err(error)) => {
                    let why = format!("old snapshots cannot be listed: {}", error.chain());
                    tracing::warn!("{why}");
                    self.troubles.tell(Site::Collection, why);
                }
                None => return,
            }
            let before = Timestamp::now() - UPLOAD_MAX;
            match stop.or_stop(self.store.sweep_uploads(before)).await {
                Some(Ok(0)) => {}
                Some(Ok(swept)) => {
                    tracing::info!("GC: gave up {swept} uploads that were never finished");
                }
                Some(Err(error)) => {
                    let why = format!("unfinished uploads cannot be given up: {}", error.chain());
                    tracing::warn!("{why}");
                    self.troubles.tell(Site::Collection, why);
                }
                None => return,
            }
        }
    }
}

/// Reads a full snapshot to its end.
struct Inspector {
    temp_dir: PathBuf,
}

#[async_trait]
impl Inspect for Inspector {
    async fn inspect(&self, store: &SnapStore, full: &Snapshot) -> Look {
        match stored(store, full, &self.temp_dir).await {
            Ok(_) => Look::Good,
            Err(StoredError::Junk(why)) => Look::Junk(why),
            Err(StoredError::Unread(why)) => Look::Unknown(why),
        }
    }
}

fn tell(metrics: &dyn Meter, collected: &Collected) {
    for snapshot in &collected.removed {
        metrics.collected(object(snapshot), true);
    }
    for (snapshot, _) in &collected.failed {
        metrics.collected(object(snapshot), false);
    }
}

/// The first failure, and how many there were.
fn why(collected: &Collected) -> Option<String> {
    let (snapshot, error) = collected.failed.first()?;
    let more = match collected.failed.len() {
        1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    Some(format!("{} was not removed{more}: {}", snapshot.snap_name, error.chain()))
}

fn object(snapshot: &Snapshot) -> Object {
    if snapshot.is_chunk { Object::Chunk } else { Object::Snapshot(snapshot.kind) }
}
