//! What a finished negotiation agreed on, and what follows from it for every request and reply.

use super::reply::{encode_chunk, encode_simple};
use super::{
    Chunk, Command, CommandFlags, Errno, Export, Extent, Frame, ReplyError, Request,
    TransmissionFlags, check_range,
};
use bytes::Bytes;

/// A kind of block status this server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    BaseAllocation,
}

impl Context {
    pub(super) const ALL: [Self; 1] = [Self::BaseAllocation];

    /// The number that stands for the context in block status replies.
    pub const fn id(self) -> u32 {
        match self {
            Self::BaseAllocation => 1,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::BaseAllocation => "base:allocation",
        }
    }
}

/// A connection in its transmission phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The export, with the flags this client was told.
    pub export: Export,
    /// The client understands structured replies, and reads must be answered with them.
    pub structured: bool,
    /// What block status reports; empty if the client may not ask for it.
    pub contexts: Vec<Context>,
    /// The connection is inside TLS.
    pub encrypted: bool,
}

impl Session {
    /// Whether the client may send this request. What passes can be handed to the volume as it is.
    ///
    /// # Errors
    /// The error number to answer with; the connection goes on.
    pub fn check(&self, request: &Request) -> Result<(), Errno> {
        let offered = |flag| self.export.flags().contains(flag);
        let known = match &request.command {
            Command::Read { .. } | Command::Write { .. } | Command::Disconnect => true,
            Command::Flush => offered(TransmissionFlags::SEND_FLUSH),
            Command::Trim { .. } => offered(TransmissionFlags::SEND_TRIM),
            Command::Cache { .. } => offered(TransmissionFlags::SEND_CACHE),
            Command::WriteZeroes { .. } => offered(TransmissionFlags::SEND_WRITE_ZEROES),
            Command::Resize { .. } => offered(TransmissionFlags::SEND_RESIZE),
            Command::BlockStatus { .. } => !self.contexts.is_empty(),
            Command::Unknown(_) => false,
        };
        if !known || request.flags.without(self.allowed_flags(&request.command)).bits() != 0 {
            return Err(Errno::Inval);
        }
        check_range(request, &self.export)
    }

    /// The flags that mean something for a command on this connection.
    fn allowed_flags(&self, command: &Command) -> CommandFlags {
        let offered = |flag| self.export.flags().contains(flag);
        let when = |condition, flag| if condition { flag } else { CommandFlags::NONE };
        // Once offered, FUA may come with any command, also where it means nothing.
        let common = when(offered(TransmissionFlags::SEND_FUA), CommandFlags::FUA);
        common.with(match command {
            Command::Read { .. } => when(offered(TransmissionFlags::SEND_DF), CommandFlags::DF),
            Command::WriteZeroes { .. } => CommandFlags::NO_HOLE
                .with(when(offered(TransmissionFlags::SEND_FAST_ZERO), CommandFlags::FAST_ZERO)),
            Command::BlockStatus { .. } => CommandFlags::REQ_ONE,
            Command::Write { .. }
            | Command::Disconnect
            | Command::Flush
            | Command::Trim { .. }
            | Command::Cache { .. }
            | Command::Resize { .. }
            | Command::Unknown(_) => CommandFlags::NONE,
        })
    }

    /// The reply to a command that went well and has nothing to give back.
    pub fn done(&self, cookie: u64) -> Frame {
        // Allowed also where structured replies are spoken, and the shortest.
        encode_simple(cookie, Ok(()), Bytes::new())
    }

    /// The reply to a read of the bytes at `offset`.
    ///
    /// # Errors
    /// If there are more bytes than a reply can carry, which no read that passed the check asks.
    pub fn data(&self, cookie: u64, offset: u64, data: Bytes) -> Result<Frame, ReplyError> {
        // A chunk of data is never empty.
        if self.structured && data.is_empty() {
            encode_chunk(cookie, &Chunk::None, true)
        } else if self.structured {
            encode_chunk(cookie, &Chunk::Data { offset, data }, true)
        } else {
            Ok(encode_simple(cookie, Ok(()), data))
        }
    }

    /// The reply to a read of which nothing is stored: a hole, where the client understands it.
    ///
    /// # Errors
    /// As [`Self::data`].
    pub fn hole(&self, cookie: u64, offset: u64, len: u32) -> Result<Frame, ReplyError> {
        if self.structured && len > 0 {
            encode_chunk(cookie, &Chunk::Hole { offset, len }, true)
        } else {
            self.data(cookie, offset, Bytes::from(vec![0; len as usize]))
        }
    }

    /// The reply to a block status request for one context.
    ///
    /// # Errors
    /// If there are more extents than a reply can carry; [`shape`](super::shape) bounds them.
    pub fn status(
        &self,
        cookie: u64,
        context: Context,
        extents: Vec<Extent>,
    ) -> Result<Frame, ReplyError> {
        encode_chunk(cookie, &Chunk::BlockStatus { context: context.id(), extents }, true)
    }

    /// The reply to a command that failed. The message is for people and reaches only clients that
    /// understand structured replies.
    pub fn failed(&self, request: &Request, errno: Errno, message: &str) -> Frame {
        let simple = || encode_simple(request.cookie, Err(errno), Bytes::new());
        if !self.structured {
            return simple();
        }
        let chunk = Chunk::Error { errno, message: message.to_owned() };
        // Messages are cut to fit, so this cannot fail; a simple reply would still say the error.
        encode_chunk(request.cookie, &chunk, true).unwrap_or_else(|_| simple())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::BlockSize;

    fn session(flags: TransmissionFlags) -> Session {
        let export = Export::new("v", 1 << 20, flags, BlockSize::default()).unwrap();
        Session { export, structured: true, contexts: Context::ALL.to_vec(), encrypted: false }
    }

    fn commands() -> [Command; 9] {
        let (offset, len) = (0, 512);
        [
            Command::Read { offset, len },
            Command::Write { offset, data: Bytes::from_static(b"x") },
            Command::Disconnect,
            Command::Flush,
            Command::Trim { offset, len },
            Command::Cache { offset, len },
            Command::WriteZeroes { offset, len },
            Command::BlockStatus { offset, len },
            Command::Resize { size_bytes: 512 },
        ]
    }

    /// For each command, what `session` says to it with `flags`.
    fn allowed(session: &Session, flags: CommandFlags) -> [bool; 9] {
        commands().map(|command| session.check(&Request { cookie: 1, flags, command }).is_ok())
    }

    const ALL: TransmissionFlags = TransmissionFlags::VOLUME.with(TransmissionFlags::SEND_RESIZE);

    #[test]
    fn only_what_was_offered_is_served() {
        assert_eq!(allowed(&session(ALL), CommandFlags::NONE), [true; 9]);
        let bare = Session { contexts: vec![], ..session(TransmissionFlags::NONE) };
        let three = [true, true, true, false, false, false, false, false, false];
        assert_eq!(allowed(&bare, CommandFlags::NONE), three);
        let unknown =
            Request { cookie: 1, flags: CommandFlags::NONE, command: Command::Unknown(9) };
        assert_eq!(session(ALL).check(&unknown), Err(Errno::Inval));
    }

    #[test]
    fn flags_are_served_where_they_mean_something() {
        let only = |index: usize| std::array::from_fn(|i| i == index);
        let full = session(ALL);
        assert_eq!(allowed(&full, CommandFlags::FUA), [true; 9]);
        assert_eq!(allowed(&full, CommandFlags::DF), only(0));
        assert_eq!(allowed(&full, CommandFlags::NO_HOLE), only(6));
        assert_eq!(allowed(&full, CommandFlags::FAST_ZERO), only(6));
        assert_eq!(allowed(&full, CommandFlags::REQ_ONE), only(7));
        assert_eq!(allowed(&full, CommandFlags::from_bits(1 << 5)), [false; 9]);
        let bare = session(TransmissionFlags::SEND_WRITE_ZEROES);
        assert_eq!(allowed(&bare, CommandFlags::FUA), [false; 9]);
        assert_eq!(allowed(&bare, CommandFlags::DF), [false; 9]);
        assert_eq!(allowed(&bare, CommandFlags::FAST_ZERO), [false; 9]);
        assert_eq!(allowed(&bare, CommandFlags::NO_HOLE), only(6));
    }

    #[test]
    fn reads_are_answered_in_the_style_agreed_on() {
        let structured = session(ALL);
        let simple = Session { structured: false, ..session(ALL) };
        let magic = |frame: Frame| frame.head.as_slice()[..4].to_vec();
        let data = Bytes::from_static(b"data");
        let read = Request {
            cookie: 1,
            flags: CommandFlags::NONE,
            command: Command::Read { offset: 0, len: 4 },
        };
        let flush = Request { command: Command::Flush, ..read.clone() };
        let chunk = [0x66, 0x8e, 0x33, 0xef];
        let plain = [0x67, 0x44, 0x66, 0x98];
        assert_eq!(magic(structured.data(1, 0, data.clone()).unwrap()), chunk);
        assert_eq!(magic(structured.data(1, 0, Bytes::new()).unwrap()), chunk);
        assert_eq!(magic(structured.failed(&read, Errno::Io, "lost")), chunk);
        assert_eq!(magic(structured.failed(&flush, Errno::Io, "lost")), chunk);
        assert_eq!(magic(structured.done(1)), plain);
        assert_eq!(magic(simple.data(1, 0, data).unwrap()), plain);
        assert_eq!(magic(simple.failed(&read, Errno::Io, "lost")), plain);
        assert_eq!(magic(simple.failed(&flush, Errno::Io, "lost")), plain);
        assert_eq!(structured.hole(1, 0, 512).unwrap().payload, Bytes::new());
        assert_eq!(simple.hole(1, 0, 512).unwrap().payload, Bytes::from(vec![0; 512]));
    }
}
