//! The course of a restore: plan, base, deltas, members, verification, swap.

use std::path::Path;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::bolt::Bolt;
use crate::datadir;
use crate::store::{Include, Latest, SnapStore, Snapshot, history};

use super::fold::Fold;
use super::part::Part;
use super::progress::{Progress, Stage};
use super::spool::{self, Spool};
use super::{
    Existing, Plan, Restoration, RestoreError, Restored, Target, base, cut, plan, succession,
};

/// Restores from a store into a data directory.
///
/// # Cancel safety
/// Dropped at any await, it leaves the data directory as it was or complete; work in
/// `<data dir>.part` is taken up by the next call for the same target.
pub async fn restore(
    store: &SnapStore,
    how: &Restoration,
    target: Target,
    progress: &Progress,
) -> Result<Restored, RestoreError> {
    how.identity.validate()?;
    let part = Part::of(&how.data_dir);
    part.look(how)?;
    let snapshots = store.list(Include::Unmarked).await?;
    let plan = plan(&snapshots, target)?;
    let part = part.claimed()?;
    let folded = fold(store, how, &part, &plan, progress).await;
    let folded = match folded {
        Ok(folded) => folded,
        Err(error) => {
            // Whoever tries again goes on from there, unless it would end the same, or there is nothing
            // to go on from; and room is worth more than what was done.
            let is_of_use = part.is_begun() && !error.is_for_good() && !error.is_for_want_of_room();
            if !is_of_use && let Err(left) = part.end() {
                tracing::warn!("what was prepared is left: {}", telemetry::Chain(&left));
            }
            return Err(error.without_base(&snapshots, &plan));
        }
    };
    if let Err(early) = plan.check_begun(folded.revision, &snapshots) {
        part.end()?;
        return Err(early.into());
    }
    progress.enter(Stage::Verifying);
    // By a clock that is behind, it would seem to be older than what it follows.
    let histories = store.histories().await?;
    let now = histories.newest().map_or_else(Timestamp::now, |it| it.since.max(Timestamp::now()));
    let (how, origin) = (how.clone(), origin(&snapshots, &plan, (folded.revision, now)));
    let restored = blocking(move || complete(&how, &part, &plan, folded, origin)).await?;
    progress.enter(Stage::Done);
    Ok(restored)
}

/// What the directory must say of itself, where it is not the newest state of the store.
fn origin(
    snapshots: &[Snapshot],
    plan: &Plan,
    (revision, now): (i64, Timestamp),
) -> Option<datadir::Origin> {
    let newest = snapshots.iter().rev().find(|snapshot| !snapshot.is_chunk)?;
    let last = Latest::of(snapshots).last_revision().unwrap_or(0);
    if plan.history == newest.history && revision >= last {
        return None;
    }
    let reason = format!("restored to revision {revision}, where the store was at {last}");
    Some(datadir::Origin::new(history::new_id(), now, revision, reason))
}

/// What folding gave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Folded {
    pub(super) revision: i64,
    pub(super) events: u64,
}

/// Makes the database of `plan` in `part`.
pub(super) async fn fold(
    store: &SnapStore,
    how: &Restoration,
    part: &Part,
    plan: &Plan,
    progress: &Progress,
) -> Result<Folded, RestoreError> {
    let done = fold_in(store, how, part, plan, progress).await;
    // Only an empty one goes, and only then is it ours.
    let _ = std::fs::remove_dir(&how.temp_dir);
    done
}

async fn fold_in(
    store: &SnapStore,
    how: &Restoration,
    part: &Part,
    plan: &Plan,
    progress: &Progress,
) -> Result<Folded, RestoreError> {
    let fetchers = how.max_fetchers.max(1);
    let (ready, turns) = mpsc::channel(fetchers);
    // Deltas are fetched and read while the base still comes.
    let fetching = fetch_deltas(store, plan, &how.temp_dir, fetchers, ready);
    let folding = async {
        fetch_base(store, how, part, plan, progress).await?;
        progress.enter(Stage::ApplyingDeltas);
        apply(part, plan, turns, progress).await
    };
    let (fetched, folded) = tokio::join!(fetching, folding);
    match (fetched, folded) {
        (Ok(()), folded) => folded,
        // Whoever failed first made the other stop.
        (Err(RestoreError::Stopped), Err(error)) | (Err(error), _) => Err(error),
    }
}

async fn fetch_base(
    store: &SnapStore,
    how: &Restoration,
    part: &Part,
    plan: &Plan,
    progress: &Progress,
) -> Result<(), RestoreError> {
    progress.enter(Stage::FetchingBase);
    if part.enter(plan)? {
        tracing::info!("going on with the restore in {}", part.new_dir().display());
        return Ok(());
    }
    let database = part.database();
    match &plan.base {
        Some(snapshot) => {
            base::fetch(store, snapshot, &database, how.skip_hash_check, progress).await?;
        }
        None => cut::empty(&database)?,
    }
    part.mark_base(plan)
}

/// Fetches the deltas, some at a time, and hands them over in their order.
async fn fetch_deltas(
    store: &SnapStore,
    plan: &Plan,
    temp_dir: &Path,
    fetchers: usize,
    ready: mpsc::Sender<Spool>,
) -> Result<(), RestoreError> {
    let jobs = plan.deltas.iter().map(|snapshot| {
        let (store, snapshot, dir) = (store.clone(), snapshot.clone(), temp_dir.to_owned());
        // Reading events is work for a processor: each delta has a thread of its own.
        let handle = Handle::current();
        async move {
            let work = move || handle.block_on(spool::spool(&store, &snapshot, &dir));
            blocking(work).await
        }
    });
    let mut spooled = stream::iter(jobs).buffered(fetchers);
    while let Some(spool) = spooled.try_next().await? {
        if ready.send(spool).await.is_err() {
            // All that was asked for is in, or it failed, which is told elsewhere.
            return Ok(());
        }
    }
    Ok(())
}

async fn apply(
    part: &Part,
    plan: &Plan,
    mut turns: mpsc::Receiver<Spool>,
    progress: &Progress,
) -> Result<Folded, RestoreError> {
    let (work, whole, progress) = (part.clone(), plan.clone(), progress.clone());
    let mut fold = blocking(move || Fold::open(work, &whole, &progress)).await?;
    if plan.target == Target::Newest
        && let Some(gap) = plan.gap(fold.revision)
    {
        return Err(gap.into());
    }
    while !fold.is_done
        && let Some(spool) = turns.recv().await
    {
        fold = blocking(move || {
            fold.add(&spool)?;
            Ok(fold)
        })
        .await?;
    }
    let plan = plan.clone();
    let path = part.database();
    blocking(move || settle(&path, &plan, fold)).await
}

/// Ends the folding, and drops what goes beyond what was asked for.
fn settle(path: &Path, plan: &Plan, fold: Fold) -> Result<Folded, RestoreError> {
    let (excess, found, events) = (fold.excess()?, fold.revision, fold.events);
    fold.finish()?;
    let revision = excess.unwrap_or(found);
    if let Some(revision) = excess {
        cut::cut_back(path, revision)?;
    }
    let expected = match plan.target {
        Target::Newest => plan.last(),
        Target::Revision(asked) => asked,
        Target::Time(_) => revision,
    };
    if revision < expected {
        return Err(RestoreError::Short { found: revision, expected });
    }
    Ok(Folded { revision, events })
}

/// Gives the database its members, writes the rest of the directory, verifies it and swaps it in.
fn complete(
    how: &Restoration,
    part: &Part,
    plan: &Plan,
    folded: Folded,
    origin: Option<datadir::Origin>,
) -> Result<Restored, RestoreError> {
    let path = part.database();
    if how.existing == Existing::SetAsideIfPast {
        check_past(&how.data_dir, &part.old_database(), &path)?;
    }
    let mut editor = crate::bolt::Editor::open(&path)?;
    let bolt = Bolt::open(&path).map_err(RestoreError::bolt)?;
    datadir::rejoin(&bolt, &mut editor, &how.identity)?;
    editor.commit()?;
    drop((editor, bolt));
    datadir::write_log(&part.new_dir(), &how.identity)?;
    if let Some(origin) = &origin {
        let path = part.new_dir();
        origin.write(&path).map_err(|source| RestoreError::State { path, source })?;
    }
    let checked = datadir::check(&part.new_dir(), datadir::Mode::Full)?;
    if checked.revision != folded.revision {
        let (found, expected) = (checked.revision, folded.revision);
        return Err(RestoreError::Short { found, expected });
    }
    let bytes = path.metadata().map_err(RestoreError::io("look at", &path))?.len();
    let old = part.swap(how)?;
    tracing::info!("restored revision {} into {}", folded.revision, how.data_dir.display());
    Ok(Restored {
        revision: folded.revision,
        base: plan.base.clone(),
        deltas: plan.deltas.len(),
        events: folded.events,
        bytes,
        old,
        origin,
    })
}

/// Refuses to replace a database by one that does not go on from it.
fn check_past(dir: &Path, older: &Path, newer: &Path) -> Result<(), RestoreError> {
    let open = |path| Bolt::open(path).map_err(RestoreError::bolt);
    let (older, newer) = (open(older)?, open(newer)?);
    let at = |bolt| datadir::current(bolt).map_err(RestoreError::bolt);
    let Some(what) = succession::contradiction(&older, &newer)? else { return Ok(()) };
    let revision = at(&older)?.map_or(0, |it| it.revision);
    let newest = at(&newer)?.map_or(0, |it| it.revision);
    Err(RestoreError::Another { dir: dir.to_owned(), revision, newest, what })
}

/// Every page and row, and the revision. Gives the size.
pub(super) fn verify(path: &Path, revision: i64) -> Result<u64, RestoreError> {
    let bolt = Bolt::open(path).map_err(RestoreError::bolt)?;
    let found = datadir::check_database(&bolt)?.current.revision;
    if found != revision {
        return Err(RestoreError::Short { found, expected: revision });
    }
    Ok(bolt.size())
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RestoreError> + Send + 'static,
) -> Result<T, RestoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| RestoreError::Stopped)?
}
