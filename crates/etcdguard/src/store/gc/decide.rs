//! Which snapshots are no longer needed: a pure function of a listing and the time.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::store::snapshot::{Kind, Snapshot};

const HOUR_SECONDS: i64 = 60 * 60;
const DAY_SECONDS: i64 = 24 * HOUR_SECONDS;
const WEEK_SECONDS: i64 = 7 * DAY_SECONDS;
/// Snapshots of each day are kept so long, the day that is not over included.
const DAILY_SECONDS: i64 = 8 * DAY_SECONDS;
const WEEKLY_SECONDS: i64 = 35 * DAY_SECONDS;
/// Chunks without their object are given up after this time: no upload takes as long.
const CHUNK_SECONDS: i64 = DAY_SECONDS;
/// So long after the store got anything its snapshots go on growing old.
const SILENCE_SECONDS: i64 = DAY_SECONDS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// All of this hour, the newest of each hour of today, of each day of a week, of each week of
    /// four.
    Exponential,
    /// So many full snapshots.
    LimitBased { max_backups: u32 },
}

/// How chunks are treated: on Swift they are the data of their object and go with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Chunks,
    Nothing,
}

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub policy: Policy,
    /// Deltas that are older go, unless they follow the newest full snapshot.
    pub delta_retention: Duration,
}

/// One removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    pub snapshot: Snapshot,
    /// Which stream it belongs to, from the oldest; chunks belong to none. The head of a stream
    /// goes last, and stays where too many of its deltas could not be removed.
    pub stream: Option<usize>,
}

/// What goes, in the order in which it is to go. `snapshots` are sorted, as a listing is, and
/// `good` is the newest full one of which it is known that it can be restored: what is named for
/// later without being one does not count, and is left for somebody to look at. None where there
/// is no such one: then there is nothing to lose, and names decide.
pub fn decide(
    snapshots: &[Snapshot],
    good: Option<&Snapshot>,
    plan: &Plan,
    keep: Keep,
    now: Timestamp,
) -> Vec<Delete> {
    let now = now_of(snapshots, now);
    let mut deletes = stale_chunks(snapshots, keep, now);
    let mut streams = streams(snapshots);
    // What a restore begins from, and all that is after it, stays.
    let is_good = |stream: &Stream<'_>| good.is_some_and(|good| is_one(good, stream.head));
    let newest = streams.iter().rposition(is_good);
    streams.truncate(newest.map_or(streams.len(), |newest| newest + 1));
    let is_kept = match plan.policy {
        Policy::LimitBased { max_backups } => kept_by_number(streams.len(), max_backups),
        Policy::Exponential => kept_by_age(&streams, now),
    };
    let older = streams.iter().zip(is_kept).take(streams.len().saturating_sub(1));
    for (index, (stream, is_kept)) in older.enumerate() {
        // The last state of an earlier history is nowhere else: it goes as a whole or not at all.
        let is_end = streams.get(index + 1).is_some_and(|next| next.history() != stream.history());
        let deltas = stream.deltas.iter().filter(|_| !is_end || !is_kept);
        let deltas = deltas.filter(|delta| is_expired(delta, plan, now));
        let head = Some(&stream.head).filter(|_| !is_kept);
        let go = deltas.chain(head).filter(|snapshot| !snapshot.is_immutable(now));
        deletes.extend(go.map(|it| Delete { snapshot: (*it).clone(), stream: Some(index) }));
    }
    deletes
}

/// Whether both are the same object. What two listings say of it may differ: how long it is locked, and
/// the number of its history, where another guard has collected meanwhile.
fn is_one(one: &Snapshot, other: &Snapshot) -> bool {
    let place = |it: &Snapshot| {
        (it.layout, it.snap_dir.clone(), it.snap_name.clone(), it.version_id.clone())
    };
    place(one) == place(other)
}

/// The time of a collection, which no clock of one machine decides alone: by one that is a year
/// ahead all but the newest would be too old. While a guard works, the store gets something each day.
fn now_of(snapshots: &[Snapshot], now: Timestamp) -> Timestamp {
    let newest = snapshots.iter().filter_map(|snapshot| snapshot.stored_at).max();
    let latest =
        newest.and_then(|it| it.checked_add(SignedDuration::from_secs(SILENCE_SECONDS)).ok());
    latest.map_or(now, |latest| latest.min(now))
}

/// A full snapshot and the deltas of its history that follow it. The oldest of a history may have
/// lost its full snapshot; its first delta is then its head.
struct Stream<'s> {
    head: &'s Snapshot,
    deltas: Vec<&'s Snapshot>,
}

impl Stream<'_> {
    fn history(&self) -> usize {
        self.head.history
    }
}

fn streams(snapshots: &[Snapshot]) -> Vec<Stream<'_>> {
    let mut streams: Vec<Stream<'_>> = Vec::new();
    for snapshot in snapshots.iter().filter(|snapshot| !snapshot.is_chunk) {
        match (snapshot.kind, streams.last_mut()) {
            (Kind::Incr, Some(stream)) if stream.history() == snapshot.history => {
                stream.deltas.push(snapshot);
            }
            (Kind::Full | Kind::Incr, _) => {
                streams.push(Stream { head: snapshot, deltas: Vec::new() });
            }
        }
    }
    streams
}

fn is_expired(delta: &Snapshot, plan: &Plan, now: Timestamp) -> bool {
    let retention = i64::try_from(plan.delta_retention.as_secs()).unwrap_or(i64::MAX);
    delta.made_by().as_second() < now.as_second().saturating_sub(retention)
}

/// Parts of objects that are there whole, or that nobody will finish.
fn stale_chunks(snapshots: &[Snapshot], keep: Keep, now: Timestamp) -> Vec<Delete> {
    let name = |chunk: &Snapshot| chunk.snap_name.split('/').next().map(str::to_owned);
    let whole: BTreeSet<(&str, &str)> = snapshots
        .iter()
        .filter(|snapshot| !snapshot.is_chunk)
        .map(|snapshot| (snapshot.snap_dir.as_str(), snapshot.snap_name.as_str()))
        .collect();
    let is_stale = |chunk: &&Snapshot| {
        let age = now.as_second().saturating_sub(chunk.made_by().as_second());
        let is_whole = name(chunk).is_some_and(|name| whole.contains(&(&chunk.snap_dir, &name)));
        match keep {
            Keep::Nothing => is_whole || age > CHUNK_SECONDS,
            Keep::Chunks => !is_whole && age > CHUNK_SECONDS,
        }
    };
    let chunks = snapshots.iter().filter(|snapshot| snapshot.is_chunk).filter(is_stale);
    chunks
        .filter(|chunk| !chunk.is_immutable(now))
        .map(|chunk| Delete { snapshot: chunk.clone(), stream: None })
        .collect()
}

fn kept_by_number(streams: usize, max_backups: u32) -> Vec<bool> {
    let max_backups = usize::try_from(max_backups).unwrap_or(usize::MAX);
    let surplus = streams.saturating_sub(max_backups);
    (0..streams).map(|index| index >= surplus).collect()
}

/// From the newest to the oldest, each compared with its newer neighbour: it is kept where it is
/// the first to be met of its hour, day or week. No newer one stands for the last state of an
/// earlier history: that is kept until it is too old for any.
fn kept_by_age(streams: &[Stream<'_>], now: Timestamp) -> Vec<bool> {
    let today = now.as_second().div_euclid(DAY_SECONDS);
    let mut end = (today + 1) * DAY_SECONDS - 1;
    let mut is_weekly = false;
    let mut newer: Option<(i64, usize)> = None;
    let mut kept: Vec<bool> = Vec::with_capacity(streams.len());
    for stream in streams.iter().rev() {
        let made = stream.head.made_by().as_second();
        let Some((newer, history)) = newer.replace((made, stream.history())) else {
            kept.push(true);
            continue;
        };
        let unit = unit_of(made, end, now);
        if unit == Some(Unit::Week) && !is_weekly {
            // Weeks are counted from the end of the days before.
            is_weekly = true;
            end -= DAY_SECONDS;
        }
        let is_end = history != stream.history();
        kept.push(unit.is_some_and(|unit| is_end || unit.differs(end - made, end - newer)));
    }
    kept.reverse();
    kept
}

/// Of how long a time one snapshot is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// All of this hour are.
    Any,
    Hour,
    Day,
    Week,
}

/// None where it is too old for any.
fn unit_of(made: i64, end: i64, now: Timestamp) -> Option<Unit> {
    let hour_of_day = |second: i64| second.rem_euclid(DAY_SECONDS) / HOUR_SECONDS;
    match end - made {
        age if age < DAY_SECONDS && hour_of_day(made) == hour_of_day(now.as_second()) => {
            Some(Unit::Any)
        }
        age if age < DAY_SECONDS => Some(Unit::Hour),
        age if age < DAILY_SECONDS => Some(Unit::Day),
        age if age < WEEKLY_SECONDS => Some(Unit::Week),
        _ => None,
    }
}

impl Unit {
    /// Whether two ages lie in different ones.
    fn differs(self, age: i64, newer_age: i64) -> bool {
        let seconds = match self {
            Self::Any => return true,
            Self::Hour => HOUR_SECONDS,
            Self::Day => DAY_SECONDS,
            Self::Week => WEEK_SECONDS,
        };
        age / seconds != newer_age / seconds
    }
}

#[cfg(test)]
mod tests;
