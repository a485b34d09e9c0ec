//! What the data thread owns: the replica, and who waits for its flushes. Everything here runs on
//! that thread; nothing is locked.

use std::cell::RefCell;
use std::rc::Rc;

use tokio::task::{JoinError, spawn_blocking, spawn_local};

use durable::{DirLock, LockError};
use wire::membership::{Claim, Standing};

use crate::disk::{Error, Flush, Flushed, OpenRequest, Replica, State};
use crate::server::flushes::{Flushes, Waiter};
use crate::server::handover::{self, HandoverError};
use crate::server::owner::{Owner, OwnerError};

/// When a write may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Once it is on disk: the engine has not shown yet that it can flush.
    WriteThrough,
    /// At once: the engine says when it wants everything on disk.
    OnFlush,
}

/// How an engine opens a replica that it claims.
#[derive(Debug, Clone)]
pub(crate) struct Claiming {
    pub(crate) claim: Claim,
    /// The copy joins a volume to be filled.
    pub(crate) adopt: bool,
}

/// Why a replica is not opened, or not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CoreError {
    #[error("{}", .0.text())]
    Disk(#[from] Error),
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Handover(#[from] HandoverError),
}

/// Whether the directory is the next process's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandedOver {
    /// A flush has yet to end.
    NotYet,
    Done,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) replica: Replica,
    pub(crate) durability: Durability,
    pub(crate) owner: Owner,
    /// Held from the first use of the directory to the end of the process.
    lock: Option<DirLock>,
    flushes: Flushes,
}

/// The core, for the tasks of the data thread. Never borrowed across an await.
pub(crate) type Shared = Rc<RefCell<Core>>;

impl Core {
    pub(crate) fn new(replica: Replica) -> Self {
        let owner = Owner::new(replica.dir());
        Self {
            replica,
            durability: Durability::WriteThrough,
            owner,
            lock: None,
            flushes: Flushes::default(),
        }
    }

    /// Makes the directory ours, if there is one: two processes that serve it would each change
    /// what the other has read.
    pub(crate) fn hold_directory(&mut self) -> Result<(), CoreError> {
        let is_ours = self.lock.is_some() || self.replica.is_shared();
        if !is_ours && self.replica.dir().is_dir() {
            self.lock = Some(DirLock::acquire(self.replica.dir())?);
            self.owner.look_again();
        }
        Ok(())
    }

    pub(crate) fn holds_directory(&self) -> bool {
        self.lock.is_some()
    }

    /// Before the first I/O after an upgrade: the process before this one lets go of the directory,
    /// and what it left is what counts.
    pub(crate) fn take_over(&mut self) -> Result<(), CoreError> {
        if !self.replica.is_shared() || self.lock.is_some() {
            return Ok(());
        }
        self.lock = Some(handover::take(self.replica.dir())?);
        Ok(self.owner.reassert()?)
    }

    /// Takes the directory from the process that holds it, if another does.
    fn take_directory(&mut self) -> Result<(), CoreError> {
        if self.lock.is_none() && self.replica.dir().is_dir() {
            self.lock = Some(handover::take(self.replica.dir())?);
            self.owner.look_again();
        }
        Ok(())
    }

    /// What is written down of its engines, as it is now.
    pub(crate) fn standing(&mut self) -> Result<&Standing, CoreError> {
        // Whoever has the directory goes on writing there.
        if self.lock.is_none() {
            self.owner.look_again();
        }
        Ok(self.owner.standing()?)
    }

    /// What is to be brought to disk before the directory goes, while the engine is still served: a
    /// disk may take a minute for it. Nothing where nothing is open.
    pub(crate) fn begin_last_flush(&mut self) -> Result<Option<Flush>, CoreError> {
        if self.replica.size_bytes().is_none() {
            return Ok(None);
        }
        Ok(Some(self.replica.start_flush()?))
    }

    pub(crate) fn end_last_flush(&mut self, flushed: Flushed) -> Result<(), CoreError> {
        Ok(self.replica.end_flush(flushed)?)
    }

    /// Lets go of the directory for good, unless a flush is under way: the kernel tells of a failure once,
    /// and if it tells that one, nothing else would hear of it. From here on nobody is served, so that
    /// none begins after it.
    pub(crate) fn hand_over(&mut self) -> Result<HandedOver, CoreError> {
        self.owner.hand_over();
        if self.flushes.is_running() {
            return Ok(HandedOver::NotYet);
        }
        if self.replica.size_bytes().is_some() {
            self.replica.flush()?;
            self.replica.abandon();
        }
        self.lock = None;
        Ok(HandedOver::Done)
    }

    pub(crate) fn create(&mut self, size_bytes: i64, now: &str) -> Result<(), CoreError> {
        self.replica.create_directory()?;
        self.hold_directory()?;
        Ok(self.replica.create(size_bytes, now)?)
    }

    pub(crate) fn open(
        &mut self,
        request: &OpenRequest,
        claiming: Option<&Claiming>,
    ) -> Result<(), CoreError> {
        if !request.is_upgrade {
            self.hold_directory()?;
        }
        if let Some(Claiming { claim, adopt }) = claiming {
            // Before it is claimed: the process before this one may have something to write down still, and
            // each would write over what the other has.
            if request.is_upgrade {
                self.take_directory()?;
            }
            self.owner.claim(claim, *adopt)?;
            // Not closed: that would say that all is well with it.
            self.replica.abandon();
            self.replica.open(request)?;
        } else {
            self.owner.check_free()?;
            self.replica.open(request)?;
            self.owner.open_unclaimed()?;
        }
        // Which engine will come is not known yet.
        self.durability = Durability::WriteThrough;
        Ok(())
    }

    pub(crate) fn delete(&mut self) -> Result<(), CoreError> {
        let was_open = self.replica.size_bytes().is_some();
        self.replica.delete()?;
        if was_open {
            self.owner.forget();
        }
        Ok(())
    }

    /// Why a ping fails, if it does.
    pub(crate) fn ailment(&self) -> Option<String> {
        match self.replica.state() {
            State::Open | State::Dirty | State::Rebuilding => {
                self.replica.rejection().or_else(|| self.replica.lost_head())
            }
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
pub(crate) async fn run_aside(flush: Flush) -> Result<Flushed, JoinError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Options;

    const SIZE_BYTES: i64 = 1 << 20;

    /// A replica with something written that is not on disk yet.
    fn written(dir: &std::path::Path) -> Core {
        let mut core = Core::new(Replica::new(dir, Options::default()));
        core.create(SIZE_BYTES, "2026-01-01T00:00:00Z").unwrap();
        core.open(&OpenRequest::default(), None).unwrap();
        core.replica.write_at(&[7; 4096], 0).unwrap();
        core
    }

    #[test]
    fn a_flush_that_fails_while_a_directory_is_handed_over_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let mut core = written(&path);
        let flush = core.replica.start_flush().unwrap();
        core.flushes.began();
        assert_eq!(core.hand_over().unwrap(), HandedOver::NotYet);
        assert!(core.holds_directory(), "somebody else has it while the disk is waited for");
        let mut flushed = flush.run();
        flushed.result = Err(Error::Broken("the disk is gone".to_owned()));
        core.end_flush(flushed);
        core.hand_over().unwrap_err();
        assert!(core.holds_directory());
        let meta = std::fs::read_to_string(path.join("volume.meta")).unwrap();
        assert!(meta.contains("a flush failed"), "{meta}");
    }

    #[test]
    fn a_directory_goes_when_the_last_flush_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let mut core = written(&dir.path().join("r"));
        let flush = core.replica.start_flush().unwrap();
        core.flushes.began();
        assert_eq!(core.hand_over().unwrap(), HandedOver::NotYet);
        core.end_flush(flush.run());
        assert_eq!(core.hand_over().unwrap(), HandedOver::Done);
        assert!(!core.holds_directory());
    }
}
