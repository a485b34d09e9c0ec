//! The directory that is set aside beside a data directory, and whether it is ours to remove.
//!
//! People call a directory `<data dir>.old` too, before they mend something by hand: its name tells
//! nothing. What is set aside here is written down first, in `<data dir>.aside`, by what it is.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::part::beside;

/// What the name of a directory that was set aside ends with.
const SUFFIX: &str = ".old";
const MARK: &str = ".aside";
const MARK_MAX: usize = 64 << 10;
/// Names that are tried where people have taken the first.
const NAMES_MAX: u32 = 100;

/// The one directory that is set aside, or is just about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    version: u32,
    /// What is behind the name of the data directory in its own.
    suffix: String,
    inode: u64,
    /// A number is given out again after a removal. Not every file system knows when it was made.
    born: Option<Duration>,
}

impl Mark {
    fn of(dir: &Path, suffix: String) -> io::Result<Self> {
        let found = dir.symlink_metadata()?;
        let born =
            found.created().ok().and_then(|it| it.duration_since(SystemTime::UNIX_EPOCH).ok());
        Ok(Self { version: 1, suffix, inode: found.ino(), born })
    }

    /// None where there is none, or none that can be read: then nothing is ours.
    fn read(data_dir: &Path) -> Option<Self> {
        let bytes = durable::read_limited(beside(data_dir, MARK), MARK_MAX).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn write(&self, data_dir: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        durable::replace_private(beside(data_dir, MARK), &bytes).map_err(io::Error::other)
    }
}

/// Where what was set aside beside a data directory lies, and whether it is known to be that.
fn found(data_dir: &Path) -> Option<PathBuf> {
    let mark = Mark::read(data_dir)?;
    let path = beside(data_dir, &mark.suffix);
    let there = Mark::of(&path, mark.suffix.clone()).ok()?;
    (there == mark).then_some(path)
}

/// Gives a directory another name, durably, and says which. An older one that was set aside goes; what
/// people have put there stays.
pub(crate) fn set_aside(dir: &Path) -> io::Result<PathBuf> {
    remove_aside(dir)?;
    let suffix = free(dir)?;
    let (to, mark) = (beside(dir, &suffix), Mark::of(dir, suffix)?);
    if let Err(error) = mark.write(dir) {
        let why = telemetry::Chain(&error);
        tracing::warn!("{} is to be removed by hand, not by itself: {why}", to.display());
    }
    std::fs::rename(dir, &to)?;
    sync_parent(dir)?;
    Ok(to)
}

fn free(dir: &Path) -> io::Result<String> {
    let names =
        std::iter::once(SUFFIX.to_owned()).chain((1..NAMES_MAX).map(|it| format!("{SUFFIX}.{it}")));
    for suffix in names {
        let path = beside(dir, &suffix);
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(suffix),
            Err(error) => return Err(error),
            Ok(_) => {
                tracing::warn!("{} was not set aside here and stays as it is", path.display());
            }
        }
    }
    Err(io::Error::other(format!("{NAMES_MAX} directories are beside it already")))
}

/// Removes what was set aside beside a data directory, if anything was.
pub(crate) fn remove_aside(dir: &Path) -> io::Result<()> {
    if let Some(path) = found(dir) {
        tracing::info!("removing {}, which is not needed any more", path.display());
        remove(&path)?;
    }
    let mark = beside(dir, MARK);
    if mark.try_exists()? { durable::remove(mark).map_err(io::Error::other) } else { Ok(()) }
}

/// Removes a directory and all in it; one that is not there is removed already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Makes the name of a path durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => std::fs::File::open(parent)?.sync_all(),
        Some(_) | None => std::fs::File::open(".")?.sync_all(),
    }
}
