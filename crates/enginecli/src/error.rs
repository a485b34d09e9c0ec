//! Why a command failed, in the words callers look for.

use std::fmt;
use std::io;

use tonic::{Code, Status};

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

/// A status as Go programs write it: callers look for the code's name in it.
pub(crate) struct Answered<'s>(pub(crate) &'s Status);

impl fmt::Display for Answered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        // The client's own clock ran out: the library has no code of its own for it.
        let ran_out = status.code() == Code::Cancelled && status.message() == "Timeout expired";
        let code = if ran_out { Code::DeadlineExceeded } else { status.code() };
        write!(f, "rpc error: code = {} desc = {}", name(code), status.message())?;
        let mut source = std::error::Error::source(status);
        while let Some(cause) = source {
            let text = cause.to_string();
            if !status.message().contains(&text) {
                write!(f, ": {text}")?;
            }
            source = cause.source();
        }
        Ok(())
    }
}

fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_as_in_go() {
        for (status, wanted) in [
            (Status::unknown("text"), "rpc error: code = Unknown desc = text"),
            (Status::failed_precondition("x"), "rpc error: code = FailedPrecondition desc = x"),
            (Status::cancelled("stop"), "rpc error: code = Canceled desc = stop"),
            (
                Status::cancelled("Timeout expired"),
                "rpc error: code = DeadlineExceeded desc = Timeout expired",
            ),
        ] {
            assert_eq!(Answered(&status).to_string(), wanted);
        }
    }
}
