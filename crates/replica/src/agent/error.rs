//! What can go wrong in an agent: [`AgentError`] ends it, [`JobError`] ends one job. Texts callers
//! match on are here.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;

use rpc::AddressError;
use tasks::{BlockingError, DrainTimeout};
use tonic::{Code, Status};

use crate::disk;

/// Why an agent could not run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot listen on {address}")]
    Listen { address: String, source: io::Error },
    #[error("the replica's address is none")]
    Replica(#[source] AddressError),
    #[error("cannot describe the services")]
    Routes(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot serve")]
    Serve(#[source] tonic::transport::Error),
    #[error("the agent did not end in time")]
    Drain(#[source] DrainTimeout),
}

/// Why a job failed. Never an answer by itself: [`JobError::text`] is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    #[error("{0:?} is not the plain name of a file")]
    BadFileName(String),
    #[error("out of ports")]
    OutOfPorts,
    #[error("replica is purging snapshots")]
    Purging,
    #[error("replica is already purging snapshots")]
    AlreadyPurging,
    #[error("replica is already rebuilding")]
    AlreadyRebuilding,
    #[error("cannot purge snapshots because {0} is rebuilding")]
    PurgeWhileRebuilding(String),
    #[error("replica is already cloning a snapshot")]
    AlreadyCloning,
    #[error("no files or remote replicas for sync")]
    NothingToSync,
    #[error("cannot request hashing snapshot {0}: it is being hashed")]
    AlreadyHashing(String),
    #[error("hashing snapshot {0} was cancelled")]
    HashCancelled(String),
    #[error("{0} is not a port number")]
    BadPort(i32),
    #[error("there is no replica there to ask")]
    NoReplica,
    #[error("an action {0:?} for removing a snapshot is not known")]
    UnknownAction(String),
    #[error("{0} is to be synced twice")]
    ListedTwice(String),
    #[error("{0} was sent, it is said, but it was not received")]
    NotReceived(String),
    #[error("the agent is ending")]
    Stopped,
    #[error("the address is none")]
    Address(#[source] AddressError),
    #[error("cannot dial {peer}")]
    Dial { peer: String, source: tonic::transport::Error },
    #[error("cannot {doing} at {peer}: {}", rpc_text(status))]
    Call { doing: String, peer: String, status: Box<Status> },
    #[error("cannot {call} {file} at {peer}")]
    Http { call: &'static str, file: String, peer: String, source: reqwest::Error },
    #[error("cannot {call} {file} at {peer}: {status} {said}")]
    Answer { call: &'static str, file: String, peer: String, status: u16, said: String },
    #[error("cannot make an HTTP client")]
    Client(#[source] reqwest::Error),
    #[error("cannot sync {file} from {from}")]
    File { file: String, from: String, source: Box<JobError> },
    #[error("cannot {doing} {what}")]
    Io { doing: &'static str, what: String, source: io::Error },
    #[error("{0}")]
    Local(String),
    #[error("{0}")]
    Refused(String),
    #[error("backup not found {0}")]
    BackupNotFound(String),
    #[error("backup {0} is already in progress")]
    BackupRunning(String),
    #[error("empty snapshot disk name for the restore")]
    NoSnapshotDisk,
    #[error("empty backup URL for the restore")]
    NoBackupUrl,
    #[error("cannot initiate backup restore as there is one already in progress")]
    AlreadyRestoring,
    #[error("cannot start backup restore of the previous restore fails")]
    RestoreFailedBefore,
    #[error("already restored backup {0}")]
    AlreadyRestored(String),
    #[error("replica is currently restoring a backup")]
    Restoring,
    #[error("replica is currently restoring, cannot reset")]
    ResetWhileRestoring,
    #[error("error starting backup restore: error initiating {kind} backup restore")]
    RestoreStart { kind: &'static str, source: Box<JobError> },
    #[error("failed to wait for restore complete")]
    Restore(#[source] Box<JobError>),
    #[error(transparent)]
    Backup(#[from] backupstore::Error),
    #[error(transparent)]
    Disk(#[from] disk::Error),
    #[error(transparent)]
    Durable(#[from] durable::Error),
    #[error(transparent)]
    Blocking(#[from] BlockingError),
}

impl JobError {
    /// Nobody was there to take the call.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Http { source, .. } if source.is_connect())
    }

    /// One line with all causes.
    pub(crate) fn text(&self) -> String {
        if let Self::Disk(error) = self {
            return error.text();
        }
        let mut text = self.to_string();
        if let Self::File { source, .. }
        | Self::RestoreStart { source, .. }
        | Self::Restore(source) = self
        {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {}", source.text());
            return text;
        }
        let mut cause = self.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        text
    }

    pub(crate) fn status(&self) -> Status {
        rpc::text(self.text())
    }
}

/// A status as the dialect's tools print it; managers look for the name of the code.
fn rpc_text(status: &Status) -> String {
    let code = match status.code() {
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}

/// Says whom was asked for what when a call fails.
pub(crate) trait Asking<T> {
    fn asking(self, doing: impl Into<String>, peer: impl ToString) -> Result<T, JobError>;
}

impl<T> Asking<T> for Result<tonic::Response<T>, Status> {
    fn asking(self, doing: impl Into<String>, peer: impl ToString) -> Result<T, JobError> {
        self.map(tonic::Response::into_inner).map_err(|status| JobError::Call {
            doing: doing.into(),
            peer: peer.to_string(),
            status: Box::new(status),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_spelled_as_managers_search_for_them() {
        let cancelled = Status::cancelled("gone");
        let result: Result<tonic::Response<()>, Status> = Err(cancelled);
        let error = result.asking("send a.img", "10.0.0.1:9504").unwrap_err();
        let expected = "cannot send a.img at 10.0.0.1:9504: rpc error: code = Canceled desc = gone";
        assert_eq!(error.text(), expected);
        let outer = JobError::File { file: "a".into(), from: "b".into(), source: Box::new(error) };
        assert_eq!(outer.text(), format!("cannot sync a from b: {expected}"));
    }
}
