//! A negotiation from the client's side: one question at a time, each answer read to its end.

use crate::nbd::numbers::{
    EXPORT_NAME_PADDING, FIXED_NEWSTYLE, GREETING_LEN, INFO_BLOCK_SIZE, INFO_DESCRIPTION,
    INFO_EXPORT, INIT_MAGIC, MAX_OPTION_LEN, NO_ZEROES, OPT_EXPORT_NAME, OPT_GO,
    OPT_SET_META_CONTEXT, OPT_STRUCTURED_REPLY, OPTION_MAGIC, OPTION_REPLY_LEN, OPTION_REPLY_MAGIC,
    REP_ACK, REP_ERROR_BIT, REP_INFO, REP_META_CONTEXT,
};
use crate::nbd::{Context, TransmissionFlags};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// How the export is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    #[default]
    Go,
    /// As old clients do: no answer but the export itself, or a closed connection.
    ExportName,
}

/// What the client wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dial {
    pub export: String,
    pub method: Method,
    /// Ask for structured replies.
    pub structured: bool,
    /// Ask for block status; needs structured replies.
    pub allocation: bool,
}

/// What the server agreed to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agreed {
    pub size_bytes: u64,
    pub flags: TransmissionFlags,
    pub structured: bool,
    /// The number that stands for `base:allocation` in block status replies.
    pub allocation: Option<u32>,
    /// Minimum, preferred and maximum, where the server told.
    pub block_size: Option<(u32, u32, u32)>,
    pub description: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    #[error("the peer does not greet as a fixed newstyle NBD server")]
    Greeting,
    #[error("the server refused option {option} with {kind:#x}: {message}")]
    Refused { option: u32, kind: u32, message: String },
    #[error("the server's answer to option {0} makes no sense")]
    Answer(u32),
    #[error("the server's answer has {0} bytes")]
    TooLong(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    /// Waiting for the end of the answers to this option.
    Asked(u32),
    ExportName,
}

/// One connection's negotiation.
#[derive(Debug)]
pub struct Dialing {
    dial: Dial,
    phase: Phase,
    no_zeroes: bool,
    agreed: Agreed,
}

impl Dialing {
    pub fn new(dial: Dial) -> Self {
        Self { dial, phase: Phase::Greeting, no_zeroes: false, agreed: Agreed::default() }
    }

    /// Takes what it can off `input` and puts what is to be sent into `output`.
    /// `Ok(None)`: send, read more, feed again. Bytes after the negotiation stay in `input`.
    ///
    /// # Errors
    /// If the server refuses or makes no sense.
    pub fn feed(
        &mut self,
        input: &mut BytesMut,
        output: &mut BytesMut,
    ) -> Result<Option<Agreed>, DialError> {
        loop {
            match self.phase {
                Phase::Greeting if input.len() < GREETING_LEN => return Ok(None),
                Phase::Greeting => self.greeting(input, output)?,
                Phase::ExportName => return Ok(self.export_name(input)),
                Phase::Asked(option) => {
                    let Some((kind, body)) = take_answer(input, option)? else {
                        return Ok(None);
                    };
                    if kind & REP_ERROR_BIT != 0 {
                        let message = String::from_utf8_lossy(&body).into_owned();
                        return Err(DialError::Refused { option, kind, message });
                    }
                    self.answer(option, kind, body).ok_or(DialError::Answer(option))?;
                    if kind == REP_ACK && option == OPT_GO {
                        return Ok(Some(self.agreed.clone()));
                    }
                    if kind == REP_ACK {
                        self.ask_next(option, output);
                    }
                }
            }
        }
    }

    fn greeting(&mut self, input: &mut BytesMut, output: &mut BytesMut) -> Result<(), DialError> {
        let magics = (input.get_u64(), input.get_u64());
        let flags = input.get_u16();
        if magics != (INIT_MAGIC, OPTION_MAGIC) || flags & FIXED_NEWSTYLE == 0 {
            return Err(DialError::Greeting);
        }
        self.no_zeroes = flags & NO_ZEROES != 0;
        output.put_u32(u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)));
        self.ask_next(0, output);
        Ok(())
    }

    /// Asks the next of: structured replies, block status, the export.
    fn ask_next(&mut self, last: u32, output: &mut BytesMut) {
        let next = if self.dial.structured && last == 0 {
            OPT_STRUCTURED_REPLY
        } else if self.dial.allocation && last != OPT_SET_META_CONTEXT {
            OPT_SET_META_CONTEXT
        } else {
            match self.dial.method {
                Method::Go => OPT_GO,
                Method::ExportName => OPT_EXPORT_NAME,
            }
        };
        let mut data = BytesMut::new();
        let name = self.dial.export.as_bytes();
        match next {
            OPT_SET_META_CONTEXT => {
                put_string(&mut data, name);
                data.put_u32(1);
                put_string(&mut data, Context::BaseAllocation.name().as_bytes());
            }
            OPT_GO => {
                put_string(&mut data, name);
                data.put_u16(2);
                data.put_u16(INFO_BLOCK_SIZE);
                data.put_u16(INFO_DESCRIPTION);
            }
            OPT_EXPORT_NAME => data.put_slice(name),
            _ => {}
        }
        put_option(output, next, &data);
        self.phase = if next == OPT_EXPORT_NAME { Phase::ExportName } else { Phase::Asked(next) };
    }

    fn export_name(&mut self, input: &mut BytesMut) -> Option<Agreed> {
        let padding = if self.no_zeroes { 0 } else { EXPORT_NAME_PADDING };
        if input.len() < padding.saturating_add(10) {
            return None;
        }
        self.agreed.size_bytes = input.get_u64();
        self.agreed.flags = TransmissionFlags::from_bits(input.get_u16());
        input.advance(padding);
        Some(self.agreed.clone())
    }

    /// Notes one answer; `None` if it does not fit the question.
    fn answer(&mut self, option: u32, kind: u32, mut body: Bytes) -> Option<()> {
        match (option, kind) {
            (OPT_STRUCTURED_REPLY, REP_ACK) => self.agreed.structured = true,
            (_, REP_ACK) => {}
            (OPT_SET_META_CONTEXT, REP_META_CONTEXT) => {
                let id = body.try_get_u32().ok()?;
                (body == Context::BaseAllocation.name()).then_some(())?;
                self.agreed.allocation = Some(id);
            }
            (OPT_GO, REP_INFO) => match body.try_get_u16().ok()? {
                INFO_EXPORT => {
                    self.agreed.size_bytes = body.try_get_u64().ok()?;
                    self.agreed.flags = TransmissionFlags::from_bits(body.try_get_u16().ok()?);
                }
                INFO_BLOCK_SIZE => {
                    let mut next = || body.try_get_u32().ok();
                    self.agreed.block_size = Some((next()?, next()?, next()?));
                }
                INFO_DESCRIPTION => {
                    self.agreed.description = Some(String::from_utf8(body.into()).ok()?);
                }
                // Servers may tell more than they were asked.
                _ => {}
            },
            _ => return None,
        }
        Some(())
    }
}

/// Appends an option; `data` is what a test or [`Dialing`] made, far below four gigabytes.
pub(super) fn put_option(output: &mut BytesMut, option: u32, data: &[u8]) {
    output.put_u64(OPTION_MAGIC);
    output.put_u32(option);
    output.put_u32(u32::try_from(data.len()).unwrap_or(u32::MAX));
    output.put_slice(data);
}

pub(super) fn put_string(output: &mut BytesMut, text: &[u8]) {
    output.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    output.put_slice(text);
}

/// Takes one answer to `option` off `input`: its type and its data.
pub(super) fn take_answer(
    input: &mut BytesMut,
    option: u32,
) -> Result<Option<(u32, Bytes)>, DialError> {
    let Some(mut head) = input.get(..OPTION_REPLY_LEN) else {
        return Ok(None);
    };
    let (magic, echoed, kind) = (head.get_u64(), head.get_u32(), head.get_u32());
    let len = head.get_u32();
    if magic != OPTION_REPLY_MAGIC || echoed != option {
        return Err(DialError::Answer(option));
    }
    if len > MAX_OPTION_LEN {
        return Err(DialError::TooLong(len));
    }
    if input.len() < OPTION_REPLY_LEN.saturating_add(len as usize) {
        return Ok(None);
    }
    input.advance(OPTION_REPLY_LEN);
    Ok(Some((kind, input.split_to(len as usize).freeze())))
}
