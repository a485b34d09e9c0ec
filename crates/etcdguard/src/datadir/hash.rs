//! The hash by which etcd members compare their keys, and which rows are the latest of their key.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::bolt::{Bolt, BoltError, Bucket};

use super::current::{KEY_BUCKET, current};
use super::row::{KeyValue, RowKey};

/// Keys held in memory in one pass: about 100 MiB.
const KEYS_AT_ONCE: u64 = 2_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKv {
    pub hash: u32,
    /// The revision it is of.
    pub revision: i64,
    /// -1 when no history was ever dropped.
    pub compact_revision: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum HashError {
    #[error("revision {asked} is not there any more: history up to {compacted} was dropped")]
    Compacted { asked: i64, compacted: i64 },
    #[error("revision {asked} is not there yet: the newest is {newest}")]
    Future { asked: i64, newest: i64 },
    #[error("the database has no rows that could be read")]
    Rows,
    #[error("a row of the database cannot be read: {0}")]
    Row(String),
    #[error(transparent)]
    Bolt(#[from] BoltError),
}

/// What `HashKV` of an etcd 3.5 with this database gives, at `revision` or the newest.
pub fn hash_kv(bolt: &Bolt, revision: Option<i64>) -> Result<HashKv, HashError> {
    let standing = current(bolt)?.ok_or(HashError::Rows)?;
    let compacted = standing.compacted.unwrap_or(-1);
    let revision = revision.unwrap_or(standing.revision);
    if revision <= compacted && standing.compacted.is_some() && revision != standing.revision {
        return Err(HashError::Compacted { asked: revision, compacted });
    }
    if revision > standing.revision {
        return Err(HashError::Future { asked: revision, newest: standing.revision });
    }
    let keys = bolt.bucket(KEY_BUCKET)?.ok_or(HashError::Rows)?;
    // Below the compaction only the latest row of each key counts, as if all else were gone.
    let latest = match standing.compacted {
        Some(_) => Some(latest_rows(&keys, revision)?).filter(|latest| latest.count > 0),
        None => None,
    };
    let mut hash = crc32c::crc32c(KEY_BUCKET);
    for (number, row) in keys.rows()?.enumerate() {
        let row = row?;
        let key = row_key(&row.key)?;
        if key.revision.main > revision {
            break;
        }
        let is_old = key.revision.main <= compacted;
        if is_old && latest.as_ref().is_some_and(|latest| !latest.contains(number)) {
            continue;
        }
        hash = crc32c::crc32c_append(hash, &row.key);
        hash = crc32c::crc32c_append(hash, &row.value);
    }
    Ok(HashKv { hash, revision, compact_revision: compacted })
}

pub(super) fn row_key(key: &[u8]) -> Result<RowKey, HashError> {
    RowKey::decode(key).ok_or_else(|| HashError::Row(format!("key {key:02x?}")))
}

/// A set of rows, by their number from the start of the bucket.
#[derive(Debug)]
pub struct Latest {
    bits: Vec<u64>,
    /// How many rows it holds.
    pub count: u64,
}

impl Latest {
    pub fn contains(&self, number: usize) -> bool {
        self.bits.get(number / 64).is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    fn set(&mut self, number: usize) {
        let (word, bit) = (number / 64, 1 << (number % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits.get_mut(word).into_iter().for_each(|it| *it |= bit);
        self.count += 1;
    }

    fn clear(&mut self, number: usize) {
        let bit: u64 = 1 << (number % 64);
        self.bits.get_mut(number / 64).into_iter().for_each(|it| *it &= !bit);
        self.count -= 1;
    }
}

/// The latest row of each key that exists at `revision`.
///
/// One bit a row, and a pass over the rows for every two million keys: memory stays small however
/// many there are.
pub fn latest_rows(keys: &Bucket<'_>, revision: i64) -> Result<Latest, HashError> {
    let mut latest = Latest { bits: Vec::new(), count: 0 };
    let mut passes: u64 = 1;
    let hashers = [RandomState::new(), RandomState::new()];
    let mut pass = 0;
    while pass < passes {
        let rows = latest_of(keys, revision, (pass, passes), &hashers, &mut latest)?;
        if pass == 0 && rows > KEYS_AT_ONCE && passes == 1 {
            // There may be as many keys as rows: begin again, with a share of them at a time.
            passes = rows.div_ceil(KEYS_AT_ONCE);
            latest = Latest { bits: Vec::new(), count: 0 };
            continue;
        }
        pass += 1;
    }
    Ok(latest)
}

/// Looks at the keys of one share. Gives the number of rows; gives up on a first share too large.
fn latest_of(
    keys: &Bucket<'_>,
    revision: i64,
    (pass, passes): (u64, u64),
    hashers: &[RandomState; 2],
    latest: &mut Latest,
) -> Result<u64, HashError> {
    // Two keyed hashes stand for a key: nobody can make two keys meet in 128 bits.
    let mut seen: HashMap<(u64, u64), usize> = HashMap::new();
    let mut count = 0;
    for (number, row) in keys.rows()?.enumerate() {
        let row = row?;
        let at = row_key(&row.key)?;
        if at.revision.main > revision {
            break;
        }
        count += 1;
        if passes == 1 && count > KEYS_AT_ONCE {
            continue;
        }
        let key = KeyValue::key_of(&row.value)
            .ok_or_else(|| HashError::Row(format!("revision {}", at.revision.main)))?;
        let [one, two] = [0, 1].map(|it| hashers.get(it).map_or(0, |it| it.hash_one(&key)));
        if one % passes != pass {
            continue;
        }
        if at.is_tombstone {
            seen.remove(&(one, two)).into_iter().for_each(|number| latest.clear(number));
            continue;
        }
        seen.insert((one, two), number).into_iter().for_each(|number| latest.clear(number));
        latest.set(number);
    }
    Ok(count)
}
