//! Space set aside for deletions: on a full disk it is given up, so that what frees space can be
//! written; nothing else is written until it has been taken again.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// A deletion that waits for finalizers writes its object again: the largest one, its pages and
/// what the log of the database adds.
const RESERVE_BYTES: u64 = 4 << 20;
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    is_there: bool,
}

impl Reserve {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, is_there: false }
    }

    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }

    /// Takes the space if it can be had.
    pub(super) fn take(&mut self) -> bool {
        if !self.is_there {
            self.is_there = match self.fill() {
                Ok(filled) => filled,
                Err(error) if is_full(&error) => {
                    self.empty();
                    false
                }
                Err(error) => {
                    // Nothing is set aside then, but the disk is not full either.
                    tracing::warn!(%error, path = %self.path.display(), "cannot set space aside");
                    true
                }
            };
        }
        self.is_there
    }

    /// Gives the space up; whether there was any.
    pub(super) fn give(&mut self) -> bool {
        let was_there = std::mem::take(&mut self.is_there);
        self.empty();
        was_there
    }

    /// Whether a quota refuses what the disk would give: tried with as much as is set aside, beside
    /// what is set aside.
    pub(super) fn is_out_of_quota(&self) -> bool {
        let mut path = self.path.clone().into_os_string();
        path.push(".try");
        let path = PathBuf::from(path);
        let tried = File::options().create(true).write(true).truncate(true).mode(0o600).open(&path);
        let tried = tried.and_then(|file| {
            let taken = fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES);
            match taken {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => write(file),
                other => Ok(other?),
            }
        });
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::debug!(%error, path = %path.display(), "nothing to remove");
        }
        tried.is_err_and(|error| error.kind() == io::ErrorKind::QuotaExceeded)
    }

    fn empty(&self) {
        let emptied = File::options().write(true).open(&self.path).and_then(|it| it.set_len(0));
        if let Err(error) = emptied
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %self.path.display(), "cannot give up the space set aside");
        }
    }

    fn fill(&self) -> io::Result<bool> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&self.path)?;
        if file.metadata()?.len() == RESERVE_BYTES {
            return Ok(true);
        }
        let room = rustix::fs::fstatvfs(&file)?;
        if room.f_bavail.saturating_mul(room.f_frsize) < RESERVE_BYTES {
            return Ok(false);
        }
        match fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write(file)?,
            other => other?,
        }
        Ok(true)
    }
}

/// Nothing more can be had: of the disk, or of what this user may have of it.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Real blocks, where the file system cannot just give them: neither a hole, nor something it would
/// press to nothing.
fn write(mut file: File) -> io::Result<()> {
    file.set_len(0)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut written = 0;
    while written < RESERVE_BYTES {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        while chunk.len() < CHUNK_BYTES {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            chunk.extend_from_slice(&state.to_be_bytes());
        }
        file.write_all(&chunk)?;
        written += CHUNK_BYTES as u64;
    }
    file.sync_all()
}
