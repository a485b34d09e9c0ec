//! A status as callers of the dialect read it.

use std::fmt;

use tonic::{Code, Status};

/// A status as Go programs write it: callers look for the code's name in it.
#[derive(Debug)]
pub struct Answered<'s>(pub &'s Status);

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
