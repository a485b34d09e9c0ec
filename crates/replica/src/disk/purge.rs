//! Removing snapshots: the single operations a caller may ask for, and [`Purge`], which runs them
//! until nothing removable is left. Owns the order of metadata changes when a disk goes.
//!
//! A purge remembers nothing that matters: every step looks at the chain as it is, so one that was
//! interrupted, or overtaken by a snapshot or a revert, just goes on.

use crate::disk::chain::{Chain, Disk};
use crate::disk::error::Error;
use crate::disk::image::{Access, Image};
use crate::disk::live::Live;
use crate::disk::merge::{Coalesce, Lift, Lifted, Progress, Prune};
use crate::disk::names::{DiskName, checksum_file, meta_file};
use crate::disk::replica::Replica;

/// One thing to do to get rid of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Remove { source: DiskName },
    Coalesce { source: DiskName, target: DiskName },
    Replace { source: DiskName, target: DiskName },
    Prune { source: DiskName, target: DiskName },
}

impl Action {
    /// The words peers use: action, source, target.
    pub fn words(&self) -> (&'static str, &str, &str) {
        match self {
            Self::Remove { source } => ("remove", source.as_str(), ""),
            Self::Coalesce { source, target } => ("coalesce", source.as_str(), target.as_str()),
            Self::Replace { source, target } => ("replace", source.as_str(), target.as_str()),
            Self::Prune { source, target } => ("prune", source.as_str(), target.as_str()),
        }
    }
}

impl Replica {
    /// Flags a snapshot as removed; one that is not there is fine.
    pub fn mark_removed(&mut self, name: &str) -> Result<(), Error> {
        let Some((name, _)) = self.opened_ref()?.chain.find(name) else { return Ok(()) };
        if name.is_head() {
            return Err(Error::MarkHead);
        }
        let name = name.clone();
        self.change_disk(&name, |disk| disk.removed = true)
    }

    /// Flags every snapshot that no user made, as a purge begins with.
    pub fn mark_system_removed(&mut self) -> Result<(), Error> {
        let is_system = |(name, disk): &(&DiskName, &Disk)| {
            !name.is_head() && !disk.user_created && !disk.removed
        };
        let chain = &self.opened_ref()?.chain;
        let marked: Vec<_> =
            chain.disks().filter(is_system).map(|(name, _)| name.clone()).collect();
        marked.iter().try_for_each(|name| self.change_disk(name, |disk| disk.removed = true))
    }

    /// Marks the snapshots an unmap would otherwise stop at.
    pub(crate) fn mark_unmap_path(&mut self) -> Result<(), Error> {
        let chain = &self.opened_ref()?.chain;
        let below = chain.live().get(1..).unwrap_or_default();
        let path = below.iter().take_while(|name| chain.children(name).len() == 1);
        let kept = path.filter(|name| chain.get(name).is_some_and(|disk| !disk.removed));
        let marked: Vec<_> = kept.cloned().collect();
        marked.iter().try_for_each(|name| self.change_disk(name, |disk| disk.removed = true))
    }

    /// What would remove this snapshot; nothing for one that is not there or must stay.
    pub fn prepare_remove(&self, name: &str) -> Result<Vec<Action>, Error> {
        let chain = &self.opened_ref()?.chain;
        let Some((name, disk)) = chain.find(name) else { return Ok(Vec::new()) };
        if name.is_head() {
            return Err(Error::DeleteHead);
        }
        if !disk.removed {
            return Err(Error::NotMarkedRemoved(name.clone()));
        }
        Ok(actions(chain, name))
    }

    /// Removes a snapshot with its data; what sits on it is put on its parent, and what it held shows
    /// through no more. One that several sit on only by force. Callers have moved what they keep before.
    pub fn remove(&mut self, name: &str, force: bool) -> Result<(), Error> {
        let chain = &self.opened_ref()?.chain;
        let Some((name, disk)) = chain.find(name) else { return Ok(()) };
        if name.is_head() {
            return Err(Error::DeleteHead);
        }
        let children: Vec<_> = chain.children(name).cloned().collect();
        if !force && children.len() > 1 {
            return Err(Error::HasChildren { name: name.clone(), children: children.len() });
        }
        let (name, parent) = (name.clone(), disk.parent.clone());
        self.drop_disk(&name, parent.as_ref(), &children)
    }

    /// The image of `source`, into which `target` was coalesced, takes the place of its child
    /// `target`; the name `source` goes. At every step a read of `target` gives the same.
    pub fn replace(&mut self, target: &str, source: &str) -> Result<(), Error> {
        let chain = &self.opened_ref()?.chain;
        let find = |name: &str| chain.find(name).ok_or_else(|| Error::NoSuchDisk(name.to_owned()));
        let ((target, _), (source, parent)) = (find(target)?, find(source)?);
        if target.is_head() || source.is_head() {
            return Err(Error::ReplaceHead);
        }
        if chain.only_child(source) != Some(target) {
            let (target, parent) = (target.clone(), source.clone());
            return Err(Error::NotOnlyChild { target, parent });
        }
        let (target, source, parent) = (target.clone(), source.clone(), parent.parent.clone());
        // Whoever coalesced may not have waited for the disk.
        Image::open(self.dir.path(), &source, Access::Write)?.sync()?;
        self.dir.remove(&checksum_file(&target))?;
        // Beside first: a link cannot take a name that is taken, a rename can.
        let beside = format!("{target}.tmp");
        self.dir.remove(&beside)?;
        self.dir.link(&source, &beside)?;
        self.dir.rename(&beside, &target)?;
        // A rename between two names of one file does nothing; then this is left.
        self.dir.remove(&beside)?;
        self.dir.sync()?;
        self.drop_disk(&source, parent.as_ref(), std::slice::from_ref(&target))
    }

    /// The removed parent of the head, all of which the head holds by now, goes.
    pub(crate) fn drop_lifted(&mut self, name: &DiskName) -> Result<(), Error> {
        let opened = self.opened_mut()?;
        opened.live.flush()?;
        let parent = opened.chain.get(name).and_then(|disk| disk.parent.clone());
        let head = opened.chain.head().clone();
        self.drop_disk(name, parent.as_ref(), &[head])
    }

    /// Puts `children` on `parent`, then removes the disk, then looks at the chain anew.
    fn drop_disk(
        &mut self,
        name: &DiskName,
        parent: Option<&DiskName>,
        children: &[DiskName],
    ) -> Result<(), Error> {
        for child in children {
            self.change_disk(child, |disk| disk.parent = parent.cloned())?;
        }
        if children.iter().any(DiskName::is_head) {
            let parent = parent.map(DiskName::to_string).unwrap_or_default();
            self.change_meta(|meta| meta.parent = parent)?;
        }
        let opened = self.opened_ref()?;
        let mut disks = opened.chain.disks_owned();
        disks.remove(name);
        let chain = Chain::new(disks, opened.chain.head().clone())?;
        // Without its metadata it is no disk any more, whatever becomes of the rest.
        self.dir.remove(&meta_file(name))?;
        self.opened_mut()?.chain = chain;
        self.dir.remove_disk(name)
    }

    /// Changes the metadata of one disk, on disk first. Where that moves it, the layers follow.
    fn change_disk(
        &mut self,
        name: &DiskName,
        change: impl FnOnce(&mut Disk),
    ) -> Result<(), Error> {
        let opened = self.opened_ref()?;
        let mut disks = opened.chain.disks_owned();
        let disk = disks.get_mut(name).ok_or_else(|| Error::NoSuchDisk(name.to_string()))?;
        change(disk);
        let meta = disk.to_meta(name);
        let chain = Chain::new(disks, opened.chain.head().clone())?;
        self.dir.write_meta(&meta_file(name), &meta)?;
        let is_same = chain.live() == opened.chain.live();
        self.opened_mut()?.chain = chain;
        if is_same { Ok(()) } else { self.reopen_layers() }
    }

    /// The chain changed under the open images.
    fn reopen_layers(&mut self) -> Result<(), Error> {
        self.opened_mut()?.live.flush()?;
        let opened = self.opened_ref()?;
        let size = opened.live.layers().size_bytes();
        match self.open_layers(&opened.chain, &opened.meta, size) {
            Ok(layers) => {
                self.opened_mut()?.live = Live::new(layers);
                Ok(())
            }
            Err(error) => {
                // Layers and chain no longer match: no more I/O until someone opens it anew.
                self.opened_mut()?.live.give_up(&error);
                Err(error)
            }
        }
    }
}

fn actions(chain: &Chain, name: &DiskName) -> Vec<Action> {
    let source = name.clone();
    match (chain.children(name).len(), chain.only_child(name)) {
        (0, _) => vec![Action::Remove { source }],
        (_, Some(child)) if child.is_head() => {
            vec![Action::Prune { source, target: child.clone() }]
        }
        (_, Some(child)) => vec![
            Action::Coalesce { source: source.clone(), target: child.clone() },
            Action::Replace { source, target: child.clone() },
        ],
        (_, None) => Vec::new(),
    }
}

/// What a purge does with the removed parent of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadParent {
    /// Merge it into the head, so that it is gone.
    #[default]
    Merge,
    /// Only free in it what the head hides, as the peer does.
    Prune,
}

/// Removes every removed snapshot that can go, in steps.
#[derive(Debug)]
pub struct Purge {
    job: Job,
    head_parent: HeadParent,
    /// Disks to begin with, for the progress.
    total: Option<usize>,
    is_pruned: bool,
}

#[derive(Debug)]
enum Job {
    Choose,
    Coalesce { source: DiskName, target: DiskName, work: Box<Coalesce> },
    Lift { source: DiskName, head: DiskName, work: Lift },
    Prune { source: DiskName, head: DiskName, work: Prune },
}

impl Default for Purge {
    fn default() -> Self {
        Self::new(HeadParent::default())
    }
}

impl Purge {
    pub fn new(head_parent: HeadParent) -> Self {
        Self { job: Job::Choose, head_parent, total: None, is_pruned: false }
    }

    /// Does a bounded piece of work: about `budget_bytes` of copying. On an error nothing is lost
    /// or half done; the purge may be stepped again or dropped.
    pub fn step(&mut self, replica: &mut Replica, budget_bytes: u64) -> Result<Progress, Error> {
        if !self.still_applies(replica)? {
            self.job = Job::Choose;
        }
        match &mut self.job {
            Job::Choose => return self.choose(replica),
            Job::Coalesce { source, target, work } => {
                if work.step(budget_bytes)? == Progress::Done {
                    let (source, target) = (source.clone(), target.clone());
                    self.job = Job::Choose;
                    replica.replace(target.as_str(), source.as_str())?;
                }
            }
            Job::Lift { source, work, .. } => {
                let live = &mut replica.opened_mut()?.live;
                match work.step(live, budget_bytes)? {
                    Lifted::More => {}
                    Lifted::Unsynced => {
                        live.flush()?;
                        work.synced(live)?;
                    }
                    Lifted::Done => {
                        let source = source.clone();
                        self.job = Job::Choose;
                        replica.drop_lifted(&source)?;
                    }
                }
            }
            Job::Prune { work, .. } => {
                if work.step(&mut replica.opened_mut()?.live)? == Progress::Done {
                    self.job = Job::Choose;
                    self.is_pruned = true;
                }
            }
        }
        Ok(self.progress(replica))
    }

    /// Whether the disks of the present job still stand as they stood when it was chosen.
    fn still_applies(&self, replica: &Replica) -> Result<bool, Error> {
        let chain = &replica.opened_ref()?.chain;
        let (source, target) = match &self.job {
            Job::Choose => return Ok(true),
            Job::Coalesce { source, target, .. } => (source, target),
            Job::Lift { source, head, .. } | Job::Prune { source, head, .. } => (source, head),
        };
        let is_removed = chain.get(source).is_some_and(|disk| disk.removed);
        Ok(is_removed && chain.only_child(source) == Some(target))
    }

    fn choose(&mut self, replica: &mut Replica) -> Result<Progress, Error> {
        let opened = replica.opened_ref()?;
        let Some(next) = self.next(&opened.chain) else { return Ok(Progress::Done) };
        self.total.get_or_insert(removed(&opened.chain));
        let dir = replica.dir.path();
        match next {
            Action::Remove { source } => replica.remove(source.as_str(), false)?,
            Action::Coalesce { source, target } | Action::Replace { source, target } => {
                let work = Box::new(Coalesce::new(dir, &source, &target)?);
                self.job = Job::Coalesce { source, target, work };
            }
            Action::Prune { source, target: head } => {
                self.job = match self.head_parent {
                    HeadParent::Merge => Job::Lift { source, head, work: Lift::new(&opened.live) },
                    HeadParent::Prune => {
                        Job::Prune { source, head, work: Prune::new(&opened.live) }
                    }
                };
            }
        }
        Ok(self.progress(replica))
    }

    /// The disk nearest to the root first, so that no data is copied twice on its way up; the
    /// parent of the head last, when it holds as little as it ever will.
    fn next(&self, chain: &Chain) -> Option<Action> {
        let mut best: Option<(usize, Action)> = None;
        let mut last = None;
        for (name, _) in chain.disks().filter(|(name, disk)| disk.removed && !name.is_head()) {
            let Some(first) = actions(chain, name).into_iter().next() else { continue };
            let depth = chain.from(name).map_or(usize::MAX, |path| path.len());
            match first {
                Action::Prune { .. } if self.is_pruned => {}
                Action::Prune { .. } => last = Some(first),
                _ if best.as_ref().is_none_or(|(least, _)| depth < *least) => {
                    best = Some((depth, first));
                }
                _ => {}
            }
        }
        best.map(|(_, action)| action).or(last)
    }

    fn progress(&self, replica: &Replica) -> Progress {
        let left = replica.chain().map_or(0, removed);
        let total = self.total.unwrap_or(left).max(left).max(1);
        let percent = (total - left).saturating_mul(99) / total;
        Progress::Working(u8::try_from(percent).unwrap_or(99))
    }
}

fn removed(chain: &Chain) -> usize {
    chain.disks().filter(|(name, disk)| disk.removed && !name.is_head()).count()
}
