//! Which changes may be under way together: those whose ranges do not overlap. Others wait for
//! the earlier ones, in order.
//!
//! The claimed part of the volume is kept as segments that do not overlap, each with the latest
//! request that claimed it. Whoever claims it next waits for that one alone, because that one waits
//! for those before it. So a claim costs a search, and what overlaps.

use std::collections::BTreeMap;

use super::slab::Slot;

#[derive(Debug, Clone, Copy)]
struct Segment {
    end: u64,
    owner: Slot,
}

#[derive(Debug, Default)]
pub(super) struct RangeLocks {
    /// By start.
    segments: BTreeMap<u64, Segment>,
    /// Emptied after every use; here so that claims do not allocate.
    overlapped: Vec<(u64, Segment)>,
}

impl RangeLocks {
    /// Claims `start..end` for `owner` and calls `blocker` with each earlier request it has to
    /// wait for; with the same one several times if that is in several pieces by now.
    pub(super) fn claim(
        &mut self,
        start: u64,
        end: u64,
        owner: Slot,
        mut blocker: impl FnMut(Slot),
    ) {
        let below = self.segments.range(..end).rev();
        let overlapping = below.take_while(|(_, segment)| segment.end > start);
        self.overlapped.extend(overlapping.map(|(from, segment)| (*from, *segment)));
        while let Some((from, segment)) = self.overlapped.pop() {
            blocker(segment.owner);
            self.segments.remove(&from);
            if from < start {
                self.segments.insert(from, Segment { end: start, ..segment });
            }
            if segment.end > end {
                self.segments.insert(end, segment);
            }
        }
        self.segments.insert(start, Segment { end, owner });
    }

    /// Gives back what is left of `owner`'s claim of `start..end`.
    pub(super) fn release(&mut self, start: u64, end: u64, owner: Slot) {
        if let Some(segment) = self.segments.get(&start)
            && segment.owner == owner
            && segment.end == end
        {
            self.segments.remove(&start);
            return;
        }
        let own = self.segments.range(start..end).filter(|(_, segment)| segment.owner == owner);
        self.overlapped.extend(own.map(|(from, segment)| (*from, *segment)));
        while let Some((from, _)) = self.overlapped.pop() {
            self.segments.remove(&from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(locks: &mut RangeLocks, start: u64, end: u64, owner: Slot) -> Vec<Slot> {
        let mut blockers = vec![];
        locks.claim(start, end, owner, |blocker| blockers.push(blocker));
        blockers.sort_unstable();
        blockers
    }

    #[test]
    fn what_does_not_overlap_does_not_wait() {
        let mut locks = RangeLocks::default();
        assert!(claim(&mut locks, 10, 20, 1).is_empty());
        assert!(claim(&mut locks, 20, 30, 2).is_empty());
        assert!(claim(&mut locks, 0, 10, 3).is_empty());
        locks.release(10, 20, 1);
        assert!(claim(&mut locks, 10, 20, 4).is_empty());
    }

    #[test]
    fn what_overlaps_waits_for_the_latest_on_each_part() {
        let mut locks = RangeLocks::default();
        claim(&mut locks, 0, 100, 1);
        assert_eq!(claim(&mut locks, 40, 60, 2), [1]);
        assert_eq!(claim(&mut locks, 50, 55, 3), [2], "which waits for 1 itself");
        assert_eq!(claim(&mut locks, 0, 100, 4), [1, 1, 2, 2, 3]);
        assert_eq!(claim(&mut locks, 99, 101, 5), [4]);
        for owner in [1, 2, 3] {
            locks.release(0, 100, owner);
        }
        assert_eq!(claim(&mut locks, 0, 200, 6), [4, 5]);
    }

    #[test]
    fn nothing_is_left_when_all_are_done() {
        // Pseudo-random claims; every pair that overlaps must be ordered, directly or not.
        let mut locks = RangeLocks::default();
        let mut state = 12_345_u64;
        let mut next = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        let ranges: Vec<(u64, u64)> = (0..200)
            .map(|_| {
                let start = next(500);
                (start, start + 1 + next(60))
            })
            .collect();
        let mut before: Vec<Vec<bool>> = vec![];
        for (index, &(start, end)) in ranges.iter().enumerate() {
            let mut mine = vec![false; ranges.len()];
            for blocker in claim(&mut locks, start, end, u32::try_from(index).unwrap()) {
                let blocker = blocker as usize;
                mine[blocker] = true;
                for (slot, earlier) in before[blocker].iter().enumerate() {
                    mine[slot] |= *earlier;
                }
            }
            for (earlier, &(from, to)) in ranges[..index].iter().enumerate() {
                if from < end && start < to {
                    assert!(mine[earlier], "{index} does not wait for {earlier}");
                }
            }
            before.push(mine);
        }
        for (index, &(start, end)) in ranges.iter().enumerate() {
            locks.release(start, end, u32::try_from(index).unwrap());
        }
        assert!(locks.segments.is_empty());
    }
}
