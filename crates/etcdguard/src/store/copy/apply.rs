//! The copying itself.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use tokio::time::Instant;

use super::select::{Selection, copied_name, has_recent_final, select};
use crate::store::error::StoreError;
use crate::store::snapshot::Snapshot;
use crate::store::{Include, SnapStore};

/// After each snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: usize,
    pub failed: usize,
    pub total: usize,
}

/// What became of a copy.
#[derive(Debug, Default)]
pub struct Copied {
    /// As they are called in the destination.
    pub copied: Vec<Snapshot>,
    /// As they are called in the source.
    pub failed: Vec<(Snapshot, StoreError)>,
}

/// What becomes of an object that is no snapshot although it is called one. Copies are read back in
/// any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Junk {
    /// It is copied as it is, with a warning: whoever looks at it finds it in both stores.
    Copied,
    /// It is not copied, and the copying has failed.
    Refused,
}

/// Copies what the destination lacks, `at_once` objects at the same time. Failures are collected,
/// and do not end the rest; only a store that cannot be listed does.
pub async fn copy(
    source: &SnapStore,
    destination: &SnapStore,
    selection: Selection,
    (at_once, junk): (usize, Junk),
    mut progress: impl FnMut(Progress) + Send,
) -> Result<Copied, StoreError> {
    let there = destination.list(Include::All).await?;
    let here = source.list(Include::Unmarked).await?;
    let wanted = select(&here, &there, selection, Timestamp::now());
    copy_histories(source, destination).await?;
    let mut state = Progress { done: 0, failed: 0, total: wanted.len() };
    let mut copied = Copied::default();
    let jobs: Vec<_> = wanted
        .into_iter()
        .map(|snapshot| copy_one(source.clone(), destination.clone(), snapshot, junk))
        .collect();
    let mut running = stream::iter(jobs).buffer_unordered(at_once.max(1));
    while let Some((snapshot, done)) = running.next().await {
        match done {
            Ok(copy) => {
                tracing::info!("Copied snapshot {}", snapshot.snap_name);
                state.done += 1;
                copied.copied.push(copy);
            }
            Err(error) => {
                tracing::error!("Failed to copy {}: {}", snapshot.snap_name, error.chain());
                state.failed += 1;
                copied.failed.push((snapshot, error));
            }
        }
        progress(state);
    }
    Ok(copied)
}

async fn copy_one(
    source: SnapStore,
    destination: SnapStore,
    snapshot: Snapshot,
    junk: Junk,
) -> (Snapshot, Result<Snapshot, StoreError>) {
    let done = copy_checked(&source, &destination, &snapshot, junk).await;
    (snapshot, done)
}

/// What tells snapshots apart comes first: without it they would be taken for one history.
async fn copy_histories(source: &SnapStore, destination: &SnapStore) -> Result<(), StoreError> {
    let there = destination.histories().await?;
    for history in source.histories().await?.iter() {
        if !there.iter().any(|it| it.id == history.id) {
            destination.begin_history(history).await?;
        }
    }
    Ok(())
}

async fn copy_checked(
    source: &SnapStore,
    destination: &SnapStore,
    snapshot: &Snapshot,
    junk: Junk,
) -> Result<Snapshot, StoreError> {
    let body = source.open_packed(snapshot).await?;
    let saved = destination.save(&copied_name(snapshot), body).await?;
    let checked = destination.verify(&saved).await;
    match (&checked, junk) {
        (Err(error), Junk::Copied) if error.is_junk() => {
            tracing::warn!("Copied {}, which is no backup: {}", saved.snap_name, error.chain());
            return Ok(saved);
        }
        (Ok(()), _) if source.is_good(snapshot) == Some(true) => destination.found(&saved, true),
        (Ok(()) | Err(_), _) => {}
    }
    if let Err(error) = checked {
        // What cannot be read back must not be taken for a backup.
        if let Err(left) = destination.delete(&saved).await {
            let why = left.chain();
            tracing::error!("The bad copy {} could not be removed: {why}", saved.snap_name);
        }
        return Err(error);
    }
    Ok(saved)
}

/// Looks every `poll` whether the source has its last snapshot; false where `timeout` passed first.
pub async fn wait_for_final(
    source: &SnapStore,
    timeout: Option<Duration>,
    poll: Duration,
) -> Result<bool, StoreError> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        if has_recent_final(&source.list(Include::Unmarked).await?) {
            return Ok(true);
        }
        match deadline {
            Some(deadline) if Instant::now() + poll > deadline => {
                tokio::time::sleep_until(deadline).await;
                return Ok(has_recent_final(&source.list(Include::Unmarked).await?));
            }
            Some(_) | None => tokio::time::sleep(poll).await,
        }
    }
}
