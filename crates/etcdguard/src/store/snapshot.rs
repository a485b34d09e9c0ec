//! One snapshot as its name tells it, the order of many, and their JSON form.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::compress::Compression;
use super::name;

/// What no time is in the JSON form.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Full,
    Incr,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "Full",
            Self::Incr => "Incr",
        }
    }
}

/// The layouts a store may hold. Only the second is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    V1,
    V2,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Snapshot {
    pub created_on: Timestamp,
    /// Until then the store refuses to remove it.
    pub immutable_until: Option<Timestamp>,
    pub version_id: Option<String>,
    pub kind: Kind,
    /// The directory of one backup in the first layout; else empty.
    pub snap_dir: String,
    /// What follows the directory in the key: the name, and for a chunk a slash and its number.
    pub snap_name: String,
    /// What precedes the name in the key, with the marker of the layout and a slash; empty until
    /// it is listed.
    pub prefix: String,
    pub layout: Layout,
    pub compression: Option<Compression>,
    pub is_encrypted: bool,
    pub start_revision: i64,
    pub last_revision: i64,
    pub is_chunk: bool,
    pub is_final: bool,
    /// The number of the history it is of, as the store has them when it is listed.
    pub history: usize,
    /// When that history began; none for the first of a store.
    pub since: Option<Timestamp>,
    /// When the store got it, by the store's clock; none until it is listed.
    pub stored_at: Option<Timestamp>,
}

impl Snapshot {
    /// A full snapshot that is to be saved; final where nothing will be written after it.
    pub fn full(
        last_revision: i64,
        created_on: Timestamp,
        compression: Option<Compression>,
        is_final: bool,
    ) -> Self {
        Self::named(Kind::Full, (0, last_revision), created_on, compression, is_final)
    }

    /// The events of `start..=last`, to be saved.
    pub fn delta(
        start_revision: i64,
        last_revision: i64,
        created_on: Timestamp,
        compression: Option<Compression>,
    ) -> Self {
        let range = (start_revision, last_revision);
        Self::named(Kind::Incr, range, created_on, compression, false)
    }

    fn named(
        kind: Kind,
        (start_revision, last_revision): (i64, i64),
        created_on: Timestamp,
        compression: Option<Compression>,
        is_final: bool,
    ) -> Self {
        let mut snapshot = Self {
            created_on,
            immutable_until: None,
            version_id: None,
            kind,
            snap_dir: String::new(),
            snap_name: String::new(),
            prefix: String::new(),
            layout: Layout::V2,
            compression,
            is_encrypted: false,
            start_revision,
            last_revision,
            is_chunk: false,
            is_final,
            history: 0,
            since: None,
            stored_at: None,
        };
        snapshot.snap_name = name::format(&snapshot);
        snapshot
    }

    /// Gives it the name that its other fields say.
    pub fn rename(&mut self) {
        self.snap_name = name::format(self);
    }

    /// The name without what a copy may change, by which stores are compared.
    pub fn identity(&self) -> String {
        name::format(&Self { is_final: false, is_encrypted: false, ..self.clone() })
    }

    /// By when it was made at the latest. A name may say a later time than that: a clock was ahead, or
    /// its history began by one that was, and names never say a time before their history.
    pub fn made_by(&self) -> Timestamp {
        self.stored_at.map_or(self.created_on, |stored| stored.min(self.created_on))
    }

    /// Whether the store refuses to remove it at `now`.
    pub fn is_immutable(&self, now: Timestamp) -> bool {
        self.immutable_until.is_some_and(|until| until > now)
    }

    /// The order of listings, made whole: the history, the last revision, objects before chunks, the
    /// second of creation, and where all that is equal deltas before the full one that holds them
    /// too.
    pub fn order(&self, other: &Self) -> Ordering {
        let kind = |snapshot: &Self| match snapshot.kind {
            Kind::Incr => 0,
            Kind::Full => 1,
        };
        let key = |snapshot: &Self| {
            let (last, start) = (snapshot.last_revision, snapshot.start_revision);
            let second = snapshot.created_on.as_second();
            (snapshot.history, last, snapshot.is_chunk, second, kind(snapshot), start)
        };
        key(self).cmp(&key(other)).then_with(|| self.snap_name.cmp(&other.snap_name))
    }

    /// Whether it was made more than this many days before `now`.
    pub fn is_older_than_days(&self, days: i64, now: Timestamp) -> bool {
        let age = now.as_second().saturating_sub(self.created_on.as_second());
        age > days.saturating_mul(24 * 60 * 60)
    }
}

/// Sorts as listings are sorted.
pub fn sort(snapshots: &mut [Snapshot]) {
    snapshots.sort_by(Snapshot::order);
}

/// What a restore begins from: the newest full snapshot and the deltas after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latest {
    pub full: Option<Snapshot>,
    pub deltas: Vec<Snapshot>,
}

impl Latest {
    /// Of a sorted listing: of the newest history that has anything.
    pub fn of(snapshots: &[Snapshot]) -> Self {
        let mut latest = Self::default();
        let mut whole = snapshots.iter().rev().filter(|snapshot| !snapshot.is_chunk).peekable();
        let history = whole.peek().map(|newest| newest.history);
        for snapshot in whole.take_while(|snapshot| Some(snapshot.history) == history) {
            match snapshot.kind {
                Kind::Incr => latest.deltas.push(snapshot.clone()),
                Kind::Full => {
                    latest.full = Some(snapshot.clone());
                    break;
                }
            }
        }
        sort(&mut latest.deltas);
        latest
    }

    /// The number of the history that it is of.
    pub fn history(&self) -> Option<usize> {
        self.full.iter().chain(&self.deltas).map(|snapshot| snapshot.history).next()
    }

    /// The last revision of any of it.
    pub fn last_revision(&self) -> Option<i64> {
        let all = self.full.iter().chain(&self.deltas);
        all.map(|snapshot| snapshot.last_revision).max()
    }
}

impl Serialize for Snapshot {
    /// The keys in the order, and with the spelling, that readers know.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let until = self.immutable_until.map_or_else(|| NO_TIME.to_owned(), |it| it.to_string());
        let suffix = self.compression.map_or("", Compression::suffix);
        let mut json = serializer.serialize_struct("Snapshot", 12)?;
        json.serialize_field("createdOn", &self.created_on.to_string())?;
        json.serialize_field("immutabilityExpriyTime", &until)?;
        json.serialize_field("versionID", &self.version_id)?;
        json.serialize_field("kind", self.kind.as_str())?;
        json.serialize_field("snapDir", &self.snap_dir)?;
        json.serialize_field("snapName", &self.snap_name)?;
        json.serialize_field("prefix", &self.prefix)?;
        json.serialize_field("compressionSuffix", suffix)?;
        json.serialize_field("startRevision", &self.start_revision)?;
        json.serialize_field("lastRevision", &self.last_revision)?;
        json.serialize_field("isChunk", &self.is_chunk)?;
        json.serialize_field("isFinal", &self.is_final)?;
        json.end()
    }
}

#[cfg(test)]
mod tests;
