//! The requests under way, by token: who asked, for what, since when.

use std::rc::Rc;

use tokio::sync::oneshot;

use crate::core::{Command, Done, Fault, Now, Token};

/// What kind of request it is, for answers, figures and the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    Write,
    Zero,
    Unmap,
    Mend,
    Flush,
    Status,
}

/// A request in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The asker's own number for it.
    pub(crate) tag: u64,
    pub(crate) verb: Verb,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Asked {
    pub(crate) fn new(tag: u64, command: &Command) -> Self {
        let (verb, offset, len) = match command {
            Command::Read { offset, len } => (Verb::Read, *offset, *len),
            Command::Write { offset, data, .. } => {
                (Verb::Write, *offset, u32::try_from(data.len()).unwrap_or(u32::MAX))
            }
            Command::Zero { offset, len, .. } => (Verb::Zero, *offset, *len),
            Command::Unmap { offset, len } => (Verb::Unmap, *offset, *len),
            Command::Mend { offset, len } => (Verb::Mend, *offset, *len),
            Command::Flush | Command::Record => (Verb::Flush, 0, 0),
            Command::Status { offset, len } => (Verb::Status, *offset, *len),
        };
        Self { tag, verb, offset, len }
    }

    /// Bytes of memory it stands for while it is under way.
    pub(crate) fn weight(self) -> usize {
        match self.verb {
            Verb::Read | Verb::Write => self.len as usize,
            Verb::Zero | Verb::Unmap | Verb::Mend | Verb::Flush | Verb::Status => 0,
        }
    }
}

/// Somebody who asks often and is told without a task or a channel for each request.
pub(crate) trait Client {
    fn complete(self: Rc<Self>, asked: Asked, result: Result<Done, Fault>);
}

/// Where the answer goes.
pub(crate) enum Whom {
    Client(Rc<dyn Client>),
    Caller(oneshot::Sender<Result<Done, Fault>>),
}

pub(crate) struct Pending {
    pub(crate) whom: Whom,
    pub(crate) asked: Asked,
    pub(crate) since: Now,
}

/// Slots are used again; the token also carries how often, so that an old one finds nothing.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    round: u32,
    pending: Option<Pending>,
}

impl Table {
    pub(crate) fn insert(&mut self, pending: Pending) -> Token {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            slot.pending = Some(pending);
            return token(slot.round, index);
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot { round: 0, pending: Some(pending) });
        token(0, index)
    }

    pub(crate) fn remove(&mut self, Token(number): Token) -> Option<Pending> {
        let index = u32::try_from(number & u64::from(u32::MAX)).ok()?;
        let slot = self.slots.get_mut(index as usize)?;
        if token(slot.round, index) != Token(number) {
            return None;
        }
        let pending = slot.pending.take()?;
        slot.round = slot.round.wrapping_add(1);
        self.free.push(index);
        Some(pending)
    }
}

fn token(round: u32, index: u32) -> Token {
    Token(u64::from(round) << 32 | u64::from(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(tag: u64) -> Pending {
        let asked = Asked::new(tag, &Command::Flush);
        Pending { whom: Whom::Caller(oneshot::channel().0), asked, since: Now::ZERO }
    }

    #[test]
    fn a_token_is_good_once_and_its_slot_again() {
        let mut table = Table::default();
        let (first, second) = (table.insert(pending(1)), table.insert(pending(2)));
        assert_eq!(table.remove(first).map(|found| found.asked.tag), Some(1));
        assert!(table.remove(first).is_none());
        let third = table.insert(pending(3));
        assert_eq!(table.slots.len(), 2);
        assert!(table.remove(first).is_none());
        assert_eq!(table.remove(third).map(|found| found.asked.tag), Some(3));
        assert_eq!(table.remove(second).map(|found| found.asked.tag), Some(2));
        assert!(table.remove(Token(u64::MAX)).is_none());
    }
}
