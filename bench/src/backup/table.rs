//! What is printed: ours beside the peers with ratios and aims, what each cost, and how near the
//! limits of the machine it is.

use std::fmt::Write as _;

use super::contents::Data;
use super::limits::Limits;
use crate::measure::Cost;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Full,
    Scattered,
    Contiguous,
    /// What any backup costs, however little changed.
    Single,
    RestoreOne,
    RestoreThree,
    Delete,
}

pub(crate) const OPERATIONS: [Operation; 7] = [
    Operation::Full,
    Operation::Scattered,
    Operation::Contiguous,
    Operation::Single,
    Operation::RestoreOne,
    Operation::RestoreThree,
    Operation::Delete,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Holdfast,
    Restic,
    Borg,
    /// `cp` that keeps holes.
    Copy,
    /// The same, until it is on the disk.
    CopySynced,
}

const ALL: [Who; 5] = [Who::Holdfast, Who::Restic, Who::Borg, Who::Copy, Who::CopySynced];

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "full backup",
            Self::Scattered => "incremental, 1 % in 64 KiB runs",
            Self::Contiguous => "incremental, 1 % in one piece",
            Self::Single => "incremental, one run of 64 KiB",
            Self::RestoreOne => "restore, one replica",
            Self::RestoreThree => "restore, three replicas",
            Self::Delete => "delete of one backup of many",
        }
    }

    /// How many times as fast as a peer it is to be.
    fn aim(self, who: Who) -> Option<f64> {
        match (self, who) {
            (Self::Full, Who::Restic) => Some(4.0),
            (Self::Full, Who::Borg) => Some(2.0),
            (Self::RestoreOne, Who::Restic) => Some(3.0),
            (Self::RestoreOne, Who::CopySynced) => Some(1.0 / 1.5),
            _ => None,
        }
    }
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Self::Holdfast => "Holdfast",
            Self::Restic => "restic",
            Self::Borg => "borg",
            Self::Copy => "cp",
            Self::CopySynced => "cp, synced",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) target: &'static str,
    pub(crate) operation: Operation,
    pub(crate) who: Who,
    pub(crate) cost: Cost,
}

/// All that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results(Vec<Measured>);

impl Results {
    pub(crate) fn add(&mut self, target: &'static str, operation: Operation, who: Who, cost: Cost) {
        eprintln!(
            "  {target}, {}, {}: {:.2} s, {:.2} CPU s, peak {:.0} MiB, moved {:.0} MiB",
            operation.name(),
            who.name(),
            cost.wall_s,
            cost.cpu_s,
            mebibytes(cost.peak_bytes),
            mebibytes(cost.moved_bytes),
        );
        self.0.push(Measured { target, operation, who, cost });
    }

    pub(crate) fn find(&self, target: &str, operation: Operation, who: Who) -> Option<Cost> {
        let is_it =
            |it: &&Measured| it.target == target && it.operation == operation && it.who == who;
        self.0.iter().find(is_it).map(|it| it.cost)
    }

    fn targets(&self) -> Vec<&'static str> {
        let mut targets: Vec<_> = self.0.iter().map(|it| it.target).collect();
        targets.dedup();
        targets
    }

    /// Seconds, with how many times as fast we are as each of the others.
    pub(crate) fn speeds(&self) -> String {
        let mut text = "| seconds | Holdfast | restic | ratio | borg | ratio | cp | cp, synced | \
                        ratio |\n|---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
        for target in self.targets() {
            for operation in OPERATIONS {
                let Some(ours) = self.find(target, operation, Who::Holdfast) else { continue };
                put(&mut text, format_args!("| {target}: {} |", operation.name()));
                put(&mut text, format_args!(" {:.2} |", ours.wall_s));
                for who in [Who::Restic, Who::Borg, Who::Copy, Who::CopySynced] {
                    let peer = self.find(target, operation, who);
                    let seconds = peer.map_or("-".to_owned(), |it| format!("{:.2}", it.wall_s));
                    put(&mut text, format_args!(" {seconds} |"));
                    if who != Who::Copy {
                        let ratio = peer.map(|peer| peer.wall_s / ours.wall_s);
                        put(&mut text, format_args!(" {} |", verdict(ratio, operation.aim(who))));
                    }
                }
                text.push('\n');
            }
        }
        text
    }

    /// What each cost.
    pub(crate) fn costs(&self, data: Data) -> String {
        let mut text = "| what | who | seconds | MiB/s | CPU seconds | peak MiB | moved MiB |\n\
                        |---|---|---|---|---|---|---|\n"
            .to_owned();
        for (target, operation, who) in self.order() {
            let Some(cost) = self.find(target, operation, who) else { continue };
            let rate = match operation {
                Operation::Full | Operation::RestoreOne | Operation::RestoreThree => {
                    format!("{:.0}", mebibytes(data.full_bytes()) / cost.wall_s)
                }
                Operation::Scattered
                | Operation::Contiguous
                | Operation::Single
                | Operation::Delete => "-".to_owned(),
            };
            put(
                &mut text,
                format_args!(
                    "| {target}: {} | {} | {:.2} | {rate} | {:.2} | {:.0} | {:.1} |\n",
                    operation.name(),
                    who.name(),
                    cost.wall_s,
                    cost.cpu_s,
                    mebibytes(cost.peak_bytes),
                    mebibytes(cost.moved_bytes),
                ),
            );
        }
        text
    }

    fn order(&self) -> Vec<(&'static str, Operation, Who)> {
        let targets = self.targets().into_iter();
        targets
            .flat_map(|target| OPERATIONS.map(|operation| (target, operation)))
            .flat_map(|(target, operation)| ALL.map(|who| (target, operation, who)))
            .collect()
    }

    /// Our aims that are no ratio to a peer.
    pub(crate) fn aims(&self, data: Data) -> String {
        let mut text = String::new();
        let blocks = share(data.scattered().chunks().len(), data);
        for target in self.targets() {
            let get = |operation| self.find(target, operation, Who::Holdfast);
            let Some(full) = get(Operation::Full) else { continue };
            for (operation, touched) in [
                (Operation::Contiguous, share(data.contiguous().chunks().len(), data)),
                (Operation::Scattered, blocks),
            ] {
                let Some(cost) = get(operation) else { continue };
                let constant = get(Operation::Single).map_or(0.0, |it| it.wall_s);
                let part = (cost.wall_s - constant).max(0.0) / (full.wall_s - constant).max(0.001);
                let name = operation.name();
                put(
                    &mut text,
                    format_args!(
                        "{target}: {name}: beyond {constant:.2} s for any backup, {:.1} % of the \
                         time of a full one, {:.1} % of its blocks changed: {:.2} of the time for \
                         each\n",
                        part * 100.0,
                        touched * 100.0,
                        part / touched,
                    ),
                );
            }
            if let (Some(one), Some(three)) =
                (get(Operation::RestoreOne), get(Operation::RestoreThree))
            {
                #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
                let fetches = three.moved_bytes as f64 / one.moved_bytes.max(1) as f64;
                put(
                    &mut text,
                    format_args!("{target}: three replicas cost {fetches:.2} fetches (aim 1)\n"),
                );
            }
        }
        let ours = self.0.iter().filter(|it| it.who == Who::Holdfast);
        let peak = ours.map(|it| it.cost.peak_bytes).max().unwrap_or(0);
        let word = if peak < 256 << 20 { "met" } else { "NOT" };
        put(
            &mut text,
            format_args!("peak memory {:.0} MiB (aim below 256 {word})\n", mebibytes(peak)),
        );
        text
    }
}

/// Blocks that changed among those that hold data.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn share(blocks: usize, data: Data) -> f64 {
    blocks as f64 * super::contents::CHUNK as f64 / data.full_bytes() as f64
}

/// The limits, and how near a full backup to each target comes to them.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(crate) fn limits(limits: &Limits, results: &Results, data: Data) -> String {
    let giga = |rate: f64| rate / 1e9;
    let mut text = format!(
        "limits, {} cores together: SHA-512 {:.2} GB/s (one block after the other {:.2}), lz4 {:.2} \
         GB/s; writing a file and syncing it {:.2} GB/s\n",
        limits.cores,
        giga(limits.hash),
        giga(limits.hash_single),
        giga(limits.pack),
        giga(limits.write),
    );
    for target in results.targets() {
        let Some(full) = results.find(target, Operation::Full, Who::Holdfast) else { continue };
        let (raw, stored) = (data.full_bytes() as f64, full.moved_bytes as f64);
        let (hash, pack, write) = (raw / limits.hash, raw / limits.pack, stored / limits.write);
        let floor = (hash + pack).max(write);
        put(
            &mut text,
            format_args!(
                "{target}: a full backup took {:.2} s; hashing alone takes {hash:.2} s, packing \
                 {pack:.2} s, writing {write:.2} s: {:.2} times the floor of {floor:.2} s\n",
                full.wall_s,
                full.wall_s / floor,
            ),
        );
    }
    text
}

fn verdict(ratio: Option<f64>, aim: Option<f64>) -> String {
    match (ratio, aim) {
        (None, _) => "-".to_owned(),
        (Some(ratio), None) => format!("{ratio:.2}"),
        (Some(ratio), Some(aim)) => {
            let word = if ratio >= aim { "met" } else { "NOT" };
            format!("{ratio:.2} (aim {aim:.2} {word})")
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_aims_stand_beside_the_figures() {
        let mut results = Results::default();
        let cost =
            |wall_s| Cost { wall_s, cpu_s: 1.0, peak_bytes: 300 << 20, moved_bytes: 1 << 20 };
        results.add("directory", Operation::Full, Who::Holdfast, cost(2.0));
        results.add("directory", Operation::Full, Who::Restic, cost(10.0));
        results.add("directory", Operation::Full, Who::Borg, cost(3.0));
        let text = results.speeds();
        assert!(text.contains("| 10.00 | 5.00 (aim 4.00 met) | 3.00 | 1.50 (aim 2.00 NOT) |"));
        let data = Data::new(4 << 30, 1).unwrap();
        assert!(results.aims(data).contains("300 MiB (aim below 256 NOT)"));
        assert_eq!(results.costs(data).lines().count(), 5);
    }
}
