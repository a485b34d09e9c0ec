//! Removal of what was decided.

use jiff::Timestamp;

use super::decide::{Delete, Keep, Plan, decide};
use crate::store::error::StoreError;
use crate::store::snapshot::{Kind, Snapshot};
use crate::store::{Include, Provider, SnapStore};

/// After so many failures the rest of a stream is left to the next round.
const FAILURES_MAX: usize = 5;

/// What became of one round.
#[derive(Debug, Default)]
pub struct Collected {
    pub removed: Vec<Snapshot>,
    pub failed: Vec<(Snapshot, StoreError)>,
}

/// Lists the store, decides and removes. A removal that fails does not end the round.
pub async fn collect(
    store: &SnapStore,
    plan: &Plan,
    now: Timestamp,
) -> Result<Collected, StoreError> {
    let snapshots = store.list(Include::All).await?;
    let mut collected = Collected::default();
    let keep = match store.provider() {
        Provider::Swift => Keep::Chunks,
        Provider::Local
        | Provider::S3
        | Provider::Abs
        | Provider::Gcs
        | Provider::Oss
        | Provider::Ecs
        | Provider::Ocs
        | Provider::Failed => Keep::Nothing,
    };
    let mut failures = (None, 0);
    for Delete { snapshot, stream } in decide(&snapshots, plan, keep, now) {
        if failures.0 != stream {
            failures = (stream, 0);
        }
        if stream.is_some() && failures.1 >= FAILURES_MAX {
            continue;
        }
        match store.delete(&snapshot).await {
            Ok(()) => {
                tracing::info!("GC: Deleted {} snapshot {}", word(&snapshot), snapshot.snap_name);
                collected.removed.push(snapshot);
            }
            Err(error) if is_protected(&error) => {
                tracing::info!("GC: {} is immutable, leaving it", snapshot.snap_name);
            }
            Err(error) => {
                let why = error.chain();
                tracing::warn!("GC: Failed to delete snapshot {}: {why}", snapshot.snap_name);
                failures.1 += 1;
                collected.failed.push((snapshot, error));
            }
        }
    }
    Ok(collected)
}

/// Whether the store refuses for now, by a rule of its own: by the words that Azure and Google use.
fn is_protected(error: &StoreError) -> bool {
    let words = error.chain();
    ["BlobImmutableDueToPolicy", "retentionPolicyNotMet"].iter().any(|word| words.contains(word))
}

fn word(snapshot: &Snapshot) -> &'static str {
    match (snapshot.is_chunk, snapshot.kind) {
        (true, _) => "chunk of a",
        (false, Kind::Full) => "full",
        (false, Kind::Incr) => "delta",
    }
}
