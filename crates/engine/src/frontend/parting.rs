//! Clients that go over to another engine: all pause between two requests, and go on here unless it
//! takes them.
//!
//! Owns: the order that every connection of a frontend follows, and what of a client travels. Never:
//! how it gets to the other process; that is `control::handover`.

use std::cell::{Cell, RefCell};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::{fmt, io};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, tcp, unix};
use tokio::sync::{Notify, watch};

/// What an NBD client was told, so that it is served as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub export: String,
    pub flags: u16,
    pub structured: bool,
    /// It may ask where data is.
    pub status: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Tcp,
    Unix,
}

/// A client that waits for its next answer, and has none to come.
#[derive(Debug)]
pub struct Client {
    pub line: OwnedFd,
    pub transport: Transport,
    /// None: it speaks frames, where nothing is agreed.
    pub told: Option<Told>,
    /// What it sent and nobody has looked at.
    pub input: Bytes,
}

/// Everything by which clients reach a frontend.
#[derive(Debug, Default)]
pub struct Belongings {
    pub tcp: Option<TcpListener>,
    pub unix: Option<(PathBuf, UnixListener)>,
    pub clients: Vec<Client>,
}

/// What a frontend starts with instead of making it; whoever asks first has it.
#[derive(Debug, Clone, Default)]
pub struct Inherited(Arc<Mutex<Option<Belongings>>>);

impl Inherited {
    pub fn new(belongings: Belongings) -> Self {
        Self(Arc::new(Mutex::new(Some(belongings))))
    }

    pub(crate) fn take(&self) -> Belongings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

/// What connections are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Serve,
    /// Take nothing more, and wait.
    Pause,
    /// Another engine has them.
    Leave,
}

/// The pause of one frontend's connections.
pub(crate) struct Parting {
    order: watch::Sender<Order>,
    /// Connections past their negotiation.
    talking: Cell<usize>,
    /// Those of them that have paused.
    paused: Cell<usize>,
    clients: RefCell<Vec<Client>>,
    changed: Notify,
}

impl Parting {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            order: watch::Sender::new(Order::Serve),
            talking: Cell::default(),
            paused: Cell::default(),
            clients: RefCell::default(),
            changed: Notify::new(),
        })
    }

    /// A connection begins; it ends with what is given back.
    pub(crate) fn enter(self: &Rc<Self>) -> Counted {
        Counted::new(self, |parting| &parting.talking)
    }

    /// Ends when clients are to pause.
    pub(crate) async fn asked(&self) {
        let _ = self.order.subscribe().wait_for(|order| *order != Order::Serve).await;
    }

    /// Ends when they need not.
    pub(crate) async fn over(&self) -> Order {
        let decided = |order: &Order| *order != Order::Pause;
        self.order.subscribe().wait_for(decided).await.map_or(Order::Leave, |order| *order)
    }

    /// One that has nothing under way waits here. `client` is what may go over, if it can.
    pub(crate) async fn part(self: &Rc<Self>, client: Option<Client>) -> Order {
        self.clients.borrow_mut().extend(client);
        let _paused = Counted::new(self, |parting| &parting.paused);
        self.over().await
    }

    /// Has all connections pause and gives those that can go over.
    ///
    /// # Cancel safety
    ///
    /// They stay paused: [`Self::resume`] is to follow.
    pub(crate) async fn pause(&self) -> Vec<Client> {
        self.order.send_replace(Order::Pause);
        loop {
            let changed = self.changed.notified();
            if self.paused.get() == self.talking.get() {
                return self.clients.take();
            }
            changed.await;
        }
    }

    pub(crate) fn resume(&self) {
        self.clients.take();
        self.order.send_replace(Order::Serve);
    }

    pub(crate) fn leave(&self) {
        self.order.send_replace(Order::Leave);
    }
}

/// Counts for as long as it lives.
pub(crate) struct Counted {
    parting: Rc<Parting>,
    count: fn(&Parting) -> &Cell<usize>,
}

impl Counted {
    fn new(parting: &Rc<Parting>, count: fn(&Parting) -> &Cell<usize>) -> Self {
        count(parting).set(count(parting).get().saturating_add(1));
        parting.changed.notify_waiters();
        Self { parting: Rc::clone(parting), count }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let count = (self.count)(&self.parting);
        count.set(count.get().saturating_sub(1));
        self.parting.changed.notify_waiters();
    }
}

/// A second handle on the line of a client: with it the line can be given away.
pub(crate) struct Twin {
    line: OwnedFd,
    transport: Transport,
    /// The line lives on elsewhere: its end here is not the end of the connection.
    given: Rc<Cell<bool>>,
}

impl Twin {
    pub(crate) fn client(&self, told: Option<Told>, input: &[u8]) -> Option<Client> {
        let line = self.line.try_clone().ok()?;
        let input = Bytes::copy_from_slice(input);
        Some(Client { line, transport: self.transport, told, input })
    }

    pub(crate) fn give(&self) {
        self.given.set(true);
    }
}

/// The sending half of a line that can be given away.
pub(crate) trait Half: AsyncWrite + Unpin + 'static {
    /// Ends this handle and not the connection.
    fn forget(self);
}

impl Half for tcp::OwnedWriteHalf {
    fn forget(self) {
        tcp::OwnedWriteHalf::forget(self);
    }
}

impl Half for unix::OwnedWriteHalf {
    fn forget(self) {
        unix::OwnedWriteHalf::forget(self);
    }
}

/// A line that is not inside another.
pub(crate) trait Plain: AsFd + 'static {
    type Reader: AsyncRead + Unpin + 'static;
    type Writer: Half;
    const TRANSPORT: Transport;

    fn split(self) -> (Self::Reader, Self::Writer);
}

impl Plain for TcpStream {
    type Reader = tcp::OwnedReadHalf;
    type Writer = tcp::OwnedWriteHalf;
    const TRANSPORT: Transport = Transport::Tcp;

    fn split(self) -> (Self::Reader, Self::Writer) {
        self.into_split()
    }
}

impl Plain for UnixStream {
    type Reader = unix::OwnedReadHalf;
    type Writer = unix::OwnedWriteHalf;
    const TRANSPORT: Transport = Transport::Unix;

    fn split(self) -> (Self::Reader, Self::Writer) {
        self.into_split()
    }
}

/// Takes a line apart. Without a twin (no descriptor was left) it cannot be given away.
pub(crate) fn take_apart<S: Plain>(stream: S) -> (S::Reader, Sender<S::Writer>, Option<Twin>) {
    let given = Rc::new(Cell::new(false));
    let twin = stream.as_fd().try_clone_to_owned().ok().map(|line| Twin {
        line,
        transport: S::TRANSPORT,
        given: Rc::clone(&given),
    });
    let (reader, writer) = stream.split();
    (reader, Sender { half: Some(writer), given }, twin)
}

/// Sends, and ends the connection when dropped, unless that was given away.
pub(crate) struct Sender<W: Half> {
    half: Option<W>,
    given: Rc<Cell<bool>>,
}

impl<W: Half> Sender<W> {
    fn half(&mut self) -> io::Result<Pin<&mut W>> {
        self.half.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<W: Half> Drop for Sender<W> {
    fn drop(&mut self) {
        if let Some(half) = self.half.take().filter(|_| self.given.get()) {
            half.forget();
        }
    }
}

impl<W: Half> AsyncWrite for Sender<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.half()?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half()?.poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.half()?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.half.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

impl<W: Half> fmt::Debug for Sender<W> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sender").finish_non_exhaustive()
    }
}
