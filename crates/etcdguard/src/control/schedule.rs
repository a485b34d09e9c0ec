//! When something is to be done: five fields of cron, `@hourly` and its like, or `@every 1h`;
//! with `CRON_TZ=` in front, else in the time zone of the machine. Pure.

use std::str::FromStr;
use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

const DAY: Duration = Duration::from_hours(24);
const WEEK: Duration = Duration::from_hours(7 * 24);
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
/// A wait is cut into pieces no longer than this: the clock of the machine may be set meanwhile.
const WAIT_PIECE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a schedule: {why}")]
pub struct ScheduleError {
    text: String,
    why: String,
}

/// A rule that gives points in time.
#[derive(Debug, Clone)]
pub struct Schedule {
    rule: Rule,
    window: Duration,
}

#[derive(Debug, Clone)]
enum Rule {
    Every(SignedDuration),
    Cron { cron: Box<Cron>, zone: TimeZone },
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let fail = |why: String| ScheduleError { text: text.to_owned(), why };
        let (zone, rest) = zone(text.trim()).map_err(&fail)?;
        let window = window(rest);
        if let Some(period) = rest.strip_prefix("@every ") {
            let period: SignedDuration =
                period.trim().parse().map_err(|error: jiff::Error| fail(error.to_string()))?;
            // Less than a second is a second, and parts of one do not count.
            let period = SignedDuration::from_secs(period.as_secs().max(1));
            return Ok(Self { rule: Rule::Every(period), window });
        }
        let named = NAMED.iter().find(|(name, _)| *name == rest);
        let fields = named.map_or(rest, |(_, fields)| fields);
        let cron = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build()
            .parse(fields)
            .map_err(|error| fail(error.to_string()))?;
        Ok(Self { rule: Rule::Cron { cron: Box::new(cron), zone }, window })
    }
}

fn zone(text: &str) -> Result<(TimeZone, &str), String> {
    let named = text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ="));
    let Some(named) = named else { return Ok((TimeZone::system(), text)) };
    let (name, rest) = named.split_once(' ').ok_or("nothing follows the time zone")?;
    let zone = TimeZone::get(name).map_err(|error| error.to_string())?;
    Ok((zone, rest.trim()))
}

/// How far apart the points are at most that a full snapshot may be missed for.
fn window(text: &str) -> Duration {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [_, hour, day, _, weekday, ..] = fields.as_slice() else { return DAY };
    if *weekday != "*" {
        return WEEK;
    }
    let step = hour.split_once('/').and_then(|(_, step)| step.parse().ok());
    match step {
        Some(hours) if *day == "*" => Duration::from_hours(hours),
        Some(_) | None => DAY,
    }
}

impl Schedule {
    /// The first point after `now`; none if there is none in the years to come.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.rule {
            Rule::Every(period) => {
                let whole = Timestamp::from_second(now.as_second()).ok()?;
                whole.checked_add(*period).ok()
            }
            Rule::Cron { cron, zone } => {
                let now = now.to_zoned(zone.clone());
                cron.find_next_occurrence(&now, false).ok().map(|at| at.timestamp())
            }
        }
    }

    /// What was planned, or a point before it that is to come again: the clock may have been put back,
    /// by years where it was wrong when the machine began.
    pub fn sooner(&self, planned: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        let next = self.next(now);
        planned.into_iter().chain(next).min()
    }

    /// The last point at `now` or before; none where points follow from when one looks.
    pub fn last(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.rule {
            Rule::Every(_) => None,
            Rule::Cron { cron, zone } => {
                let now = now.to_zoned(zone.clone());
                cron.find_previous_occurrence(&now, true).ok().map(|at| at.timestamp())
            }
        }
    }

    /// A full snapshot older than this is too old, whatever the next point is.
    pub fn window(&self) -> Duration {
        self.window
    }
}

/// Ends when the clock of the machine shows `at`; never if there is no such time.
///
/// # Cancel safety
///
/// Cancel-safe.
pub(super) async fn wait_until(at: Option<Timestamp>) {
    let Some(at) = at else { return std::future::pending().await };
    while let Ok(left) = Duration::try_from(at.duration_since(Timestamp::now())) {
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(WAIT_PIECE)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, now: &str) -> String {
        let schedule: Schedule = schedule.parse().unwrap();
        schedule.next(now.parse().unwrap()).unwrap().to_string()
    }

    #[test]
    fn the_next_point_is_after_now() {
        let now = "2026-11-15T06:30:00.5Z";
        for (schedule, wanted) in [
            ("CRON_TZ=UTC 0 */1 * * *", "2026-11-15T07:00:00Z"),
            ("CRON_TZ=UTC 30 6 * * *", "2026-11-16T06:30:00Z"),
            ("TZ=UTC 0 0 1 1 *", "2027-01-01T00:00:00Z"),
            ("CRON_TZ=Europe/Berlin 0 12 * * *", "2026-11-15T11:00:00Z"),
            ("CRON_TZ=UTC 0 0 13 * 5", "2026-11-20T00:00:00Z"),
            ("CRON_TZ=UTC @weekly", "2026-11-22T00:00:00Z"),
            ("@every 1h30m", "2026-11-15T08:00:00Z"),
            ("@every 10ms", "2026-11-15T06:30:01Z"),
        ] {
            assert_eq!(next(schedule, now), wanted, "{schedule}");
        }
    }

    #[test]
    fn a_clock_that_is_put_back_delays_nothing() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        for (schedule, planned, now, wanted) in [
            (
                "CRON_TZ=UTC 0 4 * * *",
                "2031-01-02T04:00:00Z",
                "2026-11-15T06:00:00Z",
                "2026-11-16T04:00:00Z",
            ),
            (
                "CRON_TZ=UTC 0 4 * * *",
                "2026-11-15T04:00:00Z",
                "2026-11-15T03:00:00Z",
                "2026-11-15T04:00:00Z",
            ),
            (
                "CRON_TZ=UTC 0 4 * * *",
                "2026-11-15T04:00:00Z",
                "2026-11-15T04:00:01Z",
                "2026-11-15T04:00:00Z",
            ),
            ("@every 1h", "2031-01-02T04:00:00Z", "2026-11-15T06:00:00Z", "2026-11-15T07:00:00Z"),
            ("@every 1h", "2026-11-15T06:10:00Z", "2026-11-15T06:00:00Z", "2026-11-15T06:10:00Z"),
        ] {
            let schedule: Schedule = schedule.parse().unwrap();
            assert_eq!(schedule.sooner(Some(at(planned)), at(now)), Some(at(wanted)), "{planned}");
        }
    }

    #[test]
    fn the_window_follows_the_fields() {
        for (schedule, hours) in [
            ("0 */1 * * *", 1),
            ("0 */12 * * *", 12),
            ("5 4 * * *", 24),
            ("0 0 */3 * *", 24),
            ("0 */6 1 * *", 24),
            ("0 */6 * * 1", 168),
            ("@hourly", 24),
            ("@every 1h", 24),
        ] {
            let schedule: Schedule = schedule.parse().unwrap();
            assert_eq!(schedule.window(), Duration::from_hours(hours), "{schedule:?}");
        }
    }

    #[test]
    fn what_is_no_schedule_is_said_to_be_none() {
        for text in ["", "* * * *", "* * * * * *", "61 * * * *", "@sometimes", "@every", "TZ=UTC"] {
            let error = text.parse::<Schedule>().unwrap_err();
            assert!(error.to_string().contains("is not a schedule"), "{error}");
        }
    }
}
