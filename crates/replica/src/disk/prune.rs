//! Freeing in the removed parent of the head what the head hides: all that is done about it unless
//! it is to be folded into the head. Blocks; runs in steps.

use std::path::Path;

use durable::{Disk, RealDisk};

use crate::disk::error::Error;
use crate::disk::image::{Access, Image};
use crate::disk::merge::Progress;
use crate::disk::names::DiskName;

const WINDOW_BYTES: u64 = 256 * 1024 * 1024;

#[derive(Debug)]
pub struct Prune {
    parent: Image,
    head: Image,
    at: u64,
}

impl Prune {
    pub fn new(dir: &Path, parent: &DiskName, head: &DiskName) -> Result<Self, Error> {
        Self::new_on(&RealDisk, dir, parent, head)
    }

    /// The same on a file system of the caller's.
    pub fn new_on(
        files: &dyn Disk,
        dir: &Path,
        parent: &DiskName,
        head: &DiskName,
    ) -> Result<Self, Error> {
        let head = Image::open(files, dir, head, Access::Read)?;
        let parent = Image::open(files, dir, parent, Access::Write)?;
        Ok(Self { parent, head, at: 0 })
    }

    /// One window of the head.
    pub fn step(&mut self) -> Result<Progress, Error> {
        let end = self.parent.len_bytes().min(self.head.len_bytes());
        let window = self.at..end.min(self.at.saturating_add(WINDOW_BYTES));
        // The head must hold on disk what the parent is to lose.
        self.head.sync()?;
        let mut hidden = Vec::new();
        self.head.extents(window.clone(), true, |extent| {
            // Preallocated ranges need not be there any more after a crash.
            if !extent.is_unwritten {
                hidden.push(extent.start..extent.end);
            }
        })?;
        for range in hidden {
            self.parent.punch(range)?;
        }
        self.at = window.end;
        if self.at >= end {
            self.parent.sync()?;
            return Ok(Progress::Done);
        }
        let percent = self.at.saturating_mul(99).checked_div(end).unwrap_or(99);
        Ok(Progress::Working(u8::try_from(percent).unwrap_or(99)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_head_hides_is_freed() {
        let place = tempfile::tempdir().unwrap();
        let parent = DiskName::of_snapshot("a").unwrap();
        let head = DiskName::parse("volume-head-001.img").unwrap();
        let below = Image::create(&RealDisk, place.path(), &parent, 1 << 20).unwrap();
        below.write(&vec![1; 1 << 20], 0).unwrap();
        let above = Image::create(&RealDisk, place.path(), &head, 1 << 20).unwrap();
        above.write(&[2; 8192], 65536).unwrap();
        let before = below.allocated_bytes().unwrap();
        let mut prune = Prune::new(place.path(), &parent, &head).unwrap();
        while prune.step().unwrap() != Progress::Done {}
        assert_eq!(before - below.allocated_bytes().unwrap(), 8192);
        let mut piece = [9; 16384];
        below.read(&mut piece, 65536).unwrap();
        assert_eq!(piece[..8192], [0; 8192]);
        assert_eq!(piece[8192..], [1; 8192]);
    }
}
