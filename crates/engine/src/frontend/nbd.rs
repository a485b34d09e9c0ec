//! Frontend `nbd`: the volume as an NBD export, on TCP (inside TLS if told so) and on a unix
//! socket.
//!
//! Owns: listeners, the negotiation of a connection and its deadline. [`session`] is what comes
//! after it; the protocol itself is `wire::nbd`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use futures::future::{FutureExt, LocalBoxFuture, ready};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use wire::nbd::{
    BlockSize, Context, Export, Exports, Negotiation, Policy, Session, Step, Tls, TransmissionFlags,
};

use self::session::Speaker;
use super::conn::{converse, converse_plain};
use super::guests::Guests;
use super::listen::{SocketFile, accept_all, adopt_tcp, adopt_unix, bind_unix};
use super::parting::{Belongings, Client, Plain, Told, Transport};
use super::{Frontend, FrontendError, Site};
use crate::volume::hub::Hub;
use crate::volume::intake::Intake;

mod session;
mod tls;

/// How long a client may take to say what it wants, encryption included.
const NEGOTIATION: Duration = Duration::from_secs(10);

pub(crate) struct Nbd {
    guests: Guests,
    endpoint: String,
    tcp: Option<Rc<TcpListener>>,
    /// The file is removed with the frontend.
    unix: Option<(Rc<UnixListener>, SocketFile)>,
}

/// What every connection is served with.
struct Server {
    guests: Guests,
    volume: String,
    acceptor: Option<TlsAcceptor>,
}

impl Nbd {
    pub(crate) async fn start(site: &Site) -> Result<Self, FrontendError> {
        let options = &site.options.nbd;
        let acceptor = options.tls.as_ref().map(tls::acceptor).transpose()?;
        let scheme = if acceptor.is_some() { "nbds" } else { "nbd" };
        let guests = Guests::new(&site.hub, &site.cut);
        let volume = site.options.volume.clone();
        let server = Rc::new(Server { guests: guests.clone(), volume: volume.clone(), acceptor });

        let Belongings { tcp: inherited_tcp, unix: inherited_unix, clients } =
            site.options.inherited.take();
        let unix = listen_unix(options.unix.as_deref(), inherited_unix)?;
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listen = options.listen.or_else(|| options.unix.is_none().then_some(free));
        let mut endpoint = None;
        let mut tcp = None;
        if let Some(address) = listen {
            let (listener, bound) = listen_tcp(address, inherited_tcp).await?;
            endpoint = Some(format!("{scheme}://{bound}/{volume}"));
            let (server, listener) = (Rc::clone(&server), Rc::new(listener));
            tcp = Some(Rc::clone(&listener));
            let parting = Rc::clone(&guests.parting);
            let welcome = move |stream| server.welcome_tcp(stream);
            guests.until_stop(accept_all(listener, parting, welcome));
        }
        for client in clients {
            server.resume(client);
        }
        let unix = unix.map(|(listener, file)| (Rc::new(listener), file));
        if let Some((listener, _)) = &unix {
            let parting = Rc::clone(&guests.parting);
            let welcome = move |stream| server.welcome_unix(stream);
            guests.until_stop(accept_all(Rc::clone(listener), parting, welcome));
        }
        let by_file = |file: &SocketFile| {
            let query = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("socket", &file.path.to_string_lossy())
                .finish()
                .replace("%2F", "/");
            format!("{scheme}+unix:///{volume}?{query}")
        };
        let file = unix.as_ref().map(|(_, file)| file);
        let endpoint = endpoint.or_else(|| file.map(by_file)).unwrap_or_default();
        Ok(Self { guests, endpoint, tcp, unix })
    }
}

/// The socket at that place, or the one of another engine that is there.
fn listen_unix(
    wanted: Option<&Path>,
    inherited: Option<(PathBuf, std::os::unix::net::UnixListener)>,
) -> Result<Option<(UnixListener, SocketFile)>, FrontendError> {
    // One that is not wanted here goes, and its file with it.
    let inherited = inherited.map(|(at, listener)| (SocketFile::inherited(at), listener));
    let Some(path) = wanted else { return Ok(None) };
    if let Some((file, listener)) = inherited.filter(|(file, _)| file.path == path)
        && let Ok(listener) = adopt_unix(listener)
    {
        return Ok(Some((listener, file)));
    }
    bind_unix(path).map(Some)
}

/// The socket at that address, or the one of another engine that is there. Port 0 is any.
async fn listen_tcp(
    address: SocketAddr,
    inherited: Option<std::net::TcpListener>,
) -> Result<(TcpListener, SocketAddr), FrontendError> {
    let is_wanted = |bound: SocketAddr| {
        bound.ip() == address.ip() && (address.port() == 0 || bound.port() == address.port())
    };
    if let Some(listener) = inherited
        && let Ok(bound) = listener.local_addr()
        && is_wanted(bound)
        && let Ok(listener) = adopt_tcp(listener)
    {
        return Ok((listener, bound));
    }
    bind_tcp(address).await
}

async fn bind_tcp(address: SocketAddr) -> Result<(TcpListener, SocketAddr), FrontendError> {
    let failed = |error| FrontendError::Failed(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

impl Frontend for Nbd {
    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// New connections are told the size of the moment, and those that are open may use it.
    fn resize(&self, _size_bytes: u64) -> LocalBoxFuture<'_, Result<(), FrontendError>> {
        ready(Ok(())).boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, Result<(), FrontendError>> {
        async move {
            self.guests.dismiss().await;
            Ok(())
        }
        .boxed_local()
    }

    /// Clients inside TLS stay: what was agreed there cannot be given away.
    fn part(&self) -> LocalBoxFuture<'_, Option<Belongings>> {
        async move {
            let clients = self.guests.pause().await?;
            let tcp = self.tcp.as_deref().and_then(super::twin_of).map(Into::into);
            let unix = self.unix.as_ref().and_then(|(listener, file)| {
                Some((file.path.clone(), super::twin_of(&**listener)?.into()))
            });
            Some(Belongings { tcp, unix, clients })
        }
        .boxed_local()
    }

    fn resume(&self) {
        self.guests.parting.resume();
    }

    fn leave(mut self: Box<Self>) {
        if let Some((_, file)) = &mut self.unix {
            file.give();
        }
        self.guests.leave();
    }
}

/// The export of that name on this volume, as large as it is now.
pub(crate) fn export(volume: &str, hub: &Hub) -> Option<Export> {
    let flags = TransmissionFlags::VOLUME;
    Export::new(volume, hub.size_bytes(), flags, BlockSize::default()).ok()
}

/// One export, which is also the default one.
struct Only<'a>(&'a Server);

impl Exports for Only<'_> {
    fn find(&self, name: &str) -> Option<Export> {
        let ours = name.is_empty() || name == self.0.volume;
        export(&self.0.volume, &self.0.guests.hub).filter(|_| ours)
    }

    fn list(&self) -> Option<Vec<Export>> {
        Some(self.find("").into_iter().collect())
    }
}

/// Where a negotiation leads.
enum Agreed {
    Session(Session),
    Encrypt,
}

impl Server {
    fn welcome_tcp(self: &Rc<Self>, stream: TcpStream) {
        let server = Rc::clone(self);
        self.welcome(async move {
            let tls = if server.acceptor.is_some() { Tls::Required } else { Tls::Off };
            server.serve(stream, tls).await;
        });
    }

    /// Who may open the socket's file needs no certificate; who wants encryption gets it.
    fn welcome_unix(self: &Rc<Self>, stream: UnixStream) {
        let server = Rc::clone(self);
        self.welcome(async move {
            let tls = if server.acceptor.is_some() { Tls::Offered } else { Tls::Off };
            server.serve(stream, tls).await;
        });
    }

    fn welcome(&self, serve: impl Future<Output = ()> + 'static) {
        if self.guests.has_room() {
            self.guests.welcome(serve);
        } else {
            tracing::warn!("too many connections: one turned away");
        }
    }

    /// Goes on with a client of another engine where that left off.
    fn resume(self: &Rc<Self>, client: Client) {
        let Client { line, transport, told, input } = client;
        let Some(session) = told.and_then(|told| self.session(told)) else {
            return tracing::warn!("a client is lost: what it was told is not known here");
        };
        let (server, intake) = (Rc::clone(self), Intake::with(input.into()));
        match transport {
            Transport::Tcp => match adopt_tcp_stream(line) {
                Ok(stream) => self.guests.welcome(async move {
                    converse_plain(&server.guests, Speaker::new(session), stream, intake).await;
                }),
                Err(error) => tracing::warn!(%error, "a client is lost"),
            },
            Transport::Unix => match adopt_unix_stream(line) {
                Ok(stream) => self.guests.welcome(async move {
                    converse_plain(&server.guests, Speaker::new(session), stream, intake).await;
                }),
                Err(error) => tracing::warn!(%error, "a client is lost"),
            },
        }
    }

    fn session(&self, told: Told) -> Option<Session> {
        let Told { export, flags, structured, status } = told;
        let flags = TransmissionFlags::from_bits(flags);
        let size = self.guests.hub.size_bytes();
        let export = Export::new(&export, size, flags, BlockSize::default()).ok()?;
        let contexts = if status { vec![Context::BaseAllocation] } else { Vec::new() };
        Some(Session { export, structured, contexts, encrypted: false })
    }

    async fn serve<S>(&self, stream: S, tls: Tls)
    where
        S: Plain + AsyncRead + AsyncWrite + Unpin,
    {
        let in_time = tokio::time::timeout(NEGOTIATION, self.agree(stream, Policy { tls }));
        let agreed = self.guests.stop.run_until_cancelled(in_time).await;
        let Some(Ok(Some((session, line, input)))) = agreed else {
            return tracing::debug!("a client left, or was left, before the end of negotiation");
        };
        let speaker = Speaker::new(session);
        match line {
            Line::Plain(stream) => {
                converse_plain(&self.guests, speaker, stream, Intake::with(input)).await;
            }
            Line::Encrypted(stream) => {
                let (reader, writer) = tokio::io::split(*stream);
                let intake = Intake::with(input);
                converse(&self.guests, speaker, reader, writer, intake, None).await;
            }
        }
    }

    /// Negotiates, with a TLS handshake in between if the client asks for it.
    async fn agree<S>(&self, mut stream: S, policy: Policy) -> Option<(Session, Line<S>, BytesMut)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
        let mut negotiation = Negotiation::new(policy, &mut output);
        let talk = self.talk(&mut stream, &mut negotiation, &mut input, &mut output);
        match talk.await? {
            Agreed::Session(session) => return Some((session, Line::Plain(stream), input)),
            Agreed::Encrypt => {}
        }
        let accepted = self.acceptor.as_ref()?.accept(stream).await;
        let refused = |error: &std::io::Error| tracing::warn!(%error, "TLS handshake failed");
        let mut stream = Box::new(accepted.inspect_err(refused).ok()?);
        negotiation.encrypted();
        let talk = self.talk(&mut stream, &mut negotiation, &mut input, &mut output);
        match talk.await? {
            Agreed::Session(session) => Some((session, Line::Encrypted(stream), input)),
            Agreed::Encrypt => None,
        }
    }

    async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        negotiation: &mut Negotiation,
        input: &mut BytesMut,
        output: &mut BytesMut,
    ) -> Option<Agreed> {
        loop {
            stream.write_all(&output.split()).await.ok()?;
            stream.flush().await.ok()?;
            let step = negotiation.feed(input, &Only(self), output);
            stream.write_all(&output.split()).await.ok()?;
            stream.flush().await.ok()?;
            match step {
                Step::Again => {}
                Step::NeedMore => {
                    let count = tokio::io::AsyncReadExt::read_buf(stream, input).await.ok()?;
                    if count == 0 {
                        return None;
                    }
                }
                Step::StartTls => return Some(Agreed::Encrypt),
                Step::Done(session) => return Some(Agreed::Session(session)),
                Step::Close(reason) => {
                    tracing::info!(%reason, "NBD client left in negotiation");
                    return None;
                }
            }
        }
    }
}

fn adopt_tcp_stream(line: OwnedFd) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::from(line);
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

fn adopt_unix_stream(line: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(line);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// A connection after its negotiation.
enum Line<S> {
    Plain(S),
    Encrypted(Box<tokio_rustls::server::TlsStream<S>>),
}
