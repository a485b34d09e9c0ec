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
        let is_late = |snapshot: &&Snapshot| snapshot.created_on >= since;
        let earlier = there.iter().filter(is_late).take(EARLIER_MAX);
        let earlier = earlier.map(Snapshot::identity).collect();
        Self { version: 1, id, since, reason, earlier }
    }

    /// A time at which the one before it was the present one.
    pub fn before(&self) -> Timestamp {
        self.since.checked_sub(SignedDuration::from_secs(1)).unwrap_or(self.since)
    }

    /// What its object is called.
    pub fn name(&self) -> String {
        format!("{:012}-{}{ENDING}", self.since.as_second(), self.id)
    }

    /// As its object says it; what cannot be read is `None`.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|history: &Self| history.version == 1)
    }

    fn holds(&self, snapshot: &Snapshot) -> bool {
        snapshot.created_on >= self.since && !self.earlier.contains(&snapshot.identity())
    }
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

    /// The number of the newest.
    pub fn current(&self) -> usize {
        self.0.len()
    }

    /// Those that hold nothing any more, but for the newest: it may not have begun to.
    pub fn empty<'h>(&'h self, snapshots: &'h [Snapshot]) -> impl Iterator<Item = &'h History> {
        let older = self.0.len().saturating_sub(1);
        self.0.iter().take(older).enumerate().filter_map(|(index, history)| {
            let is_used = snapshots.iter().any(|snapshot| snapshot.history == index + 1);
            (!is_used).then_some(history)
        })
    }
}

#[cfg(test)]
mod tests;
