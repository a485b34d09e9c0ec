//! What is printed: ours beside the peer, with ratios and aims.

use std::fmt::Write as _;

use super::subject::Subject;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    MebibytesPerSecond,
}

/// One measurement of one subject.
#[derive(Debug)]
pub(crate) struct Measured {
    /// In the unit of its row.
    pub(crate) value: f64,
    /// Mean, where it was measured.
    pub(crate) latency_us: f64,
    /// Processor time of all server processes for one operation (one MiB when copying).
    pub(crate) cpu_us: f64,
}

/// Name, unit, and what was measured of the peer, of ours with one replica and with three.
pub(crate) type Row = (String, Unit, Vec<Measured>);

/// The least ratio to the peer that is good enough, with one and with three replicas.
fn aims(name: &str) -> Option<[f64; 2]> {
    if name.contains("depth 32") {
        Some([1.2, 0.8])
    } else if name.contains("depth 1") {
        // At most 1.5 times the latency.
        Some([1.0 / 1.5, 1.0 / 1.5])
    } else {
        None
    }
}

pub(crate) fn beside_qemu(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<30} {:>6} {:>10} {:>12} {:>7} {:>9} {:>12} {:>7} {:>9}\n",
        "over NBD", "", "qemu-nbd", "1 replica", "ratio", "aim", "3 replicas", "ratio", "aim"
    );
    for (name, unit, measured) in rows {
        let [peer, ours @ ..] = measured.as_slice() else { continue };
        let unit = match unit {
            Unit::PerSecond => "/s",
            Unit::MebibytesPerSecond => "MiB/s",
        };
        let mut line = format!("{name:<30} {unit:>6} {:>10.0}", peer.value);
        for (index, one) in ours.iter().enumerate() {
            let ratio = one.value / peer.value;
            let aim = aims(name).and_then(|aims| aims.get(index).copied());
            put(
                &mut line,
                format_args!(" {:>12.0} {ratio:>7.2} {:>9}", one.value, verdict(ratio, aim)),
            );
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn verdict(ratio: f64, aim: Option<f64>) -> String {
    match aim {
        None => String::new(),
        Some(aim) if ratio >= aim => format!("{aim:.2} met"),
        Some(aim) => format!("{aim:.2} NOT"),
    }
}

/// Mean latency and processor time for one operation.
pub(crate) fn processor(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<30} {:>26} {:>26}\n{:<30}{}\n",
        "",
        "mean latency, us",
        "processor, us per op",
        "",
        format!("{:>9} {:>8} {:>8}", "qemu-nbd", "1", "3").repeat(2)
    );
    for (name, _, measured) in rows {
        put(&mut text, format_args!("{name:<30}"));
        for figure in [|one: &Measured| one.latency_us, |one: &Measured| one.cpu_us] {
            let cells: Vec<String> =
                measured.iter().map(|one| format!("{:>8.1}", figure(one))).collect();
            put(&mut text, format_args!(" {}", cells.join(" ")));
        }
        text.push('\n');
    }
    text
}

pub(crate) fn memory(subjects: &[Subject]) -> String {
    let mut text = "resident memory after all of that, MiB\n".to_owned();
    for subject in subjects {
        let parts = subject.memory();
        let parts: Vec<String> =
            parts.iter().map(|(what, mebibytes)| format!("{what} {mebibytes:.1}")).collect();
        put(&mut text, format_args!("{:<14} {}\n", subject.name(), parts.join(", ")));
    }
    text
}

/// What was measured through the socket frontend.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) replicas: usize,
    pub(crate) load: &'static str,
    pub(crate) value: f64,
}

/// (load, the older engine with one replica, with three), on a machine with 2 cores.
const OLDER: &[(&str, f64, f64)] = &[
    ("4k random write, depth 1", 4_100.0, 1_800.0),
    ("4k random write, depth 32", 10_900.0, 4_000.0),
    ("4k random read, depth 1", 4_500.0, 3_300.0),
    ("4k random read, depth 32", 12_300.0, 11_700.0),
    ("1m sequential write", 600.0, 230.0),
    ("1m sequential read", 570.0, 490.0),
];
/// On writes with three replicas.
const TIMES_OLDER: f64 = 5.0;

pub(crate) fn beside_older(cells: &[Cell]) -> String {
    let mut text = format!(
        "{:<30} {:>10} {:>12} {:>7} {:>10} {:>12} {:>7} {:>9}\n",
        "over the socket", "v1, 1", "holdfast, 1", "ratio", "v1, 3", "holdfast, 3", "ratio", "aim"
    );
    for (load, one, three) in OLDER {
        let mut line = format!("{load:<30}");
        for (replicas, older) in [(1, one), (3, three)] {
            let found = cells.iter().find(|cell| cell.replicas == replicas && cell.load == *load);
            let Some(found) = found else { continue };
            let ratio = found.value / older;
            put(&mut line, format_args!(" {older:>10.0} {:>12.0} {ratio:>7.2}", found.value));
            if replicas == 3 && load.contains("random write") {
                put(&mut line, format_args!(" {:>9}", verdict(ratio, Some(TIMES_OLDER))));
            }
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(what);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(value: f64) -> Measured {
        Measured { value, latency_us: 1.0, cpu_us: 1.0 }
    }

    #[test]
    fn ratios_and_aims_stand_beside_the_figures() {
        let row = vec![measured(1000.0), measured(1300.0), measured(700.0)];
        let text = beside_qemu(&[("4k random read, depth 32".into(), Unit::PerSecond, row)]);
        assert!(text.contains("1.30  1.20 met"), "{text}");
        assert!(text.contains("0.70  0.80 NOT"), "{text}");
    }

    #[test]
    fn the_older_engine_stands_beside_ours() {
        let load = "4k random write, depth 32";
        let text = beside_older(&[Cell { replicas: 3, load, value: 24_000.0 }]);
        assert!(text.contains("6.00  5.00 met"), "{text}");
    }
}
