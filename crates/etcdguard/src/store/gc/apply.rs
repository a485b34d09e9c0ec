//! Removal of what was decided.

use std::collections::BTreeSet;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

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

/// A history that was written down so long ago and holds nothing never will: an etcd that begins anew
/// again and again would leave more and more of them.
const SETTLED: SignedDuration = SignedDuration::from_hours(24);

/// Full snapshots that are looked into in one round. One look is enough for each.
const LOOKS_MAX: usize = 512;

/// What a look into a full snapshot came to.
#[derive(Debug)]
pub enum Look {
    /// It can be read to its end, and holds what its name says.
    Good,
    /// It is not what its name says, and will never be.
    Junk(String),
    /// It cannot be told now.
    Unknown(String),
}

/// Looks into full snapshots. What it takes to do so is not known here.
#[async_trait]
pub trait Inspect: Send + Sync {
    async fn inspect(&self, store: &SnapStore, full: &Snapshot) -> Look;
}

/// Lists the store, decides and removes. A removal that fails does not end the round. Nothing is
/// removed on the word of a name alone: what is to replace it is looked into first.
pub async fn collect(
    store: &SnapStore,
    plan: &Plan,
    now: Timestamp,
    inspect: &dyn Inspect,
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
    let mut deletes = decide(&snapshots, None, plan, keep, now);
    if deletes.iter().any(|delete| delete.stream.is_some()) {
        // What is marked to be left out is not what a restore would begin from.
        let unmarked = store.list(Include::Unmarked).await?;
        deletes = match newest_good(store, &unmarked, inspect).await {
            Ok(good) => decide(&snapshots, good, plan, keep, now),
            Err(why) => {
                tracing::warn!("GC: nothing is removed until it is known what stays: {why}");
                deletes.retain(|delete| delete.stream.is_none());
                deletes
            }
        };
    }
    let mut failures = (None, 0);
    for Delete { snapshot, stream } in deletes {
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
            Err(StoreError::Blobs(blobs::Error::Locked { .. })) => {
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
    // Numbers of histories are of no concern before one has begun.
    let settled = store.histories_before(now - SETTLED).await.unwrap_or_default();
    if (collected.removed.iter().any(|removed| removed.history > 0) || settled.len() > 1)
        && let Err(error) = forget_histories(store, &collected.removed, &settled).await
    {
        tracing::warn!("GC: beginnings of histories are left: {}", error.chain());
    }
    Ok(collected)
}

/// The newest full snapshot that is what its name says; none if none of them is.
async fn newest_good<'s>(
    store: &SnapStore,
    snapshots: &'s [Snapshot],
    inspect: &dyn Inspect,
) -> Result<Option<&'s Snapshot>, String> {
    let is_full = |it: &&Snapshot| it.kind == Kind::Full && !it.is_chunk;
    let mut looks = 0;
    for full in snapshots.iter().rev().filter(is_full) {
        match store.is_good(full) {
            Some(true) => return Ok(Some(full)),
            Some(false) => continue,
            None => {}
        }
        looks += 1;
        if looks > LOOKS_MAX {
            return Err(format!("{LOOKS_MAX} full snapshots are none"));
        }
        match inspect.inspect(store, full).await {
            Look::Good => {
                store.found(full, true);
                return Ok(Some(full));
            }
            Look::Junk(why) => {
                tracing::error!(
                    "GC: {} is no backup and does not count as one: {why}; look at it, and remove \
                     it",
                    full.snap_name
                );
                store.found(full, false);
            }
            Look::Unknown(why) => return Err(format!("{}: {why}", full.snap_name)),
        }
    }
    Ok(None)
}

/// Beginnings of which nothing is left go as well. The store is asked again: a copy may have brought
/// others meanwhile, whose snapshots follow.
async fn forget_histories(
    store: &SnapStore,
    removed: &[Snapshot],
    settled: &BTreeSet<String>,
) -> Result<(), StoreError> {
    let histories = store.histories().await?;
    let left = store.list(Include::All).await?;
    for history in histories.emptied(removed, &left, settled) {
        tracing::info!("GC: nothing is left of the history that began at {}", history.since);
        store.forget_history(history).await?;
    }
    Ok(())
}

fn word(snapshot: &Snapshot) -> &'static str {
    match (snapshot.is_chunk, snapshot.kind) {
        (true, _) => "chunk of a",
        (false, Kind::Full) => "full",
        (false, Kind::Incr) => "delta",
    }
}
