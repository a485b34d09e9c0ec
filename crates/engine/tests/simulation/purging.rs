//! Purges in the simulation: takes the steps that the engine's own machine gives, beside whatever else is
//! under way; the copies go on by themselves.

use std::collections::BTreeMap;

use engine::machine::purge::{Event, Purge, Step, View};
use testkit::sim::Context;

use crate::engine::{Engine, Phase};
use crate::jobs::Job;
use crate::message::{Call, Return};
use crate::party::{NAMES, Party};

#[derive(Debug)]
pub(crate) struct Purging {
    machine: Purge,
    /// By the number of the call.
    waiting: BTreeMap<u64, (usize, Awaits)>,
}

#[derive(Debug, Clone, Copy)]
enum Awaits {
    Look,
    Answer,
    LookAgain,
}

impl Purging {
    pub(crate) fn awaits(&self, call: u64) -> bool {
        self.waiting.contains_key(&call)
    }
}

impl Engine {
    /// Where the set of replicas does not change just now.
    pub(crate) fn may_purge(&self) -> bool {
        let is_free = match &self.job {
            Job::Idle => true,
            Job::Rebuild(filling) => filling.is_copying(),
            Job::Check { .. } | Job::Change(_) | Job::Restore(_) | Job::Show(_) => false,
        };
        let is_serving = matches!(self.phase, Phase::Serving);
        is_free && is_serving && self.purging.is_none()
    }

    pub(crate) fn begin_purge(&mut self, context: &mut Context<'_, Party>) {
        let (machine, first) = Purge::begin(context.rng().permille(500), self.members());
        self.purging = Some(Box::new(Purging { machine, waiting: BTreeMap::new() }));
        self.take_purge_steps(first, context);
    }

    fn take_purge_steps(&mut self, steps: Vec<Step>, context: &mut Context<'_, Party>) {
        for step in steps {
            let (id, awaits, request) = match step {
                Step::Look(id) => (id, Awaits::Look, Call::View),
                Step::Ask(id) => {
                    self.check_nobody_is_filled();
                    (id, Awaits::Answer, Call::Purge)
                }
                Step::LookAgain(id) => (id, Awaits::LookAgain, Call::View),
                Step::End(ended) => {
                    self.purging = None;
                    let is_begun = ended.is_ok_and(|left| left.is_empty());
                    return self.shared.count(|tally| tally.purges += u64::from(is_begun));
                }
            };
            let Some(peer) = self.peer_of(id) else {
                // It was removed meanwhile: nobody waits for the rest.
                self.purging = None;
                return;
            };
            let call = self.call_numbered(peer, request, context);
            if let Some(purging) = &mut self.purging {
                purging.waiting.insert(call, (peer, awaits));
            }
        }
    }

    /// What a copy is filled with stays in the files that are read for it.
    fn check_nobody_is_filled(&self) {
        if let Job::Rebuild(filling) = &self.job {
            let target = NAMES[filling.target];
            let what = format!("what {target} is being filled with is merged away");
            self.shared.oracle.borrow_mut().complain(what);
        }
    }

    pub(crate) fn purge_returned(
        &mut self,
        call: u64,
        result: Result<Return, String>,
        context: &mut Context<'_, Party>,
    ) {
        let Some(purging) = &mut self.purging else { return };
        let Some((peer, awaits)) = purging.waiting.remove(&call) else { return };
        let Some(id) = self.peers[peer].id else {
            self.purging = None;
            return;
        };
        let event = match (awaits, result) {
            (Awaits::Look, Ok(Return::View(view))) => {
                // One that keeps no standing is marked a while after it has joined.
                let is_filled = matches!(&self.job, Job::Rebuild(it) if it.target == peer);
                let is_rebuilding = view.is_rebuilding || is_filled;
                Event::Looked(id, Ok(View { is_rebuilding, is_purging: view.is_purging }))
            }
            (Awaits::Look, result) => {
                Event::Looked(id, Err(result.err().unwrap_or_else(|| "strange".to_owned())))
            }
            (Awaits::Answer, result) => Event::Answered(id, result.map(|_| ())),
            (Awaits::LookAgain, result) => {
                let is_purging = matches!(result, Ok(Return::View(view)) if view.is_purging);
                Event::LookedAgain(id, is_purging)
            }
        };
        let Some(purging) = &mut self.purging else { return };
        let steps = purging.machine.on(event);
        self.take_purge_steps(steps, context);
    }
}
