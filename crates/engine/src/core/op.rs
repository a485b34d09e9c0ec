//! One request under way, and the core's own: flush rounds, marks, pings.

use bytes::Bytes;

use super::full::Evening;
use super::mask::Mask;
use super::slab::Slot;
use super::{Done, Fault, Now, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Status,
    Write,
    Zero,
    Unmap,
    Mend,
    Flush,
    /// Wants a mark.
    Record,
    /// Moves the replicas' counters past that of one that failed; see `barrier`.
    Mark,
    /// A flush frame to every replica, for all who wait for one.
    Round,
    Ping,
}

/// What a hold keeps out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Change,
    Other,
}

impl Kind {
    /// That of a client's request; the core's own go through no gate and count as changes.
    pub(super) fn class(self) -> Class {
        match self {
            Self::Write | Self::Zero | Self::Unmap | Self::Mend | Self::Record | Self::Mark => {
                Class::Change
            }
            Self::Read | Self::Status | Self::Flush | Self::Round | Self::Ping => Class::Other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Kept back by a hold.
    Held,
    /// An earlier change of the same place is under way.
    Waiting,
    /// One replica was asked for what the client wants to know.
    Reading,
    /// One replica was asked for what is to be written to all.
    Fetching,
    /// Replicas were asked to do it.
    Applying,
    /// Done; what was under way when a replica failed is not.
    Parked,
    /// Done, and to be on disk before it completes.
    Flushing,
}

#[derive(Debug)]
pub(super) struct Op {
    /// None: the core's own, or the client was told already.
    pub(super) token: Option<Token>,
    pub(super) kind: Kind,
    pub(super) step: Step,
    pub(super) durable: bool,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) data: Bytes,
    pub(super) asked: Now,
    pub(super) sent: Now,
    /// Done up to here.
    pub(super) cursor: u64,
    /// The part under way ends here.
    pub(super) piece_end: u64,
    /// Bytes of the frames of the part under way.
    pub(super) frame_len: u32,
    /// Replicas that have done all of it so far.
    pub(super) targets: Mask,
    pub(super) awaiting: Mask,
    pub(super) done: Mask,
    pub(super) full: Mask,
    /// Up to where those got that ran full and say so.
    pub(super) reached: Vec<(usize, u64)>,
    pub(super) evening: Option<Evening>,
    pub(super) count: u32,
    /// Of an unmap: what the replicas said of their layers, and whether they disagreed.
    pub(super) layout: Option<i64>,
    pub(super) differs: bool,
    pub(super) epoch: u64,
    /// Earlier changes of the same place, and later ones.
    pub(super) blockers: u32,
    pub(super) blocked: Vec<Slot>,
    pub(super) result: Option<Result<Done, Fault>>,
}

impl Op {
    pub(super) fn inner(kind: Kind) -> Self {
        Self {
            token: None,
            kind,
            step: Step::Held,
            durable: false,
            offset: 0,
            len: 0,
            data: Bytes::new(),
            asked: Now::ZERO,
            sent: Now::ZERO,
            cursor: 0,
            piece_end: 0,
            frame_len: 0,
            targets: 0,
            awaiting: 0,
            done: 0,
            full: 0,
            reached: Vec::new(),
            evening: None,
            count: 0,
            layout: None,
            differs: false,
            epoch: 0,
            blockers: 0,
            blocked: Vec::new(),
            result: None,
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }

    /// A replica did an unmap. Two that decided by different layers may read differently there, and
    /// so may one that does not tell by which.
    pub(super) fn unmapped(&mut self, count: u32, layout: Option<i64>) {
        if self.kind != Kind::Unmap {
            return;
        }
        let is_first = self.done.is_power_of_two();
        self.differs |= !is_first && self.layout != layout;
        if is_first {
            self.layout = layout;
        }
        self.count = self.count.max(count);
    }

    /// The client was told that it failed; nothing more is begun for it.
    pub(super) fn is_abandoned(&self) -> bool {
        match self.kind {
            Kind::Mark | Kind::Round | Kind::Ping => false,
            Kind::Read
            | Kind::Status
            | Kind::Write
            | Kind::Zero
            | Kind::Unmap
            | Kind::Mend
            | Kind::Record
            | Kind::Flush => self.token.is_none(),
        }
    }
}
