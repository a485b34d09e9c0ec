//! Group commit: who waits for which flush. One flush runs at a time; whoever comes while it runs
//! shares the next one, because the running one may have passed by what they wrote.
//!
//! Never: I/O, threads. Those who wait are told through what they left here.

use std::rc::Rc;

use tokio::sync::oneshot;

use crate::disk::Error;
use crate::server::late::{Ack, LateReplies};

/// Somebody who wants to know when everything done so far is on disk.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// The reply of a frame, held back until then.
    Frame { late: Rc<LateReplies>, ack: Ack },
    /// A caller on another thread.
    Call(oneshot::Sender<Result<(), String>>),
}

#[derive(Debug, Default)]
pub(crate) struct Flushes {
    is_running: bool,
    /// For whom the running one is enough.
    covered: Vec<Waiter>,
    /// For whom it is not.
    next: Vec<Waiter>,
}

impl Flushes {
    pub(crate) fn wait(&mut self, waiter: Waiter) {
        self.next.push(waiter);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Whether a flush is to be started now.
    pub(crate) fn is_due(&self) -> bool {
        !self.is_running && !self.next.is_empty()
    }

    /// A flush began that covers everything done so far.
    pub(crate) fn began(&mut self) {
        self.is_running = true;
        self.covered.append(&mut self.next);
    }

    /// The flush that began last ended; tells those who waited for it.
    pub(crate) fn ended(&mut self, result: &Result<(), Error>) {
        self.is_running = false;
        let text = result.as_ref().err().map(Error::text);
        for waiter in self.covered.drain(..) {
            match waiter {
                Waiter::Frame { late, ack } => late.settle(ack, text.as_deref()),
                // Gone is fine: nobody wants to know any more.
                Waiter::Call(caller) => drop(caller.send(text.clone().map_or(Ok(()), Err))),
            }
        }
    }
}
