//! Schedules of five fields, and the names that stand for some. Pure.

use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A rule that gives points in time, in the time zone of the machine.
#[derive(Debug, Clone)]
pub(crate) struct Schedule(Box<Cron>);

impl Schedule {
    /// Says what is wrong, in the words of the dialect.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        people::cron::parse(text).map(|it| Self(Box::new(it)))
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
        for bad in ["", "* * * *", "61 * * * *", "*/0 * * * *", "* * * * * *", "@sometimes"] {
            let why = Schedule::parse(bad).unwrap_err();
            assert!(why.starts_with(&format!("invalid cron format({bad}): ")), "{why}");
        }
    }
}
