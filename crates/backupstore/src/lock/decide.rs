//! The rules of locks and leases, without a store and without a clock. Pure.

use std::time::Duration;

use blobs::{Listing, Times};
use jiff::{SignedDuration, Timestamp};

use super::record::{EXPIRY, SeenLock};
use crate::store::Abilities;

/// Work ends this long before its lock does: a call that was sent by then is done by the end of the
/// lock, or never.
pub(crate) const MARGIN: Duration = Duration::from_secs(20);
/// Removals are sent so soon after their lock was confirmed, or not at all. Who takes a deletion's lock away,
/// rightly or because the store's clock has jumped, knows after this and [`MARGIN`] that all is over.
pub(crate) const ACT_WITHIN: Duration = Duration::from_secs(30);
/// No clock of two that share a store is further behind.
const SKEW_MAX: SignedDuration = SignedDuration::from_hours(24);
/// A lock that ended this long ago is taken away by whoever comes by.
const SWEPT_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// What another's lock is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is held, or wanted, by one that does not exclude us.
    Beside,
    /// Both cannot be held, and it goes first.
    First,
    /// Both cannot be held, and ours goes first.
    Second,
    /// Its holder is gone. It is made nobody's before ours is held: one who sleeps must notice.
    Ended,
    /// It ended long ago, and would not exclude us either.
    Litter,
}

/// Another's lock as it stands at `now`, by the store's clock, after it lay unchanged before our eyes
/// for `unchanged`, and after its process was seen to be `gone` for so long: what that had sent is done by
/// then, or never.
pub(crate) fn standing(
    other: &SeenLock,
    ours: &SeenLock,
    now: Timestamp,
    (unchanged, unchanged_max): (Duration, Duration),
    gone: Option<Duration>,
    times: Times,
) -> Standing {
    let is_left = gone.is_some_and(|gone| gone > MARGIN);
    let is_ended = is_left || unchanged > unchanged_max || is_ended(other, now, times);
    match (other.record.kind == ours.record.kind, is_ended) {
        (true, true) if now.duration_since(other.written) > EXPIRY + SWEPT_AFTER => {
            Standing::Litter
        }
        (true, _) => Standing::Beside,
        (false, true) => Standing::Ended,
        (false, false) if other.goes_before(ours) => Standing::First,
        (false, false) => Standing::Second,
    }
}

/// By times alone. Those of another machine's clock say little.
pub(crate) fn is_ended(other: &SeenLock, now: Timestamp, times: Times) -> bool {
    let age = now.duration_since(other.written);
    match times {
        Times::OfStore => age > EXPIRY,
        Times::OfWriter => age > SKEW_MAX,
    }
}

/// Whether it would have ended if all clocks were one, or was written so far in the future that by its time
/// it does not end soon, dead or not: it may be worth to be watched.
pub(crate) fn seems_ended(other: &SeenLock, now: Timestamp) -> bool {
    now.duration_since(other.written).abs() > EXPIRY
}

/// Whether it ended so long ago that no clock is wrong enough for its holder to be at work.
pub(crate) fn is_long_gone(written: Timestamp, now: Timestamp) -> bool {
    now.duration_since(written) > SKEW_MAX
}

/// Until when, by our clock, what a deletion has sent may be done whose lock was passed at `now`; nothing
/// where it is over for sure. Its lock lies as it was passed `since` then: it was not confirmed later. Its
/// process may be known to be gone since some time, and sends nothing after that.
pub(crate) fn over_at(
    since: Duration,
    gone_since: Option<Duration>,
    is_long_gone: bool,
    now: Duration,
) -> Option<Duration> {
    let by_itself = since.saturating_add(ACT_WITHIN).saturating_add(MARGIN);
    match gone_since.map(|since| since.saturating_add(MARGIN)) {
        Some(over) if over <= now => None,
        Some(over) => Some(over.min(by_itself)),
        None if is_long_gone => Some(Duration::ZERO),
        None => Some(by_itself),
    }
}

/// A lock that is held: when it was last written, by our clock and by the store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Term {
    /// Taken before the store was asked: work under the lock is counted from here.
    pub(crate) asked: Duration,
    /// Taken after the store has answered: the age of others' locks is counted from here. It may have
    /// taken long in between, and neither may be longer than it is.
    pub(crate) answered: Duration,
    pub(crate) stamped: Timestamp,
}

impl Term {
    /// How long work under it may go on.
    pub(crate) fn left(&self, now: Duration) -> Duration {
        let alive = Duration::try_from(EXPIRY).unwrap_or_default().saturating_sub(MARGIN);
        (self.asked + alive).saturating_sub(now)
    }

    /// The store's clock at `now` of ours, or a little less.
    pub(crate) fn store_time(&self, now: Duration) -> Timestamp {
        let since = SignedDuration::try_from(now.saturating_sub(self.answered));
        let since = since.unwrap_or(SignedDuration::MAX);
        self.stamped.saturating_add(since).unwrap_or(Timestamp::MAX)
    }

    /// The term that follows. None if the store's clock says that the lock had ended before it was
    /// renewed: whatever ours says, others went by that one.
    pub(crate) fn renewed(&self, next: Self, times: Times) -> Option<Self> {
        let between = next.stamped.duration_since(self.stamped);
        match times {
            Times::OfStore if between > EXPIRY => None,
            Times::OfStore | Times::OfWriter => Some(next),
        }
    }
}

/// How long what others did last may stay unseen.
pub(crate) fn unseen_for(abilities: Abilities, settle: Duration) -> Duration {
    match abilities.listing {
        Listing::AtOnce => Duration::ZERO,
        Listing::Later => settle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{LockKind, LockRecord};

    fn lock(kind: LockKind, acquired: bool, second: i64) -> SeenLock {
        let record = LockRecord { name: "lock-x".to_owned(), kind, acquired, holder: None };
        SeenLock { record, written: Timestamp::from_second(second).unwrap() }
    }

    fn stands(other: &SeenLock, now: i64, unchanged: u64, times: Times) -> Standing {
        let ours = lock(LockKind::Delete, false, 100_000);
        let (now, unchanged) =
            (Timestamp::from_second(now).unwrap(), Duration::from_secs(unchanged));
        standing(other, &ours, now, (unchanged, Duration::from_secs(150)), None, times)
    }

    #[test]
    fn the_lock_of_a_process_that_is_gone_ends_when_all_it_had_sent_is_done() {
        let held = lock(LockKind::Delete, true, 100_000);
        let ours = lock(LockKind::Use, false, 100_001);
        let now = Timestamp::from_second(100_030).unwrap();
        for (gone, expected) in
            [(None, Standing::First), (Some(20), Standing::First), (Some(21), Standing::Ended)]
        {
            let gone = gone.map(Duration::from_secs);
            let watched = (Duration::from_secs(25), Duration::from_secs(150));
            assert_eq!(standing(&held, &ours, now, watched, gone, Times::OfStore), expected);
        }
    }

    #[test]
    fn a_deletion_is_over_when_all_is_done_that_it_could_have_sent() {
        let over = |since, gone: Option<u64>, is_long_gone, now| {
            let gone = gone.map(Duration::from_secs);
            let now = Duration::from_secs(now);
            over_at(Duration::from_secs(since), gone, is_long_gone, now).map(|it| it.as_secs())
        };
        assert_eq!(over(1000, None, false, 1000), Some(1050));
        assert_eq!(over(1000, None, false, 1200), Some(1050), "watched for long, and in doubt");
        assert_eq!(over(1000, None, true, 1000), Some(0));
        assert_eq!(over(1000, Some(1000), false, 1019), Some(1020));
        assert_eq!(over(1000, Some(1000), true, 1000), Some(1020));
        assert_eq!(over(1000, Some(1000), false, 1020), None);
    }

    #[test]
    fn a_lock_ends_by_the_clock_that_wrote_it_or_before_our_eyes() {
        let held = lock(LockKind::Use, true, 100_000);
        for (now, unchanged, times, expected) in [
            (100_150, 0, Times::OfStore, Standing::First),
            (100_151, 0, Times::OfStore, Standing::Ended),
            (100_151, 0, Times::OfWriter, Standing::First),
            (100_151, 151, Times::OfWriter, Standing::Ended),
            (90_000, 151, Times::OfStore, Standing::Ended),
            (200_000, 0, Times::OfWriter, Standing::Ended),
        ] {
            assert_eq!(
                stands(&held, now, unchanged, times),
                expected,
                "{now} {unchanged} {times:?}"
            );
        }
        let wanted = lock(LockKind::Use, false, 100_001);
        assert_eq!(stands(&wanted, 100_002, 0, Times::OfStore), Standing::Second);
        let same = lock(LockKind::Delete, true, 100_000);
        assert_eq!(stands(&same, 100_151, 0, Times::OfStore), Standing::Beside);
        assert_eq!(stands(&same, 101_000, 0, Times::OfStore), Standing::Litter);
    }

    #[test]
    fn a_term_ends_before_the_lock_and_when_the_stores_clock_says_so() {
        let at = |asked, second| Term {
            asked: Duration::from_secs(asked),
            answered: Duration::from_secs(asked + 3),
            stamped: Timestamp::from_second(second).unwrap(),
        };
        let term = at(1000, 5000);
        assert_eq!(term.left(Duration::from_secs(1100)).as_secs(), 30);
        assert_eq!(term.left(Duration::from_secs(1130)), Duration::ZERO);
        assert_eq!(term.store_time(Duration::from_secs(1013)).as_second(), 5010);
        assert_eq!(term.store_time(Duration::from_secs(1001)).as_second(), 5000);
        assert!(term.renewed(at(1060, 5150), Times::OfStore).is_some());
        assert!(term.renewed(at(1060, 5151), Times::OfStore).is_none());
        assert!(term.renewed(at(1060, 9000), Times::OfWriter).is_some());
        assert!(term.renewed(at(1060, 100), Times::OfStore).is_some(), "its clock may be set back");
    }
}
