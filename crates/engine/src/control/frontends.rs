//! Starts and stops the frontend on request.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rpc::Features;
use tonic::Code;

use crate::frontend::{FrontendError, FrontendOptions, FrontendState, Inherited};
use crate::machine::restore::{Restored, Told, is_under_way, unfinished};

use super::each::each;
use super::engine::{Engine, Replica};
use super::link::{CallError, Link};
use super::probe;
use super::restore::{identity, restored};

/// The frontends there are.
const NAMES: [&str; 5] = ["socket", "nbd", "tgt-blockdev", "tgt-iscsi", "rest"];

/// Texts are those callers match.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrontendRejection {
    #[error("cannot start frontend during the engine expansion")]
    Expanding,
    #[error("cannot start a frontend: {0}")]
    Restoring(String),
    #[error("cannot start a frontend: which copy is read cannot be recorded: {0}")]
    Unrecorded(String),
    #[error(transparent)]
    Frontend(#[from] FrontendError),
}

fn is_restored(told: &Told) -> bool {
    told.restored.as_ref().is_ok_and(|restored| !restored.last.is_empty())
}

/// That it cannot be asked means that it has no restore to speak of: it has no agent, or one that does
/// not know of restores.
fn has_none_to_ask(features: Features, error: &CallError) -> bool {
    match error {
        CallError::Unreachable(_) => !features.has(Features::AGENT),
        CallError::Refused(status) => status.code() == Code::Unimplemented,
        CallError::RawFile { .. } | CallError::File { .. } => true,
        CallError::TimedOut(_) | CallError::Broken(_) | CallError::Empty(_) => false,
    }
}

/// Where what the replicas hold comes from, and so what may be written over it to make them equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// From clients, or from a backup that clients go on with.
    Clients,
    /// From a backup, whole; more may follow.
    Restored,
    /// From a backup that is not whole everywhere.
    Restoring,
}

/// Which copy it is, if it says so.
async fn identity_of(link: &Link, limit: Duration) -> Result<Option<String>, String> {
    let replica = link.get(limit).await.map_err(|error| error.to_string())?;
    let standing = probe::standing(&replica).map_err(|error| error.to_string())?;
    Ok(standing.as_ref().map(identity))
}

impl Engine {
    pub(super) async fn frontend_start(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<(), FrontendRejection> {
        // Asked before the lock is: an expansion holds it until it is done.
        if self.state().expansion.running {
            return Err(FrontendRejection::Expanding);
        }
        let _order = self.order.lock().await;
        if self.state().expansion.running {
            return Err(FrontendRejection::Expanding);
        }
        if name.is_empty() {
            return Err(FrontendError::Empty.into());
        }
        if !NAMES.contains(&name) {
            return Err(FrontendError::Unknown(name.to_owned()).into());
        }
        self.check_restored().await.map_err(FrontendRejection::Restoring)?;
        if self.mend_what_waited().await {
            // Which copy is believed is on disk before anything is read from it.
            self.record()
                .await
                .map_err(|fault| FrontendRejection::Unrecorded(fault.to_string()))?;
        }
        // Without replicas there is nothing to serve yet: it comes up when the volume starts.
        if !self.state().entries.is_empty() {
            self.volume.start_frontend(name, &self.frontend_options()).await?;
        }
        name.clone_into(&mut self.state().frontend);
        Ok(())
    }

    /// Refuses while a replica holds part of a backup, or another one than the others.
    pub(super) async fn check_restored(&self) -> Result<(), String> {
        unfinished(&self.restores().await).map_or(Ok(()), Err)
    }

    /// Where what the replicas hold comes from.
    pub(super) async fn origin(&self) -> Origin {
        let seen = self.restores().await;
        let has_frontend = !self.state().frontend.is_empty();
        if is_under_way(&seen) {
            Origin::Restoring
        } else if !has_frontend && seen.iter().any(is_restored) {
            Origin::Restored
        } else {
            Origin::Clients
        }
    }

    async fn restores(&self) -> Vec<Told> {
        let limit = self.hold_limit();
        let mut replicas = self.readable();
        replicas.retain(|replica| replica.link.file().is_none());
        let asked = each(&replicas, |link| async move { link.restore_status(limit).await }).await;
        let members = self.members();
        let features = |replica: &Replica| {
            let member = members.iter().find(|member| Some(member.id) == replica.member);
            member.map_or(Features::NONE, |member| member.features)
        };
        let told = replicas.into_iter().zip(asked).filter_map(|(replica, status)| match status {
            Err(error) if has_none_to_ask(features(&replica), &error) => None,
            Ok(status) => Some((replica, Ok(restored(status)))),
            Err(error) => Some((replica, Err(error.to_string()))),
        });
        let told: Vec<(Replica, Result<Restored, String>)> = told.collect();
        let names_others =
            told.iter().flat_map(|(_, it)| it).any(|restored| !restored.companions.is_empty());
        let identified = told.into_iter().map(|(replica, restored)| async move {
            let known =
                if names_others { identity_of(&replica.link, limit).await } else { Ok(None) };
            let address = replica.address;
            match known {
                Ok(identity) => Told { address, identity, restored },
                // It may be one of those that others name.
                Err(why) => Told { address, identity: None, restored: restored.and(Err(why)) },
            }
        });
        join_all(identified).await
    }

    pub(super) async fn frontend_shutdown(&self) -> Result<(), FrontendError> {
        let _order = self.order.lock().await;
        self.stop_frontend_if_up().await
    }

    /// Ends the frontend and answers nothing more, whatever else is under way: who asks believes that
    /// others may have the volume soon.
    pub(super) async fn frontend_cut(&self) -> Result<(), FrontendError> {
        self.volume.cut_frontend().await
    }

    pub(super) async fn stop_frontend_if_up(&self) -> Result<(), FrontendError> {
        match self.volume.frontend().state {
            FrontendState::Up => self.volume.stop_frontend().await,
            FrontendState::Down | FrontendState::None => Ok(()),
        }
    }

    /// Starts the frontend the volume is to have, if it is to have one.
    pub(super) async fn start_known_frontend(&self) -> Result<(), FrontendError> {
        let (name, offer) = {
            let mut state = self.state();
            (state.frontend.clone(), state.offer.take())
        };
        if name.is_empty() || self.frontend_is_up() {
            return Ok(());
        }
        let mut options = self.frontend_options();
        if let Some(offer) = offer {
            options.inherited = Inherited::new(offer.take().await);
        }
        self.volume.start_frontend(&name, &options).await
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
            inherited: Inherited::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_does_not_answer_may_be_in_the_middle_of_a_restore() {
        let late = CallError::TimedOut(Duration::from_secs(1));
        assert!(!has_none_to_ask(Features::NONE, &late));
        let unreachable = CallError::Unreachable(tonic::Status::unavailable("refused"));
        assert!(has_none_to_ask(Features::NONE, &unreachable), "it has no agent");
        assert!(!has_none_to_ask(Features::AGENT, &unreachable));
    }
}
