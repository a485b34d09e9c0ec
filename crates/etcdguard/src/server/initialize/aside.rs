//! Setting a data directory aside: it gets another name and goes when it is no longer needed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What the name of a directory that was set aside ends with.
const SUFFIX: &str = ".old";
/// And of one that is kept for people.
const KEPT_SUFFIX: &str = ".damaged";

fn old(data_dir: &Path) -> PathBuf {
    beside(data_dir, SUFFIX)
}

fn beside(data_dir: &Path, suffix: &str) -> PathBuf {
    let mut name = data_dir.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The same where no backup can take its place: it may be the only copy there is, and people may mend it,
/// so it stays until they remove it. One that is kept already is the older, and the better one.
pub(super) fn keep_aside(data_dir: &Path) -> io::Result<()> {
    let kept = beside(data_dir, KEPT_SUFFIX);
    let holds_data = data_dir.join("member").try_exists()?;
    // A mount point cannot get another name: it is set aside as ever.
    if holds_data && !kept.try_exists()? && std::fs::rename(data_dir, &kept).is_ok() {
        tracing::warn!(
            "{} cannot be used, and there is no backup: it is kept as {} for whoever can mend it",
            data_dir.display(),
            kept.display()
        );
        return sync_parent(data_dir);
    }
    set_aside(data_dir)
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
    fn what_no_backup_can_replace_is_kept_until_people_remove_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data.etcd");
        keep_aside(&data).unwrap();
        for round in ["first", "second"] {
            std::fs::create_dir_all(data.join("member").join(round)).unwrap();
            keep_aside(&data).unwrap();
            assert!(!data.exists());
            remove_old(&data).unwrap();
        }
        assert!(dir.path().join("data.etcd.damaged/member/first").exists());
        assert!(!old(&data).exists());
    }

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
