//! What must be over before a change completes that a failed replica has not done.
//!
//! A replica that failed may come back when the volume is started anew, and is then told from a
//! good one by its count of changes alone. Its count may be ahead: it may have done changes that
//! were under way when it failed, and its count may have reached the disk before its data did. So
//! when a replica fails, the changes under way at that moment are an epoch that closes: none of
//! them, and none that begins later, completes before all of them are done on those that remain,
//! and before those were sent a mark: a write of nothing, which only counts. From then on their
//! count is above that of the failed one. Flushes wait for it too.

use std::collections::VecDeque;

use super::slab::Slot;

#[derive(Debug, Default)]
struct Epoch {
    unsettled: usize,
    /// Settled, and waiting for the epochs before and for their own to be over.
    parked: Vec<Slot>,
    cause: Cause,
}

/// Why an epoch was closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Cause {
    /// A replica failed: the count of those that remain must pass its own.
    #[default]
    Failure,
    /// Who holds the volume is to be told; counts stay as they are.
    Record,
}

#[derive(Debug)]
pub(super) struct Barrier {
    /// Number of the front epoch.
    first: u64,
    /// All but the last are closed. Never empty.
    epochs: VecDeque<Epoch>,
    marking: bool,
}

impl Default for Barrier {
    fn default() -> Self {
        Self { first: 0, epochs: VecDeque::from([Epoch::default()]), marking: false }
    }
}

impl Barrier {
    /// A change begins; the number is for [`Self::leave`].
    pub(super) fn join(&mut self) -> u64 {
        if let Some(last) = self.epochs.back_mut() {
            last.unsettled = last.unsettled.saturating_add(1);
        }
        self.first.saturating_add(self.epochs.len() as u64).saturating_sub(1)
    }

    /// A change is settled. True: it may complete; false: it is parked.
    pub(super) fn leave(&mut self, epoch: u64, slot: Slot) -> bool {
        let is_idle = self.is_idle();
        let index = usize::try_from(epoch.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let Some(epoch) = self.epochs.get_mut(index) else { return true };
        epoch.unsettled = epoch.unsettled.saturating_sub(1);
        if !is_idle {
            epoch.parked.push(slot);
        }
        is_idle
    }

    pub(super) fn close(&mut self, cause: Cause) {
        if let Some(last) = self.epochs.back_mut() {
            last.cause = cause;
        }
        self.epochs.push_back(Epoch::default());
    }

    /// No failure is being dealt with.
    pub(super) fn is_idle(&self) -> bool {
        self.epochs.len() == 1
    }

    /// Whether it is time for a mark, and why; if so, it is taken to be under way.
    pub(super) fn begin_mark(&mut self) -> Option<Cause> {
        let front = self.epochs.front().filter(|front| front.unsettled == 0)?;
        if self.is_idle() || self.marking {
            return None;
        }
        let cause = front.cause;
        self.marking = true;
        Some(cause)
    }

    /// The mark is answered: these may complete now.
    pub(super) fn end_mark(&mut self) -> Vec<Slot> {
        self.marking = false;
        let mut freed = self.epochs.pop_front().map(|front| front.parked).unwrap_or_default();
        self.first = self.first.saturating_add(1);
        if self.is_idle()
            && let Some(open) = self.epochs.front_mut()
        {
            freed.append(&mut open.parked);
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_failures_nothing_waits() {
        let mut barrier = Barrier::default();
        let (a, b) = (barrier.join(), barrier.join());
        assert!(barrier.leave(b, 2));
        assert_eq!(barrier.begin_mark(), None);
        assert!(barrier.leave(a, 1));
        assert!(barrier.is_idle());
    }

    #[test]
    fn after_a_failure_all_wait_for_those_under_way_and_the_mark() {
        let mut barrier = Barrier::default();
        let (a, b) = (barrier.join(), barrier.join());
        barrier.close(Cause::Failure);
        let c = barrier.join();
        assert!(!barrier.leave(c, 3));
        assert!(!barrier.leave(a, 1));
        assert_eq!(barrier.begin_mark(), None, "2 is under way");
        assert!(!barrier.leave(b, 2));
        assert_eq!(barrier.begin_mark(), Some(Cause::Failure));
        assert_eq!(barrier.begin_mark(), None, "one is enough");
        assert_eq!(barrier.end_mark(), [1, 2, 3]);
        assert!(barrier.is_idle());
        let d = barrier.join();
        assert!(barrier.leave(d, 4));
    }

    #[test]
    fn a_second_failure_has_its_own_mark() {
        let mut barrier = Barrier::default();
        let a = barrier.join();
        barrier.close(Cause::Failure);
        let b = barrier.join();
        barrier.close(Cause::Failure);
        let c = barrier.join();
        assert!(!barrier.leave(c, 3));
        assert!(!barrier.leave(a, 1));
        assert_eq!(barrier.begin_mark(), Some(Cause::Failure));
        assert_eq!(barrier.end_mark(), [1]);
        assert_eq!(barrier.begin_mark(), None);
        assert!(!barrier.leave(b, 2));
        assert_eq!(barrier.begin_mark(), Some(Cause::Failure));
        assert_eq!(barrier.end_mark(), [2, 3]);
        assert!(barrier.is_idle());
    }
}
