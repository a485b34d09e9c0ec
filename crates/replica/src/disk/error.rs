//! What can go wrong with a replica. Where a caller of the engine matches on a text, the text is
//! here and tested; the chain with causes is [`Error::text`].

use std::fmt::Write as _;
use std::io;

use durable::Retry;

use crate::disk::names::DiskName;
use crate::disk::qcow2::Qcow2Error;
use crate::disk::replica::State;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("replica is already open")]
    AlreadyOpen,
    #[error("replica is not open")]
    NotOpen,
    #[error("replica cannot be opened in state {0}")]
    NotClosed(State),
    #[error("failed to find metadata for {0}")]
    NoMetadata(String),
    #[error("live chain is too long: {0}")]
    ChainTooLong(usize),
    #[error("too many active disks: {0}")]
    TooManyDisks(usize),
    #[error("the parents of disk {0} form a circle")]
    Cycle(DiskName),
    #[error("there are more than {max} disks in the directory")]
    TooManyFiles { max: usize },
    #[error("snapshot {0} is already existing")]
    SnapshotExists(DiskName),
    #[error("cannot accept empty snapshot name")]
    EmptySnapshotName,
    #[error("need to specific created time")]
    EmptyCreated,
    #[error("cannot revert with empty name or created time")]
    EmptyRevert,
    #[error("cannot revert to disk file {0} since it's not in the disk chain")]
    RevertUnknown(String),
    #[error("cannot revert to disk file {0} since it's already marked as removed")]
    RevertRemoved(DiskName),
    #[error("cannot delete the active differencing disk")]
    DeleteHead,
    #[error("cannot replace the active differencing disk")]
    ReplaceHead,
    #[error("cannot mark the active differencing disk as removed")]
    MarkHead,
    #[error("cannot remove snapshot {name} with {children} children")]
    HasChildren { name: DiskName, children: usize },
    #[error("disk {0} hasn't been marked as removed")]
    NotMarkedRemoved(DiskName),
    #[error("cannot find disk {0}")]
    NoSuchDisk(String),
    #[error("{target} is not the only child of {parent}")]
    NotOnlyChild { target: DiskName, parent: DiskName },
    #[error("cannot set rebuilding={wanted} from state {state}")]
    Rebuilding { wanted: bool, state: State },
    #[error("file sizes are not equal and the parent file is larger than the child file")]
    ParentLarger,
    #[error("{0} already exists")]
    HeadExists(DiskName),
    #[error("{0:?} is not the name of a disk")]
    BadName(String),
    #[error("the replica cannot be expanded to the smaller size {size_bytes}")]
    Shrink { size_bytes: u64 },
    #[error("the expansion size {size_bytes} is not a multiple of 4096")]
    UnalignedExpansion { size_bytes: u64 },
    #[error("size {0} is not a positive multiple of 512 below 2^62")]
    BadSize(i64),
    #[error("{what} of {len_bytes} bytes at {offset} is outside the volume of {size_bytes} bytes")]
    OutOfRange { what: &'static str, offset: u64, len_bytes: u64, size_bytes: u64 },
    #[error("offset {0} is outside the volume")]
    NegativeOffset(i64),
    #[error("read of {len_bytes} bytes is more than the {max_bytes} allowed at once")]
    TooMuch { len_bytes: u32, max_bytes: u32 },
    #[error("metadata file {file} is damaged: {why}")]
    Damaged { file: String, why: String },
    #[error("{0} is not a regular file")]
    NotAFile(String),
    #[error("cannot read the qcow2 image {file}")]
    Qcow2 { file: String, source: Qcow2Error },
    #[error("the replica gave up and must be opened again: {0}")]
    Broken(String),
    #[error("the replica holds an error: {0}")]
    Stored(String),
    #[error("{0} changed while it was hashed")]
    ChangedWhileHashed(DiskName),
    #[error("cannot {doing} {what}")]
    Io { doing: &'static str, what: String, source: io::Error },
    #[error("cannot replace a metadata file")]
    Durable(#[from] durable::Error),
}

impl Error {
    /// The text with its causes, as one line for a peer. Texts of the operating system are in
    /// lower case without their number: engines search for `no space left on device`.
    pub fn text(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let said = error.downcast_ref::<io::Error>().map_or_else(|| error.to_string(), os_text);
            // Writing to a string cannot fail.
            let _ = write!(text, ": {said}");
            cause = error.source();
        }
        text
    }

    /// The kind of the operating system's error, where there is one.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::Durable(error) => error.kind(),
            _ => None,
        }
    }

    /// A full disk can be emptied; the rest needs a person or another request.
    pub fn retry(&self) -> Retry {
        match self.kind() {
            Some(
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::Interrupted
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::OutOfMemory,
            ) => Retry::Later,
            _ => Retry::Never,
        }
    }
}

/// The text of an operating system error as peers know it: first letter small, no number.
fn os_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// Names what was being done to what when the operating system refused.
pub(crate) trait During<T> {
    fn during(self, doing: &'static str, what: impl ToString) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, doing: &'static str, what: impl ToString) -> Result<T, Error> {
        self.map_err(|source| Error::Io { doing, what: what.to_string(), source: source.into() })
    }
}

/// What became of an expansion that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpandCode {
    FailedWithoutRollback,
    RollbackSucceeded,
    RollbackFailed,
}

impl ExpandCode {
    /// The word peers know.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailedWithoutRollback => "FunctionFailedWithoutRollback",
            Self::RollbackSucceeded => "FunctionFailedRollbackSucceeded",
            Self::RollbackFailed => "FunctionFailedRollbackFailed",
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot expand the replica ({})", code.as_str())]
pub struct ExpandError {
    pub code: ExpandCode,
    pub source: Error,
    /// Why the way back failed too.
    pub rollback: Option<Error>,
}

impl ExpandError {
    /// `{"code","message","rollbackMessage"}`, the text of the INTERNAL status peers parse.
    pub fn json(&self) -> String {
        let quote = |text: &str| serde_json::Value::from(text).to_string();
        format!(
            r#"{{"code":{},"message":{},"rollbackMessage":{}}}"#,
            quote(self.code.as_str()),
            quote(&self.source.text()),
            quote(&self.rollback.as_ref().map(Error::text).unwrap_or_default()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_said_in_the_words_engines_search_for() {
        let full = io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let error = Err::<(), _>(full).during("write", "volume-head-000.img").unwrap_err();
        assert_eq!(error.text(), "cannot write volume-head-000.img: no space left on device");
        assert_eq!(error.retry(), Retry::Later);
        let refused = io::Error::from_raw_os_error(rustix::io::Errno::PERM.raw_os_error());
        let error = Err::<(), _>(refused).during("link", "x").unwrap_err();
        assert!(error.text().ends_with(": operation not permitted"));
    }

    #[test]
    fn an_expansion_failure_is_the_json_peers_parse() {
        let failed = ExpandError {
            code: ExpandCode::RollbackSucceeded,
            source: Error::BadName("a\"b".into()),
            rollback: None,
        };
        let parsed: serde_json::Value = serde_json::from_str(&failed.json()).unwrap();
        assert_eq!(parsed["code"], "FunctionFailedRollbackSucceeded");
        assert_eq!(parsed["message"], "\"a\\\"b\" is not the name of a disk");
        assert_eq!(parsed["rollbackMessage"], "");
        assert!(failed.json().starts_with(r#"{"code":"#));
    }
}
