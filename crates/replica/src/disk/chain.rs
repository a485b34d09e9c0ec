//! The tree of disks: who sits on whom. A [`Chain`] that exists has a head, no circle, and a live
//! chain (head to root) that is whole and not too long. Pure: files are read elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use crate::disk::crc64::Crc64;
use crate::disk::error::Error;
use crate::disk::meta::{DiskMeta, Labels};
use crate::disk::names::DiskName;

/// Disks from head to root, at most. The peer refuses to open more.
pub(crate) const CHAIN_MAX: usize = 250;
/// Disks in a directory, branches included.
pub(crate) const DISKS_MAX: usize = 4096;

/// What is known of one disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub parent: Option<DiskName>,
    pub removed: bool,
    pub user_created: bool,
    pub created: String,
    pub labels: Option<Labels>,
}

impl Disk {
    pub(crate) fn from_meta(meta: DiskMeta) -> Result<Self, Error> {
        let parent = match meta.parent.as_str() {
            "" => None,
            name => Some(DiskName::parse(name)?),
        };
        Ok(Self {
            parent,
            removed: meta.removed,
            user_created: meta.user_created,
            created: meta.created,
            labels: meta.labels,
        })
    }

    pub(crate) fn to_meta(&self, name: &DiskName) -> DiskMeta {
        DiskMeta {
            name: name.to_string(),
            parent: self.parent.as_ref().map(DiskName::to_string).unwrap_or_default(),
            removed: self.removed,
            user_created: self.user_created,
            created: self.created.clone(),
            labels: self.labels.clone(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Chain {
    disks: BTreeMap<DiskName, Disk>,
    children: BTreeMap<DiskName, BTreeSet<DiskName>>,
    head: DiskName,
    /// Head first.
    live: Vec<DiskName>,
}

impl Chain {
    pub(crate) fn new(disks: BTreeMap<DiskName, Disk>, head: DiskName) -> Result<Self, Error> {
        if disks.len() > DISKS_MAX {
            return Err(Error::TooManyFiles { max: DISKS_MAX });
        }
        refuse_circles(&disks)?;
        let live = walk(&disks, &head)?;
        if live.len() > CHAIN_MAX {
            return Err(Error::ChainTooLong(live.len()));
        }
        let mut children: BTreeMap<DiskName, BTreeSet<DiskName>> = BTreeMap::new();
        for (name, disk) in &disks {
            if let Some(parent) = &disk.parent {
                children.entry(parent.clone()).or_default().insert(name.clone());
            }
        }
        Ok(Self { disks, children, head, live })
    }

    pub fn head(&self) -> &DiskName {
        &self.head
    }

    pub fn get(&self, name: &DiskName) -> Option<&Disk> {
        self.disks.get(name)
    }

    /// A snapshot by disk name or bare name.
    pub fn find(&self, text: &str) -> Option<(&DiskName, &Disk)> {
        let name = DiskName::of_either(text).ok()?;
        self.disks.get_key_value(&name)
    }

    /// Every disk, branches, removed ones and the head included.
    pub fn disks(&self) -> impl Iterator<Item = (&DiskName, &Disk)> {
        self.disks.iter()
    }

    pub fn children(&self, name: &DiskName) -> impl ExactSizeIterator<Item = &DiskName> {
        static NONE: BTreeSet<DiskName> = BTreeSet::new();
        self.children.get(name).unwrap_or(&NONE).iter()
    }

    /// The child of a disk that has exactly one.
    pub fn only_child(&self, name: &DiskName) -> Option<&DiskName> {
        let mut children = self.children(name);
        children.next().filter(|_| children.len() == 0)
    }

    /// Head first, root last, removed disks included.
    pub fn live(&self) -> &[DiskName] {
        &self.live
    }

    /// This disk first, then its ancestors.
    pub fn from(&self, name: &DiskName) -> Result<Vec<DiskName>, Error> {
        walk(&self.disks, name)
    }

    pub(crate) fn disks_owned(&self) -> BTreeMap<DiskName, Disk> {
        self.disks.clone()
    }

    /// How far an unmap reaches, counted in layers from the head: `group` are the head and the
    /// removed disks right below it; of these the first `punchable` belong to the head alone, so
    /// that holes in them harm no branch.
    pub(crate) fn unmap_reach(&self) -> Reach {
        let removed = |name: &&DiskName| self.get(name).is_some_and(|disk| disk.removed);
        let below = self.live.get(1..).unwrap_or_default();
        let group = 1 + below.iter().take_while(removed).count();
        let alone = |name: &&DiskName| removed(name) && self.children(name).len() == 1;
        let punchable = 1 + below.iter().take_while(alone).count();
        Reach { group, punchable }
    }

    /// A number for what [`Self::unmap_reach`] depends on: the removed disks below the head and the
    /// first that is not. Copies of a volume with the same number unmap alike.
    pub(crate) fn unmap_layout(&self) -> u64 {
        let mut sum = Crc64::default();
        for name in self.live.get(1..).unwrap_or_default() {
            sum.update(name.as_str().as_bytes());
            if !self.get(name).is_some_and(|disk| disk.removed) {
                break;
            }
            // Whether it may be punched depends on its branches too.
            sum.update(if self.children(name).len() == 1 { b"/alone/" } else { b"/shared/" });
        }
        sum.finish()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) group: usize,
    pub(crate) punchable: usize,
}

fn walk(disks: &BTreeMap<DiskName, Disk>, from: &DiskName) -> Result<Vec<DiskName>, Error> {
    let mut found = Vec::new();
    let mut next = Some(from);
    while let Some(name) = next {
        let disk = disks.get(name).ok_or_else(|| Error::NoMetadata(name.to_string()))?;
        found.push(name.clone());
        if found.len() > disks.len() {
            return Err(Error::Cycle(from.clone()));
        }
        next = disk.parent.as_ref();
    }
    Ok(found)
}

/// Each disk is walked over once: what was seen to end well need not be walked again.
fn refuse_circles(disks: &BTreeMap<DiskName, Disk>) -> Result<(), Error> {
    let mut good: BTreeSet<&DiskName> = BTreeSet::new();
    for start in disks.keys() {
        let mut path: BTreeSet<&DiskName> = BTreeSet::new();
        let mut next = Some(start);
        while let Some(name) = next.filter(|name| !good.contains(*name)) {
            if !path.insert(name) {
                return Err(Error::Cycle(start.clone()));
            }
            next = disks.get(name).and_then(|disk| disk.parent.as_ref());
        }
        good.append(&mut path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(parent: &str) -> Disk {
        let meta = DiskMeta { parent: parent.into(), ..DiskMeta::default() };
        Disk::from_meta(meta).unwrap()
    }

    /// `(name, parent)`; bare names are snapshots.
    fn chain(disks: &[(&str, &str)]) -> Result<Chain, Error> {
        let full = |name: &str| DiskName::of_either(name).unwrap().to_string();
        let disks = disks.iter().map(|(name, parent)| {
            let parent = if parent.is_empty() { String::new() } else { full(parent) };
            (DiskName::of_either(name).unwrap(), disk(&parent))
        });
        Chain::new(disks.collect(), DiskName::first_head())
    }

    const HEAD: &str = "volume-head-000.img";

    #[test]
    fn the_live_chain_is_head_to_root_and_leaves_branches_out() {
        let chain = chain(&[(HEAD, "b"), ("b", "a"), ("a", ""), ("side", "a")]).unwrap();
        let live: Vec<_> = chain.live().iter().filter_map(DiskName::snapshot).collect();
        assert_eq!(live, ["b", "a"]);
        let a = DiskName::of_snapshot("a").unwrap();
        assert_eq!(chain.children(&a).len(), 2);
        assert_eq!(chain.only_child(&a), None);
        assert_eq!(chain.only_child(&DiskName::of_snapshot("b").unwrap()), Some(chain.head()));
    }

    #[test]
    fn broken_trees_are_refused_by_name() {
        let missing = chain(&[(HEAD, "gone")]).unwrap_err().to_string();
        assert_eq!(missing, "failed to find metadata for volume-snap-gone.img");
        assert!(matches!(chain(&[]), Err(Error::NoMetadata(_))));
        let circle = chain(&[(HEAD, "a"), ("a", "b"), ("b", "a")]);
        assert!(matches!(circle, Err(Error::Cycle(_))));
        let aside = chain(&[(HEAD, ""), ("a", "b"), ("b", "a")]);
        assert!(matches!(aside, Err(Error::Cycle(_))), "also where the head does not go");
        let own = chain(&[(HEAD, HEAD)]);
        assert!(matches!(own, Err(Error::Cycle(_))));
    }

    #[test]
    fn a_chain_of_250_opens_and_one_of_251_does_not() {
        let long = |count: usize| {
            let names: Vec<_> = (1..count).map(|index| format!("s{index}")).collect();
            let mut disks = vec![(HEAD, names[0].as_str())];
            disks.extend(names.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str())));
            disks.push((names.last().unwrap(), ""));
            chain(&disks)
        };
        assert_eq!(long(250).unwrap().live().len(), 250);
        assert_eq!(long(251).unwrap_err().to_string(), "live chain is too long: 251");
    }

    #[test]
    fn an_unmap_stops_at_the_first_snapshot_that_is_not_removed() {
        let reach = |removed: &[&str], side: bool| {
            let mut disks = vec![(HEAD, "c"), ("c", "b"), ("b", "a"), ("a", "")];
            if side {
                disks.push(("side", "b"));
            }
            let made = chain(&disks).unwrap();
            let mut disks = made.disks_owned();
            for name in removed {
                disks.get_mut(&DiskName::of_snapshot(name).unwrap()).unwrap().removed = true;
            }
            let Reach { group, punchable } =
                Chain::new(disks, made.head().clone()).unwrap().unmap_reach();
            (group, punchable)
        };
        assert_eq!(reach(&[], false), (1, 1));
        assert_eq!(reach(&["b"], false), (1, 1), "an older one does not open the newer");
        assert_eq!(reach(&["c"], false), (2, 2));
        assert_eq!(reach(&["c", "b", "a"], false), (4, 4));
        assert_eq!(reach(&["c", "b", "a"], true), (4, 2), "a branch needs what is below it");
    }
}
