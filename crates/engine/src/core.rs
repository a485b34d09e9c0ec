//! The data path of one volume as a pure state machine: replica set, pending requests, order,
//! flushes, failures.
//!
//! Owns: which replica a request goes to, when a request is complete and how, which replica is at
//! fault. Never: sockets, clocks (times are handed in), gRPC. Inputs are the methods of [`Core`];
//! what is to be done comes back as [`Effect`]s, in order.

mod admit;
mod answer;
mod barrier;
mod changes;
mod drive;
mod flush;
mod full;
mod gate;
mod mask;
mod members;
pub(crate) mod newest;
mod op;
mod ranges;
mod reads;
mod record;
mod slab;
pub mod start;
#[cfg(test)]
mod tests;
mod timeouts;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use rpc::Features;
use wire::frame;

use self::barrier::Barrier;
pub(crate) use self::changes::SECTOR;
use self::flush::Flushes;
use self::gate::Gate;
use self::mask::bit;
use self::members::Members;
use self::ranges::RangeLocks;
use self::record::Records;
use self::slab::{Slab, Slot};

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
    /// Makes all copies of the range alike, as the one that is read from has it; in whole sectors.
    Mend {
        offset: u64,
        len: u32,
    },
    /// Which replicas hold the volume is on the disks of all of them when this completes.
    Record,
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

/// Something to be gone on with before the core comes to rest.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// A request that a hold kept back.
    Enter(Slot),
    /// A change for which an earlier one made room.
    Begin(Slot),
    /// All replicas that were asked have answered or failed.
    Settle(Slot),
}

/// The volume; see the module.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    size: u64,
    expanding: bool,
    members: Members,
    ops: Slab,
    locks: RangeLocks,
    gate: Gate,
    barrier: Barrier,
    records: Records,
    flushes: Flushes,
    work: VecDeque<Work>,
    /// Requests that are not completed.
    open: usize,
    /// Requests past the gate that are not over at all replicas.
    changes: usize,
    others: usize,
}

impl Core {
    /// A volume of no size with no replicas.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            size: 0,
            expanding: false,
            members: Members::default(),
            ops: Slab::default(),
            locks: RangeLocks::default(),
            gate: Gate::default(),
            barrier: Barrier::default(),
            records: Records::default(),
            flushes: Flushes::default(),
            work: VecDeque::new(),
            open: 0,
            changes: 0,
            others: 0,
        }
    }

    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    pub fn resize(&mut self, size_bytes: u64) {
        self.size = size_bytes;
    }

    /// While set, unmaps are refused.
    pub fn set_expanding(&mut self, expanding: bool) {
        self.expanding = expanding;
    }

    /// For requests submitted from now on.
    pub fn set_write_through(&mut self, on: bool) {
        self.settings.write_through = on;
    }

    /// Reads stick to this replica while it is `Rw`, because the others may hold something else;
    /// if it fails, to one other. `None`: each in turn.
    pub fn set_reader(&mut self, reader: Option<ReplicaId>) {
        self.members.set_reader(reader);
    }

    /// Takes a replica into the set. What is under way goes on without it: where that matters,
    /// hold changes meanwhile.
    pub fn add(&mut self, now: Now, features: Features, mode: Mode) -> ReplicaId {
        self.members.add(now, features, mode)
    }

    /// Takes a replica out of the set; what was asked of it is done without it. Unknown: nothing
    /// happens.
    pub fn remove(&mut self, now: Now, id: ReplicaId, out: &mut Vec<Effect>) {
        let Some(place) = self.members.place(id) else { return };
        let was_live = self.members.live_place(id).is_some();
        self.members.remove(place);
        if was_live {
            self.forget(place);
        }
        // Its place may be another's soon.
        for (_, op) in self.ops.iter_mut() {
            op.targets &= !bit(place);
            op.done &= !bit(place);
            op.full &= !bit(place);
        }
        self.run(now, out);
    }

    /// Moves a replica to another mode. One in `Err` stays there.
    pub fn set_mode(
        &mut self,
        now: Now,
        id: ReplicaId,
        mode: Mode,
        reason: &str,
        out: &mut Vec<Effect>,
    ) {
        let Some(place) = self.members.live_place(id) else { return };
        match mode {
            Mode::Rw | Mode::Wo => self.members.set_mode(place, mode),
            Mode::Err => self.fail(place, reason, out),
        }
        self.run(now, out);
    }

    /// In the order they were added.
    pub fn members(&self) -> Vec<Member> {
        self.members.list()
    }

    /// Takes a request. It completes once, in this call or in a later one.
    pub fn submit(&mut self, now: Now, token: Token, command: Command, out: &mut Vec<Effect>) {
        match self.admit(now, token, command) {
            Ok(op) => {
                self.open = self.open.saturating_add(1);
                let class = op.kind.class();
                let slot = self.ops.insert(op);
                if self.gate.keeps(class) {
                    self.gate.queue(slot, class);
                } else {
                    self.enter(now, slot, out);
                }
            }
            Err(result) => out.push(Effect::Complete { token, result }),
        }
        self.run(now, out);
    }

    /// A replica answered. Answers of one that is `Err` or gone are ignored.
    pub fn reply(&mut self, now: Now, id: ReplicaId, answer: frame::Answer, out: &mut Vec<Effect>) {
        if let Some(place) = self.members.live_place(id) {
            self.take_answer(now, place, answer, out);
            self.run(now, out);
        }
    }

    /// A replica's connections are gone.
    pub fn lost(&mut self, now: Now, id: ReplicaId, reason: &str, out: &mut Vec<Effect>) {
        self.set_mode(now, id, Mode::Err, reason, out);
    }

    /// To be called about once a second.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.check_silence(now, out);
        self.run(now, out);
        self.send_pings(now, out);
    }

    /// Asks for a hold; [`Effect::Held`] says when it is in force. It lasts until released.
    ///
    /// While a hold is in force in which a replica fails, flushes wait for its end.
    pub fn hold(&mut self, now: Now, hold: Hold, out: &mut Vec<Effect>) -> HoldId {
        let id = self.gate.add(hold);
        self.run(now, out);
        id
    }

    /// Ends a hold, or gives it up before it is in force. Unknown: nothing happens.
    pub fn release(&mut self, now: Now, id: HoldId, out: &mut Vec<Effect>) {
        let work = &mut self.work;
        self.gate.release(id, |slot| work.push_back(Work::Enter(slot)));
        self.run(now, out);
    }

    /// Requests that were submitted and are not completed.
    pub fn in_flight(&self) -> usize {
        self.open
    }
}
