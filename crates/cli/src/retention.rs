//! Which backups a policy keeps. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Rules; a backup is kept if any of them keeps it. Days and weeks are those of UTC.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "What to keep")]
pub(crate) struct Keep {
    /// The newest ones.
    #[arg(long = "keep-last", value_name = "N", default_value_t = 0)]
    last: usize,
    /// The newest of each of the last N hours that have one.
    #[arg(long = "keep-hourly", value_name = "N", default_value_t = 0)]
    hourly: usize,
    /// The newest of each of the last N days that have one.
    #[arg(long = "keep-daily", value_name = "N", default_value_t = 0)]
    daily: usize,
    /// The newest of each of the last N weeks that have one.
    #[arg(long = "keep-weekly", value_name = "N", default_value_t = 0)]
    weekly: usize,
    /// The newest of each of the last N months that have one.
    #[arg(long = "keep-monthly", value_name = "N", default_value_t = 0)]
    monthly: usize,
    /// The newest of each of the last N years that have one.
    #[arg(long = "keep-yearly", value_name = "N", default_value_t = 0)]
    yearly: usize,
    /// Everything younger than this many days; where nothing is, that many days up to the newest.
    #[arg(long = "keep-within", value_name = "DAYS", default_value_t = 0)]
    within: u32,
}

impl Keep {
    #[cfg(test)]
    pub(crate) fn newest(last: usize) -> Self {
        Self { last, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules().iter().all(|(_, count, _)| *count == 0) && self.within == 0
    }

    fn rules(&self) -> [(&'static str, usize, Option<&'static str>); 6] {
        [
            ("last", self.last, None),
            ("hourly", self.hourly, Some("%Y-%m-%d %H")),
            ("daily", self.daily, Some("%Y-%m-%d")),
            ("weekly", self.weekly, Some("%G-%V")),
            ("monthly", self.monthly, Some("%Y-%m")),
            ("yearly", self.yearly, Some("%Y")),
        ]
    }
}

/// The names that stay, each with the rules that keep it.
pub(crate) fn kept(
    backups: &[(String, Timestamp)],
    keep: &Keep,
    now: Timestamp,
) -> BTreeMap<String, Vec<&'static str>> {
    let mut newest: Vec<_> = backups.iter().collect();
    newest.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut kept: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for (rule, count, period) in keep.rules() {
        let mut seen = BTreeSet::new();
        for (place, (name, at)) in newest.iter().enumerate() {
            let period = match period {
                // Each backup is a period of its own.
                None => place.to_string(),
                Some(format) => at.to_zoned(TimeZone::UTC).strftime(format).to_string(),
            };
            if seen.len() < count && seen.insert(period) {
                kept.entry(name.clone()).or_default().push(rule);
            }
        }
    }
    let limit = i64::from(keep.within) * 86_400;
    // A schedule that stands still must not take the last of what it made with it.
    let end = match newest.first() {
        Some((_, at)) if now.as_second().saturating_sub(at.as_second()) > limit => *at,
        _ => now,
    };
    for (name, at) in newest {
        if limit > 0 && end.as_second().saturating_sub(at.as_second()) <= limit {
            kept.entry(name.clone()).or_default().push("within");
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn days() -> Vec<(String, Timestamp)> {
        let hours = (0..10).flat_map(|day| [(day, 2), (day, 14)]);
        hours
            .map(|(day, hour)| {
                let text = format!("2026-11-{:02}T{hour:02}:00:00Z", day + 1);
                (format!("d{}h{hour}", day + 1), at(&text))
            })
            .collect()
    }

    #[test]
    fn the_newest_of_each_day_stays() {
        let keep = Keep { daily: 3, ..Keep::default() };
        let kept = kept(&days(), &keep, at("2026-11-10T20:00:00Z"));
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["d10h14", "d8h14", "d9h14"]);
    }

    #[test]
    fn a_backup_may_be_kept_by_several_rules() {
        let keep = Keep { last: 1, monthly: 2, within: 1, ..Keep::default() };
        let kept = kept(&days(), &keep, at("2026-11-10T20:00:00Z"));
        assert_eq!(kept["d10h14"], ["last", "monthly", "within"]);
        assert_eq!(kept["d10h2"], ["within"]);
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn a_backup_of_the_future_is_kept_within() {
        let keep = Keep { within: 1, ..Keep::default() };
        assert!(!keep.is_empty());
        assert_eq!(kept(&days(), &keep, at("2026-11-01T00:00:00Z")).len(), 20);
    }

    /// A schedule that has stood still for long must not take the last of them with it.
    #[test]
    fn where_none_was_made_for_long_none_goes() {
        let keep = Keep { within: 2, ..Keep::default() };
        let kept = kept(&days(), &keep, at("2027-06-01T00:00:00Z"));
        let names: Vec<_> = kept.keys().map(String::as_str).collect();
        assert_eq!(names, ["d10h14", "d10h2", "d8h14", "d9h14", "d9h2"]);
    }

    #[test]
    fn no_rule_keeps_nothing() {
        assert!(Keep::default().is_empty());
        assert!(kept(&days(), &Keep::default(), at("2026-11-10T20:00:00Z")).is_empty());
    }
}
