//! Rebuilds in the simulation: takes the steps that the engine's own machines give, with calls that may
//! be lost and copies that may fail.

use std::time::Duration;

use engine::core::{Command, Hold, HoldId, Mode, Token};
use engine::machine::rebuild::{
    Compared, Join, JoinEvent, JoinStep, Rebuild, Step, Verified, Verify, VerifyEvent, VerifyStep,
};
use testkit::sim::Context;

use crate::change::{HOLD_LIMIT, judge};
use crate::engine::Engine;
use crate::jobs::Job;
use crate::message::{Call, Return};
use crate::party::{NAMES, Party};
use crate::store::SECTOR;

/// Bytes copied at a time.
const CHUNK: usize = 4 * SECTOR;
const TRIES: usize = 4;

#[derive(Debug)]
pub(crate) struct Filling {
    pub(crate) target: usize,
    /// The snapshot that is copied.
    name: String,
    machine: Rebuild,
    part: Part,
    held: Option<HoldId>,
    is_held: bool,
    since: Duration,
    begin: u64,
    record: Option<Token>,
}

#[derive(Debug)]
enum Part {
    Opening,
    Joining(Join),
    /// The target is told that it is being rebuilt.
    Marking,
    Fetching {
        offset: usize,
        tries: usize,
    },
    Storing {
        offset: usize,
    },
    Verifying(Verify),
}

impl Filling {
    pub(crate) fn is_held_by(&self, hold: HoldId) -> bool {
        !self.is_held && self.held == Some(hold)
    }

    /// It is a member, and nobody keeps others from changing the set.
    pub(crate) fn is_copying(&self) -> bool {
        matches!(self.part, Part::Marking | Part::Fetching { .. } | Part::Storing { .. })
    }

    pub(crate) fn awaits(&self, token: Token) -> bool {
        self.record == Some(token)
    }
}

impl Engine {
    fn filling(&mut self) -> Option<&mut Filling> {
        match &mut self.job {
            Job::Rebuild(filling) => Some(filling),
            Job::Idle | Job::Check { .. } | Job::Change(_) | Job::Restore(_) | Job::Show(_) => None,
        }
    }

    pub(crate) fn begin_filling(&mut self, target: usize, context: &mut Context<'_, Party>) {
        let now = context.now();
        if let Some(id) = self.peers[target].id.take() {
            self.drive(|core, out| core.remove(now, id, out));
        }
        let session = self.shared.new_session();
        self.peers[target].session = session;
        let (machine, _) = Rebuild::begin();
        self.job = Job::Rebuild(Box::new(Filling {
            target,
            name: format!("rebuild-{session}"),
            machine,
            part: Part::Opening,
            held: None,
            is_held: false,
            since: now,
            begin: 0,
            record: None,
        }));
        let size = self.size();
        self.call(target, Call::Prepare { size }, context);
    }

    fn set_part(&mut self, part: Part) {
        if let Some(filling) = self.filling() {
            filling.part = part;
        }
    }

    /// How a part of it ended, and what follows.
    fn part_ended(&mut self, ended: Result<(), String>, context: &mut Context<'_, Party>) {
        let mut ended = ended;
        loop {
            let Some(filling) = self.filling() else { return };
            let target = filling.target;
            let steps = filling.machine.on(ended);
            if steps.is_empty() {
                return;
            }
            ended = Ok(());
            for step in steps {
                match step {
                    // What is to be copied is read as it is copied, and taken for its own at the end.
                    Step::Join | Step::Reload => {}
                    Step::Prepare => {
                        self.set_part(Part::Marking);
                        self.call(target, Call::Mark { rebuilding: true }, context);
                        if self.may_purge() && context.rng().permille(250) {
                            self.begin_purge(context);
                        }
                        return;
                    }
                    Step::Copy => return self.fetch(0, 0, context),
                    Step::Verify => {
                        let (machine, first) = Verify::begin(true);
                        self.set_part(Part::Verifying(machine));
                        return self.take_verify_steps(vec![first], context);
                    }
                    Step::GiveUp(_) => {
                        let now = context.now();
                        if let Some(id) = self.peers[target].id.take() {
                            self.drive(|core, out| core.remove(now, id, out));
                        }
                    }
                    Step::End(ended) => {
                        self.job = Job::Idle;
                        if ended.is_ok() {
                            self.shared.count(|tally| tally.rebuilds += 1);
                        }
                        return;
                    }
                }
            }
        }
    }

    pub(crate) fn filling_returned(
        &mut self,
        peer: usize,
        result: Result<Return, String>,
        context: &mut Context<'_, Party>,
    ) {
        let id = self.peers[peer].id;
        let Some(filling) = self.filling() else { return };
        let is_target = peer == filling.target;
        let target = filling.target;
        match (&filling.part, result) {
            (Part::Opening, Ok(_)) => {
                let (machine, first) = Join::begin();
                self.set_part(Part::Joining(machine));
                self.take_join_steps(vec![first], context);
            }
            (Part::Joining(_), Ok(Return::Marked)) => {
                self.on_join(JoinEvent::Disqualified(Ok(())), context);
            }
            (Part::Joining(_), result) if is_target => {
                // It waits for the one or for the other.
                let outcome = judge(result);
                let failure = outcome.text().map(ToOwned::to_owned);
                self.on_join(JoinEvent::NewAnswered(outcome), context);
                if let Some(why) = failure {
                    self.on_join(JoinEvent::Disqualified(Err(why)), context);
                }
            }
            (Part::Joining(_), result) => {
                if let Some(id) = id {
                    self.on_join(JoinEvent::Answered(id, judge(result)), context);
                }
            }
            (Part::Fetching { offset, .. }, Ok(Return::Data(data))) => {
                let offset = *offset;
                self.set_part(Part::Storing { offset });
                self.call(target, Call::Store { offset, data }, context);
            }
            (Part::Fetching { offset, tries }, Err(_)) if *tries < TRIES => {
                let (offset, tries) = (*offset, *tries + 1);
                self.fetch(offset, tries, context);
            }
            (Part::Storing { offset }, Ok(_)) => {
                let offset = *offset + CHUNK;
                if offset < self.size() {
                    self.fetch(offset, 0, context);
                } else {
                    self.part_ended(Ok(()), context);
                }
            }
            (Part::Verifying(_), Ok(Return::Counter { counter, layers })) => {
                self.call(target, Call::Finish { counter, layers }, context);
            }
            (Part::Verifying(_), Ok(Return::Marked)) => {
                self.on_verify(VerifyEvent::Unmarked, context);
            }
            (Part::Verifying(_), result) => {
                // It waits for the one or for the other.
                let is_lost = result.is_err();
                let compared = match result {
                    Ok(_) => Compared::Alike,
                    Err(_) if is_target => Compared::Differs,
                    Err(_) => Compared::Unknown,
                };
                self.on_verify(VerifyEvent::Compared(compared), context);
                if is_lost {
                    self.on_verify(VerifyEvent::NotUnmarked, context);
                }
            }
            (_, result) => self.part_ended(result.map(|_| ()), context),
        }
    }

    fn fetch(&mut self, offset: usize, tries: usize, context: &mut Context<'_, Party>) {
        let sources = self.readable();
        let Some(filling) = self.filling() else { return };
        let name = filling.name.clone();
        match context.rng().choose(&sources) {
            Some(source) => {
                self.set_part(Part::Fetching { offset, tries });
                self.call(*source, Call::Fetch { name, offset, len: CHUNK }, context);
            }
            None => self.part_ended(Err("no source".to_owned()), context),
        }
    }

    /// Nothing is under way any more.
    pub(crate) fn filling_held(&mut self, context: &mut Context<'_, Party>) {
        let Some(filling) = self.filling() else { return };
        filling.is_held = true;
        let (begin, name) = (filling.begin, filling.name.clone());
        let joins = matches!(filling.part, Part::Joining(_));
        self.inspect(Some(begin));
        if joins {
            self.note_snapshot(&name);
            self.on_join(JoinEvent::Held(self.members()), context);
        } else {
            self.on_verify(VerifyEvent::Held, context);
        }
    }

    /// Requests under way may never end, where the last replica does not answer.
    pub(crate) fn tick_filling(&mut self, context: &mut Context<'_, Party>) {
        let now = context.now();
        let Some(filling) = self.filling() else { return };
        let is_late = now.saturating_sub(filling.since) > HOLD_LIMIT;
        let Some(hold) = filling.held.filter(|_| is_late && !filling.is_held) else { return };
        let joins = matches!(filling.part, Part::Joining(_));
        self.release(hold, context);
        self.shared.count(|tally| tally.busy += 1);
        if joins {
            self.on_join(JoinEvent::Busy("requests under way did not end".to_owned()), context);
        } else {
            self.on_verify(VerifyEvent::Busy, context);
        }
    }

    fn on_join(&mut self, event: JoinEvent, context: &mut Context<'_, Party>) {
        if let Some(Filling { part: Part::Joining(machine), .. }) = self.filling() {
            let steps = machine.on(event);
            self.take_join_steps(steps, context);
        }
    }

    fn take_join_steps(&mut self, steps: Vec<JoinStep>, context: &mut Context<'_, Party>) {
        let now = context.now();
        for step in steps {
            let Some(filling) = self.filling() else { return };
            let (target, name) = (filling.target, filling.name.clone());
            let snapshot = Call::Snapshot { name, kept: false };
            match step {
                JoinStep::Hold(hold) => self.hold_filling(hold, context),
                JoinStep::AskNew => self.call(target, snapshot, context),
                JoinStep::Ask(id) => {
                    if let Some(peer) = self.peer_of(id) {
                        self.call(peer, snapshot, context);
                    }
                }
                JoinStep::Fail(id, why) => {
                    self.drive(|core, out| core.set_mode(now, id, Mode::Err, &why, out));
                }
                JoinStep::Disqualify => {
                    // One that keeps no standing is marked as it is prepared.
                    if self.shared.stores[target].borrow().standing.is_none() {
                        return self.on_join(JoinEvent::Disqualified(Ok(())), context);
                    }
                    self.call(target, Call::Mark { rebuilding: true }, context);
                }
                JoinStep::Attach => {
                    let features = self.shared.style.features[target];
                    let id = self.core.add(now, features, Mode::Wo);
                    let standing = self.shared.stores[target].borrow().standing.clone();
                    let name = standing.map_or(NAMES[target].to_owned(), |standing| standing.id);
                    self.core.set_name(id, name);
                    self.peers[target].id = Some(id);
                    return self.on_join(JoinEvent::Attached(Ok(())), context);
                }
                JoinStep::Release => self.release_filling(context),
                JoinStep::End(ended) => {
                    self.part_ended(ended.map_err(|why| format!("{why:?}")), context);
                }
            }
        }
    }

    fn on_verify(&mut self, event: VerifyEvent, context: &mut Context<'_, Party>) {
        if let Some(Filling { part: Part::Verifying(machine), .. }) = self.filling() {
            let steps = machine.on(event);
            self.take_verify_steps(steps, context);
        }
    }

    fn take_verify_steps(&mut self, steps: Vec<VerifyStep>, context: &mut Context<'_, Party>) {
        let now = context.now();
        for step in steps {
            let Some(filling) = self.filling() else { return };
            let target = filling.target;
            match step {
                VerifyStep::Hold(hold) => self.hold_filling(hold, context),
                VerifyStep::Compare => {
                    let Some(source) = self.readable().first().copied() else {
                        let event = VerifyEvent::Compared(Compared::Unknown);
                        return self.on_verify(event, context);
                    };
                    self.call(source, Call::Counter, context);
                }
                VerifyStep::Unmark => {
                    self.call(target, Call::Mark { rebuilding: false }, context);
                }
                VerifyStep::Fail => {
                    if let Some(id) = self.peers[target].id {
                        self.drive(|core, out| core.set_mode(now, id, Mode::Err, "differs", out));
                    }
                }
                VerifyStep::MakeReadable => {
                    if let Some(id) = self.peers[target].id {
                        self.drive(|core, out| core.set_mode(now, id, Mode::Rw, "", out));
                    }
                    // The manager sees its mode, not the end of the rebuild.
                    if self.mode(target) == Some(Mode::Rw) {
                        self.shared.failed.borrow_mut()[target] = false;
                    }
                }
                VerifyStep::Release => {
                    self.inspect(None);
                    self.release_filling(context);
                }
                VerifyStep::Record => self.submit(Command::Record, context, |engine, token| {
                    if let Some(filling) = engine.filling() {
                        filling.record = Some(token);
                    }
                }),
                VerifyStep::End(verified) => {
                    let is_whole =
                        verified == Verified::Whole && self.mode(target) == Some(Mode::Rw);
                    let ended = is_whole.then_some(()).ok_or_else(|| "not verified".to_owned());
                    self.part_ended(ended, context);
                }
            }
        }
    }

    /// What was to be on disk is there, or not; it is whole in any case.
    pub(crate) fn filling_recorded(&mut self, context: &mut Context<'_, Party>) {
        self.on_verify(VerifyEvent::Recorded, context);
    }

    fn hold_filling(&mut self, kind: Hold, context: &Context<'_, Party>) {
        let (hold, begin) = self.hold(kind, context);
        let now = context.now();
        if let Some(filling) = self.filling() {
            (filling.held, filling.is_held) = (Some(hold), false);
            (filling.since, filling.begin) = (now, begin);
        }
    }

    fn release_filling(&mut self, context: &Context<'_, Party>) {
        if let Some(hold) = self.filling().and_then(|filling| filling.held.take()) {
            self.release(hold, context);
        }
    }

    /// The target failed while it was copied to.
    pub(crate) fn filling_lost(&mut self, peer: usize, context: &mut Context<'_, Party>) {
        let Some(filling) = self.filling() else { return };
        if filling.target == peer && filling.is_copying() {
            self.part_ended(Err("it failed".to_owned()), context);
        }
    }
}
