//! Frontend `nbd`: the volume as an NBD export, on TCP (inside TLS if told so) and on a unix
//! socket.
//!
//! Owns: listeners, the negotiation of a connection and its deadline. [`session`] is what comes
//! after it; the protocol itself is `wire::nbd`.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use futures::future::{FutureExt, LocalBoxFuture, ready};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;
use wire::nbd::{
    BlockSize, Export, Exports, Negotiation, Policy, Session, Step, Tls, TransmissionFlags,
};

use self::session::Speaker;
use super::conn::converse;
use super::guests::Guests;
use super::listen::{SocketFile, accept_all, bind_unix};
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
    /// Removed with the frontend.
    _file: Option<SocketFile>,
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
        let guests = Guests::new(&site.hub);
        let volume = site.options.volume.clone();
        let server = Rc::new(Server { guests: guests.clone(), volume: volume.clone(), acceptor });

        let unix = options.unix.as_deref().map(bind_unix).transpose()?;
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listen = options.listen.or_else(|| options.unix.is_none().then_some(free));
        let mut endpoint = None;
        if let Some(address) = listen {
            let (listener, bound) = bind_tcp(address).await?;
            endpoint = Some(format!("{scheme}://{bound}/{volume}"));
            let server = Rc::clone(&server);
            guests.until_stop(accept_all(listener, move |stream| server.welcome_tcp(stream)));
        }
        let file = unix.map(|(listener, file)| {
            guests.until_stop(accept_all(listener, move |stream| server.welcome_unix(stream)));
            file
        });
        let by_file = |file: &SocketFile| {
            let query = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("socket", &file.path.to_string_lossy())
                .finish()
                .replace("%2F", "/");
            format!("{scheme}+unix:///{volume}?{query}")
        };
        let endpoint = endpoint.or_else(|| file.as_ref().map(by_file)).unwrap_or_default();
        Ok(Self { guests, endpoint, _file: file })
    }
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
            server.serve(stream, tls, TcpStream::into_split).await;
        });
    }

    /// Who may open the socket's file needs no certificate; who wants encryption gets it.
    fn welcome_unix(self: &Rc<Self>, stream: UnixStream) {
        let server = Rc::clone(self);
        self.welcome(async move {
            let tls = if server.acceptor.is_some() { Tls::Offered } else { Tls::Off };
            server.serve(stream, tls, UnixStream::into_split).await;
        });
    }

    fn welcome(&self, serve: impl Future<Output = ()> + 'static) {
        if self.guests.has_room() {
            self.guests.welcome(serve);
        } else {
            tracing::warn!("too many connections: one turned away");
        }
    }

    async fn serve<S, R, W>(&self, stream: S, tls: Tls, split: impl FnOnce(S) -> (R, W))
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
        R: AsyncRead + Unpin,
        W: AsyncWrite + 'static,
    {
        let in_time = tokio::time::timeout(NEGOTIATION, self.agree(stream, Policy { tls }));
        let agreed = self.guests.stop.run_until_cancelled(in_time).await;
        let Some(Ok(Some((session, line, input)))) = agreed else {
            return tracing::debug!("a client left, or was left, before the end of negotiation");
        };
        let speaker = Speaker::new(session);
        match line {
            Line::Plain(stream) => {
                let (reader, writer) = split(stream);
                converse(&self.guests, speaker, reader, writer, Intake::with(input)).await;
            }
            Line::Encrypted(stream) => {
                let (reader, writer) = tokio::io::split(*stream);
                converse(&self.guests, speaker, reader, writer, Intake::with(input)).await;
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

/// A connection after its negotiation.
enum Line<S> {
    Plain(S),
    Encrypted(Box<tokio_rustls::server::TlsStream<S>>),
}
