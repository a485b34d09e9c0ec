//! Histories of a store: which etcd's life each snapshot tells of.
//!
//! Names of snapshots say revisions and times, and nothing of whose they are. Where an etcd begins
//! anew under the same prefix, or is restored to an earlier state, revisions are given out a second
//! time. A small object beside the layouts says so: from its time on, snapshots are of another
//! history. Other programs of this dialect look only at the layouts, and do not see it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;

/// The folder beside the layouts. Neither it nor what is in it has the marker of a layout in its
/// name, by which others would take it for a snapshot.
pub const FOLDER: &str = "histories";
const ENDING: &str = ".json";
/// The longest such object that is read.
pub const MAX_BYTES: u64 = 1 << 20;
/// Of the names in one: more would not fit.
const EARLIER_MAX: usize = 4096;
const ID_BYTES: usize = 8;
/// Of the time in its name, so that names sort by it.
const SECOND_DIGITS: usize = 12;

/// The beginning of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    version: u32,
    pub id: String,
    /// Snapshots that were made then or later are of it, or of one that follows it.
    pub since: Timestamp,
    /// For people.
    pub reason: String,
    /// Names, without what a copy may change, that say such a time and were there before it began.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    earlier: BTreeSet<String>,
}

/// Something that no two histories share.
pub fn new_id() -> String {
    let random: [u8; ID_BYTES] = rand::random();
    random.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl History {
    /// One that begins now, in a store that holds `there`.
    pub fn begin(id: String, reason: String, now: Timestamp, there: &[Snapshot]) -> Self {
        // Times in names are whole seconds.
        let since = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let late: Vec<&Snapshot> = there.iter().filter(|it| it.created_on >= since).collect();
        if late.len() > EARLIER_MAX {
            // More than can be named, by a clock that was ahead for days: it begins after them.
            let last = late.iter().map(|it| it.created_on).max().unwrap_or(since);
            return Self { version: 1, id, since: next(last), reason, earlier: BTreeSet::new() };
        }
        let earlier = late.into_iter().map(Snapshot::identity).collect();
        Self { version: 1, id, since, reason, earlier }
    }

    /// A time at which the one before it was the present one.
    pub fn before(&self) -> Timestamp {
        self.since.checked_sub(SignedDuration::from_secs(1)).unwrap_or(self.since)
    }

    /// What its object is called.
    pub fn name(&self) -> String {
        format!("{:0SECOND_DIGITS$}-{}{ENDING}", self.since.as_second(), self.id)
    }

    /// By the name of its object alone, which says all but what was late; `None` where it is not
    /// the name of one.
    pub fn named(name: &str) -> Option<Self> {
        let (second, id) = name.strip_suffix(ENDING)?.split_once('-')?;
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_time = second.len() == SECOND_DIGITS && second.bytes().all(|it| it.is_ascii_digit());
        let second: i64 = second.parse().ok().filter(|_| is_id && is_time)?;
        let since = Timestamp::from_second(second).ok()?;
        let (id, reason) = (id.to_owned(), "its object is damaged".to_owned());
        Some(Self { version: 1, id, since, reason, earlier: BTreeSet::new() })
    }

    /// What its object says beyond its name; nothing where it cannot be read, or says otherwise.
    pub fn told(&self, bytes: &[u8]) -> Option<Self> {
        let is_same = |told: &Self| {
            (told.version, &told.id, told.since) == (self.version, &self.id, self.since)
        };
        serde_json::from_slice(bytes).ok().filter(is_same)
    }

    fn holds(&self, snapshot: &Snapshot) -> bool {
        snapshot.created_on >= self.since && !self.earlier.contains(&snapshot.identity())
    }
}

/// The second after a time; at the end of time, that time.
fn next(time: Timestamp) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(1)).unwrap_or(time)
}

/// All of a store, from the oldest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histories(Vec<History>);

impl Histories {
    pub fn of(mut all: Vec<History>) -> Self {
        all.sort_by(|one, other| (one.since, &one.id).cmp(&(other.since, &other.id)));
        Self(all)
    }

    pub fn newest(&self) -> Option<&History> {
        self.0.last()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &History> {
        self.0.iter()
    }

    /// When one begins that begins now: after all others, also after one that began by a clock that
    /// was ahead. Otherwise what follows would be taken for a part of that one.
    pub fn after_all(&self, now: Timestamp) -> Timestamp {
        self.newest().map_or(now, |newest| next(newest.since).max(now))
    }

    /// A time as close to `now` as may be, at which a snapshot that is not in the store yet is of the
    /// history of this number.
    pub fn time_in(&self, number: usize, now: Timestamp) -> Timestamp {
        let since = number.checked_sub(1).and_then(|index| self.0.get(index));
        let time = since.map_or(now, |history| history.since.max(now));
        self.0.get(number).map_or(time, |following| following.before().min(time))
    }

    /// Whether a history that began elsewhere at `time` is yet to be written down: it is not known,
    /// and no other began since.
    pub fn is_new(&self, id: &str, time: Timestamp) -> bool {
        let is_known = self.0.iter().any(|history| history.id == id);
        !is_known && self.newest().is_none_or(|newest| newest.since <= time)
    }

    /// The number of the one a snapshot is of: 0 is what was before any was written down.
    pub fn number_of(&self, snapshot: &Snapshot) -> usize {
        let number = self.0.iter().rposition(|history| history.holds(snapshot));
        number.map_or(0, |index| index + 1)
    }

    /// The one a snapshot is of; none where it is of what was before any was written down.
    pub fn of_snapshot(&self, snapshot: &Snapshot) -> Option<&History> {
        self.0.iter().rfind(|history| history.holds(snapshot))
    }

    /// The number of the newest.
    pub fn current(&self) -> usize {
        self.0.len()
    }

    /// Those that hold nothing of `left`, but for the newest, and either held something of `gone` or
    /// are among `settled`: nobody is about to write what they are to hold.
    pub fn emptied(
        &self,
        gone: &[Snapshot],
        left: &[Snapshot],
        settled: &BTreeSet<String>,
    ) -> Vec<&History> {
        let older = self.0.len().saturating_sub(1);
        let numbers = |all: &[Snapshot]| -> BTreeSet<usize> {
            all.iter().map(|snapshot| self.number_of(snapshot)).collect()
        };
        let (gone, left) = (numbers(gone), numbers(left));
        let older = self.0.iter().take(older).zip(1..);
        let emptied = older.filter(|(history, number)| {
            (gone.contains(number) || settled.contains(&history.id)) && !left.contains(number)
        });
        emptied.map(|(history, _)| history).collect()
    }
}

#[cfg(test)]
mod tests;
