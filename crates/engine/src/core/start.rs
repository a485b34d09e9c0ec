//! Which replicas a volume starts with, and how large it is.
//!
//! Pure: what was seen of each replica goes in, a verdict on each comes out.

use std::fmt;

use wire::membership::{Filling, Record, Standing};

use super::newest::{agree, missing, newest, not_named};

/// Heads changed within this time of the newest are as good as it, by clocks that agree no better.
const SALVAGE_WINDOW_NS: i64 = 5_000_000_000;

const ANOTHER: &str = "another replica was chosen to salvage the volume";

/// What an opened replica says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub size_bytes: i64,
    pub sector_size: i64,
    /// Its state is open or dirty after it was opened.
    pub usable: bool,
    pub state: String,
    /// None: its revision counter is disabled.
    pub counter: Option<i64>,
    pub head_modified_ns: i64,
    pub head_allocated_bytes: i64,
    /// It was not closed by the engine that had it last, so it may hold what others do not.
    pub unclean: bool,
    /// Where it is reached.
    pub address: String,
    /// None: it is of a kind that keeps none.
    pub standing: Option<Standing>,
    /// What the head sits on, top first.
    pub layers: Vec<Layer>,
}

/// A snapshot below the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub name: String,
    /// A user made it and it was not removed: what it shows never changes.
    pub kept: bool,
}

impl Found {
    /// What it is called in records.
    pub fn name(&self) -> &str {
        self.standing.as_ref().map_or(&self.address, |standing| &standing.id)
    }

    /// Why it does not hold the volume though it belongs to it, if so.
    pub(super) fn unfilled(&self) -> Option<String> {
        let is_whole = self.standing.as_ref().is_none_or(|it| it.filling == Filling::No);
        (!is_whole).then(|| "joined the volume to be filled, and was not".to_owned())
    }
}

/// What came of opening a replica.
#[allow(clippy::large_enum_variant, reason = "there are few, for a short time")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Nobody answers there.
    Unreachable(String),
    /// It answers, and cannot be used.
    Failed {
        why: String,
        standing: Option<Box<Standing>>,
    },
    Opened(Found),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartRules {
    pub size_bytes: i64,
    /// 0: not known, the volume was never expanded.
    pub current_size_bytes: i64,
    pub upgrade: bool,
    pub revision_counter: bool,
    pub salvage: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub size_bytes: i64,
    /// One for each replica, in order; `Err` with the reason.
    pub verdicts: Vec<Result<(), String>>,
    /// The copies may differ: the place of the one that the others are to be made equal to.
    pub reader: Option<usize>,
    /// The snapshot up to which all of them are equal; none: they may differ everywhere.
    pub base: Option<String>,
    /// The highest serial of a record that was seen.
    pub serial: u64,
}

/// No replica can be used. The beginning of the texts is what callers match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoBackend {
    ReplicaError(String),
    /// At least one was not reached, so trying again may help.
    Unavailable(String),
}

impl fmt::Display for NoBackend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReplicaError(why) => {
                write!(out, "no available backend due to replica error: {why}")
            }
            Self::Unavailable(why) => {
                write!(out, "no available backend due to service unavailable: {why}")
            }
        }
    }
}

impl std::error::Error for NoBackend {}

pub(super) type Verdicts<'a> = Vec<Result<&'a Found, String>>;

/// Decides with which replicas the volume starts.
pub fn choose(seen: &[Seen], rules: &StartRules) -> Result<Plan, NoBackend> {
    let mut verdicts: Verdicts<'_> = seen.iter().map(|seen| usable(seen, rules)).collect();
    let latest = newest(seen);
    // In a live upgrade it was decided before the first was claimed: see `passed_over`.
    let record = latest.filter(|_| !rules.upgrade);
    if let Some(record) = record {
        if let Some(why) = missing(seen, record).filter(|_| !rules.salvage) {
            return Err(NoBackend::Unavailable(why));
        }
        refuse(&mut verdicts, |found| (!record.names(found.name())).then(|| not_named(record)));
    }
    refuse_other_sectors(&mut verdicts);
    let size_bytes = volume_size(&verdicts, rules);
    refuse(&mut verdicts, |found| {
        let size = found.size_bytes;
        (size != size_bytes).then(|| format!("has {size} bytes, the volume {size_bytes}"))
    });
    if !rules.upgrade {
        // One without a standing is told from the others by its counter alone.
        let all_recorded = verdicts.iter().flatten().all(|found| found.standing.is_some());
        refuse_stale(&mut verdicts, rules, record.is_some() && all_recorded);
    }
    let recorded = match latest {
        Some(latest) if rules.upgrade => believed(&verdicts, latest),
        Some(latest) => latest.reader.as_deref(),
        None => None,
    };
    if rules.salvage && !rules.revision_counter && !rules.upgrade {
        keep_one(&mut verdicts, recorded);
    }
    let agreed = agree(&mut verdicts, recorded);
    if verdicts.iter().any(Result::is_ok) {
        let several = verdicts.iter().flatten().count() > 1;
        let differ = recorded.is_some() || verdicts.iter().flatten().any(|found| found.unclean);
        let reader = agreed.reader.filter(|_| several && differ);
        let serial = seen.iter().filter_map(|seen| seen.standing()?.record.as_ref());
        let serial = serial.map(|record| record.serial).max().unwrap_or(0);
        let verdicts = verdicts.into_iter().map(|verdict| verdict.map(|_| ())).collect();
        return Ok(Plan { size_bytes, verdicts, reader, base: agreed.base, serial });
    }
    let reasons: Vec<String> = verdicts.into_iter().filter_map(Result::err).collect();
    let why = if reasons.is_empty() { "there is none".to_owned() } else { reasons.join("; ") };
    Err(if seen.iter().any(|seen| matches!(seen, Seen::Unreachable(_))) {
        NoBackend::Unavailable(why)
    } else {
        NoBackend::ReplicaError(why)
    })
}

impl Seen {
    pub(super) fn standing(&self) -> Option<&Standing> {
        match self {
            Self::Unreachable(_) => None,
            Self::Failed { standing, .. } => standing.as_deref(),
            Self::Opened(found) => found.standing.as_ref(),
        }
    }
}

fn usable<'s>(seen: &'s Seen, rules: &StartRules) -> Result<&'s Found, String> {
    match seen {
        Seen::Unreachable(why) | Seen::Failed { why, .. } => Err(why.clone()),
        Seen::Opened(found) => match found.unfilled() {
            Some(why) if !rules.salvage => Err(why),
            Some(_) | None if found.usable => Ok(found),
            Some(_) | None => Err(format!("is in state {}, not open or dirty", found.state)),
        },
    }
}

/// Of the copies that a live upgrade took, the one that the others are made equal to. While they were taken
/// one after the other, the old engine went on with those that it still had: one that its last record names
/// has all that it acknowledged, and what was on its way may differ among all of them.
fn believed<'r>(verdicts: &Verdicts<'_>, latest: &'r Record) -> Option<&'r str> {
    let is_left = |name: &&str| verdicts.iter().flatten().any(|found| found.name() == *name);
    let members = || latest.members.iter().map(String::as_str);
    latest.reader.as_deref().filter(is_left).or_else(|| members().find(is_left))
}

pub(super) fn refuse(verdicts: &mut Verdicts<'_>, mut why: impl FnMut(&Found) -> Option<String>) {
    for verdict in verdicts {
        if let Ok(found) = verdict
            && let Some(why) = why(found)
        {
            *verdict = Err(why);
        }
    }
}

fn refuse_other_sectors(verdicts: &mut Verdicts<'_>) {
    let Some(first) = verdicts.iter().flatten().next().map(|found| found.sector_size) else {
        return;
    };
    refuse(verdicts, |found| {
        let own = found.sector_size;
        (own != first).then(|| format!("has sectors of {own} bytes, the first replica of {first}"))
    });
}

fn volume_size(verdicts: &Verdicts<'_>, rules: &StartRules) -> i64 {
    let all_agree = verdicts.iter().flatten().all(|found| found.size_bytes == rules.size_bytes);
    if rules.current_size_bytes == 0 || all_agree {
        rules.size_bytes
    } else {
        rules.current_size_bytes
    }
}

fn refuse_stale(verdicts: &mut Verdicts<'_>, rules: &StartRules, recorded: bool) {
    let expected = rules.revision_counter;
    refuse(verdicts, |found| {
        let enabled = found.counter.is_some();
        let says = |on| if on { "enabled" } else { "disabled" };
        (enabled != expected).then(|| {
            let (its, ours) = (says(enabled), says(expected));
            format!("has its revision counter {its}, the controller {ours}")
        })
    });
    // Those that a record names differ at most in what nobody was told of.
    if expected && !recorded {
        let newest = verdicts.iter().flatten().filter_map(|found| found.counter).max();
        refuse(verdicts, |found| {
            let own = found.counter;
            (own != newest).then(|| {
                let (own, newest) = (own.unwrap_or_default(), newest.unwrap_or_default());
                format!("has revision counter {own}, below the newest {newest}")
            })
        });
    }
}

/// The one that the others were being made equal to; else of those changed last, the one that
/// holds most.
fn keep_one(verdicts: &mut Verdicts<'_>, recorded: Option<&str>) {
    let is_recorded = |found: &Found| recorded == Some(found.name());
    if verdicts.iter().flatten().any(|found| is_recorded(found)) {
        return refuse(verdicts, |found| (!is_recorded(found)).then(|| ANOTHER.to_owned()));
    }
    let found = || verdicts.iter().flatten();
    let Some(newest) = found().map(|found| found.head_modified_ns).max() else { return };
    let rank = |found: &Found| {
        let recent = newest.saturating_sub(found.head_modified_ns) <= SALVAGE_WINDOW_NS;
        recent.then_some((found.head_allocated_bytes, found.head_modified_ns))
    };
    let best = found().filter_map(|found| rank(found)).max();
    let mut kept = false;
    refuse(verdicts, |found| {
        let keep = !kept && rank(found) == best;
        kept |= keep;
        (!keep).then(|| ANOTHER.to_owned())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;
    const SECOND: i64 = 1_000_000_000;

    fn found(counter: Option<i64>) -> Found {
        Found {
            size_bytes: GIB,
            sector_size: 512,
            usable: true,
            state: "dirty".to_owned(),
            counter,
            head_modified_ns: 0,
            head_allocated_bytes: 0,
            unclean: false,
            address: String::new(),
            standing: None,
            layers: vec![],
        }
    }

    fn rules() -> StartRules {
        StartRules {
            size_bytes: GIB,
            current_size_bytes: 0,
            upgrade: false,
            revision_counter: true,
            salvage: false,
        }
    }

    fn failed(why: &str) -> Seen {
        Seen::Failed { why: why.to_owned(), standing: None }
    }

    fn sized(size_bytes: i64) -> Seen {
        Seen::Opened(Found { size_bytes, ..found(Some(1)) })
    }

    fn kept(seen: &[Seen], rules: &StartRules) -> Vec<bool> {
        choose(seen, rules).map_or_else(
            |_| vec![false; seen.len()],
            |plan| plan.verdicts.iter().map(Result::is_ok).collect(),
        )
    }

    #[test]
    fn only_the_newest_by_counter_are_kept() {
        let counted = |counts: [i64; 3]| counts.map(|count| Seen::Opened(found(Some(count))));
        assert_eq!(kept(&counted([5, 5, 5]), &rules()), [true, true, true]);
        assert_eq!(kept(&counted([5, 7, 7]), &rules()), [false, true, true]);
        let upgrade = StartRules { upgrade: true, ..rules() };
        assert_eq!(kept(&counted([5, 7, 7]), &upgrade), [true, true, true]);
    }

    #[test]
    fn counters_must_be_on_or_off_as_here() {
        let seen = [Seen::Opened(found(None)), Seen::Opened(found(Some(1)))];
        assert_eq!(kept(&seen, &rules()), [false, true]);
        assert_eq!(kept(&seen, &StartRules { revision_counter: false, ..rules() }), [true, false]);
        assert_eq!(kept(&seen, &StartRules { upgrade: true, ..rules() }), [true, true]);
    }

    #[test]
    fn unusable_ones_and_other_sectors_are_left_out() {
        let seen = [
            Seen::Opened(Found { usable: false, state: "rebuilding".to_owned(), ..found(Some(9)) }),
            Seen::Opened(found(Some(1))),
            Seen::Opened(Found { sector_size: 4096, ..found(Some(1)) }),
            failed("replica must be closed"),
            Seen::Unreachable("connection refused".to_owned()),
        ];
        assert_eq!(kept(&seen, &rules()), [false, true, false, false, false]);
    }

    #[test]
    fn the_size_is_what_was_asked_or_what_it_has_become() {
        for (size, current, replicas, expected, kept_ones) in [
            (GIB, 0, [GIB, GIB], GIB, [true, true]),
            (GIB, 0, [GIB, 2 * GIB], GIB, [true, false]),
            (2 * GIB, GIB, [2 * GIB, 2 * GIB], 2 * GIB, [true, true]),
            (2 * GIB, GIB, [GIB, 2 * GIB], GIB, [true, false]),
            (2 * GIB, GIB, [GIB, GIB], GIB, [true, true]),
        ] {
            let rules = StartRules { size_bytes: size, current_size_bytes: current, ..rules() };
            let seen = replicas.map(sized);
            let plan = choose(&seen, &rules).unwrap();
            assert_eq!(plan.size_bytes, expected, "{size} {current} {replicas:?}");
            assert_eq!(kept(&seen, &rules), kept_ones, "{size} {current} {replicas:?}");
        }
    }

    #[test]
    fn salvage_keeps_the_fullest_of_the_recent() {
        let rules = StartRules { revision_counter: false, salvage: true, ..rules() };
        let of = |list: &[(i64, i64)]| -> Vec<Seen> {
            let heads = list.iter().map(|&(seconds, allocated)| Found {
                head_modified_ns: seconds * SECOND,
                head_allocated_bytes: allocated,
                ..found(None)
            });
            heads.map(Seen::Opened).collect()
        };
        for (heads, expected) in [
            (vec![(100, 1), (104, 5), (105, 3)], vec![false, true, false]),
            (vec![(99, 9), (105, 3)], vec![false, true]),
            (vec![(100, 9), (105, 3)], vec![true, false]),
            (vec![(104, 5), (105, 5)], vec![false, true]),
            (vec![(105, 5), (105, 5)], vec![true, false]),
        ] {
            assert_eq!(kept(&of(&heads), &rules), expected, "{heads:?}");
        }
    }

    #[test]
    fn with_none_the_text_says_whether_to_try_again() {
        let failed = failed("cannot open");
        let away = Seen::Unreachable("connection refused".to_owned());
        let text = |seen: &[Seen]| choose(seen, &rules()).unwrap_err().to_string();
        let error = "no available backend due to replica error: cannot open";
        assert_eq!(text(std::slice::from_ref(&failed)), error);
        let unavailable = "no available backend due to service unavailable";
        assert!(text(&[failed, away]).starts_with(unavailable));
        assert!(text(&[]).starts_with("no available backend due to replica error"));
    }
}
