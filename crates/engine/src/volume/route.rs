//! The way to one replica: its connections, or the file it is.
//!
//! Owns: dialing, which connection a request takes, and telling the core of replies and of the
//! end. Never: matches replies to requests, or decides about a replica: the core does.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use rpc::{Address, Features, local_data_socket};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use wire::frame::{self, Answer, Limits, Reply, Request};
use wire::membership::Claim;

use super::file::RawFile;
use super::hub::Hub;
use super::intake::Intake;
use super::outlet::{Outbox, Outlet};
use super::tune::widen;
use super::{Card, DataTarget};
use crate::core::{Mode, ReplicaId};

/// Connections to a replica that may answer in any order, as every engine opens them.
const CONNECTIONS: usize = 2;

pub(crate) enum Route {
    Remote(Remote),
    File(RawFile),
}

/// Closes its connections when dropped.
pub(crate) struct Remote {
    outlets: Vec<Rc<Outlet>>,
    next: Cell<usize>,
    readers: Vec<AbortHandle>,
}

impl Route {
    /// Puts a request on its way, or performs it and gives the answer at once.
    pub(crate) fn send(&self, outbox: &Outbox, request: Request) -> Option<Answer> {
        match self {
            Self::File(file) => file.perform(request),
            Self::Remote(remote) => remote.send(outbox, &request),
        }
    }
}

impl Remote {
    fn send(&self, outbox: &Outbox, request: &Request) -> Option<Answer> {
        let turn = self.next.get();
        self.next.set(turn.wrapping_add(1));
        let outlet = self.outlets.get(turn.checked_rem(self.outlets.len())?)?;
        match frame::encode_request(request, Limits::default()) {
            Ok(frame) => outbox.push(outlet, frame.into()),
            // Frontends take no request as long as that.
            Err(error) => tracing::error!(%error, "request not sent"),
        }
        None
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.readers.iter().for_each(AbortHandle::abort);
        self.outlets.iter().for_each(|outlet| outlet.close());
    }
}

/// Connects to a replica and takes it into the set.
pub(crate) async fn attach(
    hub: &Rc<Hub>,
    target: &DataTarget,
    features: Features,
    mode: Mode,
    card: &Card,
) -> io::Result<ReplicaId> {
    let gone = || io::Error::other("the volume is stopped");
    if let DataTarget::File(path) = target {
        let make = RawFile::open(path)?;
        let features = RawFile::FEATURES;
        let name = card.name.clone();
        return hub
            .add(features, mode, name, |hub, id| Route::File(make(hub, id)))
            .ok_or_else(gone);
    }
    let count = if features.has(Features::ORDERED) { 1 } else { CONNECTIONS };
    let timeout = hub.settings.replica_timeout;
    let dialing = async {
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(dial(target, features, card).await?);
        }
        Ok::<_, io::Error>(lines)
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the replica does not answer");
    let lines = tokio::time::timeout(timeout, dialing).await.map_err(late)??;
    let name = card.name.clone();
    hub.add(features, mode, name, |hub, id| Route::Remote(start(hub, id, lines))).ok_or_else(gone)
}

/// A connection, and what came on it already.
struct Line {
    reader: Box<dyn AsyncRead + Unpin>,
    writer: Box<dyn AsyncWrite + Unpin>,
    intake: Intake,
}

impl Line {
    fn new(
        (reader, writer): (impl AsyncRead + Unpin + 'static, impl AsyncWrite + Unpin + 'static),
    ) -> Self {
        Self { reader: Box::new(reader), writer: Box::new(writer), intake: Intake::default() }
    }

    /// A replica that understands flushes may keep writes in memory once it was sent one; until
    /// then it takes its engine for one that never does.
    async fn announce_flushes(self) -> io::Result<Self> {
        self.agree(&Request::Flush { sequence: 0 }).await
    }

    /// Says which engine this is; only that of the highest claim is heard.
    async fn greet(self, claim: &Claim) -> io::Result<Self> {
        let engine = claim.engine.clone().into_bytes().into();
        let hello = Request::Hello { sequence: 0, generation: claim.generation, engine };
        self.agree(&hello).await
    }

    /// Sends a request that the replica must agree to before anything else is said.
    async fn agree(mut self, request: &Request) -> io::Result<Self> {
        let frame = frame::encode_request(request, Limits::default()).map_err(io::Error::other)?;
        self.writer.write_all(&frame.header).await?;
        self.writer.write_all(&frame.payload).await?;
        loop {
            match frame::decode_reply(&mut self.intake.bytes, Limits::default()) {
                Ok(Some(Reply::Answer(Answer { outcome: frame::Outcome::Count(_), .. }))) => {
                    return Ok(self);
                }
                Ok(Some(Reply::Answer(Answer {
                    outcome: frame::Outcome::Error(text), ..
                }))) => {
                    return Err(io::Error::other(text));
                }
                Ok(Some(other)) => {
                    return Err(io::Error::other(format!("the replica does not agree: {other:?}")));
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
                Ok(None) => {}
            }
            if self.intake.fill(&mut self.reader).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

async fn dial(target: &DataTarget, features: Features, card: &Card) -> io::Result<Line> {
    let mut line = match target {
        DataTarget::Tcp(address) => match dial_local(address, features).await {
            Some(line) => line,
            None => dial_tcp(address).await?,
        },
        DataTarget::Unix(path) => unix_line(UnixStream::connect(path).await?),
        DataTarget::File(path) => {
            let text = format!("{} is no address to dial", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    };
    if features.has(Features::MEMBERSHIP)
        && let Some(claim) = &card.claim
    {
        line = line.greet(claim).await?;
    }
    if features.has(Features::FLUSH) { line.announce_flushes().await } else { Ok(line) }
}

fn unix_line(stream: UnixStream) -> Line {
    widen(&stream);
    Line::new(stream.into_split())
}

async fn dial_tcp(address: &Address) -> io::Result<Line> {
    let stream = rpc::dial((address.host(), address.port())).await?;
    Ok(Line::new(stream.into_split()))
}

/// The unix socket beside the data port of a replica on this machine: cheaper than TCP. `None` if
/// there is none, or if somebody else's process listens there.
async fn dial_local(address: &Address, features: Features) -> Option<Line> {
    let loopback = address
        .host()
        .parse::<IpAddr>()
        .map_or(address.host() == "localhost", |ip| ip.is_loopback());
    if !loopback || !features.has(Features::LOCAL) {
        return None;
    }
    let name = PathBuf::from(format!("\0{}", local_data_socket(address.port())));
    let stream = UnixStream::connect(Path::new(&name)).await.ok()?;
    let ours = rustix::process::geteuid().as_raw();
    let theirs = stream.peer_cred().ok()?.uid();
    (theirs == ours || theirs == 0).then(|| unix_line(stream))
}

fn start(hub: &Rc<Hub>, id: ReplicaId, lines: Vec<Line>) -> Remote {
    let (mut outlets, mut readers) = (Vec::new(), Vec::new());
    for Line { reader, writer, intake } in lines {
        let weak = Rc::downgrade(hub);
        outlets.push(Outlet::new(writer, move |error| lost(&weak, id, &error.to_string())));
        let weak = Rc::downgrade(hub);
        readers.push(hub.spawn(async move {
            let reason = listen(&weak, id, reader, intake).await;
            lost(&weak, id, &reason);
        }));
    }
    Remote { outlets, next: Cell::new(0), readers }
}

fn lost(hub: &Weak<Hub>, id: ReplicaId, reason: &str) {
    if let Some(hub) = hub.upgrade() {
        hub.lost(id, reason);
    }
}

/// Hands replies to the core until the connection ends; why it did.
async fn listen(
    hub: &Weak<Hub>,
    id: ReplicaId,
    mut reader: impl AsyncRead + Unpin,
    mut intake: Intake,
) -> String {
    loop {
        match intake.fill(&mut reader).await {
            Ok(0) => return "the replica closed the connection".to_owned(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
        let Some(hub) = hub.upgrade() else { return "the volume is stopped".to_owned() };
        hub.begin();
        let end = decode_all(&hub, id, &mut intake);
        hub.settle();
        if let Some(reason) = end {
            return reason;
        }
    }
}

/// Hands in every whole reply; why the connection is to be closed, if it is.
fn decode_all(hub: &Hub, id: ReplicaId, intake: &mut Intake) -> Option<String> {
    loop {
        match frame::decode_reply(&mut intake.bytes, Limits::default()) {
            Ok(Some(Reply::Answer(answer))) => hub.reply(id, answer),
            Ok(Some(Reply::CutOff { generation })) => {
                hub.cut_off(generation);
                return Some("the replica has another engine".to_owned());
            }
            Ok(Some(Reply::Close)) => return Some("the replica said goodbye".to_owned()),
            Ok(None) => return None,
            Err(error) => return Some(error.to_string()),
        }
    }
}
