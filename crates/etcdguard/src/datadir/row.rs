//! Rows of the `key` bucket: every change of every key, by revision.

use bytes::{Buf, Bytes};
use prost::Message;

/// Between the two numbers of a row's key.
const SEPARATOR: u8 = b'_';
/// Behind them when the row says that a key was deleted.
const TOMBSTONE: u8 = b't';
const KEY_LENGTH: usize = 17;

/// When a change happened: the transaction, and its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    pub main: i64,
    pub sub: i64,
}

impl Revision {
    /// As rows and the bookkeeping of compactions have it.
    pub fn encode(self) -> [u8; KEY_LENGTH] {
        let mut bytes = [SEPARATOR; KEY_LENGTH];
        let [main, sub] = [self.main, self.sub].map(i64::to_be_bytes);
        let parts = main.into_iter().chain([SEPARATOR]).chain(sub);
        bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (main, rest) = bytes.split_first_chunk()?;
        let sub = rest.strip_prefix(&[SEPARATOR])?.first_chunk()?;
        let revision = Self { main: i64::from_be_bytes(*main), sub: i64::from_be_bytes(*sub) };
        (revision.main >= 0 && revision.sub >= 0).then_some(revision)
    }
}

/// The key of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowKey {
    pub revision: Revision,
    pub is_tombstone: bool,
}

impl RowKey {
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let revision = Revision::decode(bytes)?;
        match bytes.get(KEY_LENGTH..)? {
            [] => Some(Self { revision, is_tombstone: false }),
            [TOMBSTONE] => Some(Self { revision, is_tombstone: true }),
            _ => None,
        }
    }

    pub fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(KEY_LENGTH + 1);
        bytes.extend_from_slice(&self.revision.encode());
        bytes.extend(self.is_tombstone.then_some(TOMBSTONE));
        bytes
    }
}

/// The value of a row.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

impl KeyValue {
    /// What is not one is `None`.
    pub fn read(bytes: &Bytes) -> Option<Self> {
        Self::decode(bytes.clone()).ok()
    }

    /// Only the key: the first field of a row as etcd writes it; otherwise all of it is read.
    pub fn key_of(row: &Bytes) -> Option<Bytes> {
        const KEY_FIELD: u8 = 0x0A;
        if row.first() != Some(&KEY_FIELD) {
            return Self::read(row).map(|read| read.key);
        }
        let mut rest = row.slice(1..);
        let length = prost::encoding::decode_varint(&mut rest).ok()?;
        let length = usize::try_from(length).ok().filter(|length| *length <= rest.remaining())?;
        Some(rest.split_to(length))
    }
}
