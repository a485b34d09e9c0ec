//! The port: what we ask of a file system. Owns the two traits and their plain values.
//!
//! Object-safe and synchronous, so that the same code runs on [`crate::RealDisk`] and on the
//! simulated disk. It never hides a sync: nothing here is durable until one of the sync calls
//! returned `Ok`.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::sparse::{Details, Sparse};

/// Permission bits of a file or directory to be created, before the process's umask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub u32);

impl Mode {
    pub const PUBLIC: Self = Self(0o644);
    pub const PRIVATE: Self = Self(0o600);
    pub const PRIVATE_DIR: Self = Self(0o700);
}

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// For reading and writing; made empty with this mode if it is not there.
    Create(Mode),
    /// For reading and writing; it must not exist.
    CreateNew(Mode),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub len_bytes: u64,
    pub is_dir: bool,
    pub mode: Mode,
    /// Tells files of one disk apart while they live; a number may come back after its file went.
    pub inode: u64,
    pub modified: SystemTime,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    pub is_dir: bool,
}

/// A file system. Every change of names is durable only after [`Disk::sync_dir`] of the directory.
pub trait Disk: Send + Sync + fmt::Debug {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>>;
    /// Atomic; takes the place of a file at `target`.
    fn rename(&self, source: &Path, target: &Path) -> io::Result<()>;
    /// A second name for a file; refuses with `AlreadyExists` where `target` is taken.
    fn link(&self, source: &Path, target: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn create_dir(&self, path: &Path, mode: Mode) -> io::Result<()>;
    /// Only an empty one.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Sorted by name.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// Follows links.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// A number no other live process on this disk is likely to draw, for names of files that are
    /// being written. Collisions cost a retry, never correctness.
    fn unique(&self) -> u64;
    /// Who else may write there without this kernel knowing.
    fn reach(&self, path: &Path) -> io::Result<Reach>;
    /// A barrier for all that is written to the file system of this directory from now on; none where
    /// there is no such thing, or where it would not tell of what was lost.
    fn barrier(&self, path: &Path) -> io::Result<Option<Box<dyn Barrier>>>;
    /// A file whose holes matter. Links are refused, not followed, and nobody waits for a pipe.
    fn open_sparse(&self, _path: &Path, _how: Open) -> io::Result<Box<dyn Sparse>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Follows no link.
    fn look(&self, _path: &Path) -> io::Result<Details> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// All that is on the file systems of these directories now, contents and names, whoever wrote it and
    /// was killed before it synced it. For what was found and is relied upon: of what was lost before, not
    /// every file system tells.
    fn sync_file_systems(&self, paths: &[&Path]) -> io::Result<()>;
}

/// One wait for everything.
pub trait Barrier: Send + Sync + fmt::Debug {
    /// Contents and names that were written on the file system before, by whomever, are durable when
    /// this returns `Ok`. An error tells that something was lost since the barrier was made: nothing that
    /// was to be covered by it may be relied on.
    fn wait(&self) -> io::Result<()>;

    /// Whether what lies at this path, or will, is waited for: below a directory there may be another file
    /// system, mounted or linked to.
    fn covers(&self, path: &Path) -> io::Result<bool>;
}

/// From where a file system is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Its folders are what this kernel says at any moment.
    ThisMachine,
    /// From others as well, through a server whose clock its files are stamped with.
    Server,
    /// Perhaps from others as well: a network, or a program, is behind it.
    Unknown,
}

/// An open file. Closing is dropping, and says nothing about durability.
pub trait File: Send + Sync + fmt::Debug {
    /// May read less than asked; 0 is the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// May write less than asked.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Writes the beginning of a new file that only this one has open, as far as that can be done
    /// without the memory of the kernel between: for long contents that is a copy less, and others
    /// keep what they have there. Says how far; the rest is to be written as ever.
    fn write_around_cache(&self, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }
    /// Contents and length. After an error the file must be given up, not synced again: the
    /// kernel may have dropped the pages and report success the second time.
    fn sync_data(&self) -> io::Result<()>;
    /// Contents, length and attributes; the same warning as [`File::sync_data`].
    fn sync_all(&self) -> io::Result<()>;
    fn len_bytes(&self) -> io::Result<u64>;
    fn truncate(&self, len_bytes: u64) -> io::Result<()>;
    /// Sets the modification time to this nanosecond: file systems stamp in steps of some
    /// milliseconds, and two files that follow each other closely would look the same. Where a server
    /// stamps files, to what it takes for now: the clocks of its clients differ.
    fn stamp(&self) -> io::Result<()>;
    /// Takes the exclusive lock of this file until it is dropped; `false` if another holds it.
    fn try_lock(&self) -> io::Result<bool>;
}

/// Writes all of `bytes`, however the file cuts them.
pub fn write_all_at(file: &dyn File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bytes = bytes.get(written..).unwrap_or_default();
        offset = offset.saturating_add(written as u64);
    }
    Ok(())
}
