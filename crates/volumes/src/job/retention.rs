//! Which results of a job are old enough to go. Pure.

use std::time::Duration;

use api::longhorn::{RecurringJobSpec, RecurringTask, RetentionPolicy};
use jiff::Timestamp;

/// More than this is never kept by count.
const RETAIN_MAX: usize = 250;

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Newest(usize),
    /// And as many of the newest, however old they are.
    YoungerThan(Duration, usize),
}

impl Keep {
    /// What a job says. Without an age to go by, everything is kept; and what a job has just made is
    /// kept, whatever it says.
    pub(super) fn of(spec: &RecurringJobSpec) -> Self {
        let least = usize::from(spec.task != Some(RecurringTask::SnapshotDelete));
        if spec.retention_policy == Some(RetentionPolicy::AgeBased) {
            let age = spec.retain_age.as_deref().map(api::duration::GoDuration::from);
            let age = age.and_then(|it| it.get().ok()).unwrap_or(Duration::MAX);
            return Self::YoungerThan(age, least);
        }
        let asked = usize::try_from(spec.retain.unwrap_or(1)).unwrap_or(1);
        Self::Newest(asked.clamp(least, RETAIN_MAX))
    }
}

/// The names that go; `all` may be in any order. What was made just now (`made`) is the newest, also where a
/// clock that was ahead gave others a later time; of equal times the later name is the newer.
pub(super) fn expired(
    all: &[(Timestamp, String)],
    keep: Keep,
    made: Option<&str>,
    now: Timestamp,
) -> Vec<String> {
    let mut newest_first = all.to_vec();
    newest_first.sort_by_key(|(taken, name)| {
        std::cmp::Reverse((made == Some(name.as_str()), *taken, name.clone()))
    });
    let goes = |index: usize, taken: Timestamp| match keep {
        Keep::Newest(count) => index >= count,
        Keep::YoungerThan(age, least) => {
            let passed = taken.duration_until(now);
            index >= least && passed.is_positive() && passed.unsigned_abs() > age
        }
    };
    let old = newest_first.into_iter().enumerate();
    old.filter(|(index, (taken, _))| goes(*index, *taken)).map(|(_, (_, name))| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(hour * 3600).unwrap()
    }

    fn all() -> Vec<(Timestamp, String)> {
        [(3, "c"), (1, "a"), (2, "b")].map(|(hour, name)| (at(hour), name.to_owned())).to_vec()
    }

    #[test]
    fn the_newest_are_kept() {
        assert_eq!(expired(&all(), Keep::Newest(1), None, at(4)), ["b", "a"]);
        assert_eq!(expired(&all(), Keep::Newest(5), None, at(4)), Vec::<String>::new());
        assert_eq!(expired(&all(), Keep::Newest(0), None, at(4)).len(), 3);
    }

    /// Else every backup would go as soon as it is made, until that time has come.
    #[test]
    fn what_was_just_made_is_the_newest_whatever_a_clock_said() {
        let made = Some("b");
        assert_eq!(expired(&all(), Keep::Newest(1), made, at(2)), ["c", "a"]);
        assert_eq!(expired(&all(), Keep::Newest(2), made, at(2)), ["a"]);
        let keep = Keep::YoungerThan(Duration::from_mins(1), 1);
        assert_eq!(expired(&all(), keep, made, at(99)), ["c", "a"]);
    }

    #[test]
    fn the_young_are_kept() {
        let keep = Keep::YoungerThan(Duration::from_hours(2), 0);
        assert_eq!(expired(&all(), keep, None, at(4)), ["a"]);
        assert_eq!(expired(&all(), keep, None, at(99)).len(), 3);
    }

    #[test]
    fn a_job_never_removes_the_last_it_has_made() {
        let by_age = (Some(RetentionPolicy::AgeBased), Some("1h".to_owned()));
        for (policy, retain_age) in [(None, None), by_age] {
            for (task, left) in [
                (RecurringTask::Backup, 1),
                (RecurringTask::Snapshot, 1),
                (RecurringTask::SystemBackup, 1),
                (RecurringTask::SnapshotDelete, 0),
            ] {
                let spec = RecurringJobSpec {
                    task: Some(task.clone()),
                    retain: Some(0),
                    retention_policy: policy.clone(),
                    retain_age: retain_age.clone(),
                    ..RecurringJobSpec::default()
                };
                let gone = expired(&all(), Keep::of(&spec), None, at(9999));
                assert_eq!(3 - gone.len(), left, "{task:?}");
                assert_eq!(gone.contains(&"c".to_owned()), left == 0, "{task:?}");
            }
        }
    }

    #[test]
    fn a_job_without_an_age_keeps_everything() {
        let spec = RecurringJobSpec {
            retention_policy: Some(RetentionPolicy::AgeBased),
            ..RecurringJobSpec::default()
        };
        assert_eq!(expired(&all(), Keep::of(&spec), None, at(9999)), Vec::<String>::new());
        assert_eq!(Keep::of(&RecurringJobSpec::default()), Keep::Newest(1));
    }
}
