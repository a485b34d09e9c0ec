//! What time does: pings, and what becomes of replicas that do not answer.
//!
//! A replica that owes answers and gives none is at fault, unless it is the last that can be read:
//! then the clients are told after twice the time, and it may still answer.

use wire::frame::Request;

use super::mask::{Mask, bit, places};
use super::op::{Kind, Op, Step};
use super::{Core, Effect, Fault, Now};

const TEXT: &str = "r/w timeout";
/// A request may be overtaken by others for this many times the timeout.
const OVERTAKEN_MAX: u32 = 4;

impl Core {
    pub(super) fn check_silence(&mut self, now: Now, out: &mut Vec<Effect>) {
        let timeout = self.settings.replica_timeout;
        for place in self.members.silent(now, timeout) {
            if self.members.rw() != bit(place) {
                self.fail(place, TEXT, out);
            }
        }
        let last = self.members.rw();
        let long = timeout.saturating_mul(2);
        if last.is_power_of_two()
            && self.members.silent(now, long).into_iter().any(|place| bit(place) == last)
        {
            self.abandon(out, |op| now.saturating_sub(op.asked) >= long);
        }
        self.check_overtaken(now, out);
    }

    /// Requests that one replica never answers although it answers others.
    fn check_overtaken(&mut self, now: Now, out: &mut Vec<Effect>) {
        let limit = self.settings.replica_timeout.saturating_mul(OVERTAKEN_MAX);
        let is_overtaken = |op: &Op| op.awaiting != 0 && now.saturating_sub(op.sent) >= limit;
        let guilty = self
            .ops
            .iter_mut()
            .filter(|(_, op)| op.kind != Kind::Ping && is_overtaken(op))
            .fold(0 as Mask, |guilty, (_, op)| guilty | op.awaiting);
        for place in places(guilty) {
            if self.members.rw() != bit(place) {
                self.fail(place, TEXT, out);
            }
        }
        if guilty & self.members.rw() != 0 {
            // Others wait for one of those: behind it at the same place, or for a record to be kept.
            let waits = |op: &Op| op.awaiting == 0 && now.saturating_sub(op.asked) >= limit;
            self.abandon(out, |op| is_overtaken(op) || waits(op));
        }
    }

    /// Tells clients that their requests failed. What is under way stays so until it is answered,
    /// and keeps its place in the volume: it may still be done.
    fn abandon(&mut self, out: &mut Vec<Effect>, is_overdue: impl Fn(&Op) -> bool) {
        let mut tokens = vec![];
        for (_, op) in self.ops.iter_mut().filter(|(_, op)| is_overdue(op)) {
            tokens.extend(op.token.take());
            if matches!(op.step, Step::Held | Step::Waiting) {
                op.data.clear();
            }
        }
        for token in tokens {
            self.complete(Some(token), Err(Fault::Io(TEXT.to_owned())), out);
        }
    }

    pub(super) fn send_pings(&mut self, now: Now, out: &mut Vec<Effect>) {
        for place in places(self.members.live()) {
            let Some(id) = self.members.ping(place, now, self.settings.ping_interval) else {
                continue;
            };
            let awaiting = bit(place);
            let op = Op { awaiting, step: Step::Applying, ..Op::inner(Kind::Ping) };
            let slot = self.ops.insert(op);
            let sequence = self.ops.renew(slot);
            out.push(Effect::Send { replica: id, request: Request::Ping { sequence } });
        }
    }
}
