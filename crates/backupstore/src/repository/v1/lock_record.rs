//! `<lock>.lck`: the bytes of a lock object.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::json;
use crate::lock::{Holder, LockKind, LockRecord};

/// No lock object is longer.
pub(crate) const LOCK_MAX_BYTES: u64 = 64 * 1024;

/// No run of a machine has a longer name.
const BOOT_MAX_BYTES: usize = 64;

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
    /// Not of v1 engines, which do not look at it.
    #[serde(default, rename = "Renewal", skip_serializing_if = "is_first", skip_deserializing)]
    writes: u64,
    /// Other readers skip it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "process")]
    process: Option<ProcessCfg>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_first(writes: &u64) -> bool {
    *writes == 0
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProcessCfg {
    boot: String,
    namespace: u64,
    pid: i32,
    started: u64,
}

/// One that cannot be read is none: the lock is a lock all the same.
fn process<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ProcessCfg>, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    let process: Option<ProcessCfg> = serde_json::from_value(value).ok();
    Ok(process.filter(|process| process.boot.len() <= BOOT_MAX_BYTES))
}

/// The text of the lock that was written anew so many times: none is like another.
pub(crate) fn lock_bytes(record: &LockRecord, writes: u64) -> Result<Vec<u8>, serde_json::Error> {
    let LockRecord { name, kind, acquired, holder } = record.clone();
    let process = holder.map(|Holder { boot, namespace, pid, started }| ProcessCfg {
        boot,
        namespace,
        pid,
        started,
    });
    json::to_bytes(&LockCfg { name, kind, acquired, writes, process })
}

/// Reads a lock; nothing where it is none.
pub fn parse_lock(bytes: &[u8]) -> Option<LockRecord> {
    let LockCfg { name, kind, acquired, process, .. } = json::from_bytes(bytes).ok()?;
    let holder = process.map(|ProcessCfg { boot, namespace, pid, started }| Holder {
        boot,
        namespace,
        pid,
        started,
    });
    Some(LockRecord { name, kind, acquired, holder })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_byte_exact() {
        let text = br#"{"Name":"lock-14b53d40b80b4268","Type":1,"Acquired":true}"#;
        let record = parse_lock(text).unwrap();
        assert_eq!(record.kind, LockKind::Use);
        assert_eq!(lock_bytes(&record, 0).unwrap(), text);
        let renewed = br#"{"Name":"lock-14b53d40b80b4268","Type":1,"Acquired":true,"Renewal":2}"#;
        assert_eq!(lock_bytes(&record, 2).unwrap(), renewed);
        assert_eq!(parse_lock(renewed), Some(record));
        assert_eq!(parse_lock(br#"{"Name":"x","Type":3,"Acquired":true}"#), None);
    }

    #[test]
    fn the_process_of_a_lock_comes_back_and_a_strange_one_is_none() {
        let text = br#"{"Name":"lock-1","Type":2,"Acquired":true,"Process":{"Boot":"b","Namespace":7,"Pid":4,"Started":9}}"#;
        let record = parse_lock(text).unwrap();
        assert_eq!(record.holder.as_ref().map(|it| (it.pid, it.started)), Some((4, 9)));
        assert_eq!(lock_bytes(&record, 0).unwrap(), text);
        let strange = br#"{"Name":"lock-1","Type":2,"Acquired":true,"Process":"me"}"#;
        assert_eq!(parse_lock(strange).unwrap().holder, None);
    }
}
