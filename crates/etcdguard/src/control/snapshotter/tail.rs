//! The last changes that the store has. By them an etcd is known to be the one that they came from:
//! revisions alone tell nothing, every etcd counts them from the beginning.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::bolt::{Bolt, BoltError};
use crate::datadir::{self, KEY_BUCKET, KeyValue, Revision, RowKey};
use crate::etcd::wire::{self, RangeRequest};
use crate::etcd::{Etcd, EtcdError, Rejection};
use crate::store::delta::{DeltaError, Event, Events, Op};
use crate::store::{SnapStore, Snapshot};

/// Keys that are compared.
const KEYS_MAX: usize = 16;
/// Revisions at the end of a database that are looked through for them.
const REVISIONS: i64 = 64;

/// The last change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Last {
    key: Bytes,
    mod_revision: i64,
    /// Nothing where it was deleted.
    put: Option<Put>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Put {
    create_revision: i64,
    version: i64,
    value: Bytes,
}

/// The last changes of the last keys that were changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::control) struct Tail {
    keys: VecDeque<Last>,
    /// All of it is as of this revision.
    pub(super) revision: i64,
}

/// What a comparison came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Continuity {
    Same,
    /// The etcd has forgotten what it would be compared by, or there is nothing to compare.
    Unknown,
    Other(String),
}

impl Tail {
    pub(super) fn push(&mut self, event: &Event) {
        let put = match event.op {
            Op::Delete => None,
            Op::Put => Some(Put {
                create_revision: event.create_revision,
                version: event.version,
                value: event.value.clone(),
            }),
        };
        self.add(Last { key: event.key.clone(), mod_revision: event.mod_revision, put });
    }

    /// Of many only the last can count.
    pub(super) fn extend(&mut self, events: &[Event]) {
        let skipped = events.len().saturating_sub(KEYS_MAX);
        events.iter().skip(skipped).for_each(|event| self.push(event));
    }

    fn add(&mut self, last: Last) {
        self.revision = self.revision.max(last.mod_revision);
        self.keys.retain(|there| there.key != last.key);
        if self.keys.len() >= KEYS_MAX {
            self.keys.pop_front();
        }
        self.keys.push_back(last);
    }

    /// Of a delta in the store.
    pub(super) async fn of_delta(store: &SnapStore, delta: &Snapshot) -> Result<Self, DeltaError> {
        let plain = store.open_plain(delta).await.map_err(std::io::Error::other)?;
        let (mut tail, mut events) = (Self::default(), Events::of(plain));
        while let Some(event) = events.next().await? {
            tail.push(&event);
        }
        Ok(tail)
    }

    /// Of a database.
    pub(super) fn of_database(bolt: &Bolt) -> Result<Self, BoltError> {
        let current = datadir::current(bolt)?;
        let revision = current.map_or(0, |current| current.revision);
        let mut tail = Self { revision, ..Self::default() };
        let Some(keys) = bolt.bucket(KEY_BUCKET)? else { return Ok(tail) };
        let from = Revision { main: revision.saturating_sub(REVISIONS).max(0), sub: 0 };
        for row in keys.rows_from(&from.encode())? {
            let row = row?;
            let (Some(key), Some(value)) = (RowKey::decode(&row.key), KeyValue::read(&row.value))
            else {
                continue;
            };
            let KeyValue { create_revision, version, value: held, key: name, .. } = value;
            let put = Put { create_revision, version, value: held };
            let put = Some(put).filter(|_| !key.is_tombstone);
            tail.add(Last { key: name, mod_revision: key.revision.main, put });
        }
        Ok(tail)
    }

    /// Whether an etcd that has come as far as the tail has it in its past.
    pub(super) async fn compare(
        &self,
        etcd: &Etcd,
        timeout: Duration,
    ) -> Result<Continuity, EtcdError> {
        let mut found = Continuity::Unknown;
        for last in self.keys.iter().rev() {
            match judge(last, self.revision, &Asked { etcd, timeout }).await? {
                Continuity::Unknown => {}
                Continuity::Same => found = Continuity::Same,
                other @ Continuity::Other(_) => return Ok(other),
            }
        }
        Ok(found)
    }
}

/// One look at the past of an etcd.
struct Asked<'e> {
    etcd: &'e Etcd,
    timeout: Duration,
}

/// What a key was at a revision.
enum Then {
    Absent,
    Was(wire::KeyValue),
    Forgotten,
}

impl Asked<'_> {
    async fn at(&self, key: &Bytes, revision: i64) -> Result<Then, EtcdError> {
        let request = RangeRequest { key: key.clone(), revision, ..RangeRequest::default() };
        match self.etcd.range(request, self.timeout).await {
            Ok(answer) => Ok(answer.kvs.into_iter().next().map_or(Then::Absent, Then::Was)),
            Err(EtcdError::Refused { reason: Rejection::Compacted, .. }) => Ok(Then::Forgotten),
            Err(error) => Err(error),
        }
    }
}

async fn judge(last: &Last, revision: i64, etcd: &Asked<'_>) -> Result<Continuity, EtcdError> {
    let then = etcd.at(&last.key, revision).await?;
    Ok(match (&last.put, then) {
        (Some(put), Then::Was(kv)) => same(last, put, &kv),
        (Some(_), Then::Absent) => other(last, "and is not there in this etcd"),
        (None, Then::Was(_)) => other(last, "and is there in this etcd"),
        // It must have been there before.
        (None, Then::Absent) => match etcd.at(&last.key, last.mod_revision - 1).await? {
            Then::Was(_) => Continuity::Same,
            Then::Absent => other(last, "and never was there in this etcd"),
            Then::Forgotten => Continuity::Unknown,
        },
        (Some(put), Then::Forgotten) => match etcd.at(&last.key, 0).await? {
            Then::Was(kv) if kv.mod_revision <= last.mod_revision => same(last, put, &kv),
            Then::Was(_) | Then::Absent | Then::Forgotten => Continuity::Unknown,
        },
        (None, Then::Forgotten) => Continuity::Unknown,
    })
}

fn same(last: &Last, put: &Put, kv: &wire::KeyValue) -> Continuity {
    let Put { create_revision, version, value } = put;
    let is_same = kv.mod_revision == last.mod_revision
        && kv.create_revision == *create_revision
        && kv.version == *version
        && kv.value == *value;
    if is_same { Continuity::Same } else { other(last, "and not so in this etcd") }
}

fn other(last: &Last, how: &str) -> Continuity {
    let key = String::from_utf8_lossy(&last.key);
    let change = if last.put.is_some() { "changed" } else { "deleted" };
    let at = last.mod_revision;
    Continuity::Other(format!("key {key:?} was {change} at revision {at} {how}"))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn event(key: &'static str, mod_revision: i64) -> Event {
        Event {
            op: Op::Put,
            key: Bytes::from_static(key.as_bytes()),
            create_revision: mod_revision,
            mod_revision,
            version: 1,
            value: Bytes::new(),
            lease: 0,
            time: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn only_the_last_change_of_the_last_keys_is_kept() {
        let mut tail = Tail::default();
        let names: [&str; 20] = std::array::from_fn(|it| &"abcdefghijklmnopqrst"[it..=it]);
        let mut events: Vec<Event> =
            names.iter().zip(2..).map(|(key, at)| event(key, at)).collect();
        events.push(event("t", 22));
        tail.extend(&events);
        let kept: Vec<i64> = tail.keys.iter().map(|last| last.mod_revision).collect();
        assert_eq!(kept.first().zip(kept.last()), Some((&7, &22)));
        assert_eq!((kept.len(), tail.revision), (KEYS_MAX - 1, 22));
    }
}
