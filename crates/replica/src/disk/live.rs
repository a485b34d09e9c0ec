//! The data path: the layers of the live chain, written at the top.
//!
//! Owns: writes that are smaller than a sector, what becomes of discarded sectors, and what has to
//! be synced. Never: names, metadata, the chain's shape.

use std::ops::Range;
use std::sync::Arc;

use crate::disk::chain::Reach;
use crate::disk::error::Error;
use crate::disk::flush::Syncing;
use crate::disk::image::{Image, SECTOR_BYTES};
use crate::disk::index::{LayerId, NOBODY, REGION_BYTES, REGION_SECTORS};
use crate::disk::layers::{Layers, Stretch, check, region_range, sectors_within};

/// Unaligned writes up to this size go out as one; larger ones in up to three.
const BOUNCE_MAX_BYTES: u64 = 128 * 1024;

/// Ranges a crash left behind that are remembered at a time.
const UNWRITTEN_PER_PASS: usize = 64 * 1024;

/// What a zeroing is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zeroing {
    /// Every sector must read zeros.
    Write,
    /// Sectors that belong to the head or to removed disks right below it are given up, and so is
    /// their space: they read what a kept snapshot says from now on, or zeros where none says anything.
    Unmap(Reach),
}

/// Whether holes were made in a layer.
#[derive(Debug, Clone, Copy, Default)]
struct Holes {
    /// Since the last flush began.
    made: bool,
    /// And a flush that knows of them is on its way.
    syncing: bool,
}

/// The layers of the live chain with a writable head.
#[derive(Debug)]
pub(crate) struct Live {
    layers: Layers,
    /// Of every layer; only those below the head have any.
    holes: Vec<Holes>,
    /// Tells these open images from those that were open before.
    token: Arc<()>,
    /// The head may hold something that is not on disk.
    is_unsynced: bool,
    /// Flushes that were started and have not ended.
    flushing: usize,
    /// Why nothing may be read or written any more.
    broken: Option<String>,
    bounce: Vec<u8>,
    /// Up to here the last write was done, in bytes of the volume.
    reached: u64,
}

impl Live {
    pub(crate) fn new(layers: Layers) -> Self {
        let holes = vec![Holes::default(); layers.images.len()];
        // What the process before us wrote may still be on its way.
        Self {
            layers,
            holes,
            token: Arc::new(()),
            is_unsynced: true,
            flushing: 0,
            broken: None,
            bounce: Vec::new(),
            reached: 0,
        }
    }

    pub(crate) fn token(&self) -> Arc<()> {
        Arc::clone(&self.token)
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    pub(crate) fn head(&self) -> Result<&Image, Error> {
        self.layers.images.last().ok_or(Error::NotOpen)
    }

    /// The layer below the head.
    pub(crate) fn parent(&self) -> Option<&Image> {
        let below = self.layers.images.len().checked_sub(2)?;
        self.layers.images.get(below)
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        self.refuse_broken()?;
        self.layers.read(buffer, offset)
    }

    pub(crate) fn runs(
        &mut self,
        range: Range<u64>,
        each: impl FnMut(Stretch),
    ) -> Result<(), Error> {
        self.refuse_broken()?;
        self.layers.runs(range, 0, each)
    }

    /// Whole sectors go straight to the head. A part of a sector is filled up with what the chain
    /// holds first: a layer owns a sector or it does not. One thread owns all of this, so there is
    /// no lock to queue at.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        self.reached = offset;
        self.refuse_broken()?;
        let size = self.layers.size_bytes;
        check("write", offset, bytes.len() as u64, size)?;
        let end = offset + bytes.len() as u64;
        let first = offset - offset % SECTOR_BYTES;
        let last = end.next_multiple_of(SECTOR_BYTES).min(size);
        if first == offset && last == end {
            return self.write_sectors(bytes, offset);
        }
        if last - first <= BOUNCE_MAX_BYTES {
            return self.write_filled(bytes, offset, first..last);
        }
        // Longer than the bounce buffer, so these three parts are disjoint and in order.
        let middle = first + SECTOR_BYTES;
        let tail = end - end % SECTOR_BYTES;
        let cut = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX).min(bytes.len());
        let (front, rest) = bytes.split_at(cut(middle));
        let (whole, back) = rest.split_at(cut(tail) - cut(middle));
        self.write_filled(front, offset, first..middle)?;
        self.write_sectors(whole, middle)?;
        if back.is_empty() { Ok(()) } else { self.write_filled(back, tail, tail..last) }
    }

    /// Up to where the last write got, if it failed.
    pub(crate) fn reached(&self) -> u64 {
        self.reached
    }

    /// Writes `bytes` inside the sectors `span`, whose other bytes stay as they are.
    fn write_filled(&mut self, bytes: &[u8], offset: u64, span: Range<u64>) -> Result<(), Error> {
        let len = usize::try_from(span.end - span.start).unwrap_or(usize::MAX);
        let skip = usize::try_from(offset - span.start).unwrap_or(usize::MAX);
        let mut bounce = std::mem::take(&mut self.bounce);
        bounce.clear();
        bounce.resize(len, 0);
        let written = self.fill_and_write(&mut bounce, bytes, skip, span);
        self.bounce = bounce;
        written
    }

    fn fill_and_write(
        &mut self,
        bounce: &mut [u8],
        bytes: &[u8],
        skip: usize,
        span: Range<u64>,
    ) -> Result<(), Error> {
        let sector = usize::try_from(SECTOR_BYTES).unwrap_or(usize::MAX);
        let first = bounce.len().min(sector);
        self.layers.read(bounce.get_mut(..first).unwrap_or_default(), span.start)?;
        if bounce.len() > sector {
            let last = (bounce.len() - 1) / sector * sector;
            let at = span.start + last as u64;
            self.layers.read(bounce.get_mut(last..).unwrap_or_default(), at)?;
        }
        if let Some(place) = bounce.get_mut(skip..skip + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self.write_sectors(bounce, span.start)
    }

    fn write_sectors(&mut self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        self.is_unsynced = true;
        let mut done = 0;
        let written = self.head()?.write_counting(bytes, offset, &mut done);
        self.reached = offset + done;
        let sectors = sectors_of(&(offset..offset + bytes.len() as u64));
        match written {
            Ok(()) => self.layers.index.set(sectors, self.head_id()),
            // How much was written only the file knows.
            Err(_) => self.layers.index.forget(sectors),
        }
        written
    }

    fn head_id(&self) -> LayerId {
        LayerId::try_from(self.layers.images.len()).unwrap_or(LayerId::MAX)
    }

    /// Zeros whole sectors and the parts of sectors at both ends; says how many bytes were freed.
    pub(crate) fn write_zeroes(&mut self, offset: u64, len_bytes: u64) -> Result<u64, Error> {
        self.refuse_broken()?;
        check("write of zeroes", offset, len_bytes, self.layers.size_bytes)?;
        let end = offset + len_bytes;
        let Some(inner) = whole_sectors(offset..end, self.layers.size_bytes) else {
            // Less than two sectors: short enough to write.
            let zeros = vec![0; usize::try_from(len_bytes).unwrap_or(usize::MAX)];
            return self.write(&zeros, offset).map(|()| 0);
        };
        for edge in [offset..inner.start, inner.end..end] {
            if edge.start < edge.end {
                let zeros = vec![0; usize::try_from(edge.end - edge.start).unwrap_or(usize::MAX)];
                self.write(&zeros, edge.start)?;
            }
        }
        self.zero(inner, Zeroing::Write)
    }

    /// Gives up the whole sectors inside the range; says how many bytes were freed.
    pub(crate) fn unmap(
        &mut self,
        offset: u64,
        len_bytes: u64,
        reach: Reach,
    ) -> Result<u64, Error> {
        self.refuse_broken()?;
        check("unmap", offset, len_bytes, self.layers.size_bytes)?;
        match whole_sectors(offset..offset + len_bytes, self.layers.size_bytes) {
            Some(inner) => self.zero(inner, Zeroing::Unmap(reach)),
            None => Ok(0),
        }
    }

    fn zero(&mut self, range: Range<u64>, zeroing: Zeroing) -> Result<u64, Error> {
        let depth = Depth::of(zeroing, self.layers.images.len());
        let before = self.allocated_bytes(depth)?;
        let mut at = range.start;
        while at < range.end {
            let end = region_range(at / REGION_BYTES).end.min(range.end);
            if let Err(error) = self.zero_in_region(at..end, zeroing, depth) {
                self.layers.index.forget(sectors_of(&(at..end)));
                return Err(error);
            }
            at = end;
        }
        Ok(before.saturating_sub(self.allocated_bytes(depth)?))
    }

    /// Of the layers that may lose something.
    fn allocated_bytes(&self, depth: Depth) -> Result<u64, Error> {
        self.layers.images.iter().skip(depth.punchable).try_fold(0u64, |sum, image| {
            image.allocated_bytes().map(|bytes| sum.saturating_add(bytes))
        })
    }

    /// A sector that is to read zeros becomes a hole where nothing below would show through it, and
    /// zeros written in the head where something would. One that is given up is a hole in any case.
    /// What it reads after this depends on the kept snapshots, and on removed ones that a branch still
    /// needs; otherwise not on how far a purge has come. [`Chain::unmap_layout`] tells copies apart
    /// whose purges have come to different branches.
    ///
    /// [`Chain::unmap_layout`]: crate::disk::chain::Chain::unmap_layout
    fn zero_in_region(
        &mut self,
        range: Range<u64>,
        zeroing: Zeroing,
        depth: Depth,
    ) -> Result<(), Error> {
        let region = region_range(range.start / REGION_BYTES);
        let mut shapes = vec![Shape::default(); REGION_SECTORS];
        let shapes = sectors_within(&mut shapes, &region, range.clone());
        self.shape(shapes, &range, zeroing, depth)?;
        let first = range.start - range.start % SECTOR_BYTES;
        let mut index = 0;
        while let Some(shape) = shapes.get(index).copied() {
            let rest = shapes.get(index..).unwrap_or_default();
            let same = rest.iter().take_while(|other| **other == shape).count();
            let byte = |index: usize| first + index as u64 * SECTOR_BYTES;
            let run = byte(index).max(range.start)..byte(index + same).min(range.end);
            index += same;
            if shape.is_wanted(zeroing) {
                self.zero_run(run, shape.shows_through, zeroing, depth.punchable)?;
            }
        }
        Ok(())
    }

    /// Finds out about every sector of the range, asking no layer that cannot change the answer.
    fn shape(
        &self,
        shapes: &mut [Shape],
        range: &Range<u64>,
        zeroing: Zeroing,
        depth: Depth,
    ) -> Result<(), Error> {
        let first = range.start - range.start % SECTOR_BYTES;
        for (position, image) in self.layers.images.iter().enumerate().rev() {
            // Below the group only what shows through is left to learn.
            let is_settled = |shape: &Shape| match zeroing {
                Zeroing::Write => shape.shows_through,
                Zeroing::Unmap(_) => shape.shows_through || !shape.is_held,
            };
            if position < depth.group && shapes.iter().all(is_settled) {
                break;
            }
            image.extents(range.clone(), false, |extent| {
                let window = first..range.end;
                for shape in sectors_within(shapes, &window, extent.start..extent.end) {
                    shape.is_held |= position >= depth.group;
                    shape.shows_through |= position < depth.punchable;
                }
            })?;
        }
        Ok(())
    }

    fn zero_run(
        &mut self,
        run: Range<u64>,
        shows_through: bool,
        zeroing: Zeroing,
        punchable: usize,
    ) -> Result<(), Error> {
        self.is_unsynced = true;
        let head = self.head()?;
        let hide = match zeroing {
            Zeroing::Write => shows_through,
            Zeroing::Unmap(_) => false,
        };
        let is_hole = !hide && head.punch(run.clone())?;
        if !is_hole {
            head.write_zeros(run.clone())?;
        }
        let below = self.layers.images.len().saturating_sub(1);
        // From the top down, which is what a coalesce of two of them relies on.
        for position in (punchable..below).rev() {
            if let Some(image) = self.layers.images.get(position) {
                image.punch(run.clone())?;
            }
            if let Some(holes) = self.holes.get_mut(position) {
                holes.made = true;
            }
        }
        match (is_hole, shows_through) {
            (false, _) => self.layers.index.set(sectors_of(&run), self.head_id()),
            (true, false) => self.layers.index.set(sectors_of(&run), NOBODY),
            // Which of the layers below it is, the files say.
            (true, true) => self.layers.index.forget(sectors_of(&run)),
        }
        Ok(())
    }

    /// Everything written and punched so far is on disk when this returns.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let result = self.start_flush()?.iter().try_for_each(Syncing::run);
        self.end_flush(&Arc::clone(&self.token), &result);
        result
    }

    /// What has to be synced; every call is followed by one of [`Self::end_flush`].
    pub(crate) fn start_flush(&mut self) -> Result<Vec<Syncing>, Error> {
        self.refuse_broken()?;
        let mut files = Vec::new();
        // While another flush is on its way nobody knows what is on disk already.
        let is_first = self.flushing == 0;
        if std::mem::take(&mut self.is_unsynced) || !is_first {
            files.push(self.head()?.syncing());
        }
        for (image, holes) in self.layers.images.iter().zip(&mut self.holes) {
            holes.syncing = holes.made || (holes.syncing && !is_first);
            holes.made = false;
            if holes.syncing {
                files.push(image.syncing());
            }
        }
        self.flushing += 1;
        Ok(files)
    }

    pub(crate) fn end_flush(&mut self, made_by: &Arc<()>, result: &Result<(), Error>) {
        if Arc::ptr_eq(made_by, &self.token) {
            self.flushing = self.flushing.saturating_sub(1);
        }
        if let Err(error) = result {
            // The kernel may have dropped the pages and would report success the next time.
            self.give_up(error);
        }
    }

    /// Refuses everything from now on, because memory and files may disagree.
    pub(crate) fn give_up(&mut self, why: &Error) {
        self.broken = Some(why.text());
    }

    pub(crate) fn rejection(&self) -> Option<Error> {
        self.broken.as_ref().map(|why| Error::Broken(why.clone()))
    }

    fn refuse_broken(&self) -> Result<(), Error> {
        self.rejection().map_or(Ok(()), Err)
    }

    /// A new empty head on top of the present one. What the index knows stays true.
    pub(crate) fn push_head(&mut self, head: Image, size_bytes: u64) {
        self.layers.images.push(head);
        self.holes.push(Holes::default());
        self.is_unsynced = true;
        self.layers.size_bytes = size_bytes;
    }

    /// Copies what the parent holds and the head does not, inside `range`, into the head.
    /// What a read returns does not change. `each` is told what was copied.
    pub(crate) fn lift(
        &mut self,
        range: Range<u64>,
        mut each: impl FnMut(Range<u64>),
    ) -> Result<(), Error> {
        self.refuse_broken()?;
        let head_id = self.head_id();
        let mut at = range.start;
        while at < range.end {
            let (owner, end) = self.layers.owner_at(at)?;
            let end = end.min(range.end);
            if owner.checked_add(1) == Some(head_id) {
                let mut piece = at;
                while piece < end {
                    let stop = end.min(piece + BOUNCE_MAX_BYTES);
                    self.lift_piece(piece..stop)?;
                    each(piece..stop);
                    piece = stop;
                }
            }
            at = end;
        }
        Ok(())
    }

    fn lift_piece(&mut self, piece: Range<u64>) -> Result<(), Error> {
        let len = usize::try_from(piece.end - piece.start).unwrap_or(usize::MAX);
        let mut bounce = std::mem::take(&mut self.bounce);
        bounce.clear();
        bounce.resize(len, 0);
        let lifted = self
            .layers
            .read(&mut bounce, piece.start)
            .and_then(|()| self.write_sectors(&bounce, piece.start));
        self.bounce = bounce;
        lifted
    }

    /// Frees these ranges in the parent; the head has them on disk.
    pub(crate) fn free_in_parent(&mut self, ranges: Vec<Range<u64>>) -> Result<(), Error> {
        let Some(parent) = self.parent() else { return Ok(()) };
        for run in ranges {
            // Whole sectors only: a part of one still belongs to the parent's sector.
            let start = run.start.next_multiple_of(SECTOR_BYTES);
            let end = run.end - run.end % SECTOR_BYTES;
            if start < end {
                parent.punch(start..end)?;
            }
        }
        let below = self.holes.len().saturating_sub(2);
        if let Some(holes) = self.holes.get_mut(below) {
            holes.made = true;
        }
        Ok(())
    }
}

/// Positions from the root: the layers from `group` on are given up, and those from `punchable`
/// on may have holes made in them.
#[derive(Debug, Clone, Copy)]
struct Depth {
    group: usize,
    punchable: usize,
}

impl Depth {
    fn of(zeroing: Zeroing, count: usize) -> Self {
        let (group, punchable) = match zeroing {
            Zeroing::Write => (1, 1),
            Zeroing::Unmap(reach) => (reach.group, reach.punchable),
        };
        Self { group: count.saturating_sub(group), punchable: count.saturating_sub(punchable) }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shape {
    /// The head or a removed disk right below it has data here.
    is_held: bool,
    /// A layer that cannot be punched has data here.
    shows_through: bool,
}

impl Shape {
    fn is_wanted(self, zeroing: Zeroing) -> bool {
        match zeroing {
            Zeroing::Write => self.is_held || self.shows_through,
            Zeroing::Unmap(_) => self.is_held,
        }
    }
}

fn sectors_of(range: &Range<u64>) -> Range<u64> {
    range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES)
}

/// The sectors that lie inside the range whole; the last one of the volume may be short.
fn whole_sectors(range: Range<u64>, size_bytes: u64) -> Option<Range<u64>> {
    let start = range.start.next_multiple_of(SECTOR_BYTES);
    let end =
        if range.end == size_bytes { range.end } else { range.end - range.end % SECTOR_BYTES };
    (start < end).then_some(start..end)
}

/// Turns preallocated ranges of a head into holes. They are what a crash of the machine leaves
/// where a write was given its place but not its contents, and would hide what a snapshot holds
/// with zeros. Only for a head nobody is writing.
pub(crate) fn drop_unwritten(head: &Image) -> Result<(), Error> {
    // After this, whatever is still unwritten has no contents anywhere.
    head.sync()?;
    loop {
        let mut found = Vec::new();
        head.extents(0..head.len_bytes(), true, |extent| {
            if extent.is_unwritten && found.len() < UNWRITTEN_PER_PASS {
                found.push(extent.start..extent.end);
            }
        })?;
        let is_last = found.len() < UNWRITTEN_PER_PASS;
        for run in found {
            if !head.punch(run)? {
                return Ok(());
            }
        }
        if is_last {
            return head.sync();
        }
    }
}
