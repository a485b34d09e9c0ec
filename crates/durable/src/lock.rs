//! One owner a directory: an exclusive lock on the file `LOCK` in it, which names the owner.
//!
//! The kernel releases the lock when the process ends, however it ends, so there is nothing stale
//! to clean up. The file is never removed: a second process could hold the lock of the removed
//! one while a third locks a new one.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, File, Mode, Open, write_all_at};
use crate::error::Retry;
use crate::real::RealDisk;

const FILE_NAME: &str = "LOCK";
/// A process id and a line end, with room.
const CONTENTS_MAX_BYTES: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{} is in use by {}; stop it, or use another directory", dir.display(), owner(*.pid))]
    Held { dir: PathBuf, pid: Option<u32> },
    #[error("cannot lock {}", dir.display())]
    Io { dir: PathBuf, source: io::Error },
}

impl LockError {
    pub fn retry(&self) -> Retry {
        match self {
            Self::Held { .. } => Retry::Later,
            Self::Io { .. } => Retry::Never,
        }
    }
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// The directory is ours until this is dropped.
#[derive(Debug)]
#[must_use = "the directory is unlocked when this is dropped"]
pub struct DirLock {
    dir: PathBuf,
    _file: Box<dyn File>,
}

impl DirLock {
    /// Locks an existing directory of the real disk; never waits.
    pub fn acquire(dir: impl AsRef<Path>) -> Result<Self, LockError> {
        Self::acquire_on(&RealDisk, dir.as_ref())
    }

    pub fn acquire_on(disk: &dyn Disk, dir: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { dir: dir.to_owned(), source };
        let file = disk.open(&dir.join(FILE_NAME), Open::Create(Mode::PRIVATE)).map_err(failed)?;
        if !file.try_lock().map_err(failed)? {
            return Err(LockError::Held { dir: dir.to_owned(), pid: read_pid(file.as_ref()) });
        }
        // Written before cut, so that a reader never finds it empty. Not synced: after a crash of
        // the machine nobody holds the lock.
        let contents = format!("{}\n", std::process::id());
        write_all_at(file.as_ref(), contents.as_bytes(), 0).map_err(failed)?;
        file.truncate(contents.len() as u64).map_err(failed)?;
        Ok(Self { dir: dir.to_owned(), _file: file })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

fn read_pid(file: &dyn File) -> Option<u32> {
    let mut buffer = [0; CONTENTS_MAX_BYTES];
    let read = file.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(buffer.get(..read)?).ok()?;
    text.lines().next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    #[test]
    fn a_second_owner_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirLock::acquire(dir.path()).unwrap();
        assert_eq!(first.dir(), dir.path());
        let error = DirLock::acquire(dir.path()).unwrap_err();
        let pid = std::process::id();
        assert!(matches!(&error, LockError::Held { pid: Some(found), .. } if *found == pid));
        assert!(error.to_string().contains(&format!("in use by process {pid}; stop it")));
        drop(first);
        drop(DirLock::acquire(dir.path()).unwrap());
    }

    #[test]
    fn an_owner_with_a_longer_number_leaves_nothing_of_it_behind() {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("/LOCK"), Open::Create(Mode::PRIVATE)).unwrap();
        file.write_at(b"4294967295999999\n", 0).unwrap();
        let _lock = DirLock::acquire_on(&disk, Path::new("/")).unwrap();
        assert_eq!(read_pid(file.as_ref()), Some(std::process::id()));
    }

    #[test]
    fn the_lock_of_a_dead_owner_is_free() {
        let disk = SimDisk::new(1);
        let lock = DirLock::acquire_on(&disk, Path::new("/")).unwrap();
        assert!(DirLock::acquire_on(&disk, Path::new("/")).is_err());
        disk.kill();
        let _next = DirLock::acquire_on(&disk, Path::new("/")).unwrap();
        drop(lock);
        assert!(DirLock::acquire_on(&disk, Path::new("/")).is_err(), "the dead hold nothing");
    }

    #[test]
    fn an_unreadable_owner_is_another_process() {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("/LOCK"), Open::Create(Mode::PRIVATE)).unwrap();
        assert!(file.try_lock().unwrap());
        file.write_at(b"\xff\xfe", 0).unwrap();
        let error = DirLock::acquire_on(&disk, Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        assert_eq!(error.retry(), Retry::Later);
    }

    #[test]
    fn a_missing_directory_is_not_a_held_one() {
        let error = DirLock::acquire_on(&SimDisk::new(1), Path::new("/none")).unwrap_err();
        assert!(matches!(error, LockError::Io { .. }));
    }
}
