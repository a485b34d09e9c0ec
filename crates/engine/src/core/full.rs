//! What becomes of copies that all ran out of space within the same change.
//!
//! Each stops where its own disk is full, so they may differ although none is worse than another.
//! Replicas say up to where they got. Where that differs, those that got further are taken back to
//! what the one has that got least far: that needs no space, for what they give up is theirs. One
//! that cannot follow is failed.

use super::changes::{SECTOR, sector_end, sector_start};
use super::mask::{Mask, bit, places};
use super::op::{Kind, Op};
use super::slab::Slot;
use super::{Core, Effect, Fault, Now};
use wire::frame;

/// A change that failed everywhere, being made the same failure everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Evening {
    pub(super) source: usize,
    /// Those that have something else.
    pub(super) targets: Mask,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What is to be made even, if anything: `reached` is up to where each of the copies got, between
/// the ends of the `piece`. Of those that do not say (`silent`) nothing is known.
fn decide(piece: (u64, u64), reached: &[(usize, u64)], silent: Mask) -> Option<Evening> {
    let (start, end) = piece;
    let within = |(place, at): &(usize, u64)| (*place, (*at).clamp(start, end));
    let known: Vec<(usize, u64)> = reached.iter().map(within).collect();
    if silent != 0 {
        let all = known.iter().fold(silent, |all, (place, _)| all | bit(*place));
        // Not one that is being filled and had room: nothing is read from that.
        let source = places(silent).next()?;
        let targets = all & !bit(source);
        return (targets != 0).then_some(Evening { source, targets, start, end });
    }
    let (source, low) = known.iter().copied().min_by_key(|(place, at)| (*at, *place))?;
    let high = known.iter().map(|(_, at)| *at).max()?;
    let further = known.iter().filter(|(_, at)| *at > low);
    let targets = further.fold(0, |all, (place, _)| all | bit(*place));
    (targets != 0).then_some(Evening { source, targets, start: low, end: high })
}

impl Core {
    /// All copies that can be read were full. Nothing more is done where they stopped alike, or
    /// where they are of a kind that cannot tell.
    pub(super) fn even_out(
        &mut self,
        now: Now,
        slot: Slot,
        piece: (u64, u64),
        out: &mut Vec<Effect>,
    ) {
        let (rw, wo, partial) = (self.members.rw(), self.members.wo(), self.members.with_partial());
        let Some(op) = self.ops.get_mut(slot) else { return };
        let mut reached: Vec<(usize, u64)> = std::mem::take(&mut op.reached);
        reached.retain(|(place, _)| bit(*place) & rw != 0);
        // One that is being rebuilt and had room has all of it.
        reached.extend(places(op.done & wo & partial).map(|place| (place, piece.1)));
        // How far zeroing got nobody says.
        let told = op.kind == Kind::Write;
        let silent = if told { 0 } else { op.full & rw & partial };
        match decide(piece, &reached, silent) {
            Some(evening) if op.kind != Kind::Mend => {
                op.evening = Some(evening);
                op.kind = Kind::Mend;
                op.cursor = sector_start(evening.start);
                self.next_even(now, slot, out);
            }
            Some(_) | None => {
                if op.differs {
                    // Each reads the range as its own layers have it, and cannot take another's word.
                    let kept = self.members.source().map_or(0, bit);
                    for place in places(rw & !kept) {
                        self.fail(place, frame::NO_SPACE_TEXT, out);
                    }
                }
                self.conclude(now, slot, Err(Fault::NoSpace), out);
            }
        }
    }

    /// Goes on making copies even after what was done of it.
    pub(super) fn next_even(&mut self, now: Now, slot: Slot, out: &mut Vec<Effect>) {
        let (rw, live, size) = (self.members.rw(), self.members.live(), self.size);
        let Some(op) = self.ops.get_mut(slot) else { return };
        let Some(evening) = op.evening else { return };
        op.targets = evening.targets & live;
        let end = sector_end(evening.end).min(size.max(op.end()));
        if op.targets == 0 || op.cursor >= end {
            return self.conclude(now, slot, Err(Fault::NoSpace), out);
        }
        if bit(evening.source) & rw == 0 {
            // Nobody is left to follow: one copy stays.
            let kept = places(rw).next().map_or(0, bit);
            for place in places((rw | evening.targets) & live & !kept) {
                self.fail(place, frame::NO_SPACE_TEXT, out);
            }
            return self.conclude(now, slot, Err(Fault::NoSpace), out);
        }
        let piece_end = op.cursor.saturating_add(EVEN_BYTES).min(end);
        let start = op.cursor;
        self.fetch(now, slot, (start, piece_end), out);
    }

    /// A piece was made even, or not by all.
    pub(super) fn settle_even(&mut self, now: Now, slot: Slot, out: &mut Vec<Effect>) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        op.cursor = sector_end(op.piece_end);
        let full = op.full;
        for place in places(full & self.members.live()) {
            self.fail(place, frame::NO_SPACE_TEXT, out);
        }
        self.next_even(now, slot, out);
    }

    /// A replica had no room for a change; where it says so, up to where it got.
    pub(super) fn ran_full(&mut self, slot: Slot, place: usize, told: i64) {
        let says = self.members.with_partial() & bit(place) != 0;
        if let Some(op) = self.ops.get_mut(slot) {
            op.full |= bit(place);
            if let (true, Ok(told)) = (says && op.kind == Kind::Write, u64::try_from(told)) {
                op.reached.push((place, told));
            }
        }
    }
}

/// Longest piece that is copied at once.
const EVEN_BYTES: u64 = 256 * SECTOR;

impl Op {
    /// Copies differ in what it did, and are being made even.
    pub(super) fn is_evening(&self) -> bool {
        self.evening.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_got_further_go_back_to_the_one_that_got_least_far() {
        let piece = (4096, 20_480);
        let even = decide(piece, &[(0, 8192), (1, 8192)], 0);
        assert_eq!(even, None, "they are alike");
        let evening = decide(piece, &[(0, 12_288), (1, 8192), (2, 12_288)], 0);
        let expected = Evening { source: 1, targets: 0b101, start: 8192, end: 12_288 };
        assert_eq!(evening, Some(expected));
        let beyond = decide(piece, &[(0, 0), (1, u64::MAX)], 0);
        let expected = Evening { source: 0, targets: 0b10, start: 4096, end: 20_480 };
        assert_eq!(beyond, Some(expected), "a lie is kept within the piece");
        let filled = decide(piece, &[(0, 20_480)], 0b110);
        let expected = Evening { source: 1, targets: 0b101, start: 4096, end: 20_480 };
        assert_eq!(filled, Some(expected), "one that is being filled is no source");
        let silent = decide(piece, &[], 0b110);
        let expected = Evening { source: 1, targets: 0b100, start: 4096, end: 20_480 };
        assert_eq!(silent, Some(expected));
        assert_eq!(decide(piece, &[], 0b100), None, "it is alone");
    }
}
