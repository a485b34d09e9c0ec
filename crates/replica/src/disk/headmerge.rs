//! The merge of the head's removed parent into the head alone, while the volume is in use, with the
//! waiting for the disk left to the caller.

use crate::disk::error::Error;
use crate::disk::merge::{Lift, Lifted};
use crate::disk::names::DiskName;
use crate::disk::replica::Replica;

/// What has to happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeStep {
    /// Another step.
    Working,
    /// A flush that begins after this step; then [`HeadMerge::flushed`], then another step.
    NeedsFlush,
    /// Nothing: the head's parent is not a removed snapshot, or has other children.
    Done,
}

#[derive(Debug, Default)]
pub struct HeadMerge {
    job: Option<Job>,
    is_flushed: bool,
}

#[derive(Debug)]
struct Job {
    source: DiskName,
    head: DiskName,
    work: Lift,
}

impl HeadMerge {
    /// Lifts about `budget_bytes`. On an error nothing is lost or half done.
    pub fn step(&mut self, replica: &mut Replica, budget_bytes: u64) -> Result<MergeStep, Error> {
        let is_flushed = std::mem::take(&mut self.is_flushed);
        let Some((source, head)) = candidate(replica)? else { return Ok(MergeStep::Done) };
        // Overtaken by a snapshot or a revert: what was done is true of the new chain as well.
        if self.job.as_ref().is_none_or(|job| job.source != source || job.head != head) {
            let work = Lift::new(&replica.opened_ref()?.live);
            self.job = Some(Job { source, head, work });
            return Ok(MergeStep::Working);
        }
        let Some(job) = &mut self.job else { return Ok(MergeStep::Done) };
        let live = &mut replica.opened_mut()?.live;
        if is_flushed {
            job.work.synced(live)?;
        }
        match job.work.step(live, budget_bytes)? {
            Lifted::More => Ok(MergeStep::Working),
            Lifted::Unsynced => Ok(MergeStep::NeedsFlush),
            Lifted::Done => {
                let source = job.source.clone();
                self.job = None;
                replica.drop_lifted(&source)?;
                Ok(MergeStep::Working)
            }
        }
    }

    /// The flush that was needed has ended well.
    pub fn flushed(&mut self) {
        self.is_flushed = true;
    }

    /// Bytes of the parent looked at so far, and in all.
    pub fn progress(&self) -> (u64, u64) {
        self.job.as_ref().map_or((0, 0), |job| job.work.progress())
    }
}

/// The removed parent of the head, if the head is all that sits on it.
fn candidate(replica: &Replica) -> Result<Option<(DiskName, DiskName)>, Error> {
    let chain = &replica.opened_ref()?.chain;
    let [head, parent, ..] = chain.live() else { return Ok(None) };
    let is_removed = chain.get(parent).is_some_and(|disk| disk.removed);
    let is_alone = chain.only_child(parent) == Some(head);
    Ok((is_removed && is_alone).then(|| (parent.clone(), head.clone())))
}
