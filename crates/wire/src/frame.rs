//! The frames between engine and replica, and on the `socket` frontend.
//!
//! Owns: the 26-byte header, the meaning of its fields by type, the limits on what follows it.
//! Never: matches replies to requests, or judges offsets against a volume: that is the engine's.
//! Start reading at [`Request`] and [`Reply`]; `docs/protocols/frames.md` describes the bytes.
//!
//! Payloads are slices of the buffer they were read into and are handed out without a copy. A small
//! payload that is kept for long keeps its whole buffer alive: copy it if it outlives its request.

use bytes::{Buf, BufMut, Bytes, BytesMut};

#[cfg(test)]
mod tests;

/// Bytes of a header, always all of them.
pub const HEADER_LEN: usize = 26;

/// First field of every frame: magic and protocol version in one.
pub const MAGIC: u16 = 0x1B01;

/// What the older engine puts where the magic belongs when it says goodbye.
const CLOSE_MAGIC_OF_OLD_ENGINES: u16 = 0;

const TYPE_READ: u32 = 0;
const TYPE_WRITE: u32 = 1;
const TYPE_RESPONSE: u32 = 2;
const TYPE_ERROR: u32 = 3;
const TYPE_EOF: u32 = 4;
const TYPE_CLOSE: u32 = 5;
const TYPE_PING: u32 = 6;
const TYPE_UNMAP: u32 = 7;
const TYPE_NO_SPACE: u32 = 8;

// Holdfast's own requests: "HF" in front keeps them clear of numbers the common dialect may take
// next. Sent only to a replica that said it understands them.
const TYPE_FLUSH: u32 = 0x4846_0001;
const TYPE_ZERO: u32 = 0x4846_0002;
const TYPE_STATUS: u32 = 0x4846_0003;
const TYPE_DISCARD: u32 = 0x4846_0004;
const TYPE_HELLO: u32 = 0x4846_0005;
const TYPE_RECORD: u32 = 0x4846_0006;
/// The only reply of ours: sent to engines that said hello, and to those that should have.
const TYPE_CUT_OFF: u32 = 0x4846_0007;

/// Longest name of an engine in a hello, in bytes.
pub const ENGINE_MAX: u32 = 64;

/// The text of an [`Outcome::NoSpace`], and what callers search for in other error texts.
pub const NO_SPACE_TEXT: &str = "no space left on device";

/// What a peer may send; anything longer ends the connection before memory is reserved for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest payload of a write or of a read's answer, in bytes.
    pub max_payload: u32,
    /// Longest error text, in bytes.
    pub max_text: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_payload: 32 << 20, max_text: 16 << 10 }
    }
}

/// What a client asks of a replica or of the frontend.
///
/// Offsets are signed on the wire and are passed on as they came: a negative one is well-formed, and
/// the server answers it with an error as it does any other offset outside the volume. The same goes
/// for the size of a read: compare it with a limit before reserving memory for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Read {
        sequence: u32,
        offset: i64,
        size: u32,
    },
    Write {
        sequence: u32,
        offset: i64,
        data: Bytes,
    },
    Unmap {
        sequence: u32,
        offset: i64,
        size: u32,
    },
    Ping {
        sequence: u32,
    },
    /// Everything answered before is to be on disk when this is answered.
    Flush {
        sequence: u32,
    },
    /// The range reads as zeros afterwards, and takes no more space than it must.
    Zero {
        sequence: u32,
        offset: i64,
        size: u32,
    },
    /// As unmap; the answer's offset is a number for the layers that decided what the range reads
    /// now. Replicas that give different numbers may hold different bytes there.
    Discard {
        sequence: u32,
        offset: i64,
        size: u32,
    },
    /// Which parts of the range hold data; answered with the [`Run`]s of [`encode_runs`].
    Status {
        sequence: u32,
        offset: i64,
        size: u32,
    },
    /// Says which claim on the volume this connection belongs to; see [`crate::membership`].
    Hello {
        sequence: u32,
        generation: u64,
        engine: Bytes,
    },
    /// The membership of the volume, to be on disk when this is answered. With `mark`, it counts as
    /// a write of nothing does.
    Record {
        sequence: u32,
        mark: bool,
        data: Bytes,
    },
    /// The peer is going away and will send nothing more.
    Close,
}

/// What comes back on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Answer(Answer),
    /// An engine with this generation has the replica now. Nothing more is answered, and nothing
    /// that was not answered is known to be done.
    CutOff {
        generation: u64,
    },
    /// The server is going away; what it has not answered it will not answer.
    Close,
}

/// The answer to the request with the same sequence number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub sequence: u32,
    /// The offset of the request, echoed. Servers send it, no known client looks at it.
    pub offset: i64,
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A read: the bytes. A read of nothing arrives as `Count(0)`; on the wire they are the same.
    Data(Bytes),
    /// A write: bytes written. An unmap: bytes freed. A ping: 0.
    Count(u32),
    /// A read that met the end: the bytes before it.
    Eof(Bytes),
    Error(String),
    /// Every replica that could take the write is full. Replicas themselves say [`Self::Error`] with
    /// a text that contains [`NO_SPACE_TEXT`].
    NoSpace(String),
}

/// A stretch of a volume that holds data, or that no layer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub len: u32,
    pub hole: bool,
}

/// Bytes of one run in the answer to a status request.
const RUN_LEN: usize = 8;

/// The answer to a status request: length and kind of each run, in order from its offset.
pub fn encode_runs(runs: &[Run]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(runs.len().saturating_mul(RUN_LEN));
    for Run { len, hole } in runs {
        bytes.put_u32_le(*len);
        bytes.put_u32_le(u32::from(*hole));
    }
    bytes.freeze()
}

/// Reads the answer to a status request; `None` if it is not made of whole runs of known kinds.
pub fn decode_runs(mut bytes: Bytes) -> Option<Vec<Run>> {
    let mut runs = Vec::with_capacity(bytes.len() / RUN_LEN);
    while bytes.has_remaining() {
        let (len, kind) = (bytes.try_get_u32_le().ok()?, bytes.try_get_u32_le().ok()?);
        let hole = match kind {
            0 => false,
            1 => true,
            _ => return None,
        };
        runs.push(Run { len, hole });
    }
    Some(runs)
}

/// A frame ready to be sent: the header by value and the payload as it is, for a vectored write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub header: [u8; HEADER_LEN],
    pub payload: Bytes,
}

impl Frame {
    /// Appends the whole frame, for when copying is cheaper than a second buffer in a system call.
    pub fn put(&self, buf: &mut BytesMut) {
        buf.reserve(HEADER_LEN.saturating_add(self.payload.len()));
        buf.put_slice(&self.header);
        buf.put_slice(&self.payload);
    }
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("wrong API version received: {0:#x}")]
    Magic(u16),
    #[error("frame of type {0} is not one this side receives")]
    Type(u32),
    #[error("payload of {len} bytes in a frame of type {kind} is more than the {max} allowed")]
    TooLong { kind: u32, len: u64, max: u32 },
    #[error("frame of type {kind} says {size} bytes and carries {len}")]
    Mismatch { kind: u32, size: u32, len: u32 },
}

/// Takes one whole request off the front of `buf`.
///
/// `Ok(None)` leaves the bytes of `buf` as they are: call again when more have come.
pub fn decode_request(buf: &mut BytesMut, limits: Limits) -> Result<Option<Request>, FrameError> {
    let Some(header) = Header::peek(buf)? else {
        return Ok(None);
    };
    let Header { sequence, kind, offset, size, len } = header;
    match kind {
        TYPE_READ | TYPE_UNMAP | TYPE_PING | TYPE_CLOSE | TYPE_FLUSH | TYPE_ZERO | TYPE_STATUS
        | TYPE_DISCARD => {
            header.expect_payload(0)?;
        }
        // The reply counts bytes by `size`; were the two allowed to differ, so would the answers.
        TYPE_WRITE | TYPE_HELLO | TYPE_RECORD => header.expect_payload(size)?,
        TYPE_RESPONSE | TYPE_ERROR | TYPE_EOF | TYPE_NO_SPACE | TYPE_CUT_OFF => {
            return Err(FrameError::Type(kind));
        }
        unknown => return Err(FrameError::Type(unknown)),
    }
    let max = match kind {
        TYPE_HELLO => ENGINE_MAX,
        TYPE_RECORD => crate::membership::RECORD_MAX,
        _ => limits.max_payload,
    };
    let Some(data) = take_payload(buf, kind, len, max)? else {
        return Ok(None);
    };
    Ok(Some(match kind {
        TYPE_READ => Request::Read { sequence, offset, size },
        TYPE_WRITE => Request::Write { sequence, offset, data },
        TYPE_UNMAP => Request::Unmap { sequence, offset, size },
        TYPE_PING => Request::Ping { sequence },
        TYPE_FLUSH => Request::Flush { sequence },
        TYPE_ZERO => Request::Zero { sequence, offset, size },
        TYPE_STATUS => Request::Status { sequence, offset, size },
        TYPE_DISCARD => Request::Discard { sequence, offset, size },
        TYPE_HELLO => Request::Hello { sequence, generation: offset.cast_unsigned(), engine: data },
        TYPE_RECORD => Request::Record { sequence, mark: offset != 0, data },
        _ => Request::Close,
    }))
}

/// Takes one whole reply off the front of `buf`.
///
/// `Ok(None)` leaves the bytes of `buf` as they are: call again when more have come.
pub fn decode_reply(buf: &mut BytesMut, limits: Limits) -> Result<Option<Reply>, FrameError> {
    let Some(header) = Header::peek(buf)? else {
        return Ok(None);
    };
    let Header { sequence, kind, offset, size, len } = header;
    let max = match kind {
        TYPE_RESPONSE if len == 0 => 0,
        TYPE_RESPONSE => {
            header.expect_payload(size)?;
            limits.max_payload
        }
        TYPE_EOF => limits.max_payload,
        TYPE_ERROR | TYPE_NO_SPACE => limits.max_text,
        TYPE_CLOSE | TYPE_CUT_OFF => {
            header.expect_payload(0)?;
            0
        }
        TYPE_READ | TYPE_WRITE | TYPE_PING | TYPE_UNMAP | TYPE_FLUSH | TYPE_ZERO | TYPE_STATUS
        | TYPE_DISCARD | TYPE_HELLO | TYPE_RECORD => {
            return Err(FrameError::Type(kind));
        }
        unknown => return Err(FrameError::Type(unknown)),
    };
    let Some(payload) = take_payload(buf, kind, len, max)? else {
        return Ok(None);
    };
    let outcome = match kind {
        TYPE_RESPONSE if payload.is_empty() => Outcome::Count(size),
        TYPE_RESPONSE => Outcome::Data(payload),
        TYPE_EOF => Outcome::Eof(payload),
        TYPE_ERROR => Outcome::Error(String::from_utf8_lossy(&payload).into_owned()),
        TYPE_NO_SPACE => Outcome::NoSpace(String::from_utf8_lossy(&payload).into_owned()),
        TYPE_CUT_OFF => return Ok(Some(Reply::CutOff { generation: offset.cast_unsigned() })),
        _ => return Ok(Some(Reply::Close)),
    };
    Ok(Some(Reply::Answer(Answer { sequence, offset, outcome })))
}

/// Makes the frame of a request.
///
/// # Errors
/// [`FrameError::TooLong`] if the data is longer than the peer accepts under `limits`.
pub fn encode_request(request: &Request, limits: Limits) -> Result<Frame, FrameError> {
    let head = |sequence, kind, offset, size| Header { sequence, kind, offset, size, len: 0 };
    Ok(match request {
        Request::Read { sequence, offset, size } => {
            head(*sequence, TYPE_READ, *offset, *size).alone()
        }
        Request::Unmap { sequence, offset, size } => {
            head(*sequence, TYPE_UNMAP, *offset, *size).alone()
        }
        Request::Ping { sequence } => head(*sequence, TYPE_PING, 0, 0).alone(),
        Request::Flush { sequence } => head(*sequence, TYPE_FLUSH, 0, 0).alone(),
        Request::Zero { sequence, offset, size } => {
            head(*sequence, TYPE_ZERO, *offset, *size).alone()
        }
        Request::Status { sequence, offset, size } => {
            head(*sequence, TYPE_STATUS, *offset, *size).alone()
        }
        Request::Discard { sequence, offset, size } => {
            head(*sequence, TYPE_DISCARD, *offset, *size).alone()
        }
        Request::Close => head(0, TYPE_CLOSE, 0, 0).alone(),
        Request::Hello { sequence, generation, engine } => {
            let len = checked_len(engine, TYPE_HELLO, ENGINE_MAX)?;
            let offset = generation.cast_signed();
            Header { len, ..head(*sequence, TYPE_HELLO, offset, len) }.with(engine.clone())
        }
        Request::Record { sequence, mark, data } => {
            let len = checked_len(data, TYPE_RECORD, crate::membership::RECORD_MAX)?;
            let offset = i64::from(*mark);
            Header { len, ..head(*sequence, TYPE_RECORD, offset, len) }.with(data.clone())
        }
        Request::Write { sequence, offset, data } => {
            let len = checked_len(data, TYPE_WRITE, limits.max_payload)?;
            Header { len, ..head(*sequence, TYPE_WRITE, *offset, len) }.with(data.clone())
        }
    })
}

/// Makes the frame of a reply. Error texts beyond `limits.max_text` are cut, not refused.
///
/// # Errors
/// [`FrameError::TooLong`] if the data is longer than the peer accepts under `limits`.
pub fn encode_reply(reply: &Reply, limits: Limits) -> Result<Frame, FrameError> {
    let bare = |kind, offset| Header { sequence: 0, kind, offset, size: 0, len: 0 }.alone();
    let Answer { sequence, offset, outcome } = match reply {
        Reply::Answer(answer) => answer,
        Reply::Close => return Ok(bare(TYPE_CLOSE, 0)),
        Reply::CutOff { generation } => return Ok(bare(TYPE_CUT_OFF, generation.cast_signed())),
    };
    let head = |kind, size, len| Header { sequence: *sequence, kind, offset: *offset, size, len };
    let data = |kind, data: &Bytes| {
        let len = checked_len(data, kind, limits.max_payload)?;
        Ok(head(kind, len, len).with(data.clone()))
    };
    let text = |kind, text: &str| {
        let (text, len) = cut_text(text, limits.max_text);
        head(kind, len, len).with(Bytes::copy_from_slice(text.as_bytes()))
    };
    Ok(match outcome {
        Outcome::Count(size) => head(TYPE_RESPONSE, *size, 0).alone(),
        Outcome::Data(bytes) => data(TYPE_RESPONSE, bytes)?,
        Outcome::Eof(bytes) => data(TYPE_EOF, bytes)?,
        Outcome::Error(message) => text(TYPE_ERROR, message),
        Outcome::NoSpace(message) => text(TYPE_NO_SPACE, message),
    })
}

/// The fields of a header whose magic has been checked.
#[derive(Debug, Clone, Copy)]
struct Header {
    sequence: u32,
    kind: u32,
    offset: i64,
    size: u32,
    len: u32,
}

impl Header {
    /// Reads the header at the front of `buf` and consumes nothing.
    fn peek(buf: &BytesMut) -> Result<Option<Self>, FrameError> {
        let Some(mut head) = buf.get(..HEADER_LEN) else {
            return Ok(None);
        };
        let magic = head.get_u16_le();
        let (sequence, kind) = (head.get_u32_le(), head.get_u32_le());
        let (offset, size, len) = (head.get_i64_le(), head.get_u32_le(), head.get_u32_le());
        let farewell = magic == CLOSE_MAGIC_OF_OLD_ENGINES && kind == TYPE_CLOSE && len == 0;
        if magic != MAGIC && !farewell {
            return Err(FrameError::Magic(magic));
        }
        Ok(Some(Self { sequence, kind, offset, size, len }))
    }

    fn expect_payload(self, expected: u32) -> Result<(), FrameError> {
        let Self { kind, size, len, .. } = self;
        if len == expected { Ok(()) } else { Err(FrameError::Mismatch { kind, size, len }) }
    }

    fn alone(self) -> Frame {
        self.with(Bytes::new())
    }

    fn with(self, payload: Bytes) -> Frame {
        let mut header = [0; HEADER_LEN];
        let mut rest = header.as_mut_slice();
        rest.put_u16_le(MAGIC);
        rest.put_u32_le(self.sequence);
        rest.put_u32_le(self.kind);
        rest.put_i64_le(self.offset);
        rest.put_u32_le(self.size);
        rest.put_u32_le(self.len);
        Frame { header, payload }
    }
}

/// Takes header and payload off `buf`, or makes room for what is missing.
fn take_payload(
    buf: &mut BytesMut,
    kind: u32,
    len: u32,
    max: u32,
) -> Result<Option<Bytes>, FrameError> {
    if len > max {
        return Err(FrameError::TooLong { kind, len: u64::from(len), max });
    }
    let len = len as usize;
    let whole = HEADER_LEN.saturating_add(len);
    if buf.len() < whole {
        buf.reserve(whole.saturating_sub(buf.len()));
        return Ok(None);
    }
    buf.advance(HEADER_LEN);
    Ok(Some(buf.split_to(len).freeze()))
}

fn checked_len(data: &Bytes, kind: u32, max: u32) -> Result<u32, FrameError> {
    match u32::try_from(data.len()) {
        Ok(len) if len <= max => Ok(len),
        Ok(_) | Err(_) => Err(FrameError::TooLong { kind, len: data.len() as u64, max }),
    }
}

/// The longest beginning of `text` that fits into `max` bytes and ends between two characters.
fn cut_text(text: &str, max: u32) -> (&str, u32) {
    let end = text.floor_char_boundary(max as usize);
    let cut = text.get(..end).unwrap_or_default();
    (cut, u32::try_from(cut.len()).unwrap_or(max))
}
