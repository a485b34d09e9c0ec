//! Doing what was decided.

use std::time::Instant;

use super::{Action, InitializeError, Initializer, Neighbours, Restoration, aside};
use crate::control::membership;
use crate::restore::{self, Existing, Progress, Target};

impl Initializer {
    pub(super) async fn perform(&self, action: &Action) -> Result<(), InitializeError> {
        match action {
            Action::Keep => self.keep().await,
            Action::Fail(why) => Err(InitializeError::Refused(why.clone())),
            Action::Bootstrap => self.move_aside(aside::keep_aside).await,
            Action::Join => self.join().await,
            Action::Replace => {
                let begun = Instant::now();
                let done = self.replace().await;
                let took = begun.elapsed();
                self.metrics.restoration_took(Restoration::SingleMember, done.is_ok(), took);
                done
            }
            Action::Restore => self.restore(Existing::SetAside).await,
            Action::BringForward => self.restore(Existing::SetAsideIfPast).await,
        }
    }

    /// Whatever a restore began beside it is not needed: one killed right after its swap left it.
    async fn keep(&self) -> Result<(), InitializeError> {
        let path = self.data_dir().to_owned();
        let done = self.tasks.blocking("forget a restore", move || restore::forget(&path));
        if let Err(error) = done.await? {
            tracing::warn!("what a restore left was not removed: {}", telemetry::Chain(&error));
        }
        Ok(())
    }

    async fn set_aside(&self) -> Result<(), InitializeError> {
        self.move_aside(aside::set_aside).await
    }

    async fn move_aside(
        &self,
        how: fn(&std::path::Path) -> std::io::Result<()>,
    ) -> Result<(), InitializeError> {
        let path = self.data_dir().to_owned();
        let moved = path.clone();
        let done = self.tasks.blocking("set the data aside", move || how(&moved));
        done.await?.map_err(|source| InitializeError::Aside { path, source })
    }

    fn neighbours(&self) -> Result<&Neighbours, InitializeError> {
        let alone = || InitializeError::Refused("there is no cluster to join".to_owned());
        self.neighbours.as_ref().ok_or_else(alone)
    }

    /// Begins with nothing and learns from the others.
    async fn join(&self) -> Result<(), InitializeError> {
        self.set_aside().await?;
        let neighbours = self.neighbours()?;
        membership::add_as_learner(
            &neighbours.cluster,
            &neighbours.peer_urls,
            membership::Tries::JOIN,
            self.metrics.as_ref(),
        )
        .await
        .map_err(InitializeError::Membership)
    }

    /// Leaves the cluster and joins it again, with nothing.
    async fn replace(&self) -> Result<(), InitializeError> {
        let neighbours = self.neighbours()?;
        membership::remove(&neighbours.cluster, &neighbours.name, self.metrics.as_ref())
            .await
            .map_err(InitializeError::Membership)?;
        self.set_aside().await?;
        membership::add_as_learner(
            &neighbours.cluster,
            &neighbours.peer_urls,
            membership::Tries::CHANGE,
            self.metrics.as_ref(),
        )
        .await
        .map_err(InitializeError::Membership)
    }

    async fn restore(&self, existing: Existing) -> Result<(), InitializeError> {
        let Some(store) = &self.store else {
            return Err(InitializeError::Refused("there is no store".to_owned()));
        };
        let how = self.restoration.restoration(existing);
        let begun = Instant::now();
        let restored = restore::restore(store, &how, Target::Newest, &Progress::default()).await;
        let took = begun.elapsed();
        self.metrics.restoration_took(Restoration::SingleNode, restored.is_ok(), took);
        restored.map(drop).map_err(|error| InitializeError::Restore(Box::new(error)))
    }
}
