//! The directories of replicas: removed for good, and nothing else with them.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::launch::{REPLICAS, is_directory_name};

/// In front of the name of a directory that is being removed: whoever is killed meanwhile goes on with
/// it, and nothing opens it.
const GOING: &str = ".removing-";

#[derive(Debug, thiserror::Error)]
pub(super) enum RemoveError {
    #[error("{} is no directory of a replica", .0.display())]
    NotOurs(PathBuf),
    #[error("cannot remove {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Removes the directory of a replica. One that is not there is removed. Only a directory, not a link
/// to one, right below `replicas`.
pub(super) fn remove(dir: &Path) -> Result<(), RemoveError> {
    let not_ours = || RemoveError::NotOurs(dir.to_owned());
    let name = dir.file_name().and_then(OsStr::to_str).ok_or_else(not_ours)?;
    let above = dir.parent().ok_or_else(not_ours)?;
    if !is_directory_name(name) || above.file_name() != Some(OsStr::new(REPLICAS)) {
        return Err(not_ours());
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RemoveError::Io { path, source }
    };
    let going = above.join(format!("{GOING}{name}"));
    match std::fs::symlink_metadata(dir) {
        Ok(found) if found.is_dir() => {
            // What an earlier removal left must not be in the way.
            remove_all(&going).map_err(failed(&going))?;
            std::fs::rename(dir, &going).map_err(failed(dir))?;
        }
        Ok(_) => return Err(not_ours()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(dir)(error)),
    }
    remove_all(&going).map_err(failed(&going))
}

fn remove_all(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The directories of replicas on a disk, and an end to removals that were begun.
pub(super) fn list(disk: &Path) -> io::Result<Vec<String>> {
    let above = disk.join(REPLICAS);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&above)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if name.starts_with(GOING) {
            remove_all(&entry.path())?;
        } else if is_directory_name(&name) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let replicas = dir.path().join(REPLICAS);
        std::fs::create_dir(&replicas).unwrap();
        (dir, replicas)
    }

    #[test]
    fn a_directory_goes_and_its_neighbours_stay() {
        let (dir, replicas) = disk();
        for name in ["v-1", "v-12"] {
            std::fs::create_dir(replicas.join(name)).unwrap();
            durable::replace(replicas.join(name).join("volume.meta"), b"{}").unwrap();
        }
        remove(&replicas.join("v-1")).unwrap();
        remove(&replicas.join("v-1")).unwrap();
        assert_eq!(list(dir.path()).unwrap(), ["v-12"]);
    }

    #[test]
    fn what_a_killed_removal_left_goes_too() {
        let (dir, replicas) = disk();
        std::fs::create_dir_all(replicas.join(".removing-v-1/sub")).unwrap();
        std::fs::create_dir(replicas.join("v-1")).unwrap();
        remove(&replicas.join("v-1")).unwrap();
        std::fs::create_dir_all(replicas.join(".removing-v-2/sub")).unwrap();
        assert!(list(dir.path()).unwrap().is_empty());
        assert_eq!(std::fs::read_dir(&replicas).unwrap().count(), 0);
    }

    #[test]
    fn nothing_else_is_removed() {
        let (dir, replicas) = disk();
        std::fs::create_dir(dir.path().join("other-1")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("other-1"), replicas.join("v-link")).unwrap();
        for path in [
            dir.path().join("other-1"),
            replicas.join("v-link"),
            replicas.join(".."),
            replicas.join("plain"),
            replicas.clone(),
            PathBuf::from("/"),
        ] {
            assert!(remove(&path).is_err(), "{}", path.display());
        }
        assert!(dir.path().join("other-1").is_dir());
    }
}
