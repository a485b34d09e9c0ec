//! Holds: who may begin. One hold is active at a time; behind it wait, in order, the requests it
//! keeps out and the holds asked for later.

use std::collections::VecDeque;

use super::op::Class;
use super::slab::Slot;
use super::{Hold, HoldId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// What it keeps out is still under way.
    Draining,
    Flushing,
    InForce,
}

#[derive(Debug)]
struct Active {
    id: HoldId,
    hold: Hold,
    phase: Phase,
}

#[derive(Debug)]
enum Queued {
    Request { slot: Slot, class: Class },
    Hold { id: HoldId, hold: Hold },
}

/// What a hold needs next to come into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advance {
    Nothing,
    Flush(HoldId),
    Held(HoldId),
}

#[derive(Debug, Default)]
pub(super) struct Gate {
    next_id: u64,
    active: Option<Active>,
    /// Empty while no hold is active.
    queue: VecDeque<Queued>,
}

impl Gate {
    pub(super) fn add(&mut self, hold: Hold) -> HoldId {
        let id = HoldId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        if self.active.is_none() {
            self.active = Some(Active { id, hold, phase: Phase::Draining });
        } else {
            self.queue.push_back(Queued::Hold { id, hold });
        }
        id
    }

    /// Whether a request of this class has to wait.
    pub(super) fn keeps(&self, class: Class) -> bool {
        self.active.as_ref().is_some_and(|active| keeps(active.hold, class))
    }

    pub(super) fn queue(&mut self, slot: Slot, class: Class) {
        self.queue.push_back(Queued::Request { slot, class });
    }

    pub(super) fn is_in_force(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.phase == Phase::InForce)
    }

    /// Moves the active hold on, given how many requests of each class are under way.
    pub(super) fn advance(&mut self, changes: usize, others: usize) -> Advance {
        let Some(active) = &mut self.active else { return Advance::Nothing };
        if active.phase != Phase::Draining {
            return Advance::Nothing;
        }
        let (busy, flush) = match active.hold {
            Hold::Changes { flush } => (changes > 0, flush),
            Hold::All => (changes > 0 || others > 0, false),
        };
        match (busy, flush) {
            (true, _) => Advance::Nothing,
            (false, true) => {
                active.phase = Phase::Flushing;
                Advance::Flush(active.id)
            }
            (false, false) => {
                active.phase = Phase::InForce;
                Advance::Held(active.id)
            }
        }
    }

    /// The flush that hold `id` waited for is over. False if it does not wait any more.
    pub(super) fn flushed(&mut self, id: HoldId) -> bool {
        match &mut self.active {
            Some(active) if active.id == id && active.phase == Phase::Flushing => {
                active.phase = Phase::InForce;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Ends a hold; calls `go` with each request that may begin now, in order.
    pub(super) fn release(&mut self, id: HoldId, mut go: impl FnMut(Slot)) {
        self.queue
            .retain(|queued| !matches!(queued, Queued::Hold { id: other, .. } if *other == id));
        if self.active.as_ref().is_none_or(|active| active.id != id) {
            return;
        }
        self.active = None;
        for queued in std::mem::take(&mut self.queue) {
            match queued {
                Queued::Request { slot, class } if self.keeps(class) => self.queue(slot, class),
                Queued::Request { slot, .. } => go(slot),
                Queued::Hold { id, hold } if self.active.is_some() => {
                    self.queue.push_back(Queued::Hold { id, hold });
                }
                Queued::Hold { id, hold } => {
                    self.active = Some(Active { id, hold, phase: Phase::Draining });
                }
            }
        }
    }
}

fn keeps(hold: Hold, class: Class) -> bool {
    match (hold, class) {
        (Hold::All, Class::Change | Class::Other) | (Hold::Changes { .. }, Class::Change) => true,
        (Hold::Changes { .. }, Class::Other) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: Hold = Hold::Changes { flush: false };

    fn release(gate: &mut Gate, id: HoldId) -> Vec<Slot> {
        let mut went = vec![];
        gate.release(id, |slot| went.push(slot));
        went
    }

    #[test]
    fn a_hold_comes_into_force_when_nothing_it_keeps_out_is_under_way() {
        for (hold, changes, others, expected) in [
            (CHANGES, 1, 0, false),
            (CHANGES, 0, 1, true),
            (Hold::All, 0, 1, false),
            (Hold::All, 1, 0, false),
            (Hold::All, 0, 0, true),
        ] {
            let mut gate = Gate::default();
            let id = gate.add(hold);
            let held = gate.advance(changes, others) == Advance::Held(id);
            assert_eq!(held, expected, "{hold:?} with {changes} and {others}");
            assert_eq!(gate.is_in_force(), expected);
        }
    }

    #[test]
    fn with_flush_it_waits_for_one() {
        let mut gate = Gate::default();
        let id = gate.add(Hold::Changes { flush: true });
        assert_eq!(gate.advance(0, 3), Advance::Flush(id));
        assert_eq!(gate.advance(0, 3), Advance::Nothing);
        assert!(!gate.is_in_force());
        assert!(gate.flushed(id));
        assert!(gate.is_in_force());
        assert!(!gate.flushed(id));
    }

    #[test]
    fn requests_and_holds_go_on_in_order() {
        let mut gate = Gate::default();
        let first = gate.add(CHANGES);
        gate.queue(1, Class::Change);
        let second = gate.add(CHANGES);
        gate.queue(2, Class::Change);
        assert_eq!(release(&mut gate, first), [1]);
        assert!(gate.keeps(Class::Change), "the second is active");
        gate.queue(3, Class::Change);
        assert_eq!(release(&mut gate, second), [2, 3]);
        assert!(!gate.keeps(Class::Change));
    }

    #[test]
    fn what_the_next_hold_does_not_keep_out_passes_it() {
        let mut gate = Gate::default();
        let all = gate.add(Hold::All);
        gate.queue(1, Class::Change);
        let changes = gate.add(CHANGES);
        gate.queue(2, Class::Change);
        gate.queue(3, Class::Other);
        assert_eq!(release(&mut gate, all), [1, 3]);
        assert_eq!(release(&mut gate, changes), [2]);
    }

    #[test]
    fn a_hold_given_up_before_its_turn_keeps_nobody() {
        let mut gate = Gate::default();
        let first = gate.add(CHANGES);
        let second = gate.add(Hold::All);
        gate.queue(1, Class::Change);
        assert!(release(&mut gate, second).is_empty());
        assert_eq!(release(&mut gate, first), [1]);
        assert!(!gate.keeps(Class::Other));
        assert!(release(&mut gate, first).is_empty(), "twice is harmless");
    }
}
