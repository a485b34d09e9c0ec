//! Makes replicas equal again whose last engine did not close them.
//!
//! A write that was in flight when an engine died is on some replicas and not on others; nobody was
//! told that it is done, so either is right, but which one must not change from one read to the
//! next. So all reads go to one replica until every place that may differ (what was written since the last snapshot they share) has
//! been copied from it to the others. Snapshots wait for that: one taken before would differ
//! between replicas for ever.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::core::{Command, Fault, Mode, ReplicaId, SECTOR};
use crate::machine::mend::{Event, Mend, Step};

use super::engine::{Engine, Replica};
use super::extents::Extents;
use super::link::CallError;

const PIECE: u32 = 1 << 20;
/// How long something that needs equal replicas waits for them before it is refused.
const TIMEOUT: Duration = Duration::from_mins(1);
const PROGRESS_EVERY: u64 = 1 << 30;
/// No disk has this name: what all layers hold is looked after.
const EVERYTHING: &str = "*";
/// By this name replicas tell of their heads alone.
const HEAD: &str = "";
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// How far the replicas are from being equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mending {
    Equal,
    /// Bytes made equal so far, of so many.
    Running {
        done: u64,
        total: u64,
    },
}

/// Something needs equal replicas, and they are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("replicas are being made equal after an unclean end ({done} of {total} bytes); try again")]
pub(super) struct NotEqual {
    done: u64,
    total: u64,
}

/// Why mending ended early.
#[derive(Debug, thiserror::Error)]
enum MendError {
    #[error("cannot ask replica {address} what its head holds: {source}")]
    Extents { address: String, source: CallError },
    #[error("cannot copy {len} bytes at {offset}: {source}")]
    Copy { offset: u64, len: u32, source: Fault },
}

/// The replica that the others are made equal to, and the snapshot above which they may differ.
#[derive(Debug)]
pub(super) struct MendFrom {
    pub(super) reader: ReplicaId,
    pub(super) base: Option<String>,
}

impl MendFrom {
    /// The same where all that lies below the heads is known to be equal.
    pub(super) fn heads_only(self) -> Self {
        Self { base: Some(HEAD.to_owned()), ..self }
    }
}

impl Engine {
    /// Begins what was put off; whether it was.
    pub(super) async fn mend_what_waited(self: &Arc<Self>) -> bool {
        let from = self.mend_later.lock().await.take();
        let waited = from.is_some();
        if let Some(from) = from {
            self.mend_from_now_on(from).await;
        }
        waited
    }

    /// Begins to make all members equal to one, in what they hold above a snapshot.
    pub(super) async fn mend_from_now_on(self: &Arc<Self>, from: MendFrom) {
        let MendFrom { reader, base } = from;
        // Before anything can be read.
        self.volume.set_reader(Some(reader)).await;
        self.mending.send_replace(Mending::Running { done: 0, total: 0 });
        let (engine, stop) = (Arc::clone(self), self.mend_stop.lock().await.clone());
        let above = base.unwrap_or_else(|| EVERYTHING.to_owned());
        self.tasks.spawn("mend", async move {
            stop.run_until_cancelled_owned(engine.mend(reader, &above)).await;
        });
    }

    /// Leaves replicas as they are, and says whether they were equal.
    pub(super) async fn stop_mending(&self) -> bool {
        let mut stop = self.mend_stop.lock().await;
        stop.cancel();
        *stop = CancellationToken::new();
        let waits = self.mend_later.lock().await.take().is_some();
        self.mending.send_replace(Mending::Equal) == Mending::Equal && !waits
    }

    async fn mend(&self, first: ReplicaId, above: &str) {
        let (mut machine, steps) = Mend::begin(first);
        let mut steps = VecDeque::from(steps);
        let mut pieces: Box<dyn Iterator<Item = (u64, u32)> + Send> = Box::new(std::iter::empty());
        let (mut done, mut total) = (0, 0);
        while let Some(step) = steps.pop_front() {
            let event = match step {
                Step::ReadFrom(reader) => {
                    if let Some(ReplicaId(reader)) = reader {
                        tracing::info!(reader, "making replicas equal after an unclean end");
                    }
                    self.volume.set_reader(reader).await;
                    continue;
                }
                Step::Look => match self.extents_above(above, &self.readable()).await {
                    Ok(told) => {
                        let told = told.within(self.state().size, SECTOR);
                        (done, total) = (0, told.total());
                        pieces = Box::new(told.into_pieces(PIECE));
                        Event::Looked
                    }
                    Err(error) => self.broke_off(&error),
                },
                Step::Copy => match pieces.next() {
                    Some((offset, len)) => match self.make_equal(offset, len).await {
                        Ok(()) => {
                            done = self.tell_mended(done, len, total);
                            Event::Copied(self.readable_members())
                        }
                        Err(error) => self.broke_off(&error),
                    },
                    None => Event::Covered,
                },
                Step::Pause => {
                    tokio::time::sleep(RETRY_AFTER).await;
                    Event::Paused
                }
                // On disk before it is said: else the next engine would mend from this reader again,
                // over what was written since. That does no harm, but for the work.
                Step::Flush => {
                    if let Err(error) = self.volume.submit(Command::Flush).await {
                        tracing::warn!(%error, "what was made equal is not on all disks: {error}");
                    }
                    Event::Flushed
                }
                Step::Record => {
                    if let Err(error) = self.record().await {
                        tracing::warn!(%error, "replicas cannot be told that they are equal: {error}");
                    }
                    Event::Recorded
                }
                Step::End => break,
            };
            steps.extend(machine.on(event));
        }
        tracing::info!(bytes = total, "replicas are equal again: looked after {total} bytes");
        self.mending.send_replace(Mending::Equal);
    }

    fn readable_members(&self) -> Vec<ReplicaId> {
        self.readable().iter().filter_map(|replica| replica.member).collect()
    }

    fn broke_off(&self, error: &MendError) -> Event {
        tracing::warn!(%error, "making replicas equal broke off: {error}");
        Event::Failed(self.readable_members())
    }

    async fn make_equal(&self, offset: u64, len: u32) -> Result<(), MendError> {
        let copied = self.volume.submit(Command::Mend { offset, len }).await;
        copied.map(drop).map_err(|source| MendError::Copy { offset, len, source })
    }

    /// How much is done with these bytes.
    fn tell_mended(&self, before: u64, len: u32, total: u64) -> u64 {
        let done = before + u64::from(len);
        if done / PROGRESS_EVERY != before / PROGRESS_EVERY {
            tracing::info!(done, total, "making replicas equal: {done} of {total} bytes");
        }
        self.mending.send_replace(Mending::Running { done, total });
        done
    }

    async fn extents_above(&self, above: &str, replicas: &[Replica]) -> Result<Extents, MendError> {
        let mut extents = Extents::new();
        for replica in replicas {
            let asked = replica
                .link
                .extents_above(self.hold_limit(), above, |offset, len| extents.add(offset, len))
                .await;
            let address = replica.address.clone();
            match asked {
                Ok(()) => {}
                // It went while it was asked: nothing has to be equal to it any more.
                Err(_) if self.find(&address).is_none_or(|now| now.mode != Mode::Rw) => {}
                Err(source) => return Err(MendError::Extents { address, source }),
            }
        }
        Ok(extents)
    }

    /// Waits until replicas are equal, or for a while. To be called before the lock on changes is
    /// taken, so that others need not wait; [`Engine::equal`] is then asked under it.
    pub(super) async fn await_equal(&self) {
        let mut mending = self.mending.subscribe();
        let ended = mending.wait_for(|state| *state == Mending::Equal);
        if tokio::time::timeout(TIMEOUT, ended).await.is_err() {
            tracing::warn!("replicas are still not equal");
        }
    }

    /// Refuses while replicas are not equal.
    pub(super) fn equal(&self) -> Result<(), NotEqual> {
        let now = *self.mending.borrow();
        match now {
            Mending::Equal => Ok(()),
            Mending::Running { done, total } => Err(NotEqual { done, total }),
        }
    }
}
