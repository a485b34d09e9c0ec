//! Starts and stops the frontend on request.

use std::sync::Arc;

use rpc::Features;
use rpc::ptypes::RestoreStatusResponse;
use tonic::Code;

use crate::frontend::{FrontendError, FrontendOptions, FrontendState, Inherited};

use super::each::each;
use super::engine::{Engine, Replica};
use super::link::CallError;

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

/// Why what the replicas hold is not to be shown to anybody yet, if so.
fn unrestored(asked: &[Asked]) -> Option<String> {
    let silent = asked.iter().find_map(|asked| asked.status.as_ref().err().map(|why| (asked, why)));
    if let Some((Asked { address, .. }, why)) = silent {
        return Some(format!(
            "replica {address} does not say whether it holds a backup that was restored in part: {why}; \
             try again when its agent answers"
        ));
    }
    let seen = || asked.iter().filter_map(|it| Some((&it.address, it.status.as_ref().ok()?)));
    for (address, status) in seen() {
        let half = status.last_restored.is_empty()
            && !(status.holdfast_unfinished.is_empty() && status.state != "error");
        if status.is_restoring || half {
            let backup = [&status.current_restoring_backup, &status.holdfast_unfinished];
            let backup = backup.into_iter().find(|name| !name.is_empty());
            let backup = backup.map_or("a backup", String::as_str);
            return Some(format!("replica {address} has not finished to restore {backup}"));
        }
    }
    // One that was rebuilt from another says nothing.
    let mut restored = seen().filter(|(_, status)| !status.last_restored.is_empty());
    let (first, wanted) = restored.next()?;
    let (other, has) = restored.find(|(_, it)| it.last_restored != wanted.last_restored)?;
    Some(format!(
        "replica {first} holds backup {}, replica {other} backup {}",
        wanted.last_restored, has.last_restored
    ))
}

/// One that was interrupted too: it goes on from what it has noted as done, which another copy must
/// not be written over.
fn being_restored(asked: &[Asked]) -> bool {
    let is_unfinished = |status: &RestoreStatusResponse| !status.holdfast_unfinished.is_empty();
    unrestored(asked).is_some() || asked.iter().flat_map(|it| &it.status).any(is_unfinished)
}

fn is_restored(asked: &Asked) -> bool {
    asked.status.as_ref().is_ok_and(|status| !status.last_restored.is_empty())
}

/// What a replica says of backups that were restored to it.
#[derive(Debug)]
struct Asked {
    address: String,
    /// Or why that is not known.
    status: Result<RestoreStatusResponse, CallError>,
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
        unrestored(&self.restore_statuses().await).map_or(Ok(()), Err)
    }

    /// Where what the replicas hold comes from.
    pub(super) async fn origin(&self) -> Origin {
        let seen = self.restore_statuses().await;
        let has_frontend = !self.state().frontend.is_empty();
        if being_restored(&seen) {
            Origin::Restoring
        } else if !has_frontend && seen.iter().any(is_restored) {
            Origin::Restored
        } else {
            Origin::Clients
        }
    }

    async fn restore_statuses(&self) -> Vec<Asked> {
        let limit = self.hold_limit();
        let mut replicas = self.readable();
        replicas.retain(|replica| replica.link.file().is_none());
        let asked = each(&replicas, |link| async move { link.restore_status(limit).await }).await;
        let members = self.members();
        let features = |replica: &Replica| {
            let member = members.iter().find(|member| Some(member.id) == replica.member);
            member.map_or(Features::NONE, |member| member.features)
        };
        let told = replicas.into_iter().zip(asked).filter_map(|(replica, status)| {
            let status = match status {
                Err(error) if has_none_to_ask(features(&replica), &error) => return None,
                other => other,
            };
            Some(Asked { address: replica.address, status })
        });
        told.collect()
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

    fn status(last_restored: &str, unfinished: &str, state: &str) -> RestoreStatusResponse {
        RestoreStatusResponse {
            last_restored: last_restored.into(),
            holdfast_unfinished: unfinished.into(),
            state: state.into(),
            is_restoring: state == "in_progress",
            ..Default::default()
        }
    }

    fn told(status: RestoreStatusResponse) -> Asked {
        Asked { address: "r".to_owned(), status: Ok(status) }
    }

    #[test]
    fn an_agent_that_does_not_answer_may_be_in_the_middle_of_a_restore() {
        let late = CallError::TimedOut(std::time::Duration::from_secs(1));
        assert!(!has_none_to_ask(Features::NONE, &late));
        let silent = Asked { address: "b".to_owned(), status: Err(late) };
        let seen = [told(status("", "", "")), silent];
        assert!(unrestored(&seen).is_some_and(|why| why.contains("replica b")));
        assert!(being_restored(&seen));
        let unreachable = CallError::Unreachable(tonic::Status::unavailable("refused"));
        assert!(has_none_to_ask(Features::NONE, &unreachable), "it has no agent");
        assert!(!has_none_to_ask(Features::AGENT, &unreachable));
    }

    #[test]
    fn copies_are_not_made_equal_while_they_come_from_a_backup() {
        let seen = |first: (&str, &str, &str), second: (&str, &str, &str)| {
            [first, second].map(|(last, unfinished, state)| told(status(last, unfinished, state)))
        };
        for (first, second, wanted) in [
            (("", "", ""), ("", "", ""), false),
            (("one", "", "complete"), ("one", "", "complete"), false),
            (("one", "", "complete"), ("", "one", ""), true),
            (("one", "two", ""), ("one", "two", ""), true),
            (("one", "", "complete"), ("two", "", "complete"), true),
            (("one", "", "in_progress"), ("one", "", "complete"), true),
        ] {
            assert_eq!(being_restored(&seen(first, second)), wanted, "{first:?} {second:?}");
        }
    }

    #[test]
    fn only_whole_and_equal_restores_are_shown() {
        let refused = |all: &[RestoreStatusResponse]| {
            let seen: Vec<_> = all.iter().cloned().map(told).collect();
            unrestored(&seen).is_some()
        };
        let (none, done) = (status("", "", ""), status("a", "", "complete"));
        assert!(!refused(&[none.clone(), none.clone()]));
        assert!(!refused(&[done.clone(), done.clone(), none]));
        assert!(refused(&[done.clone(), status("a", "b", "in_progress")]));
        assert!(refused(&[status("", "b", "")]), "it was killed halfway");
        assert!(refused(&[status("", "", "error")]));
        assert!(!refused(&[status("a", "b", "error")]), "the one before is whole");
        assert!(refused(&[done, status("b", "", "complete")]), "they differ");
    }
}
