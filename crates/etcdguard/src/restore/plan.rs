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
    /// Of all of them.
    pub history: usize,
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

    /// Refuses a time before the first change that is known: who asks for it has mistaken the date, and
    /// is not helped by an etcd with nothing in it. `revision` is what was there then.
    pub(super) fn check_begun(
        &self,
        revision: i64,
        snapshots: &[Snapshot],
    ) -> Result<(), PlanError> {
        match self.target {
            Target::Time(asked) if self.base.is_none() && revision <= EMPTY => {
                let oldest = snapshots.iter().map(|snapshot| snapshot.created_on).min();
                Err(PlanError::TooEarly { asked, oldest: oldest.unwrap_or(asked) })
            }
            Target::Time(_) | Target::Newest | Target::Revision(_) => Ok(()),
        }
    }

    /// The first gap in the deltas for a database at `revision`.
    pub fn gap(&self, revision: i64) -> Option<Gap> {
        gap(revision, &self.deltas)
    }
}

/// The last revision that can be had without a full snapshot and all that follows it.
pub(super) fn last_without(snapshots: &[Snapshot], base: &Snapshot) -> Option<i64> {
    let is_before = |it: &&Snapshot| {
        it.history == base.history
            && it.last_revision < base.last_revision
            && it.snap_name != base.snap_name
    };
    let rest: Vec<Snapshot> = snapshots.iter().filter(is_before).cloned().collect();
    let plan = plan(&rest, Target::Newest).ok()?;
    let at = plan.base.as_ref().map_or(EMPTY, |base| base.last_revision);
    plan.gap(at).is_none().then(|| plan.last())
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

/// Chooses from a listing, which is sorted the way stores sort. All that is taken is of one history:
/// the newest, where it has what is asked for.
pub fn plan(snapshots: &[Snapshot], target: Target) -> Result<Plan, PlanError> {
    let histories = histories(snapshots);
    let Some(newest) = histories.last() else { return Err(PlanError::Empty) };
    let (history, choice) = match target {
        Target::Newest => (newest.number, newest.newest()),
        Target::Revision(asked) => at_revision(asked, newest, &histories)?,
        Target::Time(asked) => at_time(asked, &histories)?,
    };
    Ok(Plan { base: choice.0, deltas: choice.1, target, history })
}

/// What a store has of one history.
#[derive(Debug, Default)]
struct Chapter<'s> {
    number: usize,
    /// When it began; none for the first of a store.
    since: Option<Timestamp>,
    /// By last revision.
    fulls: Vec<&'s Snapshot>,
    /// By first and last revision.
    deltas: Vec<&'s Snapshot>,
}

fn histories(snapshots: &[Snapshot]) -> Vec<Chapter<'_>> {
    let mut found: Vec<Chapter<'_>> = Vec::new();
    for snapshot in snapshots.iter().filter(|snapshot| !snapshot.is_chunk) {
        if found.last().is_none_or(|last| last.number != snapshot.history) {
            let (number, since) = (snapshot.history, snapshot.since);
            found.push(Chapter { number, since, ..Chapter::default() });
        }
        let Some(last) = found.last_mut() else { continue };
        match snapshot.kind {
            Kind::Full => last.fulls.push(snapshot),
            Kind::Incr => last.deltas.push(snapshot),
        }
    }
    for chapter in &mut found {
        chapter.deltas.sort_by_key(|delta| (delta.start_revision, delta.last_revision));
    }
    found
}

/// The newest history that has it with what led up to it; else the newest that may have kept it.
fn at_revision(
    asked: i64,
    newest: &Chapter<'_>,
    histories: &[Chapter<'_>],
) -> Result<(usize, Choice), PlanError> {
    let from_newest = || histories.iter().rev();
    if let Some(found) = from_newest().find_map(|it| Some((it.number, it.covered(asked)?))) {
        return Ok(found);
    }
    if let Some(found) = from_newest().find_map(|it| Some((it.number, it.later(asked)?))) {
        return Ok(found);
    }
    newest.uncovered(asked).map(|choice| (newest.number, choice))
}

/// The history that was the present one at that time.
fn at_time(asked: Timestamp, histories: &[Chapter<'_>]) -> Result<(usize, Choice), PlanError> {
    let mut refused = None;
    for history in histories.iter().rev() {
        match history.at_time(asked) {
            Ok(choice) => return Ok((history.number, choice)),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or(PlanError::Empty))
}

type Choice = (Option<Snapshot>, Vec<Snapshot>);

/// Deltas that may hold something for a database at `base`.
fn after(base: Option<&Snapshot>, deltas: &[&Snapshot]) -> Vec<Snapshot> {
    let last = base.map_or(EMPTY, |base| base.last_revision);
    deltas.iter().filter(|delta| delta.last_revision > last).map(|it| (*it).clone()).collect()
}

impl Chapter<'_> {
    fn newest(&self) -> Choice {
        let base = self.fulls.last().copied();
        (base.cloned(), after(base, &self.deltas))
    }

    /// What leads to a revision: a full snapshot and deltas, how far they reach, and from where.
    fn towards(&self, asked: i64) -> (Choice, i64, i64) {
        let base = self.fulls.iter().rev().find(|full| full.last_revision <= asked).copied();
        let at = base.map_or(EMPTY, |base| base.last_revision);
        let mut wanted = after(base, &self.deltas);
        wanted.retain(|delta| delta.start_revision <= asked);
        let reached = wanted.iter().map(|delta| delta.last_revision).max().unwrap_or(at);
        ((base.cloned(), wanted), at, reached)
    }

    /// All that leads to a revision, where it is there.
    fn covered(&self, asked: i64) -> Option<Choice> {
        let (choice, at, reached) = self.towards(asked);
        (reached >= asked && gap(at, &choice.1).is_none()).then_some(choice)
    }

    /// A later full snapshot has the history since its last compaction: it can be cut back.
    fn later(&self, asked: i64) -> Option<Choice> {
        let later = self.fulls.iter().find(|full| full.last_revision > asked);
        later.map(|later| (Some((*later).clone()), Vec::new()))
    }

    /// What there is, or why it is not enough.
    fn uncovered(&self, asked: i64) -> Result<Choice, PlanError> {
        let ((base, wanted), _, reached) = self.towards(asked);
        if base.is_none() && wanted.first().is_none_or(|first| first.start_revision > EMPTY + 1) {
            let oldest = self.deltas.first().map_or(EMPTY, |first| first.start_revision);
            return Err(PlanError::Before { asked, oldest });
        }
        if reached < asked {
            return Err(PlanError::Beyond { asked, newest: reached });
        }
        // With a gap: perhaps the base is newer than its name.
        Ok((base, wanted))
    }
}

impl Chapter<'_> {
    /// Nothing of it was there before it began, also where it has all from its very beginning.
    fn at_time(&self, asked: Timestamp) -> Result<Choice, PlanError> {
        if self.since.is_some_and(|since| asked < since) {
            return Err(too_early(asked, &self.fulls, &self.deltas));
        }
        at_time_in(asked, &self.fulls, &self.deltas)
    }
}

fn too_early(asked: Timestamp, fulls: &[&Snapshot], deltas: &[&Snapshot]) -> PlanError {
    let all = fulls.iter().chain(deltas);
    let oldest = all.map(|snapshot| snapshot.created_on).min().unwrap_or(asked);
    PlanError::TooEarly { asked, oldest }
}

fn at_time_in(
    asked: Timestamp,
    fulls: &[&Snapshot],
    deltas: &[&Snapshot],
) -> Result<Choice, PlanError> {
    let base = fulls.iter().rev().find(|full| full.created_on <= asked).copied();
    if base.is_none() && deltas.first().is_none_or(|first| first.start_revision > EMPTY + 1) {
        return Err(too_early(asked, fulls, deltas));
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
