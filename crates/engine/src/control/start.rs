//! Starts the volume with a set of replicas.
//!
//! Owns: opening the replicas, connecting to those that [`choose`] accepts, listing the others as
//! ERR. The frontend comes up last.

use std::collections::HashSet;
use std::sync::Arc;

use futures::future::join_all;
use rpc::Features;
use wire::membership::{CUT_OFF_TEXT, Claim, Standing};

use crate::core::newest::passed_over;
use crate::core::start::{NoBackend, Plan, Seen, StartRules, choose};
use crate::core::{Command, Mode, ReplicaId};
use crate::frontend::FrontendError;
use crate::machine::claim::{self, Superseded};
use crate::volume::Card;

use super::engine::{Engine, Entry};
use super::frontends::Origin;
use super::link::{BadAddress, Link};
use super::mend::MendFrom;
use super::probe::{self, Looked, OpenAs, Opened, ProbeError};

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
    #[error("another engine is at work on {0}: end it first")]
    InUse(String),
    #[error("{0}")]
    CutOff(String),
    #[error(transparent)]
    Superseded(#[from] Superseded),
    #[error("cannot start a frontend: {0}")]
    Restoring(String),
    #[error("the replicas cannot be told who holds the volume: {0}")]
    Record(String),
    #[error("{0}")]
    Frontend(#[from] FrontendError),
}

/// One address and what came of it.
struct Candidate {
    address: String,
    link: Link,
    looked: Option<Looked>,
    opened: Result<Opened, ProbeError>,
}

impl Candidate {
    fn seen(&self) -> Seen {
        match &self.opened {
            Ok(opened) => Seen::Opened(opened.found.clone()),
            Err(error) => error.seen(&self.address, self.looked.as_ref()),
        }
    }
}

/// What a look at a candidate gave.
type Before = Result<Option<Looked>, ProbeError>;

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
        let started = self.start_ordered(addresses, size, current_size).await;
        // What was offered and not taken goes back.
        self.state().offer = None;
        started
    }

    async fn start_ordered(
        self: &Arc<Self>,
        addresses: &[String],
        size: i64,
        current_size: i64,
    ) -> Result<(), StartError> {
        if addresses.is_empty() || !self.state().entries.is_empty() {
            return Ok(());
        }
        self.check_not_cut_off()?;
        if let Some(twice) = first_duplicate(addresses) {
            return Err(StartError::Duplicate(twice.to_owned()));
        }
        let rules = self.start_rules(size, current_size);
        let candidates = self.open_all(addresses, size).await?;
        let seen: Vec<Seen> = candidates.iter().map(Candidate::seen).collect();
        let plan = choose(&seen, &rules);
        let verdicts = match &plan {
            Ok(plan) => self.connect(&candidates, plan).await?,
            Err(_) => candidates.iter().map(rejection).collect(),
        };
        self.let_go(&candidates, &verdicts).await;
        let plan = plan?;
        let size = volume_bytes(plan.size_bytes)?;
        if !verdicts.iter().any(Result::is_ok) {
            return Err(NoBackend::ReplicaError(told(&candidates, &verdicts)).into());
        }
        self.adopt(size, &candidates, &verdicts);
        self.begin_mending(&plan, &candidates, &verdicts).await;
        if !self.state().frontend.is_empty() {
            self.check_restored().await.map_err(StartError::Restoring)?;
            self.mend_what_waited().await;
        }
        // Before anything can be read or written: who holds it, and which copy is believed.
        self.record().await.map_err(|fault| StartError::Record(fault.to_string()))?;
        self.settle().await;
        self.start_known_frontend().await?;
        self.state().takes_over = false;
        Ok(())
    }

    /// Reads stick to one copy while the others are made equal to it, if they may differ. What is
    /// written to a head lies over all that is restored below it later: of copies that a backup made
    /// equal only the heads are looked after, which hold nothing unless clients wrote, and those in
    /// the middle of a restore wait for it, and for a frontend.
    async fn begin_mending(
        self: &Arc<Self>,
        plan: &Plan,
        candidates: &[Candidate],
        verdicts: &[Verdict],
    ) {
        let joined = candidates.iter().zip(verdicts).filter(|(_, verdict)| verdict.is_ok());
        let able = joined.clone().all(|(candidate, _)| {
            let opened = candidate.opened.as_ref();
            opened.is_ok_and(|opened| opened.features.has(Features::UPKEEP))
        });
        let chosen = plan.reader.and_then(|place| verdicts.get(place)?.as_ref().ok().copied());
        // It may have gone between being chosen and being connected to.
        let any = || verdicts.iter().find_map(|verdict| verdict.as_ref().ok().copied());
        if plan.reader.is_some()
            && able
            && joined.count() > 1
            && let Some(reader) = chosen.or_else(any)
        {
            let from = MendFrom { reader, base: plan.base.clone() };
            match self.origin().await {
                Origin::Restoring => *self.mend_later.lock().await = Some(from),
                Origin::Restored => self.mend_from_now_on(from.heads_only()).await,
                Origin::Clients => self.mend_from_now_on(from).await,
            }
        }
    }

    pub(super) fn check_not_cut_off(&self) -> Result<(), StartError> {
        match self.volume.cut_off_by() {
            Some(generation) => Err(StartError::CutOff(format!(
                "cut off: an engine with generation {generation} has this volume now; this process \
                 is of no more use"
            ))),
            None => Ok(()),
        }
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
        let links: Vec<_> = addresses.iter().map(|address| self.link(address)).collect();
        let links: Vec<Link> = links
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error: BadAddress| StartError::Address(error.to_string()))?;
        let looked = join_all(links.iter().map(probe::look)).await;
        let upgrade = self.state().takes_over;
        let looked = if upgrade {
            let looked = pass_over(addresses, looked, self.options.salvage)?;
            // Before the first claim, which would fail what they have under way.
            self.ask_for_clients(&looked).await;
            looked
        } else {
            refuse_driven(addresses, &looked)?;
            looked
        };
        let wanted = OpenAs {
            upgrade,
            size,
            alone: addresses.len() == 1,
            revision_counter: self.options.revision_counter,
            claim: self.claim_above(looked.iter().flatten().flatten())?,
            adopt: false,
            salvage: self.options.salvage,
        };
        let wanted = &wanted;
        let open = |((address, link), looked): ((String, Link), Before)| async move {
            let (looked, opened) = match looked {
                Ok(Some(looked)) if looked.passed_over.is_some() => {
                    let why = looked.passed_over.clone().unwrap_or_default();
                    (Some(looked), Err(ProbeError::PassedOver(why)))
                }
                Ok(looked) => {
                    let opened = self.open_and_set(&link, looked.as_ref(), wanted, &address).await;
                    (looked, opened)
                }
                Err(error) => (None, Err(error)),
            };
            Candidate { address, link, looked, opened }
        };
        let opened = join_all(addresses.iter().cloned().zip(links).zip(looked).map(open)).await;
        let cut_off = opened.iter().filter_map(|candidate| candidate.opened.as_ref().err());
        match cut_off.into_iter().find(|error| error.is_cut_off()) {
            Some(error) => Err(StartError::CutOff(error.to_string())),
            None => Ok(opened),
        }
    }

    /// Makes the claim of this engine: above all that was claimed before.
    pub(super) fn claim_above<'l>(
        &self,
        looked: impl Iterator<Item = &'l Looked>,
    ) -> Result<Claim, Superseded> {
        let standings: Vec<&Standing> =
            looked.filter_map(|looked| looked.standing.as_ref()).collect();
        let own = self.claim.get().map_or(0, |claim| claim.generation);
        let generation = claim::next(self.options.claim_generation, own, &standings)?;
        let claim = Claim { generation, engine: self.name.clone() };
        self.claim.set(Some(claim.clone()));
        Ok(claim)
    }

    pub(super) fn link(&self, address: &str) -> Result<Link, BadAddress> {
        Link::new(address, &self.options.volume, &self.options.backends, &self.claim)
    }

    /// Opens a replica and tells it what this volume's flags say.
    pub(super) async fn open_and_set(
        &self,
        link: &Link,
        looked: Option<&Looked>,
        wanted: &OpenAs,
        address: &str,
    ) -> Result<Opened, ProbeError> {
        let opened = probe::open(link, looked, wanted, address).await?;
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
        let keeps = |candidate: &Candidate| {
            candidate.opened.as_ref().is_ok_and(|opened| opened.found.standing.is_some())
        };
        if let Some(claim) = self.claim.get().filter(|_| candidates.iter().any(keeps)) {
            self.volume.keep_records(claim.generation, plan.serial).await;
        }
        let mut verdicts = Vec::new();
        for (candidate, verdict) in candidates.iter().zip(&plan.verdicts) {
            verdicts.push(match (verdict, &candidate.opened) {
                (Ok(()), Ok(opened)) => self.attach(&candidate.link, opened, Mode::Rw).await,
                (Ok(()), Err(error)) => Err(error.to_string()),
                (Err(reason), _) => Err(reason.clone()),
            });
        }
        let cut_off = verdicts.iter().filter_map(|verdict| verdict.as_ref().err());
        match cut_off.into_iter().find(|why| why.contains(CUT_OFF_TEXT)) {
            Some(why) => Err(StartError::CutOff(why.clone())),
            None => Ok(verdicts),
        }
    }

    pub(super) async fn attach(&self, link: &Link, opened: &Opened, mode: Mode) -> Verdict {
        let target = link.target(&self.options.volume, self.options.data_protocol);
        let card = Card { claim: self.claim.get(), name: opened.found.name().to_owned() };
        let attached = self.volume.attach_as(&target, opened.features, mode, card).await;
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
            let close =
                opened.is_some_and(|opened| !opened.found.unclean || opened.features.0 == 0);
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

fn rejection(candidate: &Candidate) -> Verdict {
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

/// Leaves alone what a live upgrade must not take.
fn pass_over(
    addresses: &[String],
    looked: Vec<Before>,
    salvage: bool,
) -> Result<Vec<Before>, NoBackend> {
    let seen: Vec<Seen> =
        addresses.iter().zip(&looked).map(|(at, it)| probe::seen_before(at, it)).collect();
    let verdicts = passed_over(&seen, salvage)?;
    let mark = |(looked, why): (Before, Option<String>)| {
        looked.map(|looked| looked.map(|looked| Looked { passed_over: why, ..looked }))
    };
    Ok(looked.into_iter().zip(verdicts).map(mark).collect())
}

/// Part of a volume is at work under another engine: what is left of it is not started beside.
fn refuse_driven(addresses: &[String], looked: &[Before]) -> Result<(), StartError> {
    let there =
        || addresses.iter().zip(looked).filter_map(|(at, it)| Some((at, it.as_ref().ok()?)));
    let is_driven = |looked: &Option<Looked>| looked.as_ref().is_some_and(Looked::is_driven);
    let driven: Vec<&str> =
        there().filter(|(_, it)| is_driven(it)).map(|(at, _)| at.as_str()).collect();
    // All of them: each says so itself, in the words callers know.
    if driven.is_empty() || driven.len() == there().count() {
        return Ok(());
    }
    Err(StartError::InUse(driven.join(", ")))
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
