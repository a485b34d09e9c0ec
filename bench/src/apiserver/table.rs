//! What is measured, what is known of others, and the table that shows both.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One figure, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    StartUp,
    MemoryIdle,
    MemoryLoaded,
    CreateMedian,
    CreateRate,
    GetMedian,
    GetRate,
    PatchMedian,
    PatchRate,
    ConflictRate,
    ConflictWins,
    ListAll,
    ListByLabel,
    WatchLatency,
    FanOut,
    DeleteAll,
    MemoryUnread,
    FileAfterLeases,
}

#[derive(Debug, Clone, Copy)]
enum Better {
    Less,
    More,
}

/// (row, what it is, unit, which way is better, kube-apiserver with etcd 3.5.16 on 2 cores)
const ROWS: &[(Row, &str, &str, Better, Option<f64>)] = &[
    (Row::StartUp, "process start to ready", "ms", Better::Less, Some(2800.0)),
    (Row::MemoryIdle, "resident memory, idle", "MiB", Better::Less, Some(419.0)),
    (Row::MemoryLoaded, "resident memory, 10,000 objects", "MiB", Better::Less, Some(815.0)),
    (Row::CreateMedian, "create, one at a time, p50", "ms", Better::Less, Some(1.6)),
    (Row::CreateRate, "create, 16 in flight", "/s", Better::More, Some(1100.0)),
    (Row::GetMedian, "get, one at a time, p50", "ms", Better::Less, Some(1.0)),
    (Row::GetRate, "get, 16 in flight", "/s", Better::More, Some(2500.0)),
    (Row::PatchMedian, "merge patch, one at a time, p50", "ms", Better::Less, Some(1.9)),
    (Row::PatchRate, "merge patch, 16 in flight", "/s", Better::More, Some(900.0)),
    (Row::ConflictRate, "16 writers of one object, attempts", "/s", Better::More, None),
    (Row::ConflictWins, "16 writers of one object, won", "/s", Better::More, None),
    (Row::ListAll, "list of 10,000", "ms", Better::Less, Some(180.0)),
    (Row::ListByLabel, "list by label, 1,000 of 10,000", "ms", Better::Less, Some(34.0)),
    (Row::WatchLatency, "write sent to event received, p50", "ms", Better::Less, Some(2.1)),
    (Row::FanOut, "events to 100 watchers", "/s", Better::More, Some(34_000.0)),
    (Row::DeleteAll, "deletecollection of 10,000", "s", Better::Less, Some(17.6)),
    (Row::MemoryUnread, "memory more, 100 unread lists, 27 MiB", "MiB", Better::Less, None),
    (Row::FileAfterLeases, "file after 100,000 lease updates", "MiB", Better::Less, None),
];

#[derive(Debug, Default)]
pub(crate) struct Figures(BTreeMap<Row, f64>);

impl Figures {
    pub(crate) fn set(&mut self, row: Row, value: f64) {
        let name = ROWS.iter().find(|one| one.0 == row).map_or("", |one| one.1);
        eprintln!("  {name}: {}", digits(value));
        self.0.insert(row, value);
    }
}

/// What is known without measuring; `bench/README.md` says where from.
pub(crate) fn known() -> Figures {
    Figures(ROWS.iter().filter_map(|(row, _, _, _, value)| Some((*row, (*value)?))).collect())
}

pub(crate) fn render(ours: &Figures, other: &Figures, other_name: &str) -> String {
    let mut text = format!("{:<36} {:>12} {other_name:>30}   ratio\n", "", "holdfast");
    for (row, what, unit, better, _) in ROWS {
        let cell = |value: Option<&f64>| match value {
            Some(value) => format!("{} {unit}", digits(*value)),
            None => "-".to_owned(),
        };
        let (our, their) = (ours.0.get(row), other.0.get(row));
        let ratio = match (our, their) {
            (Some(our), Some(their)) => ratio(*our, *their, *better),
            _ => String::new(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what:<36} {:>12} {:>30}   {ratio}", cell(our), cell(their));
    }
    text
}

/// How many times better, or worse.
fn ratio(our: f64, their: f64, better: Better) -> String {
    let factor = match better {
        Better::Less => their / our,
        Better::More => our / their,
    };
    if factor >= 1.0 {
        format!("{factor:.1} x better")
    } else {
        format!("{:.1} x worse", 1.0 / factor)
    }
}

/// About three digits.
fn digits(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_is_better_whichever_way_it_points() {
        assert_eq!(ratio(100.0, 2800.0, Better::Less), "28.0 x better");
        assert_eq!(ratio(3300.0, 1100.0, Better::More), "3.0 x better");
        assert_eq!(ratio(550.0, 1100.0, Better::More), "2.0 x worse");
    }

    #[test]
    fn every_row_is_shown_once() {
        let mut ours = Figures::default();
        ours.set(Row::StartUp, 140.0);
        let text = render(&ours, &known(), "known");
        assert_eq!(text.lines().count(), ROWS.len() + 1);
        assert!(text.contains("20.0 x better"), "{text}");
    }
}
