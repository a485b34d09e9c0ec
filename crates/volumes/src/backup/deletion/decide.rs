//! How the data of an object is removed from a backup store, for backups and for the volumes they are
//! of.
//!
//! ```text
//! Completed -> Deleting -> gone                                the task has come to its end
//! Deleting  -> Error -> Deleting                               the task failed: wait, then again
//! Deleting  -> Error (no record) -> Deleting                   the process that ran it is gone
//! ```
//!
//! What never happens: two tasks for one object; an object that is gone while its data is not,
//! unless the user said so; an end of the wait that nothing brings about. `walk` tries them all.

use std::time::Duration;

use api::longhorn::BackupDeletion;
use api::scalar::Time;
use jiff::Timestamp;

/// Said when a deletion is shown as running and nobody runs it. Clients look for these words.
pub(crate) const NO_RECORD: &str = "No deletion in progress record, retry the deletion command";

/// How often a deletion that runs is looked at for its progress.
const LOOK: Duration = Duration::from_secs(1);

/// The state of the object, as far as a deletion cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Deleting,
    Error,
    /// Whatever it was before.
    Other,
}

/// What this process knows of a task. It is gone with the process: that is how a crash is seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Record {
    None,
    Running { attempt: String, percent: i32, waits_for: Option<String> },
    Failed { attempt: String, why: String },
    Done,
}

/// How long to wait after a failure: doubled from the first to the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    pub(crate) const DEFAULT: Self =
        Self { first: Duration::from_secs(10), longest: Duration::from_mins(1) };

    pub(crate) fn after(self, failures: i32) -> Duration {
        let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// Everything a decision may look at, for an object whose deletion was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) now: Timestamp,
    pub(crate) state: State,
    /// What the status says of the deletion.
    pub(crate) status: BackupDeletion,
    pub(crate) record: Record,
    /// The user wants the object gone and the data kept.
    pub(crate) keeps_data: bool,
    /// Nothing of it can be in a store.
    pub(crate) was_never_stored: bool,
    /// What must end before a deletion may begin, in words.
    pub(crate) held_by: Option<String>,
    /// Where the data is, if that is not the store that would be asked now.
    pub(crate) moved: Option<String>,
    /// The user does not want to wait for the next attempt.
    pub(crate) retry_now: bool,
    /// The id that the next attempt would have.
    pub(crate) next_attempt: String,
    /// What is deleted, for messages: as in "the backup URL in the backupstore".
    pub(crate) what: String,
    pub(crate) backoff: Backoff,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    /// Show first, and start the task only if that was stored.
    Start,
    /// The task's end was shown: its record is no longer needed.
    Forget,
    /// It cannot be tried as things are, and that was said: whoever did not want to wait has the answer.
    Refuse,
    /// The object may go.
    Release,
}

/// What users see.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    pub(crate) state: State,
    pub(crate) deletion: BackupDeletion,
    pub(crate) info: Option<String>,
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) act: Act,
    /// Nothing: the status stays as it is.
    pub(crate) show: Option<Shown>,
    /// When to look again though nothing changes.
    pub(crate) look_after: Option<Duration>,
}

pub(crate) fn decide(seen: &Seen) -> Verdict {
    if seen.keeps_data {
        return release();
    }
    let told = seen.status.attempt.as_deref();
    match (seen.state, &seen.record) {
        (_, Record::Done) => release(),
        (_, Record::Running { attempt, percent, waits_for }) => {
            follow(seen, attempt, *percent, waits_for.as_deref())
        }
        (State::Deleting, Record::Failed { why, .. }) => fail(seen, failure(seen, why)),
        (State::Deleting, Record::None) => fail(seen, NO_RECORD.to_owned()),
        // Its end was stored, but the answer did not arrive.
        (State::Error, Record::Failed { attempt, .. }) if told == Some(attempt) => {
            let next = start_or_wait(seen);
            if next.act == Act::Nothing { Verdict { act: Act::Forget, ..next } } else { next }
        }
        (State::Error | State::Other, Record::Failed { why, .. }) => fail(seen, failure(seen, why)),
        (State::Other, Record::None) if seen.was_never_stored => release(),
        (State::Error, Record::None) if seen.was_never_stored => release(),
        (State::Error | State::Other, Record::None) => start_or_wait(seen),
    }
}

fn release() -> Verdict {
    Verdict { act: Act::Release, show: None, look_after: None }
}

fn failure(seen: &Seen, why: &str) -> String {
    format!("Failed to delete {} in the backupstore, err {why}", seen.what)
}

/// A task runs: that is what is shown, whatever was shown before.
fn follow(seen: &Seen, attempt: &str, percent: i32, waits_for: Option<&str>) -> Verdict {
    let deletion = BackupDeletion {
        attempt: Some(attempt.to_owned()),
        progress: Some(percent),
        retry_at: None,
        waits_for: None,
        ..seen.status.clone()
    };
    let info = waits_for.map(str::to_owned);
    let show = Some(Shown { state: State::Deleting, deletion, info, error: None });
    Verdict { act: Act::Nothing, show, look_after: Some(LOOK) }
}

fn fail(seen: &Seen, why: String) -> Verdict {
    let failures = seen.status.failures.unwrap_or(0).saturating_add(1);
    let pause = seen.backoff.after(failures);
    let deletion = BackupDeletion {
        failures: Some(failures),
        retry_at: Some(after(seen.now, pause)),
        progress: None,
        waits_for: None,
        ..seen.status.clone()
    };
    let show = Some(Shown { state: State::Error, deletion, info: None, error: Some(why) });
    Verdict { act: Act::Forget, show, look_after: Some(pause) }
}

/// The second in which the pause is surely over: documents say no less.
fn after(now: Timestamp, pause: Duration) -> Time {
    let whole = pause.saturating_add(Duration::from_millis(999));
    Time::new(now.checked_add(whole).unwrap_or(now))
}

fn start_or_wait(seen: &Seen) -> Verdict {
    if let Some(holder) = &seen.held_by {
        let deletion = BackupDeletion { waits_for: Some(holder.clone()), ..seen.status.clone() };
        let info = Some(format!("The deletion waits: {holder}"));
        let show = Some(Shown { state: seen.state, deletion, info, error: None });
        // Its end is an event; this is for the one that got lost.
        return Verdict { act: Act::Nothing, show, look_after: Some(Duration::from_secs(10)) };
    }
    let retry_at = seen.status.retry_at.map(Time::timestamp);
    // Nobody waits for longer than the longest pause: the clock was set back since.
    let latest = after(seen.now, seen.backoff.longest).timestamp();
    let is_ahead = |at: &Timestamp| *at > seen.now && *at <= latest;
    if let Some(at) = retry_at.filter(is_ahead).filter(|_| !seen.retry_now) {
        let pause = seen.now.duration_until(at).unsigned_abs();
        return Verdict { act: Act::Nothing, show: None, look_after: Some(pause) };
    }
    // A store that never had it says that it is gone.
    if let Some(why) = &seen.moved {
        return Verdict { act: Act::Refuse, ..fail(seen, failure(seen, why)) };
    }
    let deletion = BackupDeletion {
        attempt: Some(seen.next_attempt.clone()),
        started_at: Some(Time::new(seen.now)),
        progress: Some(0),
        failures: seen.status.failures,
        retry_at: None,
        waits_for: None,
    };
    let show = Some(Shown { state: State::Deleting, deletion, info: None, error: None });
    Verdict { act: Act::Start, show, look_after: Some(LOOK) }
}

#[cfg(test)]
mod tests;
