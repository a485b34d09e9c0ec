//! Snapshots, reverts and expansions in the simulation: takes the steps that the engine's own machine
//! gives, with calls that may be lost and copies that may fail.

use std::collections::VecDeque;
use std::time::Duration;

use engine::core::{Command, Hold, HoldId, Mode, Token};
use engine::machine::outcome::Outcome;
use engine::machine::together::{Done, Event, Order, Step, Together, Undone};
use testkit::sim::Context;

use crate::engine::{Engine, NO_ANSWER};
use crate::jobs::Job;
use crate::message::{Call, Return};
use crate::party::{Party, SIZE};

/// How long requests under way may keep a change from beginning.
pub(crate) const HOLD_LIMIT: Duration = Duration::from_millis(3200);

#[derive(Debug)]
pub(crate) enum What {
    Snapshot {
        name: String,
    },
    Revert {
        name: String,
        /// By which the oracle knows it.
        token: Option<Token>,
    },
    Expand,
}

#[derive(Debug)]
pub(crate) struct Change {
    what: What,
    machine: Together,
    hold: Hold,
    /// What it waits for or has.
    held: Option<HoldId>,
    is_held: bool,
    since: Duration,
    begin: u64,
    record: Option<Token>,
}

impl Change {
    pub(crate) fn is_revert(&self) -> bool {
        matches!(self.what, What::Revert { .. })
    }

    pub(crate) fn is_held_by(&self, hold: HoldId) -> bool {
        !self.is_held && self.held == Some(hold)
    }

    pub(crate) fn awaits(&self, token: Token) -> bool {
        self.record == Some(token)
    }

    fn call(&self) -> Call {
        match &self.what {
            What::Snapshot { name } => Call::Snapshot { name: name.clone(), kept: true },
            What::Revert { name, .. } => Call::Revert { name: name.clone() },
            What::Expand => Call::Expand { size: SIZE },
        }
    }
}

/// How one replica took it.
pub(crate) fn judge(result: Result<Return, String>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(why) if why == NO_ANSWER => Outcome::Lost(why),
        Err(why) => Outcome::Refused(why),
    }
}

impl Engine {
    pub(crate) fn begin_change(&mut self, what: What, context: &mut Context<'_, Party>) {
        let (hold, size) = match what {
            What::Snapshot { .. } => (Hold::Changes { flush: true }, None),
            What::Revert { .. } => (Hold::All, None),
            What::Expand => (Hold::Changes { flush: true }, Some(SIZE as u64)),
        };
        let (machine, first) = Together::begin(Order { hold, filling_too: true, size });
        let since = context.now();
        let change = Change {
            what,
            machine,
            hold,
            held: None,
            is_held: false,
            since,
            begin: 0,
            record: None,
        };
        self.job = Job::Change(Box::new(change));
        self.take_steps(vec![first], context);
    }

    /// Nothing is under way any more.
    pub(crate) fn change_held(&mut self, context: &mut Context<'_, Party>) {
        let Job::Change(change) = &mut self.job else { return };
        change.is_held = true;
        let begin = change.begin;
        let flushed = (change.hold != Hold::All).then_some(begin);
        let (mut name, mut revert) = (None, None);
        match &change.what {
            What::Snapshot { name: taken } => name = Some(taken.clone()),
            What::Revert { name, .. } => revert = Some(name.clone()),
            What::Expand => {}
        }
        self.inspect(flushed);
        if let Some(name) = name {
            self.note_snapshot(&name);
        }
        if let Some(name) = revert {
            let known = self.shared.oracle.borrow_mut().begin_revert(self.own, &name);
            if let Job::Change(change) = &mut self.job
                && let What::Revert { token, .. } = &mut change.what
            {
                *token = Some(known);
            }
        }
        self.on_change(Event::Held(self.members()), context);
    }

    /// Requests under way may never end, where the last replica does not answer.
    pub(crate) fn tick_change(&mut self, context: &mut Context<'_, Party>) {
        let Job::Change(change) = &mut self.job else { return };
        let waited = context.now().saturating_sub(change.since);
        if let Some(hold) = change.held.filter(|_| !change.is_held && waited > HOLD_LIMIT) {
            self.release(hold, context);
            self.on_change(Event::Busy("requests under way did not end".to_owned()), context);
        }
    }

    pub(crate) fn on_change(&mut self, event: Event, context: &mut Context<'_, Party>) {
        if let Job::Change(change) = &mut self.job {
            let steps = change.machine.on(event);
            self.take_steps(steps, context);
        }
    }

    fn take_steps(&mut self, steps: Vec<Step>, context: &mut Context<'_, Party>) {
        let now = context.now();
        let mut steps = VecDeque::from(steps);
        while let Some(step) = steps.pop_front() {
            let event = match step {
                Step::Hold(kind) => {
                    let (hold, begin) = self.hold(kind, context);
                    if let Job::Change(change) = &mut self.job {
                        (change.held, change.begin) = (Some(hold), begin);
                    }
                    continue;
                }
                Step::Ask(id) => {
                    let Job::Change(change) = &self.job else { return };
                    let request = change.call();
                    if let Some(peer) = self.peer_of(id) {
                        self.call(peer, request, context);
                    }
                    continue;
                }
                Step::Fail(id, why) => {
                    self.drive(|core, out| core.set_mode(now, id, Mode::Err, &why, out));
                    continue;
                }
                Step::Release => {
                    let Job::Change(change) = &mut self.job else { return };
                    if let Some(hold) = change.held.take() {
                        self.release(hold, context);
                    }
                    continue;
                }
                Step::Resize(size) => {
                    self.core.resize(size);
                    // The manager hears of it late, perhaps not before the next start.
                    if !self.shared.style.members || context.rng().permille(500) {
                        self.shared.known_size.set(self.size());
                    }
                    Event::Resized(Ok(()))
                }
                Step::Record => {
                    self.submit(Command::Record, context, |engine, token| {
                        if let Job::Change(change) = &mut engine.job {
                            change.record = Some(token);
                        }
                    });
                    continue;
                }
                Step::End(ended) => return self.end_change(&ended),
            };
            let Job::Change(change) = &mut self.job else { return };
            steps.extend(change.machine.on(event));
        }
    }

    fn end_change(&mut self, ended: &Result<Done, Undone>) {
        let Job::Change(change) = std::mem::replace(&mut self.job, Job::Idle) else { return };
        let is_done = ended.is_ok();
        if let What::Revert { token: Some(token), .. } = change.what {
            self.shared.oracle.borrow_mut().end_revert(token, is_done);
        }
        self.shared.count(|tally| {
            tally.busy += u64::from(matches!(ended, Err(Undone::Busy(_))));
            let count = match change.what {
                What::Snapshot { .. } => &mut tally.snapshots,
                What::Revert { .. } => &mut tally.reverts,
                What::Expand => &mut tally.expansions,
            };
            *count += u64::from(is_done);
        });
    }
}
