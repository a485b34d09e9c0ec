//! When a job runs.

use std::time::Duration;

use jiff::Timestamp;

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is seen by itself")]
pub(crate) struct Seen {
    pub(crate) now: Timestamp,
    /// The first point of the schedule after the last run; nothing if there is none; or what is wrong
    /// with the schedule.
    pub(crate) due: Result<Option<Timestamp>, String>,
    /// Somebody wants its runs to end.
    pub(crate) is_cancelled: bool,
    /// A run has ended and was not written down.
    pub(crate) has_ended: bool,
    pub(crate) is_running: bool,
    pub(crate) is_shown_running: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    Cancel,
    /// Write down how a run ended.
    Take,
    Run,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) act: Act,
    pub(crate) next: Option<Timestamp>,
    pub(crate) wrong: Option<String>,
    /// A run that is shown is nobody's.
    pub(crate) was_interrupted: bool,
    pub(crate) look_after: Option<Duration>,
}

/// A clock may have been set by this much without anybody minding.
const SLACK: Duration = Duration::from_mins(1);

/// When the job last ran, as far as that can be. One that ran later than now did so by a clock that
/// was wrong: it goes on from here.
pub(crate) fn ran_at(last: Timestamp, now: Timestamp) -> Timestamp {
    if now.checked_add(SLACK).is_ok_and(|latest| last > latest) { now } else { last }
}

pub(crate) fn decide(seen: &Seen) -> Verdict {
    let next = seen.due.clone().ok().flatten();
    let verdict = Verdict {
        act: Act::Nothing,
        next,
        wrong: seen.due.clone().err(),
        was_interrupted: seen.is_shown_running && !seen.is_running && !seen.has_ended,
        look_after: next.map(|at| {
            let left = if at > seen.now {
                seen.now.duration_until(at).unsigned_abs()
            } else {
                Duration::ZERO
            };
            left.clamp(Duration::from_millis(100), super::LONGEST_WAIT)
        }),
    };
    let again = Some(Duration::from_millis(100));
    if seen.is_cancelled {
        return Verdict { act: Act::Cancel, look_after: again, ..verdict };
    }
    if seen.has_ended {
        return Verdict { act: Act::Take, look_after: again, ..verdict };
    }
    if verdict.was_interrupted {
        return Verdict { look_after: again, ..verdict };
    }
    // Whether a run is under way does not matter: it keeps no other from its turn.
    match next {
        Some(at) if at <= seen.now => Verdict { act: Act::Run, look_after: again, ..verdict },
        Some(_) | None => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2025-03-01T10:00:00Z".parse().unwrap()
    }

    /// The next run is in ten seconds.
    fn idle() -> Seen {
        Seen {
            now: now(),
            due: Ok(Some(now() + Duration::from_secs(10))),
            is_cancelled: false,
            has_ended: false,
            is_running: false,
            is_shown_running: false,
        }
    }

    #[test]
    fn a_clock_that_was_ahead_stops_no_job() {
        let now: Timestamp = "2025-03-01T10:00:00Z".parse().unwrap();
        assert_eq!(ran_at(now + Duration::from_hours(9999), now), now);
        for before in [now - Duration::from_hours(1), now, now + Duration::from_secs(5)] {
            assert_eq!(ran_at(before, now), before);
        }
    }

    #[test]
    fn a_job_runs_when_it_is_due_also_while_another_run_hangs() {
        let verdict = decide(&idle());
        assert_eq!(
            (verdict.act, verdict.look_after),
            (Act::Nothing, Some(Duration::from_secs(10)))
        );
        let due = Seen { due: Ok(Some(now())), ..idle() };
        assert_eq!(decide(&due).act, Act::Run);
        let hangs = Seen { is_running: true, is_shown_running: true, ..due };
        assert_eq!(decide(&hangs).act, Act::Run);
    }

    #[test]
    fn a_schedule_that_cannot_be_read_is_told_and_never_runs() {
        let wrong = Seen { due: Err("invalid cron format(x): y".into()), ..idle() };
        let verdict = decide(&wrong);
        assert_eq!(
            (verdict.act, verdict.wrong.as_deref()),
            (Act::Nothing, Some("invalid cron format(x): y"))
        );
    }

    #[test]
    fn a_run_without_a_process_was_interrupted() {
        let lost = Seen { is_shown_running: true, ..idle() };
        assert!(decide(&lost).was_interrupted);
        let ended = Seen { has_ended: true, ..lost };
        assert_eq!(decide(&ended).act, Act::Take);
        assert!(!decide(&ended).was_interrupted);
    }

    #[test]
    fn who_asks_for_the_end_is_heard_first() {
        let due = Seen { is_cancelled: true, due: Ok(Some(now())), ..idle() };
        assert_eq!(decide(&due).act, Act::Cancel);
    }
}
