//! Charts, as shapes with whole coordinates: the calendar of backups, what stores hold and what that
//! would be without sharing, how fast backups were sent, how far standby volumes are behind, when
//! snapshots of an etcd were taken. Pure; the template draws them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan as _};
use people::units::bytes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) kind: &'static str,
    /// What there is to see, for those who do not see it.
    pub(crate) told: String,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) marks: Vec<Mark>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    Rect { x: u64, y: u64, width: u64, height: u64, class: &'static str, title: String },
    Text { x: u64, y: u64, class: &'static str, text: String },
    Path { d: String, class: &'static str },
}

const WIDTH: u64 = 330;
const WEEKS: i64 = 17;
const CELL: u64 = 14;
const STEP: u64 = 17;
const LEFT: u64 = 34;
const TOP: u64 = 18;

/// A square for each day of the last weeks, darker the more backups are of it.
pub(crate) fn calendar(days: &BTreeMap<Date, u64>, today: Date) -> Chart {
    let into_week = i64::from(today.weekday().to_monday_zero_offset());
    let first = today.saturating_sub((7 * (WEEKS - 1) + into_week).days());
    let most = days.range(first..=today).map(|(_, count)| *count).max().unwrap_or(0);
    let mut marks = Vec::new();
    for (row, name) in [(0, "Mon"), (2, "Wed"), (4, "Fri")] {
        let y = TOP + row * STEP + CELL - 3;
        marks.push(Mark::Text { x: LEFT - 6, y, class: "end", text: name.to_owned() });
    }
    let mut months: Vec<(u64, String)> = Vec::new();
    let (mut column, mut day, mut month) = (0, first, 0);
    while day <= today {
        let row = u64::try_from(day.weekday().to_monday_zero_offset()).unwrap_or(0);
        let x = LEFT + column * STEP;
        if row == 0 && day.month() != month {
            month = day.month();
            months.push((x, day.strftime("%b").to_string()));
        }
        let count = days.get(&day).copied().unwrap_or(0);
        marks.push(Mark::Rect {
            x,
            y: TOP + row * STEP,
            width: CELL,
            height: CELL,
            class: shade(count, most),
            title: format!("{day}: {count}"),
        });
        column += u64::from(row == 6);
        day = day.saturating_add(1.day());
    }
    // A month of which only its end is to be seen has no room for its name.
    if matches!(months.as_slice(), [(one, _), (next, _), ..] if next - one < 3 * STEP) {
        months.remove(0);
    }
    let named = months.into_iter().map(|(x, text)| Mark::Text { x, y: TOP - 6, class: "", text });
    marks.extend(named);
    let all: u64 = days.range(first..=today).map(|(_, count)| *count).sum();
    let on = days.range(first..=today).filter(|(_, count)| **count > 0).count();
    let on = u64::try_from(on).unwrap_or(0);
    Chart {
        title: "Backup calendar",
        kind: "calendar",
        told: format!(
            "{} on {} since {first}; at most {most} on one day.",
            counted(all, "complete backup", "complete backups"),
            counted(on, "day", "days")
        ),
        width: WIDTH,
        height: TOP + 7 * STEP,
        marks,
    }
}

fn shade(count: u64, most: u64) -> &'static str {
    match (count, most) {
        (0, _) => "q0",
        (count, most) if count * 4 <= most => "q1",
        (count, most) if count * 2 <= most => "q2",
        (count, most) if count * 4 <= most * 3 => "q3",
        _ => "q4",
    }
}

const PLOT_TOP: u64 = 14;
const PLOT_HEIGHT: u64 = 90;
const PLOT_LEFT: u64 = 58;

/// One complete backup, for charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stored {
    pub(crate) at: Timestamp,
    /// What it holds.
    pub(crate) bytes: u64,
    /// What it has added to its store.
    pub(crate) added: u64,
}

/// What backups have added to stores, one upon the other, over time; and what they hold, as if each
/// were stored by itself.
pub(crate) fn growth(mut stored: Vec<Stored>) -> Option<Chart> {
    stored.sort();
    let (first, last) = (stored.first()?.at, stored.last()?.at);
    let added: u64 = stored.iter().map(|it| it.added).sum();
    let held: u64 = stored.iter().map(|it| it.bytes).sum();
    if added == 0 {
        return None;
    }
    let top = added.max(held);
    let span = seconds(first, last);
    let across = |at| PLOT_LEFT + scaled(seconds(first, at), span, WIDTH - PLOT_LEFT);
    let bottom = PLOT_TOP + PLOT_HEIGHT;
    let stairs = |of: &dyn Fn(&Stored) -> u64| {
        let mut total = 0;
        let mut d = format!("M{PLOT_LEFT} {bottom}");
        for it in &stored {
            total += of(it);
            let _ = write!(d, "H{}V{}", across(it.at), bottom - scaled(total, top, PLOT_HEIGHT));
        }
        let _ = write!(d, "H{WIDTH}");
        d
    };
    let (lower, upper) = (stairs(&|it| it.added), stairs(&|it| it.bytes));
    let mut marks = vec![
        Mark::Path { d: format!("{lower}V{bottom}Z"), class: "area" },
        Mark::Path { d: upper, class: "line whole" },
        Mark::Path { d: lower, class: "line" },
    ];
    marks.extend(axes(bytes(top), ends(first, last)));
    Some(Chart {
        title: "Data in the stores",
        kind: "growth",
        told: format!(
            "Backups since {} hold {} and take {} in their stores{}.",
            day(first),
            bytes(held),
            bytes(added),
            saved(held, added)
        ),
        width: WIDTH,
        height: bottom + 24,
        marks,
    })
}

/// What sharing saves, in percent.
fn saved(held: u64, added: u64) -> String {
    match held.checked_sub(added).filter(|it| *it > 0) {
        Some(less) => format!(": sharing saves {} %", scaled(less, held, 100)),
        None => String::new(),
    }
}

/// A line below and one at the left, with what they end at.
fn axes(top: String, (first, last): (String, String)) -> [Mark; 5] {
    let bottom = PLOT_TOP + PLOT_HEIGHT;
    let text = |x, y, class, text| Mark::Text { x, y, class, text };
    [
        Mark::Path { d: format!("M{PLOT_LEFT} {PLOT_TOP}V{bottom}H{WIDTH}"), class: "axis" },
        text(PLOT_LEFT - 6, PLOT_TOP + 4, "end", top),
        text(PLOT_LEFT - 6, bottom, "end", "0".to_owned()),
        text(PLOT_LEFT, bottom + 16, "", first),
        text(WIDTH, bottom + 16, "end", last),
    ]
}

/// What stands at both ends of a line of time: days, or hours of one day.
fn ends(first: Timestamp, last: Timestamp) -> (String, String) {
    let (one, other) = (day(first), day(last));
    if one != other {
        return (one, other);
    }
    let hour = |at: Timestamp| at.strftime("%H:%M").to_string();
    (format!("{one}, {}", hour(first)), hour(last))
}

fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

/// From one to the other; none if it is the other way round.
fn seconds(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.as_second().saturating_sub(from.as_second())).unwrap_or(0)
}

/// How fast something was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) at: Timestamp,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// At least one: times are told in whole seconds.
    pub(crate) seconds: u64,
}

/// So many of the newest.
const MAX_COLUMNS: usize = 34;

/// A column for each of the newest backups that sent anything, as high as it was fast.
pub(crate) fn throughput(mut sent: Vec<Sent>) -> Option<Chart> {
    sent.retain(|it| it.bytes > 0);
    sent.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
    let sent = sent.split_off(sent.len().saturating_sub(MAX_COLUMNS));
    let (first, last) = (sent.first()?.at, sent.last()?.at);
    let rate = |it: &Sent| it.bytes / it.seconds.max(1);
    let top = sent.iter().map(rate).max()?.max(1);
    let bottom = PLOT_TOP + PLOT_HEIGHT;
    let step = (WIDTH - PLOT_LEFT) / u64::try_from(MAX_COLUMNS).unwrap_or(1);
    let columns = sent.iter().zip(0..).map(|(it, place)| {
        let height = scaled(rate(it), top, PLOT_HEIGHT).max(1);
        Mark::Rect {
            x: PLOT_LEFT + 2 + place * step,
            y: bottom - height,
            width: step - 2,
            height,
            class: "bar",
            title: format!("{}: {} in {} s", it.name, bytes(it.bytes), it.seconds.max(1)),
        }
    });
    let mut marks: Vec<Mark> = columns.collect();
    marks.extend(axes(format!("{}/s", bytes(top)), ends(first, last)));
    let (all, took): (u64, u64) =
        (sent.iter().map(|it| it.bytes).sum(), sent.iter().map(|it| it.seconds.max(1)).sum());
    Some(Chart {
        title: "Throughput of backups",
        kind: "throughput",
        told: format!(
            "The {} sent {} at {}/s on average; the fastest at {}/s.",
            counted(u64::try_from(sent.len()).unwrap_or(0), "newest backup", "newest backups"),
            bytes(all),
            bytes(all / took.max(1)),
            bytes(top)
        ),
        width: WIDTH,
        height: bottom + 24,
        marks,
    })
}

/// A snapshot of an etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Taken {
    pub(crate) at: Timestamp,
    pub(crate) revision: i64,
    pub(crate) is_full: bool,
}

const LINE_HEIGHT: u64 = 46;

/// When snapshots were taken: high marks are full ones, low ones are deltas.
pub(crate) fn timeline(mut taken: Vec<Taken>, now: Timestamp) -> Option<Chart> {
    taken.sort();
    let (first, last) = (*taken.first()?, *taken.last()?);
    let span = seconds(first.at, now).max(1);
    let bottom = PLOT_TOP + LINE_HEIGHT;
    let right = WIDTH - 4;
    let ticks = taken.iter().map(|it| {
        let height = if it.is_full { LINE_HEIGHT } else { LINE_HEIGHT / 2 };
        let kind = if it.is_full { "full" } else { "delta" };
        Mark::Rect {
            x: scaled(seconds(first.at, it.at), span, right),
            y: bottom - height,
            width: 4,
            height,
            class: if it.is_full { "bar" } else { "bar delta" },
            title: format!("{kind} up to revision {}, {}", it.revision, people::units::date(it.at)),
        }
    });
    let mut marks: Vec<Mark> = ticks.collect();
    marks.push(Mark::Path { d: format!("M0 {bottom}H{WIDTH}"), class: "axis" });
    let text = |x, class, text| Mark::Text { x, y: bottom + 16, class, text };
    marks.push(text(0, "", people::units::date(first.at)));
    marks.push(text(WIDTH, "end", "now".to_owned()));
    let full = u64::try_from(taken.iter().filter(|it| it.is_full).count()).unwrap_or(0);
    let deltas = u64::try_from(taken.len()).unwrap_or(0) - full;
    Some(Chart {
        title: "Snapshots over time",
        kind: "timeline",
        told: format!(
            "{} and {}; the newest is {} old, up to revision {}.",
            counted(full, "full snapshot", "full snapshots"),
            counted(deltas, "delta", "deltas"),
            people::units::age(last.at, now),
            last.revision
        ),
        width: WIDTH,
        height: bottom + 24,
        marks,
    })
}

/// `1 day`, `2 days`.
fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

fn scaled(value: u64, of: u64, to: u64) -> u64 {
    let wide = u128::from(value) * u128::from(to) / u128::from(of.max(1));
    u64::try_from(wide).unwrap_or(to).min(to)
}

/// One line of [`bars`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: u64,
    /// The value in words.
    pub(crate) told: String,
}

const BAR_STEP: u64 = 34;
/// What does not fit is in the table of the same page.
const MAX_BARS: usize = 12;

/// Bars from left to right, the longest first.
pub(crate) fn bars(title: &'static str, told: String, mut bars: Vec<Bar>) -> Chart {
    bars.sort_by(|a, b| b.value.cmp(&a.value).then_with(|| a.label.cmp(&b.label)));
    bars.truncate(MAX_BARS);
    let most = bars.first().map_or(0, |it| it.value);
    let mut marks = Vec::new();
    for (bar, row) in bars.iter().zip(0..) {
        let y = row * BAR_STEP;
        let width = scaled(bar.value, most, WIDTH).max(2);
        marks.push(Mark::Text { x: 0, y: y + 12, class: "", text: bar.label.clone() });
        marks.push(Mark::Text { x: WIDTH, y: y + 12, class: "end", text: bar.told.clone() });
        let rect = |width, class| Mark::Rect {
            x: 0,
            y: y + 18,
            width,
            height: 9,
            class,
            title: format!("{}: {}", bar.label, bar.told),
        };
        marks.push(rect(WIDTH, "rest"));
        marks.push(rect(width, "bar"));
    }
    let height = BAR_STEP * u64::try_from(bars.len().max(1)).unwrap_or(1);
    Chart { title, kind: "bars", told, width: WIDTH, height, marks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> Date {
        text.parse().unwrap()
    }

    #[test]
    fn every_day_up_to_today_has_its_square() {
        let today = date("2026-11-16");
        let days = BTreeMap::from([(today, 8), (date("2026-11-15"), 2), (date("2020-01-01"), 9)]);
        let chart = calendar(&days, today);
        let squares: Vec<_> = chart
            .marks
            .iter()
            .filter_map(|it| match it {
                Mark::Rect { x, y, class, title, .. } => Some((*x, *y, *class, title.as_str())),
                Mark::Text { .. } | Mark::Path { .. } => None,
            })
            .collect();
        // Sixteen weeks before this one, and its Monday.
        assert_eq!(squares.len(), 16 * 7 + 1);
        let last = *squares.last().unwrap();
        assert_eq!(last, (LEFT + 16 * STEP, TOP, "q4", "2026-11-16: 8"));
        assert_eq!(squares[squares.len() - 2].2, "q1");
        assert!(squares.iter().all(|it| it.0 + CELL <= chart.width && it.1 + CELL <= chart.height));
        assert!(chart.told.starts_with("10 complete backups on 2 days"), "{}", chart.told);
    }

    #[test]
    fn the_calendar_takes_any_weekday() {
        for day in 9..=15 {
            let today = jiff::civil::date(2026, 11, day);
            let chart = calendar(&BTreeMap::new(), today);
            let inside = |it: &Mark| match it {
                Mark::Rect { x, width, .. } => x + width <= chart.width,
                Mark::Text { .. } | Mark::Path { .. } => true,
            };
            assert!(chart.marks.iter().all(inside), "{today}");
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn path<'a>(chart: &'a Chart, wanted: &str) -> &'a str {
        let found = chart.marks.iter().find_map(|it| match it {
            Mark::Path { d, class } if *class == wanted => Some(d.as_str()),
            _ => None,
        });
        found.unwrap()
    }

    #[test]
    fn what_is_added_only_goes_up_below_what_is_held() {
        let it = |seconds, bytes, added| Stored { at: at(seconds), bytes, added };
        let chart = growth(vec![it(200, 100, 50), it(0, 200, 100), it(100, 100, 50)]).unwrap();
        assert_eq!(path(&chart, "line"), "M58 104H58V82H194V71H330V59H330");
        assert_eq!(path(&chart, "line whole"), "M58 104H58V59H194V37H330V14H330");
        assert!(chart.told.contains("hold 400 B and take 200 B"), "{}", chart.told);
        assert!(chart.told.ends_with(": sharing saves 50 %."), "{}", chart.told);
        let alone = growth(vec![it(0, 100, 100)]).unwrap();
        assert!(!alone.told.contains("saves"), "{}", alone.told);
        assert_eq!(growth(Vec::new()), None);
        assert_eq!(growth(vec![it(5, 10, 0)]), None);
    }

    #[test]
    fn a_line_of_one_day_ends_at_hours() {
        let told = |a: &str, b: &str| ends(a.parse().unwrap(), b.parse().unwrap());
        let days = told("2026-11-16T10:00:00Z", "2026-11-18T09:00:00Z");
        assert_eq!(days, ("2026-11-16".to_owned(), "2026-11-18".to_owned()));
        let hours = told("2026-11-16T10:00:00Z", "2026-11-16T11:30:00Z");
        assert_eq!(hours, ("2026-11-16, 10:00".to_owned(), "11:30".to_owned()));
    }

    #[test]
    fn the_fastest_backup_fills_the_height() {
        let it = |name: &str, seconds, bytes, took| Sent {
            at: at(seconds),
            name: name.to_owned(),
            bytes,
            seconds: took,
        };
        let chart = throughput(vec![it("b", 9, 400, 4), it("a", 1, 200, 0), it("c", 5, 0, 1)]);
        let chart = chart.unwrap();
        let columns: Vec<_> = chart
            .marks
            .iter()
            .filter_map(|it| match it {
                Mark::Rect { x, height, title, .. } => Some((*x, *height, title.as_str())),
                Mark::Text { .. } | Mark::Path { .. } => None,
            })
            .collect();
        assert_eq!(columns, [(60, 90, "a: 200 B in 1 s"), (68, 45, "b: 400 B in 4 s")]);
        assert!(chart.told.starts_with("The 2 newest backups sent 600 B at 120 B/s"));
        let many = (0..100).map(|place| it("x", place, 10, 1)).collect();
        let chart = throughput(many).unwrap();
        let inside = |it: &Mark| match it {
            Mark::Rect { x, width, .. } => x + width <= WIDTH,
            Mark::Text { .. } | Mark::Path { .. } => true,
        };
        assert!(chart.marks.iter().all(inside));
        assert_eq!(throughput(vec![it("c", 5, 0, 1)]), None);
    }

    #[test]
    fn full_snapshots_stand_out_among_deltas() {
        let it = |seconds, revision, is_full| Taken { at: at(seconds), revision, is_full };
        let chart = timeline(vec![it(50, 7, false), it(0, 5, true)], at(100)).unwrap();
        let ticks: Vec<_> = chart
            .marks
            .iter()
            .filter_map(|it| match it {
                Mark::Rect { x, height, class, .. } => Some((*x, *height, *class)),
                Mark::Text { .. } | Mark::Path { .. } => None,
            })
            .collect();
        assert_eq!(ticks, [(0, LINE_HEIGHT, "bar"), (163, LINE_HEIGHT / 2, "bar delta")]);
        let told = "1 full snapshot and 1 delta; the newest is 50s old, up to revision 7.";
        assert_eq!(chart.told, told);
        assert_eq!(timeline(Vec::new(), at(1)), None);
    }

    #[test]
    fn the_longest_bar_is_first_and_fills_the_width() {
        let bar = |label: &str, value| Bar { label: label.into(), value, told: String::new() };
        let chart = bars("Lag", String::new(), vec![bar("a", 10), bar("b", 40), bar("c", 0)]);
        let widths: Vec<_> = chart
            .marks
            .iter()
            .filter_map(|it| match it {
                Mark::Rect { width, class: "bar", .. } => Some(*width),
                _ => None,
            })
            .collect();
        assert_eq!(widths, [WIDTH, WIDTH / 4, 2]);
        assert_eq!(bars("Lag", String::new(), Vec::new()).marks, []);
    }
}
