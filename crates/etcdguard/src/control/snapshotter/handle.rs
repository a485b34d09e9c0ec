//! How others ask the snapshotter for a snapshot. An answer always comes: where the snapshotter
//! stops, or does not lead, the question is dropped and that is the answer.

use tokio::sync::{mpsc, oneshot};

use crate::store::Snapshot;

/// Questions that may wait. More would wait for longer than anybody does.
const WAITING_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TriggerError {
    /// This sidecar does not lead, has not begun, or has just stopped.
    #[error("snapshotter is not active")]
    NotActive,
    #[error("delta snapshots are disabled")]
    DeltasDisabled,
    #[error("{0}")]
    Failed(String),
}

type Reply<T> = oneshot::Sender<Result<T, TriggerError>>;

#[derive(Debug)]
pub(super) enum Request {
    Full { is_final: bool, reply: Reply<Snapshot> },
    Delta { reply: Reply<Option<Snapshot>> },
}

impl Request {
    pub(super) fn refuse(self, why: TriggerError) {
        // Whoever asked may have gone.
        match self {
            Self::Full { reply, .. } => drop(reply.send(Err(why))),
            Self::Delta { reply } => drop(reply.send(Err(why))),
        }
    }
}

/// Asks the snapshotter. Clones ask the same.
#[derive(Debug, Clone)]
pub struct SnapshotterHandle(mpsc::Sender<Request>);

pub(super) fn channel() -> (SnapshotterHandle, mpsc::Receiver<Request>) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (SnapshotterHandle(sender), receiver)
}

impl SnapshotterHandle {
    /// Takes a full snapshot now. A final one is not taken again when nothing changed since.
    pub async fn full(&self, is_final: bool) -> Result<Snapshot, TriggerError> {
        self.ask(|reply| Request::Full { is_final, reply }).await
    }

    /// Writes what changed since the last snapshot: every write acknowledged before this call.
    /// None if there was none.
    pub async fn delta(&self) -> Result<Option<Snapshot>, TriggerError> {
        self.ask(|reply| Request::Delta { reply }).await
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, TriggerError> {
        let (reply, answer) = oneshot::channel();
        self.0.try_send(request(reply)).map_err(|_| TriggerError::NotActive)?;
        answer.await.unwrap_or(Err(TriggerError::NotActive))
    }
}
