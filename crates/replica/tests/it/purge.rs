//! A purge made of what the agent runs, on the calling thread and in steps.

use std::collections::{BTreeMap, BTreeSet};

use replica::{
    Action, Coalesce, DiskName, Error, HeadMerge, MergeStep, Progress, Prune, PurgeDisk, PurgeStep,
    Replica, next_purge_step,
};
use rpc::HeadParent;

#[derive(Debug)]
pub(crate) struct Purge {
    head_parent: HeadParent,
    settled: BTreeSet<String>,
    job: Job,
}

#[derive(Debug)]
enum Job {
    Choose,
    Coalesce { source: DiskName, target: DiskName, work: Box<Coalesce> },
    Prune(Prune),
    Fold(HeadMerge),
}

impl Purge {
    pub(crate) fn new(head_parent: HeadParent) -> Self {
        Self { head_parent, settled: BTreeSet::new(), job: Job::Choose }
    }

    /// Does a bounded piece of work: about `budget_bytes` of copying.
    pub(crate) fn step(
        &mut self,
        replica: &mut Replica,
        budget_bytes: u64,
    ) -> Result<Progress, Error> {
        let is_done = match &mut self.job {
            Job::Choose => return self.choose(replica),
            Job::Coalesce { source, target, work } => {
                let is_done = work.step(budget_bytes)? == Progress::Done;
                if is_done {
                    replica.replace(target.as_str(), source.as_str())?;
                }
                is_done
            }
            Job::Prune(work) => work.step()? == Progress::Done,
            Job::Fold(work) => match work.step(replica, budget_bytes)? {
                MergeStep::Working => false,
                MergeStep::NeedsFlush => {
                    replica.flush()?;
                    work.flushed();
                    false
                }
                MergeStep::Done => true,
            },
        };
        if is_done {
            self.job = Job::Choose;
        }
        Ok(Progress::Working(0))
    }

    fn choose(&mut self, replica: &mut Replica) -> Result<Progress, Error> {
        let chain = replica.chain().unwrap();
        let disks: BTreeMap<String, PurgeDisk> = chain
            .disks()
            .map(|(name, disk)| {
                let parent = disk.parent.as_ref().map(DiskName::to_string).unwrap_or_default();
                (name.to_string(), PurgeDisk { parent, removed: disk.removed })
            })
            .collect();
        let head = chain.head().to_string();
        let Some(step) = next_purge_step(&disks, &head, self.head_parent, &self.settled) else {
            return Ok(Progress::Done);
        };
        let job = match &step {
            PurgeStep::FoldHeadParent(_) => Job::Fold(HeadMerge::default()),
            PurgeStep::Dispose(disk) => dispose(replica, disk)?,
        };
        self.job = job;
        self.settled.insert(step.into_disk());
        Ok(Progress::Working(0))
    }
}

fn dispose(replica: &mut Replica, disk: &str) -> Result<Job, Error> {
    let (files, dir) = (std::sync::Arc::clone(replica.files()), replica.dir().to_owned());
    match replica.prepare_remove(disk)?.into_iter().next() {
        None => Ok(Job::Choose),
        Some(Action::Remove { source }) => {
            replica.remove(source.as_str(), false)?;
            Ok(Job::Choose)
        }
        Some(Action::Coalesce { source, target } | Action::Replace { source, target }) => {
            let work = Box::new(Coalesce::new_on(&*files, &dir, &source, &target)?);
            Ok(Job::Coalesce { source, target, work })
        }
        Some(Action::Prune { source, target }) => {
            Ok(Job::Prune(Prune::new_on(&*files, &dir, &source, &target)?))
        }
    }
}

/// Flags every snapshot that no user made, as a purge begins with.
pub(crate) fn mark_system_removed(replica: &mut Replica) -> Result<(), Error> {
    let chain = replica.chain().unwrap();
    let is_system = |(name, disk): &(&DiskName, &replica::Disk)| {
        !name.is_head() && !disk.user_created && !disk.removed
    };
    let marked: Vec<String> =
        chain.disks().filter(is_system).map(|(name, _)| name.to_string()).collect();
    marked.iter().try_for_each(|name| replica.mark_removed(name))
}
