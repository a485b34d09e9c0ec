//! Files with holes: which ranges hold data, giving ranges back, zeros that are not written. Owns the
//! second half of the port ([`Sparse`]) and how a real file system answers it; knows no layers.

mod fiemap;

use std::fs::File as StdFile;
use std::io;
use std::ops::Range;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use self::fiemap::{EXTENT_LAST, EXTENT_UNWRITTEN, Fiemap};
use crate::disk::File;

/// A range of a file that is no hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
    /// Preallocated and never written: it reads as zeros.
    pub is_unwritten: bool,
}

/// What a file system tells of a file, or of whatever has the name, without following links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Details {
    pub len_bytes: u64,
    pub is_file: bool,
    pub is_dir: bool,
    /// Device and number: tells files apart, whatever their names.
    pub identity: (u64, u64),
    /// Its names.
    pub links: u64,
    pub allocated_bytes: u64,
    /// Seconds and nanoseconds of the last change of the contents.
    pub modified: (i64, i64),
    /// And of anything about it.
    pub changed: (i64, i64),
}

/// An open file with holes.
pub trait Sparse: File {
    fn look(&self) -> io::Result<Details>;
    /// Calls `each` with what is no hole inside the range, in order. `sync` waits until what was written
    /// has found its place; without it that is told as well.
    fn extents(
        &self,
        range: Range<u64>,
        sync: bool,
        each: &mut dyn FnMut(Extent),
    ) -> io::Result<()>;
    /// Makes the range a hole, as far as the file reaches; `false` where the file system cannot.
    fn punch(&self, range: Range<u64>) -> io::Result<bool>;
    /// Makes the range zeros that are no hole, without writing them; `false` where that cannot be done, or
    /// could not be told from a hole.
    fn preallocate(&self, range: Range<u64>) -> io::Result<bool>;
}

/// How a file system tells where data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Fiemap,
    /// Preallocated ranges look like holes here, so nothing may rely on them.
    Seek,
}

impl Source {
    pub(crate) fn of(file: &StdFile) -> io::Result<Self> {
        match Fiemap::new().ask(file, 0, 1, false) {
            Ok(_) => Ok(Self::Fiemap),
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL) => Ok(Self::Seek),
            Err(error) => Err(error.into()),
        }
    }

    /// See [`Sparse::extents`].
    pub(crate) fn each(
        self,
        file: &StdFile,
        range: Range<u64>,
        sync: bool,
        each: &mut dyn FnMut(Extent),
    ) -> io::Result<()> {
        let clip = |start: u64, end: u64, is_unwritten| Extent {
            start: start.clamp(range.start, range.end),
            end: end.clamp(range.start, range.end),
            is_unwritten,
        };
        let mut at = range.start;
        match self {
            Self::Fiemap => {
                let mut map = Fiemap::new();
                while at < range.end {
                    let found = map.ask(file, at, range.end - at, sync)?;
                    let Some(last) = found.last() else { break };
                    for raw in found {
                        let end = raw.logical.saturating_add(raw.len);
                        each(clip(raw.logical, end, raw.flags & EXTENT_UNWRITTEN != 0));
                    }
                    // The clamp to progress is for a kernel that repeats itself.
                    at = last.logical.saturating_add(last.len).max(at + 1);
                    if last.flags & EXTENT_LAST != 0 {
                        break;
                    }
                }
            }
            Self::Seek => {
                while at < range.end {
                    let start = match seek(file, SeekFrom::Data(at)) {
                        Ok(start) => start,
                        Err(Errno::NXIO) => break,
                        Err(error) => return Err(error.into()),
                    };
                    if start >= range.end {
                        break;
                    }
                    let end = seek(file, SeekFrom::Hole(start))?;
                    each(clip(start, end, false));
                    at = end.max(start + 1);
                }
            }
        }
        Ok(())
    }

    /// See [`Sparse::preallocate`].
    pub(crate) fn preallocate(self, file: &StdFile, range: Range<u64>) -> io::Result<bool> {
        if self == Self::Seek {
            return Ok(false);
        }
        let len = range.end.saturating_sub(range.start);
        match fallocate(file, FallocateFlags::ZERO_RANGE, range.start, len) {
            Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(false),
            other => Ok(other.map(|()| true)?),
        }
    }
}

/// See [`Sparse::punch`].
pub(crate) fn punch(file: &StdFile, range: Range<u64>) -> io::Result<bool> {
    let len = range.end.saturating_sub(range.start);
    if len == 0 {
        return Ok(true);
    }
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, mode, range.start, len) {
        Err(Errno::OPNOTSUPP) => Ok(false),
        other => Ok(other.map(|()| true)?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn all(source: Source, file: &StdFile, range: Range<u64>) -> Vec<(u64, u64, bool)> {
        let mut found: Vec<(u64, u64, bool)> = Vec::new();
        source
            .each(file, range, false, &mut |extent| match found.last_mut() {
                Some(last) if last.1 == extent.start && last.2 == extent.is_unwritten => {
                    last.1 = extent.end;
                }
                _ => found.push((extent.start, extent.end, extent.is_unwritten)),
            })
            .unwrap();
        found
    }

    #[test]
    fn written_and_preallocated_ranges_are_told_from_holes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 8192], 65536).unwrap();
        assert_eq!(all(Source::Seek, &file, 0..1 << 20), [(65536, 73728, false)]);
        if Source::of(&file).unwrap() == Source::Fiemap {
            fallocate(&file, FallocateFlags::KEEP_SIZE, 131_072, 4096).unwrap();
            let expected = [(65536, 73728, false), (131_072, 135_168, true)];
            assert_eq!(all(Source::Fiemap, &file, 0..1 << 20), expected);
            assert_eq!(all(Source::Fiemap, &file, 69632..131_072), [(69632, 73728, false)]);
        }
    }

    #[test]
    fn more_extents_than_one_answer_holds_are_all_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 << 20).unwrap();
        for index in 0..500u64 {
            file.write_all_at(&[1; 4096], index * 8192).unwrap();
        }
        let source = Source::of(&file).unwrap();
        let found = all(source, &file, 0..16 << 20);
        assert_eq!(found.len(), 500);
        assert_eq!(all(Source::Seek, &file, 0..16 << 20).len(), 500);
    }
}
