//! The operations, on any [`Disk`]. Each is a fixed order of calls, and the order is the point:
//! contents, then the name that makes them findable, each synced before the next.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::disk::{Barrier, Disk, File, Mode, Open, Stat, write_all_at};
use crate::error::{Error, Operation, While};

/// Files being written are named `.durable-<checksum><number>.tmp`: not after their target, whose name
/// may already be as long as a name can be, but after a checksum of it.
const BESIDE_PREFIX: &str = ".durable-";
const BESIDE_SUFFIX: &str = ".tmp";
/// Files that were set aside are named `.durable-aside-<second>-<number>.tmp`.
const ASIDE_PREFIX: &str = ".durable-aside-";
/// Names tried for a file being written before giving up.
const BESIDE_TRIES: u32 = 16;
/// Directories created above the one asked for.
const DEPTH_MAX: usize = 64;
const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Gives `path` these contents and this mode, atomically: a reader, and whoever comes after a
/// crash, finds the old file or the new one whole. A link at `path` is replaced, not followed.
///
/// On an error the path holds the old or the new contents. Only a failure of the last step, the
/// sync of the directory, can leave the new ones; calling again is always right.
///
/// Says what the new file is: its inode and time tell it from any other that takes its place.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8], mode: Mode) -> Result<Stat, Error> {
    let dir = directory_of(path)?;
    let (beside, stat) = write_beside(disk, path, bytes, mode)?;
    if let Err(error) = disk.rename(&beside, path) {
        discard(disk, &beside);
        return Err(error).during(Operation::Rename, path);
    }
    disk.sync_dir(dir).during(Operation::SyncDir, dir)?;
    Ok(stat)
}

/// What [`replace`] does, for contents that come in pieces: the file grows beside its target, and
/// [`Replacing::commit`] gives it the name. Whoever gives up calls [`Replacing::discard`]; what a
/// crash leaves is harmless, and [`sweep`] takes it later.
#[derive(Debug)]
pub struct Replacing {
    target: PathBuf,
    beside: PathBuf,
    file: Box<dyn File>,
    len_bytes: u64,
}

impl Replacing {
    pub fn begin(disk: &dyn Disk, path: &Path, mode: Mode) -> Result<Self, Error> {
        let (beside, file) = open_beside(disk, path, mode)?;
        Ok(Self { target: path.to_owned(), beside, file, len_bytes: 0 })
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        write_all_at(self.file.as_ref(), bytes, self.len_bytes)
            .during(Operation::Write, &self.beside)?;
        self.len_bytes = self.len_bytes.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// As at the end of [`replace`]. After an error the file is to be discarded.
    pub fn commit(&mut self, disk: &dyn Disk) -> Result<Stat, Error> {
        let stat = self.prepare(disk)?;
        self.finish(disk)?;
        Ok(stat)
    }

    /// All of [`Replacing::commit`] that takes long: only the name is left to be given.
    pub fn prepare(&mut self, disk: &dyn Disk) -> Result<Stat, Error> {
        let _ = self.file.stamp();
        self.file.sync_all().during(Operation::Sync, &self.beside)?;
        disk.stat(&self.beside).during(Operation::Inspect, &self.beside)
    }

    /// The rest of [`Replacing::commit`].
    pub fn finish(&mut self, disk: &dyn Disk) -> Result<(), Error> {
        disk.rename(&self.beside, &self.target).during(Operation::Rename, &self.target)?;
        let dir = directory_of(&self.target)?;
        disk.sync_dir(dir).during(Operation::SyncDir, dir)
    }

    /// Keeps all others from giving the name to what they have written for this target: each finds its own
    /// gone. For file systems where whoever was to wait for us may have lost the lock that he goes by.
    pub fn withdraw_others(&self, disk: &dyn Disk) -> Result<(), Error> {
        withdraw(disk, &self.target, Some(&self.beside))
    }

    /// Removes what was written; after a commit there is nothing to remove.
    pub fn discard(&self, disk: &dyn Disk) {
        discard(disk, &self.beside);
    }
}

/// Removes all that is written and has not got its name yet, which would be `target`.
pub fn withdraw(disk: &dyn Disk, target: &Path, own: Option<&Path>) -> Result<(), Error> {
    let dir = directory_of(target)?;
    let start = beside_start(target);
    for entry in disk.list(dir).during(Operation::List, dir)? {
        let path = dir.join(&entry.name);
        let is_of_target = entry.name.to_str().is_some_and(|name| name.starts_with(&start));
        if !is_of_target || own == Some(&path) {
            continue;
        }
        match disk.remove(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done.during(Operation::Remove, &path)?,
        }
    }
    Ok(())
}

/// Makes `path` with these contents, whole or not at all, and says what the new file is.
///
/// # Errors
///
/// [`Error::Exists`] where the name is taken, whatever takes it.
pub fn create_new(disk: &dyn Disk, path: &Path, bytes: &[u8], mode: Mode) -> Result<Stat, Error> {
    let dir = directory_of(path)?;
    let (beside, stat) = write_beside(disk, path, bytes, mode)?;
    // A link, not a rename: it refuses a taken name, also on network file systems.
    let linked = match disk.link(&beside, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Error::Exists { path: path.to_owned() })
        }
        other => other.during(Operation::Link, path),
    };
    discard(disk, &beside);
    linked?;
    disk.sync_dir(dir).during(Operation::SyncDir, dir)?;
    Ok(stat)
}

/// A file that is written and has neither its name nor the disk's word yet: see [`commit`]. Whoever gives
/// up calls [`Staged::discard`]; what a crash leaves is harmless, and [`sweep`] takes it later.
#[derive(Debug)]
pub struct Staged {
    target: PathBuf,
    beside: PathBuf,
    len_bytes: u64,
    if_taken: IfTaken,
}

/// What becomes of a file that has the name of a staged one when that is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfTaken {
    /// One of the same length stays: names that say what is in a file are given to the same contents.
    KeepSameLength,
    Replace,
}

/// Which file has the name after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    Ours,
    Theirs,
}

impl Staged {
    pub fn target(&self) -> &Path {
        &self.target
    }

    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub fn discard(&self, disk: &dyn Disk) {
        discard(disk, &self.beside);
    }

    /// Gives it its name.
    fn name(&self, disk: &dyn Disk) -> Result<Committed, Error> {
        if self.if_taken == IfTaken::KeepSameLength {
            match disk.link(&self.beside, &self.target) {
                Ok(()) => {
                    discard(disk, &self.beside);
                    return Ok(Committed::Ours);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let found = disk.stat(&self.target).during(Operation::Inspect, &self.target)?;
                    if found.len_bytes == self.len_bytes {
                        discard(disk, &self.beside);
                        return Ok(Committed::Theirs);
                    }
                }
                Err(error) => return Err(error).during(Operation::Link, &self.target),
            }
        }
        disk.rename(&self.beside, &self.target).during(Operation::Rename, &self.target)?;
        Ok(Committed::Ours)
    }
}

/// Writes what is to become `path`. Nothing is synced.
pub fn stage(
    disk: &dyn Disk,
    path: &Path,
    bytes: &[u8],
    mode: Mode,
    if_taken: IfTaken,
) -> Result<Staged, Error> {
    let (beside, file) = open_beside(disk, path, mode)?;
    if let Err(error) = write_first(file.as_ref(), bytes).during(Operation::Write, &beside) {
        discard(disk, &beside);
        return Err(error);
    }
    let _ = file.stamp();
    Ok(Staged { target: path.to_owned(), beside, len_bytes: bytes.len() as u64, if_taken })
}

/// Makes staged files durable under their names, with two waits for the disk however many there are:
/// first for what is in them, then for their names. So none ever has its name without its contents,
/// whenever the machine stops. The barrier is to be older than what was staged.
///
/// On an error none of them may be relied on; those that have their names are whole.
pub fn commit(
    disk: &dyn Disk,
    barrier: &dyn Barrier,
    staged: &[Staged],
) -> Result<Vec<Committed>, Error> {
    let Some(first) = staged.first() else { return Ok(Vec::new()) };
    let wait = || barrier.wait().during(Operation::Sync, &first.target);
    let named = wait().and_then(|()| {
        let named: Result<Vec<_>, Error> = staged.iter().map(|it| it.name(disk)).collect();
        wait()?;
        named
    });
    if named.is_err() {
        for it in staged {
            it.discard(disk);
        }
    }
    named
}

/// Removes a file for good. One that is not there is an error ([`Error::is_not_found`]).
pub fn remove(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    let dir = directory_of(path)?;
    disk.remove(path).during(Operation::Remove, path)?;
    disk.sync_dir(dir).during(Operation::SyncDir, dir)
}

/// Takes the name of a file away, which can be given back: until it is removed, the file is there. One that
/// is not there is an error ([`Error::is_not_found`]). Nothing is synced.
pub fn set_aside(disk: &dyn Disk, path: &Path) -> Result<PathBuf, Error> {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let number = disk.unique();
    let name = format!("{ASIDE_PREFIX}{second:x}-{number:016x}{BESIDE_SUFFIX}");
    let aside = directory_of(path)?.join(name);
    disk.rename(path, &aside).during(Operation::Rename, path)?;
    Ok(aside)
}

/// Gives a file that was set aside its name again, unless another has it by now.
pub fn put_back(disk: &dyn Disk, aside: &Path, path: &Path) -> Result<(), Error> {
    let dir = directory_of(path)?;
    match disk.link(aside, path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // Not every file system has second names for files.
        Err(error) => match disk.stat(path) {
            Ok(_) => {}
            Err(found) if found.kind() == io::ErrorKind::NotFound => {
                disk.rename(aside, path).during(Operation::Rename, path)?;
            }
            Err(_) => return Err(error).during(Operation::Link, path),
        },
    }
    discard(disk, aside);
    disk.sync_dir(dir).during(Operation::SyncDir, dir)
}

/// When a file was set aside, by the clock of whoever did it; nothing for any other.
pub fn set_aside_at(name: &OsStr) -> Option<SystemTime> {
    let rest = name.to_str()?.strip_prefix(ASIDE_PREFIX)?;
    let second = u64::from_str_radix(rest.split('-').next()?, 16).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(second))
}

/// Makes a directory, and those above it that are missing, all with `mode`. One that exists is
/// taken as it is: its mode belongs to whoever made it.
pub fn create_dir(disk: &dyn Disk, path: &Path, mode: Mode) -> Result<(), Error> {
    for dir in make_dirs(disk, path, mode)? {
        let parent = directory_of(dir)?;
        disk.sync_dir(parent).during(Operation::SyncDir, parent)?;
    }
    Ok(())
}

/// The same for what is staged: nothing is synced.
pub fn create_dir_unsynced(disk: &dyn Disk, path: &Path, mode: Mode) -> Result<(), Error> {
    make_dirs(disk, path, mode).map(drop)
}

/// Those that were missing, the highest first.
fn make_dirs<'p>(disk: &dyn Disk, path: &'p Path, mode: Mode) -> Result<Vec<&'p Path>, Error> {
    let mut missing = Vec::new();
    let mut above = Some(path);
    while let Some(dir) = above.filter(|dir| !dir.as_os_str().is_empty()) {
        match disk.stat(dir) {
            Ok(found) if found.is_dir => break,
            Ok(_) => {
                return Err(io::ErrorKind::NotADirectory.into()).during(Operation::CreateDir, dir);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(dir),
            Err(error) => return Err(error).during(Operation::Inspect, dir),
        }
        if missing.len() > DEPTH_MAX {
            return Err(io::ErrorKind::InvalidFilename.into()).during(Operation::CreateDir, path);
        }
        above = dir.parent();
    }
    missing.reverse();
    for dir in &missing {
        match disk.create_dir(dir, mode) {
            // Another process was faster: it is synced as if it were ours.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.during(Operation::CreateDir, dir)?,
        }
    }
    Ok(missing)
}

/// The whole file, which may be at most `max_bytes` long.
pub fn read_limited(disk: &dyn Disk, path: &Path, max_bytes: usize) -> Result<Vec<u8>, Error> {
    let file = disk.open(path, Open::Read).during(Operation::Open, path)?;
    let mut contents = Vec::new();
    let mut chunk = vec![0; READ_CHUNK_BYTES];
    // By reading, not by asking for the length: it may grow, and some files report none.
    loop {
        let read = match file.read_at(&mut chunk, contents.len() as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other.during(Operation::Read, path)?,
        };
        if read == 0 {
            return Ok(contents);
        }
        if contents.len().saturating_add(read) > max_bytes {
            return Err(Error::TooLong { path: path.to_owned(), max_bytes });
        }
        contents.extend_from_slice(chunk.get(..read).unwrap_or_default());
    }
}

/// Removes what a crash left half written in `dir`, and says how many files that was. Only for
/// the owner of the directory (see [`crate::DirLock`]): it would take a file from under another
/// process that is writing it.
pub fn sweep(disk: &dyn Disk, dir: &Path) -> Result<usize, Error> {
    let mut swept = 0;
    for entry in disk.list(dir).during(Operation::List, dir)? {
        if !entry.is_dir && is_beside(&entry.name) {
            let path = dir.join(&entry.name);
            disk.remove(&path).during(Operation::Remove, &path)?;
            swept += 1;
        }
    }
    Ok(swept)
}

/// Whether this is the name of a file that is being written; listings skip those.
pub fn is_beside(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with(BESIDE_PREFIX) && name.ends_with(BESIDE_SUFFIX))
}

/// A new synced file beside `target`. Its own name is not synced, and need not be.
fn write_beside(
    disk: &dyn Disk,
    target: &Path,
    bytes: &[u8],
    mode: Mode,
) -> Result<(PathBuf, Stat), Error> {
    let (path, file) = open_beside(disk, target, mode)?;
    let written = write_first(file.as_ref(), bytes).during(Operation::Write, &path);
    // Makes inode and time together name this one replacement. Where a file system refuses, its
    // own time has to do.
    let _ = file.stamp();
    let written = written.and_then(|()| file.sync_all().during(Operation::Sync, &path));
    match written.and_then(|()| disk.stat(&path).during(Operation::Inspect, &path)) {
        Ok(stat) => Ok((path, stat)),
        Err(error) => {
            discard(disk, &path);
            Err(error)
        }
    }
}

fn write_first(file: &dyn File, bytes: &[u8]) -> io::Result<()> {
    let done = file.write_around_cache(bytes)?;
    write_all_at(file, bytes.get(done..).unwrap_or_default(), done as u64)
}

fn open_beside(
    disk: &dyn Disk,
    target: &Path,
    mode: Mode,
) -> Result<(PathBuf, Box<dyn File>), Error> {
    let (dir, start) = (directory_of(target)?, beside_start(target));
    let mut tries = 0;
    loop {
        let path = dir.join(format!("{start}{:016x}{BESIDE_SUFFIX}", disk.unique()));
        tries += 1;
        match disk.open(&path, Open::CreateNew(mode)) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < BESIDE_TRIES => {}
            Err(error) => return Err(error).during(Operation::Open, &path),
        }
    }
}

/// How the names of all files begin that are written for this target, and of few others: FNV-1a of its name.
fn beside_start(target: &Path) -> String {
    let name = target.file_name().unwrap_or_default().as_encoded_bytes();
    let sum = name
        .iter()
        .fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("{BESIDE_PREFIX}{sum:08x}")
}

/// Best effort: what stays behind is harmless, and [`sweep`] takes it later.
fn discard(disk: &dyn Disk, beside: &Path) {
    let _ = disk.remove(beside);
}

fn directory_of(path: &Path) -> Result<&Path, Error> {
    let not_a_name = || Error::NotAFileName { path: path.to_owned() };
    path.file_name().ok_or_else(not_a_name)?;
    let parent = path.parent().ok_or_else(not_a_name)?;
    Ok(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

#[cfg(test)]
mod tests;
