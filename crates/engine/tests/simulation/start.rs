//! How the engine of the simulation starts: opens the replicas, chooses, adds.

use std::time::Duration;

use engine::core::start::{Found, Seen, StartRules, choose};
use engine::core::{Command, Hold, Mode};
use engine::machine::claim;
use rpc::Features;
use testkit::sim::Context;
use wire::membership::{CUT_OFF_TEXT, Claim};

use crate::engine::{Engine, Phase};
use crate::message::{Call, Opened, Return};
use crate::party::{NAMES, Party};

/// How long a manager that knows who failed waits for the others.
const TIMEOUT: Duration = Duration::from_millis(400);

type Answers = [Option<Result<Return, String>>; 3];

const NO_ANSWERS: Answers = [const { None }; 3];

#[derive(Debug)]
pub(crate) struct Opening {
    since: Duration,
    /// What the replicas said before anybody claimed them.
    looked: Option<Answers>,
    seen: Answers,
}

impl Opening {
    pub(crate) fn returned(&mut self, peer: usize, result: Result<Return, String>) {
        self.seen[peer] = Some(result);
    }
}

impl Engine {
    pub(crate) fn open_all(&mut self, context: &mut Context<'_, Party>) {
        let since = context.now();
        self.phase = Phase::Opening(Box::new(Opening { since, looked: None, seen: NO_ANSWERS }));
        for peer in 0..NAMES.len() {
            if self.shared.style.members {
                self.peers[peer].id = None;
                self.call(peer, Call::Look, context);
            } else {
                self.open(peer, context);
            }
        }
    }

    fn open(&mut self, peer: usize, context: &mut Context<'_, Party>) {
        self.peers[peer].id = None;
        self.peers[peer].session = self.shared.new_session();
        self.call(peer, Call::Open, context);
    }

    pub(crate) fn tick_opening(&mut self, context: &mut Context<'_, Party>) {
        let Phase::Opening(opening) = &mut self.phase else { return };
        let waited = context.now().saturating_sub(opening.since) >= TIMEOUT;
        let answered = opening.seen.iter().all(Option::is_some);
        if self.shared.style.members {
            match (answered || waited, &opening.looked) {
                (true, None) => self.claim_all(context),
                (true, Some(_)) => self.choose(context),
                (false, _) => {}
            }
            return;
        }
        if self.shared.style.records {
            if answered || waited {
                self.choose(context);
            }
            return;
        }
        if opening.seen.iter().all(|seen| matches!(seen, Some(Ok(_)))) {
            self.choose(context);
        } else if let Some(peer) = opening.seen.iter().position(|it| matches!(it, Some(Err(_)))) {
            opening.seen[peer] = None;
            self.open(peer, context);
        }
    }

    /// Claims those that answered, above all that was claimed before.
    fn claim_all(&mut self, context: &mut Context<'_, Party>) {
        let Phase::Opening(opening) = &mut self.phase else { return };
        let looked = std::mem::replace(&mut opening.seen, NO_ANSWERS);
        opening.since = context.now();
        let standings = looked.iter().filter_map(|it| match it {
            Some(Ok(Return::Looked(standing))) => standing.as_ref(),
            _ => None,
        });
        let generation = claim::next(None, 0, &standings.collect::<Vec<_>>()).unwrap();
        let there: Vec<bool> = looked.iter().map(|it| matches!(it, Some(Ok(_)))).collect();
        opening.looked = Some(looked);
        let engine = format!("{}-{}", self.own, self.shared.new_session());
        self.claim = Some(Claim { generation, engine });
        for (peer, there) in there.into_iter().enumerate() {
            if there {
                self.open(peer, context);
            } else if let Phase::Opening(opening) = &mut self.phase {
                opening.seen[peer] = Some(Err("no answer".to_owned()));
            }
        }
    }

    fn choose(&mut self, context: &mut Context<'_, Party>) {
        let Phase::Opening(opening) = &self.phase else { return };
        let style = self.shared.style;
        let failed = *self.shared.failed.borrow();
        let seen: Vec<Seen> = opening
            .seen
            .iter()
            .zip(failed)
            .zip(NAMES)
            .map(|((seen, failed), name)| match seen {
                Some(Ok(_)) if style.records && failed => unusable("failed before"),
                Some(Ok(Return::Opened(opened))) => {
                    Seen::Opened(found(name, opened, style.counters))
                }
                Some(Ok(_)) => unusable("strange"),
                Some(Err(why)) => Seen::Unreachable(why.clone()),
                None => Seen::Unreachable("no answer".to_owned()),
            })
            .collect();
        let rules = StartRules {
            size_bytes: bytes(self.shared.wanted_size.get()),
            current_size_bytes: bytes(self.shared.known_size.get()),
            upgrade: false,
            revision_counter: style.counters,
            salvage: false,
        };
        // One that was claimed by another meanwhile is not left out: the start is over.
        let lost = opening.seen.iter().flatten().filter_map(|it| it.as_ref().err());
        let lost = lost.into_iter().any(|why| why.starts_with(CUT_OFF_TEXT));
        // Those that keep no records do not know whether they are complete: whoever runs a mixed set waits
        // for one that knows.
        let keeps = |features: &Features| features.has(Features::MEMBERSHIP);
        let knows = |seen: &Seen| matches!(seen, Seen::Opened(found) if found.standing.is_some());
        let is_known = seen.iter().any(knows) || !style.features.iter().any(keeps);
        let plan = match choose(&seen, &rules) {
            Ok(plan) if !lost && is_known => plan,
            Ok(_) | Err(_) => {
                self.shared.count(|tally| tally.waits += 1);
                return self.open_all(context);
            }
        };
        let now = context.now();
        let size = usize::try_from(plan.size_bytes).unwrap();
        self.core.resize(size as u64);
        self.shared.known_size.set(size);
        self.base.clone_from(&plan.base);
        let differs = |verdict: &Result<(), String>| {
            verdict.as_ref().is_err_and(|why| why.starts_with("has other snapshots"))
        };
        if plan.verdicts.iter().any(differs) {
            self.shared.count(|tally| tally.chains += 1);
        }
        for (peer, verdict) in plan.verdicts.iter().enumerate() {
            self.shared.failed.borrow_mut()[peer] = verdict.is_err();
            self.peers[peer].id = match verdict {
                Ok(()) => Some(self.core.add(now, style.features[peer], Mode::Rw)),
                Err(_) => None,
            };
        }
        let first = self.peers.iter().find_map(|peer| peer.id);
        let chosen = plan.reader.and_then(|place| self.peers[place].id);
        self.reader = chosen.or(first);
        self.core.set_reader(self.reader);
        self.shared.oracle.borrow_mut().engine_back(self.own);
        self.shared.count(|tally| tally.starts += 1);
        let Some(claim) = &self.claim else { return self.recorded(context) };
        self.core.keep_records(claim.generation, plan.serial);
        for (peer, seen) in seen.iter().enumerate() {
            if let (Some(id), Seen::Opened(found)) = (self.peers[peer].id, seen) {
                self.core.set_name(id, found.name().to_owned());
            }
        }
        self.submit(Command::Record, context, |engine, token| {
            engine.phase = Phase::Recording { token };
        });
    }

    /// Who holds the volume is known to all of them.
    pub(crate) fn recorded(&mut self, context: &mut Context<'_, Party>) {
        let (hold, begin) = self.hold(Hold::Changes { flush: true }, context);
        self.phase = Phase::Flushing { hold, begin };
    }
}

fn unusable(why: &str) -> Seen {
    Seen::Failed { why: why.to_owned(), standing: None }
}

fn found(name: &str, opened: &Opened, counters: bool) -> Found {
    let state = if opened.rebuilding { "rebuilding" } else { "dirty" };
    Found {
        size_bytes: bytes(opened.size),
        sector_size: 512,
        usable: !opened.rebuilding,
        state: state.to_owned(),
        counter: counters.then_some(opened.counter),
        head_modified_ns: opened.modified_ns,
        head_allocated_bytes: opened.modified_ns,
        unclean: true,
        address: name.to_owned(),
        standing: opened.standing.clone(),
        layers: opened.chain.clone(),
    }
}

fn bytes(size: usize) -> i64 {
    i64::try_from(size).unwrap()
}
