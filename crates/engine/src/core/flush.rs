//! Flushes: one round of flush frames at a time, for all who asked before it began.
//!
//! Who asks while a round is under way waits for the next. A round in which a replica failed is
//! good for nobody: see `barrier`.

use wire::frame::Request;

use super::mask::Mask;
use super::op::{Kind, Op, Step};
use super::slab::Slot;
use super::{Core, Done, Effect, Fault, HoldId, Now};

#[derive(Debug, Clone, Copy)]
enum Waiter {
    Request(Slot),
    Hold(HoldId),
}

#[derive(Debug, Default)]
pub(super) struct Flushes {
    round: Option<Slot>,
    /// A replica failed since the round began.
    spoiled: bool,
    riding: Vec<Waiter>,
    waiting: Vec<Waiter>,
}

impl Flushes {
    pub(super) fn spoil(&mut self) {
        self.spoiled = true;
    }
}

impl Core {
    /// `slot` completes when a flush begun from now on is over.
    pub(super) fn join_flush(&mut self, slot: Slot) {
        if let Some(op) = self.ops.get_mut(slot) {
            op.step = Step::Flushing;
            self.flushes.waiting.push(Waiter::Request(slot));
        }
    }

    pub(super) fn flush_for_hold(&mut self, id: HoldId) {
        self.flushes.waiting.push(Waiter::Hold(id));
    }

    /// Begins a round if one is wanted and may begin.
    pub(super) fn step_flush(&mut self, now: Now, out: &mut Vec<Effect>) -> bool {
        let flushes = &mut self.flushes;
        if flushes.round.is_some() || flushes.waiting.is_empty() || !self.barrier.is_idle() {
            return false;
        }
        std::mem::swap(&mut flushes.waiting, &mut flushes.riding);
        flushes.spoiled = false;
        let slot = self.ops.insert(Op { step: Step::Applying, ..Op::inner(Kind::Round) });
        self.flushes.round = Some(slot);
        let to = self.members.with_flush();
        self.dispatch(now, slot, to, |sequence, _| Request::Flush { sequence }, out);
        true
    }

    pub(super) fn end_round(&mut self, slot: Slot, out: &mut Vec<Effect>) {
        self.ops.remove(slot);
        let flushes = &mut self.flushes;
        flushes.round = None;
        let mut riding = std::mem::take(&mut flushes.riding);
        if flushes.spoiled && self.members.rw() != 0 {
            riding.append(&mut flushes.waiting);
            flushes.waiting = riding;
            return;
        }
        for waiter in riding.drain(..) {
            match waiter {
                Waiter::Request(slot) => self.flushed(slot, out),
                Waiter::Hold(id) => {
                    if self.gate.flushed(id) {
                        out.push(Effect::Held(id));
                    }
                }
            }
        }
        // Keep its memory for the next round.
        if self.flushes.riding.capacity() == 0 {
            self.flushes.riding = riding;
        }
    }

    fn flushed(&mut self, slot: Slot, out: &mut Vec<Effect>) {
        let rw = self.members.rw();
        let Some(op) = self.ops.get_mut(slot) else { return };
        let result = op.result.take();
        let kept: Mask = if op.kind == Kind::Flush { rw } else { op.targets & rw };
        let result: Result<Done, Fault> = match result {
            _ if kept == 0 => Err(self.members.nobody_left()),
            Some(result) => result,
            None => Ok(Done::Count(0)),
        };
        self.end_other(slot, result, out);
    }
}
