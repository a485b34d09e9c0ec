//! The port, its plain values, and what can be said with its methods alone.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use crate::error::Error;
use crate::key::{Key, Prefix};
use crate::stream::{Body, Parts};

/// Objects of one page of a listing. One less than the services give in an answer, so that a page
/// and the look whether there is more cost one request.
pub const LIST_PAGE_MAX: usize = 999;

/// Which write made what an object holds; to be given back, not to be read or kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub(crate) e_tag: Option<String>,
    pub(crate) number: Option<String>,
}

impl Version {
    /// Of a store outside this crate.
    #[cfg(any(test, feature = "conformance"))]
    pub fn tagged(e_tag: impl Into<String>) -> Self {
        Self { e_tag: Some(e_tag.into()), number: None }
    }

    /// The tag that [`Version::tagged`] was given.
    #[cfg(any(test, feature = "conformance"))]
    pub fn tag(&self) -> &str {
        self.e_tag.as_deref().unwrap_or_default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    pub key: Key,
    pub len_bytes: u64,
    pub version: Version,
    /// By the clock of the store.
    pub modified: Timestamp,
}

/// A part of an object, and what is known of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub meta: Meta,
    pub bytes: Bytes,
}

/// What lies directly under a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Level {
    /// The folders that hold at least one object, at any depth.
    pub folders: Vec<Key>,
    pub objects: Vec<Meta>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In the order of their keys, byte by byte.
    pub objects: Vec<Meta>,
    pub is_last: bool,
}

/// What a store can promise; the caller decides what it does without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// `put_new` and `put_if_match` are atomic. Without, both answer [`Error::Unsupported`].
    pub conditional_put: bool,
    /// What was acknowledged is there after a restart.
    pub durable: bool,
    pub listing: Listing,
    pub times: Times,
}

/// Whose clock [`Meta::modified`] is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// One for all objects.
    OfStore,
    /// That of the machine which wrote the object, as far as is known.
    OfWriter,
}

/// When a listing has an object that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// As soon as the write was acknowledged, whoever lists.
    AtOnce,
    /// Some time later for others than the writer, as on file systems of a network, which remember
    /// what a folder held.
    Later,
}

/// Leave to make a call, which may end before the call is made: whoever makes it asks as late as can be.
#[derive(Clone)]
pub struct Permit {
    is_held: Arc<dyn Fn() -> bool + Send + Sync>,
    unanswered: Arc<dyn Fn() + Send + Sync>,
}

impl Permit {
    /// Holds as long as `is_held` says so. It is asked often, on any thread.
    pub fn new(is_held: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { is_held: Arc::new(is_held), unanswered: Arc::new(|| {}) }
    }

    /// And is told of calls that were sent and not answered, though they are made again: each may be done
    /// later than the one that was.
    #[must_use]
    pub fn telling(self, unanswered: impl Fn() + Send + Sync + 'static) -> Self {
        Self { unanswered: Arc::new(unanswered), ..self }
    }

    pub fn check(&self) -> Result<(), Error> {
        if (self.is_held)() { Ok(()) } else { Err(Error::PermitEnded) }
    }

    /// A call was made by this leave, and nobody knows what became of it.
    pub fn unanswered(&self) {
        (self.unanswered)();
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Permit").field(&(self.is_held)()).finish()
    }
}

/// An object store. After an [`Error::Unavailable`] a write may have happened: whoever writes
/// again and finds [`Error::Exists`] or [`Error::Changed`] may have met itself
/// ([`crate::wrap::Retrying`] looks).
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Creates an object, whole; refuses with [`Error::Exists`].
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, Error>;

    /// Replaces exactly that version, whole; refuses with [`Error::Changed`].
    async fn put_if_match(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, Error>;

    /// Writes an object, whole, whatever was there. Only for objects whose name says what they hold,
    /// or that nobody else writes, and for stores without conditions: the last of two writers wins.
    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error>;

    /// [`Store::put`] for what others build upon: when it is over, also with an error, nothing of it is on
    /// its way any more that could take the place of what comes after it. [`Error::Changed`] where another
    /// has written meanwhile.
    async fn put_settled(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.put(key, bytes).await
    }

    /// [`Store::put`] for what is too long to hold: the object appears whole, with all of `body`, or
    /// not at all. An error of `body` ends the write, and what was there stays. At most
    /// `parts.at_once + 1` parts are held; parts that fail are sent again, the body cannot be.
    async fn put_stream(&self, key: &Key, body: Body, parts: &Parts) -> Result<Version, Error>;

    /// What the object holds in `range`: less where it ends before, nothing past its end.
    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, Error>;

    /// All of an object, in one answer that is read as it comes. It may break off, and says so as
    /// an error: see [`crate::read_stream`].
    async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), Error>;

    async fn head(&self, key: &Key) -> Result<Meta, Error>;

    /// The first objects under `prefix` whose keys come after `after`, at most
    /// [`LIST_PAGE_MAX`] of them. Their versions may lack what `put_if_match` needs: take those of
    /// `head` and `get_range`.
    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error>;

    /// What lies directly under `prefix`, in the order of keys; names that are no keys are left
    /// out. It asks for one level, however much lies below, and holds all of that level: for levels
    /// of known size.
    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error>;

    /// Removes this one object; one that is not there is removed already.
    async fn delete(&self, key: &Key) -> Result<(), Error>;

    /// The same, and not after `permit` has ended.
    async fn delete_within(&self, key: &Key, permit: &Permit) -> Result<(), Error> {
        permit.check()?;
        self.delete(key).await
    }

    /// Removes these objects in as few requests as the store can, and none after `permit` has ended.
    /// All that can be removed is; the first error is told then. For objects that nobody replaces by
    /// their version: in a directory, one could come back.
    async fn delete_many(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        let mut failed = None;
        for key in keys {
            permit.check()?;
            if let Err(error) = self.delete(key).await {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Many puts under `prefix` that become durable together; none where each costs the same however many
    /// there are.
    async fn batch(&self, _prefix: &Prefix) -> Result<Option<Arc<dyn Batch>>, Error> {
        Ok(None)
    }

    /// What anybody has seen under these prefixes until now, there or gone, stays so, whatever stops. What
    /// an acknowledged call did does by itself; one who was killed in the middle of a call may have left
    /// what can be seen and is not durable.
    async fn settle(&self, _prefixes: &[Prefix]) -> Result<(), Error> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities;
}

/// Objects that are written one by one, and are there, durable, after [`Batch::commit`]: until then
/// nobody sees them, and after a crash they are there whole or not at all. For objects whose names say
/// what they hold. What is not committed goes with the batch.
#[async_trait]
pub trait Batch: fmt::Debug + Send + Sync {
    /// One that is not there, else [`Error::Exists`]. Where somebody else makes it before the commit,
    /// theirs stays if it has the same length.
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Waiting, Error>;

    /// Takes the place of whatever is there.
    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Waiting, Error>;

    /// All that was put before the call, and all that others have put under the prefix. Says which of ours
    /// somebody else has made, and how long they are. After an error nothing of the batch may be relied on,
    /// and every further commit fails: what is lost is told once, to whoever asks first.
    async fn commit(&self) -> Result<Vec<(Key, u64)>, Error>;
}

/// What waits for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    pub objects: usize,
    pub bytes: u64,
}

/// The whole object, which may be at most `max_bytes` long.
pub async fn get_limited(store: &dyn Store, key: &Key, max_bytes: u64) -> Result<Blob, Error> {
    let blob = store.get_range(key, 0..max_bytes).await?;
    let len_bytes = blob.meta.len_bytes;
    if len_bytes > max_bytes {
        return Err(Error::TooLong { key: key.clone(), len_bytes, max_bytes });
    }
    Ok(blob)
}

/// All objects under `prefix`, page by page. For prefixes of known size: it holds them all.
pub async fn list_all(store: &dyn Store, prefix: &Prefix) -> Result<Vec<Meta>, Error> {
    let mut objects: Vec<Meta> = Vec::new();
    loop {
        let page = store.list(prefix, objects.last().map(|meta| &meta.key)).await?;
        // A page without objects cannot be asked on from.
        let ended = page.is_last || page.objects.is_empty();
        objects.extend(page.objects);
        if ended {
            return Ok(objects);
        }
    }
}

/// Removes every object under `prefix` that a listing shows, and no other: a key that the prefix
/// does not hold is left, whatever the store lists. Says how many.
pub async fn delete_all(store: &dyn Store, prefix: &Prefix) -> Result<u64, Error> {
    let mut removed = 0;
    let mut after: Option<Key> = None;
    loop {
        let page = store.list(prefix, after.as_ref()).await?;
        for meta in page.objects.iter().filter(|meta| prefix.holds(&meta.key)) {
            store.delete(&meta.key).await?;
            removed += 1;
        }
        match page.objects.into_iter().next_back() {
            Some(last) if !page.is_last => after = Some(last.key),
            _ => return Ok(removed),
        }
    }
}
