//! A file that is made and shows up under its name only when it is whole: what leads to it lies in a
//! directory beside it, which goes away whatever happens. One whose maker was killed goes with the next
//! that is made there: its lock is free then, since the kernel gives locks back.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use uuid::Uuid;

use super::error::Error;

const PREFIX: &str = ".holdfast-";
const LOCK: &str = "lock";
/// Directories that were taken for left behind before they were locked, by others.
const TRIES_MAX: u32 = 16;

#[derive(Debug)]
pub(super) struct Scratch {
    /// Where the result goes.
    output: PathBuf,
    dir: PathBuf,
    /// Held, where the file system has locks.
    lock: Option<File>,
}

impl Scratch {
    /// For a file at `output`. One that is there stays as it is until [`Scratch::publish`].
    pub(super) fn beside(output: &Path) -> Result<Self, Error> {
        let refused =
            |why: String| Error::refused(format!("cannot write {}: {why}", output.display()));
        // What a link points to is what is meant.
        let output = match fs::canonicalize(output) {
            Ok(found) if found.is_file() => found,
            Ok(_) => return Err(refused("it is not a file".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::path::absolute(output).map_err(|error| refused(error.to_string()))?
            }
            Err(error) => return Err(refused(error.to_string())),
        };
        let parent = output.parent().ok_or_else(|| refused("it has no directory".to_owned()))?;
        remove_left_behind(parent);
        let (dir, lock) =
            create(parent).map_err(|error| refused(format!("{}: {error}", parent.display())))?;
        Ok(Self { output, dir, lock })
    }

    /// A place for something temporary.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes a temporary file the result, on the disk when this returns.
    pub(super) fn publish(&self, name: &str) -> Result<(), Error> {
        let made = self.path(name);
        let publish = || {
            File::open(&made)?.sync_all()?;
            fs::rename(&made, &self.output)?;
            File::open(self.output.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        publish().map_err(|error: io::Error| {
            Error::refused(format!("cannot write {}: {error}", self.output.display()))
        })
    }
}

/// A new directory, locked.
fn create(parent: &Path) -> io::Result<(PathBuf, Option<File>)> {
    for _ in 0..TRIES_MAX {
        let dir = parent.join(format!("{PREFIX}{}", Uuid::new_v4()));
        DirBuilder::new().mode(0o700).create(&dir)?;
        match lock(&dir) {
            Ok(Locked::Ours(file)) => return Ok((dir, Some(file))),
            Ok(Locked::Unsupported) => return Ok((dir, None)),
            // Another took it for left behind before it was locked, and removes it.
            Ok(Locked::Others) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("others remove every directory that is made there"))
}

enum Locked {
    Ours(File),
    Others,
    Unsupported,
}

/// Takes the lock of a directory, if nobody holds it.
fn lock(dir: &Path) -> io::Result<Locked> {
    let no_link = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(no_link);
    let file = options.open(dir.join(LOCK))?;
    match file.try_lock() {
        // It may have been removed between the two steps.
        Ok(()) if file.metadata()?.nlink() == 0 => Ok(Locked::Others),
        Ok(()) => Ok(Locked::Ours(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(Locked::Others),
        Err(fs::TryLockError::Error(_)) => Ok(Locked::Unsupported),
    }
}

/// Removes what makers that were killed have left in a directory. What cannot be removed stays: it is
/// in nobody's way.
fn remove_left_behind(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for dir in entries.filter_map(Result::ok).filter(is_ours).map(|entry| entry.path()) {
        // Held until it is gone.
        let Ok(Locked::Ours(_held)) = lock(&dir) else { continue };
        match fs::remove_dir_all(&dir) {
            Ok(()) => tracing::info!("{} was left behind, and is removed", dir.display()),
            Err(error) => tracing::warn!("{} was left behind: {error}", dir.display()),
        }
    }
}

/// A directory of such a name that we made: what others put there is none of our business.
fn is_ours(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    id.is_some_and(|id| Uuid::try_parse(id).is_ok())
        && entry
            .metadata()
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!("{} is left behind: {error}", self.dir.display());
        }
        // Only now may others look at what is left.
        drop(self.lock.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_result_shows_up_whole_and_nothing_is_left() {
        let place = tempfile::tempdir().unwrap();
        let output = place.path().join("out");
        durable::replace(&output, b"old").unwrap();
        std::os::unix::fs::symlink(&output, place.path().join("link")).unwrap();
        let scratch = Scratch::beside(&place.path().join("link")).unwrap();
        durable::replace(scratch.path("made"), b"new").unwrap();
        durable::replace(scratch.path("other"), b"x").unwrap();
        assert_eq!(fs::read(&output).unwrap(), b"old");
        scratch.publish("made").unwrap();
        drop(scratch);
        assert_eq!(fs::read(&output).unwrap(), b"new");
        assert_eq!(names(place.path()), ["link", "out"]);
    }

    #[test]
    fn what_cannot_be_written_is_refused_first() {
        let place = tempfile::tempdir().unwrap();
        for (path, part) in [
            (place.path().to_owned(), "is not a file"),
            ("/dev/null".into(), "is not a file"),
            (place.path().join("no/out"), "No such file"),
        ] {
            let text = Scratch::beside(&path).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
        drop(Scratch::beside(&place.path().join("out")).unwrap());
        assert!(names(place.path()).is_empty());
    }

    #[test]
    fn what_a_killed_one_left_goes_with_the_next_and_what_is_used_stays() {
        let place = tempfile::tempdir().unwrap();
        let output = place.path().join("out");
        let running = Scratch::beside(&output).unwrap();
        durable::replace(running.path("made"), b"half").unwrap();
        // Killed: nothing was dropped but by the kernel. And one that older ones made, without a lock.
        let mut killed = Scratch::beside(&output).unwrap();
        durable::replace(killed.path("made"), b"half").unwrap();
        drop(killed.lock.take());
        let left = killed.dir.clone();
        std::mem::forget(killed);
        let older = place.path().join(format!("{PREFIX}{}", Uuid::new_v4()));
        fs::create_dir(&older).unwrap();
        // Of others, by their names or kinds.
        let (named, file) = (place.path().join(".holdfast-x"), Uuid::new_v4());
        fs::create_dir(&named).unwrap();
        let file = place.path().join(format!("{PREFIX}{file}"));
        durable::replace(&file, b"x").unwrap();
        let link = place.path().join(format!("{PREFIX}{}", Uuid::new_v4()));
        std::os::unix::fs::symlink(&named, &link).unwrap();
        assert!(left.is_dir());
        let next = Scratch::beside(&output).unwrap();
        assert!(!left.exists() && !older.exists());
        assert_eq!(fs::read(running.path("made")).unwrap(), b"half");
        assert!(named.is_dir() && file.is_file() && link.is_symlink());
        running.publish("made").unwrap();
        drop((running, next));
        assert_eq!(fs::read(&output).unwrap(), b"half");
        assert_eq!(names(place.path()).len(), 4, "{:?}", names(place.path()));
    }
}
