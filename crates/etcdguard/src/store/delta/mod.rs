//! Contents of deltas: a JSON array of events, and after it the SHA-256 of its text.
//!
//! Owns: the text ([`Encoder`], [`Decoder`]), both as streams: neither holds more than one event
//! and a buffer. Never: compression, names, or what events do to a database.

mod decode;
mod encode;
mod events;
mod spool;

use bytes::Bytes;
use jiff::Timestamp;

pub use decode::{Decoder, EVENT_MAX_BYTES};
pub use encode::Encoder;
pub use events::Events;
pub use spool::{Spool, Spooled};

/// Of the checksum after the text.
pub const HASH_BYTES: usize = 32;

/// The checksum of a text.
pub fn hash(text: &[u8]) -> [u8; HASH_BYTES] {
    let mut hash = [0; HASH_BYTES];
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text);
    hash.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    hash
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    Put,
    Delete,
}

/// One event of a watch, and when it came. Of a delete only the key and the revision are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub op: Op,
    pub key: Bytes,
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
    pub value: Bytes,
    pub lease: i64,
    /// When it was received; the only record of time there is.
    pub time: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    #[error("the delta cannot be read")]
    Read(#[from] std::io::Error),
    #[error("the delta is too short to hold its checksum")]
    Short,
    #[error("the text of the delta does not have the checksum that follows it")]
    Hash,
    #[error("event {index} of the delta is longer than {EVENT_MAX_BYTES} bytes")]
    TooLong { index: u64 },
    #[error("the delta is no array of events: {what} at event {index}")]
    Shape { index: u64, what: &'static str },
    #[error("event {index} of the delta is no event")]
    Event { index: u64, source: serde_json::Error },
    #[error("event {index} of the delta has {what}")]
    Value { index: u64, what: &'static str },
    #[error("event {index} of the delta has revision {revision}, after one of revision {before}")]
    Order { index: u64, revision: i64, before: i64 },
}

#[cfg(test)]
mod tests;
