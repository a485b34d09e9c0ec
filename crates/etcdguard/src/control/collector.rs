//! Removes old snapshots from a store, every period, while this sidecar leads. Reads nothing but
//! the store; what goes is decided by [`crate::store::gc`].

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tasks::Stop;
use tokio::time::{Instant, MissedTickBehavior};

use super::metrics::{Meter, Object};
use crate::etcd::Subscription;
use crate::store::gc::{Collected, Plan, collect};
use crate::store::{SnapStore, Snapshot};

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
}

pub(super) async fn run(
    config: CollectorConfig,
    store: SnapStore,
    metrics: Arc<dyn Meter>,
    mut duty: Duty,
    stop: Stop,
) {
    let mut ticks = tokio::time::interval_at(Instant::now() + config.period, config.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.or_stop(ticks.tick()).await.is_some() {
        if !duty.is_on() {
            continue;
        }
        match stop.or_stop(collect(&store, &config.plan, Timestamp::now())).await {
            Some(Ok(collected)) => tell(metrics.as_ref(), &collected),
            Some(Err(error)) => tracing::warn!("old snapshots cannot be listed: {error}"),
            None => return,
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

fn object(snapshot: &Snapshot) -> Object {
    if snapshot.is_chunk { Object::Chunk } else { Object::Snapshot(snapshot.kind) }
}
