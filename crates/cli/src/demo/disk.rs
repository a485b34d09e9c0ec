//! The bytes of a volume, through its NBD endpoint: one request at a time.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wire::nbd::client::{Dial, Dialing, Reply, decode_reply};
use wire::nbd::{Chunk, Command, CommandFlags, Request, encode_request};

/// What is moved by one request.
pub(super) const PIECE: u32 = 1 << 20;

pub(super) struct Disk {
    stream: TcpStream,
    input: BytesMut,
    next: u64,
}

impl Disk {
    /// Opens `nbd://ADDRESS/EXPORT`.
    pub(super) async fn open(uri: &str) -> io::Result<Self> {
        let place = uri.strip_prefix("nbd://").and_then(|it| it.split_once('/'));
        let (address, export) =
            place.ok_or_else(|| io::Error::other(format!("{uri} is not served over TCP")))?;
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut dialing = Dialing::new(Dial { export: export.to_owned(), ..Dial::default() });
        let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
        loop {
            let agreed = dialing.feed(&mut input, &mut output).map_err(io::Error::other)?;
            stream.write_all(&output.split()).await?;
            if agreed.is_some() {
                return Ok(Self { stream, input, next: 1 });
            }
            if stream.read_buf(&mut input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Writes pieces of noise, each known by its place and a seed, and flushes.
    pub(super) async fn write(
        &mut self,
        pieces: std::ops::Range<u64>,
        seed: u64,
    ) -> io::Result<()> {
        for place in pieces {
            let data = noise(place, seed);
            self.ask(Command::Write { offset: place * u64::from(PIECE), data }, 0).await?;
        }
        self.ask(Command::Flush, 0).await.map(drop)
    }

    /// The first piece that is not what was written, if any.
    pub(super) async fn differs(
        &mut self,
        pieces: std::ops::Range<u64>,
        seed: u64,
    ) -> io::Result<Option<u64>> {
        for place in pieces {
            let command = Command::Read { offset: place * u64::from(PIECE), len: PIECE };
            if self.ask(command, PIECE).await? != noise(place, seed) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    async fn ask(&mut self, command: Command, expected: u32) -> io::Result<Bytes> {
        let request = Request { cookie: self.next, flags: CommandFlags::NONE, command };
        self.next += 1;
        let (head, payload) = encode_request(&request).map_err(io::Error::other)?;
        self.stream.write_all(head.as_slice()).await?;
        self.stream.write_all(&payload).await?;
        loop {
            let reply =
                decode_reply(&mut self.input, PIECE, |_| expected).map_err(io::Error::other)?;
            match reply {
                Some(Reply::Simple { outcome: Ok(bytes), .. }) => return Ok(bytes),
                Some(Reply::Simple { outcome: Err(errno), .. }) => {
                    return Err(io::Error::other(format!("the volume answered {errno:?}")));
                }
                Some(Reply::Chunk { chunk, .. }) => return Err(unasked(&chunk)),
                None => {}
            }
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Structured replies were not asked for.
fn unasked(chunk: &Chunk) -> io::Error {
    io::Error::other(format!("the volume answered with a chunk nobody asked for: {chunk:?}"))
}

/// Bytes that no compression makes small and that differ from place to place.
fn noise(place: u64, seed: u64) -> Bytes {
    let mut state = (place << 32 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..PIECE / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.collect::<Vec<u8>>().into()
}
