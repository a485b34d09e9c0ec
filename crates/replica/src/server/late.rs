//! Replies that could not go out with their batch, because a flush has to end first. Filled by
//! whoever ends it, emptied by the task of the connection, both on the data thread.

use std::cell::{Cell, RefCell};

use tokio::sync::Notify;

use crate::server::outgoing::Outgoing;

/// The reply to a write, a zeroing, an unmap or a flush that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) sequence: u32,
    pub(crate) offset: i64,
    pub(crate) count: u32,
}

#[derive(Debug, Default)]
pub(crate) struct LateReplies {
    /// Acks that wait for a flush.
    waiting: Cell<usize>,
    ready: RefCell<Vec<(Ack, Option<String>)>>,
    wake: Notify,
}

impl LateReplies {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    pub(crate) fn hold(&self) {
        self.waiting.set(self.waiting.get() + 1);
    }

    /// What was held may go out; with a text, as an error.
    pub(crate) fn settle(&self, ack: Ack, error: Option<&str>) {
        self.waiting.set(self.waiting.get().saturating_sub(1));
        self.ready.borrow_mut().push((ack, error.map(str::to_owned)));
        self.wake.notify_one();
    }

    /// Ends when there is something to send; may end once too often.
    pub(crate) async fn filled(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn drain(&self, out: &mut Outgoing) {
        for (Ack { sequence, offset, count }, error) in self.ready.borrow_mut().drain(..) {
            match error {
                None => out.count(sequence, offset, count),
                Some(text) => out.error(sequence, offset, &text),
            }
        }
    }
}
