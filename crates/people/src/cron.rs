//! Schedules of five fields, and the names that stand for some.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

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

/// Says what is wrong, in the words of the dialect.
pub fn parse(text: &str) -> Result<Cron, String> {
    let trimmed = text.trim();
    let named = NAMED.iter().find(|(name, _)| *name == trimmed);
    let fields = named.map_or(trimmed, |(_, fields)| fields);
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(fields).map_err(|error| format!("invalid cron format({text}): {error}"))
}
