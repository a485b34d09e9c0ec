//! A store whose time is simulated, as unkind as stores are, that notices when a complete record lacks
//! a block.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backupstore::format::Checksum;
use blobs::{Blob, Error, Key, Level, Listing, Meta, Prefix, Version};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// When simulated time begins.
const BEGIN_SECOND: i64 = 1_800_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conditions {
    Kept,
    /// Each machine compares for itself, and then gives the name, as in a directory of a server: between the
    /// two it may sleep. A call that it has begun goes on, however long the server is away.
    ByTheClient,
    /// Whoever wants to replace what is not there makes it.
    KeptOfWhatIsThere,
    /// It takes them, and writes whatever is there.
    Ignored,
    Unsupported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tags {
    /// Equal bytes have equal tags, as in S3.
    OfContents,
    OfWrites,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamps {
    ByTheStore,
    ByTheWriter,
}

/// What a store is like, and what it says it is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) conditions: Conditions,
    pub(super) tags: Tags,
    pub(super) stamps: Stamps,
    /// How old what a listing shows may be.
    pub(super) lag: Duration,
    pub(super) page_max: usize,
}

impl Kind {
    /// As S3 is.
    pub(super) const STRONG: Self = Self {
        conditions: Conditions::Kept,
        tags: Tags::OfContents,
        stamps: Stamps::ByTheStore,
        lag: Duration::ZERO,
        page_max: 2,
    };

    /// The same, and all blocks are removed together.
    pub(super) const WIDE: Self = Self { page_max: 999, ..Self::STRONG };

    /// As a directory of a network file system is.
    pub(super) const SHARED: Self = Self {
        conditions: Conditions::ByTheClient,
        tags: Tags::OfWrites,
        stamps: Stamps::ByTheStore,
        lag: Duration::from_secs(1),
        page_max: 999,
    };

    pub(super) fn listing(self) -> Listing {
        if self.lag.is_zero() { Listing::AtOnce } else { Listing::Later }
    }
}

#[derive(Debug, Clone)]
struct Object {
    bytes: Bytes,
    tag: String,
    modified: Timestamp,
}

/// What an object was, from when on.
type History = Vec<(Instant, Option<Object>)>;

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Key, History>,
    /// Complete records, and the keys of the blocks they name.
    complete: BTreeMap<Key, BTreeSet<Key>>,
    writes: u64,
    log: Vec<String>,
    violation: Option<String>,
    jumped: SignedDuration,
    /// Processes that have ended, and how many there ever were.
    dead: BTreeSet<i32>,
    processes: i32,
    /// How many complete records there ever were.
    published: u64,
    blocks_removed: u64,
    /// Files that are written, and what they are to become.
    staged: BTreeMap<u64, Key>,
    /// What has lost its name, and may get it back.
    aside: BTreeMap<Key, Object>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) kind: Kind,
    began: Instant,
    state: Mutex<State>,
}

impl World {
    pub(super) fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self { kind, began: Instant::now(), state: Mutex::default() })
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn log(&self, line: impl fmt::Display) {
        let at = self.elapsed().as_secs_f64();
        self.state.lock().unwrap().log.push(format!("{at:9.3} {line}"));
    }

    /// The id of a new process: no two machines share one here, so that each stands for its own.
    pub(super) fn new_process(&self) -> i32 {
        let mut state = self.state.lock().unwrap();
        state.processes += 1;
        state.processes
    }

    pub(super) fn process_ended(&self, process: i32) {
        self.state.lock().unwrap().dead.insert(process);
    }

    pub(super) fn is_process_gone(&self, process: i32) -> bool {
        self.state.lock().unwrap().dead.contains(&process)
    }

    /// The store's clock steps.
    pub(super) fn jump(&self, by: SignedDuration) {
        self.log(format_args!("the store's clock jumps by {by}"));
        self.state.lock().unwrap().jumped += by;
    }

    /// What went wrong, with all that happened before.
    pub(super) fn violation(&self) -> Option<String> {
        let state = self.state.lock().unwrap();
        let what = state.violation.as_ref()?;
        Some(format!("{what}\n{}", state.log.join("\n")))
    }

    /// Complete records that were ever published, and blocks that were removed.
    pub(super) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap();
        (state.published, state.blocks_removed)
    }

    /// Whether there is such a backup, and its record says that it is complete.
    pub(super) fn is_complete(&self, backup: &str) -> bool {
        self.state.lock().unwrap().complete.contains_key(&record_key(backup))
    }

    fn time(&self, jumped: SignedDuration, skew: SignedDuration) -> Timestamp {
        let own = match self.kind.stamps {
            Stamps::ByTheStore => jumped,
            Stamps::ByTheWriter => skew,
        };
        let since = SignedDuration::try_from(self.elapsed()).unwrap();
        Timestamp::from_second(BEGIN_SECOND).unwrap() + since + own
    }

    pub(super) fn put(
        &self,
        key: &Key,
        bytes: &Bytes,
        condition: &Condition,
        skew: SignedDuration,
    ) -> Result<Version, Error> {
        let mut state = self.state.lock().unwrap();
        self.check(&state, key, condition)?;
        state.writes += 1;
        let tag = match self.kind.tags {
            Tags::OfContents => Checksum::of(bytes).to_string(),
            Tags::OfWrites => state.writes.to_string(),
        };
        let modified = self.time(state.jumped, skew);
        let object = Object { bytes: bytes.clone(), tag: tag.clone(), modified };
        state.objects.entry(key.clone()).or_default().push((Instant::now(), Some(object)));
        state.written(key, bytes);
        Ok(Version::tagged(tag))
    }

    fn check(&self, state: &State, key: &Key, condition: &Condition) -> Result<(), Error> {
        let found = state.now(key);
        let refused = match condition {
            Condition::None => return Ok(()),
            Condition::Absent => found.map(|_| Error::Exists { key: key.clone() }),
            Condition::Version(version) => (found.map(|it| it.tag.as_str()) != Some(version.tag()))
                .then(|| Error::Changed { key: key.clone() }),
        };
        let is_version = matches!(condition, Condition::Version(_));
        match (self.kind.conditions, refused) {
            (Conditions::KeptOfWhatIsThere, Some(_)) if found.is_none() && is_version => Ok(()),
            (Conditions::Unsupported, _) => {
                Err(Error::Unsupported { what: "write with a condition", source: "501".into() })
            }
            (Conditions::Ignored, _) | (_, None) => Ok(()),
            (
                Conditions::Kept | Conditions::ByTheClient | Conditions::KeptOfWhatIsThere,
                Some(error),
            ) => Err(error),
        }
    }

    /// A file is written beside the one that it is to replace.
    pub(super) fn stage(&self, key: &Key) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.writes += 1;
        let number = state.writes;
        state.staged.insert(number, key.clone());
        number
    }

    /// Takes away what others have written for this object, and compares.
    pub(super) fn compare(&self, key: &Key, condition: &Condition, own: u64) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap();
        state.staged.retain(|number, of| *number == own || of != key);
        self.check(&state, key, condition)
    }

    /// Gives a file its name, if it is still there.
    pub(super) fn name(
        &self,
        key: &Key,
        bytes: &Bytes,
        own: u64,
        skew: SignedDuration,
    ) -> Result<Version, Error> {
        if self.state.lock().unwrap().staged.remove(&own).is_none() {
            return Err(Error::NotFound { key: key.clone() });
        }
        self.put(key, bytes, &Condition::None, skew)
    }

    /// Takes an object's name away, and what others have written for it.
    pub(super) fn set_aside(&self, key: &Key) {
        let mut state = self.state.lock().unwrap();
        state.staged.retain(|_, of| of != key);
        if let Some(object) = state.now(key).cloned() {
            state.objects.entry(key.clone()).or_default().push((Instant::now(), None));
            state.aside.insert(key.clone(), object);
        }
    }

    /// What was set aside goes for good, or gets its name again.
    pub(super) fn end_aside(&self, key: &Key, is_in_time: bool) {
        let mut state = self.state.lock().unwrap();
        let Some(object) = state.aside.remove(key) else { return };
        if !is_in_time && state.now(key).is_none() {
            state.objects.entry(key.clone()).or_default().push((Instant::now(), Some(object)));
        }
        if state.now(key).is_none() {
            state.complete.remove(key);
            state.blocks_removed += u64::from(key.as_str().contains("/blocks/"));
        }
        state.check();
    }

    pub(super) fn delete(&self, key: &Key) {
        let mut state = self.state.lock().unwrap();
        if state.now(key).is_none() {
            return;
        }
        state.objects.entry(key.clone()).or_default().push((Instant::now(), None));
        state.complete.remove(key);
        if key.as_str().contains("/blocks/") {
            state.blocks_removed += 1;
            state.check();
        }
    }

    pub(super) fn get(&self, key: &Key) -> Result<Blob, Error> {
        let state = self.state.lock().unwrap();
        let found = state.now(key).ok_or_else(|| Error::NotFound { key: key.clone() })?;
        Ok(Blob { meta: meta(key, found), bytes: found.bytes.clone() })
    }

    /// What lies under a prefix, seen that long ago.
    pub(super) fn listed(&self, prefix: &Prefix, ago: Duration) -> Vec<Meta> {
        let state = self.state.lock().unwrap();
        let at = Instant::now().checked_sub(ago).unwrap_or(self.began);
        let under = state.objects.iter().filter(|(key, _)| prefix.holds(key));
        let seen = |history: &History| {
            let known = history.iter().rev().find(|(since, _)| *since <= at);
            known.and_then(|(_, object)| object.clone())
        };
        under.filter_map(|(key, history)| Some(meta(key, &seen(history)?))).collect()
    }

    pub(super) fn level(&self, prefix: &Prefix, ago: Duration) -> Level {
        let mut level = Level::default();
        let depth = prefix.folder().map_or(0, |folder| folder.parts().count());
        for found in self.listed(prefix, ago) {
            if found.key.parts().count() == depth + 1 {
                level.objects.push(found);
            } else {
                let parts: Vec<_> = found.key.parts().take(depth + 1).collect();
                level.folders.push(Key::parse(&parts.join("/")).unwrap());
            }
        }
        level.folders.dedup();
        level
    }
}

pub(super) enum Condition {
    None,
    Absent,
    Version(Version),
}

fn meta(key: &Key, object: &Object) -> Meta {
    Meta {
        key: key.clone(),
        len_bytes: object.bytes.len() as u64,
        version: Version::tagged(object.tag.clone()),
        modified: object.modified,
    }
}

impl State {
    fn now(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)?.last()?.1.as_ref()
    }

    fn written(&mut self, key: &Key, bytes: &Bytes) {
        if !key.as_str().contains("/backups/") {
            return;
        }
        self.complete.remove(key);
        let Ok(record) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
        if record["CreatedTime"].as_str().unwrap_or_default().is_empty() {
            return;
        }
        let blocks = record["Blocks"].as_array().cloned().unwrap_or_default();
        let named = blocks.iter().map(|block| block_key(block["BlockChecksum"].as_str().unwrap()));
        self.complete.insert(key.clone(), named.collect());
        self.published += 1;
        self.check();
    }

    /// What it is all about.
    fn check(&mut self) {
        for (record, blocks) in &self.complete {
            for block in blocks {
                let is_gone = self.now(block).is_none() && !self.aside.contains_key(block);
                if is_gone && self.violation.is_none() {
                    let what = format!("{record} is complete and lacks {block}");
                    self.log.push(what.clone());
                    self.violation = Some(what);
                    return;
                }
            }
        }
    }
}

pub(super) fn folder() -> String {
    let sum = Checksum::of(b"vol-1").to_string();
    format!("backupstore/volumes/{}/{}/vol-1", &sum[..2], &sum[2..4])
}

pub(super) fn block_key(sum: &str) -> Key {
    let key = format!("{}/blocks/{}/{}/{sum}.blk", folder(), &sum[..2], &sum[2..4]);
    Key::parse(&key).unwrap()
}

pub(super) fn record_key(backup: &str) -> Key {
    Key::parse(&format!("{}/backups/backup_{backup}.cfg", folder())).unwrap()
}
