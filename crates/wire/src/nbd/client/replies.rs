//! The decoder of replies.

use crate::nbd::numbers::{
    CHUNK_BLOCK_STATUS, CHUNK_DONE, CHUNK_ERROR, CHUNK_ERROR_OFFSET, CHUNK_LEN, CHUNK_NONE,
    CHUNK_OFFSET_DATA, CHUNK_OFFSET_HOLE, SIMPLE_REPLY_LEN, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC,
};
use crate::nbd::{Chunk, Errno, Extent, ExtentFlags};
use bytes::{Buf, Bytes, BytesMut};

/// What comes back in the transmission phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The whole answer; the data is that of a read.
    Simple { cookie: u64, outcome: Result<Bytes, Errno> },
    /// A part of the answer, the last one if `done`.
    Chunk { cookie: u64, chunk: Chunk, done: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyDecodeError {
    #[error("reply begins with {0:#010x}, which is no reply magic")]
    Magic(u32),
    #[error("reply of {len} bytes is more than the {max} allowed")]
    TooLong { len: u32, max: u32 },
    #[error("chunk of type {0:#x} is malformed")]
    Chunk(u16),
}

/// Takes one whole reply or chunk off the front of `buf`.
///
/// A simple reply does not say how much data follows it: `read_len` is asked for the length of the
/// read with that cookie, and answers 0 for any other command.
///
/// `Ok(None)` leaves the bytes of `buf` as they are: call again when more have come.
pub fn decode_reply(
    buf: &mut BytesMut,
    max_payload: u32,
    read_len: impl FnOnce(u64) -> u32,
) -> Result<Option<Reply>, ReplyDecodeError> {
    let Ok(magic) = buf.as_ref().try_get_u32() else {
        return Ok(None);
    };
    match magic {
        SIMPLE_REPLY_MAGIC => simple(buf, max_payload, read_len),
        STRUCTURED_REPLY_MAGIC => structured(buf, max_payload),
        other => Err(ReplyDecodeError::Magic(other)),
    }
}

fn simple(
    buf: &mut BytesMut,
    max: u32,
    read_len: impl FnOnce(u64) -> u32,
) -> Result<Option<Reply>, ReplyDecodeError> {
    let Some(mut head) = buf.get(4..SIMPLE_REPLY_LEN) else {
        return Ok(None);
    };
    let (error, cookie) = (head.get_u32(), head.get_u64());
    let len = if error == 0 { read_len(cookie) } else { 0 };
    let Some(data) = take(buf, SIMPLE_REPLY_LEN, len, max)? else {
        return Ok(None);
    };
    let outcome = if error == 0 { Ok(data) } else { Err(Errno::from_code(error)) };
    Ok(Some(Reply::Simple { cookie, outcome }))
}

fn structured(buf: &mut BytesMut, max: u32) -> Result<Option<Reply>, ReplyDecodeError> {
    let Some(mut head) = buf.get(4..CHUNK_LEN) else {
        return Ok(None);
    };
    let (flags, kind) = (head.get_u16(), head.get_u16());
    let (cookie, len) = (head.get_u64(), head.get_u32());
    // What describes the data comes on top of it.
    let Some(body) = take(buf, CHUNK_LEN, len, max.saturating_add(64))? else {
        return Ok(None);
    };
    let chunk = chunk(kind, body).ok_or(ReplyDecodeError::Chunk(kind))?;
    Ok(Some(Reply::Chunk { cookie, chunk, done: flags & CHUNK_DONE != 0 }))
}

fn take(
    buf: &mut BytesMut,
    head: usize,
    len: u32,
    max: u32,
) -> Result<Option<Bytes>, ReplyDecodeError> {
    if len > max {
        return Err(ReplyDecodeError::TooLong { len, max });
    }
    let whole = head.saturating_add(len as usize);
    if buf.len() < whole {
        buf.reserve(whole.saturating_sub(buf.len()));
        return Ok(None);
    }
    buf.advance(head);
    Ok(Some(buf.split_to(len as usize).freeze()))
}

/// Reads the body of a chunk; `None` if it is not what its type says.
fn chunk(kind: u16, mut body: Bytes) -> Option<Chunk> {
    let chunk = match kind {
        CHUNK_NONE => Chunk::None,
        CHUNK_OFFSET_DATA => {
            let offset = body.try_get_u64().ok()?;
            return (!body.is_empty()).then_some(Chunk::Data { offset, data: body });
        }
        CHUNK_OFFSET_HOLE => {
            Chunk::Hole { offset: body.try_get_u64().ok()?, len: body.try_get_u32().ok()? }
        }
        CHUNK_BLOCK_STATUS => {
            let context = body.try_get_u32().ok()?;
            let mut extents = Vec::new();
            while !body.is_empty() {
                let len = body.try_get_u32().ok()?;
                let flags = ExtentFlags::from_bits(body.try_get_u32().ok()?);
                extents.push(Extent { len, flags });
            }
            Chunk::BlockStatus { context, extents }
        }
        CHUNK_ERROR | CHUNK_ERROR_OFFSET => {
            let errno = Errno::from_code(body.try_get_u32().ok()?);
            let len = usize::from(body.try_get_u16().ok()?);
            let message = String::from_utf8_lossy(body.get(..len)?).into_owned();
            body.advance(len);
            if kind == CHUNK_ERROR {
                Chunk::Error { errno, message }
            } else {
                Chunk::ErrorAt { errno, message, offset: body.try_get_u64().ok()? }
            }
        }
        _ => return None,
    };
    body.is_empty().then_some(chunk)
}
