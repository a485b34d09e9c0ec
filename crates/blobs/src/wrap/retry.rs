//! Trying again: a bounded number of times, at random moments of a growing pause, and only what
//! may go better later.
//!
//! A put whose answer was lost may have been done; the next try then meets its own write. So a
//! rejection after a lost answer is checked: if the object holds what we put, it was us.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use durable::Retry;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::error::{Cause, Error};
use crate::holds::{Held, Holds};
use crate::key::{Key, Prefix};
use crate::store::{Batch, Blob, Capabilities, Level, Meta, Page, Permit, Store, Version};
use crate::stream::{Body, Parts};

#[derive(Debug, Clone)]
pub struct Policy {
    /// Tries of one call, the first included.
    pub tries_max: u32,
    /// The longest pause after the first try; it doubles with each.
    pub first_pause: Duration,
    pub pause_max: Duration,
    /// After this no other try begins, but for a second one.
    pub total_max: Duration,
    /// A call that was sent and not answered is done within this, or never.
    pub done_within: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            tries_max: 6,
            first_pause: Duration::from_millis(200),
            pause_max: Duration::from_secs(10),
            total_max: Duration::from_mins(1),
            done_within: Duration::from_secs(20),
        }
    }
}

impl Policy {
    /// The longest pause after the `tries`-th try.
    pub(super) fn longest_pause(&self, tries: u32) -> Duration {
        let factor = 2_u32.saturating_pow(tries.saturating_sub(1));
        self.first_pause.saturating_mul(factor).min(self.pause_max)
    }
}

#[derive(Debug)]
pub struct Retrying {
    inner: Arc<dyn Store>,
    policy: Policy,
}

/// The tries of one call.
struct Tries<'p> {
    policy: &'p Policy,
    begun: Instant,
    made: u32,
}

/// What was tried before it was given up.
#[derive(Debug, thiserror::Error)]
#[error("given up after {made} tries in {:.1} s", time.as_secs_f64())]
struct GivenUp {
    made: u32,
    time: Duration,
    source: Cause,
}

impl Tries<'_> {
    /// Waits for the next try, or gives the error back: it cannot go better, or tries have run out.
    async fn pause(&mut self, error: Error) -> Result<(), Error> {
        self.made += 1;
        if error.retry() == Retry::Never {
            return Err(error);
        }
        let time = self.begun.elapsed();
        // One that took long was a long transfer: it gets a second try.
        let is_late = time >= self.policy.total_max && self.made > 1;
        if is_late || self.made >= self.policy.tries_max {
            return Err(self.given_up(error, time));
        }
        let longest = self.policy.longest_pause(self.made);
        // From zero, so that callers that failed together do not come back together.
        let pause = longest.mul_f64(rand::random::<f64>());
        tracing::debug!(tries = self.made, "trying again in {pause:?}: {error}");
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// The same for a call by a permit, which is told of what may be done later than the next try.
    async fn pause_of(&mut self, error: Error, permit: &Permit) -> Result<(), Error> {
        match error.retry() {
            Retry::Later => permit.unanswered(),
            Retry::Never => {}
        }
        self.pause(error).await
    }

    fn given_up(&self, error: Error, time: Duration) -> Error {
        match error {
            Error::Unavailable { what, source } if self.made > 1 => {
                let source = Box::new(GivenUp { made: self.made, time, source });
                Error::Unavailable { what, source }
            }
            other => other,
        }
    }

    /// Whether the answer of an earlier try was lost.
    fn is_repeated(&self) -> bool {
        self.made > 0
    }
}

impl Retrying {
    pub fn around(inner: Arc<dyn Store>, policy: Policy) -> Arc<dyn Store> {
        Arc::new(Self { inner, policy })
    }

    fn tries(&self) -> Tries<'_> {
        Tries { policy: &self.policy, begun: Instant::now(), made: 0 }
    }

    /// The version of the object if it holds exactly `bytes`: an earlier try has put it there, and may have
    /// failed after that, with nothing left to do but to make it durable.
    async fn version_of(&self, key: &Key, bytes: &Bytes) -> Result<Option<Version>, Error> {
        // One more than ours, so that a longer object is not taken for it.
        let end = (bytes.len() as u64).saturating_add(1);
        match self.get_range(key, 0..end).await {
            Ok(found) if found.bytes == *bytes => {
                self.inner.settle(&[Prefix::from(key.clone())]).await?;
                Ok(Some(found.meta.version))
            }
            Ok(_) | Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Store for Retrying {
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.put_new(key, bytes.clone()).await {
                Err(Error::Exists { key }) if tries.is_repeated() => {
                    let ours = self.version_of(&key, &bytes).await?;
                    return ours.ok_or(Error::Exists { key });
                }
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    async fn put_if_match(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.put_if_match(key, bytes.clone(), version).await {
                Err(Error::Changed { key }) if tries.is_repeated() => {
                    let ours = self.version_of(&key, &bytes).await?;
                    return ours.ok_or(Error::Changed { key });
                }
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.put(key, bytes.clone()).await {
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    async fn put_settled(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        let mut tries = self.tries();
        let mut unanswered = None;
        let done = loop {
            match self.inner.put(key, bytes.clone()).await {
                Err(error) => {
                    if error.retry() == Retry::Later {
                        unanswered = Some(Instant::now());
                    }
                    if let Err(error) = tries.pause(error).await {
                        break Err(error);
                    }
                }
                done => break done,
            }
        };
        let Some(unanswered) = unanswered else { return done };
        tracing::debug!("{key} was put without an answer: waiting until that is done, or never");
        tokio::time::sleep_until(unanswered + self.policy.done_within).await;
        match (self.version_of(key, &bytes).await?, done) {
            // The version of whichever try was done last.
            (Some(version), _) => Ok(version),
            (None, Ok(_)) => Err(Error::Changed { key: key.clone() }),
            (None, Err(error)) => Err(error),
        }
    }

    /// Once: the body is gone when it fails. The store sends the parts again itself.
    async fn put_stream(&self, key: &Key, body: Body, parts: &Parts) -> Result<Version, Error> {
        self.inner.put_stream(key, body, parts).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.get_range(key, range.clone()).await {
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    /// Its beginning: what breaks off later is for the reader to go on with.
    async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.get_stream(key).await {
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    async fn head(&self, key: &Key) -> Result<Meta, Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.head(key).await {
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.list(prefix, after).await {
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.list_level(prefix).await {
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.delete(key).await {
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    async fn delete_within(&self, key: &Key, permit: &Permit) -> Result<(), Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.delete_within(key, permit).await {
                Err(error) => tries.pause_of(error, permit).await?,
                done => return done,
            }
        }
    }

    async fn delete_many(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        let mut tries = self.tries();
        loop {
            permit.check()?;
            match self.inner.delete_many(keys, permit).await {
                Err(error) => tries.pause_of(error, permit).await?,
                done => return done,
            }
        }
    }

    /// Of a directory, which needs no second try.
    async fn batch(&self, prefix: &Prefix) -> Result<Option<Arc<dyn Batch>>, Error> {
        self.inner.batch(prefix).await
    }

    /// Once: what was lost is told once.
    async fn settle(&self, prefixes: &[Prefix]) -> Result<(), Error> {
        self.inner.settle(prefixes).await
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}

/// [`Retrying`], for what is known of objects beside their bytes.
#[derive(Debug)]
pub struct RetryingHolds {
    inner: Arc<dyn Holds>,
    policy: Policy,
}

impl RetryingHolds {
    pub fn around(inner: Arc<dyn Holds>, policy: Policy) -> Arc<dyn Holds> {
        Arc::new(Self { inner, policy })
    }

    fn tries(&self) -> Tries<'_> {
        Tries { policy: &self.policy, begun: Instant::now(), made: 0 }
    }
}

#[async_trait]
impl Holds for RetryingHolds {
    async fn list(&self, prefix: &Prefix, mark: &str) -> Result<Vec<Held>, Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.list(prefix, mark).await {
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    fn reading(&self, version: &str) -> Option<Arc<dyn Store>> {
        let store = self.inner.reading(version)?;
        Some(Retrying::around(store, self.policy.clone()))
    }

    async fn delete(&self, key: &Key, version: &str) -> Result<(), Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.delete(key, version).await {
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }

    async fn sweep_uploads(&self, prefix: &Prefix, time: Timestamp) -> Result<u64, Error> {
        let mut tries = self.tries();
        loop {
            match self.inner.sweep_uploads(prefix, time).await {
                Err(error) => tries.pause(error).await?,
                done => return done,
            }
        }
    }
}
