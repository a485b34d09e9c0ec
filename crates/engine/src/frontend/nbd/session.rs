//! A connection in its transmission phase.
//!
//! Owns: what each NBD command means to the volume, and the answers. Reads and writes go straight
//! to the core; what takes more than one step runs beside them.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use wire::nbd::{
    self, CommandFlags, Context, Errno, ExtentFlags, Frame, MAX_EXTENTS, MAX_PAYLOAD, Request,
    Session, shape,
};

use crate::core::{Command, Done, Fault};
use crate::frontend::conn::{Conn, Protocol};
use crate::frontend::parting::Told;
use crate::volume::outlet::Piece;
use crate::volume::pending::{Asked, Verb};

/// Zeros sent at a time where they must take up space.
const ZEROS: u32 = 1 << 20;

pub(crate) struct Speaker {
    session: RefCell<Session>,
}

impl Speaker {
    pub(crate) fn new(session: Session) -> Self {
        Self { session: RefCell::new(session) }
    }

    /// Follows the size of the volume, which may have grown since the negotiation.
    fn resize(&self, size_bytes: u64) {
        let mut session = self.session.borrow_mut();
        if session.export.size_bytes() != size_bytes
            && let Ok(export) = session.export.clone().resized(size_bytes)
        {
            session.export = export;
        }
    }

    fn failed(&self, cookie: u64, errno: Errno, message: &str) -> Frame {
        self.session.borrow().failed(&about(cookie), errno, message)
    }

    fn done(&self, cookie: u64) -> Frame {
        self.session.borrow().done(cookie)
    }

    fn data(&self, cookie: u64, offset: u64, data: Bytes) -> Frame {
        let framed = self.session.borrow().data(cookie, offset, data);
        framed.unwrap_or_else(|error| self.failed(cookie, Errno::Io, &error.to_string()))
    }

    fn fault(&self, cookie: u64, verb: Verb, fault: &Fault) -> Frame {
        let errno = match (fault, verb) {
            (Fault::NoSpace, _) | (Fault::Beyond { .. }, Verb::Write | Verb::Zero) => Errno::NoSpc,
            (
                Fault::Beyond { .. },
                Verb::Read | Verb::Unmap | Verb::Mend | Verb::Flush | Verb::Status,
            ) => Errno::Inval,
            (Fault::Io(_), _) => Errno::Io,
            (Fault::Refused(_), _) => Errno::NotSup,
        };
        self.failed(cookie, errno, &fault.to_string())
    }

    /// The answer to a command that gives back nothing.
    fn ended(&self, cookie: u64, verb: Verb, result: Result<Done, Fault>) -> Frame {
        match result {
            Ok(_) => self.done(cookie),
            Err(fault) => self.fault(cookie, verb, &fault),
        }
    }

    fn status(&self, request: &Request, len: u32, result: Result<Done, Fault>) -> Frame {
        let cookie = request.cookie;
        let runs = match result {
            Ok(Done::Runs(runs)) => runs,
            Ok(Done::Data(_) | Done::Count(_)) => Vec::new(),
            Err(fault) => return self.fault(cookie, Verb::Status, &fault),
        };
        let one = request.flags.contains(CommandFlags::REQ_ONE);
        let most = if one { 1 } else { MAX_EXTENTS };
        let hole = ExtentFlags::HOLE.with(ExtentFlags::ZERO);
        let known = runs
            .into_iter()
            .map(|run| (u64::from(run.len), if run.hole { hole } else { ExtentFlags::NONE }));
        let mut extents = shape(known, len, most);
        if extents.is_empty() {
            // Nothing is known of it: it may be data.
            extents = shape([(u64::from(len), ExtentFlags::NONE)], len, 1);
        }
        let framed = self.session.borrow().status(cookie, Context::BaseAllocation, extents);
        framed.unwrap_or_else(|error| self.failed(cookie, Errno::Io, &error.to_string()))
    }
}

/// A request of which only the cookie counts.
fn about(cookie: u64) -> Request {
    Request { cookie, flags: CommandFlags::NONE, command: nbd::Command::Flush }
}

impl Protocol for Speaker {
    type Request = Request;

    fn decode(&self, bytes: &mut BytesMut) -> Result<Option<Request>, String> {
        nbd::decode_request(bytes, MAX_PAYLOAD).map_err(|error| error.to_string())
    }

    fn take(conn: &Rc<Conn<Self>>, request: Request) -> ControlFlow<()> {
        if matches!(request.command, nbd::Command::Disconnect) {
            return ControlFlow::Break(());
        }
        conn.protocol.resize(conn.hub.size_bytes());
        let checked = conn.protocol.session.borrow().check(&request);
        match checked {
            Ok(()) => perform(conn, request),
            Err(errno) => {
                let text = "the request does not fit the export";
                conn.send(conn.protocol.failed(request.cookie, errno, text));
            }
        }
        ControlFlow::Continue(())
    }

    fn answer(&self, asked: Asked, result: Result<Done, Fault>) -> Piece {
        let frame = match result {
            Ok(Done::Data(data)) => self.data(asked.tag, asked.offset, data),
            other => self.ended(asked.tag, asked.verb, other),
        };
        frame.into()
    }

    fn told(&self) -> Option<Told> {
        let session = self.session.borrow();
        Some(Told {
            export: session.export.name().to_owned(),
            flags: session.export.flags().bits(),
            structured: session.structured,
            status: !session.contexts.is_empty(),
        })
    }

    /// The protocol has none: a server closes the connection.
    fn farewell(&self) -> Option<Piece> {
        None
    }
}

/// Carries out a request that passed every check.
fn perform(conn: &Rc<Conn<Speaker>>, request: Request) {
    let Request { cookie, flags, .. } = request;
    let durable = flags.contains(CommandFlags::FUA);
    match request.command {
        nbd::Command::Read { offset, len: 0 } => {
            conn.send(conn.protocol.data(cookie, offset, Bytes::new()));
        }
        nbd::Command::Trim { len: 0, .. } | nbd::Command::WriteZeroes { len: 0, .. } => {
            conn.send(conn.protocol.done(cookie));
        }
        nbd::Command::Write { ref data, .. } if data.is_empty() => {
            conn.send(conn.protocol.done(cookie));
        }
        nbd::Command::Read { offset, len } => conn.submit(cookie, Command::Read { offset, len }),
        nbd::Command::Write { offset, data } => {
            conn.submit(cookie, Command::Write { offset, data, durable });
        }
        nbd::Command::Flush => conn.submit(cookie, Command::Flush),
        // Replicas keep what they have in the page cache as they see fit.
        nbd::Command::Cache { .. } => conn.send(conn.protocol.done(cookie)),
        nbd::Command::Trim { offset, len } if durable => {
            conn.run(0, trim(conn, cookie, offset, len));
        }
        nbd::Command::Trim { offset, len } => conn.submit(cookie, Command::Unmap { offset, len }),
        nbd::Command::WriteZeroes { offset, len } => zero(conn, cookie, flags, offset, len),
        nbd::Command::BlockStatus { offset, len } => {
            let speaker = Rc::clone(conn);
            conn.run(0, async move {
                let result = speaker.hub.call(Command::Status { offset, len }).await;
                speaker.protocol.status(&request_of(cookie, flags), len, result)
            });
        }
        nbd::Command::Resize { .. } | nbd::Command::Disconnect | nbd::Command::Unknown(_) => {
            conn.send(conn.protocol.failed(cookie, Errno::NotSup, "not served"));
        }
    }
}

fn request_of(cookie: u64, flags: CommandFlags) -> Request {
    Request { flags, ..about(cookie) }
}

/// A trim that is on disk before it is answered.
fn trim(
    conn: &Rc<Conn<Speaker>>,
    cookie: u64,
    offset: u64,
    len: u32,
) -> impl Future<Output = Frame> + use<> {
    let conn = Rc::clone(conn);
    async move {
        let mut result = conn.hub.call(Command::Unmap { offset, len }).await;
        if result.is_ok() {
            result = conn.hub.call(Command::Flush).await;
        }
        conn.protocol.ended(cookie, Verb::Unmap, result)
    }
}

fn zero(conn: &Rc<Conn<Speaker>>, cookie: u64, flags: CommandFlags, offset: u64, len: u32) {
    let keep_space = flags.contains(CommandFlags::NO_HOLE);
    let durable = flags.contains(CommandFlags::FUA);
    let fast = conn.hub.zeroes_fast() && !keep_space;
    if flags.contains(CommandFlags::FAST_ZERO) && !fast {
        let text = "zeroing is no faster than writing zeros here";
        conn.send(conn.protocol.failed(cookie, Errno::NotSup, text));
    } else if fast {
        conn.submit(cookie, Command::Zero { offset, len, durable });
    } else {
        conn.run(len.min(ZEROS), write_zeros(conn, cookie, offset, len, durable));
    }
}

/// Writes zeros that take up space, piece by piece.
fn write_zeros(
    conn: &Rc<Conn<Speaker>>,
    cookie: u64,
    offset: u64,
    len: u32,
    durable: bool,
) -> impl Future<Output = Frame> + use<> {
    let conn = Rc::clone(conn);
    async move {
        let zeros = Bytes::from(vec![0; len.min(ZEROS) as usize]);
        let (mut at, mut left) = (offset, len);
        let mut result = Ok(Done::Count(0));
        while left > 0 && result.is_ok() {
            let count = left.min(ZEROS);
            let data = zeros.slice(..count as usize);
            result = conn.hub.call(Command::Write { offset: at, data, durable: false }).await;
            at = at.saturating_add(u64::from(count));
            left = left.saturating_sub(count);
        }
        if durable && result.is_ok() {
            result = conn.hub.call(Command::Flush).await;
        }
        conn.protocol.ended(cookie, Verb::Zero, result)
    }
}
