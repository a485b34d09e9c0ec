//! How the engine of the simulation starts: opens the replicas, chooses, adds.

use std::time::Duration;

use engine::core::start::{Found, Seen, StartRules, choose};
use engine::core::{Hold, Mode};
use testkit::sim::Context;

use crate::engine::{Engine, Phase};
use crate::message::{Call, Return};
use crate::party::{NAMES, Party, SIZE};

/// How long a manager that knows who failed waits for the others.
const PATIENCE: Duration = Duration::from_millis(400);

#[derive(Debug)]
pub(crate) struct Opening {
    since: Duration,
    seen: [Option<Result<Return, String>>; 3],
}

impl Opening {
    pub(crate) fn returned(&mut self, peer: usize, result: Result<Return, String>) {
        self.seen[peer] = Some(result);
    }
}

impl Engine {
    pub(crate) fn open_all(&mut self, context: &mut Context<'_, Party>) {
        self.phase = Phase::Opening(Opening { since: context.now(), seen: [const { None }; 3] });
        for peer in 0..NAMES.len() {
            self.open(peer, context);
        }
    }

    fn open(&mut self, peer: usize, context: &mut Context<'_, Party>) {
        self.peers[peer].id = None;
        self.peers[peer].session = self.shared.new_session();
        self.call(peer, Call::Open, context);
    }

    pub(crate) fn tick_opening(&mut self, context: &mut Context<'_, Party>) {
        let Phase::Opening(opening) = &mut self.phase else { return };
        let waited = context.now().saturating_sub(opening.since) >= PATIENCE;
        if self.shared.style.records {
            if opening.seen.iter().all(Option::is_some) || waited {
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

    fn choose(&mut self, context: &mut Context<'_, Party>) {
        let Phase::Opening(opening) = &self.phase else { return };
        let style = self.shared.style;
        let failed = *self.shared.failed.borrow();
        let seen: Vec<Seen> = opening
            .seen
            .iter()
            .zip(failed)
            .map(|(seen, failed)| match seen {
                Some(Ok(_)) if style.records && failed => Seen::Failed("failed before".to_owned()),
                Some(Ok(Return::Opened { counter, rebuilding })) => {
                    Seen::Opened(found(*rebuilding, style.counters.then_some(*counter)))
                }
                Some(Ok(_)) => Seen::Failed("strange".to_owned()),
                Some(Err(why)) => Seen::Unreachable(why.clone()),
                None => Seen::Unreachable("no answer".to_owned()),
            })
            .collect();
        let size = i64::try_from(SIZE).unwrap();
        let rules = StartRules {
            size_bytes: size,
            current_size_bytes: 0,
            upgrade: false,
            revision_counter: style.counters,
            salvage: false,
        };
        let Ok(plan) = choose(&seen, &rules) else { return self.open_all(context) };
        let now = context.now();
        for (peer, verdict) in plan.verdicts.iter().enumerate() {
            self.shared.failed.borrow_mut()[peer] = verdict.is_err();
            self.peers[peer].id = match verdict {
                Ok(()) => Some(self.core.add(now, style.features[peer], Mode::Rw)),
                Err(_) => None,
            };
        }
        let reader = self.peers.iter().find_map(|peer| peer.id);
        self.core.set_reader(reader);
        self.shared.oracle.borrow_mut().engine_back();
        self.shared.count(|tally| tally.starts += 1);
        let (hold, begin) = self.hold(Hold::Changes { flush: true }, context);
        self.phase = Phase::Flushing { hold, begin };
    }
}

fn found(rebuilding: bool, counter: Option<i64>) -> Found {
    Found {
        size_bytes: i64::try_from(SIZE).unwrap(),
        sector_size: 512,
        usable: !rebuilding,
        state: if rebuilding { "rebuilding" } else { "dirty" }.to_owned(),
        counter,
        head_modified_ns: 0,
        head_allocated_bytes: 0,
    }
}
