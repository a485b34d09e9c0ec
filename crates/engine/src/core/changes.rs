//! Changes: writes, zeroes, unmaps and mends, piece by piece to all replicas.
//!
//! Most changes are one piece: one frame to each replica. While a replica is being rebuilt, parts
//! of a sector are written as the whole sector, the rest of which is read first; zeros for replicas
//! that know no zero frame and mends go in pieces of bounded size.

use bytes::{Bytes, BytesMut};
use rpc::Features;
use wire::frame::{self, Request};

use super::mask::{Mask, bit, places};
use super::op::{Kind, Op, Step};
use super::slab::Slot;
use super::{Core, Done, Effect, Fault, Now, Work};

/// The unit in which replicas hold data.
pub(crate) const SECTOR: u64 = 4096;
/// Longest piece of zeros that are written as such, and of a mend.
const PIECE_MAX: u64 = 1 << 20;
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// What is to be done next for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Conclude,
    /// Read this range, then write it as it is to be.
    Fetch {
        start: u64,
        end: u64,
    },
    /// Send the part up to here as it came.
    Apply {
        end: u64,
    },
}

/// What the plan for a change depends on besides itself.
#[derive(Debug, Clone, Copy)]
struct Terms {
    size: u64,
    whole_sectors: bool,
    all_know_zero: bool,
}

pub(super) fn sector_start(offset: u64) -> u64 {
    offset & !(SECTOR - 1)
}

pub(super) fn sector_end(offset: u64) -> u64 {
    offset.saturating_add(SECTOR - 1) & !(SECTOR - 1)
}

/// The whole sectors a change touches.
pub(super) fn outer_range(op: &Op) -> (u64, u64) {
    (sector_start(op.offset), sector_end(op.end()))
}

fn plan(kind: Kind, at: u64, end: u64, terms: Terms) -> Next {
    if at >= end {
        return Next::Conclude;
    }
    let volume_end = terms.size.max(end);
    let limit = at.saturating_add(PIECE_MAX).min(end);
    match kind {
        Kind::Mend => {
            let end = sector_end(limit).min(volume_end);
            Next::Fetch { start: sector_start(at), end }
        }
        Kind::Write | Kind::Zero if terms.whole_sectors && is_partial(at, end, volume_end) => {
            let start = sector_start(at);
            Next::Fetch { start, end: start.saturating_add(SECTOR).min(volume_end) }
        }
        Kind::Zero if !terms.all_know_zero => {
            Next::Apply { end: whole(limit, volume_end, terms.whole_sectors) }
        }
        Kind::Write | Kind::Zero => {
            Next::Apply { end: whole(end, volume_end, terms.whole_sectors) }
        }
        Kind::Unmap => Next::Apply { end },
        Kind::Read
        | Kind::Status
        | Kind::Flush
        | Kind::Record
        | Kind::Mark
        | Kind::Round
        | Kind::Ping => Next::Conclude,
    }
}

/// Whether the change at `at` begins with less than a sector.
fn is_partial(at: u64, end: u64, volume_end: u64) -> bool {
    let sector_end = sector_start(at).saturating_add(SECTOR).min(volume_end);
    at != sector_start(at) || end < sector_end
}

/// The end of the last whole sector before `end`, if sectors must be whole.
fn whole(end: u64, volume_end: u64, whole_sectors: bool) -> u64 {
    if whole_sectors && end != volume_end { sector_start(end) } else { end }
}

/// How the answers of all replicas to one piece are to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done { fail: Mask },
    NoSpace { fail: Mask },
    Nobody,
}

/// Some full: those are at fault. All that can be read full: the volume is, and of those none is.
fn weigh(done: Mask, full: Mask, rw: Mask) -> Outcome {
    if done & rw != 0 {
        Outcome::Done { fail: full }
    } else if full & rw != 0 {
        Outcome::NoSpace { fail: full & !rw }
    } else {
        Outcome::Nobody
    }
}

impl Core {
    /// Lets a change begin, or wait for those of the same place.
    pub(super) fn enter_change(&mut self, now: Now, slot: Slot, out: &mut Vec<Effect>) {
        self.changes = self.changes.saturating_add(1);
        let Some(op) = self.ops.get(slot) else { return };
        let (start, end) = outer_range(op);
        let mut blockers = 0_u32;
        let ops = &mut self.ops;
        self.locks.claim(start, end, slot, |blocker| {
            if let Some(op) = ops.get_mut(blocker) {
                op.blocked.push(slot);
                blockers = blockers.saturating_add(1);
            }
        });
        let Some(op) = self.ops.get_mut(slot) else { return };
        op.blockers = blockers;
        op.step = Step::Waiting;
        if blockers == 0 {
            self.begin_change(now, slot, out);
        }
    }

    pub(super) fn begin_change(&mut self, now: Now, slot: Slot, out: &mut Vec<Effect>) {
        let epoch = self.barrier.join();
        let (live, rebuilding) = (self.members.live(), self.members.wo() != 0);
        let expanding = self.expanding;
        let Some(op) = self.ops.get_mut(slot) else { return };
        (op.epoch, op.targets, op.cursor) = (epoch, live, op.offset);
        if op.kind == Kind::Unmap && expanding {
            let (len, offset) = (op.len, op.offset);
            let text = format!(
                "cannot unmap {len} bytes at offset {offset} while expansion in is progress"
            );
            self.conclude(now, slot, Err(Fault::Refused(text)), out);
        } else if op.kind == Kind::Unmap && rebuilding {
            self.conclude(now, slot, Ok(Done::Count(0)), out);
        } else {
            self.next_piece(now, slot, out);
        }
    }

    /// Goes on with a change after what was done of it.
    pub(super) fn next_piece(&mut self, now: Now, slot: Slot, out: &mut Vec<Effect>) {
        if self.ops.get(slot).is_some_and(Op::is_evening) {
            return self.next_even(now, slot, out);
        }
        let (rw, wo, zero) = (self.members.rw(), self.members.wo(), self.members.with_zero());
        let size = self.size;
        let Some(op) = self.ops.get_mut(slot) else { return };
        op.targets &= rw | wo;
        let terms = Terms {
            size,
            whole_sectors: op.targets & wo != 0,
            all_know_zero: op.targets & !zero == 0,
        };
        if op.is_abandoned() {
            return self.conclude(now, slot, Ok(Done::Count(0)), out);
        }
        let next = plan(op.kind, op.cursor, op.end(), terms);
        if op.targets & rw == 0 {
            let fault = self.members.nobody_left();
            return self.conclude(now, slot, Err(fault), out);
        }
        match next {
            Next::Conclude => {
                let is_unmap = op.kind == Kind::Unmap || op.differs;
                let count = if is_unmap { op.count } else { op.len };
                self.conclude(now, slot, Ok(Done::Count(count)), out);
            }
            Next::Fetch { start, end } => self.fetch(now, slot, (start, end), out),
            Next::Apply { end } => self.apply(now, slot, end, out),
        }
    }

    pub(super) fn fetch(
        &mut self,
        now: Now,
        slot: Slot,
        (start, end): (u64, u64),
        out: &mut Vec<Effect>,
    ) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        op.step = Step::Fetching;
        op.piece_end = end.min(op.end());
        let size = u32::try_from(end.saturating_sub(start)).unwrap_or(0);
        op.frame_len = size;
        let (candidates, kind) = (op.targets & self.members.rw(), op.kind);
        let from = match op.evening {
            Some(evening) => Some(evening.source),
            None if kind == Kind::Mend => self.members.source(),
            None => self.members.pick(candidates),
        };
        let from = from.map_or(candidates & candidates.wrapping_neg(), bit);
        let offset = wire_offset(start);
        self.dispatch(now, slot, from, |sequence, _| Request::Read { sequence, offset, size }, out);
    }

    /// The rest of the sectors is known: writes them whole.
    pub(super) fn fetched(&mut self, now: Now, slot: Slot, old: Bytes, out: &mut Vec<Effect>) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        if op.is_abandoned() && !op.is_evening() {
            return self.next_piece(now, slot, out);
        }
        let start = sector_start(op.cursor);
        let data = if op.kind == Kind::Mend { old } else { patched(op, start, &old) };
        op.step = Step::Applying;
        let (to, offset) = (op.targets, wire_offset(start));
        self.dispatch(
            now,
            slot,
            to,
            |sequence, _| Request::Write { sequence, offset, data: data.clone() },
            out,
        );
    }

    fn apply(&mut self, now: Now, slot: Slot, end: u64, out: &mut Vec<Effect>) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        op.step = Step::Applying;
        op.piece_end = end;
        let size = u32::try_from(end.saturating_sub(op.cursor)).unwrap_or(0);
        op.frame_len = size;
        let (kind, to, offset) = (op.kind, op.targets, wire_offset(op.cursor));
        let data = if kind == Kind::Write {
            slice(&op.data, op.cursor.saturating_sub(op.offset), size)
        } else if kind == Kind::Zero && self.members.with_zero() & to != to {
            zeros(size)
        } else {
            Bytes::new()
        };
        let frame = |sequence, features: Features| {
            if kind == Kind::Unmap && features.has(Features::DISCARD) {
                Request::Discard { sequence, offset, size }
            } else if kind == Kind::Unmap {
                Request::Unmap { sequence, offset, size }
            } else if kind == Kind::Zero && features.has(Features::ZERO) {
                Request::Zero { sequence, offset, size }
            } else {
                Request::Write { sequence, offset, data: data.clone() }
            }
        };
        self.dispatch(now, slot, to, frame, out);
    }

    /// All replicas answered a piece, or failed.
    pub(super) fn settle_piece(&mut self, now: Now, slot: Slot, out: &mut Vec<Effect>) {
        let rw = self.members.rw();
        let Some(op) = self.ops.get_mut(slot) else { return };
        if op.is_evening() {
            return self.settle_even(now, slot, out);
        }
        let outcome = weigh(op.done, op.full, rw);
        let piece = (op.cursor, op.piece_end);
        op.targets = op.done;
        op.cursor = op.piece_end;
        if op.kind == Kind::Unmap && op.differs {
            // What the range reads now is one replica's word; the others take it from there.
            op.kind = Kind::Mend;
            op.cursor = op.offset;
        }
        let fail = match outcome {
            Outcome::Done { fail } | Outcome::NoSpace { fail } => fail,
            Outcome::Nobody => 0,
        };
        for place in places(fail) {
            self.fail(place, frame::NO_SPACE_TEXT, out);
        }
        match outcome {
            Outcome::Done { .. } => self.next_piece(now, slot, out),
            Outcome::NoSpace { .. } => self.even_out(now, slot, piece, out),
            Outcome::Nobody => {
                let fault = self.members.nobody_left();
                self.conclude(now, slot, Err(fault), out);
            }
        }
    }

    /// A change is over at all replicas: lets those that waited for its place go on.
    pub(super) fn conclude(
        &mut self,
        _now: Now,
        slot: Slot,
        result: Result<Done, Fault>,
        out: &mut Vec<Effect>,
    ) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        op.result = Some(result);
        op.step = Step::Parked;
        op.data = Bytes::new();
        let (epoch, (start, end)) = (op.epoch, outer_range(op));
        for later in std::mem::take(&mut op.blocked) {
            if let Some(op) = self.ops.get_mut(later) {
                op.blockers = op.blockers.saturating_sub(1);
                if op.blockers == 0 {
                    self.work.push_back(Work::Begin(later));
                }
            }
        }
        self.locks.release(start, end, slot);
        self.changes = self.changes.saturating_sub(1);
        if self.barrier.leave(epoch, slot) {
            self.finish_change(slot, out);
        }
    }

    /// Nothing keeps a settled change from completing but, if wanted, a flush.
    pub(super) fn finish_change(&mut self, slot: Slot, out: &mut Vec<Effect>) {
        let rw = self.members.rw();
        let Some(op) = self.ops.get_mut(slot) else { return };
        if op.targets & rw == 0 && matches!(op.result, Some(Ok(_))) {
            // Whoever did it failed while it was parked.
            op.result = Some(Err(self.members.nobody_left()));
        }
        if op.durable && matches!(op.result, Some(Ok(_))) {
            self.others = self.others.saturating_add(1);
            self.join_flush(slot);
        } else if let Some(op) = self.ops.remove(slot)
            && let Some(result) = op.result
        {
            self.complete(op.token, result, out);
        }
    }
}

fn patched(op: &Op, start: u64, old: &[u8]) -> Bytes {
    let mut sector = BytesMut::from(old);
    let from = usize::try_from(op.cursor.saturating_sub(start)).unwrap_or(usize::MAX);
    let to = usize::try_from(op.piece_end.saturating_sub(start)).unwrap_or(usize::MAX);
    if let Some(part) = sector.get_mut(from..to) {
        let size = u32::try_from(part.len()).unwrap_or(0);
        let new = slice(&op.data, op.cursor.saturating_sub(op.offset), size);
        if op.kind == Kind::Zero {
            part.fill(0);
        } else if new.len() == part.len() {
            part.copy_from_slice(&new);
        }
    }
    sector.freeze()
}

fn slice(data: &Bytes, from: u64, len: u32) -> Bytes {
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(data.len());
    let to = from.saturating_add(len as usize).min(data.len());
    data.slice(from..to)
}

fn zeros(len: u32) -> Bytes {
    Bytes::from_static(ZEROS.get(..len as usize).unwrap_or(&ZEROS))
}

pub(super) fn wire_offset(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 16 << 20;

    fn pieces(kind: Kind, offset: u64, end: u64, terms: Terms) -> Vec<Next> {
        let (mut at, mut steps) = (offset, vec![]);
        loop {
            let next = plan(kind, at, end, terms);
            match next {
                Next::Conclude => return steps,
                Next::Fetch { end: piece, .. } => at = piece.min(end),
                Next::Apply { end: piece } => {
                    assert!(piece > at, "no progress at {at}");
                    at = piece;
                }
            }
            steps.push(next);
        }
    }

    #[test]
    fn changes_are_cut_where_they_must_be() {
        use Kind::{Mend, Unmap, Write, Zero};
        use Next::{Apply, Fetch};
        let plain = Terms { size: SIZE, whole_sectors: false, all_know_zero: true };
        let whole = Terms { whole_sectors: true, ..plain };
        let writes_zeros = Terms { all_know_zero: false, ..plain };
        let mib = 1 << 20;
        for (kind, offset, end, terms, expected) in [
            (Write, 100, 9000, plain, vec![Apply { end: 9000 }]),
            (Write, 4096, 12288, whole, vec![Apply { end: 12288 }]),
            (Write, 512, 1024, whole, vec![Fetch { start: 0, end: 4096 }]),
            (
                Write,
                4000,
                4200,
                whole,
                vec![Fetch { start: 0, end: 4096 }, Fetch { start: 4096, end: 8192 }],
            ),
            (
                Write,
                100,
                9000,
                whole,
                vec![
                    Fetch { start: 0, end: 4096 },
                    Apply { end: 8192 },
                    Fetch { start: 8192, end: 12288 },
                ],
            ),
            (Write, 0, SIZE, whole, vec![Apply { end: SIZE }]),
            (Zero, 0, 3 * mib, plain, vec![Apply { end: 3 * mib }]),
            (Zero, 5, 2 * mib, writes_zeros, vec![Apply { end: mib + 5 }, Apply { end: 2 * mib }]),
            (Zero, 5, 6, whole, vec![Fetch { start: 0, end: 4096 }]),
            (Unmap, 5, 9 * mib, whole, vec![Apply { end: 9 * mib }]),
            (Mend, 5, 4097, plain, vec![Fetch { start: 0, end: 8192 }]),
            (
                Mend,
                0,
                mib + 1,
                plain,
                vec![Fetch { start: 0, end: mib }, Fetch { start: mib, end: mib + 4096 }],
            ),
        ] {
            assert_eq!(pieces(kind, offset, end, terms), expected, "{kind:?} {offset}..{end}");
        }
    }

    #[test]
    fn the_last_sector_ends_with_the_volume() {
        let terms = Terms { size: 5000, whole_sectors: true, all_know_zero: true };
        assert_eq!(pieces(Kind::Write, 4096, 5000, terms), [Next::Apply { end: 5000 }]);
        let fetch = Next::Fetch { start: 4096, end: 5000 };
        assert_eq!(pieces(Kind::Write, 4200, 5000, terms), [fetch]);
        assert_eq!(pieces(Kind::Write, 4096, 4100, terms), [fetch]);
        assert_eq!(pieces(Kind::Mend, 4097, 4098, terms), [fetch]);
    }

    #[test]
    fn full_disks_are_told_from_full_volumes() {
        // Places 0 and 1 can be read, place 2 is being rebuilt.
        let rw = 0b011;
        for (done, full, expected) in [
            (0b111, 0, Outcome::Done { fail: 0 }),
            (0b101, 0b010, Outcome::Done { fail: 0b010 }),
            (0b011, 0b100, Outcome::Done { fail: 0b100 }),
            (0b000, 0b011, Outcome::NoSpace { fail: 0 }),
            (0b100, 0b011, Outcome::NoSpace { fail: 0 }),
            (0b000, 0b111, Outcome::NoSpace { fail: 0b100 }),
            (0b000, 0b001, Outcome::NoSpace { fail: 0 }),
            (0b100, 0b000, Outcome::Nobody),
            (0b000, 0b100, Outcome::Nobody),
        ] {
            assert_eq!(weigh(done, full, rw), expected, "done {done:b} full {full:b}");
        }
    }
}
