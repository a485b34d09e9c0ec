//! Puts the rows of deltas behind those of a database.

use std::path::Path;

use crate::bolt::{Bolt, Editor};
use crate::datadir::{self, Current, KEY_BUCKET};

use super::lineage::{Contradiction, Lineage};
use super::part::Part;
use super::plan::Gap;
use super::progress::Progress;
use super::spool::{Spool, SpoolRow};
use super::{Plan, RestoreError, Target};

/// After this much a restore that is cut off need not do it again.
const CHECKPOINT: u64 = 64 << 20;

/// A database that grows.
#[derive(Debug)]
pub(super) struct Fold {
    editor: Editor,
    /// Held while rows are written: a restore that was dropped may still be at the last of them.
    _part: Part,
    target: Target,
    /// None where there is nothing to add.
    lineage: Option<Lineage>,
    /// The last revision that is whole in it.
    pub(super) revision: i64,
    /// What the database had before any delta.
    found: Current,
    /// The greatest revision known to be of the asked time or before.
    settled: i64,
    /// Revisions of the base from here on came after the asked time.
    pub(super) late: Option<i64>,
    /// Nothing further is wanted.
    pub(super) is_done: bool,
    pub(super) events: u64,
    since_checkpoint: u64,
    progress: Progress,
}

/// What to do with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Put,
    Skip,
    Done,
    /// The base has it, and should not.
    Late,
    Missing(i64),
}

impl Fold {
    pub(super) fn open(part: Part, plan: &Plan, progress: &Progress) -> Result<Self, RestoreError> {
        let path = &part.database();
        let (found, target) = (standing(path)?, plan.target);
        let lineage = match plan.deltas.iter().map(|delta| delta.start_revision).min() {
            Some(from) => {
                let bolt = Bolt::open(path).map_err(RestoreError::bolt)?;
                Some(Lineage::of(&bolt, from, found.oldest())?)
            }
            None => None,
        };
        let mut editor = Editor::open(path)?;
        editor.append_to(KEY_BUCKET)?;
        Ok(Self {
            editor,
            _part: part,
            target,
            lineage,
            revision: found.revision,
            found,
            settled: 0,
            late: None,
            is_done: matches!(target, Target::Revision(asked) if found.revision >= asked),
            events: 0,
            since_checkpoint: 0,
            progress: progress.clone(),
        })
    }

    /// Adds what of a delta is not there yet.
    pub(super) fn add(&mut self, spool: &Spool) -> Result<(), RestoreError> {
        let fetch = |source| RestoreError::Fetch { name: spool.name.clone(), source };
        let mut rows = spool.rows()?;
        // A revision counts only when all its rows are in.
        let mut open: Option<i64> = None;
        while let Some(row) = rows.next().map_err(fetch)? {
            let main = row.key.revision.main;
            if open.is_some_and(|open| open < main) {
                self.close(&mut open);
            }
            match self.judge(&row, open) {
                Verdict::Put => {
                    let followed = self.lineage.as_mut().map(|it| it.follow(row.key, &row.value));
                    self.is_one(spool, main, followed)?;
                    self.editor.put(&row.key.encode(), &row.value)?;
                    self.events += 1;
                    self.since_checkpoint += u64::try_from(row.value.len()).unwrap_or(0);
                    open = Some(main);
                }
                Verdict::Skip => {
                    let compared = self.lineage.as_ref().map(|it| it.compare(row.key, &row.value));
                    self.is_one(spool, main, compared)?;
                }
                Verdict::Late => {
                    self.late = Some(main);
                    self.is_done = true;
                    break;
                }
                Verdict::Done => {
                    self.is_done = true;
                    break;
                }
                Verdict::Missing(next) => {
                    return Err(Gap { after: self.revision, next }.into());
                }
            }
        }
        self.close(&mut open);
        self.progress.folded(self.events, self.revision);
        if self.since_checkpoint >= CHECKPOINT {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Refuses what is of another history.
    fn is_one(
        &self,
        spool: &Spool,
        revision: i64,
        judged: Option<Result<(), Contradiction>>,
    ) -> Result<(), RestoreError> {
        let Some(Err(Contradiction(what))) = judged else { return Ok(()) };
        // Of what is before this delta it is known that it is of one piece.
        let before = spool.start_revision.saturating_sub(1).min(self.revision);
        Err(RestoreError::Mixed { name: spool.name.clone(), revision, what, before })
    }

    fn close(&mut self, open: &mut Option<i64>) {
        if let Some(main) = open.take() {
            self.revision = main;
            self.settled = self.settled.max(main);
        }
    }

    fn judge(&mut self, row: &SpoolRow, open: Option<i64>) -> Verdict {
        let main = row.key.revision.main;
        if open == Some(main) {
            return Verdict::Put;
        }
        let is_there = main <= self.revision;
        match self.target {
            Target::Revision(asked) if main > asked => return Verdict::Done,
            Target::Time(asked) if main > self.settled => match (row.time > asked, is_there) {
                (true, true) => return Verdict::Late,
                (true, false) => return Verdict::Done,
                (false, true) => self.settled = main,
                (false, false) => {}
            },
            Target::Newest | Target::Revision(_) | Target::Time(_) => {}
        }
        match (is_there, main == self.revision.saturating_add(1)) {
            (true, _) => Verdict::Skip,
            (false, true) => Verdict::Put,
            (false, false) => Verdict::Missing(main),
        }
    }

    /// Makes what was added so far durable.
    fn checkpoint(&mut self) -> Result<(), RestoreError> {
        self.editor.commit()?;
        self.editor.append_to(KEY_BUCKET)?;
        self.since_checkpoint = 0;
        Ok(())
    }

    /// Everything is in: makes it durable.
    pub(super) fn finish(mut self) -> Result<(), RestoreError> {
        Ok(self.editor.commit()?)
    }

    /// The revision to cut back to, when the base has more than was asked for.
    pub(super) fn excess(&self) -> Result<Option<i64>, RestoreError> {
        let wanted = match (self.target, self.late) {
            (Target::Revision(asked), _) if self.revision > asked => asked,
            (Target::Time(_), Some(late)) => late - 1,
            (Target::Newest | Target::Revision(_) | Target::Time(_), _) => return Ok(None),
        };
        let oldest = self.found.oldest();
        if wanted < oldest {
            return Err(RestoreError::Compacted { asked: wanted, oldest });
        }
        Ok(Some(wanted))
    }
}

/// Where a database stands; one that cannot be read is damaged.
pub(super) fn standing(path: &Path) -> Result<Current, RestoreError> {
    let bolt = Bolt::open(path).map_err(RestoreError::bolt)?;
    let found = datadir::current(&bolt).map_err(RestoreError::bolt)?;
    let no_rows = || datadir::Damage::Rows("it has no rows of keys".to_owned());
    Ok(found.ok_or_else(no_rows)?)
}
