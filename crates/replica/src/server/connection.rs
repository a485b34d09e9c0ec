//! One data connection: takes what has come, does all whole frames of it in order, and answers
//! them with one write. Owns the buffers and the limits of a connection; what a frame does is in
//! `execute`.
//!
//! A frame that does not fit ends this connection and no other.

use std::io;
use std::rc::Rc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use wire::frame::{FrameError, Limits, decode_request};

use crate::server::core::{Durability, Shared, start_due_flush};
use crate::server::execute::{Batch, execute};
use crate::server::flushes::Waiter;
use crate::server::late::{Ack, LateReplies};
use crate::server::outgoing::{KEEP_BYTES, Outgoing};
use crate::server::owner::Guest;

/// Room for what one read of the socket may bring.
const READ_BYTES: usize = 256 * 1024;
/// Replies that are sent before the rest of a batch is done, so that large reads do not pile up.
const SEND_BYTES: usize = 1 << 20;
/// Acks that may wait for a flush before no more is read from the peer.
const WAITING_MAX: usize = 4096;

/// Why a connection ended, other than by the peer's wish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the peer broke the protocol")]
    Frame(#[from] FrameError),
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the connection ended within a frame")]
    CutOff,
    #[error("its engine was cut off by one with generation {0}")]
    Superseded(u64),
}

pub(crate) async fn serve<S>(stream: S, shared: Shared) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (guest, turns) = {
        let owner = &mut shared.borrow_mut().owner;
        (owner.enter(), owner.turns())
    };
    let connection = Connection {
        stream,
        guest,
        turns,
        shared,
        input: BytesMut::with_capacity(READ_BYTES),
        out: Outgoing::default(),
        late: Rc::new(LateReplies::default()),
        batch: Batch::default(),
    };
    connection.run().await
}

struct Connection<S> {
    stream: S,
    guest: Guest,
    /// Wakes when the replica has another engine.
    turns: watch::Receiver<u64>,
    shared: Shared,
    input: BytesMut,
    out: Outgoing,
    late: Rc<LateReplies>,
    batch: Batch,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(mut self) -> Result<(), ConnectionError> {
        while self.receive().await? {
            // Answers to what came before a bad frame still go out.
            let outcome = self.do_batch().await;
            if let Err(ConnectionError::Superseded(generation)) = outcome {
                // Not even what was done before is answered: the next engine does not know of it.
                self.out.cut_off(generation);
            } else {
                self.late.drain(&mut self.out);
            }
            self.send().await?;
            outcome?;
            if self.batch.is_last {
                break;
            }
        }
        Ok(())
    }

    /// Waits for bytes or for replies that may go out now; `false` at the end of the stream.
    async fn receive(&mut self) -> Result<bool, ConnectionError> {
        let Self { stream, input, late, turns, .. } = self;
        if late.waiting() >= WAITING_MAX {
            tokio::select! {
                () = late.filled() => {}
                _ = turns.changed() => {}
            }
            return Ok(true);
        }
        if input.is_empty() && input.capacity() > KEEP_BYTES {
            *input = BytesMut::new();
        }
        input.reserve(READ_BYTES);
        let received = tokio::select! {
            biased;
            () = late.filled(), if late.waiting() > 0 => return Ok(true),
            received = stream.read_buf(input) => received?,
            // Its sender lives as long as the replica.
            _ = turns.changed() => return Ok(true),
        };
        self.shared.borrow().owner.heard(&self.guest);
        match received {
            0 if input.is_empty() => Ok(false),
            0 => Err(ConnectionError::CutOff),
            _ => Ok(true),
        }
    }

    /// Does every whole frame that has come, then settles what they changed.
    async fn do_batch(&mut self) -> Result<(), ConnectionError> {
        let outcome = loop {
            if let Some(generation) = self.shared.borrow().owner.cut_off(&self.guest) {
                return Err(ConnectionError::Superseded(generation));
            }
            if self.out.pending().len() >= SEND_BYTES {
                self.send().await?;
            }
            let request = match decode_request(&mut self.input, Limits::default()) {
                Ok(Some(request)) => request,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            };
            let mut core = self.shared.borrow_mut();
            execute(&mut core, &mut self.guest, request, &mut self.out, &mut self.batch);
            drop(core);
            if self.batch.is_last {
                break Ok(());
            }
        };
        self.settle();
        outcome
    }

    /// The counter is in its file before any of the writes it counts is answered. It is written
    /// after them, so it never speaks of a write that was not done.
    fn settle(&mut self) {
        if self.batch.done.is_empty() && self.batch.flushes.is_empty() {
            return;
        }
        let mut core = self.shared.borrow_mut();
        let settled = core.replica.settle();
        if let Err(error) = &settled {
            tracing::error!(error = error.text(), "cannot count writes");
        }
        let durability = core.durability;
        for ack in &self.batch.done {
            let Ack { sequence, offset, count } = *ack;
            match (&settled, durability) {
                (Err(error), _) => self.out.error(sequence, offset, &error.text()),
                (Ok(()), Durability::OnFlush) => self.out.count(sequence, offset, count),
                (Ok(()), Durability::WriteThrough) => {
                    core.await_flush(hold(&self.late, *ack));
                }
            }
        }
        for ack in &self.batch.flushes {
            core.await_flush(hold(&self.late, *ack));
        }
        drop(core);
        self.batch.clear();
        start_due_flush(&self.shared);
    }

    async fn send(&mut self) -> Result<(), ConnectionError> {
        if !self.out.pending().is_empty() {
            self.stream.write_all(self.out.pending()).await?;
            self.out.clear();
        }
        Ok(())
    }
}

fn hold(late: &Rc<LateReplies>, ack: Ack) -> Waiter {
    late.hold();
    Waiter::Frame { late: Rc::clone(late), ack }
}
