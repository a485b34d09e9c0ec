//! Requests of the transmission phase.

use super::CommandFlags;
use super::numbers::{
    CMD_BLOCK_STATUS, CMD_CACHE, CMD_DISC, CMD_FLUSH, CMD_READ, CMD_RESIZE, CMD_TRIM, CMD_WRITE,
    CMD_WRITE_ZEROES, REQUEST_MAGIC,
};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes of a request before its payload.
pub const REQUEST_LEN: usize = 28;

/// The fixed part of an encoded request.
pub type RequestHead = [u8; REQUEST_LEN];

/// One request. The cookie is the client's and comes back in every reply to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub cookie: u64,
    pub flags: CommandFlags,
    pub command: Command,
}

/// What is asked. Ranges are as they came: see [`check_range`](super::check_range).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Read {
        offset: u64,
        len: u32,
    },
    Write {
        offset: u64,
        data: Bytes,
    },
    /// The client is done: finish what is under way, answer nothing to this.
    Disconnect,
    Flush,
    Trim {
        offset: u64,
        len: u32,
    },
    Cache {
        offset: u64,
        len: u32,
    },
    WriteZeroes {
        offset: u64,
        len: u32,
    },
    BlockStatus {
        offset: u64,
        len: u32,
    },
    /// The new size travels where other commands have their offset.
    Resize {
        size_bytes: u64,
    },
    /// A command nobody told this server about. It has no payload and is answered with `Inval`.
    Unknown(u16),
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("request begins with {0:#010x}, which is not the request magic")]
    Magic(u32),
    #[error("write of {len} bytes is more than the {max} allowed")]
    TooLong { len: u64, max: u32 },
}

/// Takes one whole request off the front of `buf`.
///
/// `Ok(None)` leaves the bytes of `buf` as they are: call again when more have come.
pub fn decode_request(
    buf: &mut BytesMut,
    max_payload: u32,
) -> Result<Option<Request>, RequestError> {
    let Some(mut head) = buf.get(..REQUEST_LEN) else {
        return Ok(None);
    };
    let magic = head.get_u32();
    if magic != REQUEST_MAGIC {
        return Err(RequestError::Magic(magic));
    }
    let (flags, command) = (CommandFlags::from_bits(head.get_u16()), head.get_u16());
    let (cookie, offset, len) = (head.get_u64(), head.get_u64(), head.get_u32());
    let payload = if command == CMD_WRITE { len } else { 0 };
    if payload > max_payload {
        return Err(RequestError::TooLong { len: u64::from(len), max: max_payload });
    }
    let payload = payload as usize;
    let whole = REQUEST_LEN.saturating_add(payload);
    if buf.len() < whole {
        buf.reserve(whole.saturating_sub(buf.len()));
        return Ok(None);
    }
    buf.advance(REQUEST_LEN);
    let data = buf.split_to(payload).freeze();
    let command = match command {
        CMD_READ => Command::Read { offset, len },
        CMD_WRITE => Command::Write { offset, data },
        CMD_DISC => Command::Disconnect,
        CMD_FLUSH => Command::Flush,
        CMD_TRIM => Command::Trim { offset, len },
        CMD_CACHE => Command::Cache { offset, len },
        CMD_WRITE_ZEROES => Command::WriteZeroes { offset, len },
        CMD_BLOCK_STATUS => Command::BlockStatus { offset, len },
        CMD_RESIZE => Command::Resize { size_bytes: offset },
        unknown => Command::Unknown(unknown),
    };
    Ok(Some(Request { cookie, flags, command }))
}

/// Makes the bytes of a request: its head, and its payload as it is.
///
/// # Errors
/// [`RequestError::TooLong`] if the data of a write is longer than the protocol can say.
pub fn encode_request(request: &Request) -> Result<(RequestHead, Bytes), RequestError> {
    let none = Bytes::new;
    let (kind, offset, len, payload) = match &request.command {
        Command::Read { offset, len } => (CMD_READ, *offset, *len, none()),
        Command::Write { offset, data } => {
            let too_long = |_| RequestError::TooLong { len: data.len() as u64, max: u32::MAX };
            let len = u32::try_from(data.len()).map_err(too_long)?;
            (CMD_WRITE, *offset, len, data.clone())
        }
        Command::Disconnect => (CMD_DISC, 0, 0, none()),
        Command::Flush => (CMD_FLUSH, 0, 0, none()),
        Command::Trim { offset, len } => (CMD_TRIM, *offset, *len, none()),
        Command::Cache { offset, len } => (CMD_CACHE, *offset, *len, none()),
        Command::WriteZeroes { offset, len } => (CMD_WRITE_ZEROES, *offset, *len, none()),
        Command::BlockStatus { offset, len } => (CMD_BLOCK_STATUS, *offset, *len, none()),
        Command::Resize { size_bytes } => (CMD_RESIZE, *size_bytes, 0, none()),
        Command::Unknown(kind) => (*kind, 0, 0, none()),
    };
    let mut head = [0; REQUEST_LEN];
    let mut rest = head.as_mut_slice();
    rest.put_u32(REQUEST_MAGIC);
    rest.put_u16(request.flags.bits());
    rest.put_u16(kind);
    rest.put_u64(request.cookie);
    rest.put_u64(offset);
    rest.put_u32(len);
    Ok((head, payload))
}

#[cfg(test)]
mod tests;
