//! The data path of one volume as a pure state machine: replica set, pending requests, order,
//! flushes, failures.
//!
//! Owns: which replica a request goes to, when a request is complete and how, which replica is at
//! fault. Never: sockets, clocks (times are handed in), gRPC. Inputs are the methods of [`Core`];
//! what is to be done comes back as [`Effect`]s, in order.

use std::time::Duration;

use bytes::Bytes;
use rpc::Features;
use wire::frame;

/// One replica of this volume; never used again for another in the life of a [`Core`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u32);

/// What a replica is used for. `Err` is for good: a replica leaves it only by being removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Read from and written to.
    Rw,
    /// Written to while it is rebuilt or restored.
    Wo,
    Err,
}

/// Names a request to whoever submitted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Time since some fixed moment; only differences count.
pub type Now = Duration;

/// What a frontend asks for. Ranges are checked by the core against the volume's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Read {
        offset: u64,
        len: u32,
    },
    /// With `durable`, on every replica's disk before it completes.
    Write {
        offset: u64,
        data: Bytes,
        durable: bool,
    },
    /// Reads as zeros afterwards.
    Zero {
        offset: u64,
        len: u32,
        durable: bool,
    },
    /// May read as anything the layers below hold; a hint.
    Unmap {
        offset: u64,
        len: u32,
    },
    /// Everything completed before is on every replica's disk when this completes.
    Flush,
    /// Which parts of the range hold data.
    Status {
        offset: u64,
        len: u32,
    },
}

/// How a request ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    Data(Bytes),
    /// Bytes written, zeroed or freed; 0 for a flush.
    Count(u32),
    /// From the offset asked for; may cover less than was asked, never nothing.
    Runs(Vec<frame::Run>),
}

/// How a request ended badly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The text callers match: `EOF: Read of N bytes at offset O is beyond volume size S`.
    #[error("EOF: {verb} of {len} bytes at offset {offset} is beyond volume size {size}")]
    Beyond { verb: &'static str, offset: i128, len: u64, size: u64 },
    #[error("{}", frame::NO_SPACE_TEXT)]
    NoSpace,
    /// No replica is left that could serve it; the text says what became of each.
    #[error("{0}")]
    Io(String),
    /// Refused as things are now, for instance an unmap during an expansion.
    #[error("{0}")]
    Refused(String),
}

/// What the driver of a [`Core`] must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Send {
        replica: ReplicaId,
        request: frame::Request,
    },
    Complete {
        token: Token,
        result: Result<Done, Fault>,
    },
    /// The replica is `Err` from now on: close its connections, tell the control side.
    Failed {
        replica: ReplicaId,
        reason: String,
    },
    /// The hold asked for is in force: nothing that it keeps out is in flight at any replica.
    Held(HoldId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HoldId(pub u64);

/// What waits while a hold is in force. Requests queue up and go on in order when it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Writes, zeroes and unmaps: one point in the stream of changes. With `flush`, everything
    /// before it is on disk too when the hold is in force.
    Changes { flush: bool },
    /// Everything.
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// A replica with requests in flight from which nothing came for this long is at fault; the
    /// last one that can be read gets twice as long and is never dropped for slowness alone.
    pub replica_timeout: Duration,
    pub ping_interval: Duration,
    /// Complete changes only when they are on every replica's disk: for frontends whose clients
    /// cannot ask for a flush.
    pub write_through: bool,
}

/// A replica as the core sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: ReplicaId,
    pub mode: Mode,
    pub features: Features,
    /// Why it is `Err`.
    pub reason: Option<String>,
}
