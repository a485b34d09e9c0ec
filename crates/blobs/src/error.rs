//! What a store can answer instead of doing what it was asked.

use durable::Retry;

use crate::key::{Key, KeyError};
use crate::rejection::Rejection;

/// The words of the library or the service underneath.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no object {key}")]
    NotFound { key: Key },
    #[error("the object {key} exists already")]
    Exists { key: Key },
    #[error("the object {key} was changed or removed by another")]
    Changed { key: Key },
    #[error("the object {key} has {len_bytes} bytes; {max_bytes} are allowed here")]
    TooLong { key: Key, len_bytes: u64, max_bytes: u64 },
    #[error("the store refuses access to {what}")]
    Denied { what: String, source: Cause },
    /// The bucket is not there, is elsewhere, or the clocks differ.
    #[error("{rejection}")]
    Refused { what: String, rejection: Box<Rejection> },
    /// A rule of the store keeps it for a time, whoever asks.
    #[error("the store does not let go of {what} yet")]
    Locked { what: String, source: Cause },
    #[error("this store cannot {what}")]
    Unsupported { what: &'static str, source: Cause },
    #[error("the store holds an object whose name cannot be used here")]
    ForeignName { source: KeyError },
    #[error("this store cannot hold an object named {key}: {why}")]
    Unusable { key: Key, why: &'static str },
    /// Whoever gave the contents failed; nothing was written.
    #[error("what was to be written to {key} could not be read")]
    Body { key: Key, source: std::io::Error },
    /// It may or may not have been done.
    #[error("the store did not answer for {what}")]
    Unavailable { what: String, source: Cause },
    /// It was not done.
    #[error("the call was not made: leave to make it had ended")]
    PermitEnded,
    #[error("the directory of the store cannot be used")]
    Disk(#[from] durable::Error),
}

impl Error {
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable { .. } => Retry::Later,
            Self::Disk(error) => error.retry(),
            Self::NotFound { .. }
            | Self::Exists { .. }
            | Self::Changed { .. }
            | Self::TooLong { .. }
            | Self::Denied { .. }
            | Self::Refused { .. }
            | Self::Locked { .. }
            | Self::Unsupported { .. }
            | Self::ForeignName { .. }
            | Self::Body { .. }
            | Self::PermitEnded
            | Self::Unusable { .. } => Retry::Never,
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
