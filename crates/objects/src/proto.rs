//! Protobuf request bodies of built-in kinds become the JSON value the rest of the server works on,
//! and that value becomes protobuf again for clients that read nothing else.
//!
//! Owns: the `k8s\0` envelope and the reading and writing of messages by the table in
//! [`crate::builtin`]. Never: trusts a length, or recurses without a limit.
//! Start reading at [`decode`] and [`encode()`].

mod encode;
mod leaf;
mod message;
#[cfg(test)]
mod tests;
mod wire;

use serde_json::Value;

use crate::builtin::table::Table;
pub use encode::{EncodeError, bare, encode, head, list_item, list_metadata, watch_frame};
use message::{Budget, Decoder};
use wire::Reader;

/// The four bytes before every protobuf body.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// The only content type inside the envelope.
const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// How deep messages may nest.
const MAX_DEPTH: u32 = 128;

/// How many values one object may hold; the largest real objects have some ten thousand.
const MAX_VALUES: u32 = 250_000;

/// An object read from protobuf.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub api_version: String,
    pub kind: String,
    /// The whole object; `apiVersion` and `kind` are in it too.
    pub value: Value,
}

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    #[error("the body does not start with the protobuf envelope")]
    NotProtobuf,
    #[error("the envelope holds {what} {found:?}, which is not supported")]
    Envelope { what: &'static str, found: String },
    #[error("no protobuf form of kind {kind:?} in version {api_version:?} is known")]
    UnknownKind { api_version: String, kind: String },
    #[error("the message ends inside a field")]
    Truncated,
    #[error("a number is longer than ten bytes")]
    Varint,
    #[error("a field has the invalid number or wire type {0:#x}")]
    Key(u64),
    #[error("field {field} of {message} has the wrong wire type")]
    WireType { message: &'static str, field: u32 },
    #[error("field {field} of {message} is not valid: {reason}")]
    Value { message: &'static str, field: u32, reason: String },
    #[error("messages are nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("the object holds more than {MAX_VALUES} values")]
    TooMany,
}

/// Reads one object.
///
/// Unknown fields are skipped: a newer client may know more than this table. What Go clients write
/// only because a field is not a pointer (empty strings, zeros, zero times) is left out.
pub fn decode(bytes: &[u8]) -> Result<Decoded, ProtoError> {
    let envelope = Envelope::read(bytes.strip_prefix(MAGIC).ok_or(ProtoError::NotProtobuf)?)?;
    let Envelope { api_version, kind, raw } = envelope;
    let table = Table::get();
    let known = match kind.as_str() {
        // Every client sends it with the group-version of the resource it deletes.
        "DeleteOptions" => table.kind("v1", "DeleteOptions"),
        other => table.kind(&api_version, other),
    };
    let Some(id) = known else {
        return Err(ProtoError::UnknownKind { api_version, kind });
    };
    let budget = Budget::new();
    let mut object = Decoder::new(table, &budget).object(id, raw)?;
    object.insert("apiVersion".to_owned(), Value::String(api_version.clone()));
    object.insert("kind".to_owned(), Value::String(kind.clone()));
    Ok(Decoded { api_version, kind, value: Value::Object(object) })
}

/// Message `runtime.Unknown`: the type and the bytes of the object.
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    const TYPE: u32 = 1;
    const RAW: u32 = 2;

    fn read(bytes: &'a [u8]) -> Result<Self, ProtoError> {
        const NAME: &str = "runtime.Unknown";
        let mut envelope = Self { api_version: String::new(), kind: String::new(), raw: &[] };
        let mut reader = Reader::new(bytes);
        while let Some((field, wire)) = reader.next()? {
            let content = || wire.bytes().ok_or(ProtoError::WireType { message: NAME, field });
            match field {
                Self::TYPE => envelope.read_type(content()?)?,
                Self::RAW => envelope.raw = content()?,
                3 => only("encoding", content()?, &[""])?,
                4 => only("content type", content()?, &["", CONTENT_TYPE])?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &[u8]) -> Result<(), ProtoError> {
        const NAME: &str = "runtime.TypeMeta";
        let mut reader = Reader::new(bytes);
        while let Some((field, wire)) = reader.next()? {
            match field {
                1 => wire.text(NAME, field)?.clone_into(&mut self.api_version),
                2 => wire.text(NAME, field)?.clone_into(&mut self.kind),
                _ => {}
            }
        }
        Ok(())
    }
}

fn only(what: &'static str, found: &[u8], allowed: &[&str]) -> Result<(), ProtoError> {
    if allowed.iter().any(|one| one.as_bytes() == found) {
        return Ok(());
    }
    Err(ProtoError::Envelope { what, found: String::from_utf8_lossy(found).into_owned() })
}
