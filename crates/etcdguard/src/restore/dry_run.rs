//! What a restore would give, from what is in the store; nothing is written.

use crate::store::delta::Events;
use crate::store::{Include, SnapStore, Snapshot};

use super::plan::Gap;
use super::{Plan, RestoreError, Target, plan};

/// What would be restored.
#[derive(Debug, Clone)]
pub struct DryRun {
    pub base: Option<Snapshot>,
    pub deltas: Vec<Snapshot>,
    /// The revision it would be at. A full snapshot may be newer than its name; then it is that.
    pub revision: i64,
    /// What would be fetched.
    pub bytes: u64,
    /// Revisions that are missing, as far as names tell.
    pub gap: Option<Gap>,
}

/// Plans a restore and reads all it would read, so that a damaged object shows now.
pub async fn dry_run(store: &SnapStore, target: Target) -> Result<DryRun, RestoreError> {
    let snapshots = store.list(Include::Unmarked).await?;
    let plan = plan(&snapshots, target)?;
    let mut bytes: u64 = 0;
    for snapshot in plan.base.iter().chain(&plan.deltas) {
        store.verify(snapshot).await?;
        bytes = bytes.saturating_add(store.len_bytes(snapshot).await?);
    }
    let revision = match target {
        Target::Newest => plan.last(),
        Target::Revision(asked) => asked,
        Target::Time(asked) => {
            let late = first_after(store, &plan, asked).await?;
            late.map_or_else(|| plan.last(), |late| late - 1)
        }
    };
    plan.check_begun(revision, &snapshots)?;
    let named = plan.base.as_ref().map_or(super::plan::EMPTY, |base| base.last_revision);
    let gap = plan.gap(named);
    Ok(DryRun { base: plan.base, deltas: plan.deltas, revision, bytes, gap })
}

/// The first revision that came after `asked`.
async fn first_after(
    store: &SnapStore,
    plan: &Plan,
    asked: jiff::Timestamp,
) -> Result<Option<i64>, RestoreError> {
    let mut settled = 0;
    for delta in &plan.deltas {
        let mut events = Events::of(store.open_plain(delta).await?);
        let before = super::spool::before(delta);
        let failed = |source| RestoreError::Delta { name: delta.snap_name.clone(), before, source };
        while let Some(event) = events.next().await.map_err(failed)? {
            match (event.mod_revision > settled, event.time > asked) {
                (true, true) => return Ok(Some(event.mod_revision)),
                (true, false) => settled = event.mod_revision,
                (false, _) => {}
            }
        }
    }
    Ok(None)
}
