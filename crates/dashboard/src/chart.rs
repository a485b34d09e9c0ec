//! Charts, as shapes with whole coordinates: the calendar of backups, what a store holds, how far
//! standby volumes are behind. Pure; the template draws them.

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
    Chart {
        title: "Backup calendar",
        kind: "calendar",
        told: format!(
            "{all} complete backups on {on} days since {first}; at most {most} on one day."
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

/// What backups have added to stores, one upon the other, over time.
pub(crate) fn growth(mut added: Vec<(Timestamp, u64)>) -> Option<Chart> {
    added.sort();
    let ((first, _), (last, _)) = (*added.first()?, *added.last()?);
    let all: u64 = added.iter().map(|(_, bytes)| *bytes).sum();
    if all == 0 {
        return None;
    }
    let span = u64::try_from(last.as_second().saturating_sub(first.as_second())).unwrap_or(0);
    let across = |at: Timestamp| {
        let passed = u64::try_from(at.as_second().saturating_sub(first.as_second())).unwrap_or(0);
        PLOT_LEFT + scaled(passed, span, WIDTH - PLOT_LEFT)
    };
    let bottom = PLOT_TOP + PLOT_HEIGHT;
    let mut total = 0;
    let mut d = format!("M{PLOT_LEFT} {bottom}");
    for (at, bytes) in added {
        total += bytes;
        let _ = write!(d, "H{}V{}", across(at), bottom - scaled(total, all, PLOT_HEIGHT));
    }
    let _ = write!(d, "H{WIDTH}");
    let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    let text = |x, y, class, text| Mark::Text { x, y, class, text };
    let marks = vec![
        Mark::Path { d: format!("{d}V{bottom}Z"), class: "area" },
        Mark::Path { d, class: "line" },
        Mark::Path { d: format!("M{PLOT_LEFT} {PLOT_TOP}V{bottom}H{WIDTH}"), class: "axis" },
        text(PLOT_LEFT - 6, PLOT_TOP + 4, "end", bytes(all)),
        text(PLOT_LEFT - 6, bottom, "end", "0".to_owned()),
        text(PLOT_LEFT, bottom + 16, "", day(first)),
        text(WIDTH, bottom + 16, "end", day(last)),
    ];
    Some(Chart {
        title: "Data in the stores",
        kind: "growth",
        told: format!("Backups that exist added {} since {}.", bytes(all), day(first)),
        width: WIDTH,
        height: bottom + 24,
        marks,
    })
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

    #[test]
    fn what_is_added_only_goes_up() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let chart = growth(vec![(at(200), 50), (at(0), 100), (at(100), 50)]).unwrap();
        let line = chart.marks.iter().find_map(|it| match it {
            Mark::Path { d, class: "line" } => Some(d.clone()),
            _ => None,
        });
        assert_eq!(line.unwrap(), "M58 104H58V59H194V37H330V14H330");
        assert!(chart.told.contains("200 B"), "{}", chart.told);
        assert_eq!(growth(Vec::new()), None);
        assert_eq!(growth(vec![(at(5), 0)]), None);
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
