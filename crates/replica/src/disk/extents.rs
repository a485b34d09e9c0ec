//! Which ranges of an image hold data: by extent map, or by `SEEK_DATA` on file systems without
//! one. Owns clipping and merging of what the kernel says; knows no layers.

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::disk::fiemap::{EXTENT_LAST, EXTENT_UNWRITTEN, Fiemap};

/// A range of an image that hides what lies below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
    /// Preallocated and never written: it reads as zeros.
    pub is_unwritten: bool,
}

/// How a file system tells where data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Fiemap,
    /// Preallocated ranges look like holes here, so nothing may rely on them.
    Seek,
}

impl Source {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        match Fiemap::new().ask(file, 0, 1, false) {
            Ok(_) => Ok(Self::Fiemap),
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL) => Ok(Self::Seek),
            Err(error) => Err(error.into()),
        }
    }

    /// Calls `each` with the data of `file` inside `range`, in order.
    ///
    /// `sync` waits until dirty pages have found their place; without it they are reported as
    /// well, which is what the head needs on every miss of the index.
    pub(crate) fn each(
        self,
        file: &File,
        range: Range<u64>,
        sync: bool,
        mut each: impl FnMut(Extent),
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
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    fn all(source: Source, file: &File, range: Range<u64>) -> Vec<(u64, u64, bool)> {
        let mut found: Vec<(u64, u64, bool)> = Vec::new();
        source
            .each(file, range, false, |extent| match found.last_mut() {
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
