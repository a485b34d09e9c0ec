//! The life of a tenant's schedule: accepted or not, and then one backup after the other.
//!
//! [`decide`] names the next [`Step`]; whoever carries it out observes again and asks again, until a
//! step ends the pass. A step is only named when something would change.

use std::time::Duration;

use api::condition::{self, Verdict as Condition};
use api::nonadmin::condition::{ACCEPTED, QUEUED};
use api::nonadmin::{NonAdminScheduleStatus as Status, Phase};
use api::scalar::Time;
use jiff::Timestamp;
use reconcile::Cron;

use crate::spec::Verdict;

/// No pause is longer: clocks may be set.
const LOOK_AT_LEAST: Duration = Duration::from_mins(10);
/// How long to wait for what no event may announce.
const RECHECK: Duration = Duration::from_secs(10);

/// Everything a decision may depend on, gathered anew for every step.
#[derive(Debug, Clone)]
pub struct Observed {
    pub now: Time,
    pub name: String,
    pub created: Time,
    pub generation: Option<i64>,
    /// The object has a deletion time.
    pub is_deleted: bool,
    pub status: Status,
    /// When backups are due, or why the spec is not accepted.
    pub rule: Result<Cron, Verdict>,
    pub is_paused: bool,
    /// Backups that were missed are not made later.
    pub skips_missed: bool,
    /// A backup of this schedule that has not ended, and why, as people read it.
    pub unfinished: Option<String>,
    /// Backups of this schedule whose time ran out: only their objects are left.
    pub expired: Vec<String>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Write the status, go on.
    Report(Box<Status>),
    /// Ask for a backup of this name, then write the status, go on.
    Ask {
        name: String,
        then: Box<Status>,
    },
    /// Remove the object of a backup that is gone.
    Remove {
        name: String,
    },
    End,
    /// The pass is over with an error that only an edit can mend.
    Terminal(String),
    Requeue(Duration),
}

pub fn decide(seen: &Observed) -> Step {
    if seen.is_deleted {
        return Step::End;
    }
    if seen.status.phase.is_none() {
        return seen.report(|status| status.phase = Some(Phase::New)).unwrap_or(Step::End);
    }
    let rule = match &seen.rule {
        Ok(rule) => rule,
        Err(verdict) => return refused(seen, verdict),
    };
    let accepted = seen.report(|status| {
        note(status, seen, true, "ScheduleAccepted", "schedule accepted");
        status.phase = status.phase.max(Some(Phase::Created));
    });
    if let Some(report) = accepted {
        return report;
    }
    if let Some(name) = seen.expired.first() {
        return Step::Remove { name: name.clone() };
    }
    if seen.is_paused {
        return Step::End;
    }
    follow(seen, rule)
}

fn refused(seen: &Observed, verdict: &Verdict) -> Step {
    let (message, after) = match verdict {
        Verdict::Valid => return Step::End,
        Verdict::Invalid(message) => (message, Step::Terminal(message.clone())),
        Verdict::NotYet(message) => (message, Step::Requeue(RECHECK)),
    };
    let report = seen.report(|status| {
        status.phase = status.phase.max(Some(Phase::BackingOff));
        note(status, seen, false, "InvalidScheduleSpec", message);
    });
    report.unwrap_or(after)
}

/// What is due is asked for once, however many were missed.
fn follow(seen: &Observed, rule: &Cron) -> Step {
    if let Some(report) = seen.report(|status| set_back(status, seen)) {
        return report;
    }
    let now = seen.now.timestamp();
    let created = Some(seen.created).filter(|it| *it <= seen.now);
    let known = [created, seen.status.last_backup, seen.status.last_skipped];
    let last = known.into_iter().flatten().map(Time::timestamp).max().unwrap_or(now);
    // There are rules that never come true.
    let Some(due) = rule.after(last) else { return Step::End };
    if due > now {
        return Step::Requeue(left(now, due));
    }
    let is_missed = rule.after(due).is_some_and(|next| next <= now);
    if is_missed && seen.skips_missed {
        let skip = |status: &mut Status| status.last_skipped = Some(seen.now);
        return seen.report(skip).unwrap_or(Step::End);
    }
    if let Some(unfinished) = &seen.unfinished {
        let message = format!("a backup is due and waits for {unfinished}");
        let waits = |status: &mut Status| {
            queued(status, seen, false, "WaitsForBackup", &message);
        };
        return seen.report(waits).unwrap_or(Step::Requeue(RECHECK));
    }
    // Named by when it was due: whoever is killed before it is written down asks for the same again.
    let name = format!("{}-{}", seen.name, due.strftime("%Y%m%d%H%M%S"));
    let mut then = seen.status.clone();
    then.last_backup = Some(seen.now);
    then.last_backup_name = Some(name.clone());
    if condition::get(then.conditions.as_deref().unwrap_or_default(), QUEUED).is_some() {
        queued(&mut then, seen, true, "BackupAsked", "nothing is waited for");
    }
    Step::Ask { name, then: Box::new(then) }
}

/// Times that a clock wrote which was ahead count as now: else nothing would be due until they have come.
fn set_back(status: &mut Status, seen: &Observed) {
    for time in [&mut status.last_backup, &mut status.last_skipped].into_iter().flatten() {
        *time = (*time).min(seen.now);
    }
    if seen.created > seen.now && status.last_backup.is_none() {
        status.last_skipped.get_or_insert(seen.now);
    }
}

fn queued(status: &mut Status, seen: &Observed, holds: bool, reason: &str, message: &str) {
    let verdict = Condition::new(QUEUED, holds, reason, message).at_generation(seen.generation);
    condition::set(status.conditions.get_or_insert_default(), &verdict, seen.now);
}

/// A little later than the whole second, so that it has passed for sure.
fn left(now: Timestamp, due: Timestamp) -> Duration {
    let left = Duration::try_from(now.duration_until(due)).unwrap_or_default();
    left.saturating_add(Duration::from_millis(50)).min(LOOK_AT_LEAST)
}

fn note(status: &mut Status, seen: &Observed, holds: bool, reason: &str, message: &str) {
    let verdict = Condition::new(ACCEPTED, holds, reason, message).at_generation(seen.generation);
    condition::set(status.conditions.get_or_insert_default(), &verdict, seen.now);
}

impl Observed {
    /// Update Status if Changed.
    fn report(&self, change: impl FnOnce(&mut Status)) -> Option<Step> {
        let mut next = self.status.clone();
        change(&mut next);
        (next != self.status).then(|| Step::Report(Box::new(next)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Timestamp::from_second(second).unwrap().into()
    }

    /// Due every minute, made at 0.
    fn new(now: i64) -> Observed {
        Observed {
            now: at(now),
            name: "often".into(),
            created: at(0),
            generation: Some(1),
            is_deleted: false,
            status: Status::default(),
            rule: Ok("@every 60s".parse().unwrap()),
            is_paused: false,
            skips_missed: false,
            unfinished: None,
            expired: Vec::new(),
        }
    }

    /// Carries out steps as an API server would show them next; what was asked for, and the end.
    fn walk(seen: &mut Observed) -> (Vec<String>, Step) {
        let mut asked = Vec::new();
        for _ in 0..20 {
            match decide(seen) {
                Step::Report(status) => seen.status = *status,
                Step::Ask { name, then } => {
                    asked.push(name);
                    seen.status = *then;
                }
                Step::Remove { name } => seen.expired.retain(|it| *it != name),
                end => return (asked, end),
            }
        }
        panic!("no end: {:?}", seen.status);
    }

    #[test]
    fn a_backup_is_asked_for_when_it_is_due_and_once_for_all_that_were_missed() {
        let mut seen = new(10);
        let (asked, end) = walk(&mut seen);
        assert!(asked.is_empty() && matches!(end, Step::Requeue(left) if left.as_secs() == 50));
        assert_eq!(seen.status.phase, Some(Phase::Created));
        seen.now = at(61);
        assert_eq!(walk(&mut seen).0, ["often-19700101000100"]);
        assert_eq!(seen.status.last_backup_name.as_deref(), Some("often-19700101000100"));
        seen.now = at(1000);
        assert_eq!(walk(&mut seen).0, ["often-19700101000201"], "one, not fifteen");
        assert_eq!(walk(&mut seen).0, Vec::<String>::new());
    }

    #[test]
    fn whoever_is_killed_before_it_is_written_down_asks_for_the_same_again() {
        let mut seen = new(10);
        walk(&mut seen);
        seen.now = at(61);
        let Step::Ask { name, .. } = decide(&seen) else { panic!() };
        seen.now = at(75);
        assert!(matches!(decide(&seen), Step::Ask { name: again, .. } if again == name));
    }

    #[test]
    fn one_that_has_not_ended_is_waited_for() {
        let mut seen = Observed { unfinished: Some("b: no".into()), ..new(61) };
        assert_eq!(walk(&mut seen), (Vec::new(), Step::Requeue(RECHECK)));
        let told = |seen: &Observed| {
            let all = seen.status.conditions.clone().unwrap();
            let found = condition::get(&all, QUEUED).unwrap();
            (found.reason.clone(), found.message.clone())
        };
        let (reason, message) = told(&seen);
        assert_eq!(
            (&*reason, &*message),
            ("WaitsForBackup", "a backup is due and waits for b: no")
        );
        seen.unfinished = None;
        assert_eq!(walk(&mut seen).0.len(), 1);
        assert_eq!(told(&seen).0, "BackupAsked");
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_no_schedule_waiting() {
        for ahead in [
            Observed { created: at(90_000), ..new(61) },
            Observed {
                status: Status { last_backup: Some(at(90_000)), ..Status::default() },
                ..new(61)
            },
        ] {
            let mut seen = ahead;
            let (asked, end) = walk(&mut seen);
            assert!(asked.is_empty() && matches!(end, Step::Requeue(left) if left.as_secs() <= 60));
            seen.now = at(130);
            assert_eq!(walk(&mut seen).0.len(), 1);
        }
    }

    #[test]
    fn paused_ones_ask_for_nothing_and_missed_ones_are_skipped_if_so_wanted() {
        let mut seen = Observed { is_paused: true, ..new(1000) };
        assert_eq!(walk(&mut seen), (Vec::new(), Step::End));
        let mut seen = Observed { skips_missed: true, ..new(1000) };
        let (asked, end) = walk(&mut seen);
        assert!(asked.is_empty() && matches!(end, Step::Requeue(_)));
        assert_eq!(seen.status.last_skipped, Some(at(1000)));
        seen.now = at(1061);
        assert_eq!(walk(&mut seen).0.len(), 1, "what is due now is not missed");
    }

    #[test]
    fn an_invalid_one_backs_off_until_it_is_edited() {
        let mut seen = Observed { rule: Err(Verdict::Invalid("no".into())), ..new(61) };
        assert_eq!(walk(&mut seen), (Vec::new(), Step::Terminal("no".into())));
        assert_eq!(seen.status.phase, Some(Phase::BackingOff));
        let condition = seen.status.conditions.clone().unwrap().remove(0);
        assert_eq!((&*condition.reason, &*condition.message), ("InvalidScheduleSpec", "no"));
        seen.rule = new(0).rule;
        assert_eq!(walk(&mut seen).0.len(), 1);
        seen.rule = Err(Verdict::Invalid("no".into()));
        seen.now = at(1000);
        assert_eq!(walk(&mut seen).0, Vec::<String>::new());
        assert_eq!(seen.status.phase, Some(Phase::Created), "phases only move forward");
    }

    #[test]
    fn what_is_left_of_expired_backups_is_removed() {
        let mut seen = Observed { expired: vec!["a".into(), "b".into()], ..new(10) };
        let (asked, _) = walk(&mut seen);
        assert!(asked.is_empty() && seen.expired.is_empty());
        let deleted = Observed { is_deleted: true, expired: vec!["a".into()], ..new(61) };
        assert_eq!(decide(&deleted), Step::End, "its backups stay");
    }
}
