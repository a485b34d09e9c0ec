//! What the data thread owns: the replica, and who waits for its flushes. Everything here runs on
//! that thread; nothing is locked.

use std::cell::RefCell;
use std::rc::Rc;

use tokio::task::{JoinError, spawn_blocking, spawn_local};

use crate::disk::{Error, Flush, Flushed, OpenRequest, Replica, State};
use crate::server::flushes::{Flushes, Waiter};

/// When a write may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Once it is on disk: the engine has not shown yet that it can flush.
    WriteThrough,
    /// At once: the engine says when it wants everything on disk.
    OnFlush,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) replica: Replica,
    pub(crate) durability: Durability,
    flushes: Flushes,
}

/// The core, for the tasks of the data thread. Never borrowed across an await.
pub(crate) type Shared = Rc<RefCell<Core>>;

impl Core {
    pub(crate) fn new(replica: Replica) -> Self {
        Self { replica, durability: Durability::WriteThrough, flushes: Flushes::default() }
    }

    pub(crate) fn open(&mut self, request: &OpenRequest) -> Result<(), Error> {
        self.replica.open(request)?;
        // Which engine will come is not known yet.
        self.durability = Durability::WriteThrough;
        Ok(())
    }

    /// Why a ping fails, if it does.
    pub(crate) fn ailment(&self) -> Option<String> {
        match self.replica.state() {
            State::Open | State::Dirty | State::Rebuilding => self.replica.refusal(),
            state @ (State::Initial | State::Closed | State::Error) => {
                Some(format!("replica is in state {state}"))
            }
        }
    }

    /// Starts nothing: see [`start_due_flush`].
    pub(crate) fn await_flush(&mut self, waiter: Waiter) {
        self.flushes.wait(waiter);
    }

    fn end_flush(&mut self, flushed: Flushed) {
        let result = self.replica.end_flush(flushed);
        if let Err(error) = &result {
            tracing::error!(error = error.text(), "flush failed; the replica does no more I/O");
        }
        self.flushes.ended(&result);
    }
}

/// Waits for the disk on other threads.
async fn run_aside(flush: Flush) -> Result<Flushed, JoinError> {
    let (images, counter) = flush.split();
    let counter = counter.map(|counter| spawn_blocking(|| counter.run()));
    let flushed = spawn_blocking(|| images.run()).await?;
    match counter {
        Some(counter) => Ok(flushed.and(counter.await?)),
        None => Ok(flushed),
    }
}

/// Starts a flush if somebody waits for one and none runs. The waiting for the disk is done on
/// another thread; I/O goes on meanwhile.
pub(crate) fn start_due_flush(shared: &Shared) {
    let mut core = shared.borrow_mut();
    if !core.flushes.is_due() {
        return;
    }
    core.flushes.began();
    match core.replica.start_flush() {
        Err(error) => core.flushes.ended(&Err(error)),
        Ok(flush) if flush.is_idle() => core.end_flush(flush.run()),
        Ok(flush) => {
            drop(core);
            let shared = Rc::clone(shared);
            spawn_local(async move {
                match run_aside(flush).await {
                    Ok(flushed) => shared.borrow_mut().end_flush(flushed),
                    // The process is ending, or a bug: either way nobody may hear that it is done.
                    Err(error) => return tracing::error!(%error, "flush did not end"),
                }
                start_due_flush(&shared);
            });
        }
    }
}
