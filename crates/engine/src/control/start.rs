//! Starts the volume with a set of replicas.
//!
//! Owns: opening the replicas, connecting to those that [`choose`] accepts, listing the others as
//! ERR. The frontend comes up last.

use std::collections::HashSet;
use std::sync::Arc;

use futures::future::join_all;
use rpc::Features;

use crate::core::start::{NoBackend, Plan, Seen, StartRules, choose};
use crate::core::{Command, Mode, ReplicaId};
use crate::frontend::FrontendError;

use super::engine::{Engine, Entry};
use super::link::{BadAddress, Link};
use super::mend::Joined;
use super::probe::{self, OpenAs, Opened, ProbeError};

/// Why a volume did not start. Texts are those callers match.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("invalid ReplicaAddress: duplicate replica addresses {0}")]
    Duplicate(String),
    #[error("{0}")]
    Address(String),
    #[error(transparent)]
    NoBackend(#[from] NoBackend),
    #[error("a volume cannot have size {0}")]
    Size(i64),
    #[error("{0}")]
    Frontend(#[from] FrontendError),
}

/// One address and what came of it.
struct Candidate {
    address: String,
    link: Link,
    opened: Result<Opened, ProbeError>,
}

impl Candidate {
    fn seen(&self) -> Seen {
        match &self.opened {
            Ok(opened) => Seen::Opened(opened.found.clone()),
            Err(error) => error.seen(&self.address),
        }
    }
}

/// What became of a candidate: a member of the data path, or why not.
type Verdict = Result<ReplicaId, String>;

impl Engine {
    /// Starts the volume. Does nothing if there are replicas already, or none are given.
    pub(super) async fn start(
        self: &Arc<Self>,
        addresses: &[String],
        size: i64,
        current_size: i64,
    ) -> Result<(), StartError> {
        let _order = self.order.lock().await;
        if addresses.is_empty() || !self.state().entries.is_empty() {
            return Ok(());
        }
        if let Some(twice) = first_duplicate(addresses) {
            return Err(StartError::Duplicate(twice.to_owned()));
        }
        let rules = self.start_rules(size, current_size);
        let candidates = self.open_all(addresses, size).await?;
        let seen: Vec<Seen> = candidates.iter().map(Candidate::seen).collect();
        let plan = choose(&seen, &rules);
        let verdicts = match &plan {
            Ok(plan) => self.connect(&candidates, plan).await?,
            Err(_) => candidates.iter().map(refusal).collect(),
        };
        self.let_go(&candidates, &verdicts).await;
        let size = volume_bytes(plan?.size_bytes)?;
        if !verdicts.iter().any(Result::is_ok) {
            return Err(NoBackend::ReplicaError(told(&candidates, &verdicts)).into());
        }
        self.adopt(size, &candidates, &verdicts);
        self.mend_if_unclean(&joined(&candidates, &verdicts)).await;
        self.settle().await;
        self.start_known_frontend().await?;
        self.state().takes_over = false;
        Ok(())
    }

    fn start_rules(&self, size: i64, current_size: i64) -> StartRules {
        StartRules {
            size_bytes: size,
            current_size_bytes: current_size,
            upgrade: self.state().takes_over,
            revision_counter: self.options.revision_counter,
            salvage: self.options.salvage,
        }
    }

    async fn open_all(
        &self,
        addresses: &[String],
        size: i64,
    ) -> Result<Vec<Candidate>, StartError> {
        let wanted = OpenAs {
            upgrade: self.state().takes_over,
            size,
            alone: addresses.len() == 1,
            revision_counter: self.options.revision_counter,
        };
        let links: Vec<_> = addresses.iter().map(|address| self.link(address)).collect();
        let links: Vec<Link> = links
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error: BadAddress| StartError::Address(error.to_string()))?;
        let open = |(address, link): (String, Link)| async move {
            let opened = self.open_and_set(&link, wanted).await;
            Candidate { address, link, opened }
        };
        Ok(join_all(addresses.iter().cloned().zip(links).map(open)).await)
    }

    pub(super) fn link(&self, address: &str) -> Result<Link, BadAddress> {
        Link::new(address, &self.options.volume, &self.options.backends)
    }

    /// Opens a replica and tells it what this volume's flags say.
    pub(super) async fn open_and_set(
        &self,
        link: &Link,
        wanted: OpenAs,
    ) -> Result<Opened, ProbeError> {
        let opened = probe::open(link, wanted).await?;
        self.push_settings(link).await?;
        Ok(opened)
    }

    /// Sets the size and connects to those that were chosen.
    async fn connect(
        &self,
        candidates: &[Candidate],
        plan: &Plan,
    ) -> Result<Vec<Verdict>, StartError> {
        self.volume.resize(volume_bytes(plan.size_bytes)?).await?;
        let mut verdicts = Vec::new();
        for (candidate, verdict) in candidates.iter().zip(&plan.verdicts) {
            verdicts.push(match (verdict, &candidate.opened) {
                (Ok(()), Ok(opened)) => {
                    self.attach(&candidate.link, opened.features, Mode::Rw).await
                }
                (Ok(()), Err(error)) => Err(error.to_string()),
                (Err(reason), _) => Err(reason.clone()),
            });
        }
        Ok(verdicts)
    }

    pub(super) async fn attach(&self, link: &Link, features: Features, mode: Mode) -> Verdict {
        let target = link.target(&self.options.volume, self.options.data_protocol);
        let attached = self.volume.attach(&target, features, mode).await;
        attached.map_err(|error| format!("cannot connect for data: {error}"))
    }

    fn adopt(&self, size: u64, candidates: &[Candidate], verdicts: &[Verdict]) {
        let entry = |(candidate, verdict): (&Candidate, &Verdict)| Entry {
            address: candidate.address.clone(),
            link: candidate.link.clone(),
            member: verdict.as_ref().ok().copied(),
        };
        let mut state = self.state();
        state.entries = candidates.iter().zip(verdicts).map(entry).collect();
        state.size = size;
    }

    /// What an earlier engine had acknowledged may still be in the memory of one replica's machine
    /// and on the disk of none: it is on all of them before clients build on it.
    async fn settle(&self) {
        if let Err(error) = self.volume.submit(Command::Flush).await {
            tracing::error!(%error, "the replicas cannot be flushed: {error}");
        }
    }

    /// Closes what was opened and is not used. One that was not closed cleanly before is left as
    /// it is, if it can be told later that its engine is gone: closing it would hide that it may
    /// differ from the others.
    async fn let_go(&self, candidates: &[Candidate], verdicts: &[Verdict]) {
        let limit = self.hold_limit();
        let close = |(candidate, verdict): (&Candidate, &Verdict)| {
            let reason = verdict.clone().err();
            let (address, link) = (candidate.address.clone(), candidate.link.clone());
            let opened = candidate.opened.as_ref().ok();
            let close = opened.is_some_and(|opened| !opened.unclean || opened.features.0 == 0);
            async move {
                let Some(reason) = reason else { return };
                tracing::error!(
                    replica = address,
                    reason,
                    "replica {address} is refused: {reason}"
                );
                if !close || link.file().is_some() {
                    return;
                }
                if let Err(error) = link.close(limit).await {
                    tracing::warn!(replica = address, %error, "cannot close replica {address}");
                }
            }
        };
        join_all(candidates.iter().zip(verdicts).map(close)).await;
    }
}

fn refusal(candidate: &Candidate) -> Verdict {
    match &candidate.opened {
        Ok(_) => Err("no volume came of the set".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn volume_bytes(size: i64) -> Result<u64, StartError> {
    u64::try_from(size).map_err(|_| StartError::Size(size))
}

/// Why each of them is refused.
fn told(candidates: &[Candidate], verdicts: &[Verdict]) -> String {
    let one = |(candidate, verdict): (&Candidate, &Verdict)| {
        verdict.as_ref().err().map(|reason| format!("{}: {reason}", candidate.address))
    };
    let all: Vec<String> = candidates.iter().zip(verdicts).filter_map(one).collect();
    all.join("; ")
}

/// What is known of the members from before they joined.
fn joined(candidates: &[Candidate], verdicts: &[Verdict]) -> Vec<Joined> {
    let pair = |(candidate, verdict): (&Candidate, &Verdict)| match (verdict, &candidate.opened) {
        (Ok(id), Ok(opened)) => Some(Joined {
            id: *id,
            unclean: opened.unclean,
            able: opened.features.has(Features::UPKEEP),
            head_modified_ns: opened.found.head_modified_ns,
        }),
        (Ok(_) | Err(_), _) => None,
    };
    candidates.iter().zip(verdicts).filter_map(pair).collect()
}

fn first_duplicate(addresses: &[String]) -> Option<&String> {
    let mut seen = HashSet::new();
    addresses.iter().find(|address| !seen.insert(*address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_of_two_equal_addresses_is_found() {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(first_duplicate(&list(&["a", "b", "a"])), Some(&"a".to_owned()));
        assert_eq!(first_duplicate(&list(&["a", "b"])), None);
    }
}
