//! What can go wrong with a file, said with the path and what was being done to it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What was being done when it went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Open,
    Read,
    Write,
    Sync,
    Rename,
    Link,
    Remove,
    CreateDir,
    SyncDir,
    List,
    Inspect,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "flush",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::Remove => "remove",
            Self::CreateDir => "create directory",
            Self::SyncDir => "flush directory",
            Self::List => "list directory",
            Self::Inspect => "inspect",
        })
    }
}

/// Whether the same call can succeed later with nothing changed by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Never,
    Later,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {operation} {}", path.display())]
    Io { operation: Operation, path: PathBuf, source: io::Error },
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    #[error("{} is longer than the {max_bytes} bytes allowed here", path.display())]
    TooLong { path: PathBuf, max_bytes: usize },
    #[error("{} does not name a file in a directory", path.display())]
    NotAFileName { path: PathBuf },
}

impl Error {
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::Exists { path }
            | Self::TooLong { path, .. }
            | Self::NotAFileName { path } => path,
        }
    }

    /// The kind of the operating system's error, where there is one.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::Exists { .. } | Self::TooLong { .. } | Self::NotAFileName { .. } => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.kind() == Some(io::ErrorKind::NotFound)
    }

    /// A full disk can be emptied and a busy one can calm down; the rest needs a person.
    pub fn retry(&self) -> Retry {
        use io::ErrorKind as Kind;
        let passing = [
            Kind::StorageFull,
            Kind::QuotaExceeded,
            Kind::Interrupted,
            Kind::TimedOut,
            Kind::ResourceBusy,
            Kind::WouldBlock,
            Kind::OutOfMemory,
            Kind::StaleNetworkFileHandle,
        ];
        match self.kind() {
            Some(kind) if passing.contains(&kind) => Retry::Later,
            _ => Retry::Never,
        }
    }
}

/// Names the path and the operation of an [`io::Error`].
pub(crate) trait While<T> {
    fn during(self, operation: Operation, path: &Path) -> Result<T, Error>;
}

impl<T> While<T> for io::Result<T> {
    fn during(self, operation: Operation, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io { operation, path: path.to_owned(), source })
    }
}
