//! What is done and killed in one round, chosen at random and replayable.

use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;

/// What is killed at what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A replica that makes a backup.
    Create,
    /// A replica that a backup is restored to; then both, so that the restore goes on.
    Restore,
    /// The command that removes a backup.
    Remove,
    /// The command that collects garbage.
    Collect,
    /// One of two that back up to one volume at a time.
    TwoWriters,
    /// A replica that makes a backup, or the command that removes another.
    WriterAndDeleter,
}

/// Every lane begins with each of them once, from another one on, so that few rounds see all.
const KINDS: [Kind; 6] = [
    Kind::Create,
    Kind::Remove,
    Kind::Restore,
    Kind::WriterAndDeleter,
    Kind::TwoWriters,
    Kind::Collect,
];

/// When the kill comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// So long after the begin: mostly while a lock is waited for.
    After(Duration),
    /// So long after the first sign of work beyond the lock.
    AfterSign(Duration),
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) moment: Moment,
    /// Which of two is killed.
    pub(crate) second: bool,
    /// Writes before the snapshot.
    pub(crate) writes: usize,
    /// How long the second of two waits.
    pub(crate) stagger: Duration,
    pub(crate) seed: u64,
}

impl Plan {
    pub(crate) fn choose(random: &mut StdRng, lane: u32, round: u32) -> Self {
        let (first, drawn) = ((lane + round) as usize, random.random_range(0..KINDS.len()));
        let is_first = (round as usize) < KINDS.len();
        let kind = KINDS[if is_first { first % KINDS.len() } else { drawn }];
        let moment = if random.random_ratio(1, 5) {
            Moment::After(Duration::from_millis(random.random_range(0..2500)))
        } else {
            Moment::AfterSign(Duration::from_millis(random.random_range(0..250)))
        };
        Self {
            kind,
            moment,
            second: random.random(),
            writes: random.random_range(2..12),
            stagger: Duration::from_millis(random.random_range(0..3000)),
            seed: random.random(),
        }
    }
}
