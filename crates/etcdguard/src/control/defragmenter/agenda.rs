//! Which planned time is to be worked off. Pure.
//!
//! A planned time stays due until all is done for it, whoever led when it came: a sidecar that did
//! not lead then, and leads now, makes up for it.

use jiff::Timestamp;

use crate::control::schedule::Schedule;

/// A planned time that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) at: Timestamp,
    /// It passed before this process began, so only what others tell says that it was missed.
    pub(super) is_earlier: bool,
}

#[derive(Debug)]
pub(super) struct Agenda {
    schedule: Schedule,
    due: Option<Slot>,
    next: Option<Timestamp>,
}

impl Agenda {
    pub(super) fn new(schedule: Schedule, now: Timestamp) -> Self {
        let due = schedule.last(now).map(|at| Slot { at, is_earlier: true });
        let next = schedule.next(now);
        Self { schedule, due, next }
    }

    /// What is to be worked off now.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<Slot> {
        self.next = self.schedule.sooner(self.next, now);
        if let Some(at) = self.next.filter(|next| *next <= now) {
            self.due = Some(Slot { at, is_earlier: false });
            self.next = self.schedule.next(now);
        }
        self.due
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// All is done for a planned time; one that came meanwhile stays.
    pub(super) fn done(&mut self, slot: Slot) {
        self.due.take_if(|due| *due == slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_planned_time_is_due_until_it_is_done_whoever_led_when_it_came() {
        let daily = "CRON_TZ=UTC 0 4 * * *".parse().unwrap();
        let mut agenda = Agenda::new(daily, at("2026-11-15T06:00:00Z"));
        let earlier = Slot { at: at("2026-11-15T04:00:00Z"), is_earlier: true };
        assert_eq!(agenda.due(at("2026-11-15T06:00:00Z")), Some(earlier));
        agenda.done(earlier);
        assert_eq!(agenda.due(at("2026-11-16T03:59:59Z")), None);
        let slot = Slot { at: at("2026-11-16T04:00:00Z"), is_earlier: false };
        for later in ["2026-11-16T04:00:00Z", "2026-11-16T04:30:00Z", "2026-11-17T03:00:00Z"] {
            assert_eq!(agenda.due(at(later)), Some(slot), "{later}");
        }
        let next = agenda.due(at("2026-11-17T04:00:00Z")).unwrap();
        agenda.done(slot);
        assert_eq!(agenda.due(at("2026-11-17T04:00:01Z")), Some(next), "it came meanwhile");
    }

    #[test]
    fn a_clock_that_was_years_ahead_delays_nothing() {
        let daily = "CRON_TZ=UTC 0 4 * * *".parse().unwrap();
        let mut agenda = Agenda::new(daily, at("2036-02-07T06:28:16Z"));
        let earlier = agenda.due(at("2026-11-15T06:00:00Z")).unwrap();
        agenda.done(earlier);
        let slot = Slot { at: at("2026-11-16T04:00:00Z"), is_earlier: false };
        assert_eq!(agenda.due(at("2026-11-16T04:00:01Z")), Some(slot));
    }
}
