//! Whether an etcd has a data directory open.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use super::DATABASE;

/// Whether somebody holds the database's lock, as a running etcd does. No database: nobody does.
pub fn is_locked(dir: &Path) -> io::Result<bool> {
    match File::open(dir.join(DATABASE)) {
        Ok(file) => is_held(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether an etcd holds the lock of this database.
pub fn is_held(database: &File) -> io::Result<bool> {
    Ok(!try_share(database)?)
}

/// Takes a shared lock that ends with the file; `false` when an etcd holds it alone.
pub(super) fn try_share(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
