//! A file that is made and shows up under its name only when it is whole: what leads to it lies in a
//! directory beside it, which goes away whatever happens.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::error::Error;

#[derive(Debug)]
pub(super) struct Scratch {
    /// Where the result goes.
    output: PathBuf,
    dir: PathBuf,
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
        let dir = parent.join(format!(".holdfast-{}", uuid::Uuid::new_v4()));
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|error| refused(format!("{}: {error}", parent.display())))?;
        Ok(Self { output, dir })
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

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!("{} is left behind: {error}", self.dir.display());
        }
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
}
