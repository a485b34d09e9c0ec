//! Schedules of five fields, and the names that stand for some. Pure.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Names and what they stand for.
const NAMED: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A rule that gives points in time, in the time zone of the machine.
#[derive(Debug, Clone)]
pub(crate) struct Schedule(Box<Cron>);

impl Schedule {
    /// Says what is wrong, in the words of the dialect.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let named = NAMED.iter().find(|(name, _)| *name == trimmed);
        let fields = named.map_or(trimmed, |(_, fields)| fields);
        let parser =
            CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(fields);
        cron.map(|it| Self(Box::new(it)))
            .map_err(|error| format!("invalid cron format({text}): {error}"))
    }

    /// The first point after `since`; none if there is none in the years to come.
    pub(crate) fn next(&self, since: Timestamp) -> Option<Timestamp> {
        let since = since.to_zoned(TimeZone::system());
        self.0.find_next_occurrence(&since, false).ok().map(|at| at.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_have_five_fields_or_a_name() {
        let at: Timestamp = "2025-03-01T10:00:30Z".parse().unwrap();
        let next = Schedule::parse("* * * * *").unwrap().next(at).unwrap();
        assert_eq!(next, "2025-03-01T10:01:00Z".parse().unwrap());
        assert!(Schedule::parse("@hourly").unwrap().next(at).unwrap() > at);
        for bad in ["", "* * * *", "61 * * * *", "* * * * * *", "@sometimes"] {
            let why = Schedule::parse(bad).unwrap_err();
            assert!(why.starts_with(&format!("invalid cron format({bad}): ")), "{why}");
        }
    }
}
