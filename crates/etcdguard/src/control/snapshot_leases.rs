//! Tells the snapshot leases what the snapshotter has in the store. Reads what the snapshotter
//! publishes and nothing else, so an API server that is slow or gone never slows a snapshot.

use std::time::Duration;

use jiff::Timestamp;
use tasks::Stop;
use tokio::sync::watch;

use super::leases::{self, Leases};
use super::snapshotter::Progress;
use crate::store::Snapshot;

const TIMEOUT: Duration = Duration::from_mins(1);
/// Until a full lease that could not be written is tried again.
const AGAIN: Duration = Duration::from_mins(1);

#[derive(Debug, Clone)]
pub struct SnapshotLeaseConfig {
    pub full_name: String,
    pub delta_name: String,
}

/// What the leases have been told.
#[derive(Debug, Default)]
struct Told {
    full: Option<Snapshot>,
    delta: Option<(Option<i64>, u64)>,
}

/// What is to be told next.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    full: Option<Snapshot>,
    delta: DueDelta,
}

#[derive(Debug, PartialEq, Eq)]
enum DueDelta {
    Nothing,
    /// That there was a look, and the newest delta if there is one.
    Looked(Option<i64>),
}

impl Told {
    /// The full lease when there is a full it does not know; the delta lease at each look for
    /// changes.
    fn due(&self, progress: &Progress) -> Due {
        let full = progress.full.clone().filter(|full| self.full.as_ref() != Some(full));
        let looked = progress.delta_looks > 0 || progress.delta.is_some();
        let delta = (progress.delta, progress.delta_looks);
        let is_due = looked && self.delta != Some(delta);
        let delta = if is_due { DueDelta::Looked(progress.delta) } else { DueDelta::Nothing };
        Due { full, delta }
    }
}

pub(super) async fn run(
    config: SnapshotLeaseConfig,
    leases: Leases,
    mut progress: watch::Receiver<Option<Progress>>,
    stop: Stop,
) {
    let mut told = Told::default();
    loop {
        let now = progress.borrow_and_update().clone();
        let mut again = None;
        match &now {
            // Another may tell them meanwhile: then everything is told again.
            None => told = Told::default(),
            Some(now) => {
                let told_all = stop.or_stop(tell(&config, &leases, &mut told, now)).await;
                again = told_all.filter(|all| !all).map(|_| AGAIN);
            }
        }
        let changed = async {
            match again {
                Some(again) => {
                    tokio::time::timeout(again, progress.changed()).await.unwrap_or(Ok(()))
                }
                None => progress.changed().await,
            }
        };
        match stop.or_stop(changed).await {
            Some(Ok(())) => {}
            Some(Err(_)) | None => return,
        }
    }
}

/// False where the full lease does not know yet.
async fn tell(
    config: &SnapshotLeaseConfig,
    leases: &Leases,
    told: &mut Told,
    now: &Progress,
) -> bool {
    let due = told.due(now);
    if let DueDelta::Looked(revision) = due.delta {
        let renewal = leases.change(&config.delta_name, TIMEOUT, |lease| {
            let at = Timestamp::now();
            let told = leases::delta_snapshot(lease, revision, now.newest(), at);
            Some(leases::with_history(lease, told, at))
        });
        match renewal.await {
            Ok(()) => told.delta = Some((now.delta, now.delta_looks)),
            // The next look for changes tells it.
            Err(error) => tracing::warn!(
                "the delta snapshot lease was not renewed: {}",
                telemetry::Chain(&error)
            ),
        }
    }
    let Some(full) = due.full else { return true };
    let renewal = leases.change(&config.full_name, TIMEOUT, |lease| {
        let told = leases::full_snapshot(lease, full.last_revision, full.created_on, now.since);
        told.map(|it| leases::with_history(lease, it, full.created_on))
    });
    match renewal.await {
        Ok(()) => {
            told.full = Some(full);
            true
        }
        Err(error) => {
            tracing::warn!("the full snapshot lease was not renewed: {}", telemetry::Chain(&error));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_not_told_again() {
        let full = Snapshot::full(5, Timestamp::UNIX_EPOCH, None, false);
        let mut told = Told::default();
        let mut now =
            Progress { full: Some(full.clone()), delta: None, delta_looks: 0, since: None };
        assert_eq!(told.due(&now), Due { full: Some(full.clone()), delta: DueDelta::Nothing });
        told.full = Some(full);
        assert_eq!(told.due(&now), Due { full: None, delta: DueDelta::Nothing });
        now.delta_looks = 1;
        assert_eq!(told.due(&now), Due { full: None, delta: DueDelta::Looked(None) });
        told.delta = Some((None, 1));
        assert_eq!(told.due(&now), Due { full: None, delta: DueDelta::Nothing });
        (now.delta_looks, now.delta) = (2, Some(7));
        assert_eq!(told.due(&now), Due { full: None, delta: DueDelta::Looked(Some(7)) });
    }
}
