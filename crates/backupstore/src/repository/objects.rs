//! Objects of a store: read with a limit, created and replaced as atomically as the store can.

use blobs::{Key, Version, get_limited};
use bytes::Bytes;
use jiff::Timestamp;

use super::Repository;
use super::v1::{CFG_MAX_BYTES, SHORT_MAX_BYTES};
use crate::error::Error;

/// The very write that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) version: Version,
    pub(crate) modified: Timestamp,
}

/// What was found under a name.
#[derive(Debug)]
pub(crate) enum Found<T> {
    Readable(T, Stored),
    Unreadable { why: String },
    Missing,
}

impl<T> Found<T> {
    /// The value, or why there is none.
    pub(super) fn required(self, key: &Key) -> Result<(T, Stored), Error> {
        match self {
            Self::Readable(value, stored) => Ok((value, stored)),
            Self::Unreadable { why } => Err(Error::Unreadable { path: key.to_string(), why }),
            Self::Missing => Err(Error::NotFound { path: key.to_string() }),
        }
    }

    fn too_long(len_bytes: u64, max_bytes: u64) -> Self {
        Self::Unreadable { why: format!("it has {len_bytes} bytes; {max_bytes} are allowed") }
    }

    pub(super) fn map<U>(self, to: impl FnOnce(T) -> U) -> Found<U> {
        match self {
            Self::Readable(value, stored) => Found::Readable(to(value), stored),
            Self::Unreadable { why } => Found::Unreadable { why },
            Self::Missing => Found::Missing,
        }
    }
}

impl Repository {
    pub(super) async fn read<T>(
        &self,
        key: &Key,
        max_bytes: u64,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Found<T>, Error> {
        let blob = match get_limited(self.store.as_ref(), key, max_bytes).await {
            Ok(blob) => blob,
            Err(error) if error.is_not_found() => return Ok(Found::Missing),
            Err(blobs::Error::TooLong { len_bytes, max_bytes, .. })
                if max_bytes >= CFG_MAX_BYTES =>
            {
                return Ok(Found::too_long(len_bytes, max_bytes));
            }
            Err(error) => return Err(error.into()),
        };
        let stored = Stored { version: blob.meta.version, modified: blob.meta.modified };
        Ok(match parse(&blob.bytes) {
            Ok(value) => Found::Readable(value, stored),
            Err(why) => Found::Unreadable { why },
        })
    }

    /// One that has no list of blocks.
    pub(super) async fn read_short<T>(
        &self,
        key: &Key,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Found<T>, Error> {
        match self.read(key, SHORT_MAX_BYTES, parse).await {
            Err(Error::Store(blobs::Error::TooLong { len_bytes, max_bytes, .. })) => {
                Ok(Found::too_long(len_bytes, max_bytes))
            }
            done => done,
        }
    }

    /// Creates an object, as atomically as the store can.
    pub(super) async fn create(&self, key: &Key, bytes: Bytes) -> Result<Version, blobs::Error> {
        if self.abilities().conditional_put {
            match self.store.put_new(key, bytes.clone()).await {
                Err(blobs::Error::Unsupported { .. }) => {}
                done => return done,
            }
        }
        match self.store.head(key).await {
            Ok(_) => Err(blobs::Error::Exists { key: key.clone() }),
            Err(error) if error.is_not_found() => {
                self.store.put_settled(key, bytes).await.map_err(|error| match error {
                    blobs::Error::Changed { key } => blobs::Error::Exists { key },
                    error => error,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces that version, as atomically as the store can. One that was found to keep conditions, and
    /// refuses them now, is not written to in another way: others rely on them.
    pub(super) async fn swap(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, blobs::Error> {
        if self.abilities().conditional_put {
            return self.store.put_if_match(key, bytes, version).await;
        }
        match self.store.head(key).await {
            Ok(found) if found.version == *version => self.store.put_settled(key, bytes).await,
            Ok(_) => Err(blobs::Error::Changed { key: key.clone() }),
            Err(error) if error.is_not_found() => Err(blobs::Error::Changed { key: key.clone() }),
            Err(error) => Err(error),
        }
    }
}
