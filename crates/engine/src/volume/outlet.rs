//! What waits to be sent on one connection, and the one place that sends it.
//!
//! Owns: the order of bytes on a connection and vectored writes of many frames at once. Never:
//! decides what is sent. Whoever has something to say pushes a [`Piece`] and goes on; the flusher
//! of [`Outbox`] runs once the tasks that were ready have run, so frames of a whole batch leave in
//! one system call.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wire::{frame, nbd};

/// Slices handed to one vectored write.
const SLICES: usize = 128;

/// Room for the longest head of any protocol spoken here.
const MAX_HEAD: usize = 32;

/// A payload up to this long is copied when its connection is slow, so that it does not keep the
/// much larger buffer it was read into.
const COPY_UP_TO: usize = 64 << 10;

/// One frame to be sent: a short head by value and a payload as it is.
#[derive(Debug)]
pub(crate) struct Piece {
    head: [u8; MAX_HEAD],
    head_len: usize,
    payload: Bytes,
}

impl Piece {
    /// `head` is at most 32 bytes; every protocol's is.
    fn new(bytes: &[u8], payload: Bytes) -> Self {
        let mut head = [0; MAX_HEAD];
        let head_len = bytes.len().min(MAX_HEAD);
        for (to, from) in head.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self { head, head_len, payload }
    }

    /// Nothing to be sent.
    pub(crate) fn empty() -> Self {
        Self::new(&[], Bytes::new())
    }

    fn len(&self) -> usize {
        self.head_len.saturating_add(self.payload.len())
    }
}

impl From<frame::Frame> for Piece {
    fn from(frame: frame::Frame) -> Self {
        Self::new(&frame.header, frame.payload)
    }
}

impl From<nbd::Frame> for Piece {
    fn from(frame: nbd::Frame) -> Self {
        Self::new(frame.head.as_slice(), frame.payload)
    }
}

type Sink = Pin<Box<dyn AsyncWrite>>;
type OnBroken = Box<dyn Fn(&io::Error)>;

/// The sending side of one connection.
pub(crate) struct Outlet {
    queue: RefCell<VecDeque<Piece>>,
    /// Bytes of the first piece that are sent already.
    sent: Cell<usize>,
    queued_bytes: Cell<usize>,
    /// `None` once the connection is closed.
    sink: RefCell<Option<Sink>>,
    listed: Cell<bool>,
    blocked: Cell<bool>,
    on_progress: Cell<Option<Waker>>,
    on_broken: OnBroken,
}

impl Outlet {
    /// `on_broken` is called once, when the connection fails.
    pub(crate) fn new(
        sink: impl AsyncWrite + 'static,
        on_broken: impl Fn(&io::Error) + 'static,
    ) -> Rc<Self> {
        Rc::new(Self {
            queue: RefCell::default(),
            sent: Cell::new(0),
            queued_bytes: Cell::new(0),
            sink: RefCell::new(Some(Box::pin(sink))),
            listed: Cell::new(false),
            blocked: Cell::new(false),
            on_progress: Cell::new(None),
            on_broken: Box::new(on_broken),
        })
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes.get()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queued_bytes.get() == 0
    }

    /// Drops the connection and what was not sent.
    pub(crate) fn close(&self) {
        self.sink.take();
        self.queue.take();
        self.queued_bytes.set(0);
        self.progressed();
    }

    /// Wakes `waker` once when something was sent or the connection is closed.
    pub(crate) fn wake_on_progress(&self, waker: &Waker) {
        self.on_progress.set(Some(waker.clone()));
    }

    fn progressed(&self) {
        if let Some(waker) = self.on_progress.take() {
            waker.wake();
        }
    }

    fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut sink = self.sink.borrow_mut();
        let Some(sink) = sink.as_mut() else { return Poll::Ready(Ok(())) };
        let mut queue = self.queue.borrow_mut();
        while !queue.is_empty() {
            let written = {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let used = gather(&queue, self.sent.get(), &mut slices);
                sink.as_mut().poll_write_vectored(context, slices.get(..used).unwrap_or_default())
            };
            match written {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => self.forget(&mut queue, count),
            }
            self.progressed();
        }
        sink.as_mut().poll_flush(context)
    }

    /// Takes `count` sent bytes off the front.
    fn forget(&self, queue: &mut VecDeque<Piece>, count: usize) {
        self.queued_bytes.set(self.queued_bytes.get().saturating_sub(count));
        let mut sent = self.sent.get().saturating_add(count);
        while let Some(first) = queue.front() {
            let len = first.len();
            if sent < len {
                break;
            }
            sent = sent.saturating_sub(len);
            queue.pop_front();
        }
        self.sent.set(sent);
    }
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Outlet").field("queued_bytes", &self.queued_bytes).finish_non_exhaustive()
    }
}

/// Fills `slices` from the front of `queue`, leaving out the first `sent` bytes; how many it took.
fn gather<'a>(
    queue: &'a VecDeque<Piece>,
    mut sent: usize,
    slices: &mut [IoSlice<'a>; SLICES],
) -> usize {
    let parts = queue.iter().flat_map(|piece| {
        [piece.head.get(..piece.head_len).unwrap_or_default(), piece.payload.as_ref()]
    });
    let mut used = 0;
    let mut free = slices.iter_mut();
    for part in parts {
        let skipped = sent.min(part.len());
        sent = sent.saturating_sub(skipped);
        let rest = part.get(skipped..).unwrap_or_default();
        if rest.is_empty() {
            continue;
        }
        let Some(slot) = free.next() else { break };
        *slot = IoSlice::new(rest);
        used += 1;
    }
    used
}

/// The outlets that have something to send, and the task that sends it.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    listed: RefCell<Vec<Rc<Outlet>>>,
    flusher: RefCell<Option<Waker>>,
}

impl Outbox {
    /// Queues a piece. It is sent when [`Self::wake`] was called and the tasks at hand have run.
    pub(crate) fn push(&self, outlet: &Rc<Outlet>, mut piece: Piece) {
        if outlet.sink.borrow().is_none() {
            return;
        }
        if outlet.blocked.get() && !piece.payload.is_empty() && piece.payload.len() <= COPY_UP_TO {
            piece.payload = Bytes::copy_from_slice(&piece.payload);
        }
        outlet.queued_bytes.set(outlet.queued_bytes.get().saturating_add(piece.len()));
        outlet.queue.borrow_mut().push_back(piece);
        if !outlet.listed.replace(true) {
            self.listed.borrow_mut().push(Rc::clone(outlet));
        }
    }

    /// Lets the flusher run if there is something it could send.
    pub(crate) fn wake(&self) {
        if self.listed.borrow().is_empty() {
            return;
        }
        if let Some(waker) = self.flusher.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Lets the flusher try again if this outlet could not send all it had.
    pub(crate) fn retry(&self, outlet: &Outlet) {
        if outlet.blocked.get() {
            self.wake();
        }
    }

    /// Sends what is queued whenever there is something; never ends.
    pub(crate) async fn flush_for_ever(&self) {
        poll_fn(|context| {
            self.remember(context.waker());
            self.flush(context);
            Poll::<()>::Pending
        })
        .await;
    }

    fn remember(&self, waker: &Waker) {
        let mut flusher = self.flusher.borrow_mut();
        if !flusher.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *flusher = Some(waker.clone());
        }
    }

    fn flush(&self, context: &mut Context<'_>) {
        let mut broken = Vec::new();
        let mut listed = self.listed.take();
        listed.retain(|outlet| match outlet.poll_send(context) {
            Poll::Pending => {
                outlet.blocked.set(true);
                true
            }
            Poll::Ready(result) => {
                outlet.blocked.set(false);
                outlet.listed.set(false);
                if let Err(error) = result {
                    broken.push((Rc::clone(outlet), error));
                }
                false
            }
        });
        // Nothing was listed meanwhile: sending queues nothing.
        self.listed.replace(listed);
        for (outlet, error) in broken {
            outlet.close();
            (outlet.on_broken)(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Takes a few bytes at a time and makes the writer wait in between.
    struct Dribble {
        taken: Rc<RefCell<Vec<u8>>>,
        at_a_time: usize,
        wait: bool,
        fail_after: usize,
    }

    impl AsyncWrite for Dribble {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.wait = !self.wait;
            if self.wait {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.taken.borrow().len() >= self.fail_after {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let count = bytes.len().min(self.at_a_time);
            self.taken.borrow_mut().extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Sends 300 pieces through a sink that fails after so many bytes: what it took, what was
    /// queued, and whether the end was told.
    async fn send(fail_after: usize) -> (Vec<u8>, Vec<u8>, bool) {
        let (taken, broken) = (Rc::default(), Rc::new(Cell::new(false)));
        let sink = Dribble { taken: Rc::clone(&taken), at_a_time: 7, wait: false, fail_after };
        let told = Rc::clone(&broken);
        let outlet = Outlet::new(sink, move |_| told.set(true));
        let (outbox, mut expected) = (Outbox::default(), Vec::new());
        for number in 0..300_u16 {
            let (head, payload) = (number.to_le_bytes(), vec![7; usize::from(number % 40)]);
            expected.extend_from_slice(&head);
            expected.extend_from_slice(&payload);
            outbox.push(&outlet, Piece::new(&head, payload.into()));
        }
        assert_eq!(outlet.queued_bytes(), expected.len());
        let ended = poll_fn(|context| {
            outlet.wake_on_progress(context.waker());
            if outlet.is_idle() { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            () = outbox.flush_for_ever() => {}
            () = ended => {}
        }
        (taken.take(), expected, broken.get())
    }

    #[tokio::test]
    async fn everything_is_sent_in_order_however_little_is_taken_at_a_time() {
        let (taken, expected, broken) = send(usize::MAX).await;
        assert_eq!(taken, expected);
        assert!(!broken);
    }

    #[tokio::test]
    async fn a_broken_connection_is_told_once_and_forgets_what_was_queued() {
        let (taken, expected, broken) = send(100).await;
        assert!(expected.starts_with(&taken) && taken.len() < 200);
        assert!(broken);
    }
}
