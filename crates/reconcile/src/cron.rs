//! When a schedule is due: five fields, a word like `@daily`, or `@every 1h`, with `CRON_TZ=` in front
//! where another time zone is meant. Pure.

use std::str::FromStr;

use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

const NAMED: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

#[derive(Debug, Clone)]
pub struct Cron(Rule);

#[derive(Debug, Clone)]
enum Rule {
    Every(SignedDuration),
    Fields { fields: Box<croner::Cron>, zone: TimeZone },
}

impl FromStr for Cron {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let named = text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ="));
        let (zone, rest) = match named {
            None => (TimeZone::system(), text),
            Some(named) => {
                let (name, rest) = named.split_once(' ').ok_or("nothing follows the time zone")?;
                (TimeZone::get(name).map_err(|error| error.to_string())?, rest.trim())
            }
        };
        if let Some(period) = rest.strip_prefix("@every ") {
            let period = api::duration::GoDuration::from(period.trim());
            let period = period.get().map_err(|error| error.to_string())?;
            let seconds = i64::try_from(period.as_secs().max(1)).map_err(|it| it.to_string())?;
            return Ok(Self(Rule::Every(SignedDuration::from_secs(seconds))));
        }
        let fields = NAMED.iter().find(|(name, _)| *name == rest).map_or(rest, |(_, it)| it);
        let fields = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build()
            .parse(fields)
            .map_err(|error| error.to_string())?;
        Ok(Self(Rule::Fields { fields: Box::new(fields), zone }))
    }
}

impl Cron {
    /// The first time after `last`.
    pub fn after(&self, last: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Rule::Every(period) => last.checked_add(*period).ok(),
            Rule::Fields { fields, zone } => {
                let last = last.to_zoned(zone.clone());
                fields.find_next_occurrence(&last, false).ok().map(|it| it.timestamp())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_words_and_periods_are_understood() {
        let last: Timestamp = "2024-01-31T10:15:30Z".parse().unwrap();
        for (text, wanted) in [
            ("CRON_TZ=UTC */10 * * * *", "2024-01-31T10:20:00Z"),
            ("CRON_TZ=UTC @daily", "2024-02-01T00:00:00Z"),
            ("CRON_TZ=Europe/Berlin 0 3 * * *", "2024-02-01T02:00:00Z"),
            ("@every 90s", "2024-01-31T10:17:00Z"),
        ] {
            let cron: Cron = text.parse().unwrap();
            assert_eq!(cron.after(last).unwrap().to_string(), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in ["", "* * * *", "0 0 0 0 0 0 0", "CRON_TZ=Nowhere/At 0 * * * *", "@every x"] {
            assert!(text.parse::<Cron>().is_err(), "{text}");
        }
    }
}
