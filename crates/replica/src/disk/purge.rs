//! Removing snapshots: the single operations a caller may ask for, and what a purge, which runs them
//! until nothing removable is left, does next. Owns the order of metadata changes when a disk goes.
//!
//! A purge remembers nothing that matters: every step looks at the chain as it is, so one that was
//! interrupted, or overtaken by a snapshot or a revert, just goes on.

use std::collections::{BTreeMap, BTreeSet};

use rpc::HeadParent;

use crate::disk::chain::{Chain, Disk};
use crate::disk::error::Error;
use crate::disk::image::Access;
use crate::disk::live::Live;
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
        self.dir.image(&source, Access::Write)?.sync()?;
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

/// A disk as a purge looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeDisk {
    pub parent: String,
    pub removed: bool,
}

/// What a purge does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeStep {
    /// By what [`Replica::prepare_remove`] says.
    Dispose(String),
    /// By a [`crate::disk::HeadMerge`].
    FoldHeadParent(String),
}

impl PurgeStep {
    pub fn into_disk(self) -> String {
        match self {
            Self::Dispose(disk) | Self::FoldHeadParent(disk) => disk,
        }
    }
}

/// The disk nearest to the root first, so that nothing is copied twice on its way up; the parent of
/// the head last, when it holds as little as it ever will. Those in `settled` had their turn.
///
/// The removed disks right below the head are within the reach of an unmap, which changes them
/// while they are copied; the copying follows. Where all of them go into the head they are left to the
/// replica, which need not copy twice.
pub fn next_purge_step(
    disks: &BTreeMap<String, PurgeDisk>,
    head: &str,
    head_parent: HeadParent,
    settled: &BTreeSet<String>,
) -> Option<PurgeStep> {
    let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, disk) in disks {
        children.entry(&disk.parent).or_default().push(name);
    }
    let below_head = below_head(disks, head);
    let mut best: Option<(usize, &str)> = None;
    for (name, _) in disks
        .iter()
        .filter(|(name, disk)| disk.removed && *name != head && !settled.contains(*name))
    {
        let is_free = match children.get(name.as_str()).map_or(&[][..], Vec::as_slice) {
            [] => true,
            [child] if *child == head => false,
            [child] => head_parent == HeadParent::Keep || !below_head.contains(child),
            [_, _, ..] => false,
        };
        let key = (depth(disks, name), name.as_str());
        if is_free && best.is_none_or(|best| key < best) {
            best = Some(key);
        }
    }
    if let Some((_, name)) = best {
        return Some(PurgeStep::Dispose(name.to_owned()));
    }
    let parent = below_head.first().filter(|parent| !settled.contains(**parent))?;
    let is_alone = children.get(parent).is_some_and(|children| children.len() == 1);
    is_alone.then(|| match head_parent {
        HeadParent::Fold => PurgeStep::FoldHeadParent((*parent).to_owned()),
        HeadParent::Keep => PurgeStep::Dispose((*parent).to_owned()),
    })
}

/// The removed disks right below the head, the highest first.
fn below_head<'d>(disks: &'d BTreeMap<String, PurgeDisk>, head: &str) -> Vec<&'d str> {
    let mut found = Vec::new();
    let mut at = disks.get(head).map_or("", |head| head.parent.as_str());
    while let Some((name, disk)) = disks.get_key_value(at) {
        if !disk.removed || found.len() > disks.len() {
            break;
        }
        found.push(name.as_str());
        at = &disk.parent;
    }
    found
}

fn depth(disks: &BTreeMap<String, PurgeDisk>, name: &str) -> usize {
    let mut depth = 0;
    let mut at = name;
    while let Some(disk) = disks.get(at) {
        depth += 1;
        // A replica with a circle in it does not open; still, nobody is to hang on one.
        if depth > disks.len() {
            break;
        }
        at = &disk.parent;
    }
    depth
}
