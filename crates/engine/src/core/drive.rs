//! The inner loop: sends frames, takes answers, settles what is over, deals with failures.

use bytes::Bytes;
use rpc::Features;
use wire::frame;

use super::answer::{self, Verdict};
use super::barrier::Cause;
use super::gate::Advance;
use super::mask::{Mask, bit, places};
use super::op::{Kind, Op, Step};
use super::slab::Slot;
use super::{Core, Done, Effect, Fault, Now, Token, Work};

impl Core {
    /// Goes on until nothing is left that can be done without an answer.
    pub(super) fn run(&mut self, now: Now, out: &mut Vec<Effect>) {
        loop {
            while let Some(work) = self.work.pop_front() {
                match work {
                    Work::Enter(slot) => self.enter(now, slot, out),
                    Work::Begin(slot) => self.begin_change(now, slot, out),
                    Work::Settle(slot) => self.settle(now, slot, out),
                }
            }
            let moved =
                self.step_mark(now, out) || self.step_flush(now, out) || self.step_hold(out);
            if !moved && self.work.is_empty() {
                return;
            }
        }
    }

    /// A request is past the gate.
    pub(super) fn enter(&mut self, now: Now, slot: Slot, out: &mut Vec<Effect>) {
        let Some(op) = self.ops.get(slot) else { return };
        if op.is_abandoned() {
            self.ops.remove(slot);
            return;
        }
        match op.kind {
            Kind::Write | Kind::Zero | Kind::Unmap | Kind::Mend => {
                self.enter_change(now, slot, out);
            }
            Kind::Read | Kind::Status => {
                self.others = self.others.saturating_add(1);
                self.read(now, slot, out);
            }
            Kind::Flush => {
                self.others = self.others.saturating_add(1);
                self.join_flush(slot);
            }
            Kind::Record => self.enter_record(slot, out),
            // The core's own are begun where they are made.
            Kind::Mark | Kind::Round | Kind::Ping => {}
        }
    }

    /// Sends a frame for `slot` to each of `to`; when all are over, it is settled.
    pub(super) fn dispatch(
        &mut self,
        now: Now,
        slot: Slot,
        to: Mask,
        frame: impl Fn(u32, Features) -> frame::Request,
        out: &mut Vec<Effect>,
    ) {
        // One may have failed since the targets were chosen.
        let to = to & self.members.live();
        let sequence = self.ops.renew(slot);
        let Some(op) = self.ops.get_mut(slot) else { return };
        (op.awaiting, op.done, op.full, op.sent) = (to, 0, 0, now);
        op.reached.clear();
        for place in places(to) {
            if let Some((replica, features)) = self.members.sent(place, now) {
                out.push(Effect::Send { replica, request: frame(sequence, features) });
            }
        }
        if to == 0 {
            self.work.push_back(Work::Settle(slot));
        }
    }

    pub(super) fn take_answer(
        &mut self,
        now: Now,
        place: usize,
        answer: frame::Answer,
        out: &mut Vec<Effect>,
    ) {
        let sequence = answer.sequence;
        let Some((slot, op)) =
            self.ops.find(sequence).filter(|(_, op)| op.awaiting & bit(place) != 0)
        else {
            let reason = format!("answered request {sequence}, which it was not asked");
            return self.fail(place, &reason, out);
        };
        op.awaiting &= !bit(place);
        let (step, is_mark) = (op.step, op.kind == Kind::Mark);
        // The answers to a discard and to a write that found no room say something by it.
        let layout = answer.offset;
        let verdict = answer::judge(op, answer.outcome);
        if op.kind == Kind::Ping {
            self.members.ponged(place);
        } else {
            self.members.answered(place, now);
        }
        match verdict {
            Verdict::Data(data) if step == Step::Fetching => {
                return self.fetched(now, slot, data, out);
            }
            Verdict::Data(data) => return self.end_other(slot, Ok(Done::Data(data)), out),
            Verdict::Runs(runs) => return self.end_other(slot, Ok(Done::Runs(runs)), out),
            Verdict::Done(count) => {
                let tells = self.members.with_discard() & bit(place) != 0;
                if let Some(op) = self.ops.get_mut(slot) {
                    op.done |= bit(place);
                    op.unmapped(count, tells.then_some(layout));
                }
            }
            Verdict::Full => self.ran_full(slot, place, layout),
            // A peer of another kind may not know what to do with a mark.
            Verdict::Bad(_) if is_mark && self.members.with_flush() & bit(place) == 0 => {}
            Verdict::Bad(reason) => self.fail(place, &reason, out),
        }
        if self.ops.get(slot).is_some_and(|op| op.awaiting == 0) {
            self.work.push_back(Work::Settle(slot));
        }
    }

    pub(super) fn settle(&mut self, now: Now, slot: Slot, out: &mut Vec<Effect>) {
        let Some(op) = self.ops.get(slot) else { return };
        match op.kind {
            Kind::Read | Kind::Status => self.read(now, slot, out),
            Kind::Write | Kind::Zero | Kind::Unmap | Kind::Mend => {
                if op.step == Step::Fetching {
                    self.next_piece(now, slot, out);
                } else {
                    self.settle_piece(now, slot, out);
                }
            }
            Kind::Mark => self.end_mark(slot, out),
            Kind::Round => self.end_round(slot, out),
            Kind::Ping => {
                self.ops.remove(slot);
            }
            Kind::Flush | Kind::Record => {}
        }
    }

    /// A replica is at fault: it is `Err` from now on.
    pub(super) fn fail(&mut self, place: usize, reason: &str, out: &mut Vec<Effect>) {
        if let Some(replica) = self.members.fail(place, reason) {
            out.push(Effect::Failed { replica, reason: reason.to_owned() });
            self.forget(place);
        }
    }

    /// Nothing more is expected of a replica.
    pub(super) fn forget(&mut self, place: usize) {
        self.barrier.close(Cause::Failure);
        self.flushes.spoil();
        for (slot, op) in self.ops.iter_mut() {
            if op.awaiting & bit(place) != 0 {
                op.awaiting &= !bit(place);
                if op.awaiting == 0 {
                    self.work.push_back(Work::Settle(slot));
                }
            }
        }
    }

    /// Sends the mark that a failure calls for, once all that was under way then is over.
    pub(super) fn step_mark(&mut self, now: Now, out: &mut Vec<Effect>) -> bool {
        // Under a hold counters are compared and copied; they must not move.
        if self.gate.is_in_force() {
            return false;
        }
        let Some(cause) = self.barrier.begin_mark() else { return false };
        let slot = self.ops.insert(Op { step: Step::Applying, ..Op::inner(Kind::Mark) });
        self.changes = self.changes.saturating_add(1);
        // A write of nothing: it changes nothing anywhere, and replicas count it. Where all keep
        // records their counts are those of the clients' writes alone.
        let record = self.next_record();
        let (rw, keeping) = (self.members.rw(), self.members.with_membership());
        let keeping = if record.is_some() { keeping } else { 0 };
        let counting = cause == Cause::Failure && rw & !keeping != 0;
        let to = if counting { rw } else { rw & keeping };
        let frame = |sequence, features: Features| match &record {
            Some(data) if features.has(Features::MEMBERSHIP) => {
                frame::Request::Record { sequence, mark: counting, data: data.clone() }
            }
            Some(_) | None => frame::Request::Write { sequence, offset: 0, data: Bytes::new() },
        };
        self.dispatch(now, slot, to, frame, out);
        true
    }

    pub(super) fn end_mark(&mut self, slot: Slot, out: &mut Vec<Effect>) {
        // One that had no room for a record does not know who counts: nothing may be acknowledged
        // by it, were it the last.
        let full = self.ops.remove(slot).map_or(0, |op| op.full);
        for place in places(full & self.members.with_membership()) {
            self.fail(place, frame::NO_SPACE_TEXT, out);
        }
        self.changes = self.changes.saturating_sub(1);
        for slot in self.barrier.end_mark() {
            self.finish_change(slot, out);
        }
    }

    pub(super) fn step_hold(&mut self, out: &mut Vec<Effect>) -> bool {
        match self.gate.advance(self.changes, self.others) {
            Advance::Nothing => return false,
            Advance::Flush(id) => self.flush_for_hold(id),
            Advance::Held(id) => out.push(Effect::Held(id)),
        }
        true
    }

    pub(super) fn complete(
        &mut self,
        token: Option<Token>,
        result: Result<Done, Fault>,
        out: &mut Vec<Effect>,
    ) {
        if let Some(token) = token {
            self.open = self.open.saturating_sub(1);
            out.push(Effect::Complete { token, result });
        }
    }
}
