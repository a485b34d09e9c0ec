//! The images of one chain, read as one volume: which bytes come from which layer. Never: writing,
//! names, the shape of the chain.

use std::ops::Range;

use crate::disk::error::Error;
use crate::disk::image::{Image, SECTOR_BYTES};
use crate::disk::index::{Index, LayerId, NOBODY, Owners, REGION_BYTES, REGION_SECTORS};

/// A range of the volume that holds data somewhere in the chain, or nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub offset: u64,
    pub len_bytes: u64,
    pub is_data: bool,
}

/// Images of one chain, root first, and the index over them.
#[derive(Debug)]
pub(crate) struct Layers {
    pub(crate) images: Vec<Image>,
    pub(crate) index: Index,
    pub(crate) size_bytes: u64,
}

impl Layers {
    pub(crate) fn new(images: Vec<Image>, size_bytes: u64, index_budget_bytes: usize) -> Self {
        Self { images, index: Index::new(index_budget_bytes), size_bytes }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(crate) fn index_bytes(&self) -> usize {
        self.index.bytes()
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        check("read", offset, buffer.len() as u64, self.size_bytes)?;
        if let [only] = self.images.as_slice() {
            return only.read(buffer, offset);
        }
        let mut rest = buffer;
        let mut at = offset;
        while !rest.is_empty() {
            let (owner, end) = self.owner_at(at)?;
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at_mut(want);
            match self.image(owner) {
                Some(image) => image.read(now, at)?,
                None => now.fill(0),
            }
            rest = later;
            at += want as u64;
        }
        Ok(())
    }

    /// Calls `each` with runs that cover the range, split where one begins to count as data:
    /// where the layer of the run is above `base` layers from the root.
    pub(crate) fn runs(
        &mut self,
        range: Range<u64>,
        base: usize,
        mut each: impl FnMut(Stretch),
    ) -> Result<(), Error> {
        check("map", range.start, range.end.saturating_sub(range.start), self.size_bytes)?;
        let mut open: Option<Stretch> = None;
        let mut at = range.start;
        while at < range.end {
            let (owner, end) = self.owner_at(at)?;
            let end = end.min(range.end);
            let is_data = usize::from(owner) > base;
            match &mut open {
                Some(run) if run.is_data == is_data => run.len_bytes += end - at,
                _ => {
                    let next = Stretch { offset: at, len_bytes: end - at, is_data };
                    open.replace(next).into_iter().for_each(&mut each);
                }
            }
            at = end;
        }
        open.into_iter().for_each(each);
        Ok(())
    }

    /// The owner of the sector at this byte, and the byte up to which it owns all.
    pub(crate) fn owner_at(&mut self, at: u64) -> Result<(LayerId, u64), Error> {
        let images = &self.images;
        let (owner, end) = self.index.at(at / SECTOR_BYTES, |region| owners_of(images, region))?;
        Ok((owner, end.saturating_mul(SECTOR_BYTES)))
    }

    fn image(&self, owner: LayerId) -> Option<&Image> {
        usize::from(owner).checked_sub(1).and_then(|index| self.images.get(index))
    }
}

/// Asks every layer, root first, so that the topmost with data is what remains.
fn owners_of(images: &[Image], region: u64) -> Result<Box<Owners>, Error> {
    let mut owners = Box::new([NOBODY; REGION_SECTORS]);
    let range = region_range(region);
    for (owner, (index, image)) in (1..=LayerId::MAX).zip(images.iter().enumerate()) {
        // Only the head has pages that are still on their way, and it may be busy.
        let sync = index + 1 < images.len();
        image.extents(range.clone(), sync, |extent| {
            sectors_within(owners.as_mut_slice(), &range, extent.start..extent.end).fill(owner);
        })?;
    }
    Ok(owners)
}

pub(crate) fn region_range(region: u64) -> Range<u64> {
    let start = region.saturating_mul(REGION_BYTES);
    start..start.saturating_add(REGION_BYTES)
}

/// The entries, one a sector from the start of `region`, of every sector that the bytes touch.
pub(crate) fn sectors_within<'a, T>(
    entries: &'a mut [T],
    region: &Range<u64>,
    bytes: Range<u64>,
) -> &'a mut [T] {
    let sector = |byte: u64| usize::try_from(byte / SECTOR_BYTES).unwrap_or(REGION_SECTORS);
    let first = sector(bytes.start.saturating_sub(region.start)).min(entries.len());
    let last = bytes.end.saturating_sub(region.start).saturating_add(SECTOR_BYTES - 1);
    let last = sector(last).clamp(first, entries.len());
    entries.get_mut(first..last).unwrap_or_default()
}

pub(crate) fn check(
    what: &'static str,
    offset: u64,
    len_bytes: u64,
    size_bytes: u64,
) -> Result<(), Error> {
    match offset.checked_add(len_bytes) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(Error::OutOfRange { what, offset, len_bytes, size_bytes }),
    }
}
