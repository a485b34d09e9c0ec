//! The requests under way, in slots that are used again, and the sequence numbers that name them
//! on the wire.
//!
//! A sequence number is a slot and how often the slot was given out, so that an answer that comes
//! twice, or to a request that was never made, is not taken for another's.

use super::op::Op;

pub(super) type Slot = u32;

const SLOT_BITS: u32 = 20;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// Requests of clients under way at a time. The rest of the slots is for the core's own.
pub(super) const REQUESTS_MAX: usize = (1 << SLOT_BITS) - 4096;

#[derive(Debug)]
struct Entry {
    /// Counts the sequence numbers of this slot.
    turn: u32,
    op: Option<Op>,
}

#[derive(Debug, Default)]
pub(super) struct Slab {
    entries: Vec<Entry>,
    free: Vec<Slot>,
}

impl Slab {
    pub(super) fn insert(&mut self, op: Op) -> Slot {
        if let Some(slot) = self.free.pop()
            && let Some(entry) = self.entries.get_mut(slot as usize)
        {
            entry.op = Some(op);
            return slot;
        }
        let slot = Slot::try_from(self.entries.len()).unwrap_or(Slot::MAX) & SLOT_MASK;
        self.entries.push(Entry { turn: 0, op: Some(op) });
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Op> {
        let entry = self.entries.get_mut(slot as usize)?;
        let op = entry.op.take()?;
        entry.turn = entry.turn.wrapping_add(1);
        self.free.push(slot);
        Some(op)
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Op> {
        self.entries.get(slot as usize)?.op.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Op> {
        self.entries.get_mut(slot as usize)?.op.as_mut()
    }

    /// A new sequence number for the request in `slot`; its earlier ones are void.
    pub(super) fn renew(&mut self, slot: Slot) -> u32 {
        self.entries.get_mut(slot as usize).map_or(0, |entry| {
            entry.turn = entry.turn.wrapping_add(1);
            number(slot, entry.turn)
        })
    }

    /// The request that has this sequence number now.
    pub(super) fn find(&mut self, sequence: u32) -> Option<(Slot, &mut Op)> {
        let slot = sequence & SLOT_MASK;
        let entry = self.entries.get_mut(slot as usize)?;
        let op = entry.op.as_mut()?;
        (number(slot, entry.turn) == sequence).then_some((slot, op))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut Op)> {
        self.entries
            .iter_mut()
            .enumerate()
            .filter_map(|(slot, entry)| Some((Slot::try_from(slot).ok()?, entry.op.as_mut()?)))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len().saturating_sub(self.free.len())
    }
}

fn number(slot: Slot, turn: u32) -> u32 {
    (turn << SLOT_BITS) | slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::op::Kind;

    #[test]
    fn a_number_is_good_for_one_turn_of_one_slot() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert(Op::inner(Kind::Mark)), slab.insert(Op::inner(Kind::Ping)));
        let (first, other) = (slab.renew(a), slab.renew(b));
        assert_ne!(first, other);
        assert_eq!(slab.find(first).map(|(slot, op)| (slot, op.kind)), Some((a, Kind::Mark)));
        let second = slab.renew(a);
        assert!(slab.find(first).is_none(), "void once there is a newer one");
        slab.remove(a);
        assert!(slab.find(second).is_none(), "void when the request is over");
        let again = slab.insert(Op::inner(Kind::Round));
        assert_eq!(again, a, "slots are used again");
        assert!(slab.find(second).is_none());
        assert_eq!(slab.len(), 2);
        assert!(slab.find(u32::MAX).is_none());
    }
}
