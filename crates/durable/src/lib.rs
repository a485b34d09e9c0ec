//! The one way to write and replace files.
//!
//! Owns: the [`Disk`] port (what we ask of a file system), the real one, the simulated one that
//! loses what was not synced (feature `sim`), and the few operations built on it: replacing a file
//! whole, creating it once, many of them at once, locking a directory. Never: formats, retries, async. A caller on a
//! runtime moves the call to a blocking thread.
//!
//! The promise of [`replace`]: after a crash at any instruction the path holds the old contents or
//! the new ones, never a mixture; once it returned `Ok`, the new ones. Start at [`on`].

mod disk;
mod error;
mod lock;
pub mod on;
mod real;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod sparse;

use std::path::Path;

pub use disk::{Barrier, Disk, Entry, File, Mode, Open, Reach, Stat, write_all_at};
pub use error::{Error, Operation, Retry};
pub use lock::{DirLock, LockError};
pub use real::RealDisk;
pub use sparse::{Details, Extent, Sparse};

/// [`on::replace`] with [`Mode::PUBLIC`] on the real disk.
pub fn replace(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
    on::replace(&RealDisk, path.as_ref(), bytes, Mode::PUBLIC).map(drop)
}

/// [`on::replace`] with [`Mode::PRIVATE`] on the real disk: at no moment can another user read it.
pub fn replace_private(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
    on::replace(&RealDisk, path.as_ref(), bytes, Mode::PRIVATE).map(drop)
}

/// [`on::create_new`] with [`Mode::PUBLIC`] on the real disk.
pub fn create_new(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
    on::create_new(&RealDisk, path.as_ref(), bytes, Mode::PUBLIC).map(drop)
}

/// [`on::create_new`] with [`Mode::PRIVATE`] on the real disk.
pub fn create_new_private(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
    on::create_new(&RealDisk, path.as_ref(), bytes, Mode::PRIVATE).map(drop)
}

/// [`on::remove`] on the real disk.
pub fn remove(path: impl AsRef<Path>) -> Result<(), Error> {
    on::remove(&RealDisk, path.as_ref())
}

/// [`on::create_dir`] with mode 0700 on the real disk.
pub fn create_dir_private(path: impl AsRef<Path>) -> Result<(), Error> {
    on::create_dir(&RealDisk, path.as_ref(), Mode::PRIVATE_DIR)
}

/// [`on::read_limited`] on the real disk.
pub fn read_limited(path: impl AsRef<Path>, max_bytes: usize) -> Result<Vec<u8>, Error> {
    on::read_limited(&RealDisk, path.as_ref(), max_bytes)
}

/// [`on::sweep`] on the real disk.
pub fn sweep(dir: impl AsRef<Path>) -> Result<usize, Error> {
    on::sweep(&RealDisk, dir.as_ref())
}
