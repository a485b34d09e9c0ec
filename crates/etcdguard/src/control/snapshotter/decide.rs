//! Whether a snapshotter that begins needs a full snapshot, or can go on with deltas. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::chain::Chain;
use crate::control::schedule::Schedule;

/// What a start begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Full(Why),
    /// Go on after the newest snapshot.
    Deltas,
}

/// Why a full snapshot is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Whoever started it wants one.
    Asked,
    /// There is none yet.
    First,
    /// The newest was meant to be the last of an earlier life.
    AfterFinal,
    TooOld,
    /// The last attempt failed.
    Retry,
    /// The next planned one is too far from the last.
    Missed,
    /// The deltas of the store do not follow one another: no restore would come past the gap.
    Gap,
    /// The store holds another history than this etcd has.
    OtherHistory,
    /// It may: what it ends with cannot be compared.
    Unsure,
}

/// Whether an etcd continues what is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bond {
    /// Or nothing is there to continue.
    Continues,
    /// What the store ends with cannot be read.
    Unreadable,
    /// It can be read, but not be compared.
    Unsure,
    /// Why not.
    Other(String),
}

pub(super) struct Facts<'a> {
    pub(super) chain: &'a Chain,
    pub(super) schedule: &'a Schedule,
    pub(super) now: Timestamp,
    pub(super) bond: &'a Bond,
    pub(super) last_full_failed: bool,
}

pub(super) fn start(facts: &Facts<'_>) -> Start {
    match facts.bond {
        Bond::Other(_) => return Start::Full(Why::OtherHistory),
        Bond::Unsure => return Start::Full(Why::Unsure),
        // The dialect goes on after it. So do we at first, and a full follows with the next delta's
        // time: no restore comes past what cannot be read.
        Bond::Continues | Bond::Unreadable => {}
    }
    let Some(full) = &facts.chain.full else { return Start::Full(Why::First) };
    let window = facts.schedule.window();
    if full.is_final {
        Start::Full(Why::AfterFinal)
    } else if facts.chain.has_gap() {
        Start::Full(Why::Gap)
    } else if apart(full.created_on, facts.now) > window {
        Start::Full(Why::TooOld)
    } else if facts.last_full_failed {
        Start::Full(Why::Retry)
    } else if missed(facts, full.created_on, window) {
        Start::Full(Why::Missed)
    } else {
        Start::Deltas
    }
}

fn missed(facts: &Facts<'_>, created: Timestamp, window: Duration) -> bool {
    let Some(next) = facts.schedule.next(facts.now) else { return true };
    // Names of snapshots, and planned times, are whole seconds.
    let created = Timestamp::from_second(created.as_second()).unwrap_or(created);
    apart(created, next) > window
}

fn apart(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Snapshot;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn decided(full: Option<Snapshot>, schedule: &str, failed: bool, is_other: bool) -> Start {
        let bond = if is_other { Bond::Other(String::new()) } else { Bond::Continues };
        let chain = Chain { full, deltas: Vec::new() };
        start(&Facts {
            chain: &chain,
            schedule: &format!("CRON_TZ=UTC {schedule}").parse().unwrap(),
            now: at("2026-11-15T06:30:00Z"),
            bond: &bond,
            last_full_failed: failed,
        })
    }

    fn full(created: &str, is_final: bool) -> Snapshot {
        Snapshot::full(5, at(created), None, is_final)
    }

    #[test]
    fn a_full_is_taken_exactly_when_it_is_needed() {
        let recent = "2026-11-15T06:00:00Z";
        let twelve = "0 */12 * * *";
        for (full, schedule, failed, is_other, wanted) in [
            (None, twelve, false, false, Start::Full(Why::First)),
            (Some(full(recent, false)), twelve, false, false, Start::Deltas),
            (None, twelve, false, true, Start::Full(Why::OtherHistory)),
            (Some(full(recent, false)), twelve, false, true, Start::Full(Why::OtherHistory)),
            (Some(full(recent, true)), twelve, false, false, Start::Full(Why::AfterFinal)),
            (Some(full(recent, false)), twelve, true, false, Start::Full(Why::Retry)),
            (
                Some(full("2026-11-14T06:00:00Z", false)),
                twelve,
                false,
                false,
                Start::Full(Why::TooOld),
            ),
            // Not too old yet, but the next slot would come too late.
            (
                Some(full("2026-11-14T23:00:00Z", false)),
                twelve,
                false,
                false,
                Start::Full(Why::Missed),
            ),
            (Some(full(recent, false)), "0 0 1 1 *", false, false, Start::Full(Why::Missed)),
            (Some(full(recent, false)), "0 0 * * 1", false, false, Start::Deltas),
        ] {
            assert_eq!(decided(full.clone(), schedule, failed, is_other), wanted, "{full:?}");
        }
    }
}
