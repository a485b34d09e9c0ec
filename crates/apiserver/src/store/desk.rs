//! Where the writer works: a place for one. Mostly it is the writer's own thread that works there. A
//! write that comes alone is done by whoever brings it, which saves two ways from thread to thread.
//!
//! Never: has two at work, or lets the caller's thread do what follows a commit and holds up others
//! (copying the log back, giving back pages): that is the thread's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, oneshot};

use super::writer::{Message, Request, Writer};

/// Bounds of one commit.
const MAX_BATCH_WRITES: usize = 256;
const MAX_BATCH_BYTES: usize = 4 << 20;

/// The place. It is empty once the store is closed, and when the writer broke down at work: whoever
/// works takes it away and brings it back.
pub(super) struct Desk {
    writer: Mutex<Option<Box<Writer>>>,
    /// Writes that have begun and have no answer yet.
    under_way: AtomicUsize,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let under_way = self.under_way.load(Ordering::Relaxed);
        f.debug_struct("Desk").field("under_way", &under_way).finish_non_exhaustive()
    }
}

/// A write under way.
pub(super) struct UnderWay {
    desk: Arc<Desk>,
    /// No other was when it began.
    is_alone: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.desk.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What became of a request that wanted to be done at once.
pub(super) enum Tried {
    /// It has its answer; whether something is left to be done that holds up others.
    Done { is_untidy: bool },
    /// It must queue.
    Busy(Box<Request>),
}

impl Desk {
    pub(super) fn new(writer: Writer) -> Arc<Self> {
        let writer = Mutex::new(Some(Box::new(writer)));
        Arc::new(Self { writer, under_way: AtomicUsize::new(0) })
    }

    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        let is_alone = self.under_way.fetch_add(1, Ordering::Relaxed) == 0;
        UnderWay { desk: Arc::clone(self), is_alone }
    }

    /// Does a write on this thread, if it is the only one, and the thread is one that may wait for
    /// the disk: the runtime puts another in its place meanwhile.
    #[expect(clippy::disallowed_methods, reason = "one thread at most, for one sync; see above")]
    pub(super) fn do_here(&self, request: Box<Request>, turn: &UnderWay) -> Tried {
        if !turn.is_alone || !may_wait_here() {
            return Tried::Busy(request);
        }
        let mut place = match self.writer.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(place)) => place.into_inner(),
            Err(TryLockError::WouldBlock) => return Tried::Busy(request),
        };
        match place.take_if(|writer| writer.is_well()) {
            None => Tried::Busy(request),
            Some(mut writer) => tokio::task::block_in_place(|| {
                writer.work(vec![*request]);
                let is_untidy = writer.is_untidy();
                *place = Some(writer);
                Tried::Done { is_untidy }
            }),
        }
    }

    /// The writer's thread: works until nobody can send any more, or until told to close.
    pub(super) fn run(&self, mut queue: mpsc::Receiver<Message>) {
        let mut closing = Vec::new();
        while let Some(message) = queue.blocking_recv() {
            // Waited for before more is taken: what comes meanwhile belongs to the same commit.
            let mut place = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let batch = take_batch(message, &mut queue, &mut closing);
            // Else it broke down at work. Whoever waits for an answer hears that nobody works here.
            let Some(mut writer) = place.take() else { break };
            writer.work(batch);
            // Everyone has been answered.
            writer.tidy();
            *place = Some(writer);
        }
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            writer.close();
        }
        for closed in closing {
            // Whoever asked may have gone.
            let _ = closed.send(());
        }
    }
}

/// What is queued, up to the bounds of one commit.
fn take_batch(
    first: Message,
    queue: &mut mpsc::Receiver<Message>,
    closing: &mut Vec<oneshot::Sender<()>>,
) -> Vec<Request> {
    let mut batch = Vec::new();
    let mut bytes = 0_usize;
    let mut next = Some(first);
    while let Some(message) = next {
        match message {
            Message::Write(request) => {
                bytes = bytes.saturating_add(request.draft.size_bytes());
                batch.push(*request);
            }
            Message::Look => {}
            Message::Close(closed) => {
                // What is queued already is still taken; what is not is refused.
                queue.close();
                closing.push(closed);
            }
        }
        if batch.len() >= MAX_BATCH_WRITES || bytes >= MAX_BATCH_BYTES {
            break;
        }
        next = queue.try_recv().ok();
    }
    batch
}

/// Only a runtime of several threads can go on while one of them waits.
fn may_wait_here() -> bool {
    Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread)
}
