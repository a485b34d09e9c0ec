//! Where the data of a backup comes from. The calls block, and are made on threads that may.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{SeekFrom, seek};

/// The changed parts of a volume, ascending and apart; empty ones are skipped.
pub type Extents = Box<dyn Iterator<Item = io::Result<Range<u64>>> + Send>;

/// The snapshot that a backup was made of, as its record tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackedUp {
    pub snapshot: String,
    /// When the snapshot was taken; empty in records of writers that do not say.
    pub taken: String,
    /// When the backup was started.
    pub started: String,
}

impl BackedUp {
    /// Whether it is the snapshot of its name that was taken at that time. Where the record does not say, it
    /// is one that was there when the backup was started, as far as clocks tell.
    pub fn is_of(&self, taken: &str) -> bool {
        if !self.taken.is_empty() {
            return self.taken == taken;
        }
        let times = (taken.parse::<Timestamp>(), self.started.parse::<Timestamp>());
        matches!(times, (Ok(taken), Ok(started)) if taken <= started)
    }
}

/// A snapshot that is backed up, and the chain below it. It does not change while it is read.
pub trait Source: Send + Sync + 'static {
    fn size_bytes(&self) -> u64;

    /// When this snapshot was taken, for the record of the backup; nothing where it does not know.
    fn taken(&self) -> io::Result<String> {
        Ok(String::new())
    }

    /// Whether this snapshot, which has the name of that one, is that one. A name alone says nothing: it may
    /// have been given again.
    fn is_snapshot(&self, of: &BackedUp) -> io::Result<bool>;

    /// Whether the chain below this snapshot holds that one, as it was then.
    fn has_snapshot(&self, of: &BackedUp) -> io::Result<bool>;

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

    /// It has none: who named it knows.
    fn is_snapshot(&self, _: &BackedUp) -> io::Result<bool> {
        Ok(true)
    }

    fn has_snapshot(&self, _: &BackedUp) -> io::Result<bool> {
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
    fn a_snapshot_is_known_by_when_it_was_taken() {
        let (taken, started) = ("2026-11-15T06:29:59Z", "2026-11-15T06:30:00Z");
        let of = |taken: &str, started: &str| BackedUp {
            snapshot: "s".into(),
            taken: taken.into(),
            started: started.into(),
        };
        let known = of(taken, started);
        assert!(known.is_of(taken));
        for other in ["2026-11-15T06:29:58Z", "2026-11-15T06:30:00Z", "2026-11-15T06:30:01Z", ""] {
            assert!(!known.is_of(other), "{other}");
        }
        // Whatever the clock of who started the backup says.
        assert!(of(started, taken).is_of(started));
        let unknown = of("", started);
        for (taken, wanted) in [(taken, true), (started, true), ("2026-11-15T06:30:01Z", false)] {
            assert_eq!(unknown.is_of(taken), wanted, "{taken}");
        }
        assert!(!unknown.is_of("") && !of("", "").is_of(taken));
    }

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
