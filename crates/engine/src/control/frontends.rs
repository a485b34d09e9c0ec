//! Starts and stops the frontend on request.

use crate::frontend::{FrontendError, FrontendOptions, FrontendState};

use super::engine::Engine;

/// The frontends there are.
const NAMES: [&str; 5] = ["socket", "nbd", "tgt-blockdev", "tgt-iscsi", "rest"];

/// Texts are those callers match.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrontendRefusal {
    #[error("cannot start frontend during the engine expansion")]
    Expanding,
    #[error(transparent)]
    Frontend(#[from] FrontendError),
}

impl Engine {
    pub(super) async fn frontend_start(&self, name: &str) -> Result<(), FrontendRefusal> {
        // Asked before the lock is: an expansion holds it until it is done.
        if self.state().expansion.running {
            return Err(FrontendRefusal::Expanding);
        }
        let _order = self.order.lock().await;
        if self.state().expansion.running {
            return Err(FrontendRefusal::Expanding);
        }
        if name.is_empty() {
            return Err(FrontendError::Empty.into());
        }
        if !NAMES.contains(&name) {
            return Err(FrontendError::Unknown(name.to_owned()).into());
        }
        // Without replicas there is nothing to serve yet: it comes up when the volume starts.
        if !self.state().entries.is_empty() {
            self.volume.start_frontend(name, &self.frontend_options()).await?;
        }
        name.clone_into(&mut self.state().frontend);
        Ok(())
    }

    pub(super) async fn frontend_shutdown(&self) -> Result<(), FrontendError> {
        let _order = self.order.lock().await;
        self.stop_frontend_if_up().await
    }

    pub(super) async fn stop_frontend_if_up(&self) -> Result<(), FrontendError> {
        match self.volume.frontend().state {
            FrontendState::Up => self.volume.stop_frontend().await,
            FrontendState::Down | FrontendState::None => Ok(()),
        }
    }

    /// Starts the frontend the volume is to have, if it is to have one.
    pub(super) async fn start_known_frontend(&self) -> Result<(), FrontendError> {
        let name = self.state().frontend.clone();
        if name.is_empty() || self.frontend_is_up() {
            return Ok(());
        }
        self.volume.start_frontend(&name, &self.frontend_options()).await
    }

    pub(super) fn frontend_is_up(&self) -> bool {
        self.volume.frontend().state == FrontendState::Up
    }

    fn frontend_options(&self) -> FrontendOptions {
        FrontendOptions {
            volume: self.options.volume.clone(),
            nbd: self.options.nbd.clone(),
            upgrade: self.state().takes_over,
            replica_timeout: self.options.replica_timeout,
        }
    }
}
