//! The directory of keys: private, written whole or not at all.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::PkiError;

/// No file of ours comes near this; a bigger one is not ours.
const MAX_FILE_BYTES: usize = 1 << 20;

/// A directory only its owner can enter.
#[derive(Debug)]
pub(super) struct Folder {
    dir: PathBuf,
}

impl Folder {
    /// Makes the directory if need be, takes rights away from others, and clears away what a crash
    /// left half written.
    pub(super) fn open(dir: &Path) -> Result<Self, PkiError> {
        durable::create_dir_private(dir)?;
        tighten(dir, 0o700)?;
        durable::sweep(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The text of a file; `None` if there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<String>, PkiError> {
        let path = self.path(name);
        match durable::read_limited(&path, MAX_FILE_BYTES) {
            Ok(bytes) => {
                tighten(&path, 0o600)?;
                // What is not text is damaged; the reader says so with the file's name.
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), PkiError> {
        Ok(durable::replace_private(self.path(name), text.as_bytes())?)
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), PkiError> {
        Ok(durable::remove(self.path(name))?)
    }
}

fn tighten(path: &Path, mode: u32) -> Result<(), PkiError> {
    let act = || {
        let now = std::fs::metadata(path)?.permissions().mode() & 0o777;
        if now & !mode == 0 {
            return Ok(());
        }
        tracing::warn!(path = %path.display(), "taking rights on {} from others", path.display());
        std::fs::set_permissions(path, Permissions::from_mode(now & mode))
    };
    act().map_err(|source| PkiError::Rights { path: path.to_owned(), source })
}
