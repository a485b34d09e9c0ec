//! The database of a member as it streams it: the file and then its SHA-256.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tonic::Streaming;

use super::transport::Peer;
use super::wire::maintenance_client::MaintenanceClient;
use super::wire::{SnapshotRequest, SnapshotResponse};
use super::{Etcd, EtcdError};

/// The bytes of one snapshot. Dropping it ends it.
#[derive(Debug)]
pub struct SnapshotStream {
    answers: Streaming<SnapshotResponse>,
    endpoint: String,
    deadline: Instant,
    timeout: Duration,
}

impl Etcd {
    /// Begins to read the database, which as a whole may take the snapshot timeout.
    pub async fn snapshot(&self) -> Result<SnapshotStream, EtcdError> {
        let timeout = self.config().snapshot_timeout;
        let deadline = Instant::now() + timeout;
        let answers = self
            .stream(|peer: Peer| async move {
                MaintenanceClient::new(peer).snapshot(SnapshotRequest {}).await
            })
            .await?;
        Ok(SnapshotStream { answers, endpoint: self.endpoint().to_owned(), deadline, timeout })
    }
}

impl SnapshotStream {
    /// The next bytes, or none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, EtcdError> {
        let answer = tokio::time::timeout_at(self.deadline, self.answers.message()).await;
        let answer = answer.map_err(|_| EtcdError::Timeout {
            endpoint: self.endpoint.clone(),
            after: self.timeout,
        })?;
        match answer {
            Ok(answer) => Ok(answer.map(|answer| answer.blob)),
            Err(status) => Err(EtcdError::from_status(&self.endpoint, &status)),
        }
    }
}
