//! A snapshot of this replica as the source of a backup: read-only, with its own files, found and
//! read while blocks are uploaded. Never: the store.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use backupstore::{BackedUp, Extents, Source};
use jiff::Timestamp;

use crate::agent::INDEX_BYTES;
use crate::disk::{DiskMeta, DiskName, Error, META_MAX_BYTES, View, meta_file};

/// Views that are read side by side.
const READERS: usize = 2;
/// How much of the volume is mapped at a time.
const WINDOW_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct SnapshotSource {
    dir: PathBuf,
    disk: DiskName,
    chain: Vec<DiskName>,
    size_bytes: u64,
    has_backing: bool,
    readers: [Mutex<View>; READERS],
}

impl SnapshotSource {
    /// `snapshot` by its bare name or its disk's. Blocks.
    pub(crate) fn open(dir: &Path, snapshot: &str) -> Result<Self, Error> {
        let open = || View::open(dir, snapshot, INDEX_BYTES);
        let first = open()?;
        let (chain, size_bytes) = (first.chain().to_vec(), first.size_bytes());
        let no_such = || Error::NoSuchDisk(snapshot.to_owned());
        let disk = chain.first().cloned().ok_or_else(no_such)?;
        let has_backing = first.has_backing();
        let readers = [Mutex::new(first), Mutex::new(open()?)];
        Ok(Self { dir: dir.to_owned(), disk, chain, size_bytes, has_backing, readers })
    }

    /// The bare name of the snapshot.
    pub(crate) fn snapshot(&self) -> &str {
        self.disk.snapshot().unwrap_or_default()
    }

    fn read_any(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        let idle = self.readers.iter().find_map(|reader| reader.try_lock().ok());
        match (idle, self.readers.first()) {
            (Some(mut view), _) => view.read_at(buffer, offset),
            (None, Some(first)) => {
                first.lock().unwrap_or_else(PoisonError::into_inner).read_at(buffer, offset)
            }
            (None, None) => Ok(()),
        }
    }

    fn meta(&self, disk: &DiskName) -> io::Result<DiskMeta> {
        let path = self.dir.join(meta_file(disk));
        let bytes = durable::read_limited(path, META_MAX_BYTES).map_err(io::Error::other)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// A snapshot changes only once it is marked as removed: then the next one is merged into it.
    /// Asked after data was read, this says whether the data was the snapshot's.
    fn check_unchanged(&self) -> io::Result<()> {
        let removed =
            || io::Error::other(format!("snapshot {} was removed meanwhile", self.snapshot()));
        let meta = self.meta(&self.disk).map_err(|_| removed())?;
        if meta.removed { Err(removed()) } else { Ok(()) }
    }
}

impl Source for SnapshotSource {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn taken(&self) -> io::Result<String> {
        let created = self.meta(&self.disk)?.created;
        Ok(if created.parse::<Timestamp>().is_ok() { created } else { String::new() })
    }

    fn is_snapshot(&self, of: &BackedUp) -> io::Result<bool> {
        Ok(of.snapshot == self.snapshot() && of.is_of(&self.meta(&self.disk)?.created))
    }

    fn has_snapshot(&self, of: &BackedUp) -> io::Result<bool> {
        let Ok(disk) = DiskName::of_snapshot(&of.snapshot) else { return Ok(false) };
        if !self.chain.iter().skip(1).any(|below| *below == disk) {
            return Ok(false);
        }
        Ok(is_as_backed_up(&self.meta(&disk)?, of))
    }

    fn changed_since(&self, base: Option<&str>) -> io::Result<Extents> {
        let view =
            View::open(&self.dir, self.disk.as_str(), INDEX_BYTES).map_err(|error| told(&error))?;
        let end = self.size_bytes.min(view.size_bytes());
        let base = base.map(str::to_owned);
        Ok(Box::new(Walk { view, base, at: 0, end, found: VecDeque::new() }))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_any(buffer, offset).map_err(|error| told(&error))?;
        self.check_unchanged()
    }

    fn shows_through(&self) -> bool {
        self.has_backing
    }
}

/// Whether a snapshot is the one that a backup was made of, and the same still: it is not marked as
/// removed, since such a one is trimmed and merged. Where times say nothing, the next backup looks at
/// everything.
fn is_as_backed_up(meta: &DiskMeta, of: &BackedUp) -> bool {
    !meta.removed && of.is_of(&meta.created)
}

/// Finds what changed window by window.
#[derive(Debug)]
struct Walk {
    view: View,
    base: Option<String>,
    at: u64,
    end: u64,
    found: VecDeque<Range<u64>>,
}

impl Iterator for Walk {
    type Item = io::Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.found.is_empty() && self.at < self.end {
            let len_bytes = WINDOW_BYTES.min(self.end - self.at);
            let found = &mut self.found;
            let mapped = self.view.changed_since(self.base.as_deref(), self.at, len_bytes, |run| {
                if run.is_data {
                    found.push_back(run.offset..run.offset.saturating_add(run.len_bytes));
                }
            });
            self.at += len_bytes;
            if let Err(error) = mapped {
                self.at = self.end;
                return Some(Err(told(&error)));
            }
        }
        self.found.pop_front().map(Ok)
    }
}

fn told(error: &Error) -> io::Error {
    io::Error::other(error.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_a_base_only_as_it_was_when_it_was_backed_up() {
        let meta = |created: &str, removed| DiskMeta {
            created: created.to_owned(),
            removed,
            ..DiskMeta::default()
        };
        let of = |taken: &str, started: &str| BackedUp {
            snapshot: "s".to_owned(),
            taken: taken.to_owned(),
            started: started.to_owned(),
        };
        let backed_up = "2026-11-15T06:30:00Z";
        for (created, removed, wanted) in [
            ("2026-11-15T06:29:59Z", false, true),
            ("2026-11-15T06:30:00Z", false, true),
            // The name was given again.
            ("2026-11-15T06:30:01Z", false, false),
            // It is merged and trimmed from now on.
            ("2026-11-15T06:29:59Z", true, false),
            ("", false, false),
        ] {
            let of = of("", backed_up);
            assert_eq!(is_as_backed_up(&meta(created, removed), &of), wanted, "{created}");
        }
        assert!(!is_as_backed_up(&meta("2026-11-15T06:29:59Z", false), &of("", "")));
        // One that says when its snapshot was taken is of no other, whichever was there first.
        let known = of("2026-11-15T06:29:59Z", backed_up);
        assert!(is_as_backed_up(&meta("2026-11-15T06:29:59Z", false), &known));
        assert!(!is_as_backed_up(&meta("2026-11-15T06:29:59Z", true), &known));
        assert!(!is_as_backed_up(&meta("2026-11-15T06:29:58Z", false), &known));
    }
}
