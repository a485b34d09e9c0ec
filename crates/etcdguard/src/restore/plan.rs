//! Which snapshots a restore takes. Pure: a listing in, a plan out.

use jiff::Timestamp;

use crate::store::{Kind, Snapshot};

use super::Target;

/// What an etcd that never stored anything is at.
pub(super) const EMPTY: i64 = 1;

/// The snapshots to fold, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// None: there are only deltas, from the very beginning.
    pub base: Option<Snapshot>,
    /// By first and last revision. They may overlap; nothing is missing between them unless the
    /// base turns out to be newer than its name.
    pub deltas: Vec<Snapshot>,
    pub target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("there are no snapshots in the store")]
    Empty,
    #[error("the backups end at revision {newest}; {asked} is not in them")]
    Beyond { asked: i64, newest: i64 },
    #[error("the backups begin at revision {oldest}; {asked} is not in them")]
    Before { asked: i64, oldest: i64 },
    #[error("the oldest backup is of {oldest}; there is none of {asked} or before")]
    TooEarly { asked: Timestamp, oldest: Timestamp },
}

/// Revisions that no delta holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the backups have nothing between revision {after} and revision {next}")]
pub struct Gap {
    pub after: i64,
    pub next: i64,
}

impl Plan {
    /// The revision the names promise.
    pub fn last(&self) -> i64 {
        let base = self.base.as_ref().map_or(EMPTY, |base| base.last_revision);
        self.deltas.iter().map(|delta| delta.last_revision).max().unwrap_or(base).max(base)
    }

    /// The first gap in the deltas for a database at `revision`.
    pub fn gap(&self, revision: i64) -> Option<Gap> {
        gap(revision, &self.deltas)
    }
}

fn gap(mut at: i64, deltas: &[Snapshot]) -> Option<Gap> {
    for delta in deltas {
        if delta.last_revision > at && delta.start_revision > at.saturating_add(1) {
            return Some(Gap { after: at, next: delta.start_revision });
        }
        at = at.max(delta.last_revision);
    }
    None
}

/// Chooses from a listing, which is sorted the way stores sort.
pub fn plan(snapshots: &[Snapshot], target: Target) -> Result<Plan, PlanError> {
    let whole = || snapshots.iter().filter(|snapshot| !snapshot.is_chunk);
    let fulls: Vec<&Snapshot> = whole().filter(|it| it.kind == Kind::Full).collect();
    let mut deltas: Vec<&Snapshot> = whole().filter(|it| it.kind == Kind::Incr).collect();
    deltas.sort_by_key(|delta| (delta.start_revision, delta.last_revision));
    if fulls.is_empty() && deltas.is_empty() {
        return Err(PlanError::Empty);
    }
    let choice = match target {
        Target::Newest => newest(&fulls, &deltas),
        Target::Revision(asked) => at_revision(asked, &fulls, &deltas)?,
        Target::Time(asked) => at_time(asked, &fulls, &deltas)?,
    };
    Ok(Plan { base: choice.0, deltas: choice.1, target })
}

type Choice = (Option<Snapshot>, Vec<Snapshot>);

/// Deltas that may hold something for a database at `base`.
fn after(base: Option<&Snapshot>, deltas: &[&Snapshot]) -> Vec<Snapshot> {
    let last = base.map_or(EMPTY, |base| base.last_revision);
    deltas.iter().filter(|delta| delta.last_revision > last).map(|it| (*it).clone()).collect()
}

fn newest(fulls: &[&Snapshot], deltas: &[&Snapshot]) -> Choice {
    let base = fulls.last().copied();
    (base.cloned(), after(base, deltas))
}

fn at_revision(asked: i64, fulls: &[&Snapshot], deltas: &[&Snapshot]) -> Result<Choice, PlanError> {
    let base = fulls.iter().rev().find(|full| full.last_revision <= asked).copied();
    let at = base.map_or(EMPTY, |base| base.last_revision);
    let mut wanted = after(base, deltas);
    wanted.retain(|delta| delta.start_revision <= asked);
    let reached = wanted.iter().map(|delta| delta.last_revision).max().unwrap_or(at);
    if reached >= asked && gap(at, &wanted).is_none() {
        return Ok((base.cloned(), wanted));
    }
    // A later full snapshot has the history since its last compaction: it can be cut back.
    if let Some(later) = fulls.iter().find(|full| full.last_revision > asked) {
        return Ok((Some((*later).clone()), Vec::new()));
    }
    if base.is_none() && wanted.first().is_none_or(|first| first.start_revision > EMPTY + 1) {
        let oldest = deltas.first().map_or(EMPTY, |first| first.start_revision);
        return Err(PlanError::Before { asked, oldest });
    }
    if reached < asked {
        return Err(PlanError::Beyond { asked, newest: reached });
    }
    // With a gap: perhaps the base is newer than its name.
    Ok((base.cloned(), wanted))
}

fn at_time(
    asked: Timestamp,
    fulls: &[&Snapshot],
    deltas: &[&Snapshot],
) -> Result<Choice, PlanError> {
    let base = fulls.iter().rev().find(|full| full.created_on <= asked).copied();
    if base.is_none() && deltas.first().is_none_or(|first| first.start_revision > EMPTY + 1) {
        let all = fulls.iter().chain(deltas);
        let oldest = all.map(|snapshot| snapshot.created_on).min().unwrap_or(asked);
        return Err(PlanError::TooEarly { asked, oldest });
    }
    let at = base.map_or(EMPTY, |base| base.last_revision);
    let mut wanted = after(base, deltas);
    // What follows a delta made after that time came later still. Of that the first is kept: it
    // tells how much of a base that is newer than its name came later.
    let edge = wanted.iter().find(|delta| delta.created_on > asked);
    if let Some(edge) = edge.map(|delta| delta.last_revision.saturating_add(1)) {
        wanted.retain(|delta| delta.start_revision <= edge);
    }
    // Changes that only a later full snapshot holds have no time: what came before them counts.
    if let Some(gap) = gap(at, &wanted) {
        wanted.retain(|delta| delta.start_revision <= gap.after);
    }
    Ok((base.cloned(), wanted))
}
