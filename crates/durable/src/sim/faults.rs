//! Which call fails: one plan at a time, counted in calls from when it was made.

use std::io;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Go,
    Fail(io::ErrorKind),
}

#[derive(Debug, Default)]
enum Plan {
    #[default]
    None,
    FailOnce {
        calls_before: u64,
        kind: io::ErrorKind,
    },
    Die {
        calls_before: u64,
    },
    /// The process is dead inside a call; every further one fails.
    Dead,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    plan: Plan,
    fired: bool,
    calls: u64,
}

impl Faults {
    pub(super) fn fail_once(&mut self, nth: u64, kind: io::ErrorKind) {
        self.fired = false;
        self.plan = Plan::FailOnce { calls_before: nth.saturating_sub(1), kind };
    }

    pub(super) fn die(&mut self, nth: u64) {
        self.fired = false;
        self.plan = Plan::Die { calls_before: nth.saturating_sub(1) };
    }

    /// Forgets the plan, and keeps whether it happened.
    pub(super) fn clear(&mut self) {
        self.plan = Plan::None;
    }

    pub(super) fn fired(&self) -> bool {
        self.fired
    }

    pub(super) fn is_dead(&self) -> bool {
        matches!(self.plan, Plan::Dead)
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn next(&mut self) -> Verdict {
        self.calls += 1;
        match &mut self.plan {
            Plan::None => Verdict::Go,
            Plan::FailOnce { calls_before: 0, kind } => {
                let kind = *kind;
                self.plan = Plan::None;
                self.fired = true;
                Verdict::Fail(kind)
            }
            Plan::Die { calls_before: 0 } => {
                self.plan = Plan::Dead;
                self.fired = true;
                Verdict::Fail(io::ErrorKind::Other)
            }
            Plan::FailOnce { calls_before, .. } | Plan::Die { calls_before } => {
                *calls_before -= 1;
                Verdict::Go
            }
            Plan::Dead => Verdict::Fail(io::ErrorKind::Other),
        }
    }
}
