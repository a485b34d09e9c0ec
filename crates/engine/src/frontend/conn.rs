//! One connection of a client, whatever it speaks.
//!
//! Owns: reading requests in batches, the limit on what one client may have under way, and the
//! way of answers back. Never: what the bytes mean; that is the [`Protocol`]'s.

use std::cell::Cell;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::guests::Guests;
use super::parting::{Order, Plain, Told, Twin, take_apart};
use crate::core::{Command, Done, Fault};
use crate::volume::hub::Hub;
use crate::volume::intake::Intake;
use crate::volume::outlet::{Outlet, Piece};
use crate::volume::pending::{Asked, Client, Verb};

/// Requests one client may have under way.
const MOST_REQUESTS: usize = 1024;

/// Bytes that requests of one client, or its answers not yet sent, may stand for.
const MOST_BYTES: usize = 16 << 20;

/// Bytes that requests of all clients may stand for; beyond it each still gets one at a time.
const MOST_BYTES_OF_ALL: usize = 32 << 20;

/// How long a client that sends nothing more has to take its last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// What a connection speaks.
pub(crate) trait Protocol: Sized + 'static {
    type Request;

    /// Takes one whole request off the front; the error ends the connection.
    fn decode(&self, bytes: &mut BytesMut) -> Result<Option<Self::Request>, String>;

    /// Submits or answers a request. `Break` ends the connection after the answers due.
    fn take(conn: &Rc<Conn<Self>>, request: Self::Request) -> ControlFlow<()>;

    fn answer(&self, asked: Asked, result: Result<Done, Fault>) -> Piece;

    /// What is sent last when the frontend stops.
    fn farewell(&self) -> Option<Piece>;

    /// What was agreed with this client, for another engine that goes on with it.
    fn told(&self) -> Option<Told>;
}

pub(crate) struct Conn<P> {
    pub(crate) hub: Rc<Hub>,
    pub(crate) protocol: P,
    outlet: Rc<Outlet>,
    requests: Cell<usize>,
    bytes: Cell<usize>,
    waiting: Cell<Option<Waker>>,
}

impl<P: Protocol> Conn<P> {
    /// Hands a request to the volume; its answer goes back by itself.
    pub(crate) fn submit(self: &Rc<Self>, tag: u64, command: Command) {
        let asked = Asked::new(tag, &command);
        self.enter(asked);
        self.hub.submit(Rc::<Self>::clone(self), asked, command);
    }

    /// Sends an answer that needed nothing from the volume.
    pub(crate) fn send(&self, piece: impl Into<Piece>) {
        self.hub.outbox.push(&self.outlet, piece.into());
    }

    /// Runs a request that takes several steps and holds up to `len` bytes meanwhile; its answer
    /// is what `work` gives.
    pub(crate) fn run<T: Into<Piece>>(
        self: &Rc<Self>,
        len: u32,
        work: impl Future<Output = T> + 'static,
    ) {
        let asked = Asked { tag: 0, verb: Verb::Write, offset: 0, len };
        self.enter(asked);
        let conn = Rc::clone(self);
        self.hub.spawn(async move {
            let piece = work.await.into();
            conn.leave(asked);
            conn.send(piece);
            conn.hub.outbox.wake();
        });
    }

    fn enter(&self, asked: Asked) {
        let weight = asked.weight();
        self.requests.set(self.requests.get().saturating_add(1));
        self.bytes.set(self.bytes.get().saturating_add(weight));
        self.hub.clients_bytes.set(self.hub.clients_bytes.get().saturating_add(weight));
    }

    fn leave(&self, asked: Asked) {
        let weight = asked.weight();
        self.requests.set(self.requests.get().saturating_sub(1));
        self.bytes.set(self.bytes.get().saturating_sub(weight));
        self.hub.clients_bytes.set(self.hub.clients_bytes.get().saturating_sub(weight));
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    fn has_room(&self, intake: &mut Intake) -> bool {
        let (requests, bytes) = (self.requests.get(), self.bytes.get());
        let more = requests < MOST_REQUESTS
            && bytes < MOST_BYTES
            && self.hub.clients_bytes.get() < MOST_BYTES_OF_ALL
            && !intake.crowded();
        // With nothing under way nothing would wake it, and one request is always allowed.
        self.outlet.queued_bytes() < MOST_BYTES && (more || requests == 0)
    }

    /// Waits until `condition` holds, looking again whenever something was answered or sent.
    async fn wait(&self, mut condition: impl FnMut() -> bool) {
        poll_fn(|context| {
            if condition() {
                return Poll::Ready(());
            }
            self.waiting.set(Some(context.waker().clone()));
            self.outlet.wake_on_progress(context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Takes requests until the client ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: what was read and not taken is in `intake`.
    async fn read_requests(
        self: &Rc<Self>,
        reader: &mut (impl AsyncRead + Unpin),
        intake: &mut Intake,
    ) {
        loop {
            self.hub.begin();
            let next = self.take_all(intake);
            self.hub.settle();
            match next {
                Next::More => {
                    let filled = poll_fn(|context| {
                        // Inside TLS a read may have taken the wake-up meant for the writer.
                        self.hub.outbox.retry(&self.outlet);
                        intake.poll_fill(context, reader)
                    });
                    match filled.await {
                        Ok(0) => return,
                        Ok(_) => {}
                        Err(error) => return tracing::debug!(%error, "connection failed"),
                    }
                }
                Next::Room => self.wait(|| self.has_room(intake)).await,
                Next::End => return,
            }
        }
    }

    fn take_all(self: &Rc<Self>, intake: &mut Intake) -> Next {
        while self.has_room(intake) {
            match self.protocol.decode(&mut intake.bytes) {
                Ok(Some(request)) => {
                    if P::take(self, request).is_break() {
                        return Next::End;
                    }
                }
                Ok(None) => return Next::More,
                Err(error) => {
                    tracing::warn!(error, "client refused");
                    return Next::End;
                }
            }
        }
        Next::Room
    }
}

/// What the reader of a connection waits for.
enum Next {
    More,
    Room,
    End,
}

impl<P: Protocol> Client for Conn<P> {
    fn complete(self: Rc<Self>, asked: Asked, result: Result<Done, Fault>) {
        self.leave(asked);
        self.send(self.protocol.answer(asked, result));
    }
}

/// [`converse`] over a line that may go over to another engine.
pub(crate) async fn converse_plain<P: Protocol, S: Plain>(
    guests: &Guests,
    protocol: P,
    stream: S,
    intake: Intake,
) {
    let (reader, writer, twin) = take_apart(stream);
    converse(guests, protocol, reader, writer, intake, twin).await;
}

/// Serves a client until it leaves or the frontend stops; what was taken is answered. With a `twin` of its
/// line it can go over to another engine.
pub(crate) async fn converse<P: Protocol>(
    guests: &Guests,
    protocol: P,
    mut reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + 'static,
    mut intake: Intake,
    twin: Option<Twin>,
) {
    let broken = CancellationToken::new();
    let on_broken = broken.clone();
    let outlet = Outlet::new(writer, move |_| on_broken.cancel());
    let conn = Rc::new(Conn {
        hub: Rc::clone(&guests.hub),
        protocol,
        outlet,
        requests: Cell::default(),
        bytes: Cell::default(),
        waiting: Cell::default(),
    });
    let _close = CloseAtEnd(Rc::clone(&conn.outlet));
    // Who comes while the others pause was not counted among them: nothing of it is taken before it is
    // known who serves it. If another engine does, it is to come again there.
    let order = tokio::select! {
        order = guests.parting.over() => order,
        () = guests.stop.cancelled() => Order::Serve,
    };
    if order == Order::Leave {
        return;
    }
    let _talking = guests.parting.enter();
    let talk = async {
        loop {
            tokio::select! {
                biased;
                () = conn.read_requests(&mut reader, &mut intake) => break,
                () = guests.stop.cancelled() => {
                    conn.wait(|| conn.requests.get() == 0).await;
                    conn.protocol.farewell().into_iter().for_each(|piece| conn.send(piece));
                    conn.hub.outbox.wake();
                    break;
                }
                () = guests.parting.asked() => {}
            }
            conn.wait(|| conn.requests.get() == 0 && conn.outlet.is_idle()).await;
            let client = twin.as_ref();
            let client = client.and_then(|it| it.client(conn.protocol.told(), &intake.bytes));
            let order = tokio::select! {
                biased;
                order = guests.parting.part(client) => order,
                () = guests.stop.cancelled() => Order::Serve,
            };
            match order {
                Order::Serve | Order::Pause => {}
                Order::Leave => {
                    twin.iter().for_each(Twin::give);
                    return;
                }
            }
        }
        conn.wait(|| conn.requests.get() == 0).await;
        // Who has left, and does not take its answers either, is not waited for.
        let sent = conn.wait(|| conn.outlet.is_idle());
        drop(tokio::time::timeout(LAST_ANSWERS, sent).await);
    };
    broken.run_until_cancelled(talk).await;
}

/// Closes the connection also where its task is dropped; requests under way may live longer.
struct CloseAtEnd(Rc<Outlet>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}
