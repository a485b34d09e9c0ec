//! `<lock>.lck`: the bytes of a lock object.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::json;
use crate::lock::{LockKind, LockRecord};

/// No lock object is longer.
pub(crate) const LOCK_MAX_BYTES: u64 = 64 * 1024;

impl Serialize for LockKind {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(self.number())
    }
}

impl<'de> Deserialize<'de> for LockKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match u64::deserialize(from)? {
            1 => Ok(Self::Use),
            2 => Ok(Self::Delete),
            other => Err(D::Error::custom(format!("there is no lock of type {other}"))),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LockCfg {
    name: String,
    #[serde(rename = "Type")]
    kind: LockKind,
    #[serde(default, deserialize_with = "json::flag")]
    acquired: bool,
}

pub(crate) fn lock_bytes(record: &LockRecord) -> Result<Vec<u8>, serde_json::Error> {
    let LockRecord { name, kind, acquired } = record.clone();
    json::to_bytes(&LockCfg { name, kind, acquired })
}

/// Reads a lock; nothing where it is none.
pub fn parse_lock(bytes: &[u8]) -> Option<LockRecord> {
    let LockCfg { name, kind, acquired } = json::from_bytes(bytes).ok()?;
    Some(LockRecord { name, kind, acquired })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_byte_exact() {
        let text = br#"{"Name":"lock-14b53d40b80b4268","Type":1,"Acquired":true}"#;
        let record = parse_lock(text).unwrap();
        assert_eq!(record.kind, LockKind::Use);
        assert_eq!(lock_bytes(&record).unwrap(), text);
        assert_eq!(parse_lock(br#"{"Name":"x","Type":3,"Acquired":true}"#), None);
    }
}
