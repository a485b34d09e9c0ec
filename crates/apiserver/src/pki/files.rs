//! The directory of keys: private, written whole or not at all.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::PkiError;

/// No file of ours comes near this; a bigger one is not ours.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A directory only its owner can enter.
#[derive(Debug)]
pub(super) struct Folder {
    dir: PathBuf,
}

impl Folder {
    /// Makes the directory if need be, and takes rights away from others.
    pub(super) fn open(dir: &Path) -> Result<Self, PkiError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .and_then(|()| tighten(dir, 0o700))
            .map_err(|source| PkiError::Io { act: "prepare", path: dir.to_owned(), source })?;
        Ok(Self { dir: dir.to_owned() })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The text of a file; `None` if there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<String>, PkiError> {
        let path = self.path(name);
        match read_private(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(PkiError::Io { act: "read", path, source }),
        }
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), PkiError> {
        let path = self.path(name);
        write_private(&path, text.as_bytes()).map_err(|source| PkiError::Io {
            act: "write",
            path,
            source,
        })
    }
}

fn read_private(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    tighten(path, 0o600)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    // What is not text is damaged; the reader says so with the file's name.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn tighten(path: &Path, mode: u32) -> io::Result<()> {
    let now = std::fs::metadata(path)?.permissions().mode() & 0o777;
    if now & !mode != 0 {
        tracing::warn!(path = %path.display(), "taking rights on {} from others", path.display());
        std::fs::set_permissions(path, Permissions::from_mode(now & mode))?;
    }
    Ok(())
}

/// Replaces a file durably: beside it, synced, renamed, directory synced. Readable by the owner
/// only from its first byte on.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}
