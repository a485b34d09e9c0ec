//! Why a command failed, in the words callers look for.

use std::io;

use rpc::Answered;
use tonic::Status;

use super::parse::ParseError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Usage(#[from] ParseError),
    /// What the command itself refuses.
    #[error("{0}")]
    Refused(String),
    /// What was to be removed, or looked at, is not there.
    #[error("{what} is not there")]
    NotFound { what: String, hint: String },
    #[error(transparent)]
    Address(#[from] rpc::AddressError),
    #[error("cannot reach {address}: {source}")]
    Endpoint { address: String, source: tonic::transport::Error },
    /// A server refused, or was not there.
    #[error("{doing}: {}", Answered(status))]
    Call { doing: String, status: Box<Status> },
    /// A server of ours ended.
    #[error("{text}")]
    Server { text: String, exit_code: u8 },
    /// Somebody told us to stop, by this signal.
    #[error("interrupted")]
    Interrupted { signal: u8 },
    #[error("cannot write the result: {0}")]
    Output(io::Error),
    #[error("cannot start: {0}")]
    Start(io::Error),
}

impl Error {
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::Refused(text.into())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Server { exit_code, .. } => *exit_code,
            // As shells say it.
            Self::Interrupted { signal } => signal.saturating_add(128),
            Self::Usage(_)
            | Self::Refused(_)
            | Self::NotFound { .. }
            | Self::Address(_)
            | Self::Endpoint { .. }
            | Self::Call { .. }
            | Self::Output(_)
            | Self::Start(_) => 1,
        }
    }

    /// Whether nobody reads the result any more: the reader's choice, not a failure.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The answer to a call, with what was being done if it is no good one.
pub(crate) trait Answer<T> {
    fn or_failed(self, doing: impl Into<String>) -> Result<T, Error>;
}

impl<T> Answer<T> for Result<tonic::Response<T>, Status> {
    fn or_failed(self, doing: impl Into<String>) -> Result<T, Error> {
        match self {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(Error::Call { doing: doing.into(), status: Box::new(status) }),
        }
    }
}
