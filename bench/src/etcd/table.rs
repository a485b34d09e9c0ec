//! What is printed: ours beside etcd's own tools, with aims, and what is known of `etcdbrctl`.

use std::fmt::Write as _;
use std::time::Duration;

use crate::measure::Cost;

/// No operation of ours is to take more memory.
const MEMORY_AIM_MIB: f64 = 256.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Save,
    FullGzip,
    FullPlain,
    Utl,
    RestoreGzip,
    RestorePlain,
    Collect,
    /// Of the base, once more beside what follows.
    UtlAgain,
    /// Of a snapshot with all revisions.
    UtlWhole,
    RestoreWhole,
    Sanity,
    Validate,
    Compact,
}

const OURS: [Operation; 9] = [
    Operation::FullGzip,
    Operation::FullPlain,
    Operation::RestoreGzip,
    Operation::RestorePlain,
    Operation::Collect,
    Operation::RestoreWhole,
    Operation::Compact,
    Operation::Sanity,
    Operation::Validate,
];

/// What was measured of `etcdbrctl` elsewhere.
struct Known {
    wall_s: f64,
    peak_mib: u32,
    /// To the peer in its run.
    ratio: Option<f64>,
}

impl Operation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Save => "etcdctl snapshot save",
            Self::FullGzip => "full, gzip",
            Self::FullPlain => "full, uncompressed",
            Self::Utl | Self::UtlAgain => "etcdutl snapshot restore",
            Self::RestoreGzip => "restore, base only, gzip",
            Self::RestorePlain => "restore, base only, uncompressed",
            Self::Collect => "collecting deltas",
            Self::UtlWhole => "etcdutl snapshot restore, all revisions",
            Self::RestoreWhole => "restore, base and deltas",
            Self::Sanity => "initialize, sanity",
            Self::Validate => "initialize, full",
            Self::Compact => "compact",
        }
    }

    /// What it is compared with.
    const fn peers(self) -> &'static [Self] {
        match self {
            Self::FullGzip | Self::FullPlain => &[Self::Save],
            Self::RestoreGzip | Self::RestorePlain => &[Self::Utl],
            Self::RestoreWhole => &[Self::UtlAgain, Self::UtlWhole],
            Self::Save
            | Self::Utl
            | Self::UtlAgain
            | Self::UtlWhole
            | Self::Collect
            | Self::Sanity
            | Self::Validate
            | Self::Compact => &[],
        }
    }

    /// How many times the time of the peer it may take.
    const fn aim(self) -> Option<f64> {
        match self {
            Self::FullGzip | Self::RestoreWhole => Some(2.0),
            Self::Save
            | Self::FullPlain
            | Self::Utl
            | Self::UtlAgain
            | Self::UtlWhole
            | Self::RestoreGzip
            | Self::RestorePlain
            | Self::Collect
            | Self::Sanity
            | Self::Validate
            | Self::Compact => None,
        }
    }

    const fn known(self) -> Option<Known> {
        let (wall_s, peak_mib, ratio) = match self {
            Self::FullGzip => (8.82, 83, Some(5.3)),
            Self::FullPlain => (2.15, 83, Some(1.3)),
            Self::RestoreGzip => (2.92, 329, Some(1.8)),
            Self::RestorePlain => (0.76, 328, Some(0.5)),
            Self::Collect => (40.1, 117, None),
            Self::RestoreWhole => (28.3, 770, Some(17.7)),
            Self::Compact => (38.2, 975, None),
            Self::Sanity => (0.04, 56, None),
            Self::Validate => (0.40, 460, None),
            Self::Save | Self::Utl | Self::UtlAgain | Self::UtlWhole => return None,
        };
        Some(Known { wall_s, peak_mib, ratio })
    }
}

/// All that was measured.
#[derive(Debug, Default)]
pub(super) struct Results {
    costs: Vec<(Operation, Cost)>,
    sizes: Vec<(Operation, u64)>,
    /// Seconds of the puts alone, and deltas.
    collected: Option<(f64, usize)>,
}

impl Results {
    pub(super) fn add(&mut self, operation: Operation, cost: Cost) {
        eprintln!(
            "  {}: {:.2} s, {:.2} CPU s, peak {:.0} MiB",
            operation.name(),
            cost.wall_s,
            cost.cpu_s,
            mebibytes(cost.peak_bytes)
        );
        self.costs.push((operation, cost));
    }

    /// How large what came of it is.
    pub(super) fn note(&mut self, operation: Operation, bytes: u64) {
        self.sizes.push((operation, bytes));
    }

    pub(super) fn collected(&mut self, put_s: f64, deltas: usize) {
        self.collected = Some((put_s, deltas));
    }

    fn find(&self, operation: Operation) -> Option<Cost> {
        self.costs.iter().find(|(found, _)| *found == operation).map(|(_, cost)| *cost)
    }

    pub(super) fn table(&self, revisions: u32) -> String {
        let mut text =
            "| operation | wall s | CPU s | RSS MiB | beside | wall s | CPU s | RSS MiB \
                        | ratio | etcdbrctl, elsewhere: ratio | wall s | RSS MiB |\n\
                        |---|---|---|---|---|---|---|---|---|---|---|---|\n"
                .to_owned();
        for operation in OURS {
            let Some(ours) = self.find(operation) else { continue };
            let peers = operation.peers().iter().copied();
            let peers: Vec<_> = peers.filter_map(|it| Some((it, self.find(it)?))).collect();
            if peers.is_empty() {
                put(&mut text, &row(operation, ours, None));
            }
            for peer in peers {
                put(&mut text, &row(operation, ours, Some(peer)));
            }
        }
        self.tell_collected(&mut text, revisions);
        self.tell_sizes(&mut text);
        text
    }

    fn tell_collected(&self, text: &mut String, revisions: u32) {
        let (Some((put_s, deltas)), Some(cost)) = (self.collected, self.find(Operation::Collect))
        else {
            return;
        };
        let events = f64::from(revisions);
        put(
            text,
            &format!(
                "\nCollecting: {events} events, put in {put_s:.1} s ({:.0} a second), stored in \
                 {deltas} deltas {:.1} s after the last; {:.0} µs of processor time for each \
                 (etcdbrctl, elsewhere: 87 µs at 2,494 a second).\n",
                events / put_s,
                cost.wall_s - put_s,
                cost.cpu_s / events * 1e6,
            ),
        );
    }

    fn tell_sizes(&self, text: &mut String) {
        let sizes: Vec<String> = self
            .sizes
            .iter()
            .map(|(operation, bytes)| format!("{} {:.0} MiB", operation.name(), mebibytes(*bytes)))
            .collect();
        put(text, &format!("Sizes: {}.\n", sizes.join(", ")));
    }
}

fn row(operation: Operation, ours: Cost, peer: Option<(Operation, Cost)>) -> String {
    let figures = |cost: Cost| {
        format!("{:.2} | {:.2} | {:.0}", cost.wall_s, cost.cpu_s, mebibytes(cost.peak_bytes))
    };
    let memory = if mebibytes(ours.peak_bytes) < MEMORY_AIM_MIB { "" } else { " (aim 256)" };
    let mut text = format!("| {} | {}{memory} |", operation.name(), figures(ours));
    match peer {
        Some((peer, cost)) => {
            let ratio = ours.wall_s / cost.wall_s;
            let verdict = match operation.aim() {
                Some(aim) if ratio <= aim => format!(" (aim {aim}, met)"),
                Some(aim) => format!(" (aim {aim}, missed)"),
                None => String::new(),
            };
            put(
                &mut text,
                &format!(" {} | {} | {ratio:.2}{verdict} |", peer.name(), figures(cost)),
            );
        }
        None => text.push_str(" - | - | - | - | - |"),
    }
    match operation.known() {
        Some(Known { wall_s, peak_mib, ratio }) => {
            let ratio = ratio.map_or("-".to_owned(), |ratio| ratio.to_string());
            put(&mut text, &format!(" {ratio} | {wall_s} | {peak_mib} |\n"));
        }
        None => text.push_str(" - | - | - |\n"),
    }
    text
}

/// What to know when reading the table.
pub(super) fn remarks(load_before: f64, took: Duration) -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!(
        "{cores} cores; load average {load_before:.1} before and {:.1} after; {:.0} s in all. The \
         figures of etcdbrctl are of another machine with 2 cores: compare ratios, not seconds.",
        load(),
        took.as_secs_f64()
    )
}

/// Of the last minute.
pub(super) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "shown as a whole number")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn put(text: &mut String, more: &str) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{more}");
}
