//! Objects too long to hold: written part by part, read range by range.
//!
//! Owns: cutting a body into parts, sending some of them at once and failed ones again, and giving
//! an upload up so that nothing of it stays. Never: what the bytes are.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use durable::Retry;
use futures::stream::{self, FuturesUnordered};
use futures::{Stream, StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;

use crate::error::Error;
use crate::key::Key;
use crate::remote::translate;
use crate::store::{Meta, Store, Version};

/// The contents of an object, in pieces of any length.
pub type Body = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// How a long object is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// Of the first parts; later ones grow, so that no object has too many.
    pub part_bytes: usize,
    /// Parts on their way at the same time.
    pub at_once: usize,
    /// Tries of one part, the first included.
    pub tries_max: u32,
    /// After the first try; it doubles with each.
    pub first_pause: Duration,
}

impl Default for Parts {
    fn default() -> Self {
        Self { part_bytes: 8 << 20, at_once: 4, tries_max: 6, first_pause: Duration::from_secs(1) }
    }
}

/// Services take 10,000 parts; doubling the size every so many keeps an object of 5 TB below that.
const PARTS_OF_ONE_SIZE: usize = 1000;
const DOUBLINGS_MAX: u32 = 6;

impl Parts {
    pub(crate) fn size_of(&self, index: usize) -> usize {
        let doublings = u32::try_from(index / PARTS_OF_ONE_SIZE).unwrap_or(u32::MAX);
        self.part_bytes.max(1).saturating_mul(1 << doublings.min(DOUBLINGS_MAX))
    }
}

/// What a body begins with.
pub(crate) enum First {
    Whole(Bytes),
    More(Bytes, Cutter),
}

pub(crate) async fn first_part(key: &Key, body: Body, parts: &Parts) -> Result<First, Error> {
    let mut cutter = Cutter { body, rest: Bytes::new(), part: BytesMut::new(), ended: false };
    let bytes = cutter.next(key, parts.size_of(0)).await?;
    if cutter.is_at_end(key).await? {
        return Ok(First::Whole(bytes));
    }
    Ok(First::More(bytes, cutter))
}

/// Cuts a body into parts of given sizes.
pub(crate) struct Cutter {
    body: Body,
    rest: Bytes,
    /// Of the part that is being gathered.
    part: BytesMut,
    ended: bool,
}

impl Cutter {
    /// Less than `len_bytes` only at the end. Cancel-safe: what was gathered stays.
    pub(crate) async fn next(&mut self, key: &Key, len_bytes: usize) -> Result<Bytes, Error> {
        while self.part.len() < len_bytes && !self.is_at_end(key).await? {
            let missing = len_bytes - self.part.len();
            let piece = self.rest.split_to(missing.min(self.rest.len()));
            self.part.extend_from_slice(&piece);
        }
        Ok(self.part.split().freeze())
    }

    async fn is_at_end(&mut self, key: &Key) -> Result<bool, Error> {
        while self.rest.is_empty() && !self.ended {
            match self.body.next().await {
                Some(Ok(bytes)) => self.rest = bytes,
                Some(Err(source)) => return Err(Error::Body { key: key.clone(), source }),
                None => self.ended = true,
            }
        }
        Ok(self.rest.is_empty())
    }
}

/// Calls until it goes well, cannot go better, or tries have run out.
pub(crate) async fn again<T, F>(parts: &Parts, mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = parts.first_pause;
    for _ in 1..parts.tries_max {
        match call().await {
            Err(error) if error.retry() == Retry::Later => {
                tracing::debug!("sending again in {pause:?}: {error}");
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2);
            }
            done => return done,
        }
    }
    call().await
}

/// One object on its way in parts.
pub(crate) struct Upload<'u> {
    pub(crate) store: &'u dyn MultipartStore,
    pub(crate) key: &'u Key,
    pub(crate) path: Path,
    pub(crate) parts: &'u Parts,
}

impl Upload<'_> {
    pub(crate) async fn run(&self, first: Bytes, rest: Cutter) -> Result<Version, Error> {
        let id = again(self.parts, || async {
            self.store.create_multipart(&self.path).await.map_err(|e| translate(self.key, e))
        })
        .await?;
        let done = match self.send(&id, first, rest).await {
            Ok(sent) => self.complete(&id, sent).await,
            Err(error) => Err(error),
        };
        if done.is_err()
            && let Err(error) = self.store.abort_multipart(&self.path, &id).await
        {
            tracing::warn!("parts of {} may stay in the store: {error}", self.key);
        }
        done
    }

    /// Reads the body on while parts are on their way.
    async fn send(
        &self,
        id: &String,
        first: Bytes,
        mut rest: Cutter,
    ) -> Result<Vec<PartId>, Error> {
        let at_once = self.parts.at_once.max(1);
        let mut running = FuturesUnordered::new();
        running.push(self.send_part(id, 0, first));
        let mut sent = Vec::new();
        let mut index = 1;
        let mut ended = false;
        while !ended || !running.is_empty() {
            let len_bytes = self.parts.size_of(index);
            tokio::select! {
                part = rest.next(self.key, len_bytes), if !ended && running.len() < at_once => {
                    let part = part?;
                    ended = part.is_empty();
                    if !ended {
                        running.push(self.send_part(id, index, part));
                        index += 1;
                    }
                }
                Some(done) = running.next(), if !running.is_empty() => sent.push(done?),
            }
        }
        sent.sort_unstable_by_key(|(index, _)| *index);
        Ok(sent.into_iter().map(|(_, part)| part).collect())
    }

    async fn send_part(
        &self,
        id: &String,
        index: usize,
        bytes: Bytes,
    ) -> Result<(usize, PartId), Error> {
        let part = again(self.parts, || async {
            let sent = self.store.put_part(&self.path, id, index, bytes.clone().into()).await;
            sent.map_err(|error| translate(self.key, error))
        });
        Ok((index, part.await?))
    }

    async fn complete(&self, id: &String, sent: Vec<PartId>) -> Result<Version, Error> {
        let done = again(self.parts, || async {
            let done = self.store.complete_multipart(&self.path, id, sent.clone()).await;
            done.map_err(|error| translate(self.key, error))
        });
        let done = done.await?;
        Ok(Version { e_tag: done.e_tag, number: done.version })
    }
}

/// What an object holds, in pieces of any length.
pub type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>;

/// Of one range, where an object is read by ranges.
const RANGE_BYTES: u64 = 4 << 20;

/// All of an object, in order. Where the answer breaks off, the rest is asked for by ranges; it ends
/// with [`Error::Changed`] where the object was replaced meanwhile.
pub async fn read_stream(store: Arc<dyn Store>, key: &Key) -> Result<(Meta, Pieces), Error> {
    let (meta, body) = store.get_stream(key).await?;
    let rest = Rest::Answer { body, read_bytes: 0, store, meta: meta.clone() };
    Ok((meta, Box::pin(stream::try_unfold(rest, Rest::next))))
}

/// What of an object was not read yet.
enum Rest {
    Answer { body: Body, read_bytes: u64, store: Arc<dyn Store>, meta: Meta },
    Ranges(Pieces),
}

impl Rest {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, Error> {
        loop {
            match self {
                Self::Answer { mut body, read_bytes, store, meta } => match body.next().await {
                    Some(Ok(bytes)) => {
                        let read_bytes = read_bytes.saturating_add(bytes.len() as u64);
                        return Ok(Some((bytes, Self::Answer { body, read_bytes, store, meta })));
                    }
                    None if read_bytes == meta.len_bytes => return Ok(None),
                    broken => {
                        let why = broken.map(|it| it.err().map(|error| error.to_string()));
                        tracing::debug!("{} broke off at {read_bytes}: {why:?}", meta.key);
                        self = Self::Ranges(Box::pin(ranges(store, meta, read_bytes)));
                    }
                },
                Self::Ranges(mut ranges) => {
                    let bytes = ranges.try_next().await?;
                    return Ok(bytes.map(|bytes| (bytes, Self::Ranges(ranges))));
                }
            }
        }
    }
}

/// What follows `start` of exactly this version of an object, range by range.
pub(crate) fn ranges(
    store: Arc<dyn Store>,
    meta: Meta,
    start: u64,
) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    stream::try_unfold((store, meta, start), |(store, meta, start)| async move {
        let end = start.saturating_add(RANGE_BYTES).min(meta.len_bytes);
        if start >= end {
            return Ok(None);
        }
        let blob = store.get_range(&meta.key, start..end).await?;
        if blob.meta.version != meta.version || blob.bytes.len() as u64 != end - start {
            return Err(Error::Changed { key: meta.key });
        }
        Ok(Some((blob.bytes, (store, meta, end))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::memory;

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_read_on() {
        let (store, key) = (memory(), Key::parse("a/b").unwrap());
        let bytes = Bytes::from((0..=255).cycle().take(5 << 20).collect::<Vec<u8>>());
        store.put(&key, bytes.clone()).await.unwrap();
        let meta = store.head(&key).await.unwrap();
        for end in [None, Some(Err(io::Error::other("gone")))] {
            let pieces = std::iter::once(Ok(bytes.slice(..1000))).chain(end);
            let body: Body = Box::pin(stream::iter(pieces.collect::<Vec<_>>()));
            let (store, meta) = (Arc::clone(&store), meta.clone());
            let rest = Rest::Answer { body, read_bytes: 0, store, meta };
            let read: Vec<Bytes> =
                stream::try_unfold(rest, Rest::next).try_collect().await.unwrap();
            assert!(read.concat() == bytes);
        }
        store.put(&key, "other".into()).await.unwrap();
        let body: Body = Box::pin(stream::empty());
        let rest = Rest::Answer { body, read_bytes: 0, store, meta };
        let read = stream::try_unfold(rest, Rest::next).try_collect::<Vec<_>>().await;
        assert!(matches!(read, Err(Error::Changed { .. })), "{read:?}");
    }

    #[test]
    fn parts_grow_so_that_no_object_has_too_many() {
        let parts = Parts { part_bytes: 5 << 20, ..Parts::default() };
        let total: u64 = (0..10_000).map(|index| parts.size_of(index) as u64).sum();
        assert!(total > 1 << 40, "{total}");
        assert_eq!(parts.size_of(999), 5 << 20);
    }
}
