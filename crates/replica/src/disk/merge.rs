//! Moving data between layers in bounded steps, so that what a read returns never changes on the
//! way. Owns copying and freeing; who is merged with whom, and the metadata, is in `purge`.
//!
//! Nothing of the progress is kept: a job that was interrupted anywhere begins again and finds
//! its work partly done.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;

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
        let child = Image::open(dir, child, Access::Read)?;
        let mut parent = Image::open(dir, parent, Access::Write)?;
        // A replacement that was interrupted between its names: everything is copied already.
        let is_same = child.identity()? == parent.identity()?;
        if parent.len_bytes() > child.len_bytes() {
            return Err(Error::ParentLarger);
        }
        if parent.len_bytes() < child.len_bytes() {
            parent.grow(child.len_bytes())?;
        }
        let end = if is_same { 0 } else { child.len_bytes() };
        Ok(Self { child, parent, walk: Walk::new(end), is_done: false, buffer: Vec::new() })
    }

    /// Copies about `budget_bytes`; the last step waits until all is on disk.
    pub fn step(&mut self, budget_bytes: u64) -> Result<Progress, Error> {
        let mut copied = 0;
        while copied < budget_bytes && !self.is_done {
            let Some((piece, is_unwritten)) = self.walk.next(&self.child, COPY_BYTES)? else {
                self.parent.sync()?;
                self.is_done = true;
                break;
            };
            copied += piece.end - piece.start;
            if is_unwritten {
                self.parent.preallocate_zeros(piece)?;
            } else {
                let len = usize::try_from(piece.end - piece.start).unwrap_or(usize::MAX);
                self.buffer.resize(len, 0);
                self.child.read(&mut self.buffer, piece.start)?;
                self.parent.write(&self.buffer, piece.start)?;
            }
        }
        Ok(if self.is_done { Progress::Done } else { Progress::Working(self.walk.percent()) })
    }
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

/// Frees in the removed parent of the head what the head hides. Runs on the replica's thread.
#[derive(Debug)]
pub(crate) struct Prune {
    at: u64,
    end: u64,
}

impl Prune {
    pub(crate) fn new(live: &Live) -> Self {
        Self { at: 0, end: live.parent().map_or(0, Image::len_bytes) }
    }

    /// One window of the head.
    pub(crate) fn step(&mut self, live: &mut Live) -> Result<Progress, Error> {
        let window = self.at..self.end.min(self.at.saturating_add(WINDOW_BYTES));
        // Before every window: the head must hold on disk what the parent is to lose.
        live.flush()?;
        live.drop_hidden(window.clone())?;
        self.at = window.end;
        if self.at >= self.end {
            live.flush()?;
            return Ok(Progress::Done);
        }
        let percent = self.at.saturating_mul(99).checked_div(self.end).unwrap_or(99);
        Ok(Progress::Working(u8::try_from(percent).unwrap_or(99)))
    }
}
