//! What is done and killed in one round, chosen at random and replayable.

use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;

/// What is killed at what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The guard, while it takes fulls and deltas.
    Guard,
    /// `restore` into a directory that is not there.
    Restore,
    /// `initialize` over a directory that is damaged.
    Initialize,
    /// `compact`, on a copy of the store.
    Compact,
}

/// A run begins with each of them in turn, so that few rounds see all.
const KINDS: [Kind; 4] = [Kind::Guard, Kind::Restore, Kind::Initialize, Kind::Compact];

/// When the kill comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Moment {
    /// After this part of the time that the whole needs.
    Share(f64),
    /// So long after a sign of a late stage.
    AfterSign(Sign, Duration),
}

/// What is seen of a command from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The base was fetched.
    Base,
    /// The log is being written.
    Log,
    /// The directory is in its place, or the old one is out of it.
    Swap,
}

/// What is wrong with a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    NoDatabase,
    Garbage,
    CutShort,
    BrokenLog,
    NoLog,
    /// Whole, and older than the backup.
    Behind,
}

const DAMAGES: [Damage; 6] = [
    Damage::Garbage,
    Damage::CutShort,
    Damage::BrokenLog,
    Damage::NoLog,
    Damage::Behind,
    Damage::NoDatabase,
];

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    /// One for each kill; what is killed last is then done to its end.
    pub(crate) moments: Vec<Moment>,
    pub(crate) damage: Damage,
    /// How long a guard lives.
    pub(crate) life: Duration,
    /// Whether that is counted from its start, not from when it serves.
    pub(crate) from_start: bool,
    /// Changes before what is killed begins.
    pub(crate) changes: u32,
    pub(crate) seed: u64,
}

impl Plan {
    pub(crate) fn choose(random: &mut StdRng, round: u32) -> Self {
        let drawn = random.random_range(0..KINDS.len());
        let place = if round < 8 { round as usize % KINDS.len() } else { drawn };
        let kills = random.random_range(1..3);
        let moments = (0..kills).map(|_| moment(random)).collect();
        Self {
            kind: KINDS[place],
            moments,
            damage: DAMAGES[random.random_range(0..DAMAGES.len())],
            life: Duration::from_millis(random.random_range(0..900)),
            from_start: random.random_ratio(1, 3),
            changes: random.random_range(3..25),
            seed: random.random(),
        }
    }
}

fn moment(random: &mut StdRng) -> Moment {
    if random.random() {
        return Moment::Share(random.random_range(0.0..1.1));
    }
    let sign = match random.random_range(0..3) {
        0 => Sign::Base,
        1 => Sign::Log,
        _ => Sign::Swap,
    };
    Moment::AfterSign(sign, Duration::from_micros(random.random_range(0..20_000)))
}
