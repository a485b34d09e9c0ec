//! Moving data between layers in bounded steps, so that what a read returns never changes on the
//! way. Owns copying and freeing; who is merged with whom, and the metadata, is in `purge`.
//!
//! Nothing of the progress is kept: a job that was interrupted anywhere begins again and finds
//! its work partly done.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;

use durable::{Disk, RealDisk};

use crate::disk::error::Error;
use crate::disk::image::{Access, Image, SECTOR_BYTES};
use crate::disk::live::Live;
use crate::disk::names::DiskName;

/// Extents asked for at a time; a job holds no more than these in memory.
const WINDOW_BYTES: u64 = 256 * 1024 * 1024;
const COPY_BYTES: u64 = 256 * 1024;
/// Data lifted into the head before it is synced and freed in the parent.
const CHECKPOINT_BYTES: u64 = 32 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Percent.
    Working(u8),
    Done,
}

/// Hands out the data of an image in pieces.
#[derive(Debug)]
struct Walk {
    at: u64,
    end: u64,
    found: VecDeque<(Range<u64>, bool)>,
}

impl Walk {
    fn new(end: u64) -> Self {
        Self { at: 0, end, found: VecDeque::new() }
    }

    /// The next piece of at most `max_bytes`, and whether it is only preallocated.
    fn next(&mut self, image: &Image, max_bytes: u64) -> Result<Option<(Range<u64>, bool)>, Error> {
        while self.found.is_empty() && self.at < self.end {
            let window = self.at..self.end.min(self.at.saturating_add(WINDOW_BYTES));
            self.at = window.end;
            let found = &mut self.found;
            image.extents(window, true, |extent| {
                found.push_back((extent.start..extent.end, extent.is_unwritten));
            })?;
        }
        let Some((range, is_unwritten)) = self.found.front_mut() else { return Ok(None) };
        let is_unwritten = *is_unwritten;
        let stop = range.end.min(range.start.saturating_add(max_bytes.max(1)));
        let piece = range.start..stop;
        range.start = stop;
        if range.is_empty() {
            self.found.pop_front();
        }
        Ok(Some((piece, is_unwritten)))
    }

    fn done(&self) -> u64 {
        self.found.front().map_or(self.at, |(range, _)| range.start)
    }

    fn percent(&self) -> u8 {
        let at = self.done();
        u8::try_from(at.saturating_mul(99).checked_div(self.end).unwrap_or(99)).unwrap_or(99)
    }
}

/// Copies the data of a snapshot into its removed parent, which then takes its place
/// ([`crate::disk::Replica::replace`]). Readers see the child's data above the parent's all the while,
/// so this may run on another thread than the replica's.
#[derive(Debug)]
pub struct Coalesce {
    child: Image,
    parent: Image,
    walk: Walk,
    is_done: bool,
    buffer: Vec<u8>,
}

impl Coalesce {
    pub fn new(dir: &Path, parent: &DiskName, child: &DiskName) -> Result<Self, Error> {
        Self::new_on(&RealDisk, dir, parent, child)
    }

    /// The same on a file system of the caller's.
    pub fn new_on(
        files: &dyn Disk,
        dir: &Path,
        parent: &DiskName,
        child: &DiskName,
    ) -> Result<Self, Error> {
        let child = Image::open(files, dir, child, Access::Read)?;
        let mut parent = Image::open(files, dir, parent, Access::Write)?;
        // A replacement that was interrupted between its names: everything is copied already.
        let is_same = child.identity()? == parent.identity()?;
        if parent.len_bytes() > child.len_bytes() {
            return Err(Error::ParentLarger);
        }
        if parent.len_bytes() < child.len_bytes() {
            parent.resize(child.len_bytes())?;
        }
        let end = if is_same { 0 } else { child.len_bytes() };
        Ok(Self { child, parent, walk: Walk::new(end), is_done: false, buffer: Vec::new() })
    }

    /// Copies about `budget_bytes`; the last step waits until all is on disk.
    pub fn step(&mut self, budget_bytes: u64) -> Result<Progress, Error> {
        let mut copied = 0;
        while copied < budget_bytes && !self.is_done {
            let Some(piece) = self.take()? else {
                self.parent.sync()?;
                self.is_done = true;
                break;
            };
            copied += piece.range.end - piece.range.start;
            self.give(&piece)?;
            self.follow_holes(piece.range)?;
        }
        Ok(if self.is_done { Progress::Done } else { Progress::Working(self.walk.percent()) })
    }

    /// Reads the next piece of the child.
    fn take(&mut self) -> Result<Option<Piece>, Error> {
        let Some((range, is_unwritten)) = self.walk.next(&self.child, COPY_BYTES)? else {
            return Ok(None);
        };
        if !is_unwritten {
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            self.buffer.resize(len, 0);
            self.child.read(&mut self.buffer, range.start)?;
        }
        Ok(Some(Piece { range, is_unwritten }))
    }

    fn give(&self, piece: &Piece) -> Result<(), Error> {
        if piece.is_unwritten {
            self.parent.preallocate_zeros(piece.range.clone())
        } else {
            self.parent.write(&self.buffer, piece.range.start)
        }
    }

    /// Frees in the parent what the child gave up since it was read.
    ///
    /// A child that is itself removed, or was marked so meanwhile, is within the reach of an unmap.
    /// That makes its holes from the head down, in the child before the parent. So where the child
    /// has data now, a hole still to come is made in the parent after our write; where it has none,
    /// ours is the later write and the discarded data must not come back by it. A kept child never
    /// changes, and then there is nothing to free.
    ///
    /// No lock: the volume's own I/O never waits for a copy. What remains is a death between the
    /// write of one piece and this; then discarded sectors of a removed snapshot may read as they
    /// did before, which a discard allows.
    fn follow_holes(&self, range: Range<u64>) -> Result<(), Error> {
        let mut holes = Vec::new();
        let mut at = range.start;
        self.child.extents(range.clone(), true, |extent| {
            if at < extent.start {
                holes.push(at..extent.start);
            }
            at = at.max(extent.end);
        })?;
        if at < range.end {
            holes.push(at..range.end);
        }
        // Where holes cannot be made, the child has got none either.
        holes.into_iter().try_for_each(|hole| self.parent.punch(hole).map(drop))
    }
}

/// A piece of a child that was read, into the buffer unless it is only preallocated.
#[derive(Debug)]
struct Piece {
    range: Range<u64>,
    is_unwritten: bool,
}

/// How far a [`Lift`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifted {
    More,
    /// The head must be synced and [`Lift::synced`] told before it goes on.
    Unsynced,
    Done,
}

/// Lifts what the removed parent of the head holds into the head, so that it can go. Runs on the
/// replica's thread, between writes.
#[derive(Debug)]
pub(crate) struct Lift {
    walk: Walk,
    /// Lifted and not yet freed in the parent; adjacent ones are one.
    lifted: Vec<Range<u64>>,
    lifted_bytes: u64,
}

impl Lift {
    pub(crate) fn new(live: &Live) -> Self {
        Self {
            walk: Walk::new(live.parent().map_or(0, Image::len_bytes)),
            lifted: Vec::new(),
            lifted_bytes: 0,
        }
    }

    /// Lifts about `budget_bytes`.
    pub(crate) fn step(&mut self, live: &mut Live, budget_bytes: u64) -> Result<Lifted, Error> {
        let mut copied = 0;
        while copied < budget_bytes {
            if self.lifted_bytes >= CHECKPOINT_BYTES {
                return Ok(Lifted::Unsynced);
            }
            let next = match live.parent() {
                Some(parent) => self.walk.next(parent, COPY_BYTES)?,
                None => None,
            };
            let Some((piece, _)) = next else {
                let is_done = self.lifted.is_empty();
                return Ok(if is_done { Lifted::Done } else { Lifted::Unsynced });
            };
            // A part of a sector may be all the parent has there; the sector is lifted whole.
            let size = live.layers().size_bytes();
            let whole = piece.start - piece.start % SECTOR_BYTES
                ..piece.end.next_multiple_of(SECTOR_BYTES).min(size);
            copied += whole.end.saturating_sub(whole.start);
            live.lift(whole, |run| {
                self.lifted_bytes += run.end - run.start;
                match self.lifted.last_mut() {
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => self.lifted.push(run),
                }
            })?;
        }
        Ok(Lifted::More)
    }

    /// A flush that began after the last step has ended: the parent lets go of what was lifted, and
    /// of nothing else. What was written to the head since the flush began may be lost with the
    /// power, and then the parent's data must still be there.
    pub(crate) fn synced(&mut self, live: &mut Live) -> Result<(), Error> {
        self.lifted_bytes = 0;
        let lifted = std::mem::take(&mut self.lifted);
        live.free_in_parent(lifted)
    }

    /// Bytes of the parent looked at so far, and in all.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.walk.done(), self.walk.end)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;
    use crate::disk::replica::{OpenRequest, Options, Replica};

    const NOW: &str = "2026-11-15T06:25:24Z";
    const SECTORS: u64 = 8;
    const ONE: usize = 4096;

    /// Every sector in the parent `p`, then in the child `c`; the head is empty. `p` is removed.
    struct Case {
        place: TempDir,
        replica: Replica,
    }

    impl Case {
        fn new(grown: bool) -> Self {
            let place = tempfile::tempdir().unwrap();
            let mut replica = Replica::new(place.path().join("replica"), Options::default());
            let size = i64::try_from(SECTORS * SECTOR_BYTES).unwrap();
            replica.create(size, NOW).unwrap();
            replica.open(&OpenRequest::default()).unwrap();
            replica.write_at(&vec![1; ONE * 8], 0).unwrap();
            replica.snapshot("p", true, NOW, None).unwrap();
            if grown {
                replica.expand(size * 2, NOW).unwrap();
            }
            let all = vec![2; usize::try_from(replica.size_bytes().unwrap()).unwrap()];
            replica.write_at(&all, 0).unwrap();
            replica.snapshot("c", true, NOW, None).unwrap();
            replica.mark_removed("p").unwrap();
            Self { place, replica }
        }

        fn dir(&self) -> PathBuf {
            self.place.path().join("replica")
        }

        fn coalesce(&self, parent: &str) -> Coalesce {
            let name = |name: &str| DiskName::of_either(name).unwrap();
            Coalesce::new(&self.dir(), &name(parent), &name("c")).unwrap()
        }

        fn discard(&mut self, sector: u64) {
            self.replica.unmap_at(sector * SECTOR_BYTES, SECTOR_BYTES).unwrap();
        }

        /// The byte of which the sector is full.
        fn sector(&mut self, sector: u64) -> Option<u8> {
            let mut found = [9; ONE];
            self.replica.read_at(&mut found, sector * SECTOR_BYTES).unwrap();
            found.first().copied().filter(|first| found.iter().all(|byte| byte == first))
        }
    }

    /// The race itself, one turn each: discards before the child is read, between the reading and
    /// the writing, and after the writing. The child is marked removed when the copy runs already.
    #[test]
    fn what_is_discarded_while_it_is_copied_stays_discarded() {
        let mut case = Case::new(false);
        let mut work = case.coalesce("p");
        case.replica.mark_removed("c").unwrap();
        // The extents of the child are known from here on, the data is not.
        work.walk.at = work.walk.end;
        work.walk.found.push_back((0..SECTORS * SECTOR_BYTES, false));
        case.discard(1);
        let piece = work.take().unwrap().unwrap();
        assert_eq!(piece.range, 0..SECTORS * SECTOR_BYTES);
        case.discard(2);
        work.give(&piece).unwrap();
        case.discard(3);
        work.follow_holes(piece.range).unwrap();
        case.discard(4);
        while work.step(1 << 20).unwrap() != Progress::Done {}
        let expected = [2, 0, 0, 0, 0, 2, 2, 2];
        for round in ["copied", "reopened", "replaced"] {
            match round {
                "copied" => {}
                "reopened" => case.replica.reload().unwrap(),
                _ => case.replica.replace("c", "p").unwrap(),
            }
            for (sector, byte) in (0..SECTORS).zip(expected) {
                assert_eq!(case.sector(sector), Some(byte), "sector {sector}, {round}");
            }
        }
    }

    /// The parent grew under the replica's open files, which must still reach all of it.
    #[test]
    fn a_discard_reaches_the_part_by_which_the_parent_grew() {
        let mut case = Case::new(true);
        let expansion = format!("expand-{}", SECTORS * 2 * SECTOR_BYTES);
        for name in [expansion.as_str(), "c"] {
            case.replica.mark_removed(name).unwrap();
        }
        let mut work = case.coalesce(&expansion);
        while work.step(1 << 20).unwrap() != Progress::Done {}
        case.discard(SECTORS + 1);
        case.replica.replace("c", &expansion).unwrap();
        case.replica.reload().unwrap();
        assert_eq!(case.sector(SECTORS + 1), Some(0));
        assert_eq!(case.sector(SECTORS + 2), Some(2));
    }

    /// A kept child is out of reach: it reads the same whatever is discarded while it is copied.
    #[test]
    fn a_kept_snapshot_does_not_change_while_it_is_copied() {
        let mut case = Case::new(false);
        let mut work = case.coalesce("p");
        let piece = work.take().unwrap().unwrap();
        case.discard(2);
        work.give(&piece).unwrap();
        case.discard(3);
        work.follow_holes(piece.range).unwrap();
        while work.step(1 << 20).unwrap() != Progress::Done {}
        case.replica.replace("c", "p").unwrap();
        let mut view = crate::disk::View::open(&case.dir(), "c", 1 << 20).unwrap();
        let mut found = vec![9; ONE * 8];
        view.read_at(&mut found, 0).unwrap();
        assert!(found.iter().all(|byte| *byte == 2));
        assert_eq!(case.sector(2), Some(2), "nor does the volume, which has it from there");
    }
}
