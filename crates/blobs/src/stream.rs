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
use crate::store::{Store, Version};

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
    fn size_of(&self, index: usize) -> usize {
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
    async fn next(&mut self, key: &Key, len_bytes: usize) -> Result<Bytes, Error> {
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

/// All of an object, in order, by ranges of `range_bytes`, of which `at_once` are asked for at the
/// same time. It ends with [`Error::Changed`] where the object is replaced meanwhile.
pub fn read_stream(
    store: Arc<dyn Store>,
    key: Key,
    range_bytes: u64,
    at_once: usize,
) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    let range_bytes = range_bytes.max(1);
    stream::once(async move {
        let first = store.get_range(&key, 0..range_bytes).await?;
        let len_bytes = first.meta.len_bytes;
        let begins = (1..len_bytes.div_ceil(range_bytes)).map(move |n| n * range_bytes);
        let version = first.meta.version;
        let rest = stream::iter(begins).map(move |begin| {
            let (store, key, version) = (Arc::clone(&store), key.clone(), version.clone());
            async move {
                let end = begin.saturating_add(range_bytes).min(len_bytes);
                let blob = store.get_range(&key, begin..end).await?;
                if blob.meta.version != version || blob.bytes.len() as u64 != end - begin {
                    return Err(Error::Changed { key });
                }
                Ok(blob.bytes)
            }
        });
        Ok::<_, Error>(stream::iter([Ok(first.bytes)]).chain(rest.buffered(at_once.max(1))))
    })
    .try_flatten()
}
