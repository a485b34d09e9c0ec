//! Replies of the transmission phase, simple and structured.
//!
//! A reply is a small head by value and a payload that is passed on as it is, so that both go out
//! in one vectored write and the data of a read is never copied.

use super::numbers::{
    CHUNK_BLOCK_STATUS, CHUNK_DONE, CHUNK_ERROR, CHUNK_ERROR_OFFSET, CHUNK_LEN, CHUNK_NONE,
    CHUNK_OFFSET_DATA, CHUNK_OFFSET_HOLE, MAX_STRING_LEN, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC,
};
use super::{Errno, Extent};
use bytes::{BufMut, Bytes, BytesMut};

/// Room for the longest head: a chunk's 20 bytes and the 12 that describe a hole.
const MAX_HEAD_LEN: usize = CHUNK_LEN + 12;

/// The bytes of a reply that come before its payload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; MAX_HEAD_LEN],
    len: usize,
}

impl Head {
    /// `write` puts at most [`MAX_HEAD_LEN`] bytes; every caller is in this file.
    #[expect(clippy::mut_mut, reason = "writing to a slice moves its beginning")]
    fn build(write: impl FnOnce(&mut &mut [u8])) -> Self {
        let mut bytes = [0; MAX_HEAD_LEN];
        let mut rest = bytes.as_mut_slice();
        write(&mut rest);
        let len = MAX_HEAD_LEN.saturating_sub(rest.len());
        Self { bytes, len }
    }

    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Head").field(&self.as_slice()).finish()
    }
}

/// A reply, or one chunk of it, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub head: Head,
    pub payload: Bytes,
}

impl Frame {
    /// Appends the whole frame, for when copying is cheaper than a second buffer in a system call.
    pub fn put(&self, buf: &mut BytesMut) {
        buf.reserve(self.head.len.saturating_add(self.payload.len()));
        buf.put_slice(self.head.as_slice());
        buf.put_slice(&self.payload);
    }
}

/// A piece of a structured reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Nothing more to say: success, if no error came before it.
    None,
    Data {
        offset: u64,
        data: Bytes,
    },
    /// A part of a read that is all zeroes and not sent.
    Hole {
        offset: u64,
        len: u32,
    },
    BlockStatus {
        context: u32,
        extents: Vec<Extent>,
    },
    Error {
        errno: Errno,
        message: String,
    },
    ErrorAt {
        errno: Errno,
        message: String,
        offset: u64,
    },
}

/// Why a reply cannot be put into bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reply payload of {len} bytes does not fit into a reply")]
pub struct ReplyError {
    pub len: usize,
}

/// A simple reply; `data` is empty except for a read that went well.
pub fn encode_simple(cookie: u64, outcome: Result<(), Errno>, data: Bytes) -> Frame {
    let error = outcome.err().map_or(0, Errno::code);
    let head = Head::build(|head| {
        head.put_u32(SIMPLE_REPLY_MAGIC);
        head.put_u32(error);
        head.put_u64(cookie);
    });
    Frame { head, payload: data }
}

/// One chunk of a structured reply. The last chunk of a reply, and no other, is `done`.
/// Messages beyond the protocol's limit are cut.
///
/// # Errors
/// If the payload is longer than the protocol can say.
pub fn encode_chunk(cookie: u64, chunk: &Chunk, done: bool) -> Result<Frame, ReplyError> {
    let (kind, payload, fixed_len) = match chunk {
        Chunk::None => (CHUNK_NONE, Bytes::new(), 0),
        Chunk::Data { data, .. } => (CHUNK_OFFSET_DATA, data.clone(), 8),
        Chunk::Hole { .. } => (CHUNK_OFFSET_HOLE, Bytes::new(), 12),
        Chunk::BlockStatus { extents, .. } => (CHUNK_BLOCK_STATUS, descriptors(extents), 4),
        Chunk::Error { message, .. } => (CHUNK_ERROR, message_bytes(message, None), 4),
        Chunk::ErrorAt { message, offset, .. } => {
            (CHUNK_ERROR_OFFSET, message_bytes(message, Some(*offset)), 4)
        }
    };
    let len = payload.len();
    let total = u32::try_from(len).ok().and_then(|len| len.checked_add(fixed_len));
    let total = total.ok_or(ReplyError { len })?;
    let head = Head::build(|head| {
        head.put_u32(STRUCTURED_REPLY_MAGIC);
        head.put_u16(if done { CHUNK_DONE } else { 0 });
        head.put_u16(kind);
        head.put_u64(cookie);
        head.put_u32(total);
        match chunk {
            Chunk::None => {}
            Chunk::Data { offset, .. } => head.put_u64(*offset),
            Chunk::Hole { offset, len } => {
                head.put_u64(*offset);
                head.put_u32(*len);
            }
            Chunk::BlockStatus { context, .. } => head.put_u32(*context),
            Chunk::Error { errno, .. } | Chunk::ErrorAt { errno, .. } => head.put_u32(errno.code()),
        }
    });
    Ok(Frame { head, payload })
}

fn descriptors(extents: &[Extent]) -> Bytes {
    let mut buf = BytesMut::with_capacity(extents.len().saturating_mul(8));
    for Extent { len, flags } in extents {
        buf.put_u32(*len);
        buf.put_u32(flags.bits());
    }
    buf.freeze()
}

/// What follows the error number: the message with its length, then the offset if there is one.
fn message_bytes(message: &str, offset: Option<u64>) -> Bytes {
    let end = message.floor_char_boundary(MAX_STRING_LEN);
    let message = message.get(..end).unwrap_or_default();
    let mut buf = BytesMut::with_capacity(message.len().saturating_add(10));
    // At most MAX_STRING_LEN, which fits.
    buf.put_u16(u16::try_from(message.len()).unwrap_or_default());
    buf.put_slice(message.as_bytes());
    if let Some(offset) = offset {
        buf.put_u64(offset);
    }
    buf.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::ExtentFlags;

    const COOKIE: u64 = 0x0102_0304_0506_0708;

    fn flat(frame: &Frame) -> Vec<u8> {
        let mut buf = BytesMut::new();
        frame.put(&mut buf);
        buf.to_vec()
    }

    #[test]
    fn simple_replies_have_the_bytes_of_the_protocol_document() {
        let ok = encode_simple(COOKIE, Ok(()), Bytes::from_static(b"data"));
        let golden = b"\x67\x44\x66\x98\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08data";
        assert_eq!(flat(&ok), golden);
        let full = encode_simple(COOKIE, Err(Errno::NoSpc), Bytes::new());
        assert_eq!(flat(&full), b"\x67\x44\x66\x98\0\0\0\x1c\x01\x02\x03\x04\x05\x06\x07\x08");
    }

    #[test]
    fn chunks_have_the_bytes_of_the_protocol_document() {
        let table: [(Chunk, bool, &[u8], &[u8]); 6] = [
            (Chunk::None, true, b"\0\x01\0\0", b"\0\0\0\0"),
            (
                Chunk::Data { offset: 0x1000, data: Bytes::from_static(b"data") },
                true,
                b"\0\x01\0\x01",
                b"\0\0\0\x0c\0\0\0\0\0\0\x10\0data",
            ),
            (
                Chunk::Hole { offset: 0x1000, len: 0x200 },
                false,
                b"\0\0\0\x02",
                b"\0\0\0\x0c\0\0\0\0\0\0\x10\0\0\0\x02\0",
            ),
            (
                Chunk::BlockStatus {
                    context: 1,
                    extents: vec![
                        Extent { len: 0x1000, flags: ExtentFlags::NONE },
                        Extent { len: 0x2000, flags: ExtentFlags::HOLE.with(ExtentFlags::ZERO) },
                    ],
                },
                true,
                b"\0\x01\0\x05",
                b"\0\0\0\x14\0\0\0\x01\0\0\x10\0\0\0\0\0\0\0\x20\0\0\0\0\x03",
            ),
            (
                Chunk::Error { errno: Errno::Inval, message: "no".into() },
                true,
                b"\0\x01\x80\x01",
                b"\0\0\0\x08\0\0\0\x16\0\x02no",
            ),
            (
                Chunk::ErrorAt { errno: Errno::Io, message: String::new(), offset: 0x1000 },
                false,
                b"\0\0\x80\x02",
                b"\0\0\0\x0e\0\0\0\x05\0\0\0\0\0\0\0\0\x10\0",
            ),
        ];
        for (chunk, done, flags_and_type, rest) in table {
            let frame = encode_chunk(COOKIE, &chunk, done).unwrap();
            let golden =
                [b"\x66\x8e\x33\xef", flags_and_type, &COOKIE.to_be_bytes(), rest].concat();
            assert_eq!(flat(&frame), golden, "{chunk:?}");
        }
    }

    #[test]
    fn the_data_of_a_read_is_not_copied() {
        let data = Bytes::from(vec![5; 512]);
        let chunk = Chunk::Data { offset: 0, data: data.clone() };
        assert_eq!(encode_chunk(1, &chunk, true).unwrap().payload.as_ptr(), data.as_ptr());
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let chunk = Chunk::Error { errno: Errno::Io, message: "é".repeat(4000) };
        assert_eq!(encode_chunk(1, &chunk, true).unwrap().payload.len(), 2 + 4096);
        let chunk = Chunk::Error { errno: Errno::Io, message: format!("x{}", "é".repeat(4000)) };
        assert_eq!(encode_chunk(1, &chunk, true).unwrap().payload.len(), 2 + 4095);
    }
}
