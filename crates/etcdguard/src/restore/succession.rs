//! Whether a database goes on from another one, as the same etcd would.
//!
//! Revisions alone tell nothing: every etcd counts them from the beginning. What an older database has
//! of each key must be what the newer one had then, as far as the newer one still tells.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;

use crate::bolt::Bolt;
use crate::datadir::{self, Current, Damage, KEY_BUCKET, KeyValue, RowKey};

use super::RestoreError;
use super::lineage::shown;

/// Keys that are held of each: about 100 MiB. Of more only a share is looked at, which tells two etcds
/// apart as well.
const KEYS_MAX: usize = 1_000_000;

/// What a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    value: u64,
}

/// Keys by two keyed hashes: nobody can make two keys meet in 128 bits.
type Keys = HashMap<(u64, u64), State>;

struct Hashing {
    hashers: [RandomState; 2],
    /// One in so many keys is looked at.
    shares: u64,
}

impl Hashing {
    fn print(&self, key: &Bytes) -> Option<(u64, u64)> {
        let [one, two] = self.hashers.each_ref().map(|hasher| hasher.hash_one(key));
        (one % self.shares == 0).then_some((one, two))
    }

    /// A lease does not count: a restore elsewhere may have dropped it.
    fn state(&self, key: RowKey, value: &KeyValue) -> State {
        let [hasher, _] = &self.hashers;
        State {
            create_revision: value.create_revision,
            mod_revision: key.revision.main,
            version: value.version,
            value: hasher.hash_one(&value.value),
        }
    }

    fn keep(&mut self, keys: &mut Keys, (key, value): (RowKey, &KeyValue)) {
        let Some(print) = self.print(&value.key) else { return };
        if key.is_tombstone {
            keys.remove(&print);
            return;
        }
        keys.insert(print, self.state(key, value));
        if keys.len() > KEYS_MAX {
            self.shares *= 2;
            let shares = self.shares;
            keys.retain(|print, _| print.0 % shares == 0);
        }
    }
}

/// Why `newer` does not go on from `older`, which is not as far; none where nothing says so.
pub(super) fn contradiction(older: &Bolt, newer: &Bolt) -> Result<Option<String>, RestoreError> {
    let (Some(end), Some(now)) = (standing(older)?, standing(newer)?) else { return Ok(None) };
    let mut hashing = Hashing { hashers: [RandomState::new(), RandomState::new()], shares: 1 };
    let mut left = Keys::new();
    for row in rows(older)? {
        let (key, value) = row?;
        hashing.keep(&mut left, (key, &value));
    }
    // Both as they were at the end of the older one.
    let mut then = Keys::new();
    for row in rows(newer)? {
        let (key, value) = row?;
        if key.revision.main <= end.revision {
            hashing.keep(&mut then, (key, &value));
        } else if let Some(what) = has_left(&hashing, &left, (key, &value), end.revision) {
            return Ok(Some(what));
        }
    }
    let shares = hashing.shares;
    left.retain(|print, _| print.0 % shares == 0);
    let is_same = then.iter().all(|(print, state)| left.get(print) == Some(state));
    // What has been compacted since then may have been deleted before.
    let is_whole = now.oldest() > end.revision || then.len() == left.len();
    let at = end.revision;
    Ok((!is_same || !is_whole).then(|| format!("at revision {at} it had other keys or values")))
}

/// A key that exists since then was there then, and has been changed since.
fn has_left(
    hashing: &Hashing,
    left: &Keys,
    (key, value): (RowKey, &KeyValue),
    end: i64,
) -> Option<String> {
    if key.is_tombstone || value.create_revision > end {
        return None;
    }
    let before = left.get(&hashing.print(&value.key)?);
    let follows = |before: &State| {
        before.create_revision == value.create_revision && before.version < value.version
    };
    let (create, name) = (value.create_revision, shown(&value.key));
    (!before.is_some_and(follows)).then(|| format!("it has key {name} since revision {create}"))
}

fn standing(bolt: &Bolt) -> Result<Option<Current>, RestoreError> {
    datadir::current(bolt).map_err(RestoreError::bolt)
}

fn rows(
    bolt: &Bolt,
) -> Result<impl Iterator<Item = Result<(RowKey, KeyValue), RestoreError>>, RestoreError> {
    let keys = bolt.bucket(KEY_BUCKET).map_err(RestoreError::bolt)?;
    let rows = keys.map(|keys| keys.rows()).transpose().map_err(RestoreError::bolt)?;
    Ok(rows.into_iter().flatten().map(|row| {
        let row = row.map_err(RestoreError::bolt)?;
        let read = RowKey::decode(&row.key).zip(KeyValue::read(&row.value));
        Ok(read.ok_or_else(|| Damage::Rows("a row of keys is none".to_owned()))?)
    }))
}
