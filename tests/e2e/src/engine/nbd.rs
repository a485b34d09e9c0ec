//! A small NBD client that knows of each request whether it was acknowledged. Many requests may be
//! under way at once.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use wire::nbd::client::{Agreed, Dial, Dialing, Reply, decode_reply};
use wire::nbd::{Chunk, Command, CommandFlags, Errno, Extent, Request, encode_request};

const MAX_PAYLOAD: u32 = 32 << 20;

/// Where an export is, as an NBD URI says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Tcp { address: String, export: String },
    Unix { path: PathBuf, export: String },
}

impl Endpoint {
    #[track_caller]
    pub fn parse(uri: &str) -> Self {
        let (scheme, rest) = uri.split_once("://").unwrap_or_else(|| panic!("{uri:?} is no URI"));
        let (place, export) = rest.split_once('/').unwrap_or((rest, ""));
        match scheme {
            "nbd" | "nbds" => Self::Tcp { address: place.to_owned(), export: export.to_owned() },
            "nbd+unix" | "nbds+unix" => {
                let (export, query) = export.split_once('?').unwrap();
                let path = query.strip_prefix("socket=").unwrap().into();
                Self::Unix { path, export: export.to_owned() }
            }
            other => panic!("{uri}: {other} is not NBD"),
        }
    }

    pub fn uri(&self) -> String {
        match self {
            Self::Tcp { address, export } => format!("nbd://{address}/{export}"),
            Self::Unix { path, export } => {
                format!("nbd+unix:///{export}?socket={}", path.display())
            }
        }
    }

    pub fn export(&self) -> &str {
        match self {
            Self::Tcp { export, .. } | Self::Unix { export, .. } => export,
        }
    }
}

#[derive(Debug)]
pub enum NbdError {
    /// The connection is gone: the request may have been done or not.
    Lost(io::Error),
    /// The server said no; of a change, nothing is known either.
    Refused(Errno, String),
}

impl std::fmt::Display for NbdError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lost(_) => f.write_str("the connection to the volume is gone"),
            Self::Refused(errno, why) => write!(f, "the volume refused: {errno:?} {why}"),
        }
    }
}

impl std::error::Error for NbdError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost(error) => Some(error),
            Self::Refused(..) => None,
        }
    }
}

impl From<io::Error> for NbdError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

type Sender = Box<dyn AsyncWrite + Send + Unpin>;
type Receiver = Box<dyn AsyncRead + Send + Unpin>;

/// A connection. Dropping it closes it.
pub struct Nbd {
    agreed: Agreed,
    sender: tokio::sync::Mutex<Sender>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    _receiver: JoinSet<()>,
}

impl std::fmt::Debug for Nbd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nbd").field("agreed", &self.agreed).finish_non_exhaustive()
    }
}

/// What has come of the answer to a request so far.
struct Pending {
    /// Of a read: where, and the bytes that have come.
    offset: u64,
    bytes: Vec<u8>,
    extents: Vec<Extent>,
    fault: Option<(Errno, String)>,
    done: oneshot::Sender<Result<Answered, NbdError>>,
}

#[derive(Debug, Default)]
struct Answered {
    bytes: Vec<u8>,
    extents: Vec<Extent>,
}

#[derive(Default)]
struct Waiting {
    requests: HashMap<u64, Pending>,
    /// Why nothing more will come.
    lost: Option<String>,
}

impl Nbd {
    pub async fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        let (receiver, sender): (Receiver, Sender) = match endpoint {
            Endpoint::Tcp { address, .. } => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let (receiver, sender) = stream.into_split();
                (Box::new(receiver), Box::new(sender))
            }
            Endpoint::Unix { path, .. } => {
                let (receiver, sender) = UnixStream::connect(path).await?.into_split();
                (Box::new(receiver), Box::new(sender))
            }
        };
        Self::negotiate(endpoint.export(), receiver, sender).await
    }

    async fn negotiate(
        export: &str,
        mut receiver: Receiver,
        mut sender: Sender,
    ) -> io::Result<Self> {
        let mut dialing = Dialing::new(Dial {
            export: export.to_owned(),
            structured: true,
            allocation: true,
            ..Dial::default()
        });
        let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
        let agreed = loop {
            let agreed = dialing.feed(&mut input, &mut output).map_err(io::Error::other)?;
            sender.write_all(&output.split()).await?;
            if let Some(agreed) = agreed {
                break agreed;
            }
            if receiver.read_buf(&mut input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let mut task = JoinSet::new();
        task.spawn(receive(receiver, input, waiting.clone()));
        let sender = tokio::sync::Mutex::new(sender);
        Ok(Self { agreed, sender, waiting, next: AtomicU64::new(1), _receiver: task })
    }

    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    pub fn size_bytes(&self) -> u64 {
        self.agreed.size_bytes
    }

    pub async fn read(&self, offset: u64, len: u32) -> Result<Vec<u8>, NbdError> {
        let command = Command::Read { offset, len };
        Ok(self.request(CommandFlags::NONE, command).await?.bytes)
    }

    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), NbdError> {
        self.change(CommandFlags::NONE, Command::Write { offset, data }).await
    }

    /// On disk when this returns.
    pub async fn write_durably(&self, offset: u64, data: Bytes) -> Result<(), NbdError> {
        self.change(CommandFlags::FUA, Command::Write { offset, data }).await
    }

    pub async fn flush(&self) -> Result<(), NbdError> {
        self.change(CommandFlags::NONE, Command::Flush).await
    }

    pub async fn trim(&self, offset: u64, len: u32) -> Result<(), NbdError> {
        self.change(CommandFlags::NONE, Command::Trim { offset, len }).await
    }

    pub async fn zero(&self, offset: u64, len: u32) -> Result<(), NbdError> {
        self.change(CommandFlags::NONE, Command::WriteZeroes { offset, len }).await
    }

    pub async fn status(&self, offset: u64, len: u32) -> Result<Vec<Extent>, NbdError> {
        let command = Command::BlockStatus { offset, len };
        Ok(self.request(CommandFlags::NONE, command).await?.extents)
    }

    pub async fn read_all(&self) -> Result<Vec<u8>, NbdError> {
        let (mut contents, mut offset) = (Vec::new(), 0);
        while offset < self.size_bytes() {
            let len = u32::try_from((self.size_bytes() - offset).min(1 << 20)).unwrap();
            contents.extend(self.read(offset, len).await?);
            offset += u64::from(len);
        }
        Ok(contents)
    }

    async fn change(&self, flags: CommandFlags, command: Command) -> Result<(), NbdError> {
        self.request(flags, command).await.map(drop)
    }

    async fn request(&self, flags: CommandFlags, command: Command) -> Result<Answered, NbdError> {
        let cookie = self.next.fetch_add(1, Ordering::Relaxed);
        let (offset, read_len) = match &command {
            Command::Read { offset, len } => (*offset, *len as usize),
            _ => (0, 0),
        };
        let request = Request { cookie, flags, command };
        let (head, payload) = encode_request(&request).map_err(io::Error::other)?;
        let (done, answer) = oneshot::channel();
        let pending =
            Pending { offset, bytes: vec![0; read_len], extents: Vec::new(), fault: None, done };
        self.waiting.lock().unwrap().add(cookie, pending)?;
        let mut sender = self.sender.lock().await;
        sender.write_all(&head).await?;
        sender.write_all(&payload).await?;
        drop(sender);
        answer.await.unwrap_or_else(|_| Err(NbdError::Lost(io::ErrorKind::BrokenPipe.into())))
    }
}

impl Waiting {
    fn add(&mut self, cookie: u64, pending: Pending) -> io::Result<()> {
        if let Some(why) = &self.lost {
            return Err(io::Error::other(why.clone()));
        }
        self.requests.insert(cookie, pending);
        Ok(())
    }

    fn take(&mut self, reply: Reply) -> io::Result<()> {
        let unknown = |cookie| io::Error::other(format!("nobody asked for cookie {cookie}"));
        match reply {
            Reply::Simple { cookie, outcome } => {
                let mut pending = self.requests.remove(&cookie).ok_or_else(|| unknown(cookie))?;
                match outcome {
                    Ok(bytes) if bytes.len() == pending.bytes.len() => pending.bytes = bytes.into(),
                    Ok(bytes) => return Err(io::Error::other(format!("{} bytes", bytes.len()))),
                    Err(errno) => pending.fault = Some((errno, String::new())),
                }
                pending.finish();
            }
            Reply::Chunk { cookie, chunk, done } => {
                let pending = self.requests.get_mut(&cookie).ok_or_else(|| unknown(cookie))?;
                pending.take(chunk)?;
                if done {
                    let pending = self.requests.remove(&cookie).ok_or_else(|| unknown(cookie))?;
                    pending.finish();
                }
            }
        }
        Ok(())
    }
}

impl Pending {
    fn take(&mut self, chunk: Chunk) -> io::Result<()> {
        let outside = || io::Error::other("a chunk outside what was asked for");
        match chunk {
            Chunk::None => {}
            Chunk::Data { offset, data } => {
                let begin = usize::try_from(offset.checked_sub(self.offset).ok_or_else(outside)?);
                let begin = begin.map_err(io::Error::other)?;
                let part = self.bytes.get_mut(begin..begin + data.len()).ok_or_else(outside)?;
                part.copy_from_slice(&data);
            }
            // The bytes are zero already.
            Chunk::Hole { .. } => {}
            Chunk::BlockStatus { extents, .. } => self.extents = extents,
            Chunk::Error { errno, message } | Chunk::ErrorAt { errno, message, .. } => {
                self.fault = Some((errno, message));
            }
        }
        Ok(())
    }

    fn finish(self) {
        let answer = match self.fault {
            Some((errno, message)) => Err(NbdError::Refused(errno, message)),
            None => Ok(Answered { bytes: self.bytes, extents: self.extents }),
        };
        // Whoever asked may have stopped waiting.
        let _ = self.done.send(answer);
    }
}

async fn receive(mut receiver: Receiver, mut input: BytesMut, waiting: Arc<Mutex<Waiting>>) {
    let error = loop {
        if let Err(error) = take_all(&mut input, &waiting) {
            break error;
        }
        match receiver.read_buf(&mut input).await {
            Ok(0) => break io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let mut waiting = waiting.lock().unwrap();
    waiting.lost = Some(error.to_string());
    for (_, pending) in waiting.requests.drain() {
        let lost = io::Error::new(error.kind(), error.to_string());
        // Whoever asked may have stopped waiting.
        let _ = pending.done.send(Err(NbdError::Lost(lost)));
    }
}

fn take_all(input: &mut BytesMut, waiting: &Mutex<Waiting>) -> io::Result<()> {
    let mut waiting = waiting.lock().unwrap();
    loop {
        let len = |cookie: u64| {
            let pending = waiting.requests.get(&cookie);
            pending.map_or(0, |pending| u32::try_from(pending.bytes.len()).unwrap())
        };
        match decode_reply(input, MAX_PAYLOAD, len).map_err(io::Error::other)? {
            Some(reply) => waiting.take(reply)?,
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::process::Command;

    use testkit::process::{Process, Scratch, free_port};

    use super::*;
    use crate::engine::{TIMEOUT, tool};

    /// The client is right if a server of others agrees.
    #[tokio::test]
    async fn another_server_understands_this_client() {
        let Some(qemu_nbd) = tool("qemu-nbd", "the NBD client of the suites") else { return };
        let scratch = Scratch::new().unwrap();
        let image = scratch.path().join("disk.raw");
        std::fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
        let port = free_port().unwrap();
        let mut command = Command::new(qemu_nbd);
        command.args(["--format=raw", "--persistent", "--bind=127.0.0.1"]);
        command.arg(format!("--port={port}")).arg("--discard=unmap").arg(&image);
        let mut process = Process::start(command, scratch.path(), "qemu-nbd").unwrap();
        process.wait_for_port(SocketAddr::from(([127, 0, 0, 1], port)), TIMEOUT).unwrap();
        let endpoint = Endpoint::parse(&format!("nbd://127.0.0.1:{port}/"));
        let nbd = Nbd::connect(&endpoint).await.unwrap();
        assert_eq!(nbd.size_bytes(), 8 << 20);
        let (one, two) = (Bytes::from(vec![1; 65536]), Bytes::from(vec![2; 4096]));
        let writes = (nbd.write(1 << 20, one.clone()), nbd.write_durably(2 << 20, two.clone()));
        let written = futures::future::join(writes.0, writes.1).await;
        assert!(written.0.is_ok() && written.1.is_ok(), "{written:?}");
        nbd.flush().await.unwrap();
        assert_eq!(nbd.read(1 << 20, 65536).await.unwrap(), one);
        nbd.zero(1 << 20, 4096).await.unwrap();
        nbd.trim(2 << 20, 4096).await.unwrap();
        let contents = nbd.read_all().await.unwrap();
        assert_eq!(contents.len(), 8 << 20);
        assert!(contents[1 << 20..(1 << 20) + 4096].iter().all(|byte| *byte == 0));
        assert_eq!(contents[(1 << 20) + 4096], 1);
        let extents = nbd.status(0, 8 << 20).await.unwrap();
        assert!(extents.len() > 1, "{extents:?}");
        assert!(matches!(nbd.read(8 << 20, 512).await, Err(NbdError::Refused(..))));
        process.kill().unwrap();
        assert!(matches!(nbd.read(0, 512).await, Err(NbdError::Lost(_))));
    }
}
