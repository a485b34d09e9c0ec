//! Where the data of a backup comes from. The calls block, and are made on threads that may.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};

/// The changed parts of a volume, ascending and apart; empty ones are skipped.
pub type Extents = Box<dyn Iterator<Item = io::Result<Range<u64>>> + Send>;

/// A snapshot that is backed up, and the chain below it. It does not change while it is read.
pub trait Source: Send + Sync + 'static {
    fn size_bytes(&self) -> u64;

    /// Whether the chain below this snapshot holds the `snapshot` that was backed up at that time, as it
    /// was then. A name alone says nothing: it may have been given again.
    fn has_snapshot(&self, snapshot: &str, backed_up_at: &str) -> io::Result<bool>;

    /// Every part of the volume that may have changed since `base`, or that may hold data where
    /// there is no base. It is walked while blocks are uploaded: it should find its parts as it
    /// goes, not before.
    fn changed_since(&self, base: Option<&str>) -> io::Result<Extents>;

    /// Fills `buffer` from `offset`; what was never written is zeros.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Whether something shows through where a backup has no block: then zeros that were written are
    /// data like any other.
    fn shows_through(&self) -> bool {
        false
    }
}

/// A file that does not change: no snapshots, and its holes hold nothing.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    size_bytes: u64,
}

impl FileSource {
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        Ok(Self { file, size_bytes: found.len() })
    }
}

impl Source for FileSource {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn has_snapshot(&self, _: &str, _: &str) -> io::Result<bool> {
        Ok(false)
    }

    fn changed_since(&self, _: Option<&str>) -> io::Result<Extents> {
        Ok(Box::new(Walk { file: self.file.try_clone()?, at: 0, size_bytes: self.size_bytes }))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let left = self.size_bytes.saturating_sub(offset);
        let within = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let (within, past) = buffer.split_at_mut(within);
        past.fill(0);
        self.file.read_exact_at(within, offset)
    }
}

/// Data of a file, one run after the other.
struct Walk {
    file: File,
    at: u64,
    size_bytes: u64,
}

impl Walk {
    /// The next run, where the file system knows of holes; else all that is left.
    fn seek(&self) -> rustix::io::Result<Option<Range<u64>>> {
        let start = match seek(&self.file, SeekFrom::Data(self.at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
                return Ok(Some(self.at..self.size_bytes));
            }
            Err(error) => return Err(error),
        };
        Ok(Some(start..seek(&self.file, SeekFrom::Hole(start))?))
    }
}

impl Iterator for Walk {
    type Item = io::Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.size_bytes {
            return None;
        }
        match self.seek() {
            Ok(Some(run)) => {
                self.at = run.end.max(self.at + 1);
                Some(Ok(run))
            }
            Ok(None) => None,
            Err(error) => {
                self.at = self.size_bytes;
                Some(Err(error.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_with_its_holes_and_past_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let file = File::create(&path).unwrap();
        file.set_len((8 << 20) + 100).unwrap();
        file.write_all_at(&[7; 4096], 4 << 20).unwrap();
        file.write_all_at(&[8; 100], 8 << 20).unwrap();
        let source = FileSource::open(&path).unwrap();
        let found: Vec<Range<u64>> =
            source.changed_since(None).unwrap().map(Result::unwrap).collect();
        for at in [4 << 20, (8 << 20) + 99] {
            assert!(found.iter().any(|run| run.contains(&at)), "{found:?}");
        }
        assert!(found.iter().map(|run| run.end - run.start).sum::<u64>() < 1 << 20, "{found:?}");
        let mut buffer = [1; 200];
        source.read_at(8 << 20, &mut buffer).unwrap();
        assert_eq!((&buffer[..100], &buffer[100..]), (&[8; 100][..], &[0; 100][..]));
        assert!(FileSource::open(dir.path()).is_err());
    }
}
