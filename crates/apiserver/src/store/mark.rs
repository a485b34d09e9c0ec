//! The highest revision that was ever given out, in a small file beside the store.
//!
//! An older copy of the store may be put back, and its counter would give out again what clients
//! have seen with another meaning. So the counter goes on above the mark: whoever then asks for
//! changes since a revision of the lost history is told that it is too old, and lists again.
//!
//! The mark runs ahead of the counter by a step, so that it costs one sync in thousands of writes,
//! and is exact after a clean end. After a crash the counter jumps to it, which does no harm.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How far the mark runs ahead.
const STEP: u64 = 1 << 14;
/// The jump when the mark itself is not readable: more than any history had.
const FAR: u64 = 1 << 32;
const BYTES: usize = 12;

#[derive(Debug)]
pub(super) struct Mark {
    path: PathBuf,
    file: Option<File>,
    bound: u64,
}

impl Mark {
    /// The mark of a store that stands at `found`, and the revision from which to count on.
    pub(super) fn open(path: PathBuf, found: u64) -> io::Result<(Self, u64)> {
        let bound = match read(&path)? {
            Read::Nothing => found,
            Read::Bound(bound) => bound.max(found),
            Read::Damaged => {
                tracing::warn!(path = %path.display(), "the mark beside the object store is damaged; counting on far above");
                found.saturating_add(FAR)
            }
        };
        Ok((Self { path, file: None, bound }, bound))
    }

    /// Makes sure that no later start begins below `revision`. Before a commit that gives it out.
    pub(super) fn reach(&mut self, revision: u64) -> io::Result<()> {
        if self.file.is_some() && revision <= self.bound {
            return Ok(());
        }
        self.write(revision.saturating_add(STEP))
    }

    /// The last revision was given out.
    pub(super) fn settle(&mut self, revision: u64) -> io::Result<()> {
        if self.file.is_none() && self.bound == revision {
            return Ok(());
        }
        self.write(revision)
    }

    /// In place, so that a full disk is no obstacle once the file is there.
    fn write(&mut self, bound: u64) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => open(&self.path)?,
        };
        let mut bytes = [0; BYTES];
        let (number, sum) = bytes.split_at_mut(8);
        number.copy_from_slice(&bound.to_le_bytes());
        sum.copy_from_slice(&crc32c::crc32c(number).to_le_bytes());
        file.write_all_at(&bytes, 0)?;
        file.sync_data()?;
        self.bound = bound;
        self.file = Some(file);
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let is_new = !path.try_exists()?;
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    if let (true, Some(folder)) = (is_new, path.parent()) {
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}

enum Read {
    Nothing,
    Bound(u64),
    Damaged,
}

fn read(path: &Path) -> io::Result<Read> {
    let mut bytes = [0; BYTES];
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Read::Nothing),
        Err(error) => return Err(error),
    };
    match file.read_exact_at(&mut bytes, 0) {
        // What a full disk left of the first try: it was not relied upon yet.
        Err(_) if file.metadata()?.len() == 0 => return Ok(Read::Nothing),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Read::Damaged),
        other => other?,
    }
    let (number, sum) = bytes.split_at(8);
    if crc32c::crc32c(number).to_le_bytes() != *sum {
        return Ok(Read::Damaged);
    }
    Ok(Read::Bound(number.iter().rev().fold(0, |all, byte| (all << 8) | u64::from(*byte))))
}
