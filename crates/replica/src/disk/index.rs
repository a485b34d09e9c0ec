//! Which layer owns a sector: the topmost one with data there. Kept for regions of 64 MiB, made
//! when first asked for and thrown away when memory is short, because the files know it anyway.
//!
//! A region is a list of runs, or one byte a sector where it is too fragmented for that. Memory
//! is bounded by a budget, whatever the size of the volume and the number of layers. Never: I/O.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use crate::disk::error::Error;
use crate::disk::image::SECTOR_BYTES;

/// Sectors in a region: 64 MiB.
pub(crate) const REGION_SECTORS: usize = 16 * 1024;
pub(crate) const REGION_BYTES: u64 = REGION_SECTORS as u64 * SECTOR_BYTES;
/// More runs than this take more memory than one byte a sector.
const RUNS_MAX: usize = REGION_SECTORS / size_of::<Owned>();
/// A list that shrank or was dense stays as it is until it could be this short.
const REGION_OVERHEAD_BYTES: usize = 96;

/// Position of a layer, counted from 1 at the root; 0 is no layer: zeros.
pub(crate) type LayerId = u8;
pub(crate) const NOBODY: LayerId = 0;

/// One owner a sector of a region.
pub(crate) type Owners = [LayerId; REGION_SECTORS];

/// From `start` to the start of the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owned {
    start: u16,
    owner: LayerId,
}

#[derive(Debug, Clone)]
enum Region {
    /// Sorted; the first starts at 0; neighbours differ.
    Runs(Vec<Owned>),
    Dense(Box<Owners>),
}

impl Region {
    fn of(owners: Box<Owners>) -> Self {
        let mut runs: Vec<Owned> = Vec::new();
        for (start, owner) in (0u16..).zip(owners.iter()) {
            if runs.last().is_none_or(|last| last.owner != *owner) {
                if runs.len() == RUNS_MAX {
                    return Self::Dense(owners);
                }
                runs.push(Owned { start, owner: *owner });
            }
        }
        runs.shrink_to_fit();
        Self::Runs(runs)
    }

    /// The owner of a sector, and the first sector after it that may have another.
    fn at(&self, sector: usize) -> (LayerId, usize) {
        match self {
            Self::Runs(runs) => {
                let after = runs.partition_point(|run| usize::from(run.start) <= sector);
                let owner = after.checked_sub(1).and_then(|index| runs.get(index));
                let end = runs.get(after).map_or(REGION_SECTORS, |run| usize::from(run.start));
                (owner.map_or(NOBODY, |run| run.owner), end)
            }
            Self::Dense(owners) => {
                let rest = owners.get(sector..).unwrap_or_default();
                let owner = rest.first().copied().unwrap_or(NOBODY);
                let same = rest.iter().take_while(|other| **other == owner).count();
                (owner, sector + same)
            }
        }
    }

    fn set(&mut self, sectors: Range<usize>, owner: LayerId) {
        match self {
            Self::Dense(owners) => owners.get_mut(sectors).unwrap_or_default().fill(owner),
            Self::Runs(runs) => {
                set_runs(runs, sectors, owner);
                if runs.len() > RUNS_MAX {
                    *self = Self::Dense(self.owners());
                }
            }
        }
    }

    fn owners(&self) -> Box<Owners> {
        match self {
            Self::Dense(owners) => owners.clone(),
            Self::Runs(_) => {
                let mut owners = Box::new([NOBODY; REGION_SECTORS]);
                let mut sector = 0;
                while sector < REGION_SECTORS {
                    let (owner, end) = self.at(sector);
                    owners.get_mut(sector..end).unwrap_or_default().fill(owner);
                    sector = end;
                }
                owners
            }
        }
    }

    fn bytes(&self) -> usize {
        REGION_OVERHEAD_BYTES
            + match self {
                Self::Runs(runs) => runs.capacity() * size_of::<Owned>(),
                Self::Dense(_) => REGION_SECTORS,
            }
    }
}

fn set_runs(runs: &mut Vec<Owned>, sectors: Range<usize>, owner: LayerId) {
    let (Ok(start), Ok(end)) = (u16::try_from(sectors.start), u16::try_from(sectors.end)) else {
        return;
    };
    if start >= end {
        return;
    }
    // The runs that begin inside are replaced; the one that covers `end` goes on after it.
    let first = runs.partition_point(|run| run.start < start);
    let last = runs.partition_point(|run| run.start <= end);
    let before = first.checked_sub(1).and_then(|index| runs.get(index)).map(|run| run.owner);
    let after = last.checked_sub(1).and_then(|index| runs.get(index)).map(|run| run.owner);
    let mut new = [Owned { start, owner }; 2];
    let mut count = usize::from(before != Some(owner));
    if let Some(tail) = after.filter(|tail| *tail != owner && usize::from(end) < REGION_SECTORS) {
        if let Some(place) = new.get_mut(count) {
            *place = Owned { start: end, owner: tail };
        }
        count += 1;
    }
    runs.splice(first..last, new.into_iter().take(count));
}

#[derive(Debug)]
struct Kept {
    region: Region,
    is_used: bool,
}

/// The regions in memory. The oldest that was not used since it was last looked at goes first.
#[derive(Debug)]
pub(crate) struct Index {
    regions: HashMap<u64, Kept>,
    queue: VecDeque<u64>,
    bytes: usize,
    budget_bytes: usize,
}

impl Index {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self { regions: HashMap::new(), queue: VecDeque::new(), bytes: 0, budget_bytes }
    }

    /// The owner of a sector and the first sector after it that may have another. `load` is asked
    /// for the owners of a region that is not in memory.
    pub(crate) fn at(
        &mut self,
        sector: u64,
        load: impl FnOnce(u64) -> Result<Box<Owners>, Error>,
    ) -> Result<(LayerId, u64), Error> {
        let (number, within) = split(sector);
        if let Some(kept) = self.regions.get_mut(&number) {
            kept.is_used = true;
            let (owner, end) = kept.region.at(within);
            return Ok((owner, join(number, end)));
        }
        let region = Region::of(load(number)?);
        let (owner, end) = region.at(within);
        self.keep(number, region);
        Ok((owner, join(number, end)))
    }

    /// These sectors have a new owner. Regions that are not in memory will find out when loaded.
    pub(crate) fn set(&mut self, sectors: Range<u64>, owner: LayerId) {
        let mut at = sectors.start;
        while at < sectors.end {
            let (number, within) = split(at);
            let end = sectors.end.min(join(number, REGION_SECTORS));
            if let Some(kept) = self.regions.get_mut(&number) {
                self.bytes -= kept.region.bytes();
                // Fits: `end - at` is at most the sectors of one region.
                let count = usize::try_from(end - at).unwrap_or(REGION_SECTORS);
                kept.region.set(within..within + count, owner);
                self.bytes += kept.region.bytes();
            }
            at = end;
        }
        self.shrink();
    }

    /// Forgets the regions of these sectors, after something happened to them that is not known.
    pub(crate) fn forget(&mut self, sectors: Range<u64>) {
        let (first, _) = split(sectors.start);
        let (last, _) = split(sectors.end);
        let gone = |number: &u64| (first..=last).contains(number);
        let mut freed = 0;
        self.regions.retain(|number, kept| {
            if gone(number) {
                freed += kept.region.bytes();
            }
            !gone(number)
        });
        self.queue.retain(|number| !gone(number));
        self.bytes -= freed;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn keep(&mut self, number: u64, region: Region) {
        self.bytes += region.bytes();
        self.regions.insert(number, Kept { region, is_used: false });
        self.queue.push_back(number);
        self.shrink();
    }

    /// Keeps one region whatever the budget says: it is the one being used.
    fn shrink(&mut self) {
        while self.bytes > self.budget_bytes && self.queue.len() > 1 {
            let Some(number) = self.queue.pop_front() else { return };
            let Some(kept) = self.regions.get_mut(&number) else { continue };
            if kept.is_used {
                kept.is_used = false;
                self.queue.push_back(number);
            } else {
                self.bytes -= kept.region.bytes();
                self.regions.remove(&number);
            }
        }
    }
}

fn split(sector: u64) -> (u64, usize) {
    let region = REGION_SECTORS as u64;
    (sector / region, usize::try_from(sector % region).unwrap_or(0))
}

fn join(number: u64, within: usize) -> u64 {
    number.saturating_mul(REGION_SECTORS as u64).saturating_add(within as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(region: &Region, model: &Owners) -> Result<(), TestCaseError> {
        prop_assert_eq!(&*region.owners(), model);
        let mut sector = 0;
        while sector < REGION_SECTORS {
            let (owner, end) = region.at(sector);
            prop_assert!(end > sector);
            prop_assert!(model[sector..end].iter().all(|other| *other == owner));
            sector = end;
        }
        if let Region::Runs(runs) = region {
            prop_assert!(runs.windows(2).all(|pair| pair[0].owner != pair[1].owner));
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_region_is_what_an_array_would_be(
            sets in prop::collection::vec((0..REGION_SECTORS, 1usize..3000, 0u8..5), 1..60),
            dots in prop::option::of(0usize..3),
        ) {
            let mut model = Box::new([NOBODY; REGION_SECTORS]);
            if let Some(phase) = dots {
                for sector in (phase..REGION_SECTORS).step_by(3) {
                    model[sector] = 9;
                }
            }
            let mut region = Region::of(model.clone());
            prop_assert_eq!(matches!(region, Region::Dense(_)), dots.is_some());
            for (start, len, owner) in sets {
                let end = (start + len).min(REGION_SECTORS);
                model[start..end].fill(owner);
                region.set(start..end, owner);
                check(&region, &model)?;
            }
        }
    }

    #[test]
    fn single_sector_writes_turn_a_list_into_bytes_before_it_grows_past_them() {
        let mut region = Region::of(Box::new([1; REGION_SECTORS]));
        for sector in (0..REGION_SECTORS).step_by(2) {
            region.set(sector..sector + 1, 2);
            assert!(region.bytes() <= REGION_OVERHEAD_BYTES + 2 * REGION_SECTORS);
        }
        assert!(matches!(region, Region::Dense(_)));
        assert_eq!((region.at(0), region.at(1)), ((2, 1), (1, 2)));
    }

    #[test]
    fn memory_stays_within_the_budget_and_hot_regions_stay() {
        let mut index = Index::new(10 * (REGION_OVERHEAD_BYTES + REGION_SECTORS));
        let mut loads = 0;
        let mut dense = Box::new([1; REGION_SECTORS]);
        for sector in (0..REGION_SECTORS).step_by(2) {
            dense[sector] = 2;
        }
        for round in 0..200u64 {
            for number in [0, round] {
                let sector = number * REGION_SECTORS as u64;
                let load = |_| {
                    loads += 1;
                    Ok(dense.clone())
                };
                assert_eq!(index.at(sector, load).unwrap(), (2, sector + 1));
            }
            assert!(index.bytes() <= index.budget_bytes);
        }
        assert_eq!(loads, 200, "the hot one was loaded once");
        index.forget(0..u64::MAX);
        assert_eq!((index.bytes(), index.queue.len(), index.regions.len()), (0, 0, 0));
    }

    #[test]
    fn an_unfragmented_tebibyte_needs_little() {
        let mut index = Index::new(64 << 20);
        let regions = (1u64 << 40) / REGION_BYTES;
        for number in 0..regions {
            let sector = number * REGION_SECTORS as u64;
            index.at(sector, |_| Ok(Box::new([1; REGION_SECTORS]))).unwrap();
        }
        assert_eq!(index.regions.len() as u64, regions);
        assert!(index.bytes() < 4 << 20, "{}", index.bytes());
    }

    #[test]
    fn a_new_owner_is_seen_across_regions() {
        let mut index = Index::new(1 << 20);
        let load = |_| Ok(Box::new([1; REGION_SECTORS]));
        let border = REGION_SECTORS as u64;
        assert_eq!(index.at(0, load).unwrap(), (1, border));
        index.at(border, load).unwrap();
        index.set(border - 1..border + 1, 7);
        assert_eq!(index.at(border - 1, load).unwrap(), (7, border));
        assert_eq!(index.at(border, load).unwrap(), (7, border + 1));
    }
}
