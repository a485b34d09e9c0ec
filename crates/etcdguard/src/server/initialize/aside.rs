//! Setting a data directory aside: it gets another name and goes when it is no longer needed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What the name of a directory that was set aside ends with.
const SUFFIX: &str = ".old";

fn old(data_dir: &Path) -> PathBuf {
    let mut name = data_dir.as_os_str().to_owned();
    name.push(SUFFIX);
    PathBuf::from(name)
}

/// Moves the directory out of the way, durably; one that is not there is out of the way. An older
/// one that was set aside before goes.
pub(super) fn set_aside(data_dir: &Path) -> io::Result<()> {
    if !data_dir.try_exists()? {
        return Ok(());
    }
    remove(&old(data_dir))?;
    std::fs::rename(data_dir, old(data_dir))?;
    sync_parent(data_dir)
}

/// Removes a directory that was set aside. Call it when etcd has been seen at work.
pub fn remove_old(data_dir: &Path) -> io::Result<()> {
    // A mount point has it inside.
    for old in [old(data_dir), data_dir.join(crate::restore::INSIDE_OLD)] {
        if old.try_exists()? {
            tracing::info!("removing {}, which is not needed any more", old.display());
            remove(&old)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        Some(_) | None => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_directory_set_aside_is_kept_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data.etcd");
        set_aside(&data).unwrap();
        for round in ["one", "two"] {
            std::fs::create_dir_all(data.join(round)).unwrap();
            set_aside(&data).unwrap();
            assert!(!data.exists());
            assert!(old(&data).join(round).exists());
        }
        assert!(!old(&data).join("one").exists());
        remove_old(&data).unwrap();
        remove_old(&data).unwrap();
        assert!(!old(&data).exists());
    }
}
