//! Reads and questions about holes: one replica is asked; if it fails, the next.

use wire::frame::{Request, Run};

use super::changes::wire_offset;
use super::mask::bit;
use super::op::{Kind, Step};
use super::slab::Slot;
use super::{Core, Done, Effect, Fault, Now};

impl Core {
    /// Asks a replica, for the first time or because another failed.
    pub(super) fn read(&mut self, now: Now, slot: Slot, out: &mut Vec<Effect>) {
        let rw = self.members.rw();
        let Some(op) = self.ops.get_mut(slot) else { return };
        op.step = Step::Reading;
        op.frame_len = op.len;
        let (kind, offset, size) = (op.kind, wire_offset(op.offset), op.len);
        if rw == 0 || op.is_abandoned() {
            let fault = self.members.nobody_left();
            return self.end_other(slot, Err(fault), out);
        }
        let is_status = kind == Kind::Status;
        let knowing = if is_status { self.members.with_status() } else { rw };
        match self.members.pick(rw & knowing) {
            Some(place) if is_status => {
                let frame = |sequence, _| Request::Status { sequence, offset, size };
                self.dispatch(now, slot, bit(place), frame, out);
            }
            Some(place) => {
                let frame = |sequence, _| Request::Read { sequence, offset, size };
                self.dispatch(now, slot, bit(place), frame, out);
            }
            // Whoever cannot tell holes has data everywhere.
            None => {
                let runs = vec![Run { len: size, hole: false }];
                self.end_other(slot, Ok(Done::Runs(runs)), out);
            }
        }
    }

    /// A request that changes nothing is over, or a change whose flush is.
    pub(super) fn end_other(
        &mut self,
        slot: Slot,
        result: Result<Done, Fault>,
        out: &mut Vec<Effect>,
    ) {
        self.others = self.others.saturating_sub(1);
        if let Some(op) = self.ops.remove(slot) {
            self.complete(op.token, result, out);
        }
    }
}
