//! The clients of an engine go over to the one that takes its place in a live upgrade.
//!
//! The engine that runs listens on an abstract unix socket named after it; the next one learns the name
//! from the replicas it is about to claim, and asks before it claims the first. All clients pause between
//! two requests, and their connections and the listening sockets are sent over. Only when the volume
//! is started does the new engine take them; if it ends before that, they go on where they were.
//! `docs/decisions/0084-clients-go-over-to-the-next-engine.md`.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::frontend::{Belongings, Client, Told, Transport};

use super::engine::Engine;
use super::probe::{Looked, ProbeError};

/// Until the engine that runs says that it has heard.
const HEARS: Duration = Duration::from_secs(5);
/// Until it has sent what there is: its clients' requests end before that.
const SENDS: Duration = Duration::from_mins(1);
/// Until the new engine has started the volume; its clients wait meanwhile.
const STARTS: Duration = Duration::from_mins(1);
/// Until the engine that ran has let go of its clients.
const LEAVES: Duration = Duration::from_secs(30);
/// Looks at whether it has ended, and the pause between them.
const ENDS_LOOKS: usize = 40;
const ENDS_PAUSE: Duration = Duration::from_millis(50);
/// Fields of `/proc/PID/stat` between the state and the time of the start.
const STARTED_AFTER_STATE: usize = 18;
/// Longest description of one thing.
const ITEM_MAX: usize = 64 << 10;
/// The most a client can have sent that nobody has looked at.
const INPUT_MAX: u64 = 128 << 20;
/// More than there can be connections.
const ITEMS_MAX: usize = 4096;

const HEARD: &[u8; 1] = b"h";
const TAKEN: &[u8; 1] = b"t";
const DONE: &[u8; 1] = b"d";

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
struct Ask {
    frontend: String,
}

/// One thing that goes over, with its descriptor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Item {
    Tcp,
    Unix {
        path: PathBuf,
    },
    Client {
        transport: Transport,
        told: Option<Told>,
        input_bytes: u64,
    },
    /// That was all; it has none.
    End,
}

fn socket_of(engine: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("holdfast-engine-{engine}"))
}

/// What another engine has sent, and still has.
#[derive(Debug)]
pub(super) struct Offer {
    stream: UnixStream,
    belongings: Belongings,
    sender: Sender,
}

impl Offer {
    /// From now on they are this engine's, and nobody's else. Where the other engine did not let go of
    /// its clients and runs on, it reads from them again: they are its own then, and are not served here.
    pub(super) async fn take(self) -> Belongings {
        let Self { mut stream, mut belongings, sender } = self;
        let told = move || {
            stream.set_read_timeout(Some(LEAVES))?;
            let left =
                stream.write_all(TAKEN).and_then(|()| stream.read_exact(&mut [0; DONE.len()]));
            // It was killed: whatever it read from them ended with it.
            left.or_else(|error| if sender.has_ended() { Ok(()) } else { Err(error) })
        };
        let told = tokio::task::spawn_blocking(told).await;
        if let Err(error) = told.unwrap_or_else(|error| Err(io::Error::other(error))) {
            let clients = belongings.clients.len();
            tracing::warn!(%error, "the engine before keeps its {clients} clients: {error}");
            belongings.clients.clear();
        }
        belongings
    }
}

/// The process at the other end.
#[derive(Debug)]
struct Sender {
    pid: i32,
    /// A number may be given to another process; then this differs.
    started: Option<String>,
}

impl Sender {
    /// # Errors
    /// If it is not a process of this user, or of the system: anybody may listen at a name that is free.
    fn of(stream: &UnixStream) -> io::Result<Self> {
        let peer = rustix::net::sockopt::socket_peercred(stream)?;
        if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
            let uid = peer.uid.as_raw();
            let why = format!("user {uid} listens there, who is not the one of this engine");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let pid = peer.pid.as_raw_pid();
        Ok(Self { pid, started: started(pid) })
    }

    /// Waits a moment: what a process had open is closed before it has ended.
    fn has_ended(&self) -> bool {
        // One that was never seen may be anywhere.
        let Some(then) = &self.started else { return false };
        for _ in 0..ENDS_LOOKS {
            if started(self.pid).as_ref() != Some(then) {
                return true;
            }
            std::thread::park_timeout(ENDS_PAUSE);
        }
        false
    }
}

/// When a process started, in the system's own words; nothing of one that has ended.
fn started(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.nth(STARTED_AFTER_STATE))?.map(str::to_owned)
}

/// The engine that claimed last, of those that the replicas know.
fn last_engine<'l>(looked: impl Iterator<Item = &'l Looked>) -> Option<String> {
    let claims = looked.filter_map(|looked| Some(&looked.standing.as_ref()?.claim));
    let last = claims.max_by_key(|claim| claim.generation)?;
    (!last.engine.is_empty()).then(|| last.engine.clone())
}

fn ask(engine: &str, frontend: String) -> io::Result<Option<Offer>> {
    let mut stream = match UnixStream::connect_addr(&socket_of(engine)?) {
        // It has ended, or runs on another machine.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        other => other?,
    };
    let sender = Sender::of(&stream)?;
    stream.set_write_timeout(Some(HEARS))?;
    stream.set_read_timeout(Some(HEARS))?;
    let asked = serde_json::to_vec(&Ask { frontend })?;
    send(&stream, &asked, None)?;
    stream.read_exact(&mut [0; HEARD.len()])?;
    stream.set_read_timeout(Some(SENDS))?;
    let mut belongings = Belongings::default();
    for _ in 0..ITEMS_MAX {
        let (bytes, line) = receive(&mut stream)?;
        let line = || line.ok_or_else(|| invalid("a descriptor is missing"));
        match serde_json::from_slice(&bytes)? {
            Item::End => return Ok(Some(Offer { stream, belongings, sender })),
            Item::Tcp => belongings.tcp = Some(TcpListener::from(line()?)),
            Item::Unix { path } => belongings.unix = Some((path, UnixListener::from(line()?))),
            Item::Client { transport, told, input_bytes } => {
                let line = line()?;
                let len = usize::try_from(input_bytes.min(INPUT_MAX + 1)).unwrap_or(usize::MAX);
                if input_bytes > INPUT_MAX {
                    return Err(invalid("a client has sent too much"));
                }
                let mut input = vec![0; len];
                stream.read_exact(&mut input)?;
                let input = input.into();
                belongings.clients.push(Client { line, transport, told, input });
            }
        }
    }
    Err(invalid("there is no end to it"))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Sends a length, with the descriptor, and then so many bytes.
fn send(mut stream: &UnixStream, bytes: &[u8], line: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?.to_be_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let lines: Vec<_> = line.into_iter().collect();
    if !lines.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&lines));
    }
    let sent = sendmsg(stream, &[IoSlice::new(&len)], &mut control, SendFlags::NOSIGNAL)?;
    if sent != len.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    stream.write_all(bytes)
}

fn receive(stream: &mut UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut len = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut len)];
    let got = recvmsg(&*stream, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut line = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(lines) = message {
            line = lines.into_iter().next();
        }
    }
    if got.bytes != len.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
    if len > ITEM_MAX {
        return Err(invalid("a description is too long"));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok((bytes, line))
}

/// Sends all of it; what is sent stays here as well.
fn send_all(stream: &UnixStream, belongings: &Belongings) -> io::Result<()> {
    let item = |item: &Item, line| send(stream, &serde_json::to_vec(item)?, line);
    if let Some(tcp) = &belongings.tcp {
        item(&Item::Tcp, Some(tcp.as_fd()))?;
    }
    if let Some((path, unix)) = &belongings.unix {
        item(&Item::Unix { path: path.clone() }, Some(unix.as_fd()))?;
    }
    for Client { line, transport, told, input } in &belongings.clients {
        let (told, input_bytes) = (told.clone(), input.len() as u64);
        item(&Item::Client { transport: *transport, told, input_bytes }, Some(line.as_fd()))?;
        (&mut &*stream).write_all(input)?;
    }
    item(&Item::End, None)
}

impl Engine {
    /// Asks the engine that runs for its clients, if the frontend is one that can take them.
    pub(super) async fn ask_for_clients(&self, looked: &[Result<Option<Looked>, ProbeError>]) {
        let frontend = self.state().frontend.clone();
        let Some(engine) = last_engine(looked.iter().flatten().flatten()) else { return };
        if frontend.is_empty() {
            return;
        }
        let asked = tokio::task::spawn_blocking(move || ask(&engine, frontend)).await;
        match asked.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(offer) => {
                if let Some(offer) = &offer {
                    let clients = offer.belongings.clients.len();
                    tracing::info!(clients, "the engine that runs hands over {clients} clients");
                }
                self.state().offer = offer;
            }
            Err(error) => tracing::warn!(
                %error,
                "the engine that runs does not hand over its clients: they have to connect again"
            ),
        }
    }

    /// Hands clients over to whoever takes over from this engine.
    pub(super) fn offer_clients(self: &Arc<Self>) {
        let listening = socket_of(&self.name)
            .and_then(|address| UnixListener::bind_addr(&address))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .and_then(tokio::net::UnixListener::from_std);
        let listener = match listening {
            Ok(listener) => listener,
            Err(error) => {
                return tracing::warn!(%error, "in a live upgrade clients will be disconnected");
            }
        };
        let engine = Arc::downgrade(self);
        self.tasks.spawn("hand over clients", async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // Out of descriptors: the next call would fail as well.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let ours = rustix::process::geteuid().as_raw();
                if !stream.peer_cred().is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0) {
                    continue;
                }
                let Some(engine) = engine.upgrade() else { return };
                match engine.hand_over(stream).await {
                    Ok(()) => return,
                    Err(error) => tracing::warn!(%error, "clients are not handed over: {error}"),
                }
            }
        });
    }

    /// # Errors
    /// If the clients are this engine's still.
    async fn hand_over(&self, mut stream: tokio::net::UnixStream) -> io::Result<()> {
        let asked = tokio::time::timeout(HEARS, heard(&mut stream)).await??;
        // One operation at a time: nothing else pauses or moves clients meanwhile.
        let _order = tokio::time::timeout(SENDS, self.order.lock()).await?;
        let parted = self.volume.part_clients(&asked.frontend).await;
        let Some(belongings) = parted else {
            return Err(io::Error::other("they cannot pause, or use another frontend"));
        };
        let offered = self.offer(stream, belongings).await;
        let mut stream = match offered {
            Ok(stream) => stream,
            Err(error) => {
                // Where the other has claimed the copies, nothing can be done for them here.
                if self.volume.cut_off_by().is_some() {
                    self.volume.cut_frontend().await.unwrap_or_else(|error| {
                        tracing::warn!(%error, "the frontend does not end: {error}");
                    });
                } else {
                    self.volume.resume_clients().await;
                }
                return Err(error);
            }
        };
        self.volume.leave_clients().await;
        tracing::info!("another engine has taken the clients over");
        // It goes on without, should this not reach it.
        let _ = stream.write_all(DONE).await;
        Ok(())
    }

    /// Sends what there is, and waits until it is taken.
    async fn offer(
        &self,
        stream: tokio::net::UnixStream,
        belongings: Belongings,
    ) -> io::Result<tokio::net::UnixStream> {
        let stream = stream.into_std()?;
        let sent = tokio::task::spawn_blocking(move || {
            stream.set_nonblocking(false)?;
            stream.set_write_timeout(Some(HEARS))?;
            send_all(&stream, &belongings)?;
            stream.set_nonblocking(true)?;
            Ok::<_, io::Error>(stream)
        });
        let mut stream = tokio::net::UnixStream::from_std(sent.await.map_err(io::Error::other)??)?;
        let mut answer = [0; TAKEN.len()];
        tokio::time::timeout(STARTS, stream.read_exact(&mut answer)).await??;
        if answer == *TAKEN { Ok(stream) } else { Err(invalid("an answer nobody knows")) }
    }
}

async fn heard(stream: &mut tokio::net::UnixStream) -> io::Result<Ask> {
    let len = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
    if len > ITEM_MAX {
        return Err(invalid("a question is too long"));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).await?;
    let asked = serde_json::from_slice(&bytes)?;
    stream.write_all(HEARD).await?;
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One client, offered by that process, which does not say that it left it.
    fn offered(pid: i32) -> (Offer, UnixStream) {
        let (stream, other) = UnixStream::pair().unwrap();
        let (line, _) = UnixStream::pair().unwrap();
        let client = Client {
            line: line.into(),
            transport: Transport::Unix,
            told: None,
            input: bytes::Bytes::new(),
        };
        let belongings = Belongings { clients: vec![client], ..Belongings::default() };
        (Offer { stream, belongings, sender: Sender { pid, started: started(pid) } }, other)
    }

    #[tokio::test]
    async fn clients_that_their_engine_takes_back_are_not_served_by_two() {
        let (offer, other) = offered(std::process::id().cast_signed());
        drop(other);
        assert!(offer.take().await.clients.is_empty());
    }

    #[tokio::test]
    async fn clients_of_an_engine_that_was_killed_are_taken() {
        let mut engine = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (offer, other) = offered(engine.id().cast_signed());
        engine.kill().unwrap();
        engine.wait().unwrap();
        drop(other);
        assert_eq!(offer.take().await.clients.len(), 1);
    }

    #[test]
    fn a_process_is_known_by_when_it_started() {
        let own = std::process::id().cast_signed();
        assert!(started(own).unwrap().parse::<u64>().unwrap() > 0);
        assert_eq!(started(i32::MAX), None);
    }
}
