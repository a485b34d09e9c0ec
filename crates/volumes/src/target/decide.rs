//! When a target is looked at.

use std::time::Duration;

use jiff::Timestamp;

/// A store that did not answer is tried again, however long its interval is.
const AGAIN: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    None,
    Running,
    Ended,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is seen by itself")]
pub(crate) struct Seen {
    pub(crate) now: Timestamp,
    pub(crate) has_url: bool,
    /// Zero: only when asked.
    pub(crate) interval: Duration,
    /// What nobody has answered yet.
    pub(crate) asked: Option<Timestamp>,
    /// When the last look at this very store failed.
    pub(crate) failed: Option<Timestamp>,
    pub(crate) synced: Option<Timestamp>,
    pub(crate) is_known_unavailable: bool,
    /// It has no URL, and its objects are gone already.
    pub(crate) was_emptied: bool,
    /// Its URL or its credentials are not those of the last look of this process.
    pub(crate) is_changed: bool,
    pub(crate) work: Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    /// Look at the store, in the background.
    Look,
    /// Use what the look found.
    Take,
    /// Without a URL: remove the objects.
    Empty,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) act: Act,
    pub(crate) look_after: Option<Duration>,
}

pub(crate) fn decide(seen: &Seen) -> Verdict {
    let act = |act, look_after| Verdict { act, look_after };
    if !seen.has_url {
        return act(if seen.was_emptied { Act::Nothing } else { Act::Empty }, None);
    }
    match seen.work {
        Work::Running => act(Act::Nothing, None),
        Work::Ended => act(Act::Take, Some(pause(seen))),
        Work::None if is_due(seen) => act(Act::Look, None),
        Work::None => act(Act::Nothing, Some(pause(seen))),
    }
}

/// Requests are for a second later, and a clock may have been set a little.
const SLACK: Duration = Duration::from_secs(5);

/// Whether a time is one that this clock could have shown.
pub(super) fn is_credible(at: Timestamp, now: Timestamp) -> bool {
    now.checked_add(SLACK).is_ok_and(|latest| at <= latest)
}

fn is_due(seen: &Seen) -> bool {
    if let Some(failed) = seen.failed {
        let is_asked =
            seen.asked.is_some_and(|asked| asked > failed && is_credible(asked, seen.now));
        return is_asked || failed.duration_until(seen.now).unsigned_abs() >= AGAIN;
    }
    // One that was looked at by a clock that was ahead is looked at again.
    let Some(synced) = seen.synced.filter(|it| is_credible(*it, seen.now)) else { return true };
    let waited = synced.duration_until(seen.now);
    let is_old = |interval: Duration| waited.is_positive() && waited.unsigned_abs() >= interval;
    seen.is_changed
        || seen.asked.is_some_and(|asked| asked >= synced)
        || (seen.is_known_unavailable && is_old(AGAIN))
        || (!seen.interval.is_zero() && is_old(seen.interval))
}

fn pause(seen: &Seen) -> Duration {
    let regular = if seen.interval.is_zero() { Duration::from_hours(1) } else { seen.interval };
    let waited = seen.synced.map(|it| it.duration_until(seen.now)).unwrap_or_default();
    let waited = Duration::try_from(waited).unwrap_or_default();
    let left = regular.saturating_sub(waited).max(Duration::from_secs(1));
    if seen.is_known_unavailable || seen.failed.is_some() { left.min(AGAIN) } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2025-03-01T10:00:00Z".parse().unwrap()
    }

    /// Looked at a minute ago, every five.
    fn idle() -> Seen {
        Seen {
            now: now(),
            has_url: true,
            interval: Duration::from_mins(5),
            asked: None,
            failed: None,
            synced: Some(now() - Duration::from_mins(1)),
            is_known_unavailable: false,
            was_emptied: false,
            is_changed: false,
            work: Work::None,
        }
    }

    #[test]
    fn a_target_is_looked_at_when_it_is_due_asked_for_or_changed() {
        let verdict = decide(&idle());
        assert_eq!((verdict.act, verdict.look_after), (Act::Nothing, Some(Duration::from_mins(4))));
        for seen in [
            Seen { synced: None, ..idle() },
            Seen { asked: Some(now()), ..idle() },
            Seen { is_changed: true, ..idle() },
            Seen { is_known_unavailable: true, ..idle() },
            Seen { interval: Duration::from_secs(30), ..idle() },
        ] {
            assert_eq!(decide(&seen).act, Act::Look, "{seen:?}");
            assert_eq!(decide(&Seen { work: Work::Running, ..seen.clone() }).act, Act::Nothing);
            assert_eq!(decide(&Seen { work: Work::Ended, ..seen }).act, Act::Take);
        }
        let manual = Seen {
            interval: Duration::ZERO,
            synced: Some(now() - Duration::from_hours(9)),
            ..idle()
        };
        assert_eq!(decide(&manual).act, Act::Nothing);
    }

    #[test]
    fn a_store_that_does_not_answer_is_left_alone_for_a_while() {
        let failed = Seen { synced: None, failed: Some(now()), is_changed: true, ..idle() };
        assert_eq!(decide(&failed).act, Act::Nothing);
        assert!(decide(&failed).look_after.is_some_and(|it| it <= AGAIN));
        let later = Seen { failed: Some(now() - AGAIN), ..failed.clone() };
        assert_eq!(decide(&later).act, Act::Look);
        let asked = Seen { asked: Some(now() + Duration::from_secs(1)), ..failed };
        assert_eq!(decide(&asked).act, Act::Look);
    }

    #[test]
    fn times_of_a_clock_that_was_ahead_stop_nothing_and_hurry_nothing() {
        let ahead = Some(now() + Duration::from_hours(9999));
        let looked = Seen { synced: ahead, ..idle() };
        assert_eq!(decide(&looked).act, Act::Look);
        let failed = Seen { failed: Some(now()), asked: ahead, ..idle() };
        assert_eq!(decide(&failed).act, Act::Nothing);
        let soon = Seen { synced: Some(now() + Duration::from_secs(1)), ..idle() };
        let verdict = decide(&soon);
        assert_eq!((verdict.act, verdict.look_after), (Act::Nothing, Some(idle().interval)));
    }

    #[test]
    fn a_target_without_a_url_is_emptied_once() {
        assert_eq!(decide(&Seen { has_url: false, ..idle() }).act, Act::Empty);
        assert_eq!(decide(&Seen { has_url: false, was_emptied: true, ..idle() }).act, Act::Nothing);
    }

    #[test]
    fn whatever_is_seen_it_is_looked_at_again() {
        for work in [Work::None, Work::Ended] {
            for synced in [None, idle().synced] {
                for is_known_unavailable in [false, true] {
                    let verdict = decide(&Seen { synced, is_known_unavailable, work, ..idle() });
                    assert!(verdict.act == Act::Look || verdict.look_after.is_some());
                }
            }
        }
    }
}
