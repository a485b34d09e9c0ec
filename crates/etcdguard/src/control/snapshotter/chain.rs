//! The snapshots a restore would begin from now: the newest full and the deltas after it.

use crate::store::{Kind, Latest, Snapshot};

#[derive(Debug, Clone, Default)]
pub(super) struct Chain {
    pub(super) full: Option<Snapshot>,
    pub(super) deltas: Vec<Snapshot>,
}

impl Chain {
    pub(super) fn of(latest: Latest) -> Self {
        Self { full: latest.full, deltas: latest.deltas }
    }

    pub(super) fn add(&mut self, snapshot: Snapshot) {
        match snapshot.kind {
            Kind::Full => *self = Self { full: Some(snapshot), deltas: Vec::new() },
            Kind::Incr => self.deltas.push(snapshot),
        }
    }

    /// The newest of either kind.
    pub(super) fn newest(&self) -> Option<&Snapshot> {
        self.deltas.last().or(self.full.as_ref())
    }

    /// Everything up to here is in the store. Sidecars that both believed to lead may have left
    /// deltas that overlap, so it is the highest that counts.
    pub(super) fn last_revision(&self) -> i64 {
        let all = self.full.iter().chain(&self.deltas);
        all.map(|snapshot| snapshot.last_revision).max().unwrap_or(0)
    }

    /// Whether a restore of all of it would fail because revisions are missing in between.
    pub(super) fn has_gap(&self) -> bool {
        let Some(full) = &self.full else { return !self.deltas.is_empty() };
        let mut ranges: Vec<(i64, i64)> =
            self.deltas.iter().map(|delta| (delta.start_revision, delta.last_revision)).collect();
        ranges.sort_unstable();
        let mut covered = full.last_revision;
        ranges.into_iter().any(|(start, last)| {
            let gap = start > covered.saturating_add(1);
            covered = covered.max(last);
            gap
        })
    }

    /// How many revisions follow the newest full.
    pub(super) fn delta_revisions(&self) -> i64 {
        let full = self.full.as_ref().map_or(0, |full| full.last_revision);
        self.last_revision().saturating_sub(full)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_full_begins_a_new_chain() {
        let mut chain = Chain::default();
        assert_eq!((chain.last_revision(), chain.newest()), (0, None));
        let full = |last| Snapshot::full(last, Timestamp::UNIX_EPOCH, None, false);
        let delta = |start, last| Snapshot::delta(start, last, Timestamp::UNIX_EPOCH, None);
        chain.add(full(4));
        chain.add(delta(5, 9));
        chain.add(delta(5, 7));
        assert_eq!((chain.last_revision(), chain.delta_revisions()), (9, 5));
        assert!(!chain.has_gap(), "overlapping is not a gap");
        chain.add(delta(11, 12));
        assert!(chain.has_gap());
        chain.add(full(9));
        assert_eq!((chain.newest(), chain.delta_revisions()), (Some(&full(9)), 0));
    }
}
