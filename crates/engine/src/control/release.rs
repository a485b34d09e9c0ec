//! Lets go of the volume: frontend down, replicas closed and forgotten.

use std::time::Duration;

use futures::future::join_all;

use crate::core::Hold;
use crate::frontend::FrontendError;

use super::engine::Engine;

/// How long the end of the process waits for an operation that is under way.
const TIMEOUT: Duration = Duration::from_secs(20);

impl Engine {
    /// Stops the frontend, closes the replicas and forgets them. The volume can be started again.
    pub(super) async fn release(&self) -> Result<(), FrontendError> {
        let _order = self.order.lock().await;
        self.release_ordered().await
    }

    /// Does the same and ends the data thread, for the end of the process: waits for operations
    /// that are under way, but not for ever.
    pub async fn shutdown(&self) -> Result<(), FrontendError> {
        let order = tokio::time::timeout(TIMEOUT, self.order.lock()).await;
        if order.is_err() {
            tracing::warn!("ending although an operation is still under way");
        }
        let released = self.release_ordered().await;
        self.volume.stop().await;
        released
    }

    async fn release_ordered(&self) -> Result<(), FrontendError> {
        let stopped = self.stop_frontend_if_up().await;
        let equal = self.stop_mending().await;
        // What was acknowledged is on disk before replicas are told that all is well; and as they
        // leave one by one, those that are still there must not be marked as having outlived them.
        let hold = match self.hold(Hold::Changes { flush: true }).await {
            Ok(hold) => Some(hold),
            Err(error) => {
                tracing::error!(%error, "cannot flush the volume: {error}");
                None
            }
        };
        let replicas = self.replicas();
        let cut_off = self.volume.cut_off_by().is_some();
        self.state().entries.clear();
        for member in replicas.iter().filter_map(|replica| replica.member) {
            self.volume.detach(member).await;
        }
        self.volume.set_reader(None).await;
        if cut_off {
            tracing::warn!("replicas are left to the engine that has them now");
        } else if equal && hold.is_some() {
            let close = replicas.iter().map(|one| self.close_quietly(&one.address, &one.link));
            join_all(close).await;
        } else {
            // Closed, they would look equal to the next engine; left open, it sees that they were
            // not closed, and goes on making them so.
            tracing::warn!("replicas are left open: they may differ");
        }
        stopped
    }
}
