//! Whether what deltas tell continues what is there.
//!
//! Each change of a key says how often it was changed since it was made, and when it was made. What
//! does not fit what came before is of another history, however well its revisions follow. And what
//! two snapshots tell of the same revision must be the same.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;

use crate::bolt::Bolt;
use crate::datadir::{self, KEY_BUCKET, KeyValue, Revision, RowKey};

use super::RestoreError;

/// Keys that are held in memory: about 100 MiB. Of more only a share is looked at, which finds two
/// histories as well: they differ in more than one key.
const KEYS_MAX: usize = 2_000_000;
/// Rows whose contents are held for comparison: what overlaps lies close together.
const RECENT_MAX: usize = 1 << 20;
/// Of a key in a message.
const SHOWN_BYTES: usize = 60;

/// What a key is like now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    create_revision: i64,
    version: i64,
}

#[derive(Debug)]
pub(super) struct Lineage {
    hashers: [RandomState; 2],
    /// Keys that exist, by two keyed hashes: nobody can make two keys meet in 128 bits.
    keys: HashMap<(u64, u64), Standing>,
    /// One in so many keys is looked at.
    shares: u64,
    /// The contents of the last rows, by a hash, from the oldest.
    recent: VecDeque<(Revision, u64)>,
    /// From here on rows are in `recent`.
    from: i64,
    /// Rows up to here may have been dropped.
    compacted: i64,
}

/// Where the rows of a database are of more than one history; none where they are of one.
pub fn mixture(bolt: &Bolt) -> Result<Option<String>, RestoreError> {
    let Some(current) = datadir::current(bolt).map_err(RestoreError::bolt)? else {
        return Ok(None);
    };
    let mut lineage = Lineage::empty(i64::MAX, current.oldest());
    let Some(keys) = bolt.bucket(KEY_BUCKET).map_err(RestoreError::bolt)? else { return Ok(None) };
    for row in keys.rows().map_err(RestoreError::bolt)? {
        let row = row.map_err(RestoreError::bolt)?;
        let (Some(key), Some(value)) = (RowKey::decode(&row.key), KeyValue::read(&row.value))
        else {
            continue;
        };
        let main = key.revision.main;
        // Of what was compacted each key has its last row at most, which follows nothing.
        if main <= lineage.compacted {
            lineage.add(key, &value);
        } else if let Err(Contradiction(what)) = lineage.follow(key, &row.value) {
            return Ok(Some(format!("revision {main} is of another history: {what}")));
        }
    }
    Ok(None)
}

/// How a row contradicts what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contradiction(pub(super) String);

impl Lineage {
    fn empty(from: i64, compacted: i64) -> Self {
        Self {
            hashers: [RandomState::new(), RandomState::new()],
            keys: HashMap::new(),
            shares: 1,
            recent: VecDeque::new(),
            from,
            compacted,
        }
    }

    /// Of a database whose rows from `from` on may be told of again.
    pub(super) fn of(bolt: &Bolt, from: i64, compacted: i64) -> Result<Self, RestoreError> {
        let mut lineage = Self::empty(from, compacted);
        let Some(keys) = bolt.bucket(KEY_BUCKET).map_err(RestoreError::bolt)? else {
            return Ok(lineage);
        };
        for row in keys.rows().map_err(RestoreError::bolt)? {
            let row = row.map_err(RestoreError::bolt)?;
            // What is no row is found by the check of all rows.
            let (Some(key), Some(value)) = (RowKey::decode(&row.key), KeyValue::read(&row.value))
            else {
                continue;
            };
            lineage.add(key, &value);
        }
        Ok(lineage)
    }

    /// Takes a row that follows all others, if it does.
    pub(super) fn follow(&mut self, key: RowKey, value: &Bytes) -> Result<(), Contradiction> {
        let read = KeyValue::read(value);
        let read = read.ok_or_else(|| Contradiction("its contents cannot be read".to_owned()))?;
        if let Some(print) = self.print(&read.key) {
            fits(key, &read, self.keys.get(&print))?;
        }
        self.add(key, &read);
        Ok(())
    }

    /// Compares a row with the one of its revision that is there already.
    pub(super) fn compare(&self, key: RowKey, value: &Bytes) -> Result<(), Contradiction> {
        let revision = key.revision;
        let oldest = self.recent.front().map_or(i64::MAX, |(first, _)| first.main);
        if revision.main <= self.compacted || revision.main < oldest || revision.main < self.from {
            return Ok(());
        }
        let there = self.recent.binary_search_by(|(there, _)| there.cmp(&revision)).ok();
        let there = there.and_then(|index| self.recent.get(index)).map(|(_, hash)| *hash);
        let read = KeyValue::read(value);
        let told = read.as_ref().map(|read| self.contents(key, read));
        if there.is_some() && there == told {
            return Ok(());
        }
        let shown = read.map(|read| shown(&read.key)).unwrap_or_default();
        Err(Contradiction(format!("it changes key {shown} otherwise than what is there already")))
    }

    fn add(&mut self, key: RowKey, value: &KeyValue) {
        if key.revision.main >= self.from {
            if self.recent.len() >= RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back((key.revision, self.contents(key, value)));
        }
        let Some(print) = self.print(&value.key) else { return };
        if key.is_tombstone {
            self.keys.remove(&print);
            return;
        }
        let KeyValue { create_revision, version, .. } = *value;
        self.keys.insert(print, Standing { create_revision, version });
        if self.keys.len() > KEYS_MAX {
            self.shares *= 2;
            let shares = self.shares;
            self.keys.retain(|print, _| print.0 % shares == 0);
        }
    }

    /// None for a key that is not looked at.
    fn print(&self, key: &Bytes) -> Option<(u64, u64)> {
        let [one, two] = self.hashers.each_ref().map(|hasher| hasher.hash_one(key));
        (one % self.shares == 0).then_some((one, two))
    }

    /// A lease does not count: a restore elsewhere may have dropped it.
    fn contents(&self, key: RowKey, value: &KeyValue) -> u64 {
        let KeyValue { create_revision, version, .. } = *value;
        let all = (&value.key, &value.value, create_revision, version, key.is_tombstone);
        self.hashers.first().map_or(0, |hasher| hasher.hash_one(all))
    }
}

fn fits(key: RowKey, value: &KeyValue, before: Option<&Standing>) -> Result<(), Contradiction> {
    let main = key.revision.main;
    let told = Standing { create_revision: value.create_revision, version: value.version };
    let wrong = |text: String| Err(Contradiction(format!("{text} {}", shown(&value.key))));
    match (key.is_tombstone, before) {
        (true, Some(_)) => Ok(()),
        (true, None) => wrong("it deletes what is not there: key".to_owned()),
        (false, None) if told == Standing { create_revision: main, version: 1 } => Ok(()),
        (false, None) => {
            let Standing { create_revision, version } = told;
            wrong(format!(
                "it changes what is not there, to version {version} since revision \
                 {create_revision}: key"
            ))
        }
        (false, Some(before)) => {
            let Standing { create_revision, version } = *before;
            if told == (Standing { create_revision, version: version.saturating_add(1) }) {
                return Ok(());
            }
            wrong(format!(
                "it has version {} since revision {}, where version {} since revision \
                 {create_revision} must follow: key",
                told.version,
                told.create_revision,
                version.saturating_add(1)
            ))
        }
    }
}

/// A key for people.
pub(super) fn shown(key: &Bytes) -> String {
    let start = key.get(..SHOWN_BYTES).unwrap_or(key);
    format!("{:?}", String::from_utf8_lossy(start))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn row(main: i64, key: &'static str, create_revision: i64, version: i64) -> (RowKey, Bytes) {
        let value = KeyValue {
            key: Bytes::from_static(key.as_bytes()),
            create_revision,
            mod_revision: main,
            version,
            ..KeyValue::default()
        };
        let key = RowKey { revision: Revision { main, sub: 0 }, is_tombstone: version == 0 };
        (key, value.encode_to_vec().into())
    }

    fn after(rows: &[(RowKey, Bytes)]) -> Lineage {
        let mut lineage = Lineage::empty(2, 0);
        for (key, value) in rows {
            lineage.follow(*key, value).unwrap();
        }
        lineage
    }

    #[test]
    fn only_what_continues_a_key_follows_it() {
        let there = [row(2, "a", 2, 1), row(3, "a", 2, 2), row(4, "b", 4, 1), row(5, "b", 0, 0)];
        for (next, is_fine) in [
            (row(6, "a", 2, 3), true),
            (row(6, "a", 2, 2), false),
            (row(6, "a", 2, 4), false),
            (row(6, "a", 6, 1), false),
            (row(6, "a", 3, 3), false),
            (row(6, "a", 0, 0), true),
            (row(6, "b", 6, 1), true),
            (row(6, "b", 4, 2), false),
            (row(6, "b", 0, 0), false),
            (row(6, "c", 6, 1), true),
            (row(6, "c", 6, 2), false),
            (row(6, "c", 5, 1), false),
        ] {
            let found = after(&there).follow(next.0, &next.1);
            assert_eq!(found.is_ok(), is_fine, "{next:?} {found:?}");
        }
    }

    #[test]
    fn what_is_told_twice_must_be_the_same() {
        let there = [row(2, "a", 2, 1), row(3, "a", 2, 2)];
        let lineage = after(&there);
        for (key, value) in &there {
            assert_eq!(lineage.compare(*key, value), Ok(()));
        }
        for (key, value) in [row(3, "b", 3, 1), row(3, "a", 2, 3), row(3, "a", 0, 0)] {
            assert!(lineage.compare(key, &value).is_err());
        }
        let (key, value) = row(1, "z", 1, 1);
        assert_eq!(lineage.compare(key, &value), Ok(()), "nothing is known of what was before");
        let dropped = Lineage { compacted: 3, ..after(&there) };
        let (key, value) = row(3, "b", 3, 1);
        assert_eq!(dropped.compare(key, &value), Ok(()), "rows may have been dropped");
    }
}
