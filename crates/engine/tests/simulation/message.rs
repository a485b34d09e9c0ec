//! What goes over the network of the simulation.

use std::fmt;

use bytes::Bytes;
use engine::core::start::Layer;
use engine::machine::restore::View;
use wire::frame::{Answer, Request};
use wire::membership::{Claim, Standing};

use crate::store::Layers;

#[derive(Clone)]
pub(crate) enum Message {
    /// Data frames, on the connection of that number.
    Frame {
        session: u64,
        request: Request,
    },
    Answer {
        session: u64,
        answer: Answer,
    },
    /// The connection is gone.
    Reset {
        session: u64,
    },
    /// Another engine has the replica.
    CutOff {
        session: u64,
        generation: u64,
    },
    Call {
        call: u64,
        session: u64,
        /// What the engine claims; nothing where claims are not known.
        claim: Option<Claim>,
        request: Call,
    },
    Return {
        call: u64,
        result: Result<Return, String>,
    },
}

/// Calls of the control side.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    /// What the replica keeps of its engines; changes nothing.
    Look,
    /// Connects; frames of earlier connections are not taken any more.
    Open,
    Snapshot {
        name: String,
        /// A user asked for it.
        kept: bool,
    },
    Revert {
        name: String,
    },
    Expand {
        size: usize,
    },
    /// Connects, and empties the replica, which is to be filled.
    Prepare {
        size: usize,
    },
    /// Whether it counts as a replica.
    Mark {
        rebuilding: bool,
    },
    /// What it shows of itself and of backups.
    View,
    /// Begins to restore what the backup holds, and goes on by itself.
    Restore {
        backup: String,
        companions: Vec<String>,
        content: Bytes,
    },
    /// Begins to merge away what no user keeps, and goes on by itself.
    Purge,
    Fetch {
        name: String,
        offset: usize,
        len: usize,
    },
    Store {
        offset: usize,
        data: Bytes,
    },
    /// What else is copied.
    Counter,
    /// The copy is complete, with this counter.
    Finish {
        counter: i64,
        layers: Layers,
    },
}

impl Call {
    /// All copies are to do it together.
    pub(crate) fn is_for_all(&self) -> bool {
        matches!(
            self,
            Self::Snapshot { .. }
                | Self::Revert { .. }
                | Self::Expand { .. }
                | Self::Restore { .. }
        )
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Return {
    Looked(Option<Standing>),
    Opened(Box<Opened>),
    Data(Bytes),
    Counter { counter: i64, layers: Layers },
    View(Box<View>),
    Marked,
    Done,
}

/// What a replica says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub(crate) counter: i64,
    pub(crate) rebuilding: bool,
    pub(crate) standing: Option<Standing>,
    pub(crate) size: usize,
    pub(crate) chain: Vec<Layer>,
    /// By its own clock, which is right or not.
    pub(crate) modified_ns: i64,
}

impl fmt::Debug for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { session, request } => {
                write!(out, "s{session} ")?;
                match request {
                    Request::Write { sequence, offset, data } => {
                        write!(out, "write #{sequence:x} {offset} {}", data.len())
                    }
                    other => write!(out, "{other:?}"),
                }
            }
            Self::Answer { session, answer } => {
                write!(out, "s{session} answer #{:x} ", answer.sequence)?;
                match &answer.outcome {
                    wire::frame::Outcome::Data(data) => write!(out, "{} bytes", data.len()),
                    other => write!(out, "{other:?}"),
                }
            }
            Self::Reset { session } => write!(out, "s{session} reset"),
            Self::CutOff { session, generation } => write!(out, "s{session} cut off {generation}"),
            Self::Call { call, request: Call::Store { offset, .. }, .. } => {
                write!(out, "call {call} store {offset}")
            }
            Self::Call { call, request: Call::Finish { counter, .. }, .. } => {
                write!(out, "call {call} finish {counter}")
            }
            Self::Call { call, request: Call::Restore { backup, .. }, .. } => {
                write!(out, "call {call} restore {backup}")
            }
            Self::Call { call, request, .. } => write!(out, "call {call} {request:?}"),
            Self::Return { call, result: Ok(Return::Data(_)) } => write!(out, "return {call} data"),
            Self::Return { call, result: Ok(Return::Counter { counter, .. }) } => {
                write!(out, "return {call} counter {counter}")
            }
            Self::Return { call, result } => write!(out, "return {call} {result:?}"),
        }
    }
}
